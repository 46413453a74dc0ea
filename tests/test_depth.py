from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from hashlib import sha256
from pathlib import Path

import pytest

from lagr import config, depth
from lagr.cli import main
from lagr.datasets import Example, mini
from lagr.errors import DataError
from lagr.forms import cogs
from lagr.parser import Parser

EDGE = {"clauses": "ccomp", "pps": "nmod."}


def longest_chain(example: Example, label: str) -> int:
    """Of edges whose label begins like that; looked for in the graph, which knows nothing of how it was made."""
    following: dict[int, list[int]] = {}
    for edge in example.graph.edges:
        if edge.label.startswith(label):
            following.setdefault(edge.source, []).append(edge.target)

    def length(node: int) -> int:
        return max((1 + length(target) for target in following.get(node, ())), default=0)

    return max(length(node) for node in range(len(example.graph.nodes)))


@pytest.mark.parametrize("kind", mini.NESTED)
@pytest.mark.parametrize("deep", [1, 2, 3, 7, 12, 30])
def test_sentences_are_exactly_as_deep_as_they_were_asked_to_be(kind: str, deep: int) -> None:
    examples = mini.nested(kind, deep, 40)
    assert len({example.tokens for example in examples}) == 40
    for example in examples:
        assert longest_chain(example, EDGE[kind]) == deep
        if kind == "pps":
            assert longest_chain(example, EDGE["clauses"]) == 0


@pytest.mark.parametrize("kind", mini.NESTED)
def test_deep_forms_and_graphs_say_the_same(kind: str) -> None:
    for example in mini.nested(kind, 12, 40):
        assert example.form is not None
        read = cogs.read(example.form, example.tokens)
        assert read == example.graph and cogs.write(read) == example.form


@pytest.mark.parametrize("kind", mini.NESTED)
def test_depths_of_training_have_its_words_and_valencies(kind: str) -> None:
    """Nothing but depth is new: what training never shows, it shows at no depth that it has."""
    train = mini.generate(4000)["train"]

    def valencies(examples: list[Example]) -> set[tuple[str, ...]]:
        found = set()
        for example in examples:
            for node, label in enumerate(example.graph.nodes):
                entering = sorted(edge.label for edge in example.graph.edges if edge.target == node)
                found.add((*entering, "→", *sorted(e.label for e in example.graph.edges if e.source == node)))
                if label == mini.ONLY_PASSIVE:  # a verb of the passive alone
                    assert example.tokens[example.graph.slots[node] - 1] == "was"
        return found

    for deep in range(1, mini.TRAINING_DEPTH + 1):
        examples = mini.nested(kind, deep, 200)
        assert {word for e in examples for word in e.tokens} <= {word for e in train for word in e.tokens}
        assert valencies(examples) <= valencies(train)


def test_deep_sentences_are_the_same_for_the_same_seed_whatever_else_is_asked_for() -> None:
    def sentences(count: int, seed: int) -> list[tuple[str, ...]]:
        return [example.tokens for example in mini.nested("clauses", 4, count, seed)]

    assert sentences(20, 0) == sentences(20, 0) == sentences(50, 0)[:20]
    assert not set(sentences(20, 0)) & set(sentences(20, 1))


def test_sentences_of_training_are_left_out() -> None:
    first, second, *_ = (example.tokens for example in mini.nested("pps", 1, 5))
    assert mini.nested("pps", 1, 5, unlike=[first])[0].tokens == second


def test_more_different_sentences_than_there_are_is_one_line() -> None:
    only = mini.nested("pps", 1, 1)[0]
    with pytest.raises(DataError, match="can't make 3 sentences of depth 1 that are all different; ask for fewer"):
        mini._different(lambda: only, 3, set(), "3 sentences of depth 1")


def test_minis_splits_stay_as_they_were() -> None:
    """Results depend on them."""
    found = {}
    for split, rows in mini.generate(4000, 0).items():
        text = "\n".join(f"{' '.join(row.tokens)}\t{row.form}\t{row.category}" for row in rows)
        found[split] = sha256(text.encode()).hexdigest()[:16]
    assert found == {
        "train": "c126746dbfcef2ff",
        "dev": "dfdea0710e4d850c",
        "test": "d0ce04466b2ddeef",
        "gen": "3eb0e9c987a3cabb",
    }


def test_a_curve_counts_what_parsing_gets_right(parser: Parser, small_run: Path) -> None:
    seen: list[int] = []
    curve = depth.measure(parser, small_run, 3, 20, progress=seen.append)
    assert curve["run"] == "small" and curve["seed"] == 0 and seen[-1] == 2 * 3 * 20 and seen == sorted(seen)
    trained_on = {example.tokens for example in mini.generate(300)["train"]}
    for kind in mini.NESTED:
        assert [row["depth"] for row in curve[kind]] == [1, 2, 3]
        for row in curve[kind]:
            examples = mini.nested(kind, row["depth"], 20, unlike=trained_on)
            parses = parser.parse_tokens([example.tokens for example in examples])
            right = sum(p.form == e.form for p, e in zip(parses, examples, strict=True))
            assert row["right"] == right and row["exact"] == 5 * right and row["low"] <= row["exact"] <= row["high"]
            assert bool(row["errors"]) == (right < 20)
            assert row["tokens"] == sum(len(e.tokens) for e in examples) / 20


def test_depth_of_runs_from_the_command_line(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = tmp_path / "seeds"
    shutil.copytree(small_run, seeds / "seed-0")
    file, out = tmp_path / "depth.json", tmp_path / "pictures"
    options = ["--depth", "3", "--sentences", "10", "--json", str(file), "--out", str(out)]
    assert main(["analyse", str(small_run), str(seeds), *options]) == 0
    printed = capsys.readouterr().out
    assert "small, seed 0: % exact" in printed and "seeds, seed 0: % exact" in printed
    assert printed.endswith(f"{out / 'depth.svg'}\n")
    curves = depth.read(file)
    assert len(curves) == 2 and {**curves[0], "run": "seeds"} == curves[1]
    picture = (out / "depth.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(picture).tag.endswith("svg") and "prefers-color-scheme: dark" in picture
    depth.main([str(file), str(tmp_path / "again.svg")])
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == picture

    assert main(["analyse", str(small_run), "--depth", "1", "--sentences", "10", "--json", "-", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["curves"][0]["pps"] == [curves[0]["pps"][0]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--depth", "0"], "--depth 0: give the deepest nesting that is measured, from 1 to 100"),
        (["--depth", "101"], "--depth 101"),
        (["--depth", "2", "--sentences", "0"], "--sentences 0: at least one sentence"),
        (["other"], "lagr analyse takes one TABLE, ROW or RUN"),
        (["--json", "-"], "no --json, unless there is --depth"),
    ],
)
def test_what_depth_can_not_do_is_one_line(
    arguments: list[str], said: str, small_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyse", str(small_run), *arguments]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_depth_is_for_mini_alone(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "config", config.override(parser.config, [("data", "name", "cogs")]))
    with pytest.raises(DataError, match="was trained on cogs; --depth is for runs on mini"):
        depth.measure(parser, Path("runs/cogs"), 2, 1)


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"curves": []}', '{"curves": [{"run": "a"}]}'])
def test_another_file_is_not_drawn(text: str, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="is not what `lagr analyse RUN --depth 12 --json FILE` writes"):
        depth.read(tmp_path / "file.json")
