import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from doors.mount.fuse.conftest import SECONDS, Mounted, eventually, names, threads
from doors.mount.fuse.toy import Toy

from holdfast.doors.mount.fuse.dispatch import THREADS

pytestmark = pytest.mark.fuse

T = TypeVar("T")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS + 4) as pool:
        yield pool


@pytest.fixture
def other(mounted: Mounted, toy: Toy) -> Path:
    """Give a store in which nothing hangs."""
    toy.put("/t", None)
    toy.put("/t/b.md", b"other")
    return mounted.directory / "t"


def in_time(future: Future[T]) -> T:
    return future.result(SECONDS)


def work(store: Path) -> None:
    """List, read, write, rename and delete in *store*."""
    assert names(store) == ["b.md"]
    assert (store / "b.md").read_bytes() == b"other"
    (store / "c.md").write_bytes(b"new")
    (store / "c.md").rename(store / "d.md")
    (store / "d.md").unlink()


def write(path: Path) -> None:
    path.write_bytes(b"x")


def rename(path: Path) -> None:
    path.rename(path.with_name("z.md"))


def sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        ("read", Path.read_bytes),
        ("open", Path.read_bytes),
        ("flush", write),
        ("fsync", sync),
        ("unlink", Path.unlink),
        ("rename", rename),
    ],
)
def test_what_hangs_stops_nobody_else(  # noqa: PLR0917 - pytest hands them in by name
    toy: Toy,
    mounted: Mounted,
    other: Path,
    pool: ThreadPoolExecutor,
    operation: str,
    act: Callable[[Path], object],
) -> None:
    with toy.hanging(operation):
        hangs = pool.submit(act, mounted.store / "a.md")
        assert toy.waiting.acquire(timeout=SECONDS)

        for _ in range(10):
            work(other)

        assert not hangs.done()
    in_time(hangs)


def test_who_waits_for_a_name_stops_nobody_else(
    mounted: Mounted, toy: Toy, other: Path, pool: ThreadPoolExecutor
) -> None:
    path = mounted.store / "a.md"
    path.stat()
    with toy.hanging("unlink"):
        hangs = pool.submit(path.unlink)
        assert toy.waiting.acquire(timeout=SECONDS)

        # The name is locked in libfuse: who opens it waits in there.
        waits = [pool.submit(path.open) for _ in range(3)]
        for _ in range(10):
            work(other)

        assert not any(each.done() for each in waits)
    in_time(hangs)
    for each in waits:
        with pytest.raises(FileNotFoundError):
            in_time(each)


def test_a_directory_is_renamed_once_who_reads_in_it_is_done(
    mounted: Mounted, toy: Toy, other: Path, pool: ThreadPoolExecutor
) -> None:
    toy.put("/s/d", None)
    toy.put("/s/d/f.md", b"x")
    with toy.hanging("open"):
        hangs = pool.submit((mounted.store / "d" / "f.md").read_bytes)
        assert toy.waiting.acquire(timeout=SECONDS)
        renaming = pool.submit((mounted.store / "d").rename, mounted.store / "e")

        for _ in range(10):
            work(other)

        assert not renaming.done()
    assert in_time(hangs) == b"x"
    in_time(renaming)
    assert (mounted.store / "e" / "f.md").read_bytes() == b"x"


def test_reading_and_saving_lock_no_name(
    mounted: Mounted, toy: Toy, pool: ThreadPoolExecutor
) -> None:
    with toy.hanging("read"):
        hangs = pool.submit((mounted.store / "a.md").read_bytes)
        assert toy.waiting.acquire(timeout=SECONDS)

        (mounted.store / "a.md").rename(mounted.store / "b.md")
        (mounted.store / "b.md").unlink()

    assert in_time(hangs) == b"hello\n"


def test_all_but_one_thread_may_hang(
    mounted: Mounted, toy: Toy, other: Path, pool: ThreadPoolExecutor
) -> None:
    for each in range(THREADS - 1):
        toy.put(f"/s/{each}.md", b"x")
    with toy.hanging("read", times=THREADS - 1):
        hang = [
            pool.submit((mounted.store / f"{each}.md").read_bytes) for each in range(THREADS - 1)
        ]
        for _ in hang:
            assert toy.waiting.acquire(timeout=SECONDS)

        for _ in range(3):
            work(other)

        assert len(threads()) == THREADS
    assert [in_time(each) for each in hang] == [b"x"] * (THREADS - 1)


def test_what_comes_when_all_hang_is_answered_when_one_goes_on(
    mounted: Mounted, toy: Toy, other: Path, pool: ThreadPoolExecutor
) -> None:
    for each in range(THREADS):
        toy.put(f"/s/{each}.md", b"x")
    with toy.hanging("read", times=THREADS):
        hang = [pool.submit((mounted.store / f"{each}.md").read_bytes) for each in range(THREADS)]
        for _ in hang:
            assert toy.waiting.acquire(timeout=SECONDS)
        comes = pool.submit(os.listdir, other)
        assert len(threads()) == THREADS

    assert in_time(comes) == ["b.md"]
    assert [in_time(each) for each in hang] == [b"x"] * THREADS


def test_one_thread_answers_while_nothing_waits(mounted: Mounted, other: Path) -> None:
    for each in range(20):
        (mounted.store / f"{each}.md").write_bytes(b"x")
        assert (other / "b.md").read_bytes() == b"other"
        assert names(other) == ["b.md"]

    assert len(threads()) == 1


def test_threads_that_waited_are_used_again(
    mounted: Mounted, toy: Toy, pool: ThreadPoolExecutor
) -> None:
    for each in range(THREADS):
        toy.put(f"/s/{each}.md", b"x")
        with toy.hanging("read"):
            hangs = pool.submit((mounted.store / f"{each}.md").read_bytes)
            assert toy.waiting.acquire(timeout=SECONDS)
        in_time(hangs)

    # Who has answered may not yet be in line when the next one steps aside.
    assert len(threads()) <= 3


def test_stepping_aside_twice_or_from_elsewhere_does_nothing(mounted: Mounted, toy: Toy) -> None:
    toy.kernel.step_aside()
    toy.kernel.step_aside()

    assert (mounted.store / "a.md").read_bytes() == b"hello\n"
    assert len(threads()) == 1


def test_many_programs_at_once_get_what_is_theirs(
    mounted: Mounted, toy: Toy, pool: ThreadPoolExecutor
) -> None:
    def program(number: int) -> None:
        for each in range(30):
            path = mounted.store / f"{number}-{each}.md"
            content = f"{number} {each} ".encode() * (each + 1)
            path.write_bytes(content)
            assert path.read_bytes() == content
            path.rename(path.with_suffix(".txt"))
            assert path.with_suffix(".txt").stat().st_size == len(content)
            path.with_suffix(".txt").unlink()
            assert not path.exists()

    with toy.hanging("flush", times=5):
        programs = [pool.submit(program, number) for number in range(8)]
        for _ in range(5):
            assert toy.waiting.acquire(timeout=SECONDS)
    for each in programs:
        in_time(each)

    eventually(lambda: names(mounted.store) == ["a.md"])


def test_what_hangs_in_one_directory_keeps_no_notice_of_another(
    mounted: Mounted, toy: Toy, other: Path, pool: ThreadPoolExecutor
) -> None:
    for each in range(20):
        toy.put(f"/s/{each}.md", b"x")
    assert len(names(mounted.store)) == 21
    (other / "b.md").stat()
    with toy.hanging("unlink"):
        hangs = pool.submit((mounted.store / "a.md").unlink)
        assert toy.waiting.acquire(timeout=SECONDS)

        for each in range(20):
            toy.drop(f"/s/{each}.md")
        toy.drop("/t/b.md")

        eventually(lambda: not (other / "b.md").exists())
        assert not hangs.done()
    in_time(hangs)
    eventually(lambda: not (mounted.store / "19.md").exists())
