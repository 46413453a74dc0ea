"""Whether the nodes of CFQ's graphs are those that the published code makes, by its description of itself.

python results/cfq/grouping.py DATA        DATA/cfq is the corpus

There, triples of one predicate and subject are one node, and so are those of one predicate whose subjects have the same
objects; a class is a node for each of its subjects; the `^` of a reversed predicate is dropped. Prints, for each part
of MCD1, how many graphs have other nodes here, the `^` left aside.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict

from lagr.datasets import open_source
from lagr.forms import sparql


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


def main(data: str) -> None:
    source = open_source("cfq", data, "mcd1", 0, 0)
    for split in ("train", "dev", "test"):
        examples = source.read(split)
        others = sum(
            grouped(example.written_form) != Counter(label.replace("^", "") for label in example.graph.nodes)
            for example in examples
        )
        print(f"{split}: {others} of {len(examples):,} graphs have other nodes")


if __name__ == "__main__":
    main(*sys.argv[1:])
