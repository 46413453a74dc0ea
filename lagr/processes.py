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
    note = folder.with_name(f".{folder.name}.process")
    other = note.read_text(encoding="utf-8") if note.is_file() else ""
    if other == this_process():
        yield
        return
    if other and not is_gone(other):
        machine, _, number = other.rpartition(" ")
        raise RunError(
            f"{folder} is being trained by process {number} on {machine}; wait for it, or give another --out. "
            f"If there is no such process, remove {note}"
        )
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(this_process(), encoding="utf-8")
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
