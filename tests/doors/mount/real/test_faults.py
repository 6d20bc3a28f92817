"""A server or a database that is gone, hangs or is locked: told in time, kept, and saved once."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from errno import EIO
from itertools import count
from pathlib import Path
from typing import NamedTuple, Self

import pytest
from doors.mount.real.calls import listing, opened, refused, write
from doors.mount.real.kept import opened as opened_db
from doors.mount.real.kept import serving
from doors.mount.real.mounting import Mount, Reaper, Start, Target, eventually
from doors.mount.real.place import Place

from holdfast.library.holdfast import Holdfast
from holdfast.testing.postgres import running_postgres

pytestmark = pytest.mark.fuse

CREATE = os.O_WRONLY | os.O_CREAT
APPEND = os.O_WRONLY | os.O_APPEND
REPLACE = os.O_WRONLY | os.O_TRUNC

LOCKER = """
import sys, apsw
database = apsw.Connection(sys.argv[1])
database.execute("begin immediate")
print("locked", flush=True)
sys.stdin.read()
database.execute("rollback")
"""


class Storage:
    """Storage that can go away and come back, and a mount on it."""

    def __init__(
        self, mount: Mount, hf: Holdfast, go: Callable[[], None], back: Callable[[], None]
    ) -> None:
        self.mount, self.hf, self._go, self._back = mount, hf, go, back
        self.is_away = False

    def go(self) -> None:
        self._go()
        self.is_away = True

    def back(self) -> None:
        self._back()
        self.is_away = False


class Away(NamedTuple):
    """Storage that can go away, and a directory of the test's own in its mount."""

    storage: Storage
    place: Place

    def go(self) -> None:
        self.storage.go()

    def back(self) -> None:
        self.storage.back()

    def settle(self) -> None:
        """Wait until nothing waits to be saved any more."""
        eventually(self.storage.mount.settled)

    def given(self, name: str, content: str) -> None:
        """Write a file through the mount; it may take longer than the time that a save has."""
        try:
            (self.place.dir / name).write_text(content)
        except OSError as error:
            if error.errno != EIO:
                raise
        self.settle()
        assert self.place.content(name) == content


class Locker:
    """Another process that holds the write lock of a SQLite file."""

    def __init__(self, db: str, reaper: Reaper) -> None:
        self._db, self._reaper = db, reaper
        self._process: subprocess.Popen[bytes] | None = None

    def lock(self) -> None:
        line = [sys.executable, "-c", LOCKER, self._db]
        process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._reaper.say(f"watch {process.pid} -")
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        self._process = process

    def unlock(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=30)
            self._reaper.say(f"leave {self._process.pid}")
            self._process = None


_numbers = count(1)

OPTIONS = ("--deadline=1", "--grace=600")


@contextmanager
def on_a_server(file: Path, start: Start, reaper: Reaper, how: str) -> Generator[Storage]:
    """Give a server that is killed, or stopped."""
    with opened_db(file) as kept, serving(str(file), reaper, file.with_suffix(".log")) as server:
        go, back = (server.kill, server.start) if how == "killed" else (server.hang, server.go_on)
        with start(Target(server.url, (kept.store(),)), *OPTIONS) as mount:
            yield Storage(mount, kept.hf, go, back)


@contextmanager
def on_a_locked_file(file: Path, start: Start, reaper: Reaper) -> Generator[Storage]:
    """Give a SQLite file that another process locks."""
    locker = Locker(str(file), reaper)
    with opened_db(file) as kept, start(Target(str(file), (kept.store(),)), *OPTIONS) as mount:
        yield Storage(mount, kept.hf, locker.lock, locker.unlock)


@contextmanager
def on_postgres(start: Start) -> Generator[Storage]:
    """Give a PostgreSQL server that is stopped."""
    with running_postgres() as postgres:
        url = postgres.url(postgres.new_database())
        with opened_db(url) as kept, start(Target(url, (kept.store(),)), *OPTIONS) as mount:
            yield Storage(mount, kept.hf, lambda: postgres.stop("immediate"), postgres.start)


@pytest.fixture(
    scope="module", params=["server killed", "server stopped", "postgres stopped", "sqlite locked"]
)
def storage(
    request: pytest.FixtureRequest,
    start: Start,
    reaper: Reaper,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Storage]:
    """Give storage that can go away, in each of the ways it does."""
    file = tmp_path_factory.mktemp("kept") / "h.db"
    match request.param:
        case "sqlite locked":
            made = on_a_locked_file(file, start, reaper)
        case "postgres stopped":
            made = on_postgres(start)
        case how:
            made = on_a_server(file, start, reaper, how.removeprefix("server "))
    with made as storage:
        yield storage


@pytest.fixture
def away(storage: Storage) -> Iterator[Away]:
    """Give the storage for one test, after which it is there and has all that waited."""
    away = Away(storage, Place(storage.mount, storage.hf, f"t{next(_numbers)}"))
    yield away
    if storage.is_away:
        away.back()
    away.settle()


def test_saves_are_refused_kept_aside_shown_and_saved_once_when_it_is_back(away: Away) -> None:
    place = away.place
    place.sh("echo one > log; echo old > a.md; cat log a.md; echo old > b.md")
    away.go()

    for name, flags, text in (("log", APPEND, b"two\n"), ("a.md", REPLACE, b"new\n")):
        with refused("EIO"), opened(place.dir / name, flags) as fd:
            write(fd, text)
    with refused("EIO"), opened(place.dir / "c.md", CREATE) as fd:
        write(fd, b"made\n")
    (place.dir / "t.tmp").write_text("waits")

    assert (place.dir / "log").read_text() == "one\ntwo\n"
    assert (place.dir / "a.md").read_text() == "new\n"
    assert listing(place.dir) == ["a.md", "b.md", "c.md", "log", "t.tmp"]
    assert len(place.spooled()) == 4
    away.back()

    (place.dir / "t.tmp").unlink()
    away.settle()
    assert place.kept() == {"log": "one\ntwo\n", "a.md": "new\n", "b.md": "old\n", "c.md": "made\n"}
    assert sorted(place.told()[3:]) == ["created c.md", "modified a.md", "modified log"]


def test_what_is_cached_goes_on_being_read_and_changes_are_refused(away: Away) -> None:
    place = away.place
    place.sh("mkdir d; echo one > d/a.md; echo two > b.md; cat d/a.md b.md; ls -lR > /dev/null")
    before = len(place.told())
    away.go()

    assert place.sh("cat d/a.md; cat b.md; ls") == "one\ntwo\nb.md\nd\n"
    with refused("EIO"):
        (place.dir / "b.md").unlink()
    with refused("EIO"):
        (place.dir / "b.md").rename(place.dir / "c.md")
    with refused("EIO"):
        (place.dir / "d").rename(place.dir / "e")
    place.sh("echo scratch > .a.swp; cat .a.swp > /dev/null; mkdir f; rmdir f")

    assert listing(place.dir) == [".a.swp", "b.md", "d"]
    away.back()
    away.settle()
    # What was refused may have been done all the same, where an answer was lost on its way.
    assert len(away.place.told()) <= before + 3
    eventually(lambda: kept_is_shown(away.place))


def kept_is_shown(place: Place) -> bool:
    """Tell whether the mount shows what is kept, no more and no less."""
    try:
        shown = {
            str(each.relative_to(place.dir)): each.read_text()
            for each in place.dir.rglob("*")
            if each.is_file() and each.suffix != ".swp"
        }
    except FileNotFoundError:  # A deletion reached the mount after the folder was listed.
        return False
    return shown == place.kept()


def test_what_is_not_cached_is_refused_when_it_is_opened(
    start: Start, reaper: Reaper, tmp_path: Path
) -> None:
    file = tmp_path / "h.db"
    with opened_db(file) as kept, serving(str(file), reaper, tmp_path / "log") as server:
        store = kept.store()
        kept.hf.memory_stores.memories.create(store, path="/a.md", content="tabs")
        with start(Target(server.url, (store,)), *OPTIONS) as mount:
            server.kill()

            assert (mount.root() / "a.md").stat().st_size == 4
            with refused("EIO"), opened(mount.root() / "a.md", os.O_RDONLY):
                pass
            eventually(lambda: mount.status().state == "degraded")

            server.start()
            eventually(lambda: mount.status().state == "ok")
            assert (mount.root() / "a.md").read_text() == "tabs"


def test_it_says_that_it_is_degraded_and_then_that_it_is_not(away: Away) -> None:
    place, mount = away.place, away.storage.mount
    away.given("a.md", "old")
    away.go()

    with refused("EIO"):
        (place.dir / "a.md").write_text("new")
    assert mount.status().state == "degraded"
    away.back()

    eventually(lambda: mount.status().state == "ok")
    place.put("b.md", "elsewhere")
    eventually((place.dir / "b.md").exists)
    assert (place.dir / "b.md").read_text() == "elsewhere"


def test_a_newer_save_takes_the_place_of_one_that_waits(away: Away) -> None:
    place = away.place
    away.given("a.md", "0")
    away.go()

    for number in (1, 2, 3):
        with refused("EIO"), opened(place.dir / "a.md", REPLACE) as fd:
            write(fd, b"%d" % number)
        assert (place.dir / "a.md").read_text() == str(number)
    # The first may have been done though no answer came; the second was never sent.
    assert [entry.read_text() for entry in place.spooled()] in (["1", "3"], ["3"])
    away.back()

    away.settle()
    assert place.content("a.md") == "3"
    assert len(place.told()) <= 3


def test_appends_that_wait_are_there_once_each_and_in_order(away: Away) -> None:
    place = away.place
    away.given("log", "0\n")
    away.go()

    for number in (1, 2, 3):
        with refused("EIO"), opened(place.dir / "log", APPEND) as fd:
            write(fd, b"%d\n" % number)
    away.back()

    place.sh("echo 4 >> log")
    away.settle()
    assert away.place.content("log") == "0\n1\n2\n3\n4\n"


def test_nobody_waits_but_who_asked(start: Start, reaper: Reaper, tmp_path: Path) -> None:
    file, names = tmp_path / "h.db", ["b.md", "c.md", "d.md"]
    with opened_db(file) as kept, serving(str(file), reaper, tmp_path / "log") as server:
        stores = kept.store("Hangs"), kept.store("Other")
        with start(Target(server.url, stores), "--deadline=20", "--grace=600") as mount:
            place = Place(mount, kept.hf)
            place.sh("echo old > a.md; cat a.md; ls -l > /dev/null")
            server.hang()
            saving = [
                subprocess.Popen(["bash", "-c", f"echo new > {name}"], cwd=place.dir)
                for name in names
            ]
            eventually(lambda: mount.store().unsaved == len(names))

            said = place.sh("ls; cat a.md; echo x > .a.swp; cat .a.swp; stat -c %s a.md; df -i .")
            assert said.startswith("a.md\nb.md\nc.md\nd.md\nold\nx\n4\n")
            assert listing(mount.root(1)) == []
            assert [each.poll() for each in saving] == [None] * len(names)

            server.go_on()
            assert [each.wait(30) for each in saving] == [0] * len(names)
            assert sorted(place.told()[1:]) == [f"created {name}" for name in names]


def test_a_save_whose_answer_was_lost_is_made_once(
    start: Start, reaper: Reaper, tmp_path: Path
) -> None:
    file = tmp_path / "h.db"
    with opened_db(file) as kept, serving(str(file), reaper, tmp_path / "log") as server:
        store = kept.store()
        with start(Target(server.url, (store,)), "--deadline=0.2", "--grace=600") as mount:
            place = Place(mount, kept.hf)
            place.given("log", "")
            lost = 0
            for number in range(15):
                # Stopped at some moment of the save: before it, within it, or after it.
                timer = threading.Timer(number % 10 / 2000, server.hang)
                timer.start()
                try:
                    with opened(place.dir / "log", APPEND) as fd:
                        write(fd, b"%d\n" % number)
                except OSError:
                    lost += 1
                timer.join()
                server.go_on()
                eventually(mount.settled)

            wanted = "".join(f"{number}\n" for number in range(15))
            assert place.content("log") == wanted
            assert place.told() == ["created log", *(["modified log"] * 15)]
            print(f"{lost} of 15 answers were lost")  # noqa: T201


def saved_until_refused(file: Path) -> int:
    """Save number after number, until one is refused for want of a right; return that."""
    for number in range(10_000):
        try:
            file.write_text(f"{number}")
        except PermissionError:
            return number
    raise AssertionError


def test_a_key_that_is_revoked_keeps_saves_aside(
    start: Start, reaper: Reaper, tmp_path: Path
) -> None:
    file = tmp_path / "h.db"
    with opened_db(file) as kept:
        keys = [kept.hf.keys.create(name) for name in ("stays", "goes")]
        store = kept.store()
        with serving(str(file), reaper, tmp_path / "log") as server:
            target = Target(server.url, (store,), api_key=keys[1].secret)
            with start(target, *OPTIONS) as mount:
                place = Place(mount, kept.hf)
                place.sh("echo old > a.md; cat a.md")
                kept.hf.keys.revoke(keys[1].id)

                number = saved_until_refused(place.dir / "a.md")

                (entry,) = place.spooled()
                assert (entry.read_text(), "-EACCES-" in entry.name) == (f"{number}", True)
                assert place.content("a.md") == (f"{number - 1}" if number else "old\n")


def test_what_could_not_be_saved_before_the_end_is_saved_by_the_next_mount(
    start: Start, reaper: Reaper, tmp_path: Path
) -> None:
    file, base = tmp_path / "h.db", tmp_path / "mount"
    with opened_db(file) as kept, serving(str(file), reaper, tmp_path / "log") as server:
        target = Target(server.url, (kept.store(),))
        with start(target, *OPTIONS, base=base) as mount:
            place = Place(mount, kept.hf)
            place.sh("echo one > log; echo old > a.md; echo old > b.md")
            server.kill()
            for name, flags, text in (
                *(("log", APPEND, b"two\n"), ("a.md", REPLACE, b"new\n")),
                *(("b.md", REPLACE, b"new\n"), ("c.md", CREATE, b"made\n")),
            ):
                with refused("EIO"), opened(place.dir / name, flags) as fd:
                    write(fd, text)
            assert mount.stop() == 1
            assert str(mount.spool) in mount.says()

        place.put("b.md", "changed meanwhile")
        place.put("log", "one\nmeanwhile\n")
        server.start()
        with start(target, *OPTIONS, base=base) as mount:
            eventually(lambda: place.content("a.md") == "new\n")
            eventually(lambda: place.content("log") == "one\nmeanwhile\ntwo\n")
            assert place.content("c.md") == "made\n"
            assert place.content("b.md") == "changed meanwhile"
            (entry,) = mount.entries()
            assert (entry.read_text(), "b.md" in mount.says()) == ("new\n", True)
            assert mount.store().spooled == 1


class Saver:
    """A program that saves one file after the other, whatever becomes of it."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._ended = directory, threading.Event()
        self.saved = 0
        self._thread = threading.Thread(target=self._save)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _save(self) -> None:
        for number in count():
            if self._ended.is_set():
                return
            with suppress(OSError):
                (self._directory / f"{number % 5}").write_text(f"{number}")
                self.saved += 1


def test_a_server_that_is_restarted_again_and_again_has_all_that_was_saved(
    start: Start, reaper: Reaper, tmp_path: Path
) -> None:
    file = tmp_path / "h.db"
    with (
        opened_db(file) as kept,
        serving(str(file), reaper, tmp_path / "log") as server,
        start(Target(server.url, (kept.store(),)), *OPTIONS) as mount,
    ):
        place = Place(mount, kept.hf)
        with Saver(place.dir) as saver:
            for _ in range(3):
                enough = saver.saved + 20
                eventually(lambda enough=enough: saver.saved >= enough)
                server.kill()
                server.start()
            eventually(lambda enough=saver.saved + 20: saver.saved >= enough)

        eventually(mount.settled)
        shown = {each.name: each.read_text() for each in place.dir.iterdir()}
        assert place.kept() == shown
        assert set(shown) == set("01234")
        assert kept.hf.verify().findings == ()
