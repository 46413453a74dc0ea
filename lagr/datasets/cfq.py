"""CFQ from its official archive, packed or unpacked. Home: storage of the Google Research CFQ release, CC-BY-4.0.

The archive holds `cfq/dataset.json`, a list of examples, and `cfq/splits/NAME.json` with the positions of each
part in that list: mcd1, mcd2, mcd3, random_split, and others. `partition` names one of them.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from lagr.datasets import Example, Source
from lagr.errors import DataError, LagrError
from lagr.forms import sparql

QUESTION, QUERY = "questionPatternModEntities", "sparqlPatternModEntities"


def source(folder: Path, partition: str) -> Source:
    archive = _find(folder)
    parts = _partition(archive, partition)

    def rows(split: str) -> Iterator[Example | DataError]:
        everything = _dataset(archive)
        for position in range(len(everything)) if partition == "all" else parts[f"{split}Idxs"]:
            yield _example(everything, position, archive)

    splits = ("all",) if partition == "all" else tuple(s for s in ("train", "dev", "test") if f"{s}Idxs" in parts)
    return Source(f"cfq {partition}", splits, rows, "sparql")


def _find(folder: Path) -> Path:
    """The folder that holds dataset.json, or the archive that holds it."""
    for unpacked in (folder, folder / "cfq"):
        if (unpacked / "dataset.json").is_file():
            return unpacked
    archives = sorted(folder.glob("*.tar.gz"))
    if not archives:
        raise DataError(
            f"there is no CFQ archive in {folder}; run `lagr data fetch cfq` or give its folder with --data"
        )
    return archives[0]


def _partition(archive: Path, name: str) -> dict[str, list[int]]:
    if name == "all":
        return {}
    parts: dict[str, list[int]] = _json(archive, f"splits/{name}.json")
    lists = parts.values() if isinstance(parts, dict) and "trainIdxs" in parts else [None]
    if not all(isinstance(part, list) and all(isinstance(i, int) and i >= 0 for i in part) for part in lists):
        raise DataError(f"splits/{name}.json in {archive} has no lists of positions: trainIdxs, devIdxs, testIdxs")
    return parts


@cache
def _dataset(archive: Path) -> list[dict[str, str]]:
    rows = _json(archive, "dataset.json")
    if not isinstance(rows, list):
        raise DataError(f"dataset.json in {archive} is no list of examples")
    return rows


def _json(archive: Path, member: str) -> Any:
    try:
        if archive.is_dir():
            with (archive / member).open(encoding="utf-8") as file:
                return json.load(file)
        with tarfile.open(archive) as packed:
            names = {name.removeprefix("./").removeprefix("cfq/"): name for name in packed.getnames()}
            if member not in names:
                known = sorted(n.removeprefix("splits/")[:-5] for n in names if n.startswith("splits/"))
                raise DataError(f"{archive} has no {member}; its splits are {', '.join(known)}")
            stream = packed.extractfile(names[member])
            assert stream is not None
            return json.load(stream)
    except FileNotFoundError:
        known = sorted(path.stem for path in archive.glob("splits/*.json"))
        raise DataError(f"{archive} has no {member}; its splits are {', '.join(known)}") from None
    except (json.JSONDecodeError, tarfile.TarError, EOFError, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{member} in {archive} can't be read ({error}); fetch the archive again") from None


def _example(rows: list[dict[str, str]], position: int, archive: Path) -> Example | DataError:
    try:
        tokens, query = tuple(rows[position][QUESTION].split(" ")), rows[position][QUERY]
        return Example(tokens, sparql.read(query), query)
    except (IndexError, KeyError, TypeError, AttributeError):
        return DataError(f"example {position} of {archive} is missing, or has no {QUESTION} and {QUERY}")
    except LagrError as error:
        return DataError(f"example {position} of {archive}: {error}")
