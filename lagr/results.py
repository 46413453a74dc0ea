"""What was measured: one JSON file for a row of the paper's tables, with the outcome of every run.

results/cogs/ROW.json
    row, preset, config     of all its runs; train.seed is the first one's
    paper_steps             how many steps the paper trained
    unseen_rows             by split: rows with a word that training never has
    runs                    one for every seed: seed, commit, machine, seconds, starts, failed, evaluation by split
Numbers only: sentences belong to their corpora. `lagr analyse RUN` draws those that a run got wrong.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from lagr import config
from lagr.errors import DataError
from lagr.rows import ROWS, Figure, Row

FORMAT = 1
FOLDER = Path("results")
# What may differ between runs of one row: it changes no outcome, or is a run's own.
FREE = {("train", key) for key in ("seed", "save_every", "device", "threads")} | {("align", "given")}

Result = dict[str, Any]


def path(folder: Path, row: Row) -> Path:
    return folder / row.dataset / f"{row.file}.json"


def read(folder: Path, row: Row) -> Result | None:
    """What is known of a row; None: nothing yet."""
    file, whole = path(folder, row), False
    try:
        result: Result = json.loads(file.read_text(encoding="utf-8"))
        whole = result["format"] == FORMAT and _is_whole(result)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise DataError(f"{folder} is no folder of results; give another --results") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        pass
    if not whole:
        raise DataError(f"{file} is not what `lagr reproduce` writes; remove it, and its row runs again")
    if result["row"] != row.file:
        raise DataError(f"{file} has the runs of {result['row']}, not of {row.file}; move it, or remove it")
    return result


def _is_whole(result: Result) -> bool:
    """Whether nothing is missing that tables are made of; KeyError or TypeError if it is nothing of the kind."""
    splits = {frozenset(run["evaluation"]) for run in result["runs"]}
    return (
        {"row", "preset", "config", "paper_steps", "unseen_rows"} <= result.keys()
        and sorted(run["seed"] for run in result["runs"]) == list(range(len(result["runs"])))  # none was left out
        and len(splits) == 1  # all seeds were evaluated on the same
        and all(
            {"seed", "failed", "starts", "seconds", "seeds_at_once", "machine"} <= run.keys() for run in result["runs"]
        )
        and all("train_exact" in start for run in result["runs"] for start in run["starts"] or [{}])
        and all({"n", "exact"} <= one.keys() for run in result["runs"] for one in run["evaluation"].values())
    )


def new(row: Row, settings: config.Config) -> Result:
    if row.alignments_of and not settings.align.given:  # say whose alignments they are, not in which folder they lie
        settings = config.override(settings, [("align", "given", row.alignments_of)])
    return {
        "format": FORMAT,
        "row": row.file,
        "preset": row.preset,
        "config": settings.to_dict(),
        "paper_steps": config.load(row.preset).train.steps,
        "unseen_rows": {},
        "runs": [],
    }


def add(result: Result, row: Row, reports: Sequence[dict[str, Any]], commit: str) -> None:
    """Adds the outcome of runs, as their reports have it but for what is long."""
    for report in reports:
        run = {key: value for key, value in report.items() if key not in ("config", "evaluation")}
        evaluation = {name: _short(found) for name, found in report["evaluation"].items()}
        seed = report["config"]["train"]["seed"]
        result["runs"].append({"seed": seed, "commit": commit, **run, "evaluation": evaluation})


def _short(evaluation: dict[str, Any]) -> dict[str, Any]:
    """The numbers of an evaluation, without sentences, and without what follows from the others."""
    short: dict[str, Any] = {
        key: round(value, 4) for key, value in evaluation.items() if isinstance(value, (int, float))
    }
    categories, errors = evaluation.get("by_category", {}), evaluation.get("errors", {})
    if len(categories) > 1:
        short["by_category"] = {name: round(found["exact"], 4) for name, found in categories.items()}
    short["errors"] = {kind: found["n"] for kind, found in errors.items() if found["n"]}
    return short


def values(result: Result, split: str, measure: str = "exact") -> list[float]:
    """A measure of every seed, failed ones too; empty where it was not taken."""
    found = [run["evaluation"].get(split, {}) for run in result["runs"]]
    if measure == "known_words":
        return [_known_words(one, result["unseen_rows"].get(split)) for one in found if result["unseen_rows"]]
    return [one[measure] for one in found if measure in one]


def _known_words(evaluation: dict[str, Any], unseen: int) -> float:
    """Exact match without the rows of unseen words, none of which can be right: their label is none that is known."""
    n, exact = int(evaluation["n"]), float(evaluation["exact"])
    return 100 * round(exact * n / 100) / (n - unseen)


def figure(numbers: Sequence[float]) -> Figure | None:
    """Mean and standard deviation (of a sample: n − 1)."""
    if not numbers:
        return None
    return Figure(mean(numbers), stdev(numbers) if len(numbers) > 1 else None)


def steps(result: Result) -> int:
    """How many steps the longest run took: fewer than it was told if none fitted its training data."""
    return max(int(run["starts"][-1]["steps"]) for run in result["runs"])


def seconds(result: Result) -> float:
    """How long training took: runs that were trained together took the time of the longest."""
    total, rest = 0.0, list(result["runs"])
    while rest:
        together = rest[: rest[0]["seeds_at_once"]]
        total += max(run["seconds"] for run in together)
        rest = rest[len(together) :]
    return total


def settings_of(result: Result) -> config.Config:
    return config.from_dict(result["config"], f"the result of {result['row']}")


def difference(
    made: config.Config, wanted: config.Config, free: set[tuple[str, str]] = FREE, strictly: bool = False
) -> str:
    """The first setting that sets two configurations apart, in words; empty: there is none."""
    return next(iter(differences(made, wanted, free, strictly)), "")


def differences(
    made: config.Config, wanted: config.Config, free: set[tuple[str, str]] = FREE, strictly: bool = False
) -> list[str]:
    """The settings that set two configurations apart, in words. strictly: also if they change no outcome."""
    found = _differences(made, wanted, strictly)
    return [f"{section}.{key} = {one}, not {other}" for section, key, one, other in found if (section, key) not in free]


def settings_of_its_own(result: Result, row: Row) -> tuple[list[str], list[str]]:
    """Where a result is not as its preset: what its row says, and the flags that its runs were given besides."""
    made = settings_of(result)
    given = {(s, key): value for s, key, value, _ in _differences(made, row.config()) if (s, key) not in FREE}
    flags = [] if len(result["runs"]) == row.seeds else [f"--seeds {len(result['runs'])}"]
    flags += [f"--{section}.{key} {_flag(value)}" for (section, key), value in given.items()]
    unlike = [
        f"{section}.{key} = {value}"
        for section, key, value, _ in _differences(made, config.load(row.preset))
        if (section, key) not in FREE | given.keys()
    ]
    return unlike, flags


def _flag(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _differences(one: config.Config, other: config.Config, strictly: bool = False) -> list[tuple[str, str, Any, Any]]:
    # Where the best model is kept, evaluations choose it; else they change nothing.
    looks = strictly or "best" in (one.train.keep, other.train.keep)
    pairs = [
        (section, f.name, getattr(getattr(one, section), f.name), getattr(getattr(other, section), f.name))
        for section, kind in config.SECTIONS.items()
        for f in fields(kind)
        if looks or f.name != "evaluate_every"
    ]
    return [pair for pair in pairs if pair[2] != pair[3]]


def shipped() -> Path | None:
    """The results of the repository that this package is in; None for a package installed without it."""
    root = Path(__file__).parent.parent
    return root / FOLDER if (root / "pyproject.toml").is_file() and (root / FOLDER).is_dir() else None


def ours(name: str) -> str:
    """What the results of the repository say of the row that is this preset: mean ± deviation, seeds, fewer steps."""
    folder = shipped()
    if folder is None or name not in ROWS:
        return "–"
    row, table = ROWS[name]
    result = read(folder, row)
    found = figure(values(result, table.split)) if result else None
    if result is None or found is None:
        return "–"
    shorter = f", {steps(result):,} steps" if steps(result) != result["paper_steps"] else ""
    failed = sum(run["failed"] for run in result["runs"])
    return f"{found.text()} (n = {len(result['runs'])}{f', {failed} failed' if failed else ''}{shorter})"
