"""The n likeliest graphs of a sentence, in order.

A graph is what is left of a complete labelling once `null` nodes and their edges are removed, so many labellings are
one graph; its probability is that of the likeliest of them. Every label is charged what it loses against the best one
in its place:

    log p(graph) = log p(best graph) − Σ slots (loss of the node label) − Σ pairs of nodes (loss of the edge label)

A pair counts where both of its slots hold nodes; elsewhere the likeliest labelling has the best label, which loses
nothing. So node labels are ranked first, lazily, and each choice of them opens a ranking of edges that starts at its
own loss: the next graph is the first of the rankings that are open, or of the next one to be opened. This is exact. A
model with valencies (valency.py) chooses edges together; there the loss of edges is that of the choice as a whole, and
the ranking is exact as far as a limited number of programs goes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count as counter
from itertools import islice, tee
from typing import NamedTuple

import numpy as np
import torch

from lagr.confidence import PLAIN, Calibration
from lagr.decode import Decoded, decode
from lagr.graph import Edge, Graph
from lagr.model import NULL, GraphDistribution
from lagr.valency import NEVER, best_edges, total
from lagr.vocab import Vocabulary

EFFORT = 40  # integer programs for the edges between certain slots, of some hundredths of a second each


class Ranked(NamedTuple):
    """Labels, and what they lose against the best ones. Without labels: whatever comes next loses at least that."""

    loss: float
    labels: np.ndarray | None


class RankedGraph(NamedTuple):
    loss: float
    nodes: np.ndarray  # (M,)
    edges: np.ndarray  # (n, n), between the n slots that hold nodes


class Choice(NamedTuple):
    """Node labels, and the ranking of the edges between them, as far as it was followed."""

    loss: float
    nodes: np.ndarray
    ranking: Iterator[Ranked]


def nbest(
    dist: GraphDistribution, vocab: Vocabulary, count: int, calibration: Calibration = PLAIN
) -> list[list[Decoded]]:
    """Of every sentence up to `count` graphs, the likeliest first: the one that decoding finds.

    Fewer where there are no more that are possible at all.
    """
    firsts, plain = decode(dist, vocab, calibration), decode(dist, vocab)
    found = []
    for b, (first, raw) in enumerate(zip(firsts, plain, strict=True)):
        best, left = [first], 1 - first.probability
        for ranked in islice(_of_sentence(dist, b), 1, count):
            one = _decoded(dist, b, ranked, raw.probability * math.exp(-ranked.loss), vocab, calibration)
            # Calibration looks at each graph alone; together they can't be likelier than certain, nor in disorder.
            best.append(replace(one, probability=min(one.probability, best[-1].probability, left)))
            left -= best[-1].probability
        found.append(best)
    return found


def _of_sentence(dist: GraphDistribution, b: int) -> Iterator[RankedGraph]:
    here = dist.slots[b]
    nodes = dist.node_log_probs[b][here].double().cpu().numpy()
    edges = dist.edge_log_probs[b][here][:, here].double().cpu().numpy()
    numbers = None if dist.valency_log_probs is None else dist.valency_log_probs[b][here].double().cpu().numpy()

    def edges_between(occupied: np.ndarray) -> Iterator[Ranked]:
        between = edges[occupied][:, occupied]
        if numbers is None or not len(occupied):
            return ranked_labels(between)
        return ranked_edges(between[..., 1:] - between[..., :1], numbers[occupied, 0], numbers[occupied, 1])

    return ranked_graphs(nodes, edges_between)


def ranked_graphs(
    node_log_probs: np.ndarray, edges_between: Callable[[np.ndarray], Iterator[Ranked]]
) -> Iterator[RankedGraph]:
    """Graphs by their loss. edges_between: given the slots that hold nodes, the edges between them by their loss."""
    waiting: list[tuple[float, int, Choice, np.ndarray | None]] = []
    number = counter()  # decides between equal losses: the earlier one
    rankings: dict[bytes, Iterator[Ranked]] = {}  # never followed themselves, only copies of them

    def opened(choice: Ranked) -> Choice:
        """Choices that hold nodes in the same slots share what is found out about the edges."""
        assert choice.labels is not None
        occupied = np.flatnonzero(choice.labels != NULL)
        key = occupied.tobytes()
        rankings[key], own = tee(rankings[key] if key in rankings else edges_between(occupied))
        return Choice(choice.loss, choice.labels, own)

    def follow(choice: Choice) -> None:
        if (edges := next(choice.ranking, None)) is not None:
            heapq.heappush(waiting, (choice.loss + edges.loss, next(number), choice, edges.labels))

    choices = ranked_labels(node_log_probs)
    upcoming = next(choices, None)
    while upcoming is not None or waiting:
        if upcoming is not None and (not waiting or upcoming.loss <= waiting[0][0]):
            follow(opened(upcoming))
            upcoming = next(choices, None)
            continue
        loss, _, choice, edges = heapq.heappop(waiting)
        if edges is not None:
            yield RankedGraph(loss, choice.nodes, edges)
        follow(choice)


def ranked_labels(log_probs: np.ndarray) -> Iterator[Ranked]:
    """All choices of a label for every variable, by their loss; (…, labels) → labels (…).

    A choice is the variables that don't have their best label. With variables in the order of what their second label
    loses, each choice follows from exactly one that loses no more: the one with a better label for its last variable;
    where that has its second label, the one without it, if the variable before it is chosen too, or else the one with
    the variable before in its place.
    """
    shape, flat = log_probs.shape[:-1], log_probs.reshape(-1, log_probs.shape[-1])
    order = np.argsort(-flat, axis=1, kind="stable")  # null is the first label, and wins ties
    losses = flat.max(axis=1, keepdims=True, initial=-np.inf) - np.take_along_axis(flat, order, 1)
    best = order[:, 0] if flat.shape[1] else np.zeros(0, np.int64)
    second = losses[:, 1] if flat.shape[1] > 1 else np.full(len(flat), np.inf)
    variables = np.argsort(second, kind="stable")
    variables = variables[np.isfinite(second[variables])]
    losses = losses[variables]

    def labels(changed: tuple[tuple[int, int], ...]) -> np.ndarray:
        chosen = best.copy()
        for place, rank in changed:
            chosen[variables[place]] = order[variables[place], rank]
        return chosen.reshape(shape)

    waiting: list[tuple[float, tuple[tuple[int, int], ...]]] = [(0.0, ())]
    while waiting:
        loss, changed = heapq.heappop(waiting)
        yield Ranked(loss, labels(changed))
        *kept, (place, rank) = changed or ((-1, 0),)
        without = tuple(kept)
        own = losses[place, rank] if changed else 0.0
        if changed and rank + 1 < losses.shape[1] and np.isfinite(losses[place, rank + 1]):
            heapq.heappush(waiting, (loss - own + losses[place, rank + 1], (*without, (place, rank + 1))))
        if place + 1 < len(variables):
            following = losses[place + 1, 1]
            heapq.heappush(waiting, (loss + following, (*changed, (place + 1, 1))))
            if rank == 1:
                heapq.heappush(waiting, (loss - own + following, (*without, (place + 1, 1))))


Fixed = dict[tuple[int, int], int]  # pairs whose label is settled


def ranked_edges(gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray, effort: int = EFFORT) -> Iterator[Ranked]:
    """All choices of edges that `best_edges` chooses the best of, by their loss.   (n, n)

    After a choice is given, what is left falls into parts (Lawler 1972): the pairs before one are as in the choice, and
    that one has another given label. A part is solved when it comes up by the least that it can lose: what its new
    label loses, less what the best choice loses to labels that need not agree with numbers. Solving takes time, so
    that least loss is given before: who has something better to look at first need not wait. After `effort` parts the
    ranking ends, complete or not.
    """
    gain, leaving, entering = (np.maximum(np.nan_to_num(x, neginf=NEVER), NEVER) for x in (gain, leaving, entering))
    n = len(gain)
    free = np.concatenate([np.zeros((n, n, 1)), gain], axis=2)
    label_loss = free.max(2, keepdims=True) - free
    best = _solve(gain, leaving, entering, {})
    assert best is not None  # no edges at all are possible
    most = total(best, gain, leaving, entering)
    slack = free.max(2).sum() + leaving.max(2).sum() + entering.max(2).sum() - most
    pairs = [(i, j) for i in range(n) for j in range(n)]
    number = counter()
    waiting: list[tuple[float, int, Fixed, np.ndarray | None]] = [(0.0, next(number), {}, best)]
    while waiting:
        loss, _, fixed, labels = heapq.heappop(waiting)
        if labels is None:
            yield Ranked(loss, None)
            if (effort := effort - 1) < 0:
                return
            labels = _solve(gain, leaving, entering, fixed)
            if labels is not None:
                exact = max(loss, most - total(labels, gain, leaving, entering))
                heapq.heappush(waiting, (exact, next(number), fixed, labels))
            continue
        yield Ranked(loss, labels)
        settled = dict(fixed)
        for pair in pairs:
            if pair in fixed:
                continue
            for label in range(free.shape[2]):
                if label != labels[pair] and free[(*pair, label)] > NEVER:
                    least = max(loss, float(label_loss[(*pair, label)] - slack))
                    heapq.heappush(waiting, (least, next(number), {**settled, pair: label}, None))
            settled[pair] = int(labels[pair])


def _solve(gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray, fixed: Fixed) -> np.ndarray | None:
    """The best edges with some labels fixed; None where that is impossible.

    A fixed edge is taken out of the problem: its pair is closed, and the numbers of its ends count it already.
    """
    if fixed:
        gain, leaving, entering = gain.copy(), leaving.copy(), entering.copy()
        for (source, target), label in fixed.items():
            gain[source, target] = NEVER
            if label != NULL:
                for numbers in (leaving[source, label - 1], entering[target, label - 1]):
                    numbers[:-1], numbers[-1] = numbers[1:].copy(), NEVER
    labels = best_edges(gain, leaving, entering)
    if total(labels, gain, leaving, entering) <= NEVER / 2:
        return None
    for pair, label in fixed.items():
        labels[pair] = label
    return labels


def _decoded(
    dist: GraphDistribution, b: int, graph: RankedGraph, whole: float, vocab: Vocabulary, calibration: Calibration
) -> Decoded:
    """The graph with its probabilities. whole: that of its labels, before calibration."""
    slots = np.flatnonzero(graph.nodes != NULL)
    sources, targets = np.nonzero(graph.edges != NULL)
    node_labels, edge_labels = graph.nodes[slots], graph.edges[sources, targets]
    at_slots = calibration.nodes(dist.node_log_probs[b, torch.from_numpy(slots)])
    pairs = torch.from_numpy(slots[sources]), torch.from_numpy(slots[targets])
    at_pairs = calibration.edges(dist.edge_log_probs[(b, *pairs)])
    nodes = tuple(at_slots[range(len(slots)), node_labels].tolist())
    edges = tuple(at_pairs[range(len(sources)), edge_labels].tolist())
    found = Graph(
        tuple(map(vocab.node_label, node_labels.tolist())),
        tuple(map(Edge, sources.tolist(), map(vocab.edge_label, edge_labels.tolist()), targets.tolist())),
        tuple(slots.tolist()),
    )
    return Decoded(found, nodes, edges, calibration.whole(whole, nodes + edges))
