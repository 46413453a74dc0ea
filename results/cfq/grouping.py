"""Whether the nodes of CFQ's graphs are those that the published code makes, by its description of itself.

python results/cfq/grouping.py DATA        DATA/cfq is the corpus

There, triples of one predicate and subject are one node, and so are those of one predicate whose subjects have the same
objects; a class is a node for each of its subjects; the `^` of a reversed predicate is dropped. Prints, for each part
of MCD1, how many graphs have other nodes here, the `^` left aside. Edges are found by labels there, so that of several
nodes of one label one alone gets the edge with an entity: also printed is how many graphs have two such edges here,
and how many a filter that a query has twice, which that code has once.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict

from lagr.datasets import open_source
from lagr.forms import sparql
from lagr.graph import Graph


def grouped(query: str) -> Counter[str]:
    """The labels of the nodes."""
    head, triples, _ = sparql.parts(query)
    objects: dict[tuple[str, str], list[str]] = defaultdict(list)
    nodes: list[str] = []
    entities: set[str] = set()
    for subject, predicate, target in triples:
        if predicate == "a":
            nodes.append(target)
            entities.add(subject)
        else:
            objects[predicate.replace("^", ""), subject].append(target)
    shared: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (predicate, subject), targets in objects.items():
        shared[predicate, tuple(targets)].append(subject)
    for (predicate, targets), subjects in shared.items():
        nodes.append(predicate)
        entities.update(targets, subjects)
    if head == sparql.SELECT:
        entities = {sparql.ASKED_FOR if entity == sparql.SELECTED else entity for entity in entities}
    return Counter(nodes) + Counter(entities)


def shares_an_entity(graph: Graph) -> bool:
    """Whether two nodes of equal label have edges of one label with the same entity."""
    labels = [label.replace("^", "") for label in graph.nodes]
    count = Counter(labels)
    ends: Counter[tuple[str, str, int]] = Counter()
    for source, name, target in graph.edges:
        entity, predicate = (target, source) if name == "theme" else (source, target)
        if count[labels[predicate]] > 1:
            ends[name, labels[predicate], entity] += 1
    return any(number > 1 for number in ends.values())


def main(data: str) -> None:
    source = open_source("cfq", data, "mcd1", 0, 0)
    for split in ("train", "dev", "test"):
        examples = source.read(split)
        others = sum(
            grouped(example.written_form) != Counter(label.replace("^", "") for label in example.graph.nodes)
            for example in examples
        )
        edges = sum(shares_an_entity(example.graph) for example in examples)
        filters = sum(any(edge.label == sparql.FILTER_TWICE for edge in example.graph.edges) for example in examples)
        print(
            f"{split}: {others} of {len(examples):,} graphs have other nodes, {edges} may have other edges, "
            f"{filters} have {sparql.FILTER_TWICE}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
