import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from doors.mount.fuse.conftest import SECONDS, Mounted, mounted_at, mounting
from doors.mount.fuse.toy import Toy

from holdfast.doors.mount.fuse.libfuse import binding, find_libfuse
from holdfast.doors.mount.process.system import Machine
from holdfast.ground.errors import Refused

pytestmark = pytest.mark.fuse

TESTS = Path(__file__).parents[3]
NOBODY = 65534

# Mounts at the argument, with a handler of its own for SIGTERM; says what *says* is when ready.
SCRIPT = """
import os, signal, sys, threading
from pathlib import Path
from doors.mount.fuse.toy import Toy
from holdfast.doors.mount.fuse.adapter import serve
from holdfast.doors.mount.fuse.libfuse import binding

def signals():
    lines = Path("/proc/self/status").read_text().splitlines()
    return [line for line in lines if line.startswith(("SigCgt", "SigIgn", "SigBlk"))]

toy, stop, directory, user = Toy(), threading.Event(), Path(sys.argv[1]), int(sys.argv[2])
if binding() and user != os.getuid():
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
toy.put("/s", None)
toy.put("/s/a.md", b"hello")
signal.signal(signal.SIGTERM, lambda *_: stop.set())
# The C library takes a signal for itself when the first thread begins.
threading.Thread(target=int).start()
before = signals(), os.getcwd()

def ready():
    print({says}, flush=True)

serve(toy, directory, allow_other=False, stop=stop, ready=ready)
print("over", flush=True)
"""


def run(code: str, *arguments: str | Path) -> str:
    """Return what *code* says in a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def process(
    directory: Path, says: str, user: int | None = None, base: Path | None = None
) -> Generator[subprocess.Popen[str]]:
    """Mount a toy at *directory* in a process of its own, which surely ends.

    With *base* everybody may open /dev/fuse in there, whatever this machine permits.
    """
    who = str(os.getuid() if user is None else user)
    command = [sys.executable, "-c", SCRIPT.format(says=says), directory, who]
    with subprocess.Popen(
        [*(permitting(base) if base else ()), *command],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
            while mounted_at(directory):
                subprocess.run(["umount", "-l", directory], check=False)


def permitting(base: Path) -> list[str]:
    """Return what runs a command where /dev/fuse is everybody's."""
    device = base / "fuse"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(10, 229))
    device.chmod(0o666)
    there = f'mount --bind {device} /dev/fuse && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", there, "sh"]


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_no_signal_handler_and_no_directory_is_changed(tmp_path: Path) -> None:
    with process(tmp_path, "before == (signals(), os.getcwd())") as mount:
        assert line(mount) == "True"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signals_do_what_they_did(tmp_path: Path, number: signal.Signals) -> None:
    with process(tmp_path, "'ready'") as mount:
        assert line(mount) == "ready"
        assert (tmp_path / "s" / "a.md").read_bytes() == b"hello"

        mount.send_signal(number)

        assert line(mount) == ("over" if number == signal.SIGTERM else "")
        assert mount.wait(SECONDS) == (0 if number == signal.SIGTERM else -signal.SIGKILL)


@pytest.fixture
def public() -> Iterator[Path]:
    """Give a directory that everybody reaches: pytest's own it closes again at any time."""
    with TemporaryDirectory(prefix="holdfast-") as folder:
        Path(folder).chmod(0o755)
        directory = Path(folder) / "m"
        directory.mkdir()
        yield directory


def test_who_is_not_root_mounts_through_fusermount3(tmp_path: Path, public: Path) -> None:
    os.chown(public, NOBODY, NOBODY)

    with process(public, "os.lstat(directory / 's').st_uid", NOBODY, tmp_path) as mount:
        assert line(mount) == str(NOBODY)
        mount.terminate()
        assert line(mount) == "over"
        assert mount.wait(SECONDS) == 0


def test_who_may_not_mount_is_told(tmp_path: Path) -> None:
    directory = tmp_path / "m"
    directory.mkdir()

    with process(directory, "'ready'", NOBODY) as mount:
        assert line(mount) == ""
        assert mount.wait(SECONDS) == 1


def test_others_may_read_what_is_shared_with_them(toy: Toy, public: Path) -> None:
    with mounting(toy, public, allow_other=True) as mounted:
        path = mounted.store / "a.md"

        reading = as_nobody("cat", path)
        writing = as_nobody("tee", path)

    assert reading.stdout == "hello\n"
    assert "Permission denied" in writing.stderr


def test_others_see_nothing_of_what_is_not(toy: Toy, public: Path) -> None:
    with mounting(toy, public) as mounted:
        reading = as_nobody("cat", mounted.store / "a.md")

    assert "Permission denied" in reading.stderr


def test_shared_memory_is_written_back(mounted: Mounted, toy: Toy) -> None:
    code = (
        "import mmap, sys\n"
        "with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 0) as memory:\n"
        "    memory[:5] = b'HELLO'\n"
    )

    run(code, mounted.store / "a.md")

    assert toy.nodes["/s/a.md"].data == b"HELLO\n"


def as_nobody(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        env={"LC_ALL": "C"},
        input="",
        text=True,
        user=NOBODY,
        cwd="/",
    )


def test_the_device_is_not_handed_to_programs(mounted: Mounted) -> None:
    descriptors = Path("/proc/self/fd")

    devices = [each for each in descriptors.iterdir() if leads_to(each) == "/dev/fuse"]

    assert devices
    for device in devices:
        assert fcntl.fcntl(int(device.name), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    assert (mounted.store / "a.md").exists()


def leads_to(descriptor: Path) -> str | None:
    """Return what *descriptor* is of, if it is still open."""
    try:
        return str(descriptor.readlink())
    except OSError:
        return None


def test_the_binding_is_imported_when_it_is_needed() -> None:
    code = (
        "import sys, holdfast.doors.mount.fuse.adapter; print('mfusepy' in sys.modules);"
        "holdfast.doors.mount.fuse.libfuse.binding(); print('mfusepy' in sys.modules)"
    )

    assert run(code).split() == ["False", "True"]


def test_libfuse_3_is_chosen_and_the_environment_left_alone() -> None:
    code = (
        "import os; from holdfast.doors.mount.fuse.libfuse import bindings;"
        "print(bindings().fuse_version_major, 'FUSE_LIBRARY_PATH' in os.environ)"
    )

    assert run(code) == "3 False"


def test_the_binding_says_what_it_is() -> None:
    name, version, library, number = binding().replace(",", "").split()

    assert (name, library) == ("mfusepy", "libfuse")
    assert version.startswith("3.")
    assert number.startswith("3.")


def nothing(name: str) -> object:
    raise OSError(name)


def test_a_missing_libfuse_is_said_with_what_to_do() -> None:
    with pytest.raises(Refused, match="libfuse3 is not installed") as refused:
        find_libfuse(Machine(load=nothing))

    assert "apt install libfuse3-3 fuse3" in str(refused.value.next)
    assert "--mode sync" in str(refused.value.next)
