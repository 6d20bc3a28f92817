"""A database that is lost comes back from its backup: what was acknowledged, and not the forgotten.

Writers go on while a backup is made, the database is destroyed, and the backup is restored into
either engine. Backups and restores are killed, and run out of disk.
"""

import os
import random
import signal
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Thread
from typing import TypeVar

import pytest
from torture.counts import counted
from torture.power_writer import STORE, THREADS, LibraryWriter, Values
from torture.test_power_loss import stored
from torture.zygote import Zygote

import holdfast
from holdfast.ground.errors import Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.reapply import write_ledger
from holdfast.library.upkeep.restore import restore
from holdfast.testing.postgres import TEMPLATE, PostgresServer

T = TypeVar("T")
ROUNDS = int(os.environ.get("HOLDFAST_TORTURE_RESTORES", "1"))
KILLS = int(os.environ.get("HOLDFAST_TORTURE_RESTORES", "3")) * 2
MARK = "kelpmarker"
WORKER = "torture.upkeep_worker"
BUSY = 20
"""Writes that each writer had acknowledged when a backup begins."""


class DrillWriter(LibraryWriter):
    """A writer that keeps the state after each of its acts in memory."""

    def __init__(self, thread: int, acknowledged: Callable[[], None]) -> None:
        super().__init__(Path(), thread)
        self._acknowledged = acknowledged
        self.states: list[Values] = [{}]
        """What it has written after each act that it began; the first is before any."""
        self.forgotten: list[tuple[int, str]] = []
        """The keys of durable and long-term memory that it forgot, each with the state after it."""
        self.done = 0
        """How many of its acts were acknowledged."""

    def act(self, values: Values, do: Callable[[], T]) -> T:
        gone = [key for key, text in values.items() if text is None and key[0] in "dl"]
        self.forgotten += [(len(self.states), key) for key in gone]
        self.states.append(
            {key: text for key, text in (self.states[-1] | values).items() if text is not None}
        )
        result = do()
        self.done += 1
        self._acknowledged()
        return result

    def state(self, number: int, *, forget: bool) -> Values:
        """Return a state, without user 0 and agent 1, and with *forget* what it forgot since."""
        since = {key for at, key in self.forgotten if forget and at > number}
        erased = {0: "l", 1: "d"}.get(self.thread)
        return {
            key: text
            for key, text in self.states[number].items()
            if key not in since and key[0] != erased
        }


class Load:
    """Writers at work on one database."""

    def __init__(self, hf: Holdfast, store_id: str) -> None:
        self._hf, self._store_id, self._over, self._failed = hf, store_id, False, False
        self._changed = Condition()
        self.writers = [DrillWriter(each, self._tell) for each in range(THREADS)]
        self._threads = [Thread(target=self._write, args=(each,)) for each in self.writers]

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _write(self, writer: DrillWriter) -> None:
        try:
            while not self._over:
                writer.write(self._hf, self._store_id, writer.done, 1)
        except BaseException:
            self._failed = True
            self._tell()
            raise

    def wait_for(self, acts: Sequence[int]) -> None:
        """Wait until each writer has had as many acts acknowledged; one that fails ends it."""

        def reached() -> bool:
            pairs = zip(self.writers, acts, strict=True)
            return self._failed or all(one.done >= least for one, least in pairs)

        with self._changed:
            assert self._changed.wait_for(reached, 60)
        assert not self._failed

    def done(self) -> list[int]:
        """Return how many acts of each writer were acknowledged."""
        return [each.done for each in self.writers]

    @contextmanager
    def running(self) -> Generator[None]:
        """Write until the end of the block."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over = True
            for thread in self._threads:
                thread.join()


Places = Callable[[str], str]


@pytest.fixture
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """Give the function that returns an empty target on an engine."""
    made = 0

    def place(engine: str) -> str:
        nonlocal made
        made += 1
        if engine == "sqlite":
            (tmp_path / f"db_{made}").mkdir()
            return str(tmp_path / f"db_{made}" / "h.db")
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return server.url(server.new_database(TEMPLATE))

    return place


def destroyed(request: pytest.FixtureRequest, target: str) -> None:
    """Delete a database and all that its engine left beside it."""
    if target.startswith("postgresql:"):
        server: PostgresServer = request.getfixturevalue("postgres_server")
        name = target.partition("@/")[2].partition("?")[0]
        server.execute(f"drop database {name} with (force)")
        return
    for file in Path(target).parent.iterdir():
        file.unlink()


class Drill:
    """A backup under load, and what may be in it: of each writer the states of a range."""

    def __init__(self, target: str, backup: Path, ledger: Path) -> None:
        self.backup, self.ledger = backup, ledger
        with holdfast.open(target) as hf:
            stores, versions = hf.memory_stores, hf.memory_stores.memory_versions
            store_id = self.store_id = stores.create(name=STORE).id
            path = f"/t{THREADS}/marked"
            marked = stores.memories.create(store_id, path=path, content=MARK)
            self.version_id = marked.memory_version_id
            stores.memories.update(marked.id, memory_store_id=store_id, content="clean")
            load = Load(hf, store_id)
            with load.running():
                load.wait_for([BUSY] * THREADS)
                low = load.done()
                hf.backup(backup)
                high = [len(each.states) for each in load.writers]
                # They went on meanwhile, and go on after it.
                load.wait_for([each + 1 for each in load.done()])
            self.acknowledged = sum(low)
            self.writers = load.writers
            self.moments = [range(*pair) for pair in zip(low, high, strict=True)]
            hf.forget_user("user_0")
            hf.forget_agent("agent_1")
            versions.redact(self.version_id, memory_store_id=store_id)
            write_ledger(hf.engine, ledger)

    def check(self, target: str, *, replaced: bool) -> None:
        """Check that *target* has one moment of the backup, without what was forgotten since.

        One that was *replaced* knows more of the latter than the ledger: single entries and items.
        """
        with holdfast.open(target) as hf:
            found = stored(hf)
            assert found[THREADS] == {"store": STORE, f"m/t{THREADS}/marked": "clean"}
            for writer, moments in zip(self.writers, self.moments, strict=True):
                allowed = [writer.state(each, forget=replaced) for each in moments]
                assert found[writer.thread] in allowed, f"thread {writer.thread}"
            assert hf.verify().findings == ()
            hf.durable("after").set("key", "is written", category="note")

    def content_of_redacted(self, target: str) -> str | None:
        """Return the content in *target* of the version that was redacted after the backup."""
        with holdfast.open(target) as hf:
            versions = hf.memory_stores.memory_versions
            return versions.retrieve(self.version_id, memory_store_id=self.store_id).content


@pytest.mark.timeout(60 + 60 * ROUNDS)
@pytest.mark.parametrize("into", ["sqlite", "postgres"])
@pytest.mark.parametrize("source", ["sqlite", "postgres"])
def test_a_restored_backup_has_all_that_was_acknowledged_before_it(
    request: pytest.FixtureRequest, source: str, into: str, new_place: Places, tmp_path: Path
) -> None:
    acknowledged = 0
    for number in range(ROUNDS):
        target, backup = new_place(source), tmp_path / f"b{number}.db"
        drill = Drill(target, backup, tmp_path / f"ledger{number}.json")

        restore(backup, target, replace=True)

        drill.check(target, replaced=True)
        assert drill.content_of_redacted(target) is None
        destroyed(request, target)
        place = new_place(into)

        restore(backup, place, erasures=drill.ledger)

        drill.check(place, replaced=False)
        # Of redactions the ledger has those of erased people and agents alone.
        assert drill.content_of_redacted(place) == MARK
        acknowledged += drill.acknowledged
        destroyed(request, place)
        backup.unlink()
    counted("restores compared", 2 * ROUNDS)
    counted("acknowledged writes compared after a restore", acknowledged)


def filled(target: str, name: str) -> None:
    """Put a store of *name* with 300 memories into a database."""
    with holdfast.open(target) as hf:
        store = hf.memory_stores.create(name=name)
        for number in range(300):
            content = f"{number} " * 200
            hf.memory_stores.memories.create(store.id, path=f"/{number}", content=content)


def names_in(target: str) -> list[tuple[str, int]]:
    """Return the stores of a database with the number of their memories; it must be sound."""
    with holdfast.open(target) as hf:
        assert hf.verify().findings == ()
        return [
            (store.name, len(list(hf.memory_stores.memories.list(store.id).all())))
            for store in hf.memory_stores.list().all()
        ]


BACKED_UP, BEFORE = [("backed up", 300)], [("before", 300)]


@pytest.mark.timeout(120 + 20 * KILLS)
@pytest.mark.parametrize("into", ["sqlite", "postgres"])
def test_a_killed_restore_leaves_what_was_there_or_all_of_the_backup(
    into: str, new_place: Places, zygote: Zygote, tmp_path: Path
) -> None:
    chance, source, target = random.Random(KILLS), new_place("sqlite"), new_place(into)
    backup, killed = tmp_path / "b.db", 0
    filled(source, "backed up")
    with holdfast.open(source) as hf:
        hf.backup(backup)
    filled(target, "before")
    there = BEFORE

    for _ in range(KILLS):
        seconds = chance.uniform(0, 0.4)
        life = zygote.life(WORKER, "restore", str(backup), target, lines=0, seconds=seconds)

        killed += life.status == -signal.SIGKILL
        assert life.status in (0, -signal.SIGKILL)
        found = names_in(target)
        assert found in (there, BACKED_UP)
        there = found
    # Later ones are not hindered by what the killed ones left.
    restore(backup, target, replace=True)

    assert names_in(target) == BACKED_UP
    assert killed
    counted("restores killed", killed)


@pytest.mark.timeout(120 + 20 * KILLS)
@pytest.mark.parametrize("source", ["sqlite", "postgres"])
def test_a_killed_backup_is_whole_or_not_there(
    source: str, new_place: Places, zygote: Zygote, tmp_path: Path
) -> None:
    chance, target, backup, killed = random.Random(KILLS), new_place(source), tmp_path / "b.db", 0
    filled(target, "backed up")

    for _ in range(KILLS):
        seconds = chance.uniform(0, 0.3)
        life = zygote.life(WORKER, "backup", target, str(backup), lines=0, seconds=seconds)

        killed += life.status == -signal.SIGKILL
        assert life.status in (0, -signal.SIGKILL)
        if backup.exists():
            assert names_in(str(backup)) == BACKED_UP
            backup.unlink()
        assert names_in(target) == BACKED_UP
    assert killed
    counted("backups killed", killed)


def test_a_restore_on_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    source, backup, folder = str(tmp_path / "h.db"), tmp_path / "b.db", tmp_path / "small"
    filled(source, "backed up")
    with holdfast.open(source) as hf:
        hf.backup(backup)
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={backup.stat().st_size * 3 // 2}", "tmpfs"]
    if subprocess.run([*mount, str(folder)], check=False, capture_output=True).returncode:
        pytest.skip("this machine mounts no file system")
    target = str(folder / "h.db")
    try:
        with holdfast.open(target) as hf:
            hf.memory_stores.create(name="before")

        with pytest.raises(Unavailable) as caught:
            restore(backup, target, replace=True)

        assert caught.value.reason == "full"
        assert [each.name for each in folder.iterdir()] == ["h.db"]
        assert names_in(target) == [("before", 0)]
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    counted("restores on a full disk", 1)
