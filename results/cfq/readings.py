"""How a run's parses of a dev set change with the way they are read.

python results/cfq/readings.py DATA PARTITION EVERY RUN …        every EVERY-th question of dev

Prints a line of JSON for every run. wrong: how many queries are not the right ones. up_to_numbers: how many of them are
but for the numbers of their variables. in_all: the same, where several runs are given, of questions of which that holds
in all of them. exact: exact match where an edge's `null` is less likely than the model says, by so many nats.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from lagr.datasets import Example, open_source
from lagr.model import NULL, GraphDistribution
from lagr.parser import Parse, Parser, load, only_lagr
from lagr.variables import without_names

SHIFTS = (-2, -1, -0.5, 0, 1, 2, 3, 4, 6, 8)


def parses(parser: Parser, examples: list[Example], shift: float) -> list[Parse]:
    """What it says where nothing is so much less likely to be between two nodes."""
    says = parser.run_model

    def shifted(*inputs: object) -> GraphDistribution:
        dist = says(*inputs)
        edges = dist.edge_log_probs.clone()
        edges[..., NULL] -= shift
        return replace(dist, edge_log_probs=edges)

    parser.run_model = shifted
    found = parser.parse_tokens([example.tokens for example in examples])
    parser.run_model = says
    return found


def main(data: str, partition: str, every: str, *runs: str) -> None:
    examples = open_source("cfq", data, partition, 0, 0).read("dev")[:: int(every)]
    in_all = set(range(len(examples)))
    for run in runs:
        parser = only_lagr(load(Path(run)), "this")
        wrong, renumbered, exact = 0, set(), {}
        for shift in SHIFTS:
            found = parses(parser, examples, shift)
            right = [parse.form == example.written_form for parse, example in zip(found, examples, strict=True)]
            exact[str(shift)] = round(100 * sum(right) / len(examples), 1)
            if shift == 0:
                wrong = len(examples) - sum(right)
                renumbered = {
                    n
                    for n, (parse, example) in enumerate(zip(found, examples, strict=True))
                    if not right[n] and without_names(parse.graph) == without_names(example.graph)
                }
        in_all &= renumbered
        record = {"run": run, "partition": partition, "n": len(examples), "wrong": wrong}
        print(json.dumps({**record, "up_to_numbers": len(renumbered), "in_all": len(in_all), "exact": exact}))


if __name__ == "__main__":
    main(*sys.argv[1:])
