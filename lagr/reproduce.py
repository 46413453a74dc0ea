"""`lagr reproduce`: the rows of the paper's tables, run, evaluated and written beside the paper's.

Killed at any time, the same command goes on: a row whose result is written is not run again, one that was started
is resumed with its checkpoint. Runs lie in OUT/ROW/seeds-FIRST-LAST, results in RESULTS (see lagr.results).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from lagr import config, results, runs
from lagr.config import Config
from lagr.datasets import Source, open_source
from lagr.errors import ConfigError, DataError, RunError, StoppedError
from lagr.processes import at_work_on
from lagr.progress import duration
from lagr.results import Result
from lagr.rows import ROWS, Row, Setting
from lagr.supervision import fingerprint_of_all
from lagr.train import train

Say = Callable[[str], None]


@dataclass(frozen=True)
class Batch:
    """Seeds that are trained at once, into folders of one folder."""

    folder: Path
    seeds: range

    def _all_have(self, *files: str) -> bool:
        return all((self.folder / f"seed-{seed}" / file).is_file() for seed in self.seeds for file in files)

    @property
    def began(self) -> bool:
        return self._all_have(runs.CONFIG, runs.VOCAB)

    @property
    def finished(self) -> bool:
        return self._all_have(runs.REPORT)


def batches_in(folder: Path) -> list[Batch]:
    """The batches of a row, in the order of their names. Other folders beside them are not looked at."""
    named = [(found, re.fullmatch(r"seeds-(\d+)-(\d+)", found.name)) for found in sorted(folder.glob("seeds-*"))]
    return [Batch(found, range(int(seeds[1]), int(seeds[2]) + 1)) for found, seeds in named if seeds]


@dataclass(frozen=True)
class Job:
    """A row to be run: how often, with which settings, and where everything lies."""

    row: Row
    settings: Config
    seeds: int
    folder: Path  # of its runs
    results: Path

    @property
    def retrains(self) -> bool:
        """Whether every seed is trained on the alignments that the same seed of another row learned."""
        return bool(self.row.alignments_of) and not self.settings.align.given

    def taught_by(self, seed: int) -> Batch | None:
        """The finished runs, of this seed and others, of the row whose learned alignments are to be trained on."""
        for batch in batches_in(self.folder.parent / self.row.alignments_of):
            if seed in batch.seeds and batch.finished:
                return batch
        return None

    def teacher_is_gone(self, seed: int) -> bool:
        """Whether the run that has the alignments is finished, as its row's result says, but lies elsewhere."""
        found = results.read(self.results, ROWS[self.row.alignments_of][0])
        return self.taught_by(seed) is None and found is not None and seed in {run["seed"] for run in found["runs"]}

    @property
    def made_otherwise(self) -> str:
        """How the settings differ that what is known was made with; empty: they don't, or nothing is known."""
        found = results.read(self.results, self.row)
        return results.difference(results.settings_of(found), self.settings) if found else ""

    def result(self) -> Result | None:
        """What is known already, if it was made with these settings."""
        if other := self.made_otherwise:
            file = results.path(self.results, self.row)
            raise ConfigError(f"{file} was made with {other}; give these settings, another --results, or remove it")
        return results.read(self.results, self.row)

    def next_batch(self) -> Batch | None:
        """The seeds to be trained next, together with those they were started with, if they were; None: all are done.

        ConfigError if what was done, or started, has other settings.
        """
        found = self.result()
        done = {run["seed"] for run in found["runs"]} if found else set()
        first = next(seed for seed in count() if seed not in done)
        if first >= self.seeds:
            return None
        teachers = self.taught_by(first) if self.retrains else None
        last = self.seeds - 1
        if self.retrains:  # with those whose alignments lie in one folder
            last = min(last, teachers.seeds[-1] if teachers else first)
        for started in batches_in(self.folder):
            last = started.seeds[-1] if started.seeds[0] == first else last
        batch = Batch(self.folder / f"seeds-{first}-{last}", range(first, last + 1))
        if batch.began:
            for seed in batch.seeds:
                theirs, _ = runs.read_config(batch.folder / f"seed-{seed}")
                own = {("train", "seed"), ("align", "given")}
                if other := results.difference(theirs, self.settings, own, strictly=True):
                    raise ConfigError(f"{batch.folder} was started with {other}; give these settings, or another --out")
        return batch


def plan(
    rows: Sequence[Row], settings: tuple[Setting, ...], seeds: int | None, results_folder: Path, out: Path
) -> list[Job]:
    """What is to be run for these rows. A retraining preset names no run, so its `align.given` is left out."""
    if any((section, key) == ("train", "seed") for section, key, _ in settings):
        raise ConfigError("train.seed can't be given here: seeds count from 0; give --seeds")
    if seeds is not None and seeds < 1:
        raise ConfigError(f"--seeds {seeds}: at least one seed is needed")
    jobs = []
    for row in rows:
        its_config = row.config(((("align", "given", ""),) if row.alignments_of else ()) + settings)
        jobs.append(Job(row, its_config, seeds or row.seeds, out / row.file, results_folder))
    return jobs


def describe(job: Job) -> str:
    """What would be run, and how long the row took last time."""
    other, work = job.made_otherwise, "finished"
    if other:
        work = f"done with {other};"
    elif batch := job.next_batch():
        left = job.seeds - batch.seeds.start
        work = f"{_count(left)} × {job.settings.train.steps:,} steps" + (", started" if batch.began else "")
        if job.retrains and job.teacher_is_gone(batch.seeds.start):
            work += f", on alignments of {job.row.alignments_of} that are not here;"
    took, found = "never run", results.read(job.results, job.row) or _last_time(job.row)
    if found:
        steps, machine = results.steps(found), found["runs"][0]["machine"]
        took = f"{duration(results.seconds(found))} for {_count(len(found['runs']))} × {steps:,} steps on {machine}"
    return f"{job.row.name:<42} {work:<34} {took}"


def _count(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def _last_time(row: Row) -> Result | None:
    folder = results.shipped()
    return results.read(folder, row) if folder else None


def run(jobs: Sequence[Job], data: str | None, say: Say) -> dict[str, list[str]]:
    """Runs what is missing. Rows whose data is not at hand are passed over, and returned: reason → rows.

    Of several rows, those that were run with other settings are passed over too: a table may have longer and shorter
    ones. The only row is an error then.
    """
    to_run = []
    for job in jobs:  # all of them first: hours later is too late for a mistyped setting
        if len(jobs) > 1 and (other := job.made_otherwise):
            say(f"{job.row.name}: passed over, done with {other}")
        else:
            job.next_batch()
            to_run.append(job)
    source_of = _sources(data)
    because: dict[str, list[str]] = defaultdict(list)
    for job in to_run:
        try:
            while batch := job.next_batch():
                source = source_of(job.settings.data)
                check_data(job, data_fingerprint(source))  # says now if there is none, or if it is another
                changes: list[Setting] = [("train", "seed", batch.seeds.start)]
                if job.retrains:
                    changes.append(("align", "given", str(_alignments(job, batch.seeds.start))))
                say(f"{job.row.name}: {_count(len(batch.seeds))} from {batch.seeds.start} on, in {batch.folder}")
                train_batch(config.override(job.settings, changes), source, batch)
                record(job, read_reports(batch.folder), commit(), source)
        except DataError as error:
            because[str(error)].append(job.row.name)
    return because


def train_batch(settings: Config, source: Source, batch: Batch) -> None:
    """Trains the seeds, or goes on with them. The outcome is in their reports."""
    if batch.finished:  # and its result was not written, or was removed
        return
    try:
        with at_work_on(batch.folder):
            if batch.finished:  # by a process that has just ended
                return
            if not batch.began and not any(batch.folder.rglob(runs.STATE)):
                shutil.rmtree(batch.folder, ignore_errors=True)  # killed while the folder was laid out
            train(settings, source, batch.folder, resume=batch.began, seeds=len(batch.seeds))
    except StoppedError:
        raise StoppedError(f"{batch.folder} is stopped and saved; the same command goes on with it") from None
    except RunError:
        if not batch.finished:  # seeds that never fitted their data are an outcome, not an error
            raise


def _alignments(job: Job, seed: int) -> Path:
    """The folder of the runs whose learned alignments are to be trained on, each seed on those of the same one."""
    weak = job.row.alignments_of
    if batch := job.taught_by(seed):
        for taught in batch.seeds:
            if not (batch.folder / f"seed-{taught}" / runs.ALIGNMENTS).is_file():
                raise DataError(f"seed {taught} of {weak} has no alignments: its loss was no longer a number")
        return batch.folder
    where = job.folder.parent / weak
    cure = f"run `lagr reproduce {weak}` first"
    if job.teacher_is_gone(seed):  # and so is not run again
        cure = f"{job.results} has its result without its runs: run both rows with another --results"
    raise DataError(f"there is no seed {seed} in {where}: {cure}, or give --align.given")


def read_reports(folder: Path) -> list[dict[str, Any]]:
    """The reports of a run folder, or of the seeds in it, in the order of the seeds."""
    files = [folder / runs.REPORT] if (folder / runs.REPORT).is_file() else list(folder.glob(f"seed-*/{runs.REPORT}"))
    if not files:
        raise RunError(f"{folder} has no {runs.REPORT}, and no seed-* with one; give the folder of a finished run")
    begun = {file.parent for file in folder.glob(f"seed-*/{runs.CONFIG}")} - {file.parent for file in files}
    if begun and folder / runs.REPORT not in files:
        names = ", ".join(sorted(seed.name for seed in begun))
        raise RunError(f"{folder}: {names} did not finish; every seed that was started counts: go on with --resume")
    try:
        reports = [json.loads(file.read_text(encoding="utf-8")) for file in files]
        return sorted(reports, key=lambda report: int(report["config"]["train"]["seed"]))
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{folder} has a {runs.REPORT} that can't be read; it is not what `lagr train` wrote") from None


def record(job: Job, reports: Sequence[dict[str, Any]], commit: str, source: Source | None) -> None:
    """Adds runs to the result of their row. source: to count the rows of unseen words, where it is at hand."""
    result = job.result() or results.new(job.row, job.settings)
    file = results.path(job.results, job.row)
    here = {run["seed"] for run in result["runs"]}
    for report in reports:
        seed, given = report["config"]["train"]["seed"], report["config"]["align"]["given"]
        if seed in here:
            raise RunError(f"{file} has seed {seed} already")
        here.add(seed)
        if job.row.alignments_of and not given:
            raise ConfigError(f"the run has the data's own alignments, and not those of {job.row.alignments_of}")
        check_data(job, report.get("data", ""))
        if other := results.difference(config.from_dict(report["config"], runs.REPORT), job.settings):
            raise ConfigError(f"the run has {other}; give its settings, as in --train.steps 1000")
    if missing := set(range(len(here))) - here:
        raise RunError(f"{file} would lack seed {min(missing)}; give the folder that holds all seeds, from 0 on")
    results.add(result, job.row, reports, commit)
    if source and not result["unseen_rows"]:
        result["unseen_rows"] = unseen_rows(source)
    file.parent.mkdir(parents=True, exist_ok=True)
    runs.write_json(file, result)


def check_data(job: Job, data: str) -> None:
    """The seeds of a row are of the same data; DataError if these are not. Older results don't know of which."""
    found = job.result()
    known = {run["data"] for run in found["runs"] if run.get("data")} if found else set()
    if data and known - {data}:
        file = results.path(job.results, job.row)
        raise DataError(f"{file} was made with other data; give that with --data, or another --results")


def data_fingerprint(source: Source) -> str:
    return fingerprint_of_all({split: source.read(split) for split in source.splits})


def unseen_rows(source: Source) -> dict[str, int]:
    """By split, how many sentences have a word that no training sentence has."""
    known = {token for example in source.read("train") for token in example.tokens}
    return {
        split: sum(not known.issuperset(example.tokens) for example in source.read(split)) for split in source.splits
    }


def data_of(job: Job, data: str | None) -> Source | None:
    """The data of a row, if it is at hand."""
    try:
        source = _sources(data)(job.settings.data)
        source.read("train")
        return source
    except DataError:
        return None


def _sources(data: str | None) -> Callable[[config.Data], Source]:
    """Opens data sets, and keeps the last one in memory: the rows of a table share it."""

    @lru_cache(maxsize=1)
    def opened(d: config.Data) -> Source:
        source = open_source(d.name, data, d.partition, d.size, d.seed)
        return replace(source, rows=cache(source.read))

    return opened


def commit() -> str:
    """The commit of the code that runs, `-dirty` where its files were changed since; empty where there is none.

    Results are no code: those that a row before this one wrote make it no other.
    """

    def git(*arguments: str) -> str:
        command, here = ["git", *arguments], Path(__file__).parent
        return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        found = git("describe", "--always", "--exclude=*")
        return f"{found}-dirty" if git("status", "--porcelain", "--", ".", "../pyproject.toml") else found
    except (OSError, subprocess.CalledProcessError):
        return ""


def tables_of(rows: Sequence[Row]) -> list[str]:
    """The tables that show any of these rows, or what they leave behind."""
    files = {row.file for row in rows}
    return list(dict.fromkeys(table.name for row, table in ROWS.values() if row.file in files))
