"""Nodes that have the same edges, side by side in a list, and how one of them stands for all.

"Who edited M1, M2 and M3" asks three things about the same verb: M1, M2 and M3 are *twins*, nodes with the same edges.
Which words make a list is seen from their neighbours, wherever the list is and however long; which verb its last
member belongs to is not. So a model is trained on graphs that are *folded*: the first of a list has the edges, and
each of the others has one edge, with a label of its own, from the one before it. What the model then says of the first
is taken for all of them. Folding loses nothing: every graph comes back as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from lagr.graph import Edge, Graph
from lagr.model import NULL, GraphDistribution


def folded(
    graph: Graph, places: Sequence[int | None], apart: int
) -> tuple[tuple[Edge, ...], tuple[tuple[int, int], ...]]:
    """The edges of a graph but for those of twins, of which the first has them; and each other with the one before.

    places: the token of every node, where it is known. apart: how many tokens further the next twin is at most.
    """
    before: dict[int, int] = {}
    for group in twin_groups(graph):
        placed = sorted((place, node) for node in group if (place := places[node]) is not None)
        before |= {node: last for (at, last), (place, node) in pairwise(placed) if at < place <= at + apart}
    kept = (edge for edge in graph.edges if edge.source not in before and edge.target not in before)
    return tuple(kept), tuple((last, node) for node, last in before.items())


def twin_groups(graph: Graph) -> Iterator[list[int]]:
    """Nodes with the same edges, and at least one: same labels, same ways, same other ends."""
    edges_of: list[set[tuple[str, bool, int]]] = [set() for _ in graph.nodes]
    for source, label, target in graph.edges:
        edges_of[source].add((label, True, target))
        edges_of[target].add((label, False, source))
    alike: dict[frozenset[tuple[str, bool, int]], list[int]] = defaultdict(list)
    for node, edges in enumerate(edges_of):
        if edges:
            alike[frozenset(edges)].append(node)
    return (group for group in alike.values() if len(group) > 1)


def without_twins(dist: GraphDistribution) -> GraphDistribution:
    """The distribution without the last edge label, that of twins: each has what is said of the first of its list."""
    twin = dist.edge_log_probs[..., -1]
    first = _firsts(twin, (dist.node_log_probs.argmax(-1) != NULL) & dist.slots)
    edges = dist.edge_log_probs[..., :-1].clone()
    edges[..., NULL] = torch.logaddexp(edges[..., NULL], twin)  # twins have no edge of a graph between them
    sentence = torch.arange(len(first), device=first.device)[:, None, None]
    edges = edges[sentence, first[:, :, None], first[:, None, :]]
    valencies = dist.valency_log_probs
    if valencies is not None:
        valencies = valencies[sentence[:, 0], first]
    return replace(dist, edge_log_probs=edges, valency_log_probs=valencies)


def _firsts(twin: Tensor, occupied: Tensor) -> Tensor:
    """The first slot of the list that each slot is in; itself, where there is none.   (B, M, M), (B, M) → (B, M)"""
    M = occupied.shape[1]
    possible = (occupied[:, :, None] & occupied[:, None, :]).triu(1)  # the twin before is before
    likely, before = twin.masked_fill(~possible, -torch.inf).max(1)
    first = torch.where(likely.exp() > 0.5, before, torch.arange(M, device=twin.device))
    for _ in range(max(1, (M - 1).bit_length())):
        first = first.gather(1, first)
    return first
