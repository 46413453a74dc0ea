"""`lagr train` with another loss, or with gradients that are clipped otherwise: whether that places CFQ's nodes better.

python results/cfq/otherwise.py means|nodes=W|scaled=S train PRESET …        then as in `lagr train`; one seed, on a CPU

means: the mean over the slots of a batch and the mean over its pairs, added up, as the published code has it for strong
supervision. nodes=W: what slots hold counts W times as much as what pairs hold. scaled=S: the gradient is S times as
large when it is clipped, and that is taken back afterwards, as in Lightning 1.4.5 with half precision (its issue 9330,
mended in 1.4.9): every gradient then has a norm of 1 / S, beside which the 1e-8 in Adam is not small any more.
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


def weighted(means: bool, weight: float) -> Any:
    def losses(parts: Sequence[Tensor], target: Target, alignment: Tensor, models: int) -> tuple[Tensor, Tensor]:
        assert models == 1
        dist = GraphDistribution(*parts)
        labels = place(target, alignment, dist.slots.shape[1])
        nodes = dist.node_log_probs.gather(-1, labels.nodes[..., None]).squeeze(-1) * dist.slots
        edges = dist.edge_log_probs.gather(-1, labels.edges[..., None]).squeeze(-1) * dist.pairs
        if means:
            loss = -(nodes.sum() / dist.slots.sum() + edges.sum() / dist.pairs.sum())
        else:
            loss = -(weight * nodes.sum() + edges.sum()) / len(nodes)
        return loss, loss[None]

    return losses


def scaled(by: float) -> Any:
    update = engine.Engine._update

    def clipped(self: engine.Engine, gradients: Sequence[Tensor], losses: Tensor, rates: Tensor) -> None:
        norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
        update(self, [gradient * min(1.0, 1.0 / (by * float(norm))) for gradient in gradients], losses, rates)

    return clipped


def main(change: str, *arguments: str) -> int:
    name, _, value = change.partition("=")
    if name == "scaled":
        engine.Engine._update = scaled(float(value))  # type: ignore[method-assign]
    else:
        GraphObjective._losses = staticmethod(weighted(name == "means", float(value or 1)))  # type: ignore[method-assign]
    return cli.main(list(arguments))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
