"""The system's events come, and when some may be missed that is told."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from doors.mount.synced.directories import eventually

from holdfast.doors.mount.sync.sync import FileEvent, SystemWatcher


class Heard:
    """What a watcher told so far."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.watcher, self.missed = directory, SystemWatcher(directory), 0
        self._stop = Event()
        self._told: list[FileEvent] = []

    def of(self, name: str) -> list[FileEvent]:
        """Return what was told of *name* by now."""
        told = self.watcher.next(self._stop)
        if told is None:
            self.missed += 1
        self._told += told or []
        return [each for each in self._told if each.path == str(self.directory / name)]


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    (tmp_path / "watched").mkdir()
    heard = Heard(tmp_path / "watched")
    yield heard
    heard.watcher.close()


def test_new_changed_and_removed_files_are_told(heard: Heard) -> None:
    (heard.directory / "a").write_text("one")
    eventually(lambda: heard.of("a"))
    (heard.directory / "a").unlink()

    eventually(lambda: any(not each.appeared for each in heard.of("a")))


def test_what_is_below_new_directories_is_told(heard: Heard) -> None:
    (heard.directory / "d").mkdir()
    eventually(lambda: heard.of("d"))

    (heard.directory / "d/a").write_text("one")

    eventually(lambda: heard.of("d/a"))


def test_a_name_that_is_no_text_does_not_end_it(heard: Heard) -> None:
    (heard.directory / os.fsdecode(b"bad\xff")).write_text("")
    eventually(lambda: heard.of("none") or heard.missed)

    (heard.directory / "a").write_text("one")

    eventually(lambda: heard.of("a") or heard.missed > 1)


def test_a_directory_that_is_another_by_now_is_taken_into_view(heard: Heard) -> None:
    heard.directory.rename(heard.directory.with_name("away"))
    heard.directory.mkdir()
    eventually(lambda: heard.of("none") or heard.missed)

    (heard.directory / "a").write_text("one")

    eventually(lambda: heard.of("a"))


def test_a_directory_that_is_gone_is_waited_for(heard: Heard) -> None:
    heard.directory.rmdir()
    heard.of("none")
    heard.directory.mkdir()

    eventually(lambda: heard.of("none") or heard.missed)
