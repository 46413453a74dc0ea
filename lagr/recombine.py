"""New training sentences, made of the given ones: what a word brings with it is one thing, what happens to it another.

A *phrase* is a run of words with a part of the graph that hangs together: on its first word is its *head*, the only
node that edges from outside lead to, and no edge leads out of it. "cake on the table" is one, and so is "cake". One of
a sentence takes the place of one of another: if cakes on tables are eaten, and it is a cake that falls, then a cake on
the table may fall too. That needs no grammar, only graphs whose nodes are on the words they come from.

Not every phrase may take the place of every other one:
- They begin with the same word, and their heads have the same label. Or edges of the same labels lead to heads of their
  kind, most words before the one are also before the other and the other way round, and most that follow the new one
  have followed the old (*director of M1* for *actor*); neither is rare. If most that follow the old one have not
  followed the new, the word that then follows must be one that has.
- The last word and the one that then follows have been neighbours before. Words that labels copy count as one.
- Labels that no sentence has twice do not come twice. Those that are no copied words, such as the numbered variables of
  a query, are the same before and after, and only phrases of one kind that have them change places.
- Where two variables come from the same words, the copied names of the sentence stay the same: which is ?x1 and which
  ?x2 may depend on them, as it does in CFQ.
- Where alignments are guessed, the first word is nowhere else in its sentence: which of two has the node is not known.
- A new sentence is none of the given ones, and no longer than the longest of them.

Where sentences have lists, as many new ones, if there are enough, have lists with other members (lists.py). Where
they have descriptions whose labels only count, as many have those in the place of names (descriptions.py).
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise

from lagr.associate import left_over
from lagr.copying import copied_labels
from lagr.datasets import Example
from lagr.descriptions import Descriptions
from lagr.graph import Edge
from lagr.lists import Lists, has_lists
from lagr.parts import FEWEST, Part, exchanged, mostly_in

TRIES = 10  # for every sentence that is wanted
TELL_EVERY = 500  # new sentences
LONGEST_PHRASE = 20  # tokens: longer ones are rare, and looking for them takes long
OFTEN = 0.05  # of a label's nodes: the share that a word must have to be one that it comes from
COPIED, EDGE = "<copied>", ""  # what stands for words that labels copy, and beyond the first and the last word


@dataclass(frozen=True)
class Kind:
    """What phrases have in common that can always take each other's place."""

    word: str  # the first
    label: str  # of the head


Phrase = Part[Kind]


def recombined(
    examples: Sequence[Example],
    graph_layers: int,
    wanted: int,
    seed: int = 0,
    gives: defaultdict[str, set[str]] | None = None,
    tell: Callable[[int], object] = lambda count: None,
) -> list[Example]:
    """Up to so many new examples, as many as are found soon. The graphs must have slots; where these are known, the new
    ones have them too.

    gives: where the slots are a guess from counts, the labels that each word gives. tell: is told how many there are.
    """
    seen = {example.tokens for example in examples}
    given = len(seen)
    longest = max(map(len, seen), default=0)
    rng = random.Random(seed)

    def made_by(way: Callable[[random.Random], Example | None], count: int) -> list[Example]:
        found: list[Example] = []
        for _ in range(count * TRIES):
            if len(found) == count:
                break
            new = way(rng)
            if new and new.tokens not in seen and len(new.tokens) <= longest:
                seen.add(new.tokens)
                found.append(new)
                if len(found) % TELL_EVERY == 0:
                    tell(len(seen) - given)
        return found

    judge = Judge(examples, graph_layers, guessed=gives is not None)
    unsure = judge.unsure_tokens(examples, gives)
    with_lists = has_lists(examples, graph_layers, unsure)
    described = judge.descriptions(unsure)
    share = wanted // (1 + with_lists + bool(described))
    made = made_by(described.new_example, share) if described else []
    found = made_by(judge.new_example, share) if judge.phrases else []
    if with_lists:
        material = [*examples, *found]
        unsure += judge.unsure_tokens(found, gives)
        lists = Lists(material, graph_layers, judge.have_met, judge.may_rename, unsure)
        found += made_by(lists.new_example, wanted - len(made) - len(found)) if lists.lists else []
    # What one way could not make, others may.
    if (with_lists or described) and judge.phrases:
        found += made_by(judge.new_example, wanted - len(made) - len(found))
    if described:
        made += made_by(described.new_example, wanted - len(made) - len(found))
    return found + made


class Judge:
    """The phrases of the examples, and which may take the place of which."""

    def __init__(self, examples: Sequence[Example], graph_layers: int, guessed: bool = False) -> None:
        self.examples, self.layers, self.guessed = examples, graph_layers, guessed
        self.copied = copied_labels(examples, graph_layers)
        self.twice = twice = {
            s for example in examples for s, times in Counter(example.graph.nodes).items() if times > 1
        }
        self.phrases: list[Phrase] = []
        self.of_kind: dict[Kind, list[Phrase]] = defaultdict(list)
        self.before: dict[Kind, Counter[str]] = defaultdict(Counter)
        self.after: dict[Kind, Counter[str]] = defaultdict(Counter)
        self.edges: dict[Kind, set[str]] = defaultdict(set)
        self.neighbours: set[tuple[str, str]] = set()
        self.only_once = {s for e in examples for s in e.graph.nodes if s not in twice}
        for row, example in enumerate(examples):
            words = [EDGE, *map(self._class, example.tokens), EDGE]
            self.neighbours |= set(pairwise(words))
            for phrase in phrases(example, row, graph_layers):
                if guessed and example.tokens.count(phrase.kind.word) > 1:
                    continue
                self.phrases.append(phrase)
                self.of_kind[phrase.kind].append(phrase)
                self.before[phrase.kind][words[phrase.start]] += 1
                self.after[phrase.kind][words[phrase.end + 1]] += 1
                self.edges[phrase.kind] |= {e.label for e in example.graph.edges if e.target == phrase.head}
        on_words: dict[str, Counter[str]] = defaultdict(Counter)
        for example in examples:
            for label, slot in zip(example.graph.nodes, example.graph.slots or (), strict=True):
                on_words[label][example.tokens[slot // graph_layers].lower()] += 1
        self.words_of = {
            label: {word for word, times in count.items() if times >= OFTEN * count.total()}
            for label, count in on_words.items()
        }
        self.alike, self.is_narrower = cache(self._alike), cache(self._is_narrower)

    def new_example(self, rng: random.Random) -> Example | None:
        """One phrase in the place of another, or nothing where those that were drawn do not fit."""
        site = rng.choice(self.phrases)
        other = rng.choice(self.of_kind[rng.choice(self.alike(site.kind))])
        return exchanged(self.examples, site, other, self.layers) if self.fits(site, other) else None

    def descriptions(self, unsure: Sequence[Mapping[int, Collection[str]]] = ()) -> Descriptions | None:
        """What may be said with a name or with a description, if sentences have both."""
        names, nameless = self.only_once & self.copied, self.only_once - self.copied
        sides: dict[str, set[tuple[str, bool]]] = defaultdict(set)
        for example in self.examples:
            for source, label, target in example.graph.edges:
                sides[example.graph.nodes[source]].add((label, True))
                sides[example.graph.nodes[target]].add((label, False))
        of_names = {side for name in names for side in sides[name]}
        like_names = {label for label in nameless if sides[label] and sides[label] <= of_names}
        # Of these, labels that come from the same words count only: what else would tell them apart?
        counting = {
            one for one in like_names if any(self.words_of[one] & self.words_of[other] for other in like_names - {one})
        }
        if not counting:
            return None
        names = {name for name in names if any(sides[name] <= sides[label] for label in counting)}
        others = {label for label in like_names - counting if any(leaves for _, leaves in sides[label])}
        given, words = (self.examples, self.layers, names, counting), (self._class, self.have_met)
        found = Descriptions(*given, *words, self.guessed, others, unsure)
        return found if found.sites else None

    def have_met(self, one: str, other: str) -> bool:
        """Whether the first word has been seen right before the second."""
        return (self._class(one), self._class(other)) in self.neighbours

    def unsure_tokens(
        self, examples: Sequence[Example], gives: defaultdict[str, set[str]] | None
    ) -> list[dict[int, set[str]]]:
        """Of every example, where the nodes' places are guessed, the tokens that may have a node and don't."""
        if gives is None:
            return [{} for _ in examples]
        places = ([slot // self.layers for slot in e.graph.slots or ()] for e in examples)
        return [left_over(e, its, gives, self.twice) for e, its in zip(examples, places, strict=True)]

    def fits(self, site: Phrase, other: Phrase) -> bool:
        """Whether the other phrase, of a kind that is alike, may take the place of the first."""
        here, there = self.examples[site.row], self.examples[other.row]
        follows = here.tokens[site.end] if site.end < len(here.tokens) else EDGE
        if not self.have_met(there.tokens[other.end - 1], follows):
            return False
        if self.is_narrower(other.kind, site.kind) and self._class(follows) not in self.after[other.kind]:
            return False
        leaves, comes = self._only_once(site), self._only_once(other)
        stays = {label for node, label in enumerate(here.graph.nodes) if node not in site.nodes}
        fixed = (leaves - self.copied, comes - self.copied)
        if comes & stays or fixed[0] != fixed[1] or (fixed[0] and site.kind != other.kind):
            return False
        return self.may_rename(leaves, comes, stays | comes)

    def may_rename(self, leaves: Collection[str], comes: Collection[str], labels: Collection[str]) -> bool:
        """Whether these labels may take the place of those, for all that names say of the others in the sentence."""
        names = self.only_once & self.copied
        return names.intersection(leaves) == names.intersection(comes) or not self._are_numbered(labels)

    def _are_numbered(self, labels: Collection[str]) -> bool:
        """Whether two of a sentence's labels come from the same words, so that something else tells them apart."""
        words = [self.words_of[label] for label in labels if label in self.only_once and label not in self.copied]
        return any(one & other for one, other in combinations(words, 2))

    def _only_once(self, phrase: Phrase) -> set[str]:
        labels = self.examples[phrase.row].graph.nodes
        return {labels[node] for node in phrase.nodes} & self.only_once

    def _class(self, token: str) -> str:
        return COPIED if token in self.copied else token

    def _alike(self, one: Kind) -> list[Kind]:
        """The kinds that may take its place, itself among them."""
        if one.label in self.only_once:
            return [one]
        return [other for other in self.of_kind if other == one or self._stands_there(other, one)]

    def _stands_there(self, other: Kind, one: Kind) -> bool:
        """Whether phrases of the first kind may stand where those of the second do, by their neighbours."""
        if other.label in self.only_once or self.edges[one] != self.edges[other]:
            return False
        if min(len(self.of_kind[one]), len(self.of_kind[other])) < FEWEST:
            return False
        before, after = (self.before[one], self.before[other]), (self.after[one], self.after[other])
        return mostly_in(*before) and mostly_in(*before[::-1]) and mostly_in(*after[::-1])

    def _is_narrower(self, other: Kind, one: Kind) -> bool:
        """Whether fewer words follow it, as fewer do *director of M1* than *actor*: no one's *'s* or *that*."""
        return other != one and not mostly_in(self.after[one], self.after[other])


def phrases(example: Example, row: int, graph_layers: int) -> Iterator[Phrase]:
    """The longest phrase of each head."""
    graph = example.graph
    assert graph.slots is not None
    place = [slot // graph_layers for slot in graph.slots]
    entered = {edge.target for edge in graph.edges}
    for head in sorted(entered):
        start = place[head]
        for end in sorted({at + 1 for at in place if start <= at < start + LONGEST_PHRASE}, reverse=True):
            nodes = frozenset([node for node, at in enumerate(place) if start <= at < end])
            if _is_closed(graph.edges, nodes, head):
                yield Phrase(row, start, end, head, nodes, Kind(example.tokens[start], graph.nodes[head]))
                break


def _is_closed(edges: Sequence[Edge], nodes: Collection[int], head: int) -> bool:
    """Whether no edge leads out of the nodes, all that lead in lead to the head, and the nodes hang together."""
    within = []
    for source, _, target in edges:
        if source in nodes:
            if target not in nodes or target == head:
                return False
            within.append((source, target))
        elif target in nodes and target != head:
            return False
    reached, before = {head}, 0
    while len(reached) > before:
        before = len(reached)
        reached |= {end for ends in within if not reached.isdisjoint(ends) for end in ends}
    return reached == nodes
