"""The service: what it answers, what it refuses and how, and how requests share the model."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lagr
from lagr import config
from lagr.cli import main
from lagr.datasets import Source
from lagr.errors import ConfigError
from lagr.forms import spelling
from lagr.parser import Parser, build, parser_of
from lagr.serve.limits import Limits
from lagr.vocab import Vocabulary

pytest.importorskip("fastapi", reason="needs the extra lagr[serve]")
from fastapi.testclient import TestClient

from lagr.serve.batcher import Batcher, FullError
from lagr.serve.server import examples_of
from lagr.serve.service import create_app

SENTENCE = "The walrus painted a lantern ."
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def client(parser: Parser) -> Iterator[TestClient]:
    limits = Limits(body=20_000, sentences=5, characters=200, tokens=30)
    with TestClient(create_app(parser, limits, "small", [SENTENCE]), raise_server_exceptions=False) as client:
        yield client


def post(client: TestClient, **body: Any) -> Any:
    return client.post("/parse", json=body)


def test_an_answer_is_what_the_parser_says(client: TestClient, parser: Parser, mini: Source) -> None:
    sentences = [" ".join(example.tokens) for example in mini.read("test")[:5]]
    answer = post(client, texts=sentences)
    assert answer.status_code == 200
    for told, parse in zip(answer.json()["parses"], parser.parse(sentences), strict=True):
        assert (told["form"], told["tokens"]) == (parse.form, list(parse.tokens))
        assert told["probability"] == pytest.approx(parse.probability, rel=1e-3)
    (alone,) = post(client, text=sentences[0]).json()["parses"]
    assert alone["form"] == parser.parse(sentences[0]).form and "alternatives" not in alone and "svg" not in alone


def test_alternatives_begin_with_what_was_chosen_and_are_probabilities(client: TestClient, parser: Parser) -> None:
    (told,) = post(client, text=SENTENCE, alternatives=10).json()["parses"]
    slots, edges = told["alternatives"]["slots"], told["alternatives"]["edges"]
    assert len(slots) == 6 and len(edges) == len(told["edges"])
    for node in told["nodes"]:
        assert slots[node["slot"]][0] == {"label": node["label"], "probability": node["probability"]}
    for edge, choices in zip(told["edges"], edges, strict=True):
        assert choices[0] == {"label": edge["label"], "probability": edge["probability"]}
    for slot in set(range(6)) - {node["slot"] for node in told["nodes"]}:
        assert slots[slot][0]["label"] is None
    for choices in (*slots, *edges):
        assert len(choices) == 10 and len({choice["label"] for choice in choices}) == 10
        probabilities = [choice["probability"] for choice in choices]
        assert probabilities == sorted(probabilities, reverse=True) and sum(probabilities) <= 1 + 1e-5
    every = parser.parse_tokens([SENTENCE.split()], alternatives=10_000)[0].alternatives
    assert every is not None and len(every.slots[0]) == len(parser.vocab.node_labels) + 1
    assert all(sum(choice.probability for choice in some) == pytest.approx(1, abs=1e-4) for some in every.slots)


def test_the_picture_names_its_parts(client: TestClient) -> None:
    (told,) = post(client, text=SENTENCE, svg=True).json()["parses"]
    numbers = {kind: set(map(int, re.findall(rf'data-{kind}="(\d+)"', told["svg"]))) for kind in ("node", "edge")}
    assert numbers == {"node": set(range(len(told["nodes"]))), "edge": set(range(len(told["edges"])))}


BAD = {
    "": "the body is empty",
    "{": "the body is no JSON",
    "[]": "object",
    "null": "the body is empty|object",
    "{}": "give a sentence as text, or many as texts",
    '{"text": "a", "texts": ["a"]}': "give a sentence as text, or many as texts",
    '{"text": 3}': "text: input should be a valid string",
    '{"texts": ["a", null]}': r"texts\[1\]: input should be a valid string",
    '{"text": "a", "sentence": "b"}': "sentence: extra inputs",
    '{"text": "a", "alternatives": 99}': "alternatives: input should be less than or equal to 10",
    '{"text": "a", "alternatives": "many"}': "alternatives",
    '{"text": ""}': "the sentence is empty",
    '{"text": " \\n "}': "the sentence is empty",
    '{"texts": ["a", ""]}': "sentence 2 is empty",
    '{"text": "\\u0000"}': "NUL",
    '{"text": "\\ud800"}': "not valid Unicode|unicode",
    '{"\\ud800": "a"}': "unicode|extra",
    '{"text": ' + "[" * 9000 + "]" * 9000 + "}": "string|can't be read",
    '{"text": ' + "1" * 9000 + "}": "string|can't be read",
}


@pytest.mark.parametrize("body", BAD, ids=lambda body: body[:24])
def test_a_body_that_is_wrong_is_refused_in_one_line(client: TestClient, body: str) -> None:
    answer = client.post("/parse", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422 and list(answer.json()) == ["detail"]
    assert re.search(BAD[body], answer.json()["detail"]) and "\n" not in answer.json()["detail"]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_a_body_in_another_encoding_is_refused(client: TestClient, encoding: str) -> None:
    body = json.dumps({"text": "Öre é"}, ensure_ascii=False).encode(encoding)
    answer = client.post("/parse", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422 and "not UTF-8" in answer.json()["detail"]


def test_a_body_that_is_called_something_else_is_refused(client: TestClient) -> None:
    answer = client.post("/parse", content='{"text": "a"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 422 and "Content-Type: application/json" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("texts", "detail"),
    [
        (["a"] * 6, "6 sentences; at most 5"),
        (["a", "b" * 201], "sentence 2 has 201 characters; at most 200"),
        (["a " * 31], "the sentence has 31 tokens; at most 30"),
        (["a" * 20_000], "larger than 20,000 bytes"),
        (["a" * 1_000_000], "larger than 20,000 bytes"),
    ],
)
def test_what_is_too_large_is_refused(client: TestClient, texts: list[str], detail: str) -> None:
    answer = post(client, texts=texts)
    assert answer.status_code == 413 and detail in answer.json()["detail"]
    assert post(client, texts=["a", "b" * 200, "a " * 30]).status_code == 200


def test_a_body_without_a_length_is_counted_as_it_comes(client: TestClient) -> None:
    sent = []

    def chunks() -> Iterator[bytes]:
        for number in range(1000):
            sent.append(number)
            yield b"a" * 1000

    answer = client.post("/parse", content=chunks(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_other_addresses_and_methods_are_answered_in_json(client: TestClient) -> None:
    assert (client.get("/nowhere").status_code, client.put("/parse", json={}).status_code) == (404, 405)
    assert "openapi.json" in client.get("/nowhere").json()["detail"]


def test_what_fails_inside_is_told_to_nobody(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    with TestClient(create_app(parser), raise_server_exceptions=False) as client:
        secret = RuntimeError("a secret of /etc")
        monkeypatch.setattr(parser, "parse_tokens", lambda *_, **__: (_ for _ in ()).throw(secret))
        answer = post(client, text=SENTENCE)
        assert answer.status_code == 500 and answer.json() == {
            "detail": "this failed inside the service; its log says why"
        }
        out_of_memory = ConfigError("the memory ran out while parsing; free some memory")
        monkeypatch.setattr(parser, "parse_tokens", lambda *_, **__: (_ for _ in ()).throw(out_of_memory))
        answer = post(client, text=SENTENCE)
        assert answer.status_code == 503 and answer.headers["retry-after"] and "memory" in answer.json()["detail"]
        monkeypatch.undo()
        assert post(client, text=SENTENCE).status_code == 200


def test_a_full_queue_and_a_slow_model_are_said_to_be_busy(parser: Parser, monkeypatch: pytest.MonkeyPatch) -> None:
    release, parse_tokens = threading.Event(), parser.parse_tokens
    with TestClient(create_app(parser, Limits(sentences=2, queue=2, batch=1, seconds=0.3))) as client:
        monkeypatch.setattr(parser, "parse_tokens", lambda *a, **k: (release.wait(5), parse_tokens(*a, **k))[1])
        answers: list[Any] = []
        askers = [threading.Thread(target=lambda: answers.append(post(client, texts=["a", "b"]))) for _ in range(3)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        details = sorted(answer.json()["detail"] for answer in answers)
        assert {answer.status_code for answer in answers} == {503} and all(a.headers["retry-after"] for a in answers)
        assert "2 sentences wait already" in details[0] and "no answer within 0.3 s" in details[-1]
        assert client.get("/health").json()["waiting"] == 0  # what nobody waits for waits no more
        release.set()
        monkeypatch.undo()
        assert post(client, text=SENTENCE).status_code == 200


def test_every_answer_forbids_scripts_of_others(client: TestClient) -> None:
    for path in ("/", "/page.js", "/page.css", "/drawing.css", "/icon.svg", "/info", "/nowhere"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert (
            "default-src 'none'" in policy and "unsafe" not in policy and headers["x-content-type-options"] == "nosniff"
        )
    page = client.get("/").text
    assert not re.search(r"https?://|<script>|<style>|\son\w+=|\sstyle=", page)
    assert not re.search(
        r"https?://(?!www\.w3\.org)|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(",
        client.get("/page.js").text,
    )


def test_words_and_labels_are_escaped_in_the_picture(parser: Parser) -> None:
    labels = {
        kind: tuple(f"{HOSTILE}{n}" for n in range(len(getattr(parser.vocab, kind))))
        for kind in ("node_labels", "edge_labels")
    }
    hostile = Parser(parser.model, replace(parser.vocab, **labels), parser.formalism, parser.config)
    with TestClient(create_app(hostile)) as client:
        (told,) = post(client, text=f"The walrus painted {HOSTILE} .", svg=True, alternatives=3).json()["parses"]
    assert "&lt;img" in told["svg"] and "<img" not in told["svg"]


def test_a_parser_that_writes_forms_is_served_too(mini: Source, small_config: config.Config) -> None:
    settings = config.override(small_config, [("model", "kind", "seq2seq"), ("model", "longest_form", 20)])
    vocab = Vocabulary.of(mini.read("train"), spelling(mini.formalism, "full"))
    writer = parser_of(build(settings, vocab), vocab, mini.formalism, settings, "cpu")
    with TestClient(create_app(writer)) as client:
        answer = post(client, text=SENTENCE, svg=True, alternatives=3)
    (told,) = answer.json()["parses"]
    assert answer.status_code == 200 and told["nodes"] == [] and "alternatives" not in told
    assert told["svg"] is None and told["problem"], "an untrained model writes no form that can be read"


def test_health_info_and_metrics(client: TestClient) -> None:
    post(client, text=SENTENCE)
    client.get("/one"), client.get("/two")
    assert client.get("/health").json() == {"status": "ok", "lagr": lagr.__version__, "waiting": 0}
    info = client.get("/info").json()
    assert (info["run"], info["can"], info["examples"], info["limits"]["tokens"]) == (
        "small",
        ["parse"],
        [SENTENCE],
        30,
    )
    metrics = client.get("/metrics").text
    assert re.search(r'lagr_requests_total\{path="/parse",status="200"\} [1-9]', metrics)
    assert re.search(r'lagr_requests_total\{path="other",status="404"\} [2-9]', metrics) and "/one" not in metrics
    assert re.search(r"lagr_batch_sentences_count [1-9]", metrics) and "lagr_waiting_sentences 0.0" in metrics


def test_examples_are_the_folders_or_of_the_data(small_run: Path, parser: Parser, tmp_path: Path) -> None:
    found = examples_of(small_run, parser.config)
    assert 1 <= len(found) <= 6 and all(parser.parse(sentence).nodes for sentence in found)
    (tmp_path / "examples.txt").write_text("One .\n\n  Two .\n" + "More .\n" * 20)
    assert examples_of(tmp_path, parser.config)[:3] == ["One .", "Two .", "More ."]
    data = replace(parser.config.data, name="cogs")
    assert examples_of(small_run, replace(parser.config, data=data), str(tmp_path)) == []


def test_limits_that_make_no_sense_are_refused(small_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(small_run), "--max-batch", "0"]) == 1
    assert "--max-batch is 0" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="--max-queue 3 has no room"):
        Limits(queue=3, sentences=4)
    assert main(["serve", str(small_run), "--host", "203.0.113.1"]) == 1
    assert "can't listen on 203.0.113.1:8000" in capsys.readouterr().err


def test_the_command_line_needs_no_fastapi() -> None:
    code = "import sys, lagr.cli; lagr.cli.build_parser(); print([m for m in ('fastapi', 'uvicorn', 'torch') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_without_its_packages_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; from lagr.cli import main; sys.exit(main(['serve', 'runs/none']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "lagr: lagr serve needs uvicorn: pip install 'lagr[serve]'\n")


# The batcher


def with_batcher(answer: Any, work: Any, batch: int = 4, queue: int = 100) -> Any:
    async def run() -> Any:
        batcher: Batcher[int, int] = Batcher(answer, batch, queue)
        batcher.start()
        try:
            return await work(batcher)
        finally:
            await batcher.stop()

    return asyncio.run(run())


def test_what_waits_is_answered_together_and_a_lone_question_at_once() -> None:
    sizes: list[int] = []

    def answer(questions: list[int]) -> list[int]:
        sizes.append(len(questions))
        threading.Event().wait(0.02)
        return [10 * question for question in questions]

    async def work(batcher: Batcher[int, int]) -> list[list[int]]:
        first = asyncio.create_task(batcher.ask([0]))
        await asyncio.sleep(0.005)
        return [*await asyncio.gather(*(batcher.ask([n, n + 100]) for n in range(1, 5))), await first]

    assert with_batcher(answer, work) == [*([10 * n, 10 * n + 1000] for n in range(1, 5)), [0]]
    assert sizes == [1, 4, 4]


def test_a_question_that_fails_spoils_no_other() -> None:
    def answer(questions: list[int]) -> list[int]:
        return [1 // question for question in questions]

    async def work(batcher: Batcher[int, int]) -> list[Any]:
        return await asyncio.gather(*(batcher.ask([n]) for n in (1, 0, 1)), return_exceptions=True)

    one, failed, other = with_batcher(answer, work)
    assert (one, other) == ([1], [1]) and isinstance(failed, ZeroDivisionError)


def test_what_was_taken_back_is_never_worked_on() -> None:
    release, seen = threading.Event(), []

    def answer(questions: list[int]) -> list[int]:
        release.wait(5)
        seen.extend(questions)
        return questions

    async def work(batcher: Batcher[int, int]) -> None:
        running, waiting = (asyncio.create_task(batcher.ask([n] * 3)) for n in (1, 2))
        last = asyncio.create_task(batcher.ask([3]))
        await asyncio.sleep(0.01)
        with pytest.raises(FullError):
            await batcher.ask([4] * 4)
        waiting.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()  # too late to stop, but its answers go nowhere
        release.set()
        assert await last == [3] and batcher.waiting == 0

    with_batcher(answer, work, batch=3, queue=7)
    assert seen == [1, 1, 1, 3]
