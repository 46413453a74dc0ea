"""A trained parser as an ONNX file, and onnxruntime as the engine that runs it: the same answers, sooner.

lagr export runs/quickstart --onnx quickstart.onnx
lagr parse runs/quickstart --onnx quickstart.onnx "Ida sang ."
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lagr.encoders import LSTM
from lagr.errors import ConfigError, RunError
from lagr.model import GraphDistribution, LAGr
from lagr.runs import checksum

NEEDS = "needs packages that are not installed: pip install 'lagr[onnx]'"
WEIGHTS = "lagr.weights"  # where a file says which weights it has


class _Flat(nn.Module):
    """The model with plain tensors in and out: tokens (B, N) and lengths (B,) → log π, log ρ, and valencies if any."""

    def __init__(self, model: LAGr) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        dist = self.model(tokens[None], lengths[None])
        parts = (dist.node_log_probs, dist.edge_log_probs, dist.valency_log_probs)
        return tuple(part for part in parts if part is not None)


def export_onnx(model: LAGr, file: Path) -> None:
    """Writes the model as ONNX, for any number of sentences of any length."""
    try:
        import onnxscript  # noqa: F401  what torch writes ONNX with
    except ImportError:
        raise ConfigError(f"lagr export {NEEDS}") from None
    if isinstance(model.encode, LSTM):
        raise ConfigError(
            "lagr export: an LSTM reads word by word, and can't be written for any length; use a Transformer"
        )
    if not file.parent.is_dir():
        raise RunError(f"there is no folder {file.parent}")
    example = torch.ones(2, 5, dtype=torch.long), torch.tensor([5, 3])
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # torch's own about its exporter
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            _Flat(model.eval()),
            example,
            input_names=["tokens", "lengths"],
            output_names=["node_log_probs", "edge_log_probs", *(["valency_log_probs"] if max(model.valencies) else [])],
            dynamic_shapes={"tokens": {0: batch, 1: length}, "lengths": {0: batch}},
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        program.model.metadata_props[WEIGHTS] = checksum(model)
        program.save(str(file), external_data=False)


class OnnxModel:
    """Stands in for the model that was exported."""

    def __init__(self, file: str | Path, model: LAGr) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise ConfigError(f"--onnx {NEEDS}") from None
        self.graph_layers, self.edge_labels = model.graph_layers, model.edge_labels
        if not Path(file).is_file():
            raise RunError(f"there is no file {file}; write it with `lagr export`")
        try:
            self.session: Any = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has a class for each thing that can be wrong with a file
            raise RunError(f"{file} is no ONNX model: {str(error).splitlines()[0]}") from None
        if self.session.get_modelmeta().custom_metadata_map.get(WEIGHTS) != checksum(model):
            raise RunError(f"{file} was exported from another run, or by an older lagr; write it with `lagr export`")

    def __call__(self, tokens: Tensor, lengths: Tensor) -> GraphDistribution:
        inputs = {"tokens": tokens[0].numpy(), "lengths": lengths[0].numpy()}
        nodes, edges, *numbers = (torch.from_numpy(array) for array in self.session.run(None, inputs))
        slots = (torch.arange(tokens.shape[-1]) < lengths[0, :, None]).repeat_interleave(self.graph_layers, dim=1)
        return GraphDistribution(nodes, edges, slots, *numbers)
