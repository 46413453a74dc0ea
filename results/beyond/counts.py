"""What MCD1's training questions lack that its dev questions have, counted without answers; and what new ones add.

python results/beyond/counts.py DATA/cfq
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from held_out import LENGTHS, OWNERS, _classes, _pattern

from lagr.config import load
from lagr.datasets import Example, cfq
from lagr.forms import sparql
from lagr.graph import Graph
from lagr.supervision import more_examples, training_examples
from lagr.vocab import OR


def counts(examples: Sequence[Example]) -> dict[str, Any]:
    """How many questions have a list of each length, by what is listed; and how many have what is rare or new."""
    lists: Counter[str] = Counter()
    found: Counter[str] = Counter(questions=len(examples))
    for example in examples:
        words = " ".join(_classes(example.tokens))
        here = set()
        for member in LENGTHS:
            for listed in re.finditer(rf"\b{member}(?: ,(?: and)? {member}\b| and {member}\b)+", words):
                length = len(re.findall(rf"\b{member}\b", listed[0]))
                here.add(f"{member}, {length}")
        lists.update(here)
        found["Which N of"] += bool(re.match(r"(?:Which|What) (?:A )*N (?:(?:, |and |, and )N )*of ", words))
        found["was M 's"] += "was M 's" in words
        found["Did M 's …, Was M 's N a …, Was M 's N M …"] += bool(OWNERS.match(" ".join(_pattern(example.tokens))))
    return {**found, "lists": dict(sorted(lists.items()))}


def numbered(graph: Graph) -> Graph:
    """Variables that may have any number, with the first that are left."""
    left = [f"?x{number}" for number in range("select_?x0" in graph.nodes, 10)]
    return replace(graph, nodes=tuple(left.pop(0) if OR in label else label for label in graph.nodes))


def main() -> None:
    source, config = cfq.source(Path(sys.argv[1]), "mcd1"), load("cfq-best")
    given = training_examples(config, source)
    new = more_examples(config, given)
    graphs = [numbered(example.graph) for example in new[::10]]
    merged = sum(sparql.read(sparql.write(graph)) != graph for graph in graphs)
    described = sum(any(OR in label for label in example.graph.nodes) for example in new)
    parts = {"train": counts(given), "new": counts(new), "dev": counts(source.read("dev"))}
    more = {"new, with variables of any number": described}
    print(json.dumps({**parts, **more, "new, every tenth, of which the data would merge nodes": merged}, indent=1))


if __name__ == "__main__":
    main()
