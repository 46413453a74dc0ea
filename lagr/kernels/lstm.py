"""A step of an LSTM between its matrix products: gates, cell and state of all sentences, in one pass each way."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lagr.kernels import launch

BLOCK = 256  # numbers that a program has


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _sigmoid(x):  # type: ignore[no-untyped-def]
    return 1 / (1 + tl.exp(-x))


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _tanh(x):  # type: ignore[no-untyped-def]
    return 2 / (1 + tl.exp(-2 * x)) - 1


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _places(total, B, step, N, lengths, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where these numbers lie among states and among gates, which exist, and which belong to a token that is there."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = place < total
    row = place // SIZE  # of (W, direction, B)
    backwards = (row // B) % 2
    token = tl.where(backwards == 1, N - 1 - step, step)  # the second direction reads from the right
    length = tl.load(lengths + row // (2 * B) * B + row % B, mask=exists, other=0)
    return place, row * 4 * SIZE + place % SIZE, exists, token < length


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _gates(inputs, recurrent, at, exists, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.load(inputs + at, mask=exists, other=0.0).to(tl.float32)
    f = tl.load(inputs + at + SIZE, mask=exists, other=0.0).to(tl.float32)
    g = tl.load(inputs + at + 2 * SIZE, mask=exists, other=0.0).to(tl.float32)
    o = tl.load(inputs + at + 3 * SIZE, mask=exists, other=0.0).to(tl.float32)
    i += tl.load(recurrent + at, mask=exists, other=0.0).to(tl.float32)
    f += tl.load(recurrent + at + SIZE, mask=exists, other=0.0).to(tl.float32)
    g += tl.load(recurrent + at + 2 * SIZE, mask=exists, other=0.0).to(tl.float32)
    o += tl.load(recurrent + at + 3 * SIZE, mask=exists, other=0.0).to(tl.float32)
    return _sigmoid(i), _sigmoid(f), _tanh(g), _sigmoid(o)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _lstm_there(  # type: ignore[no-untyped-def]
    inputs, recurrent, cell, hidden, lengths, new_cell, new_hidden, total, B, step, N,
    SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place, at, exists, real = _places(total, B, step, N, lengths, SIZE, BLOCK)
    i, f, g, o = _gates(inputs, recurrent, at, exists, SIZE)
    before = tl.load(cell + place, mask=exists, other=0.0)
    after = f * before + i * g
    state = tl.load(hidden + place, mask=exists, other=0.0).to(tl.float32)
    tl.store(new_cell + place, tl.where(real, after, before), mask=exists)
    state = tl.where(real, o * _tanh(after), state)
    tl.store(new_hidden + place, state.to(new_hidden.dtype.element_ty), mask=exists)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _lstm_back(  # type: ignore[no-untyped-def]
    inputs, recurrent, cell, lengths, of_new_cell, of_new_hidden, of_gates, of_cell, of_hidden, total, B, step, N,
    SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place, at, exists, real = _places(total, B, step, N, lengths, SIZE, BLOCK)
    i, f, g, o = _gates(inputs, recurrent, at, exists, SIZE)
    before = tl.load(cell + place, mask=exists, other=0.0)
    squashed = _tanh(f * before + i * g)
    of_state = tl.load(of_new_hidden + place, mask=exists, other=0.0).to(tl.float32)
    kept = tl.load(of_new_cell + place, mask=exists, other=0.0)
    of_after = kept + of_state * o * (1 - squashed * squashed)
    kind = of_gates.dtype.element_ty
    tl.store(of_gates + at, tl.where(real, of_after * g * i * (1 - i), 0.0).to(kind), mask=exists)
    tl.store(of_gates + at + SIZE, tl.where(real, of_after * before * f * (1 - f), 0.0).to(kind), mask=exists)
    tl.store(of_gates + at + 2 * SIZE, tl.where(real, of_after * i * (1 - g * g), 0.0).to(kind), mask=exists)
    tl.store(of_gates + at + 3 * SIZE, tl.where(real, of_state * squashed * o * (1 - o), 0.0).to(kind), mask=exists)
    tl.store(of_cell + place, tl.where(real, of_after * f, kept), mask=exists)
    tl.store(of_hidden + place, tl.where(real, 0.0, of_state).to(of_hidden.dtype.element_ty), mask=exists)


def _lstm_sizes(cell: Tensor, step: int, tokens: int) -> tuple[tuple[int], dict[str, int]]:
    sizes = {"total": cell.numel(), "B": cell.shape[2], "step": step, "N": tokens, "SIZE": cell.shape[3]}
    return (triton.cdiv(cell.numel(), BLOCK),), sizes | {"BLOCK": BLOCK}


@torch.library.custom_op("lagr::lstm_step", mutates_args=())
def lstm_step(
    inputs: Tensor, recurrent: Tensor, cell: Tensor, hidden: Tensor, lengths: Tensor, step: int, tokens: int
) -> tuple[Tensor, Tensor]:
    """What encoders.lstm_step says."""
    new_cell, new_hidden = torch.empty_like(cell), torch.empty_like(hidden)
    grid, sizes = _lstm_sizes(cell, step, tokens)
    given = (inputs.contiguous(), recurrent.contiguous(), cell, hidden, lengths.contiguous())
    launch(_lstm_there, grid, *given, new_cell, new_hidden, **sizes)
    return new_cell, new_hidden


@torch.library.custom_op("lagr::lstm_step_backward", mutates_args=())
def _lstm_step_backward(
    of_cell: Tensor, of_hidden: Tensor, inputs: Tensor, recurrent: Tensor, cell: Tensor, lengths: Tensor,
    step: int, tokens: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    inputs = inputs.contiguous()
    results = (
        torch.empty_like(inputs),
        torch.empty_like(cell),
        torch.empty_like(of_hidden, memory_format=torch.contiguous_format),
    )
    grid, sizes = _lstm_sizes(cell, step, tokens)
    given = (inputs, recurrent.contiguous(), cell, lengths.contiguous(), of_cell.contiguous(), of_hidden.contiguous())
    launch(_lstm_back, grid, *given, *results, **sizes)
    return results


@lstm_step.register_fake
def _(inputs, recurrent, cell, hidden, lengths, step, tokens):  # type: ignore[no-untyped-def]
    return torch.empty_like(cell), torch.empty_like(hidden)


@_lstm_step_backward.register_fake
def _(of_cell, of_hidden, inputs, recurrent, cell, lengths, step, tokens):  # type: ignore[no-untyped-def]
    return inputs.new_empty(inputs.shape), torch.empty_like(cell), of_hidden.new_empty(of_hidden.shape)


def _lstm_setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    given, recurrent, cell, _, lengths, ctx.step, ctx.tokens = inputs
    ctx.save_for_backward(given, recurrent, cell, lengths)


def _lstm_gradient(ctx, of_cell, of_hidden):  # type: ignore[no-untyped-def]
    of_gates, of_cell, of_hidden = _lstm_step_backward(of_cell, of_hidden, *ctx.saved_tensors, ctx.step, ctx.tokens)
    return of_gates, of_gates.view(ctx.saved_tensors[1].shape), of_cell, of_hidden, None, None, None


lstm_step.register_autograd(_lstm_gradient, setup_context=_lstm_setup)
