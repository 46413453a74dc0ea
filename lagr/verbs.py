"""What the verbs of `lagr VERB` do, for whoever trains, tries and serves a parser. arguments.py has their options.

Each imports what it needs itself: torch takes seconds to import, and `lagr --help` shouldn't.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from lagr import choose, config, named
from lagr.errors import ConfigError, DataError
from lagr.serve.limits import Limits

FILMS = "films"  # the graph that comes with the package
ABSTAINED = 3  # exit status
SHOWN = 8  # words that training has not seen


def train(options: argparse.Namespace) -> None:
    from lagr import runs

    out = _run_folder(options)
    if choose.is_data(options.preset) and not options.resume:
        runs.check_free(out)  # before the data is checked, which may take a while
    settings, choices = _chosen(options) if choose.is_data(options.preset) else (config.load(options.preset), [])
    settings = config.override(settings, settings_of(options))
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
    source = source_of(settings, options.data)

    from lagr.train import train

    reports = train(settings, source, out, options.resume, options.seeds, choices)
    for report in reports:
        _print_report(report, out if options.seeds is None else out / f"seed-{report['config']['train']['seed']}")


def _chosen(options: argparse.Namespace) -> tuple[config.Config, list[str]]:
    """Settings for one's own data, once it is checked, and why; what is given on the command line is not chosen."""
    from lagr.datasets import check, open_source
    from lagr.devices import choose_device

    source = open_source(options.preset)
    counts = check.check(source)
    print(check.summary(counts), file=sys.stderr)
    check.refuse_failures(counts)
    given = {f"{section}.{key}": value for section, key, value in settings_of(options)}
    choices = choose.choose(source, choose_device(given.get("train.device", "auto")), given)
    settings = choose.configure(source, choices)
    lines = [str(choice) for choice in choose.without(choices, given)]
    where = f"all settings will be in {_run_folder(options) / 'config.toml'}, to edit and train from"
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


def evaluate(options: argparse.Namespace) -> None:
    from lagr.evaluate import evaluate_parser
    from lagr.parser import load
    from lagr.progress import Progress

    parser = load(options.run_folder, device(), rules=options.rules)
    examples = split_of(source_of(parser.config, options.data), options.split)
    with Progress(len(examples)) as progress:
        progress.begin(0, f"evaluating {options.split}")
        result = evaluate_parser(parser, examples, options.split, progress.update)
    if options.json != "-":
        _print_evaluation(result, options.split)
    if options.json:
        write_json(options.json, result.to_dict())


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


def parse(options: argparse.Namespace) -> int:
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
    if options.format != "json":
        _print_unseen(parses)
    return ABSTAINED if any(parse.abstained for parse in parses) else 0


def _print_unseen(parses: Sequence[Any]) -> None:
    """Words that training has not seen are the usual reason for a strange parse."""
    words = list(dict.fromkeys(parse.tokens[position] for parse in parses for position in parse.unknown))
    if words:
        some = ", ".join(f"“{word}”" for word in words[:SHOWN]) + (" …" if len(words) > SHOWN else "")
        print(f"lagr: training has not seen {some}", file=sys.stderr)


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


def calibrate(options: argparse.Namespace) -> None:
    from lagr import calibrate, confidence, runs
    from lagr.parser import load

    run = runs.open_run(options.run_folder)
    parser = load(run, device())
    source = source_of(parser.config, options.data)
    if options.split == "train":
        raise ConfigError("--split train: a model is surer of what it was trained on; calibrate on another split")
    found = calibrate.calibrate(parser, split_of(source, options.split), options.split)
    checks = calibrate.check_splits(parser, source)
    if options.plot:  # before the run is changed: what can't be drawn should not be half done
        from lagr.charts import reliability

        runs.write_text(Path(options.plot), reliability(checks))
    runs.write_json(run / confidence.FILE, found)
    if options.json != "-":
        print(calibrate.summary(found, checks))
    if options.json:
        write_json(options.json, {**found, "splits": calibrate.measures(checks)})


def ask(options: argparse.Namespace) -> None:
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


def serve(options: argparse.Namespace) -> None:
    try:
        from lagr.serve import server
        from lagr.serve.service import create_app
    except ImportError as error:
        raise ConfigError(f"lagr serve needs {error.name}: pip install 'lagr[serve]'") from None
    from lagr.parser import load

    limits = Limits(**{f.name: getattr(options, f"max_{f.name}") for f in fields(Limits)})
    parser = load(options.run_folder, device(), options.onnx, options.rules)
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


def _sentences(options: argparse.Namespace) -> list[str]:
    """The sentences of a command, or of stdin."""
    sentences: list[str] = options.sentences
    if len(sentences) > 1 and not any(" " in sentence for sentence in sentences):
        print(f"lagr: {len(sentences)} sentences of one word each; one sentence stands in quotes", file=sys.stderr)
    if sentences == ["-"] or not sentences:
        try:
            sentences = [line for line in sys.stdin.read().splitlines() if line.strip()]
        except UnicodeDecodeError:
            raise DataError("stdin is not UTF-8; convert it first") from None
        if not sentences:
            raise DataError("no sentence: give it as an argument, or one a line on stdin")
    return sentences


def export(options: argparse.Namespace) -> None:
    from lagr.export import export_onnx
    from lagr.parser import load, only_lagr

    parser = only_lagr(load(options.run_folder), "lagr export")
    if parser.pretrained:
        raise ConfigError("lagr export can't write a pretrained encoder; train without model.pretrained for ONNX")
    print(f"writing {options.onnx} …", file=sys.stderr)
    export_onnx(parser.model, Path(options.onnx))
    print(options.onnx)


def pack(options: argparse.Namespace) -> None:
    from lagr import pack, runs

    run, out = runs.open_run(named.find(options.run_folder)), Path(options.out)
    source = source_of(runs.read_config(run)[0], options.data)
    card = pack.pack(run, out, options.name or out.name, source, options.split, options.licence)
    print(pack.markdown(card), end="")


def models(options: argparse.Namespace) -> None:
    print(named.table())


def align(options: argparse.Namespace) -> None:
    from lagr import runs
    from lagr.datasets import jsonl

    run = runs.open_run(named.find(options.run_folder))
    source = source_of(runs.read_config(run)[0], options.data)
    if options.split == "train":
        from lagr.supervision import learned_alignments

        examples = learned_alignments(run, source)
    else:
        from lagr.parser import load, only_lagr

        parser, given = only_lagr(load(run, device()), "lagr align"), split_of(source, options.split)
        known = [example for example in given if parser.can_align(example)]
        if left_out := len(given) - len(known):
            why = "labels that training lacks, or more nodes than slots"
            print(f"{left_out:,} of {len(given):,} sentences left out: {why}", file=sys.stderr)
        examples = parser.align(known)
    lines = (jsonl.write_row(example, source.formalism) + "\n" for example in examples)
    if options.out:
        runs.write_text(Path(options.out), "".join(lines))
    else:
        sys.stdout.writelines(lines)


def data_check(options: argparse.Namespace) -> None:
    from lagr.datasets import check, open_source

    source = open_source(options.name, options.data, options.partition or "all")
    counts = check.check(source, lambda line: print(line, file=sys.stderr))
    if options.json != "-":
        print(check.summary(counts))
    if options.json:
        write_json(options.json, counts)
    check.refuse_failures(counts)


def data_fetch(options: argparse.Namespace) -> None:
    from lagr.datasets import data_folder, fetch

    fetch.fetch(options.name, data_folder(options.data), lambda line: print(line, file=sys.stderr))


def source_of(settings: config.Config, data: str | None) -> Any:
    from lagr.datasets import open_source

    d = settings.data
    return open_source(d.name, data, d.partition, d.size, d.seed)


def split_of(source: Any, split: str) -> Any:
    if split not in source.splits:
        raise DataError(f"{source.name} has no split {split!r}; it has {', '.join(source.splits)}")
    return source.read(split)


def device() -> str:
    from lagr.devices import choose_device

    return choose_device("auto")


def settings_of(options: argparse.Namespace) -> tuple[tuple[str, str, Any], ...]:
    given = [(name.split("."), value) for name, value in vars(options).items() if "." in name and value is not None]
    return tuple((section, key, value) for (section, key), value in given)


def write_json(path: str, value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1)
    if path == "-":
        print(text)
        return
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror}") from None
