"""The page, in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from lagr.datasets import Source
from lagr.parser import Parser, load

pytest.importorskip("fastapi", reason="needs the extra lagr[serve]")
pytest.importorskip("playwright", reason="needs playwright, which drives the browser")
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, expect, sync_playwright

from lagr.serve.service import create_app

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")
SENTENCE = "The walrus painted a lantern ."
HOSTILE = "<img src=x onerror=window.owned=1>"


def served(parser: Parser, examples: tuple[str, ...] = ()) -> AbstractContextManager[str]:
    return running(create_app(parser, run="small", examples=examples))


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """The address of the service while it runs."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def address(parser: Parser) -> Iterator[str]:
    with served(parser, (SENTENCE, HOSTILE)) as address:
        yield address


@pytest.fixture(scope="module")
def cogs() -> Iterator[str]:
    """The address of the package's own model, which has valencies."""
    with served(load("cogs")) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that has nothing to complain about, and reaches nothing but the service."""
    yield from opened(browser)


@pytest.fixture
def phone(browser: Browser) -> Iterator[Page]:
    yield from opened(browser, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)


def opened(browser: Browser, **options: Any) -> Iterator[Page]:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], **options)
    page = context.new_page()
    page.set_default_timeout(10_000)
    complaints: list[str] = []
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda request: None if "//127.0.0.1:" in request.url else complaints.append(request.url))
    yield page
    # Refusals are part of some tests; a browser writes every answer that is none to its console.
    assert [line for line in complaints if not line.startswith("Failed to load resource: the server responded")] == []
    context.close()


def test_words_that_training_has_not_seen_are_named(page: Page, cogs: str) -> None:
    page.goto(cogs)
    expect(page.locator("#about")).to_be_visible()
    page.goto(cogs + "#" + quote("Zork smiled ."))
    expect(page.locator("#unknown")).to_have_text("Training has not seen “Zork”.")
    expect(page.locator("#drawing .token.unknown")).to_have_text(["Zork"])
    expect(page.locator("#about")).to_be_hidden()
    page.goto(cogs + "#" + quote("Emma smiled ."))
    expect(page.locator("#unknown")).to_be_hidden()


def test_a_wide_drawing_fades_where_there_is_more_of_it(phone: Page, cogs: str) -> None:
    phone.goto(cogs + "#" + quote("Emma gave the boy a cake in the house beside the tree ."))
    stage = phone.locator("#stage")
    expect(stage).to_have_class("more-right")
    phone.locator("#drawing").evaluate("box => { box.scrollLeft = 1e6 }")
    expect(stage).to_have_class("more-left")
    phone.goto(cogs + "#" + quote("Emma smiled ."))
    expect(stage).to_have_class("")


def test_edges_that_were_chosen_together_say_so(page: Page, cogs: str) -> None:
    page.goto(cogs + "#" + quote("Emma Emma liked liked ."))
    arc = page.locator("#drawing .arc").first
    arc.focus()
    expect(page.locator("#card")).to_contain_text("chosen together")
    shown = page.locator("#card li").filter(has_text="agent").locator("span").last.text_content()
    assert shown and f"edge agent from like to Emma, {shown}; otherwise" in (arc.get_attribute("aria-label") or "")
    page.goto(cogs + "#" + quote("Emma smiled ."))
    page.get_by_text("2 nodes, 1 edge.").wait_for()
    page.locator("#drawing .arc").first.focus()
    expect(page.locator("#card")).to_be_visible()
    expect(page.locator("#card")).not_to_contain_text("chosen together")


def test_a_sentence_is_typed_and_its_graph_and_form_appear(page: Page, address: str, parser: Parser) -> None:
    page.goto(address)
    expect(page.locator("#result")).to_be_hidden()
    page.get_by_label("A sentence").fill(SENTENCE)
    page.get_by_role("button", name="Parse").click()
    parse = parser.parse(SENTENCE)
    expect(page.locator("#form")).to_have_text(parse.form or "")
    expect(page.get_by_role("status")).to_have_text(f"{len(parse.nodes)} nodes, {len(parse.edges)} edges.")
    assert page.locator("#drawing .node").count() == len(parse.nodes)
    assert page.locator("#drawing .arc").count() == len(parse.edges)
    assert page.locator("#drawing .token").all_text_contents() == SENTENCE.split()
    page.get_by_text("As tables").click()
    assert page.locator("#nodes tbody tr").count() == len(parse.nodes)
    cells = page.locator("#edges tbody tr").first.locator("td").all_text_contents()
    edges = {(parse.nodes[edge.source].label, edge.label, parse.nodes[edge.target].label) for edge in parse.edges}
    assert tuple(cells[:3]) in edges and "%" in cells[3]


def test_hovering_shows_what_else_it_could_have_been(page: Page, address: str, parser: Parser) -> None:
    page.goto(f"{address}#{quote(SENTENCE)}")
    alternatives = parser.parse_tokens([SENTENCE.split()], alternatives=5)[0].alternatives
    assert alternatives is not None
    page.hover('[data-node="1"] .label')
    card = page.locator("#card")
    expect(card.locator("strong")).to_have_text("walrus")
    assert card.locator("li > :first-child").all_text_contents()[:2] == [
        choice.label or "nothing" for choice in alternatives.slots[1][:2]
    ]
    page.hover('[data-edge="0"] .label')
    expect(card.locator("strong")).to_have_text(parser.parse(SENTENCE).edges[0].label)
    page.hover('[data-slot="5"]')
    expect(card.locator("strong")).to_have_text("empty")
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()


def test_improbable_parts_are_fainter(page: Page, address: str, parser: Parser, mini: Source) -> None:
    parses = parser.parse_tokens([example.tokens for example in mini.read("gen")])
    doubtful = min(
        (parse for parse in parses if parse.nodes), key=lambda parse: min(n.probability for n in parse.nodes)
    )
    sentence = " ".join(doubtful.tokens)
    page.goto(f"{address}#{quote(sentence)}")
    expect(page.locator("#drawing .node").first).to_be_visible()
    shown = page.evaluate(
        "[...document.querySelectorAll('#drawing .node')].map(node => +getComputedStyle(node).opacity)"
    )
    sure = [node.probability for node in parser.parse(sentence).nodes]
    assert min(sure) < 0.97
    assert shown == pytest.approx([max(p, 0.35) for p in sure], abs=0.006)


def test_everything_works_from_the_keyboard_and_has_a_name(page: Page, address: str, parser: Parser) -> None:
    page.goto(address)
    page.keyboard.press("Tab")
    page.keyboard.type(SENTENCE)
    page.keyboard.press("Enter")
    expect(page.locator("#drawing svg")).to_be_visible()
    options = page.get_by_role("option")
    assert options.count() == len(parser.parse(SENTENCE).edges) + len(SENTENCE.split())
    assert all((option.get_attribute("aria-label") or "").strip() for option in options.all())
    while page.evaluate("document.activeElement.getAttribute('role')") != "option":
        page.keyboard.press("Tab")
    names = []
    for _ in range(options.count()):
        names.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
        expect(page.locator("#card")).to_be_visible()
        page.keyboard.press("ArrowRight")
    assert len(set(names)) == options.count(), "the arrow keys visit every part once"
    assert any(name.startswith("node walrus over “walrus”, slot 1") for name in names)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "copy-form", "one stop, however many parts there are"
    unnamed = "[...document.querySelectorAll('button, input, textarea, table, summary')].filter(e => !(e.innerText || e.labels?.length || e.caption))"
    assert page.evaluate(f"{unnamed}.length") == 0
    assert page.evaluate("[document.documentElement.lang, document.querySelectorAll('h1').length]") == ["en", 1]


def test_the_form_and_a_link_can_be_copied(page: Page, address: str, parser: Parser) -> None:
    page.goto(address)
    page.get_by_role("button", name=SENTENCE).click()  # an example
    expect(page.locator("#form")).to_have_text(parser.parse(SENTENCE).form or "")
    page.get_by_role("button", name="Copy form").click()
    expect(page.get_by_role("status")).to_have_text("The form is copied.")
    assert page.evaluate("navigator.clipboard.readText()") == parser.parse(SENTENCE).form
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("status")).to_have_text("The link is copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == f"{address}#{quote(SENTENCE)}"
    page.get_by_label("A sentence").fill("Ida sang .")
    page.keyboard.press("Enter")
    expect(page.locator("#drawing .token").first).to_have_text("Ida")
    page.go_back()
    expect(page.locator("#drawing .token").first).to_have_text("The")
    page.goto("about:blank")
    page.goto(link)
    expect(page.get_by_label("A sentence")).to_have_value(SENTENCE)
    expect(page.locator("#form")).to_have_text(parser.parse(SENTENCE).form or "")


def test_nothing_that_is_sent_becomes_part_of_the_page(browser: Browser, parser: Parser) -> None:
    labels = {
        kind: tuple(f"{HOSTILE}{n}" for n in range(len(getattr(parser.vocab, kind))))
        for kind in ("node_labels", "edge_labels")
    }
    hostile = Parser(parser.model, replace(parser.vocab, **labels), parser.formalism, parser.config)
    sentence = f"The walrus {HOSTILE} painted </title></svg><script>window.owned=1</script> a lantern ."
    with served(hostile, (HOSTILE,)) as address:
        for page in opened(browser):
            page.goto(f"{address}#{quote(sentence)}")
            expect(page.locator("#drawing .node").first).to_be_visible()
            page.hover('[data-node="1"] .label')
            expect(page.locator("#card strong")).to_contain_text(HOSTILE)
            page.get_by_text("As tables").click()
            expect(page.locator("#nodes")).to_contain_text(HOSTILE)
            expect(page.locator("#curl")).to_contain_text("onerror")
            assert page.locator("img, main script, iframe").count() == 0
            assert page.evaluate("window.owned") is None


def test_errors_are_shown_as_they_are_told(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_label("A sentence").fill("a " * 200)
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("the sentence has 200 tokens; at most 128 are taken")
    expect(page.locator("#result")).to_be_hidden()
    page.get_by_label("A sentence").fill("   ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("Type a sentence first.")


def test_it_fits_a_phone(phone: Page, address: str) -> None:
    phone.goto(f"{address}#{quote('The walrus painted a lantern under the enormous bridge beside Oskar and Ida .')}")
    expect(phone.locator("#drawing svg")).to_be_visible()
    phone.get_by_text("As tables").tap()
    phone.get_by_text("From a program").tap()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360
    assert phone.evaluate("(d => d.scrollWidth > d.clientWidth)(document.getElementById('drawing'))"), (
        "it scrolls in its box"
    )
    phone.tap('[data-node="1"]')
    box = phone.locator("#card").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 360
    assert (
        json.loads(
            phone.evaluate(
                "JSON.stringify([...document.querySelectorAll('main button')].filter(b => b.offsetParent && b.offsetHeight < 24).length)"
            )
        )
        == 0
    )
