"""The published code of the paper, run: whether lagr falls short of the paper by a slip of its own.

python results/published.py cogs|cfq|mcd1 CHECKOUT DATA SEED [K SIGMA STEPS RESIDUAL]
python results/published.py cfq|mcd1 CHECKOUT DATA           makes CFQ's tensors, which takes minutes, and nothing else

cogs, cfq: a small model as in docs/, on a CPU. mcd1: one of the paper's size, on a GPU, in half precision as theirs.
CHECKOUT is github.com/ElementAI/lagr at commit 0fcd07c, which needs networkx, and pandas and PyYAML while tensors are
made; DATA/cogs is COGS, and DATA/cfq what `results/beyond/held_out.py cfq` made, or for mcd1 CFQ itself. K = 10, σ = 1
and 1,250 steps on COGS, K = 1, σ = 0 and 5,000 steps on CFQ, 6,000 on MCD1, if not told otherwise (their own σ for
K = 1 is 0.001). RESIDUAL is lagr's `model.residual`; their layers begin at their full size, 1.

Theirs: how CFQ's questions and queries become tensors, the network, its initialisation, the loss, the optimizer, the
score. Written here with the same outcome, because theirs take most of the time: batches and the assignment. From here:
the loop that Lightning would be, which takes the model of the last step; what stands in for libraries of then; how
COGS' forms are read, since their script for that does not run, and in which slots COGS' nodes begin; the sizes of
models and how long they train; and CFQ's exact match: queries with a reversed predicate or a filter twice, neither of
which their graphs keep, are never right.

Prints a line every 250 steps, or some 24 times in a long run, one at the end, and what was found as a line of JSON.
nodes: on COGS, of those of the last 100 steps, the share that is on a word where the gold graph has their label. names,
others, variables, questions: on CFQ, as cfq/places.py has them, of the last 300 steps. train, dev, test: exact match on
CFQ, of the first 1,000 training questions and of all of dev or, on MCD1, test; blind: their score. CFQ's tensors are
kept in DATA/published.
"""

from __future__ import annotations

import gzip
import json
import os
import runpy
import sys
import types
from argparse import Namespace
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from lagr.datasets import cogs
from lagr.errors import LagrError
from lagr.forms import sparql
from lagr.graph import Edge, Graph

sys.path.append(str(Path(__file__).parent / "cfq"))
from places import placed

EMPTY = (0, 1)  # their numbers of null and of padding
Batch = dict[str, Tensor]
Shares = dict[str, float]
Placed = Callable[[Tensor, Batch], dict[str, list[bool]]]  # of kinds of nodes of a batch, which are where they belong


@dataclass(frozen=True)
class Setting:
    """A model, and how it is trained."""

    shared: bool
    width: int
    heads: int
    layers: int
    graph_layers: int
    dropout: float
    batch: int
    rate: float
    warmup: int
    steps: int
    candidates: int
    sigma: float
    counted: int  # steps at the end, of which it is seen where nodes are
    partition: str = ""
    tested: str = ""  # the split that is evaluated
    device: str = "cpu"


SETTINGS = {
    "cogs": Setting(
        shared=False, width=128, heads=4, layers=4, graph_layers=1, dropout=0.4, batch=64, rate=5e-4, warmup=0,
        steps=1250, candidates=10, sigma=1.0, counted=100,
    ),
    "cfq": Setting(
        shared=True, width=128, heads=4, layers=3, graph_layers=2, dropout=0.1, batch=96, rate=1e-3, warmup=200,
        steps=5000, candidates=1, sigma=0.0, counted=300, partition="inner", tested="dev",
    ),
    "mcd1": Setting(
        shared=True, width=256, heads=8, layers=4, graph_layers=2, dropout=0.1, batch=256, rate=4e-4, warmup=1000,
        steps=6000, candidates=1, sigma=0.0, counted=300, partition="mcd1", tested="test", device="cuda",
    ),
}  # fmt: skip


class Labels:
    """As torchtext's Vocab was: what is special, then the others."""

    def __init__(self, counter: Counter[str], specials: Sequence[str]) -> None:
        self.itos = [*specials, *sorted(counter)]
        self.stoi = {label: number for number, label in enumerate(self.itos)}


def warmed_up(optimizer: torch.optim.Optimizer, num_warmup_steps: int, num_training_steps: int) -> Any:
    """As the schedule of transformers: up to its peak, then down to 0, in straight lines."""

    def rate(step: int) -> float:
        if step < num_warmup_steps:
            return step / num_warmup_steps
        return max(0.0, (num_training_steps - step) / (num_training_steps - num_warmup_steps))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)


def stand_in(name: str, **contents: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module


def stand_ins(checkout: Path, device: str) -> None:
    """Makes their code run on a device, without its libraries."""
    stand_in("pytorch_lightning", LightningModule=nn.Module, callbacks=None, seed_everything=None)
    stand_in("torchtext", vocab=types.SimpleNamespace(Vocab=Labels))
    unused = "AutoConfig AutoModelForSeq2SeqLM AutoTokenizer T5EncoderModel T5Config".split()
    stand_in("transformers", get_linear_schedule_with_warmup=warmed_up, **dict.fromkeys(unused))
    for name in ("pandas", "yaml"):
        if find_spec(name) is None:  # no matter where tensors are made already
            stand_in(name)
    sys.path.insert(0, str(checkout))
    import src.model

    src.model.DEVICE = device
    src.model.Parser.find_maximum_matching = assigned
    src.model.Parser.save_hyperparameters = lambda self: None


def assigned(
    parser: Any, scores: Tensor, src: Tensor, node_targets: Tensor, check_alignment_changes: bool = False
) -> tuple[Tensor, list[float], list[int]]:
    """Which target each slot has, at the best: their assignment, without what they note beside it."""
    gains, layers = scores.detach().cpu().numpy(), parser.args["n_graph_layers"]
    lengths = (node_targets != EMPTY[1]).sum(1).tolist()
    found = np.tile(np.arange(node_targets.shape[1]), (len(gains), 1))
    for row, gain, length in zip(found, gains, lengths, strict=True):
        real = slice(layers, layers + length)  # before and after it there are markers, and padding
        row[real] = linear_sum_assignment(gain[real, real], maximize=True)[1] + layers
    return torch.from_numpy(found), [], []


def padded(rows: Sequence[Batch]) -> Batch:
    """What their collator makes of rows."""
    padding = EMPTY[1]  # of nodes and edges; of words it is 0
    words, targets = (pad_sequence([row[name] for row in rows], batch_first=True) for name in ("src", "tgt"))
    nodes = pad_sequence([row["node_tgt"] for row in rows], batch_first=True, padding_value=padding)
    edges = torch.full((*nodes.shape, nodes.shape[1]), padding)
    for place, row in zip(edges, rows, strict=True):
        size = len(row["edge_tgt"])
        place[:size, :size] = row["edge_tgt"]
    lengths = {f"{name}_len": (part != 0).sum(1) for name, part in (("src", words), ("tgt", targets))}
    return {"src": words, "tgt": targets, "node_tgt": nodes, "edge_tgt": edges, **lengths}


def their_parser(setting: Setting, seed: int, data: str, preprocessor: Any, words: Any, residual: float) -> Any:
    from src.model import Parser

    sizes = {"encoder_n_layers": setting.layers, "n_heads": setting.heads, "ff_multiplier": 1.0, "tied_embedding": True}
    args = Namespace(
        data=data, model_type="transformer_lagr", weak_supervision=True, share_encoder=setting.shared,
        dim=setting.width, dropout=setting.dropout, n_graph_layers=setting.graph_layers, k=setting.candidates,
        noise=setting.sigma, seed=seed, expected_cache_size=-1,  # how many alignments change is not counted
        optimizer="Adam", optimizer_args={"lr": setting.rate}, scheduler="linear_warmup",
        scheduler_args={"num_warmup_steps": setting.warmup, "num_training_steps": setting.steps},
        preprocessor=preprocessor, vocab_size=len(words), tgt_vocab_size=len(words), tgt_vocab=words,
        n_node_labels=len(preprocessor.node_vocab.itos), n_edge_labels=len(preprocessor.edge_vocab.itos),
        **{f"transformer.{name}": value for name, value in sizes.items()}, **{"transformer.decoder_n_layers": 1},
    )  # fmt: skip
    parser = Parser(args)
    for name, parameter in parser.named_parameters():
        if name.endswith(("multi_head_merge.weight", "linear2.weight")):
            parameter.data *= residual
    return parser.to(setting.device)


def trained(parser: Any, setting: Setting, loader: DataLoader[Any], where: Placed) -> Shares:
    """The shares of nodes that are where they belong at the end, in per cent."""
    how = parser.configure_optimizers()
    optimizer, schedule = how["optimizer"], how["lr_scheduler"]["scheduler"]
    every = max(250, setting.steps // 24)
    step, losses = 0, deque[float](maxlen=250)
    recent: dict[str, deque[list[bool]]] = defaultdict(lambda: deque(maxlen=setting.counted))
    half = setting.device == "cuda"
    scaler = torch.amp.GradScaler(setting.device, enabled=half)
    parser.train()
    while True:
        for batch in loader:
            with torch.autocast(setting.device, torch.float16, enabled=half):
                loss, _, (nodes, _), _ = parser._weakly_sup_loss(moved(batch, setting.device))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(parser.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            step += 1
            losses.append(float(loss.detach()))
            if min(-step % every, setting.steps - step) < setting.counted:
                for kind, right in where(nodes.cpu(), batch).items():
                    recent[kind].append(right)
            if step % every and step != setting.steps:
                continue
            shares = {kind: 100 * sum(map(sum, found)) / sum(map(len, found)) for kind, found in recent.items()}
            told = ", ".join(f"{kind} {share:.1f} %" for kind, share in shares.items())
            print(f"step {step}: loss {sum(losses) / len(losses):.2f}, placed: {told}", flush=True)
            if step == setting.steps:
                return shares


def on_cogs(data: Path, seed: int, setting: Setting, residual: float) -> Shares:
    from src.utils import Vocab

    examples = cogs.source(data / "cogs").read("train")
    labels = Counter(label for example in examples for label in example.graph.nodes)
    edge_labels = Counter(edge.label for example in examples for edge in example.graph.edges)
    special = ["null", "<pad>"]
    vocabularies = {"nodes": Labels(labels, special), "edges": Labels(edge_labels, special)}
    preprocessor = types.SimpleNamespace(
        graph_layers=1, node_vocab=vocabularies["nodes"], edge_vocab=vocabularies["edges"],
        word_to_token=lambda label, vocab="nodes": vocabularies[vocab].stoi[label],
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    numbers = {"[PAD]": 0}
    rows, gold = [], {}
    for example in examples:
        words = torch.tensor([numbers.setdefault(word, len(numbers)) for word in example.tokens])

        # Their targets have every node on its own word, which a tie in the assignment could give away.
        elsewhere = rng.permutation(len(words))[: len(example.graph.nodes)].tolist()
        node_tgt, edge_tgt = built(example.graph, elsewhere, len(words), preprocessor)
        rows.append({"src": words, "tgt": words, "node_tgt": node_tgt, "edge_tgt": edge_tgt})
        gold[tuple(words.tolist())] = built(example.graph, example.graph.slots or (), len(words), preprocessor)[0]

    def on_gold_words(nodes: Tensor, batch: Batch) -> dict[str, list[bool]]:
        found: list[bool] = []
        for sentence, length, labels in zip(batch["src"].tolist(), batch["src_len"].tolist(), nodes, strict=True):
            right = gold[tuple(sentence[:length])]
            is_node = right > max(EMPTY)
            found += (labels[: len(right)] == right)[is_node].tolist()
        return {"nodes": found}

    parser = their_parser(setting, seed, "cogs", preprocessor, Vocab(numbers), residual)
    return trained(parser, setting, batches(rows, setting.batch), on_gold_words)


def built(graph: Graph, slots: Sequence[int], length: int, preprocessor: Any) -> tuple[Tensor, Tensor]:
    """Their targets of nodes and edges, from a graph and where its nodes are."""
    from src.utils.graph_utils import _cogs_build_graph

    at = [f"x_{slot}" for slot in slots]
    parts = {
        "nodes": dict(zip(at, graph.nodes, strict=True)),
        "edges": [(at[edge.source], at[edge.target]) for edge in graph.edges],
        "edge_labels": [edge.label for edge in graph.edges],
    }
    found: tuple[Tensor, Tensor] = _cogs_build_graph(parts, preprocessor, length, n_special_tokens=2)
    return found


def batches(rows: Any, size: int, training: bool = True, workers: int = 0) -> DataLoader[Any]:
    return DataLoader(
        rows, batch_size=size, shuffle=training, drop_last=training, collate_fn=padded, num_workers=workers
    )


def moved(batch: Batch, device: str) -> Batch:
    return {name: part.to(device) for name, part in batch.items()}


def on_cfq(checkout: Path, data: Path, seed: int, setting: Setting, residual: float) -> Shares:
    from src.utils import Vocab

    splits, words, preprocessor = tensors(checkout, data, setting)
    label_of, word_of = preprocessor.node_vocab.itos, Vocab(words).itos

    def on_their_words(nodes: Tensor, batch: Batch) -> dict[str, list[bool]]:
        found: dict[str, list[bool]] = defaultdict(list)
        for labels, sentence in zip(nodes.tolist(), batch["src"].tolist(), strict=True):
            marked = ["", *(word_of[word] for word in sentence), ""]  # their first token is a marker, and their last
            pairs = [
                (label_of[number], marked[slot // setting.graph_layers])
                for slot, number in enumerate(labels)
                if number not in EMPTY
            ]
            for kind, right in placed(pairs).items():
                found[kind] += right
        return found

    workers = 3 if setting.device == "cuda" else 0
    parser = their_parser(setting, seed, "cfq", preprocessor, Vocab(words), residual)
    rows, _ = splits["train"]
    found = trained(parser, setting, batches(rows, setting.batch, workers=workers), on_their_words)
    for split, limit in (("train", 1000), (setting.tested, None)):
        rows, queries = splits[split]
        loader = batches(rows[:limit], 100, training=False, workers=workers)
        found[f"{split}_blind"], found[split] = accuracy(parser, loader, queries[:limit], setting.device)
    return found


def tensors(checkout: Path, data: Path, setting: Setting) -> tuple[dict[str, tuple[Any, list[str]]], Any, Any]:
    """Of each split the rows and queries, then the numbers of words, and of labels. The targets of seq2seq, which
    LAGr is given and leaves alone, are the questions."""
    kept = data / "published" / f"{setting.partition}.json.gz"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        begun = kept.with_suffix(f".{os.getpid()}")  # seeds that are started together make the same
        begun.write_bytes(gzip.compress(json.dumps(made(checkout, data, setting)).encode()))
        begun.replace(kept)
    found = json.loads(gzip.decompress(kept.read_bytes()))
    vocabularies = [types.SimpleNamespace(itos=labels) for labels in found["labels"]]
    preprocessor = types.SimpleNamespace(graph_layers=setting.graph_layers, node_vocab=vocabularies[0],
                                         edge_vocab=vocabularies[1])  # fmt: skip
    for vocabulary in vocabularies:
        vocabulary.stoi = {label: number for number, label in enumerate(vocabulary.itos)}
    splits = {}
    for split, (rows, queries) in found["splits"].items():
        targets = [targets_of(nodes, edges, setting.graph_layers) for _, nodes, edges in rows]
        words = [torch.tensor(src) for src, _, _ in rows]
        splits[split] = (
            [{"src": w, "tgt": w, "node_tgt": n, "edge_tgt": e} for w, (n, e) in zip(words, targets, strict=True)],
            queries,
        )
    return splits, found["words"], preprocessor


def made(checkout: Path, data: Path, setting: Setting) -> dict[str, Any]:
    """What their scripts make of questions and queries, written shorter."""
    from src.utils import setup_data

    given = splits_of(data / "cfq", setting.partition)
    folder = preprocessed(checkout, given, data / "published" / "cfq", setting.partition)
    where = Namespace(data_path=str(folder), split=setting.partition, n_graph_layers=setting.graph_layers)
    datasets, (words, _), preprocessor = setup_data(where)
    splits = {}
    for split, dataset in datasets.items():
        rows = []
        for src, nodes, edges in zip(dataset.src, dataset.node_tgt, dataset.edge_tgt, strict=True):
            named = [(i, j, int(edges[i, j])) for i, j in (edges > max(EMPTY)).nonzero().tolist()]
            rows.append((src, nodes.tolist(), named))
            for theirs, ours in zip((nodes, edges), targets_of(*rows[-1][1:], setting.graph_layers), strict=True):
                assert torch.equal(theirs, ours)
        splits["dev" if split == "validation" else split] = (rows, [row["query"].decode() for row in given[split]])
    labels = [preprocessor.node_vocab.itos, preprocessor.edge_vocab.itos]
    return {"splits": splits, "words": dict(words.stoi), "labels": labels}


def targets_of(nodes: Sequence[int], edges: Sequence[Sequence[int]], layers: int) -> tuple[Tensor, Tensor]:
    null, padding = EMPTY
    labels = torch.full((len(nodes), len(nodes)), padding)
    labels[layers:-layers, layers:-layers] = null
    for source, target, label in edges:
        labels[source, target] = label
    return torch.tensor(nodes), labels


def splits_of(folder: Path, partition: str) -> dict[str, list[dict[str, bytes]]]:
    """As tensorflow_datasets gave a split."""
    rows = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    parts = json.loads((folder / "splits" / f"{partition}.json").read_text(encoding="utf-8"))
    fields = {"question": "questionPatternModEntities", "query": "sparqlPatternModEntities"}
    return {
        split: [{name: rows[at][field].encode() for name, field in fields.items()} for at in parts[f"{ours}Idxs"]]
        for split, ours in (("train", "train"), ("validation", "dev"), ("test", "test"))
    }


def preprocessed(checkout: Path, given: Any, folder: Path, partition: str) -> Path:
    """The folder in which their scripts have written questions and graphs, which takes them ten minutes."""
    graphs = folder / partition / "graph"
    if not (graphs / "validation_parsed.json").exists():
        stand_in("tensorflow_datasets", load=lambda name: given, as_numpy=lambda splits: splits)
        runpy.run_path(str(checkout / "cfq" / "preprocess_cfq.py"))["create_tsv"](partition, str(folder))
        for split in ("train", "test", "validation"):
            sys.argv = ["", "--data", f"{split}.tsv", "--split", partition, "--dir", str(folder)]
            runpy.run_path(str(checkout / "cfq" / "graph_parser.py"), run_name="__main__")
        (graphs / "dev_parsed.json").rename(graphs / "validation_parsed.json")  # the name under which it is read
    return folder


def accuracy(parser: Any, loader: DataLoader[Any], queries: Sequence[str], device: str) -> tuple[float, float]:
    """How many of the questions are right, in per cent: by their score, and exactly."""
    from src.utils import add_eos

    parser.eval()
    theirs = exact = 0.0
    rows = iter(queries)
    for batch in loader:
        on_device = moved(batch, device)
        words = add_eos(on_device["src"], on_device["src_len"], parser.model.encoder_eos)
        with torch.no_grad(), torch.autocast(device, torch.float16, enabled=device == "cuda"):
            scores = parser.model(words, on_device["src_len"] + 1, on_device["tgt"], on_device["tgt_len"])
        nodes, edges = (score.argmax(-1).cpu() for score in scores)
        theirs += parser.graph_accuracy(nodes, edges, batch)[-1] * len(nodes)
        for labels in zip(nodes, edges, batch["node_tgt"] != 1, strict=True):
            exact += query_of(*labels, parser.stats.preprocessor) == next(rows)
    return 100 * theirs / len(queries), 100 * exact / len(queries)


def query_of(nodes: Tensor, edges: Tensor, real: Tensor, preprocessor: Any) -> str | None:
    """What a labelled graph says; None where that is no query."""
    label_of, edge_label_of = preprocessor.node_vocab.itos, preprocessor.edge_vocab.itos
    there = [slot for slot, node in enumerate(nodes.tolist()) if real[slot] and node not in EMPTY]
    found = edges[there][:, there].tolist()
    pairs = [(i, j) for i in range(len(there)) for j in range(len(there)) if found[i][j] not in EMPTY]
    with suppress(LagrError):
        labels = tuple(label_of[nodes[slot]] for slot in there)
        return sparql.write(Graph(labels, tuple(Edge(i, edge_label_of[found[i][j]], j) for i, j in pairs)))
    return None


def main(
    corpus: str, checkout: str, data: str, seed: int | None = None, candidates: int | None = None,
    sigma: float | None = None, steps: int | None = None, residual: float = 1.0,
) -> None:  # fmt: skip
    if seed is None and corpus == "cogs":
        sys.exit("published: COGS has no tensors to make beforehand; give a SEED")
    given = {"candidates": candidates, "sigma": sigma, "steps": steps}
    setting = replace(SETTINGS[corpus], **{name: value for name, value in given.items() if value is not None})
    torch.set_num_threads(1)
    stand_ins(Path(checkout), setting.device)
    if seed is None:
        tensors(Path(checkout), Path(data), setting)
        return
    torch.manual_seed(seed)
    if corpus == "cogs":
        found = on_cogs(Path(data), seed, setting, residual)
    else:
        found = on_cfq(Path(checkout), Path(data), seed, setting, residual)
    print(json.dumps({name: round(share, 1) for name, share in found.items()}))


if __name__ == "__main__":
    kinds = (str, str, str, int, int, float, int, float)
    main(*(kind(given) for kind, given in zip(kinds, sys.argv[1:], strict=False)))  # type: ignore[operator]
