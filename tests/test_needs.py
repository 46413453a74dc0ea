"""Edges that a parse should not lack."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from lagr.config import Rules
from lagr.datasets import Example
from lagr.decode import decode
from lagr.graph import Edge, Graph
from lagr.model import NULL, GraphDistribution, GraphLabels
from lagr.nbest import nbest
from lagr.needs import ENTERS, LEAVES, Need, lacking, needs_of
from lagr.rules import rulebook
from lagr.vocab import Vocabulary

ASKS, NAME, LONELY = "asks", "name", "lonely"


def example(*edges: tuple[int, str, int], nodes: tuple[str, ...] = (NAME, ASKS, NAME, LONELY)) -> Example:
    return Example(tuple("abcd"), Graph(nodes, tuple(Edge(*edge) for edge in edges)))


def vocabulary(least: int = 2) -> Vocabulary:
    """Something is always asked by a name, and of a name; names have some edge, and what is lonely may have none."""
    examples = [
        example((0, "agent", 1), (1, "theme", 2)),
        example((0, "agent", 1), (1, "theme", 2), (1, "theme", 0), (3, "agent", 1)),
    ]
    return Vocabulary.of(examples, needs=least)


def test_needs_are_what_all_nodes_of_a_label_have() -> None:
    vocab = vocabulary()
    agent, theme = (vocab.edge_numbers[label] for label in ("agent", "theme"))
    asks, name = (vocab.node_numbers[label] for label in (ASKS, NAME))
    assert set(vocab.needs) == {
        Need(asks, ENTERS, agent), Need(asks, LEAVES, theme), Need(asks, LEAVES, NULL), Need(name, LEAVES, NULL)
    }  # fmt: skip
    assert {need.node for need in vocabulary(least=3).needs} == {name}  # there are four names
    assert vocabulary(least=5).needs == ()
    assert Vocabulary.from_json(vocab.to_json()) == vocab


def test_copied_labels_share_their_needs() -> None:
    examples = [example((0, "agent", 1), (1, "theme", 2), nodes=("a", ASKS, word, LONELY)) for word in ("b", "c")]
    vocab = Vocabulary.of(examples, copied={"a", "b", "c"})
    assert Need(vocab.copy, LEAVES, NULL) in needs_of(examples, vocab, 4)
    assert all(need.node != vocab.copy for need in needs_of(examples, vocab, 5))


def distribution(vocab: Vocabulary, labels: list[str], edges: torch.Tensor) -> GraphDistribution:
    nodes = torch.full((1, len(labels), vocab.sizes[1]), -9.0)
    for slot, label in enumerate(labels):
        nodes[0, slot, vocab.node_numbers[label] if label else NULL] = 9.0
    return GraphDistribution.from_logits(nodes, edges, torch.ones(1, len(labels), dtype=torch.bool))


@pytest.mark.parametrize("seed", range(30))
def test_a_single_need_is_met_by_the_likeliest_graph_that_meets_it(seed: int) -> None:
    vocab = vocabulary()
    asks, theme = vocab.node_numbers[ASKS], vocab.edge_numbers["theme"]
    vocab = replace(vocab, needs=(Need(asks, LEAVES, theme),))
    torch.manual_seed(seed)
    dist = distribution(vocab, [NAME, ASKS, "", NAME], torch.randn(1, 4, 4, 3) + torch.tensor([1.0, 0.0, 0.0]))
    (found,) = decode(dist, vocab)
    slots = (0, 1, 3)

    def worth(labels: dict[tuple[int, int], int]) -> float:
        return sum(float(dist.edge_log_probs[0, s, t, label]) for (s, t), label in labels.items())

    pairs = list(product(slots, slots))
    likeliest = {pair: int(dist.edge_log_probs[(0, *pair)].argmax()) for pair in pairs}
    best = likeliest | {(slot, slot): NULL for slot in slots}  # training has no edge from a node to itself
    with_one = [best | {(1, t): theme} for t in slots if t != 1 and best[1, t] == NULL]
    meets = [labels for labels in (best, *with_one) if any(labels[1, t] == theme for t in slots)]
    expected = max(meets or [best], key=worth)
    edges = {(slots[e.source], slots[e.target]): vocab.edge_numbers[e.label] for e in found.graph.edges}
    assert edges == {pair: label for pair, label in expected.items() if label != NULL}
    plain = decode(dist, replace(vocab, needs=()))[0].probability
    assert found.probability / plain == pytest.approx(2.718281828 ** (worth(expected) - worth(likeliest)), rel=1e-4)


@pytest.mark.parametrize("seed", range(40))
def test_no_node_lacks_what_it_needs_and_no_edge_goes(seed: int) -> None:
    vocab = vocabulary()
    torch.manual_seed(seed)
    logits = torch.randn(1, 5, 5, 3) + torch.tensor([3.0, 0.0, 0.0])  # most pairs have no edge
    dist = distribution(vocab, [NAME, ASKS, NAME, LONELY, ASKS], logits)
    (found,) = decode(dist, vocab)
    for number, label in enumerate(found.graph.nodes):
        leaving = {edge.label for edge in found.graph.edges if edge.source == number}
        entering = {edge.label for edge in found.graph.edges if edge.target == number}
        if label == NAME:
            assert leaving or entering
        if label == ASKS:
            assert "theme" in leaving and "agent" in entering
    plain = decode(dist, replace(vocab, needs=()))[0].graph
    assert {edge for edge in plain.edges if edge.source != edge.target} <= set(found.graph.edges)
    assert all(edge.source != edge.target for edge in found.graph.edges)  # training has none such


def test_what_lacks_nothing_stays_and_one_node_alone_has_no_edge_to_add() -> None:
    vocab = vocabulary()
    agent, theme = (vocab.edge_numbers[label] for label in ("agent", "theme"))
    logits = torch.zeros(1, 3, 3, 3)
    logits[..., NULL] = 4.0
    logits[0, 0, 1, agent] = logits[0, 1, 2, theme] = 9.0
    dist = distribution(vocab, [NAME, ASKS, NAME], logits)
    assert decode(dist, vocab) == decode(dist, replace(vocab, needs=()))
    (alone,) = decode(distribution(vocab, [ASKS], torch.zeros(1, 1, 1, 3)), vocab)
    assert alone.graph.edges == ()


def test_edges_that_are_as_likely_are_all_added() -> None:
    vocab = vocabulary()
    theme = vocab.edge_numbers["theme"]
    logits = torch.zeros(1, 4, 4, 3)
    logits[..., NULL] = 6.0
    logits[0, 0, 1, vocab.edge_numbers["agent"]] = 9.0
    logits[0, 1, 2:, theme] = 3.0  # two of a list
    (found,) = decode(distribution(vocab, [NAME, ASKS, NAME, NAME], logits), vocab)
    assert set(found.graph.edges) == {Edge(0, "agent", 1), Edge(1, "theme", 2), Edge(1, "theme", 3)}


@pytest.mark.parametrize("seed", range(5))
def test_of_several_graphs_none_lacks_what_its_nodes_need(seed: int) -> None:
    vocab = vocabulary()
    torch.manual_seed(seed)
    logits = torch.randn(1, 3, 3, 3) + torch.tensor([3.0, 0.0, 0.0])
    dist = distribution(vocab, [NAME, ASKS, NAME], logits)
    first, *others = nbest(dist, vocab, 4)[0]
    assert first == decode(dist, vocab)[0] and len(others) == 3
    least = 1.0
    for one in (first, *others):
        labels = torch.zeros(3, 3, dtype=torch.long)
        for source, label, target in one.graph.edges:
            labels[source, target] = vocab.edge_numbers[label]
        numbers = [vocab.node_numbers[label] for label in one.graph.nodes]
        assert not lacking(np.array(numbers), labels.numpy(), vocab)
        nodes = torch.tensor([numbers])
        whole = dist.log_prob(GraphLabels(nodes, labels[None])).exp().item()
        # Edges are added one by one, so that another graph may be likelier than the first; none is said to be.
        least = min(least, whole)
        assert one.probability == pytest.approx(least, rel=1e-3)


def test_an_edge_to_itself_is_no_edge_that_is_needed() -> None:
    vocab = vocabulary()
    agent, theme = (vocab.edge_numbers[label] for label in ("agent", "theme"))
    logits = torch.zeros(1, 3, 3, 3)
    logits[..., NULL] = 4.0
    logits[0, 1, 1, theme] = 9.0  # what training never has
    logits[0, 0, 1, agent], logits[0, 1, 2, theme] = 9.0, 3.0
    (found,) = decode(distribution(vocab, [NAME, ASKS, NAME], logits), vocab)
    assert set(found.graph.edges) == {Edge(0, "agent", 1), Edge(1, "theme", 2)}


def test_rules_come_after_needs_and_nothing_is_charged_twice() -> None:
    vocab = vocabulary()
    torch.manual_seed(0)
    dist = distribution(vocab, [NAME, ASKS, NAME], torch.randn(1, 3, 3, 3) + torch.tensor([3.0, 0.0, 0.0]))
    forbids = rulebook(Rules(leaving=((ASKS, "*", "0"), (NAME, "*", "0"))), vocab)
    with_needs, without = (decode(dist, known, rules=forbids)[0] for known in (vocab, replace(vocab, needs=())))
    assert with_needs == without and with_needs.graph.edges == ()
    allows = rulebook(Rules(entering=(("*", "*", "0-9"),)), vocab)
    assert decode(dist, vocab, rules=allows) == decode(dist, vocab)
