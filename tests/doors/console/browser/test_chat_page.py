"""What the switch of the chat does to memory, as read back through the API."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from doors.console.browser.bakery import api, bakery
from doors.console.browser.conftest import ConsoleSite, NewPage, Watch, serve
from playwright.sync_api import Locator, Page, expect

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


def say(page: Page, text: str) -> Locator:
    """Say *text*; return the article of the answer, once it is whole."""
    articles = page.get_by_role("log", name="Conversation").locator("article")
    before = articles.count()
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("button", name="Send").click()
    expect(articles).to_have_count(before + 2, timeout=WAIT)
    answer = articles.last
    expect(answer.locator("summary").filter(has_text="Memory")).to_be_visible(timeout=WAIT)
    return answer


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
