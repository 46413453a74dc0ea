"""Round trips over every row of the real data."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.nn.functional import one_hot

from lagr.align import place
from lagr.batch import known_places, pack
from lagr.copying import copied_labels
from lagr.datasets import Example, check, open_source, tokenize
from lagr.forms import SPELLINGS
from lagr.model import GraphDistribution
from lagr.twins import without_twins
from lagr.vocab import Vocabulary


@cache
def whole_cfq(folder: Path) -> list[Example]:
    """Reading takes some seconds."""
    return open_source("cfq", folder, "all").read("all")


def test_every_cogs_row_comes_back(cogs_data: Path) -> None:
    counts = check.check(open_source("cogs", cogs_data))
    rows = {split: c["rows"] for split, c in counts["splits"].items()}
    assert rows == {"train": 24_155, "dev": 3_000, "test": 3_000, "gen": 21_000}
    assert counts["failed"] == 0
    for c in counts["splits"].values():
        assert c["round_trips"] + c["partly_kept"] == c["rows"] == c["aligned"]
    assert counts["splits"]["train"]["partly_kept"] == 81  # the verbs among the 143 one-word rows
    assert counts["splits"]["train"]["categories"]["primitive"] == 143
    known = counts["node_labels"].keys() - {"gardner", "monastery"}
    assert len(known) + 1 == 645 and len(counts["edge_labels"]) + 1 == 10  # with null, as in the paper


def test_every_cfq_query_comes_back(cfq_data: Path) -> None:
    counts = check.check(open_source("cfq", cfq_data, "all"))
    (c,) = counts["splits"].values()
    assert counts["failed"] == 0 and c["round_trips"] == c["rows"] == 119_679
    assert len(counts["node_labels"]) == 84 and c["most_nodes"] == 18
    assert set(counts["edge_labels"]) == {"agent", "theme", "FILTER", "FILTER2"}
    assert counts["node_labels"]["^ns:people.person.gender"] > 0


@pytest.mark.parametrize(
    ("partition", "sizes"), [("mcd1", (95_743, 11_968, 11_968)), ("random_split", (47_974, 5_916, 5_917))]
)
def test_cfq_partitions_are_read_whole(cfq_data: Path, partition: str, sizes: tuple[int, ...]) -> None:
    source = open_source("cfq", cfq_data, partition)
    assert tuple(len(source.read(split)) for split in source.splits) == sizes


def test_tokenize_agrees_with_the_corpora(cogs_data: Path, cfq_data: Path) -> None:
    for source in (open_source("cogs", cogs_data), open_source("cfq", cfq_data, "mcd1")):
        for split in source.splits:
            for example in source.read(split):
                assert tokenize(" ".join(example.tokens)) == example.tokens


def test_every_form_is_spelled_in_tokens_and_comes_back(cogs_data: Path, cfq_data: Path) -> None:
    cogs = open_source("cogs", cogs_data)
    whole_cogs = [example for split in cogs.splits for example in cogs.read(split)]
    for name, examples in (("cogs", whole_cogs), ("sparql", whole_cfq(cfq_data))):
        spellings = [spelling for (formalism, _), spelling in SPELLINGS.items() if formalism == name]
        assert spellings
        for form in (example.written_form or "" for example in examples):
            for spelling in spellings:
                assert spelling.join(spelling.split(form)) == form == spelling.in_order(form)


def test_every_folded_graph_comes_back(cfq_data: Path) -> None:
    examples = whole_cfq(cfq_data)
    vocab = Vocabulary.of(examples, copied=copied_labels(examples, 2), twins=3)
    folded_rows = 0
    for first in range(0, len(examples), 4000):
        some = examples[first : first + 4000]
        target, whole = (pack(some, known, 2).batch.target for known in (vocab, replace(vocab, twins=0)))
        folded_rows += int((target.labels == vocab.twin).any(1).sum())
        # Each node has a slot, in the order of the words that nodes copy; where the others stand is all the same.
        slots, sizes = torch.zeros_like(target.nodes), [len(example.graph.nodes) for example in some]
        for row, example in enumerate(some):
            places = known_places(example, vocab, 2)
            order = sorted(range(len(places)), key=lambda node: (places[node] is None, places[node]))
            slots[row, order] = torch.arange(len(order))
        labels = place(target, slots, slots.shape[1])
        dist = GraphDistribution.from_logits(
            9.0 * one_hot(labels.nodes, vocab.sizes[1]),
            9.0 * one_hot(labels.edges, vocab.sizes[2]),
            torch.arange(slots.shape[1]) < torch.tensor(sizes)[:, None],
        )
        found = without_twins(dist).edge_log_probs.argmax(-1)
        assert found.equal(place(whole, slots, slots.shape[1]).edges)
    assert folded_rows == 36_420
