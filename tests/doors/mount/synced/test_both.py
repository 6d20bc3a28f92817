"""What was changed on both sides: nothing is lost."""

import re

from doors.mount.synced.conftest import Sides
from doors.mount.synced.directories import Side, Told, eventually

CONFLICT = re.compile(r"/a\.md\.conflict-\d{8}T\d{6}Z")


def test_a_file_and_a_head_that_both_changed_are_two_memories(sides: Sides) -> None:
    side = sides()
    made = side.make("/a.md", "base")
    side.start()
    side.stop()
    (side.root / "a.md").write_text("from here")
    side.change("/a.md", content="from there")

    side.start()

    eventually(lambda: side.equal() and len(side.heads()) == 2)
    (aside,) = [path for path in side.heads() if path != "/a.md"]
    assert CONFLICT.fullmatch(aside)
    assert side.heads() == {"/a.md": "from there", aside: "from here"}
    assert side.versions(made.id) == [Told("created", "/a.md"), Told("modified", "/a.md")]
    assert side.status().conflicts == 1
    (event,) = side.told("conflict")
    assert event.ids["memory_id"] == made.id


def test_two_sides_that_change_one_memory_keep_both_contents(sides: Sides) -> None:
    one, other = sides().start(), sides().start()
    one.make("/a.md", "base")
    eventually(lambda: one.has("/a.md", "base") and other.has("/a.md", "base"))

    (one.root / "a.md").write_text("from one")
    (other.root / "a.md").write_text("from the other")

    eventually(lambda: len(one.heads()) == 2 and one.equal() and other.equal())
    assert set(one.heads().values()) == {"from one", "from the other"}


def test_equal_changes_on_both_sides_are_no_conflict(sides: Sides) -> None:
    side = sides()
    side.make("/a.md", "base")
    side.start()
    side.stop()
    (side.root / "a.md").write_text("the same")
    side.change("/a.md", content="the same")

    side.start()

    assert side.stop() == 0
    assert side.heads() == {"/a.md": "the same"}
    assert len(side.versions()) == 2


def test_a_file_changed_here_and_deleted_there_is_made_again(sides: Sides) -> None:
    side = sides()
    side.make("/a.md", "base")
    side.start()
    side.stop()
    (side.root / "a.md").write_text("from here")
    side.delete("/a.md")

    side.start()

    eventually(lambda: side.heads() == {"/a.md": "from here"})


def test_a_file_deleted_here_and_changed_there_is_written_out_again(sides: Sides) -> None:
    side = sides()
    side.make("/a.md", "base")
    side.start()
    side.stop()
    (side.root / "a.md").unlink()
    side.change("/a.md", content="from there")

    side.start()

    assert side.files() == {"/a.md": "from there"}


def test_a_file_changed_here_follows_its_memory_that_moved_there(sides: Sides) -> None:
    side = sides()
    made = side.make("/a.md", "base")
    side.start()
    side.stop()
    (side.root / "a.md").write_text("from here")
    side.change("/a.md", to="/b.md")

    side.start()

    eventually(lambda: side.heads() == {"/b.md": "from here"})
    eventually(lambda: side.files() == {"/b.md": "from here"})
    head = side.head("/b.md")
    assert head is not None
    assert head.id == made.id


def test_a_file_moved_here_and_changed_there_is_moved_and_changed(sides: Sides) -> None:
    side = sides()
    made = side.make("/a.md", "base")
    side.start()
    side.stop()
    (side.root / "a.md").rename(side.root / "b.md")
    side.change("/a.md", content="from there")

    side.start()

    eventually(lambda: side.heads() == {"/b.md": "from there"} and side.equal())
    head = side.head("/b.md")
    assert head is not None
    assert head.id == made.id


def test_a_new_file_at_the_place_of_a_new_memory_is_put_beside_it(sides: Sides) -> None:
    side = sides().start()
    side.stop()
    (side.root / "a.md").write_text("from here")
    side.make("/a.md", "from there")

    side.start()

    eventually(lambda: len(side.heads()) == 2 and side.equal())
    assert side.heads()["/a.md"] == "from there"
    assert set(side.heads().values()) == {"from here", "from there"}


def test_a_new_file_never_replaces_a_memory_made_in_the_same_moment(side: Side) -> None:
    def make_there() -> None:
        side.trouble.before = lambda: None
        side.make("/a.md", "from there")

    side.trouble.before = make_there
    (side.root / "a.md").write_text("from here")

    eventually(lambda: len(side.heads()) == 2 and side.equal())
    assert side.heads()["/a.md"] == "from there"
    assert set(side.heads().values()) == {"from here", "from there"}


def test_a_conflict_of_a_file_that_cannot_be_saved_stays_beside(sides: Sides) -> None:
    side = sides()
    side.make("/a.md", "base")
    side.start()
    side.stop()
    (side.root / "a.md").write_bytes(b"\xff\xfe")
    side.change("/a.md", content="from there")

    side.start()

    eventually(lambda: side.has("/a.md", "from there"))
    eventually(lambda: re.search(r"EILSEQ /a\.md\.conflict-", side.errors()))
    assert side.heads() == {"/a.md": "from there"}


def test_a_conflict_of_a_long_name_has_a_name_that_fits(sides: Sides) -> None:
    side, name = sides(), "ä" * 127
    side.make(f"/{name}", "base")
    side.start()
    side.stop()
    (side.root / name).write_text("from here")
    side.change(f"/{name}", content="from there")

    side.start()

    eventually(lambda: len(side.heads()) == 2 and side.equal())


def test_two_sides_that_append_in_turn_see_each_other(sides: Sides) -> None:
    one, other = sides().start(), sides().start()
    expected = ""
    (one.root / "log.md").write_text("")
    eventually(lambda: other.has("/log.md", ""))

    for number in range(6):
        side, seen = (one, other) if number % 2 else (other, one)
        with (side.root / "log.md").open("a") as file:
            file.write(f"{number}\n")
        expected += f"{number}\n"
        eventually(lambda seen=seen, expected=expected: seen.has("/log.md", expected))

    assert one.heads() == {"/log.md": expected}
    assert one.status().conflicts == other.status().conflicts == 0


def test_a_deletion_here_of_what_changed_there_in_the_same_moment_is_not_done(
    side: Side,
) -> None:
    made = side.make("/a.md", "base")
    eventually(lambda: side.has("/a.md", "base"))

    (side.root / "a.md").unlink()
    side.change("/a.md", content="from there")

    eventually(lambda: side.has("/a.md", "from there"))
    assert side.versions(made.id)[-1] == Told("modified", "/a.md")
