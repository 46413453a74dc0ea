"""Where weak supervision places nodes that starts from the model alone: on COGS, whose alignments are known.

python results/cogs/weak_starts.py DATA/.. [--calm 1] [--model.residual 0.35 --align.noise 0 …]

Prints a line of JSON every 500 steps.

2,000 steps of a small model (width 128, batch 64, 5e-4) with the settings of `cogs-weak-transformer-sep`, but for a
dropout of 0.1 and layers that begin at their full size. --calm 1: alignments are inferred from a forward pass without
dropout, and not from the one that is trained.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lagr import config
from lagr.datasets import open_source
from lagr.objectives import GraphObjective
from lagr.supervision import training_examples
from lagr.train import Trainer
from lagr.vocab import Vocabulary

SMALL = [
    ("model", "width", 128), ("model", "dropout", 0.1), ("model", "residual", 1.0), ("train", "steps", 2000),
    ("train", "batch", 64), ("train", "learning_rate", 5e-4), ("train", "device", "cpu"),
]  # fmt: skip


def infer_without_dropout() -> None:
    losses, infer_alignments = GraphObjective.losses, GraphObjective._infer

    def seen(self: GraphObjective, model: nn.Module, bucket: int, rows: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
        batch = self.data.take(rows.flatten(), self.data.buckets[bucket])
        with torch.no_grad():
            dist = model(batch.tokens.view(*rows.shape, -1), batch.lengths.view(rows.shape))
        self.calm = (dist.node_log_probs, dist.edge_log_probs, dist.slots, None)  # type: ignore[attr-defined]
        return losses(self, model, bucket, rows, *more)

    def infer(self: GraphObjective, parts: Any, *more: Any) -> Tensor:
        return infer_alignments(self, self.calm, *more)  # type: ignore[attr-defined, no-any-return]

    GraphObjective.losses, GraphObjective._infer = seen, infer  # type: ignore[assignment, method-assign]


def main(data: str, changes: list[tuple[str, str, object]]) -> None:
    settings = config.override(config.load("cogs-weak-transformer-sep"), [*SMALL, *changes])
    source = open_source("cogs", data, "", settings.data.size, 0)
    known, examples = source.read("train"), training_examples(settings, source)  # in the same order, nodes shuffled
    places = []
    for example in known:
        of_label: dict[str, set[int]] = {}
        for label, slot in zip(example.graph.nodes, example.graph.slots or (), strict=True):
            of_label.setdefault(label, set()).add(slot)
        places.append(of_label)
    folder = Path(tempfile.mkdtemp())
    vocab = Vocabulary.of(examples)
    trainer = Trainer([settings], source, {"train": examples}, vocab, [folder], folder / "state")
    for step in range(1, settings.train.steps + 1):
        trainer._take_step()
        if step % 500:
            continue
        nodes = right = sentences = all_right = 0
        elsewhere: Counter[str] = Counter()
        for slots, of_label, example in zip(
            trainer.engine.objective.alignments[0].tolist(), places, examples, strict=True
        ):
            if slots[0] < 0:  # not reached yet
                continue
            wrong = [(label, slot) for label, slot in zip(example.graph.nodes, slots) if slot not in of_label[label]]  # noqa: B905
            elsewhere.update(f"{label} on {example.tokens[slot]}" for label, slot in wrong)
            nodes, right = nodes + len(example.graph.nodes), right + len(example.graph.nodes) - len(wrong)
            sentences, all_right = sentences + 1, all_right + (not wrong)
        shares = {"nodes_on_their_word": 100 * right / nodes, "sentences": 100 * all_right / sentences}
        print(json.dumps({"step": step, **shares, "elsewhere": dict(elsewhere.most_common(12))}), flush=True)


if __name__ == "__main__":
    pairs = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    if int(pairs.pop("--calm", 0)):
        infer_without_dropout()
    main(sys.argv[1], [(*key[2:].split("."), json.loads(value)) for key, value in pairs.items()])  # type: ignore[misc]
