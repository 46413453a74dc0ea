from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import lagr
from lagr import config, named
from lagr.cli import main
from lagr.datasets import Source
from lagr.errors import RunError
from lagr.pack import pack
from lagr.parser import build
from lagr.runs import read_tensors
from lagr.vocab import Vocabulary

SENTENCE = "The walrus painted a lantern ."


@pytest.fixture(scope="module")
def shelf(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models, with one of them."""
    folder = tmp_path_factory.mktemp("models")
    assert main(["pack", str(small_run), "--out", str(folder / "tiny")]) == 0
    return folder


@pytest.fixture
def models(shelf: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(named, "MODELS", shelf)
    monkeypatch.chdir(tmp_path)
    return shelf


def test_a_packed_model_has_what_parsing_needs_and_no_more(shelf: Path, small_run: Path) -> None:
    files = {file.name for file in (shelf / "tiny").iterdir()}
    assert files == {
        "config.toml", "vocab.json", "calibration.json", "model.safetensors", "card.json", "card.md",
    }  # fmt: skip
    halves, _ = read_tensors(shelf / "tiny" / "model.safetensors")
    assert {str(tensor.dtype) for tensor in halves.values()} == {"torch.float16"}
    ratio = (shelf / "tiny" / "model.safetensors").stat().st_size / (small_run / "model.safetensors").stat().st_size
    assert ratio < 0.6


def test_a_packed_model_parses_as_its_run_does(shelf: Path, small_run: Path, mini: Source) -> None:
    sentences = [example.tokens for example in mini.read("test")]
    packed, run = lagr.load(shelf / "tiny"), lagr.load(small_run)
    assert all(str(p.dtype) == "torch.float32" for p in packed.model.parameters())
    alike = [
        one.form == other.form
        for one, other in zip(packed.parse_tokens(sentences), run.parse_tokens(sentences), strict=True)
    ]
    card = json.loads((shelf / "tiny" / "card.json").read_text())
    assert sum(alike) == card["rounding"]["same"] and card["rounding"]["n"] == len(alike)


def test_the_card_says_what_the_report_says(shelf: Path, small_run: Path) -> None:
    card = json.loads((shelf / "tiny" / "card.json").read_text())
    report = json.loads((small_run / "report.json").read_text())
    assert card["accuracy"]["gen"]["exact"] == report["evaluation"]["gen"]["exact"]
    assert card["parameters"] == report["parameters"] and card["data"]["licence"].startswith("MIT")
    text = (shelf / "tiny" / "card.md").read_text()
    assert f"| gen | {report['evaluation']['gen']['exact']:.2f} %" in text and text.startswith("# tiny")


def test_a_model_is_found_by_its_name(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lagr.load("tiny").parse(SENTENCE) == lagr.load(models / "tiny").parse(SENTENCE)
    assert main(["parse", "tiny", SENTENCE]) == 0 and "walrus" in capsys.readouterr().out
    assert main(["models"]) == 0
    assert "tiny" in capsys.readouterr().out.splitlines()[1]
    assert main(["parse", "tinny", SENTENCE]) == 1 and "models by name: tiny" in capsys.readouterr().err


def test_a_model_is_served_by_its_name(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi", reason="needs the extra lagr[serve]")
    from fastapi.testclient import TestClient

    from lagr.serve import server

    (models / "tiny" / server.EXAMPLES).write_text(SENTENCE + "\n", encoding="utf-8")
    served: list[Any] = []
    monkeypatch.setattr(server, "run", lambda app, *rest: served.append(app))
    try:
        assert main(["serve", "tiny"]) == 0
    finally:
        (models / "tiny" / server.EXAMPLES).unlink()
    info = TestClient(served[0]).get("/info").json()
    assert (info["run"], info["examples"]) == ("tiny", [SENTENCE])


def test_a_run_folder_of_that_name_wins(models: Path, small_run: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()  # a folder, but no run
    assert named.find("tiny") == models / "tiny"
    shutil.copytree(small_run, tmp_path / "tiny", dirs_exist_ok=True)
    assert named.find("tiny") == Path("tiny")


def test_what_cannot_be_packed_leaves_nothing_behind(
    small_run: Path, mini: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lagr.pack.LARGEST", 1000)
    with pytest.raises(RunError, match="MiB in 16 bits"):
        pack(small_run, tmp_path / "out", "out", mini)
    monkeypatch.setattr("lagr.pack.SAME", 1.1)
    with pytest.raises(RunError, match="too few"):
        pack(small_run, tmp_path / "out", "out", mini)
    assert not (tmp_path / "out").exists()
    unfinished = Path(shutil.copytree(small_run, tmp_path / "run"))
    (unfinished / "report.json").unlink()
    with pytest.raises(RunError, match="trained to its end"):
        pack(unfinished, tmp_path / "out", "out", mini)
    (unfinished / "card.json").touch()
    with pytest.raises(RunError, match="packed already"):
        pack(unfinished, tmp_path / "out", "out", mini)
    with pytest.raises(RunError, match="already holds files"):
        pack(small_run, tmp_path / "run", "run", mini)
    assert (tmp_path / "run" / "config.toml").is_file()


@pytest.mark.parametrize("name", ["cogs-small", "cfq-small"])
def test_the_models_to_be_packed_are_small_enough(name: str) -> None:
    """With as many words and labels as the corpora have, and some more."""
    vocab = Vocabulary(*(tuple(map(str, range(n))) for n in (800, 700, 12)))
    model = build(config.load(name), vocab)
    assert 2 * sum(p.numel() for p in model.parameters()) < 8 * 2**20
