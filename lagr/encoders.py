"""Encoders: embedded tokens (W, B, N, D) → vectors in context (W, B, N, D). Padding never reaches a real token.

W counts encoders that run side by side, each with its own weights: those of S models, and of each model one for nodes
and one for edges where they are separate. All of them take one matrix product, not W of them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lagr import kernels
from lagr.chance import dropout

LSTMState = tuple[Tensor, Tensor]  # hidden and cell (W, directions, B, size)
NEAR = 2  # tokens on either side from which it is seen that two words are in one list


class Affine(nn.Module):
    """x A + b, with its own A and b for each of W.   (W, …, inputs) → (W, …, outputs)"""

    def __init__(self, copies: int, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(copies, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(copies, 1, outputs)) if bias else None
        bound = 1 / math.sqrt(inputs)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return add_bias(self.product(x), self.bias)

    def logits(self, x: Tensor) -> Tensor:
        """The same, in float32 whatever x and A are: labels are compared, and bf16 would round what sets them apart."""
        product = torch.bmm(x.float().reshape(self.weight.shape[0], -1, x.shape[-1]), self.weight.float())
        return add_bias(product.view(*x.shape[:-1], -1), self.bias)

    def product(self, x: Tensor) -> Tensor:
        """x A"""
        return torch.bmm(x.reshape(self.weight.shape[0], -1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)

    def xavier(self, blocks: int = 1, gain: float = 1.0) -> None:
        """Initialises as Xavier's, each block of outputs as a matrix of its own."""
        for matrix in self.weight.data:
            for block in matrix.chunk(blocks, dim=1):
                nn.init.xavier_uniform_(block, gain=gain)


class Norm(nn.Module):
    """Layer normalisation, in float32 whatever the input is."""

    def __init__(self, copies: int, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(copies, width)), nn.Parameter(torch.zeros(copies, width))

    def forward(self, x: Tensor) -> Tensor:
        normal = F.layer_norm(x.float(), x.shape[-1:])
        return (normal * self.scale[:, None, None] + self.shift[:, None, None]).to(x.dtype)


class Embedding(nn.Module):
    """Word vectors, Kaiming-initialised, plus sine positions scaled down by 1/√D.   (S, B, N) → (S, B, N, D)

    Both follow Csordás et al. (2021), whom the paper cites for them: with positions as large as the words,
    Transformers generalise far worse.
    """

    def __init__(self, words: int, width: int, dropout: float, positions: bool) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.empty(1, words, width))
        nn.init.kaiming_normal_(self.words[0])
        self.dropout, self.positions = dropout, positions

    def forward(self, tokens: Tensor, keys: Tensor | None, position: int = 0) -> Tensor:
        """position: that of the first token."""
        S, count, width = self.words.shape
        first = torch.arange(S, device=tokens.device)[:, None, None] * count  # where a model's words begin
        embedded = F.embedding(tokens + first, self.words.reshape(S * count, width))
        if self.positions:
            sines = sine_positions(position + tokens.shape[-1], width, tokens.device)[position:]
            embedded = embedded + (sines / math.sqrt(width)).to(embedded.dtype)
        return dropout(embedded, self.dropout, keys, site=0)


def sine_positions(length: int, width: int, device: torch.device) -> Tensor:
    """sin and cos of position / 10000^(2i/D), interleaved.   (N, D)"""
    position = torch.arange(length, device=device, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10000.0) / width))
    return torch.stack([torch.sin(position * rate), torch.cos(position * rate)], dim=-1).flatten(-2)


class TransformerLayer(nn.Module):
    """Self-attention and a feed-forward part, each added to its input and normalised after (post-norm)."""

    def __init__(
        self, copies: int, width: int, heads: int, feedforward: int, dropout: float, rotary: bool, residual: float
    ) -> None:
        super().__init__()
        self.heads, self.dropout, self.rotary = heads, dropout, rotary
        self.reach = 0  # how far away a token may be that is attended to; 0: anywhere
        self.attend, self.attended = (
            Affine(copies, width, 3 * width, bias=False),
            Affine(copies, width, width, bias=False),
        )
        self.widen, self.narrow = Affine(copies, width, feedforward), Affine(copies, feedforward, width)
        self.attention_norm, self.feedforward_norm = Norm(copies, width), Norm(copies, width)
        self.attend.xavier(blocks=3)
        self.attended.xavier(gain=residual)
        self.widen.xavier(gain=math.sqrt(2))
        self.narrow.xavier(gain=residual)

    def forward(self, x: Tensor, lengths: Tensor, keys: Tensor | None) -> Tensor:
        drop = self.dropout
        projected = self.attend(x)
        projected = self.turned(projected) if self.rotary else projected
        mixed = attention(projected, lengths, keys, self.heads, drop, self.reach)
        x = normalised_sum(x, self.attended(mixed), None, self.attention_norm, keys, drop, site=1)
        hidden = rectified(self.widen.product(x), self.widen.bias, keys, drop, site=2)
        return normalised_sum(
            x, self.narrow.product(hidden), self.narrow.bias, self.feedforward_norm, keys, drop, site=3
        )

    def turned(self, projected: Tensor) -> Tensor:
        """Queries and keys rotated by their positions, values as they are."""
        by_head = projected.view(*projected.shape[:-1], 3, self.heads, -1)
        token = torch.arange(projected.shape[2], device=projected.device)[:, None, None]
        return torch.cat([rotated(by_head[..., :2, :, :], token), by_head[..., 2:, :, :]], dim=-3).flatten(-3)


def rotated(x: Tensor, position: Tensor) -> Tensor:
    """Turns pairs of numbers by angles in proportion to the position, so that products depend on distances alone.

    position: broadcasts over all axes of x but the last.
    """
    half = x.shape[-1] // 2
    rate = torch.exp(torch.arange(half, device=x.device) * (-math.log(10000.0) / half))
    angle = position[..., None] * rate
    sine, cosine = torch.sin(angle).to(x.dtype), torch.cos(angle).to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


def normalised_sum(
    x: Tensor, y: Tensor, bias: Tensor | None, norm: Norm, keys: Tensor | None, drop: float, site: int
) -> Tensor:
    """norm(x + dropout(y + bias))   (W, B, N, D)"""
    if kernels.usable(x):
        from lagr.kernels import sublayer

        return sublayer.normalised_sum(x, y, bias, norm.scale, norm.shift, keys, drop, site)
    result: Tensor = norm(x + dropout(add_bias(y, bias), drop, keys, site))
    return result


def rectified(y: Tensor, bias: Tensor | None, keys: Tensor | None, drop: float, site: int) -> Tensor:
    """dropout(relu(y + bias))   (W, B, N, D)"""
    if kernels.usable(y):
        from lagr.kernels import sublayer

        return sublayer.rectified(y, bias, keys, drop, site)
    return dropout(F.relu(add_bias(y, bias)), drop, keys, site)


def add_bias(product: Tensor, bias: Tensor | None) -> Tensor:
    """Each copy's bias (W, 1, D), if there is one, on all its vectors.   (W, …, D)"""
    if bias is None:
        return product
    return product + bias.to(product.dtype).view(len(bias), *(1 for _ in product.shape[2:]), -1)


def attention(
    projected: Tensor, lengths: Tensor, keys: Tensor | None, heads: int, drop: float, reach: int = 0
) -> Tensor:
    """softmax(Q Kᵀ / √d) V of each head, over the tokens that are there.   (W, B, N, 3·D), (W, B) → (W, B, N, D)

    projected: queries, keys and values side by side. reach: how far away a token may be; 0: anywhere.
    """
    N, d = projected.shape[2], projected.shape[-1] // (3 * heads)
    if kernels.fit(projected, N, d) and not reach:
        from lagr.kernels.attention import attention as on_chip

        mixed: Tensor = on_chip(projected, lengths, keys, heads, drop)
        return mixed
    query, key, value = by_head(projected, 3, heads)
    visible = are_present(lengths, N)[:, :, None, :, None]
    if reach:
        place = torch.arange(N, device=projected.device)
        distance = (place[:, None] - place).abs()
        visible = visible & (distance <= reach) | (distance == 0)  # padding, too, has to see something
    return mix(query, key, value, visible, keys, drop, site=0)


def by_head(projected: Tensor, parts: int, heads: int) -> Tensor:
    """Vectors of several parts side by side, each cut into heads.   (W, B, N, parts·D) → (parts, W, B, heads, N, d)"""
    return projected.view(*projected.shape[:-1], parts, heads, -1).permute(3, 0, 1, 4, 2, 5)


def mix(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, keys: Tensor | None, drop: float, site: int
) -> Tensor:
    """softmax(Q Kᵀ / √d) V of each head.   (W, B, heads, Q, d), (W, B, heads, K, d) twice → (W, B, Q, D)

    visible, broadcast to (W, B, heads, K, Q): which keys a query sees; without it, all.
    """
    # Keys stand before queries in memory, so a CPU sums over the keys of many queries at a time.
    scores = (key @ query.transpose(-1, -2) / math.sqrt(query.shape[-1])).float()  # (W, B, heads, K, Q)
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    weights = dropout(scores.softmax(-2).transpose(-1, -2), drop, keys, site)
    return (weights.to(value.dtype) @ value).transpose(2, 3).flatten(3)


def are_present(lengths: Tensor, tokens: int) -> Tensor:
    """Which of so many places hold a token of the sentence.   (…) → (…, N)"""
    return torch.arange(tokens, device=lengths.device) < lengths[..., None]


def neighbourhood(words: Tensor, lengths: Tensor) -> Tensor:
    """Every token with those NEAR it, side by side; beyond the ends are zeros.   (S, B, N, D) → (S, B, N, 5·D)"""
    N = words.shape[2]
    words = F.pad(words * are_present(lengths, N)[..., None], (0, 0, NEAR, NEAR))
    return torch.cat([words[:, :, shift : shift + N] for shift in range(2 * NEAR + 1)], dim=-1)


class Transformer(nn.Module):
    """shared: one layer, passed as often as there would be layers (a Universal Transformer).

    residual: how large what a layer adds is at first, of what Xavier's initialisation gives. Where it is small, a
    token's vector says at first which word it is, even under dropout.
    """

    def __init__(
        self,
        copies: int,
        width: int,
        layers: int,
        heads: int,
        feedforward: int,
        dropout: float,
        rotary: bool = False,
        shared: bool = False,
        residual: float = 1.0,
    ) -> None:
        super().__init__()
        self.depth = layers
        self.layers = nn.ModuleList(
            TransformerLayer(copies, width, heads, feedforward, dropout, rotary, residual)
            for _ in range(1 if shared else layers)
        )

    def forward(self, x: Tensor, lengths: Tensor, keys: Tensor | None) -> Tensor:
        """keys (layers, W)"""
        for number in range(self.depth):
            layer = self.layers[number % len(self.layers)]
            x = layer(x, lengths, None if keys is None else keys[number])
        return x

    def attend_up_to(self, reach: int) -> None:
        layers: Any = self.layers
        for layer in layers:
            layer.reach = reach

    def compile_parts(self, tokens: int) -> None:
        """Compiles what has no kernels of its own for so many tokens. Equal layers share code."""
        layers: Any = self.layers
        for layer in layers:
            if not kernels.fit(layer.attend.weight, tokens, layer.attend.weight.shape[1] // layer.heads):
                layer.compile(dynamic=False)
            elif layer.rotary:
                layer.turned = torch.compile(layer.turned, dynamic=False)


class LSTMLayer(nn.Module):
    """An LSTM layer of one direction or of two, D/2 each: (W, B, N, D) → (W, B, N, D).

    i, f, g, o = x A + h R + b;  c' = σ(f) c + σ(i) tanh(g);  h' = σ(o) tanh(c')
    The state stands still on padding, so reading from the right begins at the last real token.
    """

    def __init__(self, copies: int, width: int, directions: int = 2) -> None:
        super().__init__()
        self.directions, self.size = directions, width // directions
        self.inputs = Affine(copies, width, 4 * width)
        self.recurrent = Affine(directions * copies, self.size, 4 * self.size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(self.size), 1 / math.sqrt(self.size))

    def forward(self, x: Tensor, lengths: Tensor, before: LSTMState | None = None) -> tuple[Tensor, LSTMState]:
        """Vectors in context, and the state after the last one. before: the state to begin with, if not zeros."""
        W, B, N, _ = x.shape
        # (N, W, directions, B, 4·size)
        gates = self.inputs(x).view(W, B, N, self.directions, -1).permute(2, 0, 3, 1, 4)
        if self.directions == 2:  # the second one reads the sentence turned round
            gates = torch.stack([gates[:, :, 0], gates[:, :, 1].flip(0)], dim=2)
        assert self.recurrent.bias is not None
        gates = gates + self.recurrent.bias.to(gates.dtype).view(W, self.directions, 1, -1)  # for all steps at once
        nothing = gates.new_zeros(*gates.shape[1:-1], self.size)
        hidden, cell = before or (nothing, nothing.float())
        states, cells = recurrence(gates, self.recurrent.weight, hidden, cell, lengths)
        forwards, *backwards = states.permute(2, 1, 3, 0, 4)  # (W, B, N, size) each
        read = torch.cat([forwards, *(one.flip(2) for one in backwards)], dim=-1)
        return read, (states[-1], cells[-1])


def recurrence(gates: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """States and cells after every step; where there is no token, those before it. No gradient goes through the cells.

    gates (N, W, directions, B, 4·size): what the tokens give, in the order in which they are read; weight
    (W·directions, size, 4·size); hidden, cell (W, directions, B, size); lengths (W, B).
    """
    if kernels.usable(gates):
        from lagr.kernels.lstm import recurrence as on_chip

        found: tuple[Tensor, Tensor, Tensor] = on_chip(gates, weight, hidden, cell, lengths)
        return found[0], found[1].detach()
    N, directions = len(gates), gates.shape[2]
    states, cells = [], []
    for step, given in enumerate(gates.unbind()):
        recurrent = torch.bmm(hidden.flatten(0, 1), weight).view(given.shape)
        i, f, g, o = (given + recurrent).chunk(4, dim=-1)
        new_cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        new_hidden = (torch.sigmoid(o) * torch.tanh(new_cell)).to(hidden.dtype)
        real = torch.stack([step < lengths, N - 1 - step < lengths][:directions], dim=1)[..., None]
        cell, hidden = torch.where(real, new_cell, cell), torch.where(real, new_hidden, hidden)
        states.append(hidden)
        cells.append(cell)
    return torch.stack(states), torch.stack(cells).detach()


class LSTM(nn.Module):
    def __init__(self, copies: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(LSTMLayer(copies, width) for _ in range(layers))
        self.dropout = dropout

    def forward(self, x: Tensor, lengths: Tensor, keys: Tensor | None) -> Tensor:
        """keys (layers, W)"""
        for number, layer in enumerate(self.layers):
            x = self.drop(layer(x, lengths)[0], None if keys is None else keys[number])
        return x

    def drop(self, x: Tensor, keys: Tensor | None) -> Tensor:
        return dropout(x, self.dropout, keys, site=0)

    def compile_parts(self, tokens: int) -> None:
        self.drop = torch.compile(self.drop, dynamic=False)  # type: ignore[method-assign]
