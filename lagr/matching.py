"""Many small linear assignment problems at once."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch
from torch import Tensor


def best_assignment(gain: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The column of every row such that no column is used twice and the total gain is as large as possible.

    gain (B, K, J, M): K problems a sentence. Of sentence b only the first rows[b] rows and columns[b] columns count,
    rows[b] ≤ columns[b]; padding rows get column 0.   → (B, K, J)
    """
    B, K, J, M = gain.shape
    costs = gain.detach().to("cpu", torch.float32).numpy().reshape(B * K, J, M)
    heights, widths = rows.cpu().numpy().repeat(K), columns.cpu().numpy().repeat(K)
    solution = np.zeros((B * K, J), dtype=np.int64)

    def solve(problems: range) -> None:
        from scipy.optimize import linear_sum_assignment

        for p in problems:
            height = heights[p]
            solution[p, :height] = linear_sum_assignment(costs[p, :height, : widths[p]], maximize=True)[1]

    # SciPy lets go of the interpreter lock, so a few long chunks keep all cores busy.
    workers = min(_workers(), max(1, B * K // 64))
    list(_pool().map(solve, [range(w, B * K, workers) for w in range(workers)]))
    return torch.from_numpy(solution).view(B, K, J).to(gain.device)


def _workers() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_workers(), thread_name_prefix="lagr-matching")
