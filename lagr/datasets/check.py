"""Reads everything in a data set, converts it both ways and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from lagr.datasets import Example, Source
from lagr.errors import DataError, LagrError
from lagr.forms import FORMALISMS

SHOWN = 8  # failures and labels


def check(source: Source, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Counts, sizes, label vocabularies and the first failures of all splits.

    A row fails when it can't be read, or its graph can't be written as its form, letter for letter. Rows of which a
    graph keeps only part (COGS' one-word verbs) are counted on their own.
    """
    formalism = FORMALISMS.get(source.formalism or "")
    splits: dict[str, dict[str, Any]] = {}
    nodes, edges, words = Counter[str](), Counter[str](), Counter[str]()
    failures: list[str] = []
    failed = 0
    trained: set[tuple[str, ...]] = set()
    for split in source.splits:
        say(f"reading {source.name.removesuffix(f' {split}')} {split} …")
        rows = list(source.rows(split))
        examples = [row for row in rows if isinstance(row, Example)]
        wrong = [str(row) for row in rows if isinstance(row, DataError)] or ([] if rows else [f"{split} has no rows"])
        failed += len(wrong)
        failures += wrong[: SHOWN - len(failures)]
        sizes = {"tokens": [len(e.tokens) for e in examples], "nodes": [len(e.graph.nodes) for e in examples]}
        counts: dict[str, Any] = {
            "rows": len(rows),
            "aligned": sum(e.graph.slots is not None for e in examples),
            "more_nodes_than_tokens": sum(len(e.graph.nodes) > len(e.tokens) for e in examples),
            "repeated_labels": sum(len(set(e.graph.nodes)) < len(e.graph.nodes) for e in examples),
            "in_train": sum(e.tokens in trained for e in examples),
            "round_trips": 0,
            "partly_kept": sum(e.partly_kept for e in examples),
            "categories": dict(sorted(Counter(e.category for e in examples if e.category).items())),
        }
        for name, values in sizes.items():
            counts |= {
                f"mean_{name}": round(sum(values) / max(1, len(values)), 2),
                f"most_{name}": max(values, default=0),
            }
        for number, example in enumerate(examples, start=1):
            words.update(example.tokens)
            nodes.update(example.graph.nodes)
            edges.update(edge.label for edge in example.graph.edges)
            if formalism is None or example.form is None:
                continue
            try:
                written = formalism.write(example.graph)
                right = written == example.form and formalism.read(written, example.tokens) == example.graph
                problem = "" if right else f"comes back as {written!r}"
            except LagrError as error:
                right, problem = False, str(error)
            counts["round_trips"] += right and not example.partly_kept
            if not right:
                failed += 1
                if len(failures) < SHOWN:
                    failures.append(f"{split} row {number}, “{' '.join(example.tokens)}”: {problem}")
        splits[split] = counts
        if split == "train":
            trained = {e.tokens for e in examples}
    return {
        "name": source.name,
        "formalism": source.formalism,
        "rows": sum(counts["rows"] for counts in splits.values()),
        "splits": splits,
        "words": len(words),
        "node_labels": dict(nodes.most_common()),
        "edge_labels": dict(edges.most_common()),
        "failed": failed,
        "failures": failures,
    }


def refuse_failures(counts: dict[str, Any]) -> None:
    """DataError where `check` found something wrong."""
    if counts["failures"]:
        raise DataError(f"{counts['failed']} of {counts['rows']} rows fail; the first is {counts['failures'][0]}")


def summary(counts: dict[str, Any]) -> str:
    """What `check` found, for people."""
    labels = f"{len(counts['node_labels'])} node labels, {len(counts['edge_labels'])} edge labels (null not counted)"
    lines = [f"{counts['name']}: {counts['rows']:,} rows, {counts['words']:,} words, {labels}"]
    lines.append(f"{'split':<8}{'rows':>9}{'aligned':>9}{'forms back':>12}{'in part':>9}{'tokens':>14}{'nodes':>14}")
    for split, c in counts["splits"].items():
        tokens, nodes = (f"{c[f'mean_{k}']:.1f}, ≤ {c[f'most_{k}']}" for k in ("tokens", "nodes"))
        numbers = (c["rows"], c["aligned"], c["round_trips"], c["partly_kept"])
        row = "".join(f"{number:>{width},}" for number, width in zip(numbers, (9, 9, 12, 9), strict=True))
        lines.append(f"{split:<8}{row}{tokens:>14}{nodes:>14}")
    lines.append("edges: " + ", ".join(f"{label} {n:,}" for label, n in counts["edge_labels"].items()))
    frequent = [f"{label} {n:,}" for label, n in list(counts["node_labels"].items())[:SHOWN]]
    lines.append("nodes: " + ", ".join(frequent) + (" …" if len(counts["node_labels"]) > SHOWN else ""))
    lines += [
        f"{c['in_train']:,} of the {c['rows']:,} sentences of {split} are in train too: their accuracy says less"
        for split, c in counts["splits"].items()
        if c["in_train"]
    ]
    missing = [split for split in ("dev", "test") if split not in counts["splits"]]
    if missing and "all" not in counts["splits"]:
        lines.append(f"no {' and no '.join(missing)}: how good a parser is on new sentences, nothing here can tell")
    if counts["formalism"] is None and counts["node_labels"]:
        lines.append("no forms to convert: the rows are graphs")
    lines.append("no failure" if not counts["failures"] else "first failures:")
    lines += [f"  {failure}" for failure in counts["failures"]]
    return "\n".join(lines)
