"""From a distribution to graphs: the likeliest label everywhere, then `null` nodes and their edges are removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from lagr.alternatives import Alternatives
from lagr.confidence import PLAIN, Calibration
from lagr.copying import tokens_at
from lagr.graph import Edge, Graph
from lagr.model import NULL, GraphDistribution, GraphLabels
from lagr.needs import completed, counts
from lagr.rules import Limits, Rulebook, broken, obey
from lagr.valency import Valencies, best_edges
from lagr.vocab import Vocabulary


@dataclass(frozen=True)
class Decoded:
    """A graph, with the probability of every node and edge and of the whole labelled graph it was read from."""

    graph: Graph
    node_probabilities: tuple[float, ...]
    edge_probabilities: tuple[float, ...]
    probability: float
    alternatives: Alternatives | None = None
    edges_together: bool = False  # edges were chosen to fit valencies, which overruled what some pairs say alone


def decode(
    dist: GraphDistribution,
    vocab: Vocabulary,
    calibration: Calibration = PLAIN,
    sentences: Sequence[Sequence[str]] | None = None,
    rules: Rulebook | None = None,
) -> list[Decoded]:
    """The likeliest graph of every sentence, its nodes in the order of their slots.

    Calibration changes the probabilities of what is found, not what is found. sentences: the tokens that labels may be
    copied from, where the vocabulary has copies. rules: what a user says of edges.
    All the work on slots and pairs is done on the device; the host sees the nodes and edges that are there.
    """
    node_best, edge_best = dist.node_log_probs.amax(-1), dist.edge_log_probs.amax(-1)
    # Null is the first label and wins ties, so something is there where the best is better than null. Only there does
    # it matter which label is best, and that is rare among pairs.
    occupied = (node_best > dist.node_log_probs[..., NULL]) & dist.slots
    joined = (edge_best > dist.edge_log_probs[..., NULL]) & occupied[:, :, None] & occupied[:, None, :]
    at_node, at_edge = occupied.nonzero(as_tuple=True), joined.nonzero(as_tuple=True)
    edge_labels = dist.edge_log_probs[at_edge].argmax(-1)
    tokens = tokens_at(zip(*(at.tolist() for at in at_node), strict=True), sentences, dist.slots.shape[1])
    names = list(map(vocab.node_label, dist.node_log_probs[at_node].argmax(-1).tolist(), tokens))
    limits = rules.of_each(names, occupied.sum(1).tolist()) if rules else None
    # Edges are chosen together, and not each pair by itself.
    together = limits is not None or dist.valency_log_probs is not None or bool(vocab.needs)
    if together:
        labels = torch.zeros_like(joined, dtype=torch.long)
        labels[at_edge] = edge_labels
    if dist.valency_log_probs is None:
        wholes = (node_best * dist.slots).sum(1) + (edge_best * dist.pairs).sum((1, 2))
        if together:
            likeliest, labels = labels, completed(dist, occupied, labels, vocab) if vocab.needs else labels.clone()
            if limits is not None:
                obey(dist, occupied, labels, limits)
            wholes = wholes - lost(dist, likeliest, labels)
    else:
        labels, numbers, chosen_again, unknown = agreeing(dist, occupied, labels, vocab, limits)
        wholes = dist.log_prob(GraphLabels(dist.node_log_probs.argmax(-1) * dist.slots, labels, numbers))
        # Where edges were chosen to fit valencies, what pairs say alone was overruled: the whole is as likely as its
        # nodes and valencies are, and an edge as the less likely valency at its two ends.
        of_valencies = dist.valency_log_probs.gather(-1, numbers[..., None])[..., 0]  # (B, M, 2)
        by_valencies = ((node_best + of_valencies.sum(2)) * dist.slots).sum(1)
        wholes = torch.where(chosen_again, by_valencies, wholes)
        if limits is not None:  # rules count more than valencies
            alone = dist.log_prob(GraphLabels(dist.node_log_probs.argmax(-1) * dist.slots, labels))
            wholes, chosen_again = torch.where(unknown, alone, wholes), chosen_again & ~unknown
    if together:
        joined = labels != NULL
        at_edge = joined.nonzero(as_tuple=True)
        edge_labels = labels[at_edge]
    overruled = [False] * len(occupied) if dist.valency_log_probs is None else chosen_again.tolist()
    number = occupied.cumsum(1) - 1  # of the node in a slot, among those of its sentence
    sentence, source, target = at_edge

    # What all sentences have, in one row each, of which every sentence takes its share.
    slots = iter(at_node[1].tolist())
    node_labels = iter(names)
    node_probabilities = iter(calibration.nodes(dist.node_log_probs[at_node]).amax(-1).tolist())
    edge_names = map(vocab.edge_label, edge_labels.tolist())
    edges = map(Edge, number[sentence, source].tolist(), edge_names, number[sentence, target].tolist())
    at_pairs = calibration.edges(dist.edge_log_probs[at_edge])
    of_edge = at_pairs.gather(-1, edge_labels[:, None])[:, 0]
    if dist.valency_log_probs is not None:
        of_ends = torch.minimum(of_valencies[sentence, source, 0], of_valencies[sentence, target, 1]).exp()
        of_edge = torch.where(chosen_again[sentence], of_ends.to(of_edge.dtype), of_edge)
    edge_probabilities = iter(of_edge.tolist())
    sizes = (occupied.sum(1).tolist(), joined.sum((1, 2)).tolist())
    found = []
    for n, e, whole, again in zip(*sizes, wholes.exp().tolist(), overruled, strict=True):
        graph = Graph(tuple(islice(node_labels, n)), tuple(islice(edges, e)), tuple(islice(slots, n)))
        of_nodes, of_edges = tuple(islice(node_probabilities, n)), tuple(islice(edge_probabilities, e))
        whole = calibration.whole(whole, of_nodes + of_edges)
        found.append(Decoded(graph, of_nodes, of_edges, whole, edges_together=again))
    return found


def agreeing(
    dist: GraphDistribution,
    occupied: Tensor,
    labels: Tensor,
    vocab: Vocabulary,
    limits: Sequence[Limits] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The edges, with those of some sentences chosen again: where their valencies are not the likeliest, or rules are
    broken; the valencies; in which sentences edges were chosen again; and in which their valencies are not known.

    → (B, M, M), (B, M, 2), (B,), (B,)
    """
    assert dist.valency_log_probs is not None
    E, known = len(vocab.edge_labels), Valencies(np.array(vocab.leaving), np.array(vocab.entering), vocab.most)
    tables = [torch.from_numpy(table).to(labels.device) for table in (known.leaving, known.entering)]
    numbers = dist.valency_log_probs.argmax(-1) * occupied[..., None]
    say = torch.stack([table[numbers[..., way]] for way, table in enumerate(tables)], dim=2)
    disagree = (counts(labels, E, vocab.most) != say).flatten(1).any(1)
    disagree[broken(labels, occupied, limits) if limits is not None else []] = True
    if not vocab.loops:
        disagree |= (labels.diagonal(dim1=1, dim2=2) != NULL).any(1)
    unknown = torch.zeros_like(disagree)
    for b in disagree.nonzero()[:, 0].tolist():
        at = occupied[b].nonzero()[:, 0]
        edges = dist.edge_log_probs[b][at][:, at].double().cpu().numpy()
        log_probs = dist.valency_log_probs[b, at].double().cpu().numpy()
        leaving, entering = (log_probs[:, way, :size] for way, size in enumerate(vocab.valency_sizes))
        gain = edges[..., 1:] - edges[..., :1]
        if not vocab.loops:
            gain[np.arange(len(at)), np.arange(len(at))] = -np.inf
        problem = gain, leaving, entering, known
        best = best_edges(*problem)
        if limits is not None and not limits[b].hold(best):
            best = limits[b].best_fitting(*problem)
        labels[b, at[:, None], at] = torch.from_numpy(np.ascontiguousarray(best)).to(labels.device)
        there = counts(labels[b : b + 1], E, vocab.most)[0]
        for way, table in enumerate(tables):
            same = (there[:, way, None] == table).all(2)
            numbers[b, :, way] = same.int().argmax(1)
            unknown[b] |= ~same.any(1).all()
    return labels, numbers, disagree, unknown


def lost(dist: GraphDistribution, likeliest: Tensor, labels: Tensor) -> Tensor:
    """What a choice of edges loses in log p against the likeliest ones.   (B, M, M) twice → (B,)"""
    one, other = (dist.edge_log_probs.gather(-1, chosen[..., None])[..., 0] for chosen in (likeliest, labels))
    return torch.where(likeliest == labels, 0.0, one - other).sum((1, 2))
