"""Text in, meaning out: a trained model with its vocabulary and formalism.

>>> parser = lagr.load("runs/quickstart")                                      # doctest: +SKIP
>>> parser.parse("The walrus painted a lantern .").form                        # doctest: +SKIP
'* walrus ( x _ 1 ) ; paint . agent ( x _ 2 , x _ 1 ) AND paint . theme ( x _ 2 , x _ 4 ) AND lantern ( x _ 4 )'
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, overload

import torch

from lagr import confidence, memory, named, pretrained, runs
from lagr.align import infer_alignment, with_choices
from lagr.alternatives import Alternatives, with_alternatives
from lagr.batch import pack, pad_tokens
from lagr.confidence import PLAIN, Calibration
from lagr.config import Config, load_rules
from lagr.datasets import LONGEST, Example, tokenize
from lagr.decode import Decoded, decode
from lagr.errors import ConfigError, DataError, FormError, LagrError, RunError
from lagr.forms import formalism as find_formalism
from lagr.forms import spelling
from lagr.graph import Graph
from lagr.model import GraphDistribution, LAGr
from lagr.naming import Names, shared_out
from lagr.rules import rulebook
from lagr.seq2seq import END, Seq2Seq
from lagr.twins import without_twins
from lagr.vocab import Vocabulary

# Pairs times edge labels in one batch. It bounds the memory, and on a CPU it keeps in the cache what a batch works on.
PAIRS_AT_ONCE, PAIRS_AT_ONCE_CPU = 4_000_000, 600_000
# Sentences in one batch of a seq2seq model. A GPU takes about as long for many as for few.
AT_ONCE, AT_ONCE_CPU = 1024, 64
SHORTER = "split the longest sentence, or free some memory"
Found = TypeVar("Found")


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
    """What a sentence means: the graph, its form, and how sure the model is of each part.

    Of a seq2seq run there is the form, and the graph that was read from it: no slots, and no part's probability.
    """

    tokens: tuple[str, ...]
    graph: Graph | None  # None: the form that was written can't be read; `problem` says why
    form: str | None  # None: there is no formalism, or the graph has no form; `problem` says why
    problem: str | None
    nodes: tuple[ParsedNode, ...]
    edges: tuple[ParsedEdge, ...]
    probability: float
    graph_layers: int
    abstained: bool = False  # the answer was too improbable to be given: no graph, no form, and `problem` says so
    alternatives: Alternatives | None = None  # of every slot and edge, where they were asked for
    next_best: tuple[Parse, ...] = ()  # the next likeliest graphs, where they were asked for
    unknown: tuple[int, ...] = ()  # positions of the tokens that training has not seen

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain: dict[str, Any] = {
            "tokens": list(self.tokens),
            "unknown": list(self.unknown),
            "form": self.form,
            "problem": self.problem,
            "abstained": self.abstained,
            "probability": self.probability,
            "graph_layers": self.graph_layers,
            "nodes": [vars(node) for node in self.nodes],
            "edges": [vars(edge) for edge in self.edges],
        }
        if self.graph is not None and not self.nodes:
            plain["graph"] = self.graph.to_dict()
        if self.alternatives is not None:
            plain["alternatives"] = self.alternatives.to_dict()
        if self.next_best:
            plain["next_best"] = [one.to_dict() for one in self.next_best]
        return plain

    def unless_below(self, probability: float) -> Parse:
        """The parse, or, where it is less probable than that, one without an answer, which says so."""
        if self.probability >= probability:
            return self
        problem = f"no answer: the likeliest has probability {self.probability:.3g}, which is below {probability:g}"
        return replace(
            self,
            graph=None,
            form=None,
            problem=problem,
            nodes=(),
            edges=(),
            abstained=True,
            alternatives=None,
            next_best=(),
        )

    def draw(self, kind: str = "text") -> str:
        """The sentence with its slots and arcs, as text for a terminal or as svg; the graph alone as dot."""
        from lagr import draw

        if self.graph is None:
            raise FormError(f"there is no graph to draw: {self.problem}")
        pictures: dict[str, Callable[..., str]] = {"text": draw.text, "svg": draw.svg}
        if kind == "dot":
            return draw.dot(self.tokens, self.graph, graph_layers=self.graph_layers)
        return pictures[kind](
            self.tokens,
            self.graph,
            graph_layers=self.graph_layers,
            node_probabilities=[node.probability for node in self.nodes] or None,
            edge_probabilities=[edge.probability for edge in self.edges] or None,
        )


@dataclass(frozen=True)
class Written:
    """A form, its graph, and the probability of the tokens it was written with."""

    form: str | None  # None: the tokens are no form; `problem` says why
    graph: Graph | None  # None: the form can't be read; `problem` says why
    problem: str | None
    probability: float


class SentenceParser(ABC):
    """What a parser does with sentences, whatever its model is."""

    def __init__(self, vocab: Vocabulary, formalism: str | None, config: Config, device: str) -> None:
        self.vocab, self.formalism, self.config, self.device = vocab, formalism, config, device
        self.calibration: Calibration = PLAIN

    @overload
    def parse(self, sentences: str, *, nbest: int = 1, min_probability: float = 0.0) -> Parse: ...  # type: ignore[overload-overlap]  # a str is a sequence of str
    @overload
    def parse(self, sentences: Sequence[str], *, nbest: int = 1, min_probability: float = 0.0) -> list[Parse]: ...
    def parse(
        self, sentences: str | Sequence[str], *, nbest: int = 1, min_probability: float = 0.0
    ) -> Parse | list[Parse]:
        """The meaning of a sentence, or of each of many, which are parsed in batches.

        nbest: with that many graphs, the likeliest and its `next_best`. min_probability: no answer is given that is
        less probable; the parse says so, and is `abstained`.
        """
        if isinstance(sentences, str):
            return self.parse([sentences], nbest=nbest, min_probability=min_probability)[0]
        if nbest < 1:
            raise ConfigError(f"nbest is {nbest}; at least one graph has to be asked for")
        if not 0 <= min_probability <= 1:
            raise ConfigError(f"min_probability is {min_probability:g}; a probability is from 0 to 1")
        tokens = [tokenize(sentence) for sentence in sentences]
        parses = self.parse_nbest(tokens, nbest) if nbest > 1 else self.parse_tokens(tokens)
        return [parse.unless_below(min_probability) for parse in parses]

    @abstractmethod
    def parse_tokens(self, sentences: Sequence[Sequence[str]], alternatives: int = 0) -> list[Parse]:
        """The meaning of each sentence, given as its tokens; with so many of the likeliest labels of every part."""

    @abstractmethod
    def parse_nbest(self, sentences: Sequence[Sequence[str]], count: int) -> list[Parse]:
        """The meaning of each sentence, given as its tokens, with those that are next best: `count` in all."""

    def check(self, sentences: Sequence[Sequence[str]]) -> None:
        """DataError where a sentence can't be parsed."""
        for number, tokens in enumerate(sentences, start=1):
            which = f"sentence {number}" if len(sentences) > 1 else "the sentence"
            if not tokens:
                raise DataError(f"{which} is empty; give at least one word")
            if len(tokens) > LONGEST:
                raise DataError(f"{which} has {len(tokens):,} tokens; at most {LONGEST:,} can be parsed at once")

    def in_batches(
        self,
        sentences: int,
        batches: Iterable[list[int]],
        run: Callable[[list[int]], list[Found]],
        progress: Callable[[int], None],
    ) -> list[Found]:
        """What `run` finds of every sentence, given the numbers of those in a batch at a time."""
        results: dict[int, Found] = {}
        with memory.explained("parsing", SHORTER):
            for rows in batches:
                results |= zip(rows, run(rows), strict=True)
                progress(len(results))
        return [results[row] for row in range(sentences)]


def batches(sentences: Sequence[Sequence[str]], most: int, weight: Callable[[int], int]) -> Iterator[list[int]]:
    """Numbers of sentences that share a batch: of similar length, so that padding is small.

    weight(tokens): what a sentence takes of the `most` that a batch may take, padded to the longest of it.
    """
    rows: list[int] = []
    for row in sorted(range(len(sentences)), key=lambda row: len(sentences[row])):
        if rows and (len(rows) + 1) * weight(len(sentences[row])) > most:
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows


class Parser(SentenceParser):
    """Labels the graph, and writes the form from it."""

    def __init__(
        self, model: LAGr, vocab: Vocabulary, formalism: str | None, config: Config, device: str = "cpu"
    ) -> None:
        super().__init__(vocab, formalism, config, device)
        self.model = model.to(device).eval()
        self.model.attend_up_to(vocab.reach)  # only here: training has no distances that it doesn't have
        self.run_model: Callable[..., GraphDistribution] = self.model
        self.pretrained = pretrained.load(config.model.pretrained) if config.model.pretrained else None
        self.rules = rulebook(config.rules, vocab)
        self._write = find_formalism(formalism).write if formalism else None
        alike = config.align.variables == "alike" and vocab.variables
        self.names = Names(vocab.variables, vocab, self._written if formalism else None) if alike else None

    def parse_tokens(self, sentences: Sequence[Sequence[str]], alternatives: int = 0) -> list[Parse]:
        found = self.decode(sentences, alternatives=alternatives)
        return [self._parse(tokens, one) for tokens, one in zip(sentences, found, strict=True)]

    def parse_nbest(self, sentences: Sequence[Sequence[str]], count: int) -> list[Parse]:
        from lagr.nbest import nbest

        def reading(rows: list[int], dist: GraphDistribution) -> list[list[Decoded]]:
            some = [sentences[row] for row in rows]
            return nbest(dist, self.vocab, count, self.calibration, some, self.rules, self.names)

        found = self.read(sentences, reading)
        parses = [[self._parse(tokens, one) for one in its] for tokens, its in zip(sentences, found, strict=True)]
        return [replace(first, next_best=tuple(others)) for first, *others in parses]

    def decode(
        self,
        sentences: Sequence[Sequence[str]],
        progress: Callable[[int], None] = lambda done: None,
        alternatives: int = 0,
    ) -> list[Decoded]:
        """The likeliest graph of every sentence; with so many of the likeliest labels of each slot and edge."""

        def reading(rows: list[int], dist: GraphDistribution) -> list[Decoded]:
            known = (self.vocab, self.calibration, [sentences[row] for row in rows])
            dist, found = shared_out(dist, lambda named: decode(named, *known, self.rules), self.names)
            return with_alternatives(found, dist, alternatives, *known) if alternatives else found

        return self.read(sentences, reading, progress)

    def read(
        self,
        sentences: Sequence[Sequence[str]],
        reading: Callable[[list[int], GraphDistribution], list[Found]],
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[Found]:
        """What `reading` makes of the distribution of every sentence; it is given those of a batch at a time."""

        def run(rows: list[int]) -> list[Found]:
            some = [sentences[row] for row in rows]
            with torch.inference_mode():
                inputs = pad_tokens(some, self.vocab, self.device)
                if self.pretrained is None:
                    dist = self.run_model(*inputs)
                else:
                    dist = self.run_model(*inputs, features=self.pretrained.read(some, self.device)[None])
                dist = without_twins(dist) if self.vocab.twins else dist
                return reading(rows, dist)

        self.check(sentences)
        memory.check_parsing(self.model, max(map(len, sentences), default=0), self.device)
        return self.in_batches(len(sentences), self._batches(sentences), run, progress)

    def can_align(self, example: Example) -> bool:
        """Whether all labels of the graph are known, and its nodes have room in the sentence's slots."""
        graph, vocab = example.graph, self.vocab
        fits = len(graph.nodes) <= len(example.tokens) * self.model.graph_layers
        labels = all(label in vocab.node_numbers or (vocab.copies and label in example.tokens) for label in graph.nodes)
        return fits and labels and all(edge.label in vocab.edge_numbers for edge in graph.edges)

    def align(self, examples: Sequence[Example]) -> list[Example]:
        """The examples with the alignment of their graphs that the model finds likeliest."""
        aligned, settings = [], self.config.align
        with torch.inference_mode(), memory.explained("aligning", SHORTER):
            for rows in self._batches([example.tokens for example in examples]):
                some = [replace(examples[row], graph=examples[row].graph.with_slots(None)) for row in rows]
                layers, alike = self.model.graph_layers, self.names is not None
                data = pack(some, self.vocab, layers, self.device, self.pretrained, alike)
                batch = data.batch
                features = None if batch.features is None else batch.features[None]
                dist = self.model(batch.tokens[None], batch.lengths[None], features=features)
                choices = [torch.tensor(labels, device=self.device) for labels in data.choices]
                dist = replace(dist, node_log_probs=with_choices(dist.node_log_probs, choices))
                target = data.asked(batch.target)
                found = infer_alignment(
                    dist,
                    target,
                    settings.candidates,
                    settings.noise,
                    noise_shape=settings.noise_shape,
                    swaps=settings.swaps,
                )
                aligned += [(row, slots) for row, slots in zip(rows, found.tolist(), strict=True)]
        return [
            replace(examples[row], graph=examples[row].graph.with_slots(slots[: len(examples[row].graph.nodes)]))
            for row, slots in sorted(aligned)
        ]

    def _batches(self, sentences: Sequence[Sequence[str]]) -> Iterator[list[int]]:
        most = PAIRS_AT_ONCE_CPU if self.device == "cpu" else PAIRS_AT_ONCE
        layers, labels = self.model.graph_layers, self.model.edge_labels
        return batches(sentences, most, lambda tokens: (tokens * layers) ** 2 * labels)

    def _written(self, graph: Graph) -> str:
        """The form of a graph that was decoded."""
        assert self._write is not None
        return self._write(graph.at_tokens(self.model.graph_layers))

    def _parse(self, tokens: Sequence[str], found: Decoded) -> Parse:
        graph, layers = found.graph, self.model.graph_layers
        form, problem = None, None
        if self._write is not None:
            try:
                form = self._written(graph)
            except FormError as error:
                problem = str(error)
        assert graph.slots is not None
        nodes = tuple(
            ParsedNode(label, slot, slot // layers, slot % layers, probability)
            for label, slot, probability in zip(graph.nodes, graph.slots, found.node_probabilities, strict=True)
        )
        edges = tuple(ParsedEdge(*edge, p) for edge, p in zip(graph.edges, found.edge_probabilities, strict=True))
        return Parse(
            tuple(tokens),
            graph,
            form,
            problem,
            nodes,
            edges,
            found.probability,
            layers,
            alternatives=found.alternatives,
            unknown=self.vocab.unseen(tokens),
        )


class FormParser(SentenceParser):
    """Writes the form token by token, and reads the graph from it."""

    def __init__(
        self, model: Seq2Seq, vocab: Vocabulary, formalism: str | None, config: Config, device: str = "cpu"
    ) -> None:
        super().__init__(vocab, formalism, config, device)
        self.model = model.to(device).eval()
        self.spelling = spelling(formalism, config.data.form)
        self._read = find_formalism(formalism or "").read

    def parse_tokens(self, sentences: Sequence[Sequence[str]], alternatives: int = 0) -> list[Parse]:
        return [  # a form's tokens are no slots: there are no alternatives to name
            Parse(
                tuple(tokens),
                found.graph,
                found.form,
                found.problem,
                nodes=(),
                edges=(),
                probability=found.probability,
                graph_layers=1,
                unknown=self.vocab.unseen(tokens),
            )
            for tokens, found in zip(sentences, self.write(sentences), strict=True)
        ]

    def parse_nbest(self, sentences: Sequence[Sequence[str]], count: int) -> list[Parse]:
        raise RunError("the n best graphs need a model that labels graphs; this run writes forms")

    def write(
        self, sentences: Sequence[Sequence[str]], progress: Callable[[int], None] = lambda done: None
    ) -> list[Written]:
        """The form of every sentence, its likeliest token every time."""
        self.check(sentences)
        most = AT_ONCE_CPU if self.device == "cpu" else AT_ONCE
        each_alike = batches(sentences, most, lambda tokens: 1)
        return self.in_batches(
            len(sentences), each_alike, lambda rows: self._write([sentences[row] for row in rows]), progress
        )

    def _write(self, sentences: list[Sequence[str]]) -> list[Written]:
        with torch.inference_mode():
            rows, log_probs = self.model.write(*pad_tokens(sentences, self.vocab, self.device))
        return [
            self._written(sentence, row, probability)
            for sentence, row, probability in zip(sentences, rows[0].tolist(), log_probs[0].exp().tolist(), strict=True)
        ]

    def _written(self, sentence: Sequence[str], row: list[int], probability: float) -> Written:
        tokens = [self.vocab.form_token(number) for number in row[: row.index(END) if END in row else None]]
        form, graph, problem = None, None, None
        try:
            form = self.spelling.join(tokens)
            graph = self._read(self.spelling.in_order(form), sentence)
        except LagrError as error:
            problem = str(error)
        return Written(form, graph, problem, self.calibration.whole(probability))


AnyParser = Parser | FormParser


def load(
    run: str | Path, device: str = "cpu", onnx: str | Path | None = None, rules: str | Path | None = None
) -> AnyParser:
    """The parser of a run folder, or of a model that comes with the package, by its name (`lagr models` lists them).

    onnx: the file that `lagr export` wrote of it, which then does the work. rules: a TOML file with rules for parses to
    keep, in place of the run's own.
    """
    folder = runs.open_run(named.find(run))
    config, formalism = runs.read_config(folder)
    config = replace(config, rules=load_rules(rules)) if rules else config
    vocab = runs.read_vocab(folder)
    if config.model.pretrained and pretrained.load(config.model.pretrained).fingerprint != runs.read_encoder(folder):
        raise RunError(f"{config.model.pretrained} is not the encoder that {folder} was trained with; put that back")
    model = build(config, vocab)
    runs.read_weights(folder, model)
    parser = parser_of(model, vocab, formalism, config, "cpu" if onnx else device)
    parser.calibration = confidence.read(folder)
    if onnx:
        from lagr.export import OnnxModel

        parser = only_lagr(parser, "--onnx")
        if parser.pretrained:
            raise RunError("--onnx: a run with a pretrained encoder can't be run from an ONNX file")
        parser.run_model = OnnxModel(onnx, parser.model)
    return parser


def build(config: Config, vocab: Vocabulary) -> LAGr | Seq2Seq:
    """An untrained model as the configuration says."""
    if config.model.kind == "seq2seq":
        return Seq2Seq(*vocab.seq2seq_sizes, **config.model.options())
    encoder = config.model.pretrained
    features = pretrained.load(encoder).width if encoder else 0
    return LAGr(
        *vocab.sizes,
        valencies=vocab.valency_sizes,
        features=features,
        read_by_edges=vocab.read_by_edges,
        twins=bool(vocab.twins),
        **config.model.options(),
    )


def parser_of(
    model: LAGr | Seq2Seq, vocab: Vocabulary, formalism: str | None, config: Config, device: str
) -> AnyParser:
    """The parser that runs this kind of model."""
    if isinstance(model, Seq2Seq):
        return FormParser(model, vocab, formalism, config, device)
    return Parser(model, vocab, formalism, config, device)


def only_lagr(parser: AnyParser, what: str) -> Parser:
    """The parser, if it is LAGr's: the others can't do that."""
    if not isinstance(parser, Parser):
        raise RunError(f"{what} needs a model that labels graphs; this run writes forms (model.kind = seq2seq)")
    return parser
