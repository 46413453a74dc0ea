"""Attention and edge scores of short sentences on the GPU: one launch each way instead of a dozen (Triton).

Both are the functions that encoders.py and model.py write in plain torch, number for number, dropout included. A
sentence of some ten words is too small for general matrix products: here one program keeps a whole sentence on chip,
and nothing but inputs and outputs goes through memory.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_ROWS = 64  # tokens, or slots, that a program keeps on chip; longer sentences fill general products well
LEAST = 16  # the smallest side of a product that the matrix units take
ENOUGH_PROGRAMS = 512  # to keep a GPU busy


# Attention


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _scramble(x):  # type: ignore[no-untyped-def]
    """lagr.chance.scramble"""
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * 0x7FEB352D
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * -0x7B935975
    return x ^ ((x >> 16) & 0xFFFF)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _dropout_scale(key, place, THRESHOLD: tl.constexpr, KEPT: tl.constexpr):  # type: ignore[no-untyped-def]
    """What lagr.chance.dropout multiplies with at these places, at site 0."""
    bits = (place ^ _scramble(key)) * 0x2545F491
    bits = (bits ^ (bits >> 15)) * 0x7FEB352D
    bits = (bits ^ (bits >> 13)) * 0x2C1B3C6D
    return tl.where(bits >= THRESHOLD, KEPT, 0.0)


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
    sentence, head = tl.program_id(0) // H, tl.program_id(0) % H
    row, lane = tl.arange(0, SIDE), tl.arange(0, WIDTH)
    inside = (row[:, None] < N) & (lane[None, :] < width)
    first = sentence.to(tl.int64) * N
    at = ((first + row[:, None]) * 3 * H + head) * width + lane[None, :]
    query = tl.load(projected + at, mask=inside, other=0.0)
    key = tl.load(projected + at + H * width, mask=inside, other=0.0)
    value = tl.load(projected + at + 2 * H * width, mask=inside, other=0.0)
    weights = _attention_weights(query, key, tl.load(lengths + sentence), scale, row)
    if DROPS:
        place = (((sentence % B) * H + head) * N + row[:, None]) * N + row[None, :]
        weights *= _dropout_scale(tl.load(keys + sentence // B), place, THRESHOLD, KEPT)
    result = tl.dot(weights.to(value.dtype), value, input_precision="ieee")
    to = ((first + row[:, None]) * H + head) * width + lane[None, :]
    tl.store(mixed + to, result.to(mixed.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _attention_backward(  # type: ignore[no-untyped-def]
    projected, lengths, keys, gradient, result, B, N, H, width: tl.constexpr, scale,
    SIDE: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr, THRESHOLD: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """The weights are computed again: that is cheaper than keeping them."""
    sentence, head = tl.program_id(0) // H, tl.program_id(0) % H
    row, lane = tl.arange(0, SIDE), tl.arange(0, WIDTH)
    inside = (row[:, None] < N) & (lane[None, :] < width)
    first = sentence.to(tl.int64) * N
    at = ((first + row[:, None]) * 3 * H + head) * width + lane[None, :]
    query = tl.load(projected + at, mask=inside, other=0.0)
    key = tl.load(projected + at + H * width, mask=inside, other=0.0)
    value = tl.load(projected + at + 2 * H * width, mask=inside, other=0.0)
    of_mixed = tl.load(gradient + ((first + row[:, None]) * H + head) * width + lane[None, :], mask=inside, other=0.0)
    weights = _attention_weights(query, key, tl.load(lengths + sentence), scale, row)
    of_weights = tl.dot(of_mixed, tl.trans(value), input_precision="ieee")
    dropped = weights
    if DROPS:
        place = (((sentence % B) * H + head) * N + row[:, None]) * N + row[None, :]
        kept = _dropout_scale(tl.load(keys + sentence // B), place, THRESHOLD, KEPT)
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
        "SIDE": max(LEAST, triton.next_power_of_2(N)), "WIDTH": max(LEAST, triton.next_power_of_2(width)),
        "DROPS": keys is not None and dropout > 0,
        "THRESHOLD": int(dropout * 2.0**32) - 2**31, "KEPT": 1 / (1 - dropout),
    }  # fmt: skip
    return W * B * heads, sizes | {"num_warps": min(8, max(1, sizes["SIDE"] * sizes["WIDTH"] // 1024))}


def _attention_inputs(projected: Tensor, lengths: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    lengths = lengths.contiguous()
    return projected.contiguous(), lengths, lengths if keys is None else keys.contiguous()


@torch.library.custom_op("lagr::attention", mutates_args=())
def attention(projected: Tensor, lengths: Tensor, keys: Tensor | None, heads: int, dropout: float) -> Tensor:
    """What encoders.attention says.   (W, B, N, 3·D), (W, B) → (W, B, N, D)"""
    mixed = projected.new_empty(*projected.shape[:-1], projected.shape[-1] // 3)
    programs, sizes = _attention_sizes(projected, heads, dropout, keys)
    _attention_forward[(programs,)](*_attention_inputs(projected, lengths, keys), mixed, **sizes)
    return mixed


@torch.library.custom_op("lagr::attention_backward", mutates_args=())
def attention_backward(
    gradient: Tensor, projected: Tensor, lengths: Tensor, keys: Tensor | None, heads: int, dropout: float
) -> Tensor:
    result = torch.empty_like(projected, memory_format=torch.contiguous_format)
    programs, sizes = _attention_sizes(projected, heads, dropout, keys)
    inputs = _attention_inputs(projected, lengths, keys)
    _attention_backward[(programs,)](*inputs, gradient.contiguous(), result, **sizes)
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


# Edge scores


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _vectors(base, slot, label, M, E: tl.constexpr, width: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the vectors of some slots for a label lie, and which of these places exist."""
    lane = tl.arange(0, WIDTH)
    exists = (slot[:, None] < M) & (lane[None, :] < width)
    return base + (slot[:, None] * E + label) * width + lane[None, :], exists


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _edges_forward(  # type: ignore[no-untyped-def]
    queries, keys, log_probs, M,
    E: tl.constexpr, width: tl.constexpr, ROWS: tl.constexpr, SIDE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """ROWS slots of one sentence and all pairs that leave them. The scores are computed twice: for the sum, for use."""
    sentence = tl.program_id(0).to(tl.int64)
    source, target = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIDE)
    queries, keys = queries + sentence * M * E * width, keys + sentence * M * E * width
    highest = tl.full((ROWS, SIDE), float("-inf"), tl.float32)
    total = tl.zeros((ROWS, SIDE), tl.float32)
    for label in tl.range(0, E, loop_unroll_factor=4):
        at, real = _vectors(queries, source, label, M, E, width, WIDTH)
        to, other = _vectors(keys, target, label, M, E, width, WIDTH)
        query, key = tl.load(at, mask=real, other=0.0), tl.load(to, mask=other, other=0.0)
        logits = tl.dot(query, tl.trans(key), input_precision="ieee")
        higher = tl.maximum(highest, logits)
        total = total * tl.exp(highest - higher) + tl.exp(logits - higher)
        highest = higher
    normaliser = highest + tl.log(total)
    pair = log_probs + ((sentence * M + source[:, None]) * M + target[None, :]) * E
    inside = (source[:, None] < M) & (target[None, :] < M)
    for label in tl.range(0, E, loop_unroll_factor=4):
        at, real = _vectors(queries, source, label, M, E, width, WIDTH)
        to, other = _vectors(keys, target, label, M, E, width, WIDTH)
        query, key = tl.load(at, mask=real, other=0.0), tl.load(to, mask=other, other=0.0)
        tl.store(pair + label, tl.dot(query, tl.trans(key), input_precision="ieee") - normaliser, mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _edges_backward(  # type: ignore[no-untyped-def]
    queries, keys, log_probs, gradient, of_queries, of_keys, M,
    E: tl.constexpr, width: tl.constexpr, LABELS: tl.constexpr, SIDE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """LABELS labels in one sentence."""
    sentence, slot = tl.program_id(0).to(tl.int64), tl.arange(0, SIDE)
    inside = (slot[:, None] < M) & (slot[None, :] < M)
    pair = ((sentence * M + slot[:, None]) * M + slot[None, :]) * E
    total = tl.zeros((SIDE, SIDE), tl.float32)
    for label in tl.range(0, E, loop_unroll_factor=4):
        total += tl.load(gradient + pair + label, mask=inside, other=0.0)
    for number in range(LABELS):
        label = tl.minimum(tl.program_id(1) * LABELS + number, E - 1)  # the last program may do one twice
        chance = tl.exp(tl.load(log_probs + pair + label, mask=inside, other=float("-inf")))
        of_logits = tl.load(gradient + pair + label, mask=inside, other=0.0) - chance * total
        at, real = _vectors(sentence * M * E * width, slot, label, M, E, width, WIDTH)
        query, key = tl.load(queries + at, mask=real, other=0.0), tl.load(keys + at, mask=real, other=0.0)
        of_logits = of_logits.to(query.dtype)
        of_query = tl.dot(of_logits, key, input_precision="ieee")
        of_key = tl.dot(tl.trans(of_logits), query, input_precision="ieee")
        tl.store(of_queries + at, of_query.to(of_queries.dtype.element_ty), mask=real)
        tl.store(of_keys + at, of_key.to(of_keys.dtype.element_ty), mask=real)


def _edge_sizes(queries: Tensor) -> dict[str, int]:
    _, M, E, width = queries.shape
    side, lanes = (max(LEAST, triton.next_power_of_2(size)) for size in (M, width))
    return {"M": M, "E": E, "width": width, "SIDE": side, "WIDTH": lanes}


@torch.library.custom_op("lagr::edge_log_probs", mutates_args=())
def edge_log_probs(queries: Tensor, keys: Tensor) -> Tensor:
    """What model.edge_log_probs says.   (B, M, E, width) twice → (B, M, M, E)"""
    B, M, E, _ = queries.shape
    sizes = _edge_sizes(queries)
    log_probs = queries.new_empty(B, M, M, E, dtype=torch.float32)
    grid, warps = (B, triton.cdiv(M, LEAST)), max(1, sizes["SIDE"] // 32)
    _edges_forward[grid](queries.contiguous(), keys.contiguous(), log_probs, ROWS=LEAST, **sizes, num_warps=warps)
    return log_probs


@torch.library.custom_op("lagr::edge_log_probs_backward", mutates_args=())
def edge_log_probs_backward(
    gradient: Tensor, log_probs: Tensor, queries: Tensor, keys: Tensor
) -> tuple[Tensor, Tensor]:
    B, _, E, _ = queries.shape
    inputs = (queries.contiguous(), keys.contiguous(), log_probs, gradient.contiguous())
    outputs = torch.empty_like(inputs[0]), torch.empty_like(inputs[1])
    sizes = _edge_sizes(queries)
    parts = min(E, max(1, ENOUGH_PROGRAMS // B))  # a sentence's labels are shared out where there are few sentences
    grid, warps = (B, parts), max(1, sizes["SIDE"] ** 2 // 512)
    _edges_backward[grid](*inputs, *outputs, LABELS=triton.cdiv(E, parts), **sizes, num_warps=warps)
    return outputs


@edge_log_probs.register_fake
def _(queries, keys):  # type: ignore[no-untyped-def]
    B, M, E, _ = queries.shape
    return queries.new_empty(B, M, M, E, dtype=torch.float32)


@edge_log_probs_backward.register_fake
def _(gradient, log_probs, queries, keys):  # type: ignore[no-untyped-def]
    return queries.new_empty(queries.shape), keys.new_empty(keys.shape)


def _edges_setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.save_for_backward(output, *inputs)


def _edges_gradient(ctx, gradient):  # type: ignore[no-untyped-def]
    return edge_log_probs_backward(gradient, *ctx.saved_tensors)


edge_log_probs.register_autograd(_edges_gradient, setup_context=_edges_setup)
