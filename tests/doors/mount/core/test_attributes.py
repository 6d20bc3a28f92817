"""What is seen of files and directories without opening them."""

import json
import os
import stat
from datetime import datetime
from errno import ENODATA, ENOENT, ENOTDIR, ENOTSUP, EROFS

import pytest
from doors.mount.core.driven import Drive, Driven, refused

from holdfast.ground.clock import to_microseconds


def ns(instant: datetime) -> int:
    return to_microseconds(instant) * 1000


def test_a_file_is_0644_and_a_directory_0755(mount: Driven) -> None:
    mount.given("/d/a.md", "12345")
    file, directory = mount.core.getattr("/notes/d/a.md"), mount.core.getattr("/notes/d")

    assert (file.mode, file.nlink, file.size) == (stat.S_IFREG | 0o644, 1, 5)
    assert (directory.mode, directory.nlink) == (stat.S_IFDIR | 0o755, 2)


def test_in_a_read_only_store_a_file_is_0444_and_a_directory_0555(mount: Driven) -> None:
    mount.given("/d/a.md", "x", slug="rules")

    assert mount.core.getattr("/rules/d/a.md").mode == stat.S_IFREG | 0o444
    assert mount.core.getattr("/rules/d").mode == stat.S_IFDIR | 0o555
    assert mount.core.getattr("/rules").mode == stat.S_IFDIR | 0o555


def test_in_a_read_only_mount_every_store_is_read_only(drive: Drive) -> None:
    mount = drive(read_only=True).start()
    mount.given("/a.md")

    assert mount.core.getattr("/notes").mode == stat.S_IFDIR | 0o555
    assert mount.core.getattr("/notes/a.md").mode == stat.S_IFREG | 0o444
    with refused(EROFS):
        mount.put("/notes/b.md", b"x")


def test_the_root_holds_the_slugs_and_cannot_be_written(mount: Driven) -> None:
    assert mount.core.getattr("/").mode == stat.S_IFDIR | 0o555
    assert mount.core.getattr("/notes").mode == stat.S_IFDIR | 0o755
    assert mount.ls("/") == ["notes", "other", "rules"]


def test_nothing_is_made_renamed_or_removed_directly_in_the_root(mount: Driven) -> None:
    mount.given("/a.md")

    for act in (
        lambda: mount.core.create("/a.md", os.O_WRONLY),
        lambda: mount.core.mkdir("/new"),
        lambda: mount.core.rmdir("/notes"),
        lambda: mount.core.rename("/notes", "/else"),
        lambda: mount.core.rename("/notes/a.md", "/a.md"),
    ):
        with refused(EROFS):
            act()


def test_a_slug_stays_when_its_store_is_renamed(mount: Driven) -> None:
    mount.hf.memory_stores.update(mount.id(), name="Something else")
    mount.given("/a.md")

    assert mount.ls("/") == ["notes", "other", "rules"]
    assert mount.ls("/notes") == ["a.md"]


def test_the_times_of_a_file_are_its_memorys(mount: Driven) -> None:
    memory = mount.given("/a.md")
    mount.clock.tick(100)

    assert mount.core.getattr("/notes/a.md").mtime_ns == ns(memory.updated_at)


def test_while_unsaved_the_time_is_that_of_the_last_write(mount: Driven) -> None:
    mount.given("/a.md")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"x")
    wrote = mount.clock.tick(100)
    file.write(b"y")
    mount.clock.tick(100)

    assert mount.core.getattr("/notes/a.md").mtime_ns == ns(wrote)


def test_once_saved_the_time_is_that_of_the_version(mount: Driven) -> None:
    mount.put("/notes/a.md", b"x")
    mount.clock.tick(100)

    assert mount.core.getattr("/notes/a.md").mtime_ns == ns(mount.at("/a.md").updated_at)


def test_an_inode_stays_as_long_as_the_file(mount: Driven) -> None:
    memory = mount.given("/a.md")
    inode = mount.core.getattr("/notes/a.md").inode
    mount.put("/notes/a.md", b"new\n")
    mount.changed(memory, content="newer\n")
    mount.core.rename("/notes/a.md", "/notes/b.md")
    mount.changed(memory, path="/c.md")

    assert mount.core.getattr("/notes/c.md").inode == inode


def test_no_two_files_have_one_inode(mount: Driven) -> None:
    for path in ("/a.md", "/d/a.md", "/d/b.md", "/e/a.md"):
        mount.given(path)
        mount.given(path, slug="other")
    every = [path.rstrip("/") for path in mount.find()]
    inodes = [mount.core.getattr(path).inode for path in [*every, "/"]]

    assert len(set(inodes)) == len(inodes)
    assert all(inodes)


def test_what_is_not_there(mount: Driven) -> None:
    mount.given("/a.md")

    for path in ("/nowhere", "/notes/nothing", "/notes/d/a.md"):
        with refused(ENOENT):
            mount.core.getattr(path)
    with refused(ENOTDIR):
        mount.core.getattr("/notes/a.md/b")


def test_may_it_be_written(mount: Driven) -> None:
    mount.given("/a.md")
    mount.given("/a.md", slug="rules")
    mount.core.access("/notes/a.md", os.W_OK)
    mount.core.access("/notes", os.R_OK | os.W_OK | os.X_OK)
    mount.core.access("/rules/a.md", os.R_OK)
    mount.core.access("/rules", os.R_OK | os.X_OK)

    for path in ("/rules/a.md", "/rules", "/"):
        with refused(EROFS):
            mount.core.access(path, os.W_OK)
    with refused(ENOENT):
        mount.core.access("/notes/b.md", os.R_OK)


def test_a_directory_shows_plain_transient_and_scratch_names(mount: Driven) -> None:
    mount.given("/a.md")
    mount.given("/d/b.md")
    mount.put("/notes/b.tmp", b"x")
    mount.put("/notes/.c.swp", b"x")
    mount.core.mkdir("/notes/e")

    assert mount.ls("/notes") == [".c.swp", "a.md", "b.tmp", "d", "e"]


def test_a_directory_tells_of_each_name_what_getattr_tells(mount: Driven) -> None:
    mount.given("/a.md")
    mount.given("/d/b.md")
    mount.put("/notes/b.tmp", b"x")

    for entry in mount.core.readdir("/notes"):
        assert entry.attributes == mount.core.getattr(f"/notes/{entry.name}")


def test_listing_what_is_no_directory(mount: Driven) -> None:
    mount.given("/a.md")

    with refused(ENOTDIR):
        mount.core.readdir("/notes/a.md")
    with refused(ENOENT):
        mount.core.readdir("/notes/d")


def test_df_tells_of_the_cap_of_one_store(mount: Driven) -> None:
    mount.hf.memory_stores.configure(memories_cap=10)
    mount.given("/a.md")
    mount.given("/b.md")
    space = mount.core.statfs("/notes")

    assert (space.files, space.free_files) == (10, 8)
    assert (space.blocks, space.free_blocks) == (250, 200)
    assert space.name_max == 255


def test_df_of_the_mount_tells_the_sums(mount: Driven) -> None:
    mount.given("/a.md")
    mount.given("/d/b.md", slug="other")
    mount.given("/c.md", slug="rules")
    space = mount.core.statfs("/")

    assert (space.files, space.free_files) == (30_000, 29_997)
    assert (space.blocks, space.free_blocks) == (750_000, 29_997 * 25)


def test_df_below_a_store_tells_of_the_store(mount: Driven) -> None:
    mount.given("/d/b.md")

    assert mount.core.statfs("/notes/d/b.md") == mount.core.statfs("/notes")


def test_what_a_file_is_in_the_store_can_be_read_beside_it(mount: Driven) -> None:
    memory = mount.given("/a.md")

    assert mount.core.getxattr("/notes/a.md", "user.holdfast.id") == memory.id.encode()
    version = memory.memory_version_id.encode()
    assert mount.core.getxattr("/notes/a.md", "user.holdfast.version") == version
    sha256 = memory.content_sha256.encode()
    assert mount.core.getxattr("/notes/a.md", "user.holdfast.sha256") == sha256
    assert {"user.holdfast.id", "user.holdfast.version", "user.holdfast.sha256"} <= set(
        mount.core.listxattr("/notes/a.md")
    )


def test_what_a_file_is_moves_with_it(mount: Driven) -> None:
    mount.put("/notes/a.md", b"one")
    mount.put("/notes/a.md", b"two")
    memory = mount.at("/a.md")

    version = mount.core.getxattr("/notes/a.md", "user.holdfast.version")
    assert version == memory.memory_version_id.encode()


def test_which_store_a_directory_is_of_can_be_read_beside_it(mount: Driven) -> None:
    mount.given("/d/a.md")

    assert mount.core.getxattr("/notes", "user.holdfast.store") == mount.id().encode()
    assert mount.core.getxattr("/notes/d", "user.holdfast.store") == mount.id().encode()


def test_the_status_can_be_read_beside_the_mount(mount: Driven) -> None:
    mount.given("/a.md")
    status = json.loads(mount.core.getxattr("/", "user.holdfast.status"))

    assert [each["slug"] for each in status["stores"]] == ["notes", "other", "rules"]
    assert status["stores"][0]["memories"] == 1


@pytest.mark.parametrize("path", ["/notes/a.md", "/notes", "/"])
@pytest.mark.parametrize("name", ["security.capability", "user.other", "system.posix_acl_access"])
def test_there_are_no_other_attributes(mount: Driven, path: str, name: str) -> None:
    mount.given("/a.md")

    with refused(ENODATA):
        mount.core.getxattr(path, name)


def test_no_attribute_can_be_set_or_removed(mount: Driven) -> None:
    mount.given("/a.md")

    with refused(ENOTSUP):
        mount.core.setxattr("/notes/a.md", "user.holdfast.id")
    with refused(ENOTSUP):
        mount.core.setxattr("/notes/a.md", "user.mine")
    with refused(ENOTSUP):
        mount.core.removexattr("/notes/a.md", "user.holdfast.id")


def test_attributes_that_are_not_kept_can_be_set(mount: Driven) -> None:
    mount.given("/a.md")
    before = mount.core.getattr("/notes/a.md")
    mount.core.change_attributes("/notes/a.md")

    assert mount.core.getattr("/notes/a.md") == before
