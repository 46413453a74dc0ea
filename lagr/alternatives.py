"""What else could have been there: the likeliest labels of every slot and of every edge, with their probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from lagr.confidence import PLAIN, Calibration
from lagr.copying import tokens_at
from lagr.model import NULL, GraphDistribution
from lagr.vocab import Vocabulary

if TYPE_CHECKING:
    from lagr.decode import Decoded


class Choice(NamedTuple):
    label: str | None  # None: nothing is there
    probability: float


@dataclass(frozen=True)
class Alternatives:
    """The likeliest labels, best first: of every slot, empty ones too, and of every edge as the graph lists them."""

    slots: tuple[tuple[Choice, ...], ...]
    edges: tuple[tuple[Choice, ...], ...]
    edges_together: bool = False  # edges were chosen to fit valencies, not each by itself

    def to_dict(self, most: int | None = None) -> dict[str, Any]:
        """Plain values for JSON; `most`: so many of each."""
        plain: dict[str, Any] = {
            kind: [[choice._asdict() for choice in choices[:most]] for choices in found]
            for kind, found in (("slots", self.slots), ("edges", self.edges))
        }
        return plain | {"edges_together": self.edges_together}


def with_alternatives(
    found: Sequence[Decoded],
    dist: GraphDistribution,
    most: int,
    vocab: Vocabulary,
    calibration: Calibration = PLAIN,
    sentences: Sequence[Sequence[str]] | None = None,
) -> list[Decoded]:
    """The graphs that were decoded from the distribution, with the `most` likeliest labels of each slot and edge.

    Where the edges of a sentence were chosen together, what was chosen has the probability that decoding gave it; the
    other labels of the pair share the rest in the proportions that the pair alone gives them.
    """
    at_slot = dist.slots.nonzero(as_tuple=True)
    pairs = [
        (sentence, slots[edge.source], slots[edge.target])
        for sentence, graph in enumerate(one.graph for one in found)
        for slots in [graph.slots or ()]
        for edge in graph.edges
    ]
    at_edge = tuple(torch.tensor(pairs, device=dist.slots.device, dtype=torch.long).view(-1, 3).T)

    def likeliest(probabilities: Tensor, names: Iterable[Callable[[int], str]]) -> Iterator[tuple[Choice, ...]]:
        best = probabilities.topk(min(most, probabilities.shape[-1]))
        for labels, its, name in zip(best.indices.tolist(), best.values.tolist(), names, strict=False):
            yield tuple(map(Choice, (None if label == NULL else name(label) for label in labels), its))

    tokens = tokens_at(zip(*(at.tolist() for at in at_slot), strict=True), sentences, dist.slots.shape[1])
    of_slots = likeliest(
        calibration.nodes(dist.node_log_probs[at_slot]), (partial(vocab.node_label, token=token) for token in tokens)
    )
    at_pairs = calibration.edges(dist.edge_log_probs[at_edge])
    if any(one.edges_together for one in found):
        at_pairs = _with_chosen(at_pairs, found, vocab)
    of_edges = likeliest(at_pairs, repeat(vocab.edge_label))
    counts = zip(dist.slots.sum(1).tolist(), (len(one.graph.edges) for one in found), strict=True)
    return [
        replace(
            one,
            alternatives=Alternatives(
                tuple(islice(of_slots, slots)), tuple(islice(of_edges, edges)), one.edges_together
            ),
        )
        for one, (slots, edges) in zip(found, counts, strict=True)
    ]


def _with_chosen(at_pairs: Tensor, found: Sequence[Decoded], vocab: Vocabulary) -> Tensor:
    """Probabilities of edges, with that of the label that was chosen as decoding gave it, where edges were chosen
    together.   (edges, labels) → (edges, labels)
    """

    def column(values: Iterable[Any], dtype: torch.dtype) -> Tensor:
        return torch.tensor(list(values), dtype=dtype, device=at_pairs.device)[:, None]

    chosen = column((vocab.edge_numbers[edge.label] for one in found for edge in one.graph.edges), torch.long)
    theirs = column((p for one in found for p in one.edge_probabilities), at_pairs.dtype)
    together = column((one.edges_together for one in found for _ in one.graph.edges), torch.bool)
    others = at_pairs.scatter(1, chosen, 0.0)
    others = others / others.sum(1, keepdim=True).clamp_min(torch.finfo(others.dtype).tiny)
    return torch.where(together, (others * (1 - theirs)).scatter(1, chosen, theirs), at_pairs)
