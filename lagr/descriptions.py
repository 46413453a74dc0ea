"""New training sentences in which a description stands where a name stood, or a name or another one where it did.

If one can ask "did M1 marry a film's director", one can ask "did a film's star marry M2's director". In a graph, what
is said of a thing leads to its node, whether a name gives it (M1) or a description does, whose node has a label that
only counts (?x0, ?x1). A *description* is a run of words with a part of the graph that hangs on the rest by this one
node, its *head*: "a film", "M1's director". One of them takes the place of a name or of another description, or a name
takes the place of one; what led to the old head, or out of it, does so with the new one. A description may also say
what something else is: "who was *a director of M1*", where "a" gives no node. Such a *complement* hangs on a head that
is elsewhere, and other descriptions take its place, whose head is then that one: "who was M2's star".

- Labels that count are told from others by what they do: no sentence has one twice, they come from the same words, and
  their nodes have no edges but those that names have too. Which of them a new sentence's descriptions have depends on
  the whole of it, so that each may have *any* of them: training takes the sum of their probabilities.
- Where alignments are guessed, such a node may be anywhere. A description then has as many words that give such labels
  (*a*, *'s*) as it has of these nodes, and a complement has one more.
- Edges between names and descriptions themselves (that two things differ) may depend on both, and so may whether there
  is one: what has such an edge, or is joined to what mostly goes with one, stays.
- No other label comes twice that way: some data has one node for both. No sentence gets more labels that count than
  some given one has.
- Most words before the one are also before the other, but for complements; and the last word and the one that then
  follows have met before.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import or_

import numpy as np
from scipy.optimize import nnls

from lagr.datasets import Example
from lagr.graph import Edge, Graph
from lagr.parts import FEWEST, MOST, Part, exchanged, mostly_in
from lagr.vocab import any_of

GIVING = 0.2  # of the nodes with labels that count: the share that a word must have to be one that gives them
COMMON = 0.01  # of the sentences: the share that a word must be in for that, where alignments are guessed
LONGEST, LONGEST_SENTENCE = 20, 60  # tokens of a description, and of a sentence in which one is looked for
SAMPLE = 5_000  # examples from which it is seen which words give labels that count
MOST_WORDS = 300  # that are looked at for that
NAME, THING, COMPLEMENT = "name", "thing", "complement"
Side = tuple[str, bool]  # an edge's label, and whether it leaves the head
Kind = tuple[str, str]  # what a part is, and its first word


class Descriptions:
    """The names and descriptions of the examples, and which may take the place of which."""

    def __init__(
        self,
        examples: Sequence[Example],
        graph_layers: int,
        names: Collection[str],
        counting: Collection[str],
        class_of: Callable[[str], str],
        have_met: Callable[[str, str], bool],
        guessed: bool,
        others: Collection[str] = (),
        unsure: Sequence[Mapping[int, Collection[str]]] = (),
    ) -> None:
        """The graphs must have slots. names: labels that copy a word, and that no sentence has twice. counting: labels
        that count. class_of: what a word counts as. have_met: whether a word has been seen before another. others:
        further labels of what may have a complement. unsure: tokens of each example that may belong to a node which is
        not on them, and labels that it may have: no part can have either.
        """
        self.examples, self.layers, self.guessed = examples, graph_layers, guessed
        self.names, self.counting, self.class_of, self.have_met = set(names), set(counting), class_of, have_met
        self.any = any_of(self.counting)
        self.things = self.names | self.counting
        self.others = frozenset(others) - self.things
        self.heads = self.things | self.others
        self.most: Counter[frozenset[str]] = Counter()  # how many labels count at most, beside such others
        for example in examples:
            beside, count = self._counted(example.graph.nodes)
            self.most[beside] = max(self.most[beside], count)
        self.giving = self._giving_words()
        self.apart, self.direct = self._labels_that_tell_apart()
        self.parts: list[Part[Kind]] = []
        self.of_kind: dict[Kind, list[Part[Kind]]] = defaultdict(list)
        self.before: dict[Kind, Counter[str]] = defaultdict(Counter)
        self.sides: dict[Kind, set[Side]] = defaultdict(set)
        everything = (part for row, example in enumerate(examples) for part in self._parts(row, example))
        found = [part for part in everything if self._is_sure(part, unsure[part.row] if unsure else {})]
        own = Counter(side for part in found if part.kind[0] == THING for side in sorted(self._sides_within(part)))
        usual = {side for side, _ in own.most_common(1)}
        for part in found:
            words = ["", *map(class_of, examples[part.row].tokens)]
            if part.kind[0] != COMPLEMENT or self._sides_within(part) <= usual:
                self.parts.append(part)
                self.of_kind[part.kind].append(part)
                self.before[part.kind][words[part.start]] += 1
                self.sides[part.kind] |= self._sides(part)
        names_kinds = [kind for kind in self.of_kind if kind[0] == NAME]
        self.proper = {kind[1] for kind in self.of_kind if any(self._are_alike(name, kind) for name in names_kinds)}
        self.alike = {kind: [other for other in self.of_kind if self._are_alike(kind, other)] for kind in self.of_kind}
        replaceable = [part for part in self.parts if self.alike[part.kind]]
        of_each = ([part for part in replaceable if part.kind[0] == what] for what in (NAME, THING, COMPLEMENT))
        self.sites = [parts for parts in of_each if parts]

    def new_example(self, rng: random.Random) -> Example | None:
        """One part in the place of another, or nothing where those that were drawn do not fit."""
        site = rng.choice(rng.choice(self.sites))
        other = rng.choice(self.of_kind[rng.choice(self.alike[site.kind])])
        return self._exchanged(site, other) if self._fits(site, other) else None

    def _is_sure(self, part: Part[Kind], unsure: Mapping[int, Collection[str]]) -> bool:
        """Whether it can be moved. Where places are guessed, one of two nodes with the same label may be elsewhere."""
        graph = self.examples[part.row].graph
        labels = {graph.nodes[node] for node in part.nodes}
        if not self._boundary(part) or any(edge.source == edge.target == part.head for edge in graph.edges):
            return False  # nothing is said of it, or something of itself alone
        if self.guessed and sum(label in labels for label in graph.nodes) > len(part.nodes):
            return False
        return not any(part.start <= token < part.end or labels.intersection(its) for token, its in unsure.items())

    def _stays(self, edges: Sequence[Edge], graph: Graph, head: int) -> bool:
        """Whether what these edges join to a head may depend on what it is."""
        beside = (graph.nodes[e.target if e.source == head else e.source] for e in edges)
        return any(edge.label in self.direct for edge in edges) or any(label in self.apart for label in beside)

    def _fits(self, site: Part[Kind], other: Part[Kind]) -> bool:
        here, there = self.examples[site.row], self.examples[other.row]
        follows = here.tokens[site.end] if site.end < len(here.tokens) else ""
        if not self.have_met(there.tokens[other.end - 1], follows):
            return False
        before = here.tokens[site.start - 1] if site.start else ""
        if site.kind[0] != COMPLEMENT and not self.have_met(before, there.tokens[other.start]):
            return False
        graph = here.graph
        if self._stays(self._boundary(site), graph, site.head):
            return False
        if site.kind[0] == COMPLEMENT:
            if self._stays(self._own_edges(other), there.graph, other.head):
                return False
        elif not self._sides(site) <= self.sides[other.kind] or self._is_one_of_several(site):
            return False
        come = other.nodes - {other.head} if site.kind[0] == COMPLEMENT else other.nodes
        labels = [label for node, label in enumerate(graph.nodes) if node not in site.nodes]
        comes = [there.graph.nodes[node] for node in come]
        others, count = self._counted([*labels, *comes])
        return count <= self.most[others] and (set(labels) - self.counting).isdisjoint(comes)

    def _counted(self, labels: Sequence[str]) -> tuple[frozenset[str], int]:
        """Which of the labels are like those that count, and how many of these there are."""
        return frozenset(labels) & self.others, sum(label in self.counting for label in labels)

    def _is_one_of_several(self, site: Part[Kind]) -> bool:
        """Whether another node has the same edges, as in a list."""
        graph = self.examples[site.row].graph
        edges: dict[int, set[tuple[str, bool, int]]] = defaultdict(set)
        for edge in self._boundary(site):
            edges[site.head].add((edge.label, edge.source == site.head, edge.target + edge.source - site.head))
        for source, label, target in graph.edges:
            if source not in site.nodes and target not in site.nodes:
                edges[source].add((label, True, target))
                edges[target].add((label, False, source))
        own = edges.pop(site.head)
        return any(own <= others for others in edges.values())

    def _boundary(self, part: Part[Kind]) -> list[Edge]:
        nodes = part.nodes
        return [e for e in self.examples[part.row].graph.edges if (e.source in nodes) != (e.target in nodes)]

    def _own_edges(self, part: Part[Kind]) -> list[Edge]:
        """Edges between the head and the rest of a description."""
        edges, head, rest = self.examples[part.row].graph.edges, part.head, part.nodes - {part.head}
        return [e for e in edges if (e.source == head and e.target in rest) or (e.target == head and e.source in rest)]

    def _sides(self, part: Part[Kind]) -> set[Side]:
        return {(edge.label, edge.source == part.head) for edge in self._boundary(part)}

    def _sides_within(self, part: Part[Kind]) -> set[Side]:
        return {(edge.label, edge.source == part.head) for edge in self._own_edges(part)}

    def _are_alike(self, one: Kind, other: Kind) -> bool:
        """Whether the second may stand where the first does. Names for names would be nothing new."""
        if min(len(self.of_kind[one]), len(self.of_kind[other])) < FEWEST:
            return False
        if one[0] == COMPLEMENT:
            return other[0] != NAME and {one[1], other[1]} <= self.proper
        if other[0] == COMPLEMENT or one[0] == other[0] == NAME:
            return False
        before = self.before[one], self.before[other]
        return one == other or (mostly_in(*before) and mostly_in(*before[::-1]))

    def _giving_words(self) -> set[str]:
        """The words that nodes come from whose labels count: those they are on, or such as come as often as they do."""
        examples = self.examples[:: max(1, len(self.examples) // SAMPLE)]
        if self.guessed:
            return self._words_that_explain(
                [sum(s in self.counting for s in e.graph.nodes) for e in examples], examples
            )
        on = Counter(
            example.tokens[slot // self.layers]
            for example in examples
            for label, slot in zip(example.graph.nodes, example.graph.slots or (), strict=True)
            if label in self.counting
        )
        return {word for word, times in on.items() if times > GIVING * on.total()}

    @staticmethod
    def _words_that_explain(numbers: Sequence[int], examples: Sequence[Example]) -> set[str]:
        """Words of which each stands for about one: numbers = Σ weight · how often the word is there, weights ≥ 0."""
        common = Counter(word for example in examples for word in dict.fromkeys(example.tokens))
        frequent = [word for word, times in common.most_common(MOST_WORDS) if times > COMMON * len(examples)]
        column = {word: n for n, word in enumerate(frequent)}
        if not column:
            return set()
        table = np.zeros((len(examples), len(column)))
        for row, example in enumerate(examples):
            for word in example.tokens:
                if word in column:
                    table[row, column[word]] += 1
        try:
            weights, _ = nnls(table, np.array(numbers, float))
        except RuntimeError:  # it found none in time
            return set()
        return {word for word, n in column.items() if weights[n] > 0.5}

    def _merged(self, labels: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.any if label in self.counting else label for label in labels)

    def _labels_that_tell_apart(self) -> tuple[set[str], set[str]]:
        """Labels of nodes that mostly join things which an edge joins, too, and the labels of such edges."""
        joined, all_pairs, direct = Counter[str](), Counter[str](), set()
        for example in self.examples:
            graph, beside = example.graph, defaultdict(set)
            pairs = set()
            for source, label, target in graph.edges:
                if graph.nodes[source] in self.things and graph.nodes[target] in self.things:
                    direct.add(label)
                    pairs |= {(source, target), (target, source)}
                beside[source].add((target, label, True))
                beside[target].add((source, label, False))
            for node, ends in beside.items():
                if graph.nodes[node] in self.things:
                    continue
                things = [(end, label, leaves) for end, label, leaves in ends if graph.nodes[end] in self.things]
                for one, *side in things:
                    for other, *other_side in things:
                        described = self.counting.intersection((graph.nodes[one], graph.nodes[other]))
                        if one < other and side != other_side and described:
                            all_pairs[graph.nodes[node]] += 1
                            joined[graph.nodes[node]] += (one, other) in pairs
        return {label for label, times in joined.items() if times > MOST * all_pairs[label]}, direct

    # The parts of an example.

    def _parts(self, row: int, example: Example) -> Iterator[Part[Kind]]:
        graph, tokens = example.graph, example.tokens
        assert graph.slots is not None
        if len(tokens) > LONGEST_SENTENCE:
            return
        counts = [label in self.counting for label in graph.nodes]
        place = [slot // self.layers for slot in graph.slots]
        given = {at for at, is_so in zip(place, counts, strict=True) if is_so}
        if self.guessed:
            place, given = [-1 if is_so else at for at, is_so in zip(place, counts, strict=True)], set()
        gives = [token in self.giving and at not in given for at, token in enumerate(tokens)]
        ends = sorted({at + 1 for at, is_so in zip(place, counts, strict=True) if not is_so}, reverse=True)
        # Sets of nodes are numbers, a bit for each: there are many pairs of ends to look at.
        on = [0] * len(tokens)
        for node, at in enumerate(place):
            if at >= 0:
                on[at] |= 1 << node
        before, givers = [0, *accumulate(on, or_)], [0, *accumulate(gives)]
        for head, label in enumerate(graph.nodes):
            if label not in self.heads:
                continue
            if found := _described(before, givers, ends, _hanging(graph, head), [head] * counts[head]):
                start, end, nodes = found
                kind = THING if counts[head] else COMPLEMENT, self.class_of(tokens[start])
                yield Part(row, start, end, head, nodes, kind)
            if label in self.names and tokens.count(label) == 1 and place.count(place[head]) == 1:
                at = place[head]
                yield Part(row, at, at + 1, head, frozenset([head]), (NAME, self.class_of(label)))

    def _exchanged(self, site: Part[Kind], other: Part[Kind]) -> Example:
        new = exchanged(self.examples, site, other, self.layers, slots=not self.guessed)
        return replace(new, graph=replace(new.graph, nodes=self._merged(new.graph.nodes)))


def _described(
    before: list[int], givers: list[int], ends: list[int], hanging: list[set[int]], own: list[int]
) -> tuple[int, int, frozenset[int]] | None:
    """The longest run of words that describes a node: its ends, and the nodes.

    before: of every token, the nodes on those before it, a bit for each; some nodes may be anywhere. givers: how many
    of the tokens before it may give a label that counts, and are not known to. ends: where the run may end, the last
    one first. hanging: what hangs on the node. own: itself, if this gives it.
    """
    parts, placed, head = [_bits(part) for part in hanging], before[-1], _bits(own)
    nodes = 1 + sum(map(len, hanging))
    best: tuple[int, int, int] | None = None
    for start in range(len(before) - 1):
        if before[start] == before[start + 1] and givers[start] == givers[start + 1]:
            continue
        for end in ends:
            if end > start + LONGEST:
                continue
            if end <= start or (best and end - start <= best[1] - best[0]):
                break
            within, inside = before[end] & ~before[start], head
            for part in parts:
                if part & within:
                    inside |= part
            if within & ~inside or inside & placed & ~within:
                continue
            nameless = (inside & ~placed).bit_count() + 1 - len(own)
            if len(own) < inside.bit_count() < nodes and givers[end] - givers[start] == nameless:
                best = start, end, inside
    if best is None:
        return None
    return *best[:2], frozenset(node for node in range(nodes) if best[2] >> node & 1)


def _bits(nodes: Iterable[int]) -> int:
    """A set of nodes as a number."""
    return sum(1 << node for node in nodes)


def _hanging(graph: Graph, head: int) -> list[set[int]]:
    """What the graph falls into without a node."""
    beside = defaultdict(set)
    for source, _, target in graph.edges:
        if head not in (source, target):
            beside[source].add(target)
            beside[target].add(source)
    left, found = set(range(len(graph.nodes))) - {head}, []
    while left:
        part, new = set(), {left.pop()}
        while new:
            part |= new
            new = {end for node in new for end in beside[node]} - part
        left -= part
        found.append(part)
    return found
