"""What the README says is so."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import lagr
from lagr import config

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_equations_names_functions_that_exist() -> None:
    names = sorted(set(re.findall(r"`(lagr\.[a-z_.]+\.[A-Za-z_.]+)`", README)))
    assert len(names) >= 12
    for name in names:
        parts = name.split(".")
        depth = max(n for n in range(1, len(parts)) if _is_module(".".join(parts[:n])))
        found: object = importlib.import_module(".".join(parts[:depth]))
        for part in parts[depth:]:
            found = getattr(found, part)
        assert callable(found), name


def _is_module(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def test_the_links_lead_somewhere() -> None:
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / link).exists(), f"{document.name}: {link}"


@pytest.mark.parametrize(
    "verb",
    [
        "train",
        "evaluate",
        "parse",
        "ask",
        "align",
        "data check",
        "data fetch",
        "presets",
        "bench",
        "export",
        "serve",
        "reproduce",
        "analyse",
        "search",
        "calibrate",
        "report",
        "pack",
        "models",
    ],
)
def test_every_verb_is_in_the_readme(verb: str) -> None:
    assert f"lagr {verb}" in README


def test_the_public_surface_is_this() -> None:
    assert sorted(lagr.__all__) == ["Edge", "Graph", "LagrError", "Parse", "Parser", "__version__", "load"]
    assert all(hasattr(lagr, name) for name in lagr.__all__)


def test_the_papers_presets_leave_everything_new_off() -> None:
    for name in config.presets():
        if name.startswith(("cogs", "cfq")) and not name.endswith(("-small", "-best")):
            settings = config.load(name)
            assert settings.align.start == "model" and settings.align.hold == 0, name
            assert settings.model.positions == "sine" and settings.model.valency == 0, name
            assert not settings.data.copy and not settings.train.unknown and not settings.model.pretrained, name
