"""The directory to mount on, and who is found there, without a mount."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.doors.mount.process import system
from holdfast.doors.mount.process.registry import Facts, Register
from holdfast.doors.mount.process.setup import absolute, claim
from holdfast.doors.mount.process.system import Mounted
from holdfast.doors.mount.process.unmount import holding
from holdfast.ground.errors import InvalidInput

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
