"""Edges that agree with valencies: how many edges of each label leave and enter a node.

Labels that are chosen one by one need not fit together: a verb may be sure to have one agent, while no single edge
says so, or two do. Here the edges are chosen together, so that

    Σ edges (log p(label) − log p(null))  +  Σ nodes, labels (log p(number that leave) + log p(number that enter))

is as large as possible. Three ways find the same answer, each where the one before it can't:
where the likeliest labels agree already, they are the answer (decode.py looks for that, for whole batches);
else each label is an assignment problem, whose answer holds if it breaks no rule that it leaves out;
else all labels together are an integer program.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp

NEVER = -1e4  # stands for log 0: far below any other sum, and small enough for a solver's tolerances
TOLERANCE = 1e-6


def best_edges(gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray) -> np.ndarray:
    """The label of every ordered pair of n nodes, 0 for none.   (n, n)

    gain (n, n, E): what an edge of a label gains over none, labels counted from 1 (gain[..., 0] is label 1's).
    leaving, entering (n, E, C + 1): log-probabilities of 0, 1, …, C edges; more than C are impossible.
    """
    gain, leaving, entering = (np.maximum(np.nan_to_num(x, neginf=NEVER), NEVER) for x in (gain, leaving, entering))
    chosen = np.stack([_assignment(gain[..., e], leaving[:, e], entering[:, e]) for e in range(gain.shape[2])], axis=2)
    if not _is_exact(chosen, leaving, entering):
        chosen = _program(gain, leaving, entering)
    return np.where(chosen.any(2), chosen.argmax(2) + 1, 0)


def total(labels: np.ndarray, gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray) -> float:
    """What a choice of edges is worth."""
    chosen = labels[..., None] == np.arange(1, gain.shape[2] + 1)
    out, into = chosen.sum(1), chosen.sum(0)
    if max(out.max(initial=0), into.max(initial=0)) >= leaving.shape[2]:
        return -np.inf
    numbers = sum(np.take_along_axis(x, n[..., None], 2).sum() for x, n in ((leaving, out), (entering, into)))
    return float(gain[chosen].sum() + numbers)


def _assignment(gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray) -> np.ndarray:
    """How often each pair is chosen if parallel edges were allowed, and more edges never gained more than fewer.

    A node stands in the problem C times; its c-th edge brings what the number c gains over c − 1.   (n, n)
    """
    n, C = len(gain), leaving.shape[1] - 1
    first, second = (np.diff(_concave(x), axis=1) for x in (leaving, entering))  # (n, C)
    worth = gain[:, None, :, None] + first[:, :, None, None] + second[None, None]
    worth = worth.reshape(n * C, n * C)
    rows, columns = linear_sum_assignment(np.maximum(worth, 0), maximize=True)
    taken = worth[rows, columns] > 0
    chosen = np.zeros((n, n), np.int64)
    np.add.at(chosen, (rows[taken] // C, columns[taken] // C), 1)
    return chosen


def _concave(values: np.ndarray) -> np.ndarray:
    """The least concave function above the values of each row, at 0, 1, …, C."""
    result = values.copy()
    C = values.shape[1] - 1
    for low in range(C + 1):
        for high in range(low + 2, C + 1):
            for between in range(low + 1, high):
                share = (between - low) / (high - low)
                line = (1 - share) * values[:, low] + share * values[:, high]
                result[:, between] = np.maximum(result[:, between], line)
    return result


def _is_exact(chosen: np.ndarray, leaving: np.ndarray, entering: np.ndarray) -> bool:
    """Whether the assignments keep the rules they left out: one edge a pair, and numbers worth what they claimed."""
    if (chosen.sum(2) > 1).any():
        return False
    for x, numbers in ((leaving, chosen.sum(1)), (entering, chosen.sum(0))):
        flat, picked = x.reshape(-1, x.shape[2]), numbers.reshape(-1, 1)
        claimed = np.take_along_axis(_concave(flat), picked, 1)
        if (claimed > np.take_along_axis(flat, picked, 1) + TOLERANCE).any():
            return False
    return True


def _program(gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray) -> np.ndarray:
    """All labels together, as an integer program over edges, numbers that leave and numbers that enter.   (n, n, E)"""
    n, _, E = gain.shape
    C = leaving.shape[2] - 1
    # An edge that loses even with the best that its two ends could make of it is in no best graph.
    most = [np.diff(x, axis=2).max(2) for x in (leaving, entering)]
    source, target, label = np.nonzero(gain + most[0][:, None] + most[1][None] > 0)
    chosen = np.zeros((n, n, E), np.int64)
    if not len(source):
        return chosen
    out, into = (_incidence(end * E + label, n * E) for end in (source, target))
    pair = _incidence(np.unique(source * n + target, return_inverse=True)[1])
    each = sparse.eye_array(n * E)
    count, one = (sparse.kron(each, row[None]) for row in (np.arange(C + 1), np.ones(C + 1)))
    rules = [
        LinearConstraint(sparse.block_array(blocks, format="csr"), low, high)
        for blocks, low, high in (
            ([[out, -count, None], [into, None, -count]], 0, 0),  # the edges at an end are as many as its number says
            ([[_nothing(one, out), one, None], [None, None, one]], 1, 1),  # an end has one number
            ([[pair, _nothing(pair, one), _nothing(pair, one)]], 0, 1),  # a pair has at most one edge
        )
    ]
    worth = np.concatenate([gain[source, target, label], leaving.reshape(-1), entering.reshape(-1)])
    whole = np.ones(len(worth), np.int64)
    found = milp(-worth, integrality=whole, bounds=Bounds(0, 1), constraints=rules)
    assert found.x is not None  # no edges, and the number 0 everywhere, keep all rules
    taken = found.x[: len(source)] > 0.5
    chosen[source[taken], target[taken], label[taken]] = 1
    return chosen


def _incidence(rows: np.ndarray, height: int | None = None) -> Any:
    """A matrix with a 1 in each column, at the given row."""
    height = int(rows.max()) + 1 if height is None else height
    return sparse.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(height, len(rows)))


def _nothing(rows_of: Any, columns_of: Any) -> Any:
    return sparse.csr_array((rows_of.shape[0], columns_of.shape[1]))
