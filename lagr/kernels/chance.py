"""lagr.chance for kernels: the same bits at the same places."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def scramble(x):  # type: ignore[no-untyped-def]
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * 0x7FEB352D
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * -0x7B935975
    return x ^ ((x >> 16) & 0xFFFF)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def dropout_scale(key, place, SITE: tl.constexpr, THRESHOLD: tl.constexpr, KEPT: tl.constexpr):  # type: ignore[no-untyped-def]
    """What lagr.chance.dropout multiplies with at these places."""
    bits = (place ^ scramble(key + SITE * 0x9E37)) * 0x2545F491
    bits = (bits ^ (bits >> 15)) * 0x7FEB352D
    bits = (bits ^ (bits >> 13)) * 0x2C1B3C6D
    return tl.where(bits >= THRESHOLD, KEPT, 0.0)


def dropout_sizes(probability: float, keys: Tensor | None) -> dict[str, Any]:
    """What a kernel is told about dropout."""
    drops = keys is not None and probability > 0
    return {"DROPS": drops, "THRESHOLD": int(probability * 2.0**32) - 2**31, "KEPT": 1 / (1 - probability)}
