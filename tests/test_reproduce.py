"""`lagr reproduce`: what runs, goes on, is taken over and recorded."""

from __future__ import annotations

import json
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reports import fake_report, write_reports

from lagr import config, processes, reproduce, results, runs
from lagr.cli import main
from lagr.datasets import Example
from lagr.errors import DataError, RunError
from lagr.graph import Edge, Graph
from lagr.rows import COGS, TABLES, rows_of
from lagr.supervision import fingerprint_of_all

# A model that is trained in a second. LSTMs and Transformers take these settings alike.
TINY = ("--model.width", "16", "--model.encoder_layers", "1", "--model.heads", "2", "--train.batch", "16",
        "--train.evaluate_limit", "40", "--train.save_every", "10", "--train.evaluate_every", "0")  # fmt: skip
BEST, SHARED, WEAK = "cogs-strong-transformer-sep", "cogs-strong-transformer-sh", "cogs-weak-transformer-sep"


def lagr(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(arguments)
    return (status, *capsys.readouterr())


def command(folder: Path, data: Path, *more: str) -> list[str]:
    where = ["--data", str(data), "--results", str(folder / "results"), "--out", str(folder / "runs")]
    return [sys.executable, "-m", "lagr.cli", "reproduce", *more, *where, *TINY]


def write_corpus(folder: Path, splits: dict[str, list[str]]) -> Path:
    (folder / "cogs").mkdir(parents=True)
    for split, lines in splits.items():
        (folder / "cogs" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def part_of_cogs(cogs_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every 100th row of COGS, so that a table takes seconds, and the rows of one unseen word."""
    splits = {}
    for split in ("train", "dev", "test", "gen"):
        lines = (cogs_data / "cogs" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        splits[split] = lines[::100] + [line for line in lines if "monastery" in line]
    return write_corpus(tmp_path_factory.mktemp("part"), splits)


@pytest.fixture(scope="module")
def like_cogs(mini: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated data, laid out as COGS is."""
    splits = {
        split: ["\t".join((" ".join(e.tokens), e.form, e.category)) for e in mini.read(split)[:60]]
        for split in mini.splits
    }
    return write_corpus(tmp_path_factory.mktemp("like"), splits)


def outcome(folder: Path) -> dict[str, Any]:
    """All results, but for the time they took."""
    found = {}
    for file in sorted((folder / "results").glob("cogs/*.json")):
        found[file.stem] = result = json.loads(file.read_text())
        for run in result["runs"]:
            del run["seconds"]
    return found


def test_the_cogs_table_is_run_killed_and_resumed(part_of_cogs: Path, tmp_path: Path) -> None:
    """The acceptance: `lagr reproduce cogs-table --seeds 1 --train.steps 50` on a CPU."""
    arguments = ("cogs-table", "--seeds", "1", "--train.steps", "50", "--train.restarts", "1")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = subprocess.run(command(whole, part_of_cogs, *arguments), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    # Killed in the middle of a row that is not the first, while its checkpoint is some steps old.
    process = subprocess.Popen(command(killed, part_of_cogs, *arguments), stderr=subprocess.DEVNULL)
    state = killed / "runs" / "cogs-strong-lstm-sep" / "seeds-0-0" / runs.STATE
    while not state.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    first = results.path(killed / "results", rows_of("cogs-strong-lstm-sh")[0])
    written = first.stat().st_mtime_ns
    assert state.exists() and not results.path(killed / "results", rows_of("cogs-strong-lstm-sep")[0]).exists()
    done = subprocess.run(command(killed, part_of_cogs, *arguments), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cogs-strong-lstm-sh:" not in done.stderr and first.stat().st_mtime_ns == written  # not run again

    found = outcome(whole)
    assert found == outcome(killed) and found.keys() >= {row.name for row in COGS.rows}
    for result in found.values():
        (run,) = result["runs"]
        assert result["config"]["train"]["steps"] == 50 and result["paper_steps"] in (50_000, 70_000)
        assert run["seed"] == 0 and "commit" in run and run["machine"] and run["starts"]
        assert (
            set(run["evaluation"]) == {"train", "dev", "test", "gen"}
            and len(run["evaluation"]["gen"]["by_category"]) == 21
        )
        assert result["unseen_rows"]["train"] == 0 and result["unseen_rows"]["gen"] >= 10
    assert found[f"{WEAK}-retrain"]["config"]["align"]["given"] == WEAK
    table = (whole / "results" / "cogs-table.md").read_text()
    assert done.stdout.strip() == table.strip() and table.count("50 of ") >= 7
    assert "--train.steps 50 " in table
    assert "prefers-color-scheme: dark" in (whole / "results" / "cogs-table.svg").read_text()


def test_more_seeds_are_added_and_other_settings_are_noticed(
    like_cogs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*more: str) -> tuple[int, str, str]:
        return lagr(*command(tmp_path, like_cogs, BEST, "--train.steps", "3", *more)[3:], capsys=capsys)

    assert run("--seeds", "1")[0] == 0
    assert run("--seeds", "3")[0] == 0
    assert sorted(f.name for f in (tmp_path / "runs" / BEST).iterdir()) == ["seeds-0-0", "seeds-1-2"]
    result = outcome(tmp_path)[BEST]
    assert [run["seed"] for run in result["runs"]] == [0, 1, 2]
    assert [run["seeds_at_once"] for run in result["runs"]] == [1, 2, 2]
    status, _, err = run("--seeds", "3", "--model.dropout", "0.2")
    assert status == 1 and "was made with model.dropout = 0.4, not 0.2" in err and err.count("\n") == 1
    (tmp_path / "results" / "cogs" / f"{BEST}.json").unlink()
    status, _, err = run("--seeds", "3", "--model.dropout", "0.2")
    assert status == 1 and "was started with model.dropout = 0.4, not 0.2" in err
    assert run("--seeds", "3")[0] == 0  # from the runs that are there; nothing is trained
    again = outcome(tmp_path)[BEST]
    assert again == result
    assert run("--seeds", "0")[0] == run("--seeds", "1", "--train.seed", "3")[0] == 1


def test_of_a_table_rows_that_were_run_otherwise_are_passed_over(
    like_cogs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shorter = reproduce.plan(rows_of(BEST), (("train", "steps", 7),), None, tmp_path / "results", tmp_path / "runs")[0]
    reproduce.record(shorter, [fake_report(shorter.row, 0, 80.0, 7)], "abc", None)
    where = ("--results", str(tmp_path / "results"), "--out", str(tmp_path / "runs"))
    status, out, _ = lagr("reproduce", "cogs-table", "--dry-run", *where, capsys=capsys)
    assert status == 0 and len(out.splitlines()) == len(COGS.rows) and "done with train.steps = 7, not 70000" in out
    tiny = (("train", "steps", 2), ("model", "width", 16), ("model", "encoder_layers", 1))
    jobs = [
        *reproduce.plan(rows_of(BEST), (), 1, tmp_path / "results", tmp_path / "runs"),
        *reproduce.plan(rows_of(SHARED), tiny, 1, tmp_path / "results", tmp_path / "runs"),
    ]
    said: list[str] = []
    assert reproduce.run(jobs, str(like_cogs), said.append) == {}
    assert said[0] == f"{BEST}: passed over, done with train.steps = 7, not 70000" and said[1].startswith(SHARED)
    assert sorted(outcome(tmp_path)) == sorted([BEST, SHARED])


@pytest.mark.parametrize("table", TABLES)
def test_every_table_of_the_repository_can_be_planned(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = results.shipped()
    if folder is None:
        pytest.skip("the package is installed without the repository's results")
    status, out, err = lagr("reproduce", table, "--dry-run", "--results", str(folder), capsys=capsys)
    assert status == 0 and len(out.splitlines()) == len(rows_of(table)), err


def test_a_row_killed_while_its_folder_was_laid_out_begins_anew(
    like_cogs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs" / BEST / "seeds-0-0" / "seed-0").mkdir(parents=True)
    (tmp_path / "runs" / BEST / "seeds-0-0" / "seed-0" / "config.toml.partial").write_text("[about")
    arguments = command(tmp_path, like_cogs, BEST, "--seeds", "1", "--train.steps", "2")[3:]
    assert lagr(*arguments, capsys=capsys)[0] == 0


def test_seeds_that_never_fit_are_results(like_cogs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--seeds", "1", "--train.steps", "4", "--train.restarts", "1", "--train.restart_after", "0.5")
    status, out, err = lagr(*command(tmp_path, like_cogs, WEAK, *arguments)[3:], capsys=capsys)
    (run,) = outcome(tmp_path)[WEAK]["runs"]
    assert status == 0 and run["failed"] and [start["kept"] for start in run["starts"]] == [False, False], err
    assert (
        "1 (1 failed)" in out
        and "1 restart of runs" in out
        and "1 of 1 seeds had less than 95 % of their training data" in out
    )
    assert "| 2 of 70,000 |" in out, "how far it came, not how far it should have"


def test_seeds_are_retrained_with_those_whose_alignments_lie_in_one_folder(tmp_path: Path) -> None:
    row = rows_of(f"{WEAK}-retrain")[0]
    job = reproduce.plan([row], (), 5, tmp_path / "results", tmp_path / "runs")[0]
    batch = job.next_batch()
    assert batch and batch.seeds == range(1), "nothing is there: one seed is asked for, and refused later"
    for first, last in ((0, 1), (2, 6)):
        for seed in range(first, last + 1):
            folder = tmp_path / "runs" / row.alignments_of / f"seeds-{first}-{last}" / f"seed-{seed}"
            folder.mkdir(parents=True)
            (folder / runs.REPORT).write_text("{}")
            (folder / runs.ALIGNMENTS).touch()
    batch = job.next_batch()
    assert batch and batch.seeds == range(2) and reproduce._alignments(job, 0).name == "seeds-0-1"
    reproduce.record(job, [fake_report(row, seed, 80.0) for seed in (0, 1)], "abc", None)
    batch = job.next_batch()
    assert batch and batch.seeds == range(2, 5) and reproduce._alignments(job, 2).name == "seeds-2-6"


def test_alignments_of_a_row_whose_result_alone_is_here_are_said_to_be_missing(tmp_path: Path) -> None:
    weak, row = rows_of(WEAK)[0], rows_of(f"{WEAK}-retrain")[0]
    weak_job, job = reproduce.plan([weak, row], (), 1, tmp_path / "results", tmp_path / "runs")
    assert not job.teacher_is_gone(0), "the weak row is still to be run"
    reproduce.record(weak_job, [fake_report(weak, 0, 80.0)], "abc", None)
    assert not job.teacher_is_gone(1), "its next seed is still to be run"
    assert "that are not here" in reproduce.describe(job)
    with pytest.raises(DataError, match="without its runs: run both rows with another --results"):
        reproduce._alignments(job, 0)


def test_when_a_run_is_evaluated_matters_only_where_that_chooses_the_model() -> None:
    last = config.load(BEST)
    best = config.override(last, [("train", "keep", "best")])
    seldom = [("train", "evaluate_every", 7)]
    assert not results.difference(config.override(last, seldom), last)
    assert results.difference(config.override(best, seldom), best) == "train.evaluate_every = 7, not 10000"


def test_missing_data_and_alignments_are_named(
    like_cogs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command(tmp_path, like_cogs, f"{WEAK}-retrain", "--seeds", "1", "--train.steps", "2")[3:]
    status, _, err = lagr(*arguments, capsys=capsys)
    assert status == 1 and f"run `lagr reproduce {WEAK}` first" in err
    status, _, err = lagr(*command(tmp_path, like_cogs, "k5-sigma1", "--seeds", "1")[3:], capsys=capsys)
    assert (
        status == 1 and "1 of 1 rows could not be run: k5-sigma1" in err and err.splitlines()[-1].startswith("lagr: ")
    )
    status, _, err = lagr("reproduce", "cog-table", capsys=capsys)
    assert status == 1 and "did you mean cogs-table?" in err


# What follows needs no training: the reports are made up.


def test_runs_made_elsewhere_become_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_reports(tmp_path / "run", rows_of(BEST)[0], [80.0, 82.0])
    where = ("--results", str(tmp_path / "results"), "--data", str(tmp_path))
    arguments = ("reproduce", BEST, "--from", str(folder), "--commit", "abc", *where)
    status, out, err = lagr(*arguments, capsys=capsys)
    assert status == 0, err
    assert "| 82.5 ± 2.9 | **81.0 ± 1.4** | -0.5 sd | 2 |" in out and "70,000 |" in out
    assert "without unseen words" not in out  # the data is not there to count them
    (result,) = outcome(tmp_path).values()
    assert [run["commit"] for run in result["runs"]] == ["abc", "abc"]
    assert "Ava slept" not in json.dumps(result)  # sentences stay where they belong
    status, _, err = lagr(*arguments, capsys=capsys)
    assert status == 1 and "has seed 0 already" in err
    status, _, err = lagr("reproduce", "cogs-strong-lstm-sh", *arguments[2:], capsys=capsys)
    assert status == 1 and "the run has model.encoder = transformer, not lstm" in err
    status, _, err = lagr("reproduce", "cogs-table", *arguments[2:], capsys=capsys)
    assert status == 1 and "name the row" in err
    status, _, err = lagr("reproduce", BEST, "--from", str(tmp_path / "none"), "--commit", "abc", *where, capsys=capsys)
    assert status == 1 and "give the folder of a finished run" in err


def test_all_seeds_of_a_run_that_is_taken_over_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def take(folder: Path, name: str = BEST, *more: str) -> str:
        where = ("--results", str(tmp_path / "results"), "--data", str(tmp_path))
        status, _, err = lagr(
            "reproduce", name, "--from", str(folder), *(more or ("--commit", "abc")), *where, capsys=capsys
        )
        assert status == 1 and err.count("\n") == 1
        assert not (tmp_path / "results").exists()
        return err

    row = rows_of(BEST)[0]
    folder = write_reports(tmp_path / "run", row, [80.0, 82.0])
    (folder / "seed-2").mkdir()
    (folder / "seed-2" / runs.CONFIG).touch()
    assert "seed-2 did not finish; every seed that was started counts" in take(folder)
    shutil.rmtree(folder / "seed-2")
    assert "would lack seed 0; give the folder that holds all seeds" in take(folder / "seed-1")
    shutil.copytree(folder / "seed-1", folder / "seed-1-again")
    assert "has seed 1 already" in take(folder)
    assert "leave --seeds and --dry-run out" in take(folder, BEST, "--dry-run")
    assert "leave --seeds and --dry-run out" in take(folder, BEST, "--seeds", "2")
    assert "--from needs --commit HASH" in take(folder, BEST, "--model.width", "512")
    strong = write_reports(tmp_path / "strong", replace(rows_of(f"{WEAK}-retrain")[0], alignments_of=""), [80.0])
    assert f"and not those of {WEAK}" in take(strong, f"{WEAK}-retrain")
    status, _, err = lagr("reproduce", BEST, "--commit", "abc", "--dry-run", capsys=capsys)
    assert status == 1 and "--commit goes with --from" in err


def test_the_seeds_of_a_row_are_of_the_same_data(
    like_cogs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(data: Path, seeds: int, *more: str) -> tuple[int, str, str]:
        return lagr(
            *command(tmp_path, data, BEST, "--train.steps", "3", "--seeds", str(seeds), *more)[3:], capsys=capsys
        )

    assert run(like_cogs, 1)[0] == 0
    other = tmp_path / "other"
    shutil.copytree(like_cogs, other)
    gen = other / "cogs" / "gen.tsv"
    gen.write_text("".join(gen.read_text().splitlines(keepends=True)[:-1]))
    status, _, err = run(other, 2)
    assert status == 1 and "was made with other data" in err and not (tmp_path / "runs" / BEST / "seeds-1-1").exists()
    assert run(like_cogs, 2, "--train.threads", "1")[0] == 0  # which changes nothing but the time that it takes
    assert [run["seed"] for run in outcome(tmp_path)[BEST]["runs"]] == [0, 1]


def test_a_row_has_one_process_at_a_time(like_cogs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = command(tmp_path, like_cogs, BEST, "--train.steps", "3", "--seeds", "1")[3:]
    row = tmp_path / "runs" / BEST
    row.mkdir(parents=True)
    (row / "seeds-0-4.bak").mkdir()  # somebody's own; not ours to read
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        note = row / ".seeds-0-0.process"
        note.write_text(f"{platform.node()} {other.pid}")
        status, _, err = lagr(*arguments, capsys=capsys)
        assert status == 1 and f"is being trained by process {other.pid}" in err and not list(row.glob("seeds-0-0"))
        other.communicate(b"\n")
    assert lagr(*arguments, capsys=capsys)[0] == 0  # a process that is gone holds nothing
    assert not note.exists() and outcome(tmp_path)[BEST]["runs"][0]["seed"] == 0


def test_whoever_holds_a_folder_may_take_it_again_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    note = tmp_path.parent / f".{tmp_path.name}.process"
    with processes.at_work_on(Path()):
        with processes.at_work_on(tmp_path):
            assert note.read_text() == processes.this_process()
        assert note.exists() and not processes._take(note)
        note.write_text("elsewhere 1")  # as if it had been taken over
    assert note.read_text() == "elsewhere 1"
    with pytest.raises(RunError, match="process 1 on elsewhere"), processes.at_work_on(tmp_path):
        pass
    note.unlink()


def test_a_seed_without_alignments_teaches_nobody(tmp_path: Path) -> None:
    job = reproduce.plan(rows_of(f"{WEAK}-retrain"), (), None, tmp_path / "results", tmp_path / "runs")[0]
    for seed in range(2):
        folder = tmp_path / "runs" / WEAK / "seeds-0-1" / f"seed-{seed}"
        folder.mkdir(parents=True)
        (folder / runs.REPORT).write_text("{}")
        (folder / runs.ALIGNMENTS).touch()
    assert reproduce._alignments(job, 0) == folder.parent
    (folder / runs.ALIGNMENTS).unlink()
    with pytest.raises(DataError, match=f"seed 1 of {WEAK} has no alignments"):
        reproduce._alignments(job, 0)


def test_other_labels_are_other_data() -> None:
    one = Example(("a", "b"), Graph(("p", "q"), (Edge(0, "x", 1),)), "p x q")
    turned = replace(one, graph=Graph(("q", "p"), (Edge(1, "x", 0),)))  # the same graph, its nodes in another order
    others = [replace(one, graph=Graph(("p", "q"), (edge,))) for edge in (Edge(1, "x", 0), Edge(0, "y", 1))]
    found = [fingerprint_of_all({"gen": [each]}) for each in (one, turned, *others, replace(one, form="q x p"))]
    assert found[0] == found[1] and len(set(found)) == 4


def test_results_that_change_make_the_code_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lagr").mkdir()
    (tmp_path / "results").mkdir()
    for name in ("lagr/code.py", "results/row.json", "pyproject.toml"):
        (tmp_path / name).write_text("1")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for arguments in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-qm", "all")):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    monkeypatch.setattr(reproduce, "__file__", str(tmp_path / "lagr" / "reproduce.py"))
    made = reproduce.commit()
    (tmp_path / "results" / "row.json").write_text("2")
    assert re.fullmatch(r"[0-9a-f]{7,}", made) and reproduce.commit() == made
    (tmp_path / "lagr" / "code.py").write_text("2")
    assert reproduce.commit() == f"{made}-dirty"


def test_a_dry_run_says_what_is_left_and_what_it_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row, folder = rows_of(BEST)[0], tmp_path / "results"
    job = reproduce.plan([row], (), None, folder, tmp_path / "runs")[0]
    reproduce.record(job, [fake_report(row, seed, 80.0) for seed in (0, 1)], "abc", None)
    where = ("--results", str(folder), "--out", str(tmp_path / "runs"))
    status, out, _ = lagr("reproduce", BEST, "--dry-run", *where, capsys=capsys)
    assert status == 0 and re.search(r"8 seeds × 70,000 steps +1 min 0 s for 2 seeds × 70,000 steps on a machine", out)
    assert "finished" in lagr("reproduce", BEST, "--dry-run", "--seeds", "2", *where, capsys=capsys)[1]
    status, out, _ = lagr("reproduce", "k-sigma-table", "--dry-run", "--train.steps", "500", *where, capsys=capsys)
    assert status == 0 and len(out.splitlines()) == 13 and "5 seeds × 500 steps" in out
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda result: result["runs"][0].clear(), "remove it, and its row runs again"),
        (lambda result: result.pop("config"), "remove it, and its row runs again"),
        (lambda result: result.pop("row"), "remove it, and its row runs again"),
        (lambda result: result["runs"][1]["evaluation"].pop("gen"), "remove it, and its row runs again"),
        (lambda result: result["runs"].clear(), "remove it, and its row runs again"),
        (lambda result: result.update(row=SHARED), f"has the runs of {SHARED}, not of {BEST}"),
    ],
)
def test_a_damaged_result_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[dict[str, Any]], object], complaint: str
) -> None:
    row = rows_of(BEST)[0]
    job = reproduce.plan([row], (), None, tmp_path, tmp_path / "runs")[0]
    reproduce.record(job, [fake_report(row, seed, 80.0) for seed in (0, 1)], "abc", None)
    file = results.path(tmp_path, row)
    result = json.loads(file.read_text())
    damage(result)
    file.write_text(json.dumps(result))
    for verb in (["reproduce", BEST, "--dry-run"], ["analyse", BEST]):
        status, _, err = lagr(*verb, "--results", str(tmp_path), capsys=capsys)
        assert status == 1 and complaint in err and err.count("\n") == 1


def test_a_result_that_is_none_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cogs").mkdir()
    (tmp_path / "cogs" / f"{BEST}.json").write_text("[]")
    status, _, err = lagr("reproduce", BEST, "--dry-run", "--results", str(tmp_path), capsys=capsys)
    assert status == 1 and "remove it, and its row runs again" in err
    monkeypatch.setattr(results, "shipped", lambda: tmp_path)
    status, out, err = lagr("presets", capsys=capsys)  # one row is not known, all others are
    assert status == 0 and re.search(rf"{BEST} +82\.5 ± 2\.9 +\?", out) and "its row runs again" in err
    assert len(out.splitlines()) == 1 + len(config.presets())
    (tmp_path / "file").touch()
    status, _, err = lagr("reproduce", BEST, "--dry-run", "--results", str(tmp_path / "file"), capsys=capsys)
    assert status == 1 and "is no folder of results" in err
