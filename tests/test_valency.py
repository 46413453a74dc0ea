"""Edges and valencies chosen together, against all possible graphs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lagr import config, valency
from lagr.datasets import Example, open_source
from lagr.decode import decode
from lagr.graph import Edge, Graph
from lagr.model import GraphDistribution, GraphLabels
from lagr.needs import counts
from lagr.parser import load
from lagr.train import train
from lagr.vocab import Vocabulary

Problem = tuple[np.ndarray, np.ndarray, np.ndarray, valency.Valencies]


def worth(
    labels: np.ndarray, gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray, known: valency.Valencies
) -> float:
    """How likely the valencies of some edges are, with what the edges gain; −∞ if a valency is not known."""
    chosen, likely = labels[..., None] == np.arange(1, gain.shape[2] + 1), 0.0
    for log_probs, table, numbers in (
        (leaving, known.leaving, chosen.sum(1)),
        (entering, known.entering, chosen.sum(0)),
    ):
        numbers = np.minimum(numbers, known.most) if known.most else numbers
        same = (numbers[:, None] == table[None]).all(2)  # (n, valencies)
        likely += float(log_probs[same].sum()) if same.any(1).all() else -np.inf
    return likely + valency.EDGE_WEIGHT * float(gain[chosen].sum())


def by_brute_force(*problem: Any) -> float:
    n, _, E = problem[0].shape
    return max(worth(np.reshape(labels, (n, n)), *problem) for labels in itertools.product(range(E + 1), repeat=n * n))


ALL = valency.Effort(np.inf, tries=10**6, states=10**6, options=10**6, steps=np.inf, programs=10**6, seconds=60)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def random_problem(n: int, E: int, most: int, sharpness: float, seed: int, or_more: bool) -> Problem:
    """Some of the valencies that are possible, that of no edges always among them."""
    rng = np.random.default_rng(seed)
    gain = sharpness * rng.normal(size=(n, n, E)) - 1
    tables = []
    for _ in range(2):
        every = np.array(list(itertools.product(range(most + 1), repeat=E)))[1:]
        some = rng.permutation(every)[: max(1, round(len(every) * rng.random()))]
        tables.append(np.concatenate([np.zeros((1, E), np.int64), some]))
    leaving, entering = (log_softmax(sharpness * rng.normal(size=(n, len(table)))) for table in tables)
    return gain, leaving, entering, valency.Valencies(*tables, most if or_more else 0)


@given(
    st.sampled_from([(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2), (3, 1, 2), (2, 3, 2)]),
    st.floats(0.1, 6),
    st.integers(0, 10**6),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_the_best_edges_are_the_best_of_all_graphs(
    sizes: tuple[int, int, int], sharpness: float, seed: int, or_more: bool
) -> None:
    problem = random_problem(*sizes, sharpness, seed, or_more)
    found = worth(valency.best_edges(*problem, ALL), *problem)
    assert found == pytest.approx(by_brute_force(*problem), abs=1e-5)


@pytest.mark.parametrize("seed", range(30))
def test_any_distribution_gets_edges_that_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(int(rng.integers(1, 12)), int(rng.integers(1, 6)), 2, 10.0, seed, bool(rng.integers(2)))
    assert np.isfinite(worth(valency.best_edges(*problem, replace(valency.Effort(), steps=np.inf)), *problem))


def test_valencies_come_in_the_order_of_their_likelihood() -> None:
    _, leaving, entering, known = random_problem(3, 2, 1, 2.0, seed=5, or_more=False)
    found = [(lost, *fit) for lost, fit in valency.fitting(leaving, entering, known, ALL) if fit is not None]
    every = (
        itertools.product(range(len(known.leaving)), repeat=3),
        itertools.product(range(len(known.entering)), repeat=3),
    )
    wanted = sorted(
        (
            -leaving[range(3), one].sum() - entering[range(3), other].sum()
            for one, other in itertools.product(*map(list, every))
            if (known.leaving[list(one)].sum(0) == known.entering[list(other)].sum(0)).all()
        ),
    )
    assert len(found) == len(wanted)

    def likely(gives: np.ndarray, takes: np.ndarray) -> float:
        found_at = [
            (numbers[:, None] == table).all(2).argmax(1)
            for numbers, table in ((gives, known.leaving), (takes, known.entering))
        ]
        return float(-leaving[range(3), found_at[0]].sum() - entering[range(3), found_at[1]].sum())

    assert [likely(*both) for _, *both in found] == pytest.approx(wanted)
    least = -leaving.max(1).sum() - entering.max(1).sum()
    assert [least + lost for lost, *_ in found] == pytest.approx(wanted)


def test_a_verb_without_an_agent_gets_the_likeliest_one() -> None:
    """No edge alone is likely enough, but the verb is sure to have one."""
    gain = np.full((3, 3, 1), -6.0)
    gain[0, 1, 0], gain[0, 2, 0] = -1.0, -2.0
    leaving = np.log(np.array([[0.01, 0.99], [0.98, 0.02], [0.98, 0.02]]))
    entering = np.log(np.full((3, 2), 0.5))
    table = np.array([[0], [1]])
    found = valency.best_edges(gain, leaving, entering, valency.Valencies(table, table))
    assert np.argwhere(found).tolist() == [[0, 1]]


def test_valencies_are_those_of_the_data() -> None:
    graph = Graph(("a", "b", "b"), (Edge(0, "r", 1), Edge(0, "r", 2), Edge(1, "s", 2)))
    examples = [Example(("x", "y", "z"), graph)]
    exact, clamped = (Vocabulary.of(examples, valency=most) for most in (2, 1))
    assert (exact.leaving, exact.entering, exact.most) == (((0, 0), (0, 1), (2, 0)), ((0, 0), (1, 0), (1, 1)), 0)
    assert (clamped.leaving, clamped.most) == (((0, 0), (0, 1), (1, 0)), 1)
    assert exact.valencies(graph) == ([2, 1, 0], [0, 1, 2])
    assert Vocabulary.from_json(exact.to_json()) == exact
    assert exact.valencies(Graph(("a", "b"), (Edge(0, "r", 1),))) == ([0, 0], [0, 1])  # one edge: never seen


def test_training_with_rotary_positions_and_valencies_parses(tmp_path: Path) -> None:
    """The whole way, on a few sentences that it learns by heart."""
    changes: list[tuple[str, str, object]] = [
        ("data", "size", 30), ("model", "positions", "rotary"), ("model", "valency", 2), ("model", "width", 64),
        ("model", "encoder_layers", 2), ("model", "dropout", 0.0), ("train", "steps", 250), ("train", "batch", 15),
        ("train", "learning_rate", 2e-3), ("train", "warmup", 20), ("train", "evaluate_every", 0),
        ("align", "supervision", "strong"), ("align", "start", "model"), ("align", "hold", 0),
    ]  # fmt: skip
    settings = config.override(config.load("quickstart"), changes)
    (report,) = train(settings, open_source("mini", size=30), tmp_path / "run")
    assert report["evaluation"]["train"]["exact"] > 90


EVERY = tuple(itertools.product(range(5), repeat=2))  # valencies of up to four edges of each label
VOCAB = Vocabulary(("w",), ("a", "b"), ("r", "s"), leaving=EVERY, entering=EVERY)


def random_distribution(seed: int, agree: bool) -> GraphDistribution:
    """Three sentences, of which all slots hold nodes; if they agree, the likeliest valencies are those of the edges."""
    generator = torch.Generator().manual_seed(seed)
    V, E = VOCAB.sizes[1:]
    nodes, edges = (3 * torch.randn(3, *size, generator=generator) for size in ((4, V), (4, 4, E)))
    nodes[..., 0] = -50
    slots = torch.arange(4) < torch.tensor([4, 3, 2])[:, None]
    dist = GraphDistribution.from_logits(nodes, edges, slots)
    numbers = torch.randn(3, 4, 2, len(VOCAB.leaving), generator=generator)
    if agree:
        there = counts(dist.argmax().edges, E - 1, VOCAB.most)
        table = torch.tensor(VOCAB.leaving)
        numbers.scatter_(-1, (there[..., None, :] == table).all(-1).int().argmax(-1)[..., None], 9.0)
    return replace(dist, valency_log_probs=numbers.log_softmax(-1))


@pytest.mark.parametrize("seed", range(5))
def test_where_the_likeliest_labels_agree_decoding_keeps_them(seed: int) -> None:
    whole = random_distribution(seed, agree=True)
    plain = GraphDistribution(whole.node_log_probs, whole.edge_log_probs, whole.slots)
    assert [found.graph for found in decode(whole, VOCAB)] == [found.graph for found in decode(plain, VOCAB)]


@pytest.mark.parametrize("seed", range(10))
def test_decoding_finds_edges_that_fit_their_valencies(seed: int) -> None:
    dist = random_distribution(seed, agree=False)
    for b, decoded in enumerate(decode(dist, VOCAB)):
        n = int(dist.slots[b].sum())
        assert len(decoded.graph.nodes) == n
        leaving, entering = VOCAB.valencies(decoded.graph)
        numbers = torch.zeros(1, 4, 2, dtype=torch.long)
        numbers[0, :n, 0], numbers[0, :n, 1] = torch.tensor(leaving), torch.tensor(entering)
        labels = GraphLabels(dist.argmax().nodes[b : b + 1], torch.zeros(1, 4, 4, dtype=torch.long), numbers)
        for source, label, target in decoded.graph.edges:
            labels.edges[0, source, target] = VOCAB.edge_numbers[label]
        one = GraphDistribution(*(part[b : b + 1] for part in (
            dist.node_log_probs, dist.edge_log_probs, dist.slots, dist.valency_log_probs)))  # fmt: skip
        likeliest = one.valency_log_probs.argmax(-1)[0, :n].tolist()
        expected = float(one.log_prob(labels).exp())
        if likeliest != numbers[0, :n].tolist() or one.argmax().edges.tolist() != labels.edges.tolist():
            # Edges were chosen again: nodes and valencies alone say how likely the whole is.
            nothing = replace(one, edge_log_probs=torch.zeros_like(one.edge_log_probs))
            expected = float(nothing.log_prob(labels).exp())
        assert decoded.probability == pytest.approx(expected, rel=1e-4)
        for probability, (source, _, target) in zip(decoded.edge_probabilities, decoded.graph.edges, strict=True):
            assert 0 < probability <= 1
            ends = (
                one.valency_log_probs[0, source, 0, leaving[source]],
                one.valency_log_probs[0, target, 1, entering[target]],
            )
            assert (
                probability == pytest.approx(float(min(ends).exp()), rel=1e-4) or likeliest == numbers[0, :n].tolist()
            )


def test_alternatives_of_edges_that_were_chosen_together_are_those_of_the_probability_that_is_shown() -> None:
    """Of words that the model never saw, pairs say one thing and valencies another."""
    parser = load("cogs")
    unsure, strange, no_edges = ("Emma Emma liked liked .", "Zork glorped the frobnicator .", "The the .")
    sentences = [text.split() for text in (unsure, strange, no_edges, "The baby liked the hedgehog .")]
    parses = parser.parse_tokens(sentences, alternatives=10_000)
    assert [parse.alternatives.edges_together for parse in parses if parse.alternatives] == [True, True, True, False]
    for parse in parses:
        assert parse.alternatives is not None and len(parse.alternatives.edges) == len(parse.edges)
        for edge, choices in zip(parse.edges, parse.alternatives.edges, strict=True):
            assert dict(choices)[edge.label] == pytest.approx(edge.probability)
            assert sum(choice.probability for choice in choices) == pytest.approx(1, abs=1e-5)
            assert list(choices) == sorted(choices, key=lambda choice: -choice.probability)
    assert len(parses[0].edges) and not len(parses[2].edges)


@pytest.mark.parametrize("agree", [True, False])
def test_no_edge_leads_from_a_node_to_itself_where_training_has_none(agree: bool) -> None:
    without, loops = replace(VOCAB, loops=False), 0
    for seed in range(5):
        dist = random_distribution(seed, agree)
        loops += sum(edge.source == edge.target for found in decode(dist, VOCAB) for edge in found.graph.edges)
        for decoded in decode(dist, without):
            assert all(edge.source != edge.target for edge in decoded.graph.edges)
            assert set(VOCAB.count_edges(decoded.graph)[0]) <= set(VOCAB.leaving)
    assert loops or not agree  # there would be some


def test_whether_there_are_loops_is_read_from_the_data() -> None:
    graphs = Graph(("a", "b"), (Edge(0, "r", 1),)), Graph(("a",), (Edge(0, "r", 0),))
    assert [Vocabulary.of([Example(("w",), graph)]).loops for graph in graphs] == [False, True]
