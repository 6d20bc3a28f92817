"""What happened, live and refused access included, and whether all is well."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from doors.console.client import HOSTILE, ConsoleClient
from doors.console.harbour import LiveClient

import holdfast
from holdfast.doors.console.app import Console
from holdfast.doors.console.pages import activity
from holdfast.doors.console.pages.activity import METRICS, numbers_in
from holdfast.doors.console.response import LIVE, LIVE_MOST
from holdfast.doors.http.app import App, make_app
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

SignedIn = Callable[..., ConsoleClient]


@pytest.fixture
def store(hf: Holdfast) -> str:
    return hf.memory_stores.create(name="Team notes").id


def rows(shown: Any) -> int:
    """Return how many events the page shows."""
    return len(shown.named("td", data_label="Event"))


# Events


def test_without_events_the_page_says_what_would_be_here(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console/activity")

    assert "hf.events.subscribe" in shown.text
    assert not shown.named("table")


def test_events_are_shown_newest_first_with_who_did_it(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    session = hf.sessions.create(
        agent="agent_7",
        environment_id="env",
        resources=[{"type": "memory_store", "memory_store_id": store}],
    )
    memory = hf.for_session(session.id).memory_stores.memories.create(
        store, path="/a.md", content="secret words"
    )

    shown = visitor.get("/console/activity")

    assert shown.named("table", aria_label="Events")
    texts = shown.text
    assert texts.index("memory.created") < texts.index("session.created")
    assert texts.index("session.created") < texts.index("store.created")
    assert f"/console/search?q={session.id}" in shown.page.links
    assert f"/console/search?q={memory.id}" in shown.page.links
    assert "size 12 B" in texts
    assert "memory_store_id" not in texts
    assert "secret words" not in texts
    assert "/a.md" not in texts


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("types=memory.created", 2),
        ("types=memory.created,+store.created", 3),
        ("types=memory.created&types=store.created", 3),
        ("types=memory.deleted", 0),
        ("id=STORE", 3),
        ("id=elsewhere", 0),
        ("owner=agent_7", 1),
        ("actor=user_ada", 1),
        ("actor=unknown", 0),
    ],
)
def test_events_are_filtered(
    hf: Holdfast, visitor: ConsoleClient, store: str, query: str, found: int
) -> None:
    hf.memory_stores.memories.create(store, path="/a.md", content="x")
    ada = hf.acting(actor=holdfast.Actor.user("user_ada"))
    ada.memory_stores.memories.create(store, path="/b.md", content="x")
    hf.durable("agent_7").set("key", "value", category="core")

    shown = visitor.get(f"/console/activity?{query.replace('STORE', store)}")

    assert rows(shown) == found
    assert ("No event fits the filter" in shown.text) == (found == 0)


def test_what_was_typed_into_the_filter_stays(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console/activity?types=a.b&owner=agent_7&id=x&actor=user_ada")

    for name, value in (("types", "a.b"), ("owner", "agent_7"), ("id", "x"), ("actor", "user_ada")):
        assert shown.named("input", name=name, value=value)
    assert not any("checked" in each for each in shown.named("input", name="live"))


def test_a_refused_filter_comes_back_with_what_was_typed(visitor: ConsoleClient) -> None:
    long = "x" * 300

    shown = visitor.get(f"/console/activity?owner={long}")

    assert shown.status == 400
    assert shown.named("div", role="alert")
    assert shown.named("input", name="owner", value=long)


def test_all_events_are_reached_by_next_page(
    hf: Holdfast, visitor: ConsoleClient, store: str
) -> None:
    for n in range(119):
        hf.memory_stores.memories.create(store, path=f"/{n}.md", content="x")

    sizes: list[int] = []
    target: str | None = "/console/activity"
    while target:
        shown = visitor.get(target)
        sizes.append(rows(shown))
        target = next((a["href"] for a in shown.named("a") if "data-next" in a), None)

    assert sizes == [50, 50, 20]


def test_one_workspace_sees_no_event_of_another(hf: Holdfast, visitor: ConsoleClient) -> None:
    hf.acting(workspace="other").memory_stores.create(name="theirs")

    assert rows(visitor.get("/console/activity")) == 0
    assert rows(visitor.get("/console/activity?workspace=other")) == 1


# Denied access


def denied(shown: Any) -> int:
    return len(shown.named("tr", **{"class": "denied"}))


def test_denied_access_stands_out(signed_in: SignedIn, visitor: ConsoleClient) -> None:
    admin, reader = signed_in("admin"), signed_in("read")
    assert reader.get("/console/keys").status == 403
    assert visitor.sign_in("hf_wrong").status == 401

    shown = admin.get("/console/activity")

    assert denied(shown) == 2
    assert "access.denied" in shown.text
    assert denied(admin.get("/console/activity?types=access.denied")) == 2
    assert denied(admin.get("/console/activity?types=memory.created")) == 0
    # Who is of no workspace yet is for admins to see.
    assert denied(reader.get("/console/activity")) == 1


def test_refusals_of_another_workspace_are_not_shown(
    hf: Holdfast, visitor: ConsoleClient, clock: FrozenClock
) -> None:
    hf.events.publish(Event(type="access.denied", at=clock.now(), workspace="other"))

    assert denied(visitor.get("/console/activity")) == 0


def test_a_page_has_no_more_than_100_rows(
    hf: Holdfast, visitor: ConsoleClient, store: str, clock: FrozenClock
) -> None:
    for n in range(99):
        hf.memory_stores.memories.create(store, path=f"/{n}.md", content="x")
    for _ in range(activity.DENIED_MOST + 5):
        hf.events.publish(Event(type="access.denied", at=clock.tick(), workspace="default"))

    assert rows(visitor.get("/console/activity?limit=100")) == 100
    assert rows(visitor.get("/console/activity?limit=40")) == 40 + activity.DENIED_MOST


# Live


def test_the_page_is_live_on_request(visitor: ConsoleClient, store: str) -> None:
    shown = visitor.get(f"/console/activity?live=1&id={store}")

    (region,) = shown.named("div", id="live")
    assert region["hx-sse:connect"] == f"/console/activity/live?live=1&id={store}"
    assert shown.named("input", name="live")[0].keys() >= {"checked"}
    assert not visitor.get("/console/activity").named("div", id="live")


def test_new_events_come_to_an_open_page(
    hf: Holdfast, visitor: ConsoleClient, store: str, clock: FrozenClock
) -> None:
    client = LiveClient(visitor, "/console/activity/live?types=memory.created,access.denied")

    def until(client: LiveClient) -> bool:
        match len(client.events):
            case 1:
                hf.memory_stores.memories.create(store, path="/a.md", content="x")
            case 2:
                refusal = Event(type="access.denied", at=clock.tick(), workspace="default")
                hf.events.publish(refusal)
            case _:
                pass
        return len(client.events) == 3

    client.follow(until)

    first, second, third = (each["data"] for each in client.events)
    assert "memory.created" not in first
    assert "memory.created" in second
    assert 'class="denied"' not in second
    assert 'class="denied"' in third
    assert client.targets == ["#live", "#events"]


def test_events_that_are_not_stored_come_to_an_open_page(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    client = LiveClient(visitor, "/console/activity/live")

    def until(client: LiveClient) -> bool:
        if len(client.events) == 1:
            hf.durable("agent_7").hydrate()
        return len(client.events) == 2

    client.follow(until)

    assert "durable.hydrated" in client.events[1]["data"]


def test_one_live_page_too_many_polls(visitor: ConsoleClient, store: str) -> None:
    LIVE.add(by=LIVE_MOST)
    try:
        shown = visitor.get(f"/console/activity/live?id={store}")
    finally:
        LIVE.add(by=-LIVE_MOST)

    (polled,) = [each for each in shown.named("div", id="live") if "hx-get" in each]
    assert polled["hx-get"] == f"/console/activity/poll?id={store}"
    assert "store.created" in visitor.get(str(polled["hx-get"])).text


# Health


def test_health_shows_sizes_growth_and_numbers(
    hf: Holdfast, app: App, visitor: ConsoleClient, store: str
) -> None:
    hf.memory_stores.memories.create(store, path="/a.md", content="x")
    app.state.sweep()

    shown = visitor.get("/console/health")

    assert shown.named("section", aria_labelledby="r-sizes")
    assert shown.named("figure", aria_label="Storage growth")
    assert "Memories 1" in shown.text
    assert "Versions 1" in shown.text
    for each in METRICS:
        assert f"holdfast_{each.name}" in shown.text, each.name
        assert each.says in shown.text


def test_numbers_are_the_sums_of_their_samples() -> None:
    text = (
        "# HELP holdfast_ltm_jobs Jobs.\n# TYPE holdfast_ltm_jobs gauge\n"
        'holdfast_ltm_jobs{kind="a b",state="failed"} 2\nholdfast_ltm_jobs{kind="c"} 1.5e3\n'
        "holdfast_unknown 7\n"
    )

    (row,) = numbers_in(text)

    assert (row.name, row.value) == ("holdfast_ltm_jobs", "1,502")


def test_checks_come_after_the_page(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console/health")
    assert not shown.named("table", aria_label="Checks")
    (later,) = shown.named("div", hx_trigger="load")

    checks = visitor.get(str(later["hx-get"]))

    assert checks.named("table", aria_label="Checks")
    assert "durability" in checks.text
    assert visitor.get("/console/health?checks=1").named("table", aria_label="Checks")


def test_a_failed_check_is_shown_here_and_on_the_overview(
    tmp_path: Path, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    with holdfast.open(tmp_path / "h.db", clock=clock) as hf:
        hf.durable("agent_7").set("key", "value", category="core")
        app = make_app(hf, clock=clock, make_site=Console)
        visitor = ConsoleClient(app, runner)
        assert "No check" in visitor.get("/console/health/failed").text
        with connect(tmp_path / "h.db") as raw:
            raw.execute("update durable_agents set entries = 7")

        # The overview repeats what an examination of the last ten minutes found.
        assert "No check" in visitor.get("/console/health/failed").text
        clock.tick(activity.EXAMINED_AGAIN.total_seconds())
        assert visitor.get("/console/health/checks").named("span", **{"class": "badge bad"})
        assert "durable counters" in visitor.get("/console/health/failed").text
        clock.tick(timedelta(minutes=10).total_seconds())
        assert "durable counters" in visitor.get("/console/health/failed").text
        app.state.close()


@pytest.mark.usefixtures("store")
def test_verification_finds_nothing_in_a_whole_database(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console/health")
    (form,) = shown.named("form", **{"class": "row"})

    part = visitor.post(str(form["hx-post"]))
    whole = visitor.post(str(form["action"]))

    for each in (part, whole):
        assert each.named("section", aria_labelledby="verification-title")
        assert "Nothing found" in each.text
        assert "1 stores" in each.text
    assert not part.named("h1")
    assert whole.named("h1")


def test_verification_shows_what_is_not_whole(tmp_path: Path, runner: asyncio.Runner) -> None:
    with holdfast.open(tmp_path / "h.db") as hf:
        store = hf.memory_stores.create(name="notes")
        hf.memory_stores.memories.create(store.id, path="/a.md", content="x")
        app = make_app(hf, make_site=Console)
        with connect(tmp_path / "h.db") as raw:
            raw.execute("update stores set memories = 7")

        shown = ConsoleClient(app, runner).post("/console/health/verification")

        assert shown.named("table", aria_label="Findings")
        assert store.id in shown.text or store.id[-6:] in shown.html
        assert "Nothing found" not in shown.text
        app.state.close()


def test_only_an_admin_examines_and_verifies(signed_in: SignedIn) -> None:
    writer = signed_in("write")

    shown = writer.get("/console/health?checks=1")

    assert shown.status == 200
    assert "need a key of scope admin" in shown.text
    assert not shown.named("table", aria_label="Checks")
    for page in ("checks", "failed"):
        assert writer.get(f"/console/health/{page}").status == 403
    for page in ("health", "health/verification"):
        assert writer.post(f"/console/{page}").status == 403


def test_a_verification_for_another_site_is_refused(visitor: ConsoleClient) -> None:
    shown = visitor.post("/console/health/verification", {}, **{"sec-fetch-site": "cross-site"})

    assert shown.status == 403


def test_a_bound_key_sees_neither_activity_nor_health(signed_in: SignedIn) -> None:
    bound = signed_in("admin", agent="agent_7")

    for page in ("activity", "activity/live", "activity/poll", "health", "health/checks"):
        assert bound.get(f"/console/{page}").status == 403


def test_hostile_texts_change_no_element(
    hf: Holdfast, visitor: ConsoleClient, clock: FrozenClock
) -> None:
    def skeleton(text: str) -> list[str]:
        for _ in range(activity.DENIED_MOST):
            event = Event(
                type="access.denied",
                at=clock.now(),
                workspace="default",
                owner=text,
                actor=holdfast.Actor.user(text),
                ids={"run_id": text.replace(" ", "_")},
                data={text: text},
            )
            hf.events.publish(event)
        return visitor.get("/console/activity?live=1").skeleton

    plain = skeleton("plain")
    for text in HOSTILE:
        assert skeleton(text) == plain


def test_pages_are_the_same_on_postgresql(fresh_postgres_url: str, runner: object) -> None:
    with holdfast.open(fresh_postgres_url) as whole:
        app = make_app(whole, make_site=Console)
        visitor = ConsoleClient(app, runner)  # pyright: ignore[reportArgumentType] - the fixture
        hf = whole.acting(workspace="activity-page")
        store = hf.memory_stores.create(name="notes of postgres")
        hf.memory_stores.memories.create(store.id, path="/a.md", content="tabs")
        app.state.sweep()
        visitor.cookies["holdfast_workspace"] = "activity-page"

        assert rows(visitor.get("/console/activity")) == 2
        assert rows(visitor.get(f"/console/activity?id={store.id}&types=memory.created")) == 1
        assert "Memories 1" in visitor.get("/console/health").text
        assert visitor.get("/console/health/checks").named("table", aria_label="Checks")
        assert "Nothing found" in visitor.post("/console/health/verification").text
        app.state.close()
