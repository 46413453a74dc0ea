from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagr.datasets import Example, Source
from lagr.evaluate import Score, error_kinds, evaluate
from lagr.forms import cogs, sparql
from lagr.graph import Edge, Graph

FORM = "* cake ( x _ 4 ) ; hedgehog ( x _ 1 ) AND eat . agent ( x _ 2 , x _ 1 ) AND eat . theme ( x _ 2 , x _ 4 )"
GOLD = Example(
    tuple("A hedgehog ate the cake .".split()), cogs.read(FORM, "A hedgehog ate the cake .".split()), FORM, "c"
)
AGENT = next(e for e in GOLD.graph.edges if e.label == "agent")
THEME = next(e for e in GOLD.graph.edges if e.label == "theme")


def with_edges(*edges: Edge) -> Graph:
    return Graph(GOLD.graph.nodes, edges, GOLD.graph.slots)


ARTICLE = next(e for e in GOLD.graph.edges if e.label == "article")


@pytest.mark.parametrize(
    ("predicted", "kinds"),
    [
        (with_edges(AGENT._replace(label="recipient"), THEME, ARTICLE), {"wrong_edge_label"}),
        (with_edges(AGENT._replace(source=AGENT.target, target=AGENT.source), THEME, ARTICLE), {"wrong_edge_nodes"}),
        (with_edges(AGENT, ARTICLE), {"missing_edge"}),
        (with_edges(THEME, ARTICLE), {"missing_edge", "unconnected_node"}),
        (with_edges(AGENT, THEME, ARTICLE, Edge(AGENT.target, "theme", AGENT.source)), {"extra_edge"}),
        (Graph(tuple("pie" if n == "cake" else n for n in GOLD.graph.nodes), GOLD.graph.edges, GOLD.graph.slots), {"missing_node", "extra_node"}),
        (GOLD.graph.with_slots([s + 1 for s in GOLD.graph.slots or ()]), {"other"}),
    ],
)  # fmt: skip
def test_every_kind_of_mistake_is_seen_and_named(predicted: Graph, kinds: set[str]) -> None:
    result = evaluate([GOLD], [predicted], cogs)
    assert result.score == Score(1, 0) and result.by_category["c"] == Score(1, 0)
    found = {kind for kind, n in result.kinds.items() if n}
    assert found == kinds
    report = result.to_dict()
    assert report["exact"] == 0 and report["errors"][sorted(kinds)[0]]["examples"][0]["gold"] == FORM


def test_a_right_prediction_is_right() -> None:
    result = evaluate([GOLD, GOLD], [GOLD.graph, GOLD.graph.reordered([3, 1, 0, 2])], cogs, "test")
    assert result.score == Score(2, 2) == result.nodes == result.edges == result.isomorphic
    assert not any(result.kinds.values())


def mutations(graph: Graph) -> list[Graph]:
    """Graphs that mean something else: one edge or node changed."""
    changed = []
    for number, edge in enumerate(graph.edges):
        rest = graph.edges[:number] + graph.edges[number + 1 :]
        changed.append(Graph(graph.nodes, rest, graph.slots))
        changed.append(Graph(graph.nodes, (*rest, edge._replace(label=edge.label + "x")), graph.slots))
        if not any((e.source, e.target) == (edge.target, edge.source) for e in graph.edges):
            turned = Edge(edge.target, edge.label, edge.source)
            changed.append(Graph(graph.nodes, (*rest, turned), graph.slots))
    first, *_, last = range(len(graph.nodes))
    if not any((e.source, e.target) == (first, last) for e in graph.edges):
        changed.append(Graph(graph.nodes, (*graph.edges, Edge(first, "theme", last)), graph.slots))
    if graph.slots is None or 99 not in graph.slots:
        slots = None if graph.slots is None else (*graph.slots, 99)
        changed.append(Graph((*graph.nodes, "zebra"), (*graph.edges, Edge(0, "theme", len(graph.nodes))), slots))
    for number in range(len(graph.nodes)):
        nodes = tuple("zebra" if i == number else label for i, label in enumerate(graph.nodes))
        changed.append(Graph(nodes, graph.edges, graph.slots))
    return changed


def test_no_mutation_of_a_sentence_of_mini_passes_as_right(mini: Source) -> None:
    for example in random.Random(0).sample(mini.read("train"), 60):
        changed = mutations(example.graph)
        result = evaluate([example] * len(changed), changed, cogs)
        assert result.score.right == 0 and result.isomorphic.right == 0
        assert sum(result.kinds.values()) >= len(changed)


def test_no_mutation_of_a_query_passes_as_right() -> None:
    query = (
        "SELECT DISTINCT ?x0 WHERE {\n?x0 a ns:film.actor .\n?x0 ns:film.editor.film ?x1 .\n?x0 ns:film.editor.film M2 .\n"
        "?x1 ns:film.film.directed_by M1 .\nFILTER ( ?x0 != M1 )\n}"
    )
    example = Example(("q",), sparql.read(query), query)
    changed = mutations(example.graph)
    assert evaluate([example] * len(changed), changed, sparql).score.right == 0
    assert evaluate([example], [example.graph], sparql).score.right == 1


def test_without_a_form_the_graph_decides() -> None:
    bare = replace(GOLD, form=None)
    moved = GOLD.graph.with_slots([s + 1 for s in GOLD.graph.slots or ()])
    assert evaluate([bare], [moved], None).score.right == 1
    assert evaluate([bare], [with_edges(AGENT)], None).score.right == 0


def test_a_changed_node_label_counts_as_wrong_where_label_blind_isomorphism_would_not() -> None:
    """The published score compares CFQ graphs without node labels."""
    one, other = (Graph(("M0", label), (Edge(0, "agent", 1),)) for label in ("ns:film.actor", "ns:film.editor"))
    assert evaluate([Example(("x",), one, sparql.write(one))], [other], sparql).score.right == 0


@given(st.integers(1, 400), st.data())
def test_the_interval_holds_the_accuracy(n: int, data: st.DataObject) -> None:
    score = Score(n, data.draw(st.integers(0, n)))
    low, high = score.interval
    assert 0 <= low <= score.exact <= high <= 100 and low < high


def test_the_interval_is_wilsons() -> None:
    low, high = Score(20, 18).interval  # R: prop.test(18, 20, correct = FALSE)
    assert (low, high) == (pytest.approx(69.90, abs=0.01), pytest.approx(97.21, abs=0.01))


def test_repeated_labels_are_paired_by_their_neighbours() -> None:
    gold = Graph(("a", "p", "b", "p"), (Edge(1, "x", 0), Edge(3, "y", 2)))
    swapped = Graph(("a", "p", "b", "p"), (Edge(3, "x", 0), Edge(1, "y", 2)))
    assert error_kinds(gold, swapped) == set()
