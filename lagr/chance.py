"""Random numbers without state: each is a function of a key and of its place.

Dropout and noise come from here. The key holds the seed and the step, so a run that is resumed, or trained beside
others, draws the numbers that it would have drawn alone, and there is no random state to save.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def make_keys(seeds: Tensor, step: Tensor | int) -> Tensor:
    """One key for each seed at this step.   (S,) int32"""
    return scramble(scramble(seeds.to(torch.int32)) + step)


def scramble(x: Tensor) -> Tensor:
    """A bijection of 32-bit integers in which every bit of the input moves every bit of the output.

    Two rounds of multiply and xor-shift, as in the finalisers of common hash functions. Products wrap around.
    """
    x = x ^ _shift(x, 16)
    x = x * 0x7FEB352D
    x = x ^ _shift(x, 15)
    x = x * -0x7B935975  # 0x846CA68B as a signed number
    return x ^ _shift(x, 16)


def random_bits(shape: tuple[int, ...], keys: Tensor, site: int) -> Tensor:
    """32 random bits for every place, of a key for each entry of the first axis; another site gives others.   shape"""
    place = torch.arange(math.prod(shape[1:]), dtype=torch.int32, device=keys.device)
    bits = (place ^ scramble(keys + site * 0x9E37)[:, None]) * 0x2545F491
    bits = (bits ^ (bits >> 15)) * 0x7FEB352D  # one more round is enough: the keys are scrambled already
    return (bits ^ (bits >> 13)).mul_(0x2C1B3C6D).view(shape)


def uniform(shape: tuple[int, ...], keys: Tensor, site: int) -> Tensor:
    """Numbers in [0, 1).   shape"""
    return ((random_bits(shape, keys, site) >> 8) & 0xFFFFFF).to(torch.float32).mul(2.0**-24)


def normal(shape: tuple[int, ...], keys: Tensor, site: int) -> Tensor:
    """Standard normal numbers (Box and Muller).   shape"""
    radius = torch.sqrt(-2 * torch.log(1 - uniform(shape, keys, site)))
    return radius * torch.cos(2 * math.pi * uniform(shape, keys, site + 1))


def dropout(x: Tensor, probability: float, keys: Tensor | None, site: int) -> Tensor:
    """x with a share of its entries set to 0 and the others scaled up; x itself where there are no keys."""
    if keys is None or probability == 0:
        return x
    threshold = int(probability * 2.0**32) - 2**31  # bits are signed
    kept = random_bits(tuple(x.shape), keys, site) >= threshold
    return x * (kept * (1 / (1 - probability))).to(x.dtype)


def _shift(x: Tensor, by: int) -> Tensor:
    """A logical shift to the right: torch's own repeats the sign."""
    return (x >> by) & ((1 << (32 - by)) - 1)
