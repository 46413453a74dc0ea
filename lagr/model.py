"""The model: label every slot and every pair of slots, all at once. Read this second.

Sizes, here and everywhere: B sentences · N tokens · L graph layers · M = L·N slots · J nodes · V node labels ·
E edge labels · K candidates · D width. Label 0 is `null`, for nodes and for edges: the slot or pair holds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lagr.encoders import LSTM, Embedding, Transformer

NULL = 0


@dataclass(frozen=True)
class GraphLabels:
    """A label for every slot and for every ordered pair of slots: one complete labelled graph a sentence."""

    nodes: Tensor  # (B, M)
    edges: Tensor  # (B, M, M), from the second axis' slot to the third's


@dataclass(frozen=True)
class GraphDistribution:
    """Independent distributions over the labels of M slots and M·M pairs.

    p(z, ξ | x) = ∏_j p(z_j | x) · ∏_j ∏_k p(ξ_jk | x)
    Paper: section 2.1, the factorised p(z | x) and p(ξ | x).
    """

    node_log_probs: Tensor  # (B, M, V), log π
    edge_log_probs: Tensor  # (B, M, M, E), log ρ
    slots: Tensor  # (B, M), True where the slot exists; the others are padding and count nowhere

    @classmethod
    def from_logits(cls, node_logits: Tensor, edge_logits: Tensor, slots: Tensor) -> GraphDistribution:
        """The distribution whose probabilities are softmax(logits), normalised in float32 whatever the logits are."""
        return cls(node_logits.float().log_softmax(-1), edge_logits.float().log_softmax(-1), slots)

    @property
    def pairs(self) -> Tensor:
        """True where both slots of a pair exist.   (B, M, M)"""
        return self.slots[:, :, None] & self.slots[:, None, :]

    def log_prob(self, labels: GraphLabels) -> Tensor:
        """log p(z, ξ | x) of a complete labelled graph.   (B,)"""
        nodes = self.node_log_probs.gather(-1, labels.nodes[..., None]).squeeze(-1)
        edges = self.edge_log_probs.gather(-1, labels.edges[..., None]).squeeze(-1)
        return (nodes * self.slots).sum(1) + (edges * self.pairs).sum((1, 2))

    def argmax(self) -> GraphLabels:
        """The likeliest complete graph: the likeliest label of each slot and pair. Padding holds null."""
        return GraphLabels(self.node_log_probs.argmax(-1) * self.slots, self.edge_log_probs.argmax(-1) * self.pairs)


class LAGr(nn.Module):
    """Sentences → GraphDistribution, in one forward pass.

    Nodes:  O = ‖_l H Wˡ + b,  π = softmax(O)
    Edges:  Q^α = ‖_l H U^{α,l} + b,  K^α = ‖_l H V^{α,l} + b,  ρ = softmax_α(Q^α K^αᵀ)
    H is the encoded sentence: one H for nodes and edges (*shared*), or one each (*separate*).
    Paper: section 2.1.
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
    ) -> None:
        super().__init__()

        def new_encoder() -> nn.Module:
            if encoder == "lstm":
                return LSTM(width, encoder_layers, dropout)
            return Transformer(width, encoder_layers, heads, feedforward or width, dropout)

        self.graph_layers, self.edge_labels = graph_layers, edge_labels
        self.edge_width = edge_width or max(1, width // edge_labels)
        self.embed = Embedding(words, width, dropout, positions=encoder == "transformer")
        self.node_encoder = new_encoder()
        self.edge_encoder = new_encoder() if encoders == "separate" else None
        self.node_scorer = nn.Linear(width, graph_layers * node_labels)
        self.edge_queries = nn.Linear(width, graph_layers * edge_labels * self.edge_width)
        self.edge_keys = nn.Linear(width, graph_layers * edge_labels * self.edge_width)

    def forward(self, tokens: Tensor, lengths: Tensor) -> GraphDistribution:
        """tokens (B, N), of which sentence b has lengths[b]; the rest is padding, which changes nothing."""
        B, N = tokens.shape
        L, E = self.graph_layers, self.edge_labels
        present = torch.arange(N, device=tokens.device) < lengths[:, None]  # (B, N)
        embedded = self.embed(tokens)
        for_nodes = self.node_encoder(embedded, present)
        for_edges = for_nodes if self.edge_encoder is None else self.edge_encoder(embedded, present)

        # A token's L slots stand side by side, so slot = token · L + layer whatever the padding.
        node_logits = self.node_scorer(for_nodes).view(B, N * L, -1)
        queries = self.edge_queries(for_edges).view(B, N * L, E, self.edge_width)
        keys = self.edge_keys(for_edges).view(B, N * L, E, self.edge_width)
        edge_logits = torch.einsum("bjew,bkew->bjke", queries, keys)
        return GraphDistribution.from_logits(node_logits, edge_logits, present.repeat_interleave(L, dim=1))
