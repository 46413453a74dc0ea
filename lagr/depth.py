"""Accuracy against the depth of nesting, past what training shows: `lagr analyse RUN … --depth 12`.

It is for runs on *mini*, which can write sentences of any depth. A result is plain JSON,

    sentences, seed     how many there are of every depth, and which
    curves              one for every run: run (its name), seed (of its training), and clauses and pps, each with
                        a row for every depth: n, right, exact, low, high, nodes, edges, errors, tokens (the mean)

and `python -m lagr.depth results/beyond/depth.json docs/images/depth.svg` draws it again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lagr.datasets import mini
from lagr.draw import PALETTE
from lagr.errors import ConfigError, DataError, LagrError
from lagr.plots import FAINT, GRID, picture

if TYPE_CHECKING:
    from lagr.parser import AnyParser

Curve = dict[str, Any]
SEED = 0  # of the sentences
DEEPEST = 100  # that can be asked for: sentences of hundreds of words


def check(deepest: int, sentences: int) -> None:
    if not 1 <= deepest <= DEEPEST:
        raise ConfigError(f"--depth {deepest}: give the deepest nesting that is measured, from 1 to {DEEPEST}")
    if sentences < 1:
        raise ConfigError(f"--sentences {sentences}: at least one sentence of every depth is needed")


def measure(
    parser: AnyParser,
    run: Path,
    deepest: int,
    sentences: int = 200,
    seed: int = SEED,
    progress: Callable[[int], None] = lambda done: None,
) -> Curve:
    """The curve of a run's parser. No sentence is one of its training data. progress: told how many are parsed."""
    from lagr.evaluate import evaluate_parser
    from lagr.supervision import more_examples, training_examples

    data = parser.config.data
    if data.name != "mini":
        raise DataError(
            f"{run} was trained on {data.name}; --depth is for runs on mini, which can write deeper sentences"
        )
    given = training_examples(parser.config, mini.source(data.size, data.seed))
    trained_on = {example.tokens for example in (*given, *more_examples(parser.config, given))}
    folder = run.resolve()
    name = folder.parent.name if folder.name.startswith("seed-") else folder.name
    curve: Curve = {"run": name, "seed": parser.config.train.seed}
    done = 0
    for kind in mini.NESTED:
        curve[kind] = []
        for depth in range(1, deepest + 1):
            examples = mini.nested(kind, depth, sentences, seed, trained_on)
            found = evaluate_parser(parser, examples, f"{kind} {depth}", lambda n, before=done: progress(before + n))  # type: ignore[misc]
            score, (low, high) = found.score, found.score.interval
            row: dict[str, Any] = {"depth": depth, "n": score.n, "right": score.right, "exact": score.exact}
            row |= {"low": low, "high": high, "nodes": found.nodes.exact, "edges": found.edges.exact}
            row["errors"] = {error: n for error, n in found.kinds.items() if n}
            row["tokens"] = sum(len(example.tokens) for example in examples) / sentences
            curve[kind].append(row)
            done += sentences
    return curve


def table(curves: Iterable[Curve]) -> str:
    """For every run: the depth, and the accuracies with their intervals."""
    lines = []
    for curve in curves:
        lines += ["", f"{curve['run']}, seed {curve['seed']}: % exact"]
        lines += ["depth  " + "".join(f"{what:<31}" for what in mini.NESTED.values()).rstrip()]
        for rows in zip(*(curve[kind] for kind in mini.NESTED), strict=True):
            cells = (f"{row['exact']:6.2f}  [{row['low']:.2f}, {row['high']:.2f}]" for row in rows)
            lines += [f"{rows[0]['depth']:5}  " + "".join(f"{cell:<31}" for cell in cells).rstrip()]
    return "\n".join(lines[1:])


def svg(curves: list[Curve]) -> str:
    """A panel for clauses and one for prepositional phrases; a colour a run, whose seeds have a line each."""
    seeds: dict[str, int] = {}
    for curve in curves:
        seeds[curve["run"]] = seeds.get(curve["run"], 0) + 1
    names = list(seeds)

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, len(mini.NESTED), sharey=True)
        for panel, (kind, what) in zip(panels, mini.NESTED.items(), strict=True):
            for curve in curves:
                colour = PALETTE[names.index(curve["run"]) % len(PALETTE)][0]
                depths, exact, low, high = (
                    [row[key] for row in curve[kind]] for key in ("depth", "exact", "low", "high")
                )
                panel.fill_between(depths, low, high, color=colour, alpha=0.12, linewidth=0)
                panel.plot(depths, exact, "o-", color=colour, markersize=3.5, linewidth=1.4)
            deepest = max(row["depth"] for curve in curves for row in curve[kind])
            for depth, until in ((mini.TRAINING_DEPTH, "training"), (mini.DEEPEST, "gen")):
                if depth < deepest:
                    panel.axvline(depth + 0.5, color=FAINT[0], linewidth=1, linestyle=":")
                    panel.text(depth + 0.4, 106, until, ha="right", fontsize=8, color=FAINT[0])
            panel.set_title(f"{what}\n")
            panel.set_xlabel("depth")
            panel.set_xlim(0.5, deepest + 0.5)
            panel.set_ylim(-3, 103)
            panel.xaxis.get_major_locator().set_params(integer=True)
            panel.grid(True, linewidth=0.8)
            panel.set_axisbelow(True)
            panel.set_facecolor("none")
        panels[0].set_ylabel("exact match, %, with 95 % intervals")
        for number, name in enumerate(names):
            label = f"{name}, {seeds[name]} seeds" if seeds[name] > 1 else name
            panels[0].plot([], [], "o-", color=PALETTE[number % len(PALETTE)][0], label=label, markersize=4)
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)

    return picture(paint, 9.6, 4.2, [*PALETTE, GRID])


def read(path: Path) -> list[Curve]:
    try:
        curves: list[Curve] = json.loads(path.read_text(encoding="utf-8"))["curves"]
        if curves and all(curve[kind] for curve in curves for kind in mini.NESTED):
            return curves
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (ValueError, KeyError, TypeError):
        pass
    raise DataError(f"{path} is not what `lagr analyse RUN --depth 12 --json FILE` writes")


def main(arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise ConfigError("give the JSON of `lagr analyse RUN --depth 12 --json FILE`, and a file for the picture")
    source, out = map(Path, arguments)
    out.write_text(svg(read(source)), encoding="utf-8")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LagrError as error:
        sys.exit(f"lagr.depth: {error}")
