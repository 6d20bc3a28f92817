"""Contract of snapshots, changes, waits for changes, and events of stores."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import count

import pytest

from contracts.sessions import attached
from contracts.stores import GivenAStore, invalid, still, written
from holdfast.ground.errors import (
    CursorExpired,
    NotAuthenticated,
    NotFound,
    PathTaken,
    PreconditionFailed,
)
from holdfast.ground.events import Event
from holdfast.ground.scope import LOCAL
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Move, Moved, Remove, Save
from holdfast.memories.stores.records import ChangesPage, Memory, Store

LONG = 30.0
"""Seconds to wait for what is sure to come."""


def basic(hf: Holdfast, memory: Memory) -> Memory:
    """Return *memory* as it is now, without its content."""
    memories = hf.memory_stores.memories
    return memories.retrieve(memory.id, memory_store_id=memory.memory_store_id, view="basic")


@pytest.mark.surface("file", "readers see one state of the file")
class SnapshotContract(GivenAStore):
    """Subclass it, and give it an `hf` fixture."""

    def test_it_holds_every_memory_in_the_basic_view_by_path(
        self, hf: Holdfast, store: Store
    ) -> None:
        b, a = written(hf, store, "/b", "/a/1")

        snapshot = hf.memory_stores.memories.snapshot(store.id)

        assert snapshot.memories == (basic(hf, a), basic(hf, b))

    def test_of_an_empty_store_there_is_one_too(self, hf: Holdfast, store: Store) -> None:
        snapshot = hf.memory_stores.memories.snapshot(store.id)

        assert (snapshot.memories, snapshot.archived_at) == ((), None)
        assert snapshot.seq > 0

    def test_it_tells_the_cap_and_when_the_store_was_archived(
        self, hf: Holdfast, store: Store
    ) -> None:
        cap = hf.memory_stores.settings().memories_cap
        assert hf.memory_stores.memories.snapshot(store.id).cap == cap
        hf.memory_stores.configure(memories_cap=7)
        archived = hf.memory_stores.archive(store.id)

        snapshot = hf.memory_stores.memories.snapshot(store.id)

        assert (snapshot.cap, snapshot.archived_at) == (7, archived.archived_at)

    @pytest.mark.surface("http", "the server has a branch for it")
    def test_its_number_is_that_of_the_last_write(self, hf: Holdfast, store: Store) -> None:
        before = hf.memory_stores.memories.snapshot(store.id).seq

        edit = Save(path="/a", content="x")
        (applied,) = hf.memory_stores.memories.apply(store.id, [edit], edit_id="edit_1")

        assert hf.memory_stores.memories.snapshot(store.id).seq == applied.seq
        assert applied.seq > before

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_of_an_unknown_store_there_is_none(self, hf: Holdfast, elsewhere: Holdfast) -> None:
        theirs = elsewhere.memory_stores.create(name="Theirs")
        for id in (theirs.id, "memstore_" + "0" * 24, "x", "\0"):
            with pytest.raises(NotFound):
                hf.memory_stores.memories.snapshot(id)


@pytest.mark.surface("file", "the feed reads the file")
class ChangesContract(GivenAStore):
    """Subclass it, and give it `hf` and `elsewhere` fixtures."""

    @pytest.fixture
    def after(self, hf: Holdfast, store: Store) -> int:
        """Return the store's number before the test's own changes."""
        return hf.memory_stores.memories.snapshot(store.id).seq

    def test_nothing_changed_at_first(self, hf: Holdfast, store: Store, after: int) -> None:
        cap = hf.memory_stores.settings().memories_cap

        assert hf.memory_stores.memories.changes(store.id, after) == ChangesPage(
            seq=after, changes=(), cap=cap, archived_at=None
        )

    def test_it_tells_what_became_of_each_memory_oldest_first(
        self, hf: Holdfast, store: Store
    ) -> None:
        a, b, c = written(hf, store, "/a", "/b", "/c")
        after = hf.memory_stores.memories.snapshot(store.id).seq
        hf.memory_stores.memories.delete(b.id, memory_store_id=store.id)
        hf.memory_stores.memories.update(a.id, memory_store_id=store.id, content="new")
        (d,) = written(hf, store, "/d")

        changes = hf.memory_stores.memories.changes(store.id, after).changes

        assert [(each.memory_id, each.operation, each.memory) for each in changes] == [
            (b.id, "deleted", None),
            (a.id, "modified", basic(hf, a)),
            (d.id, "created", basic(hf, d)),
        ]
        assert c.id not in {each.memory_id for each in changes}
        assert [each.seq for each in changes] == sorted({each.seq for each in changes})

    @pytest.mark.surface("http", "the server has a branch for it")
    def test_only_the_last_change_of_a_memory_is_told(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        a, b = written(hf, store, "/a", "/b")
        for text in ("1", "2", "3"):
            hf.memory_stores.memories.update(a.id, memory_store_id=store.id, content=text)
        hf.memory_stores.memories.delete(b.id, memory_store_id=store.id)

        changes = hf.memory_stores.memories.changes(store.id, after).changes

        assert [(each.memory_id, each.operation) for each in changes] == [
            (a.id, "modified"),
            (b.id, "deleted"),
        ]

    def test_what_came_back_and_went_again_is_told_once(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        (a,) = written(hf, store, "/a")
        for _ in range(2):
            hf.memory_stores.memories.delete(a.id, memory_store_id=store.id)
            hf.memory_stores.memory_versions.restore(a.memory_version_id, memory_store_id=store.id)
        hf.memory_stores.memories.delete(a.id, memory_store_id=store.id)

        changes = hf.memory_stores.memories.changes(store.id, after).changes

        assert [(each.operation, each.memory) for each in changes] == [("deleted", None)]

    def test_going_on_from_an_answer_tells_what_came_after_it(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        written(hf, store, "/a")
        first = hf.memory_stores.memories.changes(store.id, after)
        (b,) = written(hf, store, "/b")

        second = hf.memory_stores.memories.changes(store.id, first.seq)

        assert [each.memory_id for each in second.changes] == [b.id]
        assert hf.memory_stores.memories.changes(store.id, second.seq).changes == ()

    def test_from_the_beginning_it_tells_all(self, hf: Holdfast, store: Store) -> None:
        made = written(hf, store, "/a", "/b")

        changes = hf.memory_stores.memories.changes(store.id, 0).changes

        assert [each.memory_id for each in changes] == [each.id for each in made]

    def test_many_changes_come_in_parts_that_split_no_transaction(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        for part, many in enumerate((600, 600, 1_000)):
            edits = [Save(path=f"/{part}/{number}", content="") for number in range(many)]
            hf.memory_stores.memories.apply(store.id, edits, edit_id=f"edit_{part}")

        parts: list[int] = []
        while changes := hf.memory_stores.memories.changes(store.id, after):
            after = changes.seq
            parts.append(len(changes.changes))
            if not changes.changes:
                break

        assert parts == [600, 600, 1_000, 0]

    def test_a_transaction_of_more_than_an_answer_holds_comes_whole(
        self, hf: Holdfast, store: Store
    ) -> None:
        for part in range(2):
            edits = [Save(path=f"/a/{part}/{number}", content="") for number in range(600)]
            hf.memory_stores.memories.apply(store.id, edits, edit_id=f"edit_{part}")
        snapshot = hf.memory_stores.memories.snapshot(store.id)
        moves = tuple(
            Moved(memory_id=each.id, path=each.path.replace("/a/", "/b/"))
            for each in snapshot.memories
        )
        hf.memory_stores.memories.apply(store.id, [Move(moves=moves)], edit_id="edit_m")

        changes = hf.memory_stores.memories.changes(store.id, snapshot.seq)

        assert len(changes.changes) == 1_200
        assert hf.memory_stores.memories.changes(store.id, changes.seq).changes == ()

    def test_a_redacted_version_is_told_of_all_the_same(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        (a,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(a.id, memory_store_id=store.id)
        for version in hf.memory_stores.memory_versions.list(store.id).data:
            hf.memory_stores.memory_versions.redact(version.id, memory_store_id=store.id)

        changes = hf.memory_stores.memories.changes(store.id, after).changes

        assert [(each.memory_id, each.operation) for each in changes] == [(a.id, "deleted")]

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_number_the_store_never_came_to_asks_for_a_snapshot(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        with pytest.raises(CursorExpired) as refusal:
            hf.memory_stores.memories.changes(store.id, after + 1, wait=LONG)

        assert refusal.value.oldest == after

    def test_nor_does_one_it_passed_over_tell_what_came_after_it(
        self, hf: Holdfast, store: Store
    ) -> None:
        edits = [Save(path=f"/{number}", content="") for number in range(3)]
        hf.memory_stores.memories.apply(store.id, edits, edit_id="edit_1")
        passed = hf.memory_stores.memories.snapshot(store.id).seq + 1
        written(hf, store, "/later")
        assert passed < hf.memory_stores.memories.snapshot(store.id).seq

        with pytest.raises(CursorExpired):
            hf.memory_stores.memories.changes(store.id, passed)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_what_is_no_number_and_no_time_is_refused(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        with invalid("after"):
            hf.memory_stores.memories.changes(store.id, -1)
        for seconds in (-1.0, 30.1):
            with invalid("wait"):
                hf.memory_stores.memories.changes(store.id, after, wait=seconds)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_an_unknown_store_has_none(self, hf: Holdfast, elsewhere: Holdfast) -> None:
        theirs = elsewhere.memory_stores.create(name="Theirs")
        for id, number in ((theirs.id, 0), ("memstore_" + "0" * 24, -1), ("x", 0)):
            with pytest.raises(NotFound):
                hf.memory_stores.memories.changes(id, number, wait=LONG)


ATTEMPTS = 20
HEAD_START, PATIENCE = 0.05, 3.0
"""Seconds for a waiting call to begin, and to return."""


@pytest.mark.surface("file", "the feed polls the file")
@pytest.mark.surface("http", "it waits for changes across the wire")
class WaitingContract(GivenAStore):
    """Subclass it, and give it an `hf` fixture."""

    def met(
        self, hf: Holdfast, store: Store, act: Callable[[], object], *, by: Holdfast | None = None
    ) -> ChangesPage:
        """Return the result of a wait for changes, as *by*, during *act*."""
        after = hf.memory_stores.memories.snapshot(store.id).seq
        with ThreadPoolExecutor(1) as pool:
            waiting: Future[ChangesPage] = pool.submit(
                (by or hf).memory_stores.memories.changes, store.id, after, wait=LONG
            )
            act()
            return waiting.result(2 * LONG)

    def woken_by(self, hf: Holdfast, act: Callable[[Store], object]) -> ChangesPage:
        """Return the result of a wait during *act*, which changes no memory.

        It only counts if the wait had begun, so it is tried with one store after another.
        """
        for _ in range(ATTEMPTS):
            store = hf.memory_stores.create(name="Notes")
            after = hf.memory_stores.memories.snapshot(store.id).seq
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(hf.memory_stores.memories.changes, store.id, after, wait=LONG)
                wait([waiting], timeout=HEAD_START)
                act(store)
                if wait([waiting], timeout=PATIENCE).done:
                    return waiting.result()
                hf.memory_stores.delete(store.id)
        pytest.fail("nobody was told")

    def test_it_waits_for_a_change(self, hf: Holdfast, store: Store) -> None:
        made: list[Memory] = []

        changes = self.met(hf, store, lambda: made.extend(written(hf, store, "/a")))

        assert [each.memory_id for each in changes.changes] == [made[0].id]

    def test_it_waits_on_when_another_store_changes(self, hf: Holdfast, store: Store) -> None:
        other = hf.memory_stores.create(name="Other")

        def act() -> None:
            written(hf, other, "/theirs")
            written(hf, store, "/ours")

        (change,) = self.met(hf, store, act).changes

        assert change.memory is not None
        assert change.memory.path == "/ours"

    def test_it_ends_without_a_change_when_the_time_is_over(
        self, hf: Holdfast, store: Store
    ) -> None:
        after = hf.memory_stores.memories.snapshot(store.id).seq

        changes = hf.memory_stores.memories.changes(store.id, after, wait=0.05)

        assert (changes.seq, changes.changes) == (after, ())

    def test_it_ends_when_the_store_is_archived(self, hf: Holdfast) -> None:
        changes = self.woken_by(hf, lambda store: hf.memory_stores.archive(store.id))

        assert changes.changes == ()
        assert changes.archived_at is not None

    def test_it_ends_when_the_store_is_updated(self, hf: Holdfast) -> None:
        changes = self.woken_by(hf, lambda store: hf.memory_stores.update(store.id, name="New"))

        assert changes.changes == ()

    def test_it_ends_when_the_cap_is_changed(self, hf: Holdfast) -> None:
        caps = count(10)

        changes = self.woken_by(hf, lambda _: hf.memory_stores.configure(memories_cap=next(caps)))

        assert (changes.changes, changes.cap) == ((), next(caps) - 1)

    def test_it_ends_when_the_store_is_deleted(self, hf: Holdfast, store: Store) -> None:
        with pytest.raises(NotFound):
            self.met(hf, store, lambda: hf.memory_stores.delete(store.id))

    def test_it_ends_when_the_session_is_archived(self, hf: Holdfast, store: Store) -> None:
        session = attached(hf, store)
        with hf.for_session(session.id) as narrowed, pytest.raises(NotAuthenticated):
            self.met(hf, store, lambda: hf.sessions.archive(session.id), by=narrowed)

    def test_a_removal_that_did_nothing_is_no_change(self, hf: Holdfast, store: Store) -> None:
        def act() -> None:
            gone = Remove(memory_id="mem_" + "0" * 24)
            hf.memory_stores.memories.apply(store.id, [gone], edit_id="edit_1")
            written(hf, store, "/a")

        assert len(self.met(hf, store, act).changes) == 1


@pytest.mark.embedded("events are emitted where the handle is")
class EventsContract(GivenAStore):
    """Events of changes of stores, sessions and keys."""

    @pytest.fixture
    def events(self, hf: Holdfast, store: Store) -> Iterator[list[Event]]:
        """Yield the events of the workspace since the store was created, as they come."""
        events: list[Event] = []

        def listen(event: Event) -> None:
            if event.workspace == hf.workspace:
                events.append(event)

        assert store
        off = hf.events.subscribe(listen)
        yield events
        off()

    def test_each_change_to_a_store_is_told(
        self, hf: Holdfast, events: list[Event], store: Store
    ) -> None:
        hf.memory_stores.create(name="Other")
        hf.memory_stores.update(store.id, name="Letters")
        hf.memory_stores.archive(store.id)
        hf.memory_stores.delete(store.id)

        assert [each.type for each in events] == [
            "store.created",
            "store.updated",
            "store.archived",
            "store.deleted",
        ]
        assert {each.ids["memory_store_id"] for each in events[1:]} == {store.id}

    def test_each_version_is_told_with_its_ids_and_its_actor(
        self, hf: Holdfast, events: list[Event], store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a", content="x")
        hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="y")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        assert [each.type for each in events] == [
            "memory.created",
            "memory.modified",
            "memory.deleted",
        ]
        assert {each.ids["memory_id"] for each in events} == {memory.id}
        assert {each.actor for each in events} == {LOCAL}

    def test_a_redaction_is_told(self, hf: Holdfast, events: list[Event], store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        hf.memory_stores.memory_versions.redact(memory.memory_version_id, memory_store_id=store.id)

        assert events[-1].type == "version.redacted"
        assert events[-1].ids["memory_version_id"] == memory.memory_version_id

    def test_sessions_and_keys_are_told(self, hf: Holdfast, events: list[Event]) -> None:
        session = hf.sessions.create(agent="coder", environment_id="laptop")
        hf.sessions.archive(session.id)
        hf.sessions.delete(session.id)
        hf.keys.revoke(hf.keys.create("ci").id)

        assert [each.type for each in events] == [
            "session.created",
            "session.archived",
            "session.deleted",
            "key.created",
            "key.revoked",
        ]

    def test_what_failed_or_changed_nothing_is_not_told(
        self, hf: Holdfast, events: list[Event], store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        events.clear()

        with pytest.raises(PathTaken):
            written(hf, store, "/a/b")
        with pytest.raises(PreconditionFailed):
            hf.memory_stores.memories.update(
                memory.id, memory_store_id=store.id, content="y", precondition=still("z")
            )
        hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="x")
        hf.memory_stores.update(store.id, name="Notes")

        assert events == []

    def test_a_listener_that_raises_is_not_felt_by_the_write(
        self, hf: Holdfast, store: Store
    ) -> None:
        def listen(event: Event) -> None:
            raise ValueError(event.type)

        off = hf.events.subscribe(listen)

        (memory,) = written(hf, store, "/a")

        off()
        assert memory.path == "/a"
