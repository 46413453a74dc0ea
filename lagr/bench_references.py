"""What `lagr bench` compares with: training and decoding as published."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lagr.config import Config
from lagr.datasets import Example
from lagr.graph import Edge, Graph
from lagr.model import NULL, GraphDistribution
from lagr.vocab import Vocabulary


class Published:
    """A step as it was published: eager, batches padded by a loader, half precision by autocast, SciPy in a loop."""

    def __init__(self, settings: Config, examples: list[Example], device: str) -> None:
        from torch.utils.data import DataLoader

        self.settings, self.device = settings, device
        self.vocab = Vocabulary.of(examples)
        loader: Any = DataLoader(examples, settings.train.batch, True, collate_fn=self.collate, drop_last=True)  # type: ignore[arg-type]
        self.batches = self._forever(loader)
        D, L = settings.model.width, settings.model.graph_layers
        words, V, E = self.vocab.sizes
        layer = nn.TransformerEncoderLayer(D, settings.model.heads, D, settings.model.dropout, batch_first=True)
        encoders = 2 if settings.model.encoders == "separate" else 1
        self.parts = nn.ModuleDict(
            {
                "words": nn.Embedding(words, D),
                "encoders": nn.ModuleList(
                    nn.TransformerEncoder(layer, settings.model.encoder_layers, enable_nested_tensor=False)
                    for _ in range(encoders)
                ),
                "nodes": nn.Linear(D, L * V),
                "edge_queries": nn.Linear(D, L * E * (D // E)),
                "edge_keys": nn.Linear(D, L * E * (D // E)),
            }
        ).to(device)
        self.optimizer = torch.optim.Adam(self.parts.parameters(), 1e-4)
        self.scaler = torch.amp.GradScaler(device, enabled=device == "cuda")

    def _forever(self, loader: Any) -> Iterator[Any]:
        while True:
            yield from loader

    def collate(self, examples: list[Example]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens, their number, and complete graphs with a label for every slot and pair."""
        L, N = self.settings.model.graph_layers, max(len(e.tokens) for e in examples)
        tokens = torch.zeros(len(examples), N, dtype=torch.long)
        nodes = torch.zeros(len(examples), L * N, dtype=torch.long)
        edges = torch.zeros(len(examples), L * N, L * N, dtype=torch.long)
        for b, example in enumerate(examples):
            tokens[b, : len(example.tokens)] = torch.tensor(self.vocab.encode(example.tokens))
            slots = example.graph.slots or range(len(example.graph.nodes))
            for label, slot in zip(example.graph.nodes, slots, strict=True):
                nodes[b, slot] = self.vocab.node_numbers[label]
            for source, label, target in example.graph.edges:
                edges[b, slots[source], slots[target]] = self.vocab.edge_numbers[label]
        return tokens, torch.tensor([len(e.tokens) for e in examples]), nodes, edges

    def step(self) -> None:
        from scipy.optimize import linear_sum_assignment

        tokens, lengths, nodes, edges = (tensor.to(self.device) for tensor in next(self.batches))
        B, N = tokens.shape
        L, E = self.settings.model.graph_layers, self.vocab.sizes[2]
        padding = torch.arange(N, device=self.device) >= lengths[:, None]
        real = (~padding).repeat_interleave(L, dim=1)
        pairs = real[:, :, None] & real[:, None]
        with torch.autocast(self.device, torch.float16, enabled=self.device == "cuda"):
            words = self.parts["words"](tokens)
            hidden = [encode(words, src_key_padding_mask=padding) for encode in self.parts["encoders"].children()]
            node_scores = self.parts["nodes"](hidden[0]).view(B, N * L, -1).float().log_softmax(-1)
            queries, keys = (
                self.parts[n](hidden[-1]).view(B, N * L, E, -1).transpose(1, 2) for n in ("edge_queries", "edge_keys")
            )
            edge_scores = (queries @ keys.transpose(-1, -2)).permute(0, 2, 3, 1).float().log_softmax(-1)

        def losses(z: Tensor, xi: Tensor) -> Tensor:
            by_node = node_scores.gather(-1, z[..., None]).squeeze(-1) * real
            by_pair = edge_scores.gather(-1, xi[..., None]).squeeze(-1) * pairs
            total: Tensor = -by_node.sum(1) - by_pair.sum((1, 2))
            return total

        if self.settings.align.supervision == "strong":
            loss = losses(nodes, edges).mean()
        else:
            wanted = node_scores.gather(2, nodes[:, None].expand(-1, N * L, -1))  # (B, slots, nodes)
            tried = []
            for _ in range(self.settings.align.candidates):
                noisy = (wanted + self.settings.align.noise * torch.rand_like(wanted)).detach().cpu().numpy()
                order = np.tile(np.arange(N * L), (B, 1))
                for b, n in enumerate(lengths.tolist()):
                    order[b, : n * L] = linear_sum_assignment(noisy[b, : n * L, : n * L], maximize=True)[1]
                a = torch.from_numpy(order).to(self.device)
                z = nodes.gather(1, a)
                xi = edges.gather(2, a[:, None].expand(-1, N * L, -1)).gather(1, a[..., None].expand(-1, -1, N * L))
                tried.append(losses(z, xi))
            loss = torch.stack(tried).amin(0).mean()
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.parts.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()


def graphs_pair_by_pair(dist: GraphDistribution, vocab: Vocabulary) -> list[Graph]:
    """The likeliest graphs, found by looking at every slot and at every pair of slots in Python."""
    best, graphs = dist.argmax(), []
    for nodes, edges in zip(best.nodes.tolist(), best.edges.tolist(), strict=True):
        slots = [slot for slot in range(len(nodes)) if nodes[slot] != NULL]
        found = []
        for source in range(len(nodes)):
            for target in range(len(nodes)):
                label = edges[source][target]
                if label != NULL and nodes[source] != NULL and nodes[target] != NULL:
                    found.append(Edge(slots.index(source), vocab.edge_label(label), slots.index(target)))
        graphs.append(Graph(tuple(vocab.node_label(nodes[slot]) for slot in slots), tuple(found), tuple(slots)))
    return graphs
