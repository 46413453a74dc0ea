from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lagr import config
from lagr.cli import main
from lagr.datasets import Source, open_source
from lagr.errors import ConfigError
from lagr.supervision import training_examples

ROOT = Path(__file__).parent.parent


def lagr(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("arguments", ["--help", "train --help", "presets", "data check --help"])
def test_help_needs_no_torch(arguments: str) -> None:
    code = (
        f"import sys; sys.argv = ['lagr', *{arguments.split()!r}]\n"
        "from lagr.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'scipy', 'rich', 'rustworkx', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


def test_graph_forms_and_datasets_need_no_torch() -> None:
    code = "import sys, lagr.graph, lagr.forms, lagr.datasets.check, lagr.datasets.fetch, lagr.datasets as d; d.open_source('mini', size=20); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_evaluate_writes_what_scripts_rely_on(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    status, out, _ = lagr("evaluate", str(small_run), "--split", "gen", "--json", str(file), capsys=capsys)
    report = json.loads(file.read_text())
    assert status == 0 and f"{report['exact']:.2f} % exact" in out and "pp_on_subject" in out
    assert report["split"] == "gen" and report["low"] <= report["exact"] <= report["high"]
    assert set(report["by_category"]["deeper_pp"]) >= {"n", "exact"}
    assert report["n"] == sum(c["n"] for c in report["by_category"].values())
    saved = json.loads((small_run / "report.json").read_text())["evaluation"]["gen"]
    assert saved == report
    status, out, _ = lagr("evaluate", str(small_run), "--json", "-", capsys=capsys)
    assert json.loads(out)["split"] == "test"


@pytest.mark.parametrize("kind", ["form", "json", "text", "svg", "dot"])
def test_parse_prints_every_format(small_run: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = lagr("parse", str(small_run), "The walrus painted a lantern.", "--format", kind, capsys=capsys)
    assert status == 0 and "walrus" in out
    if kind == "json":
        assert json.loads(out)["tokens"] == ["The", "walrus", "painted", "a", "lantern", "."]
    if kind == "svg":
        assert out.startswith("<svg")


def test_sentences_may_follow_options(small_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = lagr("parse", str(small_run), "Ida sang .", "--format", "json", "Oskar yawned .", capsys=capsys)
    assert status == 0 and [json.loads(line)["tokens"][0] for line in out.splitlines()] == ["Ida", "Oskar"]


def test_what_makes_a_parse_strange_is_said(small_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = lagr("parse", str(small_run), "Zork sang .", "A frobnicator yawned .", "Zork yawned .", capsys=capsys)
    assert err.splitlines()[-1] == "lagr: training has not seen “Zork”, “frobnicator”"
    status, out, err = lagr("parse", str(small_run), "The", "boy", "slept", capsys=capsys)
    assert status == 0 and len(out.splitlines()) == 3
    assert err.startswith("lagr: 3 sentences of one word each; one sentence stands in quotes\n")


def test_parse_reads_lines_from_stdin(
    small_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("Ida sang .\n\nOskar yawned .\n"))
    status, out, _ = lagr("parse", str(small_run), "-", "--format", "json", capsys=capsys)
    assert status == 0 and [json.loads(line)["tokens"][0] for line in out.splitlines()] == ["Ida", "Oskar"]


def test_align_writes_data_that_can_be_trained_on(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "aligned.jsonl"
    assert lagr("align", str(small_run), "--out", str(file), capsys=capsys)[0] == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 300 and all(len(row["alignment"]) == len(row["graph"]["nodes"]) for row in rows)
    status, out, _ = lagr("align", str(small_run), "--split", "dev", capsys=capsys)
    assert status == 0 and len(out.splitlines()) == 30
    arguments = ("train", "quickstart", "--out", str(tmp_path / "run"), "--data.size", "300", "--align.supervision", "strong",
                 "--align.start", "model", "--align.hold", "0", "--align.given", str(file), "--train.steps", "2")  # fmt: skip
    status, out, _ = lagr(*arguments, capsys=capsys)
    assert status == 0 and "% exact" in out


def test_several_seeds_are_trained_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "train",
        "quickstart",
        "--out",
        str(tmp_path / "run"),
        "--data.size",
        "50",
        "--train.steps",
        "3",
        "--seeds",
        "2",
    ]
    assert lagr(*arguments, capsys=capsys)[0] == 0
    seeds = [
        json.loads((tmp_path / "run" / f"seed-{i}" / "report.json").read_text())["starts"][0]["seed"] for i in (0, 1)
    ]
    assert seeds == [0, 1]
    status, _, err = lagr(*arguments, "--resume", capsys=capsys)
    assert status == 1 and "nothing to resume" in err
    assert lagr(*arguments, capsys=capsys)[0] == 1


def test_data_check_counts_and_finds_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = lagr("data", "check", "mini", capsys=capsys)
    assert status == 0 and "no failure" in out and "4,000" in out
    row = {"tokens": ["Ida", "sang"], "form": "sing . agent ( x _ 1 , Ida )", "formalism": "cogs"}
    wrong = {**row, "graph": {"nodes": ["Ida", "sing"], "edges": [[1, "theme", 0]]}, "alignment": [0, 1]}
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(row) + "\n" + json.dumps(wrong) + "\n{\n\n[]\n")
    status, out, err = lagr("data", "check", str(file), "--json", str(tmp_path / "a.json"), capsys=capsys)
    assert status == 1 and "3 of 4 rows fail" in err and "first failures" in out
    assert f"{file}:3 is no JSON" in out and f"{file}:5: a row is a JSON object" in out and "“Ida sang”" in out
    assert json.loads((tmp_path / "a.json").read_text())["failed"] == 3


BAD = {
    "missing preset": (["train", "quikstart"], "did you mean quickstart?"),
    "missing file": (["train", "none.toml"], "no file none.toml"),
    "missing run": (["parse", "none", "Ida sang ."], "no run folder"),
    "missing data": (["train", "cogs-strong-lstm-sh", "--data", "none"], "lagr data fetch cogs"),
    "bad value": (["train", "quickstart", "--train.steps", "many"], "should be a whole number"),
    "bad choice": (["train", "quickstart", "--model.encoder", "gru"], "transformer or lstm"),
    "no steps": (["train", "quickstart", "--train.steps", "0"], "at least 1"),
    "no seeds": (["train", "quickstart", "--seeds", "0"], "at least one seed"),
    "empty sentence": (["parse", "RUN", ""], "empty"),
    "NUL byte": (["parse", "RUN", "Ida\0sang"], "NUL"),
    "10,000 tokens": (["parse", "RUN", "word " * 10_000], "10,000 tokens"),
    "missing split": (["evaluate", "RUN", "--split", "mars"], "it has train, dev, test, gen"),
    "unwritable": (["evaluate", "RUN", "--json", "/nowhere/x.json"], "can't be written"),
    "unwritable alignments": (["align", "RUN", "--out", "/nowhere/x.jsonl"], "No such file or directory"),
    "taken folder": (["train", "quickstart", "--out", "RUN"], "already holds files"),
    "nothing given": (["train", "quickstart", "--align.supervision", "strong", "--align.start", "model", "--align.hold", "0", "--align.given", "none.jsonl", "--out", "OUT"], "there is no none.jsonl; give the folder"),
    "given with weak": (["train", "quickstart", "--align.given", "x.jsonl", "--out", "OUT"], "align.supervision = strong"),
    "retrain on nothing": (["train", "cogs-weak-transformer-sep-retrain", "--data", "none"], "lagr data fetch cogs"),
    "huge seed": (["train", "quickstart", "--seed", "99999999999"], "below 2^30"),
    "hold without start": (["train", "quickstart", "--align.start", "model"], "align.hold needs"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_status_1(
    case: str, small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, complaint = BAD[case]
    places = {"RUN": str(small_run), "OUT": str(tmp_path / "out")}
    before = sorted(path.name for path in small_run.iterdir())
    status, out, err = lagr(*(places.get(a, a) for a in arguments), capsys=capsys)
    assert status == 1 and (out == "" or case == "unwritable")  # what was found is printed all the same
    *before_it, line = err.splitlines()
    assert line.startswith("lagr: ") and complaint in line and "Traceback" not in err
    assert before_it == [] or case == "unwritable"
    assert sorted(path.name for path in small_run.iterdir()) == before and not (tmp_path / "out").exists()


def test_an_unknown_option_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["train", "quickstart", "--train.stpes", "3"])
    assert caught.value.code == 2 and "did you mean --train.steps?" in capsys.readouterr().err


# Configuration


@pytest.mark.parametrize("name", config.presets())
def test_every_preset_loads_and_survives_being_written(name: str) -> None:
    settings = config.load(name)
    assert config.from_dict(tomllib.loads(config.to_toml(settings)), "again") == settings


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[train]\nstpes = 3", "did you mean train.steps?"),
        ("[trian]\nsteps = 3", "did you mean train?"),
        ("steps = 3", "unknown key 'steps'"),
        ("[train]\nsteps = 3.5", "whole number"),
        ("[train]\nsteps = true", "whole number"),
        ("[align]\nremember = 1", "true or false"),
        ("[train]\nlearning_rate = nan", "should be a number"),
        ("[train]\nbatch = -1", "negative"),
        ("[model]\nwidth = 30", "multiple of 2"),
        ("[model]\ndropout = 1.0", "below 1"),
        ("[model]\npositions = 'rotary'\nedge_width = 7", "must be even"),
        ("[train", "is no TOML"),
    ],
)
def test_a_bad_settings_file_names_the_key(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load(str(file))
    assert complaint in str(caught.value)


# Benchmarks


def test_a_benchmark_gives_both_times_and_their_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    status, out, _ = lagr("bench", "matching", "--json", str(file), capsys=capsys)
    result = json.loads(file.read_text())["results"]["matching"]
    assert status == 0 and out.startswith("matching")
    assert result["ratio"] == pytest.approx(result["other_ms"] / result["ours_ms"], abs=0.02)
    status, _, err = lagr("bench", "speed", capsys=capsys)
    assert status == 1 and "there are matching, train-strong" in err


@pytest.mark.parametrize("supervision", ["strong", "weak"])
def test_the_published_way_of_a_step_learns_too(supervision: str) -> None:
    """A reference that did less work than it should would make ours look slow, and one that did more, fast."""
    from lagr import bench

    settings = config.override(
        bench._settings(supervision, "cpu"),
        [("data", "size", 60), ("train", "batch", 20), ("model", "encoder_layers", 1)],
    )
    examples = training_examples(settings, open_source("mini", size=settings.data.size))
    reference = bench.Published(settings, examples, "cpu")
    before = [p.detach().clone() for p in reference.parts.parameters()]
    reference.step()
    assert all((one != other.detach()).any() for one, other in zip(before, reference.parts.parameters(), strict=True))


def test_the_profile_of_a_step_has_all_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from lagr import bench
    from lagr.bench_profile import PARTS

    small = config.override(bench._settings("weak", "cpu"), [("train", "batch", 8), ("model", "encoder_layers", 1)])
    monkeypatch.setattr(bench, "_task", lambda supervision: (small, open_source("mini", size=30)))
    result = bench.profile()
    times = {part["part"]: part["ms"] for part in result["parts"]}
    assert sum(times.values()) == pytest.approx(result["ours_ms"], rel=0.01)
    assert times["matrix products"] > 0
    assert set(times) <= set(PARTS)


def test_the_seq2seq_of_the_benchmark_writes_as_many_tokens_as_real_forms_have() -> None:
    """One that ended early would make ours look slow, and one that never did, fast."""
    from lagr import bench
    from lagr.datasets import open_source
    from lagr.seq2seq import Seq2Seq
    from lagr.vocab import Vocabulary

    sentences = [e.tokens for e in open_source("mini", size=200).read("train")[:130]]
    vocab = Vocabulary(("walrus",), (), ())
    model = Seq2Seq(vocab.sizes[0], 30, width=16, encoder_layers=1, heads=2).eval()
    first, last = bench._written(model, sentences, [5] * 128 + [7, 6], vocab, "cpu")
    assert first.shape == (1, 128, 5) and last.shape == (1, 2, 7) and (first > 0).all() and (last > 0).all()


def test_the_loop_over_all_pairs_finds_the_graphs_that_decoding_finds() -> None:
    import torch

    from lagr.bench_references import graphs_pair_by_pair
    from lagr.decode import decode
    from lagr.model import GraphDistribution
    from lagr.vocab import Vocabulary

    torch.manual_seed(0)
    slots = torch.arange(6) < torch.tensor([6, 3, 1])[:, None]
    dist = GraphDistribution.from_logits(torch.randn(3, 6, 4), torch.randn(3, 6, 6, 3), slots)
    vocab = Vocabulary((), ("a", "b", "c"), ("e", "f"))
    found = graphs_pair_by_pair(dist, vocab)
    assert sum(len(graph.edges) for graph in found) > 5
    assert [vars(graph) for graph in found] == [vars(one.graph) for one in decode(dist, vocab)]


def test_the_benchmark_of_evaluation_has_the_forward_pass_in_it(
    small_run: Path, mini: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lagr import bench, load

    monkeypatch.setattr(bench, "open_source", lambda name: mini)
    monkeypatch.setattr(bench, "_trained_parser", lambda settings, source: load(small_run))
    result = bench.evaluate()
    assert result["what"] == f"{len(mini.read('gen'))} sentences of mini evaluated"
    assert 0 <= result["forward_seconds"] <= result["seconds"] + 0.05 and result["ratio"] > 0
