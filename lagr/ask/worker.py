"""The process that holds a store and answers queries, one a line, so that a query without end can be killed.

    worker.py PATH           PATH: a file of triples, which is read, or the folder of a store, which is opened read-only
    stdin   {"query": "…", "timeout": 5.0}
    stdout  {"triples": 812} once it is open; {"results": {…}}, as SPARQL has them in JSON, or {"error": "…"} a query

It is run as a script and imports nothing of lagr: it starts in a tenth of a second.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pyoxigraph

GRACE = 2.0  # seconds after its time that a query ends itself, if whoever asked is gone


def open_store(path: Path) -> pyoxigraph.Store:
    """ValueError, with what is wrong, where there is none."""
    if path.is_dir():
        if not (path / "CURRENT").is_file():
            raise ValueError(f"{path} is no store of pyoxigraph; give the folder of one, or a file of triples")
        return pyoxigraph.Store.read_only(str(path))
    kind = pyoxigraph.RdfFormat.from_extension(path.suffix.removeprefix("."))
    if kind is None:
        raise ValueError(f"{path} has no ending of a file of triples: .ttl, .nt or .nq")
    store = pyoxigraph.Store()
    try:
        store.bulk_load(path=str(path), format=kind)
    except SyntaxError as error:
        raise ValueError(f"{path} is no {kind.name}: {error.msg}") from None
    return store


def answer(store: pyoxigraph.Store, query: str) -> Any:
    found = store.query(query, use_default_graph_as_union=True)
    assert not isinstance(found, pyoxigraph.QueryTriples)
    return json.loads(found.serialize(format=pyoxigraph.QueryResultsFormat.JSON) or b"")


def end_after(seconds: float) -> None:
    """SIGALRM ends the process, wherever it is; 0 takes that back."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def main(path: str) -> None:
    def say(message: Any) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    try:
        store = open_store(Path(path))
        say({"triples": len(store)})
    except (ValueError, OSError) as error:
        say({"error": str(error)})
        return
    for line in sys.stdin:
        request = json.loads(line)
        end_after(request["timeout"] + GRACE)
        try:
            reply = {"results": answer(store, request["query"])}
        except (ValueError, SyntaxError, OSError) as error:
            reply = {"error": f"the store refused the query: {error}"}
        end_after(0)
        say(reply)


if __name__ == "__main__":
    main(sys.argv[1])
