"""A store that is deleted or archived while it is mounted."""

import os
import stat
from errno import EIO, EROFS, ESTALE

from doors.mount.core.driven import Driven, refused
from doors.mount.core.trouble import gone

NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def _delete_store(mount: Driven) -> None:
    """Delete the store elsewhere, and wait until the mount knows."""
    mount.hf.memory_stores.delete(mount.id())
    mount.until(lambda: mount.core.getattr("/notes").mode == stat.S_IFDIR | 0o555)


def _archive_store(mount: Driven) -> None:
    """Archive the store elsewhere, and wait until the mount knows."""
    mount.hf.memory_stores.archive(mount.id())
    mount.until(lambda: mount.core.getattr("/notes").mode == stat.S_IFDIR | 0o555)


def test_a_deleted_store_is_an_empty_directory_that_cannot_be_written(mount: Driven) -> None:
    mount.given("/a.md")
    _delete_store(mount)

    assert mount.ls("/notes") == []
    assert mount.ls("/") == ["notes", "other", "rules"]
    assert mount.core.getattr("/notes").mode == stat.S_IFDIR | 0o555
    for act in (
        lambda: mount.core.create("/notes/b.md", os.O_WRONLY | os.O_CREAT),
        lambda: mount.core.mkdir("/notes/d"),
    ):
        with refused(ESTALE):
            act()


def test_open_files_of_a_deleted_store_are_stale(mount: Driven) -> None:
    mount.given("/a.md")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"x", 0)
    _delete_store(mount)

    with refused(ESTALE):
        file.read()
    with refused(ESTALE):
        file.write(b"y", 0)
    with refused(ESTALE):
        file.flush()
    file.release()


def test_what_a_deleted_store_left_unsaved_is_forgotten_and_told(mount: Driven) -> None:
    mount.given("/a.md")
    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/a.md", b"mine\n")
    mount.put("/notes/b.tmp", b"x")
    mount.events.clear()
    mount.sources["notes"].heal()
    _delete_store(mount)

    assert mount.spooled() == []
    assert not (mount.root / mount.id()).exists()
    assert mount.event_types()


def test_a_deleted_store_does_not_touch_the_others(mount: Driven) -> None:
    _delete_store(mount)
    mount.put("/other/a.md", b"x")

    assert mount.kept("other") == {"/a.md": "x"}


def test_an_archived_store_is_read_only(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    _archive_store(mount)

    assert mount.cat("/notes/a.md") == b"old\n"
    assert mount.core.getattr("/notes/a.md").mode == stat.S_IFREG | 0o444
    with refused(EROFS):
        mount.put("/notes/a.md", b"x")
    with refused(EROFS):
        mount.core.unlink("/notes/a.md")
    assert mount.told()["archived_at"]


def test_what_an_archived_store_left_unsaved_is_spooled(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    file = mount.open("/notes/a.md", NEW)
    file.write(b"mine\n")
    _archive_store(mount)
    with refused(EROFS):
        file.close()

    assert [left.content for left in mount.spooled()] == [b"mine\n"]
    assert mount.cat("/notes/a.md") == b"old\n"


def test_a_store_archived_since_the_mount_last_heard_refuses_the_save(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.archive(mount.id())
        with refused(EROFS):
            mount.put("/notes/a.md", b"mine\n")

    assert [left.content for left in mount.spooled()] == [b"mine\n"]


def test_a_store_that_was_archived_before_is_read_only(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    mount.hf.memory_stores.archive(mount.id())
    heir = mount.again()

    assert heir.core.getattr("/notes").mode == stat.S_IFDIR | 0o555
    with refused(EROFS):
        heir.put("/notes/b.md", b"x")
