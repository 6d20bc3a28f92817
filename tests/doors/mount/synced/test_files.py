"""Files of a synced directory: written, watched, scanned, and refused."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from errno import EFBIG, EILSEQ, EROFS
from hashlib import sha256
from pathlib import Path
from threading import Event

import pytest
from doors.mount.core.trouble import gone, unsure
from doors.mount.synced.conftest import Sides
from doors.mount.synced.directories import OFTEN, Deaf, Side, eventually

from holdfast.doors.mount.sync import files as local_files
from holdfast.doors.mount.sync.files import FileType, LocalDirectory, is_reserved, is_unfinished
from holdfast.doors.mount.sync.state import UNDONE_MAX, Notice, SyncNotices
from holdfast.doors.mount.sync.sync import FileEvent, SystemWatcher
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast


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


class Heard:
    """What a watcher told so far."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.watcher, self.missed = directory, SystemWatcher(directory), 0
        self._stop = Event()
        self._told: list[FileEvent] = []

    def of(self, name: str) -> list[FileEvent]:
        """Return the notices about *name* so far."""
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


@pytest.fixture
def deaf(sides: Sides) -> Side:
    """Give a directory whose every event is lost."""
    return sides().start(pace=OFTEN, watch=Deaf)


def test_new_and_changed_files_are_found(deaf: Side) -> None:
    deaf.make("/a.md", "one")
    eventually(lambda: deaf.has("/a.md", "one"))

    (deaf.root / "a.md").write_text("two")
    (deaf.root / "d").mkdir()
    (deaf.root / "d/b.md").write_text("new")

    eventually(lambda: deaf.heads() == {"/a.md": "two", "/d/b.md": "new"})


def test_a_change_of_equal_size_and_time_is_found(deaf: Side) -> None:
    deaf.make("/a.md", "one")
    eventually(lambda: deaf.has("/a.md", "one"))
    found = (deaf.root / "a.md").stat()

    (deaf.root / "a.md").write_text("two")
    os.utime(deaf.root / "a.md", ns=(found.st_atime_ns, found.st_mtime_ns))

    eventually(lambda: deaf.keeps("/a.md", "two"))


def test_renamed_files_are_found_and_keep_their_ids(deaf: Side) -> None:
    made = [deaf.make(f"/d/{number}", str(number)) for number in range(20)]
    eventually(lambda: len(deaf.files()) == 20)

    (deaf.root / "d").rename(deaf.root / "e")

    eventually(lambda: deaf.head("/e/19") and len(deaf.heads()) == 20)
    after = {memory.id for each in deaf.heads() if (memory := deaf.head(each))}
    assert after == {memory.id for memory in made}


def test_a_file_missing_in_two_looks_was_deleted(deaf: Side) -> None:
    deaf.make("/a.md", "one")
    deaf.make("/b.md", "two")
    eventually(lambda: len(deaf.files()) == 2)

    (deaf.root / "a.md").unlink()

    eventually(lambda: deaf.heads() == {"/b.md": "two"})


def test_a_file_missing_in_one_look_alone_was_not(sides: Sides) -> None:
    pace = OFTEN.__class__(scan=0.1, confirm=600.0)
    side = sides().start(pace=pace, watch=Deaf)
    made = side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    (side.root / "a.md").rename(side.base / "aside")
    (side.root / "b.md").write_text("seen")
    eventually(lambda: side.head("/b.md"))
    (side.base / "aside").rename(side.root / "a.md")
    (side.root / "c.md").write_text("seen")
    eventually(lambda: side.head("/c.md"))

    side.stop()
    assert len(side.versions(made.id)) == 1


def test_many_missing_files_are_written_out_again(deaf: Side) -> None:
    for number in range(30):
        deaf.make(f"/d/{number}", str(number))
    eventually(lambda: len(deaf.files()) == 30)

    for number in range(9):
        (deaf.root / f"d/{number}").unlink()

    eventually(lambda: len(deaf.files()) == 30)
    assert len(deaf.heads()) == 30
    assert len(deaf.versions()) == 30
    (event,) = [each for each in deaf.told("refused") if "missing" in each.data]
    assert event.data == {"missing": 9, "known": 30}


def test_a_directory_that_is_gone_as_a_whole_is_written_out_again(deaf: Side) -> None:
    for number in range(3):
        deaf.make(f"/{number}", str(number))
    eventually(lambda: len(deaf.files()) == 3)

    deaf.directory.chmod(0o755)
    shutil.rmtree(deaf.root)

    eventually(deaf.equal)
    assert len(deaf.versions()) == 3


def test_a_directory_moved_away_as_a_whole_is_written_out_again(side: Side) -> None:
    for number in range(3):
        side.make(f"/{number}", str(number))
    eventually(lambda: len(side.files()) == 3)

    side.directory.chmod(0o755)
    side.root.rename(side.base / "away")

    eventually(lambda: side.root.exists() and side.equal())
    (side.root / "new").write_text("seen")
    eventually(lambda: side.keeps("/new", "seen"))
    assert len(side.versions()) == 4


def test_a_deletion_that_was_seen_is_believed_whatever_its_size(side: Side) -> None:
    for number in range(30):
        side.make(f"/d/{number}", str(number))
    eventually(lambda: len(side.files()) == 30)

    shutil.rmtree(side.root / "d")

    eventually(lambda: side.heads() == {})


def test_everything_is_looked_at_once_more_at_the_end(sides: Sides) -> None:
    side = sides().start(watch=Deaf)
    (side.root / "a.md").write_text("one")
    (side.root / "b.part").write_text("two")

    assert side.stop() == 0

    assert side.heads() == {"/a.md": "one", "/b.part": "two"}


def test_what_was_cut_off_from_its_name_is_found_again(sides: Sides) -> None:
    side = sides()
    side.make("/a.md", "one")
    side.start()
    side.stop()
    own = "0" * 16
    (side.root / f".memory-new-{own}").write_text("half writ")
    (side.root / f".memory-out-{own}-{own}-00000000").write_text("of another process")

    side.start(pace=OFTEN, watch=Deaf)

    eventually(lambda: "of another process" in side.heads().values())
    assert [each.name for each in side.root.glob(".memory-*")] == []
    assert len(side.heads()) == 2


def test_what_is_no_text_or_too_large_stays_and_is_listed(side: Side) -> None:
    (side.root / "image.png").write_bytes(b"\x89PNG\xff")
    (side.root / "zero").write_bytes(b"a\0b")
    (side.root / "large.md").write_text("x" * 102_401)
    (side.root / "fits.md").write_text("x" * 102_400)

    eventually(lambda: side.head("/fits.md"))
    eventually(lambda: len(side.errors().splitlines()) == 3)
    lines = side.errors().splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["EILSEQ", "/image.png"],
        ["EFBIG", "/large.md"],
        ["EILSEQ", "/zero"],
    ]
    assert side.status().refused == {"EILSEQ": 2, "EFBIG": 1}
    assert side.synced.status().errors == tuple(f"/notes: {line}" for line in lines)
    assert (side.root / "large.md").stat().st_size == 102_401
    assert len(side.told("refused")) == 3


def test_a_file_that_is_mended_is_saved_and_listed_no_more(side: Side) -> None:
    (side.root / "a.md").write_bytes(b"\xff")
    eventually(lambda: "EILSEQ /a.md" in side.errors())

    (side.root / "a.md").write_text("text")

    eventually(lambda: side.keeps("/a.md", "text"))
    eventually(lambda: not (side.root / ".memory-errors").exists())


def test_a_file_that_is_removed_is_listed_no_more(side: Side) -> None:
    (side.root / "a.md").write_bytes(b"\xff")
    eventually(side.errors)

    (side.root / "a.md").unlink()

    eventually(lambda: side.errors() == "")


def test_a_change_that_cannot_be_saved_leaves_the_head(side: Side) -> None:
    made = side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    (side.root / "a.md").write_bytes(b"two \xff")

    eventually(lambda: "EILSEQ /a.md" in side.errors())
    assert side.keeps("/a.md", "one")
    assert len(side.versions(made.id)) == 1


def test_what_already_holds_zero_bytes_can_be_edited(side: Side) -> None:
    side.make("/a.md", "one\0")
    eventually(lambda: side.has("/a.md", "one\0"))

    (side.root / "a.md").write_text("two\0")

    eventually(lambda: side.keeps("/a.md", "two\0"))


def test_names_that_no_memory_can_have_are_listed(side: Side) -> None:
    (side.root / "line\nbreak").write_text("1")
    (side.root / "e\u0301").write_text("2")
    (side.root / os.fsdecode(b"bad\xff")).write_text("3")
    deep = side.root.joinpath(*["d"] * 20)
    deep.mkdir(parents=True)
    (deep / "f").write_text("4")
    (side.root / "good").write_text("5")

    eventually(lambda: side.heads() == {"/good": "5"})
    eventually(lambda: len(side.errors().splitlines()) == 4)
    assert [line.split()[0] for line in side.errors().splitlines()] == [
        "EILSEQ",
        "ENAMETOOLONG",
        "EINVAL",
        "EINVAL",
    ]
    assert "/line\\nbreak" in side.errors()
    assert "/bad\\udcff" in side.errors()


def test_version_control_is_left_alone(side: Side) -> None:
    subprocess.run(["git", "init", "-q", side.root], check=True)
    (side.root / "a.md").write_text("one")

    eventually(lambda: side.keeps("/a.md", "one"))
    eventually(lambda: "EPERM /.git " in side.errors())
    assert side.heads() == {"/a.md": "one"}
    assert side.status().refused == {"EPERM": 1}


def test_links_and_special_files_are_left_alone_and_listed(side: Side) -> None:
    (side.base / "outside").mkdir()
    (side.base / "outside/secret").write_text("secret")
    (side.root / "link").symlink_to(side.base / "outside/secret")
    (side.root / "linked").symlink_to(side.base / "outside")
    os.mkfifo(side.root / "pipe")
    (side.root / "a.md").write_text("one")

    eventually(lambda: side.keeps("/a.md", "one"))
    eventually(lambda: len(side.errors().splitlines()) == 3)
    assert {line.split()[1] for line in side.errors().splitlines()} == {"/link", "/linked", "/pipe"}
    side.stop()
    assert side.heads() == {"/a.md": "one"}
    assert (side.root / "link").is_symlink()
    assert (side.root / "pipe").is_fifo()


def test_the_links_of_an_editor_s_locks_are_not_worth_a_word(side: Side) -> None:
    (side.root / ".#a.md").symlink_to("me@here.4711")
    (side.root / "a.md").write_text("one")

    eventually(lambda: side.keeps("/a.md", "one"))
    assert side.errors() == ""


def test_nothing_is_written_or_read_through_a_link_in_a_directory_s_place(side: Side) -> None:
    side.make("/d/a.md", "one")
    eventually(lambda: side.has("/d/a.md", "one"))
    outside = side.base / "outside"
    (side.root / "d").rename(outside)
    (side.root / "d").symlink_to(outside)
    (outside / "b.md").write_text("mine")

    side.change("/d/a.md", content="two")
    side.make("/d/c.md", "three")
    (outside / "a.md").write_text("changed")
    side.make("/after", "")

    eventually(lambda: side.has("/after", ""))
    eventually(lambda: "/d/c.md" in side.errors())
    assert sorted(each.name for each in outside.iterdir()) == ["a.md", "b.md"]
    assert (outside / "a.md").read_text() == "changed"
    side.stop()
    assert side.heads() == {"/after": "", "/d/a.md": "two", "/d/c.md": "three"}


def test_the_file_of_errors_is_ours(side: Side) -> None:
    (side.root / "a.md").write_bytes(b"\xff")
    eventually(side.errors)
    said = side.errors()

    (side.root / ".memory-errors").unlink()
    eventually(lambda: side.errors() == said)
    (side.root / ".memory-errors").write_text("nothing is wrong")
    eventually(lambda: side.errors() == said)

    (side.root / "a.md").unlink()
    eventually(lambda: not (side.root / ".memory-errors").exists())
    side.stop()
    assert side.heads() == {}


def test_a_full_store_refuses_until_there_is_room(hf: Holdfast, side: Side) -> None:
    hf.memory_stores.configure(memories_cap=1)
    (side.root / "a.md").write_text("one")
    eventually(lambda: side.keeps("/a.md", "one"))

    (side.root / "b.md").write_text("two")
    eventually(lambda: "ENOSPC /b.md" in side.errors())
    (side.root / "a.md").unlink()

    eventually(lambda: side.heads() == {"/b.md": "two"})
    eventually(lambda: side.errors() == "")


def test_a_path_below_a_memory_is_refused(sides: Sides) -> None:
    side = sides().start(pace=OFTEN)
    (side.root / "d").mkdir()
    (side.root / "d/.a.swp").write_text("")
    side.make("/d", "a memory")
    eventually(lambda: side.status().hidden == 1)

    (side.root / "d/b.md").write_text("below")

    eventually(lambda: "EEXIST /d/b.md" in side.errors())
    side.delete("/d")
    eventually(lambda: side.heads() == {"/d/b.md": "below"})


def test_saves_are_tried_again_while_the_storage_is_away(side: Side) -> None:
    side.trouble.refusing = gone
    (side.root / "a.md").write_text("one")
    eventually(lambda: side.status().retrying == 1)
    (side.root / "a.md").write_text("two")
    eventually(lambda: len(side.trouble.applies) > 2)

    side.trouble.heal()

    eventually(lambda: side.heads() == {"/a.md": "two"})
    eventually(lambda: side.status().retrying == side.status().unsaved == 0)
    assert side.status().failed == {"EIO": 1}


def test_an_answer_that_is_lost_is_asked_for_again_under_the_same_id(side: Side) -> None:
    side.trouble.losing = unsure
    (side.root / "a.md").write_text("one")
    eventually(lambda: side.keeps("/a.md", "one"))
    (side.root / "a.md").write_text("two")
    eventually(lambda: len(side.trouble.applies) > 2)

    side.trouble.heal()

    eventually(lambda: side.keeps("/a.md", "two"))
    assert len(side.versions()) == 2
    assert len(set(side.trouble.edit_ids)) == 2
    assert side.files() == {"/a.md": "two"}


def test_what_cannot_be_saved_at_the_end_is_counted_and_saved_by_the_next(sides: Sides) -> None:
    side = sides().start()
    side.trouble.refusing = gone
    (side.root / "a.md").write_text("one")
    eventually(lambda: side.status().retrying == 1)

    assert side.stop(0.3) == 1
    side.start()

    eventually(lambda: side.keeps("/a.md", "one"))


def test_a_head_that_cannot_be_read_now_is_written_later(side: Side) -> None:
    side.trouble.unread = gone
    side.make("/a.md", "one")
    eventually(lambda: side.trouble.reads > 1)

    side.trouble.heal()

    eventually(lambda: side.has("/a.md", "one"))


def test_a_feed_that_is_lost_makes_it_degraded_until_it_is_back(side: Side) -> None:
    side.trouble.deaf = gone
    eventually(lambda: side.synced.status().state == "degraded")
    side.make("/a.md", "one")

    side.trouble.heal()

    eventually(lambda: side.has("/a.md", "one"))
    eventually(lambda: side.synced.status().state == "ok")


def test_a_link_in_the_place_of_a_store_s_directory_is_not_followed(sides: Sides) -> None:
    side = sides()
    side.make("/a.md", "one")
    (side.base / "outside").mkdir(parents=True)
    side.directory.mkdir()
    (side.directory / "notes").symlink_to(side.base / "outside")

    with pytest.raises(InvalidInput, match="DIR"):
        side.start()
    assert list((side.base / "outside").iterdir()) == []


def test_each_is_a_line_of_errno_path_and_what_to_do() -> None:
    notices = SyncNotices()
    notices.put("/b.md", Notice.of(EFBIG))
    notices.put("/a\nb\udcff", Notice.of(EILSEQ))

    assert notices.text().decode().splitlines() == [
        "EILSEQ /a\\nb\\udcff is not UTF-8 text, or holds a zero byte: save it as text",
        "EFBIG /b.md is larger than 102,400 bytes: split it into several files",
    ]


def test_what_is_said_again_is_no_news() -> None:
    notices = SyncNotices()

    assert notices.put("/a", Notice.of(EFBIG))
    assert not notices.put("/a", Notice.of(EFBIG))
    assert notices.put("/a", Notice.of(EILSEQ))
    assert len(notices) == 1


def test_what_is_left_out_is_counted() -> None:
    notices = SyncNotices()
    for number in range(5):
        notices.put(f"/{number}", Notice.of(EFBIG))

    assert notices.lines(3)[3:] == ["… and 2 more"]


def test_what_is_over_is_told_of_until_much_else_was() -> None:
    notices = SyncNotices()
    assert notices.keep("/first", EROFS)
    assert not notices.keep("/first", EROFS)
    notices.clear("/first")
    assert len(notices.lines()) == 1

    for number in range(UNDONE_MAX):
        notices.keep(f"/{number}", EROFS)

    assert len(notices) == UNDONE_MAX
    assert "/first" not in notices.text().decode()


def test_nothing_wrong_is_no_text() -> None:
    notices = SyncNotices()
    notices.put("/a", Notice.of(EFBIG))
    notices.clear("/a")

    assert notices.text() == b""
