"""What `lagr bench` compares with: training and decoding as published, and a parser that writes token by token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

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


class Seq2Seq(nn.Module):
    """A Transformer of the same width and depth that writes the form token by token, as long as the real form is.

    Keys and values of what was written are kept, so a step costs one token.
    """

    def __init__(self, words: int, outputs: int, settings: Config) -> None:
        super().__init__()
        m = settings.model
        self.heads = m.heads
        self.words, self.outputs = nn.Embedding(words, m.width), nn.Embedding(outputs, m.width)
        self.body = nn.Transformer(m.width, m.heads, m.encoder_layers, m.encoder_layers, m.width, batch_first=True)
        self.choose = nn.Linear(m.width, outputs)

    @torch.inference_mode()
    def greedy(
        self, sentences: Any, lengths: list[int], vocab: Vocabulary, device: str, batch: int = 128
    ) -> list[Tensor]:
        from lagr.batch import pad_tokens

        order, written = sorted(range(len(sentences)), key=lambda i: lengths[i]), []
        for at in range(0, len(order), batch):
            rows = order[at : at + batch]
            tokens, _ = pad_tokens([sentences[i] for i in rows], vocab, device)
            memory = self.body.encoder(self.words(tokens[0]))
            layers: Any = self.body.decoder.layers
            seen = [self._keys_and_values(layer.multihead_attn, memory) for layer in layers]
            past: list[tuple[Tensor, Tensor] | None] = [None] * len(layers)
            token, output = torch.zeros(len(rows), 1, dtype=torch.long, device=device), []
            for _ in range(max(lengths[i] for i in rows)):
                x = self.outputs(token)
                for number, layer in enumerate(layers):
                    new, before = self._keys_and_values(layer.self_attn, x), past[number]
                    kept = (
                        new
                        if before is None
                        else (torch.cat([before[0], new[0]], 2), torch.cat([before[1], new[1]], 2))
                    )
                    past[number] = kept
                    x = layer.norm1(x + self._attend(layer.self_attn, x, kept))
                    x = layer.norm2(x + self._attend(layer.multihead_attn, x, seen[number]))
                    x = layer.norm3(x + layer.linear2(F.relu(layer.linear1(x))))
                x = self.body.decoder.norm(x) if self.body.decoder.norm is not None else x
                token = self.choose(x).argmax(-1)
                output.append(token)
            written.append(torch.cat(output, dim=1))
        return written

    def _split(self, x: Tensor) -> Tensor:
        B, N, _ = x.shape
        return x.view(B, N, self.heads, -1).transpose(1, 2)

    def _keys_and_values(self, attention: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        D = x.shape[-1]
        both = F.linear(x, attention.in_proj_weight[D:], attention.in_proj_bias[D:])
        return self._split(both[..., :D].contiguous()), self._split(both[..., D:].contiguous())

    def _attend(self, attention: Any, x: Tensor, keys_and_values: tuple[Tensor, Tensor]) -> Tensor:
        D = x.shape[-1]
        query = self._split(F.linear(x, attention.in_proj_weight[:D], attention.in_proj_bias[:D]))
        mixed = F.scaled_dot_product_attention(query, *keys_and_values)
        result: Tensor = attention.out_proj(mixed.transpose(1, 2).flatten(2))
        return result
