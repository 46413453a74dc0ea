"""The memory that a run needs: the estimate against measurements, and what people read when it is too much."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

import lagr
from lagr import config, memory, scaling
from lagr.batch import Bucket
from lagr.datasets import Source
from lagr.engine import Engine
from lagr.errors import ConfigError, DataError
from lagr.model import LAGr
from lagr.train import train

CPU_MESSAGE = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1610612736 bytes. Error code 12"
GPU_MESSAGE = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 139.80 GiB"


@pytest.mark.skipif(scaling.resident("VmHWM") is None, reason="nothing here says what a process has in memory")
def test_the_estimate_is_within_a_factor_of_two_of_what_a_step_takes_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the two run side by side
    settings = [scaling.Setting(seeds=4, batch=32), scaling.Setting(tokens=80, batch=8)]
    with ThreadPoolExecutor() as pool:
        rows = list(pool.map(lambda setting: scaling._elsewhere(setting, time.monotonic() + 120), settings))
    for row in rows:
        assert 0.5 < row["estimate_mib"] / row["peak_mib"] < 2, row


@pytest.mark.parametrize(
    ("preset", "sizes", "tokens", "examples", "seeds", "measured"),
    [
        ("cogs-strong-transformer-sep", (745, 645, 10), 22, 24_155, 1, 1.04),
        ("cogs-strong-transformer-sep", (745, 645, 10), 22, 24_155, 10, 6.7),
    ],
)
def test_the_estimate_agrees_with_the_h200(
    preset: str, sizes: tuple[int, int, int], tokens: int, examples: int, seeds: int, measured: float
) -> None:
    report = json.loads((Path(__file__).parent.parent / "results" / "bench" / "h200.json").read_text())
    assert measured in [result.get("gib") for result in report["results"]]
    settings, bucket = config.load(preset), Bucket(np.arange(1), tokens, nodes=18, edges=24)
    model = LAGr(*sizes, **settings.model.options())
    estimate = memory.training_bytes(settings, model, bucket, examples, seeds, bf16=True)
    assert 0.7 < estimate / memory.GIB / measured < 1.3


def test_a_run_that_cannot_fit_is_refused_before_it_leaves_anything(
    mini: Source, small_config: config.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: memory.GIB)
    wide = config.override(small_config, [("model", "width", 512), ("train", "batch", 10_000)])
    longest = max(len(example.tokens) for example in mini.read("train"))
    with pytest.raises(ConfigError) as caught:
        train(wide, mini, tmp_path / "run", seeds=3)
    message = str(caught.value)
    assert "\n" not in message and f"up to {longest} tokens, and 1.0 GiB are free" in message
    assert "lower train.batch, --seeds or model.width" in message and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("error", "asked"),
    [(RuntimeError(CPU_MESSAGE), True), (torch.OutOfMemoryError(GPU_MESSAGE), True), (MemoryError(), False)],
)
def test_running_out_of_memory_in_training_is_one_line(
    error: Exception,
    asked: bool,
    mini: Source,
    small_config: config.Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def step(*arguments: object, **more: object) -> None:
        raise error

    monkeypatch.setattr(Engine, "step", step)
    size = " at 1.5 GiB more" if asked else ""
    with pytest.raises(ConfigError, match=rf"^the memory ran out{size} while training; lower train.batch or [^\n]+$"):
        train(small_config, mini, tmp_path / "run")


def test_what_the_allocator_itself_says_is_understood_and_other_errors_stay_as_they_are() -> None:
    with pytest.raises(ConfigError, match="the memory ran out at"), memory.explained("testing", "stop"):
        torch.empty(10**15)
    with pytest.raises(RuntimeError, match="must match"), memory.explained("testing", "stop"):
        torch.ones(2) + torch.ones(3)


def test_a_sentence_that_needs_more_than_there_is_is_refused(small_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = lagr.load(small_run)
    monkeypatch.setattr(memory, "WORTH_A_LOOK", 0)
    monkeypatch.setattr(memory, "free_bytes", lambda device: memory.parsing_bytes(parser.model, 100) / memory.DOUBT)
    assert len(parser.parse_tokens([["a"] * 100])) == 1
    with pytest.raises(DataError, match=r"^a sentence of 101 tokens needs about .* are free; split it$"):
        parser.parse_tokens([["a"], ["a"] * 101])


def test_more_of_anything_needs_more_memory() -> None:
    def need(tokens: int = 16, seeds: int = 1, bf16: bool = False, **changes: int) -> int:
        settings = config.override(config.Config(), [("model", key, value) for key, value in changes.items()])
        model, bucket = LAGr(100, 80, 8, **settings.model.options()), Bucket(np.arange(1), tokens, 8, 8)
        return memory.training_bytes(settings, model, bucket, 1000, seeds, bf16)

    base = need()
    for more in (need(tokens=24), need(seeds=2), need(width=512), need(encoder_layers=8), need(graph_layers=2)):
        assert more > base


def test_what_is_free_is_less_than_what_there_is() -> None:
    free = memory.free_bytes("cpu")
    assert free is None or 0 < free < 2**50
