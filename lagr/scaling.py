"""`lagr bench scaling`: how a training step's time and memory grow with N, L, K and S, each alone.

Sentences are made up, all of exactly N tokens with N / 2 nodes, so that a setting has one bucket. On a CPU every
setting is measured in a process of its own, whose highest memory is then its own:

    python -m lagr.scaling '{"tokens": 16, "graph_layers": 2, "candidates": 5, "seeds": 1, "batch": 256}'
"""

from __future__ import annotations

import gc
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lagr import config as configs
from lagr import memory
from lagr.bench import step_milliseconds
from lagr.datasets import Example, Source
from lagr.devices import choose_device
from lagr.errors import LagrError
from lagr.graph import Edge, Graph
from lagr.parser import build
from lagr.train import Trainer
from lagr.vocab import Vocabulary

Row = dict[str, Any]
MIB = 2**20
# As many words and labels as CFQ has, about. The same for all settings, whichever of them their sentences have.
WORDS, NODES, EDGES = (tuple(f"{kind}{i}" for i in range(n)) for kind, n in (("w", 100), ("n", 80), ("e", 7)))
VOCABULARY = Vocabulary(WORDS, NODES, EDGES)
EXAMPLES = 512


@dataclass(frozen=True)
class Setting:
    tokens: int = 16
    graph_layers: int = 2
    candidates: int = 5
    seeds: int = 1
    batch: int = 256


@dataclass(frozen=True)
class Plan:
    """The sizes of the model, the setting in the middle, and the values of each axis, all with one batch."""

    width: int
    encoder_layers: int
    heads: int
    base: Setting
    axes: dict[str, tuple[int, ...]]
    long_batch: int  # of the axis of tokens, whose longest sentences would not fit in the batch of the others

    def settings(self) -> list[tuple[str, int, Setting]]:
        """Axis, value and setting of every row, the cheap ones first, so that a time limit costs the dear ones."""
        rows = []
        for axis, values in self.axes.items():
            base = replace(self.base, batch=self.long_batch) if axis == "tokens" else self.base
            rows += [(position, axis, value, replace(base, **{axis: value})) for position, value in enumerate(values)]
        return [(axis, value, setting) for _, axis, value, setting in sorted(rows, key=lambda row: row[0])]


PLANS = {
    "cuda": Plan(
        256, 4, 8, Setting(),
        {"tokens": (8, 16, 32, 64, 128, 256, 512), "graph_layers": (1, 2, 3, 4),
         "candidates": (1, 2, 5, 10, 20), "seeds": (1, 2, 5, 10, 20)}, 64,
    ),
    "cpu": Plan(
        64, 2, 4, Setting(batch=32),
        {"tokens": (8, 16, 32, 64, 128), "graph_layers": (1, 2, 3, 4),
         "candidates": (1, 2, 5, 10, 20), "seeds": (1, 2, 5, 10)}, 8,
    ),
}  # fmt: skip


def scaling(known: Callable[[list[Row]], None], limit: float = 540, processes: int = 0) -> list[Row]:
    """A row for every value of every axis; `known` is told all rows whenever another one is measured.

    limit: seconds after which nothing more is begun. processes: how many compile ahead, side by side, which pays off
    on a GPU: what they compile is on disk when the same setting is timed, alone, later.
    """
    plan, end = PLANS[choose_device("auto")], time.monotonic() + limit
    planned = plan.settings()
    if processes:
        with ThreadPoolExecutor(processes) as pool:
            for _ in pool.map(lambda setting: _elsewhere(setting, end, steps=2), dict.fromkeys(s for *_, s in planned)):
                pass
    measured: dict[Setting, Row] = {}
    rows: list[Row] = []
    for axis, value, setting in planned:
        if setting not in measured:
            measured[setting] = (_here if choose_device("auto") == "cuda" else _elsewhere)(setting, end)
        rows.append({"axis": axis, "value": value, **asdict(setting), **measured[setting]})
        known(rows)
    return rows


def _here(setting: Setting, end: float) -> Row:
    """The measurement in this process: a GPU says what was held since it was asked to begin counting."""
    if end <= time.monotonic():
        return {"problem": "not measured: the time was up"}
    torch._dynamo.reset()
    gc.collect()  # type: ignore[no-untyped-call, unused-ignore]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        return measure(setting)
    except (LagrError, RuntimeError) as error:
        return {"problem": f"not measured: {str(error).splitlines()[0]}"}


def _elsewhere(setting: Setting, end: float, steps: int = 0) -> Row:
    """The measurement in a process of its own, or why there is none."""
    if (left := end - time.monotonic()) <= 0:
        return {"problem": "not measured: the time was up"}
    command = [sys.executable, "-m", "lagr.scaling", json.dumps(asdict(setting)), str(steps)]
    # Processes that compile side by side have a core each; more threads would only be in each other's way.
    environment = os.environ | ({"TORCHINDUCTOR_COMPILE_THREADS": "1"} if steps else {})
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=left, env=environment)
    except subprocess.TimeoutExpired:
        return {"problem": "not measured: the time was up"}
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        return {"problem": f"not measured: {said[-1]}"}
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def measure(setting: Setting, steps: int = 0) -> Row:
    """The time of a step, and the most memory that was held: on a GPU what torch had given out, on a CPU what the
    process grew by since before the data were packed.

    steps: how many to take without measuring them, to compile what they need.
    """
    device = choose_device("auto")
    with TemporaryDirectory() as folder:
        if device == "cpu":  # so that what is loaded at the first step is not counted
            _trainer(PLANS[device], Setting(tokens=8, batch=1), Path(folder))._take_step()
        before = torch.cuda.memory_allocated() if device == "cuda" else resident("VmRSS")
        trainer = _trainer(PLANS[device], setting, Path(folder))
        if steps:
            for _ in range(steps):
                trainer._take_step()
            return {}
        took = step_milliseconds(trainer, 20 if device == "cuda" else 3)
    highest = torch.cuda.max_memory_allocated() if device == "cuda" else resident("VmHWM")
    peak = None if before is None or highest is None else highest - before
    model, (bucket,) = build(trainer.config, VOCABULARY), trainer.schedule.buckets
    needed = memory.training_bytes(trainer.config, model, bucket, EXAMPLES, setting.seeds, bf16=device == "cuda")
    return {
        "step_ms": round(took, 3),
        "peak_mib": None if peak is None else round(peak / MIB, 1),
        "estimate_mib": round(needed / MIB, 1),
    }


def resident(which: str) -> int | None:
    """Bytes of this process that are in memory now (VmRSS) or were at most (VmHWM); None where nothing says so."""
    try:
        found = re.search(rf"^{which}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"), re.M)
    except OSError:
        return None
    return 1024 * int(found[1]) if found else None


def _trainer(plan: Plan, setting: Setting, folder: Path) -> Trainer:
    changes: list[tuple[str, str, Any]] = [
        ("model", "width", plan.width), ("model", "encoder_layers", plan.encoder_layers),
        ("model", "heads", plan.heads), ("model", "encoders", "shared"),
        ("model", "graph_layers", setting.graph_layers),
        ("align", "supervision", "weak"), ("align", "candidates", setting.candidates), ("align", "noise", 10.0),
        ("train", "batch", setting.batch),
    ]  # fmt: skip
    examples = [_sentence(setting.tokens, random.Random(row)) for row in range(EXAMPLES)]
    source = Source("made-up sentences", ("train",), lambda split: examples)
    each = [configs.override(configs.Config(), [*changes, ("train", "seed", s)]) for s in range(setting.seeds)]
    return Trainer(each, source, {"train": examples}, VOCABULARY, [folder] * setting.seeds, folder / "state")


def _sentence(tokens: int, rng: random.Random) -> Example:
    """Random words, and half as many nodes in a chain."""
    nodes = rng.choices(VOCABULARY.node_labels, k=tokens // 2)
    edges = [Edge(i, rng.choice(VOCABULARY.edge_labels), i + 1) for i in range(len(nodes) - 1)]
    return Example(tuple(rng.choices(VOCABULARY.words, k=tokens)), Graph(tuple(nodes), tuple(edges)))


if __name__ == "__main__":
    try:
        print(json.dumps(measure(Setting(**json.loads(sys.argv[1])), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
    except LagrError as error:
        sys.exit(str(error))
