"""`lagr VERB`. Results go to stdout, progress and messages to stderr.

Exit status 0; 1 for a LagrError, printed as one line; 2 for a command that was not understood. The verbs import what
they need themselves: torch takes seconds to import, and `lagr --help` shouldn't.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from lagr import __version__, config
from lagr.errors import ConfigError, DataError, LagrError

SCALING = "scaling"  # the benchmark that has no alternative, and takes too long to run unasked


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
    train.add_argument("preset", metavar="PRESET|FILE.toml", help="a preset (see `lagr presets`) or a file of settings")
    train.add_argument("--out", metavar="RUN", help="the run folder; default: runs/PRESET")
    train.add_argument("--resume", action="store_true", help="go on with an interrupted run, as if never interrupted")
    seeds = train.add_mutually_exclusive_group()
    seeds.add_argument("--seeds", type=int, metavar="N", help="train N seeds, each into RUN/seed-I")
    seeds.add_argument("--seed", type=int, metavar="I", help="short for --train.seed I")
    _add_data(train)
    for section, kind in config.SECTIONS.items():
        group = train.add_argument_group(f"[{section}]")
        for f in fields(kind):
            group.add_argument(
                f"--{section}.{f.name}", metavar="VALUE", help=_option_help(f), dest=f"{section}.{f.name}"
            )

    evaluate = verb("evaluate", _evaluate, "how good a trained parser is on a split")
    evaluate.add_argument("run_folder", metavar="RUN")
    evaluate.add_argument("--split", default="test", help="which split of the data; default: test")
    evaluate.add_argument("--json", metavar="FILE", help="write everything as JSON; - for stdout")
    _add_data(evaluate)

    parse = verb("parse", _parse, "parse sentences")
    parse.add_argument("run_folder", metavar="RUN")
    parse.add_argument("sentences", nargs="*", metavar="SENTENCE", help="sentences, or - to read one a line from stdin")
    parse.add_argument("--format", choices=("form", "json", "text", "svg", "dot"), default="form", help="default: form")

    parse.add_argument("--onnx", metavar="FILE", help="run this file, which `lagr export` wrote of the same run")

    export = verb("export", _export, "write a trained parser as ONNX")
    export.add_argument("run_folder", metavar="RUN")
    export.add_argument("--onnx", metavar="FILE", required=True, help="the file to write")

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

    bench = verb("bench", _bench, "ours and the alternative, side by side in one run")
    bench.add_argument("names", nargs="*", metavar="NAME", help=f"which benchmarks; default: all but {SCALING}")
    bench.add_argument("--json", metavar="FILE", help="write the results as JSON; - for stdout")
    bench.add_argument("--limit", type=float, default=540, metavar="S", help=f"{SCALING}: seconds at most; default 540")
    bench.add_argument("--warm", type=int, default=0, metavar="N", help=f"{SCALING}: compile ahead in N processes")
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
        options.run(options)
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
    return 0


def _train(options: argparse.Namespace) -> None:
    settings = config.load(options.preset)
    changes = [(*name.split("."), value) for name, value in vars(options).items() if "." in name and value is not None]
    settings = config.override(settings, [(s, k, v) for s, k, v in changes])
    if options.seed is not None:
        settings = config.override(settings, [("train", "seed", options.seed)])
    if options.seeds is not None and options.seeds < 1:
        raise ConfigError(f"--seeds {options.seeds}: at least one seed is needed")
    if Path(settings.data.name).exists():  # one's own data: the run folder should find it from anywhere
        settings = config.override(settings, [("data", "name", str(Path(settings.data.name).resolve()))])
    out = Path(options.out or Path("runs") / Path(options.preset).stem)
    source = _source(settings, options.data)

    from lagr.train import train

    reports = train(settings, source, out, options.resume, options.seeds)
    for report in reports:
        _print_report(report, out if options.seeds is None else out / f"seed-{report['config']['train']['seed']}")


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

    parser = load(options.run_folder, _device())
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


def _parse(options: argparse.Namespace) -> None:
    from lagr.parser import load

    parser = load(options.run_folder, onnx=options.onnx)
    sentences = options.sentences
    if sentences == ["-"] or not sentences:
        try:
            sentences = [line for line in sys.stdin.read().splitlines() if line.strip()]
        except UnicodeDecodeError:
            raise DataError("stdin is not UTF-8; convert it first") from None
        if not sentences:
            raise DataError("no sentence: give it as an argument, or one a line on stdin")
    for parse in parser.parse(sentences):
        if options.format == "json":
            print(json.dumps(parse.to_dict(), ensure_ascii=False))
            continue
        drawn = options.format != "form"
        if drawn and parse.graph:
            print(parse.draw(options.format))
        elif not drawn and parse.form is not None:
            print(parse.form)
        else:
            print(json.dumps(parse.graph.to_dict(), ensure_ascii=False) if parse.graph else "")
            if parse.problem:
                print(f"lagr: “{' '.join(parse.tokens)}”: {parse.problem}", file=sys.stderr)


def _export(options: argparse.Namespace) -> None:
    from lagr.export import export_onnx
    from lagr.parser import load, only_lagr

    export_onnx(only_lagr(load(options.run_folder), "lagr export").model, Path(options.onnx))


def _align(options: argparse.Namespace) -> None:
    from lagr import runs
    from lagr.datasets import jsonl

    run = runs.open_run(options.run_folder)
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
    if counts["failures"]:
        raise DataError(f"{counts['failed']} of {counts['rows']} rows fail; the first is {counts['failures'][0]}")


def _data_fetch(options: argparse.Namespace) -> None:
    from lagr.datasets import data_folder, fetch

    fetch.fetch(options.name, data_folder(options.data), lambda line: print(line, file=sys.stderr))


def _bench(options: argparse.Namespace) -> None:
    from lagr.bench import BENCHMARKS
    from lagr.scaling import scaling
    from lagr.train import choose_device, machine

    if unknown := [name for name in options.names if name not in (*BENCHMARKS, SCALING)]:
        raise ConfigError(f"no benchmark {unknown[0]!r}; there are {', '.join((*BENCHMARKS, SCALING))}")
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
    names = config.presets()
    width = max(map(len, names))
    print(f"{'preset':<{width}}  {'paper':>12}  what it is")
    for name in names:
        about = config.read_toml(config.PRESETS / f"{name}.toml").get("about", {})
        print(f"{name:<{width}}  {about.get('paper', '–'):>12}  {about.get('what', '')}")


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


def _option_help(f: Any) -> str:
    choices = f" ({' | '.join(f.metadata['choices'])})" if f.metadata["choices"] else ""
    default = "" if f.default == "" else f"; default {f.default}"
    return f"{f.metadata['help']}{choices}{default}".replace("%", "%%")


if __name__ == "__main__":
    sys.exit(main())
