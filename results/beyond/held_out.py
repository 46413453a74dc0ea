"""Parts of the training data held out, to choose by: neither COGS' gen nor CFQ's MCD splits may be looked at for that.

    python results/beyond/held_out.py cogs-words DATA/cogs OUT   then `lagr train … --data`; the held-out rows are gen
    python results/beyond/held_out.py cogs-pps DATA/cogs OUT     the same
    python results/beyond/held_out.py cfq DATA/cfq OUT           then `--data.partition inner`, `objects`, `lengths`,
                                                                 `nouns` or `owners`; they are dev and test

COGS' words: of 30 nouns and names all sentences but one, as in its own categories of words that are seen once. COGS'
PPs: all sentences where one stands before "to" or "by", so that training has them at the end alone. CFQ: every
question that has one of 15 runs of four words, where words of a class count as one. They were drawn at random from
those that 250 to 2,600 questions have, that hold a comma, "and", "of" or "'s", and whose two runs of three words are
left in 150 questions. CFQ's objects: every question with a list of entities that is not a subject. CFQ's lengths: every
question with a list of five entities, of three verbs, or of four nouns or more, so that training has shorter ones and,
of entities and verbs, longer ones. CFQ's nouns: every question with a list of three nouns or more. CFQ's owners: every
question that begins with "Did M's", and every one whether what somebody with a name has is the same as something else.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

from lagr.copying import copied_labels
from lagr.datasets import Example, cfq, cogs

CLASSES = {
    "N": "director producer editor cinematographer sibling star spouse actor designer parent child founder employee "
    "writer screenwriter distributor employer prequel sequel person film character company country nationality gender",
    "V": "produced influenced edited directed written founded employed married distributed acquired starred played "
    "wrote",
    "B": "produce marry influence edit write employ direct found acquire distribute play",
    "A": "female male French Canadian Italian British Spanish Japanese Mexican Chinese Swedish Dutch German American",
}
CLASS = {word: name for name, words in CLASSES.items() for word in words.split()}
PART_OF_A_NOUN = {"executive", "art", "costume", "production"}
HELD_OUT = {
    tuple(run.split())
    for run in (
        "'s A N ,", "M a N and", "and M and M", "B and M and", "and V M and", "'s A N M", "and M , and", "M and B a",
        "N V and V", "N M 's A", "N 's N M", "'s A N B", "M , and M", "and N B $", "and N , V",
    )
}  # fmt: skip
OBJECTS = re.compile(r"\b(?!(?:Were|Was|Did|did|that|and) )[\w',]+ M\d+ (?:,|and) M\d")
OWNERS = re.compile(r"^Did M 's|^Was M 's (?:A )*N(?: 's (?:A )*N)* (?:a|M) ")

LENGTHS = {"N": range(4, 20), "M": (5,), "V by": (3,), "V": (3,), "B": (3,)}


def hold_out_words(data: Path, out: Path) -> None:
    rows = _rows(data, "train")
    sentences = [row[0].split() for row in rows]
    copied = copied_labels(cogs.source(data).read("train"), 1)
    count = Counter(word for words in sentences for word in words)
    random.seed(0)
    once = set(random.sample(sorted(word for word in copied if 40 <= count[word] <= 400), 30))
    order = random.sample(range(len(rows)), len(rows))
    kept, held, shown = [], [], set()
    for row in order:
        if not (new := once & set(sentences[row])):
            kept.append(row)
        elif len(new) == 1 and not new & shown:
            kept.append(row)
            shown |= new
        else:
            held.append(row)
    _write_cogs(data, out, [rows[row] for row in sorted(kept)], [[*rows[row][:2], "seen_once"] for row in held[:2000]])


def hold_out_pps(data: Path, out: Path) -> None:
    rows = _rows(data, "train")
    inside = [re.search(r" (in|on|beside) (a|the) \w+ (to|by) ", row[0]) for row in rows]
    held = [[*row[:2], f"before_{found[3]}"] for row, found in zip(rows, inside, strict=True) if found]
    _write_cogs(data, out, [row for row, found in zip(rows, inside, strict=True) if not found], held)


def _rows(data: Path, split: str) -> list[list[str]]:
    return [line.split("\t") for line in (data / f"{split}.tsv").read_text(encoding="utf-8").splitlines()]


def _write_cogs(data: Path, out: Path, kept: list[list[str]], held: list[list[str]]) -> None:
    parts = {"train": kept, "gen": held, **{split: _rows(data, split)[:500] for split in ("dev", "test")}}
    for split, part in parts.items():
        (out / f"{split}.tsv").write_text("".join("\t".join(row) + "\n" for row in part), encoding="utf-8")


def hold_out_cfq(data: Path, out: Path) -> None:
    archive = cfq._find(data)
    everything, numbers = cfq._dataset(archive), cfq._partition(archive, "mcd1")["trainIdxs"]
    examples = cfq.source(data, "mcd1").read("train")
    patterns = {row for row, example in enumerate(examples) if HELD_OUT & _fours(_pattern(example.tokens))}
    objects = {row for row, example in enumerate(examples) if OBJECTS.search(" ".join(example.tokens))}
    (out / "splits").mkdir(exist_ok=True)
    (out / "dataset.json").write_text(json.dumps(everything), encoding="utf-8")
    lengths = {row for row, example in enumerate(examples) if _has_length(" ".join(_classes(example.tokens)))}
    nouns = {row for row, example in enumerate(examples) if "N , N" in " ".join(_classes(example.tokens))}
    owners = {row for row, example in enumerate(examples) if OWNERS.match(" ".join(_pattern(example.tokens)))}
    parts = {"inner": patterns, "objects": objects, "lengths": lengths, "nouns": nouns, "owners": owners}
    for name, held in parts.items():
        split = _split(examples, numbers, held)
        (out / "splits" / f"{name}.json").write_text(json.dumps(split), encoding="utf-8")


def _split(examples: list[Example], numbers: list[int], held: set[int]) -> dict[str, list[int]]:
    kept = [row for row in range(len(examples)) if row not in held]
    seen = Counter(word for row in kept for word in {*examples[row].tokens, *examples[row].graph.nodes})
    usable = [
        numbers[row]
        for row in sorted(held)
        if all(seen[word] >= 20 for word in {*examples[row].tokens, *examples[row].graph.nodes})
    ]
    random.Random(0).shuffle(usable)
    return {"trainIdxs": [numbers[row] for row in kept], "devIdxs": usable[:3000], "testIdxs": usable[3000:6000]}


def _has_length(words: str) -> bool:
    """Whether there is a list of a length that is held out."""
    return any(
        len(re.findall(rf"\b{member}\b", found[0])) in LENGTHS[member]
        for member in LENGTHS
        for found in re.finditer(rf"\b{member}(?: ,(?: and)? {member}\b| and {member}\b)+", words)
    )


def _classes(tokens: tuple[str, ...]) -> list[str]:
    return ["M" if re.match(r"M\d", word) else CLASS.get(word, word) for word in tokens if word not in PART_OF_A_NOUN]


def _pattern(tokens: tuple[str, ...]) -> list[str]:
    words = _classes(tokens)
    return words[:1] + [word for before, word in pairwise(words) if not before == word == "N"]


def _fours(words: list[str]) -> set[tuple[str, ...]]:
    padded = ["^", *words, "$"]
    return set(zip(padded, padded[1:], padded[2:], padded[3:], strict=False))


if __name__ == "__main__":
    which, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    target.mkdir(parents=True, exist_ok=True)
    {"cogs-words": hold_out_words, "cogs-pps": hold_out_pps, "cfq": hold_out_cfq}[which](source, target)
