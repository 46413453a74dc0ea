from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lagr
from lagr import runs
from lagr.cli import main
from lagr.datasets import Source
from lagr.errors import ConfigError, RunError
from lagr.export import export_onnx
from lagr.model import LAGr

pytest.importorskip("onnxruntime", reason="needs the extra lagr[onnx]")
pytest.importorskip("onnxscript", reason="needs the extra lagr[onnx]")


@pytest.fixture(scope="module")
def onnx(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("onnx") / "small.onnx"
    assert main(["export", str(small_run), "--onnx", str(file)]) == 0
    return file


def test_onnx_gives_the_answers_that_torch_gives(small_run: Path, onnx: Path, mini: Source) -> None:
    sentences = [example.tokens for example in mini.read("gen")] + [("Ida",)]
    for one, other in zip(
        lagr.load(small_run).parse_tokens(sentences),
        lagr.load(small_run, onnx=onnx).parse_tokens(sentences),
        strict=True,
    ):
        assert (one.form, one.graph.nodes, one.graph.slots) == (other.form, other.graph.nodes, other.graph.slots)
        assert one.probability == pytest.approx(other.probability, rel=1e-3, abs=1e-6)


def test_onnx_parses_from_the_command_line(small_run: Path, onnx: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = main(["parse", str(small_run), "The walrus painted a lantern ."]), capsys.readouterr().out
    assert (
        main(["parse", str(small_run), "--onnx", str(onnx), "The walrus painted a lantern ."]),
        capsys.readouterr().out,
    ) == plain


def test_a_file_of_another_run_is_refused(small_run: Path, onnx: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(small_run, other)
    weights, _ = runs.read_tensors(other / runs.MODEL)
    runs.write_tensors(other / runs.MODEL, {name: tensor + 1e-3 for name, tensor in weights.items()})
    with pytest.raises(RunError, match="was exported from another run"):
        lagr.load(other, onnx=onnx)


def test_an_lstm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use a Transformer"):
        export_onnx(LAGr(5, 4, 3, encoder="lstm", width=8), tmp_path / "lstm.onnx")


def test_a_file_that_is_no_model_says_so(small_run: Path, tmp_path: Path) -> None:
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    for name, complaint in (("junk.onnx", "no ONNX model"), ("none.onnx", "lagr export")):
        with pytest.raises(RunError, match=complaint):
            lagr.load(small_run, onnx=tmp_path / name)
    assert main(["export", str(small_run), "--onnx", str(tmp_path / "nowhere" / "x.onnx")]) == 1
