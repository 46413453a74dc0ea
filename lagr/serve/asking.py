"""POST /ask: questions answered from a store of triples, parsed together with all other sentences.

Beside the service's errors: 502 where the store can't be asked, 504 where it takes too long.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from fastapi import FastAPI, Request, Response

from lagr.ask import Answerer, film_questions
from lagr.ask.question import Question as Understood
from lagr.errors import ConfigError, LagrError, StoreError, StoreTimeoutError
from lagr.serve import schema
from lagr.serve.gate import busy, problem
from lagr.serve.service import PROBLEMS, Answer, Question, as_json, tokens_of, unless_gone

PROCESSES = 2  # that hold a store of this machine
AT_ONCE, MOST_WAITING = 8, 256  # questions that are at the store, and that may be anywhere
ASK_PROBLEMS: dict[int | str, dict[str, Any]] = PROBLEMS | {
    502: {"model": schema.Problem, "description": "The store can't be asked"},
    504: {"model": schema.Problem, "description": "The store takes too long"},
}
log = logging.getLogger("lagr")


def add_ask(app: FastAPI, answerer: Answerer) -> None:
    """Adds POST /ask to the service that `create_app` made of the same parser."""
    limits, batcher = app.state.limits, app.state.batcher
    if answerer.timeout >= limits.seconds:
        raise ConfigError(
            f"--timeout {answerer.timeout:g}: a query may take less than --max-seconds {limits.seconds:g}; change one"
        )
    threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="store")
    waiting = 0
    app.state.info["can"].append("ask")

    def at_the_store(question: Understood, answers: list[Answer]) -> bytes:
        found = answerer.answer(question, [answer.parse for answer in answers])
        told = next(answer.told for answer in answers if answer.parse is found.parse)
        return as_json(found.to_dict())[:-1] + b',"parse":' + told + b"}"

    async def answer(asked: schema.Question) -> bytes:
        nonlocal waiting
        waiting += 1
        try:
            tokens_of([asked.text], limits)  # says what is too large, or nothing
            loop = asyncio.get_running_loop()
            question = await loop.run_in_executor(threads, answerer.understand, asked.text)
            wordings = [Question(wording.tokens, asked.alternatives, asked.svg) for wording in question.wordings]
            answers = await batcher.ask(wordings)
            return await loop.run_in_executor(threads, at_the_store, question, answers)
        finally:
            waiting -= 1

    @app.post("/ask", response_model=schema.Answered, responses=ASK_PROBLEMS)
    async def ask(question: schema.Question, request: Request) -> Response:
        """The answer to a question, with how it was understood."""
        if waiting >= MOST_WAITING:
            return busy(f"{MOST_WAITING:,} questions wait already; try again in a moment")
        async with asyncio.timeout(limits.seconds):
            answered = await unless_gone(request, answer(question))
        return Response(answered, media_type="application/json")

    # Which store it is, and where, is for the log.
    @app.exception_handler(StoreTimeoutError)
    async def too_slow(request: Request, error: StoreTimeoutError) -> Response:
        log.warning("%s", error)
        return problem(504, f"the store did not answer in {answerer.timeout:g} s; ask for less, or try again")

    @app.exception_handler(StoreError)
    async def unreachable(request: Request, error: StoreError) -> Response:
        log.warning("%s", error)
        return problem(502, "the store can't be asked just now; the service's log says why")


def film_examples(answerer: Answerer) -> list[str]:
    """Questions about the films in words that the parser knows, of every sort first."""

    def is_known(question: str) -> bool:
        with suppress(LagrError):
            return not answerer.understand(question).notes
        return False

    sorts: dict[str, list[str]] = {}
    for question in filter(is_known, film_questions()):
        sorts.setdefault(question.split()[0], []).append(question)
    return [question for some in zip_longest(*sorts.values()) for question in some if question]
