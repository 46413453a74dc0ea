"""Variables: nodes whose label is a name, as ?x0 and ?x1 are in SPARQL. It says which one is meant, and no more."""

from __future__ import annotations

import re

from lagr.graph import OR, Graph

VARIABLE = re.compile(r"[?$]\w+")
ANY = "\x1e"  # the label of a variable without its name: no label of any data is that


def is_variable(label: str) -> bool:
    """Whether it is one, or any of several."""
    return all(VARIABLE.fullmatch(one) for one in label.split(OR))


def nameless(label: str) -> str:
    return ANY if is_variable(label) else label


def without_names(graph: Graph) -> Graph:
    """The graph in which all variables have one label."""
    return graph.with_labels(tuple(map(nameless, graph.nodes)))


def mentioned(form: str) -> tuple[str, ...]:
    """The variables of a form, in the order in which it mentions them first."""
    return tuple(dict.fromkeys(VARIABLE.findall(form)))


def named_twice(graph: Graph) -> str:
    """A variable that is the name of two nodes; empty: there is none."""
    names = list(filter(is_variable, graph.nodes))
    return next((name for name in names if names.count(name) > 1), "")
