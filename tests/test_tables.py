"""What is made from the results of runs: tables, figures beside presets, the analysis. The reports are made up."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from reports import fake_report, write_reports

from lagr import config, reproduce, results, tables
from lagr.analyse import placement_table
from lagr.cli import main
from lagr.datasets import Example
from lagr.errors import ConfigError
from lagr.graph import Graph, blindly_isomorphic
from lagr.parser import Parser
from lagr.rows import CFQ_BEYOND, CLAIMS, COGS, COGS_BEYOND, K_SIGMA, ROWS, TABLES, Figure, rows_of
from lagr.vocab import Vocabulary

ROOT = Path(__file__).parent.parent
BEST, WEAK = "cogs-strong-transformer-sep", "cogs-weak-transformer-sep"


def lagr(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(arguments)
    return (status, *capsys.readouterr())


def test_the_table_gives_every_seed_its_due(tmp_path: Path) -> None:
    row = rows_of(WEAK)[0]
    settings = (("train", "steps", 7000),)
    reports = [fake_report(row, seed, exact, 7000, 21_000) for seed, exact in enumerate((84.0, 82.0, 5.0))]
    reports[2] |= {"failed": True, "starts": [{**reports[2]["starts"][0], "train_exact": 6.0, "kept": False}] * 2}
    job = reproduce.plan([row], settings, None, tmp_path, tmp_path / "runs")[0]
    reproduce.record(job, reports, "abc", None)
    result = results.read(tmp_path, row)
    assert result
    file = results.path(tmp_path, row)
    file.write_text(json.dumps(result | {"unseen_rows": {"gen": 22}}))
    table = tables.markdown(COGS, tmp_path)
    (line,) = (line for line in table.splitlines() if f"`{WEAK}`" in line and line.startswith("|"))
    assert "**57.0 ± 45.0** | -9.5 sd | 3 (1 failed) | 57.1 ± 45.1" in line and "7,000 of 70,000" in line
    assert f"`{WEAK}`: run with `--seeds 3 --train.steps 7000`; 1 restart of runs that did not fit their training data; 1 of 3 seeds " \
           "had less than 95 % of their training data at the end, the paper's bound; without it: 83.0 ± 1.4." in table  # fmt: skip
    assert table.count(tables.NOT_RUN) == len(COGS.rows) - 1
    assert results.seconds(result) == 120  # two together, then one


@pytest.mark.parametrize(
    ("ours", "blind", "paper", "verdict"),
    [
        (62.6, None, (65.2, 2.6), "yes"),
        (62.5, 62.6, (65.2, 2.6), "yes, label-blind"),
        (50.1, 51.5, (65.2, 2.6), "**no**, -5.8 sd"),
        (67.8, 70.0, (65.2, 2.6), "yes"),
        (53.6, None, (39.0, 9.1), "above, +1.6 sd"),
        (98.8, 99.3, (99.7, 0.0), "**no**, -0.9 points"),
        (37.0, None, (53.0, None), "**no**, -16.0 points"),
        (35.0, None, (34.9, None), "yes"),
    ],
)
def test_a_row_is_reached_within_a_deviation_of_the_papers(
    ours: float, blind: float | None, paper: tuple[float, float | None], verdict: str
) -> None:
    assert tables.reached(Figure(ours), None if blind is None else Figure(blind), Figure(*paper)) == verdict


def test_a_seed_that_the_paper_would_leave_out_is_named_on_cfq_too(tmp_path: Path) -> None:
    row = rows_of("cfq-weak-transformer-sh-k1")[0]
    reports = [fake_report(row, seed, 50.0 + seed) for seed in range(3)]
    for report, fits in zip(reports, (99.5, 99.4, 100.0), strict=True):
        report["starts"][-1]["train_exact"] = fits
    reproduce.record(reproduce.plan([row], (), None, tmp_path, tmp_path)[0], reports, "abc", None)
    assert "1 of 3 seeds had less than 99.5 %" in tables.markdown(TABLES["cfq-table"], tmp_path)
    assert "without it: 51.0 ± 1.4." in tables.markdown(TABLES["cfq-table"], tmp_path)


def test_seeds_that_diverged_are_named_and_the_bound_is_that_of_weak_supervision(tmp_path: Path) -> None:
    for name in ("cogs-seq2seq-lstm", WEAK):
        row = rows_of(name)[0]
        reports = [fake_report(row, seed, 50.0 + seed) for seed in range(row.seeds)]
        reports[0]["starts"][-1]["train_exact"] = 94.0
        reports[1] |= {"failed": True, "diverged": 12, "starts": [{**reports[1]["starts"][0], "train_exact": 0.0}]}
        reproduce.record(reproduce.plan([row], (), None, tmp_path, tmp_path)[0], reports, "abc", None)
    notes = tables.markdown(COGS, tmp_path)
    assert "`cogs-seq2seq-lstm`: 1 of 5 seeds diverged; without it: 52.2 ± 1.7." in notes
    assert f"`{WEAK}`: 1 of 5 seeds diverged; 1 of 5 seeds had less than 95 % of their training data at the end, " \
           "the paper's bound; without them: 53.0 ± 1.0." in notes  # fmt: skip


def test_the_flags_of_a_note_make_the_same_settings() -> None:
    """What the page says a row was run with is what the command line has to be given for it."""
    checked = 0
    for row, _ in ROWS.values():
        if result := results.read(ROOT / "results", row):
            options = dict(flag.removeprefix("--").split() for flag in results.settings_of_its_own(result, row)[1])
            assert int(options.pop("seeds", row.seeds)) == len(result["runs"]), row.name
            given = tuple((*name.split("."), value) for name, value in options.items())
            assert not results.difference(results.settings_of(result), row.config(given)), row.name
            checked += bool(given)
    assert checked > 10


def test_the_table_of_claims_says_what_was_not_run(tmp_path: Path) -> None:
    assert tables.claims(tmp_path).count(tables.NOT_RUN) == len(CLAIMS)
    row = rows_of("cfq-weak-transformer-sh-k1")[0]
    job = reproduce.plan([row], (), None, tmp_path, tmp_path / "runs")[0]
    reports = [fake_report(row, seed, exact) for seed, exact in enumerate((65.0, 63.0))]
    for report in reports:
        report["evaluation"]["test"]["blind"] = 66.0
    reproduce.record(job, reports, "abc", None)
    (line,) = (line for line in tables.claims(tmp_path).splitlines() if line.startswith("| CFQ: weak, K = 1, MCD1 |"))
    assert "| **64.0 ± 1.4** | 66.0 ± 0.0 | yes | 2 × 750,000 |" in line


def test_accuracy_without_unseen_words_is_of_the_other_rows() -> None:
    evaluation = {"gen": {"n": 21_000, "exact": 100 * 17_000 / 21_000}}
    result = {"runs": [{"evaluation": evaluation}], "unseen_rows": {"gen": 22}}
    assert results.values(result, "gen", "known_words") == [pytest.approx(100 * 17_000 / 20_978)]
    assert results.values({**result, "unseen_rows": {}}, "gen", "known_words") == []


def test_the_page_of_tables_is_up_to_date(tmp_path: Path) -> None:
    """`make tables` would change nothing. Of pictures it is what they show that counts, not how it is drawn."""
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    images = tmp_path / "images"
    images.mkdir()
    assert tables.fill(page, ROOT / "results", images) == page
    stamp = re.compile(r"<!-- shows \w+ -->")
    for made in images.iterdir():
        committed = (ROOT / "docs" / "images" / made.name).read_text(encoding="utf-8")
        assert stamp.findall(made.read_text(encoding="utf-8")) == stamp.findall(committed), made.name
    with pytest.raises(ConfigError, match="give the folder of results"):
        tables.main([])
    copy = tmp_path / "page.md"
    copy.write_text(page, encoding="utf-8")
    for folder, document in ((tmp_path / "mistyped", copy), (ROOT / "results", tmp_path / "mistyped")):
        with pytest.raises(ConfigError, match=r"there is no .*mistyped"):
            tables.main([str(folder), str(document), str(images)])
    assert copy.read_text(encoding="utf-8") == page


def test_every_committed_result_is_of_a_row_and_of_all_its_seeds() -> None:
    of_rows = {results.path(ROOT / "results", row): row for row, _ in ROWS.values()}
    committed = 0
    for file in (ROOT / "results").glob("*/*.json"):
        found = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(found, dict) and "row" in found:
            assert results.read(ROOT / "results", of_rows[file]) == found, file
            committed += 1
    assert committed > 30


K1, K5 = "cfq-weak-transformer-sh-k1", "cfq-weak-transformer-sh-k5"
IN_THE_README = {  # how a line of its tables begins → whose figures it has
    "strong, the paper's best model": BEST,
    "strong, one encoder, Transformer": "cogs-strong-transformer-sh",
    "strong, two encoders, LSTM": "cogs-strong-lstm-sep",
    "strong, one encoder, LSTM": "cogs-strong-lstm-sh",
    "without alignments; [layers begin small]": WEAK,
    "retrained on its alignments": f"{WEAK}-retrain",
    "without alignments, which start from counts": f"{WEAK}-counts",
    "the seq2seq LSTM": "cogs-seq2seq-lstm",
    "the seq2seq Transformer, with the sizes": "cogs-seq2seq-transformer",
    "*beyond the paper:* strong": "cogs-best",
    "without alignments, `cogs-weak-best`": "cogs-weak-best",
    "with 0.6 million weights": "cogs-small",
    "beyond the paper: `cfq-best`": "cfq-best",
    "K = 5, layers begin at a tenth of their size": K5,
    "K = 5, layers at full size": f"{K5}-xavier",
    "K = 1, 200,000 steps | 3 | **50": K1,
    "K = 1, all 750,000 steps": f"{K1}-full",
    "K = 1 from counts, 200,000 steps": f"{K1}-counts",
    "K = 1 from counts, all 750,000 steps": f"{K1}-counts-full",
    "the seq2seq Transformer |": "cfq-seq2seq-transformer",
    "the seq2seq Transformer on compressed": "cfq-seq2seq-transformer-compressed",
    "*the random split, of which half is at hand:* K = 5": f"{K5}-random",
    "K = 5 from counts": f"{K5}-random-alike",
    "K = 1, 200,000 steps | 3 | **97": f"{K1}-random",
}


def test_the_tables_of_the_readme_have_the_figures_of_the_results() -> None:
    """In each line the seeds, mean ± deviation, range, the published code's score and the paper's figure of its row."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Results")[2].partition("\n## ")[0]
    lines = [line.removeprefix("| ") for line in text.splitlines() if "**" in line and line.startswith("| ")]
    assert len(lines) == len(IN_THE_README)
    for begins, name in IN_THE_README.items():
        (line,) = (line for line in lines if line.startswith(begins))
        _, seeds, ours, paper, *_ = line.split(" | ")
        (row, table), result = ROWS[name], results.read(ROOT / "results", ROWS[name][0])
        assert result and int(seeds) == len(result["runs"]), name
        exact, blind = (results.values(result, table.split, measure) for measure in ("exact", "blind"))
        (said,) = re.findall(r"\*\*(.+)\*\*", ours)
        assert said in [(results.figure(exact) or Figure(0)).text(digits) for digits in (1, 2)], name
        for low, high in re.findall(r"(\d+\.\d) to (\d+\.\d)", ours):
            assert (low, high) == (f"{min(exact):.1f}", f"{max(exact):.1f}"), name
        for score in re.findall(r"\((\d+\.\d+ ± \d+\.\d+)", ours):
            assert score in [(results.figure(blind) or Figure(0)).text(digits) for digits in (1, 2)], name
        if figures := re.findall(r"\d+\.\d(?: ± \d\.\d)?", paper):
            assert row.paper[table.split].text() == figures[0] or figures[0] == f"{row.paper[table.split].mean:.1f}", (
                name
            )


def test_blind_isomorphism_forgets_node_labels_and_lone_nodes_and_merges_equal_ones() -> None:
    gold = Graph(("?x0", "actor", "M1"), ((0, "agent", 1), (1, "theme", 2)))
    assert blindly_isomorphic(gold, Graph(("M1", "?x0", "editor"), ((1, "agent", 2), (2, "theme", 0))))
    assert not blindly_isomorphic(gold, replace(gold, edges=((0, "agent", 1), (1, "agent", 2))))
    assert not blindly_isomorphic(gold, replace(gold, edges=((0, "agent", 1),)))
    twice = Graph(("?x0", "actor", "M1", "actor"), ((0, "agent", 1), (3, "theme", 2)))
    assert blindly_isomorphic(gold, twice) and gold != twice
    lone = replace(gold, nodes=(*gold.nodes, "M2"))
    assert blindly_isomorphic(gold, lone) and gold != lone
    assert not blindly_isomorphic(Graph(("?x0",)), Graph(("?x0",)))


def test_presets_show_the_papers_figure_and_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def line() -> str:
        return next(line for line in lagr("presets", capsys=capsys)[1].splitlines() if line.startswith(f"{BEST} "))

    assert re.search(r"82\.5 ± 2\.9  +\d\d\.\d ± \d\.\d \(n = 10\)  COGS, strongly", line())
    monkeypatch.setattr(results, "__file__", str(tmp_path / "lagr" / "results.py"))  # installed without the repository
    assert re.search(r"82\.5 ± 2\.9  +–  COGS, strongly", line())
    job = reproduce.plan(rows_of(BEST), (("train", "steps", 7000),), None, tmp_path / "results", tmp_path)[0]
    reproduce.record(job, [fake_report(job.row, 0, 80.0, 7000)], "", None)
    (tmp_path / "pyproject.toml").touch()
    assert "80.0 (n = 1, 7,000 steps)" in line()


def test_the_rows_and_the_presets_name_the_same_figures() -> None:
    assert len(ROWS) == sum(len(table.rows) for table in TABLES.values())
    for row, table in ROWS.values():
        row.config((("align", "given", ""),))
        if not row.settings and row.paper:
            about = config.read_toml(config.PRESETS / f"{row.preset}.toml")["about"]
            if table in (COGS_BEYOND, CFQ_BEYOND):  # no rows of the paper's: it has no figure for them
                assert "paper" not in about, row.name
                continue
            assert about["paper"].startswith(Figure(row.paper[table.split].mean).text()), row.name


def test_the_analysis_is_of_every_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row, weak, writer = (rows_of(name)[0] for name in (BEST, WEAK, "cogs-seq2seq-lstm"))
    for one, accuracies in ((row, (80.0, 90.0)), (weak, (70.0,)), (writer, (60.0,))):
        job = reproduce.plan([one], (), None, tmp_path, tmp_path / "runs")[0]
        reports = [fake_report(one, seed, exact) for seed, exact in enumerate(accuracies)]
        reports[-1]["starts"] = [
            {**reports[-1]["starts"][0], "train_exact": 40.0, "kept": False},
            *reports[-1]["starts"],
        ]
        reproduce.record(job, reports, "abc", None)
    arguments = ("--results", str(tmp_path), "--out", str(tmp_path / "pictures"))
    status, out, _ = lagr("analyse", "cogs-table", *arguments, capsys=capsys)
    assert status == 0
    assert "| b | 20.0 | 70.0 ± 14.1 | 40.0 |" in out  # by category
    assert "| a wrong edge label between right nodes | 100.0 | 100.0 ± 0.0 | 100.0 |" in out  # of what is wrong
    (line,) = (line for line in out.splitlines() if "(`cogs-" in line)  # the other rows have no alignments to find
    assert line.endswith("| 10 | 1 | yes | 2 | 1 | 50 % | 95 % | 40.0, 99.0 |")
    assert "prefers-color-scheme: dark" in (tmp_path / "pictures" / "categories.svg").read_text()
    status, _, err = lagr("analyse", "cfq-table", *arguments, capsys=capsys)
    assert status == 1 and "run `lagr reproduce cfq-table` first" in err


def test_rows_that_learned_nothing_are_named_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, failed in ((BEST, False), (WEAK, True)):
        row = rows_of(name)[0]
        reports = [fake_report(row, seed, 80.0) | {"failed": failed} for seed in range(row.seeds)]
        reproduce.record(reproduce.plan([row], (), None, tmp_path, tmp_path / "runs")[0], reports, "abc", None)
    arguments = ("--results", str(tmp_path), "--out", str(tmp_path / "pictures"))
    whole = lagr("analyse", "cogs-table", *arguments, capsys=capsys)[1]
    assert (
        f"no seed fitted its training data: {WEAK}." in whole
        and "| category | strong, Transformer, separate |" in whole
    )
    alone = lagr("analyse", WEAK, *arguments, capsys=capsys)[1]
    assert "| category | weak, Transformer, separate |" in alone and "no seed fitted" not in alone


def test_predictions_of_a_run_are_drawn(small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = lagr("analyse", str(small_run), "--split", "gen", "--out", str(tmp_path), capsys=capsys)
    table, _, drawn = out.partition("\n\n")
    files = [Path(line) for line in drawn.splitlines()]
    assert status == 0 and files and table.startswith("| label | nodes | on the word |"), err
    for file in files:
        gold = ">gold<" in file.read_text()
        assert gold == file.name.startswith("wrong") and (gold or file.name.startswith("right"))


def test_labels_are_counted_on_the_words_that_a_model_places_them_on() -> None:
    graphs = [Graph(("Ida", "edit", "x" * 60), slots=(0, slot, 5)) for slot in (2, 2, 3, 4)]
    examples = [Example(("Ida", "edited", "films"), graph) for graph in graphs]
    vocab = Vocabulary.of(examples, copied={"Ida"})
    model = SimpleNamespace(graph_layers=2)
    placed = SimpleNamespace(vocab=vocab, model=model, align=lambda some: list(some), can_align=lambda one: True)
    table = placement_table(cast(Parser, placed), examples)
    assert table.splitlines()[2:] == [
        "| `edit` | 4 | edited 75 %, films 25 % |", f"| `…{'x' * 43}` | 4 | films 100 % |"
    ]  # fmt: skip
    assert "| `edit` | 2 |" in placement_table(cast(Parser, placed), examples, most=2)


def test_without_matplotlib_there_are_the_figures_without_the_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    folder, where = write_reports(tmp_path / "run", rows_of(BEST)[0], [80.0, 82.0]), str(tmp_path / "results")
    taken = ("--from", str(folder), "--commit", "abc", "--results", where)
    status, out, err = lagr("reproduce", BEST, *taken, capsys=capsys)
    assert status == 0 and "**81.0 ± 1.4**" in out and "**81.0 ± 1.4**" in (Path(where) / "cogs-table.md").read_text()
    assert re.fullmatch(r"lagr: .*cogs-table\.svg was not drawn: .*pip install 'lagr\[plots\]'\n", err)
    status, out, err = lagr("analyse", BEST, "--results", where, "--out", str(tmp_path / "pictures"), capsys=capsys)
    assert status == 0 and "## By category" in out and "categories.svg" not in out
    assert "categories.svg was not drawn" in err and not list(tmp_path.rglob("*.svg"))


def test_cells_that_are_rows_of_another_table_are_run_once() -> None:
    for row in K_SIGMA.rows:
        if row.outcome_of:
            assert row.config() == rows_of(row.outcome_of)[0].config()
    assert set(reproduce.tables_of(rows_of("cfq-weak-transformer-sh-k1-random"))) == {"cfq-table", "k-sigma-table"}
