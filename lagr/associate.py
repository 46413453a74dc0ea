"""A first guess of the alignments, from counting alone: which words give which node labels.

Alignment inference starts from whatever an untrained model happens to prefer, and what it settles on can fit the data
without placing nodes on the words they come from: on an "and" that most sentences have, rather than on "written".
Counts break that symmetry. Every node comes from one word of its sentence, every word gives each label with a certain
probability, and these are found by expectation maximisation (the first model of Brown et al., 1993): a word that
explains a label in many sentences leaves less of it to the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

import numpy as np
import torch

from lagr.datasets import Example
from lagr.graph import OR, by_neighbours
from lagr.matching import best_assignment
from lagr.variables import ANY

ROUNDS = 6
AT_ONCE = 4096  # sentences, whose gains are in memory together
LEAST = 1e-6  # a probability that a logarithm can be taken of
GIVES = 0.15  # of what a word gives: the share from which on it may mention a label


def associated_alignments(
    examples: Sequence[Example],
    graph_layers: int,
    is_copied: Callable[[str], bool] = lambda label: False,
    given: dict[tuple[str, str], float] | None = None,
) -> list[list[int]]:
    """For every example the slot of each node, by the largest Σ log p(label | word).

    A label that is copied goes to its word, whatever the counts; one that may be any of several has the sum of their
    probabilities. No word stands for two variables without names. given: the probabilities, where they are known.
    """
    given = label_probabilities(examples) if given is None else given

    @cache  # it is asked of the same pairs again and again
    def probability(word: str, label: str) -> float:
        return sum(given.get((word, one), 0.0) for one in label.split(OR))

    labels = sorted({label for example in examples for label in example.graph.nodes})
    rank = {label: number / len(labels) for number, label in enumerate(labels)}

    def gain_of(example: Example) -> tuple[np.ndarray, list[int]]:
        """What each node gains in each slot, and the variables without names, in the order of their neighbours."""
        nodes, tokens = example.graph.nodes, [word.lower() for word in example.tokens]
        gain = np.log([[probability(w, s) + LEAST for w in tokens] for s in nodes], dtype=np.float32)
        gain = gain.reshape(len(nodes), len(tokens))
        certain = 1 - len(nodes) * np.log(LEAST)  # more than all other nodes of the sentence can gain together
        for j, label in enumerate(nodes):
            if is_copied(label):
                gain[j] = [certain * (token == label) for token in example.tokens]
        gain = gain.repeat(graph_layers, axis=1)
        # Which layer a node takes says nothing by itself; a tiny preference makes equal columns choose alike.
        layer = np.tile(np.arange(graph_layers), len(tokens))
        gain += 1e-3 * np.array([rank[s] for s in nodes], dtype=np.float32)[:, None] * layer
        variables = [j for j in by_neighbours(example.graph) if nodes[j] == ANY] if ANY in nodes else []
        gain[variables] -= certain * (layer < graph_layers - 1)
        return gain, variables

    alignments = []
    for at in range(0, len(examples), AT_ONCE):
        some = [gain_of(example) for example in examples[at : at + AT_ONCE]]
        for slots, (_, variables) in zip(_assigned([gain for gain, _ in some]), some, strict=True):
            for j, slot in zip(variables, sorted(slots[j] for j in variables), strict=True):
                slots[j] = slot  # nothing tells them apart yet but what they are connected with
            alignments.append(slots)
    return alignments


def _assigned(gains: Sequence[np.ndarray]) -> list[list[int]]:
    """The best slots of the nodes of each problem; those of one size are solved together."""
    of_size: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, gain in enumerate(gains):
        of_size[gain.shape].append(number)
    found: list[list[int]] = [[] for _ in gains]
    for size, numbers in of_size.items():
        problems = torch.from_numpy(np.stack([gains[number] for number in numbers]))[:, None]
        slots = best_assignment(problems, *(torch.full((len(numbers),), length) for length in size))
        for number, its in zip(numbers, slots[:, 0].tolist(), strict=True):
            found[number] = its
    return found


def label_probabilities(examples: Sequence[Example], rounds: int = ROUNDS) -> dict[tuple[str, str], float]:
    """p(label | word), of a node of a sentence that comes from the word, for all that occur together.

    Nodes that may have any of several labels are not counted.
    """
    words: dict[str, int] = {}
    labels: dict[str, int] = {}
    tables = [np.zeros((3, 0), np.int64)]  # a node, its label, and a word that it may come from
    nodes = 0
    for example in examples:
        tokens = [words.setdefault(word.lower(), len(words)) for word in example.tokens]
        known = (label for label in example.graph.nodes if OR not in label)
        numbers = [labels.setdefault(label, len(labels)) for label in known]
        here = np.arange(nodes, nodes + len(numbers))
        both = np.stack([here, np.array(numbers, np.int64)]).repeat(len(tokens), axis=1)
        tables.append(np.concatenate([both, np.tile(np.array(tokens, np.int64), len(numbers))[None]]))
        nodes += len(numbers)
    node, label_of, word_of = np.concatenate(tables, axis=1)
    if not nodes:
        return {}
    pairs, pair = np.unique(word_of * len(labels) + label_of, return_inverse=True)
    word_of_pair, label_of_pair = np.divmod(pairs, len(labels))
    given = np.full(len(pairs), 1 / len(labels))
    for _ in range(rounds):
        share = given[pair]
        share /= np.bincount(node, share)[node]  # how likely the node comes from that word, and not from another
        count = np.bincount(pair, share)
        given = count / np.bincount(word_of_pair, count)[word_of_pair]
    names = list(words), list(labels)
    ends = zip(word_of_pair.tolist(), label_of_pair.tolist(), given.tolist(), strict=True)
    return {(names[0][w], names[1][s]): probability for w, s, probability in ends}


def labels_given(probabilities: Mapping[tuple[str, str], float]) -> defaultdict[str, set[str]]:
    """The labels that each word, in small letters, may well give."""
    gives: defaultdict[str, set[str]] = defaultdict(set)
    for (word, label), share in probabilities.items():
        if share >= GIVES:
            gives[word].add(label)
    return gives


def left_over(
    example: Example, places: Sequence[int], gives: defaultdict[str, set[str]], twice: Collection[str]
) -> dict[int, set[str]]:
    """Tokens without a node that they give, and the labels of the graph's nodes that they could mention.

    places: the token of every node. twice: labels that some graph has twice. Others, such as variables, are of nodes
    that are one thing however often it is mentioned. A word beside one with a node that it would give too is part of
    the same mention: *costume designer*.
    """
    words = [token.lower() for token in example.tokens]
    here = {label for label in example.graph.nodes if label in twice}
    held: list[set[str]] = [set() for _ in range(len(words) + 1)]  # the last one is beyond either end
    for label, token in zip(example.graph.nodes, places, strict=True):
        held[token].add(label)
    return {
        t: here & gives[word]
        for t, word in enumerate(words)
        if here & gives[word] and not gives[word] & (held[t - 1] | held[t] | held[t + 1])
    }
