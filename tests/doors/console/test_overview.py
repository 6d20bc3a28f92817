"""The overview: what there is, what is new, what needs a person."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from doors.console.client import HOSTILE, ConsoleClient

import holdfast
from holdfast import RunMemory
from holdfast.doors.console.app import Console
from holdfast.doors.console.pages.overview import line_of
from holdfast.doors.http.app import App, make_app
from holdfast.library import directory
from holdfast.library.directory import Concern
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

SignedIn = Callable[..., ConsoleClient]


def remember(hf: Holdfast, user: str, text: str, **place: str) -> None:
    memory = hf.longterm(user, enabled=True, embedder=False, **place)  # pyright: ignore[reportArgumentType] - namespace and workspace id
    assert memory is not None
    memory.remember(text)


def test_an_empty_workspace_says_how_each_thing_comes(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console")

    assert shown.status == 200
    for text in ("hf.memory_stores.create", "hf.durable", "hf.longterm", "hf.runs.attach"):
        assert text in shown.text
    assert "No cap is nearly full" in shown.text
    assert "No samples yet" in shown.text


def test_regions_and_the_figure_have_their_names(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console")

    for name in ("Stores", "Agents", "People", "Runs"):
        assert shown.named("section", aria_label=name)
    assert shown.named("section", aria_labelledby="r-attention")
    assert shown.named("figure", aria_label="Storage growth")


def test_regions_show_counts_and_the_five_newest(
    hf: Holdfast, clock: FrozenClock, visitor: ConsoleClient
) -> None:
    for n in range(7):
        clock.tick()
        store = hf.memory_stores.create(name=f"store {n}")
        hf.memory_stores.memories.create(store.id, path="/a.md", content="x")
        hf.durable(f"agent_{n}").set("key", "value", category="core")
        remember(hf, f"user-{n}", "Prefers short answers.")
        hf.runs.attach(RunMemory(), name=f"run {n}")()

    shown = visitor.get("/console")

    for text in ("7 · 7 memories", "7 · 7 entries", "7 · 7 items"):
        assert text in shown.text
    for n in range(7):
        for name in (f"store {n}", f"agent_{n}", f"user-{n}"):
            assert (name in [each.strip() for each in shown.page.texts]) == (n >= 2), name
    assert len([each for each in shown.page.links if each.startswith("/console/runs/")]) == 5


def test_growth_is_drawn_from_the_samples(app: App, hf: Holdfast, visitor: ConsoleClient) -> None:
    hf.memory_stores.create(name="notes")
    app.state.sweep()

    shown = visitor.get("/console")

    assert "No samples yet" not in shown.text
    assert shown.named("svg", role="img")


def test_what_needs_a_person_is_named_with_a_link(
    hf: Holdfast, clock: FrozenClock, visitor: ConsoleClient
) -> None:
    store = hf.memory_stores.create(name="Full notes")
    for n in range(9):
        hf.memory_stores.memories.create(store.id, path=f"/{n}.md", content="x")
    hf.memory_stores.configure(memories_cap=10)
    hf.set_durable_limits(cap=10)
    for n in range(9):
        hf.durable("agent_7").set(f"key {n}", "value", category="core")
    hf.durable("agent_8").set("today", "value", category="daily")
    hf.durable("agent_8").set("soon", "value", category="daily")
    clock.tick(timedelta(hours=50).total_seconds())

    shown = visitor.get("/console")

    assert "Full notes : holds 9 of 10 memories" in shown.text
    assert "agent_7 : holds 9 of 10 entries" in shown.text
    assert "agent_8 : 2 entries expire within a day" in shown.text
    assert f"/console/stores/{store.id}" in shown.page.links
    assert "/console/agents/agent_8?category=daily" in shown.page.links


def test_every_kind_of_concern_has_a_line() -> None:
    kinds = (
        "store_full", "agent_full", "shared_full", "expiring", "shared_expiring", "failed_work",
        "held_rows", "lost_run", "erasure",
    )  # fmt: skip

    for kind in kinds:
        line = line_of(Concern(kind=kind, id="x", name="chat", held=1, cap=2))
        assert line.says
        assert line.href.startswith("/console/")


def test_one_workspace_sees_nothing_of_another(hf: Holdfast, visitor: ConsoleClient) -> None:
    other = hf.acting(workspace="other")
    other.memory_stores.create(name="Their notes")
    other.durable("their_agent").set("key", "value", category="core")
    remember(other, "their-user", "Prefers short answers.")

    shown = visitor.get("/console")

    assert "heir" not in shown.text
    assert directory.holdings(hf).stores == 0
    assert "Their notes" in visitor.get("/console?workspace=other").text


def test_failed_checks_come_after_the_page_and_only_for_admins(
    visitor: ConsoleClient, signed_in: SignedIn
) -> None:
    assert visitor.get("/console").named("div", hx_get="/console/health/failed")
    assert "No check of the database failed" in visitor.get("/console/health/failed").text

    reader = signed_in("read")

    assert not reader.get("/console").named("div", hx_get="/console/health/failed")
    assert reader.get("/console/health/failed").status == 403


@pytest.mark.parametrize("bound", [{"agent": "agent_7"}, {"user": "ada"}])
def test_a_bound_key_is_led_to_what_it_is_bound_to(
    signed_in: SignedIn, bound: dict[str, str]
) -> None:
    (owner,) = bound.values()

    assert signed_in("read", **bound).get("/console").location.endswith(owner)


def test_hostile_texts_change_no_element(
    hf: Holdfast, clock: FrozenClock, visitor: ConsoleClient
) -> None:
    def skeleton(text: str) -> list[str]:
        clock.tick()
        hf.memory_stores.update(store.id, name=text)
        remember(hf, user, text, namespace="chat")
        memory = RunMemory()
        hf.runs.attach(memory, name=text)()
        shown = visitor.get("/console").skeleton
        hf.runs.delete(memory.run_id)
        return shown

    store, user = hf.memory_stores.create(name="plain"), "ada"
    hf.memory_stores.configure(memories_cap=1)
    hf.memory_stores.memories.create(store.id, path="/a.md", content="x")
    plain = skeleton("plain")
    for text in HOSTILE:
        assert skeleton(text) == plain


def test_the_page_is_the_same_on_postgresql(postgres_url: str, runner: object) -> None:
    with holdfast.open(postgres_url) as whole:
        app = make_app(whole, make_site=Console)
        visitor = ConsoleClient(app, runner)  # pyright: ignore[reportArgumentType] - the fixture
        hf = whole.acting(workspace="overview-page")
        store = hf.memory_stores.create(name="notes of postgres")
        hf.memory_stores.memories.create(store.id, path="/a.md", content="tabs")
        hf.memory_stores.configure(memories_cap=1)
        hf.durable("agent_7").set("today", "value", category="daily")
        remember(hf, "ada", "Prefers short answers.")
        app.state.sweep()

        shown = visitor.get("/console?workspace=overview-page")

        for text in ("notes of postgres", "agent_7", "ada", "1 · 1 memory", "holds 1 of 1"):
            assert text in shown.text
        assert directory.concerns(hf, store.created_at + timedelta(days=2, hours=12), 5)[1:]
        app.state.close()
