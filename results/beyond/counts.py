"""What MCD1's training questions lack that its dev questions have, counted without answers; and what new ones add.

python results/beyond/counts.py DATA/cfq
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from held_out import LENGTHS, _classes

from lagr.config import load
from lagr.datasets import Example, cfq
from lagr.forms import sparql
from lagr.supervision import more_examples, training_examples


def counts(examples: Sequence[Example]) -> dict[str, Any]:
    """In how many questions there is a list of each length, by what is listed; and two beginnings that are new."""
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
    return {**found, "lists": dict(sorted(lists.items()))}


def main() -> None:
    source, config = cfq.source(Path(sys.argv[1]), "mcd1"), load("cfq-best")
    given = training_examples(config, source)
    new = more_examples(config, given)
    merged = sum(sparql.read(sparql.write(example.graph)) != example.graph for example in new[::10])
    parts = {"train": counts(given), "new": counts(new), "dev": counts(source.read("dev"))}
    print(json.dumps({**parts, "new, every tenth, of which the data would merge nodes": merged}, indent=1))


if __name__ == "__main__":
    main()
