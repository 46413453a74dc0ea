"""Models that come with the package, known by name: `lagr parse cogs "…"`. pack.py makes them.

A model is a run folder with what parsing needs and a card, lagr/models/NAME. Where a path and a name are the same, the
path wins: what lies in one's own folder is nearer than what came with the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lagr.errors import RunError

MODELS = Path(__file__).parent / "models"
CARD = "card.json"


def names() -> list[str]:
    return sorted(card.parent.name for card in MODELS.glob(f"*/{CARD}"))


def find(run: str | Path) -> Path:
    """The folder of a run: the path that was given if there is a run, else that of the model of this name."""
    path = Path(run)
    if (path / "config.toml").is_file() or str(run) not in names():
        return path
    return MODELS / str(run)


def card(name: str) -> dict[str, Any]:
    """What is known of a model: where it is from, how good it is, on what terms it may be used."""
    file = MODELS / name / CARD
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
    except (OSError, ValueError):
        raise RunError(f"{file} can't be read; install lagr again, or pack the model again") from None


def table() -> str:
    """All models, a line each: size, accuracy by split, data."""
    lines = [("model", "MiB", "parameters", "exact match, %", "data")]
    for name in names():
        its = card(name)
        exact = ", ".join(f"{split} {found['exact']:.1f}" for split, found in its["accuracy"].items())
        data = f"{its['data']['name']} ({its['data']['licence']})"
        lines.append((name, f"{its['bytes'] / 2**20:.1f}", f"{its['parameters']:,}", exact, data))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)
