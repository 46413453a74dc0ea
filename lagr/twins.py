"""Nodes that have the same edges, and what a model says about them together.

"Who edited M1, M2 and M3" asks three things about the same verb: M1, M2 and M3 are *twins*, nodes with the same edges.
Which words stand side by side in a list is easy to see, wherever the list is and however long; which verb the last of
them belongs to is not. So twins are joined by an edge with a label of its own while a model is trained, and when it
parses, what it says about the edges and valencies of twins is pooled: the mean of the logarithms, over the group.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import permutations

import torch
from torch import Tensor

from lagr.graph import Graph
from lagr.model import NULL, GraphDistribution, log_softmax

IMPOSSIBLE = -1e4  # a log-probability that a mean can be taken of, unlike −∞


def twins(graph: Graph) -> list[tuple[int, int]]:
    """All ordered pairs of nodes with the same edges, and at least one: same labels, same ways, same other ends."""
    edges_of: list[set[tuple[str, bool, int]]] = [set() for _ in graph.nodes]
    for source, label, target in graph.edges:
        edges_of[source].add((label, True, target))
        edges_of[target].add((label, False, source))
    alike: dict[frozenset[tuple[str, bool, int]], list[int]] = defaultdict(list)
    for node, edges in enumerate(edges_of):
        if edges:
            alike[frozenset(edges)].append(node)
    return [pair for group in alike.values() for pair in permutations(group, 2)]


def pooled(dist: GraphDistribution) -> GraphDistribution:
    """The distribution without the last edge label, which says that two slots are twins, after groups are pooled."""
    slots = (dist.node_log_probs.argmax(-1) != NULL) & dist.slots
    share = _groups(dist.edge_log_probs[..., -1], slots).to(dist.edge_log_probs.dtype)
    share = share / share.sum(-1, keepdim=True)  # (B, M, M), of each slot in its group
    edges = dist.edge_log_probs[..., :-1].clone()
    edges[..., NULL] = torch.logaddexp(edges[..., NULL], dist.edge_log_probs[..., -1])  # twins have no edge of a graph
    edges = torch.einsum("bij,bjke->bike", share, edges)
    edges = log_softmax(torch.einsum("blk,bike->bile", share, edges))
    valencies = dist.valency_log_probs
    if valencies is not None:
        valencies = log_softmax(torch.einsum("bij,bjwv->biwv", share, valencies.clamp(min=IMPOSSIBLE)))
    return replace(dist, edge_log_probs=edges, valency_log_probs=valencies)


def _groups(twin: Tensor, slots: Tensor) -> Tensor:
    """Which slots are in one group: twins, and twins of twins.   (B, M, M), (B, M) → (B, M, M)"""
    M = slots.shape[1]
    likely = (twin.exp() + twin.exp().transpose(1, 2)) / 2 > 0.5
    group = likely & slots[:, :, None] & slots[:, None, :] | torch.eye(M, dtype=torch.bool, device=slots.device)
    for _ in range(max(1, (M - 1).bit_length())):
        reached = group.float()
        group = reached @ reached > 0
    return group
