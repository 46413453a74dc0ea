"""New training sentences: what a phrase is, which may change places, and that nothing else changes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import combinations, islice
from pathlib import Path

import pytest

from lagr.associate import associated_alignments, label_probabilities, labels_given
from lagr.config import load, override
from lagr.copying import copied_labels
from lagr.datasets import Example, cfq, cogs, examples_of, mini
from lagr.errors import DataError
from lagr.forms import formalism
from lagr.graph import OR, Edge, Graph
from lagr.recombine import Judge, exchanged, phrases, recombined
from lagr.runs import ALIGNMENTS, read_tensors
from lagr.supervision import learned_alignments, more_examples, training_examples
from lagr.train import train

ATE = Example(
    ("Emma", "ate", "a", "cake", "on", "the", "table", "."),
    Graph(
        ("Emma", "eat", "cake", "*", "table"),
        (Edge(1, "agent", 0), Edge(1, "theme", 2), Edge(2, "nmod.on", 4), Edge(3, "article", 4)),
        (0, 1, 3, 5, 6),
    ),
)
FELL = Example(("A", "cake", "fell", "."), Graph(("cake", "fall"), (Edge(1, "theme", 0),), (1, 2)))
SLEPT = Example(
    ("The", "cat", "slept", "."), Graph(("*", "cat", "sleep"), (Edge(0, "article", 1), Edge(2, "agent", 1)), (0, 1, 2))
)


def words_of(example: Example, graph_layers: int = 1) -> list[str]:
    found = phrases(example, 0, graph_layers)
    return sorted(" ".join(example.tokens[phrase.start : phrase.end]) for phrase in found)


def test_a_phrase_is_a_word_with_all_that_hangs_on_it() -> None:
    assert words_of(ATE) == ["Emma", "cake on the table", "table"]
    assert words_of(FELL) == ["cake"]


def test_phrases_are_those_that_the_definition_allows() -> None:
    """Every run of words with every head, judged by the words of the definition, one after the other."""
    for example in mini.source(60).read("train"):
        graph = example.graph
        assert graph.slots is not None
        longest: dict[int, tuple[int, int]] = {}
        for start, end in combinations(range(len(example.tokens) + 1), 2):
            inside = {node for node, slot in enumerate(graph.slots) if start <= slot < end}
            into = {e.target for e in graph.edges if e.target in inside and e.source not in inside}
            out = [e for e in graph.edges if e.source in inside and e.target not in inside]
            heads = [node for node in inside if graph.slots[node] == start]
            if end - 1 not in graph.slots or len(heads) != 1 or into != set(heads) or out:
                continue
            if any(e.target == heads[0] and e.source in inside for e in graph.edges):
                continue
            groups = [{node} for node in inside]
            for e in graph.edges:
                if e.source in inside:
                    one, other = (next(g for g in groups if end in g) for end in (e.source, e.target))
                    if one is not other:
                        groups.remove(other)
                        one |= other
            if len(groups) == 1:
                longest[heads[0]] = max(longest.get(heads[0], (0, 0)), (end, start))
        found = {phrase.head: (phrase.end, phrase.start) for phrase in phrases(example, 0, 1)}
        assert found == longest


def test_a_cake_on_the_table_may_fall() -> None:
    examples = [ATE, FELL, SLEPT]
    (cake_on_table,) = (p for p in phrases(ATE, 0, 1) if p.end - p.start > 1)
    (cake,) = phrases(FELL, 1, 1)
    new = exchanged(examples, cake, cake_on_table, 1)
    assert " ".join(new.tokens) == "A cake on the table fell ."
    wanted = Graph(
        ("fall", "cake", "*", "table"),
        (Edge(0, "theme", 1), Edge(1, "nmod.on", 3), Edge(2, "article", 3)),
        (5, 1, 3, 4),
    )
    assert new.graph == wanted
    assert new.graph.slots is not None
    assert {new.graph.nodes[n]: slot for n, slot in enumerate(new.graph.slots)} == {
        "fall": 5,
        "cake": 1,
        "*": 3,
        "table": 4,
    }


def test_nothing_is_made_where_nothing_can_change_places() -> None:
    assert recombined([FELL, SLEPT], 1, 10) == []
    assert recombined([], 1, 10) == []


def test_the_last_word_must_have_been_before_the_next() -> None:
    on_tables = replace(ATE, tokens=tuple("tables" if token == "table" else token for token in ATE.tokens))
    nodes = ("*", "table", "*", "table", "see")
    twice = Graph(nodes, (Edge(0, "article", 1), Edge(2, "article", 3)), (0, 1, 3, 4, 2))
    examples = [on_tables, FELL, SLEPT, Example(("The", "desk", "saw", "the", "desk", "."), twice)]
    assert "A cake on the tables fell ." not in made_of(examples)
    assert "A cake on the tables fell ." in made_of(
        [*examples, Example(("tables", "fell"), Graph(("fall",), (), (1,)))]
    )
    # Copied words count as one, so that one before "fell" stands for all.
    twice = Graph(("*", "cat", "*", "cat"), (Edge(0, "article", 1), Edge(2, "article", 3)), (0, 1, 3, 4))
    the_cat = Example(("The", "cat", "saw", "the", "cat", "."), twice)
    assert "A cake on the table fell ." in made_of([ATE, FELL, SLEPT, the_cat])


def made_of(examples: list[Example]) -> set[str]:
    return {" ".join(new.tokens) for new in recombined(examples, 1, 10)}


TIMES = 10  # as often as a kind must be seen


def said(before: str, noun: str, label: str, after: str, edge: str = "agent", twice: bool = True) -> list[Example]:
    """Sentences with a phrase of one word between two others; in one of them it comes twice."""
    once = Graph(("x", label), (Edge(0, edge, 1),), (0, 1))
    double = Graph(("x", label, label), (Edge(0, edge, 1), Edge(0, edge, 2)), (0, 1, 4))
    last = Example((before, noun, after, before, noun, after), double)
    return [Example((before, noun, after), once)] * TIMES + [last] * twice


def alike(examples: list[Example], word: str) -> set[str]:
    judge = Judge(examples, 1)
    (kind,) = (kind for kind in judge.of_kind if kind.word == word)
    return {other.word for other in judge.alike(kind)}


def test_kinds_that_stand_between_the_same_words_take_each_others_place() -> None:
    actor = said("a", "actor", "ACTOR", "fell")
    assert alike([*actor, *said("a", "writer", "WRITER", "fell")], "actor") == {"actor", "writer"}
    assert alike([*actor, *said("the", "writer", "WRITER", "fell")], "actor") == {"actor"}  # another word before
    assert alike([*actor, *said("a", "writer", "WRITER", "sang")], "actor") == {"actor"}  # another word after
    assert alike([*actor, *said("a", "writer", "WRITER", "fell", edge="theme")], "actor") == {"actor"}  # another edge
    assert alike([*actor, *said("a", "writer", "WRITER", "fell", twice=False)], "actor") == {"actor"}  # only once
    assert alike([*actor, *said("a", "writer", "WRITER", "fell")[-2:]], "actor") == {"actor"}  # too rare
    # Two thirds of its neighbours must be those of the other: 11 of 22 are not enough, 22 of 33 neither, 33 of 44 are.
    for times, found in ((1, {"actor"}), (2, {"actor"}), (3, {"actor", "writer"})):
        both = said("a", "writer", "WRITER", "fell") * times + said("the", "writer", "WRITER", "fell")
        assert alike([*actor, *both], "actor") == found


def test_labels_that_come_once_stay_the_same_and_do_not_come_twice() -> None:
    def query(tokens: str, nodes: tuple[str, ...], slots: tuple[int, ...]) -> Example:
        """Each node but the first is entered from the one before it."""
        edges = tuple(Edge(node, "e", node + 1) for node in range(len(nodes) - 1))
        return Example(tuple(tokens.split()), Graph(nodes, edges, slots))

    plain = query("who edited film M1", ("ask", "EDIT", "FILM", "M1"), (0, 1, 2, 3))
    other = query("who saw film M2", ("ask", "SEE", "FILM", "M2"), (0, 1, 2, 3))
    made = made_of([plain, other])
    assert {"who edited film M2", "who saw film M1"} <= made  # copied labels may be others
    clash = query("M2 saw film M1", ("M2", "SEE", "FILM", "M1"), (0, 1, 2, 3))
    assert "M2 saw film M2" not in made_of([plain, other, clash])  # but no label may come twice that never does
    variable = query("who saw film a", ("ask", "SEE", "FILM", "?x1"), (0, 1, 2, 3))
    assert made_of([plain, variable]) == set()  # neither may a variable come nor go
    numbered = query("who edited film a b", ("ask", "EDIT", "FILM", "?x1"), (0, 1, 2, 4))
    assert made_of([variable, numbered]) == {"who saw film a b", "who edited film a"}  # the same one may


def test_a_guessed_place_counts_only_where_the_word_is_not_repeated() -> None:
    one = Example(
        ("a", "cat", "saw", "a", "dog"),
        Graph(("see", "cat", "dog"), (Edge(0, "agent", 1), Edge(0, "theme", 2)), (2, 1, 4)),
    )
    twice = Example(("a", "cat", "saw", "a", "cat"), Graph(("see", "cat"), (Edge(0, "agent", 1),), (2, 1)))
    assert [p.kind.word for p in Judge([one, twice], 1).phrases] == ["cat", "dog", "cat"]
    assert [p.kind.word for p in Judge([one, twice], 1, guessed=True).phrases] == ["cat", "dog"]


def test_new_sentences_are_no_longer_than_given_ones() -> None:
    short = [replace(FELL, tokens=FELL.tokens), ATE]
    cat = Example(
        ("The", "cat", "saw", "the", "cat", "."),
        Graph(("*", "cat", "*", "cat"), (Edge(0, "article", 1), Edge(2, "article", 3)), (0, 1, 3, 4)),
    )
    late = Example(
        ("Today", "and", "tomorrow", "a", "cake", "fell", "."), Graph(("cake", "fall"), (Edge(1, "theme", 0),), (4, 5))
    )
    made = made_of([*short, cat, late])
    assert "A cake on the table fell ." in made
    assert not any(sentence.startswith("Today and tomorrow a cake on") for sentence in made)  # 10 words; ATE has 8


def test_exchanged_with_two_graph_layers() -> None:
    """Slots stay in their layer and follow their word."""
    long = Example(
        ("x", "cake", "on", "table"),
        Graph(
            ("eat", "cake", "table", "kind"), (Edge(0, "theme", 1), Edge(1, "on", 2), Edge(1, "is", 3)), (1, 2, 7, 3)
        ),
    )
    short = Example(("y", "cake", "fell"), Graph(("cake", "fall"), (Edge(1, "theme", 0),), (3, 4)))
    (site,) = phrases(short, 1, 2)
    (other,) = (p for p in phrases(long, 0, 2) if p.end - p.start == 3)
    new = exchanged([long, short], site, other, 2)
    assert new.tokens == ("y", "cake", "on", "table", "fell")
    assert new.graph.slots is not None
    places = dict(zip(new.graph.nodes, new.graph.slots, strict=True))
    assert places == {"fall": 8, "cake": 2, "kind": 3, "table": 7}
    wanted = Graph(("fall", "cake", "table", "kind"), (Edge(0, "theme", 1), Edge(1, "on", 2), Edge(1, "is", 3)))
    assert new.graph == wanted


def check(examples: list[Example], made: list[Example], graph_layers: int, form: str) -> None:
    old = {example.tokens for example in examples}
    longest = max(map(len, old))
    copied = copied_labels(examples, graph_layers)
    twice = {s for e in examples for s, times in Counter(e.graph.nodes).items() if times > 1}
    places = {
        (s, e.tokens[slot // graph_layers])
        for e in examples
        for s, slot in zip(e.graph.nodes, e.graph.slots or (), strict=True)
    }
    assert len({new.tokens for new in made}) == len(made)
    for new in made:
        assert new.tokens not in old and len(new.tokens) <= longest
        assert new.graph.slots is not None and max(new.graph.slots) < graph_layers * len(new.tokens)
        assert all(times == 1 or s in twice or OR in s for s, times in Counter(new.graph.nodes).items())
        for label, slot in zip(new.graph.nodes, new.graph.slots, strict=True):
            word = new.tokens[slot // graph_layers]
            assert any((one, word) in places for one in label.split(OR)) and (label not in copied or word == label)
        formalism(form).write(numbered(new.graph))  # FormError where it has none


def numbered(graph: Graph) -> Graph:
    """Variables that may have any number, with the first that are left."""
    left = [f"?x{number}" for number in range("select_?x0" in graph.nodes, 10)]
    return replace(graph, nodes=tuple(left.pop(0) if OR in label else label for label in graph.nodes))


def test_every_new_sentence_of_cogs_has_a_form(cogs_data: Path) -> None:
    examples = cogs.source(cogs_data / "cogs").read("train")
    made, told = recombined(examples, 1, 4000), list[int]()
    assert len(made) == 4000 and made == recombined(examples, 1, 4000, tell=told.append)
    assert told == list(range(500, 4001, 500)) and made != recombined(examples, 1, 4000, seed=1)
    check(examples, made, 1, "cogs")
    assert sum(new.tokens[2] in ("on", "in", "beside") for new in made) > 500  # a PP on the subject, as no given one


def test_every_new_question_of_cfq_has_a_query(cfq_data: Path) -> None:
    examples = examples_of(islice(cfq.source(cfq_data / "cfq", "mcd1").rows("train"), 20_000))
    copied = copied_labels(examples, 2)
    slots = associated_alignments(examples, 2, copied.__contains__)
    examples = [replace(e, graph=e.graph.with_slots(found)) for e, found in zip(examples, slots, strict=True)]
    made = recombined(examples, 2, 5000)
    assert len(made) > 3000
    check(examples, made, 2, "sparql")
    graphs = [numbered(e.graph) for e in made]
    variables = [tuple(sorted(s for s in graph.nodes if s.startswith(("?x", "select")))) for graph in graphs]
    assert set(variables) <= {
        tuple(sorted(s for s in e.graph.nodes if s.startswith(("?x", "select")))) for e in examples
    }


def test_training_with_new_sentences_says_nothing_of_them_afterwards(tmp_path: Path) -> None:
    """Alignments that are kept are of the given sentences; without alignments, new graphs have none either."""
    settings = [
        ("data", "size", 200), ("data", "recombine", 0.5), ("model", "width", 16), ("model", "heads", 2), ("model", "encoder_layers", 1),
        ("align", "supervision", "weak"), ("align", "start", "association"), ("align", "hold", 2), ("train", "steps", 4), ("train", "batch", 16),
        ("train", "evaluate_every", 0), ("train", "save_every", 2), ("train", "device", "cpu"),
    ]  # fmt: skip
    config, source = override(load("quickstart"), settings), mini.source(200)
    given = training_examples(config, source)
    new = more_examples(config, given)
    assert 0 < len(new) <= 100 and all(example.graph.slots is None for example in new)
    train(config, source, tmp_path / "run")
    assert len(read_tensors(tmp_path / "run" / ALIGNMENTS)[0]["alignments"]) == len(given)
    assert len(learned_alignments(tmp_path / "run", source)) == len(given)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["evaluation"]["train"]["n"] == 200


def test_guessed_places_give_the_graphs_of_known_ones() -> None:
    """What is made of guessed alignments is, with the known ones, the very same."""
    examples = mini.source(1000).read("train")
    slots = associated_alignments(examples, 1)
    guessed = [replace(e, graph=e.graph.with_slots(found)) for e, found in zip(examples, slots, strict=True)]
    made = recombined(guessed, 1, 300, gives=labels_given(label_probabilities(examples)))
    check(guessed, made, 1, "cogs")
    known = {new.tokens: new.graph for new in recombined(examples, 1, 4000)}
    both = [(new.graph, known[new.tokens]) for new in made if new.tokens in known]
    assert len(both) > 20 and all(one == other for one, other in both)


def test_data_that_does_not_fit_is_said_to_be_so(tmp_path: Path) -> None:
    crowded = Example(("a", "b"), Graph(("x", "y", "z"), (Edge(0, "e", 1),)))
    outside = Example(("a", "b"), Graph(("x", "y"), (Edge(0, "e", 1),), (0, 5)))
    for example, supervision in ((crowded, "weak"), (outside, "strong")):
        config = override(load("quickstart"), [("align", "supervision", supervision)])
        with pytest.raises(DataError, match="slots"):
            more_examples(config, [example])


def test_seq2seq_has_no_new_sentences() -> None:
    assert more_examples(override(load("quickstart"), [("model", "kind", "seq2seq")]), [ATE, FELL]) == []


def friends(*names: str) -> Example:
    """Did a friend of M1 see a friend of M2: a variable for every friend, both of them from an "a"."""
    tokens = ["Did", *"a friend of M see ".replace("M", names[0]).split()]
    labels = ["see", "?x0", "friend", names[0]]
    edges = [Edge(1, "agent", 0), Edge(1, "agent", 2), Edge(2, "theme", 3)]
    slots = [5, 1, 2, 4]
    if len(names) > 1:
        tokens += ["a", "friend", "of", names[1]]
        labels += ["?x1", "friend", names[1]]
        edges += [Edge(0, "theme", 4), Edge(4, "agent", 5), Edge(5, "theme", 6)]
        slots += [6, 7, 9]
    return Example(tuple(tokens), Graph(tuple(labels), tuple(edges), tuple(slots)))


def test_names_change_only_where_no_two_variables_come_from_the_same_words() -> None:
    """Which friend is ?x0 may depend on the names, as in CFQ, where both are numbered by the same order."""
    examples = [friends("M1"), friends("M2", "M3"), friends("M4", "M5")]
    judge = Judge(examples, 1)
    assert judge.may_rename({"M1"}, {"M6"}, {"see", "friend", "?x0", "M6"})
    assert not judge.may_rename({"M2"}, {"M6"}, {"see", "friend", "?x0", "?x1", "M3", "M6"})
    assert judge.may_rename({"M2", "?x0"}, {"M2"}, {"friend", "?x0", "?x1", "M2", "M3"})
    made = recombined(examples, 1, 50)
    assert made
    assert {new.graph.nodes.count("?x1") for new in made} == {0}


def test_variables_from_other_words_do_not_keep_names() -> None:
    asked = [
        Example(
            ("Who", "saw", name), Graph(("who", "see", name), (Edge(0, "agent", 1), Edge(1, "theme", 2)), (0, 1, 2))
        )
        for name in ("M1", "M2")
    ]
    assert Judge(asked, 1).may_rename({"M1"}, {"M2"}, {"who", "see", "M2"})


def test_a_phrase_that_fewer_words_follow_stands_only_before_those() -> None:
    """An actor runs, sings or falls, a director of M1 only runs: one stands for the other where somebody runs."""

    def one(verb: str, director: bool = False) -> Example:
        tokens = ("a", "director", "of", "M1", verb) if director else ("a", "actor", verb)
        more = ((Edge(1, "theme", 2),), ("M1",), (3,)) if director else ((), (), ())
        graph = Graph(
            ("DO", tokens[1].upper(), *more[1]), (Edge(0, "agent", 1), *more[0]), (len(tokens) - 1, 1, *more[2])
        )
        return Example(tokens, graph)

    def twice(word: str) -> Example:
        graph = Graph(("DO", word.upper(), word.upper()), (Edge(0, "agent", 1), Edge(0, "theme", 2)), (2, 1, 4))
        return Example(("a", word, "runs", "a", word), graph)

    sung = Example(("a", "M1", "sings"), Graph(("DO", "M1"), (Edge(0, "agent", 1),), (2, 1)))
    actors = [one(verb) for verb in ("runs", "sings", "falls") for _ in range(10)]
    judge = Judge([*actors, *(one("runs", True) for _ in range(10)), sung, twice("actor"), twice("director")], 1)
    runs, sings, director = (judge.phrases[row] for row in (0, 10, 30))
    assert director.kind in judge.alike(runs.kind)
    assert runs.kind not in judge.alike(director.kind)
    assert judge.have_met("M1", "sings")
    assert judge.fits(runs, director)
    assert not judge.fits(sings, director)
