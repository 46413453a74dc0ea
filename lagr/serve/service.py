"""The service: POST /parse, /health, /info, /metrics, /openapi.json, and the page.

An answer is 200, or one line that says what is wrong: 413 too large, 422 not understood, 503 too busy.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from lagr import __version__, draw
from lagr.datasets import tokenize
from lagr.errors import ConfigError, LagrError
from lagr.parser import AnyParser, Parse
from lagr.serve import schema
from lagr.serve.batcher import Batcher, FullError
from lagr.serve.gate import Gate, GoneError, busy, problem
from lagr.serve.limits import Limits
from lagr.serve.metrics import GONE, Measured, Metrics

PAGE = Path(__file__).parent / "page"
MOST_DRAWN = 400  # edges; drawing more takes longer than parsing a whole batch
PROBLEMS: dict[int | str, dict[str, Any]] = {
    408: {"model": schema.Problem, "description": "The request took too long to arrive"},
    413: {"model": schema.Problem, "description": "Larger than the limits allow"},
    422: {"model": schema.Problem, "description": "Not understood"},
    503: {"model": schema.Problem, "description": "Too busy; the header Retry-After says when to come again"},
}
Result = TypeVar("Result")


@dataclass(frozen=True)
class Question:
    """A sentence to parse, and what to say of it."""

    tokens: tuple[str, ...]
    alternatives: int
    svg: bool


class Answer(NamedTuple):
    parse: Parse
    told: bytes  # what is said of it, as JSON


class TooLargeError(Exception):
    pass


def create_app(
    parser: AnyParser, limits: Limits | None = None, run: str = "a parser", examples: Sequence[str] = ()
) -> FastAPI:
    """The service of a parser. `app.state.info["can"]` lists what it can do; who adds an endpoint adds its name."""
    limits = limits or Limits()

    # Answers are written in the model's thread: those of long sentences would hold up the loop that serves everybody.
    def answer(questions: list[Question]) -> list[Answer]:
        most = max(question.alternatives for question in questions)
        parses = parser.parse_tokens([question.tokens for question in questions], alternatives=most)
        return [
            Answer(parse, as_json(_told(question, parse))) for question, parse in zip(questions, parses, strict=True)
        ]

    batcher: Batcher[Question, Answer] = Batcher(
        answer, limits.batch, limits.queue, lambda size, seconds: metrics.batch(size, seconds)
    )
    metrics = Metrics(lambda: batcher.waiting)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        await batcher.ask([Question(("?",), 0, False)])  # what is slow the first time is over before anybody waits
        yield
        await batcher.stop()

    app = FastAPI(
        title="lagr",
        version=__version__,
        description="Sentences to meaning graphs, and graphs to logical forms or queries.",
        docs_url=None,  # the usual pages of documentation load their scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(Gate, limits=limits)
    app.add_middleware(Measured, metrics=metrics, paths=lambda: {getattr(route, "path", "") for route in app.routes})
    app.state.info = {
        "run": run,
        "formalism": parser.formalism,
        "graph_layers": getattr(parser.model, "graph_layers", 1),
        "can": ["parse"],
        "examples": list(examples),
        "limits": asdict(limits),
    }
    app.state.batcher, app.state.limits = batcher, limits  # for whoever adds an endpoint
    _explain_errors(app, limits)
    _add_page(app)

    @app.post("/parse", response_model=schema.Parses, responses=PROBLEMS)
    async def parse(sentences: schema.Sentences, request: Request) -> Response:
        """What sentences mean: nodes, edges and the form, with probabilities."""
        questions = [
            Question(tokens, sentences.alternatives, sentences.svg) for tokens in tokens_of(sentences.given, limits)
        ]
        async with asyncio.timeout(limits.seconds):
            answers = await unless_gone(request, batcher.ask(questions))
        return Response(
            b'{"parses":[%s]}' % b",".join(answer.told for answer in answers), media_type="application/json"
        )

    @app.get("/health", response_model=schema.Health, responses={503: PROBLEMS[503]})
    async def health() -> Response:
        """Whether the service works: 503 where the model is stuck."""
        since = batcher.busy_since
        if since is not None and time.monotonic() - since > 3 * limits.seconds:
            return busy(f"the model has worked on one batch for {time.monotonic() - since:.0f} s")
        return JSONResponse({"status": "ok", "lagr": __version__, "waiting": batcher.waiting})

    @app.get("/info", response_model=schema.Info)
    async def info() -> Response:
        """What is served here, within which limits, and sentences to try."""
        return JSONResponse(app.state.info)

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def counts() -> Response:
        """Counts and times, in Prometheus' format."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return app


async def unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """The result of the work. When the client closes the connection first, the work is cancelled: GoneError."""
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise GoneError
        return doing.result()
    finally:
        doing.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def tokens_of(texts: Sequence[str], limits: Limits) -> list[tuple[str, ...]]:
    """The tokens of every sentence, each within the limits."""
    if len(texts) > limits.sentences:
        raise TooLargeError(f"{len(texts):,} sentences; at most {limits.sentences:,} are taken at once")
    found = []
    for number, text in enumerate(texts, start=1):
        which = f"sentence {number}" if len(texts) > 1 else "the sentence"
        if len(text) > limits.characters:
            raise TooLargeError(f"{which} has {len(text):,} characters; at most {limits.characters:,} are taken")
        tokens = tokenize(text)
        if len(tokens) > limits.tokens:
            raise TooLargeError(f"{which} has {len(tokens):,} tokens; at most {limits.tokens:,} are taken")
        if not tokens:
            raise LagrError(f"{which} is empty; give at least one word")
        found.append(tokens)
    return found


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _told(question: Question, parse: Parse) -> dict[str, Any]:
    """What is said of a parse: as much as was asked for."""
    told = parse.to_dict()
    told.pop("alternatives", None)  # others of the batch may have asked for more of them
    if question.alternatives and parse.alternatives is not None:
        told["alternatives"] = parse.alternatives.to_dict(question.alternatives)
    if question.svg:
        drawable = parse.graph is not None and parse.graph.slots is not None and len(parse.graph.edges) <= MOST_DRAWN
        told["svg"] = parse.draw("svg") if drawable else None
    return told


def _explain_errors(app: FastAPI, limits: Limits) -> None:
    """Every error as one line in JSON. What went wrong inside is for the log, not for the client."""

    @app.exception_handler(LagrError)
    async def not_understood(request: Request, error: LagrError) -> Response:
        return problem(422, str(error))

    @app.exception_handler(ConfigError)
    async def out_of_memory(request: Request, error: ConfigError) -> Response:
        return busy(str(error))

    @app.exception_handler(TooLargeError)
    async def too_large(request: Request, error: TooLargeError) -> Response:
        return problem(413, str(error))

    @app.exception_handler(FullError)
    async def full(request: Request, error: FullError) -> Response:
        return busy(f"{limits.queue:,} sentences wait already; try again in a moment")

    @app.exception_handler(TimeoutError)
    async def too_slow(request: Request, error: TimeoutError) -> Response:
        return busy(f"no answer within {limits.seconds:g} s; try again, or send less at a time")

    @app.exception_handler(GoneError)
    async def gone(request: Request, error: GoneError) -> Response:
        return Response(status_code=GONE)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return problem(422, _first_error(error))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400:  # of JSON that is too deep, or has a number with thousands of digits
            return problem(422, "the body is JSON that can't be read")
        if error.status_code == 404:
            return problem(404, "there is nothing here; /openapi.json says what there is")
        return problem(error.status_code, error.detail, dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return problem(500, "this failed inside the service; its log says why")


def _first_error(error: RequestValidationError) -> str:
    """The first thing that is wrong with a body, and where."""
    if isinstance(error.body, bytes):
        return "send the body as JSON, with the header Content-Type: application/json"
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return f"the body is no JSON: {first['ctx']['error']} (character {first['loc'][-1]})"
    if first["type"] == "missing" and len(first["loc"]) == 1:
        return "the body is empty; send JSON"
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"][1:])[1:]
    said = first["msg"].removeprefix("Value error, ")
    return f"{where}: {said[0].lower()}{said[1:]}" if where else said


def _add_page(app: FastAPI) -> None:
    files = {f"/{path.name}": path.read_bytes() for path in sorted(PAGE.iterdir())}
    # The drawing's own style sheet, which the page may not have inside of it.
    files["/drawing.css"] = draw.style().encode()
    files["/"] = files.pop("/page.html")

    def serve(path: str, content: bytes) -> None:
        kind = mimetypes.guess_type(path)[0] if path != "/" else "text/html"

        @app.get(path, include_in_schema=False)
        async def file() -> Response:
            return Response(content, media_type=kind)

    for path, content in files.items():
        serve(path, content)
