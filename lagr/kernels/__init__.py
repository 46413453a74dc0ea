"""A Transformer layer and the edge scorer on the GPU, for short sentences: few launches instead of dozens (Triton).

Each kernel is a function that encoders.py or model.py writes in plain torch, number for number, dropout included. A
sentence of some ten words is too small for general matrix products, and what stands between the products is too little
work for launches of its own: here inputs and outputs go through memory once, and the rest stays on chip.
"""

import torch
from torch import Tensor

MOST_ROWS = 64  # tokens, or slots, that a program keeps on chip; longer sentences fill general products well
LEAST = 16  # the smallest side of a product that the matrix units take


def fit(vectors: Tensor, rows: int) -> bool:
    """Whether sentences of so many tokens or slots can be kept on chip. In float32 they would not leave much room."""
    return vectors.is_cuda and vectors.dtype == torch.bfloat16 and rows <= MOST_ROWS
