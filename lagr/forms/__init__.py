"""Formalisms: meaning as text ⇄ Graph, one module each, none of which the rest of the package looks inside.

A formalism is a module with
    read(form, tokens) → Graph     the graph of a logical form or query; FormError where it is outside the fragment
    write(graph) → str             the form of a graph; FormError where the graph has none
"""

from __future__ import annotations

from collections.abc import Sequence
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
