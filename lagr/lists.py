"""New training sentences whose lists have other members, more of them or fewer.

Nodes with the same edges, one after the other, make a *list*: the entities in "Who edited M1, M2 and M3", the nouns in
"a director, editor and star of M1". Its *pieces* reach from a member to the next, so that they end with the comma or
the "and" between them; behind the last one stands the last member, with whatever follows it. The last piece of a list
of three or more closes it, the others only go on.

A list whose last member stays, or a node that stands alone and might be one, gets other pieces: the only one of a list
of two, or any number that go on and one that closes, all from lists that have this member too. New members have the
edges that the last one has. So where training has lists of two and of five, it gets all between and some that are
longer, and has them wherever there are lists.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from lagr.datasets import Example
from lagr.graph import Edge, Graph
from lagr.twins import twin_groups

APART = 4  # tokens from a member to the next at most
TRIES = 5  # for each piece of a new list
ALONE = 0.5  # of the new lists, the share that are made of a member that stands alone
ENOUGH = 20  # places of a word, before one can say what follows it
FEW, ALWAYS = 3, 0.95  # a word that so few others follow, in such a share of its places, is a thing together with them
OFTEN = 0.05  # of the lists of three and more: the share that end with a word before the last member, to be believed


@dataclass(frozen=True)
class Piece:
    """A member and the words up to the next."""

    tokens: tuple[str, ...]
    label: str
    layer: int  # of its slot


class Kind(NamedTuple):
    """What lists have in common that can have each other's members."""

    words: tuple[str, ...]  # one, or two that belong together: *executive producer*
    label: str
    around: frozenset[str]
    sides: frozenset[tuple[str, bool, bool]]  # of its edges: label, whether it leaves, whether the other end is before


@dataclass(frozen=True)
class List:
    row: int  # of the example
    members: tuple[int, ...]  # nodes, as numbers of the example's graph
    starts: tuple[int, ...]  # their tokens
    around: frozenset[str]  # labels of edges between nodes that members are joined to


class Lists:
    """The lists of the examples, and what may stand in them."""

    def __init__(
        self,
        examples: Sequence[Example],
        graph_layers: int,
        are_neighbours: Callable[[str, str], bool],
        may_rename: Callable[[Collection[str], Collection[str], Collection[str]], bool],
        unsure: Sequence[Mapping[int, Collection[str]]],
    ) -> None:
        """The graphs must have slots. are_neighbours: whether a word has been seen before another. may_rename: whether
        labels may be replaced by others, in a sentence that then has such labels.

        unsure: tokens of each example that may belong to a node which is not on them, and labels that it may have: no
        list can have either.
        """
        self.examples, self.layers = examples, graph_layers
        self.are_neighbours, self.may_rename = are_neighbours, may_rename
        self.lists: list[List] = []
        alone: list[List] = []
        for row, example in enumerate(examples):
            for found in _lists(example, row, graph_layers, unsure[row]):
                (self.lists if len(found.members) > 1 else alone).append(found)
        self._leave_out_what_no_list_ends_with()
        self.first_words = _first_words(examples)
        self.longest = max((len(its.members) for its in self.lists), default=0)
        # Pieces that go on, that close a list, and that are all of a list of two, for what may be a list's last member.
        self.going_on: dict[Kind, list[Piece]] = defaultdict(list)
        self.closing: dict[Kind, list[Piece]] = defaultdict(list)
        self.of_two: dict[Kind, list[Piece]] = defaultdict(list)
        for its in self.lists:
            pieces = self._pieces(its)
            for n in range(len(its.members)):
                kind = self._kind(its, n)
                if len(pieces) == 1:
                    self.of_two[kind] += pieces
                else:
                    self.going_on[kind] += pieces[:-1]
                    self.closing[kind] += pieces[-1:]
        # One that stands alone might be a list's last member where such have been, before the same word.
        ends = {(self._kind(its, -1), self._next_word(its)) for its in self.lists}
        self.alone = [its for its in alone if (self._kind(its, 0), self._next_word(its)) in ends]

    def _leave_out_what_no_list_ends_with(self) -> None:
        """Twins need not be listed ("Was a writer a director"): longer lists say which words stand before the last."""
        closed = Counter(self._pieces(its)[-1].tokens[-1] for its in self.lists if len(its.members) > 2)
        often = {word for word, times in closed.items() if times >= OFTEN * closed.total()}
        self.lists = [its for its in self.lists if not often or self._pieces(its)[-1].tokens[-1] in often]

    def new_example(self, rng: random.Random) -> Example | None:
        """A list of some example with other pieces, or nothing where what was drawn does not fit."""
        its = rng.choice(self.alone if self.alone and rng.random() < ALONE else self.lists)
        kind, size = self._kind(its, -1), rng.randint(2, self.longest)
        ends, more = (self.closing, size - 2) if size > 2 else (self.of_two, 0)
        graph, tokens = self.examples[its.row].graph, self.examples[its.row].tokens
        taken = {label for node, label in enumerate(graph.nodes) if node not in its.members[:-1]}
        pieces = [*_drawn(self.going_on[kind], more, taken, rng), *_drawn(ends[kind], 1, taken, rng)]
        if len(pieces) < size - 1:
            return None
        old, new = [graph.nodes[node] for node in its.members[:-1]], [piece.label for piece in pieces]
        if not self.may_rename(old, new, taken):
            return None
        before, last = tokens[: its.starts[0]][-1:] or ("",), tokens[its.starts[-1] :]
        runs = (before, *(piece.tokens for piece in pieces), last)
        if not all(self.are_neighbours(one[-1], other[0]) for one, other in pairwise(runs)):
            return None
        return self._with(its, pieces)

    def _with(self, its: List, pieces: Sequence[Piece]) -> Example:
        example, layers = self.examples[its.row], self.layers
        graph, last = example.graph, its.members[-1]
        assert graph.slots is not None
        kept = [node for node in range(len(graph.nodes)) if node not in its.members[:-1]]
        number = {node: n for n, node in enumerate(kept)}
        tokens = [*example.tokens[: its.starts[0]]]
        labels = [graph.nodes[node] for node in kept]
        edges = [Edge(number[s], label, number[t]) for s, label, t in graph.edges if s in number and t in number]
        own = [edge for edge in graph.edges if last in (edge.source, edge.target)]
        new_slots = []
        for piece in pieces:
            node = len(labels)
            labels.append(piece.label)
            new_slots.append(len(tokens) * layers + piece.layer)
            edges += [
                Edge(node, e.label, number[e.target]) if e.source == last else Edge(number[e.source], e.label, node)
                for e in own
            ]
            tokens += piece.tokens
        longer = len(tokens) - its.starts[-1]
        tokens += example.tokens[its.starts[-1] :]
        slots = [graph.slots[n] + (longer * layers if graph.slots[n] >= its.starts[-1] * layers else 0) for n in kept]
        return Example(tuple(tokens), Graph(tuple(labels), tuple(edges), (*slots, *new_slots)))

    def _pieces(self, its: List) -> list[Piece]:
        example = self.examples[its.row]
        assert example.graph.slots is not None
        return [
            Piece(example.tokens[start:end], example.graph.nodes[node], example.graph.slots[node] % self.layers)
            for node, (start, end) in zip(its.members[:-1], pairwise(its.starts), strict=True)
        ]

    def _next_word(self, its: List) -> str:
        """The word behind the last member."""
        words = len(self._kind(its, -1).words)
        return "".join(self.examples[its.row].tokens[its.starts[-1] + words :][:1])

    def _kind(self, its: List, n: int) -> Kind:
        tokens, graph, at = self.examples[its.row].tokens, self.examples[its.row].graph, its.starts[n]
        words = tokens[at : at + 2] if tokens[at] in self.first_words else tokens[at : at + 1]
        node, slots = its.members[n], graph.slots or ()
        sides = {
            (edge.label, edge.source == node, slots[edge.target if edge.source == node else edge.source] < slots[node])
            for edge in graph.edges
            if node in (edge.source, edge.target)
        }
        # A name can be anything; *married* is one thing before its object, and another behind it.
        is_name = graph.nodes[node] == tokens[at]
        return Kind(words, graph.nodes[node], its.around, frozenset() if is_name else frozenset(sides))


def _first_words(examples: Sequence[Example]) -> set[str]:
    """Words that hardly stand alone, as *executive* does before *producer* or *produced*."""
    following: dict[str, Counter[str]] = defaultdict(Counter)
    for example in examples:
        for word, next_one in pairwise((*example.tokens, "")):
            following[word][next_one] += 1
    return {
        word
        for word, count in following.items()
        if count.total() >= ENOUGH and sum(times for _, times in count.most_common(FEW)) >= ALWAYS * count.total()
    }


def _drawn(pieces: Sequence[Piece], count: int, taken: set[str], rng: random.Random) -> Iterator[Piece]:
    """So many pieces with labels that are not taken, and then are, or fewer where they are not found soon.

    Two nodes of a label might be one, as CFQ's queries have it.
    """
    for piece in rng.choices(pieces, k=TRIES * count) if pieces else ():
        if count and piece.label not in taken:
            taken.add(piece.label)
            count -= 1
            yield piece


def has_lists(examples: Sequence[Example], graph_layers: int, unsure: Sequence[Mapping[int, Collection[str]]]) -> bool:
    return any(
        len(found.members) > 1
        for row, example in enumerate(examples)
        for found in _lists(example, row, graph_layers, unsure[row])
    )


def _lists(example: Example, row: int, graph_layers: int, unsure: Mapping[int, Collection[str]]) -> Iterator[List]:
    """Twins that follow each other, nothing but words without nodes between them; and what might be one, alone.

    Of nodes with the same edges, all must be in the list. Two of a label are in none: where places are guessed, one may
    have the other's.
    """
    graph = example.graph
    assert graph.slots is not None
    place = [slot // graph_layers for slot in graph.slots]
    holds, times = Counter(place), Counter(graph.nodes)
    elsewhere = {label for labels in unsure.values() for label in labels}
    loops = {edge.source for edge in graph.edges if edge.source == edge.target}
    usable = {
        node
        for node, label in enumerate(graph.nodes)
        if holds[place[node]] == 1 and times[label] == 1 and label not in elsewhere and node not in loops
    }
    listed: set[int] = set()
    for group in twin_groups(graph):
        members = sorted(group, key=place.__getitem__)
        starts = [place[node] for node in members]
        between = [range(one + 1, other) for one, other in pairwise(starts)]
        if (
            usable.issuperset(members)
            and all(0 < len(gap) < APART for gap in between)
            and not any(holds[token] or token in unsure for gap in between for token in gap)
        ):
            listed.update(members)
            yield List(row, tuple(members), tuple(starts), _around(graph, members[0]))
    for node in sorted(usable - listed):
        yield List(row, (node,), (place[node],), _around(graph, node))


def _around(graph: Graph, member: int) -> frozenset[str]:
    joined = {end for edge in graph.edges for end in (edge.source, edge.target) if member in (edge.source, edge.target)}
    return frozenset(e.label for e in graph.edges if {e.source, e.target} <= joined - {member})
