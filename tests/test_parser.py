from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import lagr
from lagr import analyse, verbs
from lagr.batch import pad_tokens
from lagr.cli import main
from lagr.confidence import PLAIN
from lagr.datasets import Example, Source
from lagr.decode import decode
from lagr.errors import DataError, RunError
from lagr.graph import Edge, Graph
from lagr.model import GraphDistribution
from lagr.parser import Parser
from lagr.vocab import Vocabulary


@pytest.fixture(scope="module")
def parser(small_run: Path) -> Parser:
    return lagr.load(small_run)


SENTENCES = ["The walrus painted a lantern .", "Ida sang .", "A captain claimed that the turnip in the shed vanished ."]


def test_a_list_is_parsed_as_its_sentences_are(parser: Parser) -> None:
    together, alone = parser.parse(SENTENCES), [parser.parse(sentence) for sentence in SENTENCES]
    for one, other in zip(together, alone, strict=True):
        assert (one.tokens, one.form, one.graph.nodes, one.graph.slots) == (
            other.tokens, other.form, other.graph.nodes, other.graph.slots)  # fmt: skip
        assert one.probability == pytest.approx(other.probability, rel=1e-3)
    assert [parse.tokens[0] for parse in parser.parse(SENTENCES * 50)] == [s.split()[0] for s in SENTENCES] * 50


def test_batches_change_nothing(parser: Parser, mini: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [example.tokens for example in mini.read("gen")]
    together = parser.decode(sentences)
    monkeypatch.setattr("lagr.parser.PAIRS_AT_ONCE_CPU", 1)
    alone = parser.decode(sentences)
    for one, other in zip(together, alone, strict=True):
        assert one.graph.to_dict() == other.graph.to_dict()
        for probabilities in ("node_probabilities", "edge_probabilities", "probability"):
            assert getattr(one, probabilities) == pytest.approx(getattr(other, probabilities), rel=1e-3, abs=1e-6)


def test_probabilities_are_those_of_the_distribution(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "calibration", PLAIN)
    parse = parser.parse(SENTENCES[0])
    with torch.inference_mode():
        dist = parser.model(*pad_tokens([parse.tokens], parser.vocab))
    nodes, edges = dist.node_log_probs[0], dist.edge_log_probs[0]
    assert parse.probability == pytest.approx(math.exp(float(nodes.amax(-1).sum() + edges.amax(-1).sum())), rel=1e-4)
    for node in parse.nodes:
        number = parser.vocab.node_numbers[node.label]
        assert node.probability == pytest.approx(float(nodes[node.slot, number].exp()), rel=1e-4)
        assert (node.token, node.layer) == (node.slot, 0)
    for edge in parse.edges:
        source, target = parse.nodes[edge.source].slot, parse.nodes[edge.target].slot
        number = parser.vocab.edge_numbers[edge.label]
        assert edge.probability == pytest.approx(float(edges[source, target, number].exp()), rel=1e-4)


def test_a_distribution_is_decoded_into_its_likeliest_graph() -> None:
    """Two layers: slot = token · 2 + layer. Edges that touch a null slot are dropped."""
    vocab = Vocabulary(("w",), ("p", "q"), ("x",))
    nodes, edges = torch.zeros(1, 4, 3), torch.zeros(1, 4, 4, 2)
    nodes[0, [0, 1, 2, 3], [0, 1, 0, 2]] = 9.0  # slot 1 holds p, slot 3 holds q
    edges[..., 0] = 9.0
    edges[0, 1, 3] = torch.tensor([0.0, 9.0])
    edges[0, 0, 3] = torch.tensor([0.0, 9.0])
    (found,) = decode(GraphDistribution.from_logits(nodes, edges, torch.ones(1, 4, dtype=torch.bool)), vocab)
    assert found.graph.nodes == ("p", "q") and found.graph.slots == (1, 3)
    assert [tuple(e) for e in found.graph.edges] == [(0, "x", 1)]
    assert found.edge_probabilities[0] == pytest.approx(1 / (1 + math.exp(-9)))


@pytest.mark.parametrize("seed", range(5))
def test_decoding_is_the_argmax_without_null(seed: int) -> None:
    """With sentences of several lengths, ties between labels, and graphs with no edges or no nodes at all."""
    generator = torch.Generator().manual_seed(seed)
    vocab = Vocabulary(("w",), ("p", "q"), ("x", "y", "z"))
    lengths = [1, 6, 4, 2, 6]
    nodes, edges = (torch.randn(5, *size, generator=generator).round() for size in ((6, 3), (6, 6, 4)))
    nodes[4, :, 0] = 9.0
    dist = GraphDistribution.from_logits(nodes, edges, torch.arange(6) < torch.tensor(lengths)[:, None])
    best, found = dist.argmax(), decode(dist, vocab)
    assert found[4].graph.nodes == ()
    assert [d.probability for d in found] == pytest.approx(dist.log_prob(best).exp().tolist())
    for b, decoded in enumerate(found):
        slots = best.nodes[b].nonzero().flatten().tolist()
        pairs = [(j, k) for j, s in enumerate(slots) for k, t in enumerate(slots) if best.edges[b, s, t]]
        assert decoded.graph.to_dict() == {
            "nodes": [vocab.node_label(int(best.nodes[b, slot])) for slot in slots],
            "edges": [[j, vocab.edge_label(int(best.edges[b, slots[j], slots[k]])), k] for j, k in pairs],
            "slots": slots,
        }
        assert decoded.node_probabilities == pytest.approx(dist.node_log_probs[b, slots].amax(-1).exp().tolist())
        edge_probabilities = [float(dist.edge_log_probs[b, slots[j], slots[k]].amax().exp()) for j, k in pairs]
        assert decoded.edge_probabilities == pytest.approx(edge_probabilities)


def test_unknown_words_are_parsed_too(parser: Parser) -> None:
    parse = parser.parse("The xylophonist painted a zeppelin !")
    assert parse.tokens[1] == "xylophonist" and 0 <= parse.probability <= 1


def test_what_cannot_be_parsed_is_said(parser: Parser) -> None:
    for sentence, complaint in (("", "empty"), ("   ", "empty"), ("a\0b", "NUL"), ("word " * 10_000, "10,000 tokens")):
        with pytest.raises(DataError, match=complaint):
            parser.parse(sentence)
    with pytest.raises(DataError, match="sentence 2 is empty"):
        parser.parse(["a", ""])


def test_a_graph_without_a_form_has_a_problem(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    from lagr.decode import Decoded

    stray = Decoded(Graph(("*", "walrus"), slots=(0, 1)), (0.9, 0.8), (), 0.7)
    monkeypatch.setattr(parser, "decode", lambda sentences, **options: [stray])
    parse = parser.parse("The walrus .")
    assert parse.form is None and "nothing in this graph" in (parse.problem or "")
    assert parse.to_dict()["nodes"][1] == {"label": "walrus", "slot": 1, "token": 1, "layer": 0, "probability": 0.8}


def test_a_saved_run_loads_as_it_was(parser: Parser, small_run: Path) -> None:
    again = lagr.load(str(small_run))
    assert again.parse(SENTENCES[2]) == parser.parse(SENTENCES[2])
    assert again.vocab == parser.vocab and again.config == parser.config


def test_alignments_of_new_graphs_are_inferred(parser: Parser, mini: Source) -> None:
    bare = [e.__class__(e.tokens, e.graph.with_slots(None), e.form) for e in mini.read("dev")]
    aligned = parser.align(bare)
    assert [e.tokens for e in aligned] == [e.tokens for e in bare]
    right = [a.graph.slots == e.graph.slots for a, e in zip(aligned, mini.read("dev"), strict=True)]
    assert sum(right) > len(right) / 3  # chance is far below one in ten


def test_graphs_with_labels_that_training_lacks_are_left_out(
    parser: Parser, small_run: Path, mini: Source, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gnu, edge, crowd = Graph(("*", "gnu")), Graph(("*", "cat"), (Edge(0, "of the", 1),)), Graph(("*",) * 9)
    strange = [Example(("the", "cat"), graph) for graph in (gnu, edge, crowd)]
    assert not any(map(parser.can_align, strange)) and all(map(parser.can_align, mini.read("dev")))
    rows = [*strange, *mini.read("dev")]
    assert analyse.placement_table(parser, rows) == analyse.placement_table(parser, rows[3:])
    assert analyse.pictures_of(parser, rows) == analyse.pictures_of(parser, rows[3:])
    monkeypatch.setattr(verbs, "source_of", lambda *_: replace(mini, rows=lambda split: rows))
    assert main(["align", str(small_run), "--split", "dev"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == len(rows) - 3
    assert f"3 of {len(rows)} sentences left out: labels that training lacks" in printed.err


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda run: (run / "model.safetensors").write_bytes(b"junk"), "can't be read"),
        (lambda run: (run / "model.safetensors").unlink(), "no model.safetensors"),
        (lambda run: (run / "vocab.json").write_text("{}"), "damaged"),
        (lambda run: (run / "vocab.json").unlink(), "no readable vocab.json"),
        (lambda run: (run / "config.toml").unlink(), "no run folder"),
        (lambda run: (run / "config.toml").write_text((run / "config.toml").read_text().replace("format = 2", "format = 99")), "format 99"),
        (lambda run: (run / "config.toml").write_text((run / "config.toml").read_text().replace("width = 32", "width = 64")), "different runs"),
    ],
)  # fmt: skip
def test_a_damaged_run_says_what_is_wrong(tmp_path: Path, small_run: Path, damage: object, complaint: str) -> None:
    import shutil

    copy = Path(shutil.copytree(small_run, tmp_path / "copy"))
    damage(copy)  # type: ignore[operator]
    with pytest.raises(RunError, match=complaint):
        lagr.load(copy)
