"""What can be typed after `lagr`: the verbs and their options.

Nothing here, nor in what is imported here, imports torch: it takes seconds, and `lagr --help` shouldn't.
"""

from __future__ import annotations

import argparse
import difflib
from dataclasses import fields
from typing import Any, NoReturn

from lagr import __version__, config, verbs, verbs_research
from lagr.rows import TABLES
from lagr.serve.limits import Limits


class ArgumentParser(argparse.ArgumentParser):
    """Says the nearest option after a typing mistake."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: --"):
            given = message.removeprefix("unrecognized arguments: ").split()[0].split("=")[0]
            known = [name for parser in (self, *_verbs(self)) for name in parser._option_string_actions]
            elsewhere = [name for name in known if "." in given and name.endswith(f".{given.rsplit('.', 1)[1]}")]
            if near := elsewhere or difflib.get_close_matches(given, known, 1):
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
    known = top.add_subparsers(metavar="VERB", required=True)

    def verb(name: str, run: Any, help: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = known.add_parser(name, help=help, description=help, allow_abbrev=False)
        parser.set_defaults(run=run)
        return parser

    train = verb("train", verbs.train, "train a parser into a run folder")
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

    evaluate = verb("evaluate", verbs.evaluate, "how good a trained parser is on a split")
    evaluate.add_argument("run_folder", metavar="RUN")
    evaluate.add_argument("--split", default="test", help="which split of the data; default: test")
    evaluate.add_argument("--json", metavar="FILE", help="write everything as JSON; - for stdout")
    _add_rules(evaluate)
    _add_data(evaluate)

    parse = verb("parse", verbs.parse, "parse sentences")
    parse.add_argument("run_folder", metavar="RUN")
    parse.add_argument("sentences", nargs="*", metavar="SENTENCE", help="sentences, or - to read one a line from stdin")
    parse.add_argument("--format", choices=("form", "json", "text", "svg", "dot"), default="form", help="default: form")

    parse.add_argument("--onnx", metavar="FILE", help="run this file, which `lagr export` wrote of the same run")
    parse.add_argument("--nbest", type=int, default=1, metavar="N", help="the N likeliest graphs, the likeliest first")
    parse.add_argument(
        "--min-probability", type=float, default=0.0, metavar="P", help="no answer that is less probable; exit status 3"
    )
    _add_rules(parse)

    calibrate = verb("calibrate", verbs.calibrate, "make a run's probabilities trustworthy, and show how far they are")
    calibrate.add_argument("run_folder", metavar="RUN")
    calibrate.add_argument(
        "--split", default="dev", help="fit on this split, which training has not seen; default: dev"
    )
    calibrate.add_argument("--plot", metavar="FILE.svg", help="draw reliability on all splits but train")
    calibrate.add_argument("--json", metavar="FILE", help="write the measures of all splits as JSON; - for stdout")
    _add_data(calibrate)

    ask = verb("ask", verbs.ask, "answer questions from a store of triples")
    ask.add_argument("run_folder", metavar="RUN")
    ask.add_argument("sentences", nargs="*", metavar="QUESTION", help="questions, or - to read one a line from stdin")
    ask.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    _add_rules(ask)
    _add_store(ask, required=True)

    serve = verb("serve", verbs.serve, "a page to try a trained parser on, and a service")
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

    export = verb("export", verbs.export, "write a trained parser as ONNX")
    export.add_argument("run_folder", metavar="RUN")
    export.add_argument("--onnx", metavar="FILE", required=True, help="the file to write")

    pack = verb("pack", verbs.pack, "write a run as a small model to give away, with a card")
    pack.add_argument("run_folder", metavar="RUN")
    pack.add_argument("--out", metavar="DIR", required=True, help="a new folder; its name is the model's")
    pack.add_argument("--name", help="the model's name, if not the folder's")
    pack.add_argument("--split", default="test", help="where parses before and after are compared; default: test")
    pack.add_argument("--licence", default="", help="of the data, for the card, if it is your own")
    _add_data(pack)
    verb("models", verbs.models, "list the models that come with the package: size, accuracy, data")

    align = verb("align", verbs.align, "the alignments that training settled on, as JSONL")
    align.add_argument("run_folder", metavar="RUN")
    align.add_argument("--split", default="train", help="train: as training left them; others: inferred by the model")
    align.add_argument("--out", metavar="FILE.jsonl", help="default: stdout")
    _add_data(align)

    data = verb("data", None, "check or fetch data").add_subparsers(metavar="check|fetch", required=True)
    check = data.add_parser("check", help="read all, convert both ways, count", allow_abbrev=False)
    check.set_defaults(run=verbs.data_check)
    check.add_argument("name", metavar="NAME|FILE", help="cogs, cfq, mini, a .jsonl file or a folder of them")
    check.add_argument("--json", metavar="FILE", help="write the counts as JSON; - for stdout")
    check.add_argument("--partition", default="", help="cfq: one of its splits, or all (default)")
    _add_data(check)
    fetch = data.add_parser("fetch", help="download from its home and verify the checksum", allow_abbrev=False)
    fetch.set_defaults(run=verbs.data_fetch)
    fetch.add_argument("name", choices=("cogs", "cfq"))
    _add_data(fetch)

    reproduce = verb(
        "reproduce", verbs_research.reproduce, "run rows of the paper's tables, and write them beside the paper's"
    )
    reproduce.add_argument("name", metavar="TABLE|ROW", help=f"{', '.join(TABLES)}, or one of their rows")
    reproduce.add_argument("--seeds", type=int, metavar="N", help="seeds in all; default: those of each row, mostly 5")
    reproduce.add_argument("--dry-run", action="store_true", help="say what would run, and how long it took last time")
    reproduce.add_argument("--from", metavar="RUN", dest="run_folder", help="take a row's runs from there; run nothing")
    reproduce.add_argument(
        "--commit", metavar="HASH", default="", help="--from: the code that these runs were made with"
    )
    reproduce.add_argument("--results", metavar="DIR", default="results", help="where results lie; default: results")
    reproduce.add_argument("--out", metavar="DIR", default="runs/reproduce", help="for runs; default: runs/reproduce")
    _add_data(reproduce)
    _add_settings(reproduce)

    analyse = verb(
        "analyse",
        verbs_research.analyse,
        "accuracy by category, kinds of errors, convergence, depth; learned alignments; pictures of predictions",
    )
    analyse.add_argument(
        "names",
        nargs="+",
        metavar="TABLE|ROW|RUN",
        help="results of rows, or a run: where it places nodes, predictions drawn; --depth: runs, or folders of seeds",
    )
    analyse.add_argument("--split", default="dev", help="RUN: whose sentences are drawn; default: dev")
    analyse.add_argument("--results", metavar="DIR", default="results", help="where results lie; default: results")
    analyse.add_argument("--out", metavar="DIR", default="runs/analyse", help="for pictures; default: runs/analyse")
    analyse.add_argument("--depth", type=int, metavar="D", help="RUN on mini: accuracy on nesting of depth 1 to D")
    analyse.add_argument("--sentences", type=int, default=200, metavar="N", help="--depth: of each; default 200")
    analyse.add_argument("--json", metavar="FILE", help="--depth: write everything as JSON; - for stdout")
    _add_data(analyse)

    report = verb(
        "report", verbs_research.report, "runs as one HTML page: curves, categories, calibration, errors drawn, seeds"
    )
    report.add_argument("run_folders", nargs="+", metavar="RUN", help="runs, or folders that hold seeds")
    report.add_argument("--out", metavar="FILE", default="report.html", help="default: report.html")
    report.add_argument("--split", default="", help="whose errors are drawn; default: the last, gen or test")
    _add_data(report)

    search = verb("search", verbs_research.search, "search the paper's grids on dev, and write the best configuration")
    search.add_argument("preset", metavar="PRESET|FILE.toml", help="where to start; what is set here is not searched")
    search.add_argument("--trials", type=int, default=20, metavar="N", help="trials in all; default 20")
    search.add_argument("--journal", metavar="FILE", help="shared by all processes; default: OUT/journal.log")
    search.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds of a trial, averaged; default 1")
    search.add_argument("--alignment", action="store_true", help="search K and σ of weak supervision, not the rest")
    search.add_argument("--out", metavar="DIR", help="for runs and best.toml; default: runs/search/PRESET")
    _add_data(search)
    _add_settings(search)

    bench = verb("bench", verbs_research.bench, "ours and the alternative, side by side in one run")
    bench.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which benchmarks; default: all but {verbs_research.SCALING}, {verbs_research.SERVE}",
    )
    bench.add_argument("--json", metavar="FILE", help="write the results as JSON; - for stdout")
    bench.add_argument(
        "--limit", type=float, default=540, metavar="S", help=f"{verbs_research.SCALING}: seconds at most; default 540"
    )
    bench.add_argument(
        "--warm", type=int, default=0, metavar="N", help=f"{verbs_research.SCALING}: compile ahead in N processes"
    )
    bench.add_argument(
        "--run", metavar="RUN", dest="run_folder", help=f"{verbs_research.SERVE}: the trained parser to load"
    )
    _add_data(bench)
    verb("presets", verbs_research.presets, "list the presets, with the paper's number beside each")
    return top


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
        f"{verbs.FILMS}: the small graph of films that comes with lagr, with its names",
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


def _option_help(f: Any) -> str:
    choices = f" ({' | '.join(f.metadata['choices'])})" if f.metadata["choices"] else ""
    default = "" if f.default in ("", ()) else f"; default {f.default}"
    return f"{f.metadata['help']}{choices}{default}".replace("%", "%%")
