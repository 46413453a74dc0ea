"""The training objective, strong and weak. Read this fourth.

    loss = − log p(z, ξ | x)

where (z, ξ) is the graph placed in the slots: by its known alignment (strong), or by the one inferred with the model
as it is now (weak). The two differ in the alignment alone. Training takes the mean over the sentences of a batch.
"""

from __future__ import annotations

from torch import Tensor

from lagr.align import Target, infer_alignment, place
from lagr.model import GraphDistribution


def strong_loss(dist: GraphDistribution, target: Target, alignment: Tensor) -> Tensor:
    """−log p of every sentence's graph placed by its alignment.   (B,)   Paper: section 2.1."""
    return -dist.log_prob(place(target, alignment, dist.slots.shape[1]))


def weak_loss(
    dist: GraphDistribution,
    target: Target,
    candidates: int,
    noise: float,
    keys: Tensor | None = None,
    previous: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The strong loss (B,) under the inferred alignment, and that alignment (B, J). Paper: section 2.2, algorithm 1."""
    alignment = infer_alignment(dist, target, candidates, noise, keys, previous)
    return strong_loss(dist, target, alignment), alignment
