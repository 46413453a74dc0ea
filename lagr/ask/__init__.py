"""Questions to answers: parse, write the query as standard SPARQL, run it on a store of triples, give names back.

>>> answerer = Answerer(lagr.load("runs/cfq"), open_store("films.ttl"), read_names("films.tsv"))  # doctest: +SKIP
>>> answerer.ask("Who edited Alien 3?").lines()                                                   # doctest: +SKIP
['Terry Rawlings']
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lagr.ask.names import Names, read_names
from lagr.ask.query import FREEBASE, check_iri, placeholders_of, standard
from lagr.ask.question import Other, Question, Wording, understand
from lagr.ask.store import Store, open_store
from lagr.errors import ConfigError, FormError, RunError, StoreError

if TYPE_CHECKING:
    from lagr.parser import Parse
    from lagr.vocab import Vocabulary

__all__ = [
    "NO_NAMES",
    "Answer",
    "Answerer",
    "Names",
    "Result",
    "Term",
    "film_graph",
    "film_questions",
    "open_store",
    "read_names",
]

TIMEOUT, ROWS = 5.0, 100
NO_NAMES = Names()
MOST_ROWS = 100_000


class QuestionParser(Protocol):
    """What a parser must be to answer with."""

    formalism: str | None
    vocab: Vocabulary

    def parse_tokens(self, sentences: Sequence[Sequence[str]]) -> list[Parse]: ...


@dataclass(frozen=True)
class Term:
    """An answer: a thing, with its name where the table has one, or a value."""

    kind: str  # uri, literal or bnode, as SPARQL has them
    value: str
    name: str | None = None

    def __str__(self) -> str:
        return self.name or self.value


@dataclass(frozen=True)
class Result:
    """What a query gave."""

    sparql: str  # the query as it was run
    boolean: bool | None  # the answer to a yes/no question
    terms: tuple[Term, ...]  # the answers to any other
    more: bool = False  # there are more answers than were asked for


@dataclass(frozen=True)
class Answer:
    """A question, how it was understood, and what the store says."""

    question: str
    parse: Parse  # of the question with placeholders for names
    names: dict[str, tuple[str, str]]  # placeholder → name and IRI
    result: Result
    notes: tuple[str, ...]
    others: dict[str, tuple[Other, ...]]  # the IRI that was taken for a name of several things → the others

    def lines(self) -> list[str]:
        """`yes` or `no`, or an answer a line."""
        if self.result.boolean is not None:
            return ["yes" if self.result.boolean else "no"]
        return [_printable(str(term)) for term in self.result.terms]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        result = self.result
        return {
            "question": self.question,
            "tokens": list(self.parse.tokens),
            "names": {
                placeholder: {"name": name, "iri": iri, "others": [vars(other) for other in self.others.get(iri, ())]}
                for placeholder, (name, iri) in self.names.items()
            },
            "probability": self.parse.probability,
            "query": self.parse.form,
            "sparql": result.sparql,
            "answer": result.boolean if result.boolean is not None else [vars(term) for term in result.terms],
            "more": result.more,
            "notes": list(self.notes),
        }


class Answerer:
    """A parser, a store, and what things are called."""

    def __init__(
        self,
        parser: QuestionParser,
        store: Store,
        names: Names = NO_NAMES,
        timeout: float = TIMEOUT,
        rows: int = ROWS,
        namespace: str = FREEBASE,
    ) -> None:
        if parser.formalism != "sparql":
            raise RunError(
                "questions need a run that was trained on SPARQL, such as the model cfq; the forms of this one are "
                f"{parser.formalism or 'none'}"
            )
        if not 0 < timeout <= 3600:
            raise ConfigError(f"the time limit is {timeout:g} s; it can be up to 3600")
        if not 1 <= rows <= MOST_ROWS:
            raise ConfigError(f"the limit on rows is {rows}; it can be 1 to {MOST_ROWS:,}")
        self.parser, self.store, self.names = parser, store, names
        self.timeout, self.rows, self.namespace = timeout, rows, check_iri(namespace)

    def ask(self, question: str) -> Answer:
        """The answer to a question. LagrError where it can't be understood, or the store can't be asked."""
        understood = self.understand(question)
        return self.answer(understood, self.parser.parse_tokens([wording.tokens for wording in understood.wordings]))

    def understand(self, question: str) -> Question:
        """The question in the words the parser knows: its `wordings` are what is to be parsed."""
        return understand(question, self.names, self.parser.vocab.word_numbers)

    def answer(self, question: Question, parses: Sequence[Parse]) -> Answer:
        """The answer to a question whose wordings were parsed."""
        wording, parse = _likeliest(list(zip(question.wordings, parses, strict=True)))
        if parse.form is None:
            raise FormError(f"the question has no query: {parse.problem}")
        result = self.run(parse.form, {placeholder: m.iri for placeholder, m in wording.mentions.items()})
        notes = list(question.notes)
        unused = wording.mentions.keys() - placeholders_of(parse.form)
        notes += [f"the query says nothing of “{wording.mentions[name].name}”" for name in sorted(unused)]
        if result.more:
            notes.append(f"there are more than {self.rows:,} answers")
        names = {placeholder: (m.name, m.iri) for placeholder, m in sorted(wording.mentions.items())}
        return Answer(question.text, parse, names, result, tuple(notes), question.others)

    def run(self, form: str, iris: Mapping[str, str]) -> Result:
        """What a predicted query gives. iris: what its placeholders stand for."""
        sparql = standard(form, iris, self.rows + 1, self.namespace)
        found = _read_results(self.store.query(sparql, self.timeout), self.store.where)
        if isinstance(found, bool):
            return Result(sparql, found, ())
        kept = [Term(kind, value, self.names.name_of(value) if kind == "uri" else None) for kind, value in found]
        # The order of a store's answers means nothing; this one is the same every time.
        terms = tuple(sorted(kept[: self.rows], key=lambda term: (str(term).casefold(), term.value)))
        return Result(sparql, None, terms, len(kept) > self.rows)


def film_graph() -> tuple[str, Names]:
    """The small graph of films that comes with the package: its file, and its names."""
    folder = Path(__file__).parent
    return str(folder / "films.ttl"), replace(read_names(folder / "films.tsv"), where="films.tsv")


def film_questions() -> list[str]:
    """Questions that the films answer."""
    lines = Path(__file__).with_name("films.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["question"] for line in lines]


def _printable(text: str) -> str:
    """The text on one line, with nothing in it that a terminal would obey."""
    return "".join(character if character.isprintable() else "�" for character in " ".join(text.split()))


def _likeliest(parses: list[tuple[Wording, Parse]]) -> tuple[Wording, Parse]:
    """The parse that mentions just the names of the question; among those, the one the parser is surest of."""

    def rank(candidate: tuple[Wording, Parse]) -> tuple[bool, bool, float]:
        wording, parse = candidate
        said = placeholders_of(parse.form or "")
        return parse.form is not None, said == wording.mentions.keys(), parse.probability

    return max(parses, key=rank)


def _read_results(raw: Any, where: str) -> bool | list[tuple[str, str]]:
    """SPARQL's JSON results: true or false, or the kind and the value of every ?x0."""
    match raw:
        case {"boolean": bool(answer)}:
            return answer
        case {"head": {"vars": ["__ASK_RETVAL"]}, "results": {"bindings": list(bindings)}}:  # Virtuoso's true and false
            return bool(bindings)
        case {"results": {"bindings": list(bindings)}}:
            found = [_read_term(binding, where) for binding in bindings]
            return list(dict.fromkeys(found))
    raise StoreError(f"{where} answered with JSON that is no SPARQL result; is it an endpoint?")


def _read_term(binding: Any, where: str) -> tuple[str, str]:
    match binding:
        case {"x0": {"type": "uri" | "bnode" | "literal" | "typed-literal" as kind, "value": str(value)}}:
            # JSON can hold halves of characters, which no text can.
            return kind.removeprefix("typed-"), value.encode("utf-8", "replace").decode()
    raise StoreError(f"{where} answered with a binding that has no ?x0; is it an endpoint?")
