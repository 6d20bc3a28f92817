"""A backup holds everything, of one moment, or is not there at all."""

import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from contracts.stores import written
from library.upkeep.meddling import Ask, everything, fill, opened
from processes import completed

import holdfast
from holdfast.ground.errors import InvalidInput, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store
from holdfast.testing.postgres import TEMPLATE, PostgresServer

BACKING_UP = Path(__file__).with_name("backing_up.py")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give where a backup goes: a folder with nothing else in it."""
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder / "b.db"


def beside(place: Path) -> list[str]:
    return sorted(path.name for path in place.parent.iterdir())


def test_all_of_it_is_in_the_file(hf: Holdfast, store: Store, place: Path) -> None:
    before = everything(hf)

    report = hf.backup(place)

    assert beside(place) == ["b.db"]
    assert (report.file, report.size_bytes) == (str(place), place.stat().st_size)
    with opened(place) as copy:
        assert everything(copy) == before
        assert copy.verify().ok
        assert copy.verify().links == hf.verify().links
        assert copy.memory_stores.retrieve(store.id) == store


def test_a_database_in_memory_is_backed_up_like_any(place: Path) -> None:
    with holdfast.open(":memory:") as hf:
        fill(hf)
        before = everything(hf)
        hf.backup(place)

    with opened(place) as copy:
        assert everything(copy) == before
        assert copy.verify().ok


@pytest.mark.usefixtures("store")
def test_the_file_is_for_its_owner_alone(hf: Holdfast, place: Path) -> None:
    mask = os.umask(0)

    try:
        hf.backup(place)
    finally:
        os.umask(mask)

    assert stat.S_IMODE(place.stat().st_mode) == 0o600


@pytest.mark.usefixtures("store")
def test_a_backup_counts_the_rows_and_names_the_last_number(hf: Holdfast, place: Path) -> None:
    first = hf.backup(place)
    hf.memory_stores.create(name="Later")

    second = hf.backup(place, force=True)

    assert second.seq > first.seq > 0
    # The store, its event, and the row of the first backup.
    assert second.rows == first.rows + 3


class TestUnderLoad:
    @pytest.fixture
    def busy(self, hf: Holdfast, store: Store) -> Callable[[], Callable[[], int]]:
        """Start writers, and return what ends them and says how much they wrote."""
        hf.memory_stores.configure(memories_cap=10_000)

        def start() -> Callable[[], int]:
            over, wrote = threading.Event(), threading.Semaphore(0)
            done = [0] * 4

            def write(thread: int) -> None:
                while not over.is_set():
                    written(hf, store, f"/{thread}/{done[thread]}")
                    done[thread] += 1
                    wrote.release()

            threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for _ in range(20):
                wrote.acquire()

            def end() -> int:
                over.set()
                for thread in threads:
                    thread.join()
                return sum(done)

            return end

        return start

    def test_the_copy_is_whole_and_of_one_moment_while_writers_go_on(
        self, hf: Holdfast, store: Store, place: Path, busy: Callable[[], Callable[[], int]]
    ) -> None:
        end = busy()

        try:
            hf.backup(place)
        finally:
            total = end()

        with opened(place) as copy:
            assert copy.verify().ok
            paths = [each.path for each in copy.memory_stores.memories.list(store.id).all()]
        mine = [
            sorted(int(path.split("/")[2]) for path in paths if path.startswith(f"/{thread}/"))
            for thread in range(4)
        ]
        assert mine == [list(range(len(each))) for each in mine]
        assert 20 <= sum(len(each) for each in mine) <= total


@pytest.mark.usefixtures("store")
class TestPlaces:
    @pytest.fixture
    def engine_name(self) -> str:
        return "sqlite"

    def test_a_file_that_is_there_stays_unless_one_insists(self, hf: Holdfast, place: Path) -> None:
        place.write_text("mine")

        with pytest.raises(InvalidInput, match="exists already"):
            hf.backup(place)

        assert place.read_text() == "mine"
        assert beside(place) == ["b.db"]

    def test_the_database_itself_is_no_place(self, hf: Holdfast, sqlite_file: Path) -> None:
        link = sqlite_file.with_name("link.db")
        link.symlink_to(sqlite_file)

        for same in (sqlite_file, link):
            with pytest.raises(InvalidInput, match="the database itself"):
                hf.backup(same, force=True)
        assert hf.verify().ok

    def test_a_database_in_use_is_no_place(self, hf: Holdfast, place: Path) -> None:
        with opened(place) as other:
            other.memory_stores.create(name="In the log")
            with pytest.raises(InvalidInput, match="in use"):
                hf.backup(place, force=True)

            assert other.verify().ok

    def test_a_log_left_behind_would_be_taken_for_the_copys(
        self, hf: Holdfast, place: Path
    ) -> None:
        place.with_name("b.db-wal").write_bytes(b"x")

        with pytest.raises(InvalidInput, match=r"b\.db-wal is beside it"):
            hf.backup(place)

    @pytest.mark.parametrize("name", [".", "nowhere/b.db"])
    def test_a_folder_or_one_that_is_not_there_is_no_place(
        self, hf: Holdfast, place: Path, name: str
    ) -> None:
        with pytest.raises(InvalidInput):
            hf.backup(place.parent / name, force=True)

    def test_a_link_leads_to_the_place(self, hf: Holdfast, place: Path) -> None:
        latest = place.with_name("latest.db")
        latest.symlink_to(place)

        report = hf.backup(latest)

        assert report.file == str(place)
        assert latest.is_symlink()


def test_what_is_not_whole_is_not_backed_up(
    hf: Holdfast, store: Store, place: Path, ask: Ask
) -> None:
    ask("update stores set memories = 99 where id = ?", store.id)

    with pytest.raises(Unavailable, match="counters in stores"):
        hf.backup(place)

    assert beside(place) == []


def cannot_grow(target: str, place: Path, limit: int) -> None:
    """Back up in this process, in which no file may grow beyond *limit* bytes: that fails."""
    with holdfast.open(target, migrate=False) as hf:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(Unavailable):
            hf.backup(place)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def big(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give a target with 2 MiB in it that no process has open."""
    target = str(tmp_path_factory.mktemp("big") / "h.db")
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        target = server.url(server.new_database(TEMPLATE))
    with opened(target) as hf:
        store = fill(hf)
        for number in range(30):
            written(hf, store, f"/big/{number}", content=os.urandom(35_000).hex())
    return target


class TestCutShort:
    @pytest.mark.parametrize("limit", [1, 50_000, 1_000_000, 2_000_000])
    def test_no_file_is_left_of_one_that_could_not_grow(
        self, big: str, place: Path, limit: int
    ) -> None:
        completed(cannot_grow, big, place, limit)

        assert beside(place) == []

    def test_no_file_is_left_on_a_full_disk(self, big: str, place: Path) -> None:
        if not mounted(place.parent, "size=1m"):
            return
        try:
            with opened(big) as hf, pytest.raises(Unavailable) as caught:
                hf.backup(place)
            left = beside(place)
        finally:
            subprocess.run(["umount", place.parent], check=True)

        assert caught.value.reason == "full"
        assert left == []

    def test_one_that_is_killed_leaves_no_file_under_its_name(
        self, postgres_url: str, place: Path
    ) -> None:
        with opened(postgres_url) as hf:
            hf.memory_stores.create(name="Notes")

        command = [sys.executable, str(BACKING_UP), postgres_url, str(place)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            during = beside(place)
            process.send_signal(signal.SIGKILL)

        assert "b.db" not in beside(place)
        assert any(name.startswith(".b.db.") for name in during)
        with opened(postgres_url) as hf:
            hf.backup(place)
        assert place.exists()


def mounted(folder: Path, options: str) -> bool:
    """Mount a small file system on *folder*, if this machine lets us; tell whether it did."""
    if os.geteuid() != 0:
        return False
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode == 0
