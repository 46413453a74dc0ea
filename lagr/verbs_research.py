"""What the verbs of `lagr VERB` do, for whoever compares parsers: with the paper, with each other, with the clock."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from lagr import __version__, config, named, results
from lagr.errors import ConfigError, DataError
from lagr.rows import ROWS, TABLES, rows_of
from lagr.verbs import device, settings_of, source_of, split_of, write_json

SCALING = "scaling"  # the benchmark that has no alternative, and takes too long to run unasked
SERVE = "serve"  # the benchmark that needs a trained parser


def reproduce(options: argparse.Namespace) -> None:
    from lagr import reproduce, tables

    if options.run_folder:
        if options.dry_run or options.seeds:
            raise ConfigError(
                "--from takes the seeds that the run has, and runs nothing; leave --seeds and --dry-run out"
            )
        if not options.commit:
            raise ConfigError("--from needs --commit HASH: the code that these runs were made with")
    elif options.commit:
        raise ConfigError("--commit goes with --from; what runs now has the commit of this code")
    folder = Path(options.results)
    rows = rows_of(options.name)
    jobs = reproduce.plan(rows, settings_of(options), options.seeds, folder, Path(options.out))
    if options.dry_run:
        for job in jobs:
            print(reproduce.describe(job))
        return
    missing: dict[str, list[str]] = {}
    if options.run_folder:
        if len(jobs) != 1:
            raise ConfigError(f"--from takes the runs of one row, and {options.name} has {len(jobs)}; name the row")
        reports = reproduce.read_reports(Path(options.run_folder))
        reproduce.record(jobs[0], reports, options.commit, reproduce.data_of(jobs[0], options.data))
    else:
        missing = reproduce.run(jobs, options.data, lambda line: print(line, file=sys.stderr, flush=True))
    for name in reproduce.tables_of(rows):
        tables.write(TABLES[name], folder)
    print(tables.markdown(ROWS[rows[0].name][1], folder, rows))
    if missing:
        which = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in missing.items())
        raise DataError(f"{sum(map(len, missing.values()))} of {len(jobs)} rows could not be run: {which}")


def analyse(options: argparse.Namespace) -> None:
    from lagr import analyse

    if options.depth is not None:
        _analyse_depth(options)
        return
    name, *others = options.names
    if others or options.json:
        raise ConfigError("lagr analyse takes one TABLE, ROW or RUN, and no --json, unless there is --depth")
    if name in TABLES or name in ROWS:
        rows = analyse.found(Path(options.results), rows_of(name))
        if not rows:
            raise DataError(f"nothing of {name} is in {options.results}; run `lagr reproduce {name}` first")
        print(analyse.report(rows, Path(options.out)))
        return
    from lagr.parser import load, only_lagr

    parser = only_lagr(load(name, device()), "lagr analyse")
    examples = split_of(source_of(parser.config, options.data), options.split)
    print(analyse.placement_table(parser, examples), end="\n\n")
    pictures = analyse.pictures_of(parser, examples)
    for file in analyse.write(pictures, Path(options.out) / Path(name).name):
        print(file)


def _analyse_depth(options: argparse.Namespace) -> None:
    from lagr import analyse, depth, runs
    from lagr.datasets.mini import NESTED
    from lagr.parser import load
    from lagr.progress import Progress

    depth.check(options.depth, options.sentences)
    curves = []
    for folder in runs.with_seeds(map(named.find, options.names)):
        parser = load(folder, device())
        with Progress(len(NESTED) * options.depth * options.sentences) as progress:
            progress.begin(0, f"parsing with {folder}")
            curves.append(depth.measure(parser, folder, options.depth, options.sentences, progress=progress.update))
    if options.json != "-":
        print(depth.table(curves), end="\n\n")
    if options.json:
        write_json(options.json, {"sentences": options.sentences, "seed": depth.SEED, "curves": curves})
    (picture,) = analyse.write({"depth": depth.svg(curves)}, Path(options.out))
    if options.json != "-":
        print(picture)


def report(options: argparse.Namespace) -> None:
    from lagr import report

    found = report.read_runs(map(named.find, options.run_folders))
    missing = report.write(found, Path(options.out), lambda its: source_of(its, options.data), options.split, device())
    if missing:
        print(f"lagr: without calibration and pictures of errors: {missing}", file=sys.stderr)
    print(options.out)


def search(options: argparse.Namespace) -> None:
    from lagr.search import search

    if min(options.trials, options.seeds) < 1:
        raise ConfigError("--trials and --seeds must be at least 1")
    out = Path(options.out or Path("runs") / "search" / Path(options.preset).stem)
    best = search(
        options.preset,
        settings_of(options),
        Path(options.journal or out / "journal.log"),
        out,
        options.trials,
        options.seeds,
        options.data,
        options.alignment,
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(config.to_toml(best))


def bench(options: argparse.Namespace) -> None:
    from lagr import bench_serve
    from lagr.bench import BENCHMARKS
    from lagr.devices import choose_device, machine
    from lagr.scaling import scaling

    if unknown := [name for name in options.names if name not in (*BENCHMARKS, SCALING, SERVE)]:
        raise ConfigError(f"no benchmark {unknown[0]!r}; there are {', '.join((*BENCHMARKS, SCALING, SERVE))}")
    if options.data:
        os.environ["LAGR_DATA"] = options.data  # the benchmarks look for corpora themselves
    report: dict[str, Any] = {"lagr": __version__, "machine": machine(choose_device("auto")), "results": {}}

    def known(name: str, result: Any, line: str) -> None:
        """What is measured is kept at once: a benchmark of many minutes may be stopped."""
        report["results"][name] = result
        if options.json != "-":
            print(f"{name:<13} {line}", flush=True)
            if options.json:
                write_json(options.json, report)

    for name in options.names or BENCHMARKS:
        if name == SCALING:
            scaling(lambda rows: known(SCALING, rows, _scaling_line(rows[-1])), options.limit, options.warm)
        elif name == SERVE:
            bench_serve.bench_serve(options.run_folder, lambda result: known(SERVE, result, bench_serve.line(result)))
        else:
            result = BENCHMARKS[name]()
            known(name, result, _parts_line(result) if "parts" in result else _ratio_line(result))
    if options.json == "-":
        write_json("-", report)


def _ratio_line(result: dict[str, Any]) -> str:
    times = f"{result['ours_ms']:.3g} ms against {result['other_ms']:.3g} ms"
    return f"{result['ratio']:7.1f} ×   {times} ({result['other']}): {result['what']}"


def _parts_line(result: dict[str, Any]) -> str:
    parts = (f"{part['part']} {part['ms']:.3g} ms in {part['launches']:.0f}" for part in result["parts"])
    return f"{result['ours_ms']:.3g} ms, {result['what']}: {'; '.join(parts)}"


def _scaling_line(row: dict[str, Any]) -> str:
    found = row.get("problem") or f"{row['step_ms']:.3g} ms, {row['peak_mib']} MiB (estimated {row['estimate_mib']})"
    return f"{row['axis']:<12} {row['value']:>4}   {found}"


def presets(options: argparse.Namespace) -> None:
    lines = [("preset", "paper", "ours", "what it is")]
    for name in config.presets():
        about = config.read_toml(config.PRESETS / f"{name}.toml").get("about", {})
        try:
            ours = results.ours(name)
        except DataError as error:  # of one row: the others are known
            print(f"lagr: {error}", file=sys.stderr)
            ours = "?"
        lines.append((name, about.get("paper", "–"), ours, about.get("what", "")))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, paper, ours, what in lines:
        print(f"{name:<{widths[0]}}  {paper:>{widths[1]}}  {ours:>{widths[2]}}  {what}")
