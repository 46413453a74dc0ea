"""A predicted query, in CFQ's spelling → the same query in standard SPARQL, which can only read.

    SELECT count(*) WHERE {                                ASK WHERE {
    ?x0 ns:film.director.film M1 .                           ?x0 <http://rdf.freebase.com/ns/film.director.film> <…> .
    FILTER ( ?x0 != M0 )                                     FILTER ( ?x0 != <…> )
    }                                                      }

Labels are data, and a parser may have learned any. So nothing of the predicted text is run: it is taken apart into
variables, names, paths and filters, whatever else is in it is refused, and a new query is written from the parts. It
is an ASK or a SELECT over triple patterns and `!=`; nothing in it can write, load, or reach another service.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lagr.errors import DataError, FormError
from lagr.forms import sparql

FREEBASE = "http://rdf.freebase.com/ns/"

_PREFIXED = re.compile(r"ns:([\w.]+)")
_PLACEHOLDER = re.compile(r"M\d+")
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f<>\"{}|^`\\\ud800-\udfff]+")


def is_iri(text: str) -> bool:
    """Whether the text is a whole IRI that can stand between < and >."""
    return _IRI.fullmatch(text) is not None


def check_iri(text: str) -> str:
    """The text, if it is an IRI."""
    if not is_iri(text):
        raise DataError(f"{text!r} is no IRI such as http://example.org/alien")
    return text


def is_placeholder(word: str) -> bool:
    """Whether the word stands for an entity, as M0 does."""
    return _PLACEHOLDER.fullmatch(word) is not None


def placeholders_of(form: str) -> set[str]:
    return {word for word in form.split() if is_placeholder(word)}


def standard(form: str, iris: Mapping[str, str], limit: int, namespace: str = FREEBASE) -> str:
    """The standard query of a predicted one.

    iris: of every placeholder. limit: answers at most. namespace: what `ns:` stands for.
    FormError where the form is outside CFQ's fragment, or has a placeholder that stands for nothing.
    """
    head, triples, filters = sparql.parts(sparql.in_order(form))
    bound = {end for subject, _, target in triples for end in (subject, target)}
    selects = head == sparql.SELECT
    if selects and sparql.SELECTED not in bound:
        raise FormError(f"the query asks for {sparql.SELECTED}, of which it says nothing")

    def path(text: str) -> str:
        return _PREFIXED.sub(lambda found: f"<{check_iri(namespace + found[1])}>", text)

    def term(text: str) -> str:
        if not is_placeholder(text):
            return path(text)
        if text not in iris:
            raise FormError(f"the query mentions {text}, which stands for nothing in the question")
        return f"<{check_iri(iris[text])}>"

    # CFQ repeats some clauses; once is enough here.
    clauses = [
        f"{term(subject)} {'a' if predicate == 'a' else path(predicate)} {term(target)} ."
        for subject, predicate, target in triples
    ]
    clauses += [f"FILTER ( {term(left)} != {term(right)} )" for left, right in filters]
    begin = f"SELECT DISTINCT {sparql.SELECTED} WHERE {{" if selects else "ASK WHERE {"
    return "\n".join([begin, *(f"  {clause}" for clause in clauses), f"}} LIMIT {limit}" if selects else "}"])
