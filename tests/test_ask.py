"""Questions about films are answered rightly, and what can't be answered is said."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pyoxigraph = pytest.importorskip("pyoxigraph", reason="needs pyoxigraph: pip install 'lagr[ask]'")

import film_questions  # noqa: E402
from sparql_server import serving  # noqa: E402

from lagr import ask, cli  # noqa: E402
from lagr.ask import Answer, Answerer, Names, Term, film_graph, films  # noqa: E402
from lagr.ask.store import Embedded, Store  # noqa: E402
from lagr.datasets import cfq  # noqa: E402
from lagr.errors import ConfigError, DataError, FormError, RunError, StoreError  # noqa: E402
from lagr.graph import Graph  # noqa: E402
from lagr.parser import Parse, load  # noqa: E402
from lagr.vocab import Vocabulary  # noqa: E402

FOLDER = Path(ask.__file__).parent
FILE, NAMES = film_graph()
IRIS = dict(reversed(NAMES.rows))
QUESTIONS: list[dict[str, Any]] = [
    json.loads(line) for line in (FOLDER / "films.jsonl").read_text("utf-8").splitlines()
]


class Recited:
    """A parser that knows some sentences by heart, and finds any other unlikely."""

    formalism: str | None = "sparql"

    def __init__(self, forms: dict[str, str | None], words: str = "") -> None:
        self.forms = forms
        numbers = " ".join(f"M{n}" for n in range(4))
        known = sorted({*" ".join(forms).split(), *words.split(), *numbers.split()})
        self.vocab = Vocabulary(tuple(known), (), ())

    def parse_tokens(self, sentences: Sequence[Sequence[str]]) -> list[Parse]:
        return [self._parse(tuple(tokens)) for tokens in sentences]

    def _parse(self, tokens: tuple[str, ...]) -> Parse:
        known = " ".join(tokens) in self.forms
        form = self.forms.get(" ".join(tokens), film_questions.yes_no("M0 ns:film.film.directed_by M0"))
        problem = None if form else "nothing in this graph can be written"
        return Parse(tokens, Graph(("x",)), form, problem, (), (), 0.9 if known else 0.1, 1)


def plain(answer: bool | None, terms: Sequence[Term]) -> Any:
    return answer if answer is not None else [str(term) for term in terms]


def answers_of_queries(store: Store) -> list[Any]:
    """What the questions' own queries give."""
    answerer = Answerer(Recited({}), store, NAMES)
    results = [answerer.run(row["query"], {m: IRIS[name] for m, name in row["names"].items()}) for row in QUESTIONS]
    return [plain(result.boolean, result.terms) for result in results]


@pytest.fixture(scope="module")
def store() -> Iterator[Embedded]:
    with Embedded(FILE) as opened:
        yield opened


@pytest.fixture(scope="module")
def answerer(store: Embedded) -> Answerer:
    forms: dict[str, str | None] = {}
    for row in QUESTIONS:
        text = row["question"].rstrip("?").replace("'s", " 's")
        for placeholder, name in sorted(row["names"].items(), key=lambda item: -len(item[1])):
            text = text.replace(name, placeholder)
        forms[text] = row["query"]
    return Answerer(Recited(forms), store, NAMES)


def test_the_films_are_what_the_script_makes() -> None:
    made = films.build()
    assert (FOLDER / "films.ttl").read_text("utf-8") == films.turtle(made)
    assert (FOLDER / "films.tsv").read_text("utf-8") == films.table(made)


def test_everything_in_the_films_has_a_name_and_every_person_a_gender() -> None:
    graph = pyoxigraph.Store()
    graph.bulk_load(path=FILE)
    things = {quad.subject.value for quad in graph if isinstance(quad.subject, pyoxigraph.NamedNode)}
    assert things == {iri for _, iri in NAMES.rows if iri.startswith(films.HERE)}
    nameless = "SELECT ?p WHERE { ?p a ns:people.person . FILTER NOT EXISTS { ?p <http://rdf.freebase.com/ns/people.person.gender> ?g } }"
    assert list(graph.query(nameless, prefixes={"ns": "http://rdf.freebase.com/ns/"})) == []


def test_the_questions_own_queries_have_the_answers_that_are_stated(store: Embedded) -> None:
    assert answers_of_queries(store) == [row["answer"] for row in QUESTIONS]
    assert sum(isinstance(row["answer"], bool) for row in QUESTIONS) >= 5 and len(QUESTIONS) >= 10


def test_oxigraph_counts_what_we_ask(store: Embedded) -> None:
    """The other way to run CFQ's queries: `count(*)` as COUNT, the rest by replacing text."""
    graph = pyoxigraph.Store()
    graph.bulk_load(path=FILE)
    for row, answer in zip(QUESTIONS, answers_of_queries(store), strict=True):
        text = re.sub(r"ns:([\w.]+)", r"<http://rdf.freebase.com/ns/\1>", row["query"])
        text = text.replace("count(*)", "(COUNT(*) AS ?x0)")
        for placeholder, name in row["names"].items():
            text = re.sub(rf"\b{placeholder}\b", f"<{IRIS[name]}>", text)
        values = [solution["x0"].value for solution in graph.query(text)]
        expected = int(values[0]) > 0 if isinstance(answer, bool) else sorted(NAMES.name_of(v) or "" for v in values)
        assert answer == expected, row["question"]


@pytest.mark.parametrize("row", QUESTIONS, ids=lambda row: row["question"])
def test_questions_are_answered_rightly(answerer: Answerer, row: dict[str, Any]) -> None:
    answer = answerer.ask(row["question"])
    assert plain(answer.result.boolean, answer.result.terms) == row["answer"]
    assert answer.parse.form == row["query"] and answer.notes == ()
    assert {m: name for m, (name, _) in answer.names.items()} == row["names"]


def test_the_questions_are_ones_that_cfq_could_ask(cfq_data: Path, answerer: Answerer) -> None:
    rows = cfq._dataset(cfq._find(cfq_data / "cfq"))
    forms = {row[cfq.QUESTION]: row[cfq.QUERY] for row in rows}
    words = {word for text in forms for word in text.split()}
    for row in QUESTIONS:
        tokens = answerer.ask(row["question"]).parse.tokens
        assert set(tokens) <= words
        assert forms[" ".join(tokens)] == row["query"]


def lagr(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def test_the_model_of_the_package_answers_every_question(capsys: pytest.CaptureFixture[str]) -> None:
    _answers_rightly(capsys, "cfq", QUESTIONS)


def test_a_trained_parser_answers_ten_questions(film_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = load(film_run).vocab.word_numbers
    asked = [row for row in QUESTIONS if set(re.sub(r"[?]", "", _placed(row)).split()) <= words.keys()]
    assert len(asked) >= 10
    _answers_rightly(capsys, str(film_run), asked)


def _answers_rightly(capsys: pytest.CaptureFixture[str], run: str, asked: list[dict[str, Any]]) -> None:
    questions = [row["question"] for row in asked]
    status, out, err = lagr(capsys, "ask", run, "--store", "films", "--format", "json", *questions)
    assert status == 0 and err == ""
    found = [json.loads(line) for line in out.splitlines()]
    for row, answer in zip(asked, found, strict=True):
        given = answer["answer"] if isinstance(answer["answer"], bool) else [term["name"] for term in answer["answer"]]
        assert given == row["answer"], row["question"]


def _placed(row: dict[str, Any]) -> str:
    text = row["question"].replace("'s", " 's")
    for placeholder, name in sorted(row["names"].items(), key=lambda item: -len(item[1])):
        text = text.replace(name, placeholder)
    return str(text)


def test_answers_are_lines(film_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("ask", str(film_run), "--store", FILE, "--entities", str(FOLDER / "films.tsv"))
    assert lagr(capsys, *options, "Did Ridley Scott direct Alien?") == (0, "yes\n", "")
    assert lagr(capsys, *options, "did alien 3 direct aliens") == (0, "no\n", "")
    monkeypatch.setattr("sys.stdin", io.StringIO("Who edited Titanic\n\nWho edited Morgan?\nWho edited Jaws?\n"))
    status, out, err = lagr(capsys, *options, "-", "--rows", "2")
    assert status == 1 and len(out.split("\n\n")[0].splitlines()) == 2
    assert "lagr: “Who edited Titanic”: there are more than 2 answers\n" in err
    assert "“Who edited Morgan?”: “Morgan” could be" in err
    assert "“Who edited Jaws?”: “Jaws” is no name in" in err and "1 of 3 questions could not be answered" in err


def test_an_endpoint_is_asked_too(film_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FILE) as server:
        options = ("--store", f"{server.url}/sparql", "--entities", str(FOLDER / "films.tsv"))
        status, out, _ = lagr(capsys, "ask", str(film_run), "Who directed Alien's sequel?", *options)
        assert (status, out) == (0, "James Cameron\n")
        for path in ("other-json", "other-binding", "page"):
            options = ("--store", f"{server.url}/{path}", "--entities", str(FOLDER / "films.tsv"))
            status, out, err = lagr(capsys, "ask", str(film_run), "Who directed Alien?", *options)
            assert (status, out) == (1, "") and "is it an endpoint?" in err


@pytest.mark.parametrize(
    "options, message",
    [
        (["--store", "nothing.ttl"], "there is no store nothing.ttl"),
        (["--store", "films", "--timeout", "0"], "the time limit is 0 s"),
        (["--store", "films", "--timeout", "nan"], "the time limit is nan s"),
        (["--store", "films", "--rows", "0"], "the limit on rows is 0"),
        (["--store", "films", "--namespace", "x y"], "'x y' is no IRI"),
        (["--store", "films", "--entities", "nothing.tsv"], "there is no file nothing.tsv"),
    ],
)
def test_options_that_make_no_sense_say_so(
    film_run: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    status, out, err = lagr(capsys, "ask", str(film_run), "Who directed Alien", *options)
    assert (status, out) == (1, "") and message in err and err.count("\n") == 1


def test_a_run_of_another_formalism_is_refused(small_run: Path, store: Embedded) -> None:
    with pytest.raises(RunError, match="the forms of this one are cogs"):
        Answerer(load(small_run), store)


def test_the_numbering_that_the_parser_is_surest_of_is_taken(store: Embedded) -> None:
    form = film_questions.yes_no("M1 ns:film.director.film M0")
    answer = Answerer(Recited({"Did M1 direct M0": form}), store, NAMES).ask("Did Ridley Scott direct Alien")
    assert answer.lines() == ["yes"]
    assert {m: name for m, (name, _) in answer.names.items()} == {"M0": "Alien", "M1": "Ridley Scott"}


def test_what_is_wrong_with_a_prediction_is_said(store: Embedded) -> None:
    no_form = Answerer(
        Recited({"Did M0 direct M1": None, "Did M1 direct M2": None, "Did M1 direct M0": None}), store, NAMES
    )
    with pytest.raises(FormError, match="the question has no query: nothing in this graph"):
        no_form.ask("Did Ridley Scott direct Alien?")
    other = film_questions.yes_no("M0 ns:film.director.film M3")
    invented = Answerer(Recited({"Did M0 direct": other, "Did M1 direct": other}), store, NAMES)
    with pytest.raises(FormError, match="mentions M3, which stands for nothing in the question"):
        invented.ask("Did Ridley Scott direct")
    less = film_questions.yes_no("M0 a ns:film.director")
    forgetful = Answerer(
        Recited(dict.fromkeys(("Did M0 direct M1", "Did M1 direct M2", "Did M1 direct M0"), less)), store, NAMES
    )
    assert forgetful.ask("Did Ridley Scott direct Alien").notes == ("the query says nothing of “Alien”",)


class Canned:
    """A store that always says the same."""

    where = "http://store"

    def __init__(self, results: Any) -> None:
        self.results = results

    def query(self, query: str, timeout: float) -> Any:
        return self.results

    def close(self) -> None: ...

    def __enter__(self) -> Canned:
        return self

    def __exit__(self, *_: object) -> None: ...


def given(results: Any, rows: int = 100) -> Answer:
    form = film_questions.select("ns:film.film")
    return Answerer(Recited({"What film": form}), Canned(results), Names((("Zed", "http://x/a"),)), rows=rows).ask(
        "What film?"
    )


def bindings(*terms: tuple[str, str]) -> Any:
    return {"results": {"bindings": [{"x0": {"type": kind, "value": value}} for kind, value in terms]}}


def test_every_kind_of_answer_is_given_once_in_one_order() -> None:
    terms = [("uri", "http://x/a"), ("literal", "1979"), ("typed-literal", "b"), ("bnode", "n1"), ("uri", "http://x/a")]
    answer = given(bindings(*terms))
    assert answer.lines() == ["1979", "b", "n1", "Zed"]
    assert answer.to_dict()["answer"][3] == {"kind": "uri", "value": "http://x/a", "name": "Zed"}
    assert json.loads(json.dumps(answer.to_dict())) == answer.to_dict()


def test_an_answer_is_one_line_that_a_terminal_does_not_obey() -> None:
    answer = given(bindings(("literal", "two\nlines"), ("literal", "\x1b[2J\u202ered"), ("literal", "half \ud83d")))
    assert answer.lines() == ["�[2J�red", "half ?", "two lines"]
    json.dumps(answer.to_dict(), ensure_ascii=False).encode()


def test_a_store_that_gives_more_than_was_asked_for_is_cut() -> None:
    answer = given(bindings(*(("literal", f"{n:03}") for n in range(50))), rows=3)
    assert len(answer.lines()) == 3 and answer.result.more and answer.notes == ("there are more than 3 answers",)


def test_virtuosos_true_and_false_are_understood() -> None:
    head = {"head": {"vars": ["__ASK_RETVAL"]}}
    assert given(head | {"results": {"bindings": [{"__ASK_RETVAL": {"value": "1"}}]}}).lines() == ["yes"]
    assert given(head | {"results": {"bindings": []}}).lines() == ["no"]


@pytest.mark.parametrize(
    "results",
    [None, [], {}, {"boolean": "yes"}, {"results": []}, {"results": {"bindings": [1]}}, bindings(("triple", "x"))],
)
def test_results_that_are_none_are_an_error(results: Any) -> None:
    with pytest.raises(StoreError, match="is it an endpoint"):
        given(results)


def test_limits_must_make_sense(store: Embedded) -> None:
    for wrong in ({"timeout": -1.0}, {"timeout": float("inf")}, {"rows": 0}, {"rows": 10**9}):
        with pytest.raises(ConfigError):
            Answerer(Recited({}), store, NAMES, **wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError):
        Answerer(Recited({}), store, NAMES, namespace="> . } ; DROP ALL")


def test_a_parse_can_be_put_in_from_elsewhere(answerer: Answerer) -> None:
    """As the service does, which parses the sentences of many requests at once."""
    question = answerer.understand("Who edited Alien 3?")
    parses = answerer.parser.parse_tokens([wording.tokens for wording in question.wordings])
    assert answerer.answer(question, parses).lines() == ["Terry Rawlings"]
    sure = [replace(parse, probability=float(number)) for number, parse in enumerate(parses)]
    assert answerer.answer(question, sure).parse == sure[-1]
