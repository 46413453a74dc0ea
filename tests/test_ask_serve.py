"""POST /ask: right, each request its own, and one line where the store fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyoxigraph", reason="needs pyoxigraph: pip install 'lagr[ask]'")
pytest.importorskip("fastapi", reason="needs the extra lagr[serve]")
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sparql_server import serving

import lagr
from lagr.ask import Answerer, film_graph, open_store
from lagr.ask.store import Embedded
from lagr.cli import main
from lagr.errors import ConfigError
from lagr.parser import Parser
from lagr.serve import asking
from lagr.serve.asking import add_ask, film_examples
from lagr.serve.limits import Limits
from lagr.serve.service import create_app

FILE, NAMES = film_graph()


@pytest.fixture(scope="module")
def parser(film_run: Path) -> Parser:
    parser = lagr.load(film_run)
    assert isinstance(parser, Parser)
    return parser


@pytest.fixture(scope="module")
def answerer(parser: Parser) -> Iterator[Answerer]:
    with Embedded(FILE, processes=2) as store:
        yield Answerer(parser, store, NAMES)


def service(answerer: Answerer, limits: Limits | None = None) -> FastAPI:
    assert isinstance(answerer.parser, Parser)
    app = create_app(answerer.parser, limits, "films", film_examples(answerer)[:6])
    add_ask(app, answerer)
    return app


@pytest.fixture(scope="module")
def client(answerer: Answerer) -> Iterator[TestClient]:
    with TestClient(service(answerer), raise_server_exceptions=False) as client:
        yield client


def post(client: TestClient, **body: Any) -> Any:
    return client.post("/ask", json=body)


def test_the_service_answers_as_the_answerer_does(client: TestClient, answerer: Answerer) -> None:
    examples = client.get("/info").json()["examples"]
    assert len({question.split()[0] for question in examples}) >= 4 and "ask" in client.get("/info").json()["can"]
    for question in examples:
        told = post(client, text=question).json()
        expected = answerer.ask(question).to_dict()
        assert told["probability"] == pytest.approx(expected.pop("probability"), rel=1e-3)
        assert {key: told[key] for key in expected} == expected
        assert told["parse"]["form"] == told["query"] and "svg" not in told["parse"]
    told = post(client, text=examples[0], svg=True, alternatives=2).json()["parse"]
    assert told["svg"].startswith("<svg") and len(told["alternatives"]["slots"][0]) == 2


def test_nobody_gets_the_answer_to_anothers_question(client: TestClient, answerer: Answerer) -> None:
    questions = [f"Who {verb} {film}?" for verb in ("directed", "edited", "wrote") for film in ("Alien", "Aliens", "Titanic", "Gladiator")] * 4  # fmt: skip
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda question: post(client, text=question).json(), questions))
    for question, answer in zip(questions, answers, strict=True):
        assert answer["question"] == question
        assert [term["name"] for term in answer["answer"]] == answerer.ask(question).lines()


@pytest.mark.parametrize(
    "body, status, detail",
    [
        ({}, 422, "text: field required"),
        ({"text": ""}, 422, "the sentence is empty"),
        ({"text": "?"}, 422, "the question is empty"),
        ({"text": 3}, 422, "text: input should be a valid string"),
        ({"text": "a", "store": "http://elsewhere/"}, 422, "store: extra inputs are not permitted"),
        ({"text": "Did Ridly Scott direct Alien"}, 422, "did you mean “Ridley Scott”?"),
        ({"text": "Who directed M0"}, 422, "M0 stands for nothing"),
        ({"text": "Who directed \0"}, 422, "NUL"),
        ({"text": "Who " * 1000}, 413, "4,000 characters; at most 2,000"),
        ({"text": "? " * 500}, 413, "500 tokens; at most 128"),
        ({"text": "x" * 1_000_000}, 413, "larger than"),
    ],
)
def test_a_question_that_cannot_be_answered_gets_one_line(
    client: TestClient, body: dict[str, Any], status: int, detail: str
) -> None:
    answer = post(client, **body)
    assert answer.status_code == status and detail in answer.json()["detail"] and "\n" not in answer.json()["detail"]
    assert post(client, text="Who directed Alien?").status_code == 200


def test_a_store_that_fails_fails_its_question_alone_and_stays_unnamed(parser: Parser) -> None:
    with serving(FILE) as server:
        for path, status, detail in (
            ("broken", 502, "the store can't be asked just now"),
            ("redirect", 502, "the store can't be asked just now"),
            ("page", 502, "the store can't be asked just now"),
            ("slow", 504, "the store did not answer in 0.3 s"),
            ("drip", 504, "the store did not answer in 0.3 s"),
        ):
            ill = Answerer(parser, open_store(f"{server.url}/{path}"), NAMES, timeout=0.3 if status == 504 else 5)
            with TestClient(service(ill), raise_server_exceptions=False) as client:
                answer = post(client, text="Who directed Alien?")
                assert answer.status_code == status and detail in answer.json()["detail"]
                assert "127.0.0.1" not in answer.text
                assert client.post("/parse", json={"text": "Who directed M0"}).status_code == 200


def test_too_many_questions_are_told_to_come_again(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_WAITING", 0)
    answer = post(client, text="Who directed Alien?")
    assert answer.status_code == 503 and answer.headers["retry-after"] and "questions wait" in answer.json()["detail"]
    monkeypatch.undo()
    assert post(client, text="Who directed Alien?").status_code == 200


def test_a_query_must_be_over_before_the_request_is(answerer: Answerer) -> None:
    with pytest.raises(ConfigError, match=r"--timeout 5: a query may take less than --max-seconds 2"):
        service(answerer, Limits(seconds=2))


def test_a_store_that_is_none_is_said_before_the_service_starts(
    film_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(film_run), "--store", "nothing.ttl", "--port", "0"]) == 1
    assert "there is no store nothing.ttl" in capsys.readouterr().err


def test_the_schema_says_how_questions_are_asked(client: TestClient) -> None:
    ask = client.get("/openapi.json").json()["paths"]["/ask"]["post"]
    assert {"200", "413", "422", "502", "503", "504"} <= ask["responses"].keys()


def test_every_example_is_in_words_the_parser_knows(client: TestClient) -> None:
    for question in client.get("/info").json()["examples"]:
        assert post(client, text=question).json()["notes"] == []


def test_the_answers_script_sets_text_alone(client: TestClient) -> None:
    script = client.get("/answer.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", script.text)
