"""Progress on stderr: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

PLAIN_EVERY = 10.0  # seconds between two plain lines


class Progress:
    """Step, loss, sentences a second and the time that is left."""

    def __init__(self, steps: int) -> None:
        self.steps, self.title = steps, ""
        self._bar = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[detail]}"),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True))

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=self.steps, detail="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, step: int, title: str, steps: int = 0, aside: bool = False) -> None:
        """steps: of what begins, if others than before. aside: not worth a plain line unless it takes long."""
        self.title, self._first, self._from, self._aside = title, step, time.monotonic(), aside
        self.steps, self._last_plain = steps or self.steps, self._from if aside else 0.0
        if self._bar is not None:
            self._bar.update(self._task, completed=step, total=self.steps, description=title, detail="")

    def update(self, step: int, loss: float | None = None, batch: int = 1) -> None:
        now = time.monotonic()
        rate = (step - self._first) / max(1e-9, now - self._from)
        trained = "" if loss is None else f"step {step}/{self.steps}  loss {loss:.4g}  "
        detail = f"{trained}{rate * batch:,.0f} sentences/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=step, detail=detail)
        elif now - self._last_plain >= PLAIN_EVERY or (step == self.steps and not self._aside):
            self._last_plain = now
            self.say(f"{self.title}  {detail}  {duration((self.steps - step) / max(rate, 1e-9))} left")

    def say(self, line: str) -> None:
        if self._bar is not None:
            self._bar.console.print(line, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(3725)
    '1 h 2 min'
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
