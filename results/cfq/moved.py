"""The alignments of a run, with variables where another run has them, for models that are given them.

python results/cfq/moved.py DATA HELD PARTITION FILE RUN [OTHER]
lagr train PRESET --data HELD --data.partition PARTITION --align.supervision strong --align.given FILE

DATA/cfq is what both runs were trained on, HELD/cfq what `results/beyond/held_out.py cfq` made of it. FILE: what `lagr
align RUN` writes, of the training questions of PARTITION. With OTHER, select_?x0, ?x0, ?x1, … are where that run has
them; if another node is there, on the same word; if there is no room either, where they were, or in the first free
slot. Prints, of all variables, the share that is on OTHER's word, in per cent.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lagr import runs
from lagr.datasets import Example, jsonl, open_source
from lagr.graph import Graph
from lagr.supervision import learned_alignments
from lagr.variables import is_variable


def variables_of(graph: Graph) -> list[int]:
    return [node for node, label in enumerate(graph.nodes) if is_variable(label.removeprefix("select_"))]


def moved(graph: Graph, other: Graph, words: int, layers: int) -> Graph:
    assert graph.nodes == other.nodes and graph.slots is not None and other.slots is not None
    variables, slots = variables_of(graph), list(graph.slots)
    taken = set(slots) - {slots[node] for node in variables}
    for node in variables:
        wanted = other.slots[node]
        its_word = range(wanted - wanted % layers, wanted - wanted % layers + layers)
        candidates = (wanted, *its_word, slots[node], *range(layers * words))
        slots[node] = next(slot for slot in candidates if slot not in taken)
        taken.add(slots[node])
    return graph.with_slots(slots)


def main(data: str, held: str, partition: str, file: str, run: str, other: str | None = None) -> None:
    config, _ = runs.read_config(Path(run))
    layers = config.model.graph_layers
    source = open_source("cfq", data, config.data.partition, 0, 0)
    aligned, wanted = (
        {e.tokens: e.graph for e in learned_alignments(Path(one), source)} for one in (run, other or run)
    )
    there: list[bool] = []
    with Path(file).open("w", encoding="utf-8") as out:
        for example in open_source("cfq", held, partition, 0, 0).read("train"):
            theirs = wanted[example.tokens]
            graph = moved(aligned[example.tokens], theirs, len(example.tokens), layers)
            pairs = list(zip(graph.slots or (), theirs.slots or (), strict=True))
            there += [pairs[node][0] // layers == pairs[node][1] // layers for node in variables_of(graph)]
            out.write(jsonl.write_row(Example(example.tokens, graph)) + "\n")
    print(round(100 * sum(there) / len(there), 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
