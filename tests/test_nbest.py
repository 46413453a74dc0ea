from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lagr.confidence import Calibration
from lagr.decode import Decoded, decode
from lagr.model import GraphDistribution, GraphLabels, log_softmax
from lagr.naming import Names, with_names_once
from lagr.nbest import _of_sentence, nbest, ranked_labels
from lagr.valency import EDGE_WEIGHT
from lagr.vocab import Vocabulary


def distribution(seed: int, slots: int, V: int, E: int, valency: int = 0, scale: float = 1.5) -> GraphDistribution:
    generator = torch.Generator().manual_seed(seed)

    def logits(*shape: int) -> torch.Tensor:
        return log_softmax(scale * torch.randn(*shape, generator=generator))

    numbers = logits(1, slots, 2, (valency + 1) ** (E - 1)) if valency else None
    return GraphDistribution(
        logits(1, slots, V), logits(1, slots, slots, E), torch.ones(1, slots, dtype=torch.bool), numbers
    )


def vocabulary(V: int, E: int, valency: int = 0) -> Vocabulary:
    tables = tuple(product(range(valency + 1), repeat=E - 1)) if valency else ()
    names = (tuple(f"{kind}{i}" for i in range(1, size)) for kind, size in (("n", V), ("e", E)))
    return Vocabulary((), *names, leaving=tables, entering=tables)


Key = tuple[tuple[str, ...], tuple[int, ...] | None, frozenset[tuple[int, str, int]]]


def key(decoded: Decoded) -> Key:
    return decoded.graph.nodes, decoded.graph.slots, frozenset(map(tuple, decoded.graph.edges))


def all_graphs(dist: GraphDistribution) -> dict[Key, float]:
    """Every graph with the log-probability of its likeliest complete labelling, by going through all of those."""
    _, M, V = dist.node_log_probs.shape
    E = dist.edge_log_probs.shape[-1]
    labellings = list(product(product(range(V), repeat=M), product(range(E), repeat=M * M)))
    nodes = torch.tensor([nodes for nodes, _ in labellings])
    edges = torch.tensor([edges for _, edges in labellings]).view(-1, M, M)
    many = GraphDistribution(
        dist.node_log_probs.double().expand(len(nodes), -1, -1),
        dist.edge_log_probs.double().expand(len(nodes), -1, -1, -1),
        dist.slots.expand(len(nodes), -1),
    )
    best: dict[Key, float] = {}
    for (z, xi), found in zip(labellings, many.log_prob(GraphLabels(nodes, edges)).tolist(), strict=True):
        held = [slot for slot in range(M) if z[slot]]
        joined = [(i, xi[a * M + c], j) for i, a in enumerate(held) for j, c in enumerate(held)]
        graph = (
            tuple(f"n{z[slot]}" for slot in held),
            tuple(held),
            frozenset((i, f"e{label}", j) for i, label, j in joined if label),
        )
        best[graph] = max(found, best.get(graph, -np.inf))
    return best


@pytest.mark.parametrize(("slots", "V", "E"), [(1, 3, 3), (2, 4, 3), (3, 2, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_the_n_best_are_those_of_going_through_all(slots: int, V: int, E: int, seed: int) -> None:
    dist = distribution(seed, slots, V, E)
    wanted = sorted(all_graphs(dist).items(), key=lambda item: -item[1])
    [found] = nbest(dist, vocabulary(V, E), len(wanted) + 5)
    assert len(found) == len(wanted)  # all graphs, and no more
    assert len({key(one) for one in found}) == len(found)
    assert [np.log(one.probability) for one in found] == pytest.approx([p for _, p in wanted], abs=1e-4)
    for one in found:
        assert np.log(one.probability) == pytest.approx(dict(wanted)[key(one)], abs=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_with_names_the_others_are_the_likeliest_graphs_that_have_none_twice(seed: int) -> None:
    dist, vocab, names = distribution(seed, 3, 4, 2), vocabulary(4, 2), (1, 2)

    def has_one_twice(graph: Key) -> bool:
        return any(graph[0].count(f"n{name}") > 1 for name in names)

    every = all_graphs(dist)
    [(first, *others)] = nbest(dist, vocab, len(every), names=Names(names, vocab))
    assert first == decode(with_names_once(dist, names), vocab)[0]
    wanted = {graph: p for graph, p in every.items() if not has_one_twice(graph) and graph != key(first)}
    assert {key(one) for one in others} == set(wanted) and len(others) == len(wanted) < len(every)
    in_order = [wanted[key(one)] for one in others]
    assert in_order == pytest.approx(sorted(in_order, reverse=True), abs=1e-4)


@pytest.mark.parametrize("names", [2, 6])
def test_names_that_clash_do_not_keep_others_from_being_found(names: int) -> None:
    """Six slots that are almost sure to have a name, all as likely: with two names, no graph has them all."""
    random = np.random.default_rng(0)
    likely = random.dirichlet(np.full(names, 100.0), 6) * 0.999
    nodes = torch.tensor(np.log(np.concatenate([np.full((6, 1), 0.001), likely], axis=1)))[None]
    edges = torch.tensor([0.999, 0.001]).log().expand(1, 6, 6, 2)
    dist = GraphDistribution(nodes, edges, torch.ones(1, 6, dtype=torch.bool))
    vocab = vocabulary(names + 1, 2)
    [(first, *others)] = nbest(dist, vocab, 20, names=Names(tuple(range(1, names + 1)), vocab))
    if names == 2:
        assert len(first.graph.nodes) == 6  # more slots than names: all stays
        assert all(len(set(one.graph.nodes)) == len(one.graph.nodes) for one in others)
    else:
        assert len(others) == 19 and all(sorted(one.graph.nodes) == sorted(first.graph.nodes) for one in others)


@pytest.mark.parametrize("valency", [0, 2])
def test_the_first_of_the_n_best_is_what_decoding_finds(valency: int) -> None:
    for seed in range(3):
        dist, vocab = distribution(seed, 3, 3, 3, valency, scale=3), vocabulary(3, 3, valency)
        calibration = Calibration(1.7, 0.6, 0.8, 3.0)
        [found], [first] = nbest(dist, vocab, 5, calibration), decode(dist, vocab, calibration)
        assert found[0] == first and len({key(one) for one in found}) == 5
        probabilities = [one.probability for one in found]
        assert probabilities == sorted(probabilities, reverse=True) and sum(probabilities) <= 1 + 1e-9


@given(st.integers(0, 10_000), st.integers(0, 4), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_independent_labels_are_ranked_as_if_all_were_sorted(seed: int, variables: int, labels: int) -> None:
    random = np.random.default_rng(seed)
    log_probs = np.log(random.dirichlet(np.ones(labels), variables)) if variables else np.zeros((0, labels))
    if labels > 1 and variables:
        log_probs[0, 1] = -np.inf  # what is impossible is never given
    found = list(ranked_labels(log_probs))
    best = log_probs.max(1).sum()
    wanted = [sum(log_probs[range(variables), list(c)]) for c in product(range(labels), repeat=variables)]
    wanted = sorted(best - score for score in wanted if np.isfinite(score))
    assert [loss for loss, _ in found] == pytest.approx(wanted)
    assert len({tuple(chosen.tolist()) for _, chosen in found}) == len(wanted)
    for loss, chosen in found:
        assert best - log_probs[range(variables), chosen].sum() == pytest.approx(loss)


def test_with_valencies_graphs_are_ranked_by_what_decoding_maximises() -> None:
    """All graphs of two nodes, the best for each way of valencies; what is in an empty slot has none."""
    for seed in range(4):
        dist, vocab = distribution(seed, 2, 2, 2, valency=1), vocabulary(2, 2, valency=1)
        nodes, edges = dist.node_log_probs[0].double(), dist.edge_log_probs[0].double()
        assert dist.valency_log_probs is not None
        numbers = dist.valency_log_probs[0].double()
        best: dict[Any, float] = {}
        for z, xi in product(product(range(2), repeat=2), product(range(2), repeat=4)):
            joined = torch.tensor(xi).view(2, 2)
            if not all(z[a] and z[c] for a, c in joined.nonzero().tolist()) or joined.sum(0).max() > 1:
                continue
            if joined.sum(1).max() > 1:
                continue
            ways = joined.sum(1), joined.sum(0)
            score = sum(nodes[slot, z[slot]] for slot in range(2))
            score += sum(numbers[slot, way, ways[way][slot]] for slot in range(2) for way in range(2))
            score += EDGE_WEIGHT * ((edges[..., 1] - edges[..., 0]) * joined).sum()
            key = (z, *(tuple(way.tolist()) for way in ways))
            best[key] = max(float(score), best.get(key, -np.inf))
        ranked = list(_of_sentence(dist, 0, vocab, 50))
        losses = [one.loss for one in ranked]
        assert losses == pytest.approx([max(best.values()) - score + losses[0] for score in sorted(best.values(), reverse=True)])  # fmt: skip
        assert len(nbest(dist, vocab, 50)[0]) == len(best)


def test_impossible_graphs_are_not_among_the_n_best() -> None:
    nodes = torch.tensor([[[0.0, -torch.inf]]])  # null for sure
    dist = GraphDistribution(nodes, torch.zeros(1, 1, 1, 1), torch.ones(1, 1, dtype=torch.bool))
    [found] = nbest(dist, vocabulary(2, 1), 10)
    assert len(found) == 1 and found[0].graph.nodes == () and found[0].probability == 1
