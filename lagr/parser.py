"""Text in, meaning out: a trained model with its vocabulary and formalism.

>>> parser = lagr.load("runs/quickstart")                                      # doctest: +SKIP
>>> parser.parse("The walrus painted a lantern .").form                        # doctest: +SKIP
'* walrus ( x _ 1 ) ; paint . agent ( x _ 2 , x _ 1 ) AND paint . theme ( x _ 2 , x _ 4 ) AND lantern ( x _ 4 )'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from lagr import memory, runs
from lagr.align import infer_alignment
from lagr.batch import LONGEST, pack, pad_tokens
from lagr.config import Config
from lagr.datasets import Example, tokenize
from lagr.decode import Decoded, decode
from lagr.errors import DataError, FormError
from lagr.forms import formalism as find_formalism
from lagr.graph import Graph
from lagr.model import GraphDistribution, LAGr
from lagr.vocab import Vocabulary

# Pairs times edge labels in one batch. It bounds the memory, and on a CPU it keeps in the cache what a batch works on.
PAIRS_AT_ONCE, PAIRS_AT_ONCE_CPU = 4_000_000, 600_000
SHORTER = "split the longest sentence, or free some memory"


@dataclass(frozen=True)
class ParsedNode:
    label: str
    slot: int
    token: int  # the position of the word it belongs to
    layer: int
    probability: float


@dataclass(frozen=True)
class ParsedEdge:
    source: int
    label: str
    target: int
    probability: float


@dataclass(frozen=True)
class Parse:
    """What a sentence means: the graph, its form, and how sure the model is of each part."""

    tokens: tuple[str, ...]
    graph: Graph
    form: str | None  # None: there is no formalism, or the graph has no form; `problem` says why
    problem: str | None
    nodes: tuple[ParsedNode, ...]
    edges: tuple[ParsedEdge, ...]
    probability: float
    graph_layers: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "tokens": list(self.tokens),
            "form": self.form,
            "problem": self.problem,
            "probability": self.probability,
            "graph_layers": self.graph_layers,
            "nodes": [vars(node) for node in self.nodes],
            "edges": [vars(edge) for edge in self.edges],
        }

    def draw(self, kind: str = "text") -> str:
        """The sentence with its slots and arcs, as text for a terminal or as svg."""
        from lagr import draw

        pictures: dict[str, Callable[..., str]] = {"text": draw.text, "svg": draw.svg}
        return pictures[kind](
            self.tokens,
            self.graph,
            graph_layers=self.graph_layers,
            node_probabilities=[node.probability for node in self.nodes],
            edge_probabilities=[edge.probability for edge in self.edges],
        )


class Parser:
    def __init__(
        self, model: LAGr, vocab: Vocabulary, formalism: str | None, config: Config, device: str = "cpu"
    ) -> None:
        self.model = model.to(device).eval()
        self.run_model: Callable[[Tensor, Tensor], GraphDistribution] = self.model
        self.vocab, self.config, self.device = vocab, config, device
        self.formalism = formalism
        self._write = find_formalism(formalism).write if formalism else None

    @overload
    def parse(self, sentences: str) -> Parse: ...  # type: ignore[overload-overlap]  # a str is a sequence of str
    @overload
    def parse(self, sentences: Sequence[str]) -> list[Parse]: ...
    def parse(self, sentences: str | Sequence[str]) -> Parse | list[Parse]:
        """The meaning of a sentence, or of each of many, which are parsed in batches."""
        if isinstance(sentences, str):
            return self.parse([sentences])[0]
        return self.parse_tokens([tokenize(sentence) for sentence in sentences])

    def parse_tokens(self, sentences: Sequence[Sequence[str]]) -> list[Parse]:
        return [self._parse(tokens, found) for tokens, found in zip(sentences, self.decode(sentences), strict=True)]

    def decode(
        self, sentences: Sequence[Sequence[str]], progress: Callable[[int], None] = lambda done: None
    ) -> list[Decoded]:
        """The likeliest graph of every sentence. Sentences of similar length share a batch, so padding is small."""
        for number, tokens in enumerate(sentences, start=1):
            which = f"sentence {number}" if len(sentences) > 1 else "the sentence"
            if not tokens:
                raise DataError(f"{which} is empty; give at least one word")
            if len(tokens) > LONGEST:
                raise DataError(f"{which} has {len(tokens):,} tokens; at most {LONGEST:,} can be parsed at once")
        memory.check_parsing(self.model, max(map(len, sentences), default=0), self.device)
        results: list[Decoded | None] = [None] * len(sentences)
        done = 0
        with torch.inference_mode(), memory.explained("parsing", SHORTER):
            for rows in self._batches(sentences):
                dist = self.run_model(*pad_tokens([sentences[row] for row in rows], self.vocab, self.device))
                for row, found in zip(rows, decode(dist, self.vocab), strict=True):
                    results[row] = found
                done += len(rows)
                progress(done)
        return [found for found in results if found is not None]

    def align(self, examples: Sequence[Example]) -> list[Example]:
        """The examples with the alignment of their graphs that the model finds likeliest."""
        aligned, settings = [], self.config.align
        with torch.inference_mode(), memory.explained("aligning", SHORTER):
            for rows in self._batches([example.tokens for example in examples]):
                batch = pack([examples[row] for row in rows], self.vocab, self.model.graph_layers, self.device).batch
                dist = self.model(batch.tokens[None], batch.lengths[None])
                found = infer_alignment(dist, batch.target, settings.candidates, settings.noise)
                aligned += [(row, slots) for row, slots in zip(rows, found.tolist(), strict=True)]
        return [
            replace(examples[row], graph=examples[row].graph.with_slots(slots[: len(examples[row].graph.nodes)]))
            for row, slots in sorted(aligned)
        ]

    def _batches(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[int]]:
        most = PAIRS_AT_ONCE_CPU if self.device == "cpu" else PAIRS_AT_ONCE
        rows: list[int] = []
        for row in sorted(range(len(sentences)), key=lambda row: len(sentences[row])):
            slots = len(sentences[row]) * self.model.graph_layers
            if rows and (len(rows) + 1) * slots * slots * self.model.edge_labels > most:
                yield rows
                rows = []
            rows.append(row)
        if rows:
            yield rows

    def _parse(self, tokens: Sequence[str], found: Decoded) -> Parse:
        graph, layers = found.graph, self.model.graph_layers
        form, problem = None, None
        if self._write is not None:
            try:
                form = self._write(graph.at_tokens(layers))
            except FormError as error:
                problem = str(error)
        assert graph.slots is not None
        nodes = tuple(
            ParsedNode(label, slot, slot // layers, slot % layers, probability)
            for label, slot, probability in zip(graph.nodes, graph.slots, found.node_probabilities, strict=True)
        )
        edges = tuple(ParsedEdge(*edge, p) for edge, p in zip(graph.edges, found.edge_probabilities, strict=True))
        return Parse(tuple(tokens), graph, form, problem, nodes, edges, found.probability, layers)


def load(run: str | Path, device: str = "cpu", onnx: str | Path | None = None) -> Parser:
    """The parser of a run folder. onnx: the file that `lagr export` wrote of it, which then does the work."""
    folder = runs.open_run(run)
    config, formalism = runs.read_config(folder)
    vocab = runs.read_vocab(folder)
    model = build(config, vocab)
    runs.read_weights(folder, model)
    parser = Parser(model, vocab, formalism, config, "cpu" if onnx else device)
    if onnx:
        from lagr.export import OnnxModel

        parser.run_model = OnnxModel(onnx, model)
    return parser


def build(config: Config, vocab: Vocabulary) -> LAGr:
    """An untrained model as the configuration says."""
    return LAGr(*vocab.sizes, **vars(config.model))
