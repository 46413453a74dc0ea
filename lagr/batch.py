"""Examples as packed tensors on the device, buckets of similar length, and which rows each step takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from lagr.align import Target
from lagr.datasets import LONGEST, Example
from lagr.errors import DataError
from lagr.forms import Spelling
from lagr.graph import Graph, by_neighbours
from lagr.pretrained import Pretrained
from lagr.twins import folded
from lagr.variables import without_names
from lagr.vocab import Vocabulary

NOT_COPIED = -1
MOST_ALIKE = 16  # pairs of nodes of equal label that are tried in each other's place: those of six variables, and one
MOST_BUCKETS = 5  # each is a shape of its own, which a GPU has to compile once


@dataclass(frozen=True)
class Bucket:
    """Examples of similar length, and the sizes that their batches are padded to."""

    rows: np.ndarray
    tokens: int
    nodes: int = 0
    edges: int = 0
    alike: int = 0  # pairs of nodes of equal label
    form: int = 0  # tokens of a form, END included


@dataclass(frozen=True)
class Batch:
    tokens: Tensor  # (B, N)
    lengths: Tensor  # (B,)
    target: Target
    alignment: Tensor  # (B, J), the known slot of every node; −1 where it is not known
    features: Tensor | None = None  # (B, N, F), what a pretrained encoder says of the tokens, where there is one


@dataclass(frozen=True)
class Packed:
    """All examples of a split, padded, in one table with a row for each, so that a batch is one look into memory."""

    table: Tensor  # (examples, N + 2·J + 3·G + 1 + 2·P), 2·J more with valencies, J more where labels may be copied
    sizes: tuple[int, int, int]  # N, J, G
    buckets: tuple[Bucket, ...]
    valencies: bool = False
    graph_layers: int = 1
    copies: bool = False
    features: Tensor | None = None  # (examples, N, F)
    alike: int = 0  # P, pairs of nodes of equal label
    choices: tuple[tuple[int, ...], ...] = ()  # sets of labels of which a node may have any; numbered after the labels
    kinds: Tensor | None = None  # (labels and choices,), what alignments take a label for; None: for itself

    @property
    def batch(self) -> Batch:
        """All of them as one batch."""
        return replace(self._columns(self.table, *self.sizes, self.alike), features=self.features)

    def take(self, rows: Tensor, bucket: Bucket) -> Batch:
        """The batch of these rows, cut to the sizes of their bucket; all on the device."""
        features = None if self.features is None else self.features.index_select(0, rows)[:, : bucket.tokens]
        sizes = (bucket.tokens, bucket.nodes, bucket.edges, bucket.alike)
        batch = self._columns(self.table.index_select(0, rows), *sizes)
        return replace(batch, features=features)

    def asked(self, target: Target) -> Target:
        """The target as alignments are asked for it: with kinds for labels."""
        return target if self.kinds is None else replace(target, nodes=self.kinds[target.nodes])

    def _columns(self, table: Tensor, tokens: int, nodes: int, edges: int, pairs: int) -> Batch:
        N, J, G = self.sizes
        widths = [N, J, J, G, G, G, 1, 2 * J * self.valencies, J * self.copies, 2 * self.alike]
        *columns, valencies, copied, alike = torch.split(table, widths, dim=1)
        cut = (tokens, nodes, nodes, edges, edges, edges, 1)
        words, labels, alignment, *graph, lengths = (part[:, :n] for part, n in zip(columns, cut, strict=True))
        sources, names, targets = graph
        of_nodes = valencies.reshape(-1, 2, J)[..., :nodes].transpose(1, 2) if self.valencies else None
        allowed = slots_to_copy(words, copied[:, :nodes], self.graph_layers) if self.copies else None
        equal = alike.view(-1, self.alike, 2)[:, :pairs] if pairs else None
        return Batch(words, lengths[:, 0], Target(labels, sources, names, targets, of_nodes, allowed, equal), alignment)


def pack(
    examples: Sequence[Example],
    vocab: Vocabulary,
    graph_layers: int,
    device: str = "cpu",
    pretrained: Pretrained | None = None,
    variables_alike: bool = False,
) -> Packed:
    """The examples as tensors. A graph that doesn't fit into its L·N slots is an error that names the sentence.

    variables_alike: alignments take any variable for any other.
    """
    edges_of = [
        folded(e.graph, known_places(e, vocab, graph_layers), vocab.twins) if vocab.twins else (e.graph.edges, ())
        for e in examples
    ]
    numbers = [len(own) + len(twins) for own, twins in edges_of]
    sizes = np.array([(len(e.tokens), len(e.graph.nodes), n) for e, n in zip(examples, numbers, strict=True)], np.int64)
    n, (N, J, G) = len(examples), sizes.max(axis=0).clip(min=1)
    tokens, nodes = np.zeros((n, N), np.int64), np.zeros((n, J), np.int64)
    alignment, edges = np.full((n, J), -1, np.int64), np.zeros((3, n, G), np.int64)
    copied = np.full((n, J if vocab.copies else 0), NOT_COPIED, np.int64)
    valencies = np.zeros((2, n, J if vocab.leaving else 0), np.int64)
    choices: dict[tuple[int, ...], int] = {}
    for row, example in enumerate(examples):
        graph = example.graph
        check_fits(example, graph_layers)
        tokens[row, : len(example.tokens)] = vocab.encode(example.tokens)
        try:
            for j, label in enumerate(graph.nodes):
                if vocab.is_copied(label) and label in example.tokens:
                    nodes[row, j], copied[row, j] = vocab.copy, _word_to_copy(label, example, vocab)
                elif any_of_these := vocab.choices(label):
                    nodes[row, j] = choices.setdefault(any_of_these, vocab.sizes[1] + len(choices))
                else:
                    nodes[row, j] = vocab.node_numbers[label]
            own, twins = edges_of[row]
            named = [(source, vocab.edge_numbers[name], target) for source, name, target in own]
            for g, edge in enumerate([*named, *((last, vocab.twin, node) for last, node in twins)]):
                edges[:, row, g] = edge
            if vocab.leaving:
                valencies[:, row, : len(graph.nodes)] = vocab.valencies(graph)
        except KeyError as error:
            raise DataError(f"the label {error} of “{_shown(example)}” is not in the vocabulary") from None
        if graph.slots is not None:
            alignment[row, : len(graph.slots)] = graph.slots
    alike, kinds = _alike(examples, variables_alike), None
    pairs = np.count_nonzero(alike.any(2), axis=1)
    if variables_alike and (variables := vocab.variables):
        any_variable = choices.setdefault(variables, vocab.sizes[1] + len(choices))
        kinds = torch.arange(vocab.sizes[1] + len(choices), device=device)
        some = [number for labels, number in choices.items() if set(labels) <= set(variables)]
        kinds[[*variables, *some]] = any_variable
    table = np.concatenate(
        [tokens, nodes, alignment, *edges, sizes[:, :1], *valencies, copied, alike.reshape(n, 2 * alike.shape[1])],
        axis=1,
    )
    features = pretrained.read([e.tokens for e in examples], device) if pretrained else None
    return Packed(
        torch.from_numpy(table).to(device),
        (int(N), int(J), int(G)),
        buckets(np.column_stack([sizes, pairs])),
        bool(vocab.leaving),
        graph_layers,
        vocab.copies,
        features,
        alike.shape[1],
        tuple(choices),
        kinds,
    )


def _alike(examples: Sequence[Example], variables: bool) -> np.ndarray:
    """Pairs of nodes of equal label, as many as any example has, up to MOST_ALIKE.   (examples, P, 2)"""
    found = [pairs_alike(without_names(e.graph) if variables else e.graph)[:MOST_ALIKE] for e in examples]
    table = np.zeros((len(examples), max(map(len, found)), 2), np.int64)
    for row, pairs in enumerate(found):
        table[row, : len(pairs)] = np.array(pairs).reshape(-1, 2)
    return table


def pairs_alike(graph: Graph) -> list[tuple[int, int]]:
    """Pairs of nodes of equal label. Which one comes first depends on what they are connected with, in all sentences
    alike, so that it can be learned, and not on the order in which a file has them, which may be that of the words."""
    if len(set(graph.nodes)) == len(graph.nodes):
        return []
    return [pair for pair in combinations(by_neighbours(graph), 2) if graph.nodes[pair[0]] == graph.nodes[pair[1]]]


def known_places(example: Example, vocab: Vocabulary, graph_layers: int) -> list[int | None]:
    """The token of every node where it is known: by its slot, or because it copies a word that comes once."""
    graph, tokens = example.graph, example.tokens
    if graph.slots is not None:
        return [slot // graph_layers for slot in graph.slots]
    copied = (vocab.is_copied(label) and tokens.count(label) == 1 for label in graph.nodes)
    return [tokens.index(label) if known else None for label, known in zip(graph.nodes, copied, strict=True)]


def _word_to_copy(label: str, example: Example, vocab: Vocabulary) -> int:
    """The number of the word, so that the node may sit on all its tokens; of an unknown one, −2 − its position."""
    return vocab.word_numbers.get(label, -2 - example.tokens.index(label))


def slots_to_copy(tokens: Tensor, copied: Tensor, graph_layers: int) -> Tensor:
    """Which slots a node may take: all, or those of the word that it copies.   (B, N), (B, J) → (B, J, M)"""
    position = torch.arange(tokens.shape[1], device=tokens.device)
    copied = copied[..., None]
    allowed = (copied == NOT_COPIED) | (copied == tokens[:, None]) | (copied == -2 - position)
    return allowed.repeat_interleave(graph_layers, dim=2)


@dataclass(frozen=True)
class FormBatch:
    tokens: Tensor  # (B, N)
    lengths: Tensor  # (B,)
    form: Tensor  # (B, T), with END after its last token and from there on


@dataclass(frozen=True)
class PackedForms:
    """All examples of a split, for seq2seq: as Packed, with forms instead of graphs."""

    table: Tensor  # (examples, N + T + 1)
    sizes: tuple[int, int]  # N, T
    buckets: tuple[Bucket, ...]

    def take(self, rows: Tensor, bucket: Bucket) -> FormBatch:
        words, form, lengths = torch.split(self.table.index_select(0, rows), [*self.sizes, 1], dim=1)
        return FormBatch(words[:, : bucket.tokens], lengths[:, 0], form[:, : bucket.form])


def pack_forms(
    examples: Sequence[Example], vocab: Vocabulary, spelling: Spelling, longest: int, device: str = "cpu"
) -> PackedForms:
    """The examples as tensors. A form of more than `longest` tokens is an error that names the sentence."""
    rows = []
    for example in examples:
        _check_length(example)
        if example.written_form is None:
            raise DataError(f"“{_shown(example)}” has no form, which seq2seq learns to write; use model.kind = lagr")
        form = spelling.split(example.written_form)
        if len(form) >= longest:
            needed = f"set model.longest_form to {len(form) + 1} or more"
            raise DataError(f"“{_shown(example)}” has a form of {len(form)} tokens, which must be ended too; {needed}")
        rows.append((vocab.encode(example.tokens), [vocab.form_numbers[token] for token in form]))
    sizes = np.array([(len(words), len(form) + 1) for words, form in rows], dtype=np.int64)
    N, T = sizes.max(axis=0)
    table = np.zeros((len(rows), N + T + 1), np.int64)
    for row, (words, numbers) in enumerate(rows):
        table[row, : len(words)], table[row, N : N + len(numbers)], table[row, -1] = words, numbers, len(words)
    # A form takes most of a step, and its length goes with the sentence's: buckets are of forms of similar length.
    groups = rows_of_similar_length(sizes[:, 1], MOST_BUCKETS)
    found = tuple(Bucket(rows, tokens=int(sizes[rows, 0].max()), form=int(sizes[rows, 1].max())) for rows in groups)
    return PackedForms(torch.from_numpy(table).to(device), (int(N), int(T)), found)


def buckets(sizes: np.ndarray, most: int = MOST_BUCKETS) -> tuple[Bucket, ...]:
    """At most that many buckets of sentences of similar length.

    sizes (n, 4): tokens, nodes, edges and pairs of nodes of equal label of every example.
    """
    found = []
    for rows in rows_of_similar_length(sizes[:, 0], most):
        *there, alike = sizes[rows].max(axis=0).tolist()
        tokens, nodes, edges = (max(1, size) for size in there)
        found.append(Bucket(rows, tokens, nodes, edges, alike))
    return tuple(found)


def rows_of_similar_length(each: np.ndarray, most: int) -> list[np.ndarray]:
    """At most that many groups of rows, with the lengths at which they end chosen so that padding is least.

    each (n,): the length of every row.
    """
    lengths, counts = np.unique(each, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    # Of the first e lengths, in as many buckets as allowed so far: how many tokens with padding, and where buckets end.
    least = [0] + [int(below[e] * lengths[e - 1]) for e in range(1, len(lengths) + 1)]
    ends: list[list[int]] = [[], *([e] for e in range(1, len(lengths) + 1))]
    for _ in range(most - 1):
        better, better_ends = list(least), list(ends)
        for e in range(1, len(lengths) + 1):
            for s in range(1, e):
                cost = least[s] + int((below[e] - below[s]) * lengths[e - 1])
                if cost < better[e]:
                    better[e], better_ends[e] = cost, [*ends[s], e]
        least, ends = better, better_ends
    found, shortest = [], 0
    for end in ends[-1]:
        longest = int(lengths[end - 1])
        found.append(np.flatnonzero((each > shortest) & (each <= longest)))
        shortest = longest
    return found


class Schedule:
    """Which bucket a step takes, the same for all seeds, and which of its rows each seed takes.

    A bucket comes up in proportion to its size, and gives its rows in an order that depends on the seed and on how
    often it went round. What a step takes follows from its number: nothing has to be saved, or depends on other seeds.
    """

    def __init__(self, buckets: Sequence[Bucket], batch: int, steps: int) -> None:
        self.buckets, self.batch = buckets, batch
        shares = np.array([len(bucket.rows) for bucket in buckets], dtype=float)
        self.order = np.random.default_rng(0).choice(len(buckets), steps, p=shares / shares.sum())
        self.earlier = np.zeros(steps, np.int64)  # how often a step's bucket came up before
        for number in range(len(buckets)):
            steps_of = np.flatnonzero(self.order == number)
            self.earlier[steps_of] = np.arange(len(steps_of))

    def bucket(self, step: int) -> int:
        return int(self.order[step])

    def rows(self, step: int, seeds: Sequence[int]) -> np.ndarray:
        """(S, B)"""
        number = self.bucket(step)
        count = len(self.buckets[number].rows)
        places = self.earlier[step] * self.batch + np.arange(self.batch)
        rounds, within = places // count, places % count
        taken = np.empty((len(seeds), self.batch), np.int64)
        for s, seed in enumerate(seeds):
            for turn in range(int(rounds[0]), int(rounds[-1]) + 1):
                here = rounds == turn
                taken[s, here] = self._order(seed, number, turn)[within[here]]
        return taken

    @lru_cache(maxsize=256)  # noqa: B019 a schedule lives as long as its run
    def _order(self, seed: int, number: int, turn: int) -> np.ndarray:
        return np.random.default_rng((seed, number, turn)).permutation(self.buckets[number].rows)


def pad_tokens(sentences: Sequence[Sequence[str]], vocab: Vocabulary, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Word numbers (1, B, N) and lengths (1, B) of some sentences, for one model."""
    lengths = [len(sentence) for sentence in sentences]
    tokens = np.zeros((1, len(sentences), max(lengths, default=1)), np.int64)
    for row, sentence in enumerate(sentences):
        tokens[0, row, : lengths[row]] = vocab.encode(sentence)
    return torch.from_numpy(tokens).to(device), torch.tensor([lengths], device=device)


def check_fits(example: Example, graph_layers: int) -> None:
    """DataError where a graph has no room on its sentence."""
    _check_length(example)
    slots, needed = graph_layers * len(example.tokens), len(example.graph.nodes)
    if needed > slots:
        layers = -(-needed // max(1, len(example.tokens)))
        raise DataError(
            f"“{_shown(example)}” has {slots} slots for {needed} nodes; set model.graph_layers to {layers} or more"
        )
    if example.graph.slots is not None and max(example.graph.slots, default=0) >= slots:
        raise DataError(f"“{_shown(example)}” has {slots} slots, but a node is in slot {max(example.graph.slots)}")


def _check_length(example: Example) -> None:
    if len(example.tokens) > LONGEST:
        raise DataError(f"“{_shown(example)}” has {len(example.tokens):,} tokens; at most {LONGEST:,} are possible")


def _shown(example: Example) -> str:
    sentence = " ".join(example.tokens)
    return sentence if len(sentence) <= 60 else sentence[:59] + "…"
