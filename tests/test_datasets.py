from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from lagr.datasets import Source, check, jsonl, mini, open_source, tokenize
from lagr.errors import DataError
from lagr.forms import cogs

# mini


def test_mini_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    one, again, other = (mini.generate(50, seed) for seed in (3, 3, 4))
    assert all(e.tokens == f.tokens and e.form == f.form for e, f in zip(one["train"], again["train"], strict=True))
    assert [e.tokens for e in one["train"]] != [e.tokens for e in other["train"]]


@pytest.mark.parametrize("size", [10, 77, 1000])
def test_mini_has_the_size_that_was_asked_for(size: int) -> None:
    data = mini.generate(size)
    assert len(data["train"]) == size
    sentences = [e.tokens for split in data.values() for e in split]
    assert len(sentences) == len(set(sentences))
    assert {e.category for e in data["gen"]} == set(mini.CATEGORIES)


def test_mini_forms_and_graphs_say_the_same(mini: Source) -> None:
    counts = check.check(mini)
    assert counts["failed"] == 0 and counts["rows"] > 300


def test_minis_training_data_leaves_the_gaps_that_gen_fills() -> None:
    data = mini.generate(2000)

    def roles(split: str, word: str) -> set[str]:
        return {
            edge.label
            for example in data[split]
            for edge in example.graph.edges
            if example.graph.nodes[edge.target] == word and edge.label != cogs.ARTICLE_EDGE
        }

    def chains(split: str, prefix: str) -> int:
        longest = 0
        for example in data[split]:
            following = {e.source: e.target for e in example.graph.edges if e.label.startswith(prefix)}
            for node in following:
                length = 0
                while node in following:
                    node, length = following[node], length + 1
                longest = max(longest, length)
        return longest

    def is_passive(example: object, verb: str) -> bool:
        graph = example.graph  # type: ignore[attr-defined]
        slots = [slot for label, slot in zip(graph.nodes, graph.slots, strict=True) if label == verb]
        return any(example.tokens[slot - 1] == "was" for slot in slots)  # type: ignore[attr-defined]

    def active_transitive(split: str, verb: str) -> bool:
        return any(verb in e.graph.nodes and not is_passive(e, verb) for e in data[split])

    for example in data["train"]:
        graph = example.graph
        subjects = {e.target for e in graph.edges if e.label in ("agent", "theme")}
        assert not any(e.label.startswith("nmod") and e.source in subjects and graph.slots[e.source] < _verb_slot(graph, e.source)
                       for e in graph.edges)  # fmt: skip
    assert roles("train", mini.ONLY_SUBJECT_NAME) <= {"agent", "theme"}
    assert "theme" in roles("gen", mini.ONLY_SUBJECT)
    assert not any(is_passive(e, mini.ONLY_ACTIVE) for e in data["train"])
    assert any(is_passive(e, mini.ONLY_ACTIVE) for e in data["gen"])
    assert not active_transitive("train", mini.ONLY_PASSIVE) and active_transitive("gen", mini.ONLY_PASSIVE)
    assert {word for e in data["gen"] for word in e.tokens} <= {word for e in data["train"] for word in e.tokens}
    assert chains("train", "nmod") == chains("train", "ccomp") == mini.TRAINING_DEPTH
    assert chains("gen", "nmod") == chains("gen", "ccomp") == mini.DEEPEST


def _verb_slot(graph: object, noun: int) -> int:
    """The slot of the verb that the noun is an argument of."""
    (verb,) = {e.source for e in graph.edges if e.target == noun and e.label in ("agent", "theme", "recipient")} or {
        noun
    }  # type: ignore[attr-defined]
    return graph.slots[verb]  # type: ignore[attr-defined, no-any-return]


# JSONL

ROW = {"text": "Who edited M1?", "graph": {"nodes": ["ask", "edit", "M1"], "edges": [[0, "agent", 1], [1, "theme", 2]]}}


def write(path: Path, *rows: object) -> Path:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def test_rows_of_ones_own_are_read(tmp_path: Path) -> None:
    form = {
        "tokens": ["Mina", "sang", "."],
        "form": "sing . agent ( x _ 1 , Mina )",
        "formalism": "cogs",
        "category": "c",
    }
    file = write(tmp_path / "a.jsonl", ROW, {**ROW, "alignment": [0, 1, 2]}, "")
    source = open_source(str(file))
    first, second = source.read("train")
    assert first.tokens == ("Who", "edited", "M1", "?") and first.graph.slots is None and first.form is None
    assert second.graph.slots == (0, 1, 2) and source.formalism is None
    source = open_source(str(write(tmp_path / "b.jsonl", form)))
    (example,) = source.read("train")
    assert source.formalism == "cogs" and example.graph.nodes == ("Mina", "sing") and example.category == "c"


def test_a_written_row_is_read_back(tmp_path: Path, mini: Source) -> None:
    examples = mini.read("dev")
    file = write(tmp_path / "dev.jsonl", *(jsonl.write_row(e, "cogs") for e in examples))
    for example, (again, *_) in zip(examples, jsonl.read(file), strict=True):
        assert (again.tokens, again.form, again.category) == (example.tokens, example.form, example.category)
        assert (again.graph.nodes, again.graph.edges, again.graph.slots) == (
            example.graph.nodes, example.graph.edges, example.graph.slots)  # fmt: skip


def test_a_single_file_is_divided_and_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    rows = [{**ROW, "text": f"Who edited M{i}?"} for i in range(200)]
    source = open_source(str(write(tmp_path / "all.jsonl", *rows)))
    assert source.splits == ("train", "dev", "test") and sum(len(source.read(s)) for s in source.splits) == 200
    assert 10 <= len(source.read("dev")) <= 30 and 10 <= len(source.read("test")) <= 30
    few = open_source(str(write(tmp_path / "few.jsonl", ROW)))
    assert few.splits == ("train",) and len(few.read("train")) == 1
    named = open_source(str(write(tmp_path / "named.jsonl", {**ROW, "split": "test"}, ROW)))
    assert {s: len(named.read(s)) for s in named.splits} == {"train": 1, "test": 1}
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "train.jsonl", *rows)
    write(folder / "gen.jsonl", rows[0])
    assert open_source(str(folder)).splits == ("train", "gen")


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("{", "is no JSON"),
        ([], "a row is a JSON object"),
        ({"text": "a"}, "a row has a `graph`"),
        ({"graph": ROW["graph"]}, "either `text` or `tokens`"),
        ({**ROW, "tokens": ["a"]}, "either `text` or `tokens`"),
        ({**ROW, "text": " "}, "empty"),
        ({**ROW, "text": 3}, "should be a string"),
        ({**ROW, "foo": "a"}, "unknown key 'foo'; a row may have alignment, category, "),
        ({**ROW, "aligment": [0]}, "unknown key 'aligment'; did you mean 'alignment'?"),
        ({**ROW, "text": "a " * 1001}, "has 1,001 tokens; at most 1,000"),
        ({**ROW, "text": "a\0b"}, "NUL"),
        ({**ROW, "alignment": [0]}, "3 nodes but 1 slots"),
        ({"text": "a", "graph": {"nodes": ["a"], "edges": [[0, "x", 4]]}}, "points to node 4"),
        ({"text": "a", "graph": {"nodes": [], "edges": []}}, "no nodes"),
        ({"text": "a", "form": "b"}, "names its `formalism`"),
        ({"text": "a", "form": "b", "formalism": "prolog"}, "unknown formalism 'prolog'"),
        ({"tokens": ["a", ""], "graph": ROW["graph"]}, "not empty"),
        ({"text": "a", "form": "b", "formalism": ["cogs"]}, "should be a string"),
        ({**ROW, "formalism": "prolog"}, "unknown formalism 'prolog'"),
        ({"tokens": ["a\ud800"], "graph": {"nodes": ["a"]}}, "can't be read"),
        ("[" * 100_000, "can't be read"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, row: object, complaint: str) -> None:
    file = write(tmp_path / "bad.jsonl", ROW, row)
    with pytest.raises(DataError) as caught:
        open_source(str(file)).read("train")
    assert f"{file}:2" in str(caught.value) and complaint in str(caught.value)


def test_a_byte_that_is_no_utf_8_is_named_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "latin.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(ROW).encode() + '\r\n{"text": "Zoë'.encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.jsonl:2 is not UTF-8; save the file as UTF-8"):
        open_source(str(file))


def test_a_file_too_small_to_divide_says_that_nothing_measures_a_parser(tmp_path: Path) -> None:
    counts = check.check(open_source(str(write(tmp_path / "one.jsonl", ROW))))
    assert "no dev and no test: " in check.summary(counts)


def test_bytes_that_editors_add_change_nothing(tmp_path: Path) -> None:
    plain, odd = tmp_path / "plain.jsonl", tmp_path / "odd.jsonl"
    line = (
        json.dumps({**ROW, "tokens": ["a\u2028b", "c", "d"], "text": None}, ensure_ascii=False)
        .replace(', "text": null', "")
        .replace('"text": null, ', "")
    )
    plain.write_bytes((line + "\n").encode())
    odd.write_bytes(b"\xef\xbb\xbf" + (line + "\r\n").encode())
    (one,), (other,) = (open_source(str(path)).read("train") for path in (plain, odd))
    assert one.tokens == other.tokens == ("a\u2028b", "c", "d")


def test_a_folder_is_read_with_its_formalism(tmp_path: Path) -> None:
    row = {"tokens": ["Mina", "sang"], "form": "sing . agent ( x _ 1 , Mina )", "formalism": "cogs"}
    write(tmp_path / "train.jsonl", row)
    write(tmp_path / "dev.jsonl", ROW)
    with pytest.raises(DataError, match=r"formalisms: cogs \(train.jsonl:1\), none \(dev.jsonl:1\)"):
        open_source(str(tmp_path))
    write(
        tmp_path / "dev.jsonl",
        {"text": "gasp", "form": "LAMBDA a . LAMBDA e . gasp . agent ( e , a )", "formalism": "cogs"},
    )
    source = open_source(str(tmp_path))
    assert source.formalism == "cogs" and source.read("dev")[0].partly_kept and check.check(source)["failed"] == 0


def test_files_that_cannot_be_read_say_what_to_do(tmp_path: Path) -> None:
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(b'{"text": "caf\xe9"}\n')
    empty = write(tmp_path / "empty.jsonl")
    for path, complaint in ((latin, "not UTF-8"), (empty, "no rows"), (tmp_path / "none.jsonl", "no file")):
        with pytest.raises(DataError, match=complaint):
            open_source(str(path))
    for name, complaint in (
        ("nothing", "no data set"),
        ("cogs", "lagr data fetch cogs"),
        ("cfq", "lagr data fetch cfq"),
    ):
        with pytest.raises(DataError, match=complaint):
            open_source(name, tmp_path)


# COGS and CFQ layouts


def test_a_cogs_row_with_wrong_columns_is_named(tmp_path: Path) -> None:
    (tmp_path / "cogs").mkdir()
    (tmp_path / "cogs" / "train.tsv").write_text("Ida sang .\tsing . agent ( x _ 1 , Ida )\tx\nonly one column\n")
    with pytest.raises(DataError, match=r"train\.tsv:2 has 1 columns"):
        open_source("cogs", tmp_path).read("train")


CFQ_ROWS = [
    {"questionPatternModEntities": f"Did M{i} edit M9", "sparqlPatternModEntities": f"SELECT count(*) WHERE {{\nM{i} ns:film.editor.film M9\n}}"}
    for i in range(4)
]  # fmt: skip
CFQ_PARTS = {"trainIdxs": [3, 0], "devIdxs": [1], "testIdxs": [2]}


def cfq_archive(folder: Path, packed: bool, rows: object = CFQ_ROWS) -> Path:
    members = {"cfq/dataset.json": json.dumps(rows), "cfq/splits/mcd2.json": json.dumps(CFQ_PARTS)}
    (folder / "cfq").mkdir(parents=True)
    if packed:
        with tarfile.open(folder / "cfq" / "cfq.tar.gz", "w:gz") as archive:
            for name, text in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
    else:
        for name, text in members.items():
            path = folder / "cfq" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder


@pytest.mark.parametrize("packed", [True, False])
def test_cfq_is_read_packed_and_unpacked(tmp_path: Path, packed: bool) -> None:
    source = open_source("cfq", cfq_archive(tmp_path, packed), "mcd2")
    assert source.splits == ("train", "dev", "test") and source.formalism == "sparql"
    assert [e.tokens[1] for e in source.read("train")] == ["M3", "M0"]  # by position, in the split's order
    with pytest.raises(DataError, match="its splits are mcd2"):
        open_source("cfq", tmp_path, "mcd7")


def test_a_broken_cfq_archive_says_so(tmp_path: Path) -> None:
    (tmp_path / "cfq").mkdir()
    (tmp_path / "cfq" / "cfq.tar.gz").write_bytes(gzip.compress(b"no tar"))
    with pytest.raises(DataError, match="fetch the archive again"):
        open_source("cfq", tmp_path, "mcd1")
    bad = cfq_archive(
        tmp_path / "bad", True, [{"questionPatternModEntities": "a", "sparqlPatternModEntities": "DROP"}] * 4
    )
    with pytest.raises(DataError, match="example 3 of"):
        open_source("cfq", bad, "mcd2").read("train")


# words


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The baby liked the hedgehog.", "The|baby|liked|the|hedgehog|."),
        ("Did M0's editor's spouse marry M1?", "Did|M0|'s|editor|'s|spouse|marry|M1|?"),
        ("  O'Brien paid 3.5 euros,\tdidn't he ", "O'Brien|paid|3.5|euros|,|didn't|he"),
        ("日本語 text", "日本語|text"),
        ("Cafe\u0301 हिन्दी.", "Caf\u00e9|हिन्दी|."),
    ],
)
def test_words_and_marks_are_told_apart(text: str, tokens: str) -> None:
    assert tokenize(text) == tuple(tokens.split("|"))
