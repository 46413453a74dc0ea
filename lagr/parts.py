"""A part of a sentence and of its graph, in the place of another one's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lagr.datasets import Example
from lagr.graph import Edge, Graph

FEWEST = 10  # parts of a kind, before one can say where they stand
MOST = 2 / 3  # of the neighbours of a kind of part, for "most"
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Part(Generic[Kind]):
    row: int  # of the example
    start: int  # its first token, and the one after its last
    end: int
    head: int  # nodes, as numbers of the example's graph
    nodes: frozenset[int]  # the head among them, or not where it is outside
    kind: Kind  # what parts have in common that can take each other's place


def exchanged(
    examples: Sequence[Example], site: Part[Kind], other: Part[Kind], graph_layers: int, slots: bool = True
) -> Example:
    """The example of one part with the other in its place. It has no form: its graph is what it means.

    What led to the old head, or out of it, does so with the new one; a head that is outside stays, and is that of what
    comes. slots: whether they are known, and the new graph has them too.
    """
    here, there = examples[site.row], examples[other.row]
    stays = site.head not in site.nodes
    kept = [node for node in range(len(here.graph.nodes)) if node not in site.nodes]
    came = sorted(other.nodes - {other.head} if stays else other.nodes)
    stay = {node: number for number, node in enumerate(kept)}
    come = {node: number for number, node in enumerate(came, start=len(kept))}
    if stays:
        come[other.head] = stay[site.head]
    else:
        stay[site.head] = come[other.head]
    edges = [
        Edge(new[e.source], e.label, new[e.target])
        for graph, new in ((here.graph, stay), (there.graph, come))
        for e in graph.edges
        if e.source in new and e.target in new
    ]
    labels = [here.graph.nodes[node] for node in kept] + [there.graph.nodes[node] for node in came]
    tokens = here.tokens[: site.start] + there.tokens[other.start : other.end] + here.tokens[site.end :]
    places = None
    if slots:
        assert here.graph.slots is not None and there.graph.slots is not None
        end, longer = graph_layers * site.end, graph_layers * (other.end - other.start - site.end + site.start)
        places = [slot if slot < end else slot + longer for slot in (here.graph.slots[node] for node in kept)]
        places += [there.graph.slots[node] + graph_layers * (site.start - other.start) for node in came]
    return Example(tokens, Graph(tuple(labels), tuple(edges), tuple(places) if places is not None else None))


def mostly_in(one: Counter[str], other: Counter[str]) -> bool:
    """Whether most of the first are also in the second."""
    return sum(times for word, times in one.items() if word in other) > MOST * one.total()
