"""Scores of all edges between the slots of a short sentence: products of small matrices, and a softmax over labels."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lagr.kernels import LEAST, launch, tile

ENOUGH_PROGRAMS = 512  # to keep a GPU busy


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
        label = tl.minimum(tl.program_id(1) * LABELS + number, E - 1)  # the last ones may do one again
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
    # Without pipelining, which would keep the vectors of several labels on chip.
    return {"M": M, "E": E, "width": width, "SIDE": tile(M), "WIDTH": tile(width), "num_stages": 1}


@torch.library.custom_op("lagr::edge_log_probs", mutates_args=())
def edge_log_probs(queries: Tensor, keys: Tensor) -> Tensor:
    """What model.edge_log_probs says.   (B, M, E, width) twice → (B, M, M, E)"""
    B, M, E, _ = queries.shape
    sizes = _edge_sizes(queries)
    log_probs = queries.new_empty(B, M, M, E, dtype=torch.float32)
    grid, warps = (B, triton.cdiv(M, LEAST)), max(1, sizes["SIDE"] // 32)
    given = (queries.contiguous(), keys.contiguous())
    launch(_edges_forward, grid, *given, log_probs, ROWS=LEAST, **sizes, num_warps=warps)
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
    grid, warps = (B, parts), max(1, sizes["SIDE"] ** 2 // 256)
    labels = triton.cdiv(E, parts)
    launch(_edges_backward, grid, *inputs, *outputs, LABELS=labels, **sizes, num_warps=warps)
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
