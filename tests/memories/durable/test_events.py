"""What durable memory tells of what happened: counts and outcomes, and nothing that was kept."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.ground.errors import RunRequired
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.fakes import FrozenClock

KEY, CONTENT, LABEL = "Kq9fKey", "Zw3xContent", "Lb2yLabel"


@pytest.fixture
def told(hf: Holdfast) -> Iterator[list[Event]]:
    """Give what is told of the workspace's durable memory, as it is told."""
    told: list[Event] = []

    def listen(event: Event) -> None:
        if event.workspace == hf.workspace and event.type.startswith("durable."):
            told.append(event)

    off = hf.events.subscribe(listen)
    yield told
    off()


def types(told: list[Event]) -> list[str]:
    return [event.type.removeprefix("durable.") for event in told]


def test_a_write_tells_its_outcome_its_category_and_its_size(
    durable: DurableMemory, told: list[Event]
) -> None:
    stored = durable.set(KEY, CONTENT, category="core")
    durable.set(KEY, CONTENT, category="core")

    assert [event.data for event in told] == [
        {"outcome": "created", "category": "core", "size": stored.size_bytes},
        {"outcome": "refreshed", "category": "core", "size": stored.size_bytes},
    ]
    assert {event.owner for event in told} == {"agent_7"}
    assert {event.actor for event in told} == {stored.created_by.actor}
    assert 0 < told[0].seq < told[1].seq


def test_a_label_of_the_callers_own_is_told_to_nobody(
    durable: DurableMemory, told: list[Event]
) -> None:
    durable.set(KEY, CONTENT, category=LABEL)

    assert told[0].data["category"] == "custom"


def test_what_changes_nothing_tells_nothing(durable: DurableMemory, told: list[Event]) -> None:
    durable.set(KEY, CONTENT, category="core")
    told.clear()

    durable.set(KEY, CONTENT, category="core", refresh=False)
    durable.forget("absent")
    durable.get(KEY)
    durable.list()
    durable.sweep()

    assert told == []


def test_an_eviction_and_an_expiry_are_told_with_the_write_that_brought_them(
    durable: DurableMemory, told: list[Event], clock: FrozenClock
) -> None:
    durable.set_limits(cap=2)
    durable.set("daily", CONTENT, category="daily")
    durable.set("cold", CONTENT, category="note")
    clock.tick(72 * 3600 + 1)
    durable.set("next", CONTENT, category="note")
    told.clear()

    durable.set(KEY, CONTENT, category="note")

    assert sorted(types(told)) == ["evicted", "stored"]
    (evicted,) = [event for event in told if event.type == "durable.evicted"]
    assert evicted.data == {"category": "custom", "entries": 1}


def test_an_expiry_is_told_by_a_sweep(
    durable: DurableMemory, told: list[Event], clock: FrozenClock
) -> None:
    durable.set(KEY, CONTENT, category="daily")
    clock.tick(72 * 3600 + 1)
    told.clear()

    durable.sweep()

    assert [(event.type, event.data) for event in told] == [
        ("durable.expired", {"category": "daily", "entries": 1})
    ]


def test_a_refusal_tells_its_code(durable: DurableMemory, told: list[Event]) -> None:
    with pytest.raises(RunRequired):
        durable.set(KEY, CONTENT, category="conversation")

    assert [(event.type, event.data) for event in told] == [
        ("durable.refused", {"code": "HF-MEM-008"})
    ]


def test_a_hydration_tells_how_much_it_took_and_left(
    durable: DurableMemory, told: list[Event]
) -> None:
    stored = durable.set(KEY, CONTENT, category="core")
    durable.set("b", CONTENT * 9, category="core")
    told.clear()

    hydration = durable.hydrate(stored.size_bytes)

    assert [(event.type, event.data) for event in told] == [
        (
            "durable.hydrated",
            {
                "entries": 1,
                "omitted": 1,
                "bytes": stored.size_bytes,
                "budget": stored.size_bytes,
                "digest": hydration.digest,
            },
        )
    ]


def test_a_run_tells_when_it_opens_is_superseded_and_ends(
    durable: DurableMemory, told: list[Event]
) -> None:
    durable.run("one")
    with durable.run("two") as run:
        run.set(KEY, CONTENT, category="conversation")

    assert types(told) == [
        *("run_opened", "hydrated"),
        *("run_superseded", "run_opened", "hydrated"),
        *("stored", "run_ended"),
    ]
    assert [event.ids["run_id"] for event in told] == [
        *("one", "one"),
        *("one", "two", "two"),
        *("two", "two"),
    ]
    assert told[-1].data == {"token": run.token, "outcome": "ok", "removed": 1}


ACTS: dict[str, Callable[[DurableMemory, Path], object]] = {
    "forgotten": lambda durable, _: durable.forget(KEY),
    "redacted": lambda durable, _: durable.redact(durable.history().data[0].seq),
    "limits_changed": lambda durable, _: durable.set_limits(cap=9),
    "imported": lambda durable, path: durable.import_markdown(path),
}


@pytest.mark.parametrize("name", ACTS)
def test_it_is_told_once(
    durable: DurableMemory, told: list[Event], tmp_path: Path, name: str
) -> None:
    durable.set(KEY, CONTENT, category=LABEL)
    durable.export_markdown(tmp_path / "files")
    told.clear()

    ACTS[name](durable, tmp_path / "files")

    assert types(told) == [name]


def test_no_event_holds_what_was_kept(
    hf: Holdfast, durable: DurableMemory, told: list[Event], tmp_path: Path
) -> None:
    for category in ("core", "daily", "workspace", LABEL):
        durable.set(f"{KEY}_{category}", CONTENT, category=category, tags=[LABEL])
    durable.export_markdown(tmp_path / "files")
    with durable.run("one") as run:
        run.set(KEY, CONTENT, category="conversation")
        run.forget(f"{KEY}_core")
    durable.import_markdown(tmp_path / "files", "replace")
    durable.set_limits(cap=1, evict=True)
    hf.forget_agent("agent_7")

    said = msgspec.json.encode(told).decode()
    assert told
    assert [word for word in (KEY, KEY.lower(), CONTENT, LABEL) if word in said] == []
