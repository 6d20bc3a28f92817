"""Files are put, taken and moved without losing what is newer than was known."""

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.doors.mount.sync import files as local_files
from holdfast.doors.mount.sync.files import FileType, LocalDirectory, is_reserved, is_unfinished


def hashed(content: str) -> str:
    return sha256(content.encode()).hexdigest()


@pytest.fixture(params=["as here", "without exchange"])
def files(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LocalDirectory:
    """Give a directory, once on a system that has all we ask for and once on one that has not."""
    if request.param == "without exchange":
        monkeypatch.setattr(local_files, "_renameat2", None)
        monkeypatch.setattr(local_files, "_statx", None)
    files = LocalDirectory(tmp_path / "notes")
    assert files.make_root()
    return files


def put(files: LocalDirectory, path: str, content: str, over: str | None = None) -> bool:
    past = None if over is None else hashed(over)
    return files.put(path, content.encode(), at_ns=10**18, over=past) is not None


def test_a_new_file_is_put_with_the_directories_above_it(files: LocalDirectory) -> None:
    assert put(files, "/a/b/c", "one")

    assert (files.root / "a/b/c").read_text() == "one"
    assert (files.root / "a/b/c").stat().st_mtime_ns == 10**18


def test_nothing_is_put_where_something_is(files: LocalDirectory) -> None:
    (files.root / "a").write_text("mine")

    assert not put(files, "/a", "one")
    assert [(each.name, each.read_text()) for each in files.root.iterdir()] == [("a", "mine")]


def test_a_file_is_replaced_if_it_is_what_was_known(files: LocalDirectory) -> None:
    put(files, "/a", "one")

    assert put(files, "/a", "two", over="one")
    assert [(each.name, each.read_text()) for each in files.root.iterdir()] == [("a", "two")]


@pytest.mark.parametrize("there", ["file", "directory", "link", "nothing"])
def test_what_is_not_what_was_known_is_not_replaced(files: LocalDirectory, there: str) -> None:
    place = files.root / "a"
    make: dict[str, Callable[[], object]] = {
        "file": lambda: place.write_text("mine"),
        "directory": lambda: (place / "below").mkdir(parents=True),
        "link": lambda: place.symlink_to("elsewhere"),
        "nothing": lambda: None,
    }
    make[there]()
    before = [(each, each.lstat().st_ino) for each in files.root.rglob("*")]

    assert not put(files, "/a", "two", over="one")
    assert [(each, each.lstat().st_ino) for each in files.root.rglob("*")] == before


def test_a_file_is_taken_if_it_is_what_was_known(files: LocalDirectory) -> None:
    put(files, "/a", "one")

    assert files.take("/a", hashed("one"))
    assert list(files.root.iterdir()) == []


def test_what_is_not_what_was_known_is_not_taken(files: LocalDirectory) -> None:
    put(files, "/a", "mine")

    assert not files.take("/a", hashed("one"))
    assert [(each.name, each.read_text()) for each in files.root.iterdir()] == [("a", "mine")]


def test_a_file_is_moved_where_nothing_is(files: LocalDirectory) -> None:
    put(files, "/a", "one")
    put(files, "/b", "two")

    assert files.move("/a", "/d/c")
    assert not files.move("/d/c", "/b")
    assert (files.root / "b").read_text() == "two"


def test_a_link_on_the_way_is_not_followed(files: LocalDirectory, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("secret")
    (files.root / "d").symlink_to(outside)

    assert files.look("/d/a").type is FileType.FOREIGN
    with pytest.raises(OSError, match="symbolic links"):
        put(files, "/d/b", "one")
    with pytest.raises(OSError, match="symbolic links"):
        files.take("/d/a", hashed("secret"))
    assert [each.name for each in outside.iterdir()] == ["a"]
    assert [each.path for each in files.walk()] == ["/d"]


def test_a_file_on_the_way_makes_what_is_below_absent(files: LocalDirectory) -> None:
    put(files, "/a", "one")

    assert files.look("/a/b").type is FileType.ABSENT


@pytest.mark.parametrize("kind", ["pipe", "socket", "link"])
def test_special_files_are_seen_as_such_and_not_opened(files: LocalDirectory, kind: str) -> None:
    place = files.root / "a"
    make: dict[str, Callable[[], object]] = {
        "pipe": lambda: os.mkfifo(place),
        "socket": lambda: os.mknod(place, 0o140644),
        "link": lambda: place.symlink_to("/dev/zero"),
    }
    make[kind]()

    assert files.look("/a").type is FileType.FOREIGN
    assert [each.type for each in files.walk()] == [FileType.FOREIGN]


def test_the_directory_itself_may_not_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "notes").symlink_to(tmp_path / "outside")

    with pytest.raises(NotADirectoryError):
        LocalDirectory(tmp_path / "notes").make_root()


def test_a_mark_tells_of_an_old_file_and_not_of_a_fresh_one(files: LocalDirectory) -> None:
    put(files, "/a", "one")
    mark = files.look("/a").mark

    assert mark is not None
    assert not mark.proves(mark)
    assert mark.resembles(mark)


@pytest.mark.parametrize(
    ("path", "reserved"),
    [
        ("/d/.memory-new-0123456789abcdef", True),
        ("/.memory-out-0123456789abcdef", True),
        ("/.memory-out-0123456789abcdef-0123456789abcdef-01234567", True),
        ("/.memory-errors", True),
        ("/d/.memory-errors", False),
        ("/.memory-new-notes", False),
        ("/.memory-new-0123456789abcdef/a", False),
    ],
)
def test_a_reserved_name_is_never_a_memory(path: str, reserved: bool) -> None:
    assert is_reserved(path) is reserved


def test_only_a_file_that_was_being_written_is_unfinished() -> None:
    assert is_unfinished("/d/.memory-new-0123456789abcdef")
    assert not is_unfinished("/d/.memory-out-0123456789abcdef")
