"""`lagr bench serve --run RUN`: the service under load, with requests parsed together and each alone.

Two services run as processes of their own, and wrk (an asyncio client where there is no wrk) asks the one and the other
in turn: every connection sends a sentence, waits for its parse, and sends the next.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lagr import named, runs
from lagr.datasets import open_source
from lagr.errors import ConfigError, RunError
from lagr.serve.limits import Limits

CONNECTIONS = (1, 8, 32, 128)
SECONDS, ROUNDS = 4, 3
SENTENCES = 500
KINDS = {"batched": Limits().batch, "alone": 1}

WRK_SCRIPT = """
wrk.method, wrk.headers["Content-Type"] = "POST", "application/json"
local bodies, turn = {%s}, 0
request = function() turn = turn %% #bodies + 1; return wrk.format(nil, nil, nil, bodies[turn]) end
done = function(summary, latency)
  local e = summary.errors
  io.stderr:write(string.format('{"requests": %%d, "seconds": %%f, "p50_ms": %%f, "p99_ms": %%f, "errors": %%d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""


def bench_serve(run: str | None, known: Callable[[dict[str, Any]], None]) -> None:
    """Tells the result after each number of connections, with all that were measured until then."""
    if run is None:
        raise ConfigError("lagr bench serve needs a trained parser: give its folder with --run RUN")
    bodies = [json.dumps({"text": sentence}) for sentence in _sentences(runs.open_run(named.find(run)))]
    wrk = shutil.which("wrk")
    result: dict[str, Any] = {
        "what": "POST /parse of one sentence; cpu_ms: the service's own work for one; medians of the rounds",
        "run": Path(run).name,
        "client": "wrk" if wrk else "asyncio",
        "seconds": SECONDS,
        "rounds": ROUNDS,
        "batch": KINDS["batched"],
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),  # what else the machine was doing
        "rows": [],
    }
    with ExitStack() as stack, TemporaryDirectory() as folder:
        ports = {kind: stack.enter_context(_service(run, batch)) for kind, batch in KINDS.items()}
        script = wrk_script(bodies, Path(folder))
        for connections in CONNECTIONS:
            measured: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
            for turn in range(ROUNDS):
                for kind, port in sorted(ports.items(), reverse=bool(turn % 2)):  # neither is always the first
                    before = _processor_seconds(port)
                    found = (
                        _with_wrk(wrk, script, port, connections) if wrk else _with_asyncio(bodies, port, connections)
                    )
                    found["cpu_ms"] = 1000 * (_processor_seconds(port) - before) / found["requests"]
                    measured[kind].append(found)
            row: dict[str, Any] = {kind: _median(rounds) for kind, rounds in measured.items()}
            ratio = row["batched"]["requests_per_second"] / row["alone"]["requests_per_second"]
            result["rows"].append({"connections": connections, **row, "ratio": round(ratio, 2)})
            known(result)


def _sentences(folder: Path) -> list[str]:
    """What is asked: sentences of the run's own data."""
    d = runs.read_config(folder)[0].data
    source = open_source(d.name, None, d.partition, d.size, d.seed)
    split = next(split for split in ("test", "dev", "train") if split in source.splits)
    return [" ".join(example.tokens) for example in source.read(split)[:SENTENCES]]


@contextmanager
def _service(run: str, batch: int) -> Iterator[int]:
    command = [sys.executable, "-m", "lagr.cli", "serve", run, "--port", "0", "--max-batch", str(batch)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r":(\d+) \(", line)
        if not found:
            raise RunError(f"the service did not start: {line.strip()}")
        yield int(found[1])
    finally:
        process.terminate()
        process.communicate()


def _processor_seconds(port: int) -> float:
    """What the service has worked until now, which other work on the machine changes less than times."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        found = re.search(r"^process_cpu_seconds_total (\S+)$", answer.read().decode(), re.M)
    return float(found[1]) if found else float("nan")


def wrk_script(bodies: Sequence[str], folder: Path) -> Path:
    """What wrk sends, as a file of Lua. JSON of ASCII alone needs no more than a fence around it."""
    file = folder / "requests.lua"
    file.write_text(WRK_SCRIPT % ",".join(f"[==[{body}]==]" for body in bodies), encoding="ascii")
    return file


def _with_wrk(wrk: str, script: Path, port: int, connections: int) -> dict[str, float]:
    load = ["-t1", f"-c{connections}", f"-d{SECONDS}s", "--timeout", "15s"]
    address = f"http://127.0.0.1:{port}/parse"
    done = subprocess.run([wrk, *load, "-s", str(script), address], capture_output=True, text=True)
    try:
        found: dict[str, float] = json.loads(done.stderr)
    except ValueError:
        raise RunError(f"wrk failed: {(done.stderr or done.stdout).strip()[:200]}") from None
    return found


def _with_asyncio(bodies: Sequence[str], port: int, connections: int) -> dict[str, float]:
    """The same as wrk does, slower itself."""
    times: list[float] = []
    errors = 0

    async def client(number: int, end: float) -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            body = bodies[number % len(bodies)].encode()
            head = f"POST /parse HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            began = time.perf_counter()
            writer.write(head.encode() + b"\r\n\r\n" + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", answer)
            await reader.readexactly(int(length[1]) if length else 0)
            times.append(time.perf_counter() - began)
            errors += b" 200 " not in answer[:16]
            number += connections
        writer.close()

    async def clients() -> None:
        end = time.perf_counter() + SECONDS
        await asyncio.gather(*(client(number, end) for number in range(connections)))

    asyncio.run(clients())
    hundredths = statistics.quantiles(times, n=100)
    of_all = {"requests": len(times), "seconds": SECONDS, "errors": errors}
    return of_all | {"p50_ms": 1000 * hundredths[49], "p99_ms": 1000 * hundredths[98]}


def _median(rounds: list[dict[str, float]]) -> dict[str, float]:
    def middle(value: Callable[[dict[str, float]], float]) -> float:
        return round(statistics.median(map(value, rounds)), 2)

    return {
        "requests_per_second": middle(lambda one: one["requests"] / one["seconds"]),
        "p50_ms": middle(lambda one: one["p50_ms"]),
        "p99_ms": middle(lambda one: one["p99_ms"]),
        "cpu_ms": middle(lambda one: one["cpu_ms"]),
        "errors": sum(int(one["errors"]) for one in rounds),
    }


def line(result: dict[str, Any]) -> str:
    """The last row in words."""
    row = result["rows"][-1]
    ours, other = (
        f"{row[kind]['requests_per_second']:,.0f} a second, p99 {row[kind]['p99_ms']:.3g} ms" for kind in KINDS
    )
    return f"{row['ratio']:7.2f} ×   {row['connections']:>4} connections: {ours}, against {other} each alone"
