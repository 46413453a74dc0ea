"""An LSTM over a whole sentence: between its matrix products, one launch a step each way.

Forwards a step is one product, of the state with the recurrent weights, and one kernel: gates, cell and state. Going
back it is the same; the gradient of the weights is one product for all steps, summed in float32.
"""

from __future__ import annotations

from typing import Any

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
def _places(total, B, step, N, lengths, SIZE: tl.constexpr, DIRECTIONS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where these numbers lie among states and among gates, which exist, and which belong to a token that is there."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = place < total
    row = place // SIZE  # of (W, direction, B)
    backwards = (row // B) % DIRECTIONS
    token = tl.where(backwards == 1, N - 1 - step, step)  # the second direction reads from the right
    length = tl.load(lengths + row // (DIRECTIONS * B) * B + row % B, mask=exists, other=0)
    return place, row * 4 * SIZE + place % SIZE, exists, token < length


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _gates(gates, at, exists, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.load(gates + at, mask=exists, other=0.0).to(tl.float32)
    f = tl.load(gates + at + SIZE, mask=exists, other=0.0).to(tl.float32)
    g = tl.load(gates + at + 2 * SIZE, mask=exists, other=0.0).to(tl.float32)
    o = tl.load(gates + at + 3 * SIZE, mask=exists, other=0.0).to(tl.float32)
    return _sigmoid(i), _sigmoid(f), _tanh(g), _sigmoid(o)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _lstm_there(  # type: ignore[no-untyped-def]
    gates, cell, hidden, lengths, new_cell, new_hidden, total, B, step, N,
    SIZE: tl.constexpr, DIRECTIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place, at, exists, real = _places(total, B, step, N, lengths, SIZE, DIRECTIONS, BLOCK)
    i, f, g, o = _gates(gates, at, exists, SIZE)
    before = tl.load(cell + place, mask=exists, other=0.0)
    after = f * before + i * g
    state = tl.load(hidden + place, mask=exists, other=0.0).to(tl.float32)
    tl.store(new_cell + place, tl.where(real, after, before), mask=exists)
    state = tl.where(real, o * _tanh(after), state)
    tl.store(new_hidden + place, state.to(new_hidden.dtype.element_ty), mask=exists)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _lstm_back(  # type: ignore[no-untyped-def]
    gates, cell, lengths, of_state, of_later, of_cell, of_gates, of_hidden, total, B, step, N,
    SIZE: tl.constexpr, DIRECTIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """of_state: of the state itself, of_later: of it through later steps. of_cell is brought up to date in place;
    of_hidden: what goes past the gates to the state before, where there is no token."""
    place, at, exists, real = _places(total, B, step, N, lengths, SIZE, DIRECTIONS, BLOCK)
    i, f, g, o = _gates(gates, at, exists, SIZE)
    before = tl.load(cell + place, mask=exists, other=0.0)
    squashed = _tanh(f * before + i * g)
    of_new = tl.load(of_state + place, mask=exists, other=0.0).to(tl.float32)
    of_new += tl.load(of_later + place, mask=exists, other=0.0).to(tl.float32)
    kept = tl.load(of_cell + place, mask=exists, other=0.0)
    of_after = kept + of_new * o * (1 - squashed * squashed)
    kind = of_gates.dtype.element_ty
    tl.store(of_gates + at, tl.where(real, of_after * g * i * (1 - i), 0.0).to(kind), mask=exists)
    tl.store(of_gates + at + SIZE, tl.where(real, of_after * before * f * (1 - f), 0.0).to(kind), mask=exists)
    tl.store(of_gates + at + 2 * SIZE, tl.where(real, of_after * i * (1 - g * g), 0.0).to(kind), mask=exists)
    tl.store(of_gates + at + 3 * SIZE, tl.where(real, of_new * squashed * o * (1 - o), 0.0).to(kind), mask=exists)
    tl.store(of_cell + place, tl.where(real, of_after * f, kept), mask=exists)
    tl.store(of_hidden + place, tl.where(real, 0.0, of_new).to(of_hidden.dtype.element_ty), mask=exists)


def _sizes(gates: Tensor, step: int) -> tuple[tuple[int], dict[str, int]]:
    N, W, directions, B, width = gates.shape
    total = W * directions * B * width // 4
    sizes = {"total": total, "B": B, "step": step, "N": N, "SIZE": width // 4, "DIRECTIONS": directions}
    return (triton.cdiv(total, BLOCK),), sizes | {"BLOCK": BLOCK}


def _by_copy(x: Tensor) -> Tensor:
    """(W, directions, B, n) → (W·directions, B, n), as matrix products take it."""
    return x.flatten(0, 1)


@torch.library.custom_op("lagr::recurrence", mutates_args=())
def recurrence(
    inputs: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """States and cells as encoders.recurrence says, and the gates that they come from, as `inputs`."""
    gates = inputs.clone(memory_format=torch.contiguous_format)
    hidden, cell, lengths = hidden.contiguous(), cell.contiguous(), lengths.contiguous()
    states, cells = (one.new_empty(len(gates), *one.shape) for one in (hidden, cell))
    for step in range(len(gates)):
        _by_copy(gates[step]).baddbmm_(_by_copy(hidden), weight)
        grid, sizes = _sizes(gates, step)
        launch(_lstm_there, grid, gates[step], cell, hidden, lengths, cells[step], states[step], **sizes)
        hidden, cell = states[step], cells[step]
    return states, cells, gates


@torch.library.custom_op("lagr::recurrence_backward", mutates_args=())
def _recurrence_backward(
    of_states: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, lengths: Tensor,
    states: Tensor, cells: Tensor, gates: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    of_states, lengths, back = of_states.contiguous(), lengths.contiguous(), weight.transpose(1, 2)
    hidden, cell = hidden.contiguous(), cell.contiguous()
    of_gates, of_cell, of_later = torch.empty_like(gates), torch.zeros_like(cell), torch.zeros_like(hidden)
    for step in reversed(range(len(gates))):
        past, before = torch.empty_like(hidden), cells[step - 1] if step else cell
        grid, sizes = _sizes(gates, step)
        given = (gates[step], before, lengths, of_states[step], of_later, of_cell)
        launch(_lstm_back, grid, *given, of_gates[step], past, **sizes)
        _by_copy(past).baddbmm_(_by_copy(of_gates[step]), back)
        of_later = past
    # One row for each step and sentence: (W·directions, N·B, …)
    earlier = torch.cat([hidden[None], states[:-1]]).permute(1, 2, 0, 3, 4).flatten(2, 3).flatten(0, 1)
    of_rows = of_gates.permute(1, 2, 0, 3, 4).flatten(2, 3).flatten(0, 1)
    return of_gates, torch.bmm(earlier.transpose(1, 2), of_rows), of_later, of_cell


@recurrence.register_fake
def _(inputs, weight, hidden, cell, lengths):  # type: ignore[no-untyped-def]
    shape = (len(inputs), *hidden.shape)
    return hidden.new_empty(shape), cell.new_empty(shape), inputs.new_empty(inputs.shape)


@_recurrence_backward.register_fake
def _(of_states, weight, hidden, cell, lengths, states, cells, gates):  # type: ignore[no-untyped-def]
    return tuple(one.new_empty(one.shape) for one in (gates, weight, hidden, cell))


def _setup(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[1:], *output)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # none of those


def _gradient(ctx: Any, of_states: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    return (*_recurrence_backward(of_states, *ctx.saved_tensors), None)


recurrence.register_autograd(_gradient, setup_context=_setup)
