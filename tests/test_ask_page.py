"""The answer on the page, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyoxigraph", reason="needs pyoxigraph: pip install 'lagr[ask]'")
pytest.importorskip("fastapi", reason="needs the extra lagr[serve]")
pytest.importorskip("playwright", reason="needs playwright, which drives the browser")
import test_page
from playwright.sync_api import Page, expect
from test_page import CHROMIUM, HOSTILE, running

import lagr
from lagr.ask import Answerer, Names, film_graph
from lagr.ask.store import Embedded
from lagr.parser import Parser
from lagr.serve.asking import add_ask
from lagr.serve.service import create_app

browser, page, phone = test_page.browser, test_page.page, test_page.phone  # its fixtures
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A service whose editor of Alien 3 has a hostile name."""
    file, names = film_graph()
    things = [(f"{HOSTILE} {HOSTILE}" if name == "Terry Rawlings" else name, iri) for name, iri in names.rows]
    parser = lagr.load("cfq")
    assert isinstance(parser, Parser)
    with Embedded(file) as store:
        app = create_app(parser)
        add_ask(app, Answerer(parser, store, Names((*things, ("Jaws", "http://example.org/jaws")))))
        with running(app) as address:
            yield address


def ask(page: Page, address: str, question: str) -> None:
    page.goto(address)
    page.get_by_label("A question").fill(question)
    page.get_by_role("button", name="Ask").click()


def test_the_page_says_yes_or_no(page: Page, address: str) -> None:
    ask(page, address, "Did Ridley Scott direct Alien?")
    expect(page.locator("#verdict")).to_have_text("Yes")
    expect(page.get_by_role("status")).to_have_text("Yes.")
    expect(page.locator("#names")).to_contain_text("M0 is Ridley Scott, M1 is Alien")
    assert page.locator("#drawing .token").all_text_contents() == ["Did", "M0", "direct", "M1"]
    page.get_by_text("The query as it was run").click()
    expect(page.locator("#sparql")).to_contain_text("ASK WHERE {")
    expect(page.locator("#curl")).to_contain_text("/ask -H")


def test_another_thing_of_the_same_name_can_be_asked_about(page: Page, address: str) -> None:
    ask(page, address, "Who played Morgan?")
    expect(page.locator("#notes")).to_contain_text("“Morgan” could be")
    page.get_by_role("button", name="Ask about http://example.org/films/character-morgan instead").click()
    expect(page.locator("#answers li")).to_have_text(["Anya Taylor-Joy"])
    expect(page.locator("#notes")).to_be_hidden()
    expect(page.locator("#instead button")).to_have_count(0)


def test_the_page_lists_answers_on_a_phone_too(phone: Page, address: str) -> None:
    ask(phone, address, "What film was directed and written by James Cameron?")
    expect(phone.locator("#answers li")).to_have_count(4)
    assert phone.locator("#answers li").nth(0).inner_text() == "Aliens"
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360


def test_names_are_text_and_an_answer_never_outlives_its_question(page: Page, address: str) -> None:
    ask(page, address, "Who edited Alien 3?")
    expect(page.locator("#answers li")).to_have_text([f"{HOSTILE} {HOSTILE}"])
    ask(page, address, "Who edited Jaws?")
    expect(page.locator("#verdict")).to_have_text("Nothing in the store answers this.")
    expect(page.locator("#answers li")).to_have_count(0)
    page.get_by_label("A question").fill("Did Ridly Scott direct Alien?")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("status")).to_contain_text("did you mean “Ridley Scott”?")
    expect(page.locator("#answer")).to_be_hidden()
    assert page.evaluate("window.owned") is None
