"""The service as a process of its own, with clients that behave badly: many, slow, gone, talking nonsense."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lagr
from lagr import bench_serve
from lagr.datasets import Source

pytest.importorskip("fastapi", reason="needs the extra lagr[serve]")
pytest.importorskip("schemathesis", reason="needs schemathesis, which makes requests from OpenAPI")
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import one_of

from lagr.serve.server import _allow_many_connections

SECONDS = 2.0  # what a client has to send its request
HEAVY: dict[str, Any] = {"texts": ["The walrus painted a lantern " * 20 + "."] * 48, "alternatives": 5}


@pytest.fixture(scope="module")
def service(small_run: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    limits = ("--max-seconds", str(SECONDS), "--max-batch", "4")
    command = [sys.executable, "-m", "lagr.cli", "serve", str(small_run), "--port", "0", *limits]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+) ", process.stderr.readline())
        assert found, "it says where it listens"
        request(int(found[1]), "GET", "/health")  # waits until it answers
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def port(service: tuple[subprocess.Popen[str], int]) -> Iterator[int]:
    yield service[1]
    assert service[0].poll() is None, "it still runs after that"


def request(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if answer.headers["Content-Type"] == "application/json" else content


def raw(body: Any) -> bytes:
    content = json.dumps(body).encode()
    return (
        b"POST /parse HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(content)
        + content
    )


def test_a_thousand_clients_at_once_get_each_their_own_answer(port: int, small_run: Path, mini: Source) -> None:
    _allow_many_connections()
    sentences = [" ".join(example.tokens) for split in ("train", "dev", "test") for example in mini.read(split)]
    sentences = [f"{first} {second}" for first in sentences[:40] for second in sentences[40:65]]
    parser = lagr.load(small_run)

    async def client(sentence: str) -> tuple[int, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw({"text": sentence}))  # at once: who waits is sent away, and a busy machine makes a wait long
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length
        body = await reader.readexactly(int(length[1]))
        writer.close()
        return int(head.split()[1]), json.loads(body)

    async def all_clients() -> list[tuple[int, Any]]:
        return await asyncio.gather(*map(client, sentences))

    answers = asyncio.run(all_clients())
    assert len(answers) == 1000 and {status for status, _ in answers} <= {200, 503}
    right = [
        (answer["parses"][0], parse)
        for (status, answer), parse in zip(answers, parser.parse(sentences), strict=True)
        if status == 200
    ]
    assert len(right) > 100, "most of them, on any machine"
    for told, parse in right:
        assert (tuple(told["tokens"]), told["form"]) == (parse.tokens, parse.form)
        assert [node["label"] for node in told["nodes"]] == [node.label for node in parse.nodes]
    assert request(port, "POST", "/parse", {"text": "Ida sang ."})[0] == 200


def test_what_clients_asked_who_left_is_dropped(port: int) -> None:
    for _ in range(15):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(raw(HEAVY))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a killed process: a reset
        client.close()
    half = socket.create_connection(("127.0.0.1", port))
    half.sendall(raw(HEAVY)[:500])
    half.close()
    while request(port, "GET", "/health")[1]["waiting"]:
        time.sleep(0.01)
    assert request(port, "POST", "/parse", {"text": "Ida sang ."})[0] == 200
    metrics = request(port, "GET", "/metrics")[1].decode()
    gone = re.search(r'lagr_requests_total\{path="/parse",status="499"\} (\d+)', metrics)
    assert gone and int(gone[1]) >= 10


def test_slow_clients_hold_up_nobody_and_are_sent_away(port: int) -> None:
    began = time.monotonic()
    head, body, silent = (socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(3))
    head.sendall(b"POST /parse HT")
    body.sendall(raw(HEAVY)[:300])
    assert request(port, "POST", "/parse", {"text": "Ida sang ."})[0] == 200 and time.monotonic() - began < SECONDS
    assert head.recv(1000) == b"" and silent.recv(1000) == b""
    answer = b"".join(iter(lambda: body.recv(10_000), b""))
    assert answer.startswith(b"HTTP/1.1 408") and b"did not arrive within 2 s" in answer
    assert SECONDS / 2 < time.monotonic() - began < SECONDS + 5
    for client in (head, body, silent):
        client.close()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"\0" * 5000,
        b"POST /parse HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused(port: int, nonsense: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(nonsense)
        assert client.recv(1000)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 422", b"")
    assert request(port, "GET", "/health")[0] == 200


def test_whatever_is_sent_the_answer_is_one_that_openapi_names(port: int) -> None:
    """A few requests; `make fuzz` sends thousands."""
    operation = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")["/parse"]["POST"]
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)

    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes)))
    def send(case: Any) -> None:
        case.call_and_validate()

    send()


@pytest.mark.parametrize("client", ["asyncio", "wrk"])
def test_the_load_tests_clients_count_what_the_service_counts(
    port: int, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [json.dumps({"text": text}) for text in ("Ida sang .", "Oskar said “[[it]]” .")]
    monkeypatch.setattr(bench_serve, "SECONDS", 1)
    before = answered(port)
    if client == "asyncio":
        found = bench_serve._with_asyncio(bodies, port, 4)
    elif wrk := shutil.which("wrk"):
        found = bench_serve._with_wrk(wrk, bench_serve.wrk_script(bodies, tmp_path), port, 4)
    else:
        pytest.skip("needs wrk: apt-get install wrk")
    assert found["errors"] == 0 and 0 < found["p50_ms"] <= found["p99_ms"] <= 1500
    assert 0 <= answered(port) - before - found["requests"] <= 4, "those that were under way at the end"


def answered(port: int) -> int:
    count = re.search(rb'lagr_requests_total\{path="/parse",status="200"\} (\d+)', request(port, "GET", "/metrics")[1])
    return int(count[1]) if count else 0


# The last test: it stops the service.
def test_told_to_stop_it_answers_what_it_was_asked_first(service: tuple[subprocess.Popen[str], int]) -> None:
    process, port = service
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    six_batches = {"texts": HEAVY["texts"][:24]}
    client.request("POST", "/parse", json.dumps(six_batches), {"Content-Type": "application/json"})
    while not request(port, "GET", "/health")[1]["waiting"]:
        assert not select.select([client.sock], [], [], 0)[0], "it is answered already"
    process.send_signal(signal.SIGTERM)
    answer = client.getresponse()
    assert answer.status == 200 and len(json.loads(answer.read())["parses"]) == 24
    client.close()
    assert process.wait(10) == 0
    assert process.stderr is not None and "Traceback" not in process.stderr.read()
