"""Edges that agree with valencies: which edge labels leave a node, which enter it, and how many of each.

Labels that are chosen one by one need not fit together: a verb may be sure to have one agent, while no single edge
says so, or two do. Here edges and valencies are chosen together, so that

    w · Σ edges (log p(label) − log p(null))  +  Σ nodes (log p(what leaves) + log p(what enters))

is as large as possible, and every node has the edges that its valencies say. w = EDGE_WEIGHT is small: valencies say
how many edges there are, and edges say between whom. In a sentence longer than any in training, the score of a pair far
apart is the wildest guess that a model makes, and each pair guesses for itself.

Three ways find the same answer, each where the one before it can't: where the likeliest edges have the likeliest
valencies, they are the answer (decode.py looks for that, for whole batches); where the likeliest valencies fit
together, each label is an assignment problem, whose answer holds if no other valencies could gain as much as they
lose; else all is one integer program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp

EDGE_WEIGHT = 0.1
HOPELESS = 25.0  # valencies that are so much less likely than the likeliest are not tried: e^−25
SECONDS = 0.5  # that an integer program may take


@dataclass(frozen=True)
class Valencies:
    """What the numbers of valencies mean."""

    leaving: np.ndarray  # (valencies, E), how many edges of each label; the first has none
    entering: np.ndarray
    most: int = 0  # this number of edges means as many or more; 0: all numbers are exact


def best_edges(gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray, known: Valencies) -> np.ndarray:
    """The label of every ordered pair of n nodes, 0 for none.   (n, n)

    gain (n, n, E): what an edge of a label gains over none, labels counted from 1 (gain[..., 0] is label 1's).
    leaving, entering (n, valencies): log-probabilities.
    """
    chosen = _fitting(gain, leaving, entering, known)
    if chosen is None:
        chosen = _program(gain, leaving, entering, known)
    return np.where(chosen.any(2), chosen.argmax(2) + 1, 0)


def total(labels: np.ndarray, gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray, known: Valencies) -> float:
    """What a choice of edges is worth; −∞ if a node has a valency that is not known."""
    chosen = labels[..., None] == np.arange(1, gain.shape[2] + 1)
    worth = EDGE_WEIGHT * float(gain[chosen].sum())
    for log_probs, table, counts in (
        (leaving, known.leaving, chosen.sum(1)), (entering, known.entering, chosen.sum(0))
    ):  # fmt: skip
        counts = np.minimum(counts, known.most) if known.most else counts
        same = (counts[:, None] == table[None]).all(2)  # (n, valencies)
        if not same.any(1).all():
            return -np.inf
        worth += float(log_probs[same].sum())
    return worth


def _fitting(gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray, known: Valencies) -> np.ndarray | None:
    """The edges between nodes of the likeliest valencies, if these fit and no others can be better.   (n, n, E)"""
    gives, takes = known.leaving[leaving.argmax(1)], known.entering[entering.argmax(1)]  # (n, E)
    if known.most or (gives.sum(0) != takes.sum(0)).any():
        return None
    chosen = np.zeros(gain.shape, np.int64)
    for label in np.flatnonzero(gives.any(0)):
        givers, takers = (np.repeat(np.arange(len(gain)), x[:, label]) for x in (gives, takes))
        rows, columns = linear_sum_assignment(gain[..., label][givers[:, None], takers], maximize=True)
        np.add.at(chosen[..., label], (givers[rows], takers[columns]), 1)
    if (chosen.sum(2) > 1).any():
        return None
    # Other valencies fit only if two nodes change theirs, or one both; edges can't gain more than all that gain at all.
    gaps = np.sort(np.concatenate([_gap(leaving), _gap(entering)]))
    best = np.maximum(gain, 0).max(2).sum()
    return chosen if EDGE_WEIGHT * (best - gain[chosen > 0].sum()) <= gaps[:2].sum() else None


def _gap(log_probs: np.ndarray) -> np.ndarray:
    """How much less likely than the likeliest the second likeliest is.   (n, valencies) → (n,)"""
    if log_probs.shape[1] == 1:
        return np.full(len(log_probs), np.inf)
    second, first = np.partition(log_probs, -2, axis=1)[:, -2:].T
    return first - second  # type: ignore[no-any-return]


def _program(gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray, known: Valencies) -> np.ndarray:
    """All labels together, as an integer program over edges and valencies.   (n, n, E)"""
    n, _, E = gain.shape
    chosen = np.zeros(gain.shape, np.int64)
    ways = []
    for log_probs, table in ((leaving, known.leaving), (entering, known.entering)):
        possible = log_probs > log_probs.max(1, keepdims=True) - HOPELESS
        possible[:, 0] = True  # so that no edges at all are always possible
        ways.append((log_probs, table, *np.nonzero(possible)))
    able = [_able(node, table[number], n) for _, table, node, number in ways]  # (n, E): has a valency with the label
    source, target, label = np.nonzero(able[0][:, None] & able[1][None])
    if not len(source):
        return chosen
    edges, pair = len(source), np.unique(source * n + target, return_inverse=True)[1]
    sizes = [edges, *(len(node) for _, _, node, _ in ways)]
    rules = [LinearConstraint(_columns([_incidence(pair), None, None], sizes), 0, 1)]  # a pair has one edge at most
    for way, (_, table, node, number) in enumerate(ways):
        rules.append(LinearConstraint(_columns([None, *_of(way, _incidence(node, n))], sizes), 1, 1))  # one valency
        # The edges of a label at a node are as many as its valency says; or more, if the number is the most there is.
        at = _incidence((source, target)[way] * E + label, n * E)
        least = table[number]  # (columns, E)
        for bound, low, high in (
            (least, 0, np.inf),
            (np.where((least == known.most) & (least > 0), n, least), -np.inf, 0),
        ):
            columns, labels = np.nonzero(bound)
            says = sparse.csr_array(
                (-bound[columns, labels], (node[columns] * E + labels, columns)), shape=(n * E, len(node))
            )
            rules.append(LinearConstraint(_columns([at, *_of(way, says)], sizes), low, high))
    worth = np.concatenate(
        [EDGE_WEIGHT * gain[source, target, label], *(log_probs[node, number] for log_probs, _, node, number in ways)]
    )
    found = milp(
        -worth,
        integrality=np.ones(len(worth), np.int64),
        bounds=Bounds(0, 1),
        constraints=rules,
        options={"time_limit": SECONDS},
    )
    if found.x is None:  # the time was up before anything was found that fits: the likeliest labels, one by one
        likeliest = gain.argmax(2)
        source, target = np.nonzero(gain.max(2) > 0)
        chosen[source, target, likeliest[source, target]] = 1
        return chosen
    taken = found.x[:edges] > 0.5
    chosen[source[taken], target[taken], label[taken]] = 1
    return chosen


def _able(node: np.ndarray, counts: np.ndarray, n: int) -> np.ndarray:
    """Which nodes have a valency with an edge of a label.   (n, E)"""
    able = np.zeros((n, counts.shape[1]), bool)
    np.logical_or.at(able, node, counts > 0)
    return able


def _of(way: int, block: Any) -> list[Any]:
    """The block in the columns of the valencies that leave (0) or enter (1), and nothing in the others."""
    return [block, None] if way == 0 else [None, block]


def _columns(blocks: list[Any], sizes: list[int]) -> Any:
    """Matrices side by side; None: nothing in as many columns as its size says."""
    height = next(block.shape[0] for block in blocks if block is not None)
    parts = [sparse.csr_array((height, size)) if b is None else b for b, size in zip(blocks, sizes, strict=True)]
    return sparse.hstack(parts, format="csr")


def _incidence(rows: np.ndarray, height: int | None = None) -> Any:
    """A matrix with a 1 in each column, at the given row."""
    height = int(rows.max()) + 1 if height is None else height
    return sparse.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(height, len(rows)))
