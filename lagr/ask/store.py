"""Where triples are: a file or a folder on this machine, held by pyoxigraph, or a SPARQL endpoint by its URL.

Both take a query and a time limit, and give the results as SPARQL has them in JSON. Nothing here can write.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import queue
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, Protocol, Self, TypeVar

from lagr import __version__
from lagr.errors import StoreError, StoreTimeoutError

MOST_BYTES = 16 << 20  # of an endpoint's answer
BLOCK = 1 << 16
OPENING = 3600.0  # seconds in which a file of triples must be read
RESULTS = "application/sparql-results+json"
WORKER = Path(__file__).parent / "worker.py"
Found = TypeVar("Found")


class Store(Protocol):
    where: str

    def query(self, query: str, timeout: float) -> Any:
        """The results of a query as JSON. StoreTimeoutError after `timeout` seconds."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_store(where: str, processes: int = 1) -> Store:
    """The endpoint, if it is a URL; else the file or the folder. processes: queries that run at once."""
    if "://" in where:
        return Endpoint(where)
    return Embedded(where, processes)


class Embedded:
    """A file of triples, or the folder of a pyoxigraph store, in processes of its own."""

    def __init__(self, where: str, processes: int = 1) -> None:
        self.where = where
        if not Path(where).exists():
            raise StoreError(f"there is no store {where}: give a file of triples, a folder or a URL")
        if importlib.util.find_spec("pyoxigraph") is None:
            raise StoreError("a store on this machine needs pyoxigraph: pip install 'lagr[ask]'")
        self._idle: queue.Queue[_Process] = queue.Queue()
        self._all = [_Process(where) for _ in range(processes)]
        try:
            for process in self._all:
                process.wait_until_open(OPENING)
                self._idle.put(process)
        except BaseException:
            self.close()
            raise

    def query(self, query: str, timeout: float) -> Any:
        began = time.monotonic()
        try:
            process = self._idle.get(timeout=timeout)
        except queue.Empty:
            raise StoreTimeoutError(f"{self.where} was busy for {timeout:g} s with other queries") from None
        try:
            return process.query(query, timeout, waited=time.monotonic() - began)
        finally:
            self._idle.put(process)

    def close(self) -> None:
        for process in self._all:
            process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Process:
    """One process with the store in it. A query without end is ended with it, and the next one gets another."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._closed = False
        self._start()

    def _start(self) -> None:
        # -P: a file named json.py in the current folder is no part of this.
        command = [sys.executable, "-P", str(WORKER), self._where]
        self._popen = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
        )
        self._replies: queue.Queue[str] = queue.Queue()
        self._open = False
        self._reader = threading.Thread(target=_read_lines, args=(self._popen.stdout, self._replies), daemon=True)
        self._reader.start()

    def wait_until_open(self, seconds: float) -> None:
        try:
            if not self._open:
                self._reply(seconds)
                self._open = True
        except queue.Empty:
            raise StoreTimeoutError(f"{self._where} was not read after {seconds:g} s; ask again later") from None

    def query(self, query: str, timeout: float, waited: float) -> Any:
        """The results. A query that must wait for the store to be read again has all its time after that."""
        if self._closed:
            raise StoreError(f"{self._where} is closed")
        if self._popen.poll() is not None:
            self._end()
            self._start()
        self.wait_until_open(timeout)
        try:
            assert self._popen.stdin is not None
            self._popen.stdin.write(json.dumps({"query": query, "timeout": timeout}) + "\n")
            self._popen.stdin.flush()
            return self._reply(max(0.0, timeout - waited))["results"]
        except queue.Empty:
            self._end()
            if not self._closed:
                self._start()  # while nobody waits for it
            raise StoreTimeoutError(f"{self._where} did not answer in {timeout:g} s; the query was ended") from None
        except BrokenPipeError:
            raise StoreError(f"the process that holds {self._where} is gone; ask again") from None

    def _reply(self, seconds: float) -> Any:
        line = self._replies.get(timeout=seconds)
        if not line:
            self._end()
            status = self._popen.returncode
            raise StoreError(f"the process that holds {self._where} ended (status {status}): is there enough memory?")
        reply = json.loads(line)
        if "error" in reply:
            raise StoreError(reply["error"])
        return reply

    def stop(self) -> None:
        self._closed = True
        self._end()

    def _end(self) -> None:
        self._popen.kill()
        self._popen.wait()
        self._reader.join()
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):  # what was not read any more
            self._popen.stdin.close()


def _read_lines(pipe: IO[str], lines: queue.Queue[str]) -> None:
    """Every line as it comes, then the empty string."""
    with pipe:
        for line in pipe:
            lines.put(line)
    lines.put("")


class Endpoint:
    """A SPARQL endpoint. It gets queries only (`query=`), never updates."""

    def __init__(self, where: str) -> None:
        try:
            url = urllib.parse.urlsplit(where)
            host, port = url.hostname, url.port
        except ValueError as error:
            raise StoreError(f"{where!r} is no URL: {error}") from None
        if url.scheme not in ("http", "https") or not host:
            raise StoreError(f"{where!r} is no URL of an endpoint: it begins with http:// or https://")
        # A name and a password go into a header, and into no message.
        bare = f"[{host}]" if ":" in host else host
        self.where = urllib.parse.urlunsplit(url._replace(netloc=bare + (f":{port}" if port else ""), fragment=""))
        self._headers = {"Accept": RESULTS, "User-Agent": f"lagr/{__version__}"}
        if url.username is not None:
            user = f"{urllib.parse.unquote(url.username)}:{urllib.parse.unquote(url.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()

    def query(self, query: str, timeout: float) -> Any:
        until = time.monotonic() + timeout
        try:
            content, text = _within(timeout, lambda: self._receive(query, until))
        except (OSError, HTTPException) as error:  # a TimeoutError is an OSError, and may be inside of another
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                raise StoreTimeoutError(f"{self.where} did not answer in {timeout:g} s") from None
            said = " ".join(str(reason).split()) or type(reason).__name__
            raise StoreError(f"{self.where} can't be reached: {said}") from None
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            kind = f"with {content}, " if content else ""
            raise StoreError(
                f"{self.where} answered {kind}not with SPARQL results in JSON; is it an endpoint?"
            ) from None

    def close(self) -> None:
        pass  # every query has a connection of its own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self, query: str, until: float) -> tuple[str, bytes]:
        body = urllib.parse.urlencode({"query": query}).encode()
        request = urllib.request.Request(self.where, body, self._headers)
        try:
            answer = urllib.request.build_opener(_NoRedirect).open(request, timeout=until - time.monotonic())
        except urllib.error.HTTPError as error:
            with error:
                raise StoreError(f"{self.where} answered {error.code} {error.reason}{_said(error)}") from None
        with answer:
            received = bytearray()
            while block := answer.read1(BLOCK):
                received += block
                if len(received) > MOST_BYTES:
                    raise StoreError(f"{self.where} answered with more than {MOST_BYTES >> 20} MiB; ask for less")
                if time.monotonic() > until:
                    raise TimeoutError
            missing = answer.length  # of what was announced
            if missing:
                raise ConnectionError(f"the connection ended {missing:,} bytes early")
            return answer.headers.get_content_type(), bytes(received)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An endpoint that moved may have moved anywhere, so its user decides."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        fp.close()
        raise StoreError(f"{req.full_url} redirects to {newurl}; give that URL if you trust it")


def _said(error: urllib.error.HTTPError) -> str:
    """The first line of what the endpoint says about its error, if it is text."""
    if error.headers.get_content_type() != "text/plain":
        return ""
    line = error.read(2000).decode("utf-8", "replace").strip().split("\n")[0][:200]
    return f": {line}" if line and line.isprintable() else ""


def _within(seconds: float, work: Callable[[], Found]) -> Found:
    """What `work` returns, or TimeoutError after so many seconds.

    Sockets have a time limit for every read alone; one that sends a byte now and then would never reach it.
    """
    future: Future[Found] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result(timeout=seconds)
