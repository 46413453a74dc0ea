"""Fits the numbers that make probabilities trustworthy (confidence.py), on sentences that training has not seen.

Temperatures are those of highest likelihood, with a prior that holds them near 1: of the right node labels of all
slots, and of the right edge labels of all pairs of slots that hold nodes. The whole graph has a slope and an offset of
its own, because the product of its parts' probabilities takes their errors for independent, and they come together.
These are fitted in the same way, to which answers were right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lagr.align import place
from lagr.batch import pack
from lagr.confidence import PLAIN, SUREST, Calibration, Reliability, logit
from lagr.datasets import Example, Source
from lagr.errors import DataError
from lagr.evaluate import is_right
from lagr.graph import Graph
from lagr.model import NULL, GraphDistribution
from lagr.parser import AnyParser, Parse, Parser

MOST = 2000  # sentences; more change little, and parsing them takes time
FEWEST = 20  # below, chance would decide
TEMPERATURES = np.geomspace(0.25, 8, 25)  # what is tried; between these a parabola finds the best
# Of log T, log slope and offset, around 0: the deviation of a normal prior. Where nearly all of dev is right,
# likelihood alone would make everything certain, for want of a counterexample.
PRIOR = 0.5


@dataclass(frozen=True)
class Check:
    """How trustworthy probabilities are on some sentences: of nodes, edges and whole graphs."""

    nodes: Reliability
    edges: Reliability
    whole: Reliability

    def to_dict(self) -> dict[str, Any]:
        return {name: part.to_dict() for name, part in vars(self).items() if len(part.right) or name == "whole"}


def calibrate(parser: AnyParser, examples: Sequence[Example], split: str) -> dict[str, Any]:
    """Gives the parser its calibration, and returns what calibration.json holds: the numbers, and what they change."""
    examples = sample(examples)
    if len(examples) < FEWEST:
        raise DataError(f"{split} has {len(examples)} sentences; at least {FEWEST} are needed to calibrate on")
    plain = _parsed(parser, examples, PLAIN)
    gold = place_gold(parser, examples, plain)
    parts = _fit_parts(parser, examples, gold)
    with_parts = _parsed(parser, examples, parts)
    found = _fit_whole(parts, examples, plain, with_parts)
    after = [
        replace(parse, probability=found.whole(before.probability, _parts(parse)))
        for before, parse in zip(plain, with_parts, strict=True)
    ]
    parser.calibration = found
    return {
        "split": split,
        "n": len(examples),
        **asdict(found),
        "before": _check(examples, plain, gold).to_dict(),
        "after": _check(examples, after, gold).to_dict(),
    }


Checks = dict[str, tuple[Check, Check]]  # split → before and after calibration


def check_splits(parser: AnyParser, source: Source) -> Checks:
    """How trustworthy the parser's probabilities are on every split but train, without its calibration and with it."""
    checks = {}
    for split in source.splits:
        if split != "train":
            examples = sample(source.read(split))
            plain, calibrated = (_parsed(parser, examples, which) for which in (PLAIN, parser.calibration))
            gold = place_gold(parser, examples, plain)
            checks[split] = _check(examples, plain, gold), _check(examples, calibrated, gold)
    return checks


def measures(checks: Checks) -> dict[str, Any]:
    return {split: {"before": before.to_dict(), "after": after.to_dict()} for split, (before, after) in checks.items()}


def summary(found: dict[str, Any], checks: Checks) -> str:
    """The numbers that were fitted, and a table of what they change, split by split."""
    temperatures = f"node T {found['node_temperature']:.3f}, edge T {found['edge_temperature']:.3f}"
    whole = f"whole: slope {found['slope']:.3f}, offset {found['offset']:+.3f}"
    lines = [f"fitted on {found['n']:,} sentences of {found['split']}: {temperatures}, {whole}", ""]
    lines.append(f"{'':14}{'n':>7}{'right':>9}{'mean probability':>20}{'ECE':>18}{'Brier':>18}")
    for split, both in measures(checks).items():
        for part, old in both["before"].items():
            new = both["after"][part]
            changes = (f"{old[key]:.4f} → {new[key]:.4f}" for key in ("confidence", "ece", "brier"))
            of_all = f"{split:<7}{part:<7}{old['n']:>7,}{100 * old['accuracy']:>8.2f}%"
            lines.append(of_all + "".join(f"{change:>{w}}" for change, w in zip(changes, (20, 18, 18), strict=True)))
    return "\n".join(lines)


def sample(examples: Sequence[Example]) -> Sequence[Example]:
    """At most MOST of them, the same every time."""
    if len(examples) <= MOST:
        return examples
    chosen = np.random.default_rng(0).choice(len(examples), MOST, replace=False)
    return [examples[i] for i in sorted(chosen)]


def _parsed(parser: AnyParser, examples: Sequence[Example], calibration: Calibration) -> list[Parse]:
    """What the parser says with some other calibration than its own."""
    own, parser.calibration = parser.calibration, calibration
    try:
        return parser.parse_tokens([example.tokens for example in examples])
    finally:
        parser.calibration = own


def _parts(parse: Parse) -> list[float]:
    return [node.probability for node in parse.nodes] + [edge.probability for edge in parse.edges]


def _fit_parts(parser: AnyParser, examples: Sequence[Example], gold: Sequence[Graph | None]) -> Calibration:
    """The temperatures of nodes and edges."""
    if not isinstance(parser, Parser):
        return PLAIN
    losses = np.zeros((2, len(TEMPERATURES)))
    known = [replace(example, graph=graph) for example, graph in zip(examples, gold, strict=True) if graph is not None]
    vocab = replace(parser.vocab, twins=0)  # what is read has none

    def add(rows: list[int], dist: GraphDistribution) -> list[None]:
        batch = pack([known[row] for row in rows], vocab, parser.model.graph_layers, parser.device).batch
        labels = place(batch.target, batch.alignment, dist.slots.shape[1])
        held = (dist.node_log_probs.argmax(-1) != NULL) & dist.slots
        pairs = held[:, :, None] & held[:, None, :]
        losses[0] += loss_by_temperature(dist.node_log_probs[dist.slots], labels.nodes[dist.slots])
        losses[1] += loss_by_temperature(dist.edge_log_probs[pairs], labels.edges[pairs])
        return [None] * len(rows)

    parser.read([example.tokens for example in known], add)
    losses += prior(np.log(TEMPERATURES))
    return Calibration(lowest(losses[0]), lowest(losses[1]))


def _fit_whole(
    parts: Calibration, examples: Sequence[Example], plain: Sequence[Parse], with_parts: Sequence[Parse]
) -> Calibration:
    """The calibration with a slope and an offset too."""
    right = [is_right(parse, example) for parse, example in zip(plain, examples, strict=True)]
    most = [min(_parts(parse), default=1.0) for parse in with_parts]
    slope, offset = fit_whole(*map(np.array, ([parse.probability for parse in plain], right, most)))
    return replace(parts, slope=slope, offset=offset)


def _check(examples: Sequence[Example], parses: Sequence[Parse], gold: Sequence[Graph | None]) -> Check:
    """The probabilities of parses, and whether what they are given to is right. gold: graphs in slots, where known."""
    whole = [(parse.probability, is_right(parse, example)) for parse, example in zip(parses, examples, strict=True)]
    nodes: list[tuple[float, bool]] = []
    edges: list[tuple[float, bool]] = []
    for parse, graph in zip(parses, gold, strict=True):
        if graph is not None:
            _compare(parse, graph, nodes, edges)
    return Check(*map(Reliability.of, (nodes, edges, whole)))


def _compare(parse: Parse, gold: Graph, nodes: list[tuple[float, bool]], edges: list[tuple[float, bool]]) -> None:
    """Adds every node and edge of a parse: how probable it is, and whether the gold graph has it in that place."""
    assert gold.slots is not None
    label_in = dict(zip(gold.slots, gold.nodes, strict=True))
    label_between = {(gold.slots[edge.source], gold.slots[edge.target]): edge.label for edge in gold.edges}
    nodes += [(node.probability, label_in.get(node.slot) == node.label) for node in parse.nodes]
    for edge in parse.edges:
        ends = parse.nodes[edge.source].slot, parse.nodes[edge.target].slot
        edges.append((edge.probability, label_between.get(ends) == edge.label))


def place_gold(parser: AnyParser, examples: Sequence[Example], parses: Sequence[Parse]) -> list[Graph | None]:
    """The gold graphs in slots: where the parse is right, it is in the right place; else where training had them.

    Under weak supervision that is where the model finds likeliest. None where a label is unknown to the model, and
    where the model has no slots.
    """
    if not isinstance(parser, Parser):
        return [None] * len(examples)
    strong = parser.config.align.supervision == "strong"
    placed = [
        parse.graph if is_right(parse, example) else None for parse, example in zip(parses, examples, strict=True)
    ]
    wrong = [row for row, graph in enumerate(placed) if graph is None]
    wrong = [row for row in wrong if parser.can_align(examples[row])]
    given = [row for row in wrong if strong and examples[row].graph.slots is not None]
    inferred = [row for row in wrong if row not in set(given)]
    for row in given:
        placed[row] = examples[row].graph
    for row, example in zip(inferred, parser.align([examples[row] for row in inferred]), strict=True):
        placed[row] = example.graph
    return placed


def loss_by_temperature(log_probs: Tensor, labels: Tensor) -> np.ndarray:
    """−log p' of the labels, summed, at every one of TEMPERATURES.   (n, labels), (n,) → (TEMPERATURES,)"""
    # What is impossible stays so at any temperature; a right label that is impossible says nothing about it.
    of_label = log_probs.gather(1, labels[:, None])[:, 0]
    log_probs, of_label = log_probs[of_label > -torch.inf], of_label[of_label > -torch.inf]
    found = [((log_probs / T).logsumexp(1) - of_label / T).double().sum().item() for T in TEMPERATURES.tolist()]
    return np.array(found)


def lowest(losses: np.ndarray) -> float:
    """The temperature of the lowest loss: of the parabola through the best that was tried and its neighbours."""
    at = int(losses.argmin())
    if at in (0, len(losses) - 1):
        return float(TEMPERATURES[at])
    before, here, after = losses[at - 1 : at + 2]
    curved = before - 2 * here + after
    shift = 0.5 * (before - after) / curved if curved > 0 else 0.0
    step = np.log(TEMPERATURES[1] / TEMPERATURES[0])
    return float(np.exp(np.log(TEMPERATURES[at]) + shift * step))


def fit_whole(probabilities: np.ndarray, right: np.ndarray, most: np.ndarray) -> tuple[float, float]:
    """Slope and offset that make the answers' rightness likeliest, with the prior.

    most: what each answer is given at most, because no part of it is likelier.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    scores = logit(probabilities)
    most = np.minimum(most, 1 - SUREST)

    def loss(at: np.ndarray) -> float:
        given = np.minimum(expit(np.exp(at[0]) * scores + at[1]), most).clip(SUREST, 1 - SUREST)
        return float(-np.where(right, np.log(given), np.log1p(-given)).sum() + prior(at).sum())

    found = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-7, "maxiter": 2000})
    return float(np.exp(found.x[0])), float(found.x[1])


def prior(departure: np.ndarray) -> np.ndarray:
    """−log of the prior of a number, up to a constant: what a departure from none costs."""
    return departure**2 / (2 * PRIOR**2)
