"""Attention over a short sentence: one program has a head of a sentence, and keeps it on chip."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from lagr.kernels import launch, tile
from lagr.kernels.chance import dropout_scale, dropout_sizes


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _head_of_a_sentence(projected, sentence, head, N, H, width: tl.constexpr, SIDE: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Queries, keys and values; where they lie among projections, and their results among results; which exist."""
    row, lane = tl.arange(0, SIDE)[:, None], tl.arange(0, WIDTH)[None, :]
    inside = (row < N) & (lane < width)
    first = sentence.to(tl.int64) * N
    at = ((first + row) * 3 * H + head) * width + lane
    query = tl.load(projected + at, mask=inside, other=0.0)
    key = tl.load(projected + at + H * width, mask=inside, other=0.0)
    value = tl.load(projected + at + 2 * H * width, mask=inside, other=0.0)
    return query, key, value, at, ((first + row) * H + head) * width + lane, inside


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _attention_weights(query, key, length, scale, column):  # type: ignore[no-untyped-def]
    scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
    scores = tl.where(column[None, :] < length, scores, float("-inf"))
    scores = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    return scores / tl.sum(scores, axis=1)[:, None]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _attention_forward(  # type: ignore[no-untyped-def]
    projected, lengths, keys, mixed, B, N, H, width: tl.constexpr, scale,
    SIDE: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr, THRESHOLD: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    sentence, head, row = tl.program_id(0) // H, tl.program_id(0) % H, tl.arange(0, SIDE)
    query, key, value, _, to, inside = _head_of_a_sentence(projected, sentence, head, N, H, width, SIDE, WIDTH)
    weights = _attention_weights(query, key, tl.load(lengths + sentence), scale, row)
    if DROPS:
        place = (((sentence % B) * H + head) * N + row[:, None]) * N + row[None, :]
        weights *= dropout_scale(tl.load(keys + sentence // B), place, 0, THRESHOLD, KEPT)
    result = tl.dot(weights.to(value.dtype), value, input_precision="ieee")
    tl.store(mixed + to, result.to(mixed.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _attention_backward(  # type: ignore[no-untyped-def]
    projected, lengths, keys, gradient, result, B, N, H, width: tl.constexpr, scale,
    SIDE: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr, THRESHOLD: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """The weights are computed again: that is cheaper than keeping them."""
    sentence, head, row = tl.program_id(0) // H, tl.program_id(0) % H, tl.arange(0, SIDE)
    query, key, value, at, to, inside = _head_of_a_sentence(projected, sentence, head, N, H, width, SIDE, WIDTH)
    of_mixed = tl.load(gradient + to, mask=inside, other=0.0)
    weights = _attention_weights(query, key, tl.load(lengths + sentence), scale, row)
    of_weights = tl.dot(of_mixed, tl.trans(value), input_precision="ieee")
    dropped = weights
    if DROPS:
        place = (((sentence % B) * H + head) * N + row[:, None]) * N + row[None, :]
        kept = dropout_scale(tl.load(keys + sentence // B), place, 0, THRESHOLD, KEPT)
        dropped = weights * kept
        of_weights *= kept
    of_value = tl.dot(tl.trans(dropped.to(of_mixed.dtype)), of_mixed, input_precision="ieee")
    of_scores = weights * (of_weights - tl.sum(of_weights * weights, axis=1)[:, None]) * scale
    of_scores = of_scores.to(query.dtype)
    of_query = tl.dot(of_scores, key, input_precision="ieee")
    of_key = tl.dot(tl.trans(of_scores), query, input_precision="ieee")
    tl.store(result + at, of_query.to(result.dtype.element_ty), mask=inside)
    tl.store(result + at + H * width, of_key.to(result.dtype.element_ty), mask=inside)
    tl.store(result + at + 2 * H * width, of_value.to(result.dtype.element_ty), mask=inside)


def _attention_sizes(projected: Tensor, heads: int, dropout: float, keys: Tensor | None) -> tuple[int, dict[str, int]]:
    W, B, N, D = projected.shape
    width = D // 3 // heads
    sizes = {
        "B": B, "N": N, "H": heads, "width": width, "scale": 1 / math.sqrt(width),
        "SIDE": tile(N), "WIDTH": tile(width),
    }  # fmt: skip
    return W * B * heads, sizes | dropout_sizes(dropout, keys) | {
        "num_warps": min(8, max(1, sizes["SIDE"] * sizes["WIDTH"] // 1024))
    }


def _attention_inputs(projected: Tensor, lengths: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    lengths = lengths.contiguous()
    return projected.contiguous(), lengths, lengths if keys is None else keys.contiguous()


@torch.library.custom_op("lagr::attention", mutates_args=())
def attention(projected: Tensor, lengths: Tensor, keys: Tensor | None, heads: int, dropout: float) -> Tensor:
    """What encoders.attention says.   (W, B, N, 3·D), (W, B) → (W, B, N, D)"""
    mixed = projected.new_empty(*projected.shape[:-1], projected.shape[-1] // 3)
    programs, sizes = _attention_sizes(projected, heads, dropout, keys)
    launch(_attention_forward, (programs,), *_attention_inputs(projected, lengths, keys), mixed, **sizes)
    return mixed


@torch.library.custom_op("lagr::attention_backward", mutates_args=())
def attention_backward(
    gradient: Tensor, projected: Tensor, lengths: Tensor, keys: Tensor | None, heads: int, dropout: float
) -> Tensor:
    result = torch.empty_like(projected, memory_format=torch.contiguous_format)
    programs, sizes = _attention_sizes(projected, heads, dropout, keys)
    inputs = _attention_inputs(projected, lengths, keys)
    launch(_attention_backward, (programs,), *inputs, gradient.contiguous(), result, **sizes)
    return result


@attention.register_fake
def _(projected, lengths, keys, heads, dropout):  # type: ignore[no-untyped-def]
    return projected.new_empty(*projected.shape[:-1], projected.shape[-1] // 3)


@attention_backward.register_fake
def _(gradient, projected, lengths, keys, heads, dropout):  # type: ignore[no-untyped-def]
    return projected.new_empty(projected.shape)


def _attention_setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    projected, lengths, keys, ctx.heads, ctx.dropout = inputs
    ctx.save_for_backward(projected, lengths, keys)


def _attention_gradient(ctx, gradient):  # type: ignore[no-untyped-def]
    return attention_backward(gradient, *ctx.saved_tensors, ctx.heads, ctx.dropout), None, None, None, None


attention.register_autograd(_attention_gradient, setup_context=_attention_setup)
