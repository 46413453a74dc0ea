"""`lagr train` with another loss, or with gradients that are clipped otherwise, to compare with K = 1 as it is.

python results/cfq/otherwise.py means|nodes=W|scaled=S train PRESET …        then as in `lagr train`; one seed, on a CPU

means: the mean over the slots of a batch and the mean over its pairs, added up, as the published code has it for strong
supervision. nodes=W: what slots hold counts W times as much as what pairs hold. scaled=S: the gradient is S times as
large when it is clipped, and that is taken back afterwards, as in Lightning before 1.4.9 with half precision (its issue
9330): gradients then have a norm of at most 1 / S, beside which the 1e-8 in Adam is not small any more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lagr import cli, engine
from lagr.align import Target, place
from lagr.model import GraphDistribution
from lagr.objectives import GraphObjective


def losses_of(means: bool, node_weight: float) -> Any:
    def losses(parts: Sequence[Tensor], target: Target, alignment: Tensor, models: int) -> tuple[Tensor, Tensor]:
        assert models == 1
        dist = GraphDistribution(*parts)
        labels = place(target, alignment, dist.slots.shape[1])
        nodes = dist.node_log_probs.gather(-1, labels.nodes[..., None]).squeeze(-1) * dist.slots
        edges = dist.edge_log_probs.gather(-1, labels.edges[..., None]).squeeze(-1) * dist.pairs
        if means:
            loss = -(nodes.sum() / dist.slots.sum() + edges.sum() / dist.pairs.sum())
        else:
            loss = -(node_weight * nodes.sum() + edges.sum()) / len(nodes)
        return loss, loss[None]

    return losses


def clipped_while_scaled(by: float) -> Any:
    update = engine.Engine._update

    def scaled(self: engine.Engine, gradients: Sequence[Tensor], losses: Tensor, rates: Tensor) -> None:
        assert len(rates) == 1
        norm = by * torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
        factor = (self.clip / (norm + 1e-6)).clamp(max=1.0)
        update(self, [gradient * factor for gradient in gradients], losses, rates)

    return scaled


def main(change: str, *arguments: str) -> int:
    name, _, value = change.partition("=")
    if name == "scaled":
        engine.Engine._update = clipped_while_scaled(float(value))  # type: ignore[method-assign]
    elif name == "nodes" or change == "means":
        losses = losses_of(name == "means", float(value or 1))
        GraphObjective._losses = staticmethod(losses)  # type: ignore[method-assign]
    else:
        sys.exit(f"{change} is neither means nor nodes=W nor scaled=S")
    return cli.main(list(arguments))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
