"""Variables that alignments take for alike: names are learned where the nodes are, and say nothing about where."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
import torch

from lagr import config
from lagr.associate import associated_alignments
from lagr.batch import pack, pairs_alike
from lagr.config import Align
from lagr.datasets import Example, Source
from lagr.errors import DataError
from lagr.graph import OR, Edge, Graph
from lagr.model import GraphDistribution
from lagr.naming import with_names_once
from lagr.objectives import GraphObjective
from lagr.parser import Parser, load
from lagr.parser import build as build_lagr
from lagr.supervision import learned_alignments
from lagr.train import train
from lagr.variables import is_variable, nameless, without_names
from lagr.vocab import Vocabulary

TOKENS = ("did", "a", "b", "see", "a", "c")
EDGES = (Edge(0, "agent", 2), Edge(2, "theme", 1))


def sentence(first: str, second: str) -> Example:
    """Two variables, and what the first does to the second."""
    return Example(TOKENS, Graph((first, second, "sees"), EDGES))


def test_a_variable_is_what_sparql_writes_as_one() -> None:
    assert all(map(is_variable, ("?x0", "$name", "?x")))
    assert not any(map(is_variable, ("select_?x0", "M0", "x1", "?", "ns:film.film")))
    assert nameless("?x7") == nameless("$y") != nameless("M0") == "M0"


def test_without_names_variables_have_one_label_and_their_edges() -> None:
    one, other = sentence("?x0", "?x1").graph, sentence("?x1", "?x0").graph
    assert one != other and without_names(one) == without_names(other)
    assert without_names(one).edges == EDGES
    assert pairs_alike(one) == [] and len(pairs_alike(without_names(one))) == 1


class Drawn(torch.nn.Module):
    """What a model might say of sentences of six tokens: drawn once, the same for all of them."""

    def __init__(self, labels: int, edges: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        nodes, pairs = (2 * torch.randn(size, generator=generator) for size in ((6, labels), (6, 6, edges)))
        self.dist = GraphDistribution.from_logits(nodes[None], pairs[None], torch.ones(1, 6, dtype=torch.bool))

    def forward(self, tokens: torch.Tensor, *others: object) -> GraphDistribution:
        B = tokens.shape[0] * tokens.shape[1]
        dist = self.dist
        return GraphDistribution(
            *(part.expand(B, *part.shape[1:]) for part in (dist.node_log_probs, dist.edge_log_probs, dist.slots))
        )


def found(variables: str, swaps: int, seed: int) -> tuple[list[list[int]], GraphDistribution, Vocabulary]:
    """The alignments of a sentence, and of the one in which the variables have each other's name."""
    examples = [sentence("?x0", "?x1"), sentence("?x1", "?x0")]
    vocab = Vocabulary.of(examples)
    data = pack(examples, vocab, 1, variables_alike=variables == "alike")
    align = Align(candidates=1, noise=0.0, remember=False, swaps=swaps, variables=variables)
    objective = GraphObjective(data, align, torch.full((2, 3), -1), 1)
    model = Drawn(vocab.sizes[1], vocab.sizes[2], seed)
    rows, keys, held = torch.tensor([[0, 1]]), torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    objective.losses(model, 0, rows, keys, held, infer=True)
    return objective.alignments[0].tolist(), model.dist, vocab


@pytest.mark.parametrize("seed", range(8))
def test_alike_the_names_of_variables_change_no_alignment(seed: int) -> None:
    alignments, _, _ = found("alike", 1, seed)
    assert alignments[0] == alignments[1]


def test_named_they_do() -> None:
    assert any(one != other for one, other in (found("named", 1, seed)[0] for seed in range(8)))


@pytest.mark.parametrize("seed", range(8))
def test_alike_the_alignment_is_the_likeliest_by_any_variable_and_then_by_edges(seed: int) -> None:
    (alignment, _), dist, vocab = found("alike", 1, seed)
    nodes, edges = dist.node_log_probs[0], dist.edge_log_probs[0]
    numbers = vocab.node_numbers
    any_variable = nodes[:, [numbers["?x0"], numbers["?x1"]]].logsumexp(1) - nodes[:, 0]
    sees = nodes[:, numbers["sees"]] - nodes[:, 0]

    def by_nodes(slots: tuple[int, ...]) -> float:
        return float(any_variable[slots[0]] + any_variable[slots[1]] + sees[slots[2]])

    def by_edges(slots: tuple[int, ...]) -> float:
        ends = ((slots[e.source], slots[e.target], vocab.edge_numbers[e.label]) for e in EDGES)
        return sum(float(edges[s, t, label] - edges[s, t, 0]) for s, t, label in ends)

    places = list(permutations(range(6), 3))
    best = max(map(by_nodes, places))
    assert by_nodes(tuple(alignment)) == pytest.approx(best)
    alike = [slots for slots in places if by_nodes(slots) == pytest.approx(best)]
    assert len(alike) == 2
    assert by_edges(tuple(alignment)) == pytest.approx(max(map(by_edges, alike)))


def test_the_loss_still_asks_for_the_names() -> None:
    examples = [sentence("?x0", "?x1"), sentence("?x1", "?x0")]
    vocab = Vocabulary.of(examples)
    model = Drawn(vocab.sizes[1], vocab.sizes[2], seed=0)
    rows, keys, held = torch.tensor([[0]]), torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    losses = []
    for row in (0, 1):
        data = pack(examples, vocab, 1, variables_alike=True)
        objective = GraphObjective(data, Align(candidates=1, noise=0.0, remember=False), torch.full((2, 3), -1), 1)
        losses.append(float(objective.losses(model, 0, rows + row, keys, held, infer=True)[0]))
    assert losses[0] != losses[1]


CLASH = [[0.1, 0.6, 0.3], [0.1, 0.5, 0.4], [0.9, 0.05, 0.05]]  # of null, ?x0 and ?x1, in three slots


def test_two_slots_with_one_name_share_the_names_out() -> None:
    says = torch.tensor([CLASH, [[0.1, 0.6, 0.3], [0.1, 0.3, 0.6], [0.8, 0.1, 0.1]]])
    dist = GraphDistribution(says.log(), torch.zeros(2, 3, 3, 2), torch.ones(2, 3, dtype=torch.bool))
    once = with_names_once(dist, (1, 2)).node_log_probs.exp()
    assert once.argmax(-1).tolist() == [[1, 2, 0], [1, 2, 0]]  # 0.6 · 0.4 is more than 0.3 · 0.5
    assert once[0].allclose(torch.tensor([[0.1, 0.6, 0.3], [0.1, 0.4, 0.5], [0.9, 0.05, 0.05]]))
    assert once[1].equal(says[1].log().exp())  # names that differ stay as they are
    assert with_names_once(dist, (1,)).node_log_probs.equal(dist.node_log_probs)  # two slots, and one name


@pytest.mark.parametrize(("variables", "names"), [("alike", ("?x0", "?x1")), ("named", ("?x0", "?x0"))])
def test_a_parser_gives_every_name_once(variables: str, names: tuple[str, ...], small_config: config.Config) -> None:
    examples = [Example(("a", "b", "c"), Graph(("?x0", "?x1"), (Edge(0, "agent", 1),)))]
    vocab = Vocabulary.of(examples)
    settings = config.override(small_config, [("align", "variables", variables)])
    parser = Parser(build_lagr(settings, vocab), vocab, None, settings)
    nodes, edges = torch.tensor([CLASH]).log(), torch.tensor([0.9, 0.1]).log().expand(1, 3, 3, 2)
    parser.run_model = lambda *inputs: GraphDistribution(nodes, edges, torch.ones(1, 3, dtype=torch.bool))
    (parse,) = parser.parse_tokens([("a", "b", "c")])
    assert parse.graph.nodes == names
    (best,) = parser.parse_nbest([("a", "b", "c")], 12)
    all_names = [one.graph.nodes for one in (best, *best.next_best)]
    assert all_names[0] == names and len(all_names) == 12
    assert any(len(set(nodes)) < len(nodes) for nodes in all_names) == (variables == "named")


def test_a_parser_aligns_variables_whatever_their_names(small_config: config.Config) -> None:
    examples = [sentence("?x0", "?x1"), sentence("?x1", "?x0")]
    vocab = Vocabulary.of(examples)
    found = {}
    for variables in ("named", "alike"):
        changes = [("align", "variables", variables), ("align", "noise", 0.0), ("align", "candidates", 1)]
        settings = config.override(small_config, changes)
        torch.manual_seed(3)
        one, other = Parser(build_lagr(settings, vocab), vocab, None, settings).align(examples)
        found[variables] = one.graph.slots == other.graph.slots
    assert found == {"named": False, "alike": True}


def test_a_node_that_may_be_any_of_two_variables_is_a_variable() -> None:
    assert is_variable(f"?x0{OR}?x1") and not is_variable(f"?x0{OR}M0")
    examples = [sentence("?x0", "?x1"), sentence(f"?x0{OR}?x1", "?x2"), sentence("?x2", "?x0")]
    vocab = Vocabulary.of(examples)
    data = pack(examples, vocab, 1, variables_alike=True)
    asked = data.asked(data.batch.target).nodes
    assert asked[0].equal(asked[1]) and asked[0].equal(asked[2]) and asked[0, 0] != asked[0, 2]


def nameless_examples(examples: list[Example]) -> list[Example]:
    return [replace(example, graph=without_names(example.graph)) for example in examples]


def test_counts_put_variables_on_words_of_their_own() -> None:
    """Every *a* introduces a variable, of whatever name; with two layers, two would fit on one *a*."""
    one = [Example(("did", "a", noun, "run"), Graph(("?x0", "runs"), (Edge(0, "agent", 1),))) for noun in "bcdefg"]
    none = [Example(("did", "M0", "run"), Graph(("M0", "runs"), (Edge(0, "agent", 1),))) for _ in range(6)]
    two = [sentence("?x0", "?x1"), sentence("?x1", "?x0")]
    *_, first, second = associated_alignments(nameless_examples([*one, *none, *two]), 2)
    assert first == second and sorted(slot // 2 for slot in first[:2]) == [1, 4]
    turned = [replace(e, graph=e.graph.reordered((1, 2, 0))) for e in two]  # the order of a file is no order
    *_, (patient, sees, agent), _ = associated_alignments(nameless_examples([*one, *none, *turned]), 2)
    assert [agent, patient, sees] == first


def test_a_run_with_variables_alike_trains_and_has_their_names(
    small_config: config.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = []
    monkeypatch.setattr("lagr.train.pack", lambda *given: packed.append(pack(*given)) or packed[-1])
    rows = [sentence("?x0", "?x1"), Example(("did", "a", "b", "run"), Graph(("?x0", "runs"), (Edge(0, "agent", 1),)))]
    source = Source("two", ("train",), lambda split: rows)
    changes = [("align", "variables", "alike"), ("align", "swaps", 1), ("train", "steps", 300), ("train", "batch", 2)]
    (report,) = train(config.override(small_config, changes), source, tmp_path / "run")
    assert report["evaluation"]["train"]["exact"] == 100.0
    learned, again = learned_alignments(tmp_path / "run", source), load(tmp_path / "run").align(rows)
    assert packed[0].kinds is not None
    places = [[dict(zip(e.graph.nodes, e.graph.slots or (), strict=True)) for e in its] for its in (learned, again)]
    assert places[0] == places[1]


def test_a_name_that_two_training_nodes_have_is_refused(small_config: config.Config, tmp_path: Path) -> None:
    source = Source("twice", ("train",), lambda split: [sentence("?x0", "?x1"), sentence("?x2", "?x2")])
    short = config.override(small_config, [("train", "steps", 1), ("train", "batch", 2)])
    train(short, source, tmp_path / "named")  # so, two nodes may have one name
    with pytest.raises(DataError, match=r"training sentence 2 has the variable \?x2 twice"):
        train(config.override(short, [("align", "variables", "alike")]), source, tmp_path / "alike")
    assert not (tmp_path / "alike").exists()
