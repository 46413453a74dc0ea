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
from lagr.descriptions import Descriptions
from lagr.graph import Edge, Graph
from lagr.objectives import GraphObjective
from lagr.parser import build
from lagr.recombine import Judge, recombined
from lagr.vocab import OR, Vocabulary, any_of

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
    new = {e.tokens: e for _ in range(20_000) if (e := described.new_example(rng)) and e.tokens not in seen}
    assert len(new) > 2000
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
    model = build(settings, vocab).eval()
    objective = GraphObjective(data, settings.align, torch.zeros(5, 1), 1)
    losses = [
        objective.losses(model, 0, torch.tensor([[row]]), torch.tensor([0]), torch.tensor([0]), False)[1].item()
        for row in range(5)
    ]
    *each, of_any = torch.tensor(losses)
    torch.testing.assert_close(torch.exp(-torch.stack(each)).sum(), torch.exp(-of_any), rtol=1e-4, atol=0)


def test_questions_of_cfq_get_owners_with_names(cfq_data: Path) -> None:
    examples = random.Random(0).sample(cfq.source(cfq_data / "cfq", "mcd1").read("train"), 6000)
    copied = copied_labels(examples, 2)
    given = label_probabilities(examples)
    slots = associated_alignments(examples, 2, copied.__contains__, given)
    judge = Judge([replace(e, graph=e.graph.with_slots(s)) for e, s in zip(examples, slots, strict=True)], 2, True)
    assert labels_given(given)
    described = judge.descriptions()
    assert isinstance(described, Descriptions) and described.giving == {"a", "'s"}
    assert all(label.startswith("?x") for label in described.counting) and described.direct == {"FILTER", "FILTER2"}
    rng = random.Random(0)
    new = [e for _ in range(20_000) if (e := described.new_example(rng))]
    owned = [e for e in new if "was M" in " ".join(e.tokens) and " 's" in " ".join(e.tokens)]
    assert len(new) > 3000 and len(owned) > 10
