"""Predicted queries become standard ones that can only read; names become placeholders and come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagr.ask.names import Names, read_names, words_of
from lagr.ask.query import check_iri, placeholders_of, standard
from lagr.ask.question import understand
from lagr.datasets import cfq
from lagr.errors import DataError, FormError

pyoxigraph = pytest.importorskip("pyoxigraph", reason="needs pyoxigraph: pip install 'lagr[ask]'")

ALIEN, SCOTT = "http://example.org/films/alien", "http://example.org/films/ridley-scott"
IRIS = {"M0": SCOTT, "M1": ALIEN}
WORDS = {"Did", "Who", "What", "did", "direct", "directed", "star", "film", "a", "actor", "and", "'s", "was", "by"}
WORDS |= {f"M{number}" for number in range(6)}


def query(*clauses: str, head: str = "SELECT count(*) WHERE {") -> str:
    return "\n".join([head, *(f"{clause} ." for clause in clauses[:-1]), clauses[-1], "}"])


def test_a_count_is_asked_as_yes_or_no() -> None:
    assert standard(query("M0 ns:film.director.film M1"), IRIS, 10).split() == (
        f"ASK WHERE {{ <{SCOTT}> <http://rdf.freebase.com/ns/film.director.film> <{ALIEN}> . }}".split()
    )


def test_classes_paths_filters_and_limits_are_written_as_the_standard_has_them() -> None:
    form = query(
        "?x0 a ns:a.b", "?x0 ^ns:c.d/ns:e|ns:m.f M1", "FILTER ( ?x0 != M1 )", head="SELECT DISTINCT ?x0 WHERE {"
    )
    expected = f"""SELECT DISTINCT ?x0 WHERE {{ ?x0 ^<http://n/c.d>/<http://n/e>|<http://n/m.f> <{ALIEN}> . ?x0 a <http://n/a.b> .
                   FILTER ( ?x0 != <{ALIEN}> ) }} LIMIT 7"""
    assert standard(form, IRIS, 7, "http://n/").split() == expected.split()


@pytest.mark.parametrize(
    "form",
    [
        "",
        "DROP ALL",
        "SELECT DISTINCT ?x0 WHERE { ?x0 ?p ?o }",
        query("M0 ns:a M1 } ; DROP ALL ; ASK { M0 ns:a M1"),
        query("SERVICE <http://elsewhere/> { ?x0 ns:a M1 }"),
        query("GRAPH ?g { ?x0 ns:a M1 }"),
        query("?x0 ns:a <http://x/>"),
        query("?x0 ?x1 M1"),
        query("?x0 <http://x/> M1"),
        query("?x0 ns:a* M1"),
        query("?x0 ns:a> M1"),
        query("?x0 ns:a#comment M1"),
        query("?x0 a ns:a}"),
        query("BIND ( 1 AS ?x0 )"),
        query("FILTER ( EXISTS { ?x0 ns:a M1 } )"),
        query("FILTER ( ?x0 != SHA512(M1) )"),
        query("M0 ns:a M1", head="INSERT DATA {"),
        query("M0 ns:a M1", head="SELECT DISTINCT ?x0 FROM <http://elsewhere/> WHERE {"),
        query("M0 ns:a M1", head="SELECT DISTINCT ?x0 WHERE {"),  # asks for what it says nothing of
        query("M0 ns:a M7"),  # M7 stands for nothing
    ],
)
def test_what_is_no_query_of_the_fragment_is_refused(form: str) -> None:
    with pytest.raises(FormError):
        standard(form, IRIS, 10)


ODD = st.text("?xM01ns:.a/|^ {}<>\\\"'#\nSERVICE", max_size=12) | st.text(max_size=6)
ENDS = st.sampled_from(["?x0", "?x1", "M0", "M1", "ns:m.05", "ns:m.é٣"]) | ODD
PATHS = st.sampled_from(["ns:a.b.c", "^ns:a", "ns:a/ns:b|^ns:c", "ns:.", "ns:a..b", "a"]) | ODD


@settings(max_examples=60)
@given(st.lists(st.tuples(ENDS, PATHS, ENDS), min_size=1, max_size=3))
def test_whatever_the_labels_are_a_query_reads_or_is_refused(triples: list[tuple[str, str, str]]) -> None:
    form = query(*(" ".join(triple) for triple in triples))
    try:
        written = standard(form, IRIS, 10)
    except FormError:
        return
    assert isinstance(pyoxigraph.Store().query(written), pyoxigraph.QueryBoolean)
    assert written.count("{") == written.count("}") == 1


@pytest.mark.parametrize(
    "iri",
    ["alien", "http://x/ y", "http://x/>", "http://x/\n", 'http://x/"', "http://x/\\u003e", "http:", "http://x/{}", ""],
)
def test_an_iri_that_would_end_early_is_refused(iri: str) -> None:
    with pytest.raises(DataError, match="is no IRI"):
        check_iri(iri)
    with pytest.raises(DataError):
        standard(query("M0 ns:a M1"), {"M0": iri, "M1": ALIEN}, 10)


def test_every_query_of_cfq_becomes_one_that_oxigraph_understands(cfq_data: Path) -> None:
    forms = [row[cfq.QUERY] for row in cfq._dataset(cfq._find(cfq_data / "cfq"))[::100]]
    store, iris = pyoxigraph.Store(), {f"M{number}": f"http://example.org/{number}" for number in range(10)}
    for form in forms:
        found = store.query(standard(form, iris, 10))
        assert isinstance(found, pyoxigraph.QueryBoolean) == form.startswith("SELECT count")
    assert len(forms) > 1000


NAMES = Names(
    (
        ("Alien", "http://x/alien"), ("Alien 3", "http://x/alien3"), ("Ridley Scott", "http://x/scott"),
        ("Scott", "http://x/other-scott"), ("Sir Ridley", "http://x/scott"), ("Star", "http://x/star"),
        ("What", "http://x/what"), ("Dan O'Bannon", "http://x/dan"), ("Amélie", "http://x/amelie"),
        ("E.T.", "http://x/et"), ("Schindler's List", "http://x/list"), ("ALIEN", "http://x/shouted"),
        ("Morgan", "http://x/morgan"), ("Morgan", "http://x/morgan-le-fay"), ("Alien", "http://x/alien"),
    ),
    "names.tsv",
)  # fmt: skip


def found(question: str) -> list[tuple[str, str]]:
    """Every name in a question, and what it stands for."""
    mentions = NAMES.find(words_of(question), WORDS.__contains__)
    return [(mention.name, mention.iri.removeprefix("http://x/")) for mention in mentions]


@pytest.mark.parametrize(
    "question, expected",
    [
        ("Did Ridley Scott direct Alien?", [("Ridley Scott", "scott"), ("Alien", "alien")]),
        ("Did Ridley Scott direct Alien 3?", [("Ridley Scott", "scott"), ("Alien 3", "alien3")]),
        ("Did Sir Ridley Scott direct Alien", [("Sir Ridley", "scott"), ("Scott", "other-scott"), ("Alien", "alien")]),
        ("did ridley scott direct alien 3", [("Ridley Scott", "scott"), ("Alien 3", "alien3")]),
        ("Who directed ALIEN", [("ALIEN", "shouted")]),
        ("Who directed Aliens, or Alienation", []),
        ("Who directed Alien's sequel", [("Alien", "alien")]),
        ("Who directed “Alien”?", [("Alien", "alien")]),
        ("Did Star star What", [("Star", "star"), ("What", "what")]),
        ("What did star", []),
        ("Did dan o’bannon direct", [("Dan O'Bannon", "dan")]),
        ("Who directed Ame\u0301lie", [("Amélie", "amelie")]),
        ("Who directed E.T.?", [("E.T.", "et")]),
        ("Who directed Schindler's List", [("Schindler's List", "list")]),
    ],
)
def test_names_are_found(question: str, expected: list[tuple[str, str]]) -> None:
    assert found(question) == expected


def test_a_thing_is_named_with_the_first_of_its_names() -> None:
    assert NAMES.name_of("http://x/scott") == "Ridley Scott"
    assert NAMES.name_of("http://x/nobody") is None


def test_a_question_is_worded_as_the_parser_knows_it() -> None:
    question = understand("did an actor and Ridley Scott direct Alien?", NAMES, WORDS)
    assert [" ".join(wording.tokens) for wording in question.wordings] == [
        "Did a actor and M0 direct M1",
        "Did a actor and M1 direct M2",
        "Did a actor and M1 direct M0",
    ]
    assert {name: mention.iri for name, mention in question.wordings[2].mentions.items()} == {
        "M1": "http://x/scott",
        "M0": "http://x/alien",
    }
    assert question.notes == ()


def test_a_thing_named_twice_has_one_placeholder() -> None:
    question = understand("Did Alien direct Alien and Sir Ridley direct Ridley Scott", NAMES, WORDS)
    assert " ".join(question.wordings[0].tokens) == "Did M0 direct M0 and M1 direct M1"


def test_what_names_leave_open_is_said() -> None:
    question = understand("Who directed Morgan?", NAMES, WORDS)
    assert question.notes == (
        "“Morgan” could be <http://x/morgan> or <http://x/morgan-le-fay>; the first was taken; "
        "write another in its place to ask about that",
    )
    ((other,),) = question.others.values()
    assert (other.iri, other.question) == ("http://x/morgan-le-fay", "Who directed <http://x/morgan-le-fay>")
    chosen = understand(other.question, NAMES, WORDS)
    assert chosen.notes == () and chosen.others == {}
    assert [wording.tokens for wording in chosen.wordings] == [wording.tokens for wording in question.wordings]
    assert {m.iri for wording in chosen.wordings for m in wording.mentions.values()} == {"http://x/morgan-le-fay"}


def test_a_thing_may_be_named_by_its_iri() -> None:
    (mention,) = understand("Who directed <http://x/alien>?", NAMES, WORDS).wordings[0].mentions.values()
    assert (mention.name, mention.iri) == ("Alien", "http://x/alien")
    (mention,) = understand("Who directed <urn:nobody-knows-it>", NAMES, WORDS).wordings[0].mentions.values()
    assert mention.name == mention.iri == "urn:nobody-knows-it"
    with pytest.raises(DataError, match="no name in"):
        understand("Who directed <Zork>?", NAMES, WORDS)  # no IRI
    with pytest.raises(DataError, match="no name in"):
        understand('Who directed <http://x/a"{}>?', NAMES, WORDS)
    (note,) = understand("Who directed Alien yesterday?", NAMES, WORDS).notes
    assert "doesn't know “yesterday”" in note


@pytest.mark.parametrize(
    "question, message",
    [
        ("Did Ridly Scott direct Alien", "“Ridly” is no name in names.tsv, and no word that the parser knows"),
        ("Did Ridly Scot direct Alien", "did you mean “Ridley Scott”?"),
        ("Did Zemeckis direct Alien", "“Zemeckis” is no name in names.tsv"),
        ("Did M0 direct Alien", "M0 stands for nothing"),
        ("", "the question is empty"),
        ("?", "the question is empty"),
        ("Who directed \0", "NUL"),
        ("Who directed \ud800", "not valid Unicode"),
        ("Who directed " * 100_000, "1,300,000 characters; at most 10,000"),
    ],
)
def test_a_question_that_cannot_be_read_says_why(question: str, message: str) -> None:
    with pytest.raises(DataError) as raised:
        understand(question, NAMES, WORDS)
    assert message in str(raised.value)


def test_more_names_than_the_parser_has_placeholders_is_an_error() -> None:
    names = Names(tuple((f"Name{n}", f"http://x/{n}") for n in range(9)), "many.tsv")
    with pytest.raises(DataError, match="names 9 things, and the parser knows no M8"):
        understand("Did " + " and ".join(name for name, _ in names.rows), names, WORDS)


@given(
    st.lists(st.sampled_from(["Alien", "Alien 3", "Ridley Scott", "and", "by", "film", "'s"]), min_size=1, max_size=8)
)
def test_names_put_back_give_the_question(words: list[str]) -> None:
    for wording in understand(" ".join(words), NAMES, WORDS).wordings:
        back = [wording.mentions[token].name if token in wording.mentions else token for token in wording.tokens]
        assert " ".join(back) == " ".join(words)


def test_tables_of_names_are_read_in_both_formats(tmp_path: Path) -> None:
    rows = (("Alien", "http://x/alien"), ("Amélie", "http://x/amelie"))
    tsv, jsonl = tmp_path / "names.tsv", tmp_path / "names.jsonl"
    tsv.write_text("\ufeffyear\tiri\tname\r\n1979\thttp://x/alien\tAlien\r\n\r\n2001\thttp://x/amelie\tAmélie\r\n")
    jsonl.write_text("".join(json.dumps({"name": name, "iri": iri, "year": 1}) + "\n" for name, iri in rows))
    assert read_names(tsv).rows == read_names(jsonl).rows == rows


@pytest.mark.parametrize(
    "file, text, message",
    [
        ("names.tsv", b"", "names.tsv:1 should be a header"),
        ("names.tsv", b"Alien\thttp://x/alien\n", "names.tsv:1 should be a header"),
        ("names.tsv", b"name\tiri\n", "has no names"),
        ("names.tsv", b"name\tiri\nAlien\thttp://x/a\nAliens\n", "names.tsv:3 has 1 columns"),
        ("names.tsv", b"name\tiri\n\nAlien\tx/alien> . }\n", "names.tsv:3: 'x/alien> . }' is no IRI"),
        ("names.tsv", b"name\tiri\n \thttp://x/a\n", "names.tsv:2: the name is empty"),
        ("names.tsv", b"name\tiri\nAm\xe9lie\thttp://x/a\n", "is not UTF-8"),
        ("names.jsonl", b'{"name": "Alien", "iri": "http://x/a"}\n{"name": ', "names.jsonl:2 is no JSON"),
        ("names.jsonl", b'{"name": "Alien"}\n', "names.jsonl:1 should be"),
        ("names.jsonl", b'["Alien", "http://x/a"]\n', "names.jsonl:1 should be"),
    ],
)
def test_a_table_that_is_wrong_says_where(tmp_path: Path, file: str, text: bytes, message: str) -> None:
    (tmp_path / file).write_bytes(text)
    with pytest.raises(DataError) as raised:
        read_names(tmp_path / file)
    assert message in str(raised.value)


def test_a_table_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        read_names(tmp_path / "names.tsv")


def test_placeholders_are_whole_words() -> None:
    assert placeholders_of(query("M0 ns:a.M1 M12", "FILTER ( M0 != M3 )")) == {"M0", "M12", "M3"}
