import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from targets import hf as hf
from targets import postgres as postgres

import holdfast
from holdfast.doors.mount.storage.deadline import Deadline
from holdfast.doors.mount.storage.source import FAR_SECONDS, NEAR_SECONDS, Contents, StoreSource
from holdfast.ground.errors import (
    Corrupt,
    HoldfastError,
    NotFound,
    PreconditionFailed,
    Unavailable,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Remove, Save
from holdfast.memories.stores.records import Memory, Store

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
