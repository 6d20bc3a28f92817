"""Writes to a mount: when bytes become a version, and what is seen of files."""

import json
import mmap
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from doors.mount.real.calls import W_OK, access, listing, opened, refused, write
from doors.mount.real.kept import Kept
from doors.mount.real.mounting import Mount, Start, Target, eventually
from doors.mount.real.place import SECONDS, Place

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


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BLOCK, BLOCKS_EACH = 4096, 25


def nanoseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000


def test_a_file_is_0644_and_a_directory_0755_of_whoever_mounted(place: Place) -> None:
    file = place.given("a.md", "tabs").stat()
    (place.dir / "d").mkdir()
    directory = (place.dir / "d").stat()

    assert (stat.filemode(file.st_mode), file.st_nlink) == ("-rw-r--r--", 1)
    assert (stat.filemode(directory.st_mode), directory.st_nlink) == ("drwxr-xr-x", 2)
    assert {file.st_uid, directory.st_uid} == {os.getuid()}
    assert {file.st_gid, directory.st_gid} == {os.getgid()}


def test_the_directory_of_the_mount_cannot_be_written(mount: Mount) -> None:
    assert stat.filemode(mount.dir.stat().st_mode) == "dr-xr-xr-x"
    assert listing(mount.dir) == ["notes"]
    with refused("EROFS"):
        (mount.dir / "a.md").write_text("tabs")
    with refused("EROFS"):
        (mount.dir / "d").mkdir()
    with refused("EROFS"):
        mount.root().rename(mount.dir / "other")
    with refused("EROFS"):
        mount.root().rmdir()


def test_a_file_is_as_old_as_its_head(place: Place) -> None:
    file = place.given("a.md", "tabs")

    memory, shown = place.at("a.md"), file.stat()

    assert memory is not None
    assert shown.st_mtime_ns == shown.st_ctime_ns == nanoseconds(memory.updated_at)


def test_what_is_not_saved_yet_shows_its_size_and_the_time_of_its_last_write(place: Place) -> None:
    file = place.given("a.md", "tabs")
    saved = file.stat().st_mtime_ns

    with opened(file, os.O_WRONLY | os.O_APPEND) as fd:
        write(fd, b" and spaces")

        assert file.stat().st_size == 15
        assert file.stat().st_mtime_ns > saved
        assert os.fstat(fd).st_size == 15


def test_an_inode_stays_through_saves_and_moves(place: Place) -> None:
    file = place.given("a.md", "tabs")
    number = file.stat().st_ino

    place.sh("echo more >> a.md; echo spaces > a.md; mv a.md b.md; mkdir d; mv b.md d; mv d/b.md .")

    assert (place.dir / "b.md").stat().st_ino == number


def test_ls_knows_inodes_and_types_without_a_stat(place: Place) -> None:
    for name in ("plain.md", ".plain.md.swp", "sedAb12_9"):
        place.given(name, "x")
    (place.dir / "d").mkdir()

    with os.scandir(place.dir) as found:
        shown = {each.name: (each.is_dir(follow_symlinks=False), each.inode()) for each in found}

    assert shown == {
        name: (name == "d", (place.dir / name).stat().st_ino)
        for name in ("plain.md", ".plain.md.swp", "sedAb12_9", "d")
    }


def test_a_listing_has_what_stays_once_while_others_come_and_go(place: Place) -> None:
    stays = {f"stays {number:03}" for number in range(250)}
    for name in stays:
        place.put(name, "x")
    for number in range(50):
        place.given(f"goes {number:02}.swap", "x")
    eventually(lambda: len(listing(place.dir)) == 300)

    with os.scandir(place.dir) as found:
        seen = [next(found).name]
        for number in range(50):
            (place.dir / f"goes {number:02}.swap").unlink()
            place.given(f"a new one {number:02}", "x")
            seen.append(next(found).name)
        seen += [each.name for each in found]

    assert len(seen) == len(set(seen))
    assert stays <= set(seen)


def test_a_store_that_is_read_only_says_so_even_to_root(place_read_only: Place) -> None:
    place_read_only.put("d/a.md", "tabs")
    file = place_read_only.dir / "d" / "a.md"
    eventually(file.exists)

    assert stat.filemode(file.stat().st_mode) == "-r--r--r--"
    assert stat.filemode(file.parent.stat().st_mode) == "dr-xr-xr-x"
    with refused("EROFS"):
        access(file, W_OK)
    with refused("EROFS"):
        access(file.parent, W_OK)
    access(file, os.R_OK)


@pytest.fixture
def place_read_only(kept: Kept, start: Start) -> Iterator[Place]:
    """Give a store that is mounted read-only."""
    with start(Target(kept.db, (kept.store(),)), "--read-only") as mount:
        yield Place(mount, kept.hf)


def test_df_counts_memories_as_files(kept: Kept, start: Start) -> None:
    kept.hf.memory_stores.configure(memories_cap=50)
    stores = kept.store("One"), kept.store("Two")
    with start(Target(kept.db, stores)) as mount:
        one = Place(mount, kept.hf)
        for number in range(4):
            one.given(f"{number}", "x")

        shown, both = os.statvfs(one.dir), os.statvfs(mount.dir)

    assert (shown.f_files, shown.f_ffree, shown.f_favail) == (50, 46, 46)
    assert (shown.f_bsize, shown.f_namemax) == (BLOCK, 255)
    assert (shown.f_blocks, shown.f_bfree) == (50 * BLOCKS_EACH, 46 * BLOCKS_EACH)
    assert (both.f_files, both.f_ffree) == (100, 96)
    assert both.f_bfree == 96 * BLOCKS_EACH


def test_a_file_has_the_id_the_version_and_the_hash_of_its_memory(place: Place) -> None:
    file = place.given("a.md", "tabs")

    memory = place.at("a.md")
    told = {name: os.getxattr(file, name).decode() for name in os.listxattr(file)}

    assert memory is not None
    assert told == {
        "user.holdfast.id": memory.id,
        "user.holdfast.version": memory.memory_version_id,
        "user.holdfast.sha256": memory.content_sha256,
    }


def test_a_directory_names_its_store_and_the_status_as_json(place: Place) -> None:
    assert sorted(os.listxattr(place.dir)) == ["user.holdfast.status", "user.holdfast.store"]
    assert os.getxattr(place.dir, "user.holdfast.store").decode() == place.store_id
    assert isinstance(json.loads(os.getxattr(place.dir, "user.holdfast.status")), dict)


def test_attributes_cannot_be_set_and_others_are_not_there(place: Place) -> None:
    file = place.given("a.md", "tabs")

    with refused("EOPNOTSUPP"):
        os.setxattr(file, "user.mine", b"x")
    with refused("EOPNOTSUPP"):
        os.setxattr(file, "user.holdfast.id", b"x")
    for where in (file, place.dir):
        with refused("ENODATA"):
            os.getxattr(where, "user.mine")


def test_modes_owners_and_times_are_taken_and_make_no_version(place: Place) -> None:
    file = place.given("a.md", "tabs")
    before = file.stat()

    file.chmod(0o600)
    os.chown(file, os.getuid(), os.getgid())
    os.utime(file, (1, 1))
    place.sh("touch a.md; chmod +x a.md; touch -d 2001-01-01 a.md")

    assert place.told() == ["created a.md"]
    after = file.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


MANY = 300
PROGRAMS = 16


def put(place: Place, count: int, roof: str = "") -> None:
    """Put memories elsewhere, and wait until the mount shows them."""
    for number in range(count):
        place.put(f"{roof}{number:03}.md", f"{number}\n")
    eventually(lambda: len(listing(place.dir / roof)) == count)


def at_once(place: Place, script: str, programs: int = PROGRAMS) -> list[int]:
    """Run *script* in many shells at once, `$0` a number of its own; return how they ended."""
    running = [
        subprocess.Popen(["bash", "-c", script, str(number)], cwd=place.dir)
        for number in range(programs)
    ]
    return [each.wait(SECONDS) for each in running]


@pytest.mark.parametrize(
    "way", ["rm -r d", "find d -delete", "rsync -a --delete empty/ d/; rm -r d"]
)
def test_a_large_directory_is_removed_whole_while_it_is_read(place: Place, way: str) -> None:
    (place.dir / "empty").mkdir()
    put(place, MANY, "d/")

    place.sh(way)

    assert listing(place.dir) == ["empty"]
    assert place.kept() == {}


def test_a_large_directory_is_listed_and_read_whole(place: Place) -> None:
    put(place, MANY)

    said = place.sh("ls | wc -l; ls -lU | wc -l; cat *.md | wc -l; grep -rl 7 . | wc -l")

    sevens = sum("7" in str(number) for number in range(MANY))
    assert said.split() == [str(MANY), str(MANY + 1), str(MANY), str(sevens)]


def test_every_file_of_many_programs_is_saved_once(place: Place) -> None:
    codes = at_once(place, "for n in 1 2 3 4 5; do echo $0 > $0-$n; done")

    assert codes == [0] * PROGRAMS
    assert place.kept() == {f"{p}-{n}": f"{p}\n" for p in range(PROGRAMS) for n in range(1, 6)}
    assert len(place.told()) == 5 * PROGRAMS


def test_of_many_programs_that_replace_one_file_each_is_a_version(place: Place) -> None:
    place.given("a.md", "begin")

    codes = at_once(place, "echo $0 > $0.tmp; mv $0.tmp a.md")

    assert codes == [0] * PROGRAMS
    assert place.told() == ["created a.md", *(["modified a.md"] * PROGRAMS)]
    assert listing(place.dir) == ["a.md"]


def test_of_many_programs_that_append_every_line_is_there_once(place: Place) -> None:
    codes = at_once(place, "for n in 1 2 3 4 5; do echo $0 $n >> log; done")

    assert codes == [0] * PROGRAMS
    lines = (place.content("log") or "").splitlines()
    assert sorted(lines) == sorted(f"{p} {n}" for p in range(PROGRAMS) for n in range(1, 6))
    assert (place.dir / "log").read_text() == place.content("log")


def test_of_many_programs_that_make_one_name_one_does(place: Place) -> None:
    for script in ("set -C; echo $0 2> /dev/null > lock", "mkdir 2> /dev/null directory"):
        assert sorted(at_once(place, script)) == [0, *([1] * (PROGRAMS - 1))]

    assert place.told() == ["created lock"]


def test_of_many_programs_that_lock_a_file_each_counts_once(place: Place) -> None:
    place.given("count", "0")

    codes = at_once(place, "exec 9<> count; flock 9; read -u9 n; echo $((n + 1)) > count")

    assert codes == [0] * PROGRAMS
    assert place.content("count") == f"{PROGRAMS}\n"
    assert len(place.told()) == PROGRAMS + 1


def test_programs_that_write_one_file_over_and_over_leave_one_of_theirs_whole(place: Place) -> None:
    script = "for n in {1..10}; do printf '%01000d' $0 > a.md; done"

    codes = at_once(place, script, programs=8)

    assert codes == [0] * 8
    whole = {f"{number:01000}" for number in range(8)}
    versions = [each.content_size_bytes for each in place.versions()]
    assert place.content("a.md") in whole
    assert set(versions) <= {0, 1000}


def test_what_follows_a_file_sees_what_is_appended_here_and_elsewhere(place: Place) -> None:
    place.given("log", "one\n")
    line = ["timeout", str(SECONDS), "tail", "-s", "0.05", "-n", "+1", "-f", "log"]

    with subprocess.Popen(line, cwd=place.dir, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == "one\n"
        place.sh("echo two >> log")
        assert tail.stdout.readline() == "two\n"
        place.put("log", "one\ntwo\nthree\n")
        assert tail.stdout.readline() == "three\n"
        tail.terminate()


def test_reading_and_writing_past_the_page_cache_are_as_ever(place: Place) -> None:
    place.given("a.md", "tabs\n" * 1000)

    said = place.sh("dd if=a.md iflag=direct bs=4096 status=none | cksum; cksum < a.md")
    place.sh("dd if=a.md of=b.md oflag=direct bs=5000 status=none")

    assert len(set(said.splitlines())) == 1
    assert place.content("b.md") == "tabs\n" * 1000
    assert place.told() == ["created a.md", "created b.md"]


def test_a_program_that_dies_leaves_what_it_wrote_as_its_closes_would(place: Place) -> None:
    script = (
        "import os; f = open('a.md', 'w', buffering=1); f.write('tabs\\n'); os.kill(os.getpid(), 9)"
    )

    ran = subprocess.run([sys.executable, "-c", script], cwd=place.dir, check=False)

    assert ran.returncode == -9
    eventually(lambda: place.kept() == {"a.md": "tabs\n"})
    assert listing(place.dir) == ["a.md"]
