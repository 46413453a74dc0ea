"""One's own data: divided, checked, settings chosen from it, and labels that are copied from the sentence."""

from __future__ import annotations

import json
import random
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import lagr
from lagr import config, runs
from lagr.align import Target, infer_alignment
from lagr.associate import associated_alignments
from lagr.batch import pack
from lagr.calibrate import place_gold
from lagr.chance import make_keys
from lagr.choose import choose, configure, is_data, without
from lagr.cli import main, understand
from lagr.copying import copied_labels
from lagr.datasets import Example, Source, check, jsonl, open_source
from lagr.datasets.mini import generate
from lagr.errors import ConfigError, DataError
from lagr.forget import Forget
from lagr.graph import Edge, Graph
from lagr.model import GraphDistribution
from lagr.train import train
from lagr.vocab import UNKNOWN, Vocabulary, shape

QUICK = {
    "model.width": "32", "model.encoder_layers": "1", "model.heads": "2", "align.hold": "60", "train.steps": "400",
    "train.batch": "32", "train.learning_rate": "5e-3", "train.evaluate_every": "0", "train.warmup": "20",
}  # fmt: skip


def write(path: Path, rows: Sequence[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows_of(examples: Sequence[Example], alignments: int = 0) -> list[dict[str, object]]:
    """Rows without alignments, but for the first so many; the order of nodes says nothing about positions."""
    rows: list[dict[str, object]] = []
    for number, example in enumerate(examples):
        graph = example.graph.reordered(sorted(range(len(example.graph.nodes)), key=example.graph.nodes.__getitem__))
        plain = graph.to_dict()
        slots = plain.pop("slots")
        rows.append({"text": " ".join(example.tokens), "graph": plain})
        if number < alignments:
            rows[-1]["alignment"] = slots
    return rows


def test_the_commands_of_the_page_are_understood() -> None:
    page = (Path(__file__).parent.parent / "docs" / "own-data.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ (?:HF_HUB_OFFLINE=1 )?lagr (.+)$", page, re.M)
    assert len(commands) >= 8
    for command in commands:
        understand(shlex.split(command))


# How a file is divided.


def test_a_sentence_is_in_one_part_and_stays_there_when_rows_are_added(tmp_path: Path) -> None:
    rows = rows_of(generate(300)["train"])
    again = [*rows[150:], *rows]  # half of the sentences twice
    parts = []
    for name, some in (("few.jsonl", rows[:200]), ("all.jsonl", again)):
        source = open_source(str(write(tmp_path / name, some)))
        parts.append({e.tokens: split for split in source.splits for e in source.read(split)})
        assert sum(len({e.tokens for e in source.read(split)}) for split in source.splits) == len(parts[-1])
    assert parts[0].items() <= parts[1].items()


def test_check_says_which_sentences_of_a_part_are_in_train_too(tmp_path: Path) -> None:
    rows = rows_of(generate(30)["train"])
    write(tmp_path / "train.jsonl", rows)
    write(tmp_path / "test.jsonl", rows[:4])
    counts = check.check(open_source(str(tmp_path)))
    assert counts["splits"]["test"]["in_train"] == 4 and counts["splits"]["train"]["in_train"] == 0
    assert "4 of the 4 sentences of test are in train too" in check.summary(counts)


def test_a_query_may_be_on_one_line_and_in_any_order(tmp_path: Path) -> None:
    query = "SELECT DISTINCT ?x0 WHERE { ?x0 ns:film.editor.film M1 . ?x0 a ns:film.actor . FILTER ( ?x0 != M1 ) }"
    file = write(tmp_path / "q.jsonl", [{"text": "Which actor edited M1?", "form": query, "formalism": "sparql"}])
    ((example, *_),) = jsonl.read(file)
    assert isinstance(example, Example)
    assert example.form == (
        "SELECT DISTINCT ?x0 WHERE {\n?x0 a ns:film.actor .\n?x0 ns:film.editor.film M1 .\nFILTER ( ?x0 != M1 )\n}"
    )
    assert check.check(open_source(str(file)))["failed"] == 0
    file = write(tmp_path / "bad.jsonl", [{"text": "Who?", "form": "ASK { M0 ns:a.b M1 }", "formalism": "sparql"}])
    with pytest.raises(DataError, match=r"bad.jsonl:1: .* is neither"):
        open_source(str(file)).read("train")


# What is chosen.


def chosen(tmp_path: Path, rows: Sequence[dict[str, object]], device: str = "cpu") -> config.Config:
    source = open_source(str(write(tmp_path / "data.jsonl", rows)))
    return configure(source, choose(source, device))


@pytest.mark.parametrize(
    ("aligned", "supervision", "why"),
    [(0, "weak", "no alignments"), (60, "strong", "every training sentence"), (20, "weak", "of 60 training sentences")],
)
def test_supervision_follows_from_the_alignments(tmp_path: Path, aligned: int, supervision: str, why: str) -> None:
    write(tmp_path / "train.jsonl", rows_of(generate(60)["train"], aligned))
    source = open_source(str(tmp_path))
    choices = choose(source, "cpu")
    assert configure(source, choices).align.supervision == supervision
    assert any(why in str(choice) for choice in choices if "align.supervision" in choice.settings)


def test_nodes_of_equal_label_may_change_places_where_alignments_are_inferred(tmp_path: Path) -> None:
    twice = {"nodes": ["*", "*"], "edges": [[0, "x", 1]]}
    few: list[dict[str, object]] = [{"text": f"word{i} here", "graph": {"nodes": ["a"]}} for i in range(40)]
    assert chosen(tmp_path, few).align.swaps == 0
    rows: list[dict[str, object]] = [{"text": f"both {i} here", "graph": twice} for i in range(40)]
    settings = chosen(tmp_path, few + rows)
    assert settings.align.swaps == 2 and not settings.model.twins and not settings.model.anonymous
    assert chosen(tmp_path, [{**row, "alignment": [0, 2]} for row in rows]).align.swaps == 0
    in_dev_alone = [{**row, "split": "train"} for row in few] + [{**row, "split": "dev"} for row in rows]
    assert chosen(tmp_path, in_dev_alone).align.swaps == 0


@pytest.mark.parametrize(("nodes", "layers"), [(2, 1), (3, 2), (5, 3)])
def test_there_are_as_many_graph_layers_as_the_fullest_sentence_needs(tmp_path: Path, nodes: int, layers: int) -> None:
    few = [{"text": f"word{i} here", "graph": {"nodes": ["a"]}} for i in range(40)]
    full = {"text": "so full", "graph": {"nodes": [f"n{i}" for i in range(nodes)]}, "split": "train"}
    assert chosen(tmp_path, [*few, full]).model.graph_layers == layers


def test_more_data_takes_more_steps_and_a_gpu_a_larger_model(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"text": f"word{i} here", "graph": {"nodes": ["a"]}} for i in range(4000)]
    few, many, on_gpu = (
        chosen(tmp_path, some, on) for some, on in ((rows[:400], "cpu"), (rows, "cpu"), (rows, "cuda"))
    )
    assert few.train.steps < many.train.steps and many.model.width < on_gpu.model.width


def test_a_small_model_takes_one_thread_and_gives_the_others_back(
    tmp_path: Path, mini: Source, small_config: config.Config
) -> None:
    before = torch.get_num_threads()
    few = [("train", "steps", 1), ("train", "threads", 1), ("train", "evaluate_limit", 1)]
    (report,) = train(config.override(small_config, few), mini, tmp_path / "run")
    assert "CPU, 1 thread," in report["machine"] and torch.get_num_threads() == before


def test_what_is_given_is_not_chosen_and_presets_are_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(str(write(tmp_path / "data.jsonl", rows_of(generate(60)["train"]))))
    left = without(choose(source, "cpu"), {"model.graph_layers", "train.steps"})
    keys = {key for choice in left for key in choice.settings}
    assert "model.graph_layers" not in keys and "train.steps" not in keys and "train.batch" in keys
    bare = replace(source, rows=lambda split: [replace(e, graph=e.graph.with_slots(None)) for e in source.read(split)])
    given = {"align.given": "a-run", "train.steps": "300"}
    told = configure(bare, choose(bare, "cpu", given))
    assert told.align.supervision == "strong" and told.train.evaluate_every == 300 and not told.align.swaps
    alone = without(choose(bare, "cpu", {"align.supervision": "strong"}), {"align.supervision"})
    assert not any(key.startswith("align.") for choice in alone for key in choice.settings)
    with pytest.raises(ConfigError, match=r"train.steps"):
        choose(bare, "cpu", {"train.steps": "-5"})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()
    assert is_data("data.jsonl") and is_data(str(tmp_path)) and not is_data("quickstart") and not is_data("a.toml")


# Labels that copy a word.


def example(text: str, *nodes: str, slots: tuple[int, ...] | None = None) -> Example:
    return Example(tuple(text.split()), Graph(nodes, (), slots))


def test_a_label_is_copied_if_it_is_always_a_word_of_its_sentence() -> None:
    rows = [example("Ida sang", "Ida", "sing"), example("Oskar can sing", "Oskar", "sing"), example("Ida", "Ida")]
    assert copied_labels(rows, 1) == {"Ida", "Oskar"}
    assert copied_labels([*rows, example("she sang", "Ida", "sing")], 1) == {"Oskar"}
    twice = [example("Ida met Ida", "Ida", "Ida"), example("Mina met herself", "Mina", "Mina")]
    assert copied_labels(twice, 1) == {"Ida"} and copied_labels(twice, 2) == {"Ida", "Mina"}
    aligned = [example("Ida met Mina", "Ida", "Mina", slots=(0, 1))]  # Mina's node sits on another word
    assert copied_labels(aligned, 1) == {"Ida"}


def test_the_vocabulary_has_one_label_for_all_that_are_copied() -> None:
    vocab = Vocabulary.of([example("Ida sang 12", "Ida", "sing")], copied={"Ida"}, shapes=True)
    assert vocab.node_labels == ("sing",) and vocab.sizes[1] == 3 and vocab.copy == 2
    assert vocab.node_label(2, "Zorblax") == "Zorblax" and vocab.node_label(1, "sang") == "sing"
    assert Vocabulary.from_json(vocab.to_json()) == vocab
    number, name, other = vocab.encode(["2047", "Zorblax", "zorbing"])
    assert len({number, name, other, UNKNOWN}) == 4
    assert Vocabulary.of([example("Ida sang", "Ida")]).encode(["2047", "Zorblax"]) == [UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("graph_layers", [1, 2])
def test_a_copied_node_sits_on_its_word_whatever_the_model_prefers(graph_layers: int) -> None:
    """Words that are known and ones that are not, one of them twice; the noise is large."""
    rows = [example("Ida met Mina or Ida", "meet", "Mina", "Ida"), example("Bo met Zo or Zo", "Bo", "Zo", "meet")]
    vocab = Vocabulary.of(rows[:1], copied={"Ida", "Mina"}, shapes=True)
    batch = pack(rows, vocab, graph_layers).batch
    M = 5 * graph_layers
    generator = torch.Generator().manual_seed(0)
    dist = GraphDistribution.from_logits(
        5 * torch.randn(2, M, vocab.sizes[1], generator=generator),
        torch.zeros(2, M, M, 1),
        torch.ones(2, M, dtype=torch.bool),
    )
    seen = set()
    for step in range(30):
        found = infer_alignment(dist, batch.target, 1, 10.0, make_keys(torch.zeros(1), step)) // graph_layers
        assert found[0, 1] == 2 and found[0, 2] in (0, 4) and found[1, 0] == 0 and found[1, 1] in (2, 4)
        seen.add(int(found[0, 2]))
    assert seen == {0, 4}  # either token of the word
    free = Target(batch.target.nodes, batch.target.sources, batch.target.labels, batch.target.targets)
    assert (infer_alignment(dist, free, 3, 10.0) // graph_layers != found).any()
    for row, slots in zip(rows, associated_alignments(rows, graph_layers, vocab.is_copied), strict=True):
        for label, slot in zip(row.graph.nodes, slots, strict=True):
            assert label == "meet" or row.tokens[slot // graph_layers] == label


def test_rare_words_are_forgotten_often_and_reserved_ones_never() -> None:
    rows = [example("the Ida", "x")] + [example("the", "x")] * 98
    vocab = Vocabulary.of(rows, shapes=True)
    forget = Forget(rows, vocab, 1.0, "cpu")
    rare, often = vocab.encode(["Ida", "the"])
    tokens = torch.tensor([rare, often, 0, UNKNOWN]).repeat(2, 5000, 1)
    keys = make_keys(torch.arange(2), 3)
    forgotten = forget(tokens, keys)
    shares = (forgotten != tokens).float().mean((0, 1)).tolist()
    assert shares[0] == pytest.approx(1 / 2, abs=0.03) and shares[1] == pytest.approx(1 / 100, abs=0.005)
    assert shares[2:] == [0.0, 0.0] and set(forgotten[..., 0].flatten().tolist()) == {rare, vocab.unknown("Ida")}
    assert torch.equal(forget(tokens[:1], keys[:1]), forgotten[:1])  # a seed forgets the same beside others as alone
    assert vocab.words[vocab.unknown("Ida") - 2] == shape("Ida") == "<Aa>"


def test_a_shape_that_no_word_of_training_has_is_read_as_the_nearest() -> None:
    names = Vocabulary.of([example("the Ida", "x")], shapes=True)
    assert names.unknown("R2-D2") == names.unknown("731") == names.word_numbers["<Aa>"]
    assert names.unknown("zorbing") == names.unknown("§") == names.word_numbers["<a>"]
    numbers = Vocabulary.of([example("the 12", "x")], shapes=True)
    assert numbers.unknown("R2-D2") == numbers.word_numbers["<0>"]
    assert numbers.unknown("Ida") == numbers.word_numbers["<a>"]
    assert Vocabulary.of([example("the Ida", "x")]).unknown("R2-D2") == UNKNOWN


def messages(rng: random.Random, count: int) -> list[Example]:
    """Names, numbers and identifiers, most of them seen once: “Did Kanomi send 731 to QX-52 ?”"""

    def name() -> str:
        return "".join(rng.choice("KLMNRST") + rng.choice("aeiou") for _ in range(3)).capitalize()

    def build() -> Example:
        sender, amount, place = name(), str(rng.randint(100, 999)), f"{rng.choice('QRST')}X-{rng.randint(10, 99)}"
        verb, past = rng.choice([("send", "sent"), ("lend", "lent"), ("owe", "owed")])
        kind = rng.randrange(3)
        words, nodes, edges, slots = {
            0: (f"{sender} {past} {amount} to {place} .", (sender, verb, amount, place), "agent theme goal", (0, 1, 2, 4)),
            1: (f"Did {sender} {verb} {amount} ?", (sender, verb, amount), "agent theme", (1, 2, 3)),
            2: (f"{place} was {verb} by {sender} .", (sender, verb, place), "agent goal", (4, 2, 0)),
        }[kind]  # fmt: skip
        ends = [node for node in range(len(nodes)) if node != 1]
        links = tuple(Edge(1, label, end) for label, end in zip(edges.split(), ends, strict=True))
        return Example(tuple(words.split()), Graph(nodes, links, slots))

    return [build() for _ in range(count)]


@pytest.mark.parametrize("alignments", [0, 500])
def test_names_numbers_and_identifiers_never_seen_are_parsed(
    tmp_path: Path, alignments: int, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "messages.jsonl", rows_of(messages(random.Random(1), 500), alignments))
    settings = [word for key, value in QUICK.items() for word in (f"--{key}", value)]
    assert main(["train", str(file), "--out", str(tmp_path / "run"), *settings]) == 0
    printed = capsys.readouterr()
    assert "data.copy = true" in printed.err
    assert ("align.supervision = strong" if alignments else "align.supervision = weak") in printed.err
    parser = lagr.load(tmp_path / "run")
    new = [
        e
        for e in messages(random.Random(2), 60)
        if not set(e.graph.nodes) - {"send", "lend", "owe"} & set(parser.vocab.words)
    ]
    assert len(new) >= 20
    right = [
        parse.graph == e.graph for parse, e in zip(parser.parse([" ".join(e.tokens) for e in new]), new, strict=True)
    ]
    assert sum(right) >= 0.95 * len(new)
    parse = parser.parse("Wolfgang sent 8417 to ZZ-9 .")
    assert parse.graph == Graph(
        ("Wolfgang", "send", "8417", "ZZ-9"), (Edge(1, "agent", 0), Edge(1, "theme", 2), Edge(1, "goal", 3))
    )
    assert [parse.tokens[node.token] for node in parse.nodes if node.label != "send"] == ["Wolfgang", "8417", "ZZ-9"]

    # What else could be there is named too, and what is copied is known to calibration.
    nbest = parser.parse("Wolfgang sent 8417 to ZZ-9 .", nbest=5)
    assert nbest.graph == parse.graph and len(nbest.next_best) == 4
    known = {"Wolfgang", "8417", "ZZ-9", "to", "sent", ".", *parser.vocab.node_labels}
    assert all(set(one.graph.nodes) <= known for one in nbest.next_best if one.graph)
    (asked,) = parser.parse_tokens([parse.tokens], alternatives=3)
    assert asked.alternatives is not None and len(asked.alternatives.slots) == len(parse.tokens)
    for node in asked.nodes:
        assert asked.alternatives.slots[node.slot][0] == (node.label, pytest.approx(node.probability))
    placed = place_gold(parser, new, parser.parse_tokens([e.tokens for e in new]))
    assert all(graph is not None for graph in placed)

    # The settings are in the run folder, with the reasons, and train the same parser.
    toml = tmp_path / "run" / "config.toml"
    assert "# data.copy = true: " in toml.read_text(encoding="utf-8")
    assert config.load(str(toml)) == parser.config and parser.config.train.steps == 400


def test_a_reason_that_quotes_odd_characters_leaves_the_settings_readable(tmp_path: Path) -> None:
    runs.write_config(tmp_path, config.Config(), None, why=["in “a\nb\x07 = [”", "another"])
    assert runs.read_config(tmp_path)[0] == config.Config()
    assert (tmp_path / runs.CONFIG).read_text(encoding="utf-8").startswith("# in “a b  = [”\n# another\n\n[about]")


def test_data_that_is_wrong_is_refused_by_its_line_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(generate(30)["train"])
    file = write(
        tmp_path / "my.jsonl", [*rows, {"text": "Ida sang .", "graph": {"nodes": ["a"], "edges": [[0, "x", 7]]}}]
    )
    assert main(["train", str(file), "--out", str(tmp_path / "run")]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert "my.jsonl:31" in message and "points to node 7" in message and not (tmp_path / "run").exists()
