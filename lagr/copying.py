"""Labels that copy a word of their sentence: names, numbers, identifiers. An open vocabulary, without tensors.

A label that is a word of its sentence wherever it occurs needs no entry of its own. One reserved label, *copy*, says
that a slot's label is its token. So a name that training never saw gets its node, and the label stays what LAGr makes
it: one of a few, independent of all others, on an aligned slot. Copied nodes can only sit on the word they copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from lagr.datasets import Example


def copied_labels(examples: Sequence[Example], graph_layers: int) -> set[str]:
    """Node labels that are, in every example that has them, the word they sit on, or some word if that is not known.

    With several nodes of a label there must be slots for all of them: L for every such word.
    """
    copied: set[str] = set()
    refuted: set[str] = set()
    for example in examples:
        words, slots = Counter(example.tokens), example.graph.slots
        labels = Counter(example.graph.nodes)
        for node, label in enumerate(example.graph.nodes):
            if slots is None:
                fits = labels[label] <= graph_layers * words[label]
            else:
                token = slots[node] // graph_layers
                fits = token < len(example.tokens) and example.tokens[token] == label
            (copied if fits else refuted).add(label)
    return copied - refuted


def tokens_at(
    places: Iterable[tuple[int, int]], sentences: Sequence[Sequence[str]] | None, slots: int
) -> Iterator[str]:
    """The token of every slot, which is given with the number of its sentence; slots: how many the longest has."""
    if not sentences:
        return repeat("")
    layers = slots // max(map(len, sentences))
    return (sentences[b][slot // layers] for b, slot in places)
