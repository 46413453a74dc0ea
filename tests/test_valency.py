"""Edges and valencies chosen together, against all possible graphs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lagr import config, valency
from lagr.datasets import Example, Source, open_source
from lagr.decode import decode
from lagr.errors import DataError
from lagr.graph import Edge, Graph
from lagr.model import GraphDistribution, valencies
from lagr.supervision import training_examples
from lagr.train import train
from lagr.vocab import Vocabulary


def by_brute_force(gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray) -> float:
    n, _, E = gain.shape
    return max(
        valency.total(np.reshape(labels, (n, n)), gain, leaving, entering)
        for labels in itertools.product(range(E + 1), repeat=n * n)
    )


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def random_problem(n: int, E: int, C: int, sharpness: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    gain = sharpness * rng.normal(size=(n, n, E)) - 1
    leaving, entering = (log_softmax(sharpness * rng.normal(size=(n, E, C + 1))) for _ in range(2))
    return gain, leaving, entering


@given(
    st.sampled_from([(1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2), (3, 1, 2), (2, 3, 2)]),
    st.floats(0.1, 6),
    st.integers(0, 10**6),
)
@settings(max_examples=80, deadline=None)
def test_the_best_edges_are_the_best_of_all_graphs(sizes: tuple[int, int, int], sharpness: float, seed: int) -> None:
    gain, leaving, entering = random_problem(*sizes, sharpness, seed)
    found = valency.total(valency.best_edges(gain, leaving, entering), gain, leaving, entering)
    assert found == pytest.approx(by_brute_force(gain, leaving, entering), abs=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_the_program_and_the_assignments_agree(seed: int) -> None:
    """On larger problems: what the quick way returns is what the slow one finds."""
    gain, leaving, entering = random_problem(6, 3, 1, 3.0, seed)
    by_program = valency._program(gain, leaving, entering)
    labels = np.where(by_program.any(2), by_program.argmax(2) + 1, 0)
    quick = valency.total(valency.best_edges(gain, leaving, entering), gain, leaving, entering)
    assert quick == pytest.approx(valency.total(labels, gain, leaving, entering), abs=1e-5)


def test_impossible_numbers_are_never_chosen() -> None:
    gain = np.full((3, 3, 1), 5.0)
    only_one = np.log(np.array([1e-300, 1.0]))
    leaving = np.tile(only_one, (3, 1, 1))
    entering = np.tile(np.log(np.array([1.0, 1e-300])), (3, 1, 1))
    entering[2] = only_one
    labels = valency.best_edges(gain, leaving, entering)
    assert (labels.sum(1) <= 1).all()
    assert (labels.sum(0) <= 1).all()


def test_a_verb_without_an_agent_gets_the_likeliest_one() -> None:
    """No edge alone is likely enough, but the verb is sure to have one."""
    gain = np.full((3, 3, 1), -6.0)
    gain[0, 1, 0], gain[0, 2, 0] = -1.0, -2.0
    leaving = np.tile(np.log([0.98, 0.02]), (3, 1, 1))
    leaving[0] = np.log([0.01, 0.99])
    entering = np.tile(np.log([0.5, 0.5]), (3, 1, 1))
    assert np.argwhere(valency.best_edges(gain, leaving, entering)).tolist() == [[0, 1]]


def test_a_node_with_more_edges_than_the_model_can_say_is_an_error() -> None:
    graph = Graph(("a", "b", "b"), (Edge(0, "r", 1), Edge(0, "r", 2)))
    source = Source("two", ("train",), lambda split: [Example(("x", "y", "z"), graph)])
    settings = config.override(config.Config(), [("model", "valency", 1)])
    with pytest.raises(DataError, match="has 2 edges r; set model"):
        training_examples(settings, source)
    assert len(training_examples(config.override(settings, [("model", "valency", 2)]), source)) == 1


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


VOCAB = Vocabulary(("w",), ("a", "b"), ("r", "s"))


def random_distribution(seed: int, agree: bool) -> GraphDistribution:
    """Three sentences, of which all slots hold nodes; if they agree, the likeliest valencies are those of the edges."""
    generator = torch.Generator().manual_seed(seed)
    V, E = VOCAB.sizes[1:]
    nodes, edges = (3 * torch.randn(3, *size, generator=generator) for size in ((4, V), (4, 4, E)))
    nodes[..., 0] = -50
    numbers = torch.randn(3, 4, 2, E - 1, 4, generator=generator)
    if agree:
        numbers.scatter_(-1, valencies(edges.argmax(-1), E - 1, 4)[..., None], 9.0)
    slots = torch.arange(4) < torch.tensor([4, 3, 2])[:, None]
    dist = GraphDistribution.from_logits(nodes, edges, torch.ones(3, 4, dtype=torch.bool))
    return GraphDistribution(dist.node_log_probs, dist.edge_log_probs, slots, numbers.log_softmax(-1))


@pytest.mark.parametrize("seed", range(5))
def test_where_the_likeliest_labels_agree_decoding_keeps_them(seed: int) -> None:
    whole = random_distribution(seed, agree=True)
    plain = GraphDistribution(whole.node_log_probs, whole.edge_log_probs, whole.slots)
    # Only the first sentence has all its slots, which is what the valencies were made for.
    assert decode(whole, VOCAB)[0].graph == decode(plain, VOCAB)[0].graph


@pytest.mark.parametrize("seed", range(10))
def test_decoding_finds_edges_at_least_as_likely_as_the_labels_alone(seed: int) -> None:
    dist = random_distribution(seed, agree=False)
    found = decode(dist, VOCAB)
    alone = dist.log_prob(dist.argmax()).exp()
    for b, decoded in enumerate(found):
        assert decoded.probability >= float(alone[b]) * (1 - 1e-5)
        assert len(decoded.graph.nodes) == int(dist.slots[b].sum())
        assert max((max(edge.source, edge.target) for edge in decoded.graph.edges), default=0) < len(
            decoded.graph.nodes
        )
