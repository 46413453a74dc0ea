"""The published code of the paper, run small: whether lagr falls short of the paper by a slip of its own.

python results/published.py cogs|cfq CHECKOUT DATA SEED [K SIGMA STEPS RESIDUAL]

CHECKOUT is github.com/ElementAI/lagr at commit 0fcd07c, which needs pandas, PyYAML and networkx; DATA/cogs is COGS, and
DATA/cfq what `results/beyond/held_out.py cfq` made. K = 10, σ = 1 and 1,250 steps on COGS, K = 1, σ = 0 and 5,000 steps
on CFQ, if not told otherwise (their own σ for K = 1 is 0.001). RESIDUAL is lagr's `model.residual`; their layers begin
at their full size, 1.

Theirs: how CFQ's questions and queries become tensors, batches, the network, its initialisation, the assignment, the
loss, the optimizer, the score. From here: the loop that Lightning would be, in float32 on a CPU, which takes the model
of the last step; what stands in for libraries of then; how COGS' forms are read, since their script for that does not
run, and in which slots COGS' nodes begin; the sizes of the small models in docs/; and CFQ's exact match: queries with a
reversed predicate or a filter twice, neither of which their graphs keep, are never right.

Prints a line every 250 steps and one at the end, and what was found as a line of JSON. nodes: on COGS, of those of the
last 100 steps, the share that is on a word where the gold graph has their label. names, others, questions: on CFQ, as
cfq/places.py has them, of the last 300 steps. train, dev: exact match on CFQ, of the first 1,000 training questions and
of all of dev; blind: their score. CFQ's tensors, which take minutes, are kept in DATA/published.
"""

from __future__ import annotations

import json
import runpy
import sys
import types
from argparse import Namespace
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from lagr.datasets import cogs
from lagr.errors import LagrError
from lagr.forms import sparql
from lagr.graph import Edge, Graph

sys.path.append(str(Path(__file__).parent / "cfq"))
from places import placed

PARTITION = "inner"
EMPTY = (0, 1)  # their numbers of null and of padding
Batch = dict[str, Tensor]
Shares = dict[str, float]
Placed = Callable[[Tensor, Batch], dict[str, list[bool]]]  # of kinds of nodes of a batch, which are where they belong


@dataclass(frozen=True)
class Small:
    """A small model as docs/ has it, and how it is trained."""

    shared: bool
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


SMALL = {
    "cogs": Small(False, 4, 1, 0.4, 64, 5e-4, 0, 1250, 10, 1.0, 100),
    "cfq": Small(True, 3, 2, 0.1, 96, 1e-3, 200, 5000, 1, 0.0, 300),
}


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


def stand_ins(checkout: Path) -> None:
    """Makes their code run on a CPU, without its libraries."""
    stand_in("pytorch_lightning", LightningModule=nn.Module, callbacks=None, seed_everything=None)
    stand_in("torchtext", vocab=types.SimpleNamespace(Vocab=Labels))
    unused = "AutoConfig AutoModelForSeq2SeqLM AutoTokenizer T5EncoderModel T5Config".split()
    stand_in("transformers", get_linear_schedule_with_warmup=warmed_up, **dict.fromkeys(unused))
    sys.path.insert(0, str(checkout))
    import src.model

    src.model.DEVICE = "cpu"
    src.model.Parser.save_hyperparameters = lambda self: None


def their_parser(small: Small, seed: int, data: str, preprocessor: Any, words: Any, residual: float) -> Any:
    from src.model import Parser

    sizes = {"encoder_n_layers": small.layers, "n_heads": 4, "ff_multiplier": 1.0, "tied_embedding": True}
    args = Namespace(
        data=data, model_type="transformer_lagr", weak_supervision=True, share_encoder=small.shared, dim=128,
        dropout=small.dropout, n_graph_layers=small.graph_layers, k=small.candidates, noise=small.sigma, seed=seed,
        expected_cache_size=-1,  # how many alignments change is not counted
        optimizer="Adam", optimizer_args={"lr": small.rate}, scheduler="linear_warmup",
        scheduler_args={"num_warmup_steps": small.warmup, "num_training_steps": small.steps},
        preprocessor=preprocessor, vocab_size=len(words), tgt_vocab_size=len(words), tgt_vocab=words,
        n_node_labels=len(preprocessor.node_vocab.itos), n_edge_labels=len(preprocessor.edge_vocab.itos),
        **{f"transformer.{name}": value for name, value in sizes.items()}, **{"transformer.decoder_n_layers": 1},
    )  # fmt: skip
    parser = Parser(args)
    for name, parameter in parser.named_parameters():
        if name.endswith(("multi_head_merge.weight", "linear2.weight")):
            parameter.data *= residual
    return parser


def trained(parser: Any, small: Small, loader: DataLoader[Any], where: Placed) -> Shares:
    """The shares of nodes that are where they belong at the end, in per cent."""
    how = parser.configure_optimizers()
    optimizer, schedule = how["optimizer"], how["lr_scheduler"]["scheduler"]
    step, losses = 0, deque[float](maxlen=250)
    recent: dict[str, deque[list[bool]]] = defaultdict(lambda: deque(maxlen=small.counted))
    parser.train()
    while True:
        for batch in loader:
            loss, _, (nodes, _), _ = parser._weakly_sup_loss(batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parser.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            step += 1
            losses.append(float(loss.detach()))
            for kind, right in where(nodes, batch).items():
                recent[kind].append(right)
            if step % 250 and step != small.steps:
                continue
            shares = {kind: 100 * sum(map(sum, found)) / sum(map(len, found)) for kind, found in recent.items()}
            told = ", ".join(f"{kind} {share:.1f} %" for kind, share in shares.items())
            print(f"step {step}: loss {sum(losses) / len(losses):.2f}, placed: {told}", flush=True)
            if step == small.steps:
                return shares


def on_cogs(data: Path, seed: int, small: Small, residual: float) -> Shares:
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

    parser = their_parser(small, seed, "cogs", preprocessor, Vocab(numbers), residual)
    return trained(parser, small, batches(rows, small.batch), on_gold_words)


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


def batches(rows: Any, size: int, training: bool = True) -> DataLoader[Any]:
    from src.utils import make_collator

    return DataLoader(rows, batch_size=size, shuffle=training, drop_last=training, collate_fn=make_collator())


def on_cfq(checkout: Path, data: Path, seed: int, small: Small, residual: float) -> Shares:
    from src.utils import CustomDataset, setup_data

    given = splits_of(data / "cfq")
    folder = preprocessed(checkout, given, data / "published" / "cfq")
    where = Namespace(data_path=str(folder), split=PARTITION, n_graph_layers=small.graph_layers)
    datasets, (words, _), preprocessor = setup_data(where)
    label_of = preprocessor.node_vocab.itos

    def on_their_words(nodes: Tensor, batch: Batch) -> dict[str, list[bool]]:
        found: dict[str, list[bool]] = defaultdict(list)
        for labels, sentence in zip(nodes.tolist(), batch["src"].tolist(), strict=True):
            marked = ["", *(words.itos[word] for word in sentence), ""]  # their first token is a marker, and their last
            pairs = [
                (label_of[number], marked[slot // small.graph_layers])
                for slot, number in enumerate(labels)
                if number not in EMPTY
            ]
            for kind, right in placed(pairs).items():
                found[kind] += right
        return found

    parser = their_parser(small, seed, "cfq", preprocessor, words, residual)
    train, dev = (CustomDataset(datasets[split]) for split in ("train", "validation"))
    found = trained(parser, small, batches(train, small.batch), on_their_words)
    for name, split, dataset, limit in (("train", "train", train, 1000), ("dev", "validation", dev, len(dev))):
        queries = [row["query"].decode() for row in given[split][:limit]]
        loader = batches(Subset(dataset, range(limit)), 100, training=False)
        found[f"{name}_blind"], found[name] = accuracy(parser, loader, queries)
    return found


def splits_of(folder: Path) -> dict[str, list[dict[str, bytes]]]:
    """As tensorflow_datasets gave a split."""
    rows = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    parts = json.loads((folder / "splits" / f"{PARTITION}.json").read_text(encoding="utf-8"))
    fields = {"question": "questionPatternModEntities", "query": "sparqlPatternModEntities"}
    return {
        split: [{name: rows[at][field].encode() for name, field in fields.items()} for at in parts[f"{ours}Idxs"]]
        for split, ours in (("train", "train"), ("validation", "dev"), ("test", "test"))
    }


def preprocessed(checkout: Path, given: Any, folder: Path) -> Path:
    """The folder in which their scripts have written questions and graphs, which takes them ten minutes."""
    graphs = folder / PARTITION / "graph"
    if not (graphs / "validation_parsed.json").exists():
        stand_in("tensorflow_datasets", load=lambda name: given, as_numpy=lambda splits: splits)
        runpy.run_path(str(checkout / "cfq" / "preprocess_cfq.py"))["create_tsv"](PARTITION, str(folder))
        for split in ("train", "test", "validation"):
            sys.argv = ["", "--data", f"{split}.tsv", "--split", PARTITION, "--dir", str(folder)]
            runpy.run_path(str(checkout / "cfq" / "graph_parser.py"), run_name="__main__")
        (graphs / "dev_parsed.json").rename(graphs / "validation_parsed.json")  # the name under which it is read
    return folder


def accuracy(parser: Any, loader: DataLoader[Any], queries: Sequence[str]) -> tuple[float, float]:
    """How many of the questions are right, in per cent: by their score, and exactly."""
    from src.utils import add_eos

    parser.eval()
    theirs = exact = 0.0
    rows = iter(queries)
    for batch in loader:
        words = add_eos(batch["src"], batch["src_len"], parser.model.encoder_eos)
        with torch.no_grad():
            scores = parser.model(words, batch["src_len"] + 1, batch["tgt"], batch["tgt_len"])
        nodes, edges = (score.argmax(-1) for score in scores)
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
    corpus: str, checkout: str, data: str, seed: int, candidates: int | None = None, sigma: float | None = None,
    steps: int | None = None, residual: float = 1.0,
) -> None:  # fmt: skip
    given = {"candidates": candidates, "sigma": sigma, "steps": steps}
    small = replace(SMALL[corpus], **{name: value for name, value in given.items() if value is not None})
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    stand_ins(Path(checkout))
    if corpus == "cogs":
        found = on_cogs(Path(data), seed, small, residual)
    else:
        found = on_cfq(Path(checkout), Path(data), seed, small, residual)
    print(json.dumps({name: round(share, 1) for name, share in found.items()}))


if __name__ == "__main__":
    kinds = (str, str, str, int, int, float, int, float)
    main(*(kind(given) for kind, given in zip(kinds, sys.argv[1:], strict=False)))  # type: ignore[operator]
