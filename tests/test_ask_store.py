"""Stores answer in time or are given up, whatever they are: files, folders, endpoints, and what is none of them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pyoxigraph = pytest.importorskip("pyoxigraph", reason="needs pyoxigraph: pip install 'lagr[ask]'")

from sparql_server import Server, serving  # noqa: E402

from lagr.ask import film_graph, open_store  # noqa: E402
from lagr.ask.query import standard  # noqa: E402
from lagr.ask.store import WORKER, Embedded, Endpoint  # noqa: E402
from lagr.errors import StoreError, StoreTimeoutError  # noqa: E402
from lagr.forms import sparql  # noqa: E402

FILE, _ = film_graph()
NS, HERE = "http://rdf.freebase.com/ns/", "http://example.org/films/"
WHO_DIRECTED_ALIEN = f"SELECT DISTINCT ?x0 WHERE {{ ?x0 <{NS}film.director.film> <{HERE}alien> . }} LIMIT 11"
# A query of the fragment: every combination of a director and eight people, which takes longer than anyone lives.
ENDLESS = standard(
    "\n".join([sparql.SELECT, "?x0 a ns:film.director .", *(f"?x{n} a ns:people.person ." for n in range(1, 8)), "?x8 a ns:people.person", "}"]),
    {}, 101,
)  # fmt: skip


def values(results: object) -> list[str]:
    assert isinstance(results, dict)
    return [row["x0"]["value"].removeprefix(HERE) for row in results["results"]["bindings"]]


@pytest.fixture(scope="module")
def films() -> Iterator[Embedded]:
    with Embedded(FILE) as store:
        yield store


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(FILE) as running:
        yield running


def test_a_file_answers(films: Embedded) -> None:
    assert values(films.query(WHO_DIRECTED_ALIEN, 10)) == ["ridley-scott"]


@pytest.mark.parametrize("ending", ["nt", "nq", "ttl", "trig"])
def test_every_format_answers_the_same_also_from_named_graphs(tmp_path: Path, ending: str) -> None:
    store, file = pyoxigraph.Store(), tmp_path / f"films.{ending}"
    named = ending in ("nq", "trig")
    store.bulk_load(path=FILE, to_graph=pyoxigraph.NamedNode("http://example.org/graph") if named else None)
    graph = None if named else pyoxigraph.DefaultGraph()
    store.dump(str(file), pyoxigraph.RdfFormat.from_extension(ending), from_graph=graph)
    with open_store(str(file)) as opened:
        assert values(opened.query(WHO_DIRECTED_ALIEN, 10)) == ["ridley-scott"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("store") / "films")
    store = pyoxigraph.Store(path)
    store.bulk_load(path=FILE)
    store.optimize()
    del store
    return path


def test_a_folder_answers_and_stays_as_it_was(folder: str) -> None:
    with open_store(folder, processes=2) as store:
        assert values(store.query(WHO_DIRECTED_ALIEN, 10)) == ["ridley-scott"]
        with pytest.raises(StoreError, match="refused the query"):
            store.query("INSERT DATA { <http://a/> <http://b/> <http://c/> }", 10)
    assert len(pyoxigraph.Store.read_only(folder)) == len(list(pyoxigraph.parse(path=FILE)))


def test_a_query_without_end_is_ended_and_the_next_one_answered(films: Embedded) -> None:
    before = time.monotonic()
    with pytest.raises(StoreTimeoutError, match=r"did not answer in 0\.5 s"):
        films.query(ENDLESS, 0.5)
    assert time.monotonic() - before < 5
    assert values(films.query(WHO_DIRECTED_ALIEN, 10)) == ["ridley-scott"]


def test_whoever_waits_for_a_busy_store_waits_no_longer_than_asked() -> None:
    with Embedded(FILE) as store:

        def keep_busy() -> None:
            with pytest.raises(StoreTimeoutError):
                store.query(ENDLESS, 1)

        busy = threading.Thread(target=keep_busy)
        busy.start()
        time.sleep(0.2)
        with pytest.raises(StoreTimeoutError, match=r"was busy for 0\.3 s"):
            store.query(WHO_DIRECTED_ALIEN, 0.3)
        busy.join()
        assert values(store.query(WHO_DIRECTED_ALIEN, 10)) == ["ridley-scott"]


def test_many_threads_get_their_own_answers() -> None:
    people = ["ridley-scott", "james-cameron", "kathryn-bigelow", "stanley-kubrick", "nobody"] * 8
    answers: dict[int, list[str]] = {}
    with Embedded(FILE, processes=2) as store:

        def ask(number: int, person: str) -> None:
            query = f"SELECT DISTINCT ?x0 WHERE {{ ?x0 <{NS}film.film.directed_by> <{HERE}{person}> . }}"
            answers[number] = sorted(values(store.query(query, 30)))

        threads = [threading.Thread(target=ask, args=item) for item in enumerate(people)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answers) == len(people)
    for number, person in enumerate(people):
        assert answers[number] == answers[people.index(person)]
    assert answers[0] == ["alien", "blade-runner", "gladiator", "thelma-louise"] and answers[4] == []


def test_a_process_that_was_killed_is_replaced(films: Embedded) -> None:
    films._all[0]._popen.kill()
    films._all[0]._popen.wait()
    assert values(films.query(WHO_DIRECTED_ALIEN, 10)) == ["ridley-scott"]


def test_a_store_that_is_being_read_again_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a file that takes longer to read than a query may take would be read for ever."""
    slow = tmp_path / "slow.py"
    slow.write_text(
        f"import pathlib, runpy, sys, time\nonce = pathlib.Path({str(tmp_path / 'once')!r})\n"
        f"time.sleep(0.8 if once.exists() else 0)\nonce.touch()\nrunpy.run_path({str(WORKER)!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr("lagr.ask.store.WORKER", slow)
    with Embedded(FILE) as store:
        with pytest.raises(StoreTimeoutError, match="the query was ended"):
            store.query(ENDLESS, 0.3)
        with pytest.raises(StoreTimeoutError, match=r"was not read after 0\.3 s"):
            store.query(WHO_DIRECTED_ALIEN, 0.3)
        for _ in range(50):
            try:
                assert values(store.query(WHO_DIRECTED_ALIEN, 0.3)) == ["ridley-scott"]
                break
            except StoreTimeoutError:
                continue
        else:
            pytest.fail("it never answers again")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="SIGALRM is for Unix")
def test_a_query_ends_even_when_nobody_is_left_to_end_it() -> None:
    worker = subprocess.Popen([sys.executable, str(WORKER), FILE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with worker:
        assert worker.stdin is not None
        worker.stdin.write(json.dumps({"query": ENDLESS, "timeout": -1.8}).encode() + b"\n")
        worker.stdin.flush()
        assert worker.wait(10) < 0


def test_a_store_that_was_closed_says_so() -> None:
    store = Embedded(FILE)
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.query(WHO_DIRECTED_ALIEN, 1)


def test_what_is_no_store_says_so(tmp_path: Path) -> None:
    (tmp_path / "page.ttl").write_text("<!doctype html><title>Not found</title>")
    (tmp_path / "bytes.nt").write_bytes(b"\xff\xfe\0\0")
    (tmp_path / "good-then-bad.nq").write_text(
        "<http://a/> <http://b/> <http://c/> .\n\n<http://a/> <http://b/> oops .\n"
    )
    (tmp_path / "table.csv").write_text("a,b\n")
    (tmp_path / "empty").mkdir()
    for name, message in {
        "page.ttl": "is no Turtle: Parser error at line 1",
        "bytes.nt": "is no N-Triples: Parser error at line 1",
        "good-then-bad.nq": "is no N-Quads: Parser error at line 3",
        "table.csv": "has no ending of a file of triples",
        "empty": "is no store of pyoxigraph",
        "nothing.ttl": "there is no store",
    }.items():
        with pytest.raises(StoreError) as raised:
            open_store(str(tmp_path / name))
        assert message in str(raised.value) and "\n" not in str(raised.value)


def test_a_query_that_is_none_is_refused(films: Embedded) -> None:
    with pytest.raises(StoreError, match="the store refused the query"):
        films.query("SELECT WHERE", 10)


def test_without_pyoxigraph_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StoreError, match=r"pip install 'lagr\[ask\]'"):
        open_store(FILE)


def test_an_endpoint_answers_as_the_file_does(server: Server, films: Embedded) -> None:
    with open_store(f"{server.url}/sparql") as endpoint:
        for query in (WHO_DIRECTED_ALIEN, f"ASK WHERE {{ <{HERE}alien> a <{NS}film.film> . }}"):
            assert endpoint.query(query, 10) == films.query(query, 10)
    assert server.requests[-1][1]["Accept"] == "application/sparql-results+json"


@pytest.mark.parametrize(
    "path, message",
    [
        ("broken", "answered 500 Internal Server Error"),
        ("redirect", "redirects to http://elsewhere.invalid/sparql; give that URL if you trust it"),
        ("page", "answered with text/html, not with SPARQL results in JSON"),
        ("cut", "the connection ended 983 bytes early"),
        ("rude", "can't be reached"),
        ("huge", "answered with more than 16 MiB"),
    ],
)
def test_an_endpoint_that_is_ill_gives_one_line(server: Server, path: str, message: str) -> None:
    with pytest.raises(StoreError) as raised:
        Endpoint(f"{server.url}/{path}").query(WHO_DIRECTED_ALIEN, 10)
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert not isinstance(raised.value, StoreTimeoutError)


@pytest.mark.parametrize("path", ["slow", "drip", "drip-headers"])
def test_an_endpoint_that_is_slow_is_given_up_in_time(server: Server, path: str) -> None:
    before = time.monotonic()
    with pytest.raises(StoreTimeoutError, match=r"did not answer in 0\.4 s"):
        Endpoint(f"{server.url}/{path}").query(WHO_DIRECTED_ALIEN, 0.4)
    assert time.monotonic() - before < 5


def test_what_an_endpoint_says_of_a_bad_query_is_passed_on(server: Server) -> None:
    with pytest.raises(StoreError, match=r"answered 400 Bad Request: bad query: [^\n]+$"):
        Endpoint(f"{server.url}/sparql").query("SELECT WHERE", 10)


def test_an_endpoint_that_is_not_there_says_so() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(StoreError, match=r"can't be reached: .*refused"):
        Endpoint(f"http://127.0.0.1:{port}/sparql").query(WHO_DIRECTED_ALIEN, 5)
    with pytest.raises(StoreError, match="can't be reached"):
        Endpoint("http://nowhere.invalid/sparql").query(WHO_DIRECTED_ALIEN, 5)


@pytest.mark.parametrize(
    "url", ["ftp://example.org/x", "file:///etc/passwd", "http://", "http://a:b/", "http://[::1/", "data://x"]
)
def test_only_the_web_is_asked(url: str) -> None:
    with pytest.raises(StoreError, match="is no URL"):
        open_store(url)


def test_a_password_is_sent_and_never_said(server: Server) -> None:
    url = server.url.replace("://", "://ann:s%40cret@")
    Endpoint(f"{url}/sparql").query(WHO_DIRECTED_ALIEN, 10)
    assert server.requests[-1][1]["Authorization"] == "Basic YW5uOnNAY3JldA=="
    endpoint = Endpoint(f"{url}/broken")
    with pytest.raises(StoreError) as raised:
        endpoint.query(WHO_DIRECTED_ALIEN, 10)
    assert "cret" not in str(raised.value) + endpoint.where


INI = """[Database]
DatabaseFile = virtuoso.db
ErrorLogFile = virtuoso.log
LockFile = virtuoso.lck
TransactionFile = virtuoso.trx
xa_persistent_file = virtuoso.pxa
[TempDatabase]
DatabaseFile = temp.db
TransactionFile = temp.trx
[Parameters]
ServerPort = 127.0.0.1:{port}
DirsAllowed = .
NumberOfBuffers = 2000
[HTTPServer]
ServerPort = 127.0.0.1:{http}
"""


@pytest.fixture(scope="module")
def virtuoso(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Virtuoso that has the films."""
    if not (shutil.which("virtuoso-t") and shutil.which("isql-vt")):
        pytest.skip("needs Virtuoso: apt-get install virtuoso-opensource")
    folder = tmp_path_factory.mktemp("virtuoso")
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    (folder / "virtuoso.ini").write_text(INI.format(port=ports[0], http=ports[1]))
    shutil.copy(FILE, folder / "films.ttl")
    command = ["virtuoso-t", "+foreground", "+configfile", "virtuoso.ini"]
    running = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        load = "ttlp(file_to_string_output('films.ttl'), '', 'http://example.org/graph');"
        for _ in range(150):
            client = ["isql-vt", f"127.0.0.1:{ports[0]}", "dba", "dba", f"exec={load}"]
            if "Done." in subprocess.run(client, capture_output=True, text=True).stdout:
                break
            time.sleep(0.2)
        else:
            pytest.fail("Virtuoso did not start in 30 s")
        yield f"http://127.0.0.1:{ports[1]}/sparql"
    finally:
        running.kill()
        running.wait()


def test_virtuoso_gives_the_films_answers(virtuoso: str) -> None:
    from test_ask import QUESTIONS, answers_of_queries

    assert len(QUESTIONS) >= 10
    with open_store(virtuoso) as store:
        assert answers_of_queries(store) == [row["answer"] for row in QUESTIONS]
