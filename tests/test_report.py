from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lagr import draw
from lagr.cli import main
from lagr.graph import Graph

pytest.importorskip("matplotlib", reason="needs the extra lagr[plots]")


class Page(HTMLParser):
    """The elements that are open at the end, the ids, and the addresses a page would load something from."""

    VOID = frozenset({"meta", "br", "link", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def seeds(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs as `lagr train --seeds 2` leaves them: the second is a copy, but for its seed and its accuracy."""
    folder = tmp_path_factory.mktemp("report") / "<b>seeds"
    for seed in (0, 1):
        shutil.copytree(small_run, folder / f"seed-{seed}")
    file = folder / "seed-1" / "report.json"
    report = json.loads(file.read_text())
    report["starts"][-1]["seed"] = 1
    report["evaluation"]["gen"]["exact"] -= 1
    report["evaluation"]["gen"]["by_category"]["<script>alert(1)</script>"] = {"n": 1, "exact": 0.0, "low": 0.0, "high": 80.0}  # fmt: skip
    file.write_text(json.dumps(report))
    return folder


def test_a_report_is_one_page_that_loads_nothing(
    seeds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert main(["report", str(seeds), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    text = out.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == [] and all(address.startswith("#") for address in page.loads)
    assert "script" not in page.tags and "b" not in page.tags and not re.search(r"url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    missing = {address[1:] for address in page.loads} - set(page.ids)
    assert not missing  # every part of a chart finds what it refers to
    report = json.loads((seeds / "seed-0" / "report.json").read_text())
    for split, found in report["evaluation"].items():
        assert f"{found['exact']:.2f}" in page.words, split
    for heading in ("Accuracy", "Learning", "By category", "Calibration", "Errors", "Settings", "mean ± deviation"):
        assert heading in page.words
    assert "predicted, " in page.words and "<script>alert(1)</script>" in page.words


def test_a_report_without_its_data_says_what_is_missing(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(small_run, tmp_path / "run"))
    settings = (copy / "config.toml").read_text().replace('name = "mini"', 'name = "cogs"')
    (copy / "config.toml").write_text(settings)
    assert main(["report", str(copy), "--out", str(tmp_path / "r.html"), "--data", str(tmp_path)]) == 0
    assert "lagr data fetch cogs" in capsys.readouterr().err
    page = Page((tmp_path / "r.html").read_text())
    assert "The data is not at hand" in page.words and "an edge is missing" in page.words


def test_a_run_that_is_not_finished_has_no_report(
    small_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(small_run, tmp_path / "run"))
    (copy / "report.json").unlink()
    assert main(["report", str(copy), "--out", str(tmp_path / "r.html")]) == 1
    assert "has no report.json" in capsys.readouterr().err and not (tmp_path / "r.html").exists()
    (copy / "card.json").touch()  # as a packed model has
    assert main(["report", str(copy), "--out", str(tmp_path / "r.html")]) == 1
    assert "a packed model has none" in capsys.readouterr().err
    assert main(["report", str(small_run), "--split", "mars", "--out", str(tmp_path / "r.html")]) == 1


def test_what_is_faint_stands_back() -> None:
    graph = Graph(("eat", "cake"), ((0, "theme", 1),), slots=(0, 1))
    drawn = draw.svg(["Eat", "cake"], graph, faint=draw.Faint(frozenset({0})))
    assert re.findall(r'class="node" data-node="."( opacity="[0-9.]+")?', drawn) == [f' opacity="{draw.FAINTEST}"', ""]
    assert re.search(r'class="arc c\d" data-edge="0">', drawn)
