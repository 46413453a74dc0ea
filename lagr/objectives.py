"""What a training step descends: the losses of a batch, for each of S models. LAGr's, and seq2seq's.

An objective has the training data, and what it remembers between steps; the engine has the models and updates them. On
a GPU `losses` is recorded, once for every bucket and for either value of `infer`: it may look at no number on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from lagr.align import Target, infer_alignment, with_choices
from lagr.batch import Packed, PackedForms
from lagr.config import Align
from lagr.loss import strong_loss
from lagr.model import GraphDistribution
from lagr.seq2seq import form_loss


class GraphObjective:
    """−log p of the graphs, placed by known alignments or by inferred ones; mean over sentences."""

    def __init__(
        self,
        data: Packed,
        align: Align,
        first_alignments: Tensor,
        models: int,
        forget: Callable[[Tensor, Tensor], Tensor] = lambda tokens, keys: tokens,
    ) -> None:
        """first_alignments (examples, J), or (models, examples, J) where models differ: what strong supervision is
        given, and what weak supervision starts from. forget: words to unknown ones."""
        self.data, self.align, self.forget = data, align, forget
        self.first_alignments = first_alignments.expand(models, -1, -1)
        self.alignments = self.first_alignments.clone()
        self.choices = [torch.tensor(labels, device=data.table.device) for labels in data.choices]

    def infers(self, held: np.ndarray) -> bool:
        """Whether a step finds new alignments, of models of which these are held to the ones they have."""
        return self.align.supervision == "weak" and not held.all()

    def losses(
        self, model: nn.Module, bucket: int, rows: Tensor, keys: Tensor, held: Tensor, infer: bool
    ) -> tuple[Tensor, Tensor]:
        """What the step descends, and the loss of each model (S,). rows (S, B): what each sees; held, keys (S,)."""
        S, B = rows.shape
        batch = self.data.take(rows.flatten(), self.data.buckets[bucket])
        words, features = self.forget(batch.tokens.view(S, B, -1), keys), batch.features
        if features is not None:
            features = features.view(S, B, *features.shape[1:])
        dist = model(words, batch.lengths.view(S, B), keys, features)
        nodes = with_choices(dist.node_log_probs, self.choices)
        parts = (nodes, dist.edge_log_probs, dist.slots, dist.valency_log_probs)
        asked, detached = self.data.asked(batch.target), [part if part is None else part.detach() for part in parts]
        alignment = self._infer(detached, asked, keys, rows, held, infer)
        return self._losses(parts, batch.target, alignment, S)

    @torch.no_grad()
    def _infer(
        self, parts: Sequence[Tensor | None], target: Target, keys: Tensor, rows: Tensor, held: Tensor, infer: bool
    ) -> Tensor:
        """The alignments of the batch: as they are where they are given or held, else inferred, and then remembered."""
        J, whose = target.nodes.shape[1], torch.arange(len(rows), device=rows.device)[:, None]
        before = self.alignments[whose, rows, :J].flatten(0, 1)
        if not infer:
            return before
        align, dist = self.align, GraphDistribution(*parts)  # type: ignore[arg-type]
        remembered = before if align.remember else None
        found = infer_alignment(
            dist, target, align.candidates, align.noise, keys, remembered, align.noise_shape, align.swaps
        )
        found = torch.where(held.repeat_interleave(rows.shape[1])[:, None] == 1, before, found)
        # A batch that begins a new round may have a sentence twice: both write the alignment of the first, or a GPU may
        # mix the two, and put two nodes into one slot.
        first = (rows[:, :, None] == rows[:, None, :]).int().argmax(2)
        self.alignments[whose, rows, :J] = found.view(*rows.shape, J)[whose, first]
        return found

    @staticmethod
    def _losses(
        parts: Sequence[Tensor | None], target: Target, alignment: Tensor, models: int
    ) -> tuple[Tensor, Tensor]:
        dist = GraphDistribution(*parts)  # type: ignore[arg-type]
        losses = strong_loss(dist, target, alignment).view(models, -1).mean(1)
        return losses.sum(), losses

    def reset(self, model: int) -> None:
        self.alignments[model] = self.first_alignments[model]

    def state(self) -> dict[str, Tensor]:
        return {"alignments": self.alignments}

    def compile_parts(self) -> None:
        for name in ("_infer", "_losses"):
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))


class FormObjective:
    """−log p of the tokens of the forms; mean over the tokens of a batch, as in the models that the paper reused."""

    def __init__(self, data: PackedForms) -> None:
        self.data = data

    def infers(self, held: np.ndarray) -> bool:
        return False

    def losses(
        self, model: nn.Module, bucket: int, rows: Tensor, keys: Tensor, held: Tensor, infer: bool
    ) -> tuple[Tensor, Tensor]:
        S, B = rows.shape
        batch = self.data.take(rows.flatten(), self.data.buckets[bucket])
        form = batch.form.view(S, B, -1)
        return self._losses(model(batch.tokens.view(S, B, -1), batch.lengths.view(S, B), form, keys), form)

    @staticmethod
    def _losses(log_probs: Tensor, form: Tensor) -> tuple[Tensor, Tensor]:
        losses = form_loss(log_probs, form)
        return losses.sum(), losses

    def reset(self, model: int) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        return {}

    def compile_parts(self) -> None:
        self._losses = torch.compile(self._losses, dynamic=False)  # type: ignore[method-assign]


Objective = GraphObjective | FormObjective
