"""The chat in a browser: its switch, its stream, and what it keeps."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors.console.browser.conftest import ConsoleSite, NewPage, serve
from playwright.sync_api import Browser, Page, expect

import holdfast

pytestmark = pytest.mark.browser
WAIT = 30_000
"""Milliseconds that an answer is waited for: the first one loads what the extra `agents` has."""


def say(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("button", name="Send").click()


def expect_said(page: Page, text: str) -> None:
    log = page.get_by_role("log", name="Conversation")
    expect(log).to_contain_text(text, timeout=WAIT)


def begin(page: Page, site: ConsoleSite, user: str) -> None:
    page.goto(site.at("/console/chat"))
    page.get_by_role("textbox", name="User").fill(user)


def test_memory_is_off_until_it_is_switched_on_and_then_recalled_by_the_next_chat(
    page: Page, site: ConsoleSite
) -> None:
    begin(page, site, "marigold")
    log = page.get_by_role("log", name="Conversation")

    say(page, "My canoe is called Daisy.")
    expect_said(page, "Memory was off for this turn")
    expect(page).to_have_url(re.compile("/console/chat/thread_"))
    page.get_by_role("button", name="Memory: off").click()
    say(page, "My canoe is called Marigold.")
    expect_said(page, "2 stored")

    begin(page, site, "marigold")
    expect(page.get_by_role("button", name="Memory: on")).to_be_visible()
    page.get_by_role("textbox", name="Message").fill("What is my canoe called?")
    page.keyboard.press("Enter")
    expect_said(page, "- My canoe is called Marigold.")
    expect(log).not_to_contain_text("Daisy")
    log.get_by_text("Memory", exact=False).last.click()
    region = page.get_by_role("region", name="Recalled memories")
    expect(region).to_contain_text("<recalled-memories>")
    link = region.get_by_role("link", name="My canoe is called Marigold.", exact=True)
    expect(link).to_be_visible()
    expect(page.get_by_role("textbox", name="Message")).to_have_value("")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()


def test_a_conversation_is_there_after_a_reload_with_its_user(
    page: Page, site: ConsoleSite
) -> None:
    begin(page, site, "reloaded")
    say(page, "Hello\nthere")
    expect_said(page, "Memories given: 0")

    page.reload()

    expect_said(page, "You said: Hello")
    expect(page.get_by_role("textbox", name="User")).to_have_value("reloaded")
    page.goto(site.at("/console/chat"))
    expect(page.get_by_role("textbox", name="User")).to_have_value("reloaded")


def test_shift_and_enter_break_the_line_and_a_refused_message_stays(
    page: Page, site: ConsoleSite
) -> None:
    begin(page, site, "")
    page.get_by_role("button", name="Memory: off").click()
    box = page.get_by_role("textbox", name="Message")
    box.fill("one")
    box.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")

    expect(page.get_by_role("alert")).to_contain_text("memory is on")
    expect(box).to_have_value("one\ntwo")
    page.get_by_role("textbox", name="User").fill("lines")
    page.get_by_role("button", name="Send").click()
    expect_said(page, "You said: one")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_without_script_an_answer_comes_as_a_whole_page(
    new_page: NewPage, site: ConsoleSite
) -> None:
    page = new_page(java_script_enabled=False)
    page.goto(site.at("/console/chat"))
    page.get_by_role("link", name="Switch memory on").click()
    page.get_by_role("textbox", name="User").fill("plain")
    say(page, "My canoe is called Marigold.")
    expect_said(page, "Memories given: 0")
    say(page, "What is my canoe called?")

    expect_said(page, "- My canoe is called Marigold.")


@pytest.fixture
def lapsing(tmp_path: Path, browser: Browser) -> Iterator[tuple[Page, Path]]:
    """Give a page of an open server with a database of its own, and its path."""
    path = tmp_path / "h.db"
    with serve(path) as served:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{served.url}/console/chat")
        yield page, path
        context.close()


def test_a_message_sent_after_the_sign_in_lapsed_is_there_after_the_next(
    lapsing: tuple[Page, Path],
) -> None:
    page, path = lapsing
    with holdfast.open(path) as hf:
        secret = hf.keys.create("first", scope="write").secret
    assert secret is not None

    # The server learns of its first key within a second.
    page.wait_for_function("async () => (await fetch('/console/stores')).url.includes('sign-in')")
    say(page, "Long thoughts")
    page.get_by_label("API key").fill(secret)
    page.get_by_role("button", name="Sign in").click()

    expect(page.get_by_role("textbox", name="Message")).to_have_value("Long thoughts")
    page.get_by_role("button", name="Send").click()
    expect_said(page, "You said: Long thoughts")
