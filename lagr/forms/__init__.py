"""Formalisms: meaning as text ⇄ Graph, one module each, none of which the rest of the package looks inside.

A formalism is a module with
    read(form, tokens) → Graph     the graph of a logical form or query; FormError where it is outside the fragment
    write(graph) → str             the form of a graph; FormError where the graph has none
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lagr.errors import DataError
from lagr.forms import cogs, sparql
from lagr.graph import Graph


class Formalism(Protocol):
    def read(self, form: str, tokens: Sequence[str]) -> Graph: ...

    def write(self, graph: Graph) -> str: ...


FORMALISMS: dict[str, Formalism] = {"cogs": cogs, "sparql": sparql}


def formalism(name: str) -> Formalism:
    if name not in FORMALISMS:
        raise DataError(f"unknown formalism {name!r}; known are {', '.join(sorted(FORMALISMS))}")
    return FORMALISMS[name]


@dataclass(frozen=True)
class Spelling:
    """How a form is written as a row of tokens, and how such a row, which a model may have written, is read again."""

    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]  # FormError where the tokens are no form
    in_order: Callable[[str], str] = (
        str  # the form with its conjuncts in the order of the data, where `read` asks for it
    )


SPELLINGS: dict[tuple[str, str], Spelling] = {
    ("cogs", "full"): Spelling(lambda form: form.split(" "), " ".join),
    ("sparql", "full"): Spelling(str.split, sparql.join, sparql.in_order),
    ("sparql", "compressed"): Spelling(sparql.compress, sparql.expand),
}


def spelling(formalism: str | None, kind: str) -> Spelling:
    if formalism is None:
        raise DataError("the data has graphs without forms, so there is nothing to write; use model.kind = lagr")
    if (formalism, kind) not in SPELLINGS:
        raise DataError(f"no compressed form is known for {formalism}; set data.form to full")
    return SPELLINGS[formalism, kind]
