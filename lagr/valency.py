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
less likely can make up for it by their edges, or after some Effort.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from operator import add, sub
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from lagr.program import Program, incidence

if TYPE_CHECKING:
    from lagr.rules import Limits

BOUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, np.inf)  # how much less likely than the likeliest; one after the other
EDGE_WEIGHT = 0.03  # w


@dataclass(frozen=True)
class Valencies:
    """What the numbers of valencies mean."""

    leaving: np.ndarray  # (valencies, E), how many edges of each label; the first has none
    entering: np.ndarray
    most: int = 0  # this number of edges means as many or more; 0: all numbers are exact


@dataclass(frozen=True)
class Effort:
    """Where the search ends. It is for models that know nothing yet; of a trained one's sentences, only some that are
    far longer than those of training come so far."""

    reach: float = 2.0  # how much likelihood, as a logarithm, valencies may lose for the sake of their edges
    tries: int = 16  # valencies of all nodes that are tried
    states: int = 1_000  # that the dynamic program keeps at a time, the best ones
    options: int = 32  # valencies of a node that it looks at, the likeliest ones
    steps: float = 3_000  # that it takes in all
    programs: int = 1  # integer programs
    seconds: float = 0.05  # that each of them may take


def best_edges(
    gain: np.ndarray, leaving: np.ndarray, entering: np.ndarray, known: Valencies, effort: Effort | None = None
) -> np.ndarray:
    """The label of every ordered pair of n nodes, 0 for none.   (n, n)

    gain (n, n, E): what an edge of a label gains over none, labels counted from 1 (gain[..., 0] is label 1's).
    leaving, entering (n, valencies): log-probabilities.
    """
    found = best_choices(gain, leaving, entering, known, 1, effort)
    if not found:  # a model that knows nothing yet: no edges fit in any case
        return np.zeros(gain.shape[:2], np.int64)
    return found[0][1]


def best_choices(
    gain: np.ndarray,
    leaving: np.ndarray,
    entering: np.ndarray,
    known: Valencies,
    count: int,
    effort: Effort | None = None,
    limits: Limits | None = None,
) -> list[tuple[float, np.ndarray]]:
    """Up to `count` choices of edges (n, n), the best first, with what each is worth; no two have the same valencies.

    Worth 0 would be all of the likeliest valencies without an edge's gain, if they fitted. Edges and valencies of −∞
    are not possible; limits: rules that edges must keep.
    """
    effort = effort or Effort()
    found: list[tuple[float, np.ndarray]] = []
    least, most = np.inf, EDGE_WEIGHT * np.maximum(gain, 0).max(2, initial=0).sum()  # that any edges can be worth
    tries = 0
    for lost, fit in fitting(leaving, entering, known, effort):
        enough = len(found) == count and most - lost <= found[-1][0]
        if enough or lost >= least + effort.reach or tries == effort.tries:
            break
        if fit is None:  # nothing more up to here
            continue
        (gives, takes), tries = fit, tries + 1
        chosen = _quickly(gain, gives, takes, known.most)
        if chosen is not None and limits is not None and not limits.hold_for(chosen > 0):
            chosen = None
        if chosen is None and effort.programs:
            effort = replace(effort, programs=effort.programs - 1)
            chosen = _program(gain, gives, takes, known.most, effort.seconds, limits)
        if chosen is not None:
            least, worth = min(least, lost), EDGE_WEIGHT * float(gain[chosen > 0].sum()) - lost
            found.append((worth, np.where(chosen.any(2), chosen.argmax(2) + 1, 0)))
            found = sorted(found, key=lambda one: -one[0])[:count]
    return found


State = tuple[int, ...]  # for each label, how many more edges leave than enter; then which leave, and enter, openly
Option = tuple[int, State, float]  # a valency, what it adds to the state, and how much less likely it is than the best


def fitting(
    leaving: np.ndarray, entering: np.ndarray, known: Valencies, effort: Effort
) -> Iterator[tuple[float, tuple[np.ndarray, np.ndarray] | None]]:
    """Valencies (n, E) of what leaves and of what enters each node that fit together, the likeliest first.

    Each with how much less likely they are, as a logarithm, than the likeliest, which need not fit; and None where
    there are no more that are as likely, before it looks further down. A dynamic program over the 2·n choices; what
    can't come to fit any more is left out at once.
    """
    E, n, steps = known.leaving.shape[1], len(leaving), effort.steps
    losses = [log_probs.max(1, keepdims=True) - log_probs for log_probs in (leaving, entering)]
    # Where all fits, prices on the labels cancel out; with the right ones, what fits is nearly likeliest everywhere.
    price = np.zeros(E) if known.most else _prices(losses, known)
    priced = [losses[0] + known.leaving @ price, losses[1] - known.entering @ price]
    least = [x.min(1, keepdims=True) for x in priced]
    paid = float(sum(x.sum() for x in least))
    choices: list[list[Option]] = []
    for way, table in enumerate((known.leaving, known.entering)):
        adds = _adds(table, way, known.most)
        lost_by_node = (priced[way] - least[way]).tolist()
        choices += [
            [(number, step, lost) for number, (step, lost) in enumerate(zip(adds, row, strict=True)) if lost < np.inf]
            for row in lost_by_node
        ]
    first, done = np.inf, -np.inf
    for bound in BOUNDS:
        if done < first + effort.reach < bound:
            bound = first + effort.reach  # beyond, nothing is taken if the first will do
        near = [[option for option in options if option[2] <= bound] for options in choices]
        near = [heapq.nsmallest(effort.options, options, key=lambda option: option[2]) for options in near]
        # Most nodes have one valency that is anywhere near, which only moves the state that the others begin from.
        numbers = [options[0][0] for options in near]
        start: State = tuple(map(sum, zip(*(options[0][1] for options in near if len(options) == 1), strict=True)))
        unsure = [place for place, options in enumerate(near) if len(options) > 1]
        branches = [near[place] for place in unsure]
        start = start or (0,) * len(near[0][0][1])
        ahead = [[]] * (len(branches) + 1) if known.most else _least_ahead(branches, E)
        layers: list[dict[State, float]] = [{start: 0.0}]
        for options, to_come in zip(branches, ahead[1:], strict=True):
            found: dict[State, float] = {}
            if (steps := steps - len(options) * len(layers[-1])) < 0:
                return
            for state, before in layers[-1].items():
                for _, step, lost in options:
                    after = tuple(map(add, state, step))
                    if before + lost >= found.get(after, np.inf):
                        continue
                    worst = max(
                        [table.get(more, np.inf) for table, more in zip(to_come, after, strict=False)], default=0
                    )
                    if before + lost + worst <= bound and worst < np.inf:
                        found[after] = before + lost
            if len(found) > effort.states:
                found = dict(heapq.nsmallest(effort.states, found.items(), key=lambda item: item[1]))
            layers.append(found)
        for total, chosen in _paths(layers, branches, bound, E):
            if total > done:  # not one of an earlier bound
                first = min(first, total)
                for place, number in zip(unsure, chosen, strict=True):
                    numbers[place] = number
                yield paid + total, (known.leaving[numbers[:n]], known.entering[numbers[n:]])
        done = bound
        yield paid + bound, None


def _prices(lost: list[np.ndarray], known: Valencies, rounds: int = 60) -> np.ndarray:
    """What an edge of each label should cost at the node it leaves, and bring at the node it enters.   (E,)

    By subgradients: a label that too many edges leave gets dearer. The best prices are those at which the cheapest
    valencies, which need not fit, cost most: nothing that fits costs less.
    """
    price, best, most = np.zeros(known.leaving.shape[1]), np.zeros(known.leaving.shape[1]), -np.inf
    for step in 3.0 * 0.93 ** np.arange(rounds):
        numbers = [(lost[0] + known.leaving @ price).argmin(1), (lost[1] - known.entering @ price).argmin(1)]
        more = known.leaving[numbers[0]].sum(0) - known.entering[numbers[1]].sum(0)
        cost = sum(float(np.take_along_axis(x, k[:, None], 1).sum()) for x, k in zip(lost, numbers, strict=True))
        cost += float(more @ price)
        if cost > most:
            best, most = price, cost
        if not more.any():
            break
        price = price + step * more / np.abs(more).max()
    return best


def _adds(table: np.ndarray, way: int, most: int) -> list[State]:
    """What each valency adds to the state."""
    if not most:
        return [tuple(row) for row in (table if way == 0 else -table).tolist()]
    is_open = ((table == most) & (table > 0)).astype(int)
    parts = [table, is_open, 0 * is_open] if way == 0 else [-table, 0 * is_open, is_open]
    return [tuple(row) for row in np.concatenate(parts, axis=1).tolist()]


def _least_ahead(choices: list[list[Option]], labels: int) -> list[list[dict[int, float]]]:
    """Before each choice and after the last, for each label by itself: what it costs at least until it fits.

    A table gives that for every number of edges by which more have left than entered; others can't come to fit.
    """
    tables: list[dict[int, float]] = [{0: 0.0}] * labels
    ahead = [tables]
    for options in reversed(choices):
        tables = list(tables)
        for label in range(labels):
            least: dict[int, float] = {}
            for _, step, lost in options:
                least[step[label]] = min(lost, least.get(step[label], np.inf))
            if set(least) == {0}:
                continue  # nothing changes for this label
            found: dict[int, float] = {}
            for more, later in tables[label].items():
                for step_of_label, lost in least.items():
                    total = later + lost
                    if total < found.get(more - step_of_label, np.inf):
                        found[more - step_of_label] = total
            tables[label] = found
        ahead.append(tables)
    return ahead[::-1]


def _paths(
    layers: list[dict[State, float]], choices: list[list[Option]], bound: float, labels: int
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """All ways through the layers that end where everything fits, with the numbers of their valencies; best first.

    Backwards: what a state has cost so far is known exactly, so that what is best to go on with is best of all.
    """
    order = count()
    heap: list[tuple[float, int, int, State, tuple[int, ...]]]
    heap = [(lost, next(order), len(choices), end, ()) for end, lost in layers[-1].items() if _fits(end, labels)]
    heapq.heapify(heap)
    while heap:
        total, _, at, state, numbers = heapq.heappop(heap)
        if at == 0:
            yield total, numbers
            continue
        later = total - layers[at][state]
        for number, step, lost in choices[at - 1]:
            before = tuple(map(sub, state, step))
            earlier = layers[at - 1].get(before, np.inf) + lost + later
            if earlier <= bound and earlier < np.inf:
                heapq.heappush(heap, (earlier, next(order), at - 1, before, (number, *numbers)))


def _fits(state: State, labels: int) -> bool:
    """Whether of every label as many edges leave as enter, or could: open numbers may be larger."""
    more, givers, takers = state[:labels], state[labels : 2 * labels], state[2 * labels :]
    if not givers:
        return not any(more)
    return all(m == 0 or (t if m > 0 else g) for m, g, t in zip(more, givers, takers, strict=True))


def _quickly(gain: np.ndarray, gives: np.ndarray, takes: np.ndarray, most: int) -> np.ndarray | None:
    """The edges that gain most, of those with these valencies (n, E), where that is easy to find out.   (n, n, E)"""
    chosen = np.zeros(gain.shape, np.int64)
    for label in np.flatnonzero(gives.any(0)):
        if most and max(gives[:, label].max(), takes[:, label].max()) >= most:
            able = (gives[:, label] > 0)[:, None] & (takes[:, label] > 0)
            chosen[..., label] = able & (gain[..., label] > 0)
        else:
            givers, takers = (np.repeat(np.arange(len(gain)), x[:, label]) for x in (gives, takes))
            try:
                rows, columns = linear_sum_assignment(gain[..., label][givers[:, None], takers], maximize=True)
            except ValueError:  # some have no edge that is possible
                return None
            np.add.at(chosen[..., label], (givers[rows], takers[columns]), 1)
    there = [np.minimum(x, most) if most else x for x in (chosen.sum(1), chosen.sum(0))]
    fit = (chosen.sum(2) <= 1).all() and (there[0] == gives).all() and (there[1] == takes).all()
    return chosen if fit else None


def _program(
    gain: np.ndarray, gives: np.ndarray, takes: np.ndarray, most: int, seconds: float, limits: Limits | None = None
) -> np.ndarray | None:
    """The same as an integer program, for all labels together; None if there are no such edges."""
    n, _, E = gain.shape
    source, target, label = np.nonzero((gives > 0)[:, None] & (takes > 0)[None] & (gain > -np.inf))
    if not len(source):
        return None
    program = Program()
    edges = program.variables(-gain[source, target, label])
    program.require({edges: incidence(source * n + target, n * n)}, 0, 1)
    for end, numbers in ((source, gives.reshape(-1)), (target, takes.reshape(-1))):
        highest = np.where((numbers == most) & (numbers > 0), n, numbers)
        program.require({edges: incidence(end * E + label, n * E)}, numbers, highest)
    if limits is not None:
        program.require({edges: sparse.csr_array(limits.rows(source, target, label))}, limits.low, limits.high)
    if (found := program.solve(seconds)) is None:
        return None
    chosen, taken = np.zeros(gain.shape, np.int64), found[edges] > 0
    chosen[source[taken], target[taken], label[taken]] = 1
    return chosen
