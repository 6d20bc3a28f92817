"""Files that cannot be memories stay as they are, and are told of."""

import os
import subprocess

import pytest
from doors.mount.core.trouble import gone, unsure
from doors.mount.synced.conftest import Sides
from doors.mount.synced.directories import OFTEN, Side, eventually

from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast


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
