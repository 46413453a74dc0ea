"""Encoders: embedded tokens (B, N, D) → vectors in context (B, N, D). Padding never reaches a real token."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Embedding(nn.Module):
    """Word vectors, Kaiming-initialised, plus sine positions scaled down by 1/√D.

    Both follow Csordás et al. (2021), whom the paper cites for them: with positions as large as the words,
    Transformers generalise far worse.
    """

    def __init__(self, words: int, width: int, dropout: float, positions: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        nn.init.kaiming_normal_(self.words.weight)
        self.dropout = nn.Dropout(dropout)
        self.positions = positions

    def forward(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.words(tokens)
        if self.positions:
            length, width = embedded.shape[-2:]
            embedded = embedded + sine_positions(length, width, tokens.device) / math.sqrt(width)
        dropped: Tensor = self.dropout(embedded)
        return dropped


def sine_positions(length: int, width: int, device: torch.device) -> Tensor:
    """sin and cos of position / 10000^(2i/D), interleaved.   (N, D)"""
    position = torch.arange(length, device=device, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10000.0) / width))
    return torch.stack([torch.sin(position * rate), torch.cos(position * rate)], dim=-1).flatten(-2)


class TransformerLayer(nn.Module):
    """Self-attention and a feed-forward part, each added to its input and normalised after (post-norm)."""

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.attention_dropout = heads, dropout
        self.attend = nn.Linear(width, 3 * width, bias=False)
        self.attended = nn.Linear(width, width, bias=False)
        self.widen, self.narrow = nn.Linear(width, feedforward), nn.Linear(feedforward, width)
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        for linear in (*self.attend.weight.chunk(3), self.attended.weight, self.narrow.weight):
            nn.init.xavier_uniform_(linear)
        nn.init.xavier_uniform_(self.widen.weight, gain=math.sqrt(2))

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        B, N, D = x.shape
        query, key, value = self.attend(x).view(B, N, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.attention_dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=visible, dropout_p=dropout)
        x = self.attention_norm(x + self.dropout(self.attended(mixed.transpose(1, 2).reshape(B, N, D))))
        hidden = self.dropout(F.relu(self.widen(x)))
        result: Tensor = self.feedforward_norm(x + self.dropout(self.narrow(hidden)))
        return result


class Transformer(nn.Module):
    def __init__(self, width: int, encoder_layers: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerLayer(width, heads, feedforward, dropout) for _ in range(encoder_layers))

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        visible = present[:, None, None, :]  # every token sees the tokens of its sentence
        for layer in self.layers:
            x = layer(x, visible)
        return x


class LSTM(nn.Module):
    """A bidirectional LSTM, D/2 a direction."""

    def __init__(self, width: int, encoder_layers: int, dropout: float) -> None:
        super().__init__()
        between_layers = dropout if encoder_layers > 1 else 0.0
        self.lstm = nn.LSTM(
            width, width // 2, encoder_layers, batch_first=True, bidirectional=True, dropout=between_layers
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        lengths = present.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])
        result: Tensor = self.dropout(states)
        return result
