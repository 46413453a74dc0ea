"""Downloads from a real server on this machine, which answers ranges, breaks off and disappears."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from lagr.datasets import fetch
from lagr.errors import DataError

CONTENT = bytes(range(256)) * 4000
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()


class Server(BaseHTTPRequestHandler):
    break_after: ClassVar[int | None] = None
    ranges: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.ranges.append(asked)
        if self.path != "/file":
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        end = len(CONTENT) if self.break_after is None else start + self.break_after
        self.wfile.write(CONTENT[start:end])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.break_after, Server.ranges = None, []
    running = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    thread.join()
    running.server_close()


def test_a_file_is_downloaded_once_and_verified(server: str, tmp_path: Path) -> None:
    remote, target = fetch.Remote(f"{server}/file", "a", CHECKSUM), tmp_path / "deep" / "a"
    fetch.download(remote, target)
    fetch.download(remote, target)
    assert target.read_bytes() == CONTENT and Server.ranges == [None]


def test_a_broken_download_goes_on_where_it_stopped(server: str, tmp_path: Path) -> None:
    remote, target = fetch.Remote(f"{server}/file", "a", CHECKSUM), tmp_path / "a"
    Server.break_after = 300_000
    with pytest.raises(DataError, match="can't be reached"):
        fetch.download(remote, target)
    assert not target.exists()
    Server.break_after = None
    fetch.download(remote, target)
    assert target.read_bytes() == CONTENT and Server.ranges == [None, "bytes=300000-"]


def test_a_download_that_was_whole_but_never_verified_is_kept(server: str, tmp_path: Path) -> None:
    (tmp_path / "a.partial").write_bytes(CONTENT)
    fetch.download(fetch.Remote(f"{server}/file", "a", CHECKSUM), tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_another_file_than_expected_is_not_kept(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="checksum differs"):
        fetch.download(fetch.Remote(f"{server}/file", "a", "0" * 64), tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_and_a_missing_network_are_said_plainly(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="answered 404"):
        fetch.download(fetch.Remote(f"{server}/other", "a", CHECKSUM), tmp_path / "a")
    with pytest.raises(DataError, match="no network"):
        fetch.download(fetch.Remote("http://127.0.0.1:9/file", "a", CHECKSUM), tmp_path / "a")


def test_every_home_has_a_checksum() -> None:
    for remotes in fetch.HOMES.values():
        assert all(len(remote.sha256) == 64 and remote.url.startswith("https://") for remote in remotes)
