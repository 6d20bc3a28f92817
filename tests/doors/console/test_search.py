"""Search over everything: words, beginnings of names and keys, ids."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from doors.console.client import HOSTILE, ConsoleClient

import holdfast
from holdfast import RunMemory
from holdfast.doors.console.app import Console
from holdfast.doors.http.app import make_app
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import Turn
from holdfast.testing.fakes import FrozenClock

SignedIn = Callable[..., ConsoleClient]
SEARCH = "/console/search?q="


def made(hf: Holdfast) -> dict[str, tuple[str, str]]:
    """Make one object of each kind; return the id and the address of each."""
    store = hf.memory_stores.create(name="Team notes")
    memory = hf.memory_stores.memories.create(store.id, path="/a.md", content="The harbour")
    gone = hf.memory_stores.memories.create(store.id, path="/gone.md", content="x")
    hf.memory_stores.memories.delete(gone.id, memory_store_id=store.id)
    session = hf.sessions.create(agent="agent_7", environment_id="env")
    token = hf.sessions.create_token(session.id)
    durable = hf.durable("agent_7")
    entry = durable.set("deploy/target", "fly.io", category="core")
    longterm = hf.longterm("ada", enabled=True, embedder=False)
    assert longterm is not None
    item = longterm.remember("Prefers short answers.").stored
    turn = longterm.record([Turn(role="user", text="Hello", speaker="ada", at=_NOON)]).turns[0].id
    assert item is not None
    assert turn is not None
    collection = hf.activity(["longterm.stored"]).data[0].ids["collection_id"]
    run = RunMemory()
    hf.runs.attach(run, name="Research")()
    place = "?namespace=chat"
    return {
        "store": (store.id, f"/console/stores/{store.id}"),
        "memory": (memory.id, f"/console/stores/{store.id}/memories/{memory.id}"),
        "deleted memory": (gone.id, f"/console/stores/{store.id}/memories/{gone.id}"),
        "version": (
            memory.memory_version_id,
            f"/console/stores/{store.id}/versions/{memory.memory_version_id}",
        ),
        "session": (session.id, f"/console/sessions/{session.id}"),
        "token": (token.id, f"/console/sessions/{session.id}"),
        "entry": (entry.id, "/console/agents/agent_7/entries/deploy%2Ftarget"),
        "agent": ("agent_7", "/console/agents/agent_7"),
        "item": (item.id, f"/console/people/ada/items/{item.id}{place}"),
        "turn": (turn, f"/console/people/ada/turns/{turn}{place}"),
        "collection": (collection, f"/console/people/ada{place}"),
        "run": (run.run_id, f"/console/runs/{run.run_id}"),
    }


_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_without_words_the_page_says_what_is_searched(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console/search")

    assert shown.status == 200
    assert "The words of paths and contents" in shown.text


def test_ids_of_every_kind_lead_straight_to_their_page(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    for kind, (id, target) in made(hf).items():
        shown = visitor.get(SEARCH + id)

        assert (kind, shown.status) == (kind, 303)
        assert shown.location == target
        assert visitor.follow(shown).status == 200, kind


def test_the_id_of_a_key_leads_an_admin_to_it(hf: Holdfast, signed_in: SignedIn) -> None:
    admin, reader = signed_in("admin"), signed_in("read")
    (newer, older) = hf.keys.list()

    assert admin.get(SEARCH + newer.id).location == f"/console/keys#{newer.id}"
    assert admin.get(SEARCH + older.id).location == f"/console/keys?page={newer.id}#{older.id}"
    assert reader.get(SEARCH + older.id).status == 200


def test_names_that_callers_gave_to_runs_are_found(hf: Holdfast, visitor: ConsoleClient) -> None:
    hf.runs.attach(RunMemory(run_id="nightly-7"), name="Nightly")()

    assert visitor.get(f"{SEARCH}nightly-7").location == "/console/runs/nightly-7"


def test_an_unknown_id_is_said_to_be_nowhere(visitor: ConsoleClient) -> None:
    prefixes = ("memstore", "mem", "memver", "sesn", "sestok", "entry", "coll", "item", "turn")

    for prefix in (*prefixes, "apikey", "run", "thread", "res", "agent"):
        shown = visitor.get(f"{SEARCH}{prefix}_{'0' * 24}")

        assert shown.status == 200
        assert "Nothing in this workspace has this id" in shown.text


def test_an_id_of_another_workspace_is_nowhere(hf: Holdfast, visitor: ConsoleClient) -> None:
    for id, _ in made(hf.acting(workspace="other")).values():
        assert visitor.get(SEARCH + id).status == 200


def test_words_are_found_in_paths_and_contents_of_all_stores(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    stores = [hf.memory_stores.create(name=f"store {n}").id for n in range(2)]
    hf.memory_stores.memories.create(stores[0], path="/harbour.md", content="opens")
    hf.memory_stores.memories.create(stores[1], path="/a.md", content="The harbour at six")
    hf.memory_stores.memories.create(stores[1], path="/b.md", content="nothing")

    shown = visitor.get(f"{SEARCH}harbour")

    assert "/harbour.md" in shown.text
    assert "The harbour at six" in shown.text
    assert "/b.md" not in shown.text
    assert shown.named("table", aria_label="Memories")
    assert "Nothing matches" in visitor.get(f"{SEARCH}zebra").text


def test_stores_that_were_not_searched_are_mentioned(hf: Holdfast, visitor: ConsoleClient) -> None:
    for n in range(51):
        hf.memory_stores.create(name=f"store {n}")

    assert "The words of the newest 50 stores" in visitor.get(f"{SEARCH}harbour").text


def test_keys_agents_and_people_are_found_by_how_they_begin(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    for agent in ("harbour-master", "pilot"):
        hf.durable(agent).set("harbour_hours", "six", category="core")
        hf.durable(agent).set("the_harbour", "six", category="core")
    hf.durable("pilot").set("harbour_shared", "six", category="workspace")
    for user in ("harbourer", "unharboured"):
        memory = hf.longterm(user, enabled=True, embedder=False)
        assert memory is not None
        memory.remember("Prefers short answers.")

    shown = visitor.get(f"{SEARCH}harbour")

    assert "/console/agents/pilot/entries/harbour_hours" in shown.page.links
    assert "/console/agents/harbour-master" in shown.page.links
    assert "/console/people/harbourer?namespace=chat" in shown.page.links
    for name in ("the_harbour", "unharboured"):
        assert name not in shown.text
    assert "harbour_shared" in shown.text


def test_expired_entries_are_not_found(
    hf: Holdfast, clock: FrozenClock, visitor: ConsoleClient
) -> None:
    hf.durable("agent_7").set("harbour_hours", "six", category="daily")
    assert "harbour_hours" in visitor.get(f"{SEARCH}harb").text

    clock.tick(30 * 86_400)

    assert "harbour_hours" not in visitor.get(f"{SEARCH}harb").text


def test_more_rows_than_are_shown_are_mentioned(hf: Holdfast, visitor: ConsoleClient) -> None:
    hf.durable("agent_7").set_many(
        [{"key": f"key {n:02}", "content": "x", "category": "core"} for n in range(25)]
    )

    store = hf.memory_stores.create(name="notes")
    for n in range(41):
        hf.memory_stores.memories.create(store.id, path=f"/{n}.md", content="key")

    shown = visitor.get(f"{SEARCH}key")

    assert len([each for each in shown.page.links if "/memories/" in each]) == 40
    assert "type more words" in shown.text
    assert len([each for each in shown.page.links if "/entries/" in each]) == 20
    assert "There are more" in shown.text


def test_a_bound_key_searches_nothing(signed_in: SignedIn) -> None:
    assert signed_in("read", user="ada").get(f"{SEARCH}x").status == 403


@pytest.mark.parametrize("given", ["%00", "x" * 2_000, "%ff%fe", "%F0%90%80", "' or 1=1 --", "_"])
def test_no_query_fails(visitor: ConsoleClient, given: str) -> None:
    assert visitor.get(SEARCH + given.replace(" ", "%20")).status == 200


def test_hostile_texts_change_no_element(hf: Holdfast, visitor: ConsoleClient) -> None:
    def skeleton(text: str) -> list[str]:
        store = hf.memory_stores.create(name=text)
        hf.memory_stores.memories.create(store.id, path="/a.md", content=f"harbour {text}")
        hf.durable("agent_7").set("harbour", text, category="core")
        shown = visitor.get(f"{SEARCH}harbour").skeleton
        hf.memory_stores.delete(store.id)
        return shown

    plain = skeleton("plain")
    for text in HOSTILE:
        assert skeleton(text) == plain


def test_the_page_is_the_same_on_postgresql(postgres_url: str, runner: object) -> None:
    with holdfast.open(postgres_url) as whole:
        app = make_app(whole, make_site=Console)
        visitor = ConsoleClient(app, runner)  # pyright: ignore[reportArgumentType] - the fixture
        visitor.get("/console?workspace=search-page")
        visitor.cookies["holdfast_workspace"] = "search-page"
        for kind, (id, target) in made(whole.acting(workspace="search-page")).items():
            shown = visitor.get(SEARCH + id)
            assert (kind, shown.headers.get("location")) == (kind, target)
        shown = visitor.get(f"{SEARCH}deploy")
        assert "/console/agents/agent_7/entries/deploy%2Ftarget" in shown.page.links
        assert "harbour" in visitor.get(f"{SEARCH}harbour").text
        assert visitor.get(f"{SEARCH}%00").status == 200
        app.state.close()
