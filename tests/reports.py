"""Made-up reports of runs, for tests of what is made from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lagr import runs
from lagr.rows import Row


def fake_report(row: Row, seed: int, exact: float, steps: int | None = None, n: int = 1000) -> dict[str, Any]:
    settings = row.config(
        (("align", "given", "runs" if row.alignments_of else ""), ("train", "seed", seed))
        + ((("train", "steps", steps),) if steps else ())
    )
    example = {
        "sentence": "Ava slept .",
        "category": "a",
        "gold": "sleep . agent ( x _ 1 , Ava )",
        "predicted": "sleep . theme ( x _ 1 , Ava )",
    }
    evaluation = {
        "n": n, "exact": exact, "low": exact - 1, "high": exact + 1, "isomorphic": exact, "blind": exact, "nodes": 99.0,
        "edges": exact, "edges_n": n, "by_category": {"a": {"n": n // 2, "exact": 100.0}, "b": {"n": n // 2, "exact": 2 * exact - 100}},
        "errors": {"wrong_edge_label": {"n": round(n * (100 - exact) / 100), "meaning": "", "examples": [example]}},
    }  # fmt: skip
    return {
        "lagr": "0", "config": settings.to_dict(), "failed": False, "seconds": 60.0, "seeds_at_once": 2,
        "starts": [{"seed": seed, "steps": settings.train.steps, "train_exact": 99.0, "kept": True}],
        "machine": "a machine", "parameters": 1, "evaluation": dict.fromkeys(("train", "test", "gen"), evaluation),
    }  # fmt: skip


def write_reports(folder: Path, row: Row, accuracies: list[float], **more: Any) -> Path:
    for seed, exact in enumerate(accuracies):
        (folder / f"seed-{seed}").mkdir(parents=True)
        (folder / f"seed-{seed}" / runs.REPORT).write_text(json.dumps(fake_report(row, seed, exact, **more)))
    return folder
