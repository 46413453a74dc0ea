"""Words and labels ⇄ numbers. Word 0 is padding and 1 unknown; node and edge label 0 is null; form token 0 ends it.

Where labels may be copied, the last node label is *copy*: a slot's label is its token (copying.py).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from lagr.datasets import Example
from lagr.errors import RunError
from lagr.forms import Spelling

SHAPES = ("<0>", "<Aa>", "<a>", "<.>")
PADDING, UNKNOWN, FIRST_WORD, FIRST_LABEL, FIRST_FORM_TOKEN = 0, 1, 2, 1, 1


@dataclass(frozen=True)
class Vocabulary:
    """Words, node labels and edge labels, in the order of their numbers, without the reserved ones.

    form_tokens: what seq2seq writes forms with. copies: whether there is the label *copy*.
    """

    words: tuple[str, ...]
    node_labels: tuple[str, ...]
    edge_labels: tuple[str, ...]
    form_tokens: tuple[str, ...] = ()
    copies: bool = False

    @classmethod
    def of(
        cls,
        examples: Iterable[Example],
        spelling: Spelling | None = None,
        copied: Collection[str] | None = None,
        shapes: bool = False,
    ) -> Vocabulary:
        """All words and labels of some examples, sorted, so that equal data gives equal numbers.

        copied: node labels that are left to *copy*, if there is to be one. shapes: unknown words are told apart.
        """
        words: set[str] = set(SHAPES if shapes else ())
        nodes: set[str] = set()
        edges: set[str] = set()
        forms: set[str] = set()
        for example in examples:
            words.update(example.tokens)
            nodes.update(example.graph.nodes)
            edges.update(edge.label for edge in example.graph.edges)
            if spelling and example.written_form is not None:
                forms.update(spelling.split(example.written_form))

        def ordered(found: set[str]) -> tuple[str, ...]:
            return tuple(sorted(found))

        closed = nodes - set(copied or ())
        return cls(ordered(words), ordered(closed), ordered(edges), ordered(forms), copies=copied is not None)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many words, node labels and edge labels a model needs, reserved ones included."""
        nodes = len(self.node_labels) + self.copies
        return len(self.words) + FIRST_WORD, nodes + FIRST_LABEL, len(self.edge_labels) + FIRST_LABEL

    @property
    def seq2seq_sizes(self) -> tuple[int, int]:
        """How many words and form tokens a model needs that writes forms."""
        return len(self.words) + FIRST_WORD, len(self.form_tokens) + FIRST_FORM_TOKEN

    @cached_property
    def word_numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, FIRST_WORD)}

    @cached_property
    def node_numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.node_labels, FIRST_LABEL)}

    @cached_property
    def edge_numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.edge_labels, FIRST_LABEL)}

    @cached_property
    def form_numbers(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.form_tokens, FIRST_FORM_TOKEN)}

    def encode(self, tokens: Sequence[str]) -> list[int]:
        return [self.word_numbers.get(token) or self.unknown(token) for token in tokens]

    def unknown(self, word: str) -> int:
        """What a word is read as where it is not known, or taken not to be: its shape, if the model knows shapes."""
        return self.word_numbers.get(shape(word), UNKNOWN)

    @property
    def copy(self) -> int:
        """The label that says: the same as the token."""
        return len(self.node_labels) + FIRST_LABEL

    def is_copied(self, label: str) -> bool:
        return self.copies and label not in self.node_numbers

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
            found = (raw["words"], raw["node_labels"], raw["edge_labels"], raw.get("form_tokens", ()))
            words, nodes, edges, forms = (tuple(map(str, kind)) for kind in found)
            return cls(words, nodes, edges, forms, bool(raw.get("copies")))
        except (ValueError, KeyError, TypeError):
            raise RunError("vocab.json is damaged; the run folder can't be used") from None


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
