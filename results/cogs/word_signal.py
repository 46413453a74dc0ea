"""How much an untrained model says of a word, beside what dropout makes of it: on COGS.

python results/cogs/word_signal.py DATA/..

Prints a line of JSON for every dropout and residual. word: the standard deviation, over slots, of a label's gain over
null in the mean of many passes, which is what a slot's word and place say. noise: that over passes, which is what
dropout says. The sizes are those of `cogs-weak-transformer-sep`; one seed, 128 training sentences of 6 to 9 words.
"""

from __future__ import annotations

import json
import sys

import torch

from lagr.datasets import open_source
from lagr.model import LAGr
from lagr.vocab import Vocabulary

PASSES = 64


def main(data: str) -> None:
    examples = open_source("cogs", data, "", 0, 0).read("train")
    vocab = Vocabulary.of(examples)
    chosen = [example for example in examples if 6 <= len(example.tokens) <= 9][:128]
    tokens = torch.zeros(1, len(chosen), 9, dtype=torch.long)
    for row, example in enumerate(chosen):
        tokens[0, row, : len(example.tokens)] = torch.tensor(vocab.encode(example.tokens))
    lengths = torch.tensor([[len(example.tokens) for example in chosen]])
    for dropout, residual in ((0.1, 1.0), (0.4, 1.0), (0.4, 0.7), (0.4, 0.5), (0.4, 0.35), (0.4, 0.1)):
        torch.manual_seed(0)
        model = LAGr(*vocab.sizes, width=512, encoder_layers=4, heads=4, dropout=dropout, residual=residual)
        total = squares = torch.zeros(())
        with torch.no_grad():
            for number in range(PASSES):
                dist = model(tokens, lengths, torch.tensor([7919 * number + 1], dtype=torch.int32))
                log_probs = dist.node_log_probs[dist.slots]
                gain = log_probs - log_probs[:, :1]
                total, squares = total + gain, squares + gain**2
        mean = total / PASSES
        over_passes = (squares - PASSES * mean**2) / (PASSES - 1)
        # The mean of so many passes still has a part of their variance.
        over_slots = mean.var(0) - over_passes.mean(0) / PASSES
        word, noise = (found.mean().clamp(min=0).sqrt().item() for found in (over_slots, over_passes))
        print(json.dumps({"dropout": dropout, "residual": residual, "word": round(word, 3), "noise": round(noise, 3)}))


if __name__ == "__main__":
    main(sys.argv[1])
