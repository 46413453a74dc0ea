"""COGS logical forms ⇄ graphs (paper, section 3.1).

    A hedgehog ate the cake .
    * cake ( x _ 4 ) ; hedgehog ( x _ 1 ) AND eat . agent ( x _ 2 , x _ 1 ) AND eat . theme ( x _ 2 , x _ 4 )

    hedgehog₁   eat₂   *₃   cake₄        the number is the slot, which is the variable's index
    eat ─agent→ hedgehog    eat ─theme→ cake    * ─article→ cake

- Predicates, proper names and definite articles are nodes; roles (`agent`, `nmod.in` …) are edges from the
  first argument's node to the second's.
- A noun's or verb's slot is the index of its variable. A name has no variable: its slot is its token's position.
  An article sits on the token before its noun.
- Conjuncts are written in the order of (slot of the first argument, slot of the second), which is the order
  COGS uses in every row. The slot of an article is never written, so a parser may place it where it likes.
- A one-word row (`primitive`) is a single node. `LAMBDA a . shark ( a )` and `Paula` come back as they were. Of a
  verb, `LAMBDA a . LAMBDA e . gasp . agent ( e , a )`, only the node stays: its roles lead to variables that
  no word stands for. `is_lossy` tells these rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lagr.errors import FormError
from lagr.graph import Edge, Graph

ARTICLE, ARTICLE_EDGE = "*", "article"

_ATOM = re.compile(r"(?P<star>\* )?(?P<name>[^\s.()*,;]+)(?P<role>(?: \. [^\s.()*,;]+)*) \( (?P<arguments>[^()]*) \)")
_VARIABLE = re.compile(r"x _ (\d{1,6})")
_NAME = re.compile(r"[A-Z][^\s.()*,;]*")
_LAMBDA = re.compile(r"(?:LAMBDA [a-z] \. )+")


def read(form: str, tokens: Sequence[str]) -> Graph:
    """The graph of a logical form, aligned with the tokens."""
    if _NAME.fullmatch(form) and not form.startswith("LAMBDA"):
        return Graph((form,), slots=(0,))
    if _LAMBDA.match(form):
        return _read_lambda(form)

    labels: dict[int, str] = {}  # slot → label
    edges: dict[tuple[int, int], str] = {}  # (source slot, target slot) → label
    described: set[int] = set()  # slots whose noun was introduced

    def put(slot: int, label: str, atom: str) -> int:
        if slot >= len(tokens):
            raise FormError(f"`{atom}` has the variable x _ {slot}, but the sentence has {len(tokens)} tokens")
        if labels.setdefault(slot, label) != label:
            raise FormError(f"x _ {slot} is both {labels[slot]!r} and {label!r}, in `{atom}`")
        return slot

    def connect(source: int, label: str, target: int, atom: str) -> None:
        if edges.setdefault((source, target), label) != label:
            raise FormError(f"`{atom}` gives x _ {source} and x _ {target} a second role; one is possible")

    *definites, conjunction = form.split(" ; ")
    for atom in definites:
        match = _ATOM.fullmatch(atom)
        variable = match and _VARIABLE.fullmatch(match["arguments"])
        if not match or not match["star"] or match["role"] or not variable:
            raise FormError(f"`{atom}` is no definite noun such as `* cake ( x _ 4 )`")
        noun = put(int(variable[1]), match["name"], atom)
        if noun == 0:
            raise FormError(f"`{atom}`: no token before x _ 0 can be its article")
        described.add(noun)
        connect(put(noun - 1, ARTICLE, atom), ARTICLE_EDGE, noun, atom)

    for atom in conjunction.split(" AND "):
        match = _ATOM.fullmatch(atom)
        if not match or match["star"]:
            raise FormError(f"`{atom}` is no conjunct such as `eat . agent ( x _ 2 , x _ 1 )`")
        arguments = match["arguments"].split(" , ")
        first = _VARIABLE.fullmatch(arguments[0])
        if not first or len(arguments) != (2 if match["role"] else 1):
            raise FormError(f"`{atom}`: a noun has one variable, a role has a variable and a second argument")
        source = put(int(first[1]), match["name"], atom)
        if not match["role"]:
            described.add(source)
            continue
        second = _VARIABLE.fullmatch(arguments[1])
        if second:
            target = int(second[1])
        elif _NAME.fullmatch(arguments[1]) and list(tokens).count(arguments[1]) == 1:
            target = put(list(tokens).index(arguments[1]), arguments[1], atom)
        else:
            raise FormError(f"`{atom}`: {arguments[1]!r} is no variable and no name that is in the sentence once")
        connect(source, match["role"].removeprefix(" . ").replace(" . ", "."), target, atom)

    for source, target in edges:
        if target not in labels:
            raise FormError(f"x _ {target} is an argument of {labels[source]!r} but nothing says what it is")
    slots = sorted(labels)
    position = {slot: j for j, slot in enumerate(slots)}
    return Graph(
        tuple(labels[slot] for slot in slots),
        tuple(Edge(position[s], label, position[t]) for (s, t), label in sorted(edges.items())),
        tuple(slots),
    )


def write(graph: Graph) -> str:
    """The logical form of an aligned graph. Nodes that nothing connects to the rest are left out, as in the paper."""
    if graph.slots is None:
        raise FormError("a COGS form needs the slots of the nodes: they are its variables")
    if len(graph.nodes) == 1 and not graph.edges:
        (label,) = graph.nodes
        return label if _NAME.fullmatch(label) else f"LAMBDA a . {label} ( a )"

    connected = {end for edge in graph.edges for end in (edge.source, edge.target)}
    definite: set[int] = set()
    for edge in graph.edges:
        if (graph.nodes[edge.source] == ARTICLE) != (edge.label == ARTICLE_EDGE):
            raise FormError(f"{graph.nodes[edge.source]!r} can't have the edge {edge.label!r}: articles have `article`")
        if graph.nodes[edge.target] == ARTICLE:
            raise FormError(f"an article can't be the {edge.label!r} of {graph.nodes[edge.source]!r}")
        if edge.label == ARTICLE_EDGE:
            if edge.target in definite or _NAME.fullmatch(graph.nodes[edge.target]):
                raise FormError(f"{graph.nodes[edge.target]!r} can't have this article: it is a name, or has another")
            definite.add(edge.target)

    def variable(node: int) -> str:
        assert graph.slots is not None
        return graph.nodes[node] if _NAME.fullmatch(graph.nodes[node]) else f"x _ {graph.slots[node]}"

    # Roles that leave a noun only add to it; any other makes its node an event, which has no conjunct of its own.
    events = {e.source for e in graph.edges if e.label != ARTICLE_EDGE and not e.label.startswith("nmod.")}
    conjuncts: list[tuple[int, int, str]] = []
    starred: list[tuple[int, str]] = []
    for node, label in enumerate(graph.nodes):
        if label == ARTICLE or _NAME.fullmatch(label) or node not in connected:
            continue
        if node in definite:
            starred.append((graph.slots[node], f"* {label} ( {variable(node)} )"))
        elif node not in events:
            conjuncts.append((graph.slots[node], -1, f"{label} ( {variable(node)} )"))
    for source, label, target in graph.edges:
        if label != ARTICLE_EDGE:
            role = label.replace(".", " . ")
            atom = f"{graph.nodes[source]} . {role} ( {variable(source)} , {variable(target)} )"
            conjuncts.append((graph.slots[source], graph.slots[target], atom))
    if not conjuncts:
        raise FormError("nothing in this graph can be written: it has no edge but those of articles")
    return " ; ".join([atom for _, atom in sorted(starred)] + [" AND ".join(atom for *_, atom in sorted(conjuncts))])


def is_lossy(form: str) -> bool:
    """Whether `write(read(form))` can't give the form back: the one-word rows that are verbs."""
    return _LAMBDA.match(form) is not None and " . LAMBDA e . " in form


def _read_lambda(form: str) -> Graph:
    body = _LAMBDA.sub("", form, count=1)
    predicates = set()
    for atom in body.split(" AND "):
        match = _ATOM.fullmatch(atom)
        if not match or match["star"]:
            raise FormError(f"`{atom}` in `{form}` is no conjunct such as `shark ( a )`")
        predicates.add(match["name"])
    if len(predicates) != 1:
        raise FormError(f"`{form}` is about {len(predicates)} predicates; a one-word meaning has one")
    return Graph(tuple(predicates), slots=(0,))
