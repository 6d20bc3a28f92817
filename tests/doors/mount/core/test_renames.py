"""Renames, removals and directories of a mount."""

import os
from collections.abc import Callable
from errno import (
    EEXIST,
    EILSEQ,
    EINVAL,
    EIO,
    EISDIR,
    ENAMETOOLONG,
    ENOENT,
    ENOTDIR,
    ENOTEMPTY,
    EPERM,
    EXDEV,
)

import pytest
from doors.mount.core.driven import Driven, Told, refused
from doors.mount.core.trouble import gone

NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4


# unlink


def test_removing_a_file_deletes_its_memory(mount: Driven) -> None:
    mount.given("/a.md")

    with mount.made("deleted"):
        mount.core.unlink("/notes/a.md")
    assert mount.ls("/notes") == []


def test_when_storage_fails_the_file_stays(mount: Driven) -> None:
    mount.given("/a.md")
    mount.sources["notes"].away()

    with refused(EIO):
        mount.core.unlink("/notes/a.md")
    assert mount.ls("/notes") == ["a.md"]


def test_removing_a_file_that_was_never_saved_makes_nothing(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"x")

    with mount.made():
        mount.core.unlink("/notes/a.md")
        file.close()


def test_removing_what_was_removed_elsewhere(mount: Driven) -> None:
    memory = mount.given("/a.md")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.delete(memory.id, memory_store_id=mount.id())
        with mount.made():
            mount.core.unlink("/notes/a.md")

    assert mount.ls("/notes") == []


def test_removing_what_is_not_there(mount: Driven) -> None:
    with refused(ENOENT):
        mount.core.unlink("/notes/a.md")


def test_a_reader_reads_on_after_its_file_is_removed(mount: Driven) -> None:
    mount.given("/a.md", "one\n")
    reader = mount.open("/notes/a.md")
    mount.core.unlink("/notes/a.md")

    assert reader.read() == b"one\n"
    assert reader.size() == 4


# rename: one file


def test_renaming_to_a_free_name_keeps_the_id(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")

    with mount.made("modified"):
        mount.core.rename("/notes/a.md", "/notes/b.md")

    assert mount.at("/b.md").id == memory.id
    assert mount.kept() == {"/b.md": "one\n"}
    assert mount.ls("/notes") == ["b.md"]


def test_renaming_into_another_directory(mount: Driven) -> None:
    mount.given("/a.md")
    mount.core.mkdir("/notes/d")
    mount.core.rename("/notes/a.md", "/notes/d/b.md")

    assert list(mount.kept()) == ["/d/b.md"]
    assert mount.find("/notes") == ["/notes/d/", "/notes/d/b.md"]


def test_renaming_over_a_memory_is_one_transaction(mount: Driven) -> None:
    source, target = mount.given("/a.md", "new\n"), mount.given("/b.md", "old\n")
    before = len(mount.sources["notes"].applies)

    with mount.made("modified", "deleted"):
        mount.core.rename("/notes/a.md", "/notes/b.md")

    assert len(mount.sources["notes"].applies) == before + 1
    assert mount.at("/b.md").id == target.id != source.id
    assert mount.kept() == {"/b.md": "new\n"}


def test_renaming_over_equal_content_deletes_the_source_alone(mount: Driven) -> None:
    mount.given("/a.md", "same\n")
    target = mount.given("/b.md", "same\n")

    with mount.made("deleted"):
        mount.core.rename("/notes/a.md", "/notes/b.md")
    assert mount.at("/b.md").memory_version_id == target.memory_version_id


@pytest.mark.parametrize("data", [b"cut \xc3", b"x\0"])
def test_renaming_over_with_what_is_no_text_changes_nothing(mount: Driven, data: bytes) -> None:
    mount.given("/b.md", "old\n")
    mount.put("/notes/.a.swp", data)

    with mount.made(), refused(EILSEQ):
        mount.core.rename("/notes/.a.swp", "/notes/b.md")
    assert mount.ls("/notes") == [".a.swp", "b.md"]
    assert mount.cat("/notes/.a.swp") == data


def test_renaming_over_when_storage_fails_changes_nothing(mount: Driven) -> None:
    mount.given("/b.md", "old\n")
    mount.put("/notes/a.tmp", b"new\n")
    mount.sources["notes"].refusing = gone

    with refused(EIO):
        mount.core.rename("/notes/a.tmp", "/notes/b.md")
    assert mount.ls("/notes") == ["a.tmp", "b.md"]
    mount.sources["notes"].heal()
    assert mount.cat("/notes/b.md") == b"old\n"


def test_a_rename_when_storage_fails_changes_nothing(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    mount.sources["notes"].refusing = gone

    with refused(EIO):
        mount.core.rename("/notes/a.md", "/notes/b.md")
    assert mount.ls("/notes") == ["a.md"]


def test_a_temporary_renamed_to_a_free_name_is_created(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"new\n")

    with mount.made("created"):
        mount.core.rename("/notes/a.tmp", "/notes/a.md")
    assert mount.kept() == {"/a.md": "new\n"}
    assert mount.spooled() == []


def test_an_open_file_goes_on_under_its_new_name(mount: Driven) -> None:
    mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"ONE", 0)
    mount.core.rename("/notes/a.md", "/notes/b.md")
    file.close()

    assert mount.kept() == {"/b.md": "ONE\n"}
    assert mount.cat("/notes/b.md") == b"ONE\n"


def test_an_open_new_file_goes_on_under_its_new_name(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"one\n")
    mount.core.rename("/notes/a.md", "/notes/b.md")
    file.close()

    assert mount.kept() == {"/b.md": "one\n"}


def test_what_was_renamed_over_goes_with_its_handles(mount: Driven) -> None:
    mount.given("/a.md", "new\n")
    mount.given("/b.md", "old\n")
    file = mount.open("/notes/b.md", os.O_RDWR)
    mount.core.rename("/notes/a.md", "/notes/b.md")

    with mount.made():
        assert file.read() == b"old\n"
        file.write(b"OLD", 0)
        file.close()
    assert mount.kept() == {"/b.md": "new\n"}


def test_renaming_to_itself_changes_nothing(mount: Driven) -> None:
    mount.given("/a.md")

    with mount.made():
        mount.core.rename("/notes/a.md", "/notes/a.md")
    assert mount.ls("/notes") == ["a.md"]


def test_renaming_what_is_not_there_or_to_nowhere(mount: Driven) -> None:
    mount.given("/a.md")

    with refused(ENOENT):
        mount.core.rename("/notes/b.md", "/notes/c.md")
    with refused(ENOENT):
        mount.core.rename("/notes/a.md", "/notes/d/a.md")
    with refused(ENOTDIR):
        mount.core.rename("/notes/a.md", "/notes/a.md/b")


def test_a_file_does_not_become_a_directory(mount: Driven) -> None:
    mount.given("/a.md")
    mount.core.mkdir("/notes/d")

    with refused(EISDIR):
        mount.core.rename("/notes/a.md", "/notes/d")


def test_across_stores_programs_copy_and_delete(mount: Driven) -> None:
    mount.given("/a.md")
    mount.given("/d/a.md")

    with refused(EXDEV):
        mount.core.rename("/notes/a.md", "/other/a.md")
    with refused(EXDEV):
        mount.core.rename("/notes/d", "/other/d")


# rename: flags


def test_without_replacing(mount: Driven) -> None:
    mount.given("/a.md", "a")
    mount.given("/b.md", "b")

    with mount.made(), refused(EEXIST):
        mount.core.rename("/notes/a.md", "/notes/b.md", NOREPLACE)
    with mount.made("modified"):
        mount.core.rename("/notes/a.md", "/notes/c.md", NOREPLACE)


@pytest.mark.parametrize("name", ["a.md", "a.tmp"])
def test_without_replacing_what_was_made_elsewhere(mount: Driven, name: str) -> None:
    mount.put(f"/notes/{name}", b"mine")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.create(mount.id(), path="/b.md", content="theirs")
        with mount.made(), refused(EEXIST):
            mount.core.rename(f"/notes/{name}", "/notes/b.md", NOREPLACE)

    assert mount.cat(f"/notes/{name}") == b"mine"


@pytest.mark.parametrize("flags", [EXCHANGE, WHITEOUT, EXCHANGE | NOREPLACE, 8])
def test_other_flags_are_refused(mount: Driven, flags: int) -> None:
    mount.given("/a.md")
    mount.given("/b.md")

    with mount.made(), refused(EINVAL):
        mount.core.rename("/notes/a.md", "/notes/b.md", flags)


# rename: a directory


def test_renaming_a_directory_is_one_move_of_all_below(mount: Driven) -> None:
    memories = {path: mount.given(f"/d/{path}", path) for path in ("a.md", "b.md", "e/c.md")}
    before = len(mount.sources["notes"].applies)

    with mount.made("modified", "modified", "modified"):
        mount.core.rename("/notes/d", "/notes/f")

    assert len(mount.sources["notes"].applies) == before + 1
    assert mount.kept() == {f"/f/{path}": path for path in memories}
    assert mount.at("/f/e/c.md").id == memories["e/c.md"].id
    assert "/notes/f/e/c.md" in mount.find()
    assert not mount.exists("/notes/d")


def test_unsaved_files_go_along_with_their_directory(mount: Driven) -> None:
    mount.given("/d/a.md", "one\n")
    edited = mount.open("/notes/d/a.md", os.O_RDWR)
    edited.write(b"ONE", 0)
    made = mount.open("/notes/d/b.md", NEW)
    made.write(b"two\n")
    mount.core.rename("/notes/d", "/notes/e")
    edited.close()
    made.close()

    assert mount.kept() == {"/e/a.md": "ONE\n", "/e/b.md": "two\n"}


def test_temporary_files_go_along_with_their_directory(mount: Driven) -> None:
    mount.given("/d/a.md")
    mount.put("/notes/d/b.tmp", b"b")
    mount.put("/notes/d/.c.swp", b"\xff")
    mount.core.rename("/notes/d", "/notes/e")
    mount.later.advance(10)

    assert sorted(mount.kept()) == ["/e/a.md", "/e/b.tmp"]
    assert mount.ls("/notes/e") == [".c.swp", "a.md", "b.tmp"]


def test_empty_directories_go_along_with_theirs(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    mount.core.mkdir("/notes/d/e")

    with mount.made():
        mount.core.rename("/notes/d", "/notes/f")
    assert mount.find("/notes") == ["/notes/f/", "/notes/f/e/"]


def test_a_directory_cannot_be_moved_into_itself(mount: Driven) -> None:
    mount.given("/d/a.md")
    mount.core.mkdir("/notes/d/e")

    with refused(EINVAL):
        mount.core.rename("/notes/d", "/notes/d/f")
    with refused(EINVAL):
        mount.core.rename("/notes/d", "/notes/d/e/f")


def test_a_directory_does_not_replace_one_that_is_not_empty(mount: Driven) -> None:
    mount.given("/d/a.md")
    mount.given("/e/b.md")

    with mount.made(), refused(ENOTEMPTY):
        mount.core.rename("/notes/d", "/notes/e")


def test_a_directory_replaces_an_empty_one(mount: Driven) -> None:
    mount.given("/d/a.md")
    mount.core.mkdir("/notes/e")
    mount.core.rename("/notes/d", "/notes/e")

    assert mount.find("/notes") == ["/notes/e/", "/notes/e/a.md"]
    assert list(mount.kept()) == ["/e/a.md"]


def test_a_directory_does_not_become_a_file(mount: Driven) -> None:
    mount.given("/d/a.md")
    mount.given("/b.md")

    with mount.made(), refused(ENOTDIR):
        mount.core.rename("/notes/d", "/notes/b.md")


@pytest.mark.parametrize("new", ["/notes/" + "x" * 255, "/notes" + "/y" * 18])
def test_when_a_path_below_would_not_fit_nothing_moves(mount: Driven, new: str) -> None:
    mount.given("/d/a.md")
    mount.given("/d/" + "/".join(["x" * 255, "x" * 255, "x" * 255, "aa"]))
    mount.given("/d/e/f/g.md")
    for each in range(3, new.count("/") + 1):
        mount.core.mkdir("/".join(new.split("/")[:each]))
    before = mount.find()

    with mount.made(), refused(ENAMETOOLONG):
        mount.core.rename("/notes/d", new)
    assert mount.find() == before


def test_when_one_of_all_below_is_taken_elsewhere_nothing_moves(mount: Driven) -> None:
    mount.given("/d/a.md")
    mount.given("/d/b.md")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.create(mount.id(), path="/e/b.md", content="x")
        with mount.made(), refused(EEXIST):
            mount.core.rename("/notes/d", "/notes/e")

    assert mount.ls("/notes/d") == ["a.md", "b.md"]


def test_renaming_a_directory_when_storage_fails_moves_nothing(mount: Driven) -> None:
    mount.given("/d/a.md")
    mount.sources["notes"].away()

    with refused(EIO):
        mount.core.rename("/notes/d", "/notes/e")
    assert mount.find("/notes") == ["/notes/d/", "/notes/d/a.md"]


# Version control


@pytest.mark.parametrize("name", [".git", ".hg", ".svn", ".jj"])
def test_version_control_is_refused(mount: Driven, name: str) -> None:
    mount.given("/d/a.md")
    for act in (
        lambda: mount.core.mkdir(f"/notes/{name}"),
        lambda: mount.core.mkdir(f"/notes/d/{name}"),
        lambda: mount.core.create(f"/notes/{name}", os.O_WRONLY | os.O_CREAT),
        lambda: mount.core.rename("/notes/d/a.md", f"/notes/{name}"),
        lambda: mount.core.rename("/notes/d", f"/notes/{name}"),
    ):
        with mount.made(), refused(EPERM):
            act()


def test_what_was_made_elsewhere_under_such_a_name_is_a_file_like_others(mount: Driven) -> None:
    mount.given("/.git/config", "one\n")
    mount.append("/notes/.git/config", b"two\n")

    assert mount.kept() == {"/.git/config": "one\ntwo\n"}


def test_every_version_says_what_was_done(mount: Driven) -> None:
    mount.put("/notes/a.md", b"one\n")
    mount.core.rename("/notes/a.md", "/notes/b.md")
    mount.append("/notes/b.md", b"two\n")
    mount.core.unlink("/notes/b.md")

    assert mount.versions() == [
        Told("created", "/a.md", "one\n"),
        Told("modified", "/b.md", "one\n"),
        Told("modified", "/b.md", "one\ntwo\n"),
        Told("deleted", "/b.md", None),
    ]


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
