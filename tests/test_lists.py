"""New sentences with other lists: what a list is, what may stand in it, and that its members mean what they did."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice, permutations
from pathlib import Path

import pytest

from lagr.associate import associated_alignments, label_probabilities, labels_given
from lagr.copying import copied_labels
from lagr.datasets import Example, cfq, cogs, examples_of, mini
from lagr.errors import FormError
from lagr.forms import sparql
from lagr.graph import Edge, Graph
from lagr.lists import Lists
from lagr.recombine import Judge, recombined

NAMES = ("M1", "M2", "M3", "M4", "M5", "M6")
JOBS = ("editor", "art director", "writer", "star", "producer")
VERBS = ("edited", "saw", "met")


ALONE_VERB = "heard"  # that never has a list


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
    labels = ("who", verb, "?x1", "M9", *(job.upper() for job in jobs))
    edges = [Edge(0, "agent", 1), Edge(1, "theme", 2)]
    edges += [edge for n in range(4, len(labels)) for edge in (Edge(2, "agent", n), Edge(n, "theme", 3))]
    slots = (0, 1, 2, len(tokens) - 1, *(tokens.index(job.split()[0]) for job in jobs))
    return Example(tokens, Graph(labels, tuple(edges), slots))


ALONE = [about_names(ALONE_VERB, ("M2",)), about_jobs(ALONE_VERB, ("star",)), about_jobs(ALONE_VERB, ("art director",))]


# Jobs are followed by many words; "art" is by one.
ELSEWHERE = [Example((*job.split(), word), Graph((), (), ())) for job in JOBS for word in "abcdefghijklmnop"]


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
    examples += [about_jobs("saw", jobs) for jobs in permutations(JOBS, 3)]
    return examples + ALONE + ELSEWHERE


def ways(new: Example) -> tuple[str, int]:
    """The verb of a sentence and how many are in its list."""
    return new.tokens[1], len(new.graph.nodes) - (4 if "M9" in new.tokens else 2)


def always(*labels: object) -> bool:
    return True


def lists_of(examples: Sequence[Example], graph_layers: int = 1) -> Lists:
    judge = Judge(examples, graph_layers)
    return Lists(examples, graph_layers, judge.have_met, judge.may_rename, judge.unsure_tokens(examples, None))


def drawn(lists: Lists, tries: int = 3000) -> list[Example]:
    rng = random.Random(0)
    return [new for _ in range(tries) if (new := lists.new_example(rng))]


@pytest.mark.parametrize("step", [1, -1])
def test_new_lists_mean_what_the_language_says(step: int) -> None:
    """Every new sentence is one of the language, with the graph and the places that the language gives it.

    step: the nodes in the order of their words, or the other way round.
    """
    examples = [replace(e, graph=e.graph.reordered(range(len(e.graph.nodes))[::step])) for e in sample()]
    made = drawn(lists_of(examples))
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
    names = Counter(ways(new) for new in made if "M9" not in new.tokens)
    jobs = Counter(ways(new) for new in made if "M9" in new.tokens)
    assert {(verb, size) for verb in VERBS for size in (2, 3, 4, 5)} <= set(names)
    assert {(verb, size) for verb in VERBS for size in (2, 3, 4, 5)} <= set(jobs)


def test_one_that_stands_alone_gets_company() -> None:
    lists = lists_of(sample())
    made = {ways(new) for new in drawn(lists)}
    assert {(ALONE_VERB, size) for size in (2, 3, 4, 5)} <= made
    assert {lists.examples[its.row].tokens[1] for its in lists.alone} == {ALONE_VERB}


def test_one_that_stands_alone_must_stand_as_lists_do() -> None:
    """Before a word that has followed a list, with the label and the sides that its last member had."""
    jobs = [*(about_jobs("saw", pair) for pair in permutations(JOBS, 2)), *ELSEWHERE]
    alone = about_jobs("saw", ("star",))
    whose = replace(alone, tokens=(*alone.tokens[:4], "in", "M9"))
    labels = [label if label != "STAR" else "PLAYED" for label in alone.graph.nodes]
    other = replace(alone, graph=Graph(tuple(labels), alone.graph.edges, alone.graph.slots))
    turned = [
        Edge(e.target, e.label, e.source) if e.label == "theme" and e.target == 3 else e for e in alone.graph.edges
    ]
    backwards = replace(alone, graph=Graph(alone.graph.nodes, tuple(turned), alone.graph.slots))
    two_words = about_jobs("saw", ("art director",))
    whose_two = replace(two_words, tokens=(*two_words.tokens[:5], "in", "M9"))
    expected = ((alone, 1), (whose, 0), (other, 0), (backwards, 0), (two_words, 1), (whose_two, 0))
    for example, count in expected:
        assert len([its for its in lists_of([*jobs, example]).alone if its.row == len(jobs)]) == count


def test_what_no_longer_list_ends_with_makes_no_list_of_two() -> None:
    """ "Who saw M1 then M2" has twins, but lists have "and" before their last member."""
    then = about_names("saw", ("M1", "M2"))
    then = replace(then, tokens=tuple("then" if token == "and" else token for token in then.tokens))
    longer = about_names("saw", NAMES[:3])
    assert [its.row for its in lists_of([then]).lists] == [0]
    assert [its.row for its in lists_of([then, longer]).lists] == [1]


def test_words_that_hardly_stand_alone_count_with_the_next() -> None:
    kinds = [lists_of(sample())._kind(its, -1).words for its in lists_of(sample()).lists]
    assert ("art", "director") in kinds and ("star",) in kinds and ("art",) not in kinds


def test_slots_of_several_graph_layers_move_along() -> None:
    """Names in the second layer, all else in the first."""

    def layered(example: Example) -> Example:
        pairs = zip(example.graph.nodes, example.graph.slots or (), strict=True)
        return replace(
            example, graph=example.graph.with_slots([2 * slot + label.startswith("M") for label, slot in pairs])
        )

    for new in drawn(lists_of([layered(e) for e in sample()], 2), 300):
        expected = layered(meaning(new.tokens))
        assert new.graph.slots is not None and expected.graph.slots is not None
        assert list(new.graph.slots) == [
            dict(zip(expected.graph.nodes, expected.graph.slots, strict=True))[label] for label in new.graph.nodes
        ]


def test_nodes_with_an_edge_to_themselves_are_in_no_list() -> None:
    both = [Edge(s, "sees", t) for s in (0, 1) for t in (0, 1)]
    example = Example(("M1", "and", "M2"), Graph(("M1", "M2"), tuple(both), (0, 2)))
    assert lists_of([example]).lists == []


def test_two_nodes_of_a_label_are_in_no_list() -> None:
    twice = Example(
        ("saw", "and", "saw", "M1"), Graph(("see", "see", "M1"), (Edge(0, "theme", 2), Edge(1, "theme", 2)), (0, 2, 3))
    )
    assert lists_of([twice]).lists == []


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

    def found(example: Example, unsure: dict[int, set[str]]) -> int:
        return len(Lists([example], 1, lambda one, other: True, always, [unsure]).lists)

    assert found(names, {}) == 1
    assert found(names, {4: {"see"}}) == 0
    assert found(names, {1: {"M2"}}) == 0
    assert found(names, {1: {"see"}}) == 1
    moved = replace(names, graph=names.graph.with_slots((0, 4, 2, 5)))
    assert found(moved, {}) == 0


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
    lists = Lists([one, other], 1, lambda before, word: (before, word) != ("edited", "M3"), always, [{}, {}])
    assert {new.tokens for new in drawn(lists, 50)} == {one.tokens}


def test_names_stay_where_they_may_not_change() -> None:
    asked: set[tuple[frozenset[str], frozenset[str], frozenset[str]]] = set()

    def never(leave: Collection[str], come: Collection[str], labels: Collection[str]) -> bool:
        asked.add((frozenset(leave), frozenset(come), frozenset(labels)))
        return False

    one, other = about_names("edited", ("M1", "M2")), about_names("edited", ("M3", "M2"))
    assert drawn(Lists([one, other], 1, lambda before, word: True, never, [{}, {}]), 50) == []
    rest = {"who", "edited", "M2"}
    assert asked == {
        (frozenset({old}), frozenset({new}), frozenset(rest | {new})) for old in ("M1", "M3") for new in ("M1", "M3")
    }


def test_recombined_has_both_ways() -> None:
    made = recombined(sample(), 1, 200)
    assert any(len(new.graph.nodes) - 2 in (3, 4) for new in made if "M9" not in new.tokens)
    assert len({new.tokens for new in made} | {e.tokens for e in sample()}) == len(made) + len(
        {e.tokens for e in sample()}
    )


def test_one_list_does_not_keep_phrases_from_being_made() -> None:
    examples = mini.source(400).read("train")
    without = len(recombined(examples, 1, 400))
    assert without > 100
    assert len(recombined([*examples, about_names("edited", ("M1", "M2"))], 1, 400)) >= 0.9 * without


def test_mini_has_no_lists() -> None:
    assert lists_of(mini.source(400).read("train")).lists == []


def test_cogs_has_no_lists(cogs_data: Path) -> None:
    assert lists_of(cogs.source(cogs_data / "cogs").read("train")).lists == []


def test_new_questions_of_cfq_have_queries_that_are_read_as_their_graphs(cfq_data: Path) -> None:
    """Guessed places, real questions: nothing is merged by a query that its graph has apart."""
    examples = examples_of(islice(cfq.source(cfq_data / "cfq", "mcd1").rows("train"), 20_000))
    given = label_probabilities(examples)
    copied = copied_labels(examples, 2)
    slots = associated_alignments(examples, 2, copied.__contains__, given)
    placed = [replace(e, graph=e.graph.with_slots(found)) for e, found in zip(examples, slots, strict=True)]
    judge = Judge(placed, 2, guessed=True)
    lists = Lists(placed, 2, judge.have_met, judge.may_rename, judge.unsure_tokens(placed, labels_given(given)))
    made = drawn(lists, 5000)
    assert len(made) > 1000
    other = 0
    for new in made:
        try:
            other += sparql.read(sparql.write(new.graph)) != new.graph
        except FormError:
            other += 1
    assert other < 0.005 * len(made)  # an entity more can make two nodes of equal label one
