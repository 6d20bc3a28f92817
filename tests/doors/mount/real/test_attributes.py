"""What `stat`, `ls`, `access`, `df` and extended attributes say of a mounted store."""

import json
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from doors.mount.real.calls import W_OK, access, listing, opened, refused, write
from doors.mount.real.kept import Kept
from doors.mount.real.mounting import Mount, Start, Target, eventually
from doors.mount.real.place import Place

pytestmark = pytest.mark.fuse

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
