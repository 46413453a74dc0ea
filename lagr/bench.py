"""`lagr bench`: ours and the alternative, side by side in one run. Ratios carry over to other machines, times don't.

Every benchmark returns {"what", "ours_ms", "other", "other_ms", "ratio"}; ratio says how many times faster ours is. The
profile has "parts" instead of an alternative.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lagr import config as configs
from lagr.batch import pad_tokens
from lagr.bench_references import Published, graphs_pair_by_pair
from lagr.datasets import Example, Source, open_source
from lagr.devices import choose_device, machine
from lagr.errors import DataError
from lagr.evaluate import evaluate as score
from lagr.evaluate import evaluate_parser
from lagr.forms import FORMALISMS
from lagr.graph import Graph
from lagr.model import GraphDistribution, LAGr
from lagr.parser import Parser
from lagr.seq2seq import END, Seq2Seq
from lagr.supervision import training_examples
from lagr.train import Trainer
from lagr.vocab import Vocabulary

Result = dict[str, Any]


def milliseconds(run: Callable[[], object], repeats: int = 5) -> float:
    """The median time of a run, after one that warms up."""
    run()
    times = []
    for _ in range(repeats):
        _synchronize()
        began = time.perf_counter()
        run()
        _synchronize()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _result(what: str, ours: float, other: str, other_ms: float, **more: Any) -> Result:
    ratio = round(other_ms / ours, 2)
    return {
        "what": what,
        "ours_ms": round(ours, 4),
        "other": other,
        "other_ms": round(other_ms, 4),
        "ratio": ratio,
        **more,
    }


# Assignment


def matching() -> Result:
    from scipy.optimize import linear_sum_assignment

    from lagr.matching import best_assignment

    B, K, J, M, V = 256, 5, 18, 60, 85
    device, generator = choose_device("auto"), torch.Generator().manual_seed(0)
    log_probs = (3 * torch.randn(B, V, M, generator=generator)).log_softmax(1)
    labels = torch.randint(1, V, (B, J), generator=generator)
    # The published way assigns null to the slots that are left over too, so its problems are square.
    labels = torch.cat([labels, torch.zeros(B, M - J, dtype=torch.long)], dim=1)
    square = log_probs.gather(1, labels[..., None].expand(-1, -1, M))[:, None] + torch.randn(
        B, K, M, M, generator=generator
    )
    gain = (square[:, :, :J] - log_probs[:, None, :1]).to(device)
    problems = square.view(B * K, M, M).numpy()
    rows, columns = torch.full((B,), J, device=device), torch.full((B,), M, device=device)
    ours = milliseconds(lambda: best_assignment(gain, rows, columns))
    other = milliseconds(lambda: [linear_sum_assignment(problem, maximize=True) for problem in problems], 3)
    return _result(f"{B * K} problems of {J} × {M}", ours, "SciPy in a loop, square", other)


# Training steps


PAPERS = {"strong": "cogs-strong-transformer-sep", "weak": "cfq-weak-transformer-sh-k5"}  # the presets that are timed


def train_strong() -> Result:
    return _train("strong")


def train_weak() -> Result:
    """Also with one candidate, and with alignments that are given instead of inferred."""
    settings, source = _task("weak")
    one = _step_ms(configs.override(settings, [("align", "candidates", 1)]), source)
    held: Any = [("align", "start", "association"), ("align", "hold", settings.train.steps)]
    given = _step_ms(configs.override(settings, held), source)
    return {**_train("weak"), "one_candidate_ms": round(one, 4), "given_alignments_ms": round(given, 4)}


def seeds() -> Result:
    settings, source = _task("strong")
    one, ten = _step_ms(settings, source), _step_ms(settings, source, 10)
    what = f"a step of 10 seeds at once, {_shape(settings)}"
    return _result(what, ten, "10 seeds one after the other", 10 * one, device=machine(choose_device("auto")))


def _train(supervision: str) -> Result:
    settings, source = _task(supervision)
    device = choose_device("auto")
    reference = Published(settings, training_examples(settings, source), device)
    steps = 10

    def some_steps() -> None:
        for _ in range(steps):
            reference.step()

    ours, other = _step_ms(settings, source), milliseconds(some_steps, 3) / steps
    what = f"a {supervision} step, {_shape(settings)}"
    return _result(what, ours, "the published way", other, device=machine(device))


@cache
def _task(supervision: str) -> tuple[configs.Config, Source]:
    """What is trained: on a GPU the paper's own, if its data are at hand; else the shape of its CFQ model, on mini."""
    device = choose_device("auto")
    if device == "cuda":
        settings = configs.load(PAPERS[supervision])
        with suppress(DataError):
            return settings, open_source(settings.data.name, partition=settings.data.partition)
    settings = _settings(supervision, device)
    return settings, open_source("mini", size=settings.data.size)


def _settings(supervision: str, device: str) -> configs.Config:
    """The shape of the paper's CFQ model, for mini; smaller on a CPU, where it would take minutes."""
    width, batch, size = (256, 256, 4000) if device == "cuda" else (64, 64, 1000)
    changes: list[tuple[str, str, Any]] = [
        ("data", "size", size), ("data", "recombine", 0.0),
        ("model", "width", width), ("model", "encoder_layers", 4), ("model", "heads", 8),
        ("model", "graph_layers", 2), ("train", "batch", batch), ("align", "start", "model"), ("align", "hold", 0),
        ("align", "supervision", supervision), ("align", "candidates", 5), ("align", "noise", 10.0),
    ]  # fmt: skip
    return configs.override(configs.load("quickstart"), changes)


def _shape(settings: configs.Config) -> str:
    model, weak = settings.model, settings.align.supervision == "weak"
    sizes = f"batch {settings.train.batch}, width {model.width}, {model.encoders} encoders, L = {model.graph_layers}"
    return f"{sizes}{f', K = {settings.align.candidates}' if weak else ''}, on {settings.data.name}"


def _trainer(settings: configs.Config, seeds: int, folder: Path, source: Source) -> Trainer:
    examples = training_examples(settings, source)
    its_configs = [configs.override(settings, [("train", "seed", seed)]) for seed in range(seeds)]
    splits = {"train": examples}
    return Trainer(its_configs, source, splits, Vocabulary.of(examples), [folder] * seeds, folder / "state")


@cache  # the same step is the alternative of another
def _step_ms(settings: configs.Config, source: Source, seeds: int = 1) -> float:
    with TemporaryDirectory() as folder:
        trainer = _trainer(settings, seeds, Path(folder), source)
        return step_milliseconds(trainer, steps=300 if trainer.device == "cuda" else max(5, 30 // seeds))


def step_milliseconds(trainer: Trainer, steps: int) -> float:
    take_every_shape(trainer)

    def some_steps() -> None:
        for _ in range(steps):
            trainer._take_step()

    return milliseconds(some_steps, 3) / steps


def take_every_shape(trainer: Trainer) -> None:
    """A step of each bucket, so that none is compiled later."""
    for number in range(len(trainer.schedule.buckets)):
        trainer.step = int(np.flatnonzero(trainer.schedule.order == number)[0])
        trainer._take_step()
    trainer.step = 0


# Parsing


def _trained_parser(settings: configs.Config, source: Source) -> Parser:
    """A parser after some steps of training: untrained weights would find an edge between any two words."""
    with TemporaryDirectory() as folder:
        trainer = _trainer(settings, 1, Path(folder), source)
        for _ in range(settings.train.steps):
            trainer._take_step()
        model = LAGr(*trainer.vocab.sizes, **settings.model.options())
        model.load_state_dict(trainer.engine.weights_of(0))
    return Parser(model, trainer.vocab, source.formalism, settings, trainer.device)


def parse() -> Result:
    """At the width that trains on this device; "wide" is the same at the paper's width, where that is another."""
    device = choose_device("auto")
    settings = configs.override(_settings("strong", device), [("data", "size", 1000), ("train", "steps", 300)])
    result, wide = _parse(settings, device), configs.override(settings, [("model", "width", 256)])
    return result if wide == settings else {**result, "wide": _parse(wide, device)}


def _parse(settings: configs.Config, device: str) -> Result:
    source = open_source("mini", size=settings.data.size)
    parser, examples = _trained_parser(settings, source), source.read("train")
    vocab = parser.vocab
    sentences = [example.tokens for example in examples]
    ours = milliseconds(lambda: parser.decode(sentences), 3)
    options = configs.override(settings, [("model", "kind", "seq2seq")]).model.options()
    baseline = Seq2Seq(vocab.sizes[0], 200, **options).to(device).eval()
    lengths = [len((example.form or "").split()) for example in examples]
    other = milliseconds(lambda: _written(baseline, sentences, lengths, vocab, device), 3)
    rates = {f"{who}_per_second": round(1e3 * len(sentences) / ms) for who, ms in (("ours", ours), ("other", other))}
    what = f"{len(sentences)} sentences of mini, width {settings.model.width}"
    return _result(what, ours, "seq2seq Transformer, greedy", other, **rates)


@torch.inference_mode()
def _written(
    model: Seq2Seq, sentences: Sequence[Sequence[str]], lengths: Sequence[int], vocab: Vocabulary, device: str
) -> list[Tensor]:
    """Forms as long as the real ones, written by an untrained model that never ends one by itself."""
    model.bias.data[..., END] = -torch.inf
    order, written = sorted(range(len(sentences)), key=lambda row: lengths[row]), []
    for at in range(0, len(order), 128):
        rows = order[at : at + 128]
        tokens = pad_tokens([sentences[row] for row in rows], vocab, device)
        written.append(model.write(*tokens, longest=max(lengths[row] for row in rows))[0])
    return written


def evaluate() -> Result:
    """All of COGS' gen where it is at hand, else as many sentences of mini: parsed, written as forms, and compared.

    forward_seconds is the forward pass alone, over the same batches; the others have it in them.
    """
    device = choose_device("auto")
    settings = configs.override(_settings("strong", device), [("model", "graph_layers", 1), ("train", "steps", 300)])
    try:
        source = open_source("cogs")
        examples = source.read("gen")
    except DataError:
        source = open_source("mini", size=21_000)
        examples = source.read("train")
    parser = _trained_parser(settings, source)
    few = examples[:: max(1, len(examples) // 3000)]  # the alternative is slow, and its time is linear in sentences

    def forward() -> None:
        for _ in _distributions(parser, examples):
            pass

    def pair_by_pair() -> None:
        graphs: dict[int, Graph] = {}
        for rows, dist in _distributions(parser, few):
            graphs |= zip(rows, graphs_pair_by_pair(dist, parser.vocab), strict=True)
        score(few, [graphs[row] for row in range(len(few))], FORMALISMS[parser.formalism or ""])

    ours = milliseconds(lambda: evaluate_parser(parser, examples), 1)
    seconds = {"forward_seconds": round(milliseconds(forward, 1) / 1000, 2), "seconds": round(ours / 1000, 2)}
    other = milliseconds(pair_by_pair, 1) * len(examples) / len(few)
    what = f"{len(examples)} sentences of {source.name} evaluated"
    return _result(what, ours, "a Python loop over all pairs of slots", other, **seconds, device=machine(device))


@torch.inference_mode()
def _distributions(parser: Parser, examples: Sequence[Example]) -> Iterator[tuple[list[int], GraphDistribution]]:
    """What the model says of each batch, with the numbers of its sentences."""
    sentences = [example.tokens for example in examples]
    for rows in parser._batches(sentences):
        yield rows, parser.run_model(*pad_tokens([sentences[row] for row in rows], parser.vocab, parser.device))


def one_sentence() -> Result:
    """A sentence of 14 tokens through onnxruntime and through torch, at the width of the paper's CFQ model."""
    from lagr.export import OnnxModel, export_onnx

    settings = configs.override(_settings("strong", "cpu"), [("model", "width", 256)])
    vocab = Vocabulary.of(open_source("mini", size=1000).read("train"))
    model = LAGr(*vocab.sizes, **settings.model.options()).eval()
    tokens, lengths = torch.randint(2, 90, (1, 1, 14)), torch.tensor([[14]])
    with TemporaryDirectory() as folder, torch.inference_mode():
        file = Path(folder) / "model.onnx"
        export_onnx(model, file)
        exported = OnnxModel(file, model)
        ours = milliseconds(lambda: exported(tokens, lengths), 50)
        other = milliseconds(lambda: model(tokens, lengths), 50)
    return _result("one sentence of 14 tokens, width 256, 4 layers, L = 2, on the CPU", ours, "torch, eager", other)


# Graphs and forms


def convert() -> Result:
    """All rows of COGS and CFQ both ways where they are at hand, else of mini; the comparison is with networkx."""
    rates, examples = {}, open_source("mini", size=4000).read("train")
    for name, partition in (("mini", ""), ("cogs", ""), ("cfq", "all")):
        try:
            source = open_source(name, partition=partition)
            rates[f"{name}_seconds"] = round(_convert_all(source), 2)
            examples = source.read(source.splits[0])[:12_000]
        except DataError:
            continue
    pairs = [(e.graph, e.graph.reordered(range(len(e.graph.nodes))[::-1])) for e in examples]
    ours = milliseconds(lambda: [one == other for one, other in pairs], 3)
    other = milliseconds(lambda: [_by_networkx(one, other) for one, other in pairs[:500]], 1) * len(pairs) / 500
    return _result(f"{len(pairs)} pairs of graphs compared", ours, "networkx", other, **rates)


def _convert_all(source: Source) -> float:
    """Seconds to write every graph and read it again."""
    from lagr.forms import formalism

    formal = formalism(source.formalism or "")
    rows = [example for split in source.splits for example in source.read(split)]
    began = time.perf_counter()
    for example in rows:
        formal.read(formal.write(example.graph), example.tokens)
    return time.perf_counter() - began


def _by_networkx(one: Any, other: Any) -> bool:
    import networkx as nx

    def as_networkx(graph: Any) -> Any:
        built = nx.DiGraph()
        built.add_nodes_from((i, {"label": label}) for i, label in enumerate(graph.nodes))
        built.add_edges_from((e.source, e.target, {"label": e.label}) for e in graph.edges)
        return built

    same = lambda x, y: x["label"] == y["label"]  # noqa: E731
    return bool(nx.is_isomorphic(as_networkx(one), as_networkx(other), same, same))


def profile() -> Result:
    from lagr.bench_profile import profile

    return profile()


BENCHMARKS: dict[str, Callable[[], Result]] = {
    "matching": matching,
    "train-strong": train_strong,
    "train-weak": train_weak,
    "seeds": seeds,
    "profile": profile,
    "parse": parse,
    "evaluate": evaluate,
    "one-sentence": one_sentence,
    "convert": convert,
}
