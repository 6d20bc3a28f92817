"""A large store, page by page; and what a visitor without script can do."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from doors.console.browser.conftest import ConsoleSite, NewPage, serve
from doors.console.browser.seed import Seeded
from playwright.sync_api import Page, expect

import holdfast

pytestmark = pytest.mark.browser
MEMORIES = 5_000 if "HOLDFAST_TORTURE_LIVES" in os.environ else 250


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    """Serve a store of many memories, and a small one."""
    path: Path = tmp_path_factory.mktemp("large") / "h.db"
    with holdfast.open(path) as hf:
        large = hf.memory_stores.create(name="Large")
        memories = hf.memory_stores.memories

        def create(number: int) -> None:
            memories.create(large.id, path=f"/notes/{number:04}.md", content=f"Note {number}")

        with ThreadPoolExecutor(32) as threads:  # writes that wait share a commit
            list(threads.map(create, range(MEMORIES)))
        small = hf.memory_stores.create(name="Small")
        memory = memories.create(small.id, path="/plan.md", content="Deploy on Monday.\n")
        older = memory.memory_version_id
        memory = memories.update(
            memory.id, memory_store_id=small.id, content="Deploy on *Friday*.\n"
        )
        secret = hf.keys.create("admin", scope="admin").secret
    assert secret is not None
    names = dict.fromkeys(Seeded.__struct_fields__, "")
    seeded = Seeded(
        **names
        | {
            "store": large.id,
            "archived": small.id,
            "memory": memory.id,
            "older": older,
            "version": memory.memory_version_id,
            "secret": secret,
        }
    )
    with serve(path) as served:
        yield ConsoleSite(served, seeded, path)


@pytest.fixture
def plain(new_page: NewPage) -> Page:
    """Open a page of a browser that runs no script."""
    return new_page(java_script_enabled=False)


def names(page: Page) -> list[str]:
    """Return the texts of the links of the table on the page, which has at most 100 rows."""
    found = page.get_by_role("table", name="Memories").locator("tbody tr td:first-child")
    texts = found.all_inner_texts()
    assert len(texts) <= 100
    return texts


def test_next_page_reaches_each_of_many_memories_once(page: Page, site: ConsoleSite) -> None:
    address = site.at(f"/console/stores/{site.seeded.store}?path=/notes/&limit=")
    assert page.request.get(f"{address}101").status == 400
    page.goto(f"{address}100")

    seen = names(page)
    following = page.get_by_role("link", name="Next page")
    while following.count():
        following.click()
        seen += names(page)
    assert seen == [f"{number:04}.md" for number in range(MEMORIES)]
    page.get_by_role("link", name="First page").click()
    assert names(page)[0] == "0000.md"


def test_keys_turn_the_pages(page: Page, site: ConsoleSite) -> None:
    page.goto(site.at(f"/console/stores/{site.seeded.store}?path=/notes/"))
    page.keyboard.press("]")
    expect(page.get_by_role("link", name="0050.md")).to_be_visible()
    page.keyboard.press("[")
    expect(page.get_by_role("link", name="0000.md")).to_be_visible()


def test_without_script_pages_turn_and_filters_hold(plain: Page, site: ConsoleSite) -> None:
    seeded = site.seeded
    plain.goto(site.at(f"/console/stores/{seeded.store}/versions?operation=created"))
    rows = plain.get_by_role("table", name="Versions").locator("tbody td:first-child")
    seen = rows.all_inner_texts()
    plain.get_by_role("link", name="Next page").click()
    seen += rows.all_inner_texts()
    assert len(set(seen)) == 100
    plain.get_by_label("Operation").select_option("deleted")
    plain.get_by_role("button", name="Filter").click()
    expect(plain.get_by_role("table", name="Versions")).to_have_count(0)


def test_without_script_a_memory_is_read_and_edited(plain: Page, site: ConsoleSite) -> None:
    seeded = site.seeded
    plain.goto(site.at(f"/console/stores/{seeded.archived}"))
    plain.get_by_role("link", name="plan.md").click()
    expect(plain.get_by_role("region", name="Content").locator("em")).to_have_text("Friday")
    plain.get_by_role("link", name="Source").click()
    expect(plain.get_by_role("region", name="Content")).to_contain_text("*Friday*")
    plain.get_by_role("button", name="Edit").click()
    plain.get_by_role("textbox", name="Content").fill("Deploy on Sunday.\n")
    plain.get_by_role("button", name="Save").click()
    expect(plain.get_by_role("region", name="Content")).to_contain_text("Deploy on Sunday.")

    with holdfast.open(site.url, api_key=seeded.secret) as hf:
        memories = hf.memory_stores.memories
        found = memories.retrieve(seeded.memory, memory_store_id=seeded.archived)
        assert found.content == "Deploy on Sunday.\n"


def test_without_script_versions_are_compared(plain: Page, site: ConsoleSite) -> None:
    seeded = site.seeded
    plain.goto(site.at(f"/console/stores/{seeded.archived}/memories/{seeded.memory}"))
    boxes = plain.get_by_role("table", name="Versions").get_by_role("checkbox")
    boxes.nth(-1).check()
    boxes.nth(-2).check()
    plain.get_by_role("button", name="Compare").click()
    changes = plain.get_by_role("table", name="Changes")
    expect(changes.locator("del").first).to_contain_text("Monday")
    expect(changes.locator("ins").first).to_contain_text("Friday")
    plain.get_by_role("link", name="Split").click()
    expect(plain.get_by_role("table", name="Changes").locator("del").first).to_contain_text(
        "Monday"
    )


def test_two_ticked_versions_are_compared_and_no_other_number(
    page: Page, site: ConsoleSite
) -> None:
    seeded = site.seeded
    page.goto(site.at(f"/console/stores/{seeded.archived}/memories/{seeded.memory}"))
    boxes = page.get_by_role("table", name="Versions").get_by_role("checkbox")
    button = page.get_by_role("button", name="Compare")

    expect(button).to_be_disabled()
    boxes.nth(0).check()
    expect(button).to_be_disabled()
    boxes.nth(1).check()
    button.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare versions")
