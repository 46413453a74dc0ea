"""What stands between the matrix products of a Transformer layer, each way in one pass over memory.

normalised_sum:  norm(x + dropout(y + bias))
rectified:       dropout(relu(y + bias))
Going back starts from the inputs again; that costs less than keeping what was in between. A program has some rows of
one copy and sums what they give to the parameters; the sums of all programs are added at the end.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lagr.kernels import launch
from lagr.kernels.chance import dropout_scale, dropout_sizes

# A program is one warp where it can be: its sums over rows then stay within a thread. Across warps they took longer
# than all the rest. With eight rows or more to a program, the sums of all programs are few.
ROWS, LANES_OF_A_WARP = 2, 512  # that a program works on at a time
LEAST_ROWS, PROGRAMS = 8, 1056  # of a program; of all copies together
EPSILON = tl.constexpr(1e-5)  # layer normalisation's


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _some_rows(done, rows, rows_each, ROWS: tl.constexpr, D: tl.constexpr, LANES: tl.constexpr):  # type: ignore[no-untyped-def]
    """The places of ROWS rows of this program within its copy, and which of them exist."""
    lane, within = tl.arange(0, LANES), done + tl.arange(0, ROWS)
    row = tl.program_id(1) * rows_each + within
    exists = ((row < rows) & (within < rows_each))[:, None] & (lane < D)[None, :]
    return row[:, None] * D + lane[None, :], exists


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _parameter(start, stride, D: tl.constexpr, LANES: tl.constexpr, PRESENT: tl.constexpr):  # type: ignore[no-untyped-def]
    """This copy's vector; zeros where there is none."""
    if PRESENT:
        lane = tl.arange(0, LANES)
        return tl.load(start + tl.program_id(0).to(tl.int64) * stride + lane, mask=lane < D, other=0.0)[None, :]
    else:
        return tl.zeros((1, LANES), tl.float32)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _normal(x, change, exists, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """x + change with mean 0 and variance 1, and what it was multiplied with."""
    total = tl.where(exists, x + change, 0.0)
    centred = tl.where(exists, total - tl.sum(total, axis=1)[:, None] / D, 0.0)
    steepness = tl.rsqrt(tl.sum(centred * centred, axis=1)[:, None] / D + EPSILON)
    return centred * steepness, steepness


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _sublayer_there(  # type: ignore[no-untyped-def]
    x, y, bias, scale, shift, keys, out, bias_stride, scale_stride, shift_stride, rows, rows_each,
    NORM: tl.constexpr, BIAS: tl.constexpr, D: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr,
    DROPS: tl.constexpr, SITE: tl.constexpr, THRESHOLD: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    base = tl.program_id(0).to(tl.int64) * rows * D
    added = _parameter(bias, bias_stride, D, LANES, BIAS)
    stretch, moved = _parameter(scale, scale_stride, D, LANES, NORM), _parameter(shift, shift_stride, D, LANES, NORM)
    for done in range(0, rows_each, ROWS):
        place, exists = _some_rows(done, rows, rows_each, ROWS, D, LANES)
        result = tl.load(y + base + place, mask=exists, other=0.0).to(tl.float32) + added
        if not NORM:
            result = tl.maximum(result, 0.0)
        if DROPS:
            result *= dropout_scale(tl.load(keys + tl.program_id(0)), place, SITE, THRESHOLD, KEPT)
        if NORM:
            before = tl.load(x + base + place, mask=exists, other=0.0).to(tl.float32)
            normal, _ = _normal(before, result, exists, D)
            result = normal * stretch + moved
        tl.store(out + base + place, result.to(out.dtype.element_ty), mask=exists)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _sublayer_back(  # type: ignore[no-untyped-def]
    x, y, bias, scale, keys, gradient, of_x, of_y, sums, bias_stride, scale_stride, rows, rows_each,
    NORM: tl.constexpr, BIAS: tl.constexpr, D: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr,
    DROPS: tl.constexpr, SITE: tl.constexpr, THRESHOLD: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    base = tl.program_id(0).to(tl.int64) * rows * D
    added = _parameter(bias, bias_stride, D, LANES, BIAS)
    stretch = _parameter(scale, scale_stride, D, LANES, NORM)
    of_bias = tl.zeros((ROWS, LANES), tl.float32)
    of_scale = tl.zeros((ROWS, LANES), tl.float32)
    of_shift = tl.zeros((ROWS, LANES), tl.float32)
    for done in range(0, rows_each, ROWS):
        place, exists = _some_rows(done, rows, rows_each, ROWS, D, LANES)
        change = tl.load(y + base + place, mask=exists, other=0.0).to(tl.float32) + added
        of_change = tl.load(gradient + base + place, mask=exists, other=0.0).to(tl.float32)
        kept = tl.full((ROWS, LANES), 1.0, tl.float32)
        if DROPS:
            kept = dropout_scale(tl.load(keys + tl.program_id(0)), place, SITE, THRESHOLD, KEPT)
        if NORM:
            before = tl.load(x + base + place, mask=exists, other=0.0).to(tl.float32)
            normal, steepness = _normal(before, change * kept, exists, D)
            of_scale += of_change * normal
            of_shift += of_change
            of_change *= stretch
            across = tl.sum(of_change, axis=1)[:, None] + normal * tl.sum(of_change * normal, axis=1)[:, None]
            of_change = tl.where(exists, (of_change - across / D) * steepness, 0.0)
            tl.store(of_x + base + place, of_change.to(of_x.dtype.element_ty), mask=exists)
        else:
            of_change = tl.where(change > 0, of_change, 0.0)
        of_change *= kept
        of_bias += of_change
        tl.store(of_y + base + place, of_change.to(of_y.dtype.element_ty), mask=exists)
    lane = tl.arange(0, LANES)
    at = sums + (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * 3 * D + lane
    tl.store(at, tl.sum(of_bias, axis=0), mask=lane < D)
    tl.store(at + D, tl.sum(of_scale, axis=0), mask=lane < D)
    tl.store(at + 2 * D, tl.sum(of_shift, axis=0), mask=lane < D)


def _sublayer_sizes(
    y: Tensor, keys: Tensor | None, dropout: float, site: int
) -> tuple[tuple[int, int], dict[str, Any]]:
    W, D = y.shape[0], y.shape[-1]
    rows = y.numel() // W // D
    programs, lanes = max(1, min(triton.cdiv(rows, LEAST_ROWS), PROGRAMS // W)), triton.next_power_of_2(D)
    sizes = {
        "rows": rows, "rows_each": triton.cdiv(rows, programs), "D": D, "LANES": lanes, "ROWS": ROWS, "SITE": site,
        "num_warps": max(1, lanes // LANES_OF_A_WARP), **dropout_sizes(dropout, keys),
    }  # fmt: skip
    return (W, programs), sizes


def _whole(tensor: Tensor | None, stand_in: Tensor) -> Tensor:
    """A tensor without gaps; something that is never read where there is none."""
    return stand_in if tensor is None else tensor.contiguous()


def _stride(parameter: Tensor | None) -> int:
    """From one copy of a parameter to the next: parameters may be windows of a table, which aren't worth a copy."""
    return 0 if parameter is None else parameter.stride(0)


@torch.library.custom_op("lagr::sublayer", mutates_args=())
def _sublayer(
    x: Tensor | None, y: Tensor, bias: Tensor | None, scale: Tensor | None, shift: Tensor | None,
    keys: Tensor | None, dropout: float, site: int,
) -> Tensor:  # fmt: skip
    y = y.contiguous()
    out = torch.empty_like(y)
    grid, sizes = _sublayer_sizes(y, keys, dropout, site)
    inputs = (_whole(x, y), y, *(y if p is None else p for p in (bias, scale, shift)), _whole(keys, y))
    strides = (_stride(p) for p in (bias, scale, shift))
    launch(_sublayer_there, grid, *inputs, out, *strides, NORM=x is not None, BIAS=bias is not None, **sizes)
    return out


@torch.library.custom_op("lagr::sublayer_backward", mutates_args=())
def _sublayer_backward(
    gradient: Tensor, x: Tensor | None, y: Tensor, bias: Tensor | None, scale: Tensor | None,
    keys: Tensor | None, dropout: float, site: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    y = y.contiguous()
    of_y = torch.empty_like(y)
    of_x = of_y if x is None else torch.empty_like(y)
    grid, sizes = _sublayer_sizes(y, keys, dropout, site)
    sums = y.new_empty(*grid, 3, y.shape[-1], dtype=torch.float32)
    inputs = (_whole(x, y), y, *(y if p is None else p for p in (bias, scale)), _whole(keys, y), _whole(gradient, y))
    strides = (_stride(p) for p in (bias, scale))
    outputs, given = (of_x, of_y, sums), {"NORM": x is not None, "BIAS": bias is not None}
    launch(_sublayer_back, grid, *inputs, *outputs, *strides, **given, **sizes)
    return y.new_empty(0) if x is None else of_x, of_y, sums.sum(1)


@_sublayer.register_fake
def _(x, y, bias, scale, shift, keys, dropout, site):  # type: ignore[no-untyped-def]
    return y.new_empty(y.shape)


@_sublayer_backward.register_fake
def _(gradient, x, y, bias, scale, keys, dropout, site):  # type: ignore[no-untyped-def]
    of_x = y.new_empty(0 if x is None else y.shape)
    return of_x, y.new_empty(y.shape), y.new_empty(y.shape[0], 3, y.shape[-1], dtype=torch.float32)


def _sublayer_setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    x, y, bias, scale, _, keys, ctx.dropout, ctx.site = inputs
    ctx.save_for_backward(x, y, bias, scale, keys)


def _sublayer_gradient(ctx, gradient):  # type: ignore[no-untyped-def]
    x, y, bias, scale, keys = ctx.saved_tensors
    of_x, of_y, sums = _sublayer_backward(gradient, x, y, bias, scale, keys, ctx.dropout, ctx.site)
    of_bias = None if bias is None else sums[:, :1]
    if x is None:
        return None, of_y, of_bias, None, None, None, None, None
    return of_x, of_y, of_bias, sums[:, 1], sums[:, 2], None, None, None


_sublayer.register_autograd(_sublayer_gradient, setup_context=_sublayer_setup)


def normalised_sum(
    x: Tensor, y: Tensor, bias: Tensor | None, scale: Tensor, shift: Tensor,
    keys: Tensor | None, dropout: float, site: int,
) -> Tensor:  # fmt: skip
    """What encoders.normalised_sum says.   (W, …, D)"""
    result: Tensor = _sublayer(x, y, bias, scale, shift, keys, dropout, site)
    return result


def rectified(y: Tensor, bias: Tensor | None, keys: Tensor | None, dropout: float, site: int) -> Tensor:
    """What encoders.rectified says.   (W, …, D)"""
    result: Tensor = _sublayer(None, y, bias, None, None, keys, dropout, site)
    return result
