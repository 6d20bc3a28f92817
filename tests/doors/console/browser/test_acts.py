"""Acts of the console, as read back through the API, and their bytes gone from the files."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from doors.console.browser.bakery import GOOD, NONSENSE, api, bakery, bytes_left
from doors.console.browser.conftest import ConsoleSite, Watch
from playwright.sync_api import APIResponse, Page, expect

import holdfast
from holdfast import RunMemory, Turn
from holdfast.errors import NotFound
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.browser
Post = Callable[..., APIResponse]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    with bakery(tmp_path_factory.mktemp("acts") / "h.db") as site:
        yield site


@pytest.fixture
def hf(site: ConsoleSite) -> Iterator[Holdfast]:
    with api(site) as hf:
        yield hf


@pytest.fixture
def post(page: Page, site: ConsoleSite) -> Post:
    """Send a form by hand, with the cookies of the one who is signed in."""

    def send(address: str, **fields: Any) -> APIResponse:
        headers = {"sec-fetch-site": "same-origin", "accept": "text/html"}
        return page.request.post(site.at(address), form=fields, headers=headers, max_redirects=0)

    return send


def memory_page(page: Page, site: ConsoleSite, memory: str = "", query: str = "") -> str:
    """Open the page of a memory; return its address below the site."""
    seeded = site.seeded
    address = f"/console/stores/{seeded.store}/memories/{memory or seeded.memory}"
    page.goto(site.at(address + query))
    return address


def confirm(page: Page, text: str | None = None, button: str = "Redact") -> None:
    """Type *text*, else the token that the dialog shows, and press the button."""
    dialog = page.get_by_role("dialog")
    token = str(dialog.locator("form code").text_content())
    dialog.get_by_role("textbox", name="Confirmation").fill(token if text is None else text)
    dialog.get_by_role("button", name=button).click()


def test_an_edit_beside_another_write_loses_neither(
    page: Page, site: ConsoleSite, hf: Holdfast, watch: Watch
) -> None:
    seeded = site.seeded
    memories = hf.memory_stores.memories
    memory_page(page, site, query="?edit=1")
    theirs = "Deploy on Tuesday.\nBread at seven.\n"
    memories.update(seeded.memory, memory_store_id=seeded.store, content=theirs)
    mine = "Deploy on Sunday.\nBread at seven.\n"
    box = page.get_by_role("textbox", name="Content")
    box.fill(mine)
    page.get_by_role("button", name="Save").click()

    expect(page.get_by_role("alert").first).to_be_visible()
    expect(box).to_have_value(mine)
    expect(page.get_by_role("main")).to_contain_text("Deploy on Tuesday.")
    changes = page.get_by_role("table", name="Changes")
    expect(changes.locator("del").first).to_contain_text("Tuesday")
    expect(changes.locator("ins").first).to_contain_text("Sunday")
    watch.problems.clear()  # the browser writes the status to the console
    found = memories.retrieve(seeded.memory, memory_store_id=seeded.store)
    assert found.content == theirs
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("saved as a new version")
    found = memories.retrieve(seeded.memory, memory_store_id=seeded.store)
    assert found.content == mine
    versions = hf.memory_stores.memory_versions.list(
        seeded.store, memory_id=seeded.memory, view="full"
    )
    assert [each.content for each in versions.data] == [mine, theirs, NONSENSE, GOOD]


def test_an_entry_edited_beside_another_write_loses_neither(
    page: Page, site: ConsoleSite, hf: Holdfast, watch: Watch
) -> None:
    durable = hf.durable("baker")
    page.goto(site.at("/console/agents/baker/entries/oven?edit=1"))
    durable.set("oven", "240 degrees.", category="core")
    page.get_by_role("textbox", name="Content").fill("250 degrees.")
    page.get_by_role("button", name="Save").click()

    expect(page.get_by_role("alert").first).to_be_visible()
    expect(page.get_by_role("textbox", name="Content")).to_have_value("250 degrees.")
    watch.problems.clear()  # the browser writes the status to the console
    entry = durable.get("oven")
    assert entry is not None
    assert entry.content == "240 degrees."


def test_an_item_edited_beside_another_write_loses_neither(
    page: Page, site: ConsoleSite, hf: Holdfast, watch: Watch
) -> None:
    ltm = hf.longterm("mia", enabled=True)
    assert ltm is not None
    item = ltm.remember("Mia buys rolls").stored
    assert item is not None
    page.goto(site.at(f"/console/people/mia/items/{item.id}?edit=1"))
    ltm.update(item.id, text="Mia buys ten rolls")
    box = page.get_by_role("textbox", name="Text")
    box.fill("Mia buys rolls on Mondays")
    page.get_by_role("button", name="Save").click()

    expect(page.get_by_role("alert").first).to_be_visible()
    expect(box).to_have_value("Mia buys rolls on Mondays")
    expect(page.get_by_role("main")).to_contain_text("Mia buys ten rolls")
    watch.problems.clear()  # the browser writes the status to the console
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).not_to_be_empty()
    found = hf.longterm_data("mia").get(item.id)
    assert found is not None
    assert found.text == "Mia buys rolls on Mondays"


def test_a_version_is_restored_and_the_restoring_undone(
    page: Page, site: ConsoleSite, hf: Holdfast
) -> None:
    seeded = site.seeded
    made = hf.memory_stores.memories.create(seeded.store, path="/restored.md", content="One.\n")
    hf.memory_stores.memories.update(made.id, memory_store_id=seeded.store, content="Two.\n")
    memory_page(page, site, made.id)

    def content() -> str | None:
        found = hf.memory_stores.memories.retrieve(made.id, memory_store_id=seeded.store)
        return found.content

    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_role("status")).to_contain_text("restored")
    assert content() == "One.\n"
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("region", name="Content")).to_contain_text("Two.")
    assert content() == "Two.\n"


def test_a_memory_is_deleted_and_its_deletion_undone(
    page: Page, site: ConsoleSite, hf: Holdfast
) -> None:
    seeded, memories = site.seeded, hf.memory_stores.memories
    made = memories.create(seeded.store, path="/shelf.md", content="Flour.\n")
    memory_page(page, site, made.id)
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("main")).to_contain_text("deleted")
    with pytest.raises(NotFound):
        memories.retrieve(made.id, memory_store_id=seeded.store)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("region", name="Content")).to_contain_text("Flour.")
    found = memories.retrieve(made.id, memory_store_id=seeded.store)
    assert (found.content, found.path) == ("Flour.\n", "/shelf.md")


def test_a_redacted_version_is_gone_from_the_files_and_has_a_receipt(
    page: Page, site: ConsoleSite, hf: Holdfast, post: Post, watch: Watch
) -> None:
    seeded, secret = site.seeded, "the safe opens with 4711-zwieback"
    made = hf.memory_stores.memories.create(seeded.store, path="/safe.md", content=secret)
    old = made.memory_version_id
    hf.memory_stores.memories.update(made.id, memory_store_id=seeded.store, content="Nothing.")
    assert bytes_left(site.path, secret)
    versions = hf.memory_stores.memory_versions

    def content() -> str | None:
        return versions.retrieve(old, memory_store_id=seeded.store).content

    address = memory_page(page, site, made.id)
    page.get_by_role("button", name="Redact", exact=True).click()
    confirm(page, "wrong")
    expect(page.get_by_role("alert").first).to_be_visible()
    watch.problems.clear()  # the browser writes the status to the console
    for wrong in ({}, {"confirmation": ""}, {"confirmation": "wrong"}):
        assert post(f"{address}/redact", redact=old, **wrong).status in {400, 422}
    assert content() == secret
    confirm(page)
    receipt = page.get_by_role("region", name="Receipt")
    expect(receipt).to_contain_text("no byte of it is left in the database's files")
    expect(receipt).not_to_contain_text("safe")
    expect(receipt).to_contain_text(old)
    with page.expect_download() as download:
        receipt.get_by_role("link", name="Download receipt").click()
    assert "zwieback" not in download.value.path().read_text()
    assert content() is None
    assert bytes_left(site.path, secret) == []


def test_text_is_removed_from_a_memory_with_one_receipt(
    page: Page, site: ConsoleSite, hf: Holdfast
) -> None:
    seeded, secret = site.seeded, "the till opens with 0815-strudel"
    memories, versions = hf.memory_stores.memories, hf.memory_stores.memory_versions
    made = memories.create(seeded.store, path="/till.md", content=f"One. {secret}")
    memories.update(made.id, memory_store_id=seeded.store, content=f"Two. {secret}")
    memory_page(page, site, made.id)
    page.get_by_role("link", name="Remove text from this memory…").click()
    page.get_by_role("textbox", name="Content").fill("Two.")
    page.get_by_role("button", name="Save").click()
    rows = page.get_by_role("table", name="Versions").locator("tbody tr")
    expect(rows).to_have_count(3)
    for row in (rows.nth(1), rows.nth(2)):
        row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Redact ticked…").click()
    confirm(page)

    receipt = page.get_by_role("region", name="Receipt")
    expect(receipt).to_contain_text("no byte of it is left in the database's files")
    listed = versions.list(seeded.store, memory_id=made.id, view="full").data
    assert [each.content for each in listed] == ["Two.", None, None]
    for each in listed[1:]:
        expect(receipt).to_contain_text(each.id)
    assert bytes_left(site.path, secret) == []


def test_a_forgotten_item_takes_its_turn_along(page: Page, site: ConsoleSite, hf: Holdfast) -> None:
    said = "My cellar is under the mill."
    ltm = hf.longterm("eve", enabled=True)
    assert ltm is not None
    (turn,) = ltm.record([Turn(role="user", text=said)]).turns
    item = ltm.remember("Eve has a cellar", turns=[turn.id]).stored
    assert item is not None
    page.goto(site.at(f"/console/people/eve/items/{item.id}"))
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_role("dialog")).to_contain_text("the turn that it came from with it")
    confirm(page, button="Forget")

    expect(page.get_by_role("region", name="Receipt")).to_be_visible()
    assert hf.longterm_data("eve").get(item.id) is None
    assert hf.longterm_data("eve").get(turn.id) is None
    assert bytes_left(site.path, said) == []


def test_a_store_a_session_and_a_run_are_deleted_once_confirmed(
    page: Page, site: ConsoleSite, hf: Holdfast
) -> None:
    store = hf.memory_stores.create(name="Cellar")
    resource = {"type": "memory_store", "memory_store_id": store.id}
    session = hf.sessions.create(
        agent="baker", environment_id="oven", title="Day shift", resources=[resource]
    )
    with holdfast.open(site.path) as near:
        near.runs.attach(RunMemory(run_id="run_gone"), name="Sweep the floor")()
    ways: tuple[tuple[str, str, Callable[[], object]], ...] = (
        ("runs/run_gone", "Sweep the floor", lambda: hf.runs.retrieve("run_gone")),
        (f"sessions/{session.id}", "Day shift", lambda: hf.sessions.retrieve(session.id)),
        (f"stores/{store.id}/settings", "Cellar", lambda: hf.memory_stores.retrieve(store.id)),
    )

    for address, name, retrieve in ways:
        page.goto(site.at(f"/console/{address}"))
        page.get_by_role("button", name="Delete", exact=True).click()
        confirm(page, name, "Delete")
        expect(page.get_by_role("status").first).to_contain_text("deleted")
        with pytest.raises(NotFound):
            retrieve()


def test_nothing_that_cannot_be_undone_acts_with_a_wrong_confirmation(
    page: Page, site: ConsoleSite, hf: Holdfast, post: Post, watch: Watch
) -> None:
    seeded = site.seeded
    entry = hf.durable("till").set("float", "50 in coins", category="core")
    hf.durable("till").set("float", "60 in coins", category="core")
    other = hf.keys.create("apprentice", scope="read")
    ltm = hf.longterm("zoe", enabled=True)
    assert ltm is not None
    item = ltm.remember("Zoe wants seeds on top").stored
    assert item is not None
    token = hf.sessions.create_token(seeded.session)
    (run,) = hf.runs.list().data
    below = f"/console/sessions/{seeded.session}"
    routes: tuple[tuple[str, dict[str, str]], ...] = (
        (f"/console/stores/{seeded.store}/delete", {}),
        ("/console/agents/till/entries/float/forget", {}),
        ("/console/agents/till/entries/float/redact", {"redact": str(entry.seq)}),
        (f"/console/people/zoe/items/{item.id}/forget", {}),
        (f"/console/people/ada/turns/{seeded.turn}/forget", {}),
        (f"/console/runs/{run.id}/delete", {}),
        (f"{below}/delete", {}),
        (f"{below}/tokens/{token.id}/revoke", {}),
        (f"/console/keys/{other.id}/revoke", {}),
        (f"/console/threads/{seeded.thread}/delete", {}),
    )
    page.goto(site.at(f"/console/stores/{seeded.store}/settings?confirm=delete"))
    confirm(page, "wrong", "Delete")
    expect(page.get_by_role("alert").first).to_be_visible()
    watch.problems.clear()  # the browser writes the status to the console
    for address, fields in routes:
        for wrong in ({}, {"confirmation": ""}, {"confirmation": "wrong"}):
            assert post(address, **fields, **wrong).status in {400, 422}, address

    assert hf.memory_stores.retrieve(seeded.store).name == "Bakery"
    assert hf.durable("till").get("float") is not None
    changes = hf.durable("till").history("float").data
    assert [each.content for each in changes] == ["60 in coins", "50 in coins"]
    assert hf.longterm_data("zoe").get(item.id) is not None
    assert hf.longterm_data("ada").get(seeded.turn) is not None
    assert hf.runs.retrieve(run.id) == run
    assert hf.threads.turns(seeded.thread).data
    assert hf.sessions.retrieve(seeded.session).id == seeded.session
    assert token.id in [each.id for each in hf.sessions.list_tokens(seeded.session)]
    (found,) = [each for each in hf.keys.list() if each.id == other.id]
    assert found.revoked_at is None


def test_a_forgotten_person_is_gone_from_the_files(
    page: Page, site: ConsoleSite, hf: Holdfast, post: Post, watch: Watch
) -> None:
    said = "Ada drinks oolong tea"
    assert bytes_left(site.path, said)
    page.goto(site.at("/console/forget?user=ada"))
    confirm(page, "ida", "Forget")
    expect(page.get_by_role("alert").first).to_be_visible()
    watch.problems.clear()  # the browser writes the status to the console
    for wrong in ({}, {"confirmation": "ida"}):
        assert post("/console/forget?user=ada", **wrong).status in {400, 422}
    assert hf.longterm_data("ada").get(site.seeded.item) is not None
    confirm(page, "ada", "Forget")

    receipt = page.get_by_role("region", name="Receipt")
    expect(receipt).to_contain_text("no byte of it is left in the database's files")
    assert hf.longterm_people(prefix="ada").data == []
    assert list(hf.longterm_data("ada").list("items").data) == []
    assert bytes_left(site.path, said) == []


def test_a_forgotten_agent_is_gone_from_the_files(
    page: Page, site: ConsoleSite, hf: Holdfast, post: Post, watch: Watch
) -> None:
    text = "Day 5. flour flour"
    assert bytes_left(site.path, text)
    page.goto(site.at("/console/forget?agent=baker"))
    confirm(page, "Baker", "Forget")
    expect(page.get_by_role("alert").first).to_be_visible()
    watch.problems.clear()  # the browser writes the status to the console
    assert post("/console/forget?agent=baker", confirmation="b").status in {400, 422}
    assert hf.durable("baker").get("day_5") is not None
    confirm(page, "baker", "Forget")

    expect(page.get_by_role("region", name="Receipt")).to_contain_text("forgotten: agent baker")
    assert "baker" not in [each.agent for each in hf.durable_agents().data]
    assert bytes_left(site.path, text) == []
