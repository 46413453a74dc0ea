"""Runs as one HTML page that opens anywhere: `lagr report RUN… --out report.html`.

What the run folders say is taken from them: learning curves, accuracies, kinds of errors. Calibration and the pictures
of errors need the data: the model of the first run parses some of it again. The page holds everything it shows, and
needs no network and no script.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from lagr import charts, confidence, draw, named, results, runs
from lagr.config import Config
from lagr.datasets import Example, Source
from lagr.errors import DataError, RunError
from lagr.evaluate import KINDS, error_kinds
from lagr.graph import Graph
from lagr.progress import duration

LONGEST = 16  # tokens of a sentence that is drawn
DRAWN = 2  # pictures of a kind of error


@dataclass(frozen=True)
class Run:
    name: str
    folder: Path
    config: Config
    report: dict[str, Any]
    metrics: list[dict[str, Any]]
    calibration: dict[str, Any] | None

    def evaluation(self, split: str) -> dict[str, Any]:
        found: dict[str, Any] = self.report["evaluation"].get(split, {})
        return found


@dataclass(frozen=True)
class Difference:
    """A sentence that was parsed wrong, with both graphs in slots."""

    example: Example
    gold: Graph
    predicted: Graph
    probability: float
    kinds: frozenset[str]


def read_runs(folders: Iterable[str | Path]) -> list[Run]:
    """The runs of the folders; one that holds seeds stands for all of them."""
    found = runs.with_seeds(folders)
    several = len({folder.name for folder in found}) < len(found)  # equal names: say where each is
    return [_read(folder, f"{folder.parent.name}/{folder.name}" if several else folder.name) for folder in found]


def _read(folder: Path, name: str) -> Run:
    config, _ = runs.read_config(folder)
    try:
        report = json.loads((folder / runs.REPORT).read_text(encoding="utf-8"))
        lines = (folder / runs.METRICS).read_text(encoding="utf-8").splitlines()
        metrics = [json.loads(line) for line in lines]
        file = folder / confidence.FILE
        calibration = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    except FileNotFoundError as error:
        packed = (folder / named.CARD).is_file()
        why = (
            f"a packed model has none; {folder / named.CARD} has its accuracy"
            if packed
            else "training has not finished"
        )
        raise RunError(f"{folder} has no {Path(error.filename).name}: {why}") from None
    except (OSError, ValueError):
        raise RunError(f"a file of {folder} can't be read; it is damaged") from None
    return Run(name, folder, config, report, metrics, calibration)


def write(
    found: Sequence[Run], out: Path, source: Callable[[Config], Source], split: str = "", device: str = "cpu"
) -> str:
    """Writes the page, and returns what it could not show; empty if nothing. source: opens the data of a run."""
    first = found[0]
    split = split or list(first.report["evaluation"])[-1]
    if split not in first.report["evaluation"]:
        raise DataError(f"{first.folder} has no split {split!r}; it has {', '.join(first.report['evaluation'])}")
    missing = ""
    try:
        calibration, errors = _parse_again(first, source(first.config), split, device)
    except DataError as error:
        missing = str(error)
        calibration = errors = _paragraph(f"The data is not at hand: {missing}")
    body = [
        _section("Accuracy", _accuracy(found)),
        _section(
            "Learning",
            _picture(charts.learning_curves({run.name: _curve(run) for run in found}), "Loss and accuracy by step"),
        ),
        _section("By category", _categories(found)),
        _section("Calibration", _calibrations(found) + calibration),
        _section("Errors", _kinds(found, split) + errors),
        _section("Settings", _settings(found)),
    ]
    title = f"{_data(first.config)}: {first.name}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")
    runs.write_text(out, PAGE.format(title=escape(title), style=STYLE, body="\n".join(part for part in body if part)))
    return missing


# What the folders say.


def _accuracy(found: Sequence[Run]) -> str:
    splits = list(dict.fromkeys(split for run in found for split in run.report["evaluation"]))
    rows = []
    for run in found:
        accuracies = [_exact(run.evaluation(split)) for split in splits]
        steps = sum(start["steps"] for start in run.report["starts"])
        seconds = duration(run.report["seconds"])
        rows.append([run.name, str(run.report["starts"][-1]["seed"]), f"{steps:,}", seconds, *accuracies])
    if len(found) > 1 and not any(results.difference(run.config, found[0].config) for run in found):
        figures = [results.figure([run.evaluation(s)["exact"] for run in found if run.evaluation(s)]) for s in splits]
        rows.append(["mean ± deviation", "", "", "", *(figure.text() if figure else "–" for figure in figures)])
    table = _table(["run", "seed", "steps", "time", *(f"{split}, %" for split in splits)], rows)
    spread = {split: [_dot(run, run.evaluation(split)) for run in found if run.evaluation(split)] for split in splits}
    return table + _picture(charts.accuracies(spread), "Exact match by split")


def _curve(run: Run) -> list[dict[str, Any]]:
    """The metrics, with the accuracy that dev ended at."""
    start = len(run.report["starts"]) - 1
    last = {"start": start, "step": run.report["starts"][-1]["steps"], "split": "dev"}
    dev = run.evaluation("dev")
    return run.metrics + ([last | {"exact": dev["exact"]}] if dev else [])


def _exact(evaluation: dict[str, Any]) -> str:
    return f"{evaluation['exact']:.2f}" if evaluation else "–"


def _dot(run: Run, evaluation: dict[str, Any]) -> tuple[str, float, float, float]:
    return run.name, evaluation["exact"], evaluation["low"], evaluation["high"]


def _categories(found: Sequence[Run]) -> str:
    """Of every split that has several categories: a chart, and the numbers."""
    parts = []
    for split in (split for split in found[0].report["evaluation"] if split != "train"):
        names = sorted({name for run in found for name in run.evaluation(split).get("by_category", {})})
        if len(names) < 2:
            continue
        rows: dict[str, list[tuple[str, float, float, float]]] = {}
        for name in names:
            its = [(run, run.evaluation(split).get("by_category", {}).get(name)) for run in found]
            rows[name] = [_dot(run, score) for run, score in its if score]
        numbers = [
            [name, *(f"{exact:.1f} [{low:.1f}, {high:.1f}]" for _, exact, low, high in its)]
            for name, its in rows.items()
        ]
        table = _table(["category", *(run.name for run in found)], numbers)
        parts.append(f"<h3>{escape(split)}</h3>" + _picture(charts.accuracies(rows), f"Accuracy by category, {split}"))
        parts.append(f"<details><summary>Numbers</summary>{table}</details>")
    return "".join(parts)


def _calibrations(found: Sequence[Run]) -> str:
    rows = []
    for run in found:
        if its := run.calibration:
            numbers = [f"{its[key]:.2f}" for key in ("node_temperature", "edge_temperature", "slope", "offset")]
            change = f"{its['before']['whole']['ece']:.4f} → {its['after']['whole']['ece']:.4f}"
            rows.append([run.name, its["split"], *numbers, change])
    if not rows:
        return _paragraph("No run is calibrated, so probabilities are the models' own; `lagr calibrate` changes that.")
    head = ["run", "fitted on", "node T", "edge T", "slope", "offset", "ECE of the whole there"]
    return _table(head, rows)


def _kinds(found: Sequence[Run], split: str) -> str:
    rows = []
    for kind, meaning in KINDS.items():
        counts = [run.evaluation(split).get("errors", {}).get(kind, {}).get("n", 0) for run in found]
        if any(counts):
            rows.append([meaning, *(f"{count:,}" for count in counts)])
    wrong = [round(e["n"] * (1 - e["exact"] / 100)) if (e := run.evaluation(split)) else 0 for run in found]
    head = f"Sentences of {split} that have an error of a kind; one may have several."
    return _paragraph(head) + _table(
        ["what is wrong", *(run.name for run in found)], [["any", *(f"{n:,}" for n in wrong)], *rows]
    )


def _settings(found: Sequence[Run]) -> str:
    first = found[0]
    apart = [(run.name, results.differences(run.config, first.config)) for run in found[1:]]
    parts = [_paragraph(f"{name} differs from {first.name}: {'; '.join(what)}.") for name, what in apart if what]
    machine = f"{first.report['machine']}; lagr {first.report['lagr']}; {first.report['parameters']:,} weights"
    sections = first.config.to_dict().items()
    rows = [[f"{section}.{key}", str(value)] for section, its in sections for key, value in its.items()]
    table = _table(["setting", "value"], rows)
    parts.append(f"<details><summary>All settings of {escape(first.name)}</summary>{table}</details>")
    return _paragraph(machine) + "".join(parts)


# What is parsed again.


def _parse_again(run: Run, source: Source, split: str, device: str) -> tuple[str, str]:
    """The sections that need the model and the data: calibration, and pictures of errors."""
    from lagr.calibrate import check_splits, measures, sample
    from lagr.parser import Parser, load

    parser = load(run.folder, device)
    checks = check_splits(parser, source)
    shown = list(checks)[1:] or list(checks)  # dev, which is fitted on, only where there is nothing else
    figures = [
        f"<figure><figcaption>{escape(run.name)} on {escape(name)}</figcaption>"
        + _picture(charts.reliability_of_wholes(checks[name]), f"Reliability on {name}")
        + "</figure>"
        for name in shown
    ]
    rows = [
        [name, part, f"{old['n']:,}", f"{100 * old['accuracy']:.2f}"]
        + [f"{old[key]:.4f} → {both['after'][part][key]:.4f}" for key in ("confidence", "ece", "brier")]
        for name, both in measures(checks).items()
        for part, old in both["before"].items()
    ]
    table = _table(["split", "of", "n", "right, %", "mean probability", "ECE", "Brier"], rows)
    numbers = f"<details><summary>Numbers of {escape(run.name)}</summary>{table}</details>"
    calibration = f'<div class="side">{"".join(figures)}</div>{numbers}'
    if not isinstance(parser, Parser):
        return calibration, _paragraph("This run writes forms; there are no slots to draw them in.")
    return calibration, _pictures(differences(parser, sample(source.read(split))), parser.model.graph_layers)


def differences(parser: Any, examples: Sequence[Example]) -> list[Difference]:
    """The sentences that are parsed wrong and can be drawn, with what is wrong."""
    from lagr.calibrate import place_gold
    from lagr.evaluate import is_right

    short = [example for example in examples if len(example.tokens) <= LONGEST]
    parses = parser.parse_tokens([example.tokens for example in short])
    found = []
    for example, parse, gold in zip(short, parses, place_gold(parser, short, parses), strict=True):
        tangle = len(parse.edges) > 3 * len(parse.tokens)  # what is untrained
        if gold is not None and not is_right(parse, example) and not tangle:
            kinds = frozenset(error_kinds(example.graph, parse.graph) or {"other"})
            found.append(Difference(example, gold, parse.graph, parse.probability, kinds))
    return found


def _pictures(found: Sequence[Difference], graph_layers: int) -> str:
    """Of every kind of error some sentences, those first that have no other error."""
    if not found:
        return _paragraph("No sentence that was parsed again is wrong and short enough to be drawn.")
    parts, drawn = [], set()
    for kind, meaning in KINDS.items():
        its = [one for one in found if kind in one.kinds and id(one) not in drawn]
        for number, one in enumerate(sorted(its, key=lambda one: (len(one.kinds), len(one.example.tokens)))[:DRAWN]):
            drawn.add(id(one))
            if not number:
                parts.append(f"<h3>{escape(meaning.capitalize())}</h3>")
            parts.append(_difference(one, graph_layers))
    note = "Faint: what both graphs have in the same place. Strong: what sets them apart."
    return _paragraph(note) + "".join(parts)


def _difference(one: Difference, graph_layers: int) -> str:
    sides = [_in_slots(graph) for graph in (one.gold, one.predicted)]
    common = sides[0][0] & sides[1][0], sides[0][1] & sides[1][1]
    pictures = []
    colours = draw.colours_of(edge.label for graph in (one.gold, one.predicted) for edge in graph.edges)
    titles = "gold", f"predicted, {one.probability:.0%}"
    for graph, title in zip((one.gold, one.predicted), titles, strict=True):
        slots = graph.slots or ()
        faint_nodes = {n for n, node in enumerate(zip(slots, graph.nodes, strict=True)) if node in common[0]}
        edges = [(slots[e.source], e.label, slots[e.target]) for e in graph.edges]
        faint_edges = {n for n, edge in enumerate(edges) if edge in common[1]}
        faint = draw.Faint(frozenset(faint_nodes), frozenset(faint_edges))
        tokens = one.example.tokens
        pictures.append(draw.svg(tokens, graph, graph_layers=graph_layers, title=title, faint=faint, colours=colours))
    category = f" ({escape(one.example.category)})" if one.example.category else ""
    caption = f"<figcaption>{escape(' '.join(one.example.tokens))}{category}</figcaption>"
    return f'<figure>{caption}<div class="wide">{draw.stacked(pictures)}</div></figure>'


def _in_slots(graph: Graph) -> tuple[set[tuple[int, str]], set[tuple[int, str, int]]]:
    slots = graph.slots or ()
    nodes = set(zip(slots, graph.nodes, strict=True))
    return nodes, {(slots[e.source], e.label, slots[e.target]) for e in graph.edges}


# The page.


def _data(config: Config) -> str:
    return f"{Path(config.data.name).name} {config.data.partition}".strip()


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>'


def _picture(drawn: str, what: str) -> str:
    """A chart that is part of the page: without an XML head, and with names that no other chart on it has."""
    inline = drawn[drawn.index("<svg") :]
    own = f"c{zlib.crc32(drawn.encode()):x}-"
    inline = re.sub(r'\bid="', f'id="{own}', inline)
    inline = re.sub(r'(href="#|url\(#)', rf"\g<1>{own}", inline)
    return f'<div class="chart" role="img" aria-label="{escape(what)}">{inline}</div>'


STYLE = """
:root { color-scheme: light dark; --ink: #1c2630; --paper: #fff; --line: #d6dde3; --faint: #5c6975 }
@media (prefers-color-scheme: dark) { :root { --ink: #e8edf2; --paper: #14191f; --line: #2f3943; --faint: #9aa8b5 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif }
h1 { font-size: 1.5rem; overflow-wrap: anywhere } h2 { font-size: 1.2rem; border-bottom: 1px solid var(--line) }
h3 { font-size: 1rem; margin-bottom: .3rem }
section { margin: 2rem 0 } figure { margin: 1rem 0 } figcaption { color: var(--faint); overflow-wrap: anywhere }
.chart svg { max-width: 100%; height: auto } .wide { overflow-x: auto }
.side { display: flex; flex-wrap: wrap; gap: 1rem } .side figure { flex: 1 1 18rem; min-width: 0; margin: 0 }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; margin: .5rem 0 }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child { text-align: left; font-weight: 500 } thead th { font-weight: 600 }
tbody th { white-space: normal } summary { cursor: pointer; color: var(--faint) }
"""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
