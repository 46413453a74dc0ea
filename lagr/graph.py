"""The meaning of a sentence as a graph. Read this first; nothing here knows of tensors.

A Graph has labelled nodes and labelled directed edges, at most one edge from a node to another. It may also
say where its nodes sit: node j is in *slot* `slots[j]`. A sentence of N tokens has M = L·N slots, L *graph
layers* for every token, and the slots of one token form a *column*:

    slot = token · L + layer           token = slot // L,   layer = slot % L

    >>> g = Graph(("*", "cake", "eat"), (Edge(0, "article", 1), Edge(2, "theme", 1)), slots=(3, 4, 1))
    >>> g == Graph(("eat", "cake", "*"), (Edge(0, "theme", 1), Edge(2, "article", 1)))   # same meaning
    True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from lagr.errors import GraphError

OR = "\x1f"  # between the labels of which a node may have any: no label of any data has it


class Edge(NamedTuple):
    """A directed edge between two nodes, given by their positions in `Graph.nodes`."""

    source: int
    label: str
    target: int


@dataclass(frozen=True, eq=False)
class Graph:
    """Labelled nodes, labelled directed edges and, where known, the slot of every node.

    Two graphs are equal when they are isomorphic with their node and edge labels; slots don't count.
    """

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...] = ()
    slots: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        try:
            object.__setattr__(self, "edges", tuple(Edge(*edge) for edge in self.edges))
        except TypeError:
            raise GraphError("an edge is (source, label, target)") from None
        if self.slots is not None:
            object.__setattr__(self, "slots", tuple(self.slots))
        _check_labels(self.nodes)
        _check_edges(self)
        _check_slots(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and isomorphic(self, other)

    def __hash__(self) -> int:
        return hash(frozenset(_labelled_edges(self).items()))

    # Millions of graphs are made by these two: what stays was checked before.

    def with_slots(self, slots: Sequence[int] | None) -> Graph:
        new = copy(self)
        object.__setattr__(new, "slots", None if slots is None else tuple(slots))
        _check_slots(new)
        return new

    def with_labels(self, labels: Sequence[str]) -> Graph:
        """The same graph with these labels for its nodes."""
        if len(labels) != len(self.nodes):
            raise GraphError(f"{len(self.nodes)} nodes but {len(labels)} labels; every node has one label")
        new = copy(self)
        object.__setattr__(new, "nodes", tuple(labels))
        _check_labels(new.nodes)
        return new

    def at_tokens(self, graph_layers: int) -> Graph:
        """The graph with tokens for slots, as forms have them; without any where two nodes share a token."""
        if self.slots is None or graph_layers == 1:
            return self
        tokens = tuple(slot // graph_layers for slot in self.slots)
        return self.with_slots(tokens if len(set(tokens)) == len(tokens) else None)

    def reordered(self, order: Sequence[int]) -> Graph:
        """The same graph with its nodes listed in another order: new node i is old node `order[i]`."""
        new = {old: i for i, old in enumerate(order)}
        return Graph(
            tuple(self.nodes[old] for old in order),
            tuple(Edge(new[e.source], e.label, new[e.target]) for e in self.edges),
            None if self.slots is None else tuple(self.slots[old] for old in order),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists for JSON: {"nodes": [label…], "edges": [[source, label, target]…], "slots": […]}."""
        plain: dict[str, Any] = {"nodes": list(self.nodes), "edges": [list(edge) for edge in self.edges]}
        if self.slots is not None:
            plain["slots"] = list(self.slots)
        return plain

    @classmethod
    def from_dict(cls, plain: Any) -> Graph:
        """The graph that `to_dict` wrote; an edge may also be {"source": …, "label": …, "target": …}."""
        if not isinstance(plain, dict) or not isinstance(plain.get("nodes"), list):
            raise GraphError('a graph is {"nodes": [label, …], "edges": [[source, label, target], …]}')
        if unknown := plain.keys() - {"nodes", "edges", "slots"}:
            raise GraphError(f"a graph has nodes, edges and slots, not {sorted(unknown)[0]!r}")
        raw = plain.get("edges", [])
        if not isinstance(raw, list):
            raise GraphError("a graph's edges are a list of [source, label, target]")
        edges = []
        for number, edge in enumerate(raw):
            if isinstance(edge, dict) and edge.keys() == {"source", "label", "target"}:
                edge = [edge["source"], edge["label"], edge["target"]]
            if not isinstance(edge, list) or len(edge) != 3:
                raise GraphError(f"edge {number} is {edge!r}; an edge is [source, label, target]")
            edges.append(Edge(*edge))
        slots = plain.get("slots")
        if slots is not None and not isinstance(slots, list):
            raise GraphError("a graph's slots are a list, one slot for every node")
        return cls(tuple(plain["nodes"]), tuple(edges), None if slots is None else tuple(slots))


def isomorphic(one: Graph, other: Graph) -> bool:
    """Whether some renumbering of the nodes turns one graph into the other, labels included."""
    if one.nodes == other.nodes and one.edges == other.edges:
        return True
    if Counter(one.nodes) != Counter(other.nodes) or _labelled_edges(one) != _labelled_edges(other):
        return False
    if len(set(one.nodes)) == len(one.nodes):
        return True  # every node is known by its label, so equal labelled edges are equal edges
    import rustworkx as rx

    def as_rustworkx(graph: Graph) -> Any:
        # A node with its neighbourhood is easier to tell apart from others than its label alone.
        built = rx.PyDiGraph(multigraph=False)
        views = neighbourhoods(graph)
        built.add_nodes_from([(label, *sorted(view)) for label, view in zip(graph.nodes, views, strict=True)])
        built.add_edges_from([(e.source, e.target, e.label) for e in graph.edges])
        return built

    first, second = as_rustworkx(one), as_rustworkx(other)
    if Counter(first.nodes()) != Counter(second.nodes()):
        return False
    return bool(rx.is_isomorphic(first, second, _same, _same, id_order=False))


def blindly_isomorphic(one: Graph, other: Graph) -> bool:
    """Whether the graphs are isomorphic once nodes of equal label are one node and node labels are forgotten.

    This is how the paper's published code scores CFQ; it takes a query for another one with other predicates. Nodes
    without edges are left out, and graphs without other nodes are not isomorphic. Two things are stricter here: nodes
    that merging joins by edges of several labels keep them all, and `^` is part of a label.
    """
    blind, other_blind = _blind(one), _blind(other)
    return bool(blind.edges) and isomorphic(blind, other_blind)


def _blind(graph: Graph) -> Graph:
    number: dict[str, int] = {}
    labels: dict[tuple[int, int], set[str]] = {}
    for source, label, target in graph.edges:
        ends = [number.setdefault(graph.nodes[node], len(number)) for node in (source, target)]
        labels.setdefault((ends[0], ends[1]), set()).add(label)
    edges = tuple(Edge(source, " ".join(sorted(found)), target) for (source, target), found in labels.items())
    return Graph(("·",) * len(number), edges)


def neighbourhoods(graph: Graph) -> list[list[tuple[str, str, str]]]:
    """What every node sees: of each of its edges the direction, the label, and the label of the other end."""
    views: list[list[tuple[str, str, str]]] = [[] for _ in graph.nodes]
    for source, label, target in graph.edges:
        views[source].append(("out", label, graph.nodes[target]))
        views[target].append(("in", label, graph.nodes[source]))
    return views


def by_neighbours(graph: Graph) -> list[int]:
    """The nodes in an order that depends on what they are connected with alone, and not on where a file has them."""
    views = neighbourhoods(graph)
    return sorted(range(len(graph.nodes)), key=lambda node: sorted(views[node]))


def _same(one: object, other: object) -> bool:
    return one == other


def _labelled_edges(graph: Graph) -> Counter[tuple[str, str, str]]:
    return Counter((graph.nodes[e.source], e.label, graph.nodes[e.target]) for e in graph.edges)


def _check_labels(labels: Sequence[str]) -> None:
    for number, label in enumerate(labels):
        if not isinstance(label, str) or not label:
            raise GraphError(f"node {number} has the label {label!r}; a label is a string that is not empty")


def _check_edges(graph: Graph) -> None:
    count = len(graph.nodes)
    taken: set[tuple[int, int]] = set()
    for edge in graph.edges:
        if not isinstance(edge.label, str) or not edge.label:
            raise GraphError(f"the edge {tuple(edge)} has no label; a label is a string that is not empty")
        for end in (edge.source, edge.target):
            if not isinstance(end, int) or isinstance(end, bool) or not 0 <= end < count:
                raise GraphError(f"the edge {tuple(edge)} points to node {end!r}, but the nodes are 0 to {count - 1}")
        if (edge.source, edge.target) in taken:
            raise GraphError(f"there are two edges from node {edge.source} to node {edge.target}; one is possible")
        taken.add((edge.source, edge.target))


def _check_slots(graph: Graph) -> None:
    count = len(graph.nodes)
    if graph.slots is not None:
        if len(graph.slots) != count:
            raise GraphError(f"{count} nodes but {len(graph.slots)} slots; every node has one slot")
        if any(not isinstance(slot, int) or isinstance(slot, bool) or slot < 0 for slot in graph.slots):
            raise GraphError(f"the slots {list(graph.slots)} are not all whole numbers from 0 up")
        if len(set(graph.slots)) != count:
            raise GraphError(f"two nodes share a slot in {list(graph.slots)}; a slot holds one node")
