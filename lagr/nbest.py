"""The n likeliest graphs of a sentence, in order.

A graph is what is left of a complete labelling once `null` nodes and their edges are removed, so many labellings are
one graph; its probability is that of the likeliest of them. Every label is charged what it loses against the best one
in its place:

    log p(graph) = log p(best graph) − Σ slots (loss of the node label) − Σ pairs of nodes (loss of the edge label)

A pair counts where both of its slots hold nodes; elsewhere the likeliest labelling has the best label, which loses
nothing. So node labels are ranked first, lazily, and each choice of them opens a ranking of edges that starts at its
own loss: the next graph is the first of the rankings that are open, or of the next one to be opened. This is exact.

A model with valencies chooses edges together, by what valency.py maximises. That is then what ranks graphs, and of all
edges with the same valencies the best ones alone are given. Decoding, which settles the nodes first, has the first
word; the search for others is limited.

Rules that a user states (rules.py) are about edges between nodes of certain labels: then each choice of node labels has
a ranking of its own, of the edges that keep them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count as counter
from itertools import islice, tee
from typing import NamedTuple

import numpy as np
import torch

from lagr.confidence import PLAIN, Calibration
from lagr.copying import tokens_at
from lagr.decode import Decoded, decode
from lagr.graph import Edge, Graph
from lagr.model import NULL, GraphDistribution
from lagr.naming import Names, shared_out
from lagr.needs import lacking
from lagr.rules import MOST, Limits, Rulebook
from lagr.valency import EDGE_WEIGHT, Effort, Valencies, best_choices
from lagr.vocab import Vocabulary

# With valencies: how far the search goes for the edges between certain slots, and how many node labels it looks at.
EFFORT, MOST_CHOICES = Effort(reach=math.inf, tries=32, steps=20_000), 100
MOST_BROKEN = 1_000  # with rules, needs or an order of names: graphs that are looked at for those that keep them
MOST_CLASHES = 10_000  # node labels that are passed over because a name comes twice


class Ranked(NamedTuple):
    """Labels, and what they lose against the best ones."""

    loss: float
    labels: np.ndarray


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
    dist: GraphDistribution,
    vocab: Vocabulary,
    count: int,
    calibration: Calibration = PLAIN,
    sentences: Sequence[Sequence[str]] | None = None,
    rules: Rulebook | None = None,
    names: Names | None = None,
) -> list[list[Decoded]]:
    """Of every sentence up to `count` graphs, the likeliest first: the one that decoding finds.

    Fewer where there are no more that are possible at all. sentences: the tokens that labels may be copied from. names:
    those of variables, which fit together in every graph, if they can in the first.
    """
    alone = dist.valency_log_probs is None  # labels are, so that every graph's probability follows from the best one's
    firsts = shared_out(dist, lambda named: decode(named, vocab, calibration, sentences, rules), names)[1]
    plain = decode(dist, replace(vocab, needs=()), PLAIN, sentences, None if alone else rules)
    found = []
    for b, (first, raw) in enumerate(zip(firsts, plain, strict=True)):
        best, left, seen, broken = [first], 1 - first.probability, {_key(first.graph)}, 0
        ranking, least = _of_sentence(dist, b, vocab, count, sentences, rules, names), 0.0 if alone else None
        while len(best) < count and (ranked := next(ranking, None)) is not None:
            least = ranked.loss if least is None else least
            if broken == MOST_BROKEN:
                break
            if vocab.needs and lacking(ranked.nodes[ranked.nodes != NULL], ranked.edges, vocab):
                broken += 1
                continue
            whole = raw.probability * math.exp(least - ranked.loss)
            one = _decoded(dist, b, ranked, whole, vocab, calibration, sentences)
            if names is not None and not names.are_in_order(one.graph):
                broken += 1
                continue
            if _key(one.graph) in seen:  # the first, or a label that is one of the vocabulary and copied too
                continue
            seen.add(_key(one.graph))
            # Calibration looks at each graph alone; together they can't be likelier than certain, nor in disorder.
            best.append(replace(one, probability=min(one.probability, best[-1].probability, left)))
            left -= best[-1].probability
        found.append(best)
    return found


def _without_clashes(choices: Iterator[Ranked], names: Sequence[int]) -> Iterator[Ranked]:
    """The choices in which none of these labels comes twice."""
    clashes = 0
    for choice in choices:
        named = choice.labels[np.isin(choice.labels, names)]
        if len(np.unique(named)) == len(named):
            yield choice
        elif (clashes := clashes + 1) == MOST_CLASHES:
            return


def _key(graph: Graph) -> tuple[object, ...]:
    """What tells graphs apart here: slots count, unlike where graphs are compared."""
    return graph.nodes, graph.slots, graph.edges


def _of_sentence(
    dist: GraphDistribution,
    b: int,
    vocab: Vocabulary,
    count: int,
    sentences: Sequence[Sequence[str]] | None = None,
    rules: Rulebook | None = None,
    names: Names | None = None,
) -> Iterator[RankedGraph]:
    here = dist.slots[b]
    nodes = dist.node_log_probs[b][here].double().cpu().numpy()
    labels_of_nodes = ranked_labels(nodes)
    if names is not None:
        labels_of_nodes = _without_clashes(labels_of_nodes, names.labels)
    edges = dist.edge_log_probs[b][here][:, here].double().cpu().numpy()

    def limits_of(labels: np.ndarray) -> Limits | None:
        if rules is None:
            return None
        slots = np.flatnonzero(labels != NULL).tolist()
        tokens = tokens_at(((b, slot) for slot in slots), sentences, dist.slots.shape[1])
        return rules.of(list(map(vocab.node_label, labels[slots].tolist(), tokens)))

    def independently(labels: np.ndarray) -> Iterator[Ranked]:
        slots, limits = np.flatnonzero(labels != NULL), limits_of(labels)
        between = edges[slots][:, slots]
        return ranked_labels(between) if limits is None else ranked_within(between, limits)

    if dist.valency_log_probs is None:
        return ranked_graphs(labels_of_nodes, independently, rules is not None)
    numbers = dist.valency_log_probs[b][here].double().cpu().numpy()
    leaving, entering = (numbers[:, way, :size] for way, size in enumerate(vocab.valency_sizes))
    known = Valencies(np.array(vocab.leaving), np.array(vocab.entering), vocab.most)
    gain = edges[..., 1:] - edges[..., :1]
    # Nothing leaves or enters an empty slot; valencies and edges alike lose against the best that each could be.
    if_empty = sum(x.max(1) - x[:, 0] for x in (leaving, entering))
    most = EDGE_WEIGHT * np.maximum(gain, 0).max(2, initial=0).sum()

    def with_valencies(labels: np.ndarray) -> Iterator[Ranked]:
        slots, limits = np.flatnonzero(labels != NULL), limits_of(labels)
        lost = most + np.delete(if_empty, slots).sum()
        if not len(slots):
            yield Ranked(lost, np.zeros((0, 0), np.int64))
            return
        problem = gain[slots][:, slots], leaving[slots], entering[slots], known, count, EFFORT
        for worth, chosen in best_choices(*problem) if limits is None else limits.choices(*problem):
            yield Ranked(lost - worth, chosen)

    return ranked_graphs(islice(labels_of_nodes, MOST_CHOICES), with_valencies, rules is not None)


def ranked_within(log_probs: np.ndarray, limits: Limits) -> Iterator[Ranked]:
    """The edges between some nodes that keep the rules, by their loss against the best edges of all."""
    allowed = log_probs.copy()
    allowed[..., 1:][~limits.allowed] = -np.inf
    allowed[..., NULL] = np.maximum(allowed[..., NULL], -MOST)
    cost, best = float((log_probs.max(-1) - allowed.max(-1)).sum()), allowed.argmax(-1)
    if not limits.hold(best):
        best = limits.best_edges(log_probs[..., 1:] - log_probs[..., :1])
        its = np.take_along_axis(np.maximum(log_probs, -MOST), best[..., None], 2)[..., 0]
        yield Ranked(float((log_probs.max(-1) - its).sum()), best)
    for ranked in islice(ranked_labels(allowed), MOST_BROKEN):
        if limits.hold(ranked.labels):
            yield Ranked(ranked.loss + cost, ranked.labels)


def ranked_graphs(
    choices: Iterator[Ranked], edges_between: Callable[[np.ndarray], Iterator[Ranked]], by_label: bool = False
) -> Iterator[RankedGraph]:
    """Graphs by their loss.

    choices: node labels by theirs. edges_between: given the labels of all slots, the edges between nodes by theirs.
    by_label: these edges depend on the labels, and not only on which slots hold nodes.
    """
    waiting: list[tuple[float, int, Choice, np.ndarray]] = []
    number = counter()  # decides between equal losses: the earlier one
    rankings: dict[bytes, Iterator[Ranked]] = {}  # never followed themselves, only copies of them

    def opened(choice: Ranked) -> Choice:
        """Choices that hold nodes in the same slots share what is found out about the edges."""
        key = (choice.labels if by_label else choice.labels != NULL).tobytes()
        rankings[key], own = tee(rankings[key] if key in rankings else edges_between(choice.labels))
        return Choice(choice.loss, choice.labels, own)

    def follow(choice: Choice) -> None:
        if (edges := next(choice.ranking, None)) is not None:
            heapq.heappush(waiting, (choice.loss + edges.loss, next(number), choice, edges.labels))

    upcoming = next(choices, None)
    while upcoming is not None or waiting:
        if upcoming is not None and (not waiting or upcoming.loss <= waiting[0][0]):
            follow(opened(upcoming))
            upcoming = next(choices, None)
            continue
        loss, _, choice, edges = heapq.heappop(waiting)
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


def _decoded(
    dist: GraphDistribution,
    b: int,
    graph: RankedGraph,
    whole: float,
    vocab: Vocabulary,
    calibration: Calibration,
    sentences: Sequence[Sequence[str]] | None,
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
    tokens = tokens_at(((b, slot) for slot in slots.tolist()), sentences, dist.slots.shape[1])
    found = Graph(
        tuple(map(vocab.node_label, node_labels.tolist(), tokens)),
        tuple(map(Edge, sources.tolist(), map(vocab.edge_label, edge_labels.tolist()), targets.tolist())),
        tuple(slots.tolist()),
    )
    return Decoded(found, nodes, edges, calibration.whole(whole, nodes + edges))
