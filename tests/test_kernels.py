"""The GPU's kernels against the plain functions they stand for, in Triton's interpreter, so on a CPU too."""

import importlib.util
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from lagr import encoders, model

ATTENTION = [
    # W, B, N, heads, width of a head, dropout
    (1, 2, 1, 1, 16, 0.0),
    (2, 3, 7, 2, 32, 0.4),
    (1, 2, 16, 4, 8, 0.1),
    (3, 1, 30, 2, 24, 0.5),
    (1, 2, 64, 1, 64, 0.2),
]
SUBLAYER = [(1, 2, 3, 8, 0.0), (2, 3, 7, 24, 0.4)]  # W, B, N, D, dropout
LSTM = [(1, 2, 1, 4, 1), (1, 2, 3, 8, 2), (2, 3, 5, 24, 2), (2, 3, 5, 24, 1)]  # W, B, N, size, directions
EDGES = [(2, 1, 1, 1), (3, 7, 5, 51), (1, 16, 2, 64), (2, 30, 11, 23), (1, 64, 3, 16)]  # B, M, E, width


def check_attention(W: int, B: int, N: int, heads: int, width: int, dropout: float) -> None:
    from lagr.kernels.attention import attention

    torch.manual_seed(N)
    projected = torch.randn(W, B, N, 3 * heads * width, requires_grad=True)
    lengths = torch.randint(1, N + 1, (B, W)).T  # no assumption about strides
    keys = torch.randint(-(2**31), 2**31 - 1, (W,), dtype=torch.int32)
    for its_keys in (None, keys):
        wanted = encoders.attention(projected, lengths, its_keys, heads, dropout)
        found = attention(projected, lengths, its_keys, heads, dropout)
        check_gradients(found, wanted, [projected], torch.randn_like(wanted))


def check_sublayer(W: int, B: int, N: int, D: int, dropout: float) -> None:
    from lagr.kernels import sublayer

    torch.manual_seed(N)
    x, y, upstream = (torch.randn(W, B, N, D) for _ in range(3))
    # As in training, parameters are windows of a table.
    table = torch.randn(W, 5 + 3 * D)
    bias, scale, shift = table[:, 5 : 5 + D].view(W, 1, D), table[:, 5 + D : 5 + 2 * D], table[:, 5 + 2 * D :]
    norm = encoders.Norm(W, D)
    norm.scale, norm.shift = torch.nn.Parameter(scale), torch.nn.Parameter(shift)
    keys = torch.randint(-(2**31), 2**31 - 1, (W,), dtype=torch.int32)
    inputs = [tensor.requires_grad_() for tensor in (x, y, bias)]
    with_norm = [*inputs, norm.scale, norm.shift]
    for its_keys in (None, keys):
        for its_bias in (None, bias):
            wanted = encoders.normalised_sum(x, y, its_bias, norm, its_keys, dropout, site=3)
            found = sublayer.normalised_sum(x, y, its_bias, norm.scale, norm.shift, its_keys, dropout, site=3)
            check_gradients(found, wanted, [i for i in with_norm if its_bias is not None or i is not bias], upstream)
        wanted, found = (f(y, bias, its_keys, dropout, 2) for f in (encoders.rectified, sublayer.rectified))
        check_gradients(found, wanted, [y, bias], upstream)


def check_lstm(W: int, B: int, N: int, size: int, directions: int) -> None:
    from lagr.kernels.lstm import recurrence

    torch.manual_seed(N)
    gates = torch.randn(W, B, N, directions, 4 * size).permute(2, 0, 3, 1, 4)  # no assumption about strides
    table = torch.randn(W * directions, 5 + 4 * size * size)  # as in training, the weights are a window of one
    weight = table[:, 5:].view(W * directions, size, 4 * size)
    hidden, cell = torch.randn(W, directions, B, 2 * size).chunk(2, dim=-1)
    inputs = [tensor.requires_grad_() for tensor in (gates, weight, hidden, cell)]
    lengths = torch.randint(0, N + 1, (B, W)).T
    states, cells, _ = recurrence(*inputs, lengths)
    wanted, wanted_cells = encoders.recurrence(*inputs, lengths)
    torch.testing.assert_close(cells, wanted_cells, atol=1e-4, rtol=1e-4)
    check_gradients(states, wanted, inputs, torch.randn_like(wanted))


def check_gradients(found: Tensor, wanted: Tensor, inputs: list[Tensor], upstream: Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    of_found, of_wanted = (torch.autograd.grad(out, inputs, upstream) for out in (found, wanted))
    torch.testing.assert_close(of_found, of_wanted, atol=1e-4, rtol=1e-4)


def check_edges(B: int, M: int, E: int, width: int) -> None:
    from lagr.kernels import edges
    from lagr.kernels.edges import edge_log_probs

    edges.ENOUGH_PROGRAMS = 2 * B  # so that a program has several labels, as it has in large batches
    torch.manual_seed(M)
    queries, keys = (torch.randn(B, M, E, width, requires_grad=True) for _ in range(2))
    wanted, found = model.edge_log_probs(queries, keys), edge_log_probs(queries, keys)
    check_gradients(found, wanted, [queries, keys], torch.randn_like(wanted))


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("kind", ["attention", "sublayer", "lstm", "edges"])
def test_a_kernel_computes_what_the_plain_function_does(kind: str) -> None:
    """In a process of its own: the interpreter has to be chosen before the kernel is defined."""
    code = f"import test_kernels as t; [t.check_{kind}(*sizes) for sizes in t.{kind.upper()}]"
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": ":".join([str(__file__).rsplit("/", 1)[0], *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
