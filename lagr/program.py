"""An integer program, put together from groups of variables and what is required of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp


class Program:
    """Whole numbers from 0 up that cost as little as possible."""

    def __init__(self) -> None:
        self.costs: list[np.ndarray] = []  # of each group of variables
        self.most: list[np.ndarray] = []
        self.required: list[tuple[dict[int, Any], np.ndarray, np.ndarray]] = []

    def variables(self, costs: np.ndarray, most: Any = 1.0) -> int:
        """A group of variables, what each costs and how large it may be; the number of the group."""
        self.costs.append(costs)
        self.most.append(np.broadcast_to(most, costs.shape))
        return len(self.costs) - 1

    def require(self, parts: dict[int, Any], low: Any, high: Any) -> None:
        """low ≤ Σ matrix · variables ≤ high; parts: a matrix for some groups."""
        height = next(iter(parts.values())).shape[0]
        self.required.append((parts, np.broadcast_to(low, height), np.broadcast_to(high, height)))

    def solve(self, seconds: float, only: int | None = None) -> list[np.ndarray] | None:
        """The variables of each group; None if there are none. only: the group whose sum is made least instead."""
        costs = self.costs if only is None else [np.full(len(c), float(g == only)) for g, c in enumerate(self.costs)]
        sizes = [len(cost) for cost in costs]
        matrix = sparse.vstack(
            [
                sparse.hstack([parts.get(g, sparse.csr_array((len(low), size))) for g, size in enumerate(sizes)])
                for parts, low, _ in self.required
            ],
            format="csr",
        )
        low, high = (np.concatenate([one[end] for one in self.required]) for end in (1, 2))
        found = milp(
            np.concatenate(costs),
            integrality=np.ones(sum(sizes), np.int64),
            bounds=Bounds(0, np.concatenate(self.most)),
            constraints=LinearConstraint(matrix, low, high),
            options={"time_limit": seconds, "mip_rel_gap": 0},
        ).x
        return None if found is None else np.split(found.round(), np.cumsum(sizes)[:-1])


def incidence(rows: np.ndarray, height: int) -> Any:
    """A matrix with a 1 in each column, at the given row."""
    return sparse.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(height, len(rows)))
