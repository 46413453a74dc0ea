"""What a service takes on, and how much of it. Whatever is beyond gets an error that says so; the rest goes on."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from lagr.errors import ConfigError


def limit(default: float, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Limits:
    body: int = limit(256 * 1024, "bytes of a request; beyond: 413")
    sentences: int = limit(64, "sentences of a request; beyond: 413")
    characters: int = limit(2000, "characters of a sentence; beyond: 413")
    tokens: int = limit(128, "tokens of a sentence; beyond: 413")
    queue: int = limit(1024, "sentences that may wait for their answer; beyond: 503")
    seconds: float = limit(10.0, "for an answer, waiting included, and for a client to send its request; beyond: 503")
    batch: int = limit(32, "sentences that are parsed together; 1: each alone")

    def __post_init__(self) -> None:
        for f in fields(self):
            if not getattr(self, f.name) > 0:
                raise ConfigError(f"--max-{f.name} is {getattr(self, f.name)}; it must be more than 0")
        if self.queue < self.sentences:
            raise ConfigError(
                f"--max-queue {self.queue} has no room for a request of --max-sentences {self.sentences}; raise it"
            )
