"""Pictures of a sentence, its slots and the arcs between its nodes: SVG, plain text, Graphviz.

Below is the sentence, above every token its column of slots (graph layer 0 lowest), above these the edges:

    >>> cake = Graph(("eat", "*", "cake"), ((0, "theme", 2), (1, "article", 2)), slots=(0, 1, 2))
    >>> print(text(["Eat", "the", "cake"], cake, width=40))
     ╭─────theme─────╮
     │   ╭─article─╮ │
     │   │         ▼ ▼
    eat  *         cake
    ┄┄┄ ┄┄┄        ┄┄┄┄
    Eat the        cake

`arrange` decides where everything lies, in whole units of the medium (pixels, or cells of a terminal); `svg`
and `text` only paint. An edge goes up from its source, along a *track* and down to its target; at both nodes
it has a *port* of its own. A node below another reaches out on both sides of it and has its ports there, so
that every wire is straight and meets no box.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple
from xml.sax.saxutils import escape

from lagr.errors import GraphError
from lagr.graph import Graph

LONGEST_LABEL = 24
MOST_EDGES = 1500  # beyond, nobody could read the picture, and it would take minutes
FAINTEST = 0.35  # the opacity of what is improbable
CERTAIN = 0.995  # from here on a percentage would read 100% and is left out
# On white, on black: told apart with any kind of colour vision, and of a contrast that is enough for text.
PALETTE = (
    *(("#0067a5", "#5db8f0"), ("#b34700", "#ff9a57"), ("#00735c", "#35cda5"), ("#99407a", "#ea9fd0")),
    *(("#7a6000", "#e6cb4f"), ("#5a4fb8", "#aea6ff"), ("#a3243b", "#ff8e9e"), ("#4d5a66", "#b5c1cc")),
)


class Rect(NamedTuple):
    """A rectangle with all its sides: one cell of a terminal has left == right and top == bottom."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def middle(self) -> int:
        return (self.left + self.right) // 2


@dataclass(frozen=True)
class Arc:
    """The way of an edge: up from `source` to the height `y`, across, and down to `target`."""

    source: tuple[int, int]
    target: tuple[int, int]
    y: int
    label: Rect


@dataclass(frozen=True)
class Layout:
    """Where everything lies: the column of every token, every slot, every edge as the graph lists them."""

    width: int
    height: int
    tokens: tuple[Rect, ...]
    slots: tuple[Rect, ...]
    arcs: tuple[Arc, ...]


class Faint(NamedTuple):
    """Nodes and edges, by number, that stand back so that the others stand out."""

    nodes: frozenset[int] = frozenset()
    edges: frozenset[int] = frozenset()


class Widths(NamedTuple):
    tokens: Sequence[int]
    nodes: Sequence[int]
    labels: Sequence[int]


@dataclass(frozen=True)
class Spacing:
    """The distances of a medium."""

    port: int  # from a port to the next
    margin: int  # from the outermost port of a box to its side
    clearance: int  # from a wire to the box it passes
    gutter: int  # from a column to the next
    label: int  # from the label of an edge to the nearest wire
    label_above: int  # from the top of a label to its track
    label_below: int  # from there to the bottom
    track: int  # from a track to the next
    fan: int  # from the lowest track to the boxes
    box: int  # the height of a box
    row: int  # from the top of a box to the top of the one below
    dot: int  # the width of an empty slot


Port = tuple[int, int]  # the number of an edge, and 0 for its source or 1 for its target
Extent = tuple[int, int]  # from left to right


def arrange(graph: Graph, graph_layers: int, widths: Widths, spacing: Spacing) -> Layout:
    """The layout in which no label, box or wire lies on another; wires cross wires, at right angles, no more.

    A label stands where no wire crosses its track. Where there is no such place, two neighbouring ports below
    it are moved apart; an edge asks for that at most once, so this ends.
    """
    apart: dict[Port, int] = {}
    places: list[int] = []
    while True:
        columns, boxes, ports = _columns(graph, graph_layers, widths, spacing, apart)
        ends = [(ports[number, 0], ports[number, 1]) for number in range(len(graph.edges))]
        tracks = _tracks([(min(pair), max(pair)) for pair in ends])
        places.clear()
        for number, (low, high) in enumerate(map(sorted, ends)):
            room = widths.labels[number] + 2 * spacing.label
            below = sorted((x, port) for port, x in ports.items() if low <= x <= high)
            walls = [x for x, (other, _) in below if other == number or tracks[other] > tracks[number]]
            free = [(a, b - room) for a, b in pairwise(walls) if b - a >= room]
            if free:
                starts = [max(a, min((low + high - room) // 2, b)) for a, b in free]
                places.append(min(starts, key=lambda x: abs(2 * x + room - low - high)) + spacing.label)
            else:
                _, port = max((after - before, port) for (before, _), (after, port) in pairwise(below))
                apart[port] = room
        if len(places) == len(ends):
            break

    highest = max(tracks, default=0)
    top = highest * spacing.track + spacing.fan if tracks else 0
    rows = [top + spacing.row * row for row in reversed(range(graph_layers))]
    slots = []
    for slot, (left, right) in enumerate(boxes):
        top = rows[slot % graph_layers]
        slots.append(Rect(left, top, right, top + spacing.box))
    arcs = []
    for number, edge in enumerate(graph.edges):
        source, target = (slots[(graph.slots or ())[node]].top for node in (edge.source, edge.target))
        left, y = places[number], (highest - tracks[number]) * spacing.track
        label = Rect(left, y - spacing.label_above, left + widths.labels[number], y + spacing.label_below)
        arcs.append(Arc((ends[number][0], source), (ends[number][1], target), y, label))
    top, width = rows[0] + spacing.row, max((right for _, right in columns), default=0)
    tokens = tuple(Rect(left, top, right, top + spacing.box) for left, right in columns)
    return Layout(width, top + spacing.box, tokens, tuple(slots), tuple(arcs))


def _columns(
    graph: Graph, graph_layers: int, widths: Widths, spacing: Spacing, apart: dict[Port, int]
) -> tuple[list[Extent], list[Extent], dict[Port, int]]:
    """The extent of every column, the extent of every slot's box, and the place of every port.

    `apart` says of some ports how far they must at least be from the port before them.
    """
    sides = _sides(graph, graph_layers)
    holds = {slot: node for node, slot in enumerate(graph.slots or ())}
    columns: list[Extent] = []
    boxes: list[Extent] = []
    placed: dict[Port, int] = {}
    last = None  # where the rightmost port so far is

    def gap(port: Port) -> int:
        return max(spacing.port, apart.get(port, 0))

    for token, token_width in enumerate(widths.tokens):
        ports: list[tuple[int, Port]] = []  # of this column, from left to right
        stack: list[Extent] = []  # its boxes, from the highest down
        left, right = spacing.clearance, -spacing.clearance  # with nothing above, the first port is at 0
        for slot in reversed(range(token * graph_layers, (token + 1) * graph_layers)):
            node = holds.get(slot)
            lefts, rights = sides[node] if node is not None else ([], [])
            if not stack:
                lefts, rights = [], lefts + rights
            x = left - spacing.clearance
            for port in reversed(lefts):
                x = min(x, ports[0][0] - gap(ports[0][1])) if ports else x
                ports.insert(0, (x, port))
            x = right + spacing.clearance
            for port in rights:
                x = max(x, ports[-1][0] + gap(port)) if ports else x
                ports.append((x, port))
            own = [x for x, port in ports if port in lefts or port in rights]
            middle = (left + right) // 2 if stack else (min(own, default=0) + max(own, default=0)) // 2
            width = spacing.dot if node is None else widths.nodes[node]
            start = min([middle - width // 2, *(x - spacing.margin for x in own)])
            end = max([middle - width // 2 + width, *(x + spacing.margin for x in own)])
            left, right = (min(left, start), max(right, end)) if stack else (start, end)
            stack.append((start, end))
        start = (left + right - token_width) // 2
        left, right = min(left, start), max(right, start + token_width)
        shift = (columns[-1][1] + spacing.gutter if columns else 0) - left
        if ports and last is not None:
            shift = max(shift, last + gap(ports[0][1]) - ports[0][0])
        columns.append((left + shift, right + shift))
        boxes += [(start + shift, end + shift) for start, end in reversed(stack)]
        placed |= {port: x + shift for x, port in ports}
        last = ports[-1][0] + shift if ports else last
    return columns, boxes, placed


def _sides(graph: Graph, graph_layers: int) -> list[tuple[list[Port], list[Port]]]:
    """For every node its ports from left to right: of the edges that go left, and of the others.

    What goes near is outside and what goes far inside, so that the arcs of a node nest instead of crossing.
    """
    places = [divmod(slot, graph_layers) for slot in graph.slots or ()]
    sides: list[tuple[list[tuple[int, int, int, Port]], ...]] = [([], []) for _ in places]
    for number, (source, _, target) in enumerate(graph.edges):
        for end, here, there in ((0, source, target), (1, target, source)):
            (column, layer), (own_column, own_layer) = places[there], places[here]
            goes_left, goes_up = column < own_column, column == own_column and layer > own_layer
            far = -max(places)[0] - 1 if goes_up else -column  # what goes up is innermost
            mirror = 1 if goes_left or goes_up else -1
            sides[here][0 if goes_left else 1].append((far, mirror * layer, mirror * number, (number, end)))
    return [([port for *_, port in sorted(left)], [port for *_, port in sorted(right)]) for left, right in sides]


def _tracks(spans: Sequence[Extent]) -> list[int]:
    """For every edge its track, 0 the lowest: above all edges it spans, and with no other where it runs."""
    tracks: dict[int, int] = {}
    for number in sorted(range(len(spans)), key=lambda n: (spans[n][1] - spans[n][0], n)):
        low, high = spans[number]
        track = max((tracks[n] + 1 for n in tracks if low < spans[n][0] and spans[n][1] < high), default=0)
        taken = {tracks[n] for n in tracks if spans[n][0] <= high and low <= spans[n][1]}
        while track in taken:
            track += 1
        tracks[number] = track
    return [tracks[number] for number in range(len(spans))]


def svg(
    tokens: Sequence[str],
    graph: Graph,
    *,
    graph_layers: int = 1,
    node_probabilities: Sequence[float] | None = None,
    edge_probabilities: Sequence[float] | None = None,
    title: str | None = None,
    faint: Faint | None = None,
    colours: Mapping[str, int] | None = None,
) -> str:
    """A self-contained picture for light and dark pages; tooltips have the full labels and probabilities.

    colours: of edge labels, where several pictures are to have the same (see colours_of).
    """
    nodes, edges = _captions(tokens, graph, graph_layers, node_probabilities, edge_probabilities)
    for captions, numbers in zip((nodes, edges), faint or (), strict=False):
        for number in numbers:
            captions[number] = captions[number]._replace(opacity=f' opacity="{FAINTEST}"')
    box = 38 if any(node.note for node in nodes) else 26
    below = 18 if any(edge.note for edge in edges) else 8
    widths = Widths(
        [_pixels(token, 14) + 8 for token in tokens],
        [max(_pixels(node.label, 13), _pixels(node.note, 10)) + 16 for node in nodes],
        [max(_pixels(edge.label, 11), _pixels(edge.note, 9)) for edge in edges],
    )
    spacing = Spacing(13, 11, 9, 16, 9, 8, below, 14 + below, 34, box, box + 20, 6)
    layout = arrange(graph, graph_layers, widths, spacing)
    body = []
    for token, rect in zip(tokens, layout.tokens, strict=True):
        top = layout.slots[graph_layers - 1].top
        body.append(_box(Rect(rect.left - 4, top - 8, rect.right + 4, rect.top + 26), "column"))
        body.append(_text(token, rect.middle, rect.top + 16, "token"))
    colours = colours or colours_of(edge.label for edge in graph.edges)
    # From the highest down: a wire interrupts those it crosses, and these come from above.
    for number in sorted(range(len(edges)), key=lambda number: layout.arcs[number].y):
        arc, edge, colour = layout.arcs[number], edges[number], colours[graph.edges[number].label]
        body.append(f'<g class="arc c{colour}" data-edge="{number}"{edge.opacity}>')
        body.append(f"<title>{_xml(edge.words)}</title>")
        body.append(_wire(arc) + _text(edge.label, arc.label.middle, arc.y + 4))
        body.append(_text(edge.note, arc.label.middle, arc.y + 15, "note") + "</g>")
    slots = graph.slots or ()
    for slot in sorted(set(range(len(layout.slots))) - set(slots)):
        rect = layout.slots[slot]
        middle = f'cx="{rect.middle}" cy="{(rect.top + rect.bottom) // 2}"'
        body.append(f'<circle class="empty" data-slot="{slot}" {middle} r="3"/>')
    for number, (node, slot) in enumerate(zip(nodes, slots, strict=True)):
        rect = layout.slots[slot]
        body.append(
            f'<g class="node" data-node="{number}"{node.opacity}><title>{_xml(node.words)}</title>{_box(rect, "box")}'
        )
        body.append(_text(node.label, rect.middle, rect.top + (18 if node.note else box // 2 + 5)))
        body.append(_text(node.note, rect.middle, rect.top + 31, "note") + "</g>")
    page = Rect(-24, -52 if title else -24, max(layout.width, _pixels(title or "", 15)) + 24, layout.height - box + 46)
    width, height = page.right - page.left, page.bottom - page.top
    lists = ["; ".join(item.words for item in items) or "none" for items in (nodes, edges)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lagr" role="img" width="{width}" height="{height}"',
        f'  viewBox="{page.left} {page.top} {width} {height}">',
        f"<title>{_xml(title or ' '.join(tokens) or 'An empty sentence')}</title>",
        f"<desc>{_xml(f'Nodes: {lists[0]}. Edges: {lists[1]}.')}</desc>",
        f"<style>{style()}</style>",
        _box(page, "paper"),
        _text(title or "", -4, -26, "heading"),
    )
    return "\n".join((*head, *body, "</svg>\n"))


def stacked(pictures: Sequence[str]) -> str:
    """Pictures that `svg` drew, as one, from top to bottom: what is right above what was predicted."""
    size = re.compile(r'<svg [^>]*?width="(\d+)" height="(\d+)"')
    sizes = [tuple(map(int, found.groups())) for found in map(size.match, pictures) if found]
    width, height = max(width for width, _ in sizes), sum(height for _, height in sizes)
    tops = accumulate((height for _, height in sizes), initial=0)
    parts = [picture.replace("<svg ", f'<svg y="{top}" ', 1) for picture, top in zip(pictures, tops, strict=False)]
    frame = f'class="lagr" role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = f"<style>{style()}</style>\n{_box(Rect(0, 0, width, height), 'paper')}"
    return f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>\n{head}\n{"".join(parts)}</svg>\n'


def text(
    tokens: Sequence[str],
    graph: Graph,
    *,
    graph_layers: int = 1,
    width: int | None = None,
    edge_probabilities: Sequence[float] | None = None,
    node_probabilities: Sequence[float] | None = None,
) -> str:
    """A picture in plain characters; where `width` (the terminal) is too small, a list of nodes and edges."""
    captions = _captions(tokens, graph, graph_layers, node_probabilities, edge_probabilities)
    nodes, labels = ([_cells(f"{item.label} {item.note}".rstrip()) for item in items] for items in captions)
    words = [_cells(token) for token in tokens]
    widths = Widths(*([len(cells) - 1 for cells in row] for row in (words, nodes, labels)))
    layout = arrange(graph, graph_layers, widths, Spacing(2, 0, 2, 2, 2, 0, 0, 1, 2, 0, 2, 0))
    slots = graph.slots or ()
    if layout.width >= (shutil.get_terminal_size().columns if width is None else width):
        names = [f"{slot} {node.label}" for slot, node in zip(slots, captions[0], strict=True)]
        lines = []
        for slot, node in sorted(zip(slots, nodes, strict=True)):
            lines.append(f"{slot} {''.join(words[slot // graph_layers])} → {''.join(node)}")
        for edge, label in zip(graph.edges, labels, strict=True):
            lines.append(f"{names[edge.source]} ─{''.join(label)}→ {names[edge.target]}")
        return "\n".join(lines)
    paper = [[" "] * (layout.width + 1) for _ in range(layout.height + 1)]

    def put(middle: int, y: int, cells: Sequence[str]) -> None:
        start = middle - (len(cells) - 1) // 2
        paper[y][start : start + len(cells)] = cells

    for arc in layout.arcs:
        left, right = sorted((arc.source[0], arc.target[0]))
        paper[arc.y][left : right + 1] = ["╭", *"─" * (right - left - 1), "╮"]
    for arc, label in zip(layout.arcs, labels, strict=True):
        for x, bottom in (arc.source, arc.target):
            for y in range(arc.y + 1, bottom):
                paper[y][x] = "┼" if paper[y][x] == "─" else "│"
        put(arc.label.middle, arc.y, label)
        paper[arc.target[1] - 1][arc.target[0]] = "▼"
    for slot, rect in enumerate(layout.slots):
        ends = [end for arc in layout.arcs for end in (arc.source, arc.target) if end[1] == rect.top]
        ports = [x for x, _ in ends if rect.left <= x <= rect.right]
        left, right = min([rect.middle, *ports]), max([rect.middle, *ports])
        bar = ["╰", *("┴" if x in ports else "─" for x in range(left + 1, right)), "╯"]
        paper[rect.top][left : right + 1] = bar[: right - left + 1]
        put(rect.middle, rect.top, nodes[slots.index(slot)] if slot in slots else "·")
    for rect, cells in zip(layout.tokens, words, strict=True):
        paper[rect.top - 1][rect.left : rect.right + 1] = "┄" * (rect.right - rect.left + 1)
        put(rect.middle, rect.top, cells)
    return "\n".join("".join(row).rstrip() for row in paper)


def dot(tokens: Sequence[str], graph: Graph, *, graph_layers: int = 1) -> str:
    """Graphviz source: the tokens in a row, every node tied to its token, the edges between the nodes."""
    slots = _slots(tokens, graph, graph_layers)

    def quoted(string: str) -> str:
        return '"' + _printable(string).replace("\\", "\\\\").replace('"', '\\"') + '"'

    def captions(label: str) -> str:
        return f"label={quoted(short_label(label))}, tooltip={quoted(label)}"

    lines = ["digraph {", "  node [fontname=Helvetica]; edge [fontname=Helvetica, fontsize=11];"]
    lines.append("  { rank=sink; node [shape=plaintext];")
    lines += [f"    t{n} [label={quoted(token)}];" for n, token in enumerate(tokens)]
    lines += [f"    t{n} -> t{n + 1} [style=invis];" for n in range(len(tokens) - 1)]
    lines.append("  }")
    for node, (label, slot) in enumerate(zip(graph.nodes, slots, strict=True)):
        lines.append(f"  n{node} [{captions(label)}, shape=box, style=rounded];")
        lines.append(f"  n{node} -> t{slot // graph_layers} [style=dotted, arrowhead=none];")
    for source, label, target in graph.edges:
        lines.append(f"  n{source} -> n{target} [{captions(label)}];")
    return "\n".join([*lines, "}\n"])


def short_label(label: str) -> str:
    """What a picture shows of a label: the telling end of CFQ's long ones, the beginning of any other.

    >>> [short_label(label) for label in ("agent", "ns:film.director.film", "^ns:people.person.gender")]
    ['agent', 'director.film', '^person.gender']
    """
    label = _printable(label)
    inverse, bare = ("^", label[1:]) if label.startswith("^") else ("", label)
    if bare.startswith("ns:") and not bare.startswith("ns:m."):
        *path, last = bare.split("|")[0].split("/")
        parts = last.removeprefix("^").removeprefix("ns:").split(".")
        telling = ".".join(parts[-1:] if path or len(parts) < 3 else parts[-2:])
        telling = parts[-1] if len(inverse + telling) > LONGEST_LABEL else telling
        label = inverse + telling if telling else label
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"


class Caption(NamedTuple):
    """What is shown of a node or an edge: briefly, its percentage unless that is all but 100, at length."""

    label: str
    note: str
    words: str
    opacity: str


def _captions(
    tokens: Sequence[str],
    graph: Graph,
    graph_layers: int,
    node_probabilities: Sequence[float] | None,
    edge_probabilities: Sequence[float] | None,
) -> tuple[list[Caption], list[Caption]]:
    def caption(label: str, more: str, probability: float | None) -> Caption:
        if probability is None:
            return Caption(short_label(label), "", f"{label} {more}", "")
        note = "" if probability >= CERTAIN else f"{probability:.0%}"
        opacity = f' opacity="{min(1.0, max(FAINTEST, probability)):.2f}"'
        return Caption(short_label(label), note, f"{label} {more}, {probability:.1%}", opacity)

    places = [f"in slot {slot} ({tokens[slot // graph_layers]})" for slot in _slots(tokens, graph, graph_layers)]
    ways = [f"from {graph.nodes[edge.source]} to {graph.nodes[edge.target]}" for edge in graph.edges]
    labels = [edge.label for edge in graph.edges]
    counts = ("node", len(places), node_probabilities), ("edge", len(ways), edge_probabilities)
    for what, count, given in counts:
        if given is not None and len(given) != count:
            raise GraphError(f"{len(given)} {what} probabilities for {count} {what}s; give one for each")
    nodes = map(caption, graph.nodes, places, node_probabilities or repeat(None))
    return list(nodes), list(map(caption, labels, ways, edge_probabilities or repeat(None)))


def _slots(tokens: Sequence[str], graph: Graph, graph_layers: int) -> tuple[int, ...]:
    """The slots of the graph, which are all slots of the sentence."""
    if graph.slots is None:
        raise GraphError("a graph without slots can't be drawn over its sentence; give it some by with_slots")
    if len(graph.edges) > MOST_EDGES:
        raise GraphError(f"{len(graph.edges):,} edges are too many to draw; at most {MOST_EDGES:,} are, others as json")
    if graph_layers < 1:
        raise GraphError(f"graph_layers is {graph_layers}; a token has at least one slot")
    count = len(tokens) * graph_layers
    if (slot := max(graph.slots, default=-1)) >= count:
        sizes = f"{len(tokens)} tokens × {graph_layers} graph layers"
        raise GraphError(f"a node is in slot {slot}, but {sizes} make {count} slots, numbered from 0")
    return graph.slots


def _printable(string: str) -> str:
    """The string with � for what XML or a terminal's line can't hold: control characters and their like."""
    bad = {"Cc", "Cs", "Cn", "Zl", "Zp"}
    return "".join("�" if unicodedata.category(char) in bad else char for char in string)


def _xml(string: str) -> str:
    return escape(_printable(string))


def _cells(string: str) -> list[str]:
    """The string by cells of a terminal: a wide character has two, the second empty; a combining one none."""
    cells: list[str] = []
    for char in _printable(string):
        if unicodedata.category(char) in ("Mn", "Me", "Cf"):
            cells[-1:] = [(cells[-1] if cells else " ") + char]
        else:
            cells += [char, ""] if unicodedata.east_asian_width(char) in "WF" else [char]
    return cells


def _pixels(string: str, size: int) -> int:
    """How wide the string is in the widest of the usual sans-serif fonts; the real one can't be asked."""
    hundredths = 0
    for cell in _cells(string):
        narrow, broad = cell[:1] in "iIjl.,:;|!'()[] ", cell[:1] in "mwMW@%…"
        # The second cell of a wide character is empty, which counts as narrow.
        hundredths += 38 if narrow else 95 if broad else 72 if cell.isupper() else 65
    return -(-hundredths * size // 100)


def colours_of(labels: Iterable[str]) -> dict[str, int]:
    """A number of PALETTE for each label: the one that it wants in every picture, unless another has it in this one."""
    wanted = {
        label: hashlib.md5(label.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()[0] % len(PALETTE)
        for label in sorted(set(labels), reverse=True)
    }
    found = {label: colour for colour, label in {colour: label for label, colour in wanted.items()}.items()}
    for label, colour in wanted.items():
        turns = [(colour + turn) % len(PALETTE) for turn in range(len(PALETTE))]
        found.setdefault(label, next((turn for turn in turns if turn not in found.values()), colour))
    return found


def _text(string: str, x: int, y: int, kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{_xml(string)}</text>' if string else ""


def _box(rect: Rect, kind: str) -> str:
    size = f'width="{rect.right - rect.left}" height="{rect.bottom - rect.top}"'
    return f'<rect class="{kind}" x="{rect.left}" y="{rect.top}" {size} rx="8"/>'


def _wire(arc: Arc) -> str:
    (x, bottom), (end, tip), y = arc.source, arc.target, arc.y
    bend = min(8, abs(end - x) // 2)
    turn = bend if end > x else -bend
    way = f"M{x} {bottom}V{y + bend}Q{x} {y} {x + turn} {y}H{end - turn}Q{end} {y} {end} {y + bend}V{tip - 6}"
    halo = f'<path class="halo" d="M{x + turn} {y}H{end - turn}"/>'
    head = f'<path class="head" d="M{end} {tip}l-4.5 -8q4.5 2 9 0z"/>'
    return f'{halo}<path d="{way}"/><circle cx="{x}" cy="{bottom}" r="2.5"/>{head}'


def style() -> str:
    """The style sheet of a picture, for light and for dark paper."""
    light = "".join(f".lagr .c{n} {{ color: {on_white} }}\n" for n, (on_white, _) in enumerate(PALETTE))
    dark = "".join(f".lagr .c{n} {{ color: {on_black} }}\n" for n, (_, on_black) in enumerate(PALETTE))
    return f"{LIGHT}{light}@media (prefers-color-scheme: dark) {{{DARK}{dark}}}\n"


LIGHT = """
.lagr { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif }
.lagr text { text-anchor: middle; fill: #1c2630 } .lagr .heading { font-size: 15px; text-anchor: start }
.lagr .paper { fill: #fff } .lagr .column { fill: #f1f4f7 } .lagr .empty { fill: #c3ccd4 }
.lagr .token { font-size: 14px } .lagr .node .label { font-size: 13px } .lagr .node .note { font-size: 10px }
.lagr .box { fill: #fff; stroke: #7d8b99; stroke-width: 1.3 }
.lagr .arc path { fill: none; stroke: currentColor; stroke-width: 1.6 }
.lagr .arc .head, .lagr .arc circle { fill: currentColor; stroke: none }
.lagr .arc text { fill: currentColor; paint-order: stroke; stroke-linejoin: round }
.lagr .arc .label, .lagr .arc .halo { stroke: #fff; stroke-width: 6px }
.lagr .arc .label { font-size: 11px } .lagr .arc .note { font-size: 9px }
"""
DARK = """
.lagr text { fill: #e8edf2 } .lagr .arc text { fill: currentColor }
.lagr .paper { fill: #14191f } .lagr .column { fill: #1e262e } .lagr .empty { fill: #46525e }
.lagr .box { fill: #14191f; stroke: #8494a3 } .lagr .arc .label, .lagr .arc .halo { stroke: #14191f }
"""
