import threading
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

import pytest
from targets import hf as hf
from targets import postgres as postgres

from holdfast.doors.mount.storage.deadline import Deadline
from holdfast.doors.mount.storage.feed import StoreFeed
from holdfast.doors.mount.storage.source import Contents, StoreSource
from holdfast.ground.errors import CursorExpired, HoldfastError, NotFound, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import ChangesPage, Snapshot

T = TypeVar("T")
LONG = 60.0
Answer = ChangesPage | Snapshot | HoldfastError


class Ear:
    """What a feed tells, in order, and a way to wait for it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []
        self.failing: set[str] = set()
        self._heard = threading.Condition()

    def follow(self, source: StoreSource, *, seq: int) -> StoreFeed:
        return StoreFeed(
            source,
            seq=seq,
            changed=lambda answer: self._hear("changed", answer),
            resynced=lambda snapshot: self._hear("resynced", snapshot),
            disconnected=lambda error: self._hear("lost", error),
            reconnected=lambda: self._hear("back", None),
        )

    def _hear(self, what: str, fact: object) -> None:
        with self._heard:
            self.told.append((what, fact))
            self._heard.notify_all()
        if what in self.failing:
            self.failing.remove(what)
            raise ValueError("a bug")

    def wait(self, heard: Callable[[], T]) -> T:
        with self._heard:
            assert self._heard.wait_for(heard, LONG), self.words
            return heard()

    @property
    def words(self) -> list[str]:
        with self._heard:
            return [what for what, _ in self.told]

    def changes(self) -> list[ChangesPage]:
        """Return the answers that held changes."""
        return [fact for _, fact in self.told if isinstance(fact, ChangesPage) and fact.changes]

    def errors(self) -> list[HoldfastError]:
        return [fact for _, fact in self.told if isinstance(fact, HoldfastError)]


@pytest.fixture
def ear() -> Ear:
    return Ear()


class TestOnEachTarget:
    """What is told of a store, wherever it is."""

    @pytest.fixture
    def source(self, hf: Holdfast) -> Iterator[StoreSource]:
        deadline = Deadline(LONG)
        store = hf.memory_stores.create(name="Notes")
        yield StoreSource(hf, store, deadline=deadline, contents=Contents(0))
        deadline.close()

    @pytest.fixture
    def feed(self, ear: Ear, source: StoreSource) -> Iterator[StoreFeed]:
        feed = ear.follow(source, seq=source.snapshot().seq)
        feed.start()
        yield feed
        feed.close()

    @pytest.mark.usefixtures("feed")
    def test_each_change_is_told_once_and_in_order(
        self, hf: Holdfast, source: StoreSource, ear: Ear
    ) -> None:
        memories = [
            hf.memory_stores.memories.create(source.id, path=f"/{name}.md", content=name)
            for name in ("a", "b", "c")
        ]
        ear.wait(lambda: sum(len(each.changes) for each in ear.changes()) >= 3)

        told = [change.memory for each in ear.changes() for change in each.changes]
        assert told == memories

    @pytest.mark.usefixtures("feed")
    def test_that_the_store_was_archived_is_told(
        self, hf: Holdfast, source: StoreSource, ear: Ear
    ) -> None:
        archived = hf.memory_stores.archive(source.id)

        ear.wait(
            lambda: any(
                isinstance(fact, ChangesPage) and fact.archived_at == archived.archived_at
                for _, fact in ear.told
            )
        )

    @pytest.mark.usefixtures("feed")
    def test_that_the_store_was_deleted_is_told(
        self, hf: Holdfast, source: StoreSource, ear: Ear
    ) -> None:
        hf.memory_stores.delete(source.id)

        [error] = ear.wait(ear.errors)
        assert isinstance(error, NotFound)


class Scripted:
    """A source that answers as it is told to, one answer after another, and then waits."""

    id = "memstore_1"
    longest_wait = 1.0

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.asked: list[int | None] = []
        self.waits, self.over = threading.Event(), threading.Event()

    def changes(self, after: int, wait: float) -> ChangesPage:
        assert wait == self.longest_wait
        self.asked.append(after)
        return self._answer(ChangesPage)

    def snapshot(self) -> Snapshot:
        self.asked.append(None)
        return self._answer(Snapshot)

    def _answer(self, kind: type[T]) -> T:
        if not self._answers:
            self.waits.set()
            self.over.wait(LONG)
            raise Unavailable("The mount is stopping.", reason="closed")
        answer = self._answers.pop(0)
        if isinstance(answer, HoldfastError):
            raise answer
        assert isinstance(answer, kind)
        return answer


def changes(seq: int) -> ChangesPage:
    return ChangesPage(seq=seq, changes=(), cap=10, archived_at=None)


def snapshot(seq: int) -> Snapshot:
    return Snapshot(seq=seq, memories=(), cap=10, archived_at=None)


def away() -> Unavailable:
    return Unavailable("It is away.", reason="lost")


class TestWhatIsTold:
    """Over a source that answers as it is told to."""

    @pytest.fixture
    def feed_of(self, ear: Ear) -> Iterator[Callable[[Scripted], StoreFeed]]:
        """Give what starts a feed; it is closed at the end."""
        made: list[tuple[Scripted, StoreFeed]] = []

        def start(source: Scripted) -> StoreFeed:
            feed = ear.follow(cast("StoreSource", source), seq=5)
            made.append((source, feed))
            feed.start()
            assert source.waits.wait(LONG)
            return feed

        yield start
        for source, feed in made:
            feed.close()
            source.over.set()

    def test_it_goes_on_from_each_answer(
        self, ear: Ear, feed_of: Callable[[Scripted], StoreFeed]
    ) -> None:
        source = Scripted(changes(5), changes(7), changes(7))
        feed_of(source)

        assert source.asked == [5, 5, 7, 7]
        assert ear.words == ["changed"] * 3

    def test_changes_that_are_no_longer_kept_become_a_snapshot(
        self, ear: Ear, feed_of: Callable[[Scripted], StoreFeed]
    ) -> None:
        source = Scripted(CursorExpired(9), snapshot(9), changes(10))
        feed_of(source)

        assert source.asked == [5, None, 9, 10]
        assert ear.words == ["resynced", "changed"]

    def test_a_store_that_is_away_is_told_once_and_comes_back_with_a_snapshot(
        self, ear: Ear, feed_of: Callable[[Scripted], StoreFeed]
    ) -> None:
        source = Scripted(away(), away(), snapshot(9), changes(10))
        feed_of(source)

        assert source.asked == [5, None, None, 9, 10]
        assert ear.words == ["lost", "resynced", "back", "changed"]

    def test_another_reason_to_be_away_is_told_too(
        self, ear: Ear, feed_of: Callable[[Scripted], StoreFeed]
    ) -> None:
        gone = NotFound("memory store", "memstore_1")
        feed_of(Scripted(away(), gone, snapshot(9)))

        assert [type(error) for error in ear.errors()] == [Unavailable, NotFound]
        assert ear.words == ["lost", "lost", "resynced", "back"]

    @pytest.mark.parametrize("failing", ["changed", "resynced"])
    def test_what_was_not_taken_in_becomes_a_snapshot(
        self,
        ear: Ear,
        feed_of: Callable[[Scripted], StoreFeed],
        failing: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        ear.failing = {failing}
        feed_of(
            Scripted(changes(6), CursorExpired(6), snapshot(9), snapshot(9))
            if failing == "resynced"
            else Scripted(changes(6), snapshot(9))
        )

        assert ear.words[-1] == "resynced"
        assert "lost" not in ear.words
        assert [record.levelname for record in caplog.records] == ["ERROR"]

    def test_closed_it_tells_nothing_more(
        self, ear: Ear, feed_of: Callable[[Scripted], StoreFeed]
    ) -> None:
        source = Scripted(changes(6))
        feed = feed_of(source)

        feed.close()
        source.over.set()
        for thread in threading.enumerate():
            if thread.name == "holdfast-feed-memstore_1":
                thread.join(LONG)

        assert ear.words == ["changed"]

    def test_it_is_behind_for_as_long_as_it_hears_nothing(
        self, feed_of: Callable[[Scripted], StoreFeed]
    ) -> None:
        away_since = feed_of(Scripted(changes(6), away()))
        followed = feed_of(Scripted(changes(6)))

        assert followed.lag_seconds < away_since.lag_seconds
