"""Nobody waits for somebody else's storage, and nothing is sent twice."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from doors.mount.core.driven import Driven
from doors.mount.core.trouble import BOUND

NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


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
