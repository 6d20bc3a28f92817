"""What is done to files becomes versions."""

import os
import subprocess

import pytest
from doors.mount.synced.conftest import Sides
from doors.mount.synced.directories import Side, Told, eventually

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
