from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagr.errors import GraphError
from lagr.graph import Edge, Graph


@st.composite
def graphs(draw: st.DrawFn, labels: str = "ab", roles: str = "xy") -> Graph:
    """Small graphs with few labels, so that labels repeat and isomorphism has work to do."""
    nodes = draw(st.lists(st.sampled_from(labels), min_size=0, max_size=5))
    pairs = [(s, t) for s in range(len(nodes)) for t in range(len(nodes))]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6)) if pairs else []
    return Graph(tuple(nodes), tuple(Edge(s, draw(st.sampled_from(roles)), t) for s, t in chosen))


def same_by_brute_force(one: Graph, other: Graph) -> bool:
    if len(one.nodes) != len(other.nodes):
        return False
    return any(
        one.reordered(order).nodes == other.nodes and set(one.reordered(order).edges) == set(other.edges)
        for order in permutations(range(len(one.nodes)))
    )


@given(graphs(), graphs())
def test_equality_is_isomorphism_by_brute_force(one: Graph, other: Graph) -> None:
    assert (one == other) == same_by_brute_force(one, other)


@given(graphs(), st.randoms())
def test_renumbering_the_nodes_changes_nothing(graph: Graph, random: object) -> None:
    order = list(range(len(graph.nodes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert graph.reordered(order) == graph
    assert hash(graph.reordered(order)) == hash(graph)


@given(graphs())
def test_a_changed_label_makes_another_graph(graph: Graph) -> None:
    for number in range(len(graph.nodes)):
        nodes = list(graph.nodes)
        nodes[number] = "other"
        assert Graph(tuple(nodes), graph.edges) != graph
    for number, edge in enumerate(graph.edges):
        edges = list(graph.edges)
        edges[number] = edge._replace(label="other")
        assert Graph(graph.nodes, tuple(edges)) != graph


def test_a_turned_edge_makes_another_graph() -> None:
    assert Graph(("a", "b"), (Edge(0, "x", 1),)) != Graph(("a", "b"), (Edge(1, "x", 0),))


def test_graphs_that_look_alike_from_every_node_are_told_apart() -> None:
    two_triangles = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]
    hexagon = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)]
    one, other = (Graph(("a",) * 6, tuple(Edge(s, "x", t) for s, t in e)) for e in (two_triangles, hexagon))
    assert one != other and one == one.reordered([3, 4, 5, 0, 1, 2])


def test_slots_do_not_count_in_equality() -> None:
    assert Graph(("a",), slots=(0,)) == Graph(("a",), slots=(5,)) == Graph(("a",))


@given(graphs())
def test_json_round_trip(graph: Graph) -> None:
    aligned = graph.with_slots(tuple(range(len(graph.nodes))))
    again = Graph.from_dict(aligned.to_dict())
    assert (again.nodes, again.edges, again.slots) == (aligned.nodes, aligned.edges, aligned.slots)


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: Graph(("a",), (Edge(0, "x", 1),)), "points to node 1, but the nodes are 0 to 0"),
        (lambda: Graph(("a",), (Edge(-1, "x", 0),)), "points to node -1"),
        (lambda: Graph(("a", "")), "node 1 has the label ''"),
        (lambda: Graph(("a",), (Edge(0, "", 0),)), "has no label"),
        (lambda: Graph(("a", "b"), (Edge(0, "x", 1), Edge(0, "y", 1))), "two edges from node 0 to node 1"),
        (lambda: Graph(("a", "b"), slots=(1, 1)), "share a slot"),
        (lambda: Graph(("a", "b"), slots=(1,)), "2 nodes but 1 slots"),
        (lambda: Graph(("a",), slots=(-1,)), "not all whole numbers"),
        (lambda: Graph.from_dict([]), "a graph is"),
        (lambda: Graph.from_dict({"nodes": ["a"], "edges": [[0, "x"]]}), "edge 0 is"),
        (lambda: Graph.from_dict({"nodes": ["a"], "edgs": []}), "not 'edgs'"),
        (lambda: Graph.from_dict({"nodes": ["a"], "edges": [[0, "x", "1"]]}), "points to node '1'"),
    ],
)
def test_a_graph_that_is_none_says_why(build: object, complaint: str) -> None:
    with pytest.raises(GraphError, match=complaint.replace("[", r"\[")):
        build()  # type: ignore[operator]


def test_what_changes_of_a_graph_is_checked_and_the_rest_stays() -> None:
    graph = Graph(("a", "b"), (Edge(0, "e", 1),), (3, 1))
    assert graph.with_labels(["c", "a"]) == Graph(("c", "a"), (Edge(0, "e", 1),))
    assert graph.with_labels(["c", "a"]).slots == (3, 1) and graph.nodes == ("a", "b")
    assert graph.with_slots([0, 2]).slots == (0, 2) and graph.slots == (3, 1) and graph.with_slots(None).slots is None
    for wrong in (["a"], ["a", ""], ["a", 1]):
        with pytest.raises(GraphError):
            graph.with_labels(wrong)  # type: ignore[arg-type]
    for slots in ((0,), (0, 0), (0, -1), (0, True)):
        with pytest.raises(GraphError):
            graph.with_slots(slots)
