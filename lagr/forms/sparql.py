"""CFQ's SPARQL queries ⇄ graphs (paper, section 3.2).

    SELECT DISTINCT ?x0 WHERE {
    ?x0 a ns:film.actor .
    ?x0 ns:film.editor.film M1 .
    ?x0 ns:film.editor.film M2 .
    FILTER ( ?x0 != M1 )
    }

    select_?x0 ─agent→ ns:film.actor        select_?x0 ─agent→ ns:film.editor.film ─theme→ M1, M2
    select_?x0 ─FILTER→ M1

- Entities and variables are nodes, one each. Triples that share a predicate are merged: subjects with the same
  objects share one predicate node, which stands for all pairs of its agents and its themes.
- An `agent` edge leads from the subject to the predicate and a `theme` edge on to the object, so that a path reads
  as the triple does, and `M1 p M1` needs no second edge between the same two nodes in the same direction.
- A class (`a ns:film.actor`) is a predicate without theme, a node for every subject.
- `select_?x0` instead of `?x0` says that the query asks for it; without it the query counts.
- CFQ repeats some conjuncts. A repeated triple is a predicate node of its own; a repeated filter is an edge
  labelled `FILTER2`. Both are needed to give every query back.
- CFQ sorts its conjuncts as strings, so writing needs no alignment.

The same merged triples, as a row of tokens, are the compressed query:

    SELECT DISTINCT ?x0 WHERE { ?x0 a ns:film.actor . ?x0 ns:film.editor.film M1 M2 . FILTER ( ?x0 != M1 ) }
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import takewhile

from lagr.errors import FormError
from lagr.graph import Edge, Graph

AGENT, THEME, FILTER, FILTER_TWICE = "agent", "theme", "FILTER", "FILTER2"
SELECT, COUNT = "SELECT DISTINCT ?x0 WHERE {", "SELECT count(*) WHERE {"
SELECTED, ASKED_FOR = "?x0", "select_?x0"

_ENTITY = re.compile(r"\?x\d+|M\d+|ns:m\.\w+")
_CLASS = re.compile(r"ns:[\w.]+")
_PATH = re.compile(r"\^?ns:[\w.]+(?:[/|]\^?ns:[\w.]+)*")


def read(form: str, tokens: Sequence[str] = ()) -> Graph:
    """The graph of a query. It has no slots: which word gives which node is not in the data."""
    head, triples, filters = parts(form)
    selects = head == SELECT
    nodes: list[str] = []
    entities: dict[str, int] = {}
    edges: list[Edge] = []

    def entity(name: str) -> int:
        if name not in entities:
            entities[name] = len(nodes)
            nodes.append(ASKED_FOR if selects and name == SELECTED else name)
        return entities[name]

    for subjects, predicate, objects in _merged(triples):
        node = len(nodes)
        nodes.append(predicate)
        edges += [Edge(entity(subject), AGENT, node) for subject in subjects]
        edges += [Edge(node, THEME, entity(target)) for target in objects]
    for (left, right), times in filters.items():
        if times > 2 or left == right:
            raise FormError(f"`FILTER ( {left} != {right} )` {'comes three times' if times > 2 else 'is never true'}")
        edges.append(Edge(entity(left), FILTER if times == 1 else FILTER_TWICE, entity(right)))
    if selects and SELECTED not in entities:
        raise FormError(f"`{SELECT}`: no clause mentions {SELECTED}")
    return Graph(tuple(nodes), tuple(edges))


def write(graph: Graph) -> str:
    """The query of a graph. Nodes that nothing connects to the rest are left out, as in the paper."""
    subjects: dict[int, list[str]] = defaultdict(list)
    objects: dict[int, list[str]] = defaultdict(list)
    clauses: list[str] = []

    def is_entity(node: int) -> bool:
        return graph.nodes[node] == ASKED_FOR or _ENTITY.fullmatch(graph.nodes[node]) is not None

    def name(node: int) -> str:
        return SELECTED if graph.nodes[node] == ASKED_FOR else graph.nodes[node]

    for source, label, target in graph.edges:
        ends = is_entity(source), is_entity(target)
        if label == AGENT and ends == (True, False):
            subjects[target].append(name(source))
        elif label == THEME and ends == (False, True):
            objects[source].append(name(target))
        elif label in (FILTER, FILTER_TWICE) and ends == (True, True):
            clauses += [f"FILTER ( {name(source)} != {name(target)} )"] * (2 if label == FILTER_TWICE else 1)
        else:
            raise FormError(f"no query has the edge {graph.nodes[source]} ─{label}→ {graph.nodes[target]}")
    for node in objects.keys() - subjects.keys():
        raise FormError(f"{graph.nodes[node]} has a theme but no agent")
    for node, agents in subjects.items():
        predicate, themes = graph.nodes[node], objects.get(node)
        for agent in agents:
            clauses += [f"{agent} {predicate} {theme}" for theme in themes] if themes else [f"{agent} a {predicate}"]
    if not clauses:
        raise FormError("nothing in this graph can be written: it has no edges")
    head = SELECT if any(graph.nodes[n] == ASKED_FOR for e in graph.edges for n in (e.source, e.target)) else COUNT
    return "\n".join([head, *_punctuated(sorted(clauses)), "}"])


def join(tokens: Sequence[str]) -> str:
    """The query that has these tokens, with its lines."""
    return " ".join(tokens).replace("{ ", "{\n").replace(" . ", " .\n").replace(" }", "\n}")


def in_order(form: str) -> str:
    """The query with its clauses sorted, as they are in the data."""
    head, *clauses, end = form.split("\n") if form.count("\n") > 1 else (form, "")
    return "\n".join([head, *_punctuated(sorted(clause.removesuffix(" .") for clause in clauses)), end])


def compress(form: str) -> list[str]:
    """The tokens of a query in which triples of one predicate are merged, as they are in its graph."""
    head, triples, filters = parts(form)
    clauses = [
        " ".join([*subjects, predicate, *objects] if objects else [*subjects, "a", predicate])
        for subjects, predicate, objects in _merged(triples)
    ]
    clauses += [f"FILTER ( {left} != {right} )" for left, right in filters.elements()]
    return f"{head} {' . '.join(clauses)} }}".split(" ")


def expand(tokens: Sequence[str]) -> str:
    """The query that was compressed into these tokens."""
    text = " ".join(tokens)
    head = next((head for head in (SELECT, COUNT) if text.startswith(head + " ")), None)
    if head is None or tokens[-1] != "}":
        raise FormError(f"a compressed query begins with `{SELECT}` or `{COUNT}` and ends with `}}`")
    clauses: list[str] = []
    for clause in text[len(head) + 1 : -2].split(" . "):
        words = clause.split(" ")
        subjects = list(takewhile(_ENTITY.fullmatch, words))
        predicate, *objects = words[len(subjects) :] or [""]
        if predicate == "FILTER" and not subjects:
            clauses.append(clause)
        elif subjects and objects:
            clauses += [f"{subject} {predicate} {target}" for subject in subjects for target in objects]
        else:
            raise FormError(f"`{clause}` has no subject, predicate and object, and is no filter")
    return "\n".join([head, *_punctuated(sorted(clauses)), "}"])


def parts(form: str) -> tuple[str, Counter[tuple[str, str, str]], Counter[tuple[str, str]]]:
    """How a query begins, its triples and its filters."""
    lines = form.split("\n")
    if lines[0] not in (SELECT, COUNT):
        raise FormError(f"`{lines[0]}` is neither `{SELECT}` nor `{COUNT}`")
    if len(lines) < 3 or lines[-1] != "}":
        raise FormError("a query ends with a line `}` after at least one clause")
    triples: Counter[tuple[str, str, str]] = Counter()
    filters: Counter[tuple[str, str]] = Counter()
    clauses = lines[1:-1]
    for number, line in enumerate(clauses):
        clause = line.removesuffix(" .")
        if (clause == line) != (number == len(clauses) - 1):
            raise FormError(f"`{line}`: every clause but the last ends with ` .`")
        match clause.split(" "):
            case ["FILTER", "(", left, "!=", right, ")"] if _ENTITY.fullmatch(left) and _ENTITY.fullmatch(right):
                filters[left, right] += 1
            case [subject, "a", kind] if _ENTITY.fullmatch(subject) and _CLASS.fullmatch(kind):
                triples[subject, "a", kind] += 1
            case [subject, path, target] if (
                _ENTITY.fullmatch(subject) and _PATH.fullmatch(path) and _ENTITY.fullmatch(target)
            ):
                triples[subject, path, target] += 1
            case _:
                raise FormError(f"`{line}` is no class, triple or filter of the fragment")
    if clauses != _punctuated(sorted(clause.removesuffix(" .") for clause in clauses)):
        raise FormError("the clauses are not sorted, so the query could not be given back as it is")
    return lines[0], triples, filters


def _merged(triples: Counter[tuple[str, str, str]]) -> Iterable[tuple[list[str], str, list[str]]]:
    """Subjects, predicate, objects of every predicate node: subjects with the same objects go together."""
    repeat = 1
    while layer := [triple for triple, times in triples.items() if times >= repeat]:
        objects_of: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for subject, predicate, target in layer:
            if predicate == "a":
                yield [subject], target, []
            else:
                objects_of[predicate][subject].append(target)
        for predicate, by_subject in objects_of.items():
            subjects_of: dict[tuple[str, ...], list[str]] = defaultdict(list)
            for subject, objects in by_subject.items():
                subjects_of[tuple(objects)].append(subject)
            for shared_objects, subjects in subjects_of.items():
                yield subjects, predicate, list(shared_objects)
        repeat += 1


def _punctuated(clauses: list[str]) -> list[str]:
    return [clause + " ." for clause in clauses[:-1]] + clauses[-1:]
