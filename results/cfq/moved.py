"""The alignments of a run, with variables where another run has them, for models that are given them.

python results/cfq/moved.py DATA HELD PARTITION FILE RUN [OTHER]
lagr train PRESET --data HELD --data.partition PARTITION --align.supervision strong --align.given FILE

DATA/cfq is what both runs were trained on, HELD/cfq what `results/beyond/held_out.py cfq` made of it. FILE: what `lagr
align RUN` writes, of the training questions of PARTITION. With OTHER, select_?x0, ?x0, ?x1, … are where that run has
them; if another node is there, on the same word; if there is no room either, where they were, or in the first free
slot.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from lagr import runs
from lagr.datasets import Example, jsonl, open_source
from lagr.graph import Graph
from lagr.supervision import learned_alignments
from lagr.variables import is_variable


def moved(graph: Graph, other: Graph, slots: range, layers: int) -> Graph:
    assert graph.nodes == other.nodes and graph.slots is not None and other.slots is not None
    variable = [is_variable(label.removeprefix("select_")) for label in graph.nodes]
    found = list(graph.slots)
    taken = {slot for slot, one in zip(found, variable, strict=True) if not one}
    for node, wanted in enumerate(other.slots):
        if variable[node]:
            first = wanted - wanted % layers
            column = range(first, first + layers)
            found[node] = next(slot for slot in (wanted, *column, found[node], *slots) if slot not in taken)
            taken.add(found[node])
    return graph.with_slots(found)


def main(data: str, held: str, partition: str, file: str, *folders: str) -> None:
    config, _ = runs.read_config(Path(folders[0]))
    layers = config.model.graph_layers
    theirs = open_source("cfq", data, config.data.partition, 0, 0)
    first, *others = ({e.tokens: e for e in learned_alignments(Path(run), theirs)} for run in folders)
    with Path(file).open("w", encoding="utf-8") as out:
        for example in open_source("cfq", held, partition, 0, 0).read("train"):
            given: Example = first[example.tokens]
            for other in others:
                slots = range(layers * len(example.tokens))
                given = replace(given, graph=moved(given.graph, other[example.tokens].graph, slots, layers))
            out.write(jsonl.write_row(replace(given, form=None)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
