"""Edges that agree with valencies: which edge labels leave a node, which enter it, and how many of each.

Labels that are chosen one by one need not fit together: a verb may be sure to have one agent, while no single edge
says so, or two do. Here edges and valencies are chosen together, so that every node has the edges that its valencies
say, and

    Σ nodes (log p(what leaves) + log p(what enters))  +  w · Σ edges (log p(label) − log p(null))

is as large as possible. w is small: valencies say how many edges there are, and edges say between whom. (In a sentence
longer than any in training, the score of a pair far apart is the wildest guess that a model makes, and there are many.)

Where the likeliest edges have the likeliest valencies, they are the answer: decode.py looks for that, for whole
batches. Else a dynamic program over the nodes finds valencies that fit together, the likeliest first: of every label as
many edges must leave nodes as enter them. An assignment problem for each label finds their edges; only where two labels
want the same pair of nodes, or numbers are open, does that take an integer program. It ends when no valencies that are
less likely can make up for it by their edges.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linear_sum_assignment, milp

BOUNDS = (6.0, 20.0, 60.0, np.inf)  # how much less likely than the likeliest ones the valencies may be, one try each
EDGE_WEIGHT = 0.03  # w
MOST_STATES, MOST_OPTIONS = 2_000, 32  # that the dynamic program keeps for a node, the best ones; real data has fewer
TRIES = 16  # how many valencies of all nodes are tried at most
SECONDS = 1.0  # that an integer program may take
BITS = 12  # of a number in a packed state


@dataclass(frozen=True)
class Valencies:
    """What the numbers of valencies mean."""

    leaving: np.ndarray  # (valencies, E), how many edges of each label; the first has none
    entering: np.ndarray
    most: int = 0  # this number of edges means as many or more; 0: all numbers are exact


def best_edges(
    gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray, known: Valencies, tries: int = TRIES
) -> np.ndarray:
    """The label of every ordered pair of n nodes, 0 for none.   (n, n)

    gain (n, n, E): what an edge of a label gains over none, labels counted from 1 (gain[..., 0] is label 1's).
    leaving, entering (n, valencies): log-probabilities.
    """
    best, found = np.zeros(gain.shape, np.int64), -np.inf
    most = EDGE_WEIGHT * np.maximum(gain, 0).max(2, initial=0).sum()  # that any edges can be worth
    for lost, gives, takes in islice(fitting(leaving, entering, known), tries):
        if most - lost <= found:
            break
        chosen = edges_between(gain, gives, takes, known.most)
        if chosen is not None and (worth := EDGE_WEIGHT * float(gain[chosen > 0].sum()) - lost) > found:
            best, found = chosen, worth
    return np.where(best.any(2), best.argmax(2) + 1, 0)


def fitting(
    leaving: np.ndarray, entering: np.ndarray, known: Valencies
) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """Valencies (n, E) of what leaves and of what enters each node that fit together, the likeliest first.

    Each with how much less likely they are, as a logarithm, than the likeliest, which need not fit.

    A dynamic program over the 2·n choices. Its state says, for each label, how many more edges leave than enter so
    far, and whether some number is open; packed into one integer, so that a choice is an addition.
    """
    losses = [(log_probs.max(1, keepdims=True) - log_probs).tolist() for log_probs in (leaving, entering)]
    steps = [
        [int(s) for s in _packed(sign * table, way, (table == known.most) & (table > 0))]
        for way, (sign, table) in enumerate(((1, known.leaving), (-1, known.entering)))
    ]
    choices = [(way, loss) for way in (0, 1) for loss in losses[way]]
    E, done = known.leaving.shape[1], 0.0
    for bound in BOUNDS:
        layers: list[dict[int, float]] = [{0: 0.0}]
        for way, loss in choices:
            options = [(step, lost) for step, lost in zip(steps[way], loss, strict=True) if lost <= bound]
            options = [*heapq.nsmallest(MOST_OPTIONS, options, key=lambda option: option[1]), (0, loss[0])]
            found: dict[int, float] = {}
            for state, before in layers[-1].items():
                for step, lost in options:
                    after = before + lost
                    if after <= bound and after < found.get(state + step, np.inf):
                        found[state + step] = after
            layers.append(dict(heapq.nsmallest(MOST_STATES, found.items(), key=lambda item: item[1])))
        # Back from the ends that fit. What a state lost so far is exact, so configurations come in order.
        order = count()
        heap: list[tuple[float, int, int, int, tuple[int, ...]]]
        heap = [(lost, next(order), len(choices), end, ()) for end, lost in layers[-1].items() if _fits(end, E)]
        heapq.heapify(heap)
        while heap:
            total, _, at, state, numbers = heapq.heappop(heap)
            if at == 0:
                if total >= done:  # not among those of an earlier, smaller bound
                    n = len(leaving)
                    yield total, known.leaving[list(numbers[:n])], known.entering[list(numbers[n:])]
                continue
            way, loss = choices[at - 1]
            later = total - layers[at][state]
            for number, (step, lost) in enumerate(zip(steps[way], loss, strict=True)):
                earlier = layers[at - 1].get(state - step, np.inf) + lost + later
                if earlier <= bound and earlier < np.inf:
                    heapq.heappush(heap, (earlier, next(order), at - 1, state - step, (number, *numbers)))
        done = np.nextafter(bound, np.inf)


def _packed(counts: np.ndarray, way: int, is_open: np.ndarray) -> np.ndarray:
    """Each valency as an integer: of every label its number, and whether that is open, on either way."""
    E = counts.shape[1]
    places = np.array([1 << (BITS * e) for e in range(3 * E)], dtype=object)
    numbers = np.concatenate([counts, is_open & (way == 0), is_open & (way == 1)], axis=1).astype(object)
    packed: np.ndarray = (numbers * places).sum(1)
    return packed


def _fits(state: int, E: int) -> bool:
    """Whether of every label as many edges leave as enter, or could: open numbers may be larger."""
    if state == 0:
        return True
    half, mask = 1 << (BITS - 1), (1 << BITS) - 1
    numbers = []
    for _ in range(3 * E):
        digit = ((state + half) & mask) - half
        numbers.append(digit)
        state = (state - digit) >> BITS
    return all(
        more == 0 or (more > 0 and takers) or (more < 0 and givers)
        for more, givers, takers in zip(numbers[:E], numbers[E : 2 * E], numbers[2 * E :], strict=True)
    )


def edges_between(gain: np.ndarray, gives: np.ndarray, takes: np.ndarray, most: int = 0) -> np.ndarray | None:
    """The edges that gain most, of those with these valencies (n, E); None if there are none.   (n, n, E)"""
    chosen = np.zeros(gain.shape, np.int64)
    for label in np.flatnonzero(gives.any(0)):
        if most and max(gives[:, label].max(), takes[:, label].max()) >= most:
            able = (gives[:, label] > 0)[:, None] & (takes[:, label] > 0)
            chosen[..., label] = able & (gain[..., label] > 0)
        else:
            givers, takers = (np.repeat(np.arange(len(gain)), x[:, label]) for x in (gives, takes))
            rows, columns = linear_sum_assignment(gain[..., label][givers[:, None], takers], maximize=True)
            np.add.at(chosen[..., label], (givers[rows], takers[columns]), 1)
    there = [np.minimum(x, most) if most else x for x in (chosen.sum(1), chosen.sum(0))]
    if (chosen.sum(2) <= 1).all() and (there[0] == gives).all() and (there[1] == takes).all():
        return chosen
    return _program(gain, gives, takes, most)


def _program(gain: np.ndarray, gives: np.ndarray, takes: np.ndarray, most: int) -> np.ndarray | None:
    """The same as an integer program, for all labels together."""
    n, _, E = gain.shape
    source, target, label = np.nonzero((gives > 0)[:, None] & (takes > 0)[None])
    if not len(source):
        return None
    pair = np.unique(source * n + target, return_inverse=True)[1]
    rules = [LinearConstraint(_incidence(pair, int(pair.max()) + 1), 0, 1)]
    for end, numbers in ((source, gives.reshape(-1)), (target, takes.reshape(-1))):
        highest = np.where((numbers == most) & (numbers > 0), n, numbers)
        rules.append(LinearConstraint(_incidence(end * E + label, n * E), numbers, highest))
    found = milp(
        -gain[source, target, label],
        integrality=np.ones(len(source), np.int64),
        bounds=Bounds(0, 1),
        constraints=rules,
        options={"time_limit": SECONDS},
    )
    if found.x is None:
        return None
    chosen = np.zeros(gain.shape, np.int64)
    taken = found.x > 0.5
    chosen[source[taken], target[taken], label[taken]] = 1
    return chosen


def _incidence(rows: np.ndarray, height: int) -> Any:
    """A matrix with a 1 in each column, at the given row."""
    return sparse.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(height, len(rows)))
