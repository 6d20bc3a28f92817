"""What a workspace holds and what of it needs a person, on each engine."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from contracts.longterm_extraction import fail_until_failed, mining
from contracts.longterm_vectors import until

import holdfast
from holdfast import RunMemory
from holdfast.library import directory
from holdfast.library.directory import Concern, ConcernKind
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

NAMED = 5


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return ":memory:"
    url: str = request.getfixturevalue("fresh_postgres_url")
    return url


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def hf(target: str, clock: FrozenClock) -> Iterator[Holdfast]:
    with closing(holdfast.open(target, clock=clock)) as hf:
        yield hf


def found(hf: Holdfast, clock: FrozenClock, kind: ConcernKind) -> list[Concern]:
    return [each for each in directory.concerns(hf, clock.now(), NAMED) if each.kind == kind]


def test_an_empty_workspace_needs_nothing(hf: Holdfast, clock: FrozenClock) -> None:
    assert directory.concerns(hf, clock.now(), NAMED) == []
    held = directory.holdings(hf)
    assert {getattr(held, name) for name in held.__struct_fields__} == {0}
    assert directory.newest_agents(hf, NAMED) == []
    assert directory.newest_collections(hf, NAMED) == []


def test_a_store_at_nine_tenths_of_its_cap_is_nearly_full(hf: Holdfast, clock: FrozenClock) -> None:
    hf.memory_stores.configure(memories_cap=10)
    store = hf.memory_stores.create(name="notes")
    for n in range(8):
        hf.memory_stores.memories.create(store.id, path=f"/{n}", content="x")
    assert found(hf, clock, "store_full") == []

    hf.memory_stores.memories.create(store.id, path="/8", content="x")

    (concern,) = found(hf, clock, "store_full")
    assert (concern.id, concern.name, concern.held, concern.cap) == (store.id, "notes", 9, 10)
    hf.memory_stores.archive(store.id)
    assert found(hf, clock, "store_full") == []


def test_the_cap_of_an_agent_comes_before_that_of_the_workspace(
    hf: Holdfast, clock: FrozenClock
) -> None:
    for agent in ("agent_7", "agent_8"):
        for n in range(3):
            hf.durable(agent).set(f"key {n}", "x", category="core")
    hf.set_durable_limits(cap=3)
    hf.durable("agent_8").set_limits(cap=100)

    (concern,) = found(hf, clock, "agent_full")

    assert (concern.id, concern.held, concern.cap) == ("agent_7", 3, 3)


def test_what_agents_share_has_a_cap_of_its_own(hf: Holdfast, clock: FrozenClock) -> None:
    hf.durable("agent_7").set("shared", "x", category="workspace")
    assert found(hf, clock, "shared_full") == []

    hf.set_durable_limits(workspace_cap=1)

    (concern,) = found(hf, clock, "shared_full")
    assert (concern.held, concern.cap) == (1, 1)
    assert found(hf, clock, "agent_full") == []


def test_entries_that_expire_within_a_day_are_counted_by_agent(
    hf: Holdfast, clock: FrozenClock
) -> None:
    for agent, entries in (("agent_7", 2), ("agent_8", 1)):
        for n in range(entries):
            hf.durable(agent).set(f"key {n}", "x", category="daily")
    assert found(hf, clock, "expiring") == []

    clock.tick(timedelta(hours=49).total_seconds())
    assert [(each.id, each.held) for each in found(hf, clock, "expiring")] == [
        ("agent_7", 2),
        ("agent_8", 1),
    ]

    clock.tick(timedelta(hours=24).total_seconds())
    assert found(hf, clock, "expiring") == []


def test_mining_that_failed_for_good_is_named_with_its_collection(
    hf: Holdfast, clock: FrozenClock
) -> None:
    ltm, _ = mining(hf, *[ValueError("x")] * 6)
    ltm.remember_conversation([{"role": "user", "content": "I like tea"}])
    fail_until_failed(ltm, clock)

    (concern,) = found(hf, clock, "failed_work")

    assert concern.held == 1
    (collection,) = directory.newest_collections(hf, NAMED)
    assert (concern.id, concern.name) == (collection.user_id, collection.namespace)


def test_a_lost_run_is_named(hf: Holdfast, clock: FrozenClock) -> None:
    memory = RunMemory()
    hf.runs.attach(memory, name="Research")
    until(lambda: bool(hf.runs.list().data))
    clock.tick(3_600)

    (concern,) = found(hf, clock, "lost_run")

    assert (concern.id, concern.name) == (memory.run_id, "Research")


def test_each_kind_is_bounded(hf: Holdfast, clock: FrozenClock) -> None:
    hf.set_durable_limits(cap=1)
    for n in range(7):
        hf.durable(f"agent_{n}").set("key", "x", category="core")

    assert len(found(hf, clock, "agent_full")) == NAMED
    assert len(directory.newest_agents(hf, NAMED)) == NAMED
    assert len(directory.agents_from(hf, "agent_", 3)) == 3
    assert len(directory.keys_from(hf, "k", clock.now(), 3)) == 3


def test_names_are_found_by_how_they_begin(hf: Holdfast, clock: FrozenClock) -> None:
    for agent in ("agent_7", "agent_70", "agent_8"):
        hf.durable(agent).set("café hours", "x", category="core")

    assert [each.agent for each in directory.agents_from(hf, "agent_7", NAMED)] == [
        "agent_7",
        "agent_70",
    ]
    # A key is stored composed, however it is typed.
    for prefix in ("café", "cafe\u0301"):
        found = directory.keys_from(hf, prefix, clock.now(), NAMED)
        assert [(each.agent, each.key) for each in found] == [
            ("agent_7", "café hours"),
            ("agent_70", "café hours"),
            ("agent_8", "café hours"),
        ]


def test_an_id_is_one_of_ours_by_its_form() -> None:
    assert directory.is_id(f"mem_{'0' * 24}")
    for other in ("mem_", f"page_{'0' * 24}", f"mem_{'0' * 23}", "agent_7", "", "mem"):
        assert not directory.is_id(other)
