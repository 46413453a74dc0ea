"""A first guess of the alignments, from counting alone: which words and node labels keep each other's company.

Alignment inference starts from whatever an untrained model happens to prefer, and what it settles on can fit the data
without placing nodes on the words they come from. Counts break that symmetry: the more exclusively a word and a
label occur together, the likelier one gives the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch

from lagr.datasets import Example
from lagr.matching import best_assignment

CERTAIN = 1e3  # more than all other nodes of a sentence can gain together


def associated_alignments(
    examples: Sequence[Example], graph_layers: int, is_copied: Callable[[str], bool] = lambda label: False
) -> list[list[int]]:
    """For every example the slot of each node, by the best total association of labels with words.

    association(s, w) = 2 · c(s, w) / (c(s) + c(w)), with c counting sentences (Dice's coefficient)
    A label that is copied goes to its word, whatever the counts.
    """
    labels, words, both = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for example in examples:
        here, there = set(example.graph.nodes), {word.lower() for word in example.tokens}
        labels.update(here)
        words.update(there)
        both.update((label, word) for label in here for word in there)
    rank = {label: number / len(labels) for number, label in enumerate(sorted(labels))}

    alignments = []
    for example in examples:
        nodes, tokens = example.graph.nodes, [word.lower() for word in example.tokens]
        gain = np.array([[2 * both[s, w] / (labels[s] + words[w]) for w in tokens] for s in nodes], dtype=np.float32)
        gain = gain.reshape(len(nodes), len(tokens))
        for j, label in enumerate(nodes):
            if is_copied(label):
                gain[j] = [CERTAIN * (token == label) for token in example.tokens]
        gain = gain.repeat(graph_layers, axis=1)
        # Which layer a node takes says nothing by itself; a tiny preference makes equal columns choose alike.
        layer = np.tile(np.arange(graph_layers), len(tokens))
        gain += 1e-3 * np.array([rank[s] for s in nodes], dtype=np.float32)[:, None] * layer
        size = torch.tensor([len(nodes)]), torch.tensor([gain.shape[1]])
        alignments.append(best_assignment(torch.from_numpy(gain)[None, None], *size)[0, 0].tolist())
    return alignments
