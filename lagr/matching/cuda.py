"""Assignment on the GPU: one launch for all problems, one warp a problem (Triton).

Shortest augmenting paths, as in SciPy (Crouse 2016): row by row, a Dijkstra search over reduced costs finds the
cheapest way to give the new row a column, moving earlier rows where that helps. The columns of a problem lie across the
lanes of a warp, so a step of the search is a few vector operations.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from lagr.kernels import launch


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _augmenting_paths(gain, n_rows, n_columns, answer, J, M, COLUMNS: tl.constexpr, FORBIDDEN: tl.constexpr):  # type: ignore[no-untyped-def]
    problem = tl.program_id(0)
    height, width = tl.load(n_rows + problem).to(tl.int32), tl.load(n_columns + problem).to(tl.int32)
    column = tl.arange(0, COLUMNS)
    exists = column < width
    first = gain + problem.to(tl.int64) * J * M
    price = tl.zeros((COLUMNS,), tl.float32)
    row_of = tl.full((COLUMNS,), -1, tl.int32)  # which row has a column

    for new in range(height):
        distance = tl.full((COLUMNS,), float("inf"), tl.float32)
        via = tl.full((COLUMNS,), -1, tl.int32)  # the row from which a column is reached
        unseen = exists
        reached = 0.0
        nearest = -1
        current = new
        while current != -1:
            costs = -tl.load(first + current * M + column, mask=exists, other=0.0)
            # An infinite cost would make infinite prices. NaN is no cost at all, and forbidden like it.
            costs = tl.where(costs == costs, tl.minimum(tl.maximum(costs, -FORBIDDEN), FORBIDDEN), FORBIDDEN)
            # The pair of a row and its column costs exactly their two prices, which gives the row's; a new row's is 0.
            row_price = tl.sum(tl.where(column == nearest, costs - price, 0.0))
            through = reached + costs - row_price - price
            better = unseen & (through < distance)
            distance = tl.where(better, through, distance)
            via = tl.where(better, current, via)
            ahead = tl.where(unseen, distance, float("inf"))
            reached = tl.min(ahead)
            nearest = tl.min(tl.where(unseen & (ahead == reached), column, COLUMNS))
            unseen = unseen & (column != nearest)
            current = tl.max(tl.where(column == nearest, row_of, -1))  # −1: a free column ends the search
        price -= tl.where(exists & (unseen == 0), reached - distance, 0.0)
        # Walk back from the free column, giving every column on the way to the row that reached it.
        while nearest != -1:
            giver = tl.max(tl.where(column == nearest, via, -1))
            before = tl.max(tl.where(row_of == giver, column, -1))  # the new row had none: the walk ends
            row_of = tl.where(column == nearest, giver, row_of)
            nearest = before
    tl.store(answer + problem * J + row_of, column, mask=row_of >= 0)


@torch.library.custom_op("lagr::assignment", mutates_args=())  # a launch of its own in compiled code
def solve(gain: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Problem p has rows[p] rows and columns[p] columns of gain (P, J, M).   → (P, J)"""
    P, J, M = gain.shape
    answer = torch.zeros(P, J, dtype=torch.int64, device=gain.device)
    lanes = max(32, triton.next_power_of_2(M))
    sizes = {"COLUMNS": lanes, "FORBIDDEN": 1e30, "num_warps": max(1, lanes // 256)}
    launch(_augmenting_paths, (P,), gain.float().contiguous(), rows, columns, answer, J, M, **sizes)
    return answer


@solve.register_fake
def _(gain, rows, columns):  # type: ignore[no-untyped-def]
    return gain.new_empty(gain.shape[:2], dtype=torch.int64)
