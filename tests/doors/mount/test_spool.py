import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from fork_server import forked_code

from holdfast.doors.mount.storage.spool import Spool, Spooled, SpoolEntry, default_root
from holdfast.ground.text import sha256_hex
from holdfast.testing.fakes import FrozenClock

STORE = "memstore_1"
NOTES = Spooled(
    store_id=STORE,
    memory_id="mem_1",
    path="/plans/notes.md",
    base_sha256="a" * 64,
    kind="append",
    errno="EIO",
    message="The storage did not answer.",
    edit_id="edit_1",
    at="2026-01-01T00:00:00.000000Z",
    session_id=None,
)
BYTES = b"tabs, not spaces\n\xff\x00 and what is no text\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state" / "spool"


@pytest.fixture
def spool(root: Path) -> Spool:
    return Spool(root, clock=FrozenClock())


def named(path: str) -> Spooled:
    return msgspec.structs.replace(NOTES, path=path)


def of(content: bytes) -> Spooled:
    """Return what is told of an entry with *content*."""
    return msgspec.structs.replace(NOTES, content_sha256=sha256_hex(content))


BEGIN = """
import os, sys
from pathlib import Path
import msgspec
from holdfast.doors.mount.storage.spool import Spool, Spooled
from holdfast.ground.clock import SystemClock
spool = Spool(Path(sys.argv[1]), clock=SystemClock())
notes = msgspec.json.decode(sys.argv[2], type=Spooled)
"""
"""How each other process begins."""


def command(root: Path, program: str) -> list[str]:
    return forked_code(BEGIN + program, root, msgspec.json.encode(NOTES).decode())


def elsewhere(root: Path, program: str) -> str:
    """Return what *program* prints in another process."""
    done = subprocess.run(
        command(root, program), capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / STORE).iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_entry_is_the_bytes_and_beside_them_what_they_are(root: Path, spool: Spool) -> None:
    kept = spool.put(NOTES, BYTES)

    assert files(root) == [
        "20260101T000000.000000Z-EIO-notes.md",
        "20260101T000000.000000Z-EIO-notes.md.json",
    ]
    assert kept.path.read_bytes() == BYTES
    assert json.loads(Path(f"{kept.path}.json").read_bytes()) == {
        "type": "spooled",
        "store_id": STORE,
        "memory_id": "mem_1",
        "path": "/plans/notes.md",
        "base_sha256": "a" * 64,
        "kind": "append",
        "errno": "EIO",
        "message": "The storage did not answer.",
        "edit_id": "edit_1",
        "at": "2026-01-01T00:00:00.000000Z",
        "session_id": None,
        "content_sha256": sha256_hex(BYTES),
    }


def test_only_its_owner_may_read_it(root: Path, spool: Spool) -> None:
    kept = spool.put(NOTES, BYTES)

    modes = [mode(path) for path in (root.parent, root, kept.path.parent)]
    assert modes == [0o700] * 3
    assert [mode(path) for path in kept.path.parent.iterdir()] == [0o600] * 2


def test_a_folder_that_others_may_enter_is_shut(root: Path, spool: Spool) -> None:
    (root / STORE).mkdir(parents=True)
    (root / STORE).chmod(0o755)

    spool.put(NOTES, BYTES)

    assert mode(root / STORE) == 0o700


def test_a_folder_of_somebody_else_is_refused(root: Path, spool: Spool) -> None:
    (root / STORE).mkdir(parents=True)
    os.chown(root / STORE, 4_711, 4_711)

    with pytest.raises(PermissionError):
        spool.put(NOTES, BYTES)
    with pytest.raises(PermissionError):
        spool.take(STORE)


def test_a_folder_that_is_a_link_is_refused(root: Path, spool: Spool, tmp_path: Path) -> None:
    root.mkdir(parents=True)
    (root / STORE).symlink_to(tmp_path)

    with pytest.raises(PermissionError):
        spool.put(NOTES, BYTES)


@pytest.mark.parametrize("store_id", ["", ".", "..", "../x", "a/b", "a\0b"])
def test_an_id_that_leads_out_of_the_spool_is_refused(spool: Spool, store_id: str) -> None:
    with pytest.raises(OSError, match="no id of a store"):
        spool.put(msgspec.structs.replace(NOTES, store_id=store_id), BYTES)
    with pytest.raises(OSError, match="no id of a store"):
        spool.forget(store_id)


@pytest.mark.parametrize(
    "path", ["/" + "x" * 255, "/" + "\N{SNOWMAN}" * 85, "/a/.hidden", "/a.json", "/a\nb"]
)
def test_whatever_a_file_is_called_both_names_fit(root: Path, spool: Spool, path: str) -> None:
    spool.put(named(path), BYTES)

    assert max(len(name.encode()) for name in files(root)) <= 255
    assert [spooled.path for _, spooled in spool.list()] == [path]


def test_files_of_one_name_in_one_moment_are_entries_of_their_own(spool: Spool) -> None:
    for path in ("/a", "/a.json", "/a.json.json", "/b/a", "/a.json"):
        spool.put(named(path), path.encode())

    assert {spooled.path for _, spooled in spool.list(STORE)} == {
        "/a",
        "/a.json",
        "/a.json.json",
        "/b/a",
    }
    assert sorted(path.read_bytes() for path, _ in spool.list(STORE)) == [
        b"/a",
        b"/a.json",
        b"/a.json",
        b"/a.json.json",
        b"/b/a",
    ]


def test_threads_that_keep_at_once_lose_nothing(spool: Spool) -> None:
    def put(number: int) -> SpoolEntry:
        return spool.put(NOTES, b"%d" % number)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(64)))

    contents = {path.read_bytes() for path, _ in spool.list(STORE)}
    assert contents == {b"%d" % number for number in range(64)}


def test_what_is_saved_goes(root: Path, spool: Spool) -> None:
    kept = spool.put(NOTES, BYTES)
    spool.remove(kept)
    spool.remove(kept)

    assert files(root) == []


def test_a_newer_entry_takes_the_place_of_the_older(spool: Spool) -> None:
    first = spool.put(NOTES, b"one")
    spool.put(NOTES, b"two", instead_of=first)

    assert [path.read_bytes() for path, _ in spool.list(STORE)] == [b"two"]


def test_what_was_released_is_not_for_its_last_holder_to_remove(spool: Spool) -> None:
    kept = spool.put(NOTES, BYTES)
    kept.release()
    kept.release()

    spool.remove(kept)

    assert spool.count(STORE) == 1


def test_what_nobody_holds_is_taken_the_oldest_first(root: Path) -> None:
    clock = FrozenClock()
    killed, next_mount = Spool(root, clock=clock), Spool(root, clock=clock)
    for number in range(3):
        killed.put(NOTES, b"%d" % number).release()
        clock.tick()

    taken = next_mount.take(STORE)

    assert [(spooled, content) for _, spooled, content in taken] == [
        (of(b"0"), b"0"),
        (of(b"1"), b"1"),
        (of(b"2"), b"2"),
    ]


def test_what_is_held_is_not_taken(root: Path, spool: Spool) -> None:
    kept = spool.put(NOTES, BYTES)

    assert spool.take(STORE) == []
    assert elsewhere(root, "print(len(spool.take(notes.store_id)))") == "0"

    kept.release()

    assert elsewhere(root, "print(len(spool.take(notes.store_id)))") == "1"


def test_two_processes_that_take_at_once_never_take_the_same(root: Path, spool: Spool) -> None:
    for number in range(40):
        spool.put(NOTES, b"%d" % number).release()
    program = """
input()
taken = spool.take(notes.store_id)
print(*[content.decode() for _, _, content in taken], flush=True)
input()
"""
    pipe = subprocess.PIPE
    takers = [
        subprocess.Popen(command(root, program), stdin=pipe, stdout=pipe, text=True)
        for _ in range(2)
    ]
    try:
        for taker in takers:
            print("go", file=taker.stdin, flush=True)
        answers = [taker.stdout.readline() for taker in takers if taker.stdout]
    finally:
        for taker in takers:
            taker.communicate("end\n", timeout=60)

    assert sorted(int(each) for line in answers for each in line.split()) == list(range(40))


# Every call that changes a disk is counted; the one of the given number never happens.
DYING = """
calls = 0
def dying(function):
    def counted(*args, **named):
        global calls
        calls += 1
        if calls == death:
            os.kill(os.getpid(), 9)
        return function(*args, **named)
    return counted
for name in "open write fsync unlink mkdir".split():
    setattr(os, name, dying(getattr(os, name)))
death = int(sys.stdin.readline())
"""


def killed(root: Path, program: str, death: int) -> bool:
    """Run *program* until its call number *death*; tell whether it was killed there."""
    done = subprocess.run(
        command(root, DYING + program), input=f"{death}\n", text=True, timeout=60, check=False
    )
    assert done.returncode in (0, -9)
    return done.returncode == -9


def test_killed_anywhere_while_it_keeps_it_leaves_all_the_bytes_or_no_entry(root: Path) -> None:
    spool, deaths = Spool(root, clock=FrozenClock()), 0
    program = "spool.put(notes, b'one' * 1000)"

    while killed(root, program, deaths + 1):
        deaths += 1
        for kept, spooled, content in spool.take(STORE):
            assert (spooled, content) == (of(b"one" * 1_000), b"one" * 1_000)
            spool.remove(kept)
        for path, _ in spool.list(STORE):
            assert path.read_bytes() in (b"", b"one" * 1_000)
        spool.forget(STORE)

    assert deaths >= 7
    assert [content for _, _, content in spool.take(STORE)] == [b"one" * 1_000]


def test_killed_anywhere_while_it_replaces_it_leaves_the_old_or_the_new(root: Path) -> None:
    spool, deaths = Spool(root, clock=FrozenClock()), 0
    program = """
[(old, _, _)] = spool.take(notes.store_id)
calls = 0
spool.put(notes, b"new", instead_of=old)
"""
    spool.put(NOTES, b"old").release()

    while killed(root, program, deaths + 1):
        deaths += 1
        taken = spool.take(STORE)
        assert {content for _, _, content in taken} <= {b"old", b"new"}
        assert taken
        spool.forget(STORE)
        spool.put(NOTES, b"old").release()

    assert deaths >= 8
    assert [content for _, _, content in spool.take(STORE)] == [b"new"]


def test_a_killed_process_holds_nothing(root: Path, spool: Spool) -> None:
    assert not killed(root, "spool.put(notes, b'kept')", 0)

    assert [content for _, _, content in spool.take(STORE)] == [b"kept"]


@pytest.mark.parametrize("cut", [b"", BYTES[:-1], bytes(len(BYTES))])
def test_bytes_that_a_loss_of_power_cut_are_shown_and_left(spool: Spool, cut: bytes) -> None:
    kept = spool.put(NOTES, BYTES, on_disk=False)
    kept.release()
    kept.path.write_bytes(cut)

    assert spool.take(STORE) == []
    assert [path for path, _ in spool.list(STORE)] == [kept.path]


def test_what_has_only_to_outlive_its_process_waits_for_no_disk(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    spool.put(NOTES, b"to have the folder")
    synced.clear()

    kept = spool.put(NOTES, BYTES, on_disk=False)

    assert (synced, kept.on_disk) == ([], False)
    spool.secure(kept)
    assert (len(synced), kept.on_disk) == (3, True)
    spool.secure(kept)
    assert len(synced) == 3


def test_what_takes_the_place_of_an_entry_on_disk_is_on_disk(spool: Spool) -> None:
    older = spool.put(NOTES, b"older")
    newer = spool.put(NOTES, b"newer", instead_of=older, on_disk=False)

    assert newer.on_disk


@pytest.mark.parametrize("written", [None, b"", b'{"type":"spoo', b"\xff"])
def test_bytes_whose_description_was_not_written_are_shown_and_left(
    spool: Spool, written: bytes | None
) -> None:
    kept = spool.put(NOTES, BYTES)
    description = Path(f"{kept.path}.json")
    description.unlink()
    if written is not None:
        description.write_bytes(written)
    kept.release()

    [(path, told)] = spool.list(STORE)

    assert spool.take(STORE) == []
    assert path.read_bytes() == BYTES
    assert (told.store_id, told.path, told.errno) == (STORE, "/notes.md", "EIO")
    assert told.at == "2026-01-01T00:00:00.000000Z"
    assert "killed" in told.message


def test_a_person_may_take_an_entry_away(root: Path, spool: Spool) -> None:
    kept = spool.put(NOTES, BYTES)
    kept.path.unlink()

    assert (spool.list(), spool.count(STORE), spool.take(STORE)) == ([], 0, [])
    assert not spool.held(kept.path)
    spool.remove(kept)
    assert files(root) == []


def test_what_is_no_entry_is_left_alone(root: Path, spool: Spool) -> None:
    kept = spool.put(NOTES, BYTES)
    (root / STORE / "README").write_text("mine")
    (root / STORE / f"{kept.path.name}-copy").mkdir()

    assert [path for path, _ in spool.list(STORE)] == [kept.path]


def test_the_entries_of_all_stores_are_listed(spool: Spool) -> None:
    for store in ("memstore_2", "memstore_1", "memstore_2"):
        spool.put(msgspec.structs.replace(NOTES, store_id=store), BYTES)

    assert [told.store_id for _, told in spool.list()] == ["memstore_1"] + ["memstore_2"] * 2
    assert [spool.count(store) for store in ("memstore_1", "memstore_2", "memstore_3")] == [1, 2, 0]


def test_a_spool_that_is_not_there_yet_is_empty(spool: Spool) -> None:
    assert (spool.list(), spool.list(STORE), spool.take(STORE)) == ([], [], [])
    spool.forget(STORE)


def test_it_tells_what_somebody_holds(root: Path, spool: Spool) -> None:
    kept = spool.put(NOTES, BYTES)

    assert spool.held(kept.path)
    assert elsewhere(root, "print(spool.held(spool.list()[0][0]))") == "True"

    kept.release()

    assert not spool.held(kept.path)


def test_all_of_a_deleted_store_goes_and_nothing_of_others(root: Path, spool: Spool) -> None:
    other = spool.put(msgspec.structs.replace(NOTES, store_id="memstore_2"), BYTES)
    held, left = spool.put(NOTES, BYTES), spool.put(NOTES, BYTES)
    left.release()

    spool.forget(STORE)
    spool.remove(held)

    assert not (root / STORE).exists()
    assert [path for path, _ in spool.list()] == [other.path]


@pytest.mark.fuse
def test_bytes_that_do_not_fit_on_the_disk_leave_nothing_and_the_older_entry(
    tmp_path: Path,
) -> None:
    program = """
old = spool.put(notes, b"old")
try:
    spool.put(notes, b"x" * 1_000_000, instead_of=old)
except OSError as error:
    print(error.strerror)
print(*[path.read_bytes() for path in sorted(old.path.parent.iterdir())][:1])
print(len(os.listdir(old.path.parent)), spool.put(notes, b"small", instead_of=old).path.exists())
"""
    disk = tmp_path / "disk"
    disk.mkdir()
    # A disk of its own that goes with the process, whoever may make one.
    shell = 'mount -t tmpfs -o size=256k tmpfs "$0" && exec "$@"'
    flags = "-m" if os.geteuid() == 0 else "-Urm"
    made = ["unshare", flags, "sh", "-c", shell, str(disk)]
    told = msgspec.json.encode(NOTES).decode()
    done = subprocess.run(
        [*made, sys.executable, "-c", BEGIN + program, str(disk), told],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.splitlines() == ["No space left on device", "b'old'", "2 True"]


def test_it_is_where_state_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    assert default_root() == tmp_path / "holdfast" / "spool"
