"""Opening, creating, reading, writing and truncating files."""

import os
from collections.abc import Callable
from errno import (
    EEXIST,
    EFBIG,
    EILSEQ,
    EINVAL,
    EIO,
    EISDIR,
    ENAMETOOLONG,
    ENOENT,
    ENOSPC,
    ENOTDIR,
    EPERM,
    EROFS,
)

import pytest
from doors.mount.core.driven import Driven, refused

LIMIT = 102_400
NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


# Reading


def test_a_file_is_read_from_any_place(mount: Driven) -> None:
    mount.given("/a.md", "0123456789")
    file = mount.open("/notes/a.md")

    assert (file.read(4, 3), file.read(100, 8), file.read(5, 10)) == (b"3456", b"89", b"")


def test_storage_that_fails_shows_at_open(mount: Driven) -> None:
    mount.given("/a.md")
    mount.sources["notes"].away()

    with refused(EIO):
        mount.open("/notes/a.md")


def test_storage_that_fails_never_shows_in_mid_read(mount: Driven) -> None:
    mount.given("/a.md", "0123456789")
    file = mount.open("/notes/a.md")
    mount.sources["notes"].away()

    assert file.read() == b"0123456789"


def test_what_was_read_once_is_read_again_without_storage(mount: Driven) -> None:
    mount.given("/a.md", "0123456789")
    mount.cat("/notes/a.md")
    mount.sources["notes"].away()

    assert mount.cat("/notes/a.md") == b"0123456789"


def test_what_is_not_there_cannot_be_opened(mount: Driven) -> None:
    with refused(ENOENT):
        mount.core.open("/notes/a.md", os.O_RDONLY)


def test_a_memory_deleted_since_the_mount_last_heard_cannot_be_opened(mount: Driven) -> None:
    memory = mount.given("/a.md")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.delete(memory.id, memory_store_id=mount.id())
        with refused(ENOENT):
            mount.cat("/notes/a.md")


def test_a_memory_changed_since_the_mount_last_heard_is_read_whole(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.update(
            memory.id, memory_store_id=mount.id(), content="newer\n"
        )
        assert mount.cat("/notes/a.md") == b"newer\n"


# Opening for writing


def test_truncating_at_open_saves_nothing_yet(mount: Driven) -> None:
    mount.given("/a.md")
    with mount.made():
        mount.open("/notes/a.md", os.O_WRONLY | os.O_TRUNC)

    assert mount.size("/notes/a.md") == 0


def test_appending_ignores_the_offset_of_the_kernel(mount: Driven) -> None:
    mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_WRONLY | os.O_APPEND)
    file.write(b"two\n", 0)
    file.close()

    assert mount.kept() == {"/a.md": "one\ntwo\n"}


def test_a_file_of_a_read_only_store_cannot_be_opened_for_writing(mount: Driven) -> None:
    mount.given("/a.md", slug="rules")

    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDONLY | os.O_TRUNC):
        with refused(EROFS):
            mount.core.open("/rules/a.md", flags)


READ_ONLY: dict[str, Callable[[Driven], object]] = {
    "create": lambda m: m.core.create("/rules/b.md", os.O_WRONLY),
    "create scratch": lambda m: m.core.create("/rules/.b.md.swp", os.O_WRONLY),
    "truncate": lambda m: m.core.truncate("/rules/a.md", 1),
    "unlink": lambda m: m.core.unlink("/rules/a.md"),
    "rename": lambda m: m.core.rename("/rules/a.md", "/rules/b.md"),
    "mkdir": lambda m: m.core.mkdir("/rules/d"),
    "rmdir": lambda m: m.core.rmdir("/rules/e"),
}


@pytest.mark.parametrize("act", READ_ONLY.values(), ids=READ_ONLY)
def test_a_read_only_store_cannot_be_changed(
    mount: Driven, act: Callable[[Driven], object]
) -> None:
    mount.given("/a.md", slug="rules")
    mount.given("/e/a.md", slug="rules")

    with refused(EROFS):
        act(mount)


# Creating


def test_creating_saves_nothing_yet(mount: Driven) -> None:
    with mount.made():
        mount.core.create("/notes/a.md", os.O_WRONLY)

    assert mount.ls("/notes") == ["a.md"]


def test_creating_exclusively_what_is_there(mount: Driven) -> None:
    mount.given("/a.md")

    with refused(EEXIST):
        mount.core.create("/notes/a.md", os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def test_creating_what_is_there_opens_it(mount: Driven) -> None:
    mount.given("/a.md", "one\n")
    fh = mount.core.create("/notes/a.md", os.O_RDWR | os.O_CREAT)

    assert mount.core.read(fh, 100, 0) == b"one\n"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("\udcff.md", EILSEQ),
        ("x" * 256, ENAMETOOLONG),
        ("/".join(["x" * 255] * 3 + ["x" * 254, "y"]), ENAMETOOLONG),
        ("a\n", EINVAL),
        ("a\u200b", EINVAL),
        ("a\u2028", EINVAL),
        ("e\u0301", EINVAL),
        (".anthropic-memory-store", EINVAL),
    ],
)
def test_a_name_that_no_memory_can_have_is_told_at_once(
    mount: Driven, name: str, number: int
) -> None:
    deep = "/".join(["", "notes", *name.split("/")[:-1]])
    for each in range(2, deep.count("/") + 1):
        mount.core.mkdir("/".join(deep.split("/")[: each + 1]))
    mount.put("/notes/a.md", b"x")

    for act in (
        lambda: mount.core.create(f"/notes/{name}", os.O_WRONLY | os.O_CREAT),
        lambda: mount.core.mkdir(f"/notes/{name}"),
        lambda: mount.core.rename("/notes/a.md", f"/notes/{name}"),
    ):
        with refused(number):
            act()


def test_the_reserved_name_may_be_used_further_down(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    mount.put("/notes/d/.anthropic-memory-store", b"x")

    assert mount.kept() == {"/d/.anthropic-memory-store": "x"}


def test_a_file_may_be_twenty_levels_deep_and_no_deeper(mount: Driven) -> None:
    path = "/notes"
    for _ in range(19):
        path += "/d"
        mount.core.mkdir(path)
    mount.put(f"{path}/a.md", b"x")
    mount.core.mkdir(f"{path}/d")

    with refused(ENAMETOOLONG):
        mount.put(f"{path}/d/a.md", b"x")


def test_at_the_cap_nothing_new_is_created(mount: Driven) -> None:
    mount.hf.memory_stores.configure(memories_cap=1)
    memory = mount.given("/a.md")

    with refused(ENOSPC):
        mount.core.create("/notes/b.md", os.O_WRONLY | os.O_CREAT)
    mount.put("/notes/a.md", b"new\n")
    assert mount.at("/a.md").id == memory.id


def test_files_not_yet_saved_count_towards_the_cap(mount: Driven) -> None:
    mount.hf.memory_stores.configure(memories_cap=2)
    mount.given("/a.md")
    mount.core.create("/notes/b.md", os.O_WRONLY | os.O_CREAT)

    with refused(ENOSPC):
        mount.core.create("/notes/c.md", os.O_WRONLY | os.O_CREAT)


def test_at_the_cap_a_file_can_still_be_written_aside_and_renamed_over(mount: Driven) -> None:
    mount.hf.memory_stores.configure(memories_cap=1)
    mount.given("/a.md")
    mount.put("/notes/sedAb3dE_", b"new\n")
    mount.core.rename("/notes/sedAb3dE_", "/notes/a.md")

    assert mount.kept() == {"/a.md": "new\n"}


def test_at_the_cap_no_temporary_file_becomes_a_new_memory(mount: Driven) -> None:
    mount.hf.memory_stores.configure(memories_cap=1)
    mount.given("/a.md")
    mount.put("/notes/b.tmp", b"new\n")

    with refused(ENOSPC):
        mount.core.rename("/notes/b.tmp", "/notes/b.md")
    assert mount.ls("/notes") == ["a.md", "b.tmp"]


def test_a_file_needs_a_directory(mount: Driven) -> None:
    mount.given("/a.md")

    with refused(ENOENT):
        mount.core.create("/notes/d/b.md", os.O_WRONLY | os.O_CREAT)
    with refused(ENOTDIR):
        mount.core.create("/notes/a.md/b.md", os.O_WRONLY | os.O_CREAT)


def test_a_directory_is_no_file(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")

    with refused(EISDIR):
        mount.core.create("/notes/d", os.O_WRONLY | os.O_CREAT)
    with refused(EISDIR):
        mount.core.open("/notes/d", os.O_WRONLY)


def test_there_are_no_links_and_no_special_files(mount: Driven) -> None:
    mount.given("/a.md")

    for act in (mount.core.symlink, mount.core.link, mount.core.mknod):
        with refused(EPERM):
            act("/notes/b.md")


# Writing


def test_a_file_can_be_as_large_as_a_memory(mount: Driven) -> None:
    mount.put("/notes/a.md", b"x" * (LIMIT - 1), b"y")

    assert mount.at("/a.md").content_size_bytes == LIMIT


def test_a_byte_more_is_refused_at_the_write(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"x" * LIMIT)

    with refused(EFBIG):
        file.write(b"y")


def test_a_piece_that_goes_over_the_limit_is_refused_whole(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)

    with refused(EFBIG):
        file.write(b"x" * (LIMIT + 1))


def test_a_write_far_behind_the_end_is_refused(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)

    with refused(EFBIG):
        file.write(b"y", 1 << 40)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"ok \xfe ok",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf5\x80\x80\x80",
        b"a\xc3(",
        b"\x89PNG\r\n\x1a\n",
        b"a\x00b",
        b"\x00",
    ],
)
def test_what_is_no_text_is_refused_at_the_write(mount: Driven, data: bytes) -> None:
    file = mount.open("/notes/a.md", NEW)

    with refused(EILSEQ):
        file.write(data)


@pytest.mark.parametrize(("bad", "number"), [(b"x" * (LIMIT + 1), EFBIG), (b"\xff", EILSEQ)])
def test_after_that_every_write_and_close_fails_alike(
    mount: Driven, bad: bytes, number: int
) -> None:
    mount.given("/a.md", "old\n")
    file = mount.open("/notes/a.md", NEW)
    file.write(b"new\n")
    with refused(number):
        file.write(bad)

    with refused(number):
        file.write(b"good\n")
    with mount.made(), refused(number):
        file.close()


@pytest.mark.parametrize(("bad", "number"), [(b"x" * (LIMIT + 1), EFBIG), (b"\xff", EILSEQ)])
def test_after_that_the_old_content_stays_and_nothing_is_spooled(
    mount: Driven, bad: bytes, number: int
) -> None:
    mount.given("/a.md", "old\n")
    with refused(number):
        mount.put("/notes/a.md", b"new\n", bad)

    assert mount.cat("/notes/a.md") == b"old\n"
    assert mount.kept() == {"/a.md": "old\n"}
    assert mount.spooled() == []
    assert list(mount.told()["refused"].values()) == [1]


def test_a_new_file_refused_at_a_write_disappears(mount: Driven) -> None:
    with mount.made(), refused(EILSEQ):
        mount.put("/notes/a.md", b"\xff")

    assert mount.ls("/notes") == []


def test_after_that_the_file_can_be_written_again(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    with refused(EILSEQ):
        mount.put("/notes/a.md", b"\xff")
    mount.put("/notes/a.md", b"new\n")

    assert mount.kept() == {"/a.md": "new\n"}


def test_what_was_saved_before_stays(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"good\n")
    file.fsync()
    with refused(EILSEQ):
        file.write(b"\xff")
    with refused(EILSEQ):
        file.close()

    assert mount.kept() == {"/a.md": "good\n"}
    assert mount.cat("/notes/a.md") == b"good\n"


@pytest.mark.parametrize("character", ["\u00e9", "\u20ac", "\U0001f600"])
def test_a_character_may_be_cut_by_the_end_of_a_write(mount: Driven, character: str) -> None:
    encoded = character.encode()
    with mount.made("created"):
        mount.put("/notes/a.md", *[bytes([byte]) for byte in encoded])

    assert mount.kept() == {"/a.md": character}


def test_a_character_that_stays_cut_is_judged_at_close(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"caf\xc3")

    with mount.made(), refused(EILSEQ):
        file.close()
    assert [each.content for each in mount.spooled()] == [b"caf\xc3"]
    assert mount.spooled()[0].facts["errno"] == "EILSEQ"


def test_a_byte_order_mark_and_line_ends_are_kept(mount: Driven) -> None:
    mount.put("/notes/a.md", b"\xef\xbb\xbfa\r\nb\r")

    assert mount.kept() == {"/a.md": "\ufeffa\r\nb\r"}


def test_a_hole_that_is_filled_before_the_close_is_fine(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"world\n", 6)
    file.write(b"hello ", 0)
    file.close()

    assert mount.kept() == {"/a.md": "hello world\n"}


def test_a_hole_that_stays_is_refused_at_the_save(mount: Driven) -> None:
    file = mount.open("/notes/a.md", NEW)
    file.write(b"world\n", 6)

    with mount.made(), refused(EILSEQ):
        file.close()


def test_an_edit_in_the_middle(mount: Driven) -> None:
    mount.given("/a.md", "one two three\n")
    with mount.made("modified"):
        mount.edit("/notes/a.md", 4, b"TWO")

    assert mount.kept() == {"/a.md": "one TWO three\n"}


def test_a_character_may_be_replaced_byte_by_byte(mount: Driven) -> None:
    mount.given("/a.md", "a\u00e9b")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"\xc4", 1)
    file.write(b"\x80", 2)
    file.close()

    assert mount.kept() == {"/a.md": "a\u0100b"}


# Memories that hold zero bytes already


def test_a_memory_with_zero_bytes_can_be_read_and_renamed(mount: Driven) -> None:
    mount.given("/a.md", "a\0b")
    mount.core.rename("/notes/a.md", "/notes/b.md")

    assert mount.cat("/notes/b.md") == b"a\0b"


def test_a_memory_with_zero_bytes_can_be_appended_to(mount: Driven) -> None:
    mount.given("/a.md", "a\0b")
    mount.append("/notes/a.md", b"c")

    assert mount.kept() == {"/a.md": "a\0bc"}


def test_a_memory_with_zero_bytes_can_be_edited(mount: Driven) -> None:
    mount.given("/a.md", "a\0b")
    mount.edit("/notes/a.md", 2, b"B")

    assert mount.kept() == {"/a.md": "a\0B"}


# Truncating


def test_truncating_without_a_writer_is_a_save_of_its_own(mount: Driven) -> None:
    mount.given("/a.md", "one two\n")
    with mount.made("modified"):
        mount.core.truncate("/notes/a.md", 3)

    assert mount.kept() == {"/a.md": "one"}


def test_truncating_under_a_writer_is_part_of_its_save(mount: Driven) -> None:
    mount.given("/a.md", "one two\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    with mount.made():
        mount.core.truncate("/notes/a.md", 3)
    with mount.made("modified"):
        file.close()

    assert mount.kept() == {"/a.md": "one"}


def test_truncating_to_the_same_length_makes_nothing(mount: Driven) -> None:
    mount.given("/a.md", "one")

    with mount.made():
        mount.core.truncate("/notes/a.md", 3)


def test_truncating_beyond_the_limit(mount: Driven) -> None:
    mount.given("/a.md", "one")
    file = mount.open("/notes/a.md", os.O_RDWR)

    with refused(EFBIG):
        mount.core.truncate("/notes/a.md", LIMIT + 1)
    with refused(EFBIG):
        file.truncate(LIMIT + 1)


def test_growing_by_path_is_refused_at_once(mount: Driven) -> None:
    mount.given("/a.md", "one")

    with mount.made(), refused(EILSEQ):
        mount.core.truncate("/notes/a.md", 5)
    assert mount.cat("/notes/a.md") == b"one"


def test_growing_through_a_handle_is_refused_at_the_save(mount: Driven) -> None:
    mount.given("/a.md", "one")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.truncate(5)

    assert file.size() == 5
    assert file.read() == b"one\0\0"
    with mount.made(), refused(EILSEQ):
        file.fsync()
    assert mount.cat("/notes/a.md") == b"one"


def test_growing_is_fine_when_the_growth_is_overwritten(mount: Driven) -> None:
    mount.given("/a.md", "one")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.truncate(5)
    file.write(b"tw", 3)
    file.close()

    assert mount.kept() == {"/a.md": "onetw"}


def test_cutting_a_character_by_path_is_refused_at_once(mount: Driven) -> None:
    mount.given("/a.md", "caf\u00e9")

    with mount.made(), refused(EILSEQ):
        mount.core.truncate("/notes/a.md", 4)
    assert mount.cat("/notes/a.md") == "caf\u00e9".encode()


def test_truncating_what_is_not_there(mount: Driven) -> None:
    with refused(ENOENT):
        mount.core.truncate("/notes/a.md", 0)
