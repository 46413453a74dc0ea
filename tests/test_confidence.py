from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import lagr
from lagr import config
from lagr.calibrate import TEMPERATURES, calibrate, check_splits, fit_whole, loss_by_temperature, lowest
from lagr.cli import main
from lagr.confidence import FILE, PLAIN, Calibration, Reliability, read
from lagr.datasets import Source
from lagr.errors import ConfigError, DataError, RunError
from lagr.parser import Parser
from lagr.train import train


@pytest.fixture(scope="module")
def parser(small_run: Path) -> Parser:
    found = lagr.load(small_run)
    assert isinstance(found, Parser)
    return found


def test_the_temperature_that_made_overconfident_labels_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    honest = torch.randn(20_000, 4, generator=generator).log_softmax(1)
    labels = torch.multinomial(honest.exp(), 1, generator=generator)[:, 0]
    for temperature in (0.5, 1.0, 2.0, 3.3):
        boastful = (honest * temperature).log_softmax(1)
        assert lowest(loss_by_temperature(boastful, labels)) == pytest.approx(temperature, rel=0.05)
    assert lowest(np.log(TEMPERATURES) ** 2) == pytest.approx(1)  # nothing but the prior
    assert lowest(-TEMPERATURES) == TEMPERATURES[-1]


def test_the_slope_and_offset_that_made_wholes_overconfident_are_found() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(1, 2, 20_000)
    right = random.random(20_000) < 1 / (1 + np.exp(-(0.6 * scores - 0.7)))
    slope, offset = fit_whole(1 / (1 + np.exp(-scores)), right, np.ones(20_000))
    assert slope == pytest.approx(0.6, abs=0.03) and offset == pytest.approx(-0.7, abs=0.05)
    mended = Reliability(
        np.array([Calibration(slope=slope, offset=offset).whole(p) for p in 1 / (1 + np.exp(-scores))]), right
    )
    assert mended.to_dict()["ece"] < 0.02 < Reliability(1 / (1 + np.exp(-scores)), right).to_dict()["ece"]


def test_answers_that_are_all_right_make_nothing_certain() -> None:
    slope, offset = fit_whole(np.full(200, 0.98), np.ones(200, bool), np.ones(200))
    assert Calibration(slope=slope, offset=offset).whole(0.98) < 0.9999
    assert Calibration(slope=slope, offset=offset).whole(0.2) < 0.5


def test_reliability_counts_what_was_promised_and_kept() -> None:
    found = Reliability.of([(0.9, True), (0.9, True), (0.9, False), (0.1, False)])
    assert found.bins() == [(pytest.approx(0.1), 1, 0), (pytest.approx(0.9), 3, 2)]
    assert found.to_dict() == {"n": 4, "accuracy": 0.5, "confidence": 0.7, "ece": pytest.approx(0.2), "brier": 0.21}
    assert Reliability.of([]).to_dict()["n"] == 0


def test_calibration_changes_probabilities_and_no_answer(parser: Parser, mini: Source) -> None:
    sentences = [example.tokens for example in mini.read("gen")]
    with_it = parser.parse_tokens(sentences)
    own, parser.calibration = parser.calibration, PLAIN
    without = parser.parse_tokens(sentences)
    parser.calibration = own
    assert own != PLAIN
    assert [parse.form for parse in with_it] == [parse.form for parse in without]
    assert [parse.probability for parse in with_it] != [parse.probability for parse in without]
    for parse in with_it:
        assert all(parse.probability <= part.probability for part in (*parse.nodes, *parse.edges))


def test_training_calibrates_on_dev_and_calibrating_again_finds_the_same(small_run: Path, mini: Source) -> None:
    written = json.loads((small_run / FILE).read_text())
    assert written["split"] == "dev" and written["n"] == 30
    again = calibrate(lagr.load(small_run), mini.read("dev"), "dev")
    for key in ("node_temperature", "edge_temperature", "slope", "offset"):
        assert again[key] == pytest.approx(written[key], rel=1e-3) == getattr(read(small_run), key)
    assert again["after"]["whole"] == pytest.approx(written["after"]["whole"], rel=1e-2)


def test_training_leaves_the_dev_of_mcd_splits_alone(tmp_path: Path, mini: Source, small_config: config.Config) -> None:
    few = [("train", "steps", 1), ("train", "evaluate_limit", 1)]
    for partition, calibrated in (("mcd1", False), ("random_split", True)):
        train(config.override(small_config, [*few, ("data", "partition", partition)]), mini, tmp_path / partition)
        assert (tmp_path / partition / FILE).is_file() == calibrated


def test_calibration_makes_dev_likelier(parser: Parser, mini: Source) -> None:
    def surprise(whole: Reliability) -> float:
        return float(-np.log(np.where(whole.right, whole.probabilities, 1 - whole.probabilities)).sum())

    before, after = check_splits(parser, mini)["dev"]
    assert surprise(after.whole) < surprise(before.whole)
    written = json.loads(json.dumps(after.to_dict()))
    assert written == calibrate(parser, mini.read("dev"), "dev")["after"]  # what is written is what parsing gives


def test_unknown_labels_are_left_out_of_parts_and_wrong_as_a_whole(parser: Parser, mini: Source) -> None:
    examples = mini.read("dev")[:30]
    graph = examples[0].graph
    strange = replace(examples[0], graph=replace(graph, nodes=("zyzzyva", *graph.nodes[1:])), form="zyzzyva")
    own = parser.calibration
    counted = calibrate(parser, [strange, *examples[1:]], "dev")["before"]
    without = calibrate(parser, examples[1:], "dev")["before"]
    parser.calibration = own
    assert counted["nodes"] == without["nodes"] and counted["whole"]["n"] == without["whole"]["n"] + 1
    right = round(without["whole"]["accuracy"] * without["whole"]["n"])
    assert round(counted["whole"]["accuracy"] * counted["whole"]["n"]) == right


def test_a_run_without_calibration_loads_and_a_damaged_one_says_so(small_run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(small_run, tmp_path / "copy"))
    for damage in ("{}", "junk", '{"node_temperature": 0, "edge_temperature": 1, "slope": 1, "offset": 0}'):
        (copy / FILE).write_text(damage)
        with pytest.raises(RunError, match="lagr calibrate"):
            lagr.load(copy)
    (copy / FILE).unlink()
    assert lagr.load(copy).calibration == PLAIN


def test_few_sentences_are_not_calibrated_on(parser: Parser, mini: Source) -> None:
    with pytest.raises(DataError, match="at least 20"):
        calibrate(parser, mini.read("dev")[:5], "dev")


def test_calibrate_shows_every_split_and_draws(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra lagr[plots]")
    copy = Path(shutil.copytree(small_run, tmp_path / "copy"))
    (copy / FILE).unlink()
    arguments = ["calibrate", str(copy), "--plot", str(tmp_path / "r.svg"), "--json", str(tmp_path / "r.json")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("fitted on 30 sentences of dev") and "gen    whole" in out
    assert set(json.loads((tmp_path / "r.json").read_text())["splits"]) == {"dev", "test", "gen"}
    assert (tmp_path / "r.svg").read_text().startswith("<?xml") and (copy / FILE).is_file()
    assert main(["calibrate", str(copy), "--split", "train"]) == 1
    assert "surer of what it was trained on" in capsys.readouterr().err


# Abstaining and the n best, as users meet them.


def test_below_the_probability_there_is_no_answer(parser: Parser) -> None:
    sentence = "The walrus painted a lantern ."
    sure = parser.parse(sentence).probability
    assert not parser.parse(sentence, min_probability=sure).abstained
    parse = parser.parse(sentence, min_probability=min(1.0, sure * 1.01))
    assert parse.abstained and parse.form is None and parse.graph is None and not parse.nodes
    assert parse.probability == sure and "no answer" in (parse.problem or "")
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="from 0 to 1"):
            parser.parse(sentence, min_probability=wrong)
    with pytest.raises(ConfigError, match="at least one"):
        parser.parse(sentence, nbest=0)


def test_a_script_sees_which_sentences_have_no_answer(small_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentences = ["The walrus painted a lantern .", "Zyx qqq the of of painted lantern a a walrus ."]
    surest, other = (parse.probability for parse in lagr.load(small_run).parse(sentences))
    assert other < surest
    arguments = ["parse", str(small_run), *sentences, "--min-probability", str(surest)]
    assert main(arguments) == 3
    out, err = capsys.readouterr()
    assert out.splitlines()[0].strip() and out.splitlines()[1] == "" and "no answer" in err and "Zyx" in err
    assert main([*arguments, "--format", "json"]) == 3
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["abstained"] for row in rows] == [False, True] and rows[1]["form"] is None and rows[1]["nodes"] == []
    assert main(["parse", str(small_run), sentences[0], "--min-probability", "2"]) == 1


def test_the_n_best_are_printed_and_are_in_the_json(small_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["parse", str(small_run), "The walrus painted a lantern .", "--nbest", "4"]
    assert main([*arguments, "--format", "json"]) == 0
    row = json.loads(capsys.readouterr().out)
    forms = [row["form"], *(one["form"] for one in row["next_best"])]
    assert len(forms) == 4 and forms[0] == lagr.load(small_run).parse("The walrus painted a lantern .").form
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [float(line.split("\t")[0]) for line in lines] == [pytest.approx(p, abs=1e-4) for p in (row["probability"], *(one["probability"] for one in row["next_best"]))]  # fmt: skip
    assert lines[0].split("\t")[1] == row["form"]
