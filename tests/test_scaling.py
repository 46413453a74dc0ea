"""How a step grows: the settings that are measured, what is kept when something fails, and the pictures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lagr import cli, plots, scaling
from lagr.errors import ConfigError, DataError

ROW = {"axis": "tokens", "value": 8, "batch": 64, "step_ms": 1.25, "peak_mib": 300.0, "estimate_mib": 280.0}
ROWS = [
    ROW,
    ROW | {"value": 512, "step_ms": 90.0, "peak_mib": 9000.0},
    ROW | {"axis": "seeds", "value": 20, "peak_mib": None},
    {"axis": "seeds", "value": 1, "batch": 64, "problem": "not measured: the time was up"},
]


@pytest.mark.parametrize("plan", scaling.PLANS.values(), ids=list(scaling.PLANS))
def test_an_axis_varies_alone_and_with_one_batch(plan: scaling.Plan) -> None:
    settings = plan.settings()
    assert len(settings) == sum(map(len, plan.axes.values()))
    for axis, values in plan.axes.items():
        its = [(value, vars(setting)) for name, value, setting in settings if name == axis]
        assert [value for value, _ in its] == list(values) == [setting[axis] for _, setting in its]
        assert len({tuple(v for k, v in setting.items() if k != axis) for _, setting in its}) == 1
        assert getattr(plan.base, axis) in values  # where the axes meet


def test_the_sentences_of_a_setting_are_one_bucket(tmp_path: Path) -> None:
    setting = scaling.Setting(tokens=14, batch=2)
    trainer = scaling._trainer(scaling.PLANS["cpu"], setting, tmp_path)
    (bucket,) = trainer.schedule.buckets
    assert (bucket.tokens, bucket.nodes, bucket.edges) == (14, 7, 6)
    assert len(trainer.runs) == 1 and trainer.config.align.candidates == 5


def test_when_the_time_is_up_every_row_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scaling.json"
    assert cli.main(["bench", "scaling", "--limit", "0", "--warm", "2", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["results"]["scaling"]
    assert len(rows) == len(capsys.readouterr().out.splitlines()) >= 18
    assert {row["problem"] for row in rows} == {"not measured: the time was up"}


def test_a_setting_that_fails_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = {
        8: subprocess.CompletedProcess([], 1, stdout="", stderr="Traceback …\nRuntimeError: no"),
        32: subprocess.CompletedProcess([], -9, stdout="", stderr=""),
    }

    def run(command: list[str], timeout: float, **more: object) -> subprocess.CompletedProcess[str]:
        setting = json.loads(command[3])
        if setting["tokens"] == 64:
            raise subprocess.TimeoutExpired(command, timeout)
        done = subprocess.CompletedProcess(command, 0, stdout='warning\n{"step_ms": 1.0}\n', stderr="")
        return failures.get(setting["tokens"], done)

    monkeypatch.setattr(subprocess, "run", run)
    known: list[int] = []
    rows = scaling.scaling(lambda rows: known.append(len(rows)), limit=60)
    problems = {row["value"]: row.get("problem") for row in rows if row["axis"] == "tokens"}
    assert known == list(range(1, len(rows) + 1))
    assert problems[8] == "not measured: RuntimeError: no" and problems[32] == "not measured: ended with status -9"
    assert "the time was up" in str(problems[64]) and problems[16] is problems[128] is None


def test_steps_that_only_compile_are_not_measured() -> None:
    assert scaling.measure(scaling.Setting(tokens=8, batch=2), steps=1) == {}


def test_the_table_has_every_row_in_the_order_of_the_axes() -> None:
    lines = plots.table(ROWS[::-1]).splitlines()
    assert lines[3] == "| N, tokens | 8 | 64 | 1.25 | 300 | 280 |" and len(lines) == 2 + len(ROWS)
    assert "| S, seeds | 20 | 64 | 1.25 | – | 280 |" in lines and "the time was up" in lines[4]


def test_the_picture_is_drawn_from_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    source = tmp_path / "scaling-cpu.json"
    source.write_text(json.dumps({"machine": "a machine", "results": {"scaling": ROWS}}))
    plots.main([str(source), str(tmp_path / "images")])
    drawn = (tmp_path / "images" / "scaling-cpu.svg").read_text()
    ElementTree.fromstring(drawn)
    assert "prefers-color-scheme: dark" in drawn and all(f"<!-- {title} -->" in drawn for title in plots.AXES.values())
    assert capsys.readouterr().out.strip() == plots.table(ROWS)


def test_what_cannot_be_drawn_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"results": {}}')
    for file, complaint in ((other, "is not what"), (tmp_path / "none.json", "there is no file")):
        with pytest.raises(DataError, match=complaint):
            plots.read(file)
    with pytest.raises(ConfigError, match="give the JSON"):
        plots.main([])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'lagr\[plots\]'"):
        plots.svg(ROWS, "a machine")


def test_nothing_is_begun_after_the_end() -> None:
    assert "the time was up" in scaling._elsewhere(scaling.Setting(), time.monotonic() - 1)["problem"]
