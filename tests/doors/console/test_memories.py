"""Pages of one memory: reading, editing, versions, redaction."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from doors.console.client import ConsoleClient

import holdfast
from holdfast.doors.console.app import Console
from holdfast.doors.http.app import make_app
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory

SignedIn = Callable[..., ConsoleClient]


@pytest.fixture
def store(hf: Holdfast) -> str:
    return hf.memory_stores.create(name="notes").id


@pytest.fixture
def memory(hf: Holdfast, store: str) -> Memory:
    return hf.memory_stores.memories.create(store, path="/plan.md", content="Deploy on **Monday**.")


@pytest.fixture
def here(store: str, memory: Memory) -> str:
    return f"/console/stores/{store}/memories/{memory.id}"


def update(hf: Holdfast, memory: Memory, content: str) -> Memory:
    return hf.memory_stores.memories.update(
        memory.id, memory_store_id=memory.memory_store_id, content=content
    )


def content_of(hf: Holdfast, memory: Memory) -> str | None:
    return hf.memory_stores.memories.retrieve(
        memory.id, memory_store_id=memory.memory_store_id
    ).content


def test_markdown_is_rendered_and_its_source_shown(visitor: ConsoleClient, here: str) -> None:
    rendered = visitor.get(here)

    assert rendered.named("strong")
    source = visitor.get(f"{here}?view=source")
    assert not source.named("strong")
    assert "**Monday**" in source.text


def test_paths_in_markdown_lead_to_their_memories(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    target = hf.memory_stores.memories.create(store, path="/notes/b.md", content="b")
    text = "[b](b.md) [up](../notes/b.md) [whole](/notes/b.md) [none](/missing.md) [x](?a)"
    memory = hf.memory_stores.memories.create(store, path="/notes/a.md", content=text)

    links = visitor.get(f"/console/stores/{store}/memories/{memory.id}").page.links

    assert links.count(f"/console/stores/{store}/memories/{target.id}") == 3
    assert not any("missing" in each for each in links)


def test_a_large_memory_is_shown_as_its_source(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    def shown(size: int, **query: str) -> bool:
        made = hf.memory_stores.memories.create(
            store, path=f"/{size}-{len(query)}.md", content="**a** " * (size // 6)
        )
        view = "?view=rendered" if query else ""
        page = visitor.get(f"/console/stores/{store}/memories/{made.id}{view}")
        assert page.status == 200
        return bool(page.named("strong"))

    assert shown(8 * 1024)
    assert not shown(9 * 1024)
    assert shown(9 * 1024, view="rendered")
    assert not shown(40 * 1024, view="rendered")


def test_a_memory_is_edited(
    hf: Holdfast, visitor: ConsoleClient, here: str, memory: Memory
) -> None:
    form = visitor.get(f"{here}?edit=1")
    (held,) = form.named("input", name="shown")

    shown = visitor.post(
        here, {"content": "Friday\r\n", "path": "/new.md", "shown": held["value"] or ""}
    )

    assert "saved as a new version" in visitor.follow(shown).text
    found = hf.memory_stores.memories.at(memory.memory_store_id, "/new.md")
    assert found is not None
    assert found.content == "Friday\n"


def test_an_edit_loses_neither_text_when_the_head_moved(
    hf: Holdfast, visitor: ConsoleClient, here: str, memory: Memory
) -> None:
    update(hf, memory, "theirs")

    shown = visitor.post(
        here, {"content": "mine", "path": "/plan.md", "shown": memory.content_sha256}
    )

    assert shown.status == 409
    assert content_of(hf, memory) == "theirs"
    assert shown.named("div", role="alert")
    assert "mine" in shown.text
    assert "theirs" in shown.text
    assert shown.named("table", aria_label="Changes")


def test_a_form_that_was_refused_still_guards_what_was_shown_first(
    hf: Holdfast, visitor: ConsoleClient, here: str, memory: Memory
) -> None:
    fields = {"content": "mine", "path": "no slash", "shown": memory.content_sha256}
    update(hf, memory, "theirs")

    refused = visitor.post(here, fields)
    (held,) = refused.named("input", name="shown")
    again = visitor.post(here, {**fields, "path": "/plan.md", "shown": held["value"] or ""})

    assert (refused.status, again.status) == (400, 409)
    assert content_of(hf, memory) == "theirs"


def test_an_edit_is_there_again_after_a_lapsed_sign_in(
    hf: Holdfast, visitor: ConsoleClient, here: str, memory: Memory
) -> None:
    secret = hf.keys.create("mine", scope="write").secret or ""
    fields = {"content": "an hour of work", "path": "/plan.md", "shown": memory.content_sha256}

    (kept,) = visitor.post(here, fields).named("input", name="kept")
    shown = visitor.post("/console/sign-in", {"key": secret, "kept": kept["value"] or ""})

    (box,) = shown.named("textarea", name="content")
    assert box
    assert "an hour of work" in shown.text
    assert content_of(hf, memory) == "Deploy on **Monday**."


def test_a_taken_path_names_the_memory_that_has_it(
    hf: Holdfast, visitor: ConsoleClient, store: str, here: str, memory: Memory
) -> None:
    other = hf.memory_stores.memories.create(store, path="/b.md", content="b")
    there = f"/console/stores/{store}/memories/{other.id}"

    renamed = visitor.post(here, {"content": "x", "path": "/b.md", "shown": memory.content_sha256})
    made = visitor.post(f"/console/stores/{store}/new", {"path": "/b.md", "content": "typed"})

    for shown in (renamed, made):
        assert shown.status == 409
        assert there in shown.page.links
    assert "typed" in made.text


def test_a_deleted_memory_stays_a_page_and_comes_back(
    hf: Holdfast, visitor: ConsoleClient, here: str, memory: Memory
) -> None:
    shown = visitor.follow(visitor.post(f"{here}/delete"))

    assert "The memory was deleted. Its versions stay." in shown.text
    (undo,) = shown.named("input", name="version")[:1]
    assert shown.named("form", action=f"{here}/restore")
    visitor.post(f"{here}/restore", {"version": undo["value"] or ""})
    assert content_of(hf, memory) == "Deploy on **Monday**."


def test_a_version_is_restored_and_that_is_undone(
    hf: Holdfast, visitor: ConsoleClient, here: str, memory: Memory
) -> None:
    update(hf, memory, "Friday")

    shown = visitor.follow(visitor.post(f"{here}/restore", {"version": memory.memory_version_id}))

    assert content_of(hf, memory) == "Deploy on **Monday**."
    assert "The version was restored." in shown.text
    assert "Undo" in shown.text
    newest = hf.memory_stores.memory_versions.list(memory.memory_store_id).data
    visitor.post(f"{here}/restore", {"version": newest[1].id})
    assert content_of(hf, memory) == "Friday"


def test_two_versions_are_compared(
    hf: Holdfast, visitor: ConsoleClient, store: str, here: str, memory: Memory
) -> None:
    head = update(hf, memory, "Deploy on **Friday**.")
    ticked = f"version={head.memory_version_id}&version={memory.memory_version_id}"

    unified = visitor.get(f"/console/stores/{store}/diff?{ticked}")
    split = visitor.get(
        f"/console/stores/{store}/diff?from={memory.memory_version_id}"
        f"&to={head.memory_version_id}&layout=split"
    )

    for shown in (unified, split):
        assert shown.named("del")
        assert shown.named("ins")
        assert shown.named("table", aria_label="Changes")
    assert visitor.get(f"/console/stores/{store}/diff?version=x").status == 400
    assert "Compare" in visitor.get(here).text


def test_redacting_needs_the_token_and_gives_a_receipt(
    hf: Holdfast, visitor: ConsoleClient, store: str, here: str, memory: Memory
) -> None:
    update(hf, memory, "Friday")
    version = memory.memory_version_id
    dialog = visitor.get(f"{here}?redact={version}")
    assert version[-6:] in dialog.text
    assert dialog.named("dialog", open="") or dialog.named("dialog")

    wrong = visitor.post(f"{here}/redact?redact={version}", {"confirmation": "nothing"})
    assert wrong.status == 400
    assert hf.memory_stores.memory_versions.retrieve(version, memory_store_id=store).content

    done = visitor.post(f"{here}/redact?redact={version}", {"confirmation": version[-6:]})
    assert "Receipt" in done.text
    assert "no byte of it is left in the database's files" in done.text
    assert "Monday" not in done.html
    assert "/plan.md" not in done.html
    found = hf.memory_stores.memory_versions.retrieve(version, memory_store_id=store)
    assert found.content is None

    receipt = visitor.get(f"{here}/receipt?redact={version}")
    assert receipt.headers["content-disposition"].startswith("attachment")
    assert receipt.headers["content-security-policy"] == "sandbox"
    assert json.loads(receipt.body)["versions"] == version
    assert json.loads(receipt.body)["pending"].startswith("no byte of it is left")
    held = visitor.get(f"{here}/receipt?redact={version}&pending=log")
    assert json.loads(held.body)["pending"] == "log, until no reader holds it"


def test_the_head_is_not_redacted(
    hf: Holdfast, visitor: ConsoleClient, here: str, memory: Memory
) -> None:
    version = memory.memory_version_id

    shown = visitor.post(f"{here}/redact?redact={version}", {"confirmation": version[-6:]})

    assert shown.status == 400
    assert content_of(hf, memory) == "Deploy on **Monday**."


def test_nothing_is_redacted_if_one_of_the_versions_may_not_be(
    hf: Holdfast, visitor: ConsoleClient, store: str, here: str, memory: Memory
) -> None:
    head = update(hf, memory, "Friday")
    other = hf.memory_stores.memories.create(store, path="/other.md", content="x")
    old = memory.memory_version_id

    for last in (head.memory_version_id, other.memory_version_id, f"memver_{'0' * 24}"):
        target = f"{here}/redact?redact={old}&redact={last}"
        assert visitor.post(target, {"confirmation": old[-6:]}).status in {400, 404}

    found = hf.memory_stores.memory_versions.retrieve(old, memory_store_id=store)
    assert found.content == "Deploy on **Monday**."


def test_redaction_is_for_admins(signed_in: SignedIn, here: str, memory: Memory) -> None:
    version = memory.memory_version_id
    writer = signed_in("write")

    assert "Redact" not in writer.get(here).text
    shown = writer.post(f"{here}/redact?redact={version}", {"confirmation": version[-6:]})
    assert shown.status == 403


def test_a_version_has_a_page_of_its_own(
    hf: Holdfast, visitor: ConsoleClient, store: str, memory: Memory
) -> None:
    update(hf, memory, "Friday")

    shown = visitor.get(f"/console/stores/{store}/versions/{memory.memory_version_id}")

    assert "**Monday**" in shown.text
    assert visitor.get(f"/console/stores/{store}/versions/memver_{'0' * 24}").status == 404
    assert visitor.get(f"/console/stores/{store}/memories/mem_{'0' * 24}").status == 404


def test_pages_are_the_same_on_postgresql(postgres_url: str, runner: object) -> None:
    with holdfast.open(postgres_url) as hf:
        app = make_app(hf, make_site=Console)
        visitor = ConsoleClient(app, runner)  # pyright: ignore[reportArgumentType] - the fixture
        store = hf.memory_stores.create(name="notes of postgres")
        memory = hf.memory_stores.memories.create(store.id, path="/a.md", content="tabs")
        for below in ("", "/versions", "/settings", f"/memories/{memory.id}"):
            assert visitor.get(f"/console/stores/{store.id}{below}").status == 200
        app.state.close()


def test_redacted_bytes_are_in_no_file(tmp_path: Path, runner: object) -> None:
    secret = "a-most-particular-sentence"
    with holdfast.open(tmp_path / "h.db") as hf:
        app = make_app(hf, make_site=Console)
        visitor = ConsoleClient(app, runner)  # pyright: ignore[reportArgumentType] - the fixture
        store = hf.memory_stores.create(name="notes")
        memory = hf.memory_stores.memories.create(store.id, path="/a.md", content=secret)
        update(hf, memory, "harmless")
        version = memory.memory_version_id
        here = f"/console/stores/{store.id}/memories/{memory.id}"
        visitor.post(f"{here}/redact?redact={version}", {"confirmation": version[-6:]})

        files = [each.read_bytes() for each in tmp_path.iterdir()]
        app.state.close()
    assert not any(secret.encode() in each for each in files)
