"""Pictures don't lie and don't collide."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import combinations
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lagr import analyse, draw
from lagr.draw import Layout, Rect, dot, short_label, svg, text
from lagr.errors import GraphError
from lagr.graph import Edge, Graph

SVG = "{http://www.w3.org/2000/svg}"
SPOUSE = "ns:people.person.spouse_s/ns:people.marriage.spouse|ns:fictional_universe.character.married_to/ns:x.y.z"

# 15 tokens, 2 graph layers, 16 nodes, 22 edges
CROWD_TOKENS = ["Did", "M0", "'s", "female", "editor", ",", "writer", ",", "and", "husband"]
CROWD_TOKENS += ["direct", "and", "produce", "M1", "M2"]
CROWD = Graph(
    ("M0", SPOUSE, "ns:m.02zsn", "gender", "?x0", "ns:film.editor", "writer", "?x1", "?x2", SPOUSE,
     "FILTER", "ns:film.director.film", "ns:film.producer.film", "FILTER", "M1", "M2"),
    tuple(
        Edge(source, label, target)
        for source, label, targets in [
            (1, "agent", (0,)), (1, "theme", (8,)), (3, "agent", (4,)), (3, "theme", (2,)), (5, "type", (4,)),
            (6, "type", (7,)), (9, "agent", (8,)), (9, "theme", (0,)), (11, "agent", (4, 7, 8)),
            (11, "theme", (14, 15)), (12, "agent", (4, 8)), (12, "theme", (14, 15)), (13, "FILTER", (4, 0)),
            (10, "FILTER", (7, 14)), (4, "FILTER", (8,)),
        ]
        for target in targets
    ),
    slots=(2, 4, 6, 7, 8, 9, 13, 12, 18, 19, 20, 21, 24, 25, 26, 28),
)  # fmt: skip

BOTH_WAYS = (Edge(0, "x", 1), Edge(1, "y", 0), Edge(0, "loop", 0))
Sentence = tuple[list[str], Graph, int]


@st.composite
def sentences(draw: st.DrawFn) -> Sentence:
    """Tokens and a graph over them, node labels all different, self-loops and both directions included."""
    tokens = draw(st.lists(st.sampled_from(["a", "the", "hedgehog", "incomprehensibilities"]), max_size=7))
    layers = draw(st.integers(1, 3))
    slots = draw(st.lists(st.integers(0, max(0, len(tokens) * layers - 1)), unique=True, max_size=12))
    slots = slots if tokens else []
    nodes = tuple(f"{draw(st.sampled_from(['n', 'node', 'a.very.long.node']))}{i}" for i in range(len(slots)))
    ends = st.tuples(*[st.integers(0, max(0, len(slots) - 1))] * 2)
    pairs = draw(st.lists(ends, unique=True, max_size=24)) if slots else []
    labels = st.sampled_from(["x", "agent", "nmod.beside", "a.rather.long.label"])
    return tokens, Graph(nodes, tuple(Edge(a, draw(labels), b) for a, b in pairs), tuple(slots)), layers


def layouts(sentence: Sentence, probability: float | None) -> list[Layout]:
    """The layouts that `svg` and `text` really use."""
    tokens, graph, layers = sentence
    seen: list[Layout] = []

    def spy(*arguments: object) -> Layout:
        seen.append(arrange(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    arrange = draw.arrange
    given = {} if probability is None else {
        "node_probabilities": [probability] * len(graph.nodes),
        "edge_probabilities": [probability] * len(graph.edges),
    }  # fmt: skip
    with patch.object(draw, "arrange", spy):
        svg(tokens, graph, graph_layers=layers, **given)  # type: ignore[arg-type]
        text(tokens, graph, graph_layers=layers, width=10**6, **given)
    assert len(seen) == 2
    return seen


def overlap(one: Rect, other: Rect) -> bool:
    return one.left <= other.right and other.left <= one.right and one.top <= other.bottom and other.top <= one.bottom


everywhere = settings(max_examples=120, deadline=None)
with_a_crowd = example(sentence=(CROWD_TOKENS, CROWD, 2), probability=0.5)
probabilities = st.sampled_from([None, 0.5, 1.0])


@everywhere
@given(sentence=sentences(), probability=probabilities)
@with_a_crowd
def test_labels_and_boxes_never_overlap(sentence: Sentence, probability: float | None) -> None:
    for layout in layouts(sentence, probability):
        rects = [*(arc.label for arc in layout.arcs), *layout.slots, *layout.tokens]
        assert not [(a, b) for a, b in combinations(rects, 2) if overlap(a, b)]


@everywhere
@given(sentence=sentences(), probability=probabilities)
@with_a_crowd
def test_no_two_wires_run_along_each_other(sentence: Sentence, probability: float | None) -> None:
    for layout in layouts(sentence, probability):
        verticals = [x for arc in layout.arcs for x, _ in (arc.source, arc.target)]
        assert len(set(verticals)) == len(verticals)
        for one, other in combinations(layout.arcs, 2):
            (a, b), (c, d) = (sorted((arc.source[0], arc.target[0])) for arc in (one, other))
            assert one.y != other.y or b < c or d < a


@everywhere
@given(sentence=sentences(), probability=probabilities)
@with_a_crowd
def test_wires_meet_no_label_and_no_box_but_their_own(sentence: Sentence, probability: float | None) -> None:
    _, graph, _ = sentence
    assert graph.slots is not None
    for layout in layouts(sentence, probability):
        for arc, edge in zip(layout.arcs, graph.edges, strict=True):
            low, high = sorted((arc.source[0], arc.target[0]))
            assert low < arc.label.left <= arc.label.right < high
            for (x, bottom), node in ((arc.source, edge.source), (arc.target, edge.target)):
                own = layout.slots[graph.slots[node]]
                assert own.left <= x <= own.right and own.top == bottom
                wire = Rect(x, arc.y, x, bottom)
                assert not [box for box in layout.slots if box != own and overlap(wire, box)]
                assert not [one for one in layout.arcs if one != arc and overlap(wire, one.label)]


@everywhere
@given(sentence=sentences(), probability=probabilities)
@with_a_crowd
def test_every_node_stands_in_its_column_and_layer(sentence: Sentence, probability: float | None) -> None:
    tokens, _, layers = sentence
    for layout in layouts(sentence, probability):
        assert len(layout.slots) == len(tokens) * layers
        for slot, box in enumerate(layout.slots):
            column = layout.tokens[slot // layers]
            assert column.left <= box.left <= box.right <= column.right <= layout.width
            assert box.bottom < column.top
            if slot % layers:
                assert box.bottom < layout.slots[slot - 1].top


def followed(picture: str) -> Counter[tuple[str, str, str]]:
    """The edges one reads off a picture with a finger: from every arrow head along its wire to its source."""
    lines = picture.splitlines()
    grid = [line.ljust(max(map(len, lines))) for line in lines]

    def node_at(x: int, y: int) -> str:
        start = grid[y].rfind(" ", 0, x) + 1
        return grid[y][start:].split(" ")[0].strip("╰╯┴─")

    edges: Counter[tuple[str, str, str]] = Counter()
    for arrow, row in ((x, y) for y, line in enumerate(grid) for x, char in enumerate(line) if char == "▼"):
        y = row - 1
        while grid[y][arrow] in "│┼":
            y -= 1
        step, other_corner = (1, "╮") if grid[y][arrow] == "╭" else (-1, "╭")
        x, read = arrow + step, ""
        while grid[y][x] != other_corner:
            read += grid[y][x]
            x += step
        label = read[::step].replace("─", "").replace("┼", "")
        y += 1
        while grid[y][x] in "│┼":
            y += 1
        edges[node_at(x, y), label, node_at(arrow, row + 1)] += 1
    return edges


@everywhere
@given(sentence=sentences())
@example(
    sentence=(
        ["see", "it"],
        Graph(("s", "i"), BOTH_WAYS, (1, 2)),
        2,
    )
)
def test_a_graph_can_be_read_back_from_its_terminal_picture(sentence: Sentence) -> None:
    tokens, graph, layers = sentence
    picture = text(tokens, graph, graph_layers=layers, width=10**6)
    assert followed(picture) == Counter((graph.nodes[a], label, graph.nodes[b]) for a, label, b in graph.edges)
    assert all(label in picture for label in graph.nodes)
    assert not tokens or picture.splitlines()[-1].split() == tokens


anything = st.text(st.characters(), max_size=8)


@everywhere
@given(words=st.lists(anything, min_size=1, max_size=4), label=anything.filter(bool), title=anything)
@example(
    words=["<&\"'>", "]]>", "日本語", "שלום\u202e", "\x00\x1b[31m\ud800\uffff\u2028\r\n"],
    label='"><x>&amp;',
    title="<!--",
)
def test_hostile_words_stay_words(words: list[str], label: str, title: str) -> None:
    graph = Graph((label, "<b>"), (Edge(0, label, 1), Edge(1, "&", 1)), (0, 1))
    picture = ET.fromstring(svg(words, graph, graph_layers=2, title=title).encode())
    shown = [element.text or "" for element in picture.iter(f"{SVG}text") if element.get("class") == "token"]
    for one, word in zip(shown, filter(None, words), strict=True):
        assert len(one) == len(word)
        assert all(a == b or (a == "�" and not b.isprintable()) for a, b in zip(one, word, strict=True))
    lines = text(words, graph, graph_layers=2, width=10**6).split("\n")
    assert len(lines) in (7, 8)  # one or two tracks, then arrow, node, arrow, node, rule, token
    assert all(len(line.splitlines()) <= 1 and "\x1b" not in line for line in lines)


def test_svg_names_every_node_and_edge() -> None:
    picture = ET.fromstring(svg(CROWD_TOKENS, CROWD, graph_layers=2))
    shown = Counter(element.text for element in picture.iter(f"{SVG}text"))
    labels = [*CROWD.nodes, *(edge.label for edge in CROWD.edges)]
    assert shown == Counter([*CROWD_TOKENS, *map(short_label, labels)])
    tooltips = [group.findtext(f"{SVG}title") for group in picture.iter(f"{SVG}g")]
    assert f"{SPOUSE} in slot 4 ('s)" in tooltips and f"theme from {SPOUSE} to ?x2" in tooltips
    assert picture.get("role") == "img" and picture.findtext(f"{SVG}title") == " ".join(CROWD_TOKENS)
    description = picture.findtext(f"{SVG}desc") or ""
    assert all(tooltip and tooltip in description for tooltip in tooltips)


def test_svg_stays_inside_its_frame() -> None:
    picture = ET.fromstring(svg(CROWD_TOKENS, CROWD, graph_layers=2, title="A title"))
    left, top, width, height = map(int, (picture.get("viewBox") or "").split())
    for element in picture.iter(f"{SVG}rect"):
        x, y, w, h = (int(element.get(key) or "") for key in ("x", "y", "width", "height"))
        assert left <= x and x + w <= left + width and top <= y and y + h <= top + height
    for element in picture.iter(f"{SVG}text"):
        assert left < int(element.get("x") or "") < left + width and top < int(element.get("y") or "") < top + height


def test_improbable_things_are_fainter_and_say_so() -> None:
    graph = Graph(("eat", "cake"), (Edge(0, "theme", 1),), (0, 1))
    given = {"node_probabilities": [0.999, 0.6], "edge_probabilities": [0.1]}
    picture = ET.fromstring(svg(["Eat", "cake"], graph, **given))  # type: ignore[arg-type]
    groups = {group.findtext(f"{SVG}title"): group for group in picture.iter(f"{SVG}g")}
    assert {words: group.get("opacity") for words, group in groups.items()} == {
        "theme from eat to cake, 10.0%": "0.35",
        "eat in slot 0 (Eat), 99.9%": "1.00",
        "cake in slot 1 (cake), 60.0%": "0.60",
    }
    notes = [element.text for element in picture.iter(f"{SVG}text") if element.get("class") == "note"]
    assert notes == ["10%", "60%"]
    plain = text(["Eat", "cake"], graph, width=80, **given)  # type: ignore[arg-type]
    assert "theme 10%" in plain and "cake 60%" in plain and "100%" not in plain
    assert "%" not in svg(["Eat", "cake"], graph)


def test_an_edge_label_keeps_its_colour_and_others_get_another() -> None:
    picture = ET.fromstring(svg(CROWD_TOKENS, CROWD, graph_layers=2))
    arcs = [group for group in picture.iter(f"{SVG}g") if (group.get("class") or "").startswith("arc")]
    colour = {group.findtext(f"{SVG}text"): group.get("class") for group in arcs}
    assert colour.keys() == {"agent", "theme", "type", "FILTER"} and len(set(colour.values())) == 4
    assert all(colour[group.findtext(f"{SVG}text")] == group.get("class") for group in arcs)


def test_a_label_has_its_colour_in_other_pictures_too() -> None:
    many = [f"label {number}" for number in range(20)]
    assert all(0 <= colour < len(draw.PALETTE) for colour in draw.colours_of(many).values())
    assert sorted(draw.colours_of(many[:8]).values()) == list(range(8))
    assert draw.colours_of(["theme", "agent"]) == draw.colours_of(["agent", "theme", "agent"])
    assert draw.colours_of(["agent", "nmod.beside", "theme"])["theme"] == draw.colours_of(["theme"])["theme"]
    usual = ("agent", "theme", "recipient", "article", "ccomp", "xcomp", "type", "FILTER")
    alone = {label: draw.colours_of([label])[label] for label in usual}
    assert len(set(alone.values())) == 8 and draw.colours_of(alone) == alone  # what they want doesn't collide


def test_gold_and_predicted_have_a_label_in_one_colour() -> None:
    """Labels that want the same colour: which of them gets it must not depend on the picture."""
    names = [f"label{number}" for number in range(40)]
    wanting = [name for name in names if draw.colours_of([name]) == {name: draw.colours_of([names[0]])[names[0]]}]
    one, other = wanting[:2]
    gold, predicted = (Graph(("a", "b"), (Edge(0, label, 1),), (0, 1)) for label in (one, other))
    both = Graph(("a", "b", "c"), (Edge(0, one, 1), Edge(1, other, 2)), (0, 1, 2))
    colours = draw.colours_of([one, other])
    for first, second in ((gold, both), (both, predicted)):
        drawn = analyse.gold_and_predicted(("a", "b", "c"), (first, second), 1)
        groups = [g for g in ET.fromstring(drawn).iter(f"{SVG}g") if (g.get("class") or "").startswith("arc")]
        shown = {(group.findtext(f"{SVG}text"), group.get("class")) for group in groups}
        assert shown == {(label, f"arc c{colours[label]}") for label in (one, other)}


@pytest.mark.parametrize(("side", "paper"), [(0, "#ffffff"), (1, "#14191f")])
def test_colours_have_the_contrast_that_text_needs(side: int, paper: str) -> None:
    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for pair in draw.PALETTE:
        dark, light = sorted((luminance(pair[side]), luminance(paper)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2, level AA


def test_pictures_do_not_depend_on_the_hash_seed_nor_on_torch() -> None:
    program = (
        "import sys; from lagr.draw import *; from lagr.graph import *\n"
        "g = Graph(tuple('abc'), ((0, 'x', 1), (1, 'y', 2), (2, 'z', 0), (0, 'w', 0)), (0, 1, 4))\n"
        "for draw in svg, text, dot: print(draw(['p', 'q', 'r'], g, graph_layers=2))\n"
        "assert 'torch' not in sys.modules"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_picture_wider_than_the_terminal_becomes_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(("cake", "eat"), (Edge(1, "ns:food.eater.eats", 0), Edge(0, "self", 0)), (5, 0))
    tokens = ["Eat", "the", "cake"]
    listed = "0 Eat → eat\n5 cake → cake\n0 eat ─eater.eats→ 5 cake\n5 cake ─self→ 5 cake"
    picture = text(tokens, graph, graph_layers=2, width=200)
    needed = max(map(len, picture.splitlines()))
    assert "▼" in picture
    assert text(tokens, graph, graph_layers=2, width=needed) == picture
    assert text(tokens, graph, graph_layers=2, width=needed - 1) == listed
    monkeypatch.setenv("COLUMNS", str(needed - 1))
    assert text(tokens, graph, graph_layers=2) == listed


def test_wide_characters_take_two_cells() -> None:
    wide = Graph(("食べる", "x"), (Edge(0, "目的", 1),), (0, 1))
    narrow = Graph(("abcdef", "x"), (Edge(0, "abcd", 1),), (0, 1))
    in_cells = text(["日本", "e\u0301"], wide, width=80).replace("食べる", "abcdef").replace("目的", "abcd")
    assert in_cells.replace("日本", "abcd").replace("\u0301", "") == text(["abcd", "e"], narrow, width=80)


@pytest.mark.parametrize("tokens", [[], ["Hm"], ["Hm", "", "."]])
def test_an_empty_graph_is_a_sentence_over_empty_slots(tokens: list[str]) -> None:
    empty = Graph((), (), ())
    picture = ET.fromstring(svg(tokens, empty, graph_layers=2))
    assert len(list(picture.iter(f"{SVG}circle"))) == 2 * len(tokens)
    assert text(tokens, empty, graph_layers=2, width=80).count("·") == 2 * len(tokens)
    assert dot(tokens, empty).count("label=") == len(tokens)


def test_dot_ties_nodes_to_tokens_and_escapes() -> None:
    source = dot(['say "\\N"\n', "it"], Graph((SPOUSE,), (Edge(0, 'a"b', 0),), (3,)), graph_layers=2)
    assert 't0 [label="say \\"\\\\N\\"�"];' in source
    assert f'n0 [label="spouse", tooltip="{SPOUSE}"' in source
    assert "n0 -> t1 [" in source and 'n0 -> n0 [label="a\\"b"' in source


@pytest.mark.parametrize("drawn", [svg, text, dot])
@pytest.mark.parametrize(
    ("graph", "layers", "message"),
    [
        (Graph(("a",)), 1, "without slots"),
        (Graph(("a",), slots=(2,)), 1, r"slot 2, but 2 tokens × 1 graph layers make 2 slots"),
        (Graph(("a",), slots=(6,)), 3, r"slot 6, but 2 tokens × 3 graph layers make 6 slots"),
        (Graph(("a",), slots=(0,)), 0, "graph_layers is 0"),
    ],
)
def test_a_graph_that_does_not_fit_its_sentence_is_refused(
    drawn: object, graph: Graph, layers: int, message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        drawn(["p", "q"], graph, graph_layers=layers)  # type: ignore[operator]


@pytest.mark.parametrize("kind", ["node", "edge"])
def test_every_node_and_edge_needs_its_probability(kind: str) -> None:
    graph = Graph(("a",), (Edge(0, "x", 0),), (0,))
    with pytest.raises(GraphError, match=f"2 {kind} probabilities for 1 {kind}s"):
        svg(["p"], graph, **{f"{kind}_probabilities": [1.0, 1.0]})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("label", "short"),
    [
        (SPOUSE, "spouse"),
        ("ns:film.director.film", "director.film"),
        ("ns:film.producer.film|ns:film.production_company.films", "producer.film"),
        ("ns:film.actor", "actor"),
        ("ns:m.02zsn", "ns:m.02zsn"),
        ("^ns:people.person.gender", "^person.gender"),
        ("ns:influence.influence_node.influenced_by", "influenced_by"),
        ("nmod.beside", "nmod.beside"),
        ("x" * 24, "x" * 24),
        ("x" * 25, "x" * 23 + "…"),
        ("^", "^"),
        ("ns:", "ns:"),
    ],
)
def test_short_labels(label: str, short: str) -> None:
    assert short_label(label) == short


def test_the_examples_in_the_docstrings_are_true() -> None:
    outcome = doctest.testmod(draw)
    assert outcome.attempted >= 3 and not outcome.failed


def test_a_picture_that_nobody_could_read_is_refused() -> None:
    nodes = 45
    tangle = Graph(("n",) * nodes, tuple((s, "e", t) for s in range(nodes) for t in range(nodes)), tuple(range(nodes)))
    for picture in (draw.svg, draw.text, draw.dot):
        with pytest.raises(GraphError, match="2,025 edges are too many"):
            picture(["w"] * nodes, tangle)
