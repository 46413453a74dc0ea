"""Edges that all nodes of a label have in training, and that a parse should not lack.

In CFQ a predicate has an agent, and all but classes have a theme; no node stands alone. A parse that lacks such an edge
is wrong for sure, and the model knows which one is likeliest: that one is added. What training shows of a label fewer
than `least` times is not taken for a law. Neither is anything that a user's rules forbid: they are kept afterwards, and
where they change a sentence's edges, what was added to it is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lagr.model import NULL, GraphDistribution

if TYPE_CHECKING:
    from lagr.datasets import Example
    from lagr.vocab import Vocabulary

LEAVES, ENTERS = 0, 1


class Need(NamedTuple):
    """Of every node with that label, an edge with that label leaves it, or enters it; label 0: any edge, either way."""

    node: int
    way: int
    edge: int


def needs_of(examples: Sequence[Example], vocab: Vocabulary, least: int) -> tuple[Need, ...]:
    """What all nodes of a label have, where there are as many as `least` of them. Copied labels count as one label."""
    nodes: Counter[int] = Counter()
    found: Counter[Need] = Counter()
    for example in examples:
        graph = example.graph
        numbers = [vocab.copy if vocab.is_copied(label) else vocab.node_numbers[label] for label in graph.nodes]
        nodes.update(numbers)
        has = {(edge.source, LEAVES, vocab.edge_numbers[edge.label]) for edge in graph.edges}
        has |= {(edge.target, ENTERS, vocab.edge_numbers[edge.label]) for edge in graph.edges}
        has |= {(node, LEAVES, NULL) for node, _, _ in has}
        found.update(Need(numbers[node], way, label) for node, way, label in has)
    return tuple(sorted(need for need, times in found.items() if times == nodes[need.node] >= least))


def completed(dist: GraphDistribution, occupied: Tensor, labels: Tensor, vocab: Vocabulary) -> Tensor:
    """The edges, with those added that nodes need and lack, the likeliest each time.   (B, M), (B, M, M) → (B, M, M)

    labels: the likeliest edge of every pair. Of edges that are as likely, as those to twins are, all are added. Where
    training has no edge from a node to itself, there is none, and it meets no need.
    """
    labels = labels.clone()
    if not vocab.loops:
        labels.diagonal(dim1=1, dim2=2).zero_()
    E = dist.edge_log_probs.shape[-1]
    lacks = _lacks(dist.node_log_probs.argmax(-1) * occupied, labels, vocab)
    rows = lacks.flatten(1).any(1).nonzero()[:, 0]
    # All that is needed of these sentences at once: a few of many, and a device answers slowly.
    chosen, held, lacked = (some[rows].cpu().numpy() for some in (labels, occupied, lacks))
    for edges, log_probs, nodes_here, needs in zip(
        chosen, dist.edge_log_probs[rows].cpu().numpy(), held, lacked, strict=True
    ):
        needed = np.argwhere(needs).tolist()
        for node, way, edge in needed:
            if edge != NULL:
                _add(edges, log_probs, nodes_here, node, (way,), (edge,), vocab.loops)
        for node, _, edge in needed:
            if edge == NULL:  # and that it still stands alone is looked at there
                _add(edges, log_probs, nodes_here, node, (LEAVES, ENTERS), range(1, E), vocab.loops)
    labels[rows] = torch.from_numpy(chosen).to(labels.device)
    return labels


def lacking(nodes: np.ndarray, edges: np.ndarray, vocab: Vocabulary) -> bool:
    """Whether a graph, given by the labels of n nodes and n·n pairs, is none that `completed` would leave."""
    if not vocab.loops and edges.diagonal().any():
        return True
    return bool(_lacks(torch.from_numpy(nodes)[None], torch.from_numpy(edges)[None], vocab).any())


def _lacks(nodes: Tensor, labels: Tensor, vocab: Vocabulary) -> Tensor:
    """What each node needs and lacks: null for any edge.   (B, M), (B, M, M) → (B, M, 2, E)"""
    E = len(vocab.edge_labels)
    needed = torch.zeros(vocab.sizes[1], 2, E + 1, dtype=torch.bool, device=labels.device)
    needed[tuple(torch.tensor(vocab.needs, device=labels.device).view(-1, 3).T)] = True
    there = counts(labels, E, 0) > 0
    some = there.any(-1).any(-1)[..., None, None].expand(-1, -1, 2, 1)
    return needed[nodes] & ~torch.cat([some, there], dim=-1)


def counts(edges: Tensor, labels: int, most: int) -> Tensor:
    """How many edges of each label but null leave a slot, and how many enter it.   (B, M, M) → (B, M, 2, E − 1)"""
    both = torch.stack([edges, edges.transpose(1, 2)], dim=2)  # (B, M, 2, M)
    found = edges.new_zeros(*both.shape[:3], labels + 1).scatter_add_(3, both, torch.ones_like(both))[..., 1:]
    return found.clamp(max=most) if most else found


def _add(
    chosen: np.ndarray,
    log_probs: np.ndarray,
    held: np.ndarray,
    node: int,
    ways: Sequence[int],
    edges: Sequence[int],
    loops: bool,
) -> None:
    """Gives the node an edge of one of these labels, leaving or entering it, if it has none.

    chosen (M, M), log_probs (M, M, E); held (M,): the slots that hold nodes.
    """
    views = [
        (chosen[node], log_probs[node]) if way == LEAVES else (chosen[:, node], log_probs[:, node]) for way in ways
    ]
    if any((labels == edge).any() for labels, _ in views for edge in edges):
        return
    gains = []
    for labels, its in views:
        free = held & (labels == NULL)  # only where there is no edge: what is there may be what another node needs
        free[node] &= loops
        gains.append(np.where(free[:, None], its[:, edges] - its[:, :1], -np.inf))
    best = max(gain.max() for gain in gains)
    if np.isfinite(best):
        for (labels, _), gain in zip(views, gains, strict=True):
            for other, which in np.argwhere(gain == best).tolist():
                labels[other] = edges[which]
