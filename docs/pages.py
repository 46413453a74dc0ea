"""The pages of the site: `python docs/pages.py FOLDER` copies docs/ there, with links that stay within the site.

A link to a file outside docs/, such as ../lagr/align.py, leads to a page that shows the file; a link to a folder, to a
page that lists it. So the site is whole wherever it is put, and needs no address of the repository.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)")
LANGUAGES = {".py": "python", ".json": "json", ".jsonl": "json", ".js": "js", ".html": "html", ".css": "css"}


def page_of(path: Path) -> str:
    """Where a file of the repository is on the site; a document is a page as it is, anything else is shown on one."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    inside = path.relative_to(ROOT).as_posix()
    return f"source/{inside}" if path.suffix == ".md" else f"source/{inside}.md"


def linked(text: str, path: Path) -> tuple[str, list[Path]]:
    """A document with its links as they are on the site, and the files that they lead to."""
    targets = []

    def on_site(found: re.Match[str]) -> str:
        target = (path.parent / found[2]).resolve()
        targets.append(target)
        return found[1] + os.path.relpath(page_of(target), Path(page_of(path)).parent)

    # In a table, code with a | is written with \| for readers of the file itself; the site would show the backslash.
    text = CODE.sub(lambda found: found[0].replace("\\|", "|"), text)
    return LINK.sub(on_site, text), targets


def shown(path: Path) -> str:
    """A file as a page, or a folder as a list of its files."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_file():
        text, language = path.read_text(encoding="utf-8").rstrip(), LANGUAGES.get(path.suffix, "text")
        return f"# {name}\n\n````{language}\n{text}\n````\n"
    files = sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    here = [file.relative_to(path).as_posix() for file in files]
    return f"# {name}\n\n" + "".join(f"- [{file}]({path.name}/{file})\n" for file in here)


def write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS / "images", folder / "images")
    shutil.copy(DOCS / "site.css", folder)
    waiting, done = sorted(DOCS.rglob("*.md")), set()
    while waiting:
        path = waiting.pop()
        if path in done or path.is_relative_to(DOCS / "images"):
            continue
        done.add(path)
        if path.suffix == ".md":
            text, targets = linked(path.read_text(encoding="utf-8"), path)
        elif path.is_dir():  # its links are relative to the folder that it is in, as if it were a file there
            text, targets = linked(shown(path), path)
        else:
            text, targets = shown(path), []
        waiting += targets
        page = folder / page_of(path)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
