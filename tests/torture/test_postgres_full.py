"""A disk of PostgreSQL that fills up: nothing acknowledged is lost, and writes go on afterwards."""

import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from pwd import getpwnam

import pytest

import holdfast
from holdfast.ground.errors import Unavailable
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.testing.postgres import TEMPLATE, PostgresServer, running_postgres, server_folder

SIZE = 90_000
"""Bytes of a memory."""


@contextmanager
def small_disk(place: Path, megabytes: int) -> Generator[Callable[[], None]]:
    """Mount a small disk of the server's user at *place*; yield what makes it large."""
    place.mkdir()
    user = getpwnam("nobody")
    options = f"size={megabytes}m,mode=0700,uid={user.pw_uid},gid={user.pw_gid}"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "holdfast-test", place],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield lambda: _run("mount", "-o", "remount,size=512m", str(place))
    finally:
        _run("umount", "--lazy", str(place))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def fill(
    hf: Holdfast, store: str, full: Callable[[], bool]
) -> tuple[dict[str, str], Unavailable | None]:
    """Create memories until *full* or an error; return the acknowledged ones, and the error."""
    there: dict[str, str] = {}
    for number in count():
        path, content = f"/{number}", os.urandom(SIZE // 2).hex()
        try:
            hf.memory_stores.memories.create(store, path=path, content=content)
        except Unavailable as error:
            return there, error
        there[path] = content
        if full():
            return there, None
    raise AssertionError


def check(hf: Holdfast, store: str, there: dict[str, str], unsure: str | None = None) -> None:
    """Check that each of *there* can be read, nothing else but *unsure*, and that all fits."""
    found = {
        item.path: item.content
        for item in hf.memory_stores.memories.list(store, view="full").all()
        if item.type == "memory"
    }
    found.pop(unsure or "", None)
    assert found == there
    assert hf.verify().findings == ()


def test_a_full_disk_of_tables_refuses_writes_until_there_is_room() -> None:
    with running_postgres() as server, small_disk(server.folder / "small", 40) as enlarge:
        server.make_template()
        server.execute(
            f"create tablespace small location '{server.folder}/small'",
            f"create database small template {TEMPLATE} tablespace small",
        )
        with holdfast.open(server.url("small")) as hf:
            store = hf.memory_stores.create(name="large").id
            there, error = fill(hf, store, lambda: False)

            assert error is not None
            assert (error.reason, error.written) == ("full", False)
            check(hf, store, there)

            enlarge()
            path = f"/{len(there)}"
            hf.memory_stores.memories.create(store, path=path, content="fits")
            check(hf, store, there | {path: "fits"})
        server.stop()


def test_a_full_disk_of_the_log_stops_the_server_which_keeps_what_it_acknowledged() -> None:
    with server_folder() as folder, small_disk(folder / "log_disk", 24) as enlarge:
        server = PostgresServer(folder)
        server.initialise("--waldir", str(folder / "log_disk" / "wal"), "--wal-segsize=1")
        server.start()
        try:
            with holdfast.open(server.url()) as hf:
                store = hf.memory_stores.create(name="large").id
                crashes: list[Event] = []
                hf.events.subscribe(crashes.append, {"engine.reconnected"})
                there, error = fill(hf, store, lambda: crashes != [])
                unsure = f"/{len(there)}" if error is not None and error.written is None else None
                assert error is None or error.reason in ("full", "lost")
                enlarge()
                if not server.running:
                    server.start()

                hf.memory_stores.memories.create(store, path="/after", content="fits")
                check(hf, store, there | {"/after": "fits"}, unsure)
        finally:
            if server.running:
                server.stop("immediate")
