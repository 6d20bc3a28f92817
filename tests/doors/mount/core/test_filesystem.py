"""The filesystem of a mount: attributes, counters, and waiting for storage."""

import json
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from errno import EIO, ENODATA, ENOENT, ENOTDIR, ENOTSUP, EROFS, ESTALE

import pytest
from doors.mount.core.driven import Drive, Driven, refused
from doors.mount.core.trouble import BOUND, gone

from holdfast.ground.clock import to_microseconds
from holdfast.memories.stores.edits import Save


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


NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def test_everything_is_counted(mount: Driven) -> None:
    mount.given("/a.md", "old\n")
    mount.put("/notes/b.md", b"x")
    mount.put("/notes/b.md", b"y")
    with refused():
        mount.put("/notes/c.md", b"\xff")
    with refused():
        mount.put("/notes/d.md", b"cut \xc3")
    told = mount.told()

    assert (told["saves"], told["memories"], told["cap"]) == (2, 2, 10_000)
    assert told["refused"] == {"EILSEQ": 1}
    assert told["failed"] == {"EILSEQ": 1}
    assert told["spooled"] == 1


def test_what_is_refused_failed_and_spooled_is_told_once_each(mount: Driven) -> None:
    mount.events.clear()
    with refused():
        mount.put("/notes/c.md", b"\xff")
    assert mount.event_types() == ["mount.refused"]
    with refused():
        mount.put("/notes/d.md", b"cut \xc3")

    assert mount.event_types().count("mount.refused") == 1
    assert mount.event_types().count("mount.failed") == 1
    assert mount.event_types().count("mount.spooled") == 1


def test_an_event_says_which_store_and_errno(mount: Driven) -> None:
    mount.events.clear()
    with refused():
        mount.put("/notes/d.md", b"cut \xc3")
    event = next(each for each in mount.events if each.type == "mount.failed")

    assert mount.id() in event.ids.values()
    assert event.data["errno"] == "EILSEQ"
    assert event.workspace == mount.hf.workspace


def test_a_conflict_is_counted_and_told(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    file = mount.open("/notes/a.md", os.O_RDWR)
    file.write(b"ONE", 0)
    mount.changed(memory, content="else\n")
    with refused(ESTALE):
        file.close()

    assert mount.told()["conflicts"] == 1
    assert "mount.conflict" in mount.event_types()


def test_starting_and_stopping_are_told(mount: Driven) -> None:
    mount.stop()

    assert mount.event_types()[0] == "mount.started"
    assert mount.event_types()[-1] == "mount.stopped"


def test_unsaved_and_retrying_files_are_counted(mount: Driven) -> None:
    mount.open("/notes/a.md", NEW).write(b"x")
    assert (mount.told()["unsaved"], mount.told()["retrying"]) == (1, 0)

    mount.sources["notes"].refusing = gone
    with refused(EIO):
        mount.put("/notes/b.md", b"x")
    assert (mount.told()["unsaved"], mount.told()["retrying"]) == (2, 1)
    assert mount.told()["failed"] == {"EIO": 1}


def test_a_save_edit_names_what_it_goes_by(mount: Driven) -> None:
    memory = mount.given("/a.md", "one\n")
    mount.append("/notes/a.md", b"two\n")
    ((edit,), _) = mount.sources["notes"].applies[-1]

    assert edit == Save(
        path="/a.md",
        content="one\ntwo\n",
        memory_id=memory.id,
        base_sha256=memory.content_sha256,
        appended="two\n",
    )


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def done(*futures: "Future[None]") -> None:
    for future in futures:
        future.result(BOUND)


CACHED: dict[str, Callable[[Driven], object]] = {
    "ls": lambda m: m.ls("/notes"),
    "stat": lambda m: m.core.getattr("/notes/a.md"),
    "stat of what is saved": lambda m: m.core.getattr("/notes/new.md"),
    "read of what is saved": lambda m: m.cat("/notes/new.md"),
    "read": lambda m: m.cat("/notes/a.md"),
    "scratch": lambda m: m.put("/notes/.a.swp", b"x"),
    "mkdir": lambda m: m.core.mkdir("/notes/d"),
    "df": lambda m: m.core.statfs("/notes"),
    "status": lambda m: m.core.status(),
    "xattr": lambda m: m.core.listxattr("/notes/a.md"),
    "write to another": lambda m: m.open("/notes/b.md", NEW).write(b"x"),
    "another store": lambda m: m.put("/other/a.md", b"x"),
}


@pytest.mark.parametrize("act", CACHED.values(), ids=CACHED)
@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_while_a_save_hangs_the_rest_goes_on(
    mount: Driven, pool: ThreadPoolExecutor, applied: bool, act: Callable[[Driven], object]
) -> None:
    mount.given("/a.md", "x")
    mount.cat("/notes/a.md")
    with mount.sources["notes"].hanging(applied=applied) as hangs:
        saving = pool.submit(mount.put, "/notes/new.md", b"new")
        assert hangs.wait(BOUND)

        pool.submit(act, mount).result(BOUND)
        assert not saving.done()
    done(saving)


ASKING: dict[str, Callable[[Driven], None]] = {
    "rename": lambda m: m.core.rename("/notes/a.md", "/notes/b.md"),
    "unlink": lambda m: m.core.unlink("/notes/a.md"),
    "truncate": lambda m: m.core.truncate("/notes/a.md", 0),
    "rename of a directory": lambda m: m.core.rename("/notes/d", "/notes/e"),
}


@pytest.mark.parametrize("act", ASKING.values(), ids=ASKING)
def test_while_something_else_hangs_the_rest_goes_on(
    mount: Driven, pool: ThreadPoolExecutor, act: Callable[[Driven], None]
) -> None:
    for path in ("/a.md", "/d/x.md", "/other.md"):
        mount.given(path, "x")
        mount.cat(f"/notes{path}")
    with mount.sources["notes"].hanging() as hangs:
        acting = pool.submit(act, mount)
        assert hangs.wait(BOUND)

        pool.submit(mount.find).result(BOUND)
        assert pool.submit(mount.cat, "/notes/other.md").result(BOUND) == b"x"
    done(acting)


def test_several_saves_hang_side_by_side(mount: Driven, pool: ThreadPoolExecutor) -> None:
    source = mount.sources["notes"]
    with source.hanging():
        saving = [pool.submit(mount.put, f"/notes/{n}.md", b"x") for n in range(4)]
        mount.until(lambda: len(source.applies) == 4)
    done(*saving)

    assert sorted(mount.kept()) == ["/0.md", "/1.md", "/2.md", "/3.md"]


def test_what_is_written_while_a_save_is_under_way_is_sent_once(
    mount: Driven, pool: ThreadPoolExecutor
) -> None:
    mount.given("/a.md", "one\n")
    first, second = mount.open("/notes/a.md", APPEND), mount.open("/notes/a.md", APPEND)
    first.write(b"two\n")
    with mount.sources["notes"].hanging(applied=True) as hangs:
        saving = pool.submit(first.close)
        assert hangs.wait(BOUND)
        writing = pool.submit(lambda: (second.write(b"three\n"), second.close())[1])
    done(saving, writing)

    assert mount.kept() == {"/a.md": "one\ntwo\nthree\n"}


@pytest.mark.parametrize("applied", [False, True])
def test_what_is_appended_to_a_scratch_file_while_it_is_renamed_is_saved(
    mount: Driven, pool: ThreadPoolExecutor, applied: bool
) -> None:
    mount.put("/notes/.a.swp", b"one\n")
    with mount.sources["notes"].hanging(applied=applied) as hangs:
        renaming = pool.submit(mount.core.rename, "/notes/.a.swp", "/notes/a.md")
        assert hangs.wait(BOUND)
        mount.append("/notes/.a.swp", b"two\n")
    done(renaming)
    mount.later.advance(1)

    assert mount.kept() == {"/a.md": "one\ntwo\n"}
    assert mount.cat("/notes/a.md") == b"one\ntwo\n"


def test_two_closes_at_once_send_each_byte_once(mount: Driven, pool: ThreadPoolExecutor) -> None:
    mount.given("/a.md", "one\n")
    first, second = mount.open("/notes/a.md", APPEND), mount.open("/notes/a.md", APPEND)
    first.write(b"two\n")
    second.write(b"three\n")
    with mount.sources["notes"].hanging() as hangs:
        closing = [pool.submit(first.close), pool.submit(second.close)]
        assert hangs.wait(BOUND)
    done(*closing)

    assert mount.kept() == {"/a.md": "one\ntwo\nthree\n"}


def test_many_programs_append_to_one_file(mount: Driven, pool: ThreadPoolExecutor) -> None:
    def log(name: str) -> None:
        for number in range(20):
            mount.append("/notes/log.md", f"{name}{number}\n".encode())

    list(pool.map(log, "abcdefgh"))

    lines = (mount.at("/log.md").content or "").splitlines()
    assert sorted(lines) == sorted(f"{name}{number}" for name in "abcdefgh" for number in range(20))
    assert mount.cat("/notes/log.md").decode().splitlines() == lines


def test_many_programs_write_files_of_their_own(mount: Driven, pool: ThreadPoolExecutor) -> None:
    def work(name: str) -> None:
        mount.core.mkdir(f"/notes/{name}")
        for number in range(10):
            path = f"/notes/{name}/{number}.md"
            mount.put(f"{path}.tmp", f"{name}{number}".encode())
            mount.core.rename(f"{path}.tmp", path)
            assert mount.cat(path) == f"{name}{number}".encode()
            mount.append(path, b"!")

    list(pool.map(work, "abcdefgh"))

    assert mount.kept() == {f"/{n}/{i}.md": f"{n}{i}!" for n in "abcdefgh" for i in range(10)}
    assert len(mount.versions()) == 160


def test_a_file_never_vanishes_while_it_is_renamed(mount: Driven, pool: ThreadPoolExecutor) -> None:
    mount.given("/a.md", "x")
    source = mount.sources["notes"]
    with source.hanging(applied=True) as hangs:
        renaming = pool.submit(mount.core.rename, "/notes/a.md", "/notes/b.md")
        assert hangs.wait(BOUND)
        source.told(mount.seq())
        meanwhile = [mount.ls("/notes") for _ in range(100)]
    done(renaming)

    assert all(len(names) == 1 for names in meanwhile)
    assert mount.ls("/notes") == ["b.md"]


def test_a_file_never_vanishes_while_it_is_replaced(
    mount: Driven, pool: ThreadPoolExecutor
) -> None:
    mount.given("/a.md", "old")
    mount.put("/notes/a.md.tmp", b"new")
    with mount.sources["notes"].hanging(applied=True) as hangs:
        renaming = pool.submit(mount.core.rename, "/notes/a.md.tmp", "/notes/a.md")
        assert hangs.wait(BOUND)
        read = {mount.cat("/notes/a.md") for _ in range(20)}
    done(renaming)

    assert read <= {b"old", b"new"}
    assert mount.cat("/notes/a.md") == b"new"


def test_what_happens_elsewhere_waits_for_the_answer_to_what_is_done_here(
    mount: Driven, pool: ThreadPoolExecutor
) -> None:
    with mount.sources["notes"].hanging(applied=True) as hangs:
        saving = pool.submit(mount.put, "/notes/a.md", b"x")
        assert hangs.wait(BOUND)
        memory = mount.at("/a.md")
        mount.hf.memory_stores.memories.update(
            memory.id, memory_store_id=mount.id(), content="theirs"
        )
    done(saving)
    mount.settle()

    assert mount.cat("/notes/a.md") == b"theirs"


def test_before_storage_is_asked_another_thread_takes_over(mount: Driven) -> None:
    mount.given("/a.md", "x")
    mount.given("/b.md", "x")
    mount.given("/d/a.md", "x")
    forgotten: list[str] = []
    for source in mount.sources.values():
        source.called = lambda call: None if mount.kernel.is_aside() else forgotten.append(call)
    acts: list[Callable[[], object]] = [
        lambda: mount.cat("/notes/a.md"),
        lambda: mount.put("/notes/c.md", b"x"),
        lambda: mount.core.rename("/notes/a.md", "/notes/e.md"),
        lambda: mount.core.rename("/notes/e.md", "/notes/b.md"),
        lambda: mount.core.rename("/notes/d", "/notes/f"),
        lambda: mount.core.truncate("/notes/b.md", 0),
        lambda: mount.core.unlink("/notes/b.md"),
    ]
    for act in acts:
        mount.kernel.began()
        act()

    assert forgotten == []


def test_what_is_cached_is_answered_without_stepping_aside(mount: Driven) -> None:
    mount.given("/a.md", "x")
    mount.cat("/notes/a.md")
    mount.kernel.began()
    mount.ls("/notes")
    mount.cat("/notes/a.md")
    file = mount.open("/notes/b.md", NEW)
    file.write(b"x")
    mount.put("/notes/.a.swp", b"x")

    assert not mount.kernel.is_aside()


def test_storage_is_asked_once_for_a_content(mount: Driven) -> None:
    mount.given("/a.md", "x")
    source = mount.sources["notes"]
    mount.cat("/notes/a.md")
    before = source.reads
    mount.cat("/notes/a.md")
    mount.edit("/notes/a.md", 0, b"y")
    mount.cat("/notes/a.md")

    assert source.reads == before


@pytest.mark.parametrize("cache", [0, 2_000])
def test_with_little_cache_everything_is_right(mount: Driven, cache: int) -> None:
    small = mount.again(cache_bytes=cache)
    for number in range(10):
        small.put(f"/notes/{number}.md", str(number).encode() * 900)
    for number in range(10):
        assert small.cat(f"/notes/{number}.md") == str(number).encode() * 900
        small.append(f"/notes/{number}.md", b"!")

    assert all((content or "").endswith("!") for content in small.kept().values())


def test_without_a_cache_reading_an_open_file_needs_no_storage(mount: Driven) -> None:
    small = mount.again(cache_bytes=0)
    small.put("/notes/a.md", b"x" * 1000)
    file = small.open("/notes/a.md")
    small.sources["notes"].away()

    assert file.read() == b"x" * 1000
