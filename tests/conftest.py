"""Fixtures: the corpora where they are on disk, and a small parser trained once for all tests that need one."""

from __future__ import annotations

import os
from pathlib import Path

import film_questions
import pytest

import lagr
from lagr import config
from lagr.datasets import Source, open_source
from lagr.parser import Parser

# A model that learns mini in seconds: enough to parse, not to be right about everything.
SMALL = [
    ("data", "size", 300), ("data", "recombine", 0.0), ("model", "width", 32), ("model", "encoder_layers", 1), ("model", "heads", 2),
    ("align", "hold", 60), ("train", "steps", 240), ("train", "batch", 32), ("train", "learning_rate", 5e-3),
    ("train", "evaluate_every", 0), ("train", "save_every", 30), ("train", "evaluate_limit", 60),
    ("model", "positions", "sine"), ("model", "valency", 0),  # as the paper's: labels that are independent of each other
]  # fmt: skip


def corpus(name: str) -> Path:
    folder = Path(os.environ.get("LAGR_DATA", ""))
    if not os.environ.get("LAGR_DATA") or not (folder / name).is_dir():
        pytest.skip(f"needs {name}: set LAGR_DATA to the folder that holds it")
    return folder


@pytest.fixture(scope="session")
def cogs_data() -> Path:
    return corpus("cogs")


@pytest.fixture(scope="session")
def cfq_data() -> Path:
    return corpus("cfq")


@pytest.fixture(scope="session")
def mini() -> Source:
    return open_source("mini", size=300)


@pytest.fixture(scope="session")
def small_config() -> config.Config:
    return config.override(config.load("quickstart"), SMALL)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory, mini: Source, small_config: config.Config) -> Path:
    from lagr.train import train

    folder = tmp_path_factory.mktemp("runs") / "small"
    train(small_config, mini, folder)
    return folder


@pytest.fixture(scope="session")
def film_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parser that was trained on templates of questions about films, without alignments."""
    from lagr.train import train

    folder = tmp_path_factory.mktemp("films")
    data = str(film_questions.write(folder / "data"))
    settings = [
        ("data", "name", data), ("data", "recombine", 0.0), ("model", "width", 64), ("model", "encoder_layers", 1),
        ("model", "heads", 2),
        ("model", "dropout", 0), ("model", "graph_layers", 2), ("align", "hold", 100), ("train", "steps", 240),
        ("train", "batch", 64), ("train", "learning_rate", 4e-3), ("train", "evaluate_every", 0),
    ]  # fmt: skip
    train(config.override(config.load("quickstart"), settings), open_source(data), folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def parser(small_run: Path) -> Parser:
    found = lagr.load(small_run)
    assert isinstance(found, Parser)
    return found
