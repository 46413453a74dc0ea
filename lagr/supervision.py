"""What training is told: graphs with known alignments, with those that an earlier run learned, or with none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lagr import runs
from lagr.associate import associated_alignments, label_probabilities, labels_given
from lagr.batch import check_fits
from lagr.config import Config
from lagr.copying import copied_labels
from lagr.datasets import Example, Source, examples_of, jsonl
from lagr.errors import ConfigError, DataError, RunError
from lagr.parser import load, only_lagr
from lagr.recombine import recombined
from lagr.variables import named_twice, without_names


def training_examples(config: Config, source: Source) -> list[Example]:
    """The training split, with the alignments that the configuration asks for, or without any; for seq2seq, as it is.

    Weak supervision must not see an alignment, not even in the order of the nodes: they are shuffled.
    """
    examples = source.read("train")
    if not examples:
        raise DataError(f"{source.name} has no training sentences")
    if config.model.kind == "seq2seq":
        return examples
    layers = config.model.graph_layers
    if config.align.given:
        given = seed_of(Path(config.align.given), config.train.seed)
        examples = _with_given_alignments(examples, given, source, layers)
    elif source.slots_are_tokens and layers > 1:
        examples = [
            replace(e, graph=e.graph.with_slots([layers * slot for slot in e.graph.slots or ()])) for e in examples
        ]
    if config.align.supervision == "strong":
        for number, example in enumerate(examples, start=1):
            if example.graph.slots is None:
                raise DataError(f"training sentence {number} has no alignment; set align.supervision to weak")
        return examples
    rng = np.random.default_rng(0)
    return [
        replace(
            example, graph=example.graph.with_slots(None).reordered(rng.permutation(len(example.graph.nodes)).tolist())
        )
        for example in examples
    ]


def check_names(config: Config, examples: Sequence[Example]) -> None:
    """What a parser could not give back is an error: where variables are alike, each stands for one node."""
    if config.model.kind == "seq2seq" or config.align.variables == "named":
        return
    for number, example in enumerate(examples, start=1):
        if name := named_twice(example.graph):
            raise DataError(
                f"training sentence {number} has the variable {name} twice, and a parse could have it only once; "
                "set align.variables to named"
            )


def seed_of(given: Path, seed: int) -> Path:
    """The run of that seed, where a folder has the runs of several; else what is given."""
    if not any(given.glob(f"seed-*/{runs.CONFIG}")):
        return given
    if not (given / f"seed-{seed}" / runs.CONFIG).is_file():
        raise RunError(f"align.given: there is no seed-{seed} in {given}; every seed takes the alignments of its own")
    return given / f"seed-{seed}"


def own_alignments(configs: Sequence[Config], source: Source, examples: list[Example]) -> list[list[Example]]:
    """The training examples of every seed, where each has alignments of its own; else nothing. examples: the first's"""
    first = configs[0]
    if first.model.kind == "seq2seq" or not first.align.given or len(configs) == 1:
        return []
    path = Path(first.align.given)
    if seed_of(path, first.train.seed) == path:
        return []
    if first.data.copy or first.data.recombine or first.model.twins:
        # What is copied, made or folded depends on the alignments, and one vocabulary serves all seeds.
        raise ConfigError(
            "seeds with alignments of their own need data.copy = false, data.recombine = 0 and model.twins = 0; "
            f"or train them one by one, with --align.given {path}/seed-{first.train.seed} and so on"
        )
    return [examples, *(training_examples(config, source) for config in configs[1:])]


def wanted_examples(config: Config, examples: Sequence[Example]) -> int:
    """How many new training examples the configuration asks for."""
    return 0 if config.model.kind == "seq2seq" else round(config.data.recombine * len(examples))


def more_examples(
    config: Config, examples: Sequence[Example], tell: Callable[[int], object] = lambda count: None
) -> list[Example]:
    """New training examples. Without alignments, nodes are where counts put them. tell: is told how many there are."""
    layers, wanted = config.model.graph_layers, wanted_examples(config, examples)
    if not wanted:
        return []
    for example in examples:
        check_fits(example, layers)
    if config.align.supervision == "strong":
        return recombined(examples, layers, wanted, tell=tell)
    copied = copied_labels(examples, layers) if config.data.copy else set()
    counted = as_counted(config, examples)
    given = label_probabilities(counted)
    slots = associated_alignments(counted, layers, copied.__contains__, given)
    placed = [replace(e, graph=e.graph.with_slots(found)) for e, found in zip(examples, slots, strict=True)]
    found = recombined(placed, layers, wanted, gives=labels_given(given), tell=tell)
    return [replace(new, graph=new.graph.with_slots(None)) for new in found]


def as_counted(config: Config, examples: Sequence[Example]) -> Sequence[Example]:
    """The examples as counts see them: without the names of variables, where these are alike."""
    if config.align.variables == "named":
        return examples
    return [replace(example, graph=without_names(example.graph)) for example in examples]


def learned_alignments(run: Path, source: Source) -> list[Example]:
    """The training examples of a weakly supervised run, with the alignments that it settled on.

    A run so short that it never came to a sentence has none for it: its model says what is likeliest.
    """
    config, _ = runs.read_config(runs.open_run(run))
    if config.model.kind == "seq2seq":
        raise RunError(f"{run} has no alignments: it writes forms (model.kind = seq2seq)")
    if not (run / runs.ALIGNMENTS).is_file():
        raise RunError(f"{run} has no learned alignments: it is not finished, or was trained with strong supervision")
    table = runs.read_tensors(run / runs.ALIGNMENTS)[0]["alignments"].tolist()
    examples = training_examples(config, source)
    if runs.read_fingerprint(run) != fingerprint(examples):
        raise DataError(f"{source.name} is not the data that {run} was trained on")
    settled = [slots[: len(example.graph.nodes)] for example, slots in zip(examples, table, strict=True)]
    aligned = [
        example.graph.with_slots(slots) if -1 not in slots else None
        for example, slots in zip(examples, settled, strict=True)
    ]
    unreached = [row for row, graph in enumerate(aligned) if graph is None]
    if unreached:
        parser = only_lagr(load(run), "an alignment")
        for row, found in zip(unreached, parser.align([examples[row] for row in unreached]), strict=True):
            aligned[row] = found.graph
    return [replace(example, graph=graph) for example, graph in zip(examples, aligned, strict=True) if graph]


def fingerprint(examples: Sequence[Example]) -> str:
    """A checksum of sentences and graphs, which another order or another word changes."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr((example.tokens, example.graph.nodes, example.graph.edges)).encode())
    return digest.hexdigest()[:16]


def fingerprint_of_all(splits: Mapping[str, Sequence[Example]]) -> str:
    """A checksum of all splits, in whatever order the nodes of their graphs are: of the data that a run was made on."""
    digest = hashlib.sha256()
    for split in sorted(splits):
        for example in splits[split]:
            nodes = example.graph.nodes
            edges = sorted((nodes[edge.source], edge.label, nodes[edge.target]) for edge in example.graph.edges)
            digest.update(repr((split, example.tokens, sorted(nodes), edges, example.form, example.category)).encode())
    return digest.hexdigest()[:16]


def _with_given_alignments(examples: list[Example], path: Path, source: Source, layers: int) -> list[Example]:
    if not path.exists():
        raise ConfigError(
            f"align.given: there is no {path}; give the folder of a weakly supervised run, or a file of `lagr align`"
        )
    if path.is_dir():
        theirs = runs.read_config(runs.open_run(path))[0].model.graph_layers
        if theirs != layers:
            raise ConfigError(
                f"{path} has {theirs} graph layers, this model {layers}; set model.graph_layers to {theirs}"
            )
        aligned: Sequence[Example] = learned_alignments(path, source)
    else:
        aligned = examples_of(row.example for row in jsonl.read(path))
    if [e.tokens for e in aligned] != [e.tokens for e in examples]:
        raise DataError(f"the sentences in {path} are not those of {source.name}'s training split, in the same order")
    if any(one.graph != other.graph for one, other in zip(aligned, examples, strict=True)):
        raise DataError(f"the graphs in {path} are not those of {source.name}'s training split")
    return [replace(example, graph=other.graph) for example, other in zip(examples, aligned, strict=True)]
