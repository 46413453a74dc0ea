"""Descriptions in the place of names, in a little language whose meanings are known: every new sentence is read again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lagr import config
from lagr.associate import associated_alignments, label_probabilities, labels_given
from lagr.batch import pack
from lagr.copying import copied_labels
from lagr.datasets import Example, cfq
from lagr.descriptions import COMPLEMENT, NAME, Descriptions, Kind
from lagr.graph import OR, Edge, Graph
from lagr.objectives import GraphObjective
from lagr.parser import build
from lagr.parts import Part
from lagr.recombine import Judge, recombined
from lagr.vocab import Vocabulary, any_of

NAMES = [f"M{number}" for number in range(6)]
NOUNS = ["dog", "cat", "boss", "twin", "guest", "judge"]
VERBS = ["saw", "fed", "marries"]  # who marries is somebody else


class Reader:
    """did NP VERB NP | was NP NP | who VERB NP;  NP = NAME | a NOUN | NP 's NOUN.   Outer descriptions count first."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens, self.at, self.described = list(tokens), 0, 0
        self.nodes: list[str] = []
        self.slots: list[int] = []
        self.edges: list[Edge] = []

    def graph(self) -> Graph:
        kind = self.next()
        if kind == "who":
            subject, described = self.node("SELECT", 0), True
        else:
            subject, described = self.thing(as_what=None)
        if kind == "was":
            self.thing(as_what=subject)
        else:
            verb = self.node(self.tokens[self.at].upper(), self.at)
            marries = self.next() == "marries"
            found, other = self.thing(as_what=None)
            self.edges += [Edge(subject, "agent", verb), Edge(verb, "theme", found)]
            if marries and (described or other):
                self.edges.append(Edge(subject, "differs", found))
        assert self.at == len(self.tokens)
        return Graph(tuple(self.nodes), tuple(self.edges), tuple(self.slots))

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def node(self, label: str, at: int) -> int:
        self.nodes.append(label)
        self.slots.append(at)
        return len(self.nodes) - 1

    def thing(self, as_what: int | None) -> tuple[int, bool]:
        """The node of the next noun phrase, and whether it has no name; as_what: what it is said to be, if it is."""
        start = self.at
        end = start + (1 if self.tokens[start] in NAMES else 2)
        while end < len(self.tokens) and self.tokens[end] == "'s":
            end += 2
        self.at = end
        return self.read(start, end, as_what)

    def read(self, start: int, end: int, as_what: int | None) -> tuple[int, bool]:
        if end - start == 1:
            assert as_what is None, "one name is not another"
            return self.node(self.tokens[start], start), False
        word = end - 2  # "a", or "'s"
        head = self.new_description(word) if as_what is None else as_what
        noun = self.node(self.tokens[end - 1], end - 1)
        self.edges.append(Edge(head, "agent", noun))
        if self.tokens[word] == "'s":
            self.edges.append(Edge(noun, "theme", self.read(start, word, None)[0]))
        return head, True

    def new_description(self, at: int) -> int:
        self.described += 1
        return self.node(f"?x{self.described - 1}", at)


def read(tokens: Sequence[str]) -> Example:
    return Example(tuple(tokens), Reader(tokens).graph())


def noun_phrase(rng: random.Random, names: list[str], nouns: list[str], deep: int = 2) -> list[str]:
    choice = rng.random()
    if deep == 0 or choice < 0.4:
        return [names.pop()] if rng.random() < 0.6 else ["a", nouns.pop()]
    return [*noun_phrase(rng, names, nouns, deep - 1), "'s", nouns.pop()]


def sentences(count: int) -> list[Example]:
    """Without "who saw M1's …" and "was M1's … a …", which new sentences should have."""
    rng, found = random.Random(0), []
    while len(found) < count:
        names, nouns = rng.sample(NAMES, 6), rng.sample(NOUNS, 6)
        kind = rng.choice(["did", "did", "who", "who", "was"])
        first = [] if kind == "who" else noun_phrase(rng, names, nouns)
        verb = [] if kind == "was" else [rng.choice(VERBS)]
        second = noun_phrase(rng, names, nouns)
        tokens = [kind, *first, *verb, *second]
        owned = kind == "who" and second[1:2] == ["'s"] and second[0] in NAMES
        both = kind == "was" and (len(second) == 1 or len(first) > 1)
        if not owned and not both:
            found.append(read(tokens))
    twice = [read(f"did a {noun} 's {noun} {verb} M1 's {noun}".split()) for noun in NOUNS for verb in VERBS]
    return found + twice


def placed_by_counts(examples: Sequence[Example]) -> list[Example]:
    unplaced = [replace(e, graph=e.graph.with_slots(None)) for e in examples]
    copied = copied_labels(unplaced, 1)
    slots = associated_alignments(unplaced, 1, copied.__contains__, label_probabilities(unplaced))
    return [replace(e, graph=e.graph.with_slots(its)) for e, its in zip(unplaced, slots, strict=True)]


def uncounted(graph: Graph, counting: str) -> Graph:
    return Graph(tuple(counting if label in counting.split(OR) else label for label in graph.nodes), graph.edges)


@pytest.mark.parametrize("guessed", [False, True])
def test_new_sentences_mean_what_they_say(guessed: bool) -> None:
    examples = sentences(3000)
    judge = Judge(placed_by_counts(examples) if guessed else examples, 1, guessed)
    described = judge.descriptions()
    assert described and described.counting == {"?x0", "?x1", "?x2", "?x3", "?x4", "?x5"} & set(judge.words_of)
    assert described.giving == {"a", "'s"} and described.direct == {"differs"} and described.apart == {"MARRIES"}
    rng, seen = random.Random(0), {example.tokens for example in examples}
    exchanged = described._exchanged

    def checked(site: Part[Kind], other: Part[Kind]) -> Example:
        """The rules that this language does not need."""
        here, there = judge.examples[site.row], judge.examples[other.row]
        say_what = site.kind[0] == COMPLEMENT
        stay = {here.graph.nodes[node] for node in range(len(here.graph.nodes)) if node not in site.nodes}
        come = {there.graph.nodes[node] for node in other.nodes if not (say_what and node == other.head)}
        assert not stay & come - described.counting
        assert judge.have_met(there.tokens[other.end - 1], (*here.tokens, "")[site.end])
        assert say_what or judge.have_met(("", *here.tokens)[site.start], there.tokens[other.start])
        return exchanged(site, other)

    described._exchanged = checked  # type: ignore[method-assign]
    new = {e.tokens: e for _ in range(20_000) if (e := described.new_example(rng)) and e.tokens not in seen}
    assert len(new) > 2000
    for asks in (True, False):  # who is asked for counts, too
        counts = [e.graph.nodes.count(described.any) for e in new.values() if ("SELECT" in e.graph.nodes) == asks]
        given = [sum(s[0] == "?" for s in e.graph.nodes) for e in examples if ("SELECT" in e.graph.nodes) == asks]
        assert max(counts) <= max(given)
    for tokens, example in new.items():
        gold = read(tokens).graph
        assert example.graph == uncounted(gold, any_of(described.counting)), " ".join(tokens)
        if not guessed:
            assert example.graph.slots is not None
            told = {(slot, label) for slot, label in zip(example.graph.slots, example.graph.nodes, strict=True)}
            assert told == {
                (slot, any_of(described.counting) if label in described.counting else label)
                for slot, label in zip(gold.slots or (), gold.nodes, strict=True)
            }
    assert sum(tokens[0] == "who" and tokens[2] in NAMES and tokens[3:4] == ("'s",) for tokens in new) > 20
    assert sum(tokens[0] == "was" and tokens.count("'s") > 1 and tokens[2] == "'s" for tokens in new) > 50
    assert sum(example.graph.nodes.count(any_of(described.counting)) > 2 for example in new.values()) > 100


def in_two_layers(example: Example, layer: int = 0) -> Example:
    return replace(example, graph=example.graph.with_slots([2 * slot + layer for slot in example.graph.slots or ()]))


def test_slots_move_with_their_words_in_several_layers() -> None:
    described = Judge([in_two_layers(example, 1) for example in sentences(1000)], 2).descriptions()
    assert described
    rng = random.Random(0)
    for new in [e for _ in range(2000) if (e := described.new_example(rng))]:
        gold = in_two_layers(read(new.tokens), 1).graph
        assert sorted(new.graph.slots or ()) == sorted(gold.slots or ())


def test_a_name_whose_word_gives_another_node_stays() -> None:
    """That node would be left without its word."""
    examples = []
    for example in map(in_two_layers, sentences(600)):
        graph, slots = example.graph, example.graph.slots or ()
        for node, label in enumerate(graph.nodes):
            said = [edge for edge in graph.edges if label in NAMES[:3] and edge.target == node]
            if said:
                graph = Graph(
                    (*graph.nodes, "PERSON"),
                    (*graph.edges, Edge(said[0].source, "person", len(graph.nodes))),
                    slots := (*slots, slots[node] + 1),
                )
        examples.append(replace(example, graph=graph))
    described = Judge(examples, 2).descriptions()
    assert described
    names = [part for part in described.parts if part.kind[0] == NAME]
    alone = [sum(slot // 2 == part.start for slot in examples[part.row].graph.slots or ()) == 1 for part in names]
    assert len(names) > 100 and all(alone)


def test_odd_graphs_are_left_alone() -> None:
    """Names of which nothing is said, descriptions that are all there is, edges from a node to itself, no common words."""
    odd = [Example(("hello", name), Graph(("HELLO", name), (), (0, 1))) for name in NAMES for _ in range(10)]
    alone = Example(("did", "a", "dog", "yes"), Graph(("?x0", "dog", "YES"), (Edge(0, "agent", 1),), (1, 2, 3)))
    loops = [
        replace(
            e,
            graph=replace(
                e.graph,
                edges=(
                    *e.graph.edges,
                    *(Edge(n, "self", n) for n, s in enumerate(e.graph.nodes) if s in NAMES or s[0] == "?"),
                ),
            ),
        )
        for e in sentences(300)
    ]
    for more in (odd, [alone] * 20, loops):
        described = Judge([*sentences(400), *more], 1).descriptions()
        assert described
        rng = random.Random(0)
        assert [e for _ in range(3000) if (e := described.new_example(rng))]
    rare = [Example((f"w{number}",), Graph((), (), ())) for number in range(200 * 400)]
    assert Judge([*placed_by_counts(sentences(400)), *rare], 1, True).descriptions() is None


def test_parts_that_may_have_other_nodes_are_left_out() -> None:
    examples = sentences(400)
    judge = Judge(examples, 1)
    unsure: list[dict[int, set[str]]] = [{0: set(e.graph.nodes)} if row % 2 else {} for row, e in enumerate(examples)]
    described = judge.descriptions(unsure)
    assert described and {part.row % 2 for part in described.parts} == {0}


def test_nothing_is_described_where_no_labels_count() -> None:
    """Names alone, or descriptions whose labels have words of their own."""
    examples = sentences(600)
    assert Judge([e for e in examples if "?x0" not in e.graph.nodes], 1).descriptions() is None
    own_words = {"?x0": "a", "?x1": "the", "?x2": "my"}
    apart = [
        replace(
            e,
            tokens=tuple(
                own_words.get(e.graph.nodes[e.graph.slots.index(at)], word) if at in e.graph.slots else word
                for at, word in enumerate(e.tokens)
            ),
        )
        for e in examples
        if e.graph.slots and "?x3" not in e.graph.nodes
    ]
    assert Judge(apart, 1).descriptions() is None


def test_all_ways_of_making_sentences_get_their_share() -> None:
    examples = sentences(1500)
    new = recombined(examples, 1, 900)
    described = [e for e in new if any(OR in label for label in e.graph.nodes)]
    assert len(new) == 900 and 200 < len(described) <= 450
    assert len({e.tokens for e in [*examples, *new]}) == len({e.tokens for e in examples}) + len(new)


def test_a_node_that_may_have_any_of_some_labels_has_the_sum_of_their_probabilities() -> None:
    examples = sentences(200)
    settings = config.override(config.load("cogs-best"), [("model", "width", 32), ("model", "valency", 0)])
    vocab = Vocabulary.of(examples, copied=copied_labels(examples, 1))
    labels = any_of(["?x0", "?x1"])
    one = next(e for e in examples if "?x1" in e.graph.nodes and "?x2" not in e.graph.nodes)
    graph = one.graph
    ways = [
        replace(one, graph=replace(graph, nodes=tuple({"?x0": a, "?x1": b}.get(s, s) for s in graph.nodes)))
        for a, b in (("?x0", "?x0"), ("?x0", "?x1"), ("?x1", "?x0"), ("?x1", "?x1"), (labels, labels))
    ]
    data = pack(ways, vocab, 1)
    assert data.choices == (tuple(vocab.node_numbers[label] for label in ("?x0", "?x1")),)
    torch.manual_seed(0)
    model = build(settings, vocab).eval()
    objective = GraphObjective(data, settings.align, data.batch.alignment, 1)
    losses = [
        objective.losses(model, 0, torch.tensor([[row]]), torch.tensor([0]), torch.tensor([0]), False)[1].item()
        for row in range(5)
    ]
    *each, of_any = torch.tensor(losses, dtype=torch.float64)
    torch.testing.assert_close(torch.logsumexp(-torch.stack(each), 0), -of_any, rtol=0, atol=1e-4)
    assert len(set(losses)) > 3


def test_questions_of_cfq_get_owners_with_names(cfq_data: Path) -> None:
    examples = random.Random(0).sample(cfq.source(cfq_data / "cfq", "mcd1").read("train"), 6000)
    copied, given = copied_labels(examples, 2), label_probabilities(examples)
    slots = associated_alignments(examples, 2, copied.__contains__, given)
    judge = Judge([replace(e, graph=e.graph.with_slots(s)) for e, s in zip(examples, slots, strict=True)], 2, True)
    described = judge.descriptions(judge.unsure_tokens(judge.examples, labels_given(given)))
    assert isinstance(described, Descriptions) and described.giving == {"a", "'s"}
    assert all(label.startswith("?x") for label in described.counting) and described.direct == {"FILTER", "FILTER2"}
    rng = random.Random(0)
    new = [e for _ in range(20_000) if (e := described.new_example(rng))]
    owned = [e for e in new if "was M" in " ".join(e.tokens) and " 's" in " ".join(e.tokens)]
    assert len(new) > 3000 and len(owned) > 10


def test_valencies_that_no_given_node_has_are_noticed() -> None:
    """Training would take such a node for one without edges."""
    examples = sentences(200)
    vocab = Vocabulary.of(examples, valency=3)
    assert all(vocab.knows_valencies(example.graph) for example in examples)
    graph = examples[0].graph
    more = [Edge(0, "agent", len(graph.nodes) + number) for number in range(3)]
    assert not vocab.knows_valencies(Graph((*graph.nodes, "dog", "cat", "boss"), (*graph.edges, *more)))


def test_counts_place_what_may_have_any_of_some_labels_by_all_of_them() -> None:
    example = Example(("b", "a"), Graph((any_of(["?x0", "?x1"]),)))
    given = {("a", "?x0"): 0.3, ("a", "?x1"): 0.3, ("b", "?x0"): 0.5}
    assert associated_alignments([example], 1, given=given) == [[1]]
    assert label_probabilities([example]) == {}
