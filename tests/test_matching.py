"""The solvers against SciPy and brute force. The GPU's kernel runs in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lagr.matching import best_assignment, cpu

KINDS = ("random", "tied", "negative", "infinite", "constant", "large")


def problems(kind: str, count: int = 40, most: int = 9, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Gains, rows and columns of problems of many shapes, padded with what must not matter."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, most, (count,), generator=generator)
    columns = rows + torch.randint(0, 6, (count,), generator=generator) * (
        torch.arange(count) % 3 > 0
    )  # a third is square
    columns = columns.clamp(min=1)
    gain = torch.randn(count, int(rows.max()), int(columns.max()), generator=generator) * 5
    if kind == "tied":
        gain = gain.round()
    elif kind == "negative":
        gain = gain - 100
    elif kind == "infinite":  # a few pairs are forbidden, never so many that none is left
        forbidden = torch.rand(gain.shape, generator=generator) < 0.3
        forbidden[:, torch.arange(gain.shape[1]), torch.arange(gain.shape[1])] = False
        gain = gain.masked_fill(forbidden, -torch.inf)
    elif kind == "constant":
        gain = torch.zeros_like(gain)
    elif kind == "large":
        gain = gain * 1e4
    return gain, rows, columns


def check(solve: Callable[[Tensor, Tensor, Tensor], Tensor], kind: str) -> None:
    gain, rows, columns = problems(kind)
    found = solve(gain, rows, columns)
    for p, (height, width) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        own = gain[p, :height, :width].double().numpy()
        best = own[linear_sum_assignment(own, maximize=True)].sum()
        taken = found[p, :height].tolist()
        assert len(set(taken)) == height and all(0 <= column < width for column in taken)
        assert own[np.arange(height), taken].sum() == pytest.approx(best, rel=1e-5, abs=1e-3)
        assert not found[p, height:].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", ["lapx", "scipy"])
def test_the_cpu_solves_as_scipy_does(kind: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "scipy":
        monkeypatch.setattr(cpu, "_lapx", lambda: None)
    elif cpu._lapx() is None:
        pytest.skip("lapx is not installed")
    check(cpu.solve, kind)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("kind", KINDS)
def test_the_gpu_kernel_solves_as_scipy_does(kind: str) -> None:
    """In a process of its own: the interpreter has to be chosen before the kernel is defined."""
    code = f"import test_matching as t; from lagr.matching import cuda; t.check(cuda.solve, {kind!r})"
    environment = {"TRITON_INTERPRET": "1", "PYTHONPATH": ":".join([str(__file__).rsplit("/", 1)[0], *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@given(st.integers(0, 5), st.integers(1, 6), st.integers(0, 10_000), st.booleans())
@settings(max_examples=60, deadline=None)
def test_matching_equals_brute_force(rows: int, columns: int, seed: int, tied: bool) -> None:
    rows = min(rows, columns)
    gain = torch.randn(1, 1, rows, columns, generator=torch.Generator().manual_seed(seed)) * 5
    gain = gain.round() if tied else gain
    found = best_assignment(gain, torch.tensor([rows]), torch.tensor([columns]))[0, 0]
    assert len(set(found.tolist())) == rows
    totals = [sum(float(gain[0, 0, r, c]) for r, c in enumerate(p)) for p in permutations(range(columns), rows)]
    assert sum(float(gain[0, 0, r, c]) for r, c in enumerate(found.tolist())) == pytest.approx(max(totals), abs=1e-4)
