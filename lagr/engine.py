"""S models that take their training steps together, with everything on the device.

The weights of all models lie in tables, a row for each copy (encoders.py says what a copy is), so that a step has few,
large operations: one matrix product for all models, one clipping, one optimizer update. On a GPU the step is compiled
and then recorded as a CUDA graph for each bucket; after that the host only says which rows come next. On a CPU the same
code runs as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lagr.chance import make_keys
from lagr.model import LAGr
from lagr.objectives import Objective
from lagr.seq2seq import Seq2Seq

BETAS, EPSILON = (0.9, 0.999), 1e-8  # Adam's
WARM_UPS = 3  # steps before a CUDA graph is recorded, taken back afterwards


class Table:
    """Parameters that have equally many copies, side by side, with Adam's two moments.

    half: the same values in bf16, which the model then works with.
    """

    def __init__(self, parameters: dict[str, nn.Parameter], models: int, device: str, bf16: bool) -> None:
        self.shapes = {name: tuple(p.shape[1:]) for name, p in parameters.items()}
        self.copies = next(iter(parameters.values())).shape[0]  # of one model
        width = sum(p[0].numel() for p in parameters.values())
        self.values, self.mean, self.square = (
            torch.zeros(models * self.copies, width, device=device) for _ in range(3)
        )
        self.half = self.values.to(torch.bfloat16) if bf16 else None

    def views(self, table: Tensor) -> dict[str, Tensor]:
        """Each parameter as a window of the table.   (W, …)"""
        found, at = {}, 0
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            found[name] = table[:, at : at + size].view(len(table), *shape)
            at += size
        return found

    def rows_of(self, model: int) -> slice:
        return slice(model * self.copies, (model + 1) * self.copies)


class Engine:
    def __init__(
        self,
        new_model: Callable[[int], LAGr | Seq2Seq],
        seeds: Sequence[int],
        objective: Objective,
        clip: float,
        device: str,
        bf16: bool,
    ) -> None:
        """new_model(seed): an untrained model."""
        self.new_model, self.objective, self.clip, self.device, self.bf16 = new_model, objective, clip, device, bf16
        S = len(seeds)
        self.model = new_model(seeds[0]).to(device)
        alike: dict[tuple[int, bool], dict[str, nn.Parameter]] = {}
        for name, parameter in self.model.named_parameters():
            is_matrix = parameter.dim() == 3 and parameter.shape[1] > 1
            alike.setdefault((parameter.shape[0], is_matrix), {})[name] = parameter
        self.tables = [Table(found, S, device, bf16 and is_matrix) for (_, is_matrix), found in alike.items()]
        self.updates = torch.zeros(S, device=device)  # of each model, for Adam's bias correction
        self.loss_sums = torch.zeros(S, device=device)  # since they were last read
        self.seeds = torch.zeros(S, dtype=torch.int64, device=device)
        for table in self.tables:
            self._adopt(table)
        self.parameters = [p for table in self.tables for p in self._parameters_of(table)]
        for s, seed in enumerate(seeds):
            self.reset(s, seed)
        self.recorded: dict[tuple[int, bool], tuple[Any, Tensor]] = {}
        if device == "cuda":
            self.pool = torch.cuda.graph_pool_handle()  # one for all graphs: none runs while another does
            torch._dynamo.config.recompile_limit = 64  # every bucket is a shape of its own
            for name in ("_keys", "_update"):
                setattr(self, name, torch.compile(getattr(self, name), dynamic=False))
            objective.compile_parts()
            self.model.compile_parts(objective.data.sizes[0])

    def _adopt(self, table: Table) -> None:
        """Makes the model's parameters windows of the table."""
        for name, window in table.views(table.values if table.half is None else table.half).items():
            owner, _, attribute = name.rpartition(".")
            self.model.get_submodule(owner)._parameters[attribute] = nn.Parameter(window)

    def _parameters_of(self, table: Table) -> list[nn.Parameter]:
        return [self.model.get_parameter(name) for name in table.shapes]

    def reset(self, s: int, seed: int) -> None:
        """Model s as it is at the start of training with a seed."""
        fresh = dict(self.new_model(seed).named_parameters())
        with torch.no_grad():
            for table in self.tables:
                rows = table.rows_of(s)
                for name, window in table.views(table.values).items():
                    window[rows] = fresh[name].to(self.device)
                table.mean[rows], table.square[rows] = 0.0, 0.0
                if table.half is not None:
                    table.half[rows] = table.values[rows].to(torch.bfloat16)
        self.updates[s], self.loss_sums[s], self.seeds[s] = 0.0, 0.0, seed
        self.objective.reset(s)

    def weights_of(self, s: int) -> dict[str, Tensor]:
        """The weights of model s, as those of a model alone."""
        return {
            name: window[table.rows_of(s)].clone()
            for table in self.tables
            for name, window in table.views(table.values).items()
        }

    # One step.

    def step(self, bucket: int, rows: np.ndarray, steps: np.ndarray, rates: np.ndarray, held: np.ndarray) -> None:
        """rows (S, B): what each model sees; steps, rates, held (S,): its step's number and learning rate, and whether
        its alignments stay as they are."""
        columns = (rows, steps[:, None], rates.astype(np.float32).view(np.int32)[:, None], held[:, None])
        inputs = torch.from_numpy(np.concatenate([column.astype(np.int32) for column in columns], axis=1))
        infer = self.objective.infers(held)
        if self.device == "cpu":
            self._step(bucket, infer, inputs)
            return
        inputs = inputs.pin_memory()  # so that the host needn't wait until it is copied
        if (bucket, infer) not in self.recorded:
            self.recorded[bucket, infer] = self._record(bucket, infer, inputs)
        graph, place = self.recorded[bucket, infer]
        place.copy_(inputs, non_blocking=True)
        graph.replay()

    def _step(self, bucket: int, infer: bool, inputs: Tensor) -> None:
        """inputs (S, B + 3): rows, step, learning rate, held."""
        rows, steps, rates, held = inputs[:, :-3], inputs[:, -3], inputs[:, -2].view(torch.float32), inputs[:, -1]
        loss, losses = self.objective.losses(self.model, bucket, rows, self._keys(steps), held, infer)
        self._update(torch.autograd.grad(loss, self.parameters), losses.detach(), rates)

    def _keys(self, steps: Tensor) -> Tensor:
        return make_keys(self.seeds, steps)

    @torch.no_grad()
    def _update(self, gradients: Sequence[Tensor], losses: Tensor, rates: Tensor) -> None:
        """Clips each model's gradient by its norm, then Adam."""
        self.loss_sums += losses
        self.updates += 1
        S, at = len(rates), 0
        joined = []
        for table in self.tables:
            parts = gradients[at : at + len(table.shapes)]
            joined.append(torch.cat([part.reshape(len(table.values), -1) for part in parts], dim=1))
            at += len(table.shapes)
        factor = torch.ones(S, device=rates.device)
        if self.clip:
            squares = [gradient.float().square().sum(1).view(S, -1).sum(1) for gradient in joined]
            factor = (self.clip / (torch.stack(squares).sum(0).sqrt() + 1e-6)).clamp(max=1.0)
        correction = torch.sqrt(1 - BETAS[1] ** self.updates) / (1 - BETAS[0] ** self.updates)
        for table, gradient in zip(self.tables, joined, strict=True):
            scale, rate = (x.repeat_interleave(table.copies)[:, None] for x in (factor, rates * correction))
            bias = torch.sqrt(1 - BETAS[1] ** self.updates).repeat_interleave(table.copies)[:, None]
            gradient = gradient.float() * scale
            mean = table.mean * BETAS[0] + gradient * (1 - BETAS[0])
            square = table.square * BETAS[1] + gradient * gradient * (1 - BETAS[1])
            values = table.values - rate * mean / (square.sqrt() + EPSILON * bias)
            table.mean.copy_(mean)
            table.square.copy_(square)
            table.values.copy_(values)
            if table.half is not None:
                table.half.copy_(values)

    def _record(self, bucket: int, infer: bool, inputs: Tensor) -> tuple[Any, Tensor]:
        """A CUDA graph of the step for this bucket. The steps that warm it up are taken back."""
        place = inputs.to(self.device)
        before = {name: tensor.clone() for name, tensor in self.state().items()}
        with tf32() if self.bf16 else nullcontext():
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    self._step(bucket, infer, place)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                self._step(bucket, infer, place)
        self.load_state(before)
        return graph, place

    # Everything that a checkpoint needs.

    def state(self) -> dict[str, Tensor]:
        tensors = {
            "updates": self.updates,
            "loss_sums": self.loss_sums,
            "seeds": self.seeds,
            **self.objective.state(),
        }
        for number, table in enumerate(self.tables):
            tensors |= {f"{name}.{number}": getattr(table, name) for name in ("values", "mean", "square")}
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        for name, place in self.state().items():
            if place.shape != tensors[name].shape:
                raise KeyError(name)
            place.copy_(tensors[name])
        for table in self.tables:
            if table.half is not None:
                table.half.copy_(table.values)


@contextmanager
def tf32() -> Iterator[None]:
    """Products of float32 take a GPU's matrix units, which round factors to eleven bits. Factors that are bf16 have
    eight and stay as they are: logits come out as without it. Gradients of logits are rounded, less than bf16 would."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
