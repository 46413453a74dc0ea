"""What a step is taken on: a GPU or the CPU, in bf16 or in float32, with how many threads."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from lagr.errors import ConfigError


def choose_device(wanted: str) -> str:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("train.device is cuda, but no GPU can be seen; use cpu or auto")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


def uses_bf16(precision: str, device: str) -> bool:
    if precision == "bf16" and device == "cpu" and not cpu_multiplies_bf16():
        raise ConfigError(
            "train.precision = bf16: this CPU has no instructions for it (AVX-512 BF16 or AMX) that PyTorch knows of; "
            "without them it is about ten times slower than float32, which auto takes"
        )
    return precision == "bf16" or (device == "cuda" and precision == "auto")


def cpu_multiplies_bf16() -> bool:
    ask = getattr(torch.cpu, "get_capabilities", dict)  # an older PyTorch may not have it
    capabilities: dict[str, object] = ask()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))


def machine(device: str) -> str:
    count = torch.get_num_threads()
    name = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"{platform.machine()} CPU, {count} thread{'s' if count != 1 else ''}"
    )
    return f"{name}, torch {torch.__version__}"


@contextmanager
def threads(wanted: int) -> Iterator[None]:
    """Lets torch take so many threads of the CPU; 0: as many as it does anyway."""
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
