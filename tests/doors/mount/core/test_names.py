"""Names of files: scratch, transient, backup, and those that no memory can have."""

import os
from errno import EFBIG, EILSEQ, EINVAL, EIO, ENAMETOOLONG, ENOSPC

import pytest
from doors.mount.core.driven import Driven, Told, refused
from doors.mount.core.trouble import gone
from hypothesis import given

from holdfast.doors.mount.names import Kind, checked, is_backup, kind_of
from holdfast.testing.models import is_path
from holdfast.testing.strategies import nasty_paths, plain_paths

NEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC
MIB = 1024 * 1024


# scratch


def test_a_scratch_file_is_never_a_memory(mount: Driven) -> None:
    with mount.made():
        mount.put("/notes/.a.md.swp", b"b0VIM\x00\xff\xfe")
        mount.later.advance(100)
        mount.stop()

    assert mount.spooled() == []


def test_a_scratch_file_holds_any_bytes(mount: Driven) -> None:
    every = bytes(range(256))
    mount.put("/notes/.a.md.swp", every, every)

    assert mount.cat("/notes/.a.md.swp") == every * 2
    assert mount.size("/notes/.a.md.swp") == 512


def test_a_scratch_file_may_have_holes_and_be_truncated(mount: Driven) -> None:
    file = mount.open("/notes/.a.md.swp", NEW)
    file.write(b"x", 4096)
    file.truncate(8192)
    assert file.read() == b"\0" * 4096 + b"x" + b"\0" * 4095

    mount.core.truncate("/notes/.a.md.swp", 10)
    assert file.read() == b"\0" * 10


def test_a_scratch_file_stays_until_unmount(mount: Driven) -> None:
    mount.put("/notes/.a.md.swp", b"x")
    mount.later.advance(1000)

    assert mount.ls("/notes") == [".a.md.swp"]
    mount.stop()
    assert mount.again().ls("/notes") == []


def test_a_scratch_file_needs_no_storage(mount: Driven) -> None:
    source = mount.sources["notes"]
    source.away()
    mount.put("/notes/.a.swp", b"x")
    assert mount.cat("/notes/.a.swp") == b"x"
    mount.core.rename("/notes/.a.swp", "/notes/.b.swp")
    mount.core.unlink("/notes/.b.swp")

    assert source.applies == []


def test_a_scratch_file_may_be_six_mebibytes(mount: Driven) -> None:
    file = mount.open("/notes/.a.swp", NEW)
    file.write(b"x" * (6 * MIB))

    with refused(ENOSPC):
        file.write(b"y")
    with refused(ENOSPC):
        file.truncate(6 * MIB + 1)
    file.close()


def test_scratch_files_together_may_be_sixty_four_mebibytes(mount: Driven) -> None:
    for number in range(10):
        mount.put(f"/notes/.{number}.swp", b"x" * (6 * MIB))
    mount.put("/other/.a.swp", b"x" * (4 * MIB))

    with refused(ENOSPC):
        mount.put("/other/.b.swp", b"y")
    mount.core.unlink("/notes/.0.swp")
    mount.put("/other/.b.swp", b"y")


def test_a_scratch_file_renamed_to_a_real_name_becomes_a_memory(mount: Driven) -> None:
    mount.put("/notes/#a.md#", b"text\n")

    with mount.made("created"):
        mount.core.rename("/notes/#a.md#", "/notes/a.md")
    assert mount.kept() == {"/a.md": "text\n"}


@pytest.mark.parametrize(
    ("data", "number"), [(b"\xff", EILSEQ), (b"\0", EILSEQ), (b"x" * 102_401, EFBIG)]
)
def test_a_scratch_file_that_cannot_be_a_memory_is_not_renamed_to_a_real_name(
    mount: Driven, data: bytes, number: int
) -> None:
    mount.put("/notes/.a.swp", data)

    with mount.made(), refused(number):
        mount.core.rename("/notes/.a.swp", "/notes/a.md")
    assert mount.ls("/notes") == [".a.swp"]


def test_a_scratch_name_made_elsewhere_is_a_file_like_others(mount: Driven) -> None:
    mount.given("/.a.swp", "one\n")
    mount.append("/notes/.a.swp", b"two\n")

    assert mount.kept() == {"/.a.swp": "one\ntwo\n"}


# transient


def test_a_transient_file_is_no_memory_within_the_grace(mount: Driven) -> None:
    with mount.made():
        mount.put("/notes/a.tmp", b"x")
        mount.later.advance(2.9)

    assert mount.cat("/notes/a.tmp") == b"x"


def test_a_transient_file_still_there_after_the_grace_becomes_a_memory(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"x")

    with mount.made("created"):
        mount.later.advance(3)
    assert mount.kept() == {"/a.tmp": "x"}
    assert mount.cat("/notes/a.tmp") == b"x"
    assert mount.told()["promoted"] == 1


def test_the_grace_is_an_option(mount: Driven) -> None:
    slow = mount.again(grace=60.0)
    slow.put("/notes/a.tmp", b"x")
    with slow.made():
        slow.later.advance(59)
    with slow.made("created"):
        slow.later.advance(1)


def test_the_grace_begins_with_the_last_close(mount: Driven) -> None:
    first = mount.open("/notes/a.tmp", NEW)
    second = mount.open("/notes/a.tmp", os.O_RDWR)
    first.write(b"x")
    with mount.made():
        first.close()
        mount.later.advance(10)
        second.close()
        mount.later.advance(2.9)
        mount.append("/notes/a.tmp", b"y")
        mount.later.advance(2.9)
    with mount.made("created"):
        mount.later.advance(0.1)

    assert mount.kept() == {"/a.tmp": "xy"}


def test_a_transient_file_removed_within_the_grace_leaves_nothing(mount: Driven) -> None:
    with mount.made():
        mount.put("/notes/a.tmp", b"x")
        mount.core.unlink("/notes/a.tmp")
        mount.later.advance(10)

    assert mount.spooled() == []
    assert mount.ls("/notes") == []


def test_a_closed_transient_file_is_in_the_spool(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"x")

    (left,) = mount.spooled()
    assert left.content == b"x"
    assert (left.facts["kind"], left.facts["path"]) == ("transient", "/a.tmp")


def test_a_promoted_file_is_no_longer_in_the_spool(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"x")
    mount.later.advance(3)

    assert mount.spooled() == []


def test_a_transient_file_written_again_is_in_the_spool_once(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"x")
    mount.put("/notes/a.tmp", b"newer")

    assert [left.content for left in mount.spooled()] == [b"newer"]


def test_a_transient_file_only_created_is_in_the_spool_after_its_last_close(
    mount: Driven,
) -> None:
    mount.put("/notes/a.tmp")
    assert [left.content for left in mount.spooled()] == [b""]

    with mount.made("created"):
        mount.later.advance(3)


def test_fsync_of_a_transient_file_puts_it_into_the_spool(mount: Driven) -> None:
    file = mount.open("/notes/a.tmp", NEW)
    file.write(b"x")
    with mount.made():
        file.fsync()

    assert [left.content for left in mount.spooled()] == [b"x"]


def test_a_transient_file_is_on_disk_once_that_was_asked_for(mount: Driven) -> None:
    file = mount.open("/notes/a.tmp", NEW)
    file.write(b"x")
    file.flush()
    assert [kept.on_disk for kept in mount.spool.present()] == [False]

    file.fsync()

    assert [kept.on_disk for kept in mount.spool.present()] == [True]


def test_a_transient_file_that_was_on_disk_once_stays_on_disk(mount: Driven) -> None:
    file = mount.open("/notes/a.tmp", NEW)
    file.write(b"x")
    file.fsync()
    file.write(b"y")
    file.close()

    mount.core.rename("/notes/a.tmp", "/notes/b.tmp")

    assert [kept.on_disk for kept in mount.spool.present()] == [True]


def test_a_transient_file_that_cannot_be_promoted_at_the_end_is_on_disk(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"x")
    mount.sources["notes"].refusing = gone

    mount.stop()

    assert [kept.on_disk for kept in mount.spool.present()] == [True]


def test_an_open_transient_file_is_not_promoted(mount: Driven) -> None:
    file = mount.open("/notes/a.tmp", NEW)
    file.write(b"x")
    with mount.made():
        file.fsync()
        mount.later.advance(10)
    file.close()


def test_fsync_of_its_directory_promotes_a_transient_file(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    mount.put("/notes/a.tmp", b"x")
    mount.put("/notes/d/b.tmp", b"y")

    with mount.made("created"):
        mount.core.fsyncdir("/notes")
    assert mount.kept() == {"/a.tmp": "x"}
    assert mount.ls("/notes") == ["a.tmp", "d"]


def test_unmounting_promotes_a_transient_file(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"x")

    with mount.made("created"):
        assert mount.stop() == 0
    assert mount.spooled() == []


def test_what_is_checked_of_a_file_is_checked_of_a_transient_one(mount: Driven) -> None:
    with refused(EILSEQ):
        mount.put("/notes/a.tmp", b"\xff")
    with refused(EFBIG):
        mount.put("/notes/b.tmp", b"x" * 102_401)
    with refused(EILSEQ):
        mount.put("/notes/c.tmp", b"cut \xc3")

    assert mount.ls("/notes") == []


def test_a_transient_file_that_is_refused_later_keeps_what_was_closed(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"closed\n")
    with refused(EILSEQ):
        mount.append("/notes/a.tmp", b"\xff")

    assert mount.cat("/notes/a.tmp") == b"closed\n"
    assert [left.content for left in mount.spooled()] == [b"closed\n"]
    mount.later.advance(10)
    assert mount.kept() == {"/a.tmp": "closed\n"}


def test_a_transient_name_made_elsewhere_is_a_file_like_others(mount: Driven) -> None:
    mount.given("/a.tmp", "one\n")

    with mount.made("modified"):
        mount.append("/notes/a.tmp", b"two\n")


def test_a_promoted_file_is_a_file_like_others(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"x")
    mount.later.advance(3)

    with mount.made("modified"):
        mount.append("/notes/a.tmp", b"y")


def test_a_transient_file_renamed_to_a_transient_name_stays_one(mount: Driven) -> None:
    with mount.made():
        mount.put("/notes/a.tmp", b"x")
        mount.core.rename("/notes/a.tmp", "/notes/b.tmp")
    assert mount.spooled()[0].facts["path"] == "/b.tmp"
    assert len(mount.spooled()) == 1

    mount.later.advance(3)
    assert mount.kept() == {"/b.tmp": "x"}


def test_a_transient_file_renamed_over_another_leaves_one(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"a")
    mount.put("/notes/b.tmp", b"b")
    mount.core.rename("/notes/a.tmp", "/notes/b.tmp")

    assert [left.content for left in mount.spooled()] == [b"a"]
    mount.later.advance(10)
    assert mount.kept() == {"/b.tmp": "a"}


def test_an_open_transient_file_renamed_over_goes_on_as_the_target(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    file = mount.open("/notes/a.md.tmp", NEW)
    file.write(b"one\n")
    with mount.made("modified"):
        mount.core.rename("/notes/a.md.tmp", "/notes/a.md")
    file.write(b"two\n")
    with mount.made("modified"):
        file.close()

    assert mount.at("/a.md").id == memory.id
    assert mount.kept() == {"/a.md": "one\ntwo\n"}


def test_a_promotion_that_fails_is_tried_again(mount: Driven) -> None:
    mount.put("/notes/a.tmp", b"x")
    mount.sources["notes"].away()
    mount.later.advance(3)
    assert mount.cat("/notes/a.tmp") == b"x"
    assert [left.content for left in mount.spooled()] == [b"x"]

    mount.sources["notes"].heal()
    mount.later.advance(10)
    assert mount.kept() == {"/a.tmp": "x"}
    assert mount.spooled() == []


def test_a_promotion_whose_path_was_taken_elsewhere_stays_in_the_spool(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    mount.put("/notes/d/a.tmp", b"x")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.create(mount.id(), path="/d", content="theirs")
        mount.later.advance(3)
    mount.settle()

    assert [left.content for left in mount.spooled()] == [b"x"]
    assert mount.kept() == {"/d": "theirs"}


def test_a_memory_renamed_to_a_transient_name_keeps_its_id(mount: Driven) -> None:
    memory = mount.given("/a.md", "x")
    mount.core.rename("/notes/a.md", "/notes/a.tmp")
    mount.later.advance(10)

    assert mount.at("/a.tmp").id == memory.id


# backup


def test_a_backup_is_deferred(mount: Driven) -> None:
    mount.given("/a.md", "old\n")

    with mount.made():
        mount.core.rename("/notes/a.md", "/notes/a.md~")
        mount.later.advance(2.9)
    assert mount.ls("/notes") == ["a.md~"]
    assert mount.cat("/notes/a.md~") == b"old\n"


@pytest.mark.parametrize("suffix", ["~", ".bak", ".orig", ".old", ".sav", ".save"])
def test_a_file_written_again_after_its_backup_stays_the_same_memory(
    mount: Driven, suffix: str
) -> None:
    memory = mount.given("/a.md", "old\n")

    with mount.made("modified"):
        mount.core.rename("/notes/a.md", f"/notes/a.md{suffix}")
        mount.put("/notes/a.md", b"new\n")
        mount.core.unlink(f"/notes/a.md{suffix}")
        mount.later.advance(10)
    assert mount.at("/a.md").id == memory.id


def test_a_backup_that_stays_becomes_a_memory_of_its_own(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    with mount.made("modified", "created"):
        mount.core.rename("/notes/a.md", "/notes/a.md.bak")
        mount.put("/notes/a.md", b"new\n")
        mount.later.advance(10)

    assert mount.kept() == {"/a.md": "new\n", "/a.md.bak": "old\n"}
    assert mount.at("/a.md").id == memory.id
    assert mount.ls("/notes") == ["a.md", "a.md.bak"]


def test_a_file_written_aside_and_renamed_to_where_a_backup_was_taken(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    with mount.made("modified", "created"):
        mount.core.rename("/notes/a.md", "/notes/a.md~")
        mount.put("/notes/sedAb3dE_", b"new\n")
        mount.core.rename("/notes/sedAb3dE_", "/notes/a.md")
        mount.later.advance(10)

    assert mount.at("/a.md").id == memory.id
    assert mount.kept() == {"/a.md": "new\n", "/a.md~": "old\n"}


def test_a_backup_whose_file_is_not_written_again_is_a_rename(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    mount.core.rename("/notes/a.md", "/notes/a.md.bak")

    with mount.made("modified"):
        mount.later.advance(3)
    assert mount.at("/a.md.bak").id == memory.id
    assert mount.kept() == {"/a.md.bak": "old\n"}


def test_a_backup_renamed_back_makes_nothing(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    with mount.made():
        mount.core.rename("/notes/a.md", "/notes/a.md~")
        mount.core.rename("/notes/a.md~", "/notes/a.md")
        mount.later.advance(10)

    assert mount.at("/a.md").memory_version_id == memory.memory_version_id
    assert mount.ls("/notes") == ["a.md"]


def test_a_backup_renamed_on_is_a_rename(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    mount.core.rename("/notes/a.md", "/notes/a.md~")
    mount.core.rename("/notes/a.md~", "/notes/b.md")
    mount.later.advance(10)

    assert mount.at("/b.md").id == memory.id
    assert mount.kept() == {"/b.md": "old\n"}


def test_a_backup_removed_before_anything_is_written_again_deletes_the_memory(
    mount: Driven,
) -> None:
    mount.given("/a.md", "old\n")
    with mount.made("deleted"):
        mount.core.rename("/notes/a.md", "/notes/a.md~")
        mount.core.unlink("/notes/a.md~")
        mount.later.advance(10)

    assert mount.kept() == {}


def test_unmounting_commits_a_deferred_rename(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    mount.core.rename("/notes/a.md", "/notes/a.md.bak")

    with mount.made("modified"):
        mount.stop()
    assert mount.at("/a.md.bak").id == memory.id


def test_a_crash_within_the_grace_of_a_backup_loses_nothing(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    mount.core.rename("/notes/a.md", "/notes/a.md.bak")
    mount.put("/notes/a.md", b"new\n")
    mount.crash()
    heir = mount.again()
    heir.later.advance(10)

    assert heir.cat("/notes/a.md") == b"new\n"
    assert "old\n" in [version.content for version in heir.versions()]


def test_a_backup_over_an_existing_memory_is_a_replacement_at_once(mount: Driven) -> None:
    mount.given("/a.md", "new\n")
    backup = mount.given("/a.md~", "old\n")
    with mount.made("modified", "deleted"):
        mount.core.rename("/notes/a.md", "/notes/a.md~")

    assert mount.at("/a.md~").id == backup.id


def test_a_backup_when_storage_is_away_is_kept_until_it_is_back(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    mount.core.rename("/notes/a.md", "/notes/a.md.bak")
    mount.sources["notes"].away()
    mount.later.advance(3)
    mount.sources["notes"].heal()
    mount.later.advance(10)

    assert mount.at("/a.md.bak").id == memory.id
    assert mount.ls("/notes") == ["a.md.bak"]


def test_a_file_only_created_again_after_its_backup_stays_the_same_memory(
    mount: Driven,
) -> None:
    memory = mount.given("/a.md", "old\n")
    mount.core.rename("/notes/a.md", "/notes/a.md~")
    file = mount.open("/notes/a.md", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    mount.later.advance(10)
    file.write(b"new\n")
    file.close()
    mount.later.advance(10)

    assert mount.kept() == {"/a.md": "new\n", "/a.md~": "old\n"}
    assert {mount.at("/a.md").id, mount.at("/a.md~").id} >= {memory.id}


def test_two_backups_in_a_row(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    mount.core.rename("/notes/a.md", "/notes/a.md~")
    mount.put("/notes/a.md", b"two\n")
    mount.core.rename("/notes/a.md", "/notes/a.md.bak")
    mount.put("/notes/a.md", b"three\n")
    mount.later.advance(10)

    assert mount.kept() == {"/a.md": "three\n", "/a.md.bak": "two\n", "/a.md~": "one\n"}
    assert mount.at("/a.md").id == memory.id


def test_a_backup_below_a_directory_that_is_renamed(mount: Driven) -> None:
    memory = mount.given("/d/a.md", "old\n")
    mount.core.rename("/notes/d/a.md", "/notes/d/a.md~")
    mount.core.rename("/notes/d", "/notes/e")
    mount.later.advance(10)

    assert mount.at("/e/a.md~").id == memory.id
    assert mount.kept() == {"/e/a.md~": "old\n"}


def test_while_a_backup_is_deferred_the_store_is_as_it_was(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    mount.core.rename("/notes/a.md", "/notes/a.md~")

    assert mount.kept() == {"/a.md": "old\n"}
    assert mount.versions() == [Told("created", "/a.md", "old\n")]


def test_a_change_made_elsewhere_to_a_file_whose_backup_is_deferred_is_kept(
    mount: Driven,
) -> None:
    memory = mount.given("/a.md", "old\n")
    mount.core.rename("/notes/a.md", "/notes/a.md.bak")
    mount.changed(memory, content="theirs\n")
    mount.later.advance(10)

    assert mount.kept() == {"/a.md.bak": "theirs\n"}
    assert mount.cat("/notes/a.md.bak") == b"theirs\n"


def test_a_memory_deleted_elsewhere_while_its_backup_is_deferred_is_gone(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    mount.core.rename("/notes/a.md", "/notes/a.md.bak")
    mount.deleted(memory)
    mount.later.advance(10)

    assert mount.kept() == {}
    assert mount.ls("/notes") == []


def test_closing_a_transient_file_fails_when_the_spool_is_full(mount: Driven) -> None:
    mount.spool.full = True

    with refused(ENOSPC, EIO):
        mount.put("/notes/a.tmp", b"x")
    assert mount.cat("/notes/a.tmp") == b"x"


SCRATCH = [
    ".a.md.swp",
    ".a.swo",
    ".a.md.swpx",
    "4913",
    ".#a.md",
    "#a.md#",
    ".a.md.un~",
    ".a.md.kate-swp",
    ".~lock.a.md#",
    ".fuse_hidden0000000100000001",
    ".nfs000000000123",
    ".DS_Store",
    "._a.md",
]
TRANSIENT = [
    "sedAb3dE_",
    "XXAb3dE_",
    "a.md~",
    "a.md.tmp",
    ".tmp",
    "a.tmp.4711",
    "tmpab3d_f0z",
    ".a.md.Ab3dE_",
    "a.md.oAb3dE_",
    ".tmpX",
    ".goutputstream-7JQ2B3",
    "a.md.part",
    "a.md.crdownload",
]
REFUSED = [".git", ".hg", ".svn", ".jj"]
PLAIN = [
    "a.md",
    "sed",
    "sedation",
    "sedAb3dE_x",
    "sedAb3d-_",
    "XXAb3dE",
    "tmpab3d_f0",
    "tmpab3d_f0z1",
    "a.md.oAb3dE",
    "a.md.oAb3d-_",
    "49130",
    "a.swp",
    ".swp",
    ".a.sw",
    "a.md.swp",
    "#a.md",
    "a.md#",
    "a~b",
    "a.tmpx",
    "a.partial",
    ".github",
    ".gitignore",
    "git",
    ".hgignore",
    "nfs1",
    "DS_Store",
    "_a.md",
    ".a.md",
    ".a.md.Ab3dE",
    ".a.md.Ab3d-_",
    "goutputstream-7JQ2B3",
    "a.md.bak",
    "a.orig",
    "~a",
]


@pytest.mark.parametrize("name", SCRATCH)
def test_a_scratch_name(name: str) -> None:
    assert kind_of(name) is Kind.SCRATCH


@pytest.mark.parametrize("name", TRANSIENT)
def test_a_transient_name(name: str) -> None:
    assert kind_of(name) is Kind.TRANSIENT


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_name(name: str) -> None:
    assert kind_of(name) is Kind.REFUSED


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_name(name: str) -> None:
    assert kind_of(name) is Kind.PLAIN


@pytest.mark.parametrize("name", ["a\n", "4913\n", ".git\n", "sedAb3dE_\n", ".a.swp\n"])
def test_a_pattern_ends_where_the_name_does(name: str) -> None:
    assert kind_of(name) is Kind.PLAIN


@pytest.mark.parametrize(
    "name", ["a.md~", "a.md.bak", "a.orig", "a.md.old", "a.sav", "a.save", "~.bak"]
)
def test_a_backup_name(name: str) -> None:
    assert is_backup(name)


@pytest.mark.parametrize("name", ["a.md", "bak", "a.bakx", "a.saved", "~a", "old", "orig.md"])
def test_no_backup_name(name: str) -> None:
    assert not is_backup(name)


@pytest.mark.parametrize(
    "path",
    [
        "/a.md",
        "/a/b/c",
        "/" + "x" * 255,
        "/" + "\u00e9" * 127,
        "/".join(["", *["x" * 255] * 3, "x" * 255]),
        "/" + "/".join("abcdefghijklmnopqrst"),
        "/ a b ",
        "/\\",
        "/a/.anthropic-memory-store",
        "/\U0001f600.md",
        "/-rf",
    ],
)
def test_a_path_that_is_fine_comes_back(path: str) -> None:
    assert checked(path) == path


@pytest.mark.parametrize("path", ["/\udcff", "/a\udce9.md", "/a\udced\udca0\udc80", "/d\udc80/a"])
def test_a_name_that_is_not_utf8(path: str) -> None:
    with refused(EILSEQ):
        checked(path)


@pytest.mark.parametrize(
    "path",
    [
        "/" + "x" * 256,
        "/" + "\u00e9" * 128,
        "/" + "x" * 256 + "/a",
        "/".join(["", *["x" * 255] * 3, "x" * 254, "y"]),
        "/" + "/".join("abcdefghijklmnopqrstu"),
    ],
)
def test_a_name_that_is_too_long(path: str) -> None:
    with refused(ENAMETOOLONG):
        checked(path)


@pytest.mark.parametrize(
    "path",
    [
        "/a\n",
        "/a\tb",
        "/\x7f",
        "/\x85",
        "/a\u200bb",
        "/\ufeffa",
        "/\u00ad",
        "/a\u2028",
        "/a\u2029",
        "/e\u0301.md",
        "/\u212a",
        "/e\u0301/a",
        "/.anthropic-memory-store",
    ],
)
def test_a_name_that_no_memory_can_have(path: str) -> None:
    with refused(EINVAL):
        checked(path)


@given(plain_paths() | nasty_paths())
def test_a_checked_path_is_one_that_the_store_takes(path: str) -> None:
    short = all(len(each.encode("utf-8", "surrogatepass")) <= 255 for each in path.split("/"))
    if not path.startswith("/") or {"", ".", ".."} & set(path[1:].split("/")):
        return
    if is_path(path) and short:
        assert checked(path) == path
    else:
        with refused():
            checked(path)
