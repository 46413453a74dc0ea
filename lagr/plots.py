"""The style of plots, for light and dark pages, and pictures and tables of what `lagr bench scaling` measured:

    python -m lagr.plots results/bench/scaling-cpu.json docs/images     writes docs/images/scaling-cpu.svg

The table goes to stdout, as Markdown.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lagr.draw import PALETTE
from lagr.errors import ConfigError, DataError, LagrError, NoPlotsError

Row = dict[str, Any]
AXES = {"tokens": "N, tokens", "graph_layers": "L, graph layers", "candidates": "K, candidates", "seeds": "S, seeds"}
MEASURES = {"step_ms": ("ms a step", PALETTE[0]), "peak_mib": ("MiB at most", PALETTE[1])}
# What is drawn, on white and on black.
PAPER, INK, GRID, FAINT = ("#ffffff", "#14191f"), ("#1c2630", "#e8edf2"), ("#e3e8ec", "#2a333c"), ("#7d8b99", "#8494a3")


def read(path: Path) -> tuple[list[Row], str]:
    """The rows of a file that `lagr bench scaling --json` wrote, and the machine they are from."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        return report["results"]["scaling"], report["machine"]
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} is not what `lagr bench scaling --json` writes") from None


def table(rows: list[Row]) -> str:
    """All rows as a table in Markdown."""
    lines = ["| varied | value | batch | ms a step | MiB at most | MiB estimated |", "|---|---|---|---|---|---|"]
    for axis, title in AXES.items():
        for row in (row for row in rows if row["axis"] == axis):
            found = [row["step_ms"], row["peak_mib"], row["estimate_mib"]] if "step_ms" in row else [row["problem"]] * 3
            cells = [title, row["value"], row["batch"], *(f"{x:.3g}" if isinstance(x, float) else x for x in found)]
            lines.append(f"| {' | '.join('–' if cell is None else str(cell) for cell in cells)} |")
    return "\n".join(lines)


def picture(paint: Callable[[Any], None], width: float, height: float, colours: Sequence[tuple[str, str]]) -> str:
    """What `paint` puts on a figure of that many inches, as SVG. colours: those it uses, on white and on black."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise NoPlotsError("pictures of numbers need matplotlib; pip install 'lagr[plots]'") from None
    style: Any = {
        "svg.hashsalt": "lagr", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
        "axes.edgecolor": FAINT[0], "axes.labelcolor": INK[0], "text.color": INK[0], "xtick.color": INK[0],
        "ytick.color": INK[0], "grid.color": GRID[0], "axes.titlesize": 10,
        "xtick.minor.size": 0, "ytick.minor.size": 0,
    }  # fmt: skip
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor=PAPER[0])
        paint(figure)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return _for_dark_pages_too(drawn.getvalue(), colours)


def write_picture(file: Path, draw: Callable[[], str]) -> bool:
    """Whether it could be drawn. Where the extra is missing that is said, and the figures are there all the same."""
    try:
        drawn = draw()
    except NoPlotsError as error:
        print(f"lagr: {file} was not drawn: {error}", file=sys.stderr)
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(drawn, encoding="utf-8")
    return True


def svg(rows: list[Row], machine: str) -> str:
    """Time above, memory below, a column for each of N, L, K and S; for light and dark pages."""

    def paint(figure: Any) -> None:
        from matplotlib.ticker import LogLocator

        panels = figure.subplots(len(MEASURES), len(AXES), sharey="row", sharex="col", squeeze=False)
        for column, (axis, title) in enumerate(AXES.items()):
            its_rows = sorted((r for r in rows if r["axis"] == axis and "step_ms" in r), key=lambda r: r["value"])
            for line, (measure, (unit, colour)) in enumerate(MEASURES.items()):
                panel = panels[line, column]
                _draw(panel, its_rows, measure, colour[0])
                panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                if not column:
                    panel.set_ylabel(unit)
            batches = ", ".join(sorted({f"batch {row['batch']}" for row in its_rows}))
            panels[0, column].set_title(f"{title}\n", fontweight="bold")
            panels[0, column].text(0.5, 1.03, batches, transform=panels[0, column].transAxes, ha="center", fontsize=8)
        panels[1, 0].legend(frameon=False, fontsize=8)
        figure.supxlabel(machine, fontsize=8)

    return picture(paint, 9.6, 4.8, [colour for _, colour in MEASURES.values()])


def _draw(panel: Any, rows: list[Row], measure: str, colour: str) -> None:
    values = [row["value"] for row in rows]
    if measure == "peak_mib":
        estimates = [row["estimate_mib"] for row in rows]
        panel.plot(values, estimates, color=FAINT[0], linestyle=":", linewidth=1.3, label="estimated before")
    found = [float("nan") if row[measure] is None else row[measure] for row in rows]
    panel.plot(values, found, color=colour, marker="o", markersize=4, linewidth=1.8, label="measured")
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    if values and max(values) > 4:
        panel.set_xscale("log")
    panel.set_xticks(values, [str(value) for value in values])
    panel.grid(True, linewidth=0.8)
    panel.set_facecolor("none")


def _for_dark_pages_too(drawn: str, colours: Sequence[tuple[str, str]]) -> str:
    """The colours of a dark page beside those in the picture, for viewers that know which one they show."""
    rules = "".join(
        f'[style*="{part}: {on_white}"] {{ {part}: {on_black} !important }}\n'
        for on_white, on_black in (PAPER, INK, GRID, FAINT, *colours)
        for part in ("fill", "stroke")
    )
    return drawn.replace("<defs>", f"<style>@media (prefers-color-scheme: dark) {{\n{rules}}}</style>\n <defs>", 1)


def main(arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise ConfigError("give the JSON of `lagr bench scaling` and a folder for the picture")
    source, folder = map(Path, arguments)
    rows, machine = read(source)
    picture = svg(rows, machine)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{source.stem}.svg").write_text(picture, encoding="utf-8")
    print(table(rows))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LagrError as error:
        sys.exit(f"lagr.plots: {error}")
