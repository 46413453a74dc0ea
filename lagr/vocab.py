"""Words and labels ⇄ numbers. Word 0 is padding and 1 unknown; node and edge label 0 is null; form token 0 ends it.

Where labels may be copied, the last node label is *copy*: a slot's label is its token (copying.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from lagr.datasets import Example
from lagr.errors import RunError
from lagr.forms import Spelling
from lagr.graph import OR, Graph
from lagr.needs import Need, needs_of
from lagr.variables import is_variable

Valency = tuple[int, ...]  # how many edges of each label leave a node, or enter it

SHAPES = ("<0>", "<Aa>", "<a>", "<.>")
NEAREST = {"<0>": "<Aa>", "<Aa>": "<a>", "<.>": "<a>"}  # what a shape is read as that no word of training has
PADDING, UNKNOWN, FIRST_WORD, FIRST_LABEL, FIRST_FORM_TOKEN = 0, 1, 2, 1, 1


@dataclass(frozen=True)
class Vocabulary:
    """Words, node labels and edge labels, in the order of their numbers, without the reserved ones.

    form_tokens: what seq2seq writes forms with. leaving, entering: the valencies of nodes, the first of which is that
    of a node without edges. most: up to which number edges are counted; that number then means as many or more. 0: all.
    copies: whether there is the label *copy*. twins: how far apart they are at most; their edge label comes after all
    others; 0: there is none. anonymous: words of which edges are told the shape alone. reach: how far attention goes
    in parsing; 0: anywhere. loops: whether an edge may lead from a node to itself. needs: edges that nodes of a label
    always have. names: those of variables, in the order in which forms mention them.
    """

    words: tuple[str, ...]
    node_labels: tuple[str, ...]
    edge_labels: tuple[str, ...]
    form_tokens: tuple[str, ...] = ()
    leaving: tuple[Valency, ...] = ()
    entering: tuple[Valency, ...] = ()
    most: int = 0
    copies: bool = False
    twins: int = 0
    anonymous: tuple[str, ...] = ()
    reach: int = 0
    loops: bool = True
    needs: tuple[Need, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        examples: Sequence[Example],
        spelling: Spelling | None = None,
        valency: int = 0,
        copied: Collection[str] | None = None,
        shapes: bool = False,
        twins: int = 0,
        anonymous: int = 0,
        reach: float = 0.0,
        needs: int = 0,
    ) -> Vocabulary:
        """All words and labels of some examples, sorted, so that equal data gives equal numbers.

        valency: also their nodes' valencies, with edges of a label counted up to so many. copied: node labels that are
        left to *copy*, if there is to be one. shapes: unknown words are told apart. twins: how far apart they may be.
        anonymous: of words that labels copy, and that come fewer times than this, edges are told the shape alone.
        reach: the share of the sentences that must be longer than how far attention goes; 0: it goes anywhere.
        needs: how many nodes of a label must have an edge, and all, for the others to need it; 0: none do.
        """
        words: Counter[str] = Counter()
        nodes: set[str] = set()
        edges: set[str] = set()
        forms: set[str] = set()
        for example in examples:
            words.update(example.tokens)
            nodes.update(example.graph.nodes)
            edges.update(edge.label for edge in example.graph.edges)
            if spelling and example.written_form is not None:
                forms.update(spelling.split(example.written_form))
        closed = nodes - set(copied or ())
        known = {*words, *(SHAPES if shapes or anonymous else ())}
        vocab = cls(tuple(sorted(known)), tuple(sorted(closed)), tuple(sorted(edges)), tuple(sorted(forms)))
        unnamed = tuple(sorted(word for word in copied or () if 0 < words[word] < anonymous))
        loops = any(edge.source == edge.target for example in examples for edge in example.graph.edges)
        vocab = replace(vocab, copies=copied is not None, twins=twins, anonymous=unnamed, loops=loops)
        if reach:
            lengths = sorted((len(example.tokens) for example in examples), reverse=True)
            vocab = replace(vocab, reach=max(1, lengths[min(len(lengths) - 1, int(reach * len(lengths)))] - 1))
        if needs:
            vocab = replace(vocab, needs=needs_of(examples, vocab, needs))
        return vocab._with_valencies(examples, valency) if valency else vocab

    def _with_valencies(self, examples: Sequence[Example], most: int) -> Vocabulary:
        nothing = (0,) * len(self.edge_labels)
        counted = [self.count_edges(example.graph) for example in examples]
        if max((number for both in counted for way in both for node in way for number in node), default=0) <= most:
            most = 0
        ways = [{tuple(min(n, most or n) for n in node) for both in counted for node in both[way]} for way in (0, 1)]
        leaving, entering = ((nothing, *sorted(way - {nothing})) for way in ways)
        return replace(self, leaving=leaving, entering=entering, most=most)

    def count_edges(self, graph: Graph) -> tuple[list[Valency], list[Valency]]:
        """How many edges of each label leave each node of a graph, and how many enter it."""
        leaving, entering = ([[0] * len(self.edge_labels) for _ in graph.nodes] for _ in range(2))
        for source, label, target in graph.edges:
            number = self.edge_numbers[label] - FIRST_LABEL
            leaving[source][number] += 1
            entering[target][number] += 1
        return list(map(tuple, leaving)), list(map(tuple, entering))

    def valencies(self, graph: Graph) -> tuple[list[int], list[int]]:
        """The number of each node's valency, of what leaves it and of what enters it; one that is not known is none."""
        ways = zip(self.count_edges(graph), self.valency_numbers, strict=True)
        leaving, entering = (
            [known.get(tuple(min(n, self.most or n) for n in v), 0) for v in way] for way, known in ways
        )
        return leaving, entering

    def knows_valencies(self, graph: Graph) -> bool:
        ways = zip(self.count_edges(graph), self.valency_numbers, strict=True)
        return all(tuple(min(n, self.most or n) for n in v) in known for way, known in ways for v in way)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many words, node labels and edge labels a model needs, reserved ones included."""
        nodes = len(self.node_labels) + self.copies
        edges = len(self.edge_labels) + bool(self.twins)
        return len(self.words) + FIRST_WORD, nodes + FIRST_LABEL, edges + FIRST_LABEL

    @property
    def seq2seq_sizes(self) -> tuple[int, int]:
        """How many words and form tokens a model needs that writes forms."""
        return len(self.words) + FIRST_WORD, len(self.form_tokens) + FIRST_FORM_TOKEN

    @property
    def valency_sizes(self) -> tuple[int, int]:
        return len(self.leaving), len(self.entering)

    @cached_property
    def valency_numbers(self) -> tuple[dict[Valency, int], dict[Valency, int]]:
        leaving, entering = ({v: number for number, v in enumerate(way)} for way in (self.leaving, self.entering))
        return leaving, entering

    @cached_property
    def word_numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, FIRST_WORD)}

    @cached_property
    def node_numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.node_labels, FIRST_LABEL)}

    @cached_property
    def variables(self) -> tuple[int, ...]:
        """The numbers of the node labels that are variables."""
        return tuple(number for label, number in self.node_numbers.items() if is_variable(label))

    @cached_property
    def edge_numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.edge_labels, FIRST_LABEL)}

    @cached_property
    def form_numbers(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.form_tokens, FIRST_FORM_TOKEN)}

    def encode(self, tokens: Sequence[str]) -> list[int]:
        return [self.word_numbers.get(token) or self.unknown(token) for token in tokens]

    def unseen(self, tokens: Sequence[str]) -> tuple[int, ...]:
        """The positions of tokens that training has not seen."""
        return tuple(position for position, token in enumerate(tokens) if token not in self.word_numbers)

    def unknown(self, word: str) -> int:
        """What a word is read as where it is not known, or taken not to be: its shape, if the model knows shapes.

        Of a shape that no word of training has, a model has learned nothing; the nearest is better.
        """
        found = shape(word)
        while found not in self._trained_shapes and found in NEAREST:
            found = NEAREST[found]
        return self.word_numbers.get(found, UNKNOWN)

    @cached_property
    def _trained_shapes(self) -> set[str]:
        return {shape(word) for word in self.words if word not in SHAPES}

    @cached_property
    def read_by_edges(self) -> list[int]:
        """What each word is for edges: itself, or its shape; nothing where there is no difference."""
        if not self.anonymous:
            return []
        unnamed = set(self.anonymous)
        words = [self.unknown(word) if word in unnamed else number for word, number in self.word_numbers.items()]
        return [*range(FIRST_WORD), *words]

    @property
    def copy(self) -> int:
        """The label that says: the same as the token."""
        return len(self.node_labels) + FIRST_LABEL

    @property
    def twin(self) -> int:
        """The edge label of twins (twins.py)."""
        return len(self.edge_labels) + FIRST_LABEL

    def is_copied(self, label: str) -> bool:
        return self.copies and label not in self.node_numbers and not self.choices(label)

    def choices(self, label: str) -> tuple[int, ...]:
        """The labels that a node may have any of (`any_of`), or none where this is one label."""
        return tuple(self.node_numbers[one] for one in label.split(OR)) if OR in label else ()

    def node_label(self, number: int, token: str = "") -> str:
        """token: that of the label's slot, which is the label where it is copied."""
        return token if self.copies and number == self.copy else self.node_labels[number - FIRST_LABEL]

    def edge_label(self, number: int) -> str:
        return self.edge_labels[number - FIRST_LABEL]

    def form_token(self, number: int) -> str:
        return self.form_tokens[number - FIRST_FORM_TOKEN]

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        try:
            raw: dict[str, Any] = json.loads(text)
            known = (raw["words"], raw["node_labels"], raw["edge_labels"], raw.get("form_tokens", ()))
            words, nodes, edges, forms = (tuple(map(str, kind)) for kind in known)
            leaving, entering = (tuple(tuple(map(int, v)) for v in raw.get(way, ())) for way in ("leaving", "entering"))
            return cls(
                words,
                nodes,
                edges,
                forms,
                leaving,
                entering,
                most=int(raw.get("most", 0)),
                copies=bool(raw.get("copies")),
                twins=int(raw.get("twins", 0)),
                anonymous=tuple(map(str, raw.get("anonymous", ()))),
                reach=int(raw.get("reach", 0)),
                loops=bool(raw.get("loops", True)),
                needs=tuple(Need(*map(int, need)) for need in raw.get("needs", ())),
                names=tuple(map(str, raw.get("names", ()))),
            )
        except (ValueError, KeyError, TypeError):
            raise RunError("vocab.json is damaged; the run folder can't be used") from None


def any_of(labels: Collection[str]) -> str:
    """The label of a node that may have any of these."""
    return OR.join(sorted(labels))


def shape(word: str) -> str:
    """What sort of word it is: with digits, capitalised, another, or a sign.

    >>> [shape(word) for word in ("R2-D2", "Zorblax", "zorbing", "§")]
    ['<0>', '<Aa>', '<a>', '<.>']
    """
    if any(character.isdigit() for character in word):
        return "<0>"
    if not any(character.isalpha() for character in word):
        return "<.>"
    return "<Aa>" if word[0].isupper() else "<a>"
