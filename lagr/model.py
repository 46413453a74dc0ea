"""The model: label every slot and every pair of slots, all at once. Read this second.

Sizes, here and everywhere: B sentences · N tokens · L graph layers · M = L·N slots · J nodes · V node labels ·
E edge labels · K candidates · D width · S models. Label 0 is `null`, for nodes and for edges: nothing is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lagr import chance, kernels
from lagr.chance import scramble
from lagr.encoders import LSTM, NEAR, Affine, Embedding, Transformer, are_present, neighbourhood, rotated

NULL = 0
FEATURE_SITE = 3_000  # of dropout, apart from all others


@dataclass(frozen=True)
class GraphLabels:
    """A label for every slot and for every ordered pair of slots: one complete labelled graph a sentence."""

    nodes: Tensor  # (B, M)
    edges: Tensor  # (B, M, M), from the second axis' slot to the third's
    valencies: Tensor | None = None  # (B, M, 2), which edge labels leave a slot and enter it, if a model says that too


@dataclass(frozen=True)
class GraphDistribution:
    """Independent distributions over the labels of M slots and M·M pairs.

    p(z, ξ | x) = ∏_j p(z_j | x) · ∏_j ∏_k p(ξ_jk | x)
    Paper: section 2.1, the factorised p(z | x) and p(ξ | x).
    """

    node_log_probs: Tensor  # (B, M, V), log π
    edge_log_probs: Tensor  # (B, M, M, E), log ρ
    slots: Tensor  # (B, M), True where the slot exists; the others are padding and count nowhere
    valency_log_probs: Tensor | None = None  # (B, M, 2, valencies), of what leaves a slot and of what enters it

    @classmethod
    def from_logits(cls, node_logits: Tensor, edge_logits: Tensor, slots: Tensor) -> GraphDistribution:
        """The distribution whose probabilities are softmax(logits)."""
        return cls(log_softmax(node_logits), log_softmax(edge_logits), slots)

    @property
    def pairs(self) -> Tensor:
        """True where both slots of a pair exist.   (B, M, M)"""
        return self.slots[:, :, None] & self.slots[:, None, :]

    def log_prob(self, labels: GraphLabels) -> Tensor:
        """log p(z, ξ | x) of a complete labelled graph.   (B,)"""
        nodes = self.node_log_probs.gather(-1, labels.nodes[..., None]).squeeze(-1)
        edges = self.edge_log_probs.gather(-1, labels.edges[..., None]).squeeze(-1)
        total = (nodes * self.slots).sum(1) + (edges * self.pairs).sum((1, 2))
        if self.valency_log_probs is not None and labels.valencies is not None:
            of_slot = self.valency_log_probs.gather(-1, labels.valencies[..., None]).sum((2, 3))
            total = total + (of_slot * self.slots).sum(1)
        return total

    def argmax(self) -> GraphLabels:
        """The likeliest complete graph: the likeliest label of each slot and pair. Padding holds null."""
        return GraphLabels(self.node_log_probs.argmax(-1) * self.slots, self.edge_log_probs.argmax(-1) * self.pairs)


class LAGr(nn.Module):
    """Sentences → GraphDistribution, in one forward pass.

    Nodes:  O = ‖_l H Wˡ + b,  π = softmax(O)
    Edges:  Q^α = ‖_l H U^{α,l} + b,  K^α = ‖_l H V^{α,l} + b,  ρ = softmax_α(Q^α K^αᵀ)
    H is the encoded sentence: one H for nodes and edges (*shared*), or one each (*separate*).
    Paper: section 2.1.

    The first axis of every weight counts copies that run side by side. A new model has one of each (two of an encoder
    that is separate); the weights of S models, joined along that axis, are S models that take a step together.
    """

    def __init__(
        self,
        words: int,
        node_labels: int,
        edge_labels: int,
        *,
        encoder: str = "transformer",
        encoders: str = "separate",
        width: int = 256,
        encoder_layers: int = 4,
        heads: int = 4,
        feedforward: int = 0,
        dropout: float = 0.1,
        graph_layers: int = 1,
        edge_width: int = 0,
        positions: str = "sine",
        residual: float = 1.0,
        valencies: tuple[int, int] = (0, 0),
        features: int = 0,
        read_by_edges: Sequence[int] = (),
        twins: bool = False,
    ) -> None:
        """valencies: how many there are of what leaves a node, and of what enters it; 0: they are not predicted.

        features: size of the vectors that a pretrained encoder gives of every token; 0: there is none.
        read_by_edges: for every word, what the edges' encoder reads instead; nothing: the same words.
        twins: the last edge label says that two words are in one list, which is seen from their neighbours alone (and,
        with sine positions, from where they stand).
        """
        super().__init__()
        self.read_by_edges: Tensor
        self.register_buffer("read_by_edges", torch.tensor(read_by_edges, dtype=torch.long), persistent=False)
        self.positions, self.valencies = positions, valencies
        self.graph_layers, self.node_labels, self.edge_labels = graph_layers, node_labels, edge_labels
        self.edge_width = edge_width or aligned(width // edge_labels)
        self.encoders = 2 if encoders == "separate" else 1
        self.embed = Embedding(words, width, dropout, positions=encoder == "transformer" and positions == "sine")
        if features:
            self.project = Affine(1, features, width)
            self.feature_dropout = dropout
        if encoder == "lstm":
            self.encode: LSTM | Transformer = LSTM(self.encoders, width, encoder_layers, dropout)
        else:
            sizes = (encoder_layers, heads, feedforward or width)
            self.encode = Transformer(
                self.encoders, width, *sizes, dropout, rotary=positions == "rotary", residual=residual
            )
        self.node_scorer = Affine(1, width, graph_layers * aligned(node_labels))  # the excess is never read
        self.encoded_labels = edge_labels - twins  # edge labels that are scored from what is encoded
        self.edge_queries = Affine(1, width, graph_layers * self.encoded_labels * self.edge_width)
        self.edge_keys = Affine(1, width, graph_layers * self.encoded_labels * self.edge_width)
        self.twins = twins
        if twins:
            self.twin_scorer = Affine(1, (2 * NEAR + 1) * width, graph_layers * 2 * self.edge_width)
        if max(valencies):
            self.valency_scorer = Affine(1, width, graph_layers * 2 * aligned(max(valencies)))

    def forward(
        self, tokens: Tensor, lengths: Tensor, keys: Tensor | None = None, features: Tensor | None = None
    ) -> GraphDistribution:
        """tokens (S, B, N), of which sentence b of model s has lengths[s, b]; the rest is padding and changes nothing.

        keys (S,): what dropout draws from; without them there is none. The S·B sentences come back in one row.
        features (S, B, N, F): what a pretrained encoder says of the tokens, where the model was made for one.
        """
        words, *more = self.embedded(tokens, lengths, keys, features)
        nodes, edges, numbers = self.score(self.encode(words, *more), words, lengths)
        present = are_present(lengths.flatten(), tokens.shape[-1])
        return GraphDistribution(nodes, edges, present.repeat_interleave(self.graph_layers, dim=1), numbers)

    def embedded(
        self, tokens: Tensor, lengths: Tensor, keys: Tensor | None, features: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the encoders start from: words (W, B, N, D), lengths (W, B), and keys of every layer (layers, W)."""

        def for_each_encoder(x: Tensor) -> Tensor:
            return x[:, None].expand(-1, self.encoders, *x.shape[1:]).flatten(0, 1)

        words = for_each_encoder(self.embed(tokens, keys))
        if len(self.read_by_edges):  # there are two encoders, that of nodes and that of edges
            for_edges = self.embed(self.read_by_edges[tokens], keys)
            words = torch.stack([words[::2], for_edges], dim=1).flatten(0, 1)
        if features is not None:
            projected = self.project(features.to(words.dtype))
            words = words + for_each_encoder(chance.dropout(projected, self.feature_dropout, keys, FEATURE_SITE))
        lengths = for_each_encoder(lengths).contiguous()
        if keys is not None:
            number = torch.arange(1, 1 + len(self.encode.layers) * self.encoders, dtype=torch.int32, device=keys.device)
            keys = scramble(keys[:, None] + number).view(len(keys), -1, self.encoders).transpose(0, 1).flatten(1)
        return words, lengths, keys

    def score(self, encoded: Tensor, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """log π (S·B, M, V), log ρ (S·B, M, M, E) and valencies from encoded sentences (W, B, N, D).

        words (W, B, N, D), lengths (S, B): what was encoded.
        """
        encoded = encoded.view(-1, self.encoders, *encoded.shape[1:])
        for_nodes, for_edges = encoded[:, 0], encoded[:, -1]  # the same vectors where the encoder is shared
        S, B, N, _ = for_nodes.shape
        # A token's L slots stand side by side, so slot = token · L + layer whatever the padding.
        M, of_pair = N * self.graph_layers, (self.encoded_labels, self.edge_width)
        node_logits = self.node_scorer.logits(for_nodes).view(S * B, M, -1)[..., : self.node_labels]
        queries = self.edge_queries(for_edges).view(S * B, M, *of_pair)
        keys = self.edge_keys(for_edges).view(S * B, M, *of_pair)
        if self.twins:
            beside = neighbourhood(words[self.encoders - 1 :: self.encoders], lengths)
            of_twins = self.twin_scorer(beside).view(S * B, M, 2, self.edge_width)
            queries = torch.cat([queries, of_twins[:, :, :1]], dim=2)
            keys = torch.cat([keys, of_twins[:, :, 1:]], dim=2)
        if self.positions == "rotary":
            token = torch.arange(M, device=encoded.device) // self.graph_layers
            queries, keys = (rotated(x, token[:, None]) for x in (queries, keys))
        numbers = None
        if max(self.valencies):
            numbers = self.valency_scorer.logits(for_edges).view(S * B, M, 2, -1)[..., : max(self.valencies)]
            known = torch.arange(numbers.shape[-1], device=numbers.device) < numbers.new_tensor(self.valencies)[:, None]
            numbers = log_softmax(numbers.masked_fill(~known, -torch.inf))
        return log_softmax(node_logits), edge_log_probs(queries, keys), numbers

    def attend_up_to(self, reach: int) -> None:
        """From now on a token attends to others up to so far away; 0: to all.

        Distances that training hardly has get weights by accident, and a long sentence has many of them.
        """
        if isinstance(self.encode, Transformer):
            self.encode.attend_up_to(reach)

    def compile_parts(self, tokens: int) -> None:
        """Compiles what has no kernels of its own, for sentences of up to so many tokens."""
        self.encode.compile_parts(tokens)
        for name in ("embedded", "score"):
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))


def edge_log_probs(queries: Tensor, keys: Tensor) -> Tensor:
    """log softmax over the labels of Q^α K^αᵀ.   (B, M, E, width) twice → (B, M, M, E)"""
    if kernels.fit(queries, queries.shape[1], queries.shape[3]):
        from lagr.kernels.edges import edge_log_probs as on_chip

        found: Tensor = on_chip(queries, keys)
        return found
    # Labels stand before pairs in memory, so a CPU sums over the labels of many pairs at a time.
    return log_softmax(torch.einsum("bjew,bkew->bejk", queries, keys), dim=1).permute(0, 2, 3, 1)


def aligned(size: int) -> int:
    """The next multiple of 8, so that a row of numbers begins where a GPU's matrix units want it."""
    return -(-max(1, size) // 8) * 8


def log_softmax(logits: Tensor, dim: int = -1) -> Tensor:
    """In float32, whatever the logits are."""
    return logits.float().log_softmax(dim)
