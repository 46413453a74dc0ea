"""What things are called: a table of names and IRIs, and the names in a question.

The table is TSV with a header, or a JSON object a line:

    name<TAB>iri                                        {"name": "Alien", "iri": "http://example.org/alien"}
    Alien<TAB>http://example.org/alien

Other columns are ignored. A thing may have several names: the first is the one that answers are given with. A name may
belong to several things: the first is taken, and the answer says so and how to ask about another.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lagr.ask.query import check_iri
from lagr.datasets import read_text, tokenize
from lagr.errors import DataError

Key = tuple[str, ...]
Index = dict[Key, dict[str, str]]  # the tokens of a name → the things of that name: IRI → the name as it is written
LOOKED_AT = 20_000  # names that are compared with a misspelt one, at most


@dataclass(frozen=True)
class Mention:
    """A name in a question: tokens `start` to `end`."""

    start: int
    end: int
    name: str
    iri: str
    others: tuple[str, ...] = ()  # further IRIs of that name


@dataclass(frozen=True)
class Names:
    """Names and the IRIs they stand for, in the order of the table."""

    rows: tuple[tuple[str, str], ...] = ()
    where: str = "no table of names"

    def name_of(self, iri: str) -> str | None:
        return self._first_name.get(iri)

    def find(self, tokens: Sequence[str], is_word: Callable[[str], bool] = lambda token: False) -> list[Mention]:
        """The names in a question, in their order: the longest first where they overlap, letter for letter first.

        is_word: whether the parser knows the token. So `star` is no film of that name in other letters, nor is the
        `What` with which a question begins.
        """
        found: list[Mention] = []
        free = [True] * len(tokens)
        for size in range(min(self._longest, len(tokens)), 0, -1):
            for folded in (False, True):
                table = self._folded if folded else self._exact
                for start in range(len(tokens) - size + 1):
                    words = tuple(tokens[start : start + size])
                    things = table.get(_fold(words) if folded else words)
                    ordinary = (folded or start == 0) and all(map(is_word, words))
                    if things and not ordinary and all(free[start : start + size]):
                        (iri, name), *others = things.items()
                        found.append(Mention(start, start + size, name, iri, tuple(iri for iri, _ in others)))
                        free[start : start + size] = [False] * size
        return sorted(found, key=lambda mention: mention.start)

    def nearest(self, text: str) -> str | None:
        """The name that is spelt most like the text."""
        begin = text[:1].casefold()
        alike = [name for name, _ in self.rows if name[:1].casefold() == begin][:LOOKED_AT]
        return next(iter(difflib.get_close_matches(text, alike, 1, cutoff=0.75)), None)

    @cached_property
    def _first_name(self) -> dict[str, str]:
        return {iri: name for name, iri in reversed(self.rows)}

    @cached_property
    def _exact(self) -> Index:
        return _index(self.rows, words_of)

    @cached_property
    def _folded(self) -> Index:
        return _index(self.rows, lambda name: _fold(words_of(name)))

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._exact), default=0)


def words_of(text: str) -> Key:
    """The tokens of a name or a question, with one kind of apostrophe."""
    return tokenize(text.replace("’", "'"))


def _fold(words: Iterable[str]) -> Key:
    return tuple(word.casefold() for word in words)


def _index(rows: Iterable[tuple[str, str]], key: Callable[[str], Key]) -> Index:
    index: Index = {}
    for name, iri in rows:
        index.setdefault(key(name), {}).setdefault(iri, name)
    return index


def read_names(path: str | Path) -> Names:
    """The table of a .tsv or .jsonl file. DataError names the line that is wrong."""
    path = Path(path)
    lines = [(number, line) for number, line in enumerate(read_text(path).split("\n"), start=1) if line.strip()]
    read = _from_json if path.suffix == ".jsonl" else _from_tsv
    rows = []
    for number, name, iri in read(path, lines):
        try:
            if not words_of(name):
                raise DataError("the name is empty")
            rows.append((" ".join(name.split()), check_iri(iri)))
        except DataError as error:
            raise DataError(f"{path}:{number}: {error}") from None
    if not rows:
        raise DataError(f"{path} has no names; it should have a name and an iri in every line")
    return Names(tuple(rows), str(path))


def _from_tsv(path: Path, lines: list[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    header = lines[0][1].rstrip("\r").split("\t") if lines else []
    if not {"name", "iri"} <= set(header):
        raise DataError(f"{path}:1 should be a header with the columns name and iri, and tabs between them")
    name, iri = header.index("name"), header.index("iri")
    for number, line in lines[1:]:
        cells = line.rstrip("\r").split("\t")
        if len(cells) <= max(name, iri):
            raise DataError(f"{path}:{number} has {len(cells)} columns; the header has {len(header)}")
        yield number, cells[name], cells[iri].strip()


def _from_json(path: Path, lines: list[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    for number, line in lines:
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}:{number} is no JSON: {error}") from None
        match row:
            case {"name": str(name), "iri": str(iri)}:
                yield number, name, iri
            case _:
                raise DataError(f'{path}:{number} should be {{"name": "…", "iri": "…"}}')
