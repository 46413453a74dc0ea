"""What is special about CFQ's variables: how they are numbered, and chains of them that alignments lay the wrong way.

python results/cfq/variables.py DATA PARTITION [RUN …]        runs in which variables are alike

Prints lines of JSON. The first is of the training queries that have two variables or more. appear: of how many the
variables are numbered as they appear; lines: in how many every line has them in that order; open: of how many these two
leave more than one numbering, where those of up to five variables are looked at.

Then one for every run. wrong: how many training queries it gets wrong, by how many variables and how many pairs of
other nodes of equal label they have: {"3, 1": [wrong, all]}, where any are wrong. Of the first 60 of the kinds that
KINDS names, for each way of changing places after the paper's assignment (K, σ of the run): below: how often another
order of equal nodes is likelier than the one found; draws: how often six draws of the noise end in different ones.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path

import torch
from torch import Tensor

from lagr.align import Target, infer_alignment, score, swapped, with_choices
from lagr.batch import pack
from lagr.datasets import Example, open_source
from lagr.forms import sparql
from lagr.model import GraphDistribution
from lagr.naming import is_in_order
from lagr.parser import Parser, load, only_lagr
from lagr.variables import ANY, is_variable, mentioned, nameless

NAMES = tuple(f"?x{number}" for number in range(6))
KINDS, FIRST, DRAWS, MOST = ((2, 1), (3, 1), (4, 0)), 60, 6, 5


def kind(example: Example) -> tuple[int, int]:
    """How many variables, and how many pairs of other nodes of equal label."""
    labels = Counter(map(nameless, example.graph.nodes))
    return labels[ANY], sum(n * (n - 1) // 2 for label, n in labels.items() if label != ANY)


def numberings(example: Example) -> int:
    """In how many ways its variables may be numbered so that the query has them in order."""
    graph = example.graph
    variables = [node for node, label in enumerate(graph.nodes) if is_variable(label)]
    free = NAMES[any(label == sparql.ASKED_FOR for label in graph.nodes) :][: len(variables)]
    found = set()
    for names in permutations(free):
        of = dict(zip(variables, names, strict=True))
        form = sparql.write(replace(graph, nodes=tuple(of.get(n, label) for n, label in enumerate(graph.nodes))))
        found |= {form} if is_in_order(form, NAMES) else set()
    return len(found)


def one_at_a_time(dist: GraphDistribution, target: Target, best: Tensor) -> Tensor:
    for _ in range(2):
        tried = torch.cat([best[:, None], swapped(target, best)[0]], dim=1)
        best = tried[:, int(score(dist, target, tried).argmax())]
    return best


def looked_at(parser: Parser, examples: list[Example]) -> dict[str, dict[str, int]]:
    settings = parser.config.align
    ways: dict[str, Callable[[GraphDistribution, Target, Tensor], Tensor]] = {
        "one pair, twice": lambda dist, target, keys: one_at_a_time(dist, target, infer(dist, target, keys, swaps=0)),
        "one or two pairs, twice": lambda dist, target, keys: infer(dist, target, keys, swaps=2),
    }

    def infer(dist: GraphDistribution, target: Target, keys: Tensor, swaps: int) -> Tensor:
        return infer_alignment(
            dist, target, settings.candidates, settings.noise, keys, None, settings.noise_shape, swaps
        )

    counts = {way: {"below": 0, "draws": 0} for way in ways}
    for example in examples:
        data = pack([replace(example, graph=example.graph.with_slots(None))], parser.vocab, 2, variables_alike=True)
        with torch.inference_mode():
            dist = parser.model(data.batch.tokens[None], data.batch.lengths[None])
        choices = [torch.tensor(labels) for labels in data.choices]
        dist = replace(dist, node_log_probs=with_choices(dist.node_log_probs, choices))
        target, labels = data.asked(data.batch.target), list(map(nameless, example.graph.nodes))
        alike = [[n for n, label in enumerate(labels) if label == one] for one in dict.fromkeys(labels)]
        for way, run in ways.items():
            found = [run(dist, target, torch.tensor([draw], dtype=torch.int32)) for draw in range(DRAWS)]
            slots, every = found[0][0].tolist(), []
            for orders in product(*map(permutations, alike)):
                moved = {
                    n: slots[m]
                    for group, order in zip(alike, orders, strict=True)
                    for n, m in zip(group, order, strict=True)
                }
                every.append([moved[n] for n in range(len(slots))])
            best, own = score(dist, target, torch.tensor([every])).max(), score(dist, target, found[0][:, None])
            counts[way]["below"] += bool(best > own + 1e-3)
            counts[way]["draws"] += len({tuple(one[0].tolist()) for one in found}) > 1
    return counts


def main(data: str, partition: str, *runs: str) -> None:
    examples = open_source("cfq", data, partition, 0, 0).read("train")
    forms = [e.form or "" for e in examples if kind(e)[0] + (sparql.ASKED_FOR in e.graph.nodes) > 1]
    print(
        json.dumps(
            {
                "partition": partition,
                "n": len(forms),
                "appear": sum(mentioned(form) == NAMES[: len(mentioned(form))] for form in forms),
                "lines": sum(all(list(m) == sorted(m) for m in map(mentioned, form.split("\n"))) for form in forms),
                "open": sum(
                    numberings(e) > 1
                    for e in examples
                    if kind(e)[0] + (sparql.ASKED_FOR in e.graph.nodes) > 1 and kind(e)[0] <= MOST
                ),
            }
        ),
        flush=True,
    )
    kinds = Counter(map(kind, examples))
    for run in runs:
        parser = only_lagr(load(Path(run)), "this")
        found = parser.parse_tokens([example.tokens for example in examples])
        wrong = Counter(kind(e) for e, parse in zip(examples, found, strict=True) if parse.form != e.form)
        record = {
            "run": run,
            "wrong": {f"{a}, {b}": [n, kinds[a, b]] for (a, b), n in sorted(wrong.items())},
            **{f"{a}, {b}": looked_at(parser, [e for e in examples if kind(e) == (a, b)][:FIRST]) for a, b in KINDS},
        }
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
