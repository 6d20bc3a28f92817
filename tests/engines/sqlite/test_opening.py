import errno
import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace as Row

import pytest
from engines.sqlite.disk import after_power_loss, recorded_steps

from holdfast.engines.migrate import Migration, known, migrate
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.connection import APPLICATION_ID, connect
from holdfast.engines.sqlite.database import SQLiteGround
from holdfast.engines.sqlite.target import JOURNAL_MAGIC, file_system, resolve
from holdfast.ground.errors import (
    Corrupt,
    EngineFault,
    InvalidInput,
    TooNew,
    Unavailable,
)
from holdfast.ground.events import Event, EventBus
from holdfast.testing.contracts.engine import SCRATCH, make_scratch, putting
from holdfast.testing.fakes import FrozenClock

NEWEST = known("sqlite")[-1].number


def opened(path: Path | str, *, migrate: bool = True, read_only: bool = False) -> SQLiteEngine:
    return SQLiteEngine.open(path, clock=FrozenClock(), migrate=migrate, read_only=read_only)


@cache
def whole_file() -> bytes:
    """Return the file of a database with two hundred rows, which was closed."""
    with TemporaryDirectory() as folder:
        engine = opened(Path(folder) / "a.db")
        make_scratch(engine)
        sql = engine.queries(SCRATCH)
        engine.write(
            lambda tx: tx.run_many(
                sql.put_number, [{"key": f"{n:03} {'x' * 100}", "number": n} for n in range(200)]
            )
        )
        engine.close()
        (file,) = Path(folder).iterdir()
        return file.read_bytes()


def made(path: Path) -> Path:
    """Make a database with two hundred rows, and close it."""
    path.write_bytes(whole_file())
    return path


def somebody_elses(path: Path, *, application_id: int) -> Path:
    """Make another program's database."""
    path.touch()
    connection = connect(str(path), "writer")
    connection.do(f"pragma application_id = {application_id}")
    connection.do("create table theirs (x)")
    connection.raw.close()
    return path


def beside(path: Path) -> dict[str, bytes]:
    """Return every file in *path*'s folder."""
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


@pytest.mark.parametrize("spelled", ["{}", "sqlite:{}"])
def test_a_target_is_a_path_with_nothing_special_in_it(tmp_path: Path, spelled: str):
    path = tmp_path / "odd?mode=ro#%20é.db"

    engine = opened(spelled.format(path))
    engine.close()

    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_symbolic_link_leads_to_the_real_file(tmp_path: Path):
    made(tmp_path / "real.db")
    (tmp_path / "name.db").symlink_to(tmp_path / "real.db")

    engine = opened(tmp_path / "name.db")
    target = engine.status().target
    engine.close()

    assert target == str(tmp_path / "real.db")
    assert resolve(tmp_path / "name.db") == resolve(tmp_path / "real.db")


def test_the_default_is_a_private_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))

    SQLiteEngine.open(None, clock=FrozenClock()).close()

    file = tmp_path / "share" / "holdfast" / "holdfast.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("target", ["nowhere/a.db", "", "sqlite:", ".", "a\0b"])
def test_what_cannot_be_a_file_is_refused(target: str):
    with pytest.raises(InvalidInput):
        opened(target)


@pytest.mark.parametrize("application_id", [0, 1, APPLICATION_ID + 1])
def test_another_program_s_database_is_refused_untouched(tmp_path: Path, application_id: int):
    path = somebody_elses(tmp_path / "theirs.db", application_id=application_id)
    before = beside(path)

    with pytest.raises(InvalidInput, match="another program"):
        opened(path)

    assert beside(path) == before


@pytest.mark.parametrize("content", [b"hello", b"x" * 5000, b"SQLite format 3\0", bytes(4096)])
def test_what_is_no_database_is_corrupt_and_untouched(path: Path, content: bytes):
    path.write_bytes(content)

    with pytest.raises(Corrupt):
        opened(path)

    assert beside(path) == {"a.db": content}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_file_that_has_no_space_to_begin_says_that_the_disk_is_full(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(Unavailable) as caught:
        opened(path)

    assert caught.value.reason == "full"


def test_an_empty_file_becomes_a_database(path: Path):
    path.touch()

    engine = opened(path)

    assert engine.status().schema == NEWEST
    engine.close()


def test_a_file_cut_short_is_corrupt_and_untouched(path: Path):
    whole = made(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(Corrupt):
        opened(path)

    assert beside(path) == {"a.db": whole[: len(whole) // 2]}


@pytest.mark.parametrize("seed", range(150))
def test_flipped_bytes_give_an_error_of_ours_or_none(path: Path, seed: int):
    dice = random.Random(seed)
    flipped = bytearray(whole_file())
    for _ in range(dice.choice([1, 8, 200])):
        place = dice.randrange(100 if seed % 3 == 0 else len(flipped))
        flipped[place] = dice.randrange(256)
    path.write_bytes(flipped)

    with suppress(Unavailable, InvalidInput, EngineFault):
        use(path)


def use(path: Path) -> None:
    """Read all of a database, write to it, and close it, whatever happens."""
    engine = opened(path)
    try:
        sql = engine.queries(SCRATCH)
        engine.all(Row, sql.list)
        engine.write(putting(sql, "a", 1))
        engine.feed().poll()
        engine.status()
        engine.scrub()
    finally:
        engine.close()


def test_damage_met_while_reading_stops_the_writing(path: Path):
    connection = connect(str(made(path)), "reader")
    root = connection.number("select rootpage from sqlite_schema where name = 'scratch'")
    connection.raw.close()
    whole = bytearray(path.read_bytes())
    whole[4096 * (root - 1) : 4096 * root] = os.urandom(4096)
    path.write_bytes(whole)
    engine = opened(path)
    sql = engine.queries(SCRATCH)

    with pytest.raises(Corrupt):
        engine.all(Row, sql.list)
    with pytest.raises(Corrupt):
        engine.write(putting(sql, "a", 1))

    assert engine.all(Row, "select seq from engine_state") == [Row(seq=0)]
    assert (engine.status().ready, engine.status().reason) == (False, "corrupt")
    engine.close()


def test_a_power_loss_at_any_moment_of_its_creation_leaves_a_file_that_opens(tmp_path: Path):
    with recorded_steps() as steps:
        opened(tmp_path / "a.db").close()
    logged = next(n for n, step in enumerate(steps) if step.name == "a.db-wal")
    cuts = [files for count in range(logged + 3) for files in after_power_loss(steps[: count + 1])]

    for number, files in enumerate(cuts):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        for name, content in ({"a.db": b""} | files).items():
            (folder / name).write_bytes(content)
        engine = opened(folder / "a.db")
        schema = engine.status().schema
        engine.close()

        assert schema == NEWEST

    torn = [files for files in cuts if not files.get("a.db", b"SQLite").startswith(b"SQLite")]
    assert torn


@pytest.mark.parametrize("content", [b"hello", bytes(4096)])
@pytest.mark.parametrize("journal", [b"", b"hello", JOURNAL_MAGIC, bytes(8) + bytes(600)])
def test_another_file_beside_it_does_not_make_a_database_of_what_is_none(
    path: Path, content: bytes, journal: bytes
):
    path.write_bytes(content)
    path.with_name("a.db-journal").write_bytes(journal)

    with pytest.raises(Corrupt):
        opened(path)

    assert beside(path) == {"a.db": content, "a.db-journal": journal}


def test_a_newer_schema_is_left_alone(path: Path):
    made(path)
    connection = connect(str(path), "writer")
    connection.do("insert into migrations values (9001, 'later', 'x', 0, '9')")
    connection.do("pragma user_version = 9001")
    connection.raw.close()
    before = path.read_bytes()

    with pytest.raises(TooNew) as caught:
        opened(path)

    assert (caught.value.found, caught.value.known) == (9001, NEWEST)
    assert path.read_bytes() == before


def test_without_permission_to_migrate_a_new_file_lists_what_is_missing(path: Path):
    with pytest.raises(Unavailable, match="0001_schema"):
        opened(path, migrate=False)


def test_a_used_file_is_copied_before_it_is_migrated(path: Path):
    connection = connect(str(made(path)), "writer")
    next_one = Migration(number=9000, name="next", sha256="x", statements=("drop table scratch",))

    migrate(SQLiteGround(connection, FrozenClock()), [*known("sqlite"), next_one])
    connection.raw.close()

    copy = path.with_name("a.db.before-9000")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    before = connect(str(copy), "reader")
    assert before.number("select count(*) from scratch") == 200
    before.raw.close()
    assert {file.name for file in path.parent.iterdir()} >= {"a.db", copy.name}


def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path):
    connection = connect(str(made(path)), "writer")
    broken = Migration(
        number=9000, name="broken", sha256="x", statements=("drop table scratch", "nonsense")
    )

    with pytest.raises(EngineFault):
        migrate(SQLiteGround(connection, FrozenClock()), [*known("sqlite"), broken])

    assert connection.number("select count(*) from scratch") == 200
    assert connection.number("pragma user_version") == NEWEST
    connection.raw.close()


def test_a_file_replaced_under_us_is_never_written_again(path: Path):
    engine = opened(path)
    make_scratch(engine)
    sql = engine.queries(SCRATCH)
    path.unlink()

    assert (engine.status().ready, engine.status().reason) == (False, "replaced")
    with pytest.raises(Unavailable) as caught:
        engine.write(putting(sql, "a", 1))

    assert (caught.value.reason, caught.value.written) == ("replaced", False)
    engine.close()


def test_opened_for_reading_nothing_can_be_written(path: Path):
    made(path)
    engine = opened(path, read_only=True)
    sql = engine.queries(SCRATCH)

    with pytest.raises(Unavailable) as caught:
        engine.write(putting(sql, "a", 1))

    assert (caught.value.reason, caught.value.written) == ("read_only", False)
    assert engine.one(Row, sql.count).n == 200
    engine.close()


AS_NOBODY = """
import os, sys
from types import SimpleNamespace as Row
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.errors import Unavailable
from holdfast.testing.fakes import FrozenClock
SQLiteEngine.open(":memory:", clock=FrozenClock()).close()
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    engine = SQLiteEngine.open(sys.argv[1], clock=FrozenClock())
    print(engine.one(Row, "select count(*) as n from scratch").n)
    engine.write(lambda tx: tx.run("delete from scratch"))
except Unavailable as error:
    print(error.reason, "Copy" in error.next)
"""


def as_nobody(path: Path) -> list[str]:
    """Return what is said by a process that has no right to write the file."""
    command = [sys.executable, "-c", AS_NOBODY, str(path)]
    said = subprocess.run(command, check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    return said.stdout.splitlines()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A database that nobody may write, in a folder that all may reach."""
    with TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        path = made(Path(folder) / "a.db")
        path.chmod(0o444)
        yield path
        Path(folder).chmod(0o755)


def test_a_file_that_cannot_be_written_is_read(shared: Path):
    shared.parent.chmod(0o777)

    assert as_nobody(shared) == ["200", "read_only False"]


def test_in_a_folder_that_cannot_be_written_the_message_says_to_copy(shared: Path):
    shared.parent.chmod(0o555)

    assert as_nobody(shared) == ["read_only True"]


def test_events_tell_of_opening_migrating_and_closing(path: Path):
    heard: list[Event] = []
    bus = EventBus()
    bus.subscribe(heard.append)

    SQLiteEngine.open(path, clock=FrozenClock(), events=bus).close()

    assert [event.type for event in heard] == ["engine.migrated", "engine.opened", "engine.closed"]


def test_the_file_system_is_known_from_the_mount_table(tmp_path: Path):
    assert file_system("/proc/self") == "proc"
    assert file_system(str(tmp_path)) != ""
