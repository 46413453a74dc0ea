"""Assignment on the CPU: lapx, which solves a batch in C++ threads, where it is installed; else SciPy in threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

FORBIDDEN = 1e6  # stands for an infinite cost: far above any log-probability, with digits to spare


def solve(gain: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Problem p has rows[p] rows and columns[p] columns of gain (P, J, M).   → (P, J)"""
    if not gain.sum().isfinite():
        gain = gain.nan_to_num(-FORBIDDEN).clamp(-FORBIDDEN, FORBIDDEN)
    costs, solution = gain.detach().float().neg().numpy(), np.zeros(gain.shape[:2], dtype=np.int64)
    lap = _lapx()
    if lap is None:
        _with_scipy(costs, rows.numpy(), columns.numpy(), solution)
    else:
        _with_lapx(lap, costs, rows.numpy(), columns.numpy(), solution)
    return torch.from_numpy(solution)


def _with_lapx(lap: Any, costs: np.ndarray, rows: np.ndarray, columns: np.ndarray, solution: np.ndarray) -> None:
    """All problems in one call: padding rows cost nothing anywhere, and no real row goes to a padding column."""
    P, J, M = costs.shape
    is_row, is_column = np.arange(J) < rows[:, None], np.arange(M) < columns[:, None]
    if not (is_row.all() and is_column.all()):
        beyond = np.float32(FORBIDDEN + 2 * J * np.abs(costs).max())  # more than any sum of real costs
        costs = np.where(is_column[:, None], costs, beyond) * is_row[..., None]
    at_rows, at_columns = lap.lapjvr_batch(costs, extend_cost=True, return_cost=False, n_threads=_workers())
    solution[np.arange(P)[:, None], np.stack(at_rows)] = np.stack(at_columns)
    solution *= is_row


def _with_scipy(costs: np.ndarray, rows: np.ndarray, columns: np.ndarray, solution: np.ndarray) -> None:
    from scipy.optimize import linear_sum_assignment

    def some(problems: range) -> None:
        for p in problems:
            solution[p, : rows[p]] = linear_sum_assignment(costs[p, : rows[p], : columns[p]])[1]

    # SciPy lets go of the interpreter lock, so a few long chunks keep all cores busy.
    workers = min(_workers(), max(1, len(costs) // 64))
    list(_pool().map(some, [range(first, len(costs), workers) for first in range(workers)]))


@cache
def _lapx() -> Any:
    try:
        import lap
    except ImportError:
        return None
    return lap if hasattr(lap, "lapjvr_batch") else None


def _workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_workers(), thread_name_prefix="lagr-matching")
