"""What lies behind the figures, as in the paper's appendix: accuracy by category, kinds of errors, convergence.

These come from results/ (see lagr.results), as Markdown and pictures. `pictures_of` draws what a trained parser makes
of sentences: for two graph layers, the paper's tables of learned alignments as pictures. `placement_table` counts on
which words it places each label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lagr import draw, results
from lagr.draw import PALETTE
from lagr.errors import DataError
from lagr.graph import Graph
from lagr.plots import FAINT, GRID, picture, write_picture
from lagr.rows import ROWS, Figure, Row

if TYPE_CHECKING:
    from lagr.datasets import Example
    from lagr.parser import Parser

Found = dict[str, results.Result]  # the rows that were run → what came out
FITS = 98.0  # % of the training data, where a row has no threshold of its own; that of the paper's appendix
LONGEST = 14  # tokens of a sentence that is drawn
PLACED, WORDS, LONGEST_LABEL = 2_000, 5, 44  # sentences, words and characters of a table of placements


def found(folder: Path, rows: Iterable[Row]) -> Found:
    return {row.name: result for row in rows if (result := results.read(folder, row))}


def learned(rows: Found) -> Found:
    """Those with a seed that did not fail, if there are any: of the others next to all is wrong."""
    some = {name: result for name, result in rows.items() if not all(run["failed"] for run in result["runs"])}
    return some or rows


# By category.


def by_category(rows: Found) -> dict[str, dict[str, list[float]]]:
    """Category → row → the accuracy of every seed, on the split that the row's table is about."""
    table: dict[str, dict[str, list[float]]] = {}
    for name, result in rows.items():
        for run in result["runs"]:
            evaluation = run["evaluation"].get(ROWS[name][1].split, {})
            for category, exact in evaluation.get("by_category", {}).items():
                table.setdefault(category, {}).setdefault(name, []).append(exact)
    return dict(sorted(table.items()))


def category_table(rows: Found) -> str:
    table = by_category(rows)
    names = [name for name in rows if any(name in seeds for seeds in table.values())]
    lines = [["category", *(ROWS[name][0].what for name in names)]]
    for category, seeds in table.items():
        lines.append([category, *(_text(results.figure(seeds.get(name, []))) for name in names)])
    return _markdown(lines)


def category_plot(rows: Found) -> str:
    """Every seed a dot, a colour a row; more rows than colours have other shapes."""
    table = by_category(rows)
    names = [name for name in rows if any(name in seeds for seeds in table.values())]

    def looks(row: int) -> dict[str, Any]:
        again, colour = divmod(row, len(PALETTE))
        return {"linestyle": "none", "marker": "o^sD"[again % 4], "color": PALETTE[colour][0]}

    def paint(figure: Any) -> None:
        panel = figure.subplots()
        for y, seeds in enumerate(reversed(table.values())):
            for n, name in enumerate(names):
                height = y + 0.34 - 0.68 * (n + 0.5) / len(names)
                exact = seeds.get(name, [])
                panel.plot(exact, [height] * len(exact), **looks(n), markersize=4, alpha=0.55, markeredgewidth=0)
        for n, name in enumerate(names):
            panel.plot([], [], **looks(n), label=ROWS[name][0].what, markersize=5)
        panel.set_yticks(range(len(table)), list(reversed(table)))
        panel.set_xlim(-2, 102)
        panel.set_xlabel("exact match, %")
        panel.grid(True, linewidth=0.8)
        panel.set_axisbelow(True)
        panel.set_facecolor("none")
        panel.tick_params(axis="y", length=0)
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)

    return picture(paint, 9.6, 1 + 0.25 * len(table), [*PALETTE, GRID, FAINT])


# Errors.


def error_table(rows: Found) -> str:
    """Of the sentences that are wrong, how many have each kind of error; a sentence may have several."""
    from lagr.evaluate import KINDS

    lines = [["what is wrong", *(ROWS[name][0].what for name in rows)]]
    for kind, meaning in KINDS.items():
        shares = [_text(results.figure(_shares(result, ROWS[name][1].split, kind))) for name, result in rows.items()]
        if any(share != "–" for share in shares):
            lines.append([meaning, *shares])
    return _markdown(lines)


def _shares(result: results.Result, split: str, kind: str) -> list[float]:
    shares = []
    for run in result["runs"]:
        evaluation = run["evaluation"].get(split, {})
        wrong = round(evaluation.get("n", 0) * (1 - evaluation.get("exact", 100) / 100))
        if wrong and evaluation.get("errors"):
            shares.append(100 * evaluation["errors"].get(kind, 0) / wrong)
    return shares if any(shares) else []


def gold_and_predicted(tokens: Sequence[str], graphs: Sequence[Graph], graph_layers: int) -> str:
    """The graph that is right above the one that was predicted, as one picture."""
    titles = ("gold", "predicted")
    colours = draw.colours_of(edge.label for graph in graphs for edge in graph.edges)
    return draw.stacked(
        [
            draw.svg(tokens, graph, graph_layers=graph_layers, title=title, colours=colours)
            for graph, title in zip(graphs, titles, strict=True)
        ]
    )


# Convergence of weak supervision.


def convergence_table(rows: Found) -> str:
    """How many starts of weakly supervised runs fit their training data, restarts counted; empty: there are none."""
    lines = [
        ["row", "K", "σ", "candidate K + 1", "starts", "fit", "share", "threshold", "training accuracy of each start"]
    ]
    for name, result in rows.items():
        settings = results.settings_of(result)
        align, threshold = settings.align, settings.train.restart_below or FITS
        stands_elsewhere = ROWS[name][0].outcome_of in rows
        if stands_elsewhere or not settings.infers_alignments:
            continue
        starts = [start["train_exact"] for run in result["runs"] for start in run["starts"]]
        fit = sum(exact >= threshold for exact in starts)
        how = [str(align.candidates), f"{align.noise:g}", "yes" if align.remember else "no"]
        share = f"{100 * fit / len(starts):.0f} %"
        each = ", ".join(f"{exact:.1f}" for exact in starts)
        lines.append(
            [f"{ROWS[name][0].what} (`{name}`)", *how, str(len(starts)), str(fit), share, f"{threshold:g} %", each]
        )
    return _markdown(lines) if len(lines) > 1 else ""


# Pictures of what a parser makes of sentences.


def pictures_of(parser: Parser, examples: Sequence[Example], count: int = 3) -> dict[str, str]:
    """Name → picture: some sentences that are parsed right, as parsed, and some that are not, under their gold graph.

    Gold graphs are placed as the model finds likeliest: its learned alignment. Those with labels that it does not know
    can't be, and are not drawn.
    """
    short = [example for example in examples if len(example.tokens) <= LONGEST]
    if not short:
        raise DataError(f"no sentence has at most {LONGEST} tokens: the pictures would be too wide to read")
    pictures: dict[str, str] = {}
    layers = parser.model.graph_layers
    seen = {"right": 0, "wrong": 0}
    for example, parse in zip(short, parser.parse_tokens([example.tokens for example in short]), strict=True):
        right = parse.form == example.form if example.form is not None else parse.graph == example.graph
        assert parse.graph is not None  # it may be missing where forms are written, not graphs labelled
        kind = "right" if right else "wrong"
        tangle = len(parse.graph.edges) > 4 * len(parse.tokens)  # as of an untrained model
        if seen[kind] == count or tangle or not (right or parser.can_align(example)):
            continue
        seen[kind] += 1
        if right:
            pictures[f"{kind}-{seen[kind]}"] = parse.draw("svg")
        else:
            gold = parser.align([example])[0].graph
            pictures[f"{kind}-{seen[kind]}"] = gold_and_predicted(parse.tokens, [gold, parse.graph], layers)
    return pictures


def placement_table(parser: Parser, examples: Sequence[Example], most: int = PLACED) -> str:
    """On which words a model places the nodes of each label, when it is given the graphs: its learned alignments.

    Nodes that copy their word can sit nowhere else, and are left out.
    """
    layers = parser.model.graph_layers
    on: dict[str, Counter[str]] = {}
    known = [example for example in examples if parser.can_align(example)]
    for example in parser.align(known[:: max(1, len(known) // most)][:most]):
        for label, slot in zip(example.graph.nodes, example.graph.slots or (), strict=True):
            word = example.tokens[slot // layers]
            if not parser.vocab.is_copied(label):
                on.setdefault(label, Counter())[word] += 1
    lines = [["label", "nodes", "on the word"]]
    for label, words in sorted(on.items(), key=lambda item: (-item[1].total(), item[0])):
        shares = (f"{word} {100 * times / words.total():.0f} %" for word, times in words.most_common(WORDS))
        rest = ", …" if len(words) > WORDS else ""
        lines.append([f"`{_short(label)}`", str(words.total()), ", ".join(shares) + rest])
    return _markdown(lines)


def _short(label: str) -> str:
    """The end of a long label, which says most of it, for a cell of a table."""
    short = label if len(label) <= LONGEST_LABEL else "…" + label[1 - LONGEST_LABEL :]
    return short.replace("|", "\\|")


def report(rows: Found, images: Path) -> str:
    """All of it, as Markdown; the pictures are written into `images`."""
    parts, shown = [], learned(rows)
    if left_out := ", ".join(sorted(rows.keys() - shown.keys())):
        parts.append(f"Not among categories and errors, as no seed fitted its training data: {left_out}.")
    if by_category(shown):
        parts += ["## By category", category_table(shown)]
        if write_picture(file := images / "categories.svg", lambda: category_plot(shown)):
            parts.append(f"Every seed: {file}")
    parts += ["## Errors", "Share of the wrong sentences, in per cent.", error_table(shown)]
    if convergence := convergence_table(rows):
        parts += ["## Convergence", convergence]
    return "\n\n".join(parts)


def write(pictures: dict[str, str], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawn in pictures.items():
        (folder / f"{name}.svg").write_text(drawn, encoding="utf-8")
    return [folder / f"{name}.svg" for name in pictures]


def _text(figure: Figure | None) -> str:
    return figure.text() if figure else "–"


def _markdown(lines: list[list[str]]) -> str:
    lines = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
