"""Rules that a user states, against all possible graphs."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lagr
from lagr import cli, config
from lagr.config import Config, Rules
from lagr.datasets import Source
from lagr.decode import Decoded, decode
from lagr.errors import ConfigError
from lagr.graph import Graph
from lagr.model import GraphDistribution, log_softmax
from lagr.nbest import _of_sentence, nbest
from lagr.parser import Parser
from lagr.rules import Rulebook, number_range
from lagr.train import train
from lagr.valency import EDGE_WEIGHT, Effort, Valencies
from lagr.vocab import Vocabulary

NODES, EDGES = ("a", "b", "c"), ("r", "s")
ALL = Effort(np.inf, tries=10**6, states=10**6, options=10**6, steps=np.inf, programs=10**6, seconds=60)


def vocabulary(leaving: Any = (), entering: Any = (), most: int = 0) -> Vocabulary:
    return Vocabulary(("w",), NODES, EDGES, leaving=leaving, entering=entering, most=most)


def random_rules(rng: np.random.Generator, low: bool = True) -> Rules:
    """Rules that make sense, as any person might state them; low: also how many edges there are at least."""

    def pattern(labels: Sequence[str]) -> str:
        return str(rng.choice(["*", *labels]))

    numbers = ["0-1", "0-2", "0", "0-"] + (["1", "1-", "1-2", "2"] if low else [])
    while True:
        some = rng.integers(4) if rng.integers(2) else 0
        triples = [(pattern(NODES), pattern(EDGES), pattern(NODES)) for _ in range(some)]
        leaving, entering = (
            [(pattern(NODES), pattern(EDGES), str(rng.choice(numbers))) for _ in range(rng.integers(3))] for _ in "le"
        )
        rules = Rules(tuple(triples), tuple(leaving), tuple(entering))
        try:
            Rulebook(rules, vocabulary())
        except ConfigError:
            continue
        return rules


def missing(graph: Graph, rules: Rules) -> float:
    """How many edges are missing to what the rules ask for; ∞ where a triple or an upper bound is broken.

    By the letter of the rules, sharing nothing with the code that is tested.
    """

    def is_like(label: str, pattern: str) -> bool:
        return pattern in ("*", label)

    short = 0.0
    for source, label, target in graph.edges:
        triple = graph.nodes[source], label, graph.nodes[target]
        if rules.triples and not any(all(map(is_like, triple, pattern)) for pattern in rules.triples):
            return np.inf
    for way, stated in ((0, rules.leaving), (2, rules.entering)):
        for (name, pattern, number), (node, label) in itertools.product(stated, enumerate(graph.nodes)):
            if is_like(label, name):
                there = sum(edge[way] == node and is_like(edge.label, pattern) for edge in graph.edges)
                least, most = number_range(number)
                short += max(0, least - there) if there <= most else np.inf
    return short


def graph_of(labels: Any, nodes: Sequence[str]) -> Graph:
    return Graph(
        tuple(nodes), tuple((i, EDGES[labels[i][j] - 1], j) for i, j in np.argwhere(np.array(labels)).tolist())
    )  # type: ignore[arg-type]


def every_choice(n: int) -> list[np.ndarray]:
    return [np.reshape(x, (n, n)) for x in itertools.product(range(len(EDGES) + 1), repeat=n * n)]


def gained(labels: np.ndarray, gain: np.ndarray) -> float:
    return float(gain[labels[..., None] == np.arange(1, len(EDGES) + 1)].sum())


SIZES = {n: every_choice(n) for n in (1, 2)}


@given(st.integers(1, 2), st.floats(0.1, 6), st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_the_best_edges_are_the_best_of_all_that_keep_the_rules(n: int, sharpness: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rules, nodes = random_rules(rng), rng.choice(NODES, n).tolist()
    gain = sharpness * rng.normal(size=(n, n, len(EDGES)))
    found = Rulebook(rules, vocabulary()).of(nodes).best_edges(gain)
    wanted = max((-missing(graph_of(x, nodes), rules), gained(x, gain)) for x in SIZES[n])
    short = missing(graph_of(found, nodes), rules)
    assert short < np.inf and (-short, gained(found, gain)) == pytest.approx(wanted)


def test_three_nodes_too() -> None:
    for seed in range(2):
        rng = np.random.default_rng(seed)
        rules, nodes = random_rules(rng), rng.choice(NODES, 3).tolist()
        gain = 3 * rng.normal(size=(3, 3, len(EDGES)))
        found = Rulebook(rules, vocabulary()).of(nodes).best_edges(gain)
        kept = -missing(graph_of(found, nodes), rules)
        better = [x for x in every_choice(3) if gained(x, gain) > gained(found, gain) + 1e-6]
        assert kept > -np.inf and all(-missing(graph_of(x, nodes), rules) < kept for x in better)


def valency_problem(rng: np.random.Generator, n: int, most: int, or_more: bool) -> Any:
    tables = []
    for _ in range(2):
        every = np.array(list(itertools.product(range(most + 1), repeat=len(EDGES))))[1:]
        some = rng.permutation(every)[: max(1, round(len(every) * rng.random()))]
        tables.append(np.concatenate([np.zeros((1, len(EDGES)), np.int64), some]))
    leaving, entering = (
        log_softmax(torch.from_numpy(2 * rng.normal(size=(n, len(table))))).double().numpy() for table in tables
    )
    return 3 * rng.normal(size=(n, n, len(EDGES))), leaving, entering, Valencies(*tables, most if or_more else 0)


def worth(labels: np.ndarray, gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray, known: Valencies) -> float:
    """What valency.py maximises; −∞ where a node has a valency that is not known."""
    chosen, total = labels[..., None] == np.arange(1, len(EDGES) + 1), EDGE_WEIGHT * gained(labels, gain)
    for counts, log_probs, table in (
        (chosen.sum(1), leaving, known.leaving),
        (chosen.sum(0), entering, known.entering),
    ):
        counts = np.minimum(counts, known.most) if known.most else counts
        same = (counts[:, None] == table).all(2)
        total += float(log_probs[same].sum()) if same.any(1).all() else -np.inf
    return total


@given(st.integers(1, 2), st.integers(1, 2), st.booleans(), st.booleans(), st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_with_valencies_they_are_the_best_too(n: int, most: int, or_more: bool, search: bool, seed: int) -> None:
    """By the search through valencies, and by the program that is left where that finds nothing."""
    rng = np.random.default_rng(seed)
    rules, nodes, problem = random_rules(rng), rng.choice(NODES, n).tolist(), valency_problem(rng, n, most, or_more)
    limits = Rulebook(rules, vocabulary()).of(nodes)
    found = limits.best_fitting(*problem, ALL if search else replace(ALL, tries=0))
    keep = [x for x in SIZES[n] if missing(graph_of(x, nodes), rules) == 0]
    best = max((worth(x, *problem) for x in keep), default=-np.inf)
    if best > -np.inf:
        assert missing(graph_of(found, nodes), rules) == 0
        assert worth(found, *problem) == pytest.approx(best, abs=1e-5)
    else:  # rules count more than valencies
        wanted = max((-missing(graph_of(x, nodes), rules), gained(x, problem[0])) for x in SIZES[n])
        assert (-missing(graph_of(found, nodes), rules), gained(found, problem[0])) == pytest.approx(wanted)


EVERY = tuple(itertools.product(range(3), repeat=2))


def distribution(seed: int, valencies: bool, sentences: int = 4, slots: int = 5) -> GraphDistribution:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return log_softmax(3 * torch.randn(*shape, generator=generator))

    there = torch.arange(slots) < torch.tensor([slots, slots - 1, 2, 1])[:sentences, None]
    numbers = random(sentences, slots, 2, len(EVERY)) if valencies else None
    return GraphDistribution(random(sentences, slots, 4), random(sentences, slots, slots, 3), there, numbers)


def one_of(dist: GraphDistribution, b: int) -> GraphDistribution:
    n = int(dist.slots[b].sum())
    numbers = None if dist.valency_log_probs is None else dist.valency_log_probs[b : b + 1, :n]
    return GraphDistribution(
        dist.node_log_probs[b : b + 1, :n], dist.edge_log_probs[b : b + 1, :n, :n], dist.slots[b : b + 1, :n], numbers
    )


def key(decoded: Decoded) -> Any:
    return decoded.graph.nodes, decoded.graph.slots, decoded.graph.edges


@pytest.mark.parametrize("valencies", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_decoding_keeps_rules_and_what_keeps_them_already(seed: int, valencies: bool) -> None:
    vocab = vocabulary(EVERY, EVERY) if valencies else vocabulary()
    rules, dist = random_rules(np.random.default_rng(seed), low=False), distribution(seed, valencies)
    book = Rulebook(rules, vocab)
    plain, found = decode(dist, vocab), decode(dist, vocab, rules=book)
    assert all(missing(one.graph, rules) == 0 for one in found)
    for b, (before, after) in enumerate(zip(plain, found, strict=True)):
        assert before.graph.nodes == after.graph.nodes and 0 <= after.probability <= 1
        if missing(before.graph, rules) == 0:
            assert before == after
        elif not valencies:
            assert after.probability < before.probability  # as the model has it: rules don't make it believe anything
            lost = sum(
                float(dist.edge_log_probs[b, i, j].max() - dist.edge_log_probs[b, i, j, label])
                for (i, j), label in labels_of(after.graph).items()
            )
            assert after.probability == pytest.approx(before.probability * np.exp(-lost), rel=1e-4)
        [alone] = decode(one_of(dist, b), vocab, rules=book)
        assert key(alone) == key(after) and alone.probability == pytest.approx(after.probability, rel=1e-4)


def labels_of(graph: Graph) -> dict[tuple[int, int], int]:
    """The label of every pair of slots that hold nodes, 0 for none."""
    assert graph.slots is not None
    labels = dict.fromkeys(itertools.product(graph.slots, repeat=2), 0)
    return labels | {(graph.slots[i], graph.slots[j]): EDGES.index(label) + 1 for i, label, j in graph.edges}


def test_probabilities_of_edges_that_a_rule_asks_for_are_the_models() -> None:
    """A model that is sure of no edge; and one whose valencies don't know what is asked for."""
    nodes = torch.tensor([[[0.0, 9, 0, 0], [0, 0, 9, 0]]])
    edges = torch.zeros(1, 2, 2, 3)
    edges[..., 0], edges[0, 0, 1, 1] = 4.0, 2.0
    dist = GraphDistribution.from_logits(nodes, edges, torch.ones(1, 2, dtype=torch.bool))
    [found] = decode(dist, vocabulary(), rules=Rulebook(Rules(leaving=(("a", "r", "1"),)), vocabulary()))
    assert found.graph.edges == ((0, "r", 1),)
    model = float(dist.edge_log_probs[0, 0, 1, 1].exp())
    assert found.edge_probabilities[0] == pytest.approx(model) and found.probability < model
    only_s = vocabulary(((0, 0), (0, 1)), ((0, 0), (0, 1)))
    with_valencies = replace(dist, valency_log_probs=log_softmax(torch.zeros(1, 2, 2, 2)))
    [other] = decode(with_valencies, only_s, rules=Rulebook(Rules(leaving=(("a", "r", "1"),)), only_s))
    assert key(other) == key(found) and other.probability == pytest.approx(found.probability, rel=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_the_n_best_are_those_of_all_graphs_that_keep_the_rules(seed: int) -> None:
    dist, rules = distribution(seed, valencies=False, sentences=1, slots=2), random_rules(np.random.default_rng(seed))
    dist = one_of(replace(dist, slots=torch.ones(1, 2, dtype=torch.bool)), 0)
    every, kept = (nbest(dist, vocabulary(), 10**4, rules=book)[0] for book in (None, Rulebook(rules, vocabulary())))
    wanted = {key(one): one.probability for one in every if missing(one.graph, rules) == 0}
    found = [one for one in kept if missing(one.graph, rules) == 0]  # others: nodes that can't keep them
    assert {key(one) for one in found} == set(wanted)
    assert kept[0] == decode(dist, vocabulary(), rules=Rulebook(rules, vocabulary()))[0]
    for one in found[1:]:
        assert one.probability == pytest.approx(min(wanted[key(one)], kept[0].probability), rel=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_with_valencies_graphs_are_ranked_among_those_that_keep_the_rules(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All graphs of two slots, the best for each way of node labels and valencies, by what decoding maximises."""
    monkeypatch.setattr("lagr.nbest.EFFORT", ALL)
    vocab, dist = vocabulary(EVERY, EVERY), one_of(distribution(seed, valencies=True), 2)
    rules = random_rules(np.random.default_rng(seed + 10), low=False)
    nodes, edges = dist.node_log_probs[0].double().numpy(), dist.edge_log_probs[0].double().numpy()
    assert dist.valency_log_probs is not None
    numbers, known = dist.valency_log_probs[0].double().numpy(), Valencies(np.array(EVERY), np.array(EVERY))
    best: dict[Any, float] = {}
    for labels in itertools.product(range(4), repeat=2):
        held = np.flatnonzero(labels)
        empty = [slot for slot in range(2) if slot not in held]
        names, gain = [NODES[labels[slot] - 1] for slot in held], (edges[..., 1:] - edges[..., :1])[held][:, held]
        for chosen in every_choice(len(held)):
            if missing(graph_of(chosen, names), rules) == 0:
                score = worth(chosen, gain, numbers[held, 0], numbers[held, 1], known)
                score += nodes[range(2), labels].sum() + numbers[empty, :, 0].sum()
                ways = tuple((chosen == 1 + e).sum(axis).tobytes() for axis in (0, 1) for e in range(2))
                best[labels, ways] = max(score, best.get((labels, ways), -np.inf))
    wanted = sorted((score for score in best.values() if score > -np.inf), reverse=True)[:10]
    ranked = [one.loss for one in itertools.islice(_of_sentence(dist, 0, vocab, 10, None, Rulebook(rules, vocab)), 10)]
    assert [loss - ranked[0] for loss in ranked] == pytest.approx([wanted[0] - score for score in wanted], abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_the_n_best_with_valencies_keep_rules(seed: int) -> None:
    vocab, dist = vocabulary(EVERY, EVERY), distribution(seed, valencies=True, slots=3)
    rules = random_rules(np.random.default_rng(seed), low=False)
    for found in nbest(dist, vocab, 6, rules=Rulebook(rules, vocab)):
        assert all(missing(one.graph, rules) == 0 for one in found)
        assert len({key(one) for one in found}) == len(found)


def test_a_graph_without_nodes_keeps_all_rules() -> None:
    nothing = GraphDistribution.from_logits(
        torch.tensor([[[9.0, 0, 0, 0]]]), torch.zeros(1, 1, 1, 3), torch.ones(1, 1, dtype=torch.bool)
    )
    book = Rulebook(Rules((("*", "r", "*"),), (("*", "r", "1"),)), vocabulary())
    assert decode(nothing, vocabulary(), rules=book)[0].graph.nodes == ()
    assert nbest(nothing, vocabulary(), 3, rules=book)[0][0].graph.nodes == ()


def test_patterns_are_those_of_a_shell_and_a_label_means_itself() -> None:
    vocab = Vocabulary((), ("?x0", "Mx0", "*", "nmod.in"), ("nmod.in", "nmod.on", "agent"))

    def sources(pattern: str, edge: str = "*") -> list[str]:
        allowed = Rulebook(Rules(triples=((pattern, edge, "*"),)), vocab).of(vocab.node_labels).allowed
        return [label for label, any_edge in zip(vocab.node_labels, allowed.any((1, 2)), strict=True) if any_edge]

    assert sources("?x0") == ["?x0"] and sources("[?M]x0") == ["?x0", "Mx0"]
    assert sources("*") == list(vocab.node_labels) and sources("[*]") == ["*"]
    limits = Rulebook(Rules(leaving=(("*", "nmod.*", "0-1"),)), vocab).of(["Mx0", "?x0"])
    assert limits.hold(np.array([[0, 1], [0, 0]])) and not limits.hold(np.array([[2, 1], [0, 0]]))  # counted together


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"triples": [["a", "q", "*"]]}, 'rules.triples ["a", "q", "*"]: the model has no edge label'),
        ({"triples": [["verb", "r", "sub"]]}, "no node label 'sub'; did you mean subject?"),
        ({"leaving": [["vreb", "r", "1"]]}, "no node label 'vreb'; did you mean verb?"),
        ({"leaving": [["verb", "r", "many"]]}, "'many' is no number of edges; write 1, 0-2 or 1-"),
        ({"entering": [["verb", "r", "3-1"]]}, "3 is more than 1"),
        ({"entering": [["verb", "r"]]}, "should be a list of threes"),
        ({"leaving": [["*", "*", "0"]]}, "they forbid every edge"),
        ({"triples": [["verb", "*", "subject"]], "entering": [["subject", "*", 0]]}, "they forbid every edge"),
        ({"triples": [["verb", "r", "*"]], "leaving": [["subject", "*", "1-"]]}, "can't be kept: other rules forbid"),
        ({"leaving": [["verb", "r", "2-"], ["v*", "*", "0-1"]]}, 'contradicts rules.leaving ["v*", "*", "0-1"]'),
    ],
)
def test_rules_that_make_no_sense_are_named(rules: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        stated = config.from_dict({"rules": rules}, "x.toml").rules
        Rulebook(stated, Vocabulary((), ("subject", "verb"), ("r", "s")))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_copied_labels_can_be_named_in_rules() -> None:
    vocab = Vocabulary((), ("verb",), ("r",), copies=True)
    book = Rulebook(Rules(triples=(("verb", "r", "Ida"),)), vocab)
    assert book.of(["verb", "Ida", "Bo"]).allowed[0, :, 0].tolist() == [False, True, False]


def test_rules_are_settings_like_others() -> None:
    text = '[["*", "agent", "a b"], ["\\"x", "*", "*"]]'
    settings = config.override(Config(), [("rules", "triples", text), ("rules", "leaving", [["eat", "agent", 1]])])
    assert settings.rules.triples == (("*", "agent", "a b"), ('"x', "*", "*"))
    assert settings.rules.leaving == (("eat", "agent", "1"),)
    assert config.from_dict(tomllib.loads(config.to_toml(settings)), "x") == settings
    assert config.from_dict(settings.to_dict(), "x") == settings
    with pytest.raises(ConfigError, match="seq2seq writes forms"):
        config.override(settings, [("model", "kind", "seq2seq")])


def test_a_run_takes_other_rules_and_the_command_line_too(
    small_run: Path, parser: Parser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "The lobster threw a teapot ."
    label = parser.parse(sentence).edges[0].label
    file = tmp_path / "rules.toml"
    file.write_text(f'[rules]\nleaving = [["*", "{label}", 0]]\n')
    changed = lagr.load(small_run, rules=file).parse(sentence, nbest=3)
    assert not any(edge.label == label for one in (changed, *changed.next_best) for edge in one.edges)
    assert cli.main(["parse", str(small_run), sentence, "--format", "json", "--rules", str(file)]) == 0
    assert f'"label": "{label}"' not in capsys.readouterr().out
    file.write_text('[rules]\nleaving = [["*", "agnet", "1"]]\n')
    assert cli.main(["parse", str(small_run), sentence, "--rules", str(file)]) == 1
    assert "did you mean agent?" in capsys.readouterr().err
    file.write_text("[data]\n")
    assert cli.main(["parse", str(small_run), sentence, "--rules", str(file)]) == 1
    assert "write them under [rules]" in capsys.readouterr().err


def test_rules_that_dont_fit_the_data_are_found_before_training(
    small_config: Config, mini: Source, tmp_path: Path
) -> None:
    wrong = config.override(small_config, [("rules", "leaving", [["*", "agnet", "0-1"]])])
    with pytest.raises(ConfigError, match="did you mean agent"):
        train(wrong, mini, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_search_that_finds_nothing_is_followed_by_a_program() -> None:
    """The valencies of two verbs and their only object: each is sure of it, and one alone can have it."""
    gain, table = np.full((3, 3, 2), -5.0), np.array([[0, 0], [1, 0]])
    sure = np.log(np.array([[0.01, 0.99], [0.01, 0.99], [0.98, 0.02]]))
    book = Rulebook(Rules((("a", "r", "b"),), (), (("b", "r", "0-1"),)), vocabulary())
    problem = gain, sure, np.log(np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])), Valencies(table, table)
    for effort in (ALL, Effort(), Effort(tries=0)):
        found = book.of(["a", "a", "b"]).best_fitting(*problem, effort)
        assert found.sum() == found[:2, 2].sum() == 1
