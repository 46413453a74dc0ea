"""Words and labels ⇄ numbers. Word 0 is padding and word 1 unknown; node and edge label 0 is null."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from lagr.datasets import Example
from lagr.errors import RunError

PADDING, UNKNOWN, FIRST_WORD, FIRST_LABEL = 0, 1, 2, 1


@dataclass(frozen=True)
class Vocabulary:
    """Words, node labels and edge labels, in the order of their numbers, without the reserved ones."""

    words: tuple[str, ...]
    node_labels: tuple[str, ...]
    edge_labels: tuple[str, ...]

    @classmethod
    def of(cls, examples: Iterable[Example]) -> Vocabulary:
        """All words and labels of some examples, sorted, so that equal data gives equal numbers."""
        words: set[str] = set()
        nodes: set[str] = set()
        edges: set[str] = set()
        for example in examples:
            words.update(example.tokens)
            nodes.update(example.graph.nodes)
            edges.update(edge.label for edge in example.graph.edges)
        return cls(tuple(sorted(words)), tuple(sorted(nodes)), tuple(sorted(edges)))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many words, node labels and edge labels a model needs, reserved ones included."""
        return len(self.words) + FIRST_WORD, len(self.node_labels) + FIRST_LABEL, len(self.edge_labels) + FIRST_LABEL

    @cached_property
    def word_numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, FIRST_WORD)}

    @cached_property
    def node_numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.node_labels, FIRST_LABEL)}

    @cached_property
    def edge_numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.edge_labels, FIRST_LABEL)}

    def encode(self, tokens: Sequence[str]) -> list[int]:
        return [self.word_numbers.get(token, UNKNOWN) for token in tokens]

    def node_label(self, number: int) -> str:
        return self.node_labels[number - FIRST_LABEL]

    def edge_label(self, number: int) -> str:
        return self.edge_labels[number - FIRST_LABEL]

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Vocabulary:
        try:
            raw: dict[str, Any] = json.loads(text)
            return cls(*(tuple(map(str, raw[key])) for key in ("words", "node_labels", "edge_labels")))
        except (ValueError, KeyError, TypeError):
            raise RunError("vocab.json is damaged; the run folder can't be used") from None
