"""The chat in Chromium: what its switch does to memory, as read back through the API; its keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doors.console.browser.bakery import api, bakery
from doors.console.browser.conftest import ConsoleSite, NewPage, Watch, serve
from playwright.sync_api import Browser, Locator, Page, expect

import holdfast
from holdfast import recalled_block
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.browser
WAIT = 30_000
"""Milliseconds that an answer is waited for: the first one loads what the extra `agents` has."""
QUESTION = "Does Ada like rye bread with her tea?"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    with bakery(tmp_path_factory.mktemp("chat") / "h.db", "--chat-model", "scripted") as site:
        yield site


@pytest.fixture
def hf(site: ConsoleSite) -> Iterator[Holdfast]:
    with api(site) as hf:
        yield hf


def begin(page: Page, site: ConsoleSite, user: str) -> Locator:
    """Open a new chat of *user*; return its log."""
    page.goto(site.at("/console/chat"))
    page.get_by_role("textbox", name="User").fill(user)
    return page.get_by_role("log", name="Conversation")


def write(page: Page, text: str) -> None:
    """Send *text* by the button."""
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("button", name="Send").click()


def say(page: Page, text: str) -> Locator:
    """Say *text*; return the article of the answer, once it is whole."""
    articles = page.get_by_role("log", name="Conversation").locator("article")
    before = articles.count()
    write(page, text)
    expect(articles).to_have_count(before + 2, timeout=WAIT)
    answer = articles.last
    expect(answer.locator("summary").filter(has_text="Memory")).to_be_visible(timeout=WAIT)
    return answer


def expect_said(page: Page, text: str) -> None:
    log = page.get_by_role("log", name="Conversation")
    expect(log).to_contain_text(text, timeout=WAIT)


def kept(hf: Holdfast, page: Page) -> list[dict[str, Any]]:
    """Return what is kept with each answer of the thread on the page of its memory."""
    turns = hf.threads.turns(page.url.rpartition("/")[2]).data
    results = [each.result for each in turns if each.result is not None]
    return [msgspec.convert(each.extras["memory"], dict[str, Any]) for each in results]


def test_off_is_the_default_and_a_veto(page: Page, site: ConsoleSite, hf: Holdfast) -> None:
    before = list(hf.longterm_data("ada").export())
    begin(page, site, "ada")
    chip = page.get_by_role("button", name="Memory: off")
    expect(chip).to_have_attribute("aria-pressed", "false")

    answer = say(page, QUESTION)
    expect(answer).to_contain_text(f"You said: {QUESTION}")
    expect(answer).to_contain_text("Memories given: 0")
    answer.locator("summary").filter(has_text="Memory").click()
    expect(answer).to_contain_text("Memory was off for this turn")
    expect(page.get_by_role("region", name="Recalled memories")).to_have_count(0)
    assert list(hf.longterm_data("ada").export()) == before
    assert [(each["enabled"], each.get("recalled", [])) for each in kept(hf, page)] == [(False, [])]


def test_on_shows_the_block_that_the_model_was_given(
    page: Page, site: ConsoleSite, hf: Holdfast
) -> None:
    ada = hf.longterm("ada", enabled=True)
    assert ada is not None
    found = ada.recall(QUESTION, touch=False)
    begin(page, site, "ada")
    page.get_by_role("button", name="Memory: off").click()
    answer = say(page, QUESTION)

    lines = "\n".join(f"- {each.text}" for each in found)
    said = f"You said: {QUESTION}\nMemories given: {len(found)}\n{lines}"
    assert answer.locator("> pre").inner_text().strip() == said
    answer.locator("summary").filter(has_text="Memory").click()
    region = page.get_by_role("region", name="Recalled memories")
    assert region.locator("pre").inner_text().strip() == recalled_block(found).strip()
    links = region.get_by_role("list", name="Rows").get_by_role("link")
    assert [str(each.get_attribute("href")).rpartition("/")[2] for each in links.all()] == [
        each.id for each in found
    ]
    (memory,) = kept(hf, page)
    assert [each["id"] for each in memory["recalled"]] == [each.id for each in found]


def test_what_one_conversation_says_the_next_recalls_and_the_switch_stays(
    page: Page, site: ConsoleSite, hf: Holdfast
) -> None:
    begin(page, site, "juno")
    page.get_by_role("button", name="Memory: off").click()
    say(page, "My goose is called Hildegard.")
    page.reload()
    expect_said(page, "You said: My goose is called Hildegard.")
    expect(page.get_by_role("textbox", name="User")).to_have_value("juno")
    chip = page.get_by_role("button", name="Memory: on")
    expect(chip).to_have_attribute("aria-pressed", "true")
    texts = [getattr(each, "text", "") for each in hf.longterm_data("juno").list("turns").data]
    assert "My goose is called Hildegard." in texts

    begin(page, site, "juno")
    expect(chip).to_have_attribute("aria-pressed", "true")
    answer = say(page, "What is my goose called?")
    expect(answer).to_contain_text("- My goose is called Hildegard.")


@pytest.fixture(scope="module")
def vetoed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve with the variable that switches long-term memory off, open to this machine."""
    path = tmp_path_factory.mktemp("veto") / "h.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_LTM_ENABLED", "false")
        with serve(path) as served:
            yield served.url


def test_the_veto_of_the_server_disables_the_switch(
    new_page: NewPage, vetoed: str, watch: Watch
) -> None:
    page = new_page(storage_state=None)
    page.goto(f"{vetoed}/console/chat")
    chip = page.get_by_role("button", name="Memory: off")
    expect(chip).to_be_disabled()
    expect(page.get_by_role("main")).to_contain_text("HOLDFAST_LTM_ENABLED is off")
    page.get_by_role("textbox", name="User").fill("ada")
    page.locator("input[name=memory_enabled]").evaluate("each => { each.value = 'true' }")
    answer = say(page, QUESTION)
    expect(answer).to_contain_text("Memories given: 0")
    answer.locator("summary").filter(has_text="Memory").click()
    expect(answer).to_contain_text("Memory was off for this turn")
    watch.problems[:] = [each for each in watch.problems if vetoed not in each]

    with holdfast.open(vetoed) as hf:
        assert list(hf.longterm_data("ada").export()) == []


# Keys, script and sign-in


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
    write(page, "My canoe is called Marigold.")
    expect_said(page, "Memories given: 0")
    write(page, "What is my canoe called?")

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
    page.evaluate(
        "async () => { while (!(await fetch('/console/stores')).url.includes('sign-in')); }"
    )
    write(page, "Long thoughts")
    page.get_by_label("API key").fill(secret)
    page.get_by_role("button", name="Sign in").click()

    expect(page.get_by_role("textbox", name="Message")).to_have_value("Long thoughts")
    page.get_by_role("button", name="Send").click()
    expect_said(page, "You said: Long thoughts")
