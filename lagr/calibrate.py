"""Fits the numbers that make probabilities trustworthy (confidence.py), on sentences that training has not seen.

Temperatures are those of highest likelihood, with a prior that holds them near 1: of the right node labels of all slots, and of the right edge labels of
all pairs of slots that hold nodes. Where training was told no alignment, gold graphs are placed as the model finds
likeliest. The whole graph has a slope and an offset of its own, because the product of its parts' probabilities takes
their errors for independent, and they come together. These are fitted in the same way, to which answers were right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lagr import confidence
from lagr.align import infer_alignment, place
from lagr.batch import pack
from lagr.confidence import PLAIN, Calibration, Reliability
from lagr.datasets import Example
from lagr.errors import DataError
from lagr.evaluate import is_right
from lagr.graph import Graph
from lagr.model import NULL, GraphDistribution, GraphLabels
from lagr.parser import AnyParser, Parse, Parser
from lagr.vocab import Vocabulary

MOST = 2000  # sentences; more change little, and parsing them takes time
FEWEST = 20  # below, chance would decide
TEMPERATURES = np.geomspace(0.25, 8, 25)  # what is tried; between these a parabola finds the best
# Of log T, log slope and offset, around 0: the deviation of a normal prior. Where nearly all of dev is right, likelihood
# alone would make everything certain, for want of a counterexample.
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
    parser.calibration = PLAIN
    before = check(parser, examples)
    parser.calibration = fit(parser, examples, before.whole)
    after = check(parser, examples)
    return {
        "split": split,
        "n": len(examples),
        **asdict(parser.calibration),
        "before": before.to_dict(),
        "after": after.to_dict(),
    }


def sample(examples: Sequence[Example]) -> Sequence[Example]:
    """At most MOST of them, the same every time."""
    if len(examples) <= MOST:
        return examples
    chosen = np.random.default_rng(0).choice(len(examples), MOST, replace=False)
    return [examples[i] for i in sorted(chosen)]


def fit(parser: AnyParser, examples: Sequence[Example], whole: Reliability) -> Calibration:
    """The calibration of highest likelihood. whole: the answers' probabilities without any, and which are right."""
    slope, offset = fit_whole(whole)
    if not isinstance(parser, Parser):
        return Calibration(slope=slope, offset=offset)
    losses = np.zeros((2, len(TEMPERATURES)))

    def add(dist: GraphDistribution, gold: GraphLabels) -> None:
        held = (dist.node_log_probs.argmax(-1) != NULL) & dist.slots
        pairs = held[:, :, None] & held[:, None, :]
        losses[0] += loss_by_temperature(dist.node_log_probs[dist.slots], gold.nodes[dist.slots])
        losses[1] += loss_by_temperature(dist.edge_log_probs[pairs], gold.edges[pairs])

    _with_gold(parser, examples, add)
    losses += prior(np.log(TEMPERATURES))
    return Calibration(lowest(losses[0]), lowest(losses[1]), slope, offset)


def check(parser: AnyParser, examples: Sequence[Example]) -> Check:
    """The probabilities that the parser gives, and whether what it gives them to is right."""
    parses = parser.parse_tokens([example.tokens for example in examples])
    whole = [(parse.probability, is_right(parse, example)) for parse, example in zip(parses, examples, strict=True)]
    nodes: list[tuple[float, bool]] = []
    edges: list[tuple[float, bool]] = []
    if isinstance(parser, Parser):
        for parse, gold in zip(parses, place_gold(parser, examples), strict=True):
            if gold is not None:
                _compare(parse, gold, nodes, edges)
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


def place_gold(parser: Parser, examples: Sequence[Example]) -> list[Graph | None]:
    """The gold graphs in slots: the given ones under strong supervision, else those that the model finds likeliest.

    None where a label is unknown to the model or the graph doesn't fit.
    """
    placed: list[Graph | None] = [None] * len(examples)

    def add(rows: list[int], alignment: Tensor) -> None:
        for row, slots in zip(rows, alignment.tolist(), strict=True):
            graph = examples[row].graph
            placed[row] = graph.with_slots(slots[: len(graph.nodes)])

    _aligned(parser, examples, lambda rows, dist, target, alignment: add(rows, alignment))
    return placed


def _with_gold(
    parser: Parser, examples: Sequence[Example], use: Callable[[GraphDistribution, GraphLabels], None]
) -> None:
    def place_and_use(rows: list[int], dist: GraphDistribution, target: Any, alignment: Tensor) -> None:
        use(dist, place(target, alignment, dist.slots.shape[1]))

    _aligned(parser, examples, place_and_use)


def _aligned(
    parser: Parser, examples: Sequence[Example], use: Callable[[list[int], GraphDistribution, Any, Tensor], None]
) -> None:
    """Tells `use` of every batch: its examples, what the model says of them, their graphs and where these are."""
    settings, layers = parser.config.align, parser.model.graph_layers
    usable = [row for row, example in enumerate(examples) if _is_known(example, parser.vocab, layers)]
    known = settings.supervision == "strong" and all(examples[row].graph.slots is not None for row in usable)

    def reading(rows: list[int], dist: GraphDistribution) -> list[None]:
        batch = pack([examples[usable[row]] for row in rows], parser.vocab, layers, parser.device).batch
        alignment = batch.alignment
        if not known:
            alignment = infer_alignment(dist, batch.target, settings.candidates, settings.noise)
        use([usable[row] for row in rows], dist, batch.target, alignment)
        return [None] * len(rows)

    parser.read([examples[row].tokens for row in usable], reading)


def _is_known(example: Example, vocab: Vocabulary, graph_layers: int) -> bool:
    graph = example.graph
    fits = len(graph.nodes) <= len(example.tokens) * graph_layers
    labels = all(label in vocab.node_numbers for label in graph.nodes)
    return fits and labels and all(edge.label in vocab.edge_numbers for edge in graph.edges)


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


def fit_whole(whole: Reliability) -> tuple[float, float]:
    """Slope and offset that make the answers' rightness likeliest, with the prior."""
    from scipy.optimize import minimize

    scores = confidence.logit(whole.probabilities)

    def loss(at: np.ndarray) -> float:
        given = np.exp(at[0]) * scores + at[1]
        return float((np.logaddexp(0, given) - whole.right * given).sum() + prior(at).sum())

    found = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-7, "maxiter": 2000})
    return float(np.exp(found.x[0])), float(found.x[1])


def prior(departure: np.ndarray) -> np.ndarray:
    """−log of the prior of a number, up to a constant: what a departure from none costs."""
    return departure**2 / (2 * PRIOR**2)
