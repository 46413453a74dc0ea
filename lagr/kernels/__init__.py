"""A Transformer layer and the edge scorer on the GPU, for short sentences: few launches instead of dozens (Triton).

Each of these is a function that encoders.py or model.py writes in plain torch, number for number, dropout included. A
sentence of some ten words is too small for general matrix products, and what stands between the products is too little
work for launches of its own: here inputs and outputs go through memory once, and the rest stays on chip.
"""

from lagr.kernels.attention import attention
from lagr.kernels.edges import edge_log_probs
from lagr.kernels.sizes import MOST_ROWS
from lagr.kernels.sublayer import normalised_sum, rectified

__all__ = ["MOST_ROWS", "attention", "edge_log_probs", "normalised_sum", "rectified"]
