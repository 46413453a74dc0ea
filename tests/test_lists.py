"""New sentences with other lists: what a list is, what may stand in it, and that its members mean what they did."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from lagr.associate import associated_alignments, label_probabilities, labels_given
from lagr.copying import copied_labels
from lagr.datasets import Example, cfq, cogs, mini
from lagr.errors import FormError
from lagr.forms import sparql
from lagr.graph import Edge, Graph
from lagr.lists import Lists
from lagr.recombine import Judge, recombined

NAMES = ("M1", "M2", "M3", "M4", "M5", "M6")
JOBS = ("editor", "art director", "writer", "star", "producer")
VERBS = ("edited", "saw", "met")


def joined(items: Sequence[str]) -> str:
    return " and ".join(items) if len(items) < 3 else " , ".join(items[:-1]) + " , and " + items[-1]


def about_names(verb: str, names: Sequence[str]) -> Example:
    """Who edited M1 , M2 , and M3: the oracle of what such a sentence means."""
    tokens = ("Who", *verb.split(), *joined(names).split())
    edges = [Edge(0, "agent", 1), *(Edge(1, "theme", n) for n in range(2, 2 + len(names)))]
    slots = (0, 1, *(tokens.index(name) for name in names))
    return Example(tokens, Graph(("who", verb, *names), tuple(edges), slots))


def about_jobs(verb: str, jobs: Sequence[str]) -> Example:
    """Who saw a editor and star of M9."""
    tokens = ("Who", verb, "a", *joined(jobs).split(), "of", "M9")
    labels = ("who", verb, "?x1", "M9", *jobs)
    edges = [Edge(0, "agent", 1), Edge(1, "theme", 2)]
    edges += [edge for n in range(4, len(labels)) for edge in (Edge(2, "agent", n), Edge(n, "theme", 3))]
    slots = (0, 1, 2, len(tokens) - 1, *(tokens.index(job.split()[0]) for job in jobs))
    return Example(tokens, Graph(labels, tuple(edges), slots))


def meaning(tokens: Sequence[str]) -> Example:
    """The example of a sentence of this little language, read from its words."""
    text = " ".join(tokens[2:]).replace(" , and ", " , ").replace(" and ", " , ")
    if text.startswith("a "):
        return about_jobs(tokens[1], text.removeprefix("a ").removesuffix(" of M9").split(" , "))
    return about_names(tokens[1], text.split(" , "))


def sample() -> list[Example]:
    """Names in lists of two and five, jobs in lists of two and three; of verbs, only one has the longer ones."""
    examples = [about_names(verb, names) for verb in VERBS for names in permutations(NAMES[:4], 2)]
    examples += [about_names("edited", names) for names in (NAMES[:5], NAMES[1:], NAMES[::-1][:5])]
    examples += [about_jobs(verb, jobs) for verb in VERBS for jobs in permutations(JOBS, 2)]
    return examples + [about_jobs("saw", jobs) for jobs in permutations(JOBS, 3)]


def lists_of(examples: Sequence[Example], graph_layers: int = 1) -> Lists:
    judge = Judge(examples, graph_layers)
    return Lists(examples, graph_layers, judge.have_met, judge.unsure_tokens(examples, None))


def drawn(lists: Lists, tries: int = 3000) -> list[Example]:
    rng = random.Random(0)
    return [new for _ in range(tries) if (new := lists.new_example(rng))]


def test_new_lists_mean_what_the_language_says() -> None:
    """Every new sentence is one of the language, with the graph and the places that the language gives it."""
    made = drawn(lists_of(sample()))
    assert len(made) > 1000
    for new in made:
        expected = meaning(new.tokens)
        assert new.tokens == expected.tokens
        assert new.graph == expected.graph
        assert new.graph.slots is not None and expected.graph.slots is not None
        assert dict(zip(new.graph.nodes, new.graph.slots, strict=True)) == dict(
            zip(expected.graph.nodes, expected.graph.slots, strict=True)
        )


def test_lists_get_lengths_and_places_that_training_does_not_have() -> None:
    made = drawn(lists_of(sample()))
    names = Counter((new.tokens[1], len(new.graph.nodes) - 2) for new in made if "M9" not in new.tokens)
    jobs = Counter((new.tokens[1], len(new.graph.nodes) - 4) for new in made if "M9" in new.tokens)
    assert {(verb, size) for verb in VERBS for size in (2, 3, 4, 5)} <= set(names)
    assert {(verb, size) for verb in VERBS for size in (2, 3, 4, 5)} <= set(jobs)


def test_slots_of_several_graph_layers_move_along() -> None:
    two = [
        replace(e, graph=e.graph.with_slots([2 * slot + slot % 2 for slot in e.graph.slots or ()])) for e in sample()
    ]
    for new in drawn(lists_of(two, 2), 300):
        expected = meaning(new.tokens)
        assert new.graph.slots is not None and expected.graph.slots is not None
        assert [slot // 2 for slot in new.graph.slots] == [
            dict(zip(expected.graph.nodes, expected.graph.slots, strict=True))[label] for label in new.graph.nodes
        ]


@pytest.mark.parametrize(
    ("tokens", "slots", "edges"),
    [
        ("Who saw M1 slowly quite often and M2", (0, 1, 2, 7), ((1, 2), (1, 3))),  # too far from each other
        ("Who saw M1 M2", (0, 1, 2, 3), ((1, 2), (1, 3))),  # nothing between them
        ("Who saw M1 and M2", (0, 1, 2, 4), ((1, 2), (0, 3))),  # not the same edges
    ],
)
def test_what_is_no_list(tokens: str, slots: Sequence[int], edges: Sequence[tuple[int, int]]) -> None:
    graph = Graph(
        ("who", "see", "M1", "M2"), (Edge(0, "agent", 1), *(Edge(s, "theme", t) for s, t in edges)), tuple(slots)
    )
    assert lists_of([Example(tuple(tokens.split()), graph)]).lists == []


def test_no_list_has_a_node_or_an_unsure_word_between_its_members() -> None:
    names = Example(
        ("Who", "saw", "M1", "and", "saw", "M2"),
        Graph(
            ("who", "see", "M1", "M2"), (Edge(0, "agent", 1), Edge(1, "theme", 2), Edge(1, "theme", 3)), (0, 1, 2, 5)
        ),
    )

    def found(example: Example, unsure: tuple[int, ...] = ()) -> int:
        return len(Lists([example], 1, lambda one, other: True, [unsure]).lists)

    assert found(names) == 1
    assert found(names, (4,)) == 0
    moved = replace(names, graph=names.graph.with_slots((0, 4, 2, 5)))
    assert found(moved) == 0


def test_a_label_that_is_there_does_not_come_again() -> None:
    for new in drawn(lists_of(sample())):
        assert max(Counter(new.graph.nodes).values()) == 1


def test_members_come_from_lists_with_the_same_edges_around() -> None:
    """Where the nodes that a member joins are joined themselves (CFQ's filters), that may be because of the member."""
    plain = about_jobs("saw", ("editor", "star"))
    other = about_jobs("saw", ("writer", "star"))
    filtered = replace(
        other, graph=Graph(other.graph.nodes, (*other.graph.edges, Edge(2, "FILTER", 3)), other.graph.slots)
    )
    assert {new.tokens for new in drawn(lists_of([plain, other]), 50)} == {plain.tokens, other.tokens}
    assert {new.tokens for new in drawn(lists_of([plain, filtered]), 50)} == {plain.tokens, filtered.tokens}
    made = drawn(lists_of([plain, filtered]), 50)
    assert all(("FILTER" in {e.label for e in new.graph.edges}) == ("writer" in new.tokens) for new in made)


def test_words_meet_only_those_that_they_have_met() -> None:
    one, other = about_names("edited", ("M1", "M2")), about_names("edited", ("M3", "M2"))
    lists = Lists([one, other], 1, lambda before, word: (before, word) != ("edited", "M3"), [(), ()])
    assert {new.tokens for new in drawn(lists, 50)} == {one.tokens}


def test_recombined_has_both_ways() -> None:
    made = recombined(sample(), 1, 200)
    assert any(len(new.graph.nodes) - 2 in (3, 4) for new in made if "M9" not in new.tokens)
    assert len({new.tokens for new in made} | {e.tokens for e in sample()}) == len(made) + len(
        {e.tokens for e in sample()}
    )


def test_mini_has_no_lists() -> None:
    assert lists_of(mini.source(400).read("train")).lists == []


def test_cogs_has_no_lists(cogs_data: Path) -> None:
    assert lists_of(cogs.source(cogs_data / "cogs").read("train")).lists == []


def test_new_questions_of_cfq_have_queries_that_are_read_as_their_graphs(cfq_data: Path) -> None:
    """Guessed places, real questions: nothing is merged by a query that its graph has apart."""
    examples = cfq.source(cfq_data / "cfq", "mcd1").read("train")[:20_000]
    given = label_probabilities(examples)
    copied = copied_labels(examples, 2)
    slots = associated_alignments(examples, 2, copied.__contains__, given)
    placed = [replace(e, graph=e.graph.with_slots(found)) for e, found in zip(examples, slots, strict=True)]
    judge = Judge(placed, 2, guessed=True)
    lists = Lists(placed, 2, judge.have_met, judge.unsure_tokens(placed, labels_given(given)))
    made = drawn(lists, 5000)
    assert len(made) > 1000
    other = 0
    for new in made:
        try:
            other += sparql.read(sparql.write(new.graph)) != new.graph
        except FormError:
            other += 1
    assert other < 0.005 * len(made)  # an entity more can make two nodes of equal label one
