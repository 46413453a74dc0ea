"""A layer of the encoder and the edge scorer on the GPU, for short sentences: few launches instead of dozens (Triton).

Each kernel is a function that encoders.py or model.py writes in plain torch, dropout included. A sentence of some ten
words is too small for general matrix products, and what stands between the products is too little work for launches of
its own: here inputs and outputs go through memory once, and the rest stays on chip, in float32.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

MOST_ROWS = 64  # tokens, or slots, that a program keeps on chip; longer sentences fill general products well
HAS_TRITON = find_spec("triton") is not None
LEAST = 16  # the smallest side of a product that the matrix units take


def usable(x: Tensor) -> bool:
    """Whether there are kernels where this tensor is."""
    return x.is_cuda and HAS_TRITON


def fit(vectors: Tensor, rows: int, width: int) -> bool:
    """Whether a program can keep so many vectors of that width on chip. Only bf16 is small enough, and fast enough."""
    if not usable(vectors) or vectors.dtype != torch.bfloat16 or rows > MOST_ROWS:
        return False
    needed = 4 * tile(rows) * tile(width) * vectors.element_size()
    return needed <= int(_memory_on_chip(vectors.device))


def tile(size: int) -> int:
    """The side of a block that holds so many: a power of two."""
    return max(LEAST, 1 << (size - 1).bit_length())


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **sizes: Any) -> None:
    """Runs a kernel where its first argument is."""
    with torch.cuda.device_of(arguments[0]):  # type: ignore[no-untyped-call]
        kernel[grid](*arguments, **sizes)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # compiled code asks too, and the compiler can't look into a driver
def _memory_on_chip(device: torch.device) -> int:
    from triton.runtime import driver

    number = torch.cuda.current_device() if device.index is None else device.index
    return int(driver.active.utils.get_device_properties(number)["max_shared_mem"])
