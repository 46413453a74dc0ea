"""Processes that share files: who is at work on what, on one machine or on several that see the same folder."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lagr.errors import RunError


def this_process() -> str:
    return f"{platform.node()} {os.getpid()}"


def is_gone(process: str) -> bool:
    """Whether a process of this machine has ended; of other machines that is not known."""
    machine, _, number = process.rpartition(" ")
    if machine != platform.node() or not number.isdigit():
        return False
    with suppress(PermissionError):  # it is somebody else's, and alive
        try:
            os.kill(int(number), 0)
        except ProcessLookupError:
            return True
    return False


@contextmanager
def at_work_on(folder: Path) -> Iterator[None]:
    """A run folder has one process that trains into it. Its name stands beside the folder while it does."""
    folder = folder.resolve()
    note = folder.with_name(f".{folder.name}.process")
    try:
        mine = _take(note)
    except OSError:  # nobody may write beside the folder, so nobody is kept from it either
        mine = False
    else:
        if not mine and (other := _holder(note)) != this_process():  # who holds it already may take it again
            machine, _, number = other.rpartition(" ")
            raise RunError(
                f"{folder} is being trained by process {number} on {machine}; wait for it, or give another --out. "
                f"If there is no such process, remove {note}"
            )
    try:
        yield
    finally:
        if mine and _holder(note) == this_process():
            note.unlink(missing_ok=True)


def _take(note: Path) -> bool:
    """Writes this process' name, unless another one that may be alive has: whether it did."""
    note.parent.mkdir(parents=True, exist_ok=True)
    if is_gone(_holder(note)):
        note.unlink(missing_ok=True)
    try:
        with note.open("x", encoding="utf-8") as file:  # of several processes one succeeds
            file.write(this_process())
    except FileExistsError:
        return False
    return True


def _holder(note: Path) -> str:
    return note.read_text(encoding="utf-8") if note.is_file() else ""
