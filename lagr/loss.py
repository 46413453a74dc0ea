"""The training objective, strong and weak. Read this fourth.

    loss = − (1/B) Σ_b log p(z, ξ | x_b)

where (z, ξ) is the graph placed in the slots: by its known alignment (strong), or by the one inferred with the model
as it is now (weak). The two differ in the alignment alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lagr.align import Target, infer_alignment, place
from lagr.model import GraphDistribution


def strong_loss(dist: GraphDistribution, target: Target, alignment: Tensor) -> Tensor:
    """Mean over the sentences of −log p of the graph placed by its alignment. Paper: section 2.1."""
    return -dist.log_prob(place(target, alignment, dist.slots.shape[1])).mean()


def weak_loss(
    dist: GraphDistribution,
    target: Target,
    candidates: int,
    noise: float,
    generator: torch.Generator | None = None,
    previous: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The strong loss under the inferred alignment, and that alignment (B, J). Paper: section 2.2, algorithm 1."""
    alignment = infer_alignment(dist, target, candidates, noise, generator, previous)
    return strong_loss(dist, target, alignment), alignment
