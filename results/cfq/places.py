"""On which words a run without alignments has placed the nodes of CFQ's queries.

python results/cfq/places.py DATA RUN …        DATA/cfq is what the runs were trained on

Prints a line of JSON for every run. names: the share of the nodes M0, M1, … that are on the word of that name. others:
of all other nodes but variables and people, which have no words of their own, the share on any noun, verb or adjective,
and not on words as "'s", "and" or "What", nor on names. questions: where both hold of all nodes. variables: the share
of ?x0, ?x1, … (select_?x0 left out) on "a", "'s" or "whose", next to the noun that a variable stands for; words: of a
variable that is there 1,000 times or more, up to four of its likeliest words, names as one, in per cent. one_layer: the
share of all nodes that are on the layer which has more of them. All of that of the first 20,000 training questions.
train, dev: exact match. nodes, edges: of dev, how often all nodes are right, and all edges where they are. In
places.json the records of the paper's size, and of small models on MCD1 itself, have test instead of dev, and some have
blind: label-blind match on the same. train_chains: exact match on the training questions with two variables or more and
a pair of other nodes of equal label.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from lagr import runs
from lagr.datasets import Example, Source, open_source
from lagr.supervision import learned_alignments

sys.path.insert(0, str(Path(__file__).parents[1] / "beyond"))
from held_out import CLASS, PART_OF_A_NOUN

FIRST = 20_000
SEEN = 1000  # how often a variable has to be there for its words to be told
BESIDE = {"a", "'s", "whose"}
NAME, WITHOUT_A_WORD = re.compile(r"M\d+"), re.compile(r"select_\?x\d+|ns:people\.person")  # a person may be just "Who"


def placed(pairs: Iterable[tuple[str, str]]) -> dict[str, list[bool]]:
    """Of a question's nodes, as pairs of a label and the word that it is on: which are where they belong."""
    found: dict[str, list[bool]] = {"names": [], "others": [], "variables": []}
    for label, word in pairs:
        if NAME.fullmatch(label):
            found["names"].append(word == label)
        elif label.startswith("?x"):
            found["variables"].append(word in BESIDE)
        elif not WITHOUT_A_WORD.fullmatch(label):
            found["others"].append(word in CLASS or word in PART_OF_A_NOUN)
    return {**found, "questions": [all(found["names"] + found["others"])]}


def pairs_of(example: Example, layers: int) -> list[tuple[str, str]]:
    slots = example.graph.slots or ()
    return [(label, example.tokens[slot // layers]) for label, slot in zip(example.graph.nodes, slots, strict=True)]


@cache
def source_of(data: str, partition: str) -> Source:
    return open_source("cfq", data, partition, 0, 0)


def main(data: str, *folders: str) -> None:
    for folder in folders:
        config, _ = runs.read_config(Path(folder))
        layers = config.model.graph_layers
        examples = learned_alignments(Path(folder), source_of(data, config.data.partition))[:FIRST]
        found = [placed(pairs_of(example, layers)) for example in examples]
        kinds = {kind: [right for one in found for right in one[kind]] for kind in found[0]}
        shares = {kind: round(100 * sum(right) / len(right), 1) for kind, right in kinds.items()}
        words: dict[str, Counter[str]] = defaultdict(Counter)
        for label, word in (pair for example in examples for pair in pairs_of(example, layers)):
            if label.startswith("?x"):
                words[label]["a name" if NAME.fullmatch(word) else word] += 1
        on_layer = Counter(slot % layers for example in examples for slot in example.graph.slots or ())
        shares["one_layer"] = round(100 * max(on_layer.values()) / on_layer.total(), 1)
        evaluation = json.loads((Path(folder) / runs.REPORT).read_text())["evaluation"]
        exact = {split: round(evaluation[split]["exact"], 1) for split in ("train", "dev")}
        parts = {part: round(evaluation["dev"][part], 1) for part in ("nodes", "edges")}
        told = {label: likeliest(counts) for label, counts in sorted(words.items()) if counts.total() >= SEEN}
        print(json.dumps({"run": Path(folder).name, **shares, "words": told, **exact, **parts}, ensure_ascii=False))


def likeliest(words: Counter[str]) -> str:
    return ", ".join(f"{word} {100 * n / words.total():.0f}" for word, n in words.most_common(4))


if __name__ == "__main__":
    main(*sys.argv[1:])
