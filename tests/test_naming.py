"""Names of variables that fit together: none twice, and in the order in which forms mention them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
import torch

from lagr import config
from lagr.datasets import Example, Source, open_source
from lagr.forms import sparql
from lagr.graph import Edge, Graph
from lagr.model import GraphDistribution
from lagr.naming import Names, is_in_order, order_of_names
from lagr.parser import Parser, build
from lagr.train import train
from lagr.variables import is_variable
from lagr.vocab import Vocabulary

NAMES = ("?x0", "?x1", "?x2", "?x3")
TOKENS = ("who", "met", "a", "friend", "of", "a", "boss")
SLOTS = (0, 1, 3, 4, 6)


def chain(first: str, second: str, third: str) -> Graph:
    """first ─ns:met→ second ─ns:knows→ third"""
    edges = (Edge(0, "agent", 1), Edge(1, "theme", 2), Edge(2, "agent", 3), Edge(3, "theme", 4))
    return Graph((first, "ns:met", second, "ns:knows", third), edges, SLOTS)


def apart(first: str, second: str, third: str) -> Graph:
    """first ─ns:met, second ─ns:knows→ third: which of the first two is ?x0 is open"""
    edges = (Edge(0, "agent", 1), Edge(2, "agent", 3), Edge(3, "theme", 4))
    return Graph((first, "ns:met", second, "ns:knows", third), edges, SLOTS)


VOCAB = Vocabulary.of([Example(TOKENS, chain(*names)) for names in (NAMES[:3], (*NAMES[2:], "select_?x0"))])


def says(graph: Graph, likely: torch.Tensor) -> GraphDistribution:
    """A distribution that is nearly sure of a graph, but of the names of variables, as likely as given: (nodes, 4)."""
    numbers, M = VOCAB.node_numbers, len(TOKENS)
    nodes, edges = torch.zeros(1, M, VOCAB.sizes[1]), torch.zeros(1, M, M, VOCAB.sizes[2])
    nodes[..., 0] = edges[..., 0] = 5.0
    for node, (label, slot) in enumerate(zip(graph.nodes, SLOTS, strict=True)):
        nodes[0, slot, 0] = 0.0
        if is_variable(label):
            nodes[0, slot, [numbers[name] for name in NAMES]] = 5 + likely[node]
        else:
            nodes[0, slot, numbers[label]] = 10.0
    for source, label, target in graph.edges:
        edges[0, SLOTS[source], SLOTS[target], VOCAB.edge_numbers[label]] = 10.0
    return GraphDistribution.from_logits(nodes, edges, torch.ones(1, M, dtype=torch.bool))


@pytest.fixture
def parser(small_config: config.Config) -> Parser:
    settings = config.override(small_config, [("align", "variables", "alike")])
    vocab = replace(VOCAB, names=NAMES)
    return Parser(build(settings, vocab), vocab, "sparql", settings)


def test_forms_that_number_variables_as_they_come_have_an_order() -> None:
    forms = ["?x0 met ?x1\n?x1 met ?x2", "?x0 ran", "nobody ran"]
    assert order_of_names(forms) == NAMES[:3]
    many = 100 * forms
    assert order_of_names([*many, "?x1 met ?x0"]) == NAMES[:3]  # one of the 101 that have two names
    assert order_of_names([*many, "?x1 met ?x0", "?x1 saw ?x0"]) == ()  # two of 102: others say nothing of an order
    assert order_of_names([*many, "?x2 met ?x1\n?x1 saw ?x0 and ?x1"]) == NAMES[:3]  # the longest may be the odd one
    assert order_of_names([*many, "?x9 met ?x1, ?x0 and ?x2"]) == NAMES[:3]
    assert order_of_names([*forms, "?x0 met ?x1\n?x1 met ?x0"]) == ()  # in order as a whole, and not in its lines
    assert order_of_names(["?x0 ran"]) == order_of_names([]) == ()  # one name has no order


def test_names_that_were_left_out_are_not_in_order() -> None:
    assert is_in_order("?x0 met ?x1", NAMES) and not is_in_order("?x0 met ?x2", NAMES)


@pytest.mark.parametrize(("shape", "first"), [(chain, "?x0"), (chain, "select_?x0"), (apart, "?x0")])
@pytest.mark.parametrize("seed", range(8))
def test_a_parse_has_the_likeliest_names_that_are_in_order(
    seed: int, shape: Callable[..., Graph], first: str, parser: Parser
) -> None:
    """Brute force over all names. A query that asks for ?x0 has it already, in a label of its own."""
    likely = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
    graph = shape(first, "?x1", "?x2")
    parser.run_model = lambda *inputs: says(graph, likely)
    variables = [node for node, label in enumerate(graph.nodes) if is_variable(label)]

    def named(names: tuple[str, ...]) -> Graph:
        of_node = dict(zip(variables, names, strict=True))
        return replace(graph, nodes=tuple(of_node.get(node, label) for node, label in enumerate(graph.nodes)))

    def worth(names: tuple[str, ...]) -> float:
        return sum(float(likely[node, NAMES.index(name)]) for node, name in zip(variables, names, strict=True))

    free = NAMES[first == "select_?x0" :]
    ways = [names for names in permutations(free, len(variables)) if is_in_order(sparql.write(named(names)), NAMES)]
    assert len(ways) == (2 if shape is apart else 1)
    best = max(ways, key=worth)
    (parse,) = parser.parse_tokens([TOKENS], alternatives=2)
    assert parse.graph.nodes == named(best).nodes and parse.form == sparql.write(named(best))
    of_slots = [choices[0].label for choices in parse.alternatives.slots]
    assert [of_slots[slot] for slot in SLOTS] == list(parse.graph.nodes)
    (likeliest,) = parser.parse_nbest([TOKENS], 4)
    assert likeliest.graph.nodes == parse.graph.nodes and len(likeliest.next_best) == 3
    assert all(is_in_order(one.form, NAMES) for one in likeliest.next_best if one.form)


def test_without_an_order_names_are_as_the_model_says(small_config: config.Config) -> None:
    likely = torch.zeros(5, 4)
    likely[[0, 2, 4], [2, 1, 0]] = 3.0
    settings = config.override(small_config, [("align", "variables", "alike")])
    parser = Parser(build(settings, VOCAB), VOCAB, "sparql", settings)
    parser.run_model = lambda *inputs: says(chain(*NAMES[:3]), likely)
    assert parser.parse_tokens([TOKENS])[0].graph.nodes == chain("?x2", "?x1", "?x0").nodes


def test_a_node_without_edges_takes_no_name(parser: Parser) -> None:
    """It is in no form: whatever it says of ?x0, the variables are ?x0 and ?x1."""
    edges = (Edge(0, "agent", 1), Edge(1, "theme", 2))
    graph = Graph(("?x0", "ns:met", "?x1", "select_?x0"), edges, (0, 1, 3, 4))
    assert parser.names is not None and parser.names.are_in_order(graph)
    wrong = replace(graph, nodes=("?x2", "ns:met", "?x1", "select_?x0"))
    numbers, log_probs = parser.vocab.node_numbers, torch.zeros(len(TOKENS), parser.vocab.sizes[1])
    assert parser.names.likeliest_in_order(wrong, log_probs) == {0: numbers["?x0"], 3: numbers["?x1"]}


@pytest.mark.parametrize(("variables", "renamed"), [(6, True), (7, False)])
def test_of_many_variables_the_names_stay(variables: int, renamed: bool, small_config: config.Config) -> None:
    names = tuple(f"?x{number}" for number in range(variables))
    labels = [label for number, name in enumerate(reversed(names)) for label in (name, f"ns:c{number}")]
    edges = tuple(Edge(2 * number, "agent", 2 * number + 1) for number in range(variables))
    graph = Graph(tuple(labels), edges, tuple(range(len(labels))))
    vocab = replace(Vocabulary.of([Example(("a",) * len(labels), graph)]), names=names)
    known = Names(vocab.variables, vocab, lambda graph: " ".join(graph.nodes))
    assert known.are_in_order(graph) != renamed  # ?x5 is mentioned first
    if renamed:
        assert known.likeliest_in_order(graph, torch.zeros(len(labels), vocab.sizes[1])) == {
            2 * number: vocab.node_numbers[name] for number, name in enumerate(names)
        }


def test_a_run_learns_the_order_if_variables_are_alike(tmp_path: Path, small_config: config.Config) -> None:
    def example(first: str, second: str) -> Example:
        graph = Graph((first, "ns:met", second), (Edge(0, "agent", 1), Edge(1, "theme", 2)))
        return Example(("who", "met", "whom"), graph, sparql.write(graph))

    source = Source("two", ("train",), lambda split: [example("?x0", "?x1")] * 4, "sparql")
    few = [("train", "steps", 2), ("train", "batch", 2), ("align", "supervision", "weak")]
    for variables, names in (("named", ()), ("alike", NAMES[:2])):
        settings = config.override(small_config, [*few, ("align", "variables", variables)])
        train(settings, source, tmp_path / variables)
        path = tmp_path / variables / "vocab.json"
        assert Vocabulary.from_json(path.read_text()).names == names


def test_a_graph_that_can_not_be_written_keeps_its_names(parser: Parser) -> None:
    graph = Graph(("?x1", "ns:met", "?x0"), (Edge(1, "theme", 0), Edge(1, "theme", 2)), (0, 1, 3))
    assert parser.names is not None and parser.names.are_in_order(graph)


def test_a_vocabulary_has_its_names_back() -> None:
    vocab = replace(VOCAB, names=NAMES)
    assert Vocabulary.from_json(vocab.to_json()) == vocab
    before = vocab.to_json().replace('"names"', '"unheard of"')
    assert Vocabulary.from_json(before).names == ()  # of a run that was trained before there were any


def test_cfq_numbers_its_variables_as_they_come(cfq_data: Path) -> None:
    forms = [example.form for example in open_source("cfq", cfq_data, "mcd1").read("train")]
    assert order_of_names(forms) == tuple(f"?x{number}" for number in range(6))
    assert sum(not is_in_order(form, tuple(f"?x{number}" for number in range(6))) for form in forms) < 40
