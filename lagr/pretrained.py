"""A pretrained encoder from `transformers`, by name or path: it reads the words, LAGr learns what to make of them.

Its vectors, the mean over a token's word pieces, are added to the model's own word vectors. It is not trained further,
so every training sentence is read once, before training, whatever the number of steps and seeds. A run folder names it,
and does not hold it: loading the run reads it from where it was, and refuses another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from lagr.errors import ConfigError, DataError
from lagr.runs import checksum

AT_ONCE = 64  # sentences


class Pretrained:
    """Sentences → a vector for every token, in context."""

    def __init__(self, name: str) -> None:
        try:
            import transformers
        except ImportError:
            raise ConfigError(
                "model.pretrained needs a package that is not installed: pip install 'lagr[pretrained]'"
            ) from None
        transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(name)
            self.model: Any = transformers.AutoModel.from_pretrained(name)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"model.pretrained: {name!r} can't be loaded ({reason}); give a name or a folder"
            ) from None
        if not self.tokenizer.is_fast:
            raise ConfigError(
                f"model.pretrained: {name!r} has no fast tokenizer, which says whose word pieces are whose"
            )
        self.model.eval().requires_grad_(False)
        self.name, self.width = name, int(self.model.config.hidden_size)
        self.longest = int(getattr(self.model.config, "max_position_embeddings", 0) or self.tokenizer.model_max_length)

    @torch.no_grad()
    def read(self, sentences: Sequence[Sequence[str]], device: str = "cpu") -> Tensor:
        """(B, N, width), 0 where there is no token."""
        vectors = torch.zeros(len(sentences), max(map(len, sentences), default=0), self.width, device=device)
        self.model.to(device)
        by_length = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))
        for start in range(0, len(sentences), AT_ONCE):
            rows = by_length[start : start + AT_ONCE]
            some = [list(sentences[row]) for row in rows]
            pieces = self.tokenizer(some, is_split_into_words=True, padding=True, return_tensors="pt")
            if pieces["input_ids"].shape[1] > self.longest:
                raise DataError(
                    f"“{' '.join(some[-1])[:50]}…” has {pieces['input_ids'].shape[1]} word pieces; "
                    f"{self.name} reads at most {self.longest}"
                )
            hidden = self.model(**pieces.to(device)).last_hidden_state.float()
            for b, row in enumerate(rows):
                vectors[row, : len(some[b])] = _pooled(hidden[b], pieces.word_ids(b), len(some[b]))
        return vectors

    @property
    def fingerprint(self) -> str:
        """A checksum of its weights."""
        return checksum(self.model)


def _pooled(pieces: Tensor, words: Sequence[int | None], tokens: int) -> Tensor:
    """The mean of every token's pieces; words: whose each piece is, None for those that frame the sentence."""
    places = [place for place, word in enumerate(words) if word is not None]
    whose = torch.tensor([words[place] for place in places], device=pieces.device)
    total = pieces.new_zeros(tokens, pieces.shape[1]).index_add_(0, whose, pieces[places])
    count = pieces.new_zeros(tokens).index_add_(0, whose, torch.ones_like(whose, dtype=pieces.dtype))
    return total / count.clamp(min=1)[:, None]


@lru_cache(maxsize=1)
def load(name: str) -> Pretrained:
    """The encoder of that name or path, read from disk once."""
    return Pretrained(name)
