"""Keys, the theme, times and the chat's switch: what the script adds to the pages."""

import re

import pytest
from doors.console.browser.conftest import ConsoleSite, NewPage
from playwright.sync_api import Page, expect

from holdfast.doors.console.app import MENU

pytestmark = pytest.mark.browser


@pytest.fixture
def stores(page: Page, site: ConsoleSite) -> Page:
    """Open the list of stores."""
    page.goto(site.at("/console/stores"))
    return page


@pytest.mark.parametrize("key", ["/", "Control+k"])
def test_a_key_goes_to_the_search(stores: Page, key: str) -> None:
    stores.keyboard.press(key)

    field = stores.get_by_role("search", name="Everything").get_by_role("searchbox")
    expect(field).to_be_focused()
    expect(field).to_have_value("")


@pytest.mark.parametrize(("title", "letter"), [(title, letter) for title, _, letter in MENU])
def test_g_and_a_letter_open_an_entry_of_the_menu(stores: Page, title: str, letter: str) -> None:
    stores.keyboard.press("g")
    stores.keyboard.press(letter)

    expect(stores.get_by_role("heading", level=1)).to_have_text(title)


def test_rows_are_walked_opened_and_left_by_keys(stores: Page, site: ConsoleSite) -> None:
    links = stores.get_by_role("table", name="Stores").locator("tbody a")
    stores.keyboard.press("j")
    expect(links.nth(0)).to_be_focused()
    stores.keyboard.press("j")
    stores.keyboard.press("j")
    stores.keyboard.press("k")
    expect(links.nth(1)).to_be_focused()
    stores.keyboard.press("Enter")
    stores.wait_for_url(re.compile("/stores/memstore_"))
    stores.keyboard.press("u")
    stores.wait_for_url(site.at("/console/stores"))


def test_e_edits(page: Page, site: ConsoleSite) -> None:
    seeded = site.seeded
    page.goto(site.at(f"/console/stores/{seeded.store}/memories/{seeded.memory}"))
    page.keyboard.press("e")

    expect(page.get_by_role("textbox", name="Content")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    page.wait_for_url(re.compile("path=%2Fnotes%2F$"))
    page.keyboard.press("u")
    page.wait_for_url(site.at(f"/console/stores/{seeded.store}"))


def test_tab_goes_on_from_what_was_done(page: Page, site: ConsoleSite) -> None:
    page.goto(site.at(f"/console/stores/{site.seeded.store}/memories/{site.seeded.long}?edit=1"))
    page.get_by_role("textbox", name="Content").fill("Short.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.get_by_role("status").first).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Undo")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_be_focused()


def test_a_ticked_row_is_left_by_j(page: Page, site: ConsoleSite) -> None:
    page.goto(site.at(f"/console/stores/{site.seeded.store}/versions"))
    rows = page.get_by_role("table", name="Versions").locator("tbody tr")
    for key in ("j", "Tab", "Space", "j"):
        page.keyboard.press(key)

    expect(rows.nth(0).get_by_role("checkbox")).to_be_checked()
    expect(rows.nth(1).get_by_role("link").first).to_be_focused()


def test_the_keys_are_listed_and_single_ones_switched_off(stores: Page) -> None:
    dialog = stores.get_by_role("dialog", name="Keyboard shortcuts")
    stores.keyboard.press("?")
    expect(dialog).to_be_visible()
    stores.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    stores.get_by_role("button", name="Keyboard shortcuts").click()
    dialog.get_by_role("checkbox").uncheck()
    dialog.get_by_role("button", name="Close").click()
    stores.reload()
    stores.keyboard.press("/")
    expect(stores.get_by_role("searchbox", name="Search everything")).not_to_be_focused()
    stores.keyboard.press("Control+k")
    expect(stores.get_by_role("searchbox", name="Search everything")).to_be_focused()


def test_no_key_acts_while_a_field_has_focus(page: Page, site: ConsoleSite) -> None:
    page.goto(site.at("/console/stores?new=1"))
    name = page.get_by_role("textbox", name="Name")
    name.focus()
    page.keyboard.type("/jkgs?u")

    expect(name).to_have_value("/jkgs?u")
    expect(page.get_by_role("heading", level=1)).to_have_text("Stores")


def test_a_dialog_is_modal_and_escape_closes_it(page: Page, site: ConsoleSite) -> None:
    page.goto(site.at(f"/console/stores/{site.seeded.store}/settings?confirm=delete"))
    dialog = page.get_by_role("dialog")

    expect(dialog.get_by_role("textbox", name="Confirmation")).to_be_focused()
    expect(dialog.locator("code")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("main")).to_be_focused()


def test_times_are_those_of_the_readers_zone(new_page: NewPage, site: ConsoleSite) -> None:
    page = new_page(timezone_id="Asia/Kolkata", locale="en-GB")
    page.goto(site.at("/console/stores"))
    time = page.get_by_role("table", name="Stores").locator("time").first

    expect(time).to_have_attribute("datetime", re.compile("Z$"))
    expect(time).to_have_attribute("title", re.compile(r"GMT\+5:30$"))


def test_the_switch_of_the_chat_is_off_and_then_as_it_was_left(
    page: Page, site: ConsoleSite
) -> None:
    page.goto(site.at("/console/chat"))
    sent = page.locator("input[name=memory_enabled]")

    off = page.get_by_role("button", name="Memory: off")
    expect(off).to_have_attribute("aria-pressed", "false")
    expect(sent).to_have_value("false")
    off.click()
    page.reload()
    expect(page.get_by_role("button", name="Memory: on")).to_have_attribute("aria-pressed", "true")
    expect(sent).to_have_value("true")
