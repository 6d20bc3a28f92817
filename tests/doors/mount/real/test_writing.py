"""When bytes that are written become a version, and which are refused, call by call."""

import mmap
import os
from collections.abc import Iterator

import pytest
from doors.mount.real.calls import listing, opened, refused, write
from doors.mount.real.kept import Kept
from doors.mount.real.mounting import Start, Target, eventually
from doors.mount.real.place import Place

pytestmark = pytest.mark.fuse

LIMIT = 102_400
CREATE = os.O_WRONLY | os.O_CREAT
REPLACE = os.O_WRONLY | os.O_TRUNC
EDIT = os.O_RDWR


def test_many_writes_and_one_close_are_one_version(place: Place) -> None:
    with opened(place.dir / "a.md", CREATE) as fd:
        for number in range(20):
            write(fd, f"{number}\n".encode())
        assert place.told() == []

    assert place.told() == ["created a.md"]
    assert place.content("a.md") == "".join(f"{number}\n" for number in range(20))


def test_what_is_written_is_seen_in_the_mount_at_once_and_elsewhere_when_it_is_saved(
    place: Place,
) -> None:
    file = place.given("a.md", "tabs")

    with opened(file, os.O_WRONLY | os.O_APPEND) as fd:
        write(fd, b" and spaces")
        assert file.read_text() == "tabs and spaces"
        assert place.content("a.md") == "tabs"

    assert place.content("a.md") == "tabs and spaces"


def test_each_close_that_follows_a_write_saves(place: Place) -> None:
    with opened(place.dir / "a.md", CREATE) as fd:
        write(fd, b"one")
        os.close(os.dup(fd))
        assert place.told() == ["created a.md"]
        os.close(os.dup(fd))
        write(fd, b" two")
        os.close(os.dup(fd))
        assert place.content("a.md") == "one two"

    assert place.told() == ["created a.md", "modified a.md"]


def test_fsync_saves_and_the_close_after_it_has_nothing_to_add(place: Place) -> None:
    with opened(place.dir / "a.md", CREATE) as fd:
        write(fd, b"one")
        os.fsync(fd)
        assert place.told() == ["created a.md"]
        os.fsync(fd)

    assert place.told() == ["created a.md"]


def test_a_file_that_is_only_made_waits_for_its_last_writer(place: Place) -> None:
    with opened(place.dir / "a.md", CREATE) as fd:
        os.close(os.dup(fd))
        assert place.kept() == {}

    eventually(lambda: place.kept() == {"a.md": ""})
    assert place.told() == ["created a.md"]


def test_a_file_that_is_only_truncated_waits_for_its_last_writer(place: Place) -> None:
    file = place.given("a.md", "tabs")

    with opened(file, REPLACE) as fd:
        os.close(os.dup(fd))
        assert file.stat().st_size == 0
        assert place.content("a.md") == "tabs"

    eventually(lambda: place.content("a.md") == "")
    assert place.told() == ["created a.md", "modified a.md"]


def test_a_file_that_is_only_made_is_saved_by_fsync(place: Place) -> None:
    with opened(place.dir / "a.md", CREATE) as fd:
        os.fsync(fd)
        assert place.kept() == {"a.md": ""}

    assert place.told() == ["created a.md"]


def test_nothing_written_is_no_version(place: Place) -> None:
    file = place.given("a.md", "tabs")

    with opened(file, EDIT) as fd:
        assert os.read(fd, 10) == b"tabs"
    with opened(file, EDIT) as fd:
        os.fsync(fd)

    assert place.told() == ["created a.md"]


def test_what_equals_the_head_is_no_version(place: Place) -> None:
    file = place.given("a.md", "tabs")

    file.write_text("tabs")
    with opened(file, EDIT) as fd:
        write(fd, b"tabs")
    os.truncate(file, 4)

    assert place.told() == ["created a.md"]


def test_a_whole_replacement_wins_over_a_change_made_meanwhile(place: Place) -> None:
    file = place.given("a.md", "tabs")

    with opened(file, REPLACE) as fd:
        place.put("a.md", "meanwhile")
        write(fd, b"spaces")

    assert place.content("a.md") == "spaces"
    assert place.told() == ["created a.md", "modified a.md", "modified a.md"]


def test_what_is_appended_goes_after_a_change_made_meanwhile(place: Place) -> None:
    file = place.given("a.md", "one\n")

    with opened(file, os.O_WRONLY | os.O_APPEND) as fd:
        write(fd, b"three\n")
        place.put("a.md", "one\ntwo\n")

    assert place.content("a.md") == "one\ntwo\nthree\n"
    eventually(lambda: file.read_text() == "one\ntwo\nthree\n")


def test_an_edit_loses_to_a_change_made_meanwhile_and_is_kept_aside(place: Place) -> None:
    file = place.given("a.md", "tabs\n")

    with refused("ESTALE"), opened(file, EDIT) as fd:
        write(fd, b"TABS")
        place.put("a.md", "meanwhile\n")

    assert place.content("a.md") == "meanwhile\n"
    eventually(lambda: file.read_text() == "meanwhile\n")
    (entry,) = place.spooled()
    assert entry.read_bytes() == b"TABS\n"
    assert "-ESTALE-" in entry.name


def test_two_handles_share_what_is_not_saved(place: Place) -> None:
    file = place.given("a.md", "one\n")

    with opened(file, os.O_RDWR | os.O_APPEND) as first, opened(file, os.O_RDWR) as second:
        write(first, b"two\n")
        assert os.pread(second, 100, 0) == b"one\ntwo\n"
        os.pwrite(second, b"ONE", 0)
        assert os.pread(first, 100, 0) == b"ONE\ntwo\n"

    assert place.told() == ["created a.md", "modified a.md"]
    assert place.content("a.md") == "ONE\ntwo\n"


def test_an_append_goes_to_the_end_whatever_was_written_before(place: Place) -> None:
    file = place.given("a.md", "one\n")

    with opened(file, os.O_WRONLY | os.O_APPEND) as slow:
        with opened(file, os.O_WRONLY | os.O_APPEND) as quick:
            write(quick, b"two\n")
        write(slow, b"three\n")

    assert place.content("a.md") == "one\ntwo\nthree\n"


def test_what_exists_is_not_made_again(place: Place) -> None:
    file = place.given("a.md", "tabs")

    with refused("EEXIST"), opened(file, CREATE | os.O_EXCL):
        pass

    assert place.told() == ["created a.md"]


def test_no_file_is_longer_than_a_memory(place: Place) -> None:
    file = place.given("a.md", "x" * LIMIT)

    fd = os.open(file, os.O_WRONLY | os.O_APPEND)
    with refused("EFBIG"):
        os.write(fd, b"y")
    with refused("EFBIG"):
        os.write(fd, b"y")
    with refused("EFBIG"):
        os.close(fd)

    assert place.content("a.md") == "x" * LIMIT
    assert file.read_text() == "x" * LIMIT
    assert place.told() == ["created a.md"]


def test_too_much_at_once_is_refused_and_leaves_no_beginning(place: Place) -> None:
    file = place.dir / "a.md"

    fd = os.open(file, CREATE)
    with refused("EFBIG"):
        write(fd, b"x" * (LIMIT + 1))
    with refused("EFBIG"):
        os.close(fd)

    eventually(lambda: not file.exists())
    assert place.told() == []


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3(", b"\xed\xa0\x80", b"a\0b"])
def test_what_is_no_text_is_refused_at_the_write(place: Place, bad: bytes) -> None:
    file = place.given("a.md", "tabs")

    fd = os.open(file, REPLACE)
    os.write(fd, b"good ")
    with refused("EILSEQ"):
        os.write(fd, bad)
    with refused("EILSEQ"):
        os.write(fd, b"good again")
    with refused("EILSEQ"):
        os.close(fd)

    assert file.read_text() == place.content("a.md") == "tabs"
    assert place.told() == ["created a.md"]


def test_a_character_may_come_in_two_writes(place: Place) -> None:
    with opened(place.dir / "a.md", CREATE) as fd:
        write(fd, b"caf\xc3")
        write(fd, b"\xa9")

    assert place.content("a.md") == "café"


def test_half_a_character_is_refused_at_the_close(place: Place) -> None:
    file = place.given("a.md", "tabs")

    with refused("EILSEQ"), opened(file, REPLACE) as fd:
        write(fd, b"caf\xc3")

    assert place.content("a.md") == "tabs"
    eventually(lambda: file.read_text() == "tabs")


def test_a_new_file_whose_text_is_refused_goes(place: Place) -> None:
    file = place.dir / "a.md"

    with refused("EILSEQ"), opened(file, CREATE) as fd:
        write(fd, b"caf\xc3")

    eventually(lambda: not file.exists())
    assert listing(place.dir) == []
    file.write_text("tabs")
    assert place.told() == ["created a.md"]


def test_a_gap_is_refused_unless_it_is_filled(place: Place) -> None:
    with opened(place.dir / "a.md", CREATE) as fd:
        os.pwrite(fd, b"spaces", 5)
        os.pwrite(fd, b"tabs ", 0)
    with refused("EILSEQ"), opened(place.dir / "b.md", CREATE) as fd:
        os.pwrite(fd, b"spaces", 5)

    assert place.kept() == {"a.md": "tabs spaces"}


def test_truncate_with_no_writer_open_is_a_save_of_its_own(place: Place) -> None:
    file = place.given("a.md", "tabs and spaces")

    os.truncate(file, 4)
    assert place.content("a.md") == "tabs"
    os.truncate(file, 0)

    assert place.content("a.md") == ""
    assert place.told() == ["created a.md", "modified a.md", "modified a.md"]


def test_truncate_with_a_writer_open_is_part_of_its_save(place: Place) -> None:
    file = place.given("a.md", "tabs and spaces")

    with opened(file, os.O_WRONLY | os.O_APPEND) as fd:
        os.ftruncate(fd, 4)
        write(fd, b"!")
        assert place.content("a.md") == "tabs and spaces"

    assert place.content("a.md") == "tabs!"
    assert place.told() == ["created a.md", "modified a.md"]


def test_growth_by_path_is_refused_at_once(place: Place) -> None:
    file = place.given("a.md", "tabs")

    with refused("EILSEQ"):
        os.truncate(file, 10)
    with refused("EFBIG"):
        os.truncate(file, LIMIT + 1)

    assert file.read_text() == place.content("a.md") == "tabs"


def test_growth_of_an_open_file_is_judged_when_it_is_saved(place: Place) -> None:
    with opened(place.given("a.md", "tabs"), EDIT) as fd:
        os.ftruncate(fd, 10)
        os.pwrite(fd, b" and 6", 4)
    with refused("EILSEQ"), opened(place.given("b.md", "tabs"), EDIT) as fd:
        os.ftruncate(fd, 10)
        os.pwrite(fd, b"T", 0)
    with refused("EFBIG"), opened(place.given("c.md", "tabs"), EDIT) as fd:
        os.ftruncate(fd, LIMIT + 1)

    assert place.kept() == {"a.md": "tabs and 6", "b.md": "tabs", "c.md": "tabs"}


def test_zero_bytes_that_are_kept_already_are_no_obstacle(place: Place) -> None:
    place.put("a.md", "a\0b\n")
    file = place.dir / "a.md"
    eventually(file.exists)

    assert file.read_bytes() == b"a\0b\n"
    place.sh("echo more >> a.md")
    with opened(file, EDIT) as fd:
        os.pwrite(fd, b"B", 2)
    place.sh("mv a.md c.md; rm c.md")

    assert place.told() == [
        *("created a.md", "modified a.md", "modified a.md"),
        *("modified c.md", "deleted c.md"),
    ]


def test_pages_that_are_shared_are_saved_at_the_close(place: Place) -> None:
    file = place.given("a.md", "tabs and spaces")

    with opened(file, EDIT) as fd, mmap.mmap(fd, 0) as pages:
        pages[:4] = b"TABS"

    assert place.content("a.md") == "TABS and spaces"
    assert place.told() == ["created a.md", "modified a.md"]


def test_pages_that_are_private_stay_private(place: Place) -> None:
    file = place.given("a.md", "tabs and spaces")

    with opened(file, EDIT) as fd, mmap.mmap(fd, 0, access=mmap.ACCESS_COPY) as pages:
        pages[:4] = b"TABS"
        assert pages[:] == b"TABS and spaces"

    assert place.content("a.md") == "tabs and spaces"
    assert place.told() == ["created a.md"]


def test_a_removed_file_goes_on_working_for_who_has_it_open(place: Place) -> None:
    file = place.given("a.md", "tabs")

    with opened(file, EDIT) as fd:
        file.unlink()
        os.pwrite(fd, b" and spaces", 4)
        assert os.pread(fd, 100, 0) == b"tabs and spaces"
        assert listing(place.dir) == []

    assert place.told() == ["created a.md", "deleted a.md"]
    assert place.mount.store().unsaved == 0


def test_a_removed_file_that_was_never_saved_leaves_nothing(place: Place) -> None:
    file = place.dir / "a.md"

    with opened(file, CREATE) as fd:
        write(fd, b"tabs")
        file.unlink()

    assert place.told() == []
    assert not file.exists()


@pytest.fixture
def small(kept: Kept, start: Start) -> Iterator[Place]:
    """Give a store that may hold three memories."""
    kept.hf.memory_stores.configure(memories_cap=3)
    with start(Target(kept.db, (kept.store(),))) as mount:
        yield Place(mount, kept.hf)


def test_a_store_that_is_full_takes_no_new_file(small: Place) -> None:
    for name in ("a", "b", "c"):
        small.given(name, name)

    with refused("ENOSPC"), opened(small.dir / "d", CREATE):
        pass
    small.sh("echo more >> a; mv b e; rm c; echo new > d")

    assert small.kept() == {"a": "amore\n", "d": "new\n", "e": "b"}
    assert listing(small.dir) == ["a", "d", "e"]


def test_a_temporary_name_gets_no_room_in_a_full_store(small: Place) -> None:
    for name in ("a", "b", "c"):
        small.given(name, name)
    small.given(".a.swp", "from a scratch file")

    with refused("ENOSPC"):
        (small.dir / ".a.swp").rename(small.dir / "d")
    (small.dir / ".a.swp").rename(small.dir / "a")

    assert small.kept() == {"a": "from a scratch file", "b": "b", "c": "c"}
