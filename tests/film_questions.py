"""Questions about films with their queries, from a few templates: enough to train a small parser in seconds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

# base form, past form, from the person to the film, from the film to the person
VERBS = (
    ("direct", "directed", "ns:film.director.film", "ns:film.film.directed_by"),
    ("write", "wrote", "ns:film.writer.film", "ns:film.film.written_by"),
    ("edit", "edited", "ns:film.editor.film", "ns:film.film.edited_by"),
    ("produce", "produced", "ns:film.producer.film|ns:film.production_company.films", "ns:film.film.produced_by|ns:film.film.production_companies"),
    ("executive produce", "executive produced", "ns:film.producer.films_executive_produced", "ns:film.film.executive_produced_by"),
)  # fmt: skip
ONLY_PEOPLE = (
    ("influenced", "ns:influence.influence_node.influenced"), ("played", "ns:film.actor.film/ns:film.performance.character"),
)  # fmt: skip
PARTICIPLES = {"wrote": "written"}
KINDS = (
    ("Who", "ns:people.person"), ("Which film director", "ns:film.director"), ("Which film editor", "ns:film.editor"),
)  # fmt: skip
NUMBERINGS = (("M0", "M1"), ("M1", "M0"), ("M1", "M2"))


def query(head: str, *clauses: str) -> str:
    ordered = sorted(clauses)
    return "\n".join([head, *(f"{clause} ." for clause in ordered[:-1]), ordered[-1], "}"])


def yes_no(*clauses: str) -> str:
    return query("SELECT count(*) WHERE {", *clauses)


def select(kind: str, *clauses: str) -> str:
    return query("SELECT DISTINCT ?x0 WHERE {", f"?x0 a {kind}", *clauses)


def pairs() -> Iterator[tuple[str, str]]:
    for base, past, there, back in VERBS:
        done = PARTICIPLES.get(past, past)
        for a, b in NUMBERINGS:
            yield f"Did {a} {base} {b}", yes_no(f"{a} {there} {b}")
            yield f"Was {a} {done} by {b}", yes_no(f"{a} {back} {b}")
            for word, kind in KINDS:
                yield f"{word} {past} {a}", select(kind, f"?x0 {there} {a}")
                yield f"{word} {past} {a} 's sequel", select(kind, f"?x0 {there} ?x1", f"?x1 ns:film.film.prequel {a}")
            yield f"What film did {a} {base}", select("ns:film.film", f"?x0 {back} {a}")
            yield f"What film was {done} by {a}", select("ns:film.film", f"?x0 {back} {a}")
    for past, there in ONLY_PEOPLE:
        for word, kind in KINDS:
            for name, _ in NUMBERINGS:
                yield f"{word} {past} {name}", select(kind, f"?x0 {there} {name}")
    for one, other in permutations(VERBS, 2):
        done = [PARTICIPLES.get(verb[1], verb[1]) for verb in (one, other)]
        for a, b in NUMBERINGS:
            yield f"Did {a} {one[0]} and {other[0]} {b}", yes_no(f"{a} {one[2]} {b}", f"{a} {other[2]} {b}")
            yield f"Was {a} {done[0]} and {done[1]} by {b}", yes_no(f"{a} {one[3]} {b}", f"{a} {other[3]} {b}")
            for word, kind in KINDS:
                asked = select(kind, f"?x0 {one[2]} {a}", f"?x0 {other[2]} {a}")
                yield f"{word} {one[1]} and {other[1]} {a}", asked
            asked = select("ns:film.film", f"?x0 {one[3]} {a}", f"?x0 {other[3]} {a}")
            yield f"What film was {done[0]} and {done[1]} by {a}", asked


def write(folder: Path) -> Path:
    """train.jsonl in a folder, which is a data set then."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ({"text": text, "form": form, "formalism": "sparql"} for text, form in dict.fromkeys(pairs()))
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[1]))
