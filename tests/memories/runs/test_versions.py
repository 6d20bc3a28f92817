"""Versions of runs: what a run knew, stored with its events in one transaction."""

from datetime import UTC, datetime
from itertools import count, islice
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.engines.base import Transaction, scalar
from holdfast.ground.errors import InvalidInput, NotFound, StaleRun
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.history.turns import KeptTurn, open_turns, turns_of
from holdfast.memories.run.history.versions import (
    CHANGED_MOST,
    SavedVersion,
    State,
    StateKind,
    StateRow,
    VersionRows,
    VersionSave,
    entry_row,
    save_version,
    state_at,
)
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.question import Question
from holdfast.memories.run.records.record import LeaseGrant, RunAcquisition, TakeOver
from holdfast.memories.run.records.write import begin, statements

KEYS = tuple(f"shared:{name}" for name in "abcde")

ACTS = st.lists(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.sampled_from(KEYS), st.integers(-9, 9)),
            st.tuples(st.just("delete"), st.sampled_from(KEYS), st.just(0)),
            st.tuples(st.just("clear"), st.just(""), st.just(0)),
        ),
        max_size=6,
    ),
    min_size=1,
    max_size=8,
)
"""What happens in a run between one version and the next."""


def begun(
    hf: Holdfast, holder: str = "a", run_id: str = "run_1", take_over: TakeOver = "expired"
) -> LeaseGrant:
    start = RunAcquisition(
        run_id=run_id,
        holder=holder,
        name="n",
        kind="plan",
        place="rock:7",
        started_at=1,
        take_over=take_over,
    )
    return begin(hf.runs.context, start)


def save(hf: Holdfast, *rows: StateRow, fence: int = 1, **more: Any) -> SavedVersion:
    facts: dict[str, Any] = {"run_id": "run_1", "cause": "step", "at": 7, **more}
    return save_version(hf.runs.context, VersionSave(fence=fence, rows=rows, **facts))


def state(hf: Holdfast, version: int | None = None, run: str = "run_1") -> State:
    context = hf.runs.context
    return state_at(context.engine, statements(context), run, version)


def turns(hf: Holdfast, part: str | None = None) -> list[KeptTurn]:
    context = hf.runs.context
    if part is None:
        return open_turns(context.engine, statements(context), "run_1", ())
    return turns_of(context.engine, statements(context), "run_1", part)


def entry(key: str, body: bytes | None = b"1") -> StateRow:
    return StateRow("entry", key, body)


def test_versions_of_a_run_are_numbered_from_one(kept: Holdfast) -> None:
    begun(kept)
    begun(kept, run_id="run_2")

    numbers = [save(kept, entry("shared:a")).number, save(kept).number]

    assert (numbers, save(kept, run_id="run_2").number) == ([1, 2], 1)


def test_a_version_holds_what_the_run_knew_then(kept: Holdfast) -> None:
    begun(kept)
    save(kept, entry("shared:a", b"1"), entry("shared:b", b"2"), StateRow("value", "a", b"3"))
    save(kept, entry("shared:a", b"4"), entry("shared:b", None))
    save(kept, entry("shared:b", b"5"))

    assert list(state(kept, 1).items()) == [
        (("entry", "shared:a"), b"1"),
        (("entry", "shared:b"), b"2"),
        (("value", "a"), b"3"),
    ]
    assert state(kept, 2) == {("entry", "shared:a"): b"4", ("value", "a"): b"3"}
    assert list(state(kept)) == [("entry", "shared:a"), ("value", "a"), ("entry", "shared:b")]
    assert state(kept, 0) == {}


def test_a_version_is_told_with_its_number_in_the_transaction_that_stores_it(
    kept: Holdfast,
) -> None:
    begun(kept)
    published: list[Event] = []
    kept.runs.context.engine.events.subscribe(published.append)

    told = save(kept, entry("shared:a"), StateRow("part", "read", b"{}"), part="read").events

    assert next(kept.runs.follow("run_1", after=1)) == told[0]
    assert (told[0].seq, told[0].part, told[0].at) == (2, "read", 7)
    assert told[0].data == {
        "version": 1,
        "cause": "step",
        "changed": ["shared:a", "part:read"],
        "bytes": 15,
    }
    assert [each.type for each in published] == ["run.version_kept"]


def test_a_version_of_a_former_owner_is_refused_and_stores_nothing(kept: Holdfast) -> None:
    begun(kept)
    save(kept, entry("shared:a"))
    begun(kept, "b", take_over="always")

    with pytest.raises(StaleRun):
        save(kept, entry("shared:a", b"9"), turns=(KeptTurn("read", 1, b"{}"),))

    assert state(kept) == {("entry", "shared:a"): b"1"}
    assert turns(kept) == []
    assert save(kept, entry("shared:a", b"2"), fence=2).number == 2


def test_a_version_of_no_run_is_not_found(kept: Holdfast) -> None:
    with pytest.raises(NotFound):
        save(kept)


def test_turns_alone_make_no_version(kept: Holdfast) -> None:
    begun(kept)
    first, second = KeptTurn("read", 1, b'{"a":1}', "ada"), KeptTurn("read", 2, b"{}")
    other = KeptTurn("sum", 1, b"{}")

    assert save(kept, cause=None, turns=(second, other)) == SavedVersion()
    save(kept, cause=None, turns=(first,))

    assert turns(kept) == [first, second, other]
    assert turns(kept, "sum") == [other]
    assert save(kept).number == 1


def test_what_only_a_version_holds_needs_a_cause(kept: Holdfast) -> None:
    begun(kept)

    with pytest.raises(InvalidInput, match="cause"):
        save(kept, cause=None, status="waiting")


def test_rows_without_a_cause_belong_to_the_next_version(kept: Holdfast) -> None:
    begun(kept)
    save(kept, entry("shared:a"))

    assert save(kept, StateRow("once", "read:call_1:k", b"1"), cause=None) == SavedVersion()
    save(kept, StateRow("once", "read:call_1:k", b"2"), cause=None)

    assert state(kept)["once", "read:call_1:k"] == b"2"
    assert ("once", "read:call_1:k") not in state(kept, 1)
    assert save(kept).number == 2


def question(id: str = "question_1") -> Question:
    return Question(
        id=id,
        run_id="run_1",
        kind="question",
        key="k",
        text="Which berth?",
        part="moor",
        asked_at=datetime(2026, 7, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("questions", "status", "told"),
    [
        (("question_1",), "waiting", ["question.asked", "run.waiting"]),
        ((), "queued", ["run.queued"]),
    ],
)
def test_a_run_that_leaves_its_process_gives_its_lease_back_with_its_version(
    kept: Holdfast, questions: tuple[str, ...], status: str, told: list[str]
) -> None:
    begun(kept)

    asked = tuple(map(question, questions))
    events = save(kept, entry("shared:a"), questions=asked, status=status).events

    assert [each.type for each in events] == ["version.kept", *told]
    run = kept.runs.retrieve("run_1")
    assert (run.status, run.ended_at) == (status, None)
    with pytest.raises(StaleRun):
        save(kept)
    assert begun(kept, "b").fence == 2
    assert begun(kept, "b").fence == 2


def test_a_run_that_was_waiting_goes_on_without_a_take_over(kept: Holdfast) -> None:
    begun(kept)
    save(kept, status="waiting")

    opened = begun(kept, "a").opened

    assert [each.type for each in opened] == ["run.resumed"]


def test_nothing_is_stored_after_another_version(kept: Holdfast) -> None:
    begun(kept)
    save(kept, entry("shared:a"))

    assert save(kept, entry("shared:a", b"2"), after=0) == SavedVersion(stored=False)
    assert save(kept, entry("shared:a", b"3"), after=1).number == 2
    assert state(kept) == {("entry", "shared:a"): b"3"}


def test_the_keys_that_a_version_lists_have_a_limit(kept: Holdfast) -> None:
    begun(kept)
    rows = [entry(f"shared:{number:0200}") for number in range(CHANGED_MOST + 5)]

    (told,) = save(kept, *rows).events

    assert 100 < len(told.data["changed"]) < CHANGED_MOST
    assert len(state(kept)) == CHANGED_MOST + 5


def test_events_of_a_version_come_after_those_of_its_owner(kept: Holdfast) -> None:
    begun(kept)

    (told,) = save(kept, seq=8).events

    assert told.seq == 9
    assert kept.runs.retrieve("run_1").status == "running"


def test_questions_are_asked_with_the_version_and_named_by_the_last_event(kept: Holdfast) -> None:
    begun(kept)
    asked = question()

    events = save(kept, questions=(asked,), status="waiting").events

    assert [each.type for each in events] == ["version.kept", "question.asked", "run.waiting"]
    assert [each.seq for each in events] == [2, 3, 4]
    assert events[-1].data == {"questions": ["question_1"]}
    assert list(kept.runs.follow("run_1", after=1, rest=True)) == list(events)


def rows(hf: Holdfast) -> VersionRows:
    return VersionRows(hf.runs.context)


def whole(*rows: StateRow, **more: Any) -> VersionSave:
    return VersionSave(run_id="run_1", fence=0, at=9, cause="whole", rows=rows, **more)


def test_a_whole_replaces_what_the_run_knew_and_stores_what_differs_alone(kept: Holdfast) -> None:
    begun(kept)
    save(kept, entry("shared:a", b"1"), entry("shared:b", b"2"), entry("shared:c", b"3"))

    saved = rows(kept).replace(whole(entry("shared:b", b"2"), entry("shared:c", b"4")))

    assert saved.events[0].data["changed"] == ["shared:a", "shared:c"]
    loaded = rows(kept).load("run_1")
    assert loaded is not None
    assert (loaded.number, loaded.at) == (2, 9)
    assert list(loaded.state.values()) == [b"2", b"4"]


def test_versions_may_be_stored_of_a_run_that_never_had_an_owner(kept: Holdfast) -> None:
    assert rows(kept).load("run_1") is None

    rows(kept).replace(whole(entry("shared:a")))

    assert rows(kept).load("run_1") is not None
    assert kept.runs.retrieve("run_1").status == "queued"
    assert [each.type for each in begun(kept).opened] == ["run.started"]


def test_messages_of_completed_parts_stay_and_are_not_loaded(kept: Holdfast) -> None:
    begun(kept)
    first, second = KeptTurn("read", 1, b"{}"), KeptTurn("sum", 1, b"{}")
    save(kept, turns=(first, second))
    done = StateRow("part", "read", b'{"state":"completed"}')

    rows(kept).replace(whole(done, turns=(KeptTurn("cut", 1, b"{}"),)))

    assert [each.part for each in turns(kept)] == ["cut", "read"]
    loaded = rows(kept).load("run_1")
    assert loaded is not None
    assert [each.part for each in loaded.turns] == ["cut"]


def test_deleted_versions_are_numbered_from_one_again(kept: Holdfast) -> None:
    begun(kept)
    save(kept, entry("shared:a"), turns=(KeptTurn("read", 1, b"{}"),))

    assert rows(kept).delete("run_1")

    assert not rows(kept).delete("run_1")
    assert (rows(kept).load("run_1"), turns(kept)) == (None, [])
    assert save(kept, entry("shared:a"), after=1) == SavedVersion(stored=False)
    assert save(kept, entry("shared:a")).number == 1


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(acts=ACTS)
def test_each_version_is_what_the_memory_was_when_it_was_stored(
    kept: Holdfast, acts: list[list[tuple[str, str, int]]]
) -> None:
    hf, rows = kept, VersionRows(kept.runs.context)
    rows.delete("run_1")
    memory = RunMemory(run_id="run_1")
    changes = memory.changes()
    stored: list[tuple[int, list[RunEntry]]] = []
    for batch in acts:
        for act, key, value in batch:
            if act == "set":
                memory.set(key, value)
            elif act == "delete":
                memory.delete(key)
            else:
                memory.clear()
        written, removed = changes.take()
        facts = (
            *(StateRow("entry", key, None) for key in removed),
            *map(entry_row, written),
        )
        save = VersionSave(run_id="run_1", fence=0, at=1, cause="step", rows=facts)
        first = rows.load("run_1") is None
        saved = rows.replace(save) if first else rows.append(save)
        assert saved.number is not None
        stored.append((saved.number, memory.snapshot()))

    for number, entries in stored:
        found = hf.runs.at("run_1", number).memory.snapshot()
        assert {each.key: each for each in found} == {each.key: each for each in entries}


FACTS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(("entry", "value", "board", "message", "part", "result")),
            st.sampled_from("abc"),
            st.one_of(st.none(), st.integers(0, 9)),
        ),
        max_size=5,
    ),
    min_size=1,
    max_size=25,
)
"""What a run learns or forgets between one version and the next."""

_runs = count(1)

BYTES_AT = 5
"""The place of the bytes of versions among the columns that a save locks."""


def fact(kind: Any, key: str, value: int | None) -> StateRow:
    """Return the fact that *key* has *value*, or that it was deleted."""
    if kind == "entry":
        entry = RunMemory(run_id="r").set(f"shared:{key}", value)
        return entry_row(entry) if value is not None else StateRow(kind, entry.key, None)
    body: dict[str, Any] = {"value": value, "version": 1}
    if kind != "value":
        body["id"] = key
    return StateRow(kind, key, None if value is None else msgspec.json.encode(body))


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(facts=FACTS, most=st.integers(1, 30))
def test_each_version_that_is_left_after_a_fold_has_every_fact_it_had(
    kept: Holdfast, facts: list[list[tuple[Any, str, int | None]]], most: int
) -> None:
    run = f"run_{next(_runs)}"
    kept.configure_runs(versions=most)
    begun(kept, run_id=run)
    context, known = kept.runs.context, dict[int, State]()
    now: State = {}
    left: list[int] = []
    for place, learned in enumerate(facts):
        rows: dict[tuple[StateKind, str], StateRow]
        rows = {(row.kind, row.key): row for row in (fact(*each) for each in learned)}
        for key, row in rows.items():
            if row.body is None:
                now.pop(key, None)
            else:
                now[key] = row.body
        said = (KeptTurn("read", place, b'{"kind":"request"}'),)
        number = save(kept, *rows.values(), run_id=run, turns=said).number or 0
        known[number] = {**now}

        left = [each.number for each in kept.runs.versions(run)]
        assert left == list(range(number, number - len(left), -1))
        assert len(left) <= most
        assert state(kept, run=run) == now
    for number in left:
        assert state(kept, number, run) == known[number]
        found = kept.runs.at(run, number)
        assert {each.key for each in found.memory.snapshot()} == {
            key for kind, key in known[number] if kind == "entry"
        }
        values = {key: body for (kind, key), body in known[number].items() if kind == "value"}
        wanted = {key: msgspec.json.decode(body)["value"] for key, body in values.items()}
        assert ({} if found.state is None else dict(found.state.data)) == wanted
        boards = [body for (kind, _), body in known[number].items() if kind == "board"]
        assert sorted(map(repr, found.board)) == sorted(
            repr(msgspec.json.decode(body)) for body in boards
        )
    stored = kept_bytes(kept, run)
    assert context.engine.write(lambda tx: recounted(kept, tx, run)) == stored


def kept_bytes(hf: Holdfast, run: str) -> int:
    """Return how many bytes of versions and messages the record of *run* has."""
    context = hf.runs.context
    read = statements(context).lock_versions
    return context.engine.write(lambda tx: tx.rows(read, run=run))[0][BYTES_AT]


def recounted(hf: Holdfast, tx: Transaction, run: str) -> int:
    return tx.one(scalar, statements(hf.runs.context).recount_versions, run=run)


def test_past_its_versions_a_run_has_the_oldest_folded_into_one(kept: Holdfast) -> None:
    assert kept.configure_runs(versions=10).versions == 10
    begun(kept)
    events: list[RunEvent] = []
    for number in range(1, 26):
        rows = (entry("shared:a", b"%d" % number), entry(f"shared:b{number}", b"1"))
        events += save(kept, *rows).events

    numbers = [each.number for each in kept.runs.versions("run_1")]

    assert numbers == list(range(25, numbers[-1] - 1, -1))
    assert 1 < len(numbers) <= 10
    assert len(state(kept)) == 26
    for number in numbers:
        found = state(kept, number)
        assert found["entry", "shared:a"] == b"%d" % number
        assert len(found) == number + 1
    with pytest.raises(NotFound):
        kept.runs.at("run_1", numbers[-1] - 1)
    folded = [each for each in events if each.type == "version.folded"]
    assert folded[-1].data == {"version": numbers[-1], "count": 2}
    assert [each.seq for each in events] == list(range(2, 27 + len(folded)))
    assert list(islice(kept.runs.follow("run_1", after=1), len(events))) == events
    assert kept.verify().ok


def test_past_its_bytes_messages_of_completed_parts_go_before_versions(kept: Holdfast) -> None:
    kept.configure_runs(versions=20, bytes=2_000)
    begun(kept)
    done = StateRow("part", "read", b'{"state":"completed"}')
    save(kept, done, turns=(KeptTurn("read", 1, b"x" * 1_900), KeptTurn("sum", 1, b"{}")))
    save(kept, entry("shared:a", b"1" * 200))

    assert [each.part for each in turns(kept)] == ["sum"]
    assert len(kept.runs.versions("run_1")) == 2
    for number in range(20):
        save(kept, entry("shared:a", b"%d" % number * 200))

    assert len(kept.runs.versions("run_1")) < 10
    assert state(kept)["entry", "shared:a"] == b"19" * 200


def test_what_a_part_writes_before_its_end_is_of_the_next_version(kept: Holdfast) -> None:
    begun(kept)
    save(kept, entry("shared:a", b"1"))
    save(kept, entry("shared:a", b"2"), cause=None, turns=(KeptTurn("read", 1, b"{}"),))

    assert state(kept, 1) == {("entry", "shared:a"): b"1"}
    assert state(kept) == {("entry", "shared:a"): b"2"}
    save(kept, entry("shared:b", b"3"))
    assert state(kept, 2) == {("entry", "shared:a"): b"2", ("entry", "shared:b"): b"3"}
