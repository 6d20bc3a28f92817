"""What no event tells of is found by looking at everything."""

import os
import shutil

import pytest
from doors.mount.synced.conftest import Sides
from doors.mount.synced.directories import OFTEN, Deaf, Side, eventually


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
    (side.root / f".memory-out-{own}-{own}-00000000").write_text("somebody's")

    side.start(pace=OFTEN, watch=Deaf)

    eventually(lambda: "somebody's" in side.heads().values())
    assert [each.name for each in side.root.glob(".memory-*")] == []
    assert len(side.heads()) == 2
