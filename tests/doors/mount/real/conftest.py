"""Mounts for the tests, each the real process on a real store, and none left behind."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from doors.mount.real.kept import Kept, opened
from doors.mount.real.mounting import Mount, Reaper, Start, Target, mounting
from doors.mount.real.place import Place

# A test that takes longer hangs in a mount, which only the mount's end can change.
SILENCE = 280

# Longer than any test: what is deferred is committed when the test says so.
LONG = "--grace=600"

_numbers = count(1)


@pytest.fixture(scope="session")
def reaper() -> Iterator[Reaper]:
    reaper = Reaper()
    yield reaper
    reaper.close()


@pytest.fixture(autouse=True)
def watched(reaper: Reaper) -> Iterator[None]:
    """Kill every mount if the test hangs."""
    reaper.say(f"within {SILENCE}")
    yield
    reaper.say("within 0")


@pytest.fixture(scope="session")
def start(reaper: Reaper, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Start a mount: the one place where it is said how."""

    @contextmanager
    def start(
        target: Target,
        *options: str,
        base: Path | None = None,
        spool: Path | None = None,
        forks: bool = True,
    ) -> Generator[Mount]:
        base = base or tmp_path_factory.mktemp("mount")
        with mounting(reaper, target, base, *options, spool=spool, forks=forks) as mount:
            yield mount

    return start


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Give a SQLite file that the tests of a module share."""
    with opened(tmp_path_factory.mktemp("kept") / "h.db") as kept:
        yield kept


@pytest.fixture(scope="module")
def mount(start: Start, shared: Kept) -> Iterator[Mount]:
    """Give a mount of one store that the tests of a module share: its grace never ends."""
    with start(Target(shared.db, (shared.store(),)), LONG, forks=False) as mount:
        yield mount


@pytest.fixture
def place(mount: Mount, shared: Kept) -> Place:
    """Give a directory of the test's own, in the mount that its module shares."""
    return Place(mount, shared.hf, f"t{next(_numbers)}")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """Give a SQLite file of the test's own."""
    with opened(tmp_path / "h.db") as kept:
        yield kept
