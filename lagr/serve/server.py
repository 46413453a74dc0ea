"""Runs the service until it is told to stop; then the requests it has are answered first."""

from __future__ import annotations

import gc
import math
import signal
import socket
import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from lagr.config import Config
from lagr.datasets import Example, open_source
from lagr.errors import LagrError, RunError
from lagr.serve.gate import hurried
from lagr.serve.limits import Limits

EXAMPLES, MOST_EXAMPLES, LONGEST_EXAMPLE = "examples.txt", 6, 70
BACKLOG = 2048


def run(app: FastAPI, host: str, port: int, limits: Limits) -> None:
    """Serves the app there. SIGTERM and Ctrl-C stop it when the requests that are under way have been answered."""
    _allow_many_connections()
    listening = _listen(host, port)
    config = uvicorn.Config(
        app,
        http=hurried(limits.seconds),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=math.ceil(limits.seconds) + 1,
    )
    # uvicorn hands the signal on when it has stopped. There is nothing left to do then, and nothing went wrong.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    # What is there by now stays. The garbage collector need not look at it again, which stops everything for a while.
    gc.collect()
    gc.freeze()
    name, port = listening.getsockname()[:2]
    print(f"lagr: http://{f'[{name}]' if ':' in name else name}:{port} (Ctrl-C stops)", file=sys.stderr, flush=True)
    uvicorn.Server(config).run(sockets=[listening])
    gc.unfreeze()  # else libraries complain, at the end, of what they take for leaks


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"can't listen on {host}:{port}: {reason}; give another --host or --port") from None


def _allow_many_connections() -> None:
    """Each connection is an open file, and the usual limit is a thousand."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard > 0 else soft, hard))


def examples_of(folder: Path, config: Config, data: str | None = None) -> list[str]:
    """Sentences to try: those of examples.txt in the run folder, else a few that the parser wasn't trained on."""
    file = folder / EXAMPLES
    if file.is_file():
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()][:MOST_EXAMPLES]
    with suppress(LagrError):  # the data is not at hand
        d = config.data
        source = open_source(d.name, data, d.partition, d.size, d.seed)
        split = next(split for split in ("dev", "test", "train") if split in source.splits)
        rows: Any = (row for row in source.rows(split) if isinstance(row, Example))
        sentences = (" ".join(row.tokens) for row in islice(rows, 200))
        return list(islice((text for text in dict.fromkeys(sentences) if len(text) <= LONGEST_EXAMPLE), MOST_EXAMPLES))
    return []
