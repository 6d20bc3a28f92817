"""Contract of waiting for the next change of a store."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import count

import pytest

from contracts.attachments import attached
from contracts.changes import LONG
from contracts.stores import GivenAStore, written
from holdfast.ground.errors import NotAuthenticated, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Remove
from holdfast.memories.stores.records import ChangesPage, Memory, Store

ATTEMPTS = 20
HEAD_START, PATIENCE = 0.05, 3.0
"""Seconds for a waiting call to begin, and to return."""


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
