"""Words and labels ⇄ numbers. Word 0 is padding and 1 unknown; node and edge label 0 is null; form token 0 ends it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from lagr.datasets import Example
from lagr.errors import RunError
from lagr.forms import Spelling

PADDING, UNKNOWN, FIRST_WORD, FIRST_LABEL, FIRST_FORM_TOKEN = 0, 1, 2, 1, 1


@dataclass(frozen=True)
class Vocabulary:
    """Words, node labels and edge labels, in the order of their numbers, without the reserved ones.

    form_tokens: what seq2seq writes forms with.
    """

    words: tuple[str, ...]
    node_labels: tuple[str, ...]
    edge_labels: tuple[str, ...]
    form_tokens: tuple[str, ...] = ()

    @classmethod
    def of(cls, examples: Iterable[Example], spelling: Spelling | None = None) -> Vocabulary:
        """All words and labels of some examples, sorted, so that equal data gives equal numbers."""
        words: set[str] = set()
        nodes: set[str] = set()
        edges: set[str] = set()
        forms: set[str] = set()
        for example in examples:
            words.update(example.tokens)
            nodes.update(example.graph.nodes)
            edges.update(edge.label for edge in example.graph.edges)
            if spelling and example.written_form is not None:
                forms.update(spelling.split(example.written_form))
        return cls(*(tuple(sorted(found)) for found in (words, nodes, edges, forms)))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many words, node labels and edge labels a model needs, reserved ones included."""
        return len(self.words) + FIRST_WORD, len(self.node_labels) + FIRST_LABEL, len(self.edge_labels) + FIRST_LABEL

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
        return [self.word_numbers.get(token, UNKNOWN) for token in tokens]

    def node_label(self, number: int) -> str:
        return self.node_labels[number - FIRST_LABEL]

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
            return cls(*(tuple(map(str, kind)) for kind in known))
        except (ValueError, KeyError, TypeError):
            raise RunError("vocab.json is damaged; the run folder can't be used") from None
