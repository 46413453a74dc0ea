"""One's own data, a JSON object a line:

    {"text": "Who edited M1?", "graph": {"nodes": ["ask", "edit", "M1"],
                                         "edges": [[0, "agent", 1], [1, "theme", 2]]}}
    {"tokens": ["The", "cake", "rolled", "."], "form": "* cake ( x _ 1 ) ; roll . theme ( x _ 2 , x _ 1 )",
     "formalism": "cogs"}

`alignment` gives the slot of every node of `graph`, where it is known; `category` groups rows in the evaluation.
A folder holds train.jsonl and, as it likes, dev.jsonl, test.jsonl and others. In a single file a row may name its
`split`; where none does, about a tenth of the sentences are dev and a tenth test, chosen by the text alone.

A SPARQL query may be written on one line, with its clauses in any order: its form is the query with both put right.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from lagr.datasets import LONGEST, Example, Source, read_text, tokenize
from lagr.errors import DataError, LagrError
from lagr.forms import cogs, formalism, sparql
from lagr.graph import Graph

USUAL = ("train", "dev", "test")
KEYS = {"text", "tokens", "graph", "form", "formalism", "alignment", "category", "split"}


def source(path: Path) -> Source:
    if path.is_dir():
        files = {file.stem: file for file in sorted(path.glob("*.jsonl"))}
        if "train" not in files:
            raise DataError(f"there is no train.jsonl in {path}")
        usual = [split for split in USUAL if split in files]
        by_split = {split: read(files[split]) for split in [*usual, *sorted(files.keys() - set(usual))]}
    else:
        everything = read(path)
        named = any(row.split for row in everything)
        by_split = {split: [] for split in USUAL}
        for row in everything:
            by_split.setdefault((row.split or "train") if named else part_of(row.example), []).append(row)
        if not by_split["train"] and not named:  # a handful of sentences is too few to divide
            by_split = {"train": everything}
        by_split = {split: rows for split, rows in by_split.items() if rows or split == "train"}
    formalisms = {
        row.formalism: row.where for rows in by_split.values() for row in rows[::-1] if isinstance(row.example, Example)
    }
    if len(formalisms) > 1:
        firsts = sorted(f"{name or 'none'} ({where})" for name, where in formalisms.items())
        raise DataError(f"{path} mixes rows of several formalisms: {', '.join(firsts)}")
    formalism = next(iter(formalisms), "") or None
    return Source(str(path), tuple(by_split), lambda split: [row.example for row in by_split[split]], formalism)


def part_of(example: Example | DataError) -> str:
    """The part of the data that a sentence belongs to: the same for the same text, whatever rows are beside it."""
    if isinstance(example, DataError):
        return "train"
    digest = hashlib.sha256(" ".join(example.tokens).encode()).digest()
    return {8: "dev", 9: "test"}.get(int.from_bytes(digest[:4]) % 10, "train")


class Row(NamedTuple):
    example: Example | DataError
    split: str = ""  # where it names one
    formalism: str = ""
    where: str = ""  # its file and line


def read(path: Path) -> list[Row]:
    """Every line of a file."""
    rows = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            rows.append(Row(_example(row), _text(row, "split"), _text(row, "formalism"), f"{path.name}:{number}"))
        except json.JSONDecodeError as error:
            rows.append(Row(DataError(f"{path}:{number} is no JSON: {error.msg} at column {error.colno}")))
        except (ValueError, RecursionError) as error:
            rows.append(Row(DataError(f"{path}:{number} can't be read: {error}")))
        except LagrError as error:
            rows.append(Row(DataError(f"{path}:{number}: {error}")))
    if not rows:
        raise DataError(f"{path} has no rows")
    return rows


def write_row(example: Example, formalism: str | None = None) -> str:
    """The line that `read` turns into this example."""
    row: dict[str, Any] = {"tokens": list(example.tokens)}
    graph = example.graph.to_dict()
    slots = graph.pop("slots", None)
    row["graph"] = graph
    if slots is not None:
        row["alignment"] = slots
    if example.form is not None and formalism is not None:
        row |= {"form": example.form, "formalism": formalism}
    if example.category:
        row["category"] = example.category
    return json.dumps(row, ensure_ascii=False)


def _example(row: Any) -> Example:
    if not isinstance(row, dict):
        raise DataError("a row is a JSON object with `text` or `tokens`, and `graph` or `form`")
    if unknown := sorted(row.keys() - KEYS):
        near = difflib.get_close_matches(unknown[0], KEYS - row.keys(), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"a row may have {', '.join(sorted(KEYS))}"
        raise DataError(f"unknown key {unknown[0]!r}; {hint}")
    tokens = _tokens(row)
    form, name = _text(row, "form") or None, _text(row, "formalism")
    if form and not name:
        raise DataError("a row with `form` names its `formalism`, such as cogs or sparql")
    formal = formalism(name) if name else None
    if form and name == "sparql":
        form = sparql.in_order(sparql.join(form.split()))
    longer = form if name == "cogs" and form is not None and cogs.is_lossy(form) else None
    if "graph" in row:
        graph = Graph.from_dict(row["graph"])
    elif form and formal:
        graph = formal.read(form, tokens)
    else:
        raise DataError("a row has a `graph`, or a `form` with its `formalism`")
    if row.get("alignment") is not None:
        if not isinstance(row["alignment"], list):
            raise DataError("`alignment` is a list: the slot of every node")
        graph = graph.with_slots(row["alignment"])
    if not graph.nodes:
        raise DataError("the graph has no nodes")
    for text in (*tokens, *graph.nodes, *(edge.label for edge in graph.edges)):
        text.encode()  # a lone surrogate is a ValueError
    return Example(tokens, graph, cogs.write(graph) if longer else form, _text(row, "category"), longer)


def _tokens(row: dict[str, Any]) -> tuple[str, ...]:
    if ("text" in row) == ("tokens" in row):
        raise DataError("a row has either `text` or `tokens`")
    if "text" in row:
        tokens = tokenize(_text(row, "text"))
    else:
        if not isinstance(row["tokens"], list) or not all(isinstance(t, str) and t for t in row["tokens"]):
            raise DataError("`tokens` is a list of strings that are not empty")
        tokens = tuple(row["tokens"])
    if not tokens:
        raise DataError("the sentence is empty")
    if len(tokens) > LONGEST:
        raise DataError(f"the sentence has {len(tokens):,} tokens; at most {LONGEST:,} can be parsed")
    return tokens


def _text(row: Any, key: str) -> str:
    value = row.get(key, "") if isinstance(row, dict) else ""
    if not isinstance(value, str):
        raise DataError(f"`{key}` is {value!r}; it should be a string")
    return value
