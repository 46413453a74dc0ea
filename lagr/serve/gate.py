"""What stands between the network and the service: bodies come in whole and small, and every answer goes out with
headers that let the page load nothing but its own files."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lagr.serve.limits import Limits

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
# How often the limit is read and thrown away before the connection is closed. A client that is still sending when it
# is closed may never see the answer that says why.
DRAINED = 16


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An answer that says in one line what is wrong. It may hold words of the request, which may be no text at all."""
    line = " ".join(detail.encode("utf-8", "replace").decode().split())
    return JSONResponse({"detail": line if len(line) <= 300 else line[:299] + "…"}, status, headers)


def busy(detail: str) -> JSONResponse:
    return problem(503, detail, {"retry-after": "1"})


class GoneError(Exception):
    """The client has closed the connection."""


class Gate:
    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self.headers]
            await send(message)

        if scope["type"] != "http":
            await self.app(scope, receive, send)
        elif scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send_with_headers)
        else:
            read = await self._read(scope, receive)
            if isinstance(read, JSONResponse):
                await read(scope, receive, send_with_headers)
            elif read is not None:
                await self.app(scope, _first(read, receive), send_with_headers)

    headers = tuple((name.encode(), value.encode()) for name, value in HEADERS.items())

    async def _read(self, scope: Scope, receive: Receive) -> bytes | JSONResponse | None:
        """The body, or the answer to a client whose body won't do; None for one that has gone."""
        most = self.limits.body
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if int(declared if declared.isdigit() else 0) > DRAINED * most:
            return self._too_large()
        body, size = bytearray(), 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size <= most:
                        body += chunk
                    if size > DRAINED * most or not message.get("more_body", False):
                        break
        except TimeoutError:
            return problem(408, f"the request did not arrive within {self.limits.seconds:g} s", {"connection": "close"})
        if size > most:
            return self._too_large()
        try:
            body.decode()
        except UnicodeDecodeError as error:
            return problem(422, f"the request is not UTF-8 (byte {error.start}); convert it first")
        return bytes(body)

    def _too_large(self) -> JSONResponse:
        most = f"{self.limits.body:,}"
        return problem(413, f"the request is larger than {most} bytes; send less at a time", {"connection": "close"})


def _first(body: bytes, receive: Receive) -> Receive:
    """`receive` after the whole body, which it gives first."""
    waiting = [body]

    async def receive_body_first() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return receive_body_first


def hurried(seconds: float) -> type[HttpToolsProtocol]:
    """uvicorn's protocol, which closes a connection whose client takes longer than that to send a request's head."""

    class Hurried(HttpToolsProtocol):
        head: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.wait_for_head()

        def on_message_begin(self) -> None:
            self.wait_for_head()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self.stop_waiting()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self.stop_waiting()
            super().connection_lost(exc)

        def wait_for_head(self) -> None:
            self.stop_waiting()
            self.head = self.loop.call_later(seconds, self.transport.close)

        def stop_waiting(self) -> None:
            if self.head is not None:
                self.head.cancel()

    return Hurried
