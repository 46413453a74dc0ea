"""Training now and then reads a word as an unknown one, so that unknown words are no surprise later.

A word seen n times is forgotten with probability α / (α + n): rare words often, frequent ones hardly ever
(Kiperwasser & Goldberg, 2016).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from lagr.chance import uniform
from lagr.datasets import Example
from lagr.vocab import FIRST_WORD, Vocabulary

FORGET_SITE = 2_000  # apart from the sites of dropout and noise


class Forget:
    def __init__(self, examples: Sequence[Example], vocab: Vocabulary, alpha: float, device: str) -> None:
        seen = Counter(token for example in examples for token in example.tokens)
        reserved = [(number, 0.0) for number in range(FIRST_WORD)]
        words = [(vocab.unknown(word), alpha / (alpha + seen[word]) if seen[word] else 0.0) for word in vocab.words]
        unknown, rates = zip(*reserved, *words, strict=True)
        self.unknown, self.rates = torch.tensor(unknown, device=device), torch.tensor(rates, device=device)

    def __call__(self, tokens: Tensor, keys: Tensor) -> Tensor:
        """The words with some replaced by what they would be read as if they were unknown.   (S, B, N)"""
        chance = uniform(tuple(tokens.shape), keys, FORGET_SITE)
        return torch.where(chance < self.rates[tokens], self.unknown[tokens], tokens)
