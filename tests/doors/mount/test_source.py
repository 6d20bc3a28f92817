"""The source of a mounted store: its feed, and calls with a deadline."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar, cast

import pytest
from targets import hf as hf
from targets import in_memory as in_memory
from targets import postgres as postgres

import holdfast
from holdfast.doors.mount.storage.deadline import Deadline
from holdfast.doors.mount.storage.feed import StoreFeed
from holdfast.doors.mount.storage.source import FAR_SECONDS, NEAR_SECONDS, Contents, StoreSource
from holdfast.ground.errors import (
    Corrupt,
    CursorExpired,
    HoldfastError,
    NotFound,
    PreconditionFailed,
    Unavailable,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Remove, Save
from holdfast.memories.stores.records import ChangesPage, Memory, Snapshot, Store

LONG = 60.0
MIB = 1024 * 1024


@pytest.fixture
def store(hf: Holdfast) -> Store:
    return hf.memory_stores.create(name="Notes")


@pytest.fixture
def deadline() -> Iterator[Deadline]:
    """Give one thread alone, so that what was asked before is over when a call returns."""
    deadline = Deadline(LONG, threads=1)
    yield deadline
    deadline.close()


@pytest.fixture
def source(hf: Holdfast, store: Store, deadline: Deadline) -> StoreSource:
    return StoreSource(hf, store, deadline=deadline, contents=Contents(MIB))


def saved(source: StoreSource, path: str, content: str, id: str = "edit_1") -> Memory:
    [applied] = source.apply([Save(path=path, content=content)], id)
    return applied.memories[0]


class TestOnEachTarget:
    """What holds wherever the store is."""

    def test_it_says_whose_store_it_is(
        self, hf: Holdfast, store: Store, source: StoreSource
    ) -> None:
        assert (source.id, source.name) == (store.id, "Notes")
        assert (source.workspace, source.actor) == (hf.workspace, hf.actor)

    def test_what_is_applied_is_in_the_snapshot_and_the_changes(self, source: StoreSource) -> None:
        before = source.snapshot()
        memory = saved(source, "/a.md", "tabs")
        after = source.snapshot()

        assert (before.memories, after.memories) == ((), (memory,))
        changes = source.changes(before.seq, wait=0.0)
        assert [change.memory for change in changes.changes] == [memory]
        assert changes.seq == after.seq

    def test_an_edit_sent_twice_is_done_once(self, hf: Holdfast, source: StoreSource) -> None:
        memory = saved(source, "/a.md", "tabs")
        again = saved(source, "/a.md", "tabs")

        versions = hf.memory_stores.memory_versions.list(source.id).data
        assert (again, len(versions)) == (memory, 1)

    def test_a_content_is_asked_for_once(self, source: StoreSource) -> None:
        memory = saved(source, "/a.md", "tabs \N{SNOWMAN}")
        assert source.contents.get(memory.content_sha256) is None

        assert source.content(memory).content == "tabs \N{SNOWMAN}"

        source.apply([Remove(memory_id=memory.id)], "edit_2")
        assert source.contents.get(memory.content_sha256) == "tabs \N{SNOWMAN}".encode()
        assert source.content(memory).content == "tabs \N{SNOWMAN}"

    def test_a_content_that_is_gone_is_a_newer_head_or_nothing(self, source: StoreSource) -> None:
        memory = saved(source, "/a.md", "tabs")
        newer = saved(source, "/a.md", "spaces", "edit_2")

        found = source.content(memory)
        assert (found.content, found.content_sha256) == ("spaces", newer.content_sha256)

        source.apply([Remove(memory_id=memory.id)], "edit_3")
        with pytest.raises(NotFound):
            source.content(memory)

    def test_a_directory_read_file_by_file_is_brought_ahead(
        self, source: StoreSource, deadline: Deadline
    ) -> None:
        edits = [Save(path=f"/d/{number:02}.md", content=f"{number}") for number in range(70)]
        source.apply(edits, "edit_1")
        memories = source.snapshot().memories
        waited: list[int] = []

        for number, memory in enumerate(memories):
            source.ahead(memory)
            deadline.call(lambda: None)
            if source.contents.get(memory.content_sha256) is None:
                waited.append(number)

        assert waited == [0]

    def test_a_file_alone_brings_nothing_ahead(
        self, source: StoreSource, deadline: Deadline
    ) -> None:
        source.apply([Save(path=f"/d{n}/a", content=f"{n}") for n in range(9)], "edit_1")
        for memory in source.snapshot().memories:
            source.ahead(memory)
        deadline.call(lambda: None)

        assert not any(
            source.contents.get(each.content_sha256) for each in source.snapshot().memories
        )

    def test_its_changes_can_be_waited_for_while_it_is_read(
        self,
        hf: Holdfast,
        store: Store,
    ) -> None:
        deadline = Deadline(LONG)
        source = StoreSource(hf, store, deadline=deadline, contents=Contents(MIB))
        seq = source.snapshot().seq
        waiting = threading.Thread(target=source.changes, args=(seq, 25.0))
        waiting.start()
        memory = saved(source, "/a.md", "tabs")

        assert source.content(memory).content == "tabs"
        waiting.join(LONG)
        assert not waiting.is_alive()
        deadline.close()


class Flaky:
    """A handle whose memories fail to be read in a given way, again and again or a few times."""

    def __init__(self, hf: Holdfast, *failures: Callable[[], HoldfastError]) -> None:
        self.opened, self.workspace, self.actor = None, hf.workspace, hf.actor
        self.failures, self.asked = list(failures), 0
        self._real = hf.memory_stores.memories
        self.memory_stores = SimpleNamespace(
            memories=SimpleNamespace(retrieve=self._retrieve, apply=self._apply)
        )

    def _retrieve(self, memory_id: str, *, memory_store_id: str, view: str) -> Memory:
        self._fail()
        assert view == "full"
        return self._real.retrieve(memory_id, memory_store_id=memory_store_id)

    def _apply(self, *args: object, **named: object) -> None:
        del args, named
        self._fail()

    def _fail(self) -> None:
        self.asked += 1
        if self.failures:
            failure = self.failures.pop(0)
            raise failure()


def busy(*, written: bool | None = False) -> Callable[[], Unavailable]:
    unknown = None if written is None else False
    return lambda: Unavailable("It is busy.", reason="busy", written=unknown, retry_after=0.001)


def full() -> Unavailable:
    return Unavailable("The disk is full.", reason="full")


def corrupt() -> Corrupt:
    return Corrupt("h.db", "no header")


def changed() -> PreconditionFailed:
    return PreconditionFailed("mem_1", expected="a", current="b")


class TestWhatFails:
    """Over a handle that fails as it is told to."""

    @pytest.fixture
    def real(self) -> Iterator[Holdfast]:
        with holdfast.open(":memory:") as hf:
            yield hf

    @pytest.fixture
    def memory(self, real: Holdfast) -> Memory:
        store = real.memory_stores.create(name="Notes")
        return real.memory_stores.memories.create(store.id, path="/a.md", content="tabs")

    def source(self, real: Holdfast, flaky: Flaky, memory: Memory, seconds: float) -> StoreSource:
        store = real.memory_stores.retrieve(memory.memory_store_id)
        handle = cast("Holdfast", flaky)
        return StoreSource(handle, store, deadline=Deadline(seconds), contents=Contents(MIB))

    def test_what_passes_in_a_moment_is_not_seen(self, real: Holdfast, memory: Memory) -> None:
        flaky = Flaky(real, busy(), busy(), busy())

        assert self.source(real, flaky, memory, LONG).content(memory).content == "tabs"
        assert flaky.asked == 4

    def test_what_does_not_pass_is_raised_within_the_deadline(
        self, real: Holdfast, memory: Memory
    ) -> None:
        flaky = Flaky(real, *[busy()] * 1_000)

        with pytest.raises(Unavailable, match="busy"):
            self.source(real, flaky, memory, 0.2).content(memory)
        assert flaky.asked > 1

    @pytest.mark.parametrize("failure", [full, corrupt, changed])
    def test_what_waiting_does_not_mend_is_raised_at_once(
        self, real: Holdfast, memory: Memory, failure: Callable[[], HoldfastError]
    ) -> None:
        flaky = Flaky(real, failure, failure)

        with pytest.raises(type(failure())):
            self.source(real, flaky, memory, LONG).content(memory)
        assert flaky.asked == 1

    @pytest.mark.parametrize(
        ("failures", "written"),
        [((busy(), full), False), ((busy(written=None), full), None)],
    )
    def test_edits_that_may_have_been_done_once_stay_so(
        self,
        real: Holdfast,
        memory: Memory,
        failures: tuple[Callable[[], Unavailable], ...],
        written: bool | None,
    ) -> None:
        source = self.source(real, Flaky(real, *failures), memory, LONG)

        with pytest.raises(Unavailable, match="full") as raised:
            source.apply([Save(path="/a.md", content="spaces")], "edit_1")
        assert raised.value.written is written


@contextmanager
def locked(database: Path) -> Generator[None]:
    """Let another process hold the lock to write."""
    program = (
        "import sqlite3, sys; file = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "file.execute('begin immediate'); print('held', flush=True); input()"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program, str(database)]
    holder = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.communicate("end\n", timeout=LONG)


class TestWhatHangs:
    """Over a file on which another program holds the lock to write."""

    @pytest.fixture
    def held(self, sqlite_file: Path) -> Iterator[Holdfast]:
        with holdfast.open(sqlite_file) as hf:
            yield hf

    def test_a_save_that_hangs_is_given_up_and_still_done_once(
        self, held: Holdfast, sqlite_file: Path
    ) -> None:
        store = held.memory_stores.create(name="Notes")
        memory = held.memory_stores.memories.create(store.id, path="/a.md", content="tabs")
        deadline = Deadline(0.2)
        source = StoreSource(held, store, deadline=deadline, contents=Contents(MIB))
        edit = Save(path="/a.md", content="tabs\nspaces\n", memory_id=memory.id)

        with locked(sqlite_file):
            with pytest.raises(Unavailable) as raised:
                source.apply([edit], "edit_1")
            assert (raised.value.reason, raised.value.written) == ("timeout", None)
            assert source.content(memory).content == "tabs"

        deadline.seconds = LONG
        source.apply([edit], "edit_1")
        versions = held.memory_stores.memory_versions.list(store.id).data
        assert [version.operation for version in versions] == ["modified", "created"]
        deadline.close()


def test_changes_of_a_server_are_waited_for_longer(remote: Holdfast, deadline: Deadline) -> None:
    far = StoreSource(
        remote, remote.memory_stores.create(name="Far"), deadline=deadline, contents=Contents(MIB)
    )
    with holdfast.open(":memory:") as hf:
        store = hf.memory_stores.create(name="Near")
        near = StoreSource(hf, store, deadline=deadline, contents=Contents(MIB))

        assert (near.longest_wait, far.longest_wait) == (NEAR_SECONDS, FAR_SECONDS)


T = TypeVar("T")
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


class TestFeedOnEachTarget:
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


AT_ONCE = 0.01


@pytest.fixture
def two_threads() -> Iterator[Deadline]:
    deadline = Deadline(LONG, threads=2)
    yield deadline
    deadline.close()


@pytest.fixture
def hang() -> Iterator[Callable[[], None]]:
    """Give work that hangs until the test is over."""
    over = threading.Event()

    def work() -> None:
        over.wait(LONG)

    yield work
    over.set()


def threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "holdfast-storage"}


def test_a_call_returns_what_its_work_returns(two_threads: Deadline) -> None:
    assert two_threads.call(lambda: 7) == 7


def test_a_call_raises_what_its_work_raises(two_threads: Deadline) -> None:
    def work() -> None:
        raise NotFound("memory", "mem_1")

    with pytest.raises(NotFound, match="mem_1"):
        two_threads.call(work)


def test_a_call_whose_time_is_over_is_unavailable(
    two_threads: Deadline, hang: Callable[[], None]
) -> None:
    with pytest.raises(Unavailable) as raised:
        two_threads.call(hang, seconds=AT_ONCE)

    assert (raised.value.reason, raised.value.written) == ("timeout", None)


def test_what_hangs_holds_up_nobody_else(two_threads: Deadline, hang: Callable[[], None]) -> None:
    with pytest.raises(Unavailable):
        two_threads.call(hang, seconds=AT_ONCE)

    assert two_threads.call(lambda: "answered") == "answered"


def test_what_its_caller_gave_up_goes_on_alone(two_threads: Deadline) -> None:
    go, gone = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(LONG)
        gone.set()

    with pytest.raises(Unavailable):
        two_threads.call(work, seconds=AT_ONCE)
    go.set()

    assert gone.wait(LONG)


def test_a_call_that_finds_no_free_thread_certainly_did_nothing(
    two_threads: Deadline, hang: Callable[[], None]
) -> None:
    ran: list[int] = []
    for _ in range(2):
        with pytest.raises(Unavailable):
            two_threads.call(hang, seconds=AT_ONCE)

    with pytest.raises(Unavailable) as raised:
        two_threads.call(lambda: ran.append(1), seconds=AT_ONCE)

    assert (raised.value.reason, raised.value.written, ran) == ("timeout", False, [])


def test_a_call_waits_for_a_thread_to_be_free(two_threads: Deadline) -> None:
    def ask(number: int) -> int:
        return two_threads.call(lambda: number)

    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(ask, range(500)))

    assert answers == list(range(500))


def test_threads_are_used_again_and_never_more_than_allowed() -> None:
    before = threads()
    deadline = Deadline(LONG, threads=2)
    used = {deadline.call(threading.current_thread) for _ in range(50)}
    both = threading.Barrier(2, timeout=LONG)
    with ThreadPoolExecutor(8) as callers:
        calls = [callers.submit(deadline.call, both.wait) for _ in range(8)]
    places = [call.result(LONG) for call in calls]

    assert len(used) == 1
    assert sorted(places) == [0] * 4 + [1] * 4
    assert len(threads() - before) == 2
    deadline.close()


def test_nothing_of_a_call_is_kept_after_it(two_threads: Deadline) -> None:
    class Answer:
        pass

    answer = two_threads.call(Answer)
    seen = weakref.ref(answer)
    two_threads.call(lambda: None)
    del answer
    gc.collect()

    assert seen() is None


def test_what_nobody_waits_for_runs_when_a_thread_is_free(two_threads: Deadline) -> None:
    ran = threading.Event()

    assert two_threads.start(ran.set)
    assert ran.wait(LONG)


def test_what_nobody_waits_for_is_left_out_when_all_threads_are_busy(
    two_threads: Deadline, hang: Callable[[], None]
) -> None:
    for _ in range(2):
        assert two_threads.start(hang)

    assert not two_threads.start(hang)


def test_what_fails_alone_does_not_end_its_thread(two_threads: Deadline) -> None:
    def work() -> None:
        raise NotFound("memory", "mem_1")

    for _ in range(5):
        two_threads.call(lambda: None)
        two_threads.start(work)

    assert two_threads.call(lambda: 7) == 7


def test_a_closed_deadline_begins_nothing(two_threads: Deadline) -> None:
    two_threads.call(lambda: None)
    two_threads.close()
    two_threads.close()

    with pytest.raises(Unavailable) as raised:
        two_threads.call(lambda: 7)
    assert (raised.value.reason, raised.value.written) == ("closed", False)
    assert not two_threads.start(lambda: None)


def test_closing_answers_those_who_wait_and_lets_the_threads_end(
    hang: Callable[[], None],
) -> None:
    before = threads()
    deadline = Deadline(LONG, threads=1)
    deadline.start(hang)
    with ThreadPoolExecutor(1) as callers:
        waiting = callers.submit(deadline.call, lambda: 7, seconds=LONG)
        while deadline.waiting == 0:
            threading.Event().wait(0.001)
        deadline.close()

        with pytest.raises(Unavailable, match="stopping"):
            waiting.result(LONG)
    assert len(threads() - before) == 1


def test_the_threads_of_a_closed_deadline_end_when_they_have_nothing_left_to_do() -> None:
    before, over = threads(), threading.Event()

    def work() -> None:
        over.wait(LONG)

    deadline = Deadline(LONG, threads=2)
    deadline.start(work)
    deadline.call(lambda: None)
    deadline.close()
    over.set()
    for thread in threads() - before:
        thread.join(LONG)

    assert threads() <= before


def test_a_call_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    program = """
import threading
from holdfast.doors.mount.storage.deadline import Deadline
from holdfast.ground.errors import Unavailable
try:
    Deadline(0.01).call(threading.Event().wait)
except Unavailable:
    print("given up")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG, check=True
    )

    assert done.stdout == "given up\n"
