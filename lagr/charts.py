"""Charts of a run, narrow enough for a phone: reliability, learning curves, accuracy by category, seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lagr.draw import PALETTE
from lagr.evaluate import Score
from lagr.plots import FAINT, INK, picture

if TYPE_CHECKING:
    from lagr.calibrate import Check, Checks
    from lagr.confidence import Reliability

BEFORE, AFTER = FAINT, PALETTE[0]
PARTS = {"nodes": "nodes", "edges": "edges", "whole": "whole graphs"}
WIDTH = 4.6  # inches: what a phone shows without making the text too small


def reliability(checks: Checks) -> str:
    """A row for every split: of nodes, edges and whole graphs, how many of those given a probability are right."""
    parts = [part for part in PARTS if any(len(getattr(after, part).right) for _, after in checks.values())]

    def paint(figure: Any) -> None:
        panels = figure.subplots(len(checks), len(parts), sharex=True, sharey=True, squeeze=False)
        for row, (split, both) in enumerate(checks.items()):
            for column, part in enumerate(parts):
                panel = panels[row, column]
                _diagonal(panel)
                for check, colour, label in zip(both, (BEFORE, AFTER), ("as trained", "calibrated"), strict=True):
                    _bins(panel, getattr(check, part), colour[0], label)
                if not row:
                    panel.set_title(PARTS[part])
                if not column:
                    panel.set_ylabel(f"right, on {split}")
        for panel in panels[-1]:
            panel.set_xlabel("probability given")
        panels[0, 0].legend(frameon=False, fontsize=7, loc="upper left")

    return picture(paint, 0.8 + 2.3 * len(parts), 0.7 + 2.1 * len(checks), [BEFORE, AFTER])


def reliability_of_wholes(both: tuple[Check, Check]) -> str:
    """Whole graphs alone, with how many there are of each probability below."""

    def paint(figure: Any) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        _diagonal(above)
        for check, colour, label in zip(both, (BEFORE, AFTER), ("as trained", "calibrated"), strict=True):
            _bins(above, check.whole, colour[0], label)
        above.set_ylabel("share that is right")
        above.legend(frameon=False, fontsize=8, loc="upper left")
        below.hist(both[1].whole.probabilities, bins=20, range=(0, 1), color=AFTER[0])
        below.set_yscale("symlog", linthresh=10)
        below.set_ylabel("sentences")
        below.set_xlabel("probability given to the answer")
        below.set_facecolor("none")

    return picture(paint, WIDTH, 4.4, [BEFORE, AFTER])


def _diagonal(panel: Any) -> None:
    panel.plot([0, 1], [0, 1], color=FAINT[0], linewidth=0.8, linestyle=":")
    panel.set_xlim(-0.02, 1.02)
    panel.set_ylim(-0.02, 1.02)
    panel.grid(True, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.set_facecolor("none")


def _bins(panel: Any, found: Reliability, colour: str, label: str) -> None:
    """A dot for every tenth that has any, with the 95 % interval of its accuracy; large dots stand for many."""
    for number, (mean, n, right) in enumerate(found.bins()):
        low, high = (bound / 100 for bound in Score(n, right).interval)
        share = n / len(found.right)
        panel.plot([mean, mean], [low, high], color=colour, linewidth=1, alpha=0.6)
        size = 3 + 5 * share**0.5
        panel.plot(mean, right / n, "o", color=colour, markersize=size, label=label if not number else None)


def learning_curves(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Above the loss, below the accuracy on dev, a colour a run. runs: name → lines of metrics.jsonl."""
    with_dev = any("exact" in line for lines in runs.values() for line in lines)

    def paint(figure: Any) -> None:
        panels = figure.subplots(2 if with_dev else 1, 1, sharex=True, squeeze=False)[:, 0]
        for number, (name, lines) in enumerate(runs.items()):
            colour = PALETTE[number % len(PALETTE)][0]
            last = max((line["start"] for line in lines), default=0)
            for start in range(last + 1):  # starts that were given up are faint
                its = [entry for entry in lines if entry["start"] == start]
                alpha, label = (1.0, name) if start == last else (0.35, None)
                losses = [(entry["step"], entry["loss"]) for entry in its if "loss" in entry]
                if losses:
                    panels[0].plot(*zip(*losses, strict=True), color=colour, linewidth=1.3, alpha=alpha, label=label)
                exact = [(entry["step"], entry["exact"]) for entry in its if entry.get("split") == "dev"]
                if exact:
                    line = {"color": colour, "linewidth": 1.3, "markersize": 3.5, "alpha": alpha}
                    panels[1].plot(*zip(*exact, strict=True), "o-", **line)
        panels[0].set_yscale("log")
        panels[0].set_ylabel("training loss")
        if with_dev:
            panels[1].set_ylabel("exact match on dev, %")
        panels[-1].set_xlabel("step")
        panels[-1].xaxis.set_major_locator(_few_ticks())
        for panel in panels:
            panel.grid(True, linewidth=0.6)
            panel.set_axisbelow(True)
            panel.set_facecolor("none")
        if 1 < len(runs) <= len(PALETTE):
            panels[0].legend(frameon=False, fontsize=8)

    return picture(paint, WIDTH, 4.6 if with_dev else 2.6, PALETTE)


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5, integer=True)


def accuracies(rows: dict[str, list[tuple[str, float, float, float]]]) -> str:
    """A line for every row, a dot for every run with its interval. rows: what it is → (run, exact, low, high)."""
    names = list(dict.fromkeys(name for found in rows.values() for name, *_ in found))

    def paint(figure: Any) -> None:
        panel = figure.subplots()
        for y, found in enumerate(reversed(rows.values())):
            for n, (name, exact, low, high) in enumerate(found):
                height = y + (0.3 - 0.6 * (n + 0.5) / len(found) if len(found) > 1 else 0)
                colour = PALETTE[names.index(name) % len(PALETTE)][0]
                panel.plot([low, high], [height, height], color=colour, linewidth=1.2, alpha=0.55)
                panel.plot(exact, height, "o", color=colour, markersize=4)
        panel.set_yticks(range(len(rows)), [_short(name) for name in reversed(rows)])
        panel.set_ylim(-0.6, len(rows) - 0.4)
        panel.set_xlim(-2, 102)
        panel.set_xlabel("exact match, %, with 95 % intervals")
        panel.grid(True, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.set_facecolor("none")
        panel.tick_params(axis="y", length=0, labelsize=8)
        if 1 < len(names) <= len(PALETTE):
            for n, name in enumerate(names):
                panel.plot([], [], "o", color=PALETTE[n][0], label=name, markersize=4)
            figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=8)

    each = 0.26 if len(names) < 4 else 0.07 * len(names)
    return picture(paint, WIDTH, 1 + each * len(rows), [*PALETTE, INK])


def _short(name: str) -> str:
    return name if len(name) <= 30 else name[:29] + "…"
