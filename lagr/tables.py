"""The paper's tables beside ours, as Markdown and as plots, made from results/ alone:

    python -m lagr.tables results docs/reproduction.md docs/images     (`make tables`)

In the document, what stands between `<!-- NAME -->` and `<!-- /NAME -->` is written anew; the rest is left as it is.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lagr import analyse, results
from lagr.draw import PALETTE
from lagr.errors import ConfigError, LagrError
from lagr.plots import FAINT, GRID, INK, picture, write_picture
from lagr.rows import CLAIMS, COGS, ROWS, TABLES, Figure, Row, Table

NOT_RUN = "not run yet"
OURS, THEIRS = PALETTE[0], PALETTE[1]
NEAR = 10  # points on each side of the paper's mean that a plot shows enlarged


def markdown(table: Table, folder: Path, rows: tuple[Row, ...] = ()) -> str:
    """The table, or some of its rows, with notes on what is not as in the paper."""
    rows = rows or table.rows
    found = {row.name: result for row in rows if (result := results.read(folder, row))}
    split = table.split
    measures = {
        key: title
        for key, title in table.measures.items()
        if any(results.values(r, split, key) for r in found.values())
    }
    others = [name for name in ("train", "test") if name != split and any(name in row.paper for row in rows)]
    head = ["row", f"{split}, paper", f"{split}, ours", "difference", "seeds", *measures.values()]
    head += [f"{name}, {whose}" for name in others for whose in ("paper", "ours")] + ["steps"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        result, paper = found.get(row.name), row.paper.get(split)
        cells = [f"{row.what} (`{row.name}`)", paper.text(table.digits) if paper else "–"]
        if result is None:
            cells += [NOT_RUN, "", "", *("" for _ in measures)]
        else:
            ours = results.figure(results.values(result, split))
            assert ours
            cells += [f"**{ours.text(table.digits)}**", difference(ours, paper) if paper else "–", _seeds(result)]
            cells += [_text(result, split, key, table.digits) for key in measures]
        for name in others:
            cells.append(row.paper[name].text(table.digits) if name in row.paper else "–")
            cells.append(_text(result, name, "exact", table.digits) if result else "")
        lines.append([*cells, _steps(result) if result else ""])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = [_note(row, found[row.name], table) for row in rows if row.name in found]
    return "\n\n".join([text, *filter(None, notes)])


def difference(ours: Figure, paper: Figure) -> str:
    """Between two means: in the paper's standard deviations, or in points where it has none."""
    points = ours.mean - paper.mean
    return f"{points / paper.deviation:+.1f} sd" if paper.deviation else f"{points:+.1f} points"


def claims(folder: Path) -> str:
    """The rows of CLAIMS: is our mean within one of the paper's standard deviations of its mean?"""
    head = ["row", "the paper", "ours", "label-blind", "reached", "seeds × steps"]
    lines = [head, ["---"] * len(head)]
    for name, unlike in CLAIMS.items():
        row, table = ROWS[name]
        paper, result = row.paper[table.split], results.read(folder, row)
        ours = results.figure(results.values(result, table.split)) if result else None
        cells = [f"{table.title}: {row.what}" + (f" (*{unlike}*)" if unlike else ""), paper.text()]
        if result and ours:
            blind = results.figure(results.values(result, table.split, "blind")) if "blind" in table.measures else None
            cells += [f"**{ours.text()}**", blind.text() if blind else "–", reached(ours, blind, paper)]
            cells.append(f"{_seeds(result)} × {_steps(result)}")
        else:
            cells += [NOT_RUN, "", "", ""]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def reached(ours: Figure, blind: Figure | None, paper: Figure) -> str:
    """Whether a mean is within one deviation of the paper's, or above that; where it gives none, whether it is as high.
    The paper's figures for CFQ are blind."""
    spread = paper.deviation or 0
    if paper.deviation is not None and ours.mean > paper.mean + spread:
        return f"above, {difference(ours, paper)}"
    if ours.mean >= paper.mean - spread:
        return "yes"
    return "yes, label-blind" if blind and blind.mean >= paper.mean - spread else f"**no**, {difference(ours, paper)}"


def _text(result: results.Result, split: str, measure: str, digits: int) -> str:
    found = results.figure(results.values(result, split, measure))
    return found.text(digits) if found else "–"


def _seeds(result: results.Result) -> str:
    failed = sum(run["failed"] for run in result["runs"])
    return f"{len(result['runs'])}" + (f" ({failed} failed)" if failed else "")


def _steps(result: results.Result) -> str:
    steps, paper = results.steps(result), result["paper_steps"]
    return f"{steps:,}" if steps == paper else f"{steps:,} of {paper:,}"


def _note(row: Row, result: results.Result, table: Table) -> str:
    """What a reader has to know of a result: settings of its own, restarts, seeds that diverged or fit too little."""
    unlike, flags = results.settings_of_its_own(result, row)
    notes = [", ".join(f"`{setting}`" for setting in unlike)]
    if flags:
        notes.append(f"run with `{' '.join(flags)}`")
    runs = result["runs"]
    restarts = sum(len(run["starts"]) - 1 for run in runs)
    if restarts:
        notes.append(f"{restarts} restart{'s' if restarts > 1 else ''} of runs that did not fit their training data")
    bound = table.left_out_below if results.settings_of(result).infers_alignments else 0.0
    steady = [run for run in runs if "diverged" not in run]
    fit = [run for run in steady if run["starts"][-1]["train_exact"] >= bound]
    if diverged := len(runs) - len(steady):
        notes.append(f"{diverged} of {len(runs)} seeds diverged")
    if unfit := len(steady) - len(fit):
        what = f"had less than {bound:g} % of their training data at the end, the paper's bound"
        notes.append(f"{unfit} of {len(runs)} seeds {what}")
    without = results.figure(results.values({**result, "runs": fit}, table.split))
    if without and len(fit) < len(runs):
        notes.append(f"without {'it' if len(fit) == len(runs) - 1 else 'them'}: {without.text()}")
    notes = [note for note in notes if note]
    return f"`{row.name}`: {'; '.join(notes)}." if notes else ""


def plot(table: Table, folder: Path) -> str:
    """Every seed a dot, the paper's mean and deviation a band; on the right enlarged, around the paper's mean."""

    def paint(figure: Any) -> None:
        whole, near = figure.subplots(1, 2, sharey=True, width_ratios=(5, 3))
        for y, row in enumerate(reversed(table.rows)):
            paper, seeds = row.paper.get(table.split), _values(folder, row, table.split)
            _draw(whole, y, seeds, paper, 0.0)
            if paper:
                _draw(near, y, seeds, paper, paper.mean)
                for side, marker in ((-1, "<"), (1, ">")):  # a seed beyond the enlarged part, and where
                    if any(side * (seed - paper.mean) > NEAR for seed in seeds):
                        near.plot(side * NEAR, y, marker, color=OURS[0], markersize=4, clip_on=False)
        whole.set_yticks(range(len(table.rows)), [row.what for row in reversed(table.rows)])
        whole.set_xlim(0, 100)
        near.set_xlim(-NEAR, NEAR)
        whole.set_xlabel(f"exact match on {table.split}, %")
        near.set_xlabel("from the paper, points")
        for panel in (whole, near):
            panel.grid(True, axis="x", linewidth=0.8)
            panel.set_axisbelow(True)
            panel.set_facecolor("none")
            panel.tick_params(axis="y", length=0)
        keys = (("o", OURS, "a seed of ours"), ("|", INK, "our mean"), ("s", THEIRS, "the paper: mean ± deviation"))
        for marker, colour, label in keys:
            whole.plot([], [], marker, color=colour[0], label=label, markersize=5, alpha=0.8)
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)

    drawn = picture(paint, 9.6, 1.2 + 0.3 * len(table.rows), [OURS, THEIRS, GRID, FAINT])
    shown = [(row.what, row.paper.get(table.split), _values(folder, row, table.split)) for row in table.rows]
    return stamped(drawn, shown)


def _draw(panel: Any, y: int, seeds: list[float], paper: Figure | None, centre: float) -> None:
    if paper:
        spread, mean = paper.deviation or 0, paper.mean - centre
        panel.barh(y, 2 * spread, 0.62, mean - spread, color=THEIRS[0], alpha=0.28, linewidth=0)
        panel.plot([mean] * 2, [y - 0.31, y + 0.31], color=THEIRS[0], linewidth=1.6)
    heights = [y + 0.22 * (-1) ** n * (n % 3) / 2 for n in range(len(seeds))]  # so that equal dots show
    dots = [seed - centre for seed in seeds]
    panel.plot(dots, heights, "o", color=OURS[0], markersize=3.6, alpha=0.8, markeredgewidth=0)
    if ours := results.figure(dots):
        panel.plot([ours.mean] * 2, [y - 0.4, y + 0.4], color=INK[0], linewidth=1.1)


def _values(folder: Path, row: Row, split: str) -> list[float]:
    result = results.read(folder, row)
    return results.values(result, split) if result else []


def stamped(drawn: str, shown: Any) -> str:
    """The picture with a checksum of what it shows: other versions of matplotlib draw the same otherwise."""
    return f"{drawn}<!-- shows {hashlib.sha256(repr(shown).encode()).hexdigest()[:16]} -->\n"


def write(table: Table, folder: Path) -> None:
    """The table and its plot, beside the results they are made from."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{table.name}.md").write_text(markdown(table, folder) + "\n", encoding="utf-8")
    write_picture(folder / f"{table.name}.svg", lambda: plot(table, folder))


def _section(table: Table) -> Callable[[Path, Path], str]:
    def section(folder: Path, images: Path) -> str:
        if not any(results.read(folder, row) for row in table.rows):  # a picture of nothing
            return markdown(table, folder)
        (images / f"{table.name}.svg").write_text(plot(table, folder), encoding="utf-8")
        picture = f"![{table.title}: every seed, beside the paper]({images.name}/{table.name}.svg)"
        return f"{picture}\n\n{markdown(table, folder)}"

    return section


def _claims(folder: Path, images: Path) -> str:
    return claims(folder)


def _categories(folder: Path, images: Path) -> str:
    rows = analyse.learned(analyse.found(folder, COGS.rows))
    drawn = stamped(analyse.category_plot(rows), analyse.by_category(rows))
    analyse.write({"cogs-categories": drawn}, images)
    picture = f"![COGS: accuracy by category, every seed]({images.name}/cogs-categories.svg)"
    return f"{picture}\n\n{analyse.category_table(rows)}"


def _errors(folder: Path, images: Path) -> str:
    return analyse.error_table(analyse.learned(analyse.found(folder, COGS.rows)))


def _convergence(folder: Path, images: Path) -> str:
    return analyse.convergence_table(analyse.found(folder, (row for row, _ in ROWS.values())))


SECTIONS: dict[str, Callable[[Path, Path], str]] = {
    "claims": _claims,
    **{name: _section(table) for name, table in TABLES.items()},
    "cogs-categories": _categories,
    "cogs-errors": _errors,
    "convergence": _convergence,
}


def fill(text: str, folder: Path, images: Path) -> str:
    """The document with every section made anew; its pictures are written into `images`."""
    for name, section in SECTIONS.items():
        before, start, rest = text.partition(f"<!-- {name} -->")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        if start and end:
            text = f"{before}{start}\n\n{section(folder, images)}\n\n{end}{after}"
    return text


def main(arguments: list[str]) -> None:
    if len(arguments) != 3:
        raise ConfigError("give the folder of results, the document to fill in, and the folder for pictures")
    folder, document, images = map(Path, arguments)
    if not folder.is_dir() or not document.is_file():
        raise ConfigError(f"there is no {document if folder.is_dir() else folder}")
    images.mkdir(parents=True, exist_ok=True)
    document.write_text(fill(document.read_text(encoding="utf-8"), folder, images), encoding="utf-8")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LagrError as error:
        sys.exit(f"lagr.tables: {error}")
