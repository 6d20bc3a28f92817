"""Each page in the browser: nothing of a memory acts, all can use it, nothing scrolls sideways."""

from urllib.parse import quote

import pytest
from doors.console.browser.conftest import NARROW, WIDE, Axe, ConsoleSite, NewPage, Watch
from doors.console.browser.seed import ONE, Seeded
from playwright.sync_api import Page, expect

from holdfast.doors.console.app import MENU, Console

pytestmark = pytest.mark.browser

# The routes need no server. A receipt is there after what it is of: see test_acts.py.
ROUTES = sorted(
    route.path
    for route in Console.__new__(Console).routes()
    if route.method == "GET" and route.stream is None and not route.path.endswith("/receipt")
)
PLACES = {
    "stores": "store",
    "memories": "memory",
    "versions": "version",
    "agents": "agent",
    "entries": "entry",
    "people": "user",
    "items": "item",
    "turns": "turn",
    "runs": "plan",
    "network_runs": "network_run",
    "threads": "thread",
    "chat": "thread",
    "sessions": "session",
    "parts": "part",
    "erasures": "erasure",
    "proposals": "job",
    "stores/proposals": "store_job",
    "agents/proposals": "agent_job",
}
"""What a segment in braces is, by the one before it, or by the first and that."""
QUERIES = {
    "/search": "?q=" + quote(ONE[:200]),
    "/stores/{s}/diff": "?from={older}&to={version}",
    "/people/{user}/recall": "?q=tea",
    "/forget": "?user={user}",
    "/runs/compare": "?a={run}&b={plan}",
}
FURTHER = (
    "/stores?new=1",
    "/stores/{store}?path=/notes/",
    "/stores/{store}?q=deploy",
    "/stores/{store}/settings?confirm=delete",
    "/stores/{store}/memories/{memory}?view=source",
    "/stores/{store}/memories/{memory}?edit=1",
    "/stores/{store}/memories/{memory}?redact={older}",
    "/stores/{store}/memories/{deleted}",
    "/stores/{store}/memories/{long}",
    "/stores/{store}/diff?from={older}&to={version}&layout=split",
    "/stores/{archived}",
    "/agents/{agent}/hydration?budget=900",
    "/runs/{run}",
    "/runs/{run}?key=shared:key0",
    "/runs/{network_run}",
    "/threads/trip",
    "/forget",
    "/forget?agent={agent}",
    "/forget/erasures/{erasure}?verify=1",
    "/people/{user}/held?what=turns",
    "/people/{user}/items/{held}?confirm=reject",
)
"""Further states of pages."""


def filled(path: str, seeded: Seeded) -> str:
    """Return the address of the route *path* over what was stored."""
    names = {name: str(getattr(seeded, name)) for name in Seeded.__struct_fields__}
    if path in ROUTES:
        parts = path.split("/")
        for n, part in enumerate(parts):
            if part.startswith("{"):
                kind = PLACES.get(f"{parts[1]}/{parts[n - 1]}") or PLACES[parts[n - 1]]
                parts[n] = quote(names[kind], safe="")
        path = "/".join(parts).rstrip("/") + QUERIES.get(path, "")
    return f"/console{path}".format(**names)


def sideways(page: Page) -> int:
    """Return by how many pixels the page is wider than the window."""
    return page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )


def opened(page: Page, site: ConsoleSite, address: str) -> bool:
    """Open *address*; return whether it is a page, not a download or a part of one."""
    answer = page.request.get(site.at(address), headers={"accept": "text/html"})
    if not answer.text().startswith("<!doctype html>"):
        assert answer.status in {200, 404}, address
        return False
    found = page.goto(site.at(address))
    assert found is not None
    assert found.status == 200, (address, found.status)
    return True


@pytest.mark.parametrize("path", [*ROUTES, *FURTHER])
def test_a_page_shows_hostile_texts_to_everybody(
    page: Page, axe: Axe, site: ConsoleSite, path: str
) -> None:
    address = filled(path, site.seeded)
    if not opened(page, site, address):
        return

    heading = page.get_by_role("heading", level=1, include_hidden=True)
    expect(heading).to_have_count(1)
    assert page.title().endswith(" · Holdfast")
    expect(page.get_by_role("main", include_hidden=True)).to_have_count(1)
    found = {"light": axe()}
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    found["dark"] = axe("color-contrast")
    page.set_viewport_size(NARROW)
    found["narrow, dark"] = axe()
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    found["narrow"] = axe("color-contrast")
    assert {name: each for name, each in found.items() if each} == {}
    assert sideways(page) == 0
    page.set_viewport_size(WIDE)
    assert sideways(page) == 0


def test_every_entry_of_the_menu_opens_its_page(page: Page, site: ConsoleSite) -> None:
    page.goto(site.at("/console"))
    menu = page.get_by_role("navigation", name="Main")

    for title, _, _ in MENU:
        menu.get_by_role("link", name=title, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(menu.get_by_role("link", name=title, exact=True)).to_have_attribute(
            "aria-current", "page"
        )


def test_the_first_stop_of_the_tab_key_skips_to_the_content(page: Page, site: ConsoleSite) -> None:
    page.goto(site.at("/console/stores"))
    page.keyboard.press("Tab")

    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_the_theme_is_kept_from_page_to_page(page: Page, site: ConsoleSite) -> None:
    page.goto(site.at("/console/stores"))
    button = page.get_by_role("button", name="Theme", exact=True)

    for theme in ("light", "dark", "system"):
        button.click()
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", theme)


def test_a_narrow_page_folds_its_menu(new_page: NewPage, site: ConsoleSite) -> None:
    page = new_page(viewport=NARROW)
    page.goto(site.at("/console/stores"))
    menu = page.get_by_role("navigation", name="Main")

    expect(menu).to_be_hidden()
    page.locator("summary", has_text="Menu").click()
    expect(menu).to_be_visible()


def test_a_page_that_is_not_there_leads_back(page: Page, site: ConsoleSite, watch: Watch) -> None:
    found = page.goto(site.at("/console/stores/memstore_none"))

    assert found is not None
    assert found.status == 404
    watch.problems.clear()  # the browser writes the status to the console
    page.get_by_role("main").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
