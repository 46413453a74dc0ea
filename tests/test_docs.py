"""Every code block of the documentation is run, or understood, or marked as what can't be.

    python     run; the blocks of a page share their names, as in one session
    json       parsed, a value a line; toml: read as settings
    console    a command on every line with `$`, the rest is what it printed; so is a block without a language, where a
               line without `$` is a command too if none has it
    text       shown, not run: what is no code

Of the commands those of lagr are understood by its argument parser, and run unless they take long. Commands of the
programs in ELSEWHERE are not run; those of others are an error. Small parsers stand in for the runs that pages name.
"""

from __future__ import annotations

import io
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lagr import cli, config
from lagr.errors import ConfigError

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
ELSEWHERE = {"make", "pip", "curl", "python", "sed", "head"}
SLOW = {"train", "serve", "search", "reproduce", "bench", "export", "--onnx"}  # understood, and not run
PLACEHOLDERS = {"RUN", "ROW", "TABLE"}  # in place of a name: nothing that could be run
TRAINED_HERE = "train books.jsonl"  # the tutorial's own, with fewer steps
ANSWERED_HERE = {("lagr", "ask", "runs/books"), ("lagr", "parse", "cogs")}  # the output, if shown, is compared too
FEWER = "--train.steps 300 --train.learning_rate 5e-3 --model.encoder_layers 1 --train.evaluate_every 0".split()


@dataclass(frozen=True)
class Block:
    where: str
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    printed: str  # what the page shows of its output

    @property
    def kind(self) -> str:
        """run, understood or elsewhere."""
        if self.words[0] != "lagr":
            assert self.words[0] in ELSEWHERE, (
                f"{self.words[0]}: neither lagr nor a program that is known not to be run"
            )
            return "elsewhere"
        if " ".join(self.words[1:]) == TRAINED_HERE:
            return "run"
        return "understood" if (SLOW | PLACEHOLDERS) & set(self.words) else "run"


def blocks(page: Path, text: str | None = None) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8") if text is None else text
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        yield Block(f"{page.name}:{text.count(chr(10), 0, found.start()) + 1}", found[1], found[2])


def commands(block: Block) -> Iterator[Command]:
    lines = block.text.replace("\\\n", " ").splitlines()
    session = any(line.startswith("$ ") for line in lines)
    for number, line in enumerate(lines):
        if session and not line.startswith("$ "):
            continue
        written = re.split(r"   |  #", line.removeprefix("$ "))[0]  # what stands further right explains it
        words = [word for word in shlex.split(written) if not re.fullmatch(r"[A-Z_]+=\S*", word)]
        after = lines[number + 1 :] if session else []
        ends = next((n for n, line in enumerate(after) if line.startswith("$ ")), len(after))
        yield Command(tuple(words), "\n".join(after[:ends]))


def check(block: Block, names: dict[str, Any]) -> Counter[str]:
    """Runs or parses a block, whatever it is. An error where it is wrong."""
    if block.language == "python":
        exec(compile(block.text, block.where, "exec"), names)
    elif block.language == "json":
        for line in block.text.splitlines():
            json.loads(line)
    elif block.language == "toml":
        config.from_dict(tomllib.loads(block.text), block.where)
    elif block.language in ("", "console"):
        found = list(commands(block))
        assert found, f"{block.where}: a block without a command; if it is no code, say ```text"
        for command in found:
            execute(command)
        return Counter(command.kind for command in found)
    else:
        assert block.language == "text", f"{block.where}: nothing is known of {block.language!r}"
    return Counter([block.language])


def execute(command: Command) -> None:
    if command.kind == "elsewhere":
        return
    arguments = list(command.words[1:])
    cli.understand(arguments)
    if command.kind == "run":
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            status = cli.main([*arguments, *FEWER] if arguments[0] == "train" else arguments)
        possible = {0} | ({1} if "lagr: " in command.printed else set())
        possible |= {cli.ABSTAINED} if "--min-probability" in arguments else set()
        assert status in possible, f"{shlex.join(command.words)}: exit status {status}\n{printed.getvalue()}"
        if command.words[:3] in ANSWERED_HERE and command.printed:
            assert printed.getvalue().strip() == command.printed


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory, small_run: Path, film_run: Path) -> Path:
    """A folder with the files and runs that pages name, and don't make themselves."""
    pytest.importorskip("pyoxigraph", reason="needs pyoxigraph: pip install 'lagr[ask]'")
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'lagr[plots]'")
    folder = tmp_path_factory.mktemp("workplace")
    for name in ("quickstart", "my", "five"):
        shutil.copytree(small_run, folder / "runs" / name)
    shutil.copytree(film_run, folder / "runs/films")
    shutil.copy(ROOT / "lagr/ask/films.ttl", folder / "graph.ttl")
    rules = next(block.text for block in blocks(DOCS / "rules.md") if block.language == "toml")
    (folder / "rules.toml").write_text(rules, encoding="utf-8")
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_does_what_it_should(page: Path, request: pytest.FixtureRequest) -> None:
    found = list(blocks(page))
    if not found:
        return
    monkeypatch = request.getfixturevalue("monkeypatch")
    monkeypatch.chdir(request.getfixturevalue("workplace"))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    names: dict[str, Any] = {"__name__": "__main__"}
    print(sum((check(block, names) for block in found), Counter()))


def test_most_commands_are_run() -> None:
    found = [c for page in PAGES for b in blocks(page) if b.language in ("", "console") for c in commands(b)]
    counts = Counter(command.kind for command in found)
    assert counts["run"] > counts["understood"] and counts["run"] > counts["elsewhere"], counts


@pytest.mark.parametrize(
    ("right", "wrong", "error"),
    [
        (
            "```console\n$ lagr parse RUN --format text\n```",
            "```console\n$ lagr parse RUN --fromat text\n```",
            SystemExit,
        ),
        ("```\nlagr parse RUN\n```", "```\nlagr prase RUN\n```", SystemExit),
        ("```\nlagr train x --model.width 64\n```", "```\nlagr train x --model.widht 64\n```", SystemExit),
        ("```console\n$ make docs\n```", "```console\n$ docker run lagr\n```", AssertionError),
        ("```console\n$ make docs\nseen\n```", "```console\nseen\n```", AssertionError),
        ("```python\nimport lagr\nlagr.load\n```", "```python\nimport lagr\nlagr.laod\n```", AttributeError),
        ('```json\n{"text": 1}\n```', '```json\n{"text": }\n```', json.JSONDecodeError),
        ("```toml\n[train]\nsteps = 3\n```", "```toml\n[train]\nstep = 3\n```", ConfigError),
        ("```text\nputs 1\n```", "```ruby\nputs 1\n```", AssertionError),
    ],
)
def test_a_mistake_in_a_block_is_found(right: str, wrong: str, error: type[BaseException]) -> None:
    for block in blocks(Path("page.md"), right + "\n"):
        assert check(block, {})
    with pytest.raises(error):
        check(next(blocks(Path("page.md"), wrong + "\n")), {})


def verbs() -> dict[str, Any]:
    made = runpy.run_path(str(DOCS / "reference.py"))
    return {parser.prog.removeprefix("lagr "): parser for parser, _ in made["verbs"](cli.build_parser())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_in_the_text_have_verbs_and_options_that_exist(page: Path) -> None:
    known = verbs()
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for command in re.findall(r"`lagr ([a-z][^`]*)`", text):
        verb = next((verb for verb in known if f"{command} ".replace("\n", " ").startswith(f"{verb} ")), None)
        assert verb, f"{page.name}: lagr {command}"
        for option in re.findall(r"--[a-z][a-z._-]*", command):
            assert option in known[verb]._option_string_actions, f"{page.name}: lagr {command}"


def test_the_reference_is_what_the_code_says() -> None:
    made = runpy.run_path(str(DOCS / "reference.py"))["PAGES"]
    assert {path.name for path in (DOCS / "reference").iterdir()} == set(made)
    for name, page in made.items():
        assert (DOCS / "reference" / name).read_text(encoding="utf-8") == page().rstrip() + "\n", "run `make reference`"


def test_the_site_is_built_without_a_broken_link_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="needs zensical: pip install 'lagr[docs]'")
    runpy.run_path(str(DOCS / "pages.py"))["write"](tmp_path / "build/docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    build = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        html = page.read_text(encoding="utf-8")
        assert not re.findall(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//""", html), page
        for link in re.findall(r'<a[^>]* href="([^"#?:]+)[#"]', html):
            if page.name != "404.html":
                assert (page.parent / link).exists(), f"{page.name}: {link}"
