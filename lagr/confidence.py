"""How sure an answer is: what turns a model's probabilities into such that can be taken at their word.

Of all nodes that are given 90 %, nine in ten should be right, and so for edges and whole graphs. A trained model is
often surer than that. Four numbers, fitted on sentences that training has not seen (calibrate.py), correct it:

    node, edge    p' ∝ p^(1/T), a temperature for each
    whole         logit p' = slope · logit p + offset, and no more than any node or edge of it

None of them changes an answer, or the order of two answers of one sentence. Without them p' is p.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from lagr.errors import RunError

FILE = "calibration.json"  # in a run folder
BINS = 10
SUREST = 1e-7  # a whole graph's probability is this far from 0 and 1 at least: float32 can't tell more apart


@dataclass(frozen=True)
class Calibration:
    node_temperature: float = 1.0
    edge_temperature: float = 1.0
    slope: float = 1.0
    offset: float = 0.0

    def nodes(self, log_probs: Tensor) -> Tensor:
        """The probabilities of node labels, from what the model says.   (…, V)"""
        return (log_probs / self.node_temperature).softmax(-1)

    def edges(self, log_probs: Tensor) -> Tensor:
        """The probabilities of edge labels, from what the model says.   (…, E)"""
        return (log_probs / self.edge_temperature).softmax(-1)

    def whole(self, probability: float, parts: Iterable[float] = ()) -> float:
        """The probability that a graph is right, from that of its labels.

        parts: the probabilities of its nodes and edges, as calibrated. A graph is no likelier than any part of it.
        """
        if (self.slope, self.offset) != (1.0, 0.0):
            score = self.slope * float(logit(probability)) + self.offset
            probability = 1 / (1 + math.exp(-score)) if score > 0 else math.exp(score) / (1 + math.exp(score))
        return min((probability, *parts))


PLAIN = Calibration()  # of a run that has none


def logit(probability: Any) -> Any:
    p = np.clip(np.asarray(probability, np.float64), SUREST, 1 - SUREST)
    return np.log(p) - np.log1p(-p)


def read(run: Path) -> Calibration:
    """The calibration of a run; of one that has none, probabilities stay as they are."""
    file = run / FILE
    if not file.is_file():
        return PLAIN
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        found = Calibration(*(float(raw[key]) for key in ("node_temperature", "edge_temperature", "slope", "offset")))
        if min(found.node_temperature, found.edge_temperature, found.slope) > 0 and math.isfinite(found.offset):
            return found
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise RunError(f"{file} is damaged; write it again with `lagr calibrate {run}`, or remove it")


@dataclass(frozen=True)
class Reliability:
    """Probabilities that were given, and whether what they were given to was right."""

    probabilities: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, events: Sequence[tuple[float, bool]]) -> Reliability:
        given = np.array([p for p, _ in events], np.float64)
        return cls(given, np.array([right for _, right in events], bool))

    def bins(self) -> list[tuple[float, int, int]]:
        """Of every tenth of the range that has any: the mean probability, how many, how many of them right."""
        number = np.minimum((self.probabilities * BINS).astype(int), BINS - 1)
        found = [number == b for b in range(BINS)]
        return [
            (float(self.probabilities[here].mean()), int(here.sum()), int(self.right[here].sum()))
            for here in found
            if here.any()
        ]

    def to_dict(self) -> dict[str, Any]:
        """n, accuracy and mean probability (confidence), and how far apart they are.

        ece: |probability − accuracy|, averaged over ten bins. brier: the mean of (probability − right)².
        """
        n = len(self.right)
        if not n:
            return {"n": 0, "accuracy": None, "confidence": None, "ece": None, "brier": None}
        apart = sum(abs(mean * count - right) for mean, count, right in self.bins())
        return {
            "n": n,
            "accuracy": round(float(self.right.mean()), 6),
            "confidence": round(float(self.probabilities.mean()), 6),
            "ece": round(apart / n, 6),
            "brier": round(float(((self.probabilities - self.right) ** 2).mean()), 6),
        }
