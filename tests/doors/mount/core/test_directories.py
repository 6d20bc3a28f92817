"""Directories: where memories are, or made here."""

import os
from collections.abc import Callable
from errno import EEXIST, EIO, ENOENT, ENOTDIR, ENOTEMPTY

import pytest
from doors.mount.core.driven import Driven, refused

NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def test_a_directory_made_here_lives_in_this_mount_only(mount: Driven) -> None:
    with mount.made():
        mount.core.mkdir("/notes/d")
    other = mount.again()

    assert mount.ls("/notes") == ["d"]
    assert other.ls("/notes") == []


def test_an_empty_directory_ends_with_the_mount(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    mount.stop()

    assert mount.again().ls("/notes") == []


def test_what_is_there_is_not_made(mount: Driven) -> None:
    mount.given("/a.md")
    mount.given("/d/a.md")

    for path in ("/notes/a.md", "/notes/d", "/notes"):
        with refused(EEXIST):
            mount.core.mkdir(path)


def test_a_directory_needs_one_above(mount: Driven) -> None:
    mount.given("/a.md")

    with refused(ENOENT):
        mount.core.mkdir("/notes/d/e")
    with refused(ENOTDIR):
        mount.core.mkdir("/notes/a.md/d")


def test_an_empty_directory_is_removed(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    with mount.made():
        mount.core.rmdir("/notes/d")

    assert mount.ls("/notes") == []


def test_a_directory_that_is_not_empty_is_not_removed(mount: Driven) -> None:
    mount.given("/d/a.md")
    mount.core.mkdir("/notes/e")
    mount.core.mkdir("/notes/e/f")
    mount.core.mkdir("/notes/g")
    mount.put("/notes/g/.a.swp", b"x")

    for path in ("/notes/d", "/notes/e", "/notes/g"):
        with refused(ENOTEMPTY):
            mount.core.rmdir(path)


def test_removing_what_is_no_directory(mount: Driven) -> None:
    mount.given("/a.md")

    with refused(ENOTDIR):
        mount.core.rmdir("/notes/a.md")
    with refused(ENOENT):
        mount.core.rmdir("/notes/d")


def test_a_directory_whose_last_file_is_removed_here_stays(mount: Driven) -> None:
    mount.given("/d/a.md")
    mount.core.unlink("/notes/d/a.md")

    assert mount.find("/notes") == ["/notes/d/"]
    mount.core.rmdir("/notes/d")
    assert mount.ls("/notes") == []


def test_a_directory_whose_last_file_is_moved_away_here_stays(mount: Driven) -> None:
    mount.given("/d/a.md")
    mount.core.rename("/notes/d/a.md", "/notes/a.md")

    assert mount.find("/notes") == ["/notes/a.md", "/notes/d/"]


def test_a_directory_that_empties_from_elsewhere_goes(mount: Driven) -> None:
    memory = mount.given("/d/e/a.md")
    mount.deleted(memory)

    assert mount.ls("/notes") == []


def test_a_directory_that_empties_by_a_rename_elsewhere_goes(mount: Driven) -> None:
    memory = mount.given("/d/e/a.md")
    mount.changed(memory, path="/f/a.md")

    assert mount.find("/notes") == ["/notes/f/", "/notes/f/a.md"]


BEFORE: dict[str, Callable[[Driven], object]] = {
    "one of several was removed here": lambda m: m.core.unlink("/notes/d/b.md"),
    "one was renamed here": lambda m: m.core.rename("/notes/d/b.md", "/notes/d/a.md"),
    "the last was renamed here": lambda m: (
        m.core.unlink("/notes/d/b.md"),
        m.core.rename("/notes/d/a.md", "/notes/d/c.md"),
    ),
    "one was moved away here": lambda m: m.core.rename("/notes/d/b.md", "/notes/b.md"),
    "one was made and removed here": lambda m: (
        m.put("/notes/d/c.tmp", b"x"),
        m.core.unlink("/notes/d/c.tmp"),
        m.core.unlink("/notes/d/b.md"),
    ),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_a_directory_that_empties_from_elsewhere_goes_whatever_was_done_in_it_here(
    mount: Driven, before: Callable[[Driven], object]
) -> None:
    memory = mount.given("/d/a.md")
    mount.given("/d/b.md")
    before(mount)
    mount.hf.memory_stores.memories.delete_under(memory.memory_store_id, "/d")
    mount.settle()

    assert not mount.exists("/notes/d")


def test_a_directory_in_which_a_new_file_was_refused_goes_when_it_empties_from_elsewhere(
    mount: Driven,
) -> None:
    memory = mount.given("/d/a.md")
    with refused():
        mount.put("/notes/d/b.md", b"\xff")
    mount.deleted(memory)

    assert mount.ls("/notes") == []


def test_a_directory_made_here_stays_when_it_empties_from_elsewhere(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    memory = mount.given("/d/a.md")
    mount.deleted(memory)

    assert mount.find("/notes") == ["/notes/d/"]


def test_a_directory_that_holds_a_local_one_stays(mount: Driven) -> None:
    memory = mount.given("/d/a.md")
    mount.core.mkdir("/notes/d/e")
    mount.deleted(memory)

    assert mount.find("/notes") == ["/notes/d/", "/notes/d/e/"]


def test_a_directory_in_which_a_file_is_unsaved_stays(mount: Driven) -> None:
    memory = mount.given("/d/a.md")
    file = mount.open("/notes/d/b.md", NEW)
    file.write(b"x")
    mount.deleted(memory)

    assert mount.find("/notes") == ["/notes/d/", "/notes/d/b.md"]
    file.close()
    assert list(mount.kept()) == ["/d/b.md"]


def test_a_memory_made_elsewhere_replaces_an_empty_directory(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    mount.given("/d", "x")

    assert mount.find("/notes") == ["/notes/d"]
    assert mount.cat("/notes/d") == b"x"


def test_a_memory_made_elsewhere_replaces_a_directory_of_empty_ones(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    mount.core.mkdir("/notes/d/e")
    mount.given("/d", "x")

    assert mount.find("/notes") == ["/notes/d"]


def test_a_memory_at_a_directory_with_unsaved_files_stays_hidden(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    file = mount.open("/notes/d/a.md", NEW)
    file.write(b"mine")
    mount.given("/d", "theirs")

    assert mount.find("/notes") == ["/notes/d/", "/notes/d/a.md"]
    assert mount.told()["hidden"] == 1
    assert file.read() == b"mine"


def test_the_save_below_a_hidden_memory_is_refused_and_spooled(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    file = mount.open("/notes/d/a.md", NEW)
    file.write(b"mine")
    mount.given("/d", "theirs")

    with mount.made(), refused(EEXIST):
        file.close()
    assert [each.content for each in mount.spooled()] == [b"mine"]
    assert mount.spooled()[0].facts["errno"] == "EEXIST"


def test_a_hidden_memory_is_shown_once_nothing_is_in_its_way(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    file = mount.open("/notes/d/a.md", NEW)
    file.write(b"mine")
    mount.given("/d", "theirs")
    with refused(EEXIST):
        file.close()

    assert mount.find("/notes") == ["/notes/d"]
    assert mount.cat("/notes/d") == b"theirs"
    assert mount.told()["hidden"] == 0


def test_a_memory_made_elsewhere_above_a_file_made_here_is_a_conflict_at_close(
    mount: Driven,
) -> None:
    mount.core.mkdir("/notes/d")
    file = mount.open("/notes/d/a.md", NEW)
    file.write(b"mine")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.create(mount.id(), path="/d", content="theirs")
        with refused(EEXIST):
            file.close()

    assert [each.content for each in mount.spooled()] == [b"mine"]
    assert mount.kept() == {"/d": "theirs"}


def test_memories_made_elsewhere_below_a_file_made_here_are_a_conflict_at_close(
    mount: Driven,
) -> None:
    file = mount.open("/notes/d", NEW)
    file.write(b"mine")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.create(mount.id(), path="/d/a.md", content="theirs")
        with refused(EEXIST):
            file.close()
    mount.settle()

    assert [each.content for each in mount.spooled()] == [b"mine"]
    assert mount.find("/notes") == ["/notes/d/", "/notes/d/a.md"]


def test_a_name_too_long_for_a_directory_is_hidden_and_counted(mount: Driven) -> None:
    mount.given("/" + "x" * 256)
    mount.given("/d/" + "x" * 300 + "/a.md")
    mount.given("/a.md")

    assert [name for name in mount.ls("/notes") if len(name) > 255] == []
    assert "a.md" in mount.ls("/notes")
    assert mount.told()["hidden"] == 2


def test_a_hidden_memory_is_one_event(mount: Driven) -> None:
    mount.events.clear()
    memory = mount.given("/" + "x" * 256)
    mount.changed(memory, content="new\n")

    assert len(mount.events) == 1


def test_a_hidden_memory_that_is_renamed_elsewhere_is_shown(mount: Driven) -> None:
    memory = mount.given("/" + "x" * 256)
    mount.changed(memory, path="/a.md")

    assert mount.ls("/notes") == ["a.md"]
    assert mount.told()["hidden"] == 0


def test_a_directory_is_listed_while_storage_is_away(mount: Driven) -> None:
    mount.given("/d/a.md")
    mount.sources["notes"].away()
    mount.core.mkdir("/notes/e")

    assert mount.find("/notes") == ["/notes/d/", "/notes/d/a.md", "/notes/e/"]
    with refused(EIO):
        mount.cat("/notes/d/a.md")
