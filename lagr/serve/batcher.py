"""Many requests, one model: what waits is answered together.

While the model works on a batch, questions gather; the next batch takes what has come. So a lone question waits for
nothing, and under load batches grow by themselves. The model runs in one thread of its own, and the loop that talks to
clients is never held up by it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class FullError(Exception):
    """More questions wait than may."""


class Batcher(Generic[Question, Answer]):
    """answer: the answers to some questions, in their order. measured: told of every batch its size and its seconds."""

    def __init__(
        self,
        answer: Callable[[list[Question]], list[Answer]],
        batch: int,
        queue: int,
        measured: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self.answer, self.batch, self.queue, self.measured = answer, batch, queue, measured
        self.busy_since: float | None = None
        self._waiting: OrderedDict[asyncio.Future[Answer], Question] = OrderedDict()
        self._some_wait = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Ends when the batch that is being worked on is done; what still waits is cancelled."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        for future in list(self._waiting):
            future.cancel()
        await asyncio.to_thread(self._thread.shutdown)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers to the questions of a request. Whoever stops waiting for them (is cancelled) takes them back."""
        if len(self._waiting) + len(questions) > self.queue:
            raise FullError
        loop = asyncio.get_running_loop()
        futures = []
        for question in questions:
            future: asyncio.Future[Answer] = loop.create_future()
            self._waiting[future] = question
            future.add_done_callback(self._forget)
            futures.append(future)
        self._some_wait.set()
        return await asyncio.gather(*futures)

    def _forget(self, future: asyncio.Future[Answer]) -> None:
        self._waiting.pop(future, None)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._some_wait.wait()
            batch = [self._waiting.popitem(last=False) for _ in range(min(self.batch, len(self._waiting)))]
            if not batch:
                self._some_wait.clear()
                continue
            self.busy_since = began = time.monotonic()
            answers = await loop.run_in_executor(self._thread, self._answers, [question for _, question in batch])
            self.busy_since = None
            self.measured(len(batch), time.monotonic() - began)
            for (future, _), answer in zip(batch, answers, strict=True):
                if future.done():  # nobody waits for it any more
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    def _answers(self, questions: list[Question]) -> Sequence[Answer | Exception]:
        """If a batch fails, each question is tried alone, so that one which can't be answered spoils no other."""
        try:
            return self.answer(questions)
        except Exception as error:
            return [error] if len(questions) == 1 else [self._answers([question])[0] for question in questions]
