"""Rules that a user states, and the best edges that keep them.

    [rules]
    triples  = [["*", "agent", "*"]]         the only edges there may be: source, edge label, target
    leaving  = [["eat", "agent", "0-1"]]     how many edges may leave a node, all that fit counted together
    entering = [["*", "*", "1-"]]            and how many may enter one

Labels are patterns with the wildcards of a shell; a pattern that is a label means that label alone, but "*" is always
any (`[*]` is a star). Decoding settles the nodes first; rules are about the edges between them. The likeliest edges are
kept where they keep the rules; elsewhere the best are found that do, by the same measure:

    without valencies   Σ edges (log p(label) − log p(null)), as an integer program
    with valencies      as in valency.py, whose search then goes through what the rules allow

Triples and upper bounds can always be kept: no edges keep them. Lower bounds count more than valencies; where they
can't be kept, as few edges are missing as possible. Rules say what may be chosen, not what a model believes:
probabilities stay those of the model.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from lagr.errors import ConfigError

if TYPE_CHECKING:
    from lagr.config import Rules
    from lagr.valency import Effort, Valencies
    from lagr.vocab import Vocabulary

ANY = "*"
WAYS = ("leaving", "entering")
MOST = 1e4  # that an edge gains or loses: what is impossible for a model may be what a rule asks for
# That an integer program may take, of edges alone and with valencies; then its best answer so far is taken. The second
# is for models that know nothing yet: with others the search finds an answer.
SECONDS, SECONDS_WITH_VALENCIES = 2.0, 0.2


def number_range(text: str) -> tuple[int, float]:
    """The least and the most that a number of edges says.

    >>> [number_range(text) for text in ("1", "0-2", "1-")]
    [(1, 1), (0, 2), (1, inf)]
    """
    found = re.fullmatch(r"(\d{1,6})(?:(-)(\d{1,6})?)?", text.replace(" ", ""))
    if not found:
        raise ConfigError(f"{text!r} is no number of edges; write 1, 0-2 or 1-")
    low = int(found[1])
    high = int(found[3]) if found[3] else math.inf if found[2] else low
    if low > high:
        raise ConfigError(f"{text!r} is no number of edges: {low} is more than {high}")
    return low, high


def check_numbers(stated: Rules) -> None:
    for way in WAYS:
        for rule in getattr(stated, way):
            try:
                number_range(rule[2])
            except ConfigError as error:
                raise ConfigError(f"{_name(way, rule)}: {error}") from None


def rulebook(stated: Rules, vocab: Vocabulary) -> Rulebook | None:
    """The rules for a model's labels; None if there are none. ConfigError where they make no sense."""
    return Rulebook(stated, vocab) if any((stated.triples, stated.leaving, stated.entering)) else None


class Rulebook:
    """Rules, for the labels of a model."""

    def __init__(self, stated: Rules, vocab: Vocabulary) -> None:
        self.nodes, self.edges = vocab.node_labels, vocab.edge_labels
        self.copies = vocab.copies  # labels of nodes may be any words
        self.triples, self.between = stated.triples, self._edges("triples", stated.triples)
        self.bounds = [(way, rule) for way in range(2) for rule in getattr(stated, WAYS[way])]
        self.counted = np.concatenate([self._edges(way, getattr(stated, way)) for way in WAYS])
        for name, rule, places in (
            *(("triples", rule, (0, 2)) for rule in stated.triples),
            *((WAYS[way], rule, (0,)) for way, rule in self.bounds),
        ):
            for place in places:
                if not self.copies and not any(_fits(rule[place], label, self.nodes) for label in self.nodes):
                    raise ConfigError(_unknown(name, rule, "node", rule[place], self.nodes))
        self.low, self.high = np.array([number_range(rule[2]) for _, rule in self.bounds], float).reshape(-1, 2).T
        self._of_label = lru_cache(maxsize=10_000)(self._fitting)  # copied labels may be any words, without end
        self._check()

    def of(self, nodes: Sequence[str]) -> Limits:
        """What the rules say about the nodes of a sentence."""
        fits = [self._of_label(label) for label in nodes]
        source, target, bound = (
            np.array([its[part] for its in fits], np.int64).reshape(len(nodes), size)
            for part, size in enumerate((len(self.triples), len(self.triples), len(self.bounds)))
        )
        allowed = np.einsum("it,te,jt->ije", source, self.between, target) > 0
        if not self.triples:
            allowed[:] = True
        node, rule = np.nonzero(bound)
        ways = np.array([way for way, _ in self.bounds], np.int64)
        return Limits(allowed, ways[rule], node, self.counted[rule], self.low[rule], self.high[rule], rule)

    def of_each(self, nodes: Sequence[str], numbers: Sequence[int]) -> list[Limits]:
        """The same for many sentences; nodes: of all of them, numbers: how many each has."""
        ends = np.cumsum(numbers).tolist()
        return [self.of(nodes[end - n : end]) for end, n in zip(ends, numbers, strict=True)]

    def _edges(self, name: str, rules: Sequence[Sequence[str]]) -> np.ndarray:
        """Which edge labels each rule is about.   (rules, E)"""
        for rule in rules:
            if not any(_fits(rule[1], label, self.edges) for label in self.edges):
                raise ConfigError(_unknown(name, rule, "edge", rule[1], self.edges))
        found = [[_fits(rule[1], label, self.edges) for label in self.edges] for rule in rules]
        return np.array(found, np.int64).reshape(len(rules), len(self.edges))

    def _fitting(self, label: str) -> tuple[list[int], list[int], list[int]]:
        """Of which triples a node of this label may be the source, of which the target, and which bounds it has."""
        source, target = ([int(_fits(triple[i], label, self.nodes)) for triple in self.triples] for i in (0, 2))
        return source, target, [int(_fits(rule[0], label, self.nodes)) for _, rule in self.bounds]

    def _check(self) -> None:
        """ConfigError where no edge is possible at all, or a rule can't be kept together with the others."""
        stated = [label for triple in self.triples for label in triple[::2]] + [rule[0] for _, rule in self.bounds]
        labels = [*self.nodes, *(stated if self.copies else ())]
        alike = {str(self._of_label(label)): label for label in labels}  # one for each way of being spoken of
        limits = self.of(list(alike.values()))
        possible = limits.allowed.copy()
        for way, node, labels_of, high in zip(limits.way, limits.node, limits.labels, limits.high, strict=True):
            if high == 0:
                (possible[node] if way == 0 else possible[:, node])[:, labels_of > 0] = False
        if not possible.any():
            raise ConfigError("rules: they forbid every edge; allow some")
        for row in np.flatnonzero(limits.low).tolist():
            node, its = limits.node[row], limits.labels[row] > 0
            if not (possible[node] if limits.way[row] == 0 else possible[:, node])[:, its].any():
                raise ConfigError(f"{self._named(limits.rule[row])} can't be kept: other rules forbid all such edges")
        for one, other in permutations(range(len(limits.rule)), 2):
            same = limits.way[one] == limits.way[other] and limits.node[one] == limits.node[other]
            if same and limits.low[one] > limits.high[other] and (limits.labels[one] <= limits.labels[other]).all():
                names = self._named(limits.rule[one]), self._named(limits.rule[other])
                label = list(alike.values())[limits.node[one]]
                raise ConfigError(f"{names[0]} contradicts {names[1]} for nodes such as {label!r}")

    def _named(self, bound: int) -> str:
        way, rule = self.bounds[bound]
        return _name(WAYS[way], rule)


@dataclass(frozen=True)
class Limits:
    """What the rules say about n nodes: which edges are allowed, and of which there are how many."""

    allowed: np.ndarray  # (n, n, E)
    way: np.ndarray  # (R,), 0: of the edges that leave a node, 1: that enter it
    node: np.ndarray  # (R,)
    labels: np.ndarray  # (R, E), 1 where edges count
    low: np.ndarray  # (R,)
    high: np.ndarray  # (R,)
    rule: np.ndarray  # (R,), which bound of the rulebook it is

    def hold(self, labels: np.ndarray) -> bool:
        """Whether edges keep the rules.   (n, n), 0 for none"""
        return self.hold_for(labels[..., None] == np.arange(1, self.allowed.shape[2] + 1))

    def hold_for(self, chosen: np.ndarray) -> bool:
        """The same for edges as a table of which there are.   (n, n, E)"""
        if (chosen & ~self.allowed).any():
            return False
        counts = np.stack([chosen.sum(1), chosen.sum(0)])
        there = (counts[self.way, self.node] * self.labels).sum(1)
        return bool(((self.low <= there) & (there <= self.high)).all())

    def rows(self, source: np.ndarray, target: np.ndarray, label: np.ndarray) -> np.ndarray:
        """Which of some possible edges count for each bound.   (R, edges)"""
        ends = np.where(self.way[:, None] == 0, source, target)
        counts: np.ndarray = (ends == self.node[:, None]) * self.labels[:, label]
        return counts

    def best_edges(self, gain: np.ndarray) -> np.ndarray:
        """The label of every ordered pair of nodes, 0 for none: those that gain most, and keep the rules.   (n, n)"""
        gain = _finite(gain)
        found = _solve(gain, self)
        if found is None:
            found = _solve(gain, self, short=True)
        return np.zeros(gain.shape[:2], np.int64) if found is None else found

    def best_fitting(
        self,
        gain: np.ndarray,
        leaving: np.ndarray,
        entering: np.ndarray,
        known: Valencies,
        effort: Effort | None = None,
    ) -> np.ndarray:
        """The same with valencies (see valency.py). They are given up where none that are known keep the rules."""
        found = next(self.choices(gain, leaving, entering, known, 1, effort), None)
        if found is not None:
            return found[1]
        both = self.possible(leaving, entering, known)
        joint = _solve(_finite(gain), self, (*both, known)) if _some_everywhere(both) else None
        return self.best_edges(gain) if joint is None else joint

    def choices(
        self,
        gain: np.ndarray,
        leaving: np.ndarray,
        entering: np.ndarray,
        known: Valencies,
        count: int,
        effort: Effort | None = None,
    ) -> Iterator[tuple[float, np.ndarray]]:
        """What valency.best_choices finds among the edges that keep the rules."""
        from lagr.valency import best_choices

        both = self.possible(leaving, entering, known)
        if _some_everywhere(both):
            # Worth is told from the likeliest valencies that are allowed; what the rules cost comes off.
            cost = sum(
                float((old.max(1) - new.max(1)).sum()) for old, new in zip((leaving, entering), both, strict=True)
            )
            masked = np.where(self.allowed, _finite(gain), -np.inf)
            for worth, labels in best_choices(masked, *both, known, count, effort, self):
                yield worth - cost, labels

    def possible(self, leaving: np.ndarray, entering: np.ndarray, known: Valencies) -> tuple[np.ndarray, np.ndarray]:
        """The log-probabilities of valencies, −∞ where the rules can't be kept with them.   (n, valencies) twice"""
        found = []
        for way, log_probs, table in ((0, leaving, known.leaving), (1, entering, known.entering)):
            here = self.way == way
            fewest = table @ self.labels[here].T  # (valencies, R)
            openly = ((table == known.most) & (table > 0)) @ self.labels[here].T > 0
            keeps = (fewest <= self.high[here]) & ((fewest >= self.low[here]) | openly)
            partners = self.allowed.sum(1 - way)  # (n, E)
            able = (table <= partners[:, None]).all(2)
            for number, node in enumerate(self.node[here]):
                able[node] &= keeps[:, number]
            found.append(np.where(able, log_probs, -np.inf))
        return found[0], found[1]


def obey(dist: Any, occupied: Any, labels: Any, limits: Sequence[Limits]) -> None:
    """Chooses the edges of those sentences again that break rules, in place.

    labels (B, M, M): the label of every pair of slots that hold nodes.
    """
    import torch

    for b in broken(labels, occupied, limits):
        at = occupied[b].nonzero()[:, 0]
        numbers = dist.edge_log_probs[b][at][:, at].double().cpu().numpy()
        best = torch.from_numpy(limits[b].best_edges(numbers[..., 1:] - numbers[..., :1])).to(labels.device)
        labels[b, at[:, None], at] = best


def broken(labels: Any, occupied: Any, limits: Sequence[Limits]) -> list[int]:
    """The sentences whose edges break rules."""
    edges, held = labels.cpu().numpy(), occupied.cpu().numpy()
    return [b for b, its in enumerate(limits) if not its.hold(edges[b][held[b]][:, held[b]])]


def _solve(
    gain: np.ndarray,
    limits: Limits,
    numbers: tuple[np.ndarray, np.ndarray, Valencies] | None = None,
    short: bool = False,
) -> np.ndarray | None:
    """The best edges that keep the rules, as an integer program; None if there are none.   (n, n)

    numbers: valencies that they must fit. short: as few edges as possible may be missing to lower bounds.
    """
    from scipy import sparse

    from lagr.program import Program, incidence
    from lagr.valency import EDGE_WEIGHT

    n, _, E = gain.shape
    source, target, label = np.nonzero(limits.allowed)
    if numbers is None:  # only what gains, or may be asked for
        asked = limits.rows(source, target, label)[limits.low > 0].any(0)
        useful = asked | (gain[source, target, label] > 0)
        source, target, label = source[useful], target[useful], label[useful]
    if not len(source):
        return np.zeros((n, n), np.int64) if short or not limits.low.any() else None
    seconds = SECONDS if numbers is None else SECONDS_WITH_VALENCIES
    program, weight = Program(), 1.0 if numbers is None else EDGE_WEIGHT
    edges = program.variables(-weight * gain[source, target, label])
    program.require({edges: incidence(source * n + target, n * n)}, 0, 1)
    counted = sparse.csr_array(limits.rows(source, target, label))
    program.require({edges: counted}, -np.inf if short else limits.low, limits.high)
    if short:
        missing = program.variables(np.zeros(len(limits.low)), limits.low)
        program.require({edges: counted, missing: sparse.eye_array(len(limits.low))}, limits.low, np.inf)
        if (least := program.solve(seconds, only=missing)) is None:
            return None
        program.require({missing: sparse.csr_array(np.ones((1, len(limits.low))))}, 0, least[missing].sum())
    if numbers is not None:
        *both, known = numbers
        for end, log_probs, table in zip((source, target), both, (known.leaving, known.entering), strict=True):
            node, number = np.nonzero(np.isfinite(log_probs))
            chosen = program.variables(-log_probs[node, number])
            program.require({chosen: incidence(node, n)}, 1, 1)
            its, there = table[number], incidence(end * E + label, n * E)
            place = (node[:, None] * E + np.arange(E)).ravel(), np.arange(len(node)).repeat(E)
            most = np.where((its == known.most) & (its > 0), n, its)  # open numbers may be larger
            least_said, most_said = (
                sparse.csr_array((x.ravel().astype(float), place), shape=(n * E, len(node))) for x in (its, most)
            )
            program.require({edges: there, chosen: -least_said}, 0, np.inf)
            program.require({edges: there, chosen: -most_said}, -np.inf, 0)
    if (found := program.solve(seconds)) is None:
        return None
    labels, taken = np.zeros((n, n), np.int64), found[edges] > 0
    labels[source[taken], target[taken]] = label[taken] + 1
    return labels


def _finite(gain: np.ndarray) -> np.ndarray:
    clipped: np.ndarray = np.nan_to_num(gain, nan=-MOST, posinf=MOST, neginf=-MOST).clip(-MOST, MOST)
    return clipped


def _some_everywhere(both: tuple[np.ndarray, np.ndarray]) -> bool:
    """Whether every node has a valency that is possible."""
    return all(bool(np.isfinite(log_probs).any(1).all()) for log_probs in both)


def _fits(pattern: str, label: str, known: Sequence[str]) -> bool:
    return pattern == ANY or (label == pattern if pattern in known else fnmatchcase(label, pattern))


def _name(name: str, rule: Sequence[str]) -> str:
    return f"rules.{name} [{', '.join(map(repr, rule))}]".replace("'", '"')


def _unknown(name: str, rule: Sequence[str], kind: str, pattern: str, labels: Sequence[str]) -> str:
    near = difflib.get_close_matches(pattern, labels, 1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{_name(name, rule)}: the model has no {kind} label {pattern!r}{hint}"
