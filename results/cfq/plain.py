"""LAGr without alignments a second time, in plain torch, after the published code's description of itself: an oracle.

python results/cfq/plain.py DATA SEED [K SIGMA]        DATA/cfq is what `results/beyond/held_out.py cfq` made

Nothing of lagr takes part but the data and the way from a graph to its query. K = 1 with noise of up to σ = 0.001 if
not told otherwise, float32, a marker before and after every question, the square assignment problem in which null is
assigned too (SciPy), scorers that are given every vector twice, sums over slots and pairs, Adam, clipping at 1. The
sizes are those of the small models in docs/mcd1.md, which take 200 steps of warm-up and 5,000 in all. A batch
has questions of one length.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F

from lagr.datasets import Example, cfq
from lagr.errors import LagrError
from lagr.forms import sparql
from lagr.graph import Edge, Graph

WIDTH, LAYERS, HEADS, DROPOUT, GRAPH_LAYERS = 128, 3, 4, 0.1, 2
STEPS, WARMUP, BATCH, RATE = 5000, 200, 96, 1e-3
BEGIN, END = 1, 2


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.merge = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.widen, self.narrow = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        for module in (self.query, self.key, self.value, self.merge, self.narrow):
            nn.init.xavier_uniform_(module.weight)
        nn.init.xavier_uniform_(self.widen.weight, gain=math.sqrt(2))

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        B, N, _ = x.shape

        def heads(projected: Tensor) -> Tensor:
            return projected.view(B, N, HEADS, -1).transpose(1, 2)

        scores = heads(self.query(x)) @ heads(self.key(x)).transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        weights = self.drop(scores.masked_fill(padding[:, None, None], -math.inf).softmax(-1))
        mixed = (weights @ heads(self.value(x))).transpose(1, 2).reshape(B, N, WIDTH)
        x = self.norm1(x + self.drop(self.merge(mixed)))
        added: Tensor = self.norm2(x + self.drop(self.narrow(self.drop(F.relu(self.widen(x))))))
        return added

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, DROPOUT, self.training)


class Plain(nn.Module):
    def __init__(self, words: int, nodes: int, edges: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, WIDTH)
        nn.init.kaiming_normal_(self.embedding.weight)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.nodes, self.edges, self.edge_width = nodes, edges, WIDTH // edges
        self.node = nn.Linear(GRAPH_LAYERS * WIDTH, GRAPH_LAYERS * nodes)
        self.key, self.query = (
            nn.Linear(GRAPH_LAYERS * WIDTH, GRAPH_LAYERS * edges * self.edge_width) for _ in range(2)
        )

    def forward(self, tokens: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of nodes (B, M, V) and of edges (B, M, M, E), from the second axis' slot to the third's."""
        B, N = tokens.shape
        rate = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000) / WIDTH))
        angle = torch.arange(N)[:, None] * rate
        sines = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2) / math.sqrt(WIDTH)
        x = F.dropout(self.embedding(tokens) + sines, DROPOUT, self.training)
        for layer in self.layers:
            x = layer(x, padding)
        x = torch.cat([x[:, 1:-1]] * GRAPH_LAYERS, dim=-1)  # without the markers, which hold nothing
        node_log_probs = self.node(x).view(B, -1, self.nodes).log_softmax(-1)
        key, query = (
            scorer(x).view(B, -1, self.edges, self.edge_width).transpose(1, 2) for scorer in (self.key, self.query)
        )
        return node_log_probs, (key @ query.transpose(-1, -2)).permute(0, 2, 3, 1).log_softmax(-1)


class Numbers:
    """Of words and labels; 0 is padding, and null."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.words = {word: n + 3 for n, word in enumerate(sorted({word for e in examples for word in e.tokens}))}
        self.nodes = ["null", *sorted({label for e in examples for label in e.graph.nodes})]
        self.edges = ["null", *sorted({edge.label for e in examples for edge in e.graph.edges})]
        self.node = {label: n for n, label in enumerate(self.nodes)}
        self.edge = {label: n for n, label in enumerate(self.edges)}

    def batch(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        N = max(len(example.tokens) for example in examples)
        tokens = torch.zeros(len(examples), N + 2, dtype=torch.long)
        for row, example in enumerate(examples):
            found = [BEGIN, *(self.words[word] for word in example.tokens), END]
            tokens[row, : len(found)] = torch.tensor(found)
        return tokens, tokens == 0


def right(model: Plain, numbers: Numbers, examples: Sequence[Example]) -> float:
    """How many of the queries are the right ones, in per cent."""
    model.eval()
    count = 0
    for start in range(0, len(examples), 100):
        part = examples[start : start + 100]
        with torch.no_grad():
            nodes, edges = (found.argmax(-1) for found in model(*numbers.batch(part)))
        for row, example in enumerate(part):
            there = [slot for slot in range(GRAPH_LAYERS * len(example.tokens)) if nodes[row, slot]]
            graph = Graph(
                tuple(numbers.nodes[nodes[row, slot]] for slot in there),
                tuple(
                    Edge(i, numbers.edges[edges[row, a, b]], j)
                    for i, a in enumerate(there)
                    for j, b in enumerate(there)
                    if edges[row, a, b]
                ),
            )
            with suppress(LagrError):
                count += sparql.write(graph) == example.written_form
    model.train()
    return 100 * count / len(examples)


def assigned(
    node_log_probs: np.ndarray, edge_log_probs: np.ndarray, labels: np.ndarray, example: Example, numbers: Numbers,
    noise: np.ndarray,
) -> tuple[float, np.ndarray, np.ndarray]:  # fmt: skip
    """A noisy assignment: how likely it is, but for a constant, the node of every slot, and the slot of every node."""
    _, node_of_slot = linear_sum_assignment(-node_log_probs[:, labels] - noise)
    slot = np.argsort(node_of_slot)
    gain = node_log_probs[np.arange(len(labels)), labels[node_of_slot]].sum()
    for source, label, target in example.graph.edges:
        pair = edge_log_probs[slot[source], slot[target]]
        gain += pair[numbers.edge[label]] - pair[0]
    return float(gain), node_of_slot, slot


def placed(
    node_log_probs: Tensor, edge_log_probs: Tensor, examples: Sequence[Example], numbers: Numbers,
    candidates: int, sigma: float, seed: tuple[int, ...],
) -> tuple[Tensor, Tensor, list[np.ndarray]]:  # fmt: skip
    """The labels of all slots and pairs under the likeliest of K noisy assignments, and the slot of every node."""
    B, M, _ = node_log_probs.shape
    nodes, edges = torch.zeros(B, M, dtype=torch.long), torch.zeros(B, M, M, dtype=torch.long)
    slots = []
    for row, example in enumerate(examples):
        log_probs = node_log_probs[row].detach().numpy(), edge_log_probs[row].detach().numpy()
        labels = np.zeros(M, np.int64)
        labels[: len(example.graph.nodes)] = [numbers.node[label] for label in example.graph.nodes]
        rng = np.random.default_rng((*seed, row))
        noises = [sigma * rng.random((M, M)) for _ in range(candidates)]
        tried = [assigned(*log_probs, labels, example, numbers, noise) for noise in noises]
        _, node_of_slot, slot = max(tried, key=lambda found: found[0])
        nodes[row] = torch.from_numpy(labels[node_of_slot])
        for source, label, target in example.graph.edges:
            edges[row, slot[source], slot[target]] = numbers.edge[label]
        slots.append(slot)
    return nodes, edges, slots


def main(data: str, seed: int, candidates: int = 1, sigma: float = 0.001) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    source = cfq.source(Path(data) / "cfq", "inner")
    train, dev = source.read("train"), source.read("dev")
    random.Random(seed).shuffle(dev)
    numbers = Numbers([*train, *dev])
    of_length: dict[int, list[int]] = defaultdict(list)
    for row, example in enumerate(train):
        of_length[len(example.tokens)].append(row)
    lengths = sorted(of_length)
    share = np.array([len(of_length[length]) for length in lengths]) / len(train)
    model = Plain(len(numbers.words) + 3, len(numbers.nodes), len(numbers.edges))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (step + 1) / WARMUP if step < WARMUP else (STEPS - step) / (STEPS - WARMUP)
    )
    names = []  # which are on their word, at the end
    for step in range(STEPS):
        rows = of_length[lengths[rng.choice(len(lengths), p=share)]]
        examples = [train[row] for row in rng.choice(rows, min(BATCH, len(rows)), replace=False)]
        node_log_probs, edge_log_probs = model(*numbers.batch(examples))
        nodes, edges, slots = placed(node_log_probs, edge_log_probs, examples, numbers, candidates, sigma, (seed, step))
        total = node_log_probs.gather(-1, nodes[..., None]).sum() + edge_log_probs.gather(-1, edges[..., None]).sum()
        optimizer.zero_grad()
        (-total / len(examples)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step >= STEPS - 300:
            for example, slot in zip(examples, slots, strict=True):
                words = (example.tokens[at // GRAPH_LAYERS] for at in slot)
                pairs = zip(example.graph.nodes, words, strict=False)
                names += [word == label for label, word in pairs if re.fullmatch(r"M\d+", label)]
        if (step + 1) % 500 == 0:
            print(f"step {step + 1}: {right(model, numbers, dev[:1000]):.1f} % of 1,000 of dev", flush=True)
    shares = (right(model, numbers, dev), right(model, numbers, train[:1000]), 100 * sum(names) / len(names))
    print("dev {:.2f} %, train {:.1f} %, names on their names {:.1f} %".format(*shares))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:4]), *map(float, sys.argv[4:5]))
