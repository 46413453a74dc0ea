"""Examples as packed tensors on the device, and the batches drawn from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lagr.align import Target
from lagr.datasets import Example
from lagr.errors import DataError
from lagr.vocab import Vocabulary

POOL = 32  # batches among which sentences are sorted by length, so that a batch has little padding


@dataclass(frozen=True)
class Batch:
    rows: Tensor  # (B,), which examples these are
    tokens: Tensor  # (B, N)
    lengths: Tensor  # (B,)
    target: Target
    alignment: Tensor  # (B, J), the known slot of every node; −1 where it is not known


@dataclass(frozen=True)
class Packed:
    """All examples of a split, padded, in one tensor a field."""

    batch: Batch
    token_counts: np.ndarray  # lengths, node and edge counts again, on the host: a batch is cut to its
    node_counts: np.ndarray  # longest without asking the device
    edge_counts: np.ndarray

    def __len__(self) -> int:
        return len(self.token_counts)

    def take(self, rows: np.ndarray) -> Batch:
        """The batch of these rows, cut to its longest sentence and largest graph."""
        N, J, G = (
            max(1, int(counts[rows].max(initial=0)))
            for counts in (self.token_counts, self.node_counts, self.edge_counts)
        )
        all_, target = self.batch, self.batch.target
        index = torch.as_tensor(rows, device=all_.tokens.device)
        return Batch(
            index,
            all_.tokens[index, :N],
            all_.lengths[index],
            Target(*(t[index, :size] for t, size in zip(
                (target.nodes, target.sources, target.labels, target.targets), (J, G, G, G), strict=True))),
            all_.alignment[index, :J],
        )  # fmt: skip


def pack(examples: Sequence[Example], vocab: Vocabulary, graph_layers: int, device: str = "cpu") -> Packed:
    """The examples as tensors. A graph that doesn't fit into its L·N slots is an error that names the sentence."""
    token_counts = np.array([len(e.tokens) for e in examples], dtype=np.int64)
    node_counts = np.array([len(e.graph.nodes) for e in examples], dtype=np.int64)
    edge_counts = np.array([len(e.graph.edges) for e in examples], dtype=np.int64)
    n, N, J, G = len(examples), *(int(c.max(initial=1)) or 1 for c in (token_counts, node_counts, edge_counts))
    tokens, nodes, alignment = np.zeros((n, N), np.int64), np.zeros((n, J), np.int64), np.full((n, J), -1, np.int64)
    edges = np.zeros((3, n, G), np.int64)
    for row, example in enumerate(examples):
        graph = example.graph
        _check_fits(example, graph_layers)
        tokens[row, : len(example.tokens)] = vocab.encode(example.tokens)
        try:
            nodes[row, : len(graph.nodes)] = [vocab.node_numbers[label] for label in graph.nodes]
            for g, edge in enumerate(graph.edges):
                edges[:, row, g] = edge.source, vocab.edge_numbers[edge.label], edge.target
        except KeyError as error:
            raise DataError(f"the label {error} of “{_shown(example)}” is not in the vocabulary") from None
        if graph.slots is not None:
            alignment[row, : len(graph.slots)] = graph.slots
    tensors = [torch.from_numpy(a).to(device) for a in (tokens, token_counts, nodes, *edges, alignment)]
    target = Target(*tensors[2:6])
    rows = torch.arange(n, device=device)
    return Packed(Batch(rows, tensors[0], tensors[1], target, tensors[6]), token_counts, node_counts, edge_counts)


def pad_tokens(sentences: Sequence[Sequence[str]], vocab: Vocabulary, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Word numbers (B, N) and lengths (B,) of some sentences."""
    lengths = [len(sentence) for sentence in sentences]
    tokens = np.zeros((len(sentences), max(lengths, default=1)), np.int64)
    for row, sentence in enumerate(sentences):
        tokens[row, : lengths[row]] = vocab.encode(sentence)
    return torch.from_numpy(tokens).to(device), torch.tensor(lengths, device=device)


def _check_fits(example: Example, graph_layers: int) -> None:
    slots, needed = graph_layers * len(example.tokens), len(example.graph.nodes)
    if needed > slots:
        layers = -(-needed // max(1, len(example.tokens)))
        raise DataError(
            f"“{_shown(example)}” has {slots} slots for {needed} nodes; set model.graph_layers to {layers} or more"
        )
    if example.graph.slots is not None and max(example.graph.slots, default=0) >= slots:
        raise DataError(f"“{_shown(example)}” has {slots} slots, but a node is in slot {max(example.graph.slots)}")


def _shown(example: Example) -> str:
    sentence = " ".join(example.tokens)
    return sentence if len(sentence) <= 60 else sentence[:59] + "…"


def epochs(lengths: np.ndarray, batch: int, seed: int, start: int = 0) -> Iterator[np.ndarray]:
    """Rows of one batch after the other, for ever, from batch number `start` on.

    Every epoch goes through all rows once, in an order that depends on the seed and the epoch alone: what comes
    next can be known from a step's number, which is what lets an interrupted run go on as if nothing had happened.
    """
    per_epoch = -(-len(lengths) // batch)
    epoch, offset = divmod(start, per_epoch)
    while True:
        rng = np.random.default_rng((seed, epoch))
        order = rng.permutation(len(lengths))
        pools = [order[at : at + POOL * batch] for at in range(0, len(order), POOL * batch)]
        order = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
        batches = [order[at : at + batch] for at in range(0, len(order), batch)]
        for number in rng.permutation(per_epoch)[offset:]:
            yield batches[number]
        epoch, offset = epoch + 1, 0
