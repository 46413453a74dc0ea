"""Nodes that a sentence mentions several times, split so that every mention has its own.

"Did M1 influence M2 and influence M3" has one `influenced` node in its graph, with two themes: queries merge what they
can. Which of the two words has it, and which has nothing, then depends on the whole sentence, and its edges lead from
one clause into another. A graph with two such nodes, of M1 and M2 on the first word, of M1 and M3 on the second, writes
the same query, and all of it can be seen from near words.

So a node is split where a word is left over that gives its label elsewhere, if the form stays the same, character for
character. Counts say which words give which labels (associate.py), and how far from its word a node's neighbours are:
edges are divided so that these distances are likeliest, and a word gets none that is likelier elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from lagr.associate import associated_alignments, label_probabilities, labels_given, left_over
from lagr.datasets import Example
from lagr.errors import FormError
from lagr.graph import Edge, Graph

FARTHEST = 12  # tokens: distances beyond count as this
ANYWHERE = 2 * FARTHEST + 1  # distances
MOST_NEIGHBOURS = 8  # by one edge label: more are not divided, there are too many ways
ENOUGH = 20_000  # examples, to count distances in
PRIOR = 5.0  # neighbours at distances that are usual for the edge label, beside those that were counted of a word


@dataclass(frozen=True)
class Placed:
    """A graph and the token of each of its nodes."""

    graph: Graph
    tokens: tuple[int, ...]


def split_mentions(
    examples: Sequence[Example],
    graph_layers: int,
    write: Callable[[Graph], str],
    is_copied: Callable[[str], bool] = lambda label: False,
) -> list[Example]:
    """The examples, with graphs that have a node for each mention where that does not change the form."""
    given_by = label_probabilities(examples)
    gives = labels_given(given_by)
    twice = {label for e in examples for label, times in Counter(e.graph.nodes).items() if times > 1}
    slots = associated_alignments(examples, graph_layers, is_copied, given_by)
    given = [
        Placed(e.graph, tuple(slot // graph_layers for slot in its)) for e, its in zip(examples, slots, strict=True)
    ]
    words = [[token.lower() for token in e.tokens] for e in examples]
    open_rows = {
        row: free
        for row, (example, placed) in enumerate(zip(examples, given, strict=True))
        if (free := left_over(example, placed.tokens, gives, twice))
    }
    found = list(given)
    certain = [row for row in range(len(examples)) if row not in open_rows]
    for rows in (certain, range(len(examples))):  # the second time, distances are counted in what was split as well
        distances = Distances((words[row], found[row]) for row in rows[:ENOUGH])
        for row, free in open_rows.items():
            found[row] = _Splitting(words[row], given[row], distances, gives).best(free, write, examples[row].form)
    return [replace(e, graph=placed.graph) for e, placed in zip(examples, found, strict=True)]


class Distances:
    """How much likelier a neighbour is so many tokens away than anywhere, as a logarithm."""

    def __init__(self, examples: Iterable[tuple[Sequence[str], Placed]]) -> None:
        self.of_word: dict[tuple[str, str, str, bool], Counter[int]] = defaultdict(Counter)
        self.of_label: dict[tuple[str, bool], Counter[int]] = defaultdict(Counter)
        self.known: dict[tuple[str, str, str, bool, int], float] = {}
        for words, placed in examples:
            nodes, tokens = placed.graph.nodes, placed.tokens
            for source, label, target in placed.graph.edges:
                for node, other, leaves in ((source, target, True), (target, source, False)):
                    apart = _apart(tokens[node], tokens[other])
                    self.of_word[nodes[node], words[tokens[node]], label, leaves][apart] += 1
                    self.of_label[label, leaves][apart] += 1

    def gain(self, node: str, word: str, label: str, leaves: bool, apart: int) -> float:
        key = node, word, label, leaves, apart
        if key not in self.known:
            count, usual = self.of_word[node, word, label, leaves], self.of_label[label, leaves]
            share = (usual[apart] + 1) / (usual.total() + ANYWHERE)
            share = (count[apart] + PRIOR * share) / (count.total() + PRIOR)
            self.known[key] = math.log(ANYWHERE * share)
        return self.known[key]


def _apart(one: int, other: int) -> int:
    return max(-FARTHEST, min(FARTHEST, other - one))


class _Splitting:
    """One graph on its way: nodes are split, change places, and divide their edges anew as long as something gains.

    Edges are those of the given graph throughout, and belong to a node at either end: parts of a node have some each.
    """

    def __init__(self, words: Sequence[str], given: Placed, distances: Distances, gives: dict[str, set[str]]) -> None:
        self.words, self.given, self.distances, self.gives = words, given, distances, gives
        self.nodes, self.tokens = list(given.graph.nodes), list(given.tokens)
        self.whole = list(range(len(self.nodes)))  # what each is a part of, among the nodes of the given graph
        self.edges: list[list[Edge]] = [[] for _ in self.nodes]
        for edge in given.graph.edges:
            for end in {edge.source, edge.target}:
                self.edges[end].append(edge)

    def best(self, free: dict[int, set[str]], write: Callable[[Graph], str], form: str | None) -> Placed:
        """The graph after all splits that gain, unless it has another form."""
        left = dict(free)
        self._settle(left)
        while left:
            choices = [
                (self._worth(node, goes, token) - self._worth(node, goes), node, token, goes)
                for token, labels in left.items()
                for node, label in enumerate(self.nodes)
                if label in labels and not self._is_beside_parts(node)
                for goes in self._divisions(node, self.edges[node])
            ]
            gain, node, token, goes = max(choices, key=lambda choice: choice[0], default=(0.0, 0, 0, []))
            if gain <= 0:
                break
            del left[token]
            self._split(node, token, goes)
            self._settle(left)
        placed = self._placed()
        try:
            return placed if write(placed.graph) == form else self.given
        except FormError:
            return self.given

    def _split(self, node: int, token: int, goes: Sequence[Edge]) -> None:
        """A part of the node at that token, with these edges of one kind; those of other kinds are of both parts."""
        kind = self._kind(node, goes[0])
        both = [edge for edge in self.edges[node] if self._kind(node, edge) != kind]
        self.edges.append([*both, *goes])
        self.edges[node] = [edge for edge in self.edges[node] if edge not in goes]
        self.nodes.append(self.nodes[node])
        self.tokens.append(token)
        self.whole.append(self.whole[node])

    def _settle(self, left: dict[int, set[str]]) -> None:
        while any([self._move(left), self._swap(), self._divide_anew()]):
            pass

    def _move(self, left: dict[int, set[str]]) -> bool:
        """Nodes go to words that are left, where that is likelier, and leave theirs."""
        moved = False
        for node, label in enumerate(self.nodes):
            for token in [token for token, labels in left.items() if label in labels]:
                old = self.tokens[node]
                if label in self.gives[self.words[old]] and _is_more(self._worth(node, at=token), self._worth(node)):
                    self.tokens[node], moved = token, True
                    left[old] = left.pop(token)
        return moved

    def _swap(self) -> bool:
        """Nodes of equal label change places."""
        swapped = False
        for one, other in combinations(range(len(self.nodes)), 2):
            if self.nodes[one] == self.nodes[other]:
                here, there = self.tokens[one], self.tokens[other]
                then = self._worth(one, at=there) + self._worth(other, at=here)
                if _is_more(then, self._worth(one) + self._worth(other)):
                    self.tokens[one], self.tokens[other], swapped = there, here, True
        return swapped

    def _divide_anew(self) -> bool:
        """Parts of a node exchange edges."""
        divided = False
        for one, other in combinations(range(len(self.nodes)), 2):
            if self.whole[one] == self.whole[other]:
                both = [edge for edge in self.edges[one] if edge in self.edges[other]]
                own = [edge for part in (one, other) for edge in self.edges[part] if edge not in both]
                for goes in self._divisions(one, own):
                    stays = [edge for edge in own if edge not in goes]
                    then = self._worth(one, [*both, *stays]) + self._worth(other, [*both, *goes])
                    if _is_more(then, self._worth(one) + self._worth(other)):
                        self.edges[one], self.edges[other], divided = [*both, *stays], [*both, *goes], True
        return divided

    def _worth(self, node: int, edges: Sequence[Edge] | None = None, at: int | None = None) -> float:
        """What the distances to its neighbours say for a node with these edges at this token."""
        token, total = self.tokens[node] if at is None else at, 0.0
        for edge in self.edges[node] if edges is None else edges:
            label, leaves = self._kind(node, edge)
            other = self.tokens[edge.target if leaves else edge.source]
            total += self.distances.gain(self.nodes[node], self.words[token], label, leaves, _apart(token, other))
        return total

    def _kind(self, node: int, edge: Edge) -> tuple[str, bool]:
        """The label of one of its edges, and whether it leaves the node."""
        return edge.label, edge.source == self.whole[node]

    def _divisions(self, node: int, edges: Sequence[Edge]) -> Iterator[Sequence[Edge]]:
        """Some of a node's edges of one kind, but not all."""
        kinds: dict[tuple[str, bool], list[Edge]] = defaultdict(list)
        for edge in edges:
            kinds[self._kind(node, edge)].append(edge)
        for its in kinds.values():
            for size in range(1, len(its) if len(its) <= MOST_NEIGHBOURS else 0):
                yield from combinations(its, size)

    def _is_beside_parts(self, node: int) -> bool:
        """Whether a neighbour has been split: which of its parts an edge would lead to is then not said."""
        split = self.whole[len(self.given.graph.nodes) :]
        ends = {end for edge in self.edges[node] for end in (edge.source, edge.target)} - {self.whole[node]}
        return any(whole in ends for whole in split)

    def _placed(self) -> Placed:
        split = set(self.whole[len(self.given.graph.nodes) :])
        edges = [edge for edge in self.given.graph.edges if not split & {edge.source, edge.target}]
        for node, whole in enumerate(self.whole):
            if whole in split:
                for source, label, target in self.edges[node]:
                    edges.append(Edge(node, label, target) if source == whole else Edge(source, label, node))
        return Placed(Graph(tuple(self.nodes), tuple(edges)), tuple(self.tokens))


def _is_more(worth: float, other: float) -> bool:
    return worth > other + 1e-6  # sums in another order differ by less
