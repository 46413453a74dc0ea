"""`lagr VERB`. Results go to stdout, progress and messages to stderr.

Exit status 0; 1 for a LagrError, printed as one line; 2 for a command that was not understood; 3 where
--min-probability left a sentence without an answer. The verbs import what they need themselves: torch takes seconds to
import, and `lagr --help` shouldn't.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NoReturn

from lagr import __version__, choose, config, named, results
from lagr.errors import ConfigError, DataError, LagrError
from lagr.rows import ROWS, TABLES, rows_of
from lagr.serve.limits import Limits

FILMS = "films"  # the graph that comes with the package
ABSTAINED = 3  # exit status
SCALING = "scaling"  # the benchmark that has no alternative, and takes too long to run unasked
SERVE = "serve"  # the benchmark that needs a trained parser


class ArgumentParser(argparse.ArgumentParser):
    """Says the nearest option after a typing mistake."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: --"):
            given = message.removeprefix("unrecognized arguments: ").split()[0].split("=")[0]
            known = [name for parser in (self, *_verbs(self)) for name in parser._option_string_actions]
            if near := difflib.get_close_matches(given, known, 1):
                message = f"unknown option {given}; did you mean {near[0]}?"
        super().error(message)


def _verbs(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    return [
        verb
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for verb in action.choices.values()
    ]


def build_parser() -> argparse.ArgumentParser:
    top = ArgumentParser(
        prog="lagr",
        description="Sentences to meaning graphs, and graphs to logical forms or queries.",
        epilog="Data: --data DIR, else $LAGR_DATA, else the user's cache folder. `lagr VERB --help` has the details.",
    )
    top.add_argument("--version", action="version", version=f"lagr {__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True)

    def verb(name: str, run: Any, help: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = verbs.add_parser(name, help=help, description=help, allow_abbrev=False)
        parser.set_defaults(run=run)
        return parser

    train = verb("train", _train, "train a parser into a run folder")
    train.add_argument(
        "preset",
        metavar="PRESET|FILE.toml|DATA",
        help="a preset (see `lagr presets`), a file of settings, or your own data: a .jsonl file or a folder of them",
    )
    train.add_argument("--out", metavar="RUN", help="the run folder; default: runs/ and the name of the preset or file")
    train.add_argument("--resume", action="store_true", help="go on with an interrupted run, as if never interrupted")
    seeds = train.add_mutually_exclusive_group()
    seeds.add_argument("--seeds", type=int, metavar="N", help="train N seeds, each into RUN/seed-I")
    seeds.add_argument("--seed", type=int, metavar="I", help="short for --train.seed I")
    _add_data(train)
    _add_settings(train)

    evaluate = verb("evaluate", _evaluate, "how good a trained parser is on a split")
    evaluate.add_argument("run_folder", metavar="RUN")
    evaluate.add_argument("--split", default="test", help="which split of the data; default: test")
    evaluate.add_argument("--json", metavar="FILE", help="write everything as JSON; - for stdout")
    _add_rules(evaluate)
    _add_data(evaluate)

    parse = verb("parse", _parse, "parse sentences")
    parse.add_argument("run_folder", metavar="RUN")
    parse.add_argument("sentences", nargs="*", metavar="SENTENCE", help="sentences, or - to read one a line from stdin")
    parse.add_argument("--format", choices=("form", "json", "text", "svg", "dot"), default="form", help="default: form")

    parse.add_argument("--onnx", metavar="FILE", help="run this file, which `lagr export` wrote of the same run")
    parse.add_argument("--nbest", type=int, default=1, metavar="N", help="the N likeliest graphs, the likeliest first")
    parse.add_argument(
        "--min-probability", type=float, default=0.0, metavar="P", help="no answer that is less probable; exit status 3"
    )

    _add_rules(parse)

    calibrate = verb("calibrate", _calibrate, "make a run's probabilities trustworthy, and show how far they are")
    calibrate.add_argument("run_folder", metavar="RUN")
    calibrate.add_argument(
        "--split", default="dev", help="fit on this split, which training has not seen; default: dev"
    )
    calibrate.add_argument("--plot", metavar="FILE.svg", help="draw reliability on all splits but train")
    calibrate.add_argument("--json", metavar="FILE", help="write the measures of all splits as JSON; - for stdout")
    _add_data(calibrate)

    ask = verb("ask", _ask, "answer questions from a store of triples")
    ask.add_argument("run_folder", metavar="RUN")
    ask.add_argument("sentences", nargs="*", metavar="QUESTION", help="questions, or - to read one a line from stdin")
    ask.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    _add_rules(ask)
    _add_store(ask, required=True)

    serve = verb("serve", _serve, "a page to try a trained parser on, and a service")
    serve.add_argument("run_folder", metavar="RUN")
    serve.add_argument("--host", default="127.0.0.1", help="where to listen; default: 127.0.0.1, this machine alone")
    serve.add_argument("--port", type=int, default=8000, help="default: 8000; 0: any that is free")
    serve.add_argument("--onnx", metavar="FILE", help="run this file, which `lagr export` wrote of the same run")
    _add_rules(serve)
    _add_store(serve, required=False)
    _add_data(serve)
    limits = serve.add_argument_group("limits")
    for f in fields(Limits):
        help = f"{f.metadata['help']}; default {f.default:g}"
        limits.add_argument(f"--max-{f.name}", type=type(f.default), default=f.default, metavar="N", help=help)

    export = verb("export", _export, "write a trained parser as ONNX")
    export.add_argument("run_folder", metavar="RUN")
    export.add_argument("--onnx", metavar="FILE", required=True, help="the file to write")

    pack = verb("pack", _pack, "write a run as a small model to give away, with a card")
    pack.add_argument("run_folder", metavar="RUN")
    pack.add_argument("--out", metavar="DIR", required=True, help="a new folder; its name is the model's")
    pack.add_argument("--name", help="the model's name, if not the folder's")
    pack.add_argument("--split", default="test", help="where parses before and after are compared; default: test")
    pack.add_argument("--licence", default="", help="of the data, for the card, if it is your own")
    _add_data(pack)
    verb("models", _models, "list the models that come with the package: size, accuracy, data")

    align = verb("align", _align, "the alignments that training settled on, as JSONL")
    align.add_argument("run_folder", metavar="RUN")
    align.add_argument("--split", default="train", help="train: as training left them; others: inferred by the model")
    align.add_argument("--out", metavar="FILE.jsonl", help="default: stdout")
    _add_data(align)

    data = verb("data", None, "check or fetch data").add_subparsers(metavar="check|fetch", required=True)
    check = data.add_parser("check", help="read all, convert both ways, count", allow_abbrev=False)
    check.set_defaults(run=_data_check)
    check.add_argument("name", metavar="NAME|FILE", help="cogs, cfq, mini, a .jsonl file or a folder of them")
    check.add_argument("--json", metavar="FILE", help="write the counts as JSON; - for stdout")
    check.add_argument("--partition", default="", help="cfq: one of its splits, or all (default)")
    _add_data(check)
    fetch = data.add_parser("fetch", help="download from its home and verify the checksum", allow_abbrev=False)
    fetch.set_defaults(run=_data_fetch)
    fetch.add_argument("name", choices=("cogs", "cfq"))
    _add_data(fetch)

    reproduce = verb("reproduce", _reproduce, "run rows of the paper's tables, and write them beside the paper's")
    reproduce.add_argument("name", metavar="TABLE|ROW", help=f"{', '.join(TABLES)}, or one of their rows")
    reproduce.add_argument("--seeds", type=int, metavar="N", help="seeds in all; default: 5, of the best row 10")
    reproduce.add_argument("--dry-run", action="store_true", help="say what would run, and how long it took last time")
    reproduce.add_argument("--from", metavar="RUN", dest="run_folder", help="take a row's runs from there; run nothing")
    reproduce.add_argument(
        "--commit", metavar="HASH", default="", help="--from: the code that these runs were made with"
    )
    reproduce.add_argument("--results", metavar="DIR", default="results", help="where results lie; default: results")
    reproduce.add_argument("--out", metavar="DIR", default="runs/reproduce", help="for runs; default: runs/reproduce")
    _add_data(reproduce)
    _add_settings(reproduce)

    analyse = verb("analyse", _analyse, "accuracy by category, kinds of errors, convergence; pictures of predictions")
    analyse.add_argument("name", metavar="TABLE|ROW|RUN", help="results of rows, or a run whose predictions are drawn")
    analyse.add_argument("--split", default="dev", help="RUN: whose sentences are drawn; default: dev")
    analyse.add_argument("--results", metavar="DIR", default="results", help="where results lie; default: results")
    analyse.add_argument("--out", metavar="DIR", default="runs/analyse", help="for pictures; default: runs/analyse")
    _add_data(analyse)

    report = verb("report", _report, "runs as one HTML page: curves, categories, calibration, errors drawn, seeds")
    report.add_argument("run_folders", nargs="+", metavar="RUN", help="runs, or folders that hold seeds")
    report.add_argument("--out", metavar="FILE", default="report.html", help="default: report.html")
    report.add_argument("--split", default="", help="whose errors are drawn; default: the last, gen or test")
    _add_data(report)

    search = verb("search", _search, "search the paper's grids on dev, and write the best configuration")
    search.add_argument("preset", metavar="PRESET|FILE.toml", help="where to start; what is set here is not searched")
    search.add_argument("--trials", type=int, default=20, metavar="N", help="trials in all; default 20")
    search.add_argument("--journal", metavar="FILE", help="shared by all processes; default: OUT/journal.log")
    search.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds of a trial, averaged; default 1")
    search.add_argument("--alignment", action="store_true", help="search K and σ of weak supervision, not the rest")
    search.add_argument("--out", metavar="DIR", help="for runs and best.toml; default: runs/search/PRESET")
    _add_data(search)
    _add_settings(search)

    bench = verb("bench", _bench, "ours and the alternative, side by side in one run")
    bench.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which benchmarks; default: all but {SCALING}, {SERVE}"
    )
    bench.add_argument("--json", metavar="FILE", help="write the results as JSON; - for stdout")
    bench.add_argument("--limit", type=float, default=540, metavar="S", help=f"{SCALING}: seconds at most; default 540")
    bench.add_argument("--warm", type=int, default=0, metavar="N", help=f"{SCALING}: compile ahead in N processes")
    bench.add_argument("--run", metavar="RUN", dest="run_folder", help=f"{SERVE}: the trained parser to load")
    _add_data(bench)
    verb("presets", _presets, "list the presets, with the paper's number beside each")
    return top


def understand(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command. Sentences may stand before and after options, which argparse alone doesn't allow."""
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and hasattr(options, "sentences") and not any(word.startswith("--") for word in rest):
        options.sentences += rest
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = understand(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows fewer characters is no reason to fail
    try:
        status: int = options.run(options) or 0
        sys.stdout.flush()
    except LagrError as error:
        print(f"lagr: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lagr: interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"lagr: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return 1
    else:
        return status
    return 0


def _train(options: argparse.Namespace) -> None:
    settings, choices = _chosen(options) if choose.is_data(options.preset) else (config.load(options.preset), [])
    settings = config.override(settings, _settings(options))
    if options.seed is not None:
        settings = config.override(settings, [("train", "seed", options.seed)])
    if options.seeds is not None and options.seeds < 1:
        raise ConfigError(f"--seeds {options.seeds}: at least one seed is needed")
    for section, key, name in (
        ("data", "name", settings.data.name),
        ("model", "pretrained", settings.model.pretrained),
    ):
        if name and Path(name).exists():  # one's own: the run folder should find it from anywhere
            settings = config.override(settings, [(section, key, str(Path(name).resolve()))])
    out = _run_folder(options)
    source = _source(settings, options.data)

    from lagr.train import train

    reports = train(settings, source, out, options.resume, options.seeds, choices)
    for report in reports:
        _print_report(report, out if options.seeds is None else out / f"seed-{report['config']['train']['seed']}")


def _chosen(options: argparse.Namespace) -> tuple[config.Config, list[str]]:
    """Settings for one's own data, once it is checked, and why; what is given on the command line is not chosen."""
    from lagr.datasets import check, open_source
    from lagr.train import choose_device

    source = open_source(options.preset)
    counts = check.check(source)
    print(check.summary(counts), file=sys.stderr)
    check.refuse_failures(counts)
    given = {f"{section}.{key}": value for section, key, value in _settings(options)}
    choices = choose.choose(source, choose_device(given.get("train.device", "auto")))
    settings = choose.configure(source, choices)
    lines = [str(choice) for choice in choose.without(choices, given)]
    where = f"all settings, to edit and train from: {_run_folder(options) / 'config.toml'}"
    print("\nchosen for this data:", *lines, where, sep="\n  ", file=sys.stderr)
    return settings, lines


def _run_folder(options: argparse.Namespace) -> Path:
    return Path(options.out or Path("runs") / Path(options.preset).resolve().stem)


def _print_report(report: dict[str, Any], out: Path) -> None:
    from lagr.progress import duration

    failed = len(report["starts"]) - 1
    restarts = f", {failed} restart{'s' if failed > 1 else ''}" if failed else ""
    print(f"{out}: trained in {duration(report['seconds'])}{restarts}", file=sys.stderr)
    for split, result in report["evaluation"].items():
        print(
            f"{split:<6} {result['exact']:6.2f} % exact  [{result['low']:.2f}, {result['high']:.2f}]  n = {result['n']}"
        )


def _evaluate(options: argparse.Namespace) -> None:
    from lagr.evaluate import evaluate_parser
    from lagr.parser import load
    from lagr.progress import Progress

    parser = load(options.run_folder, _device(), rules=options.rules)
    examples = _split(_source(parser.config, options.data), options.split)
    with Progress(len(examples)) as progress:
        progress.begin(0, f"evaluating {options.split}")
        result = evaluate_parser(parser, examples, options.split, progress.update)
    if options.json != "-":
        _print_evaluation(result, options.split)
    if options.json:
        _write_json(options.json, result.to_dict())


def _print_evaluation(result: Any, split: str) -> None:
    low, high = result.score.interval
    print(f"{split}: {result.score.exact:.2f} % exact  [{low:.2f}, {high:.2f}]  n = {result.score.n}")
    graph = "order-free" if result.written else "graph"
    print(
        f"{graph} {result.isomorphic.exact:.2f} %   nodes {result.nodes.exact:.2f} %   edges {result.edges.exact:.2f} %"
    )
    if len(result.by_category) > 1:
        print()
        width = max(map(len, result.by_category))
        for name, score in sorted(result.by_category.items()):
            low, high = score.interval
            free = f"  order-free {result.isomorphic_by_category[name].exact:6.2f} %" if result.written else ""
            print(f"  {name:<{width}}  {score.exact:6.2f} %  [{low:.1f}, {high:.1f}]  n = {score.n}{free}")
    if result.score.right < result.score.n:
        print("\nwhat is wrong (a sentence may have several):")
        for report in result.to_dict()["errors"].values():
            if report["n"]:
                print(f"  {report['n']:6d}  {report['meaning']}")
                for example in report["examples"][:1]:
                    print(f"          e.g. {example['sentence']}")
                    print(f"          gold      {_one_line(example['gold'])}")
                    print(f"          predicted {_one_line(example['predicted'])}")


def _one_line(form: Any) -> str:
    return form.replace("\n", " ") if isinstance(form, str) else json.dumps(form, ensure_ascii=False)


def _parse(options: argparse.Namespace) -> int:
    from lagr.parser import load

    parser = load(options.run_folder, onnx=options.onnx, rules=options.rules)
    sentences = _sentences(options)
    parses = parser.parse(sentences, nbest=options.nbest, min_probability=options.min_probability)
    for parse in parses:
        if options.format == "json":
            print(json.dumps(parse.to_dict(), ensure_ascii=False))
            continue
        for one in (parse, *parse.next_best):
            if options.nbest > 1:
                print(f"{one.probability:.4f}", end="\t" if options.format == "form" else "\n")
            _print_parse(one, options.format)
    return ABSTAINED if any(parse.abstained for parse in parses) else 0


def _print_parse(parse: Any, kind: str) -> None:
    drawn = kind != "form"
    if drawn and parse.graph:
        print(parse.draw(kind))
    elif not drawn and parse.form is not None:
        print(parse.form)
    else:
        print(json.dumps(parse.graph.to_dict(), ensure_ascii=False) if parse.graph else "")
        if parse.problem:
            print(f"lagr: “{' '.join(parse.tokens)}”: {parse.problem}", file=sys.stderr)


def _calibrate(options: argparse.Namespace) -> None:
    from lagr import calibrate, confidence, runs
    from lagr.parser import load

    run = runs.open_run(options.run_folder)
    parser = load(run, _device())
    source = _source(parser.config, options.data)
    if options.split == "train":
        raise ConfigError("--split train: a model is surer of what it was trained on; calibrate on another split")
    found = calibrate.calibrate(parser, _split(source, options.split), options.split)
    checks = calibrate.check_splits(parser, source)
    if options.plot:  # before the run is changed: what can't be drawn should not be half done
        from lagr.charts import reliability

        runs.write_text(Path(options.plot), reliability(checks))
    runs.write_json(run / confidence.FILE, found)
    if options.json != "-":
        print(calibrate.summary(found, checks))
    if options.json:
        _write_json(options.json, {**found, "splits": calibrate.measures(checks)})


def _sentences(options: argparse.Namespace) -> list[str]:
    """The sentences of a command, or of stdin."""
    sentences: list[str] = options.sentences
    if sentences == ["-"] or not sentences:
        try:
            sentences = [line for line in sys.stdin.read().splitlines() if line.strip()]
        except UnicodeDecodeError:
            raise DataError("stdin is not UTF-8; convert it first") from None
        if not sentences:
            raise DataError("no sentence: give it as an argument, or one a line on stdin")
    return sentences


def _ask(options: argparse.Namespace) -> None:
    from lagr.ask import Answerer, open_store

    questions = _sentences(options)
    where, names = _store_and_names(options)
    with open_store(where) as store:
        from lagr.parser import load

        answerer = Answerer(load(options.run_folder, rules=options.rules), store, names, *_answer_limits(options))
        failed = 0
        for number, question in enumerate(questions):
            if number and options.format == "text":
                print()
            try:
                answer = answerer.ask(question)
            except DataError as error:  # this question can't be answered; the next one may
                if len(questions) == 1:
                    raise
                failed += 1
                print(f"lagr: “{question}”: {error}", file=sys.stderr)
                continue
            if options.format == "json":
                print(json.dumps(answer.to_dict(), ensure_ascii=False), flush=True)
                continue
            for line in answer.lines():
                print(line)
            for note in (*answer.notes, *(() if answer.lines() else ("the store has no answer",))):
                print(f"lagr: {note if len(questions) == 1 else f'“{question}”: {note}'}", file=sys.stderr)
    if failed:
        raise DataError(f"{failed} of {len(questions)} questions could not be answered")


def _store_and_names(options: argparse.Namespace) -> tuple[str, Any]:
    """Where the store is, and what its things are called."""
    from lagr.ask import NO_NAMES, film_graph, read_names

    where, names = options.store, NO_NAMES
    if where == FILMS and not Path(where).exists():
        where, names = film_graph()
    return where, read_names(options.entities) if options.entities else names


def _answer_limits(options: argparse.Namespace) -> tuple[float, int, str]:
    from lagr.ask.query import FREEBASE

    return options.timeout, options.rows, options.namespace or FREEBASE


def _serve(options: argparse.Namespace) -> None:
    try:
        from lagr.serve import server
        from lagr.serve.service import create_app
    except ImportError as error:
        raise ConfigError(f"lagr serve needs {error.name}: pip install 'lagr[serve]'") from None
    from lagr.parser import load

    limits = Limits(**{f.name: getattr(options, f"max_{f.name}") for f in fields(Limits)})
    parser = load(options.run_folder, _device(), options.onnx, options.rules)
    folder = named.find(options.run_folder).resolve()
    examples = server.examples_of(folder, parser.config, options.data)
    if options.store is None:
        server.run(create_app(parser, limits, folder.name, examples), options.host, options.port, limits)
        return
    from lagr.ask import Answerer, open_store
    from lagr.serve.asking import PROCESSES, add_ask, film_examples

    where, names = _store_and_names(options)
    with open_store(where, PROCESSES) as store:
        answerer = Answerer(parser, store, replace(names, where="the table of names"), *_answer_limits(options))
        if options.store == FILMS:
            examples = film_examples(answerer)[: server.MOST_EXAMPLES]
        app = create_app(parser, limits, folder.name, examples)
        add_ask(app, answerer)
        server.run(app, options.host, options.port, limits)


def _export(options: argparse.Namespace) -> None:
    from lagr.export import export_onnx
    from lagr.parser import load, only_lagr

    parser = only_lagr(load(options.run_folder), "lagr export")
    if parser.pretrained:
        raise ConfigError("lagr export can't write a pretrained encoder; train without model.pretrained for ONNX")
    export_onnx(parser.model, Path(options.onnx))


def _pack(options: argparse.Namespace) -> None:
    from lagr import pack, runs

    run, out = runs.open_run(options.run_folder), Path(options.out)
    source = _source(runs.read_config(run)[0], options.data)
    card = pack.pack(run, out, options.name or out.name, source, options.split, options.licence)
    print(pack.markdown(card), end="")


def _models(options: argparse.Namespace) -> None:
    print(named.table())


def _align(options: argparse.Namespace) -> None:
    from lagr import runs
    from lagr.datasets import jsonl

    run = runs.open_run(named.find(options.run_folder))
    source = _source(runs.read_config(run)[0], options.data)
    if options.split == "train":
        from lagr.supervision import learned_alignments

        examples = learned_alignments(run, source)
    else:
        from lagr.parser import load, only_lagr

        examples = only_lagr(load(run, _device()), "lagr align").align(_split(source, options.split))
    lines = (jsonl.write_row(example, source.formalism) + "\n" for example in examples)
    if options.out:
        runs.write_text(Path(options.out), "".join(lines))
    else:
        sys.stdout.writelines(lines)


def _data_check(options: argparse.Namespace) -> None:
    from lagr.datasets import check, open_source

    source = open_source(options.name, options.data, options.partition or "all")
    counts = check.check(source, lambda line: print(line, file=sys.stderr))
    if options.json != "-":
        print(check.summary(counts))
    if options.json:
        _write_json(options.json, counts)
    check.refuse_failures(counts)


def _data_fetch(options: argparse.Namespace) -> None:
    from lagr.datasets import data_folder, fetch

    fetch.fetch(options.name, data_folder(options.data), lambda line: print(line, file=sys.stderr))


def _reproduce(options: argparse.Namespace) -> None:
    from lagr import reproduce, tables

    folder = Path(options.results)
    rows = tuple(row for row in rows_of(options.name) if row.has_preset or options.name == row.name)
    for row in rows_of(options.name):
        if row not in rows:
            print(f"{row.name}: there is no preset {row.preset} yet", file=sys.stderr)
    jobs = reproduce.plan(rows, _settings(options), options.seeds, folder, Path(options.out))
    if options.dry_run:
        for job in jobs:
            print(reproduce.describe(job))
        return
    missing: list[str] = []
    if options.run_folder:
        if len(jobs) != 1:
            raise ConfigError(f"--from takes the runs of one row, and {options.name} has {len(jobs)}; name the row")
        reports = reproduce.read_reports(Path(options.run_folder))
        reproduce.record(jobs[0], reports, options.commit, reproduce.data_of(jobs[0], options.data))
    else:
        missing = reproduce.run(jobs, options.data, lambda line: print(line, file=sys.stderr, flush=True))
    for name in reproduce.tables_of(rows):
        tables.write(TABLES[name], folder)
    print(tables.markdown(ROWS[rows[0].name][1], folder, rows_of(options.name)))
    if missing:
        raise DataError(f"{len(missing)} of {len(jobs)} rows could not be run: {'; '.join(missing)}")


def _analyse(options: argparse.Namespace) -> None:
    from lagr import analyse

    if options.name in TABLES or options.name in ROWS:
        rows = analyse.found(Path(options.results), rows_of(options.name))
        if not rows:
            raise DataError(
                f"nothing of {options.name} is in {options.results}; run `lagr reproduce {options.name}` first"
            )
        print(analyse.report(rows, Path(options.out)))
        return
    from lagr.parser import load, only_lagr

    parser = only_lagr(load(options.name, _device()), "lagr analyse")
    pictures = analyse.pictures_of(parser, _split(_source(parser.config, options.data), options.split))
    for file in analyse.write(pictures, Path(options.out)):
        print(file)


def _report(options: argparse.Namespace) -> None:
    from lagr import report

    found = report.read_runs(map(named.find, options.run_folders))
    missing = report.write(found, Path(options.out), lambda its: _source(its, options.data), options.split, _device())
    if missing:
        print(f"lagr: without calibration and pictures of errors: {missing}", file=sys.stderr)
    print(options.out)


def _search(options: argparse.Namespace) -> None:
    from lagr.search import search

    if min(options.trials, options.seeds) < 1:
        raise ConfigError("--trials and --seeds must be at least 1")
    out = Path(options.out or Path("runs") / "search" / Path(options.preset).stem)
    best = search(
        options.preset,
        _settings(options),
        Path(options.journal or out / "journal.log"),
        out,
        options.trials,
        options.seeds,
        options.data,
        options.alignment,
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(config.to_toml(best))


def _bench(options: argparse.Namespace) -> None:
    from lagr import bench_serve
    from lagr.bench import BENCHMARKS
    from lagr.scaling import scaling
    from lagr.train import choose_device, machine

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
                _write_json(options.json, report)

    for name in options.names or BENCHMARKS:
        if name == SCALING:
            scaling(lambda rows: known(SCALING, rows, _scaling_line(rows[-1])), options.limit, options.warm)
        elif name == SERVE:
            bench_serve.bench_serve(options.run_folder, lambda result: known(SERVE, result, bench_serve.line(result)))
        else:
            result = BENCHMARKS[name]()
            known(name, result, _parts_line(result) if "parts" in result else _ratio_line(result))
    if options.json == "-":
        _write_json("-", report)


def _ratio_line(result: dict[str, Any]) -> str:
    times = f"{result['ours_ms']:.3g} ms against {result['other_ms']:.3g} ms"
    return f"{result['ratio']:7.1f} ×   {times} ({result['other']}): {result['what']}"


def _parts_line(result: dict[str, Any]) -> str:
    parts = (f"{part['part']} {part['ms']:.3g} ms in {part['launches']:.0f}" for part in result["parts"])
    return f"{result['ours_ms']:.3g} ms, {result['what']}: {'; '.join(parts)}"


def _scaling_line(row: dict[str, Any]) -> str:
    found = row.get("problem") or f"{row['step_ms']:.3g} ms, {row['peak_mib']} MiB (estimated {row['estimate_mib']})"
    return f"{row['axis']:<12} {row['value']:>4}   {found}"


def _presets(options: argparse.Namespace) -> None:
    lines = [("preset", "paper", "ours", "what it is")]
    for name in config.presets():
        about = config.read_toml(config.PRESETS / f"{name}.toml").get("about", {})
        lines.append((name, about.get("paper", "–"), results.ours(name), about.get("what", "")))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, paper, ours, what in lines:
        print(f"{name:<{widths[0]}}  {paper:>{widths[1]}}  {ours:>{widths[2]}}  {what}")


def _source(settings: config.Config, data: str | None) -> Any:
    from lagr.datasets import open_source

    d = settings.data
    return open_source(d.name, data, d.partition, d.size, d.seed)


def _split(source: Any, split: str) -> Any:
    if split not in source.splits:
        raise DataError(f"{source.name} has no split {split!r}; it has {', '.join(source.splits)}")
    return source.read(split)


def _device() -> str:
    from lagr.train import choose_device

    return choose_device("auto")


def _write_json(path: str, value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    if path == "-":
        print(text)
        return
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror}") from None


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", help="the folder that holds cogs/ and cfq/")


def _add_rules(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rules", metavar="FILE.toml", help="parses keep the rules of this file, not those of the run")


def _add_store(parser: argparse.ArgumentParser, required: bool) -> None:
    group = parser.add_argument_group("the store that answers")
    group.add_argument(
        "--store",
        metavar="FILE|DIR|URL",
        required=required,
        help="a file of triples (.ttl, .nt, .nq), the folder of a pyoxigraph store, or a SPARQL endpoint; "
        f"{FILMS}: the small graph of films that comes with lagr, with its names",
    )
    group.add_argument("--entities", metavar="FILE", help="names and their IRIs: .tsv with a header, or .jsonl")
    group.add_argument("--timeout", type=float, default=5.0, metavar="S", help="seconds for a query; default 5")
    group.add_argument("--rows", type=int, default=100, metavar="N", help="answers to a question at most; default 100")
    group.add_argument("--namespace", metavar="IRI", help="what ns: stands for in the queries; default: Freebase's")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """An option --section.key for every setting."""
    for section, kind in config.SECTIONS.items():
        group = parser.add_argument_group(f"[{section}]")
        for f in fields(kind):
            name = f"{section}.{f.name}"
            group.add_argument(f"--{name}", metavar="VALUE", help=_option_help(f), dest=name)


def _settings(options: argparse.Namespace) -> tuple[tuple[str, str, Any], ...]:
    given = [(name.split("."), value) for name, value in vars(options).items() if "." in name and value is not None]
    return tuple((section, key, value) for (section, key), value in given)


def _option_help(f: Any) -> str:
    choices = f" ({' | '.join(f.metadata['choices'])})" if f.metadata["choices"] else ""
    default = "" if f.default in ("", ()) else f"; default {f.default}"
    return f"{f.metadata['help']}{choices}{default}".replace("%", "%%")


if __name__ == "__main__":
    sys.exit(main())
