"""Settings for one's own data, chosen from the data's size and the device, each with its reason.

What is chosen are keys of the configuration like any other: they end up in the run's config.toml, to be edited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagr.config import Config, override, presets
from lagr.copying import copied_labels
from lagr.datasets import Example, Source

BATCH = 64
PASSES = 150  # over the training data
FEWEST_STEPS, MOST_STEPS = 3_000, {"cpu": 12_000, "cuda": 60_000}
MANY_ROWS = 20_000  # from here on a larger model has enough to learn from
START = {"align.start": "association", "align.hold": 200}  # what weak supervision needs to find good alignments
SWAPS = 2  # a second one is seldom needed, and costs little
SHOWN = 3  # labels


@dataclass(frozen=True)
class Choice:
    """Settings that go together, and why they are as they are."""

    settings: dict[str, Any]  # "section.key" → value
    why: str

    def __str__(self) -> str:
        return f"{', '.join(f'{key} = {_shown(value)}' for key, value in self.settings.items())}: {self.why}"


def is_data(name: str) -> bool:
    """Whether `lagr train NAME` names data, and not a preset or a file of settings."""
    return Path(name).suffix == ".jsonl" or (Path(name).is_dir() and name not in presets())


def configure(source: Source, choices: Sequence[Choice]) -> Config:
    """The configuration with these choices, for this data."""
    chosen = {"data.name": source.name, **START}
    for choice in choices:
        chosen |= choice.settings
    return override(Config(), [(*key.split(".", 1), value) for key, value in chosen.items()])  # type: ignore[misc]


def without(choices: Sequence[Choice], given: Collection[str]) -> list[Choice]:
    """The choices that are left where some keys are given."""
    left = [Choice({k: v for k, v in choice.settings.items() if k not in given}, choice.why) for choice in choices]
    return [choice for choice in left if choice.settings]


def choose(source: Source, device: str, given: Mapping[str, Any] | None = None) -> list[Choice]:
    """What to train on this data with, on a cpu or on cuda. Nothing but the training part decides.

    given: settings that are made already, and that others follow from.
    """
    given = given or {}
    steps = override(Config(), [("train", "steps", given["train.steps"])]).train.steps if "train.steps" in given else 0
    examples = source.read("train")
    aligned = sum(example.graph.slots is not None for example in examples)
    strong = aligned == len(examples)
    layers = _graph_layers(examples, strong)
    supervision = _supervision(aligned, len(examples), given)
    return [
        layers,
        supervision,
        *(_swaps(examples) if supervision.settings["align.supervision"] == "weak" else []),
        _copying(examples, layers.settings["model.graph_layers"]),
        _size(len(examples), device),
        _steps(len(examples), device, steps),
        Choice({"train.unknown": 1.0}, "rare words are sometimes read as unknown ones, so that new words do less harm"),
    ]


def _graph_layers(examples: Sequence[Example], strong: bool) -> Choice:
    def needed(example: Example) -> int:
        """Slots for every token, as few as hold the nodes."""
        slots = max(example.graph.slots or (0,)) + 1 if strong else len(example.graph.nodes)
        return -(-slots // len(example.tokens))

    fullest = max(examples, key=lambda e: (needed(e), len(e.graph.nodes) / len(e.tokens)))
    layers = max(1, needed(fullest))
    sentence, nodes = " ".join(fullest.tokens), len(fullest.graph.nodes)
    ends = sentence if len(sentence) <= 50 else sentence[:49] + "…"
    if strong:
        highest = max(fullest.graph.slots or (0,))
        why = f"the alignments name slots up to {highest}, for {len(fullest.tokens)} tokens, in “{ends}”"
    else:
        mean = sum(len(e.graph.nodes) for e in examples) / sum(len(e.tokens) for e in examples)
        why = f"{mean:.2f} nodes a token; at most {nodes} nodes for {len(fullest.tokens)} tokens, in “{ends}”"
        if layers > 1:
            fit = sum(needed(e) < layers for e in examples)
            why += f"; {100 * fit / len(examples):.0f} % of the sentences need fewer layers"
    return Choice({"model.graph_layers": layers}, why)


def _supervision(aligned: int, rows: int, given: Mapping[str, Any]) -> Choice:
    if given.get("align.given"):
        return Choice({"align.supervision": "strong"}, "the alignments are given")
    if aligned == rows or given.get("align.supervision") == "strong":
        return Choice({"align.supervision": "strong"}, "every training sentence has its alignment")
    some = f"only {aligned:,} of {rows:,} training sentences have an alignment, so none is used and"
    reason = some if aligned else "the training sentences have no alignments, so"
    return Choice(
        {"align.supervision": "weak", **START},
        f"{reason} they are inferred, starting from which words and labels occur together",
    )


def _swaps(examples: Sequence[Example]) -> list[Choice]:
    alike = sum(len(set(example.graph.nodes)) < len(example.graph.nodes) for example in examples)
    if not alike:
        return []
    number = f"{alike:,} training sentences have" if alike > 1 else "a training sentence has"
    why = f"{number} nodes of equal label: these may change places, where their edges make that likelier"
    return [Choice({"align.swaps": SWAPS}, why)]


def _copying(examples: Sequence[Example], graph_layers: int) -> Choice:
    labels = sorted(copied_labels(examples, graph_layers))
    if not labels:
        return Choice({"data.copy": False}, "no node label is always a word of its sentence")
    some = ", ".join(labels[:SHOWN]) + (", …" if len(labels) > SHOWN else "")
    number = f"{len(labels):,} labels are" if len(labels) > 1 else "a label is"
    why = f"{number} always a word of the sentence ({some}): they are copied from it, and new ones can be too"
    return Choice({"data.copy": True}, why)


def _size(rows: int, device: str) -> Choice:
    width, depth = (64, 2) if device == "cpu" else (256, 4) if rows >= MANY_ROWS else (128, 3)
    settings = {
        "model.encoders": "shared",
        "model.width": width,
        "model.encoder_layers": depth,
        "model.heads": 4,
        "model.positions": "rotary",
        "model.reach": 0.01,  # sentences longer than those of training are what rotary positions alone don't manage
        "train.batch": BATCH,
        "train.learning_rate": 2e-3 if width == 64 else 5e-4,
        "train.warmup": 100,
    }
    if device == "cpu":
        settings["train.threads"] = (
            1  # two are no faster on so small a model, and wait for each other on a busy machine
        )
    return Choice(settings, f"a model for {rows:,} training sentences on a {'CPU' if device == 'cpu' else 'GPU'}")


def _steps(rows: int, device: str, given: int = 0) -> Choice:
    wanted = -(-PASSES * rows // BATCH // 500) * 500
    steps = given or min(max(wanted, FEWEST_STEPS), MOST_STEPS[device])
    why = f"{steps * BATCH / rows:,.0f} passes over the training sentences, at {BATCH} a step"
    return Choice({"train.steps": steps, "train.evaluate_every": max(min(500, steps), steps // 5)}, why)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
