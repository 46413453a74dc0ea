"""`lagr bench`: ours and the alternative, side by side in one run. Ratios carry over to other machines, times don't.

Every benchmark returns {"what", "ours_ms", "other", "other_ms", "ratio"}; ratio says how many times faster ours is.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lagr import config as configs
from lagr.datasets import Example, Source, open_source
from lagr.errors import DataError
from lagr.supervision import training_examples
from lagr.train import Trainer, choose_device, machine
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


def train_strong() -> Result:
    return _train("strong")


def train_weak() -> Result:
    return _train("weak")


def _settings(supervision: str, device: str) -> configs.Config:
    """The shape of the paper's CFQ model, on mini; smaller on a CPU, where it would take minutes."""
    width, batch, size = (256, 256, 4000) if device == "cuda" else (64, 64, 1000)
    changes: list[tuple[str, str, Any]] = [
        ("data", "size", size), ("model", "width", width), ("model", "encoder_layers", 4), ("model", "heads", 8),
        ("model", "graph_layers", 2), ("train", "batch", batch), ("align", "start", "model"), ("align", "hold", 0),
        ("align", "supervision", supervision), ("align", "candidates", 5), ("align", "noise", 10.0),
    ]  # fmt: skip
    return configs.override(configs.load("quickstart"), changes)


def _trainer(settings: configs.Config, seeds: int, folder: Path) -> Trainer:
    source = open_source("mini", size=settings.data.size)
    examples = training_examples(settings, source)
    its_configs = [configs.override(settings, [("train", "seed", seed)]) for seed in range(seeds)]
    splits = {"train": examples}
    return Trainer(its_configs, source, splits, Vocabulary.of(examples), [folder] * seeds, folder / "state")


def _step_ms(settings: configs.Config, seeds: int = 1, steps: int = 30) -> float:
    with TemporaryDirectory() as folder:
        trainer = _trainer(settings, seeds, Path(folder))
        for number in range(len(trainer.schedule.buckets)):  # every shape once, so that none is compiled while timing
            trainer.step = int(np.flatnonzero(trainer.schedule.order == number)[0])
            trainer._take_step()
        trainer.step = 0

        def some_steps() -> None:
            for _ in range(steps):
                trainer._take_step()

        return milliseconds(some_steps, 3) / steps


def _train(supervision: str) -> Result:
    device = choose_device("auto")
    settings = _settings(supervision, device)
    ours = _step_ms(settings)
    reference = Published(settings, device)
    steps = 10

    def some_steps() -> None:
        for _ in range(steps):
            reference.step()

    other = milliseconds(some_steps, 3) / steps
    shape = f"a {supervision} step, batch {settings.train.batch}, width {settings.model.width}, L = 2, K = 5, on mini"
    return _result(shape, ours, "the published way", other, device=machine(device))


class Published:
    """A step as it was published: eager, batches padded by a loader, half precision by autocast, SciPy in a loop."""

    def __init__(self, settings: configs.Config, device: str) -> None:
        from torch.utils.data import DataLoader

        self.settings, self.device = settings, device
        source = open_source("mini", size=settings.data.size)
        examples = training_examples(settings, source)
        self.vocab = Vocabulary.of(examples)
        loader: Any = DataLoader(examples, settings.train.batch, True, collate_fn=self.collate, drop_last=True)  # type: ignore[arg-type]
        self.batches = self._forever(loader)
        D, L = settings.model.width, settings.model.graph_layers
        words, V, E = self.vocab.sizes
        layer = nn.TransformerEncoderLayer(D, settings.model.heads, D, settings.model.dropout, batch_first=True)
        self.parts = nn.ModuleDict(
            {
                "words": nn.Embedding(words, D),
                "encoder": nn.TransformerEncoder(layer, settings.model.encoder_layers, enable_nested_tensor=False),
                "nodes": nn.Linear(D, L * V),
                "edge_queries": nn.Linear(D, L * E * (D // E)),
                "edge_keys": nn.Linear(D, L * E * (D // E)),
            }
        ).to(device)
        self.optimizer = torch.optim.Adam(self.parts.parameters(), 1e-4)
        self.scaler = torch.amp.GradScaler(device, enabled=device == "cuda")

    def _forever(self, loader: Any) -> Iterator[Any]:
        while True:
            yield from loader

    def collate(self, examples: list[Example]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens, their number, and complete graphs with a label for every slot and pair."""
        L, N = self.settings.model.graph_layers, max(len(e.tokens) for e in examples)
        tokens = torch.zeros(len(examples), N, dtype=torch.long)
        nodes = torch.zeros(len(examples), L * N, dtype=torch.long)
        edges = torch.zeros(len(examples), L * N, L * N, dtype=torch.long)
        for b, example in enumerate(examples):
            tokens[b, : len(example.tokens)] = torch.tensor(self.vocab.encode(example.tokens))
            slots = example.graph.slots or range(len(example.graph.nodes))
            for label, slot in zip(example.graph.nodes, slots, strict=True):
                nodes[b, slot] = self.vocab.node_numbers[label]
            for source, label, target in example.graph.edges:
                edges[b, slots[source], slots[target]] = self.vocab.edge_numbers[label]
        return tokens, torch.tensor([len(e.tokens) for e in examples]), nodes, edges

    def step(self) -> None:
        from scipy.optimize import linear_sum_assignment

        tokens, lengths, nodes, edges = (tensor.to(self.device) for tensor in next(self.batches))
        B, N = tokens.shape
        L, E = self.settings.model.graph_layers, self.vocab.sizes[2]
        padding = torch.arange(N, device=self.device) >= lengths[:, None]
        real = (~padding).repeat_interleave(L, dim=1)
        pairs = real[:, :, None] & real[:, None]
        with torch.autocast(self.device, torch.float16, enabled=self.device == "cuda"):
            hidden = self.parts["encoder"](self.parts["words"](tokens), src_key_padding_mask=padding)
            node_scores = self.parts["nodes"](hidden).view(B, N * L, -1).float().log_softmax(-1)
            queries, keys = (
                self.parts[n](hidden).view(B, N * L, E, -1).transpose(1, 2) for n in ("edge_queries", "edge_keys")
            )
            edge_scores = (queries @ keys.transpose(-1, -2)).permute(0, 2, 3, 1).float().log_softmax(-1)

        def losses(z: Tensor, xi: Tensor) -> Tensor:
            by_node = node_scores.gather(-1, z[..., None]).squeeze(-1) * real
            by_pair = edge_scores.gather(-1, xi[..., None]).squeeze(-1) * pairs
            total: Tensor = -by_node.sum(1) - by_pair.sum((1, 2))
            return total

        if self.settings.align.supervision == "strong":
            loss = losses(nodes, edges).mean()
        else:
            wanted = node_scores.gather(2, nodes[:, None].expand(-1, N * L, -1))  # (B, slots, nodes)
            tried = []
            for _ in range(self.settings.align.candidates):
                noisy = (wanted + self.settings.align.noise * torch.rand_like(wanted)).detach().cpu().numpy()
                order = np.tile(np.arange(N * L), (B, 1))
                for b, n in enumerate(lengths.tolist()):
                    order[b, : n * L] = linear_sum_assignment(noisy[b, : n * L, : n * L], maximize=True)[1]
                a = torch.from_numpy(order).to(self.device)
                z = nodes.gather(1, a)
                xi = edges.gather(2, a[:, None].expand(-1, N * L, -1)).gather(1, a[..., None].expand(-1, -1, N * L))
                tried.append(losses(z, xi))
            loss = torch.stack(tried).amin(0).mean()
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.parts.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()


def seeds() -> Result:
    settings = _settings("strong", choose_device("auto"))
    one, ten = _step_ms(settings, 1), _step_ms(settings, 10, steps=10)
    return _result("a step of 10 seeds at once", ten, "10 seeds one after the other", 10 * one)


# Parsing


def parse() -> Result:
    """Ours is trained for some steps first: untrained weights would find an edge between any two words."""
    from lagr.parser import Parser, build

    device = choose_device("auto")
    settings = configs.override(_settings("strong", device), [("data", "size", 1000), ("train", "steps", 300)])
    with TemporaryDirectory() as folder:
        trainer = _trainer(settings, 1, Path(folder))
        for _ in range(settings.train.steps):
            trainer._take_step()
        model = build(settings, trainer.vocab)
        model.load_state_dict(trainer.engine.weights_of(0))
        examples, vocab = trainer.splits["train"], trainer.vocab
    parser = Parser(model, vocab, None, settings, device)
    sentences = [example.tokens for example in examples]
    ours = milliseconds(lambda: parser.decode(sentences), 3)
    baseline = Seq2Seq(vocab.sizes[0], 200, settings).to(device).eval()
    lengths = [len((example.form or "").split()) for example in examples]
    other = milliseconds(lambda: baseline.greedy(sentences, lengths, vocab, device), 3)
    rates = {f"{who}_per_second": round(1e3 * len(sentences) / ms) for who, ms in (("ours", ours), ("other", other))}
    return _result(f"{len(sentences)} sentences of mini", ours, "seq2seq Transformer, greedy", other, **rates)


def one_sentence() -> Result:
    """A sentence of 14 tokens through onnxruntime and through torch, at the width of the paper's CFQ model."""
    from lagr.export import OnnxModel, export_onnx
    from lagr.parser import build

    settings = configs.override(_settings("strong", "cpu"), [("model", "width", 256)])
    model = build(settings, Vocabulary.of(open_source("mini", size=1000).read("train"))).eval()
    tokens, lengths = torch.randint(2, 90, (1, 1, 14)), torch.tensor([[14]])
    with TemporaryDirectory() as folder, torch.inference_mode():
        file = Path(folder) / "model.onnx"
        export_onnx(model, file)
        exported = OnnxModel(file, model)
        ours = milliseconds(lambda: exported(tokens, lengths), 50)
        other = milliseconds(lambda: model(tokens, lengths), 50)
    return _result("one sentence of 14 tokens, width 256, 4 layers, L = 2, on the CPU", ours, "torch, eager", other)


class Seq2Seq(nn.Module):
    """A Transformer of the same width and depth that writes the form token by token, as long as the real form is.

    Keys and values of what was written are kept, so a step costs one token.
    """

    def __init__(self, words: int, outputs: int, settings: configs.Config) -> None:
        super().__init__()
        m = settings.model
        self.heads = m.heads
        self.words, self.outputs = nn.Embedding(words, m.width), nn.Embedding(outputs, m.width)
        self.body = nn.Transformer(m.width, m.heads, m.encoder_layers, m.encoder_layers, m.width, batch_first=True)
        self.choose = nn.Linear(m.width, outputs)

    @torch.inference_mode()
    def greedy(
        self, sentences: Any, lengths: list[int], vocab: Vocabulary, device: str, batch: int = 128
    ) -> list[Tensor]:
        from lagr.batch import pad_tokens

        order, written = sorted(range(len(sentences)), key=lambda i: lengths[i]), []
        for at in range(0, len(order), batch):
            rows = order[at : at + batch]
            tokens, _ = pad_tokens([sentences[i] for i in rows], vocab, device)
            memory = self.body.encoder(self.words(tokens[0]))
            layers: Any = self.body.decoder.layers
            seen = [self._keys_and_values(layer.multihead_attn, memory) for layer in layers]
            past: list[tuple[Tensor, Tensor] | None] = [None] * len(layers)
            token, output = torch.zeros(len(rows), 1, dtype=torch.long, device=device), []
            for _ in range(max(lengths[i] for i in rows)):
                x = self.outputs(token)
                for number, layer in enumerate(layers):
                    new, before = self._keys_and_values(layer.self_attn, x), past[number]
                    kept = (
                        new
                        if before is None
                        else (torch.cat([before[0], new[0]], 2), torch.cat([before[1], new[1]], 2))
                    )
                    past[number] = kept
                    x = layer.norm1(x + self._attend(layer.self_attn, x, kept))
                    x = layer.norm2(x + self._attend(layer.multihead_attn, x, seen[number]))
                    x = layer.norm3(x + layer.linear2(F.relu(layer.linear1(x))))
                x = self.body.decoder.norm(x) if self.body.decoder.norm is not None else x
                token = self.choose(x).argmax(-1)
                output.append(token)
            written.append(torch.cat(output, dim=1))
        return written

    def _split(self, x: Tensor) -> Tensor:
        B, N, _ = x.shape
        return x.view(B, N, self.heads, -1).transpose(1, 2)

    def _keys_and_values(self, attention: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        D = x.shape[-1]
        both = F.linear(x, attention.in_proj_weight[D:], attention.in_proj_bias[D:])
        return self._split(both[..., :D].contiguous()), self._split(both[..., D:].contiguous())

    def _attend(self, attention: Any, x: Tensor, keys_and_values: tuple[Tensor, Tensor]) -> Tensor:
        D = x.shape[-1]
        query = self._split(F.linear(x, attention.in_proj_weight[:D], attention.in_proj_bias[:D]))
        mixed = F.scaled_dot_product_attention(query, *keys_and_values)
        result: Tensor = attention.out_proj(mixed.transpose(1, 2).flatten(2))
        return result


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


BENCHMARKS: dict[str, Callable[[], Result]] = {
    "matching": matching,
    "train-strong": train_strong,
    "train-weak": train_weak,
    "seeds": seeds,
    "parse": parse,
    "one-sentence": one_sentence,
    "convert": convert,
}
