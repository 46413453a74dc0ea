"""Downloads COGS and CFQ from their homes, verified by checksum, and goes on where an earlier download stopped."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lagr.errors import DataError

BLOCK = 1 << 20
TIMEOUT = 30.0


@dataclass(frozen=True)
class Remote:
    url: str
    path: str  # below the data folder
    sha256: str


# The paper's edition of gen.tsv: at this commit, before 50 of its rows were corrected on 2022-09-13.
_COGS = "https://raw.githubusercontent.com/najoungkim/COGS/86c9be5929c3b86b510afdfe56a4df9d5d341ab9/data"

HOMES: dict[str, tuple[Remote, ...]] = {
    "cogs": tuple(
        Remote(f"{_COGS}/{name}.tsv", f"cogs/{name}.tsv", sha256)
        for name, sha256 in (
            ("train", "220b3804b562c0156ee986eff1bdd15c27e52142549362a64f57baf86e304c78"),
            ("dev", "ab66388a309c7ac1ad210c781a6a0ce12281a9ef24619a12422a752cef61bc21"),
            ("test", "68f8e51e9f6d9cd22d64efe68dd21d7ea5ba327e9a2359481030161aea757035"),
            ("gen", "410369d993e7cf3af9bb75835a77b1a332b56e60985a8bf1e7d75c30e91d4828"),
        )
    ),
    # Release 1.0; two public catalogues of data sets record this checksum.
    "cfq": (
        Remote(
            "https://storage.googleapis.com/cfq_dataset/cfq.tar.gz",
            "cfq/cfq.tar.gz",
            "979d719271eae12611643b89151f639d94092800e7e71f2d23a754c43f3eb1ba",
        ),
    ),
}


def fetch(name: str, folder: Path, say: Callable[[str], None] = lambda line: None) -> None:
    for remote in HOMES[name]:
        download(remote, folder / remote.path, say)


def download(remote: Remote, target: Path, say: Callable[[str], None] = lambda line: None) -> None:
    """The file, whole and verified, at its place; a partial download stays beside it for the next try."""
    if target.is_file() and checksum(target) == remote.sha256:
        say(f"{target} is already there")
        return
    partial = target.with_name(target.name + ".partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _receive(remote.url, partial, say)
    except urllib.error.HTTPError as error:
        raise DataError(f"{remote.url} answered {error.code} {error.reason}; nothing was changed") from None
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise DataError(
            f"{remote.url} can't be reached ({reason}): there is no network, or its host is down. "
            f"Try again later, or download it elsewhere and put it at {target}"
        ) from None
    except OSError as error:
        raise DataError(f"{partial} can't be written: {error.strerror}") from None
    if checksum(partial) != remote.sha256:
        partial.unlink()
        raise DataError(f"{remote.url} is not the file it should be: its checksum differs; it was deleted")
    partial.replace(target)
    say(f"{target}: {target.stat().st_size:,} bytes, checksum right")


def _receive(url: str, partial: Path, say: Callable[[str], None]) -> None:
    have = partial.stat().st_size if partial.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send
            return
        raise
    with answer:
        resumed = have > 0 and answer.status == 206
        have = have if resumed else 0
        total = have + int(answer.headers.get("Content-Length") or 0)
        say(f"{url}: {total:,} bytes" + (f", going on after {have:,}" if resumed else ""))
        with partial.open("ab" if resumed else "wb") as file:
            said = have
            while block := answer.read(BLOCK):
                file.write(block)
                have += len(block)
                if have - said >= 16 * BLOCK:
                    said = have
                    say(f"  {have:,} of {total:,} bytes")
    if total and have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
