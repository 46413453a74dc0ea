"""`lagr train` with another loss, or with gradients that are clipped otherwise, to compare with K = 1 as it is.

python results/cfq/otherwise.py means|nodes=W train PRESET …               then as in `lagr train`; one seed, on a CPU
python results/cfq/otherwise.py scaled=S|scaled=changing train PRESET …    then as in `lagr train`

means: the mean over the slots of a batch and the mean over its pairs, added up, as the published code has it for strong
supervision. nodes=W: what slots hold counts W times as much as what pairs hold. scaled=S: the gradient is S times as
large when it is clipped, and that is taken back afterwards, as in Lightning before 1.4.9 with half precision (its issue
9330): gradients then have a norm of at most 1 / S, beside which the 1e-8 in Adam is not small any more. changing: S is
as torch's GradScaler has it with half precision. It begins with 2^16, is halved where a gradient would be beyond what
half precision holds, and that step left out; after 2,000 steps without it is doubled. Only gradients of weights are
looked at: one within the network may be beyond it where these are not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lagr import cli, engine, train
from lagr.align import Target, place
from lagr.model import GraphDistribution
from lagr.objectives import GraphObjective

FIRST_SCALE, GROWS_AFTER, HALF = 2.0**16, 2_000, 65_504.0


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


class ScaledEngine(engine.Engine):
    """Clips gradients while they are scaled, by what is given, or as torch's GradScaler does in half precision."""

    given: float | None = None  # None: changing

    def __init__(self, new_model: Any, seeds: Sequence[int], *more: Any, **others: Any) -> None:
        self.scales: Tensor | None = None
        super().__init__(new_model, seeds, *more, **others)
        self.scales = torch.full((len(seeds),), self.given or FIRST_SCALE, device=self.device)
        self.grown = torch.zeros(len(seeds), device=self.device)  # steps since the scale has changed

    def reset(self, s: int, seed: int) -> None:
        super().reset(s, seed)
        if self.scales is not None:
            self.scales[s], self.grown[s] = self.given or FIRST_SCALE, 0.0

    @torch.no_grad()
    def _update(self, gradients: Sequence[Tensor], losses: Tensor, rates: Tensor) -> None:
        assert self.scales is not None and self.clip
        rows = [gradient.float().reshape(len(rates), -1) for gradient in gradients]  # of each model
        norm = self.scales * torch.stack([row.square().sum(1) for row in rows]).sum(0).sqrt()
        factor = (self.clip / (norm + 1e-6)).clamp(max=1.0)
        scaled = [
            (row * factor[:, None]).reshape(gradient.shape).to(gradient.dtype)
            for row, gradient in zip(rows, gradients, strict=True)
        ]
        if self.given:
            super()._update(scaled, losses, rates)
            return
        largest = torch.stack([row.abs().amax(1) for row in rows]).amax(0)
        fits = largest * self.scales <= HALF  # where it does not, this step is left out
        kept = [tensor.clone() for tensor in self._changed_by_a_step()]
        super()._update(scaled, losses, rates)
        for now, before in zip(self._changed_by_a_step(), kept, strict=True):
            right = fits.repeat_interleave(len(now) // len(fits)).view(-1, *[1] * (now.dim() - 1))
            now.copy_(torch.where(right, now, before))
        grown = self.grown + 1
        full = grown >= GROWS_AFTER
        self.scales.copy_(torch.where(fits, torch.where(full, 2 * self.scales, self.scales), self.scales / 2))
        self.grown.copy_(torch.where(fits & ~full, grown, 0.0))

    def _changed_by_a_step(self) -> list[Tensor]:
        tables = [part for table in self.tables for part in (table.values, table.mean, table.square, table.half)]
        return [self.updates, *(part for part in tables if part is not None)]

    def weights_of(self, s: int) -> dict[str, Tensor]:
        """Also prints the scale: these are asked for at every look, and at the end."""
        if self.scales is not None:
            print(
                f"seed {int(self.seeds[s])}: gradients are scaled by 2^{float(self.scales[s].log2()):.0f}", flush=True
            )
        return super().weights_of(s)

    def state(self) -> dict[str, Tensor]:
        assert self.scales is not None
        return {**super().state(), "scales": self.scales, "grown": self.grown}


def main(change: str, *arguments: str) -> int:
    name, _, value = change.partition("=")
    if name == "scaled":
        ScaledEngine.given = None if value == "changing" else float(value)
        train.Engine = ScaledEngine  # type: ignore[misc]
    elif name == "nodes" or change == "means":
        losses = losses_of(name == "means", float(value or 1))
        GraphObjective._losses = staticmethod(losses)  # type: ignore[method-assign]
    else:
        sys.exit(f"{change} is none of means, nodes=W, scaled=S and scaled=changing")
    return cli.main(list(arguments))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
