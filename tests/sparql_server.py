"""A SPARQL endpoint over HTTP in front of pyoxigraph, and endpoints that are ill in several ways."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyoxigraph

JSON = "application/sparql-results+json"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), urllib.parse.parse_qs(body.decode())))
        getattr(self, "on_" + self.path.strip("/").replace("-", "_"))()

    def on_sparql(self) -> None:
        _, _, fields = self.server.requests[-1]
        assert list(fields) == ["query"]
        try:
            found = self.server.store.query(fields["query"][0], use_default_graph_as_union=True)
        except SyntaxError as error:
            self.reply(400, "text/plain; charset=utf-8", f"bad query: {error.msg}\nsecond line".encode())
            return
        self.reply(200, JSON, found.serialize(format=pyoxigraph.QueryResultsFormat.JSON))

    def on_slow(self) -> None:
        self.server.stopping.wait(30)

    def on_drip(self) -> None:
        """A byte now and then, for ever: no single read takes long."""
        self.send_response(200)
        self.end_headers()
        self.drip()

    def on_drip_headers(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        self.drip()

    def drip(self) -> None:
        self.close_connection = True
        try:
            while not self.server.stopping.wait(0.05):
                self.wfile.write(b" ")
                self.wfile.flush()
        except OSError:
            pass

    def on_broken(self) -> None:
        self.reply(500, "text/html", b"<h1>Internal Server Error</h1>")

    def on_redirect(self) -> None:
        self.send_response(302)
        self.send_header("Location", "http://elsewhere.invalid/sparql")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def on_page(self) -> None:
        self.reply(200, "text/html; charset=utf-8", b"<!doctype html><title>Welcome</title>")

    def on_other_json(self) -> None:
        self.reply(200, "application/json", b'{"message": "hello"}')

    def on_other_binding(self) -> None:
        self.reply(200, JSON, json.dumps({"results": {"bindings": [{"y": {"type": "uri", "value": "z"}}]}}).encode())

    def on_huge(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        try:
            while True:
                self.wfile.write(b" " * (1 << 20))
        except OSError:
            pass

    def on_cut(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"boolean": true}')
        self.close_connection = True

    def on_rude(self) -> None:
        self.wfile.write(b"220 mail.example.org ESMTP\r\n")
        self.close_connection = True

    def reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, file: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.store = pyoxigraph.Store()
        self.store.bulk_load(path=file)
        self.requests: list[tuple[str, dict[str, str], dict[str, list[str]]]] = []
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(file: str) -> Iterator[Server]:
    with Server(file) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.stopping.set()
            server.shutdown()
            time.sleep(0)
