"""When a version is made, and what is in it."""

import os
from errno import EFBIG, EILSEQ, ESTALE

import pytest
from doors.mount.core.driven import Driven, refused

LIMIT = 102_400
NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def test_a_program_makes_one_version_however_often_it_writes(mount: Driven) -> None:
    with mount.made("created"):
        mount.put("/notes/a.md", b"one\n", b"two\n", b"three\n")

    assert mount.kept() == {"/a.md": "one\ntwo\nthree\n"}


def test_a_file_that_is_written_again_keeps_its_id(mount: Driven) -> None:
    memory = mount.given("/a.md")

    with mount.made("modified"):
        mount.put("/notes/a.md", b"new\n")

    assert mount.at("/a.md").id == memory.id
    assert mount.at("/a.md").content == "new\n"


def test_a_write_makes_no_version(mount: Driven) -> None:
    mount.given("/a.md")
    file = mount.open("/notes/a.md", os.O_RDWR)

    with mount.made():
        file.write(b"n")
        file.write(b"e")


def test_once_close_returns_the_memory_is_there(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"x")
    file.flush()

    assert mount.kept() == {"/a.md": "x"}


def test_a_close_after_nothing_was_written_makes_nothing(mount: Driven) -> None:
    mount.given("/a.md")
    file = mount.open("/notes/a.md", os.O_RDWR)

    with mount.made():
        file.close()


def test_each_close_after_a_write_makes_its_own_version(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"one\n")
    file.flush()
    file.write(b"two\n")
    file.flush()
    file.close()

    told = [(each.operation, each.content) for each in mount.versions()]
    assert told == [("created", "one\n"), ("modified", "one\ntwo\n")]


def test_fsync_makes_a_version_and_the_close_after_it_none(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"one\n")

    with mount.made("created"):
        file.fsync()
    with mount.made():
        file.close()


def test_what_is_written_after_fsync_is_a_version_of_its_own(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"one\n")
    file.fsync()
    file.write(b"two\n")

    with mount.made("modified"):
        file.close()


def test_a_file_only_created_waits_for_its_last_writer(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)

    with mount.made():
        file.flush()
    with mount.made("created"):
        file.release()

    assert mount.kept() == {"/a.md": ""}


def test_a_shell_that_closes_a_duplicate_first_makes_one_version(mount: Driven) -> None:
    with mount.made("created"):
        file = mount.open("/notes/a.md", NEW)
        file.flush()
        file.write(b"hello\n")
        file.close()

    assert mount.kept() == {"/a.md": "hello\n"}


def test_a_file_only_created_is_saved_by_fsync(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)

    with mount.made("created"):
        file.fsync()
    with mount.made():
        file.close()


def test_a_file_only_truncated_waits_for_its_last_writer(mount: Driven) -> None:
    mount.given("/a.md")
    file = mount.open("/notes/a.md", NEW)

    with mount.made():
        file.flush()
    with mount.made("modified"):
        file.release()

    assert mount.kept() == {"/a.md": ""}


def test_of_two_writers_the_last_saves_what_was_only_created(mount: Driven) -> None:
    first = mount.open("/notes/a.md", NEW)
    second = mount.open("/notes/a.md", os.O_WRONLY)

    with mount.made():
        first.close()
    with mount.made("created"):
        second.close()


def test_a_reader_that_goes_on_does_not_hold_up_the_save(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    reader = mount.open("/notes/a.md")
    file.close()

    assert mount.kept() == {"/a.md": ""}
    reader.close()


def test_the_same_bytes_again_make_no_version(mount: Driven) -> None:
    memory = mount.given("/a.md", "same\n")

    with mount.made():
        mount.put("/notes/a.md", b"same\n")
        mount.edit("/notes/a.md", 0, b"same")

    assert mount.at("/a.md").memory_version_id == memory.memory_version_id


def test_touching_makes_no_version(mount: Driven) -> None:
    mount.given("/a.md")

    with mount.made():
        mount.core.change_attributes("/notes/a.md")
        mount.open("/notes/a.md", os.O_WRONLY | os.O_CREAT).close()


def test_what_is_written_and_not_saved_is_read_in_the_mount_only(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    file = mount.open("/notes/a.md", NEW)
    file.write(b"new\n")

    assert mount.cat("/notes/a.md") == b"new\n"
    assert mount.size("/notes/a.md") == 4
    assert mount.kept() == {"/a.md": "old\n"}


def test_a_reader_that_was_there_before_sees_what_is_written(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    reader = mount.open("/notes/a.md")
    mount.put("/notes/a.md", b"newer\n")

    assert reader.read() == b"newer\n"


def test_handles_write_into_one_buffer(mount: Driven) -> None:
    first = mount.open("/notes/a.md", NEW)
    second = mount.open("/notes/a.md", os.O_WRONLY)
    first.write(b"one\n")
    second.write(b"two\n", 4)

    with mount.made("created"):
        first.close()
        second.close()

    assert mount.kept() == {"/a.md": "one\ntwo\n"}


def test_each_further_program_of_a_redirection_makes_its_own_version(mount: Driven) -> None:
    shared = mount.open("/notes/a.md", NEW)
    with mount.made("created"):
        shared.write(b"one\n")
        shared.flush()
    with mount.made("modified"):
        shared.write(b"two\n")
        shared.flush()
    with mount.made():
        shared.close()


def test_a_save_that_fails_a_check_leaves_the_head(mount: Driven) -> None:
    mount.given("/a.md", "old\n")

    with mount.made(), refused(EILSEQ):
        mount.put("/notes/a.md", b"cut \xc3")

    assert mount.cat("/notes/a.md") == b"old\n"


def test_a_new_file_that_fails_a_check_disappears(mount: Driven) -> None:
    with mount.made(), refused(EILSEQ):
        mount.put("/notes/a.md", b"cut \xc3")

    assert mount.ls("/notes") == []
    assert not mount.exists("/notes/a.md")


# What else changed the memory meanwhile


def test_an_append_goes_after_whatever_is_there_by_then(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_WRONLY | os.O_APPEND)
    file.write(b"mine\n")
    mount.changed(memory, content="one\ntwo\n")

    with mount.made("modified"):
        file.close()

    assert mount.kept() == {"/a.md": "one\ntwo\nmine\n"}
    assert mount.cat("/notes/a.md") == b"one\ntwo\nmine\n"


def test_writing_at_the_end_is_appending(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_WRONLY)
    file.write(b"mine\n", 4)
    mount.changed(memory, content="else\n")
    file.close()

    assert mount.kept() == {"/a.md": "else\nmine\n"}


def test_an_append_that_the_mount_does_not_know_of_is_kept_too(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.update(
            memory.id, memory_store_id=mount.id(), content="one\ntwo\n"
        )
        mount.append("/notes/a.md", b"mine\n")

    assert mount.kept() == {"/a.md": "one\ntwo\nmine\n"}


def test_an_append_that_no_longer_fits_is_spooled(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_WRONLY | os.O_APPEND)
    file.write(b"mine\n")
    mount.changed(memory, content="x" * LIMIT)

    with mount.made(), refused(EFBIG):
        file.close()

    assert [each.content for each in mount.spooled()] == [b"mine\n"]
    assert mount.spooled()[0].facts["kind"] == "append"
    assert mount.cat("/notes/a.md") == b"x" * LIMIT


@pytest.mark.parametrize("known", [True, False])
def test_a_whole_replacement_wins_and_the_overwritten_head_stays_in_the_history(
    mount: Driven, known: bool
) -> None:
    memory = mount.given("/a.md", "one\n")
    source = mount.sources["notes"]
    file = mount.open("/notes/a.md", NEW)
    file.write(b"mine\n")
    if known:
        mount.changed(memory, content="two\n")
    with source.lull():
        mount.hf.memory_stores.memories.update(
            memory.id, memory_store_id=mount.id(), content="three\n"
        )
        file.close()

    assert mount.kept() == {"/a.md": "mine\n"}
    assert "three\n" in [each.content for each in mount.versions()]


def test_truncating_to_nothing_first_is_a_whole_replacement(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_WRONLY)
    file.truncate(0)
    file.write(b"mine\n")
    mount.changed(memory, content="two\n")
    file.close()

    assert mount.kept() == {"/a.md": "mine\n"}


def test_renaming_over_a_memory_is_a_whole_replacement(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    mount.put("/notes/a.md.tmp", b"mine\n")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.update(
            memory.id, memory_store_id=mount.id(), content="two\n"
        )
        mount.core.rename("/notes/a.md.tmp", "/notes/a.md")

    assert mount.kept() == {"/a.md": "mine\n"}
    assert mount.at("/a.md").id == memory.id


@pytest.mark.parametrize("known", [True, False])
def test_an_edit_of_what_was_changed_meanwhile_is_refused(mount: Driven, known: bool) -> None:
    memory = mount.given("/a.md", "one two\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"ONE", 0)
    if known:
        mount.changed(memory, content="else\n")
    else:
        mount.hf.memory_stores.memories.update(
            memory.id, memory_store_id=mount.id(), content="else\n"
        )

    with mount.made(), refused(ESTALE):
        file.close()
    mount.settle()

    assert [each.content for each in mount.spooled()] == [b"ONE two\n"]
    assert mount.cat("/notes/a.md") == b"else\n"


def test_an_edit_goes_by_the_head_at_open(mount: Driven) -> None:
    memory = mount.given("/a.md", "one two\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    mount.changed(memory, content="else two\n")
    file.write(b"ONE", 0)

    with refused(ESTALE):
        file.close()


def test_a_shortened_file_is_an_edit(mount: Driven) -> None:
    memory = mount.given("/a.md", "one two\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.truncate(3)
    mount.changed(memory, content="else\n")

    with mount.made(), refused(ESTALE):
        file.fsync()


def test_an_edit_after_a_save_goes_by_what_was_saved(mount: Driven) -> None:
    mount.given("/a.md", "one two\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"ONE", 0)
    file.fsync()
    file.write(b"TWO", 4)
    file.close()

    assert mount.kept() == {"/a.md": "ONE TWO\n"}


def test_an_append_after_a_save_goes_after_what_was_saved(mount: Driven) -> None:
    mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_WRONLY | os.O_APPEND)
    file.write(b"two\n")
    file.fsync()
    file.write(b"three\n")
    file.close()

    assert mount.kept() == {"/a.md": "one\ntwo\nthree\n"}


# Renamed or deleted meanwhile


def test_a_save_follows_a_memory_that_was_renamed_elsewhere(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"ONE", 0)
    mount.changed(memory, path="/b.md")
    file.close()

    assert mount.kept() == {"/b.md": "ONE\n"}
    assert mount.at("/b.md").id == memory.id
    assert mount.cat("/notes/b.md") == b"ONE\n"


def test_a_save_follows_a_rename_that_the_mount_does_not_know_of(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"ONE", 0)
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.update(memory.id, memory_store_id=mount.id(), path="/b.md")
        file.close()
    mount.settle()

    assert mount.kept() == {"/b.md": "ONE\n"}
    assert mount.ls("/notes") == ["b.md"]


@pytest.mark.parametrize("flags", [os.O_WRONLY | os.O_APPEND, NEW])
@pytest.mark.parametrize("known", [True, False])
def test_an_append_or_a_replacement_of_what_was_deleted_elsewhere_makes_it_anew(
    mount: Driven, flags: int, known: bool
) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", flags)
    file.write(b"mine\n")
    if known:
        mount.deleted(memory)
    else:
        mount.hf.memory_stores.memories.delete(memory.id, memory_store_id=mount.id())

    with mount.made("created"):
        file.close()
    mount.settle()

    assert mount.kept() == {"/a.md": "mine\n"}
    assert mount.at("/a.md").id != memory.id
    assert mount.cat("/notes/a.md") == b"mine\n"


@pytest.mark.parametrize("known", [True, False])
def test_an_edit_of_what_was_deleted_elsewhere_is_refused(mount: Driven, known: bool) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"ONE", 0)
    if known:
        mount.deleted(memory)
    else:
        mount.hf.memory_stores.memories.delete(memory.id, memory_store_id=mount.id())

    with mount.made(), refused(ESTALE):
        file.close()
    mount.settle()

    assert [each.content for each in mount.spooled()] == [b"ONE\n"]
    assert mount.ls("/notes") == []


def test_writes_to_what_was_deleted_here_go_with_it(mount: Driven) -> None:
    mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"ONE", 0)
    mount.core.unlink("/notes/a.md")

    with mount.made():
        file.write(b"four", 4)
        assert file.read() == b"ONE\nfour"
        file.close()

    assert mount.kept() == {}
    assert mount.ls("/notes") == []
    assert mount.spooled() == []


def test_a_new_file_of_the_name_is_another_than_the_one_deleted_here(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    mount.core.unlink("/notes/a.md")
    mount.put("/notes/a.md", b"new\n")
    file.write(b"ONE", 0)
    file.close()

    assert mount.kept() == {"/a.md": "new\n"}
    assert mount.at("/a.md").id != memory.id


def test_a_file_made_while_one_was_made_elsewhere_replaces_it(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"mine\n")
    memory = mount.given("/a.md", "theirs\n")
    file.close()

    assert mount.kept() == {"/a.md": "mine\n"}
    assert mount.at("/a.md").id == memory.id


def test_unsaved_bytes_stay_whatever_changes_elsewhere(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"ONE", 0)
    mount.changed(memory, content="else\n")

    assert file.read() == b"ONE\n"
    assert mount.cat("/notes/a.md") == b"ONE\n"


# Patterns of programs


def test_a_file_written_aside_and_renamed_over_is_one_version_of_the_target(mount: Driven) -> None:
    memory = mount.given("/a.md")

    with mount.made("modified"):
        mount.put("/notes/sedAb3dE_", b"new\n")
        mount.core.rename("/notes/sedAb3dE_", "/notes/a.md")

    assert mount.at("/a.md").id == memory.id
    assert mount.kept() == {"/a.md": "new\n"}


def test_an_unlisted_temporary_name_is_correct_and_shows(mount: Driven) -> None:
    memory = mount.given("/a.md")

    with mount.made("created", "modified", "deleted"):
        mount.put("/notes/a.md.new", b"new\n")
        mount.core.rename("/notes/a.md.new", "/notes/a.md")

    assert mount.at("/a.md").id == memory.id


def test_what_vim_does(mount: Driven) -> None:
    memory = mount.given("/a.md")

    with mount.made("modified"):
        swap = mount.open("/notes/.a.md.swp", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        swap.write(b"b0VIM\x00\xff")
        mount.open("/notes/4913", os.O_WRONLY | os.O_CREAT | os.O_EXCL).close()
        mount.core.unlink("/notes/4913")
        mount.core.rename("/notes/a.md", "/notes/a.md~")
        file = mount.open("/notes/a.md", NEW)
        file.write(b"new\n")
        file.fsync()
        file.close()
        mount.core.unlink("/notes/a.md~")
        swap.close()
        mount.core.unlink("/notes/.a.md.swp")
        mount.later.advance(10)

    assert mount.at("/a.md").id == memory.id


def test_the_versions_are_by_who_mounted(mount: Driven) -> None:
    mount.put("/notes/a.md", b"x")

    (version,) = mount.hf.memory_stores.memory_versions.list(mount.id()).data
    assert version.created_by.to_wire() == {"type": "api_actor", "api_key_id": "apikey_local"}
