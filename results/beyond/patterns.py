"""Where a parser of MCD1 fails: exact match by what a question is like, on questions of dev. Nothing is chosen by it.

python results/beyond/patterns.py RUN DATA/cfq [QUESTIONS]
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter, defaultdict
from pathlib import Path

from held_out import _pattern

from lagr.datasets import Example, cfq
from lagr.parser import load, only_lagr


def groups(example: Example) -> list[str]:
    classes = _pattern(example.tokens)
    begin = [name for name in classes if name != "A"][:3]
    text = " ".join(classes)
    if begin[0] in ("Which", "What") and begin[1] == "N" and begin[2] in ("of", "and", ","):
        return ["Which N of"]
    if classes[:3] == ["Who", "was", "M"]:
        return ["Who was M"]
    if " , M" in text and "M , M" in text:
        return ["three or more entities listed"]
    more = {"two possessives": classes.count("'s") > 1, "nouns listed": "N , N" in text}
    return ["the rest", *(f"the rest, {name}" for name, is_so in more.items() if is_so)]


def main() -> None:
    parser = only_lagr(load(Path(sys.argv[1])), "a graph")
    examples = random.Random(0).sample(cfq.source(Path(sys.argv[2]), "mcd1").read("dev"), int([*sys.argv, "1500"][3]))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for example, parse in zip(examples, parser.parse([" ".join(e.tokens) for e in examples]), strict=True):
        gold, ours = Counter(example.graph.nodes), Counter(parse.graph.nodes)
        wrong = (gold - ours) + (ours - gold)
        for group in groups(example):
            counts[group]["questions"] += 1
            counts[group]["right"] += parse.form == example.form
            counts[group]["other nodes"] += bool(wrong)
            counts[group]["other variables"] += any(label.startswith("?x") for label in wrong)
    print(json.dumps(counts, indent=1))


if __name__ == "__main__":
    main()
