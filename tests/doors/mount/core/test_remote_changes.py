"""Changes of a store by other clients while it is mounted, and its deletion."""

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from errno import EACCES, EIO, ENOENT, EROFS, ESTALE
from pathlib import Path

import pytest
from doors.mount.core.driven import Driven, Stores, refused
from doors.mount.core.trouble import gone

from holdfast.ground.errors import CursorExpired
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def test_what_is_made_elsewhere_is_there(mount: Driven) -> None:
    mount.given("/d/e/a.md", "x\n")

    assert mount.find("/notes") == ["/notes/d/", "/notes/d/e/", "/notes/d/e/a.md"]
    assert mount.cat("/notes/d/e/a.md") == b"x\n"


def test_what_is_changed_elsewhere_is_never_read_as_it_was(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    reader = mount.open("/notes/a.md")
    assert reader.read() == b"old\n"
    mount.changed(memory, content="newer\n")

    assert mount.size("/notes/a.md") == 6
    assert mount.cat("/notes/a.md") == b"newer\n"
    assert reader.read() == b"newer\n"


def test_what_is_renamed_elsewhere_has_its_new_name(mount: Driven) -> None:
    memory = mount.given("/a.md", "x\n")
    mount.changed(memory, path="/d/b.md")

    assert mount.find("/notes") == ["/notes/d/", "/notes/d/b.md"]
    assert mount.cat("/notes/d/b.md") == b"x\n"


def test_what_is_deleted_elsewhere_is_gone(mount: Driven) -> None:
    memory = mount.given("/a.md")
    mount.deleted(memory)

    assert mount.ls("/notes") == []
    with refused(ENOENT):
        mount.open("/notes/a.md")


def test_a_directory_renamed_elsewhere_is_renamed(mount: Driven) -> None:
    mount.given("/d/a.md", "a")
    mount.given("/d/e/b.md", "b")
    mount.hf.memory_stores.memories.rename(mount.id(), "/d", "/f")
    mount.settle()

    assert mount.find("/notes") == ["/notes/f/", "/notes/f/a.md", "/notes/f/e/", "/notes/f/e/b.md"]


@pytest.mark.parametrize("renamed", [False, True])
def test_a_file_made_elsewhere_at_the_name_of_a_backup_is_shown(
    mount: Driven, renamed: bool
) -> None:
    mount.given("/a.md", "one\n")
    with mount.sources["notes"].lull():
        mount.given_elsewhere("/a.md~", "elsewhere\n")
        mount.core.rename("/notes/a.md", "/notes/a.md~")
        # The memory of the backup, still /a.md in the store, changes after the other was made.
        mount.append("/notes/a.md~", b"two\n")
    mount.settle()
    if renamed:
        mount.core.rename("/notes/a.md~", "/notes/b.md")
    mount.later.advance(10)

    shown = {path: mount.cat(path).decode() for path in mount.find("/notes")}
    assert shown == {f"/notes{path}": content for path, content in mount.kept().items()}
    assert sorted(shown.values()) == ["elsewhere\n", "one\ntwo\n"]


def test_two_memories_that_change_names_elsewhere(mount: Driven) -> None:
    first, second = mount.given("/a.md", "first"), mount.given("/b.md", "second")
    with mount.sources["notes"].lull():
        for memory, path in ((first, "/c.md"), (second, "/a.md"), (first, "/b.md")):
            mount.hf.memory_stores.memories.update(memory.id, memory_store_id=mount.id(), path=path)
    mount.settle()

    assert mount.ls("/notes") == ["a.md", "b.md"]
    assert (mount.cat("/notes/a.md"), mount.cat("/notes/b.md")) == (b"second", b"first")


def test_a_file_replaced_by_another_memory_elsewhere(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.delete(memory.id, memory_store_id=mount.id())
        newer = mount.hf.memory_stores.memories.create(mount.id(), path="/a.md", content="new\n")
    mount.settle()

    assert mount.cat("/notes/a.md") == b"new\n"
    assert mount.core.getxattr("/notes/a.md", "user.holdfast.id") == newer.id.encode()


def test_a_file_that_becomes_a_directory_elsewhere(mount: Driven) -> None:
    memory = mount.given("/a", "x\n")
    mount.changed(memory, path="/a/b")

    assert mount.find("/notes") == ["/notes/a/", "/notes/a/b"]
    mount.changed(memory, path="/a")
    assert mount.find("/notes") == ["/notes/a"]


def test_the_counts_follow(mount: Driven) -> None:
    memory = mount.given("/a.md")
    mount.given("/b.md")
    assert (mount.told()["memories"], mount.core.statfs("/notes").free_files) == (2, 9_998)
    mount.deleted(memory)

    assert (mount.told()["memories"], mount.core.statfs("/notes").free_files) == (1, 9_999)


def test_a_new_cap_is_known(mount: Driven) -> None:
    mount.hf.memory_stores.configure(memories_cap=3)
    mount.given("/a.md")

    assert mount.core.statfs("/notes").files == 3


def test_everything_elsewhere_at_once(mount: Driven) -> None:
    memories = mount.hf.memory_stores.memories
    with mount.sources["notes"].lull():
        for number in range(300):
            memories.create(mount.id(), path=f"/d{number % 7}/{number}.md", content=str(number))
        memories.delete_under(mount.id(), "/d3")
    mount.settle()

    assert len([path for path in mount.find("/notes") if not path.endswith("/")]) == 257
    assert mount.cat("/notes/d5/40.md") == b"40"


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("length", [4, 102_401])
def test_a_file_in_which_a_truncation_changed_nothing_is_followed(
    mount: Driven, length: int, closed: bool
) -> None:
    memory = mount.given("/a.md", "old\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    with suppress(OSError):
        file.truncate(length)
    if closed:
        file.close()
    mount.changed(memory, content="newer\n")
    assert mount.cat("/notes/a.md") == b"newer\n"

    mount.deleted(memory)
    assert mount.ls("/notes") == []


# What the kernel must forget


def test_the_kernel_forgets_what_a_file_was(mount: Driven) -> None:
    memory = mount.given("/d/a.md")
    mount.changed(memory, content="new\n")

    assert "/notes/d/a.md" in mount.kernel.contents


def test_the_kernel_forgets_a_name_that_is_gone(mount: Driven) -> None:
    memory = mount.given("/d/a.md")
    mount.deleted(memory)

    assert ("/notes/d", "a.md") in mount.kernel.names
    assert ("/notes", "d") in mount.kernel.names


def test_the_kernel_forgets_a_name_that_was_moved(mount: Driven) -> None:
    memory = mount.given("/d/a.md")
    mount.changed(memory, path="/d/b.md")

    assert ("/notes/d", "a.md") in mount.kernel.names


def test_the_kernel_is_told_nothing_of_what_was_done_here(mount: Driven) -> None:
    mount.put("/notes/a.md", b"x")
    mount.put("/notes/a.md", b"y")
    mount.core.rename("/notes/a.md", "/notes/b.md")
    mount.core.unlink("/notes/b.md")
    mount.settle()

    assert mount.kernel.contents == []
    assert mount.kernel.names == []


def test_the_kernel_forgets_a_file_whose_save_gave_other_content(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    with mount.sources["notes"].lull():
        mount.hf.memory_stores.memories.update(
            memory.id, memory_store_id=mount.id(), content="one\ntwo\n"
        )
        mount.append("/notes/a.md", b"mine\n")

        assert mount.cat("/notes/a.md") == b"one\ntwo\nmine\n"
        assert "/notes/a.md" in mount.kernel.contents


def test_the_kernel_forgets_a_new_file_that_was_refused(mount: Driven) -> None:
    with refused():
        mount.put("/notes/a.md", b"\xff")

    assert ("/notes", "a.md") in mount.kernel.names


def test_the_kernel_forgets_what_a_refused_file_was_written_to(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    with refused():
        mount.put("/notes/a.md", b"\xff")

    assert "/notes/a.md" in mount.kernel.contents


def test_the_kernel_forgets_a_directory_that_a_memory_replaced(mount: Driven) -> None:
    mount.core.mkdir("/notes/d")
    mount.given("/d", "x")

    assert ("/notes", "d") in mount.kernel.names


# The feed is lost


def test_while_nothing_is_heard_what_is_known_is_read(mount: Driven) -> None:
    mount.given("/a.md", "x\n")
    mount.settle()
    mount.cat("/notes/a.md")
    source = mount.sources["notes"]
    source.away()
    source.deaf = gone
    mount.until(lambda: mount.state() == "degraded")

    assert mount.cat("/notes/a.md") == b"x\n"
    assert mount.ls("/notes") == ["a.md"]
    assert "mount.degraded" in mount.event_types()


def test_what_happened_while_nothing_was_heard_is_caught_up(mount: Driven) -> None:
    memory = mount.given("/a.md", "old\n")
    doomed = mount.given("/b.md", "x\n")
    mount.cat("/notes/a.md")
    source = mount.sources["notes"]
    source.deaf = gone
    mount.until(lambda: mount.state() == "degraded")
    mount.hf.memory_stores.memories.update(memory.id, memory_store_id=mount.id(), content="newer\n")
    mount.hf.memory_stores.memories.delete(doomed.id, memory_store_id=mount.id())
    mount.hf.memory_stores.memories.create(mount.id(), path="/c.md", content="c")
    source.heal()
    mount.until(lambda: mount.state() == "ok")
    mount.settle()

    assert mount.ls("/notes") == ["a.md", "c.md"]
    assert mount.cat("/notes/a.md") == b"newer\n"
    assert "/notes/a.md" in mount.kernel.contents
    assert ("/notes", "b.md") in mount.kernel.names


def test_unsaved_bytes_outlast_a_time_in_which_nothing_is_heard(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    file = mount.open("/notes/a.md", APPEND)
    file.write(b"mine\n")
    made = mount.open("/notes/b.md", NEW)
    made.write(b"b\n")
    mount.core.mkdir("/notes/d")
    source = mount.sources["notes"]
    source.deaf = lambda: CursorExpired(1)
    mount.given_elsewhere("/c.md")
    source.heal()
    mount.until(lambda: mount.exists("/notes/c.md"))
    file.close()
    made.close()

    assert mount.kept() == {"/a.md": "old\nmine\n", "/b.md": "b\n", "/c.md": "x\n"}
    assert mount.ls("/notes") == ["a.md", "b.md", "c.md", "d"]


def test_a_feed_that_is_lost_in_one_store_leaves_the_others(mount: Driven) -> None:
    mount.sources["notes"].deaf = gone
    mount.until(lambda: mount.state() == "degraded")
    mount.given("/a.md", "x", slug="other")

    assert mount.cat("/other/a.md") == b"x"


# Two mounts of one store


@pytest.fixture
def second(mount: Driven) -> Driven:
    return mount.again()


def settle(*mounts: Driven) -> None:
    for mount in mounts:
        mount.settle()


def test_what_one_mount_saves_the_other_shows(mount: Driven, second: Driven) -> None:
    mount.put("/notes/a.md", b"one\n")
    settle(mount, second)
    second.append("/notes/a.md", b"two\n")
    settle(mount, second)

    assert mount.cat("/notes/a.md") == second.cat("/notes/a.md") == b"one\ntwo\n"


def test_appends_of_both_mounts_are_kept_once_each(mount: Driven, second: Driven) -> None:
    mount.given("/a.md", "")
    second.settle()

    def log(who: Driven, name: str) -> None:
        for number in range(25):
            who.append("/notes/a.md", f"{name}{number}\n".encode())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(log, (mount, second, mount, second), "abcd"))

    lines = (mount.at("/a.md").content or "").splitlines()
    assert sorted(lines) == sorted(f"{name}{number}" for name in "abcd" for number in range(25))
    settle(mount, second)
    assert mount.cat("/notes/a.md") == second.cat("/notes/a.md")


def test_of_two_editors_the_first_close_wins(mount: Driven, second: Driven) -> None:
    mount.given("/a.md", "one two\n")
    second.settle()
    mine, theirs = mount.open("/notes/a.md", os.O_RDWR), second.open("/notes/a.md", os.O_RDWR)
    mine.write(b"ONE", 0)
    theirs.write(b"TWO", 4)
    theirs.close()

    with refused(ESTALE):
        mine.close()
    assert mount.kept() == {"/a.md": "one TWO\n"}


def test_a_temporary_file_is_seen_in_its_own_mount_only(mount: Driven, second: Driven) -> None:
    mount.put("/notes/a.tmp", b"x")
    mount.put("/notes/.a.swp", b"x")
    second.settle()

    assert second.ls("/notes") == []


def test_both_mounts_make_the_same_file(mount: Driven, second: Driven) -> None:
    mine, theirs = mount.open("/notes/a.md", NEW), second.open("/notes/a.md", NEW)
    mine.write(b"mine\n")
    theirs.write(b"theirs\n")
    with mount.made("created", "modified"):
        mine.close()
        theirs.close()
    settle(mount, second)

    assert mount.cat("/notes/a.md") == second.cat("/notes/a.md") == b"theirs\n"


# Sessions


@pytest.fixture
def attached(hf: Holdfast, clock: FrozenClock, tmp_path: Path) -> Iterator[tuple[Driven, str]]:
    """Give a mount that acts through a session, and the session's id."""
    store = hf.memory_stores.create(name="Notes")
    session = hf.sessions.create(
        agent="agent_1",
        environment_id="env_1",
        resources=[{"type": "memory_store", "memory_store_id": store.id}],
    )
    narrowed = hf.for_session(session.id)
    stores: Stores = {"notes": (store, "read_write")}
    mount = Driven(narrowed, clock, tmp_path / "spool", stores, {"session_id": session.id})
    yield mount.start(), session.id
    mount.hf = hf
    mount.end()


def test_through_a_session_the_versions_are_the_sessions(
    attached: tuple[Driven, str], hf: Holdfast
) -> None:
    mount, session_id = attached
    mount.put("/notes/a.md", b"x")

    (version,) = hf.memory_stores.memory_versions.list(mount.id()).data
    assert version.created_by.to_wire() == {"type": "session_actor", "session_id": session_id}


def test_once_its_session_is_archived_a_mount_is_read_only(
    attached: tuple[Driven, str], hf: Holdfast
) -> None:
    mount, session_id = attached
    mount.put("/notes/a.md", b"x")
    file = mount.open("/notes/b.md", NEW)
    file.write(b"mine")
    hf.sessions.archive(session_id)
    mount.until(lambda: mount.core.getattr("/notes").mode & 0o777 == 0o555)

    with refused(EROFS):
        mount.core.create("/notes/c.md", os.O_WRONLY | os.O_CREAT)
    with refused(EROFS, EACCES):
        file.close()
    assert [left.content for left in mount.spooled()] == [b"mine"]


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
