"""The process of a mount: its machine, its directory, its stores, and its events."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

import holdfast
from holdfast.doors.mount import Mount, mounted
from holdfast.doors.mount.process import system
from holdfast.doors.mount.process.lifecycle import EventQueue
from holdfast.doors.mount.process.registry import Facts, Register, note_of
from holdfast.doors.mount.process.setup import MountRequest, absolute, claim, mount_request
from holdfast.doors.mount.process.system import (
    Machine,
    Mounted,
    at,
    lacking_for_fuse,
    needs,
    require,
)
from holdfast.doors.mount.process.unmount import holding
from holdfast.ground.errors import (
    InvalidInput,
    MissingExtra,
    NotFound,
    NotPermitted,
    Refused,
    Unavailable,
)
from holdfast.ground.scope import Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import JSONObject, Memory, SessionRecord, Store
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import Server, new_workspace, serving


@pytest.fixture(params=["file", "postgres", "http"])
def hf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    """Give a handle that another process can follow, on each target in turn."""
    match request.param:
        case "file":
            target = str(tmp_path / "h.db")
        case "postgres":
            target = request.getfixturevalue("postgres_url")
        case _:
            server: Server = request.getfixturevalue("server")
            target = server.url
    with holdfast.open(target, workspace=new_workspace()) as hf:
        yield hf


@pytest.fixture
def local(sqlite_file: Path) -> Iterator[Holdfast]:
    with holdfast.open(sqlite_file) as hf:
        yield hf


def contents(hf: Holdfast, store: Store) -> dict[str, str | None]:
    listed = hf.memory_stores.memories.list(store.id, view="full")
    return {each.path: each.content for each in listed if isinstance(each, Memory)}


def is_left(place: Path, pid: int) -> bool:
    """Tell whether the mount, or its process, is still there."""
    return at(place) is not None or Path(f"/proc/{pid}").exists()


@pytest.mark.fuse
def test_what_is_written_is_a_memory_when_it_is_closed(hf: Holdfast, tmp_path: Path) -> None:
    store = hf.memory_stores.create(name="Notes")

    with mounted(hf, tmp_path / "m", stores=["Notes"]) as mount:
        (mount.paths["notes"] / "a.md").write_text("one\n")

        assert contents(hf, store) == {"/a.md": "one\n"}
        assert mount.status()["stores"][0]["saves"] == 1

    assert not is_left(tmp_path / "m", mount.process.pid)


@pytest.mark.fuse
def test_a_session_mounts_what_it_attaches_and_is_the_writer(hf: Holdfast, tmp_path: Path) -> None:
    notes, rules = (hf.memory_stores.create(name=name) for name in ("Notes", "Rules"))
    session = hf.sessions.create(
        agent="agent_7",
        environment_id="laptop",
        resources=[
            {"type": "memory_store", "memory_store_id": notes.id},
            {"type": "memory_store", "memory_store_id": rules.id, "access": "read_only"},
        ],
    )

    with mounted(hf, tmp_path / "m", session=session.id) as mount:
        (mount.paths["notes"] / "a.md").write_text("one\n")
        with pytest.raises(OSError, match="Read-only file system"):
            (mount.paths["rules"] / "a.md").write_text("one\n")

    (version,) = hf.memory_stores.memory_versions.list(notes.id)
    assert version.created_by == Actor.session(session.id)
    assert mount.ready["session_id"] == session.id
    assert hf.sessions.list_tokens(session.id) == []


@pytest.mark.fuse
def test_a_narrowed_handle_names_no_session(local: Holdfast, tmp_path: Path) -> None:
    store = local.memory_stores.create(name="Notes")
    attached = [{"type": "memory_store", "memory_store_id": store.id}]
    session = local.sessions.create(agent="a", environment_id="e", resources=attached)

    with mounted(local.for_session(session.id), tmp_path / "m") as mount:
        assert mount.ready["session_id"] == session.id


@pytest.mark.fuse
def test_the_note_is_the_session_s_with_the_paths_there_are(
    local: Holdfast, tmp_path: Path
) -> None:
    store = local.memory_stores.create(name="Notes", description="What was said")
    attached = [
        {
            "type": "memory_store",
            "memory_store_id": store.id,
            "access": "read_only",
            "instructions": "Look here <first>",
        }
    ]
    session = local.sessions.create(agent="a", environment_id="e", resources=attached)

    with mounted(local, tmp_path / "m", session=session.id) as mount:
        told = note_of(mount.directory, Register())

    assert told == local.sessions.note(session.id, root=str(tmp_path / "m"))


@pytest.mark.fuse
def test_what_is_open_when_the_block_ends_is_saved(local: Holdfast, tmp_path: Path) -> None:
    store = local.memory_stores.create(name="Notes")

    with mounted(local, tmp_path / "m", stores=["Notes"], grace=600.0) as mount:
        file = os.open(mount.paths["notes"] / "a.md", os.O_WRONLY | os.O_CREAT)
        os.write(file, b"open\n")
        (mount.paths["notes"] / "b.tmp").write_text("temporary\n")

    with pytest.raises(OSError, match="not connected"):
        os.close(file)
    assert contents(local, store) == {"/a.md": "open\n", "/b.tmp": "temporary\n"}


def write_and_fail(mount: Mount) -> None:
    (mount.paths["notes"] / "a.md").write_text("one\n")
    raise ZeroDivisionError


@pytest.mark.fuse
def test_nothing_is_left_after_an_error_in_the_block(local: Holdfast, tmp_path: Path) -> None:
    store = local.memory_stores.create(name="Notes")

    with (
        pytest.raises(ZeroDivisionError),
        mounted(local, tmp_path / "m", stores=["Notes"]) as mount,
    ):
        write_and_fail(mount)

    assert not is_left(tmp_path / "m", mount.process.pid)
    assert contents(local, store) == {"/a.md": "one\n"}


@pytest.mark.fuse
def test_nothing_is_left_of_a_process_that_was_killed(local: Holdfast, tmp_path: Path) -> None:
    local.memory_stores.create(name="Notes")

    with (
        pytest.raises(Unavailable, match="The mount was killed"),
        mounted(local, tmp_path / "m", stores=["Notes"]) as mount,
    ):
        mount.process.kill()

    assert not is_left(tmp_path / "m", mount.process.pid)


@pytest.mark.fuse
def test_what_cannot_be_mounted_is_told_in_the_process_s_own_words(
    local: Holdfast, tmp_path: Path
) -> None:
    local.memory_stores.create(name="Notes")
    with (
        pytest.raises(Unavailable, match="The nearest is 'Notes'"),
        mounted(local, tmp_path / "m", stores=["Nodes"]),
    ):
        pass

    assert not (tmp_path / "m").exists()


@pytest.mark.fuse
def test_what_is_in_memory_cannot_be_mounted(tmp_path: Path) -> None:
    with (
        holdfast.open(":memory:") as hf,
        pytest.raises(InvalidInput, match="reached by this process alone"),
        mounted(hf, tmp_path / "m", stores=["Notes"]),
    ):
        pass


COUNT = 1_000
SIGNALLED = f"""
import os, signal, threading
from holdfast.doors.mount.process.lifecycle import EventQueue

happenings = EventQueue()
with happenings.signalled([signal.SIGTERM], lambda: "signal"):
    for _ in range({COUNT}):
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGTERM)).start()
        assert happenings.get(within=30) == "signal"
"""


def test_what_happened_comes_in_order() -> None:
    happenings: EventQueue[int] = EventQueue()
    for number in range(3):
        happenings.put(number)

    assert [happenings.get() for _ in range(3)] == [0, 1, 2]


def test_who_waits_is_woken() -> None:
    happenings: EventQueue[str] = EventQueue()
    later = Thread(target=lambda: happenings.put("here"))
    later.start()

    assert happenings.get(within=30) == "here"
    later.join()


def test_waiting_ends_when_its_time_is_over() -> None:
    with pytest.raises(TimeoutError):
        EventQueue[str]().get(within=0.01)


def test_more_may_happen_than_anybody_takes() -> None:
    happenings: EventQueue[int] = EventQueue()
    many = 100_000
    for number in range(many):
        happenings.put(number)

    assert [happenings.get() for _ in range(many)] == list(range(many))


def test_no_signal_is_lost() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SIGNALLED], check=False, capture_output=True, text=True, timeout=120
    )

    assert ran.returncode == 0, ran.stderr


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    happenings: EventQueue[str] = EventQueue()

    with happenings.signalled([signal.SIGUSR1], lambda: "signal"):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert happenings.get(within=30) == "signal"

    assert signal.getsignal(signal.SIGUSR1) == before


ENDING = """
import os, signal
from holdfast.doors.mount.process.lifecycle import EventQueue

happenings = EventQueue()
with happenings.signalled([signal.SIGTERM], lambda: "signal", ending=True):
    pass
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_process_that_ends_anyway_is_not_killed() -> None:
    ran = subprocess.run([sys.executable, "-c", ENDING], check=False, timeout=120)

    assert ran.returncode == 0


IGNORING = """
import os, signal
from holdfast.doors.mount.process.lifecycle import EventQueue

signal.signal(signal.SIGHUP, signal.SIG_IGN)
happenings = EventQueue()
with happenings.signalled([signal.SIGHUP, signal.SIGTERM], lambda: "signal"):
    os.kill(os.getpid(), signal.SIGHUP)
    happenings.put("put")
    assert happenings.get() == "put"
"""


def test_a_process_below_nohup_outlives_its_terminal() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", IGNORING], check=False, capture_output=True, text=True, timeout=120
    )

    assert ran.returncode == 0, ran.stderr


MAY_MOUNT = "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n"
MAY_NOT = "CapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\n"


def not_there(name: str) -> object:
    raise OSError(name)


def nowhere(_: str) -> None:
    return None


@pytest.fixture
def whole(tmp_path: Path) -> Machine:
    """Give a machine that has everything, used by somebody who is not root."""
    for name, content in (
        ("fuse", ""),
        ("fuse.conf", "# words\nuser_allow_other\n"),
        ("status", MAY_MOUNT),
    ):
        (tmp_path / name).write_text(content)
    return Machine(
        load=lambda name: name,
        which=lambda name: f"/usr/bin/{name}",
        find=lambda name: name,
        device=tmp_path / "fuse",
        settings=tmp_path / "fuse.conf",
        process=tmp_path / "status",
        user=1000,
    )


def test_a_machine_that_has_everything_lacks_nothing(whole: Machine) -> None:
    require(whole, fuse=True, allow_other=True)

    assert [need.name for need in needs(whole)] == [
        "extra",
        "libfuse3",
        "fusermount3",
        "/dev/fuse",
        "allow other",
    ]
    assert all(need.met for need in needs(whole))


def test_libfuse_is_missed_in_one_sentence_that_says_what_to_install(whole: Machine) -> None:
    with pytest.raises(Refused) as refused:
        require(replace(whole, load=not_there), fuse=True)

    assert str(refused.value) == (
        "libfuse3 is not installed. Debian, Ubuntu: apt install libfuse3-3 fuse3."
        " Or use --mode sync."
    )


def test_a_newer_libfuse_will_do(whole: Machine) -> None:
    def load(name: str) -> object:
        return name if name == "libfuse3.so.4" else not_there(name)

    assert lacking_for_fuse(replace(whole, load=load)) is None


def test_fusermount_is_missed_by_those_who_need_it(whole: Machine) -> None:
    bare = replace(whole, which=nowhere)

    assert str(lacking_for_fuse(bare)).startswith("fusermount3 is not installed. Debian, Ubuntu:")
    assert lacking_for_fuse(replace(bare, user=0)) is None


def test_a_missing_device_is_told_from_one_that_is_not_permitted(
    whole: Machine, tmp_path: Path
) -> None:
    missing = lacking_for_fuse(replace(whole, device=tmp_path / "none"))
    refused = lacking_for_fuse(replace(whole, device=tmp_path))  # a folder is not opened to write

    assert f"{tmp_path}/none is missing. In a container: --device /dev/fuse" in str(missing)
    assert f"{tmp_path} may not be opened" in str(refused)
    assert "--cap-add SYS_ADMIN" in str(refused)


@pytest.mark.parametrize("user", [0, 1000])
def test_a_container_without_the_right_to_mount_is_told_so(whole: Machine, user: int) -> None:
    whole.process.write_text(MAY_NOT)

    assert "mounting is not permitted" in str(lacking_for_fuse(replace(whole, user=user)))


def test_letting_others_in_wants_a_line_in_the_settings(whole: Machine) -> None:
    whole.settings.write_text("#user_allow_other\n")

    require(whole, fuse=True)
    with pytest.raises(Refused, match="Add the line: user_allow_other"):
        require(whole, fuse=True, allow_other=True)
    require(replace(whole, user=0), fuse=True, allow_other=True)


def test_both_forms_want_the_extra(whole: Machine) -> None:
    def find(name: str) -> object | None:
        return None if name == "watchfiles" else name

    bare = replace(whole, find=find)

    for fuse in (True, False):
        with pytest.raises(MissingExtra, match=r"holdfast\[mount\]"):
            require(bare, fuse=fuse)


def test_a_synced_directory_wants_nothing_but_the_extra(whole: Machine, tmp_path: Path) -> None:
    bare = replace(whole, load=not_there, which=nowhere, device=tmp_path / "none")

    require(bare, fuse=False)


TABLE = """\
22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
40 22 0:50 / /w/m rw,nosuid - fuse.holdfast holdfast:4711 rw,user_id=0
41 22 0:51 / /w/two\\040words rw - fuse.sshfs ada@host: rw
42 40 0:52 / /w/m rw,nosuid - fuse.holdfast holdfast:4712 rw,user_id=0
"""


def facts(directory: Path) -> Facts:
    return Facts(
        dir=str(directory),
        mode="sync",
        binding=None,
        pid=os.getpid(),
        session_id=None,
        since="2026-01-01T00:00:00Z",
        spool="/spool",
        resources=(),
    )


class TestTheDirectory:
    @pytest.fixture
    def register(self, tmp_path: Path) -> Register:
        return Register(tmp_path / "state")

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        (tmp_path / "m").mkdir()
        return tmp_path / "m"

    def test_it_is_made_for_its_owner_alone(self, tmp_path: Path, register: Register) -> None:
        claim(tmp_path / "a" / "m", register)

        assert (tmp_path / "a" / "m").stat().st_mode & 0o7777 == 0o700

    def test_one_that_is_empty_will_do(self, place: Path, register: Register) -> None:
        assert claim(place, register) is None

    def test_one_that_holds_files_will_do_for_files_alone(
        self, place: Path, register: Register
    ) -> None:
        (place / "file").touch()

        claim(place, register, may_hold_files=True)
        with pytest.raises(InvalidInput, match="must be an empty directory"):
            claim(place, register)

    def test_a_file_is_none(self, place: Path, register: Register) -> None:
        (place / "file").touch()

        with pytest.raises(InvalidInput, match="must be an empty directory"):
            claim(place / "file", register)

    def test_one_that_another_process_keeps_in_step_is_its_own(
        self, place: Path, register: Register, tmp_path: Path
    ) -> None:
        register.hold(place)
        register.put(facts(place))

        with pytest.raises(InvalidInput, match=f"is mounted already, by process {os.getpid()}"):
            claim(place, Register(tmp_path / "state"))
        register.remove(place)

    def test_its_path_is_whole_and_without_links(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "link").symlink_to("real")

        assert absolute("link/m") == tmp_path / "real" / "m"


class TestTheTableOfMounts:
    @pytest.fixture
    def table(self, tmp_path: Path) -> Path:
        (tmp_path / "mountinfo").write_text(TABLE)
        return tmp_path / "mountinfo"

    def test_a_mount_of_ours_names_its_process_and_the_uppermost_counts(self, table: Path) -> None:
        found = system.at(Path("/w/m"), table=table)

        assert found is not None
        assert (found.ours, found.pid) == (True, 4712)
        assert system.source_of(4712) == found.source

    def test_another_s_is_not_ours(self, table: Path) -> None:
        found = system.at(Path("/w/two words"), table=table)

        assert found is not None
        assert (found.ours, found.pid) == (False, None)

    def test_a_plain_directory_is_none(self, table: Path) -> None:
        assert system.at(Path("/w"), table=table) is None

    def test_where_there_is_no_table_nothing_is_mounted(self, tmp_path: Path) -> None:
        assert system.mounts(table=tmp_path / "none") == []

    def test_a_directory_that_can_be_looked_at_answers(self, tmp_path: Path) -> None:
        here = Mounted(directory=tmp_path, kind=system.TYPE, source="holdfast:1")

        assert here.state() == "live"


class TestWhoHoldsIt:
    @pytest.fixture
    def program(self, tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
        (tmp_path / "file").touch()
        script = "import sys; file = open('file'); print(flush=True); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as program:
            assert program.stdout is not None
            program.stdout.readline()
            yield program
            program.kill()

    def test_a_program_is_named_with_what_it_holds(
        self, tmp_path: Path, program: "subprocess.Popen[bytes]"
    ) -> None:
        (found,) = holding(tmp_path / "file")

        assert (found.pid, found.path) == (program.pid, str(tmp_path / "file"))
        assert "python" in found.program

    def test_one_that_works_in_the_directory_holds_it(
        self, tmp_path: Path, program: "subprocess.Popen[bytes]"
    ) -> None:
        assert [each.path for each in holding(tmp_path)] == [str(tmp_path)]
        assert holding(tmp_path, besides=program.pid) == []
        assert holding(tmp_path / "f") == []


class TestTheRegister:
    def test_what_was_told_is_known_until_it_is_removed(self, tmp_path: Path) -> None:
        register, other = Register(tmp_path), Register(tmp_path)
        told = facts(tmp_path)

        register.put(told)
        register.put_status(tmp_path, b"{}")

        assert (other.get(tmp_path), other.status(tmp_path)) == (told, b"{}")
        register.remove(tmp_path)
        assert (other.get(tmp_path), other.status(tmp_path)) == (None, None)

    def test_it_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        Register(tmp_path / "state").put(facts(tmp_path))

        mounts = tmp_path / "state" / "mounts"
        assert [each.stat().st_mode & 0o077 for each in (mounts, *mounts.iterdir())] == [0, 0]

    def test_a_directory_is_held_by_one(self, tmp_path: Path) -> None:
        register, other = Register(tmp_path), Register(tmp_path)

        assert not other.is_held(tmp_path)
        assert register.hold(tmp_path)
        assert other.is_held(tmp_path)
        assert not other.hold(tmp_path)
        register.remove(tmp_path)
        assert other.hold(tmp_path)
        other.remove(tmp_path)


@pytest.fixture
def in_memory() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


def store(hf: Holdfast, name: str = "Notes") -> Store:
    return hf.memory_stores.create(name=name)


def session(hf: Holdfast, *stores: Store, read_only: tuple[Store, ...] = ()) -> SessionRecord:
    resources: list[JSONObject] = [
        {
            "type": "memory_store",
            "memory_store_id": each.id,
            "access": "read_only" if each in read_only else "read_write",
        }
        for each in stores
    ]
    return hf.sessions.create(agent="agent_7", environment_id="laptop", resources=resources)


def shown(found: MountRequest) -> dict[str, str]:
    return {part.slug: part.resource.access for part in found.stores}


class TestWithoutASession:
    def test_stores_are_named_by_id_or_name_and_keep_their_order(self, in_memory: Holdfast) -> None:
        rules, notes = store(in_memory, "Team rules"), store(in_memory)

        found = mount_request(in_memory, session=None, stores=[notes.id, "Team rules"])

        assert shown(found) == {"notes": "read_write", "team-rules": "read_write"}
        assert [part.store for part in found.stores] == [notes, rules]
        assert found.session_id is None
        assert found.hf is in_memory

    def test_a_slug_that_is_taken_borrows_from_the_id(self, in_memory: Holdfast) -> None:
        first, second = store(in_memory), store(in_memory, "notes!")

        found = mount_request(in_memory, session=None, stores=[first.id, second.id])

        assert [part.slug for part in found.stores] == ["notes", f"notes-{second.id[-6:].lower()}"]

    def test_an_archived_store_can_be_read(self, in_memory: Holdfast) -> None:
        in_memory.memory_stores.archive(store(in_memory).id)

        assert shown(mount_request(in_memory, session=None, stores=["Notes"])) == {
            "notes": "read_only"
        }

    def test_nothing_is_written_where_that_was_asked_for(self, in_memory: Holdfast) -> None:
        store(in_memory)

        found = mount_request(in_memory, session=None, stores=["Notes"], read_only=True)

        assert shown(found) == {"notes": "read_only"}

    def test_a_name_that_several_have_lists_their_ids(self, in_memory: Holdfast) -> None:
        ids = {store(in_memory).id, store(in_memory).id}

        with pytest.raises(InvalidInput) as refused:
            mount_request(in_memory, session=None, stores=["Notes"])

        assert all(id in str(refused.value) for id in ids)

    @pytest.mark.parametrize("wanted", ["notse", "NOTES", "team"])
    def test_a_name_that_nobody_has_names_the_nearest(
        self, in_memory: Holdfast, wanted: str
    ) -> None:
        store(in_memory, "Notes")
        store(in_memory, "Team rules")
        nearest = "Team rules" if wanted == "team" else "Notes"

        with pytest.raises(NotFound, match=f"The nearest is '{nearest}'"):
            mount_request(in_memory, session=None, stores=[wanted])

    def test_one_named_twice_is_told(self, in_memory: Holdfast) -> None:
        notes = store(in_memory)

        assert (
            mount_request(in_memory, session=None, stores=["Notes", notes.id]).repeated()
            is not None
        )
        assert mount_request(in_memory, session=None, stores=["Notes"]).repeated() is None


class TestOfASession:
    def test_everything_attached_is_shown_as_it_is_attached(self, in_memory: Holdfast) -> None:
        notes, rules = store(in_memory), store(in_memory, "Team rules")
        made = session(in_memory, notes, rules, read_only=(rules,))

        found = mount_request(in_memory, session=made.id, stores=[])

        assert shown(found) == {"notes": "read_write", "team-rules": "read_only"}
        assert found.session_id == made.id
        assert found.hf.actor == Actor.session(made.id)

    def test_slugs_are_those_of_the_session_also_for_a_part_of_it(
        self, in_memory: Holdfast
    ) -> None:
        first, second = store(in_memory), store(in_memory)
        made = session(in_memory, first, second)

        found = mount_request(in_memory, session=made.id, stores=[second.id])

        assert list(shown(found)) == [made.resources[1].mount_path.rpartition("/")[2]]

    def test_a_store_renamed_since_is_still_known_as_agreed(self, in_memory: Holdfast) -> None:
        notes = store(in_memory)
        made = session(in_memory, notes)
        in_memory.memory_stores.update(notes.id, name="Diary")

        assert list(shown(mount_request(in_memory, session=made.id, stores=["Notes"]))) == ["notes"]

    def test_a_store_that_is_not_attached_is_not_there(self, in_memory: Holdfast) -> None:
        made = session(in_memory, store(in_memory))
        other = store(in_memory, "Other")

        for named in ("Other", other.id):
            with pytest.raises(NotFound, match="The nearest is 'Notes'"):
                mount_request(in_memory, session=made.id, stores=[named])

    def test_one_deleted_since_is_left_out_and_said(self, in_memory: Holdfast) -> None:
        notes, rules = store(in_memory), store(in_memory, "Team rules")
        made = session(in_memory, notes, rules)
        in_memory.memory_stores.delete(notes.id)

        found = mount_request(in_memory, session=made.id, stores=[])

        assert list(shown(found)) == ["team-rules"]
        assert notes.id in found.warnings[0]

    def test_one_that_is_archived_is_refused_as_such(self, in_memory: Holdfast) -> None:
        made = session(in_memory, store(in_memory))
        in_memory.sessions.archive(made.id)

        with pytest.raises(InvalidInput, match="is archived"):
            mount_request(in_memory, session=made.id, stores=[])

    def test_one_that_attaches_nothing_is_refused(self, in_memory: Holdfast) -> None:
        with pytest.raises(InvalidInput, match="attaches no memory store"):
            mount_request(in_memory, session=session(in_memory).id, stores=[])

    def test_a_handle_that_is_a_session_s_names_none(self, in_memory: Holdfast) -> None:
        made = session(in_memory, store(in_memory))
        other = session(in_memory, store(in_memory, "Other"))

        found = mount_request(in_memory.for_session(made.id), session=None, stores=[])

        assert found.session_id == made.id
        with pytest.raises(NotPermitted):
            mount_request(in_memory.for_session(made.id), session=other.id, stores=[])


class TestOverHTTP:
    """A server closes to all without a key once one is made: so it has a server of its own."""

    @pytest.fixture
    def server(self, in_memory: Holdfast) -> Iterator[Server]:
        clock = FrozenClock()
        with serving(in_memory, clock=clock) as url:
            yield Server(url, in_memory, clock)

    def test_a_key_that_may_makes_a_token_and_revokes_it_at_the_end(self, server: Server) -> None:
        here = server.hf.acting(workspace=new_workspace())
        made = session(here, store(here))
        key = here.keys.create("ci", scope="write", workspace=here.workspace)
        assert key.secret is not None

        with holdfast.open(server.url, api_key=key.secret) as hf:
            found = mount_request(hf, session=made.id, stores=[])
            assert found.hf.actor == Actor.session(made.id)
            assert len(here.sessions.list_tokens(made.id)) == 1

        assert here.sessions.list_tokens(made.id) == []

    def test_a_key_that_may_not_reads_and_says_so(self, server: Server) -> None:
        here = server.hf.acting(workspace=new_workspace())
        made = session(here, store(here))
        key = here.keys.create("ci", scope="read", workspace=here.workspace)

        with holdfast.open(server.url, api_key=key.secret) as hf:
            found = mount_request(hf, session=made.id, stores=[])

        assert shown(found) == {"notes": "read_only"}
        assert "read-only" in found.warnings[0]

    def test_a_token_knows_its_session(self, server: Server) -> None:
        here = server.hf.acting(workspace=new_workspace())
        made = session(here, store(here))
        token = here.sessions.create_token(made.id)

        with holdfast.open(server.url, api_key=token.token) as hf:
            found = mount_request(hf, session=None, stores=[])

        assert found.session_id == made.id
        assert shown(found) == {"notes": "read_write"}
