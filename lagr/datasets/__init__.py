"""Where examples come from: COGS, CFQ, one's own JSONL, and *mini*, which is generated.

>>> source = open_source("mini")
>>> source.splits
('train', 'dev', 'test', 'gen')
>>> source.read("train")[0].tokens[-1]
'.'
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lagr.errors import DataError
from lagr.graph import Graph

LONGEST = 1000  # tokens in a sentence; the pairs of slots grow with the square


@dataclass(frozen=True)
class Example:
    """A sentence and its meaning. The graph has slots where the alignment is known."""

    tokens: tuple[str, ...]
    graph: Graph
    form: str | None = None  # what a prediction must equal to be right; None: the graph itself
    category: str = ""
    longer_form: str | None = (
        None  # the data's, where it says more than a graph can hold; `form` is what the graph holds
    )

    @property
    def partly_kept(self) -> bool:
        return self.longer_form is not None

    @property
    def written_form(self) -> str | None:
        """The form as the data has it, which seq2seq learns to write."""
        return self.longer_form or self.form


@dataclass(frozen=True)
class Source:
    """A data set: its splits, how to read one, and the formalism of its forms."""

    name: str
    splits: tuple[str, ...]
    rows: Callable[[str], Iterable[Example | DataError]]  # of a split; a row that is wrong is the error that says why
    formalism: str | None = None
    slots_are_tokens: bool = False  # alignments name tokens, not slots of a certain number of graph layers

    def read(self, split: str) -> list[Example]:
        """All examples of a split. The first row that is wrong is raised."""
        return examples_of(self.rows(split))


def examples_of(rows: Iterable[Example | DataError]) -> list[Example]:
    examples = []
    for row in rows:
        if isinstance(row, DataError):
            raise row
        examples.append(row)
    return examples


def open_source(
    name: str, data: str | Path | None = None, partition: str = "", size: int = 4000, seed: int = 0
) -> Source:
    """The data set with that name: cogs, cfq, mini, or the path of a .jsonl file or of a folder of them.

    partition: which of CFQ's splits. size, seed: how many sentences *mini* generates for training, and which.
    """
    from lagr.datasets import cfq, cogs, jsonl, mini

    if name == "cogs":
        return cogs.source(data_folder(data) / "cogs")
    if name == "cfq":
        return cfq.source(data_folder(data) / "cfq", partition or "mcd1")
    if name == "mini":
        return mini.source(size, seed)
    path = Path(name)
    if path.suffix == ".jsonl" or path.is_dir():
        return jsonl.source(path)
    raise DataError(f"no data set {name!r}: give cogs, cfq, mini, a .jsonl file, or a folder with train.jsonl in it")


def data_folder(data: str | Path | None = None) -> Path:
    """Where corpora are: the folder given, else $LAGR_DATA, else the user's cache folder."""
    if data:
        return Path(data)
    if os.environ.get("LAGR_DATA"):
        return Path(os.environ["LAGR_DATA"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lagr"


def tokenize(text: str) -> tuple[str, ...]:
    """The words and punctuation marks of a sentence.

    >>> tokenize("Who married M1's editor?")
    ('Who', 'married', 'M1', "'s", 'editor', '?')
    """
    if "\0" in text:
        raise DataError("the sentence has a NUL byte in it; remove it")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise DataError("the sentence is not valid Unicode; convert it to UTF-8 first")
    return tuple(_token().findall(unicodedata.normalize("NFC", text)))


@cache
def _token() -> re.Pattern[str]:
    """A word may hold hyphens, dots, apostrophes and combining marks, but a possessive 's is a token of its own."""
    marks = "".join(chr(c) for c in range(0x300, 0x10000) if unicodedata.category(chr(c)) in ("Mn", "Mc"))
    letter = f"[\\w{re.escape(marks)}]"
    return re.compile(rf"'s(?!{letter})|{letter}+(?:[-.'’](?!s(?!{letter})){letter}+)*|[^\w\s]")


def read_text(path: Path) -> str:
    """The text of a data file, as UTF-8, or a DataError that says what to do."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}:{line} is not UTF-8; save the file as UTF-8, or convert it: iconv -f ENCODING -t UTF-8"
        ) from None
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from None
