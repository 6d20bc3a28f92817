"""Changes of files, of memories, and of both at once, in a synced directory."""

import os
import re
import stat
import subprocess
from datetime import UTC, datetime

import pytest
from doors.mount.synced.conftest import Sides
from doors.mount.synced.directories import OFTEN, Side, Told, eventually, insist

from holdfast.library.holdfast import Holdfast

LONG = 600.0


def test_a_new_file_becomes_a_memory(side: Side) -> None:
    (side.root / "a.md").write_text("one")

    eventually(lambda: side.keeps("/a.md", "one"))
    eventually(lambda: side.status().saves == 1)


def test_a_changed_file_becomes_one_version_of_its_memory(side: Side) -> None:
    made = side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    (side.root / "a.md").write_text("two")

    eventually(lambda: side.keeps("/a.md", "two"))
    assert side.versions(made.id) == [Told("created", "/a.md"), Told("modified", "/a.md")]


def test_files_in_directories_made_at_once_become_memories(side: Side) -> None:
    subprocess.run(
        "mkdir -p a/b/c && echo 1 > a/b/c/f && mkdir a/d && echo 2 > a/d/g",
        shell=True,
        cwd=side.root,
        check=True,
    )

    eventually(lambda: side.heads() == {"/a/b/c/f": "1\n", "/a/d/g": "2\n"})


def test_a_deleted_file_is_a_deleted_memory(side: Side) -> None:
    made = side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    (side.root / "a.md").unlink()

    eventually(lambda: side.head("/a.md") is None)
    assert side.versions(made.id)[-1].operation == "deleted"


def test_a_deleted_directory_takes_its_memories_with_it(side: Side) -> None:
    for number in range(20):
        side.make(f"/d/{number}", str(number))
    side.make("/stays", "here")
    eventually(lambda: len(side.files()) == 21)

    subprocess.run(["rm", "-r", side.root / "d"], check=True)

    eventually(lambda: side.heads() == {"/stays": "here"})


def test_a_directory_moved_out_takes_its_memories_with_it(side: Side) -> None:
    for number in range(20):
        side.make(f"/d/{number}", str(number))
    eventually(lambda: len(side.files()) == 20)

    (side.root / "d").rename(side.base / "outside")

    eventually(lambda: side.heads() == {})


def test_a_renamed_file_keeps_its_id(side: Side) -> None:
    made = side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    (side.root / "a.md").rename(side.root / "b.md")

    eventually(lambda: side.head("/b.md"))
    assert side.versions(made.id) == [Told("created", "/a.md"), Told("modified", "/b.md")]
    assert side.head("/a.md") is None


def test_a_renamed_directory_is_one_move_of_all_below(side: Side) -> None:
    made = [side.make(f"/d/{number}", str(number)) for number in range(20)]
    eventually(lambda: len(side.files()) == 20)

    (side.root / "d").rename(side.root / "e")

    eventually(lambda: side.head("/e/19"))
    assert {memory.id for memory in made} == {
        memory.id for number in range(20) if (memory := side.head(f"/e/{number}"))
    }
    assert len(side.heads()) == 20


def test_a_file_renamed_and_changed_keeps_its_id(side: Side) -> None:
    made = side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    subprocess.run("mv a.md b.md && echo two > b.md", shell=True, cwd=side.root, check=True)

    eventually(lambda: side.keeps("/b.md", "two\n"))
    head = side.head("/b.md")
    assert head is not None
    assert head.id == made.id


def test_an_inode_that_is_used_again_is_no_renaming(side: Side) -> None:
    made = side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    (side.root / "a.md").unlink()
    (side.root / "b.md").write_text("two")

    eventually(lambda: side.heads() == {"/b.md": "two"})
    assert side.versions(made.id)[-1].operation == "deleted"


def test_a_deletion_and_a_copy_soon_after_are_a_renaming(side: Side) -> None:
    made = side.make("/a.md", "a thing worth keeping")
    eventually(lambda: side.has("/a.md", "a thing worth keeping"))

    (side.root / "a.md").unlink()
    (side.root / "b.md").write_text("a thing worth keeping")

    eventually(lambda: side.head("/b.md"))
    head = side.head("/b.md")
    assert head is not None
    assert head.id == made.id


def test_a_rename_over_another_file_is_a_change_of_that_and_a_deletion(side: Side) -> None:
    target, source = side.make("/a.md", "one"), side.make("/b.md", "two")
    eventually(lambda: len(side.files()) == 2)

    (side.root / "b.md").rename(side.root / "a.md")

    eventually(lambda: side.heads() == {"/a.md": "two"})
    assert side.versions(target.id)[-1] == Told("modified", "/a.md")
    assert side.versions(source.id)[-1] == Told("deleted", "/b.md")


@pytest.mark.parametrize(
    "command",
    [
        "sed -i s/one/two/ a.md",
        "perl -pi -e s/one/two/ a.md",
        "printf two > .a.tmp && mv .a.tmp a.md",
        "cp a.md a.md~ && printf two > a.md && rm a.md~",
        "mv a.md a.md~ && printf two > a.md && rm a.md~",
        "mv a.md a.md.bak && printf two > a.md && rm a.md.bak",
        "touch .a.md.swp && printf two > 4913 && rm 4913 && printf two > a.md && rm .a.md.swp",
    ],
)
def test_a_way_of_saving_is_one_version_of_one_memory(side: Side, command: str) -> None:
    made = side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    subprocess.run(command, shell=True, cwd=side.root, check=True)

    eventually(lambda: side.keeps("/a.md", "two"))
    side.stop()
    assert side.versions() == [Told("created", "/a.md"), Told("modified", "/a.md")]
    assert side.head("/a.md").id == made.id  # type: ignore[union-attr]


def test_touching_a_file_makes_no_version(side: Side) -> None:
    side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    os.utime(side.root / "a.md")
    (side.root / "a.md").chmod(0o600)
    (side.root / "b.md").write_text("after")

    eventually(lambda: side.keeps("/b.md", "after"))
    assert len(side.versions()) == 2


def test_what_is_written_out_is_not_read_back(side: Side) -> None:
    for number in range(5):
        side.make(f"/{number}", "x")
        side.change(f"/{number}", content="y")
    eventually(lambda: len(side.files()) == 5)

    (side.root / "last").write_text("after")

    eventually(lambda: side.keeps("/last", "after"))
    assert len(side.versions()) == 11


def test_a_scratch_file_never_becomes_a_memory(side: Side) -> None:
    (side.root / ".a.md.swp").write_bytes(b"\0\xff")
    (side.root / "a.md").write_text("one")

    eventually(lambda: side.keeps("/a.md", "one"))
    side.stop()
    assert side.heads() == {"/a.md": "one"}
    assert (side.root / ".a.md.swp").exists()


def test_a_temporary_file_becomes_a_memory_when_it_stays(side: Side) -> None:
    (side.root / "download.part").write_text("still here")

    eventually(lambda: side.keeps("/download.part", "still here"))
    eventually(lambda: side.status().promoted == 1)


def test_a_temporary_file_waits_while_its_grace_lasts(sides: Sides) -> None:
    side = sides(grace=LONG).start()
    (side.root / "download.part").write_text("still here")
    (side.root / "a.md").write_text("one")
    eventually(lambda: side.keeps("/a.md", "one"))
    eventually(lambda: side.status().unsaved == 1)

    assert side.heads() == {"/a.md": "one"}
    assert side.stop() == 0
    assert side.heads() == {"/a.md": "one", "/download.part": "still here"}


def test_a_memory_put_aside_as_a_backup_is_moved_after_the_grace(side: Side) -> None:
    made = side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    (side.root / "a.md").rename(side.root / "a.md.bak")

    eventually(lambda: side.head("/a.md.bak"))
    assert side.versions(made.id)[-1] == Told("modified", "/a.md.bak")
    assert side.head("/a.md") is None


def test_a_memory_put_aside_stays_the_same_when_it_is_written_again(sides: Sides) -> None:
    side = sides(grace=1.0).start()
    made = side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    (side.root / "a.md").rename(side.root / "a.md.bak")
    eventually(lambda: side.status().unsaved == 1)
    (side.root / "a.md").write_text("two")

    eventually(lambda: side.heads() == {"/a.md": "two", "/a.md.bak": "one"})
    assert side.versions(made.id) == [Told("created", "/a.md"), Told("modified", "/a.md")]


def test_saves_carry_the_session_as_their_actor(sides: Sides, store: str) -> None:
    hf = sides().hf
    session = hf.sessions.create(
        agent="helper",
        environment_id="env_local",
        resources=[{"type": "memory_store", "memory_store_id": store}],
    )
    side = sides(session=session.id, stores=[]).start()
    side.stores = [store]

    (side.root / "a.md").write_text("one")

    eventually(lambda: side.keeps("/a.md", "one"))
    (version,) = hf.memory_stores.memory_versions.list(store, limit=5).data
    assert (version.created_by.kind, version.created_by.id) == ("session", session.id)


def test_a_file_in_place_of_a_directory_and_the_other_way_round(side: Side) -> None:
    side.make("/a", "file")
    side.make("/d/x", "below")
    eventually(lambda: len(side.files()) == 2)

    subprocess.run(
        "rm a && mkdir a && echo 1 > a/y && rm -r d && echo 2 > d",
        shell=True,
        cwd=side.root,
        check=True,
    )

    eventually(lambda: side.heads() == {"/a/y": "1\n", "/d": "2\n"})
    eventually(lambda: side.errors() == "")


def test_every_head_is_there_when_it_has_started(sides: Sides) -> None:
    side = sides()
    for number in range(40):
        side.make(f"/d{number % 3}/{number}.md", f"number {number}\n")

    side.start()

    assert side.equal()
    assert len(side.files()) == 40


def test_files_have_the_modes_of_ordinary_ones_and_the_times_of_their_memories(
    sides: Sides,
) -> None:
    side = sides()
    made = side.make("/d/a.md", "one")

    side.start()

    found = (side.root / "d/a.md").stat()
    assert stat.S_IMODE(found.st_mode) == 0o644
    assert stat.S_IMODE((side.root / "d").stat().st_mode) == 0o755
    assert datetime.fromtimestamp(found.st_mtime, UTC) == made.updated_at
    assert stat.S_IMODE(side.directory.stat().st_mode) == 0o555


def test_a_memory_made_elsewhere_appears(side: Side) -> None:
    side.make("/d/e/a.md", "one")

    eventually(lambda: side.has("/d/e/a.md", "one"))


def test_a_memory_changed_elsewhere_changes(side: Side) -> None:
    side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    side.change("/a.md", content="two")

    eventually(lambda: side.has("/a.md", "two"))


def test_a_memory_deleted_elsewhere_goes_and_so_do_its_directories(side: Side) -> None:
    side.make("/d/e/a.md", "one")
    side.make("/b.md", "two")
    eventually(lambda: len(side.files()) == 2)

    side.delete("/d/e/a.md")

    eventually(lambda: not (side.root / "d").exists())
    assert side.files() == {"/b.md": "two"}


def test_a_directory_made_here_stays_when_it_empties_from_elsewhere(side: Side) -> None:
    (side.root / "d").mkdir()
    (side.root / "after").write_text("")
    eventually(lambda: side.head("/after"))
    side.make("/d/a.md", "one")
    eventually(lambda: side.has("/d/a.md", "one"))

    side.delete("/d/a.md")

    eventually(lambda: not (side.root / "d/a.md").exists())
    assert (side.root / "d").is_dir()


def test_a_memory_renamed_elsewhere_is_the_same_file(side: Side) -> None:
    side.make("/d/a.md", "one")
    eventually(lambda: side.has("/d/a.md", "one"))
    inode = (side.root / "d/a.md").stat().st_ino

    side.change("/d/a.md", to="/e/b.md")

    eventually(lambda: side.has("/e/b.md", "one"))
    eventually(lambda: not (side.root / "d").exists())
    assert (side.root / "e/b.md").stat().st_ino == inode


def test_two_memories_that_change_places_elsewhere_do_so_here(side: Side) -> None:
    side.make("/a", "one")
    side.make("/b", "two")
    eventually(lambda: len(side.files()) == 2)
    versions = len(side.versions())

    side.change("/a", to="/t")
    side.change("/b", to="/a")
    side.change("/t", to="/b")

    eventually(lambda: side.files() == {"/a": "two", "/b": "one"})
    assert len(side.versions()) == versions + 3


def test_a_file_that_a_directory_takes_the_place_of_elsewhere(side: Side) -> None:
    side.make("/a", "file")
    eventually(lambda: side.has("/a", "file"))

    side.delete("/a")
    side.make("/a/b", "below")

    eventually(lambda: side.files() == {"/a/b": "below"})

    side.delete("/a/b")
    side.make("/a", "file again")

    eventually(lambda: side.files() == {"/a": "file again"})
    eventually(lambda: side.errors() == "")


def test_a_memory_made_elsewhere_is_plain_whatever_its_name(side: Side) -> None:
    for path in ("/.a.swp", "/b.tmp", "/.git/config"):
        side.make(path, "one")
    eventually(lambda: len(side.files()) == 3)

    for path in ("/.a.swp", "/b.tmp", "/.git/config"):
        (side.root / path[1:]).write_text("two")

    eventually(lambda: set(side.heads().values()) == {"two"})


def test_what_no_directory_can_hold_is_hidden_and_counted(sides: Sides) -> None:
    side = sides()
    side.make(f"/{'x' * 256}", "too long a name")
    side.make("/.memory-errors", "a name of ours")
    side.make("/a", "one")

    side.start()

    assert side.files() == {"/a": "one"}
    assert side.status().hidden == 2
    assert side.status().memories == 3
    assert [event.data for event in side.told("refused")] == [{"hidden": True}] * 2
    assert side.stop() == 0
    assert len(side.heads()) == 3


def test_a_memory_whose_place_is_taken_by_a_directory_is_hidden_until_it_is_free(
    side: Side,
) -> None:
    (side.root / "d").mkdir()
    (side.root / "d/.a.swp").write_text("scratch")

    side.make("/d", "hidden")

    eventually(lambda: side.status().hidden == 1)
    eventually(lambda: "EEXIST /d " in side.errors())
    (side.root / "d/.a.swp").unlink()
    (side.root / "d").rmdir()
    eventually(lambda: side.has("/d", "hidden"))
    eventually(lambda: side.status().hidden == 0)


def test_several_stores_have_a_directory_each(hf: Holdfast, sides: Sides) -> None:
    names = ["Team Rules", "Notes on Ada"]
    stores = [hf.memory_stores.create(name=name).id for name in names]
    side = sides(stores=stores).start()

    for slug in ("team-rules", "notes-on-ada"):
        (side.directory / slug / "a.md").write_text(slug)

    for store, slug in zip(stores, ("team-rules", "notes-on-ada"), strict=True):
        eventually(lambda store=store: hf.memory_stores.memories.at(store, "/a.md"))
        memory = hf.memory_stores.memories.list(store, view="full").data[0]
        assert memory.content == slug  # type: ignore[union-attr]


def test_what_is_open_for_reading_stays_whole(side: Side) -> None:
    side.make("/a.md", "one" * 1000)
    eventually(lambda: side.has("/a.md", "one" * 1000))

    with (side.root / "a.md").open() as file:
        first = file.read(10)
        side.change("/a.md", content="two" * 1000)
        eventually(lambda: side.has("/a.md", "two" * 1000))
        assert first + file.read() == "one" * 1000
    # The old content stands beside the new for a moment.
    eventually(lambda: [each.name for each in side.root.iterdir()] == ["a.md"])


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


def started(sides: Sides) -> Side:
    side = sides(read_only=True)
    side.make("/d/a.md", "one")
    return side.start(pace=OFTEN)


def test_files_and_directories_look_read_only(sides: Sides) -> None:
    side = started(sides)

    assert stat.S_IMODE((side.root / "d/a.md").stat().st_mode) == 0o444
    assert stat.S_IMODE((side.root / "d").stat().st_mode) == 0o555
    assert stat.S_IMODE(side.root.stat().st_mode) == 0o555
    assert side.status().access == "read_only"


def test_a_changed_file_is_as_before_and_the_change_is_in_the_spool(sides: Sides) -> None:
    side = started(sides)

    insist(side.root / "d/a.md").write_text("mine")

    eventually(lambda: side.has("/d/a.md", "one"))
    eventually(lambda: "EROFS /d/a.md" in side.errors())
    (entry,) = side.spooled()
    assert (entry.path, entry.errno, entry.kind) == ("/d/a.md", "EROFS", "save")
    (path,) = [path for path, _ in side.assembled.context.spool.list(side.stores[0])]
    assert path.read_text() == "mine"
    assert side.status().refused == {"EROFS": 1}
    assert len(side.versions()) == 1


def test_a_new_file_goes_to_the_spool(sides: Sides) -> None:
    side = started(sides)

    insist(side.root / "new.bin").write_bytes(b"\xff\0")

    eventually(lambda: not (side.root / "new.bin").exists())
    eventually(lambda: "EROFS /new.bin" in side.errors())
    (path,) = [path for path, _ in side.assembled.context.spool.list(side.stores[0])]
    assert path.read_bytes() == b"\xff\0"


def test_a_deleted_file_comes_back(sides: Sides) -> None:
    side = started(sides)

    insist(side.root / "d/a.md").unlink()

    eventually(lambda: side.has("/d/a.md", "one"))
    eventually(lambda: "EROFS /d/a.md" in side.errors())
    assert side.spooled() == []


def test_a_renamed_file_comes_back(sides: Sides) -> None:
    side = started(sides)

    insist(side.root / "d").rename(side.root / "e")

    eventually(lambda: side.files() == {"/d/a.md": "one"})
    assert len(side.versions()) == 1


def test_changes_from_elsewhere_still_come(sides: Sides) -> None:
    side = started(sides)

    side.change("/d/a.md", content="two")
    side.make("/b.md", "new")

    eventually(lambda: side.equal() and len(side.files()) == 2)
    assert stat.S_IMODE((side.root / "b.md").stat().st_mode) == 0o444
    assert side.errors() == ""


def test_a_store_archived_meanwhile_is_read_only(hf: Holdfast, side: Side, store: str) -> None:
    side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    hf.memory_stores.archive(store)

    eventually(lambda: stat.S_IMODE((side.root / "a.md").stat().st_mode) == 0o444)
    assert side.status().archived_at is not None
    insist(side.root / "a.md").write_text("too late")
    eventually(lambda: side.has("/a.md", "one"))
    assert len(side.spooled()) == 1


def test_a_store_read_only_before_and_writable_now_looks_so(sides: Sides) -> None:
    side = started(sides)
    side.stop()

    again = sides(read_only=False)
    again.base = side.base
    again.directory, again.spool = side.directory, side.spool
    again.start()

    assert stat.S_IMODE((again.root / "d/a.md").stat().st_mode) == 0o644
    assert stat.S_IMODE(again.root.stat().st_mode) == 0o755


def test_a_session_archived_meanwhile_leaves_changes_where_they_are(
    hf: Holdfast, sides: Sides, store: str
) -> None:
    session = hf.sessions.create(
        agent="helper",
        environment_id="env_local",
        resources=[{"type": "memory_store", "memory_store_id": store}],
    )
    side = sides(session=session.id, stores=[])
    side.stores = [store]
    side.make("/a.md", "one")
    side.start()

    hf.sessions.archive(session.id)

    eventually(lambda: stat.S_IMODE((side.root / "a.md").stat().st_mode) == 0o444)
    insist(side.root / "a.md").write_text("too late")
    eventually(lambda: "EACCES /a.md" in side.errors())
    assert side.has("/a.md", "too late")


def test_a_store_deleted_meanwhile_leaves_nothing(hf: Holdfast, side: Side, store: str) -> None:
    side.make("/d/a.md", "one")
    eventually(lambda: side.has("/d/a.md", "one"))
    (side.root / "d/a.md").write_text("two")
    eventually(lambda: side.keeps("/d/a.md", "two"))

    hf.memory_stores.delete(store)

    eventually(lambda: list(side.root.iterdir()) == [])
    eventually(lambda: not list((side.base / "state").rglob("*.jsonl")))
    assert side.stop() == 0
