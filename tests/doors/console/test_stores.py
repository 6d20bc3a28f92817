"""Pages of memory stores, and putting back what was written."""

from collections.abc import Callable
from unicodedata import normalize

import pytest
from doors.console.client import HOSTILE, ConsoleClient

from holdfast.ground.scope import Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory

SignedIn = Callable[..., ConsoleClient]


@pytest.fixture
def store(hf: Holdfast) -> str:
    return hf.memory_stores.create(name="Team notes", description="What the team knows").id


def write(hf: Holdfast, store: str, path: str, content: str) -> Memory:
    return hf.memory_stores.memories.create(store, path=path, content=content)


def test_without_stores_the_list_says_how_one_comes(visitor: ConsoleClient) -> None:
    assert "hf.memory_stores.create" in visitor.get("/console/stores").text


def test_the_list_shows_stores_and_leaves_out_archived_ones(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    old = hf.memory_stores.create(name="Old notes")
    hf.memory_stores.archive(old.id)

    assert "Old notes" not in visitor.get("/console/stores").text
    shown = visitor.get("/console/stores?archived=1")
    assert "Old notes" in shown.text
    assert "Team notes" in shown.text
    assert f"/console/stores/{store}" in shown.page.links


def test_all_stores_are_reached_by_next_page(hf: Holdfast, visitor: ConsoleClient) -> None:
    made = {hf.memory_stores.create(name=f"store {n}").id for n in range(120)}

    seen: list[str] = []
    target: str | None = "/console/stores"
    while target:
        shown = visitor.get(target)
        rows = [each for each in shown.page.links if each.startswith("/console/stores/memstore")]
        assert len(rows) <= 50
        seen += [each.rpartition("/")[2] for each in rows]
        target = next((a["href"] for a in shown.named("a") if "data-next" in a), None)

    assert len(seen) == 120
    assert set(seen) == made


def test_a_store_is_created_from_the_form(hf: Holdfast, visitor: ConsoleClient) -> None:
    assert "Create store" in visitor.get("/console/stores?new=1").text

    shown = visitor.follow(visitor.post("/console/stores", {"name": "N", "description": "D"}))

    assert "The store was created." in shown.text
    (found,) = hf.memory_stores.list()
    assert (found.name, found.description) == ("N", "D")


def test_a_refused_form_comes_back_with_what_was_typed(visitor: ConsoleClient) -> None:
    shown = visitor.post("/console/stores", {"name": "", "description": "long text"})

    assert shown.status == 400
    assert shown.named("div", role="alert")
    assert "long text" in shown.text
    assert shown.named("input", id="f-name", aria_invalid="true")


def test_a_store_is_shown_as_a_tree(hf: Holdfast, visitor: ConsoleClient, store: str) -> None:
    write(hf, store, "/a.md", "tabs")
    write(hf, store, "/notes/b.md", "spaces")

    root = visitor.get(f"/console/stores/{store}")
    below = visitor.get(f"/console/stores/{store}?path=/notes/")

    assert "notes/" in root.text
    assert "a.md" in root.text
    assert "b.md" not in root.text
    assert "b.md" in below.text
    assert "b.md" in visitor.get(f"/console/stores/{store}?layout=flat").text
    assert root.named("nav", aria_label="Store")
    assert root.named("nav", aria_label="Path")
    assert root.named("nav", aria_label="Layout")


def test_a_store_is_searched(hf: Holdfast, visitor: ConsoleClient, store: str) -> None:
    write(hf, store, "/a.md", "The harbour opens at six")
    write(hf, store, "/b.md", "Nothing here")

    shown = visitor.get(f"/console/stores/{store}?q=harbour")

    assert "/a.md" in shown.text
    assert "/b.md" not in shown.text
    assert "Nothing in this store" in visitor.get(f"/console/stores/{store}?q=zebra").text


def test_an_unknown_store_is_not_found(visitor: ConsoleClient) -> None:
    for below in ("", "/settings", "/versions", "/new"):
        assert visitor.get(f"/console/stores/memstore_{'0' * 24}{below}").status == 404


def test_settings_are_saved(hf: Holdfast, visitor: ConsoleClient, store: str) -> None:
    hf.memory_stores.update(store, metadata={"team": "search", "old": "1"})

    shown = visitor.post(
        f"/console/stores/{store}/settings",
        {"name": "New", "description": "", "metadata": "team=recall\r\n"},
    )

    assert "The settings were saved." in visitor.follow(shown).text
    found = hf.memory_stores.retrieve(store)
    assert (found.name, found.metadata) == ("New", {"team": "recall"})


def test_metadata_without_a_value_is_refused(visitor: ConsoleClient, store: str) -> None:
    shown = visitor.post(
        f"/console/stores/{store}/settings", {"name": "N", "description": "", "metadata": "team"}
    )

    assert shown.status == 400
    assert shown.named("textarea", name="metadata", aria_invalid="true")


def test_an_archived_store_takes_no_writes(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    visitor.post(f"/console/stores/{store}/archive")

    assert hf.memory_stores.retrieve(store).archived_at is not None
    assert "New memory" not in visitor.get(f"/console/stores/{store}").text


@pytest.mark.parametrize("typed", ["", "team notes", "Team notes "])
def test_a_store_is_deleted_by_its_name_alone(
    hf: Holdfast, visitor: ConsoleClient, store: str, typed: str
) -> None:
    assert "Team notes" in visitor.get(f"/console/stores/{store}/settings?confirm=delete").text

    shown = visitor.post(
        f"/console/stores/{store}/delete", {"confirmation": typed, "confirm": "delete"}
    )

    exact = typed.strip() == "Team notes"
    assert shown.status == (303 if exact else 400)
    assert len(hf.memory_stores.list()) == (0 if exact else 1)


def test_only_an_admin_deletes_a_store(hf: Holdfast, signed_in: SignedIn, store: str) -> None:
    shown = signed_in("write").post(
        f"/console/stores/{store}/delete", {"confirmation": "Team notes"}
    )

    assert shown.status == 403
    assert hf.memory_stores.retrieve(store)


def test_versions_are_filtered_by_who_wrote_them(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    write(hf, store, "/mine.md", "x")
    session = hf.sessions.create(
        agent="agent_7",
        environment_id="env",
        resources=[{"type": "memory_store", "memory_store_id": store, "access": "read_write"}],
    )
    write(hf.for_session(session.id), store, "/theirs.md", "y")

    shown = visitor.get(f"/console/stores/{store}/versions?session_id={session.id}")

    assert "/theirs.md" in shown.text
    assert "/mine.md" not in shown.text
    assert visitor.get(f"/console/stores/{store}/versions?from=yesterday").status == 400


def test_what_was_ticked_is_put_back(hf: Holdfast, visitor: ConsoleClient, store: str) -> None:
    kept = write(hf, store, "/kept.md", "good")
    nonsense = hf.acting(actor=Actor.service_account("bot"))
    nonsense.memory_stores.memories.update(kept.id, memory_store_id=store, content="nonsense")
    made = write(nonsense, store, "/made.md", "nonsense too")
    ids = [v.id for v in hf.memory_stores.memory_versions.list(store) if v.created_by.id == "bot"]

    plan = visitor.post(f"/console/stores/{store}/versions/plan", {"version": ids})
    assert plan.status == 200
    assert len(plan.named("input", name="memory", checked="")) == 2 or plan.text
    done = visitor.post(
        f"/console/stores/{store}/versions/put-back",
        {"version": ids, "memory": [kept.id, made.id]},
    )

    assert "Restored." in done.text
    assert "Deleted." in done.text
    at = hf.memory_stores.memories.at
    assert (found := at(store, "/kept.md")) is not None
    assert found.content == "good"
    assert at(store, "/made.md") is None


def test_a_memory_changed_later_is_unticked(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    memory = write(hf, store, "/a.md", "one")
    for text in ("two", "three"):
        hf.memory_stores.memories.update(memory.id, memory_store_id=store, content=text)
    second = list(hf.memory_stores.memory_versions.list(store))[1]

    plan = visitor.post(f"/console/stores/{store}/versions/plan", {"version": second.id})

    (box,) = plan.named("input", name="memory")
    assert "checked" not in box
    assert "Changed later" in plan.text


def test_hostile_texts_change_no_element(hf: Holdfast, visitor: ConsoleClient) -> None:
    def skeleton(name: str, path: str) -> list[list[str]]:
        store = hf.memory_stores.create(name=name, description=name, metadata={"k": name})
        memory = hf.memory_stores.memories.create(store.id, path=path, content=name)
        pages = (
            "",
            "/settings",
            "/versions",
            f"/memories/{memory.id}",
            f"/memories/{memory.id}?edit=1",
        )
        shown = [visitor.get(f"/console/stores/{store.id}{each}") for each in pages]
        assert {each.status for each in shown} == {200}
        return [each.skeleton for each in shown]

    plain = skeleton("plain", "/plain.txt")
    for n, text in enumerate(HOSTILE):
        # What a path refuses is a slash, and what is not printable or not composed.
        shown = "".join(each for each in normalize("NFC", text) if each.isprintable())
        assert skeleton(text, f"/{n}-{shown.replace('/', '')[:60]}.txt") == plain


def test_a_proposal_is_shown_by_file_accepted_and_undone(
    hf: Holdfast, visitor: ConsoleClient, signed_in: SignedIn, store: str
) -> None:
    write(hf, store, "/a.md", "Deploy on fly.io")
    write(hf, store, "/copy.md", "Deploy on fly.io")
    write(hf, store, "/index.md", "See [how](copy.md).")
    above = f"/console/stores/{store}/proposals"
    assert above in visitor.get(f"/console/stores/{store}").page.links
    here = visitor.post(above).location
    job = hf.consolidations.wait(here.rpartition("/")[2])
    (change,) = job.proposal.changes

    shown = visitor.get(here)
    assert "/copy.md" in shown.text
    assert len(shown.named("table", aria_label="Changes")) == 2
    other = hf.memory_stores.create(name="Other").id
    assert visitor.get(here.replace(store, other)).status == 404
    visitor.follow(visitor.post(f"{here}/accept", {"change": [change.id]}))
    assert hf.memory_stores.memories.at(store, "/copy.md") is None
    shown = visitor.follow(visitor.post(f"{here}/undo"))
    assert "What was accepted is undone" in shown.text
    assert hf.memory_stores.memories.at(store, "/copy.md") is not None
    assert signed_in("read").post(f"{here}/accept", {"change": change.id}).status == 403


def test_a_conflict_alone_is_rejected_but_not_accepted(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    write(hf, store, "/index.md", "See [nothing](gone.md).")
    here = visitor.post(f"/console/stores/{store}/proposals").location
    (change,) = hf.consolidations.wait(here.rpartition("/")[2]).proposal.changes

    text = visitor.get(here).text

    assert change.op == "conflict"
    assert "Reject all that is open" in text
    assert "Accept ticked" not in text
