"""Ends what a run of the tests started, when the run cannot do so itself.

    python reaper.py

Reads lines: `watch PID DIR` (DIR is `-` for what is no mount), `leave PID`, `within SECONDS` (of
silence, before what is watched is killed; 0 is no limit). A test that hangs in a mount cannot be
interrupted, not even by its own process: only the end of the mount's process frees it. When the
input ends, however that came, what is still watched is killed and detached.
"""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

GONE, TIMES = 30, 3

watched: dict[int, str] = {}


def kill() -> None:
    """Kill every process that is watched, and detach what it had mounted."""
    for pid, directory in watched.items():
        end(pid)
        if directory != "-":
            detach(directory)


def end(pid: int) -> None:
    """Kill a process, and wait until it is gone: it may be just about to mount."""
    with suppress(ProcessLookupError):
        watch = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(watch, signal.SIGKILL)
            # Gone is what a dead child is, too, whose parent has not asked for it yet.
            select.select([watch], [], [], GONE)
        finally:
            os.close(watch)


def detach(directory: str) -> None:
    """Take away all that is mounted there, one above the other."""
    for _ in range(TIMES):
        if f" {directory} " not in Path("/proc/mounts").read_text():
            return
        for command in (["fusermount3", "-u", "-z"], ["umount", "-l"]):
            subprocess.run([*command, directory], check=False, stderr=subprocess.DEVNULL)


def obey(line: str, limit: float | None) -> float | None:
    """Do what *line* says, and return how many seconds of silence there may be from now on."""
    word, _, rest = line.partition(" ")
    if word == "within":
        return float(rest) or None
    pid, _, directory = rest.partition(" ")
    if word == "watch":
        watched[int(pid)] = directory
    else:
        watched.pop(int(pid), None)
    return limit


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit, waiting = None, b""
    while True:
        if not select.select([0], [], [], limit)[0]:
            kill()
            limit = None
            continue
        said = os.read(0, 65536)
        if not said:
            break
        *lines, waiting = (waiting + said).split(b"\n")
        for line in lines:
            limit = obey(line.decode(), limit)
    kill()


if __name__ == "__main__":
    sys.exit(main())
