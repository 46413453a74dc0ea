"""One's own data, a JSON object a line:

    {"text": "Who edited M1?", "graph": {"nodes": ["ask", "edit", "M1"],
                                         "edges": [[0, "agent", 1], [1, "theme", 2]]}}
    {"tokens": ["The", "cake", "rolled", "."], "form": "* cake ( x _ 1 ) ; roll . theme ( x _ 2 , x _ 1 )",
     "formalism": "cogs"}

`alignment` gives the slot of every node of `graph`, where it is known; `category` groups rows in the evaluation.
A folder holds train.jsonl and, as it likes, dev.jsonl, test.jsonl and others. In a single file a row may name its
`split`; where none does, every tenth row is dev and the one after it test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lagr.datasets import Example, Source, read_text, tokenize
from lagr.errors import DataError, LagrError
from lagr.forms import formalism
from lagr.graph import Graph

KEYS = {"text", "tokens", "graph", "form", "formalism", "alignment", "category", "split"}


def source(path: Path) -> Source:
    if path.is_dir():
        files = {file.stem: file for file in sorted(path.glob("*.jsonl"))}
        if "train" not in files:
            raise DataError(f"there is no train.jsonl in {path}")
        order = [
            *(s for s in ("train", "dev", "test") if s in files),
            *(s for s in files if s not in ("train", "dev", "test")),
        ]
        name = _formalism_of(files["train"])
        return Source(str(path), tuple(order), lambda split: [e for _, e in read(files[split])], name)
    rows = read(path)
    named = any(split for split, _ in rows)
    by_split: dict[str, list[Example]] = {"train": []}
    for number, (split, example) in enumerate(rows):
        chosen = (split or "train") if named else {8: "dev", 9: "test"}.get(number % 10, "train")
        by_split.setdefault(chosen, []).append(example)
    return Source(str(path), tuple(by_split), lambda split: by_split[split], _formalism_of(path))


def read(path: Path) -> list[tuple[str, Example]]:
    """The split, where it says one, and the example of every line."""
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            rows.append((_text(row, "split"), _example(row)))
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{number} is no JSON: {error.msg} at column {error.colno}") from None
        except LagrError as error:
            raise DataError(f"{path}:{number}: {error}") from None
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
    if unknown := row.keys() - KEYS:
        raise DataError(f"unknown key {sorted(unknown)[0]!r}; a row may have {', '.join(sorted(KEYS))}")
    tokens = _tokens(row)
    form = _text(row, "form") or None
    if form and "formalism" not in row:
        raise DataError("a row with `form` names its `formalism`, such as cogs or sparql")
    if "graph" in row:
        graph = Graph.from_dict(row["graph"])
    elif form:
        graph = formalism(row["formalism"]).read(form, tokens)
    else:
        raise DataError("a row has a `graph`, or a `form` with its `formalism`")
    if row.get("alignment") is not None:
        if not isinstance(row["alignment"], list):
            raise DataError("`alignment` is a list: the slot of every node")
        graph = graph.with_slots(row["alignment"])
    if not graph.nodes:
        raise DataError("the graph has no nodes")
    return Example(tokens, graph, form, _text(row, "category"))


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
    return tokens


def _text(row: Any, key: str) -> str:
    value = row.get(key, "") if isinstance(row, dict) else ""
    if not isinstance(value, str):
        raise DataError(f"`{key}` is {value!r}; it should be a string")
    return value


def _formalism_of(path: Path) -> str | None:
    """The formalism that every row of a file is written in, None where they are graphs alone."""
    named = {json.loads(line).get("formalism") for line in read_text(path).splitlines() if line.strip()}
    if len(named) > 1:
        raise DataError(f"{path} mixes rows of several formalisms: {', '.join(sorted(map(str, named)))}")
    return named.pop() if named else None
