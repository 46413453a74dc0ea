"""The GPU's kernels against the plain functions they stand for, in Triton's interpreter, so on a CPU too."""

import importlib.util
import subprocess
import sys

import pytest
import torch

from lagr import encoders, model

ATTENTION = [
    # W, B, N, heads, width of a head, dropout
    (1, 2, 1, 1, 16, 0.0),
    (2, 3, 7, 2, 32, 0.4),
    (1, 2, 16, 4, 8, 0.1),
    (3, 1, 30, 2, 24, 0.5),
    (1, 2, 64, 1, 64, 0.2),
]
EDGES = [(2, 1, 1, 1), (3, 7, 5, 51), (1, 16, 2, 64), (2, 30, 11, 23), (1, 64, 3, 16)]  # B, M, E, width


def check_attention(W: int, B: int, N: int, heads: int, width: int, dropout: float) -> None:
    from lagr import kernels

    torch.manual_seed(N)
    projected = torch.randn(W, B, N, 3 * heads * width, requires_grad=True)
    lengths = torch.randint(1, N + 1, (B, W)).T  # no assumption about strides
    keys = torch.randint(-(2**31), 2**31 - 1, (W,), dtype=torch.int32)
    for its_keys in (None, keys):
        wanted = encoders.attention(projected, lengths, its_keys, heads, dropout)
        found = kernels.attention(projected, lengths, its_keys, heads, dropout)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
        upstream = torch.randn_like(wanted)
        of_wanted, of_found = (torch.autograd.grad(out, projected, upstream)[0] for out in (wanted, found))
        torch.testing.assert_close(of_found, of_wanted, atol=1e-5, rtol=1e-4)


def check_edges(B: int, M: int, E: int, width: int) -> None:
    from lagr import kernels

    torch.manual_seed(M)
    queries, keys = (torch.randn(B, M, E, width, requires_grad=True) for _ in range(2))
    wanted, found = model.edge_log_probs(queries, keys), kernels.edge_log_probs(queries, keys)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    upstream = torch.randn_like(wanted)
    of_wanted, of_found = (torch.autograd.grad(out, (queries, keys), upstream) for out in (wanted, found))
    torch.testing.assert_close(of_found, of_wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("kind", ["attention", "edges"])
def test_a_kernel_computes_what_the_plain_function_does(kind: str) -> None:
    """In a process of its own: the interpreter has to be chosen before the kernel is defined."""
    code = f"import test_kernels as t; [t.check_{kind}(*sizes) for sizes in t.{kind.upper()}]"
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": ":".join([str(__file__).rsplit("/", 1)[0], *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
