"""How much slower is a store as a directory than a directory?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, perf_counter_ns

import apsw
from measure import Bench, Round, Timing, main, one_by_one, paired
from texts import Texts

import holdfast
from holdfast import Holdfast
from holdfast.doors.mount import Mount, mounted
from holdfast.memories.stores.edits import Save

MEMORY = 2_048
LARGE = 100_000
DROP = Path("/proc/sys/vm/drop_caches")
Work = Callable[[Path, int], object]
"""What is done in a directory, with a number that is new each time."""


class Place:
    """A store of many memories, mounted, and a native directory of the same files beside it."""

    def __init__(self, bench: Bench, files: int) -> None:
        self.bench, self.folder, self.files = bench, bench.folder, files
        self.hf = holdfast.open(self.folder / "mount.db")
        self.store = filled(self.hf, files)
        self.native = self.folder / "native"
        _write_native(self.native, files)
        self.number = 0

    @contextmanager
    def shown(self, name: str) -> Iterator[tuple[Path, Mount]]:
        """Mount the store for a block."""
        with mounted(self.hf, self.folder / name, stores=[self.store], mode="fuse") as mount:
            yield next(iter(mount.paths.values())), mount

    def forget_all(self) -> None:
        """Let the kernel forget names and contents, where it may be asked to."""
        if not self.bench.quick and os.access(DROP, os.W_OK):
            os.sync()
            DROP.write_text("3")


def filled(hf: Holdfast, files: int) -> str:
    """Return the id of a new store with *files* memories, and one large one apart."""
    hf.memory_stores.configure(memories_cap=files + 10_000)
    store = hf.memory_stores.create(name=f"bench {files}").id
    texts = Texts(7)
    pool = [texts.of_bytes(MEMORY) for _ in range(100)]
    saves = [
        Save(path=f"/many/{number:05}.md", content=pool[number % len(pool)])
        for number in range(files)
    ]
    saves.append(Save(path="/large/one.md", content=texts.of_bytes(LARGE)))
    for first in range(0, len(saves), 500):
        batch, edit = saves[first : first + 500], f"edit_{first:024}"
        hf.memory_stores.memories.apply(store, batch, edit_id=edit)
    return store


def _write_native(folder: Path, files: int) -> None:
    texts = Texts(7)
    pool = [texts.of_bytes(MEMORY) for _ in range(100)]
    (folder / "many").mkdir(parents=True)
    for number in range(files):
        (folder / f"many/{number:05}.md").write_text(pool[number % len(pool)])
    (folder / "large").mkdir()
    (folder / "large/one.md").write_text(texts.of_bytes(LARGE))


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    place = Place(bench, bench.size(2_000, 300))
    _cold(bench, place)
    begun = monotonic()
    with place.shown("warm") as (shown, mount):
        _ready(bench, place.files, monotonic() - begun)
        _reads(bench, place, shown)
        # Before the saves: they double the memories there are.
        _amounts(bench, mount, place.files)
        _saves(bench, place, shown)
        _together(bench, shown)
        _while_a_save_hangs(bench, place, shown)
        _seen(bench, place, shown)
    place.hf.close()
    if not bench.quick:
        many = Place(Bench(bench.report, _made(bench.folder / "ten"), stages=False), 10_000)
        begun = monotonic()
        with many.shown("m") as (_, mount):
            _ready(bench, many.files, monotonic() - begun)
            _amounts(bench, mount, many.files)
        many.hf.close()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _sides(
    bench: Bench, places: tuple[Path, Path], ours: Work, theirs: Work, count: int
) -> list[Round]:
    """Pair *ours* in the mount with *theirs* in the native one, *count* times a round."""
    shown, native = places
    numbers = iter(range(10**9))

    def side(folder: Path, work: Work) -> Callable[[], Timing]:
        return lambda: one_by_one(count, lambda _: work(folder, next(numbers)))

    return paired(side(shown, ours), side(native, theirs), bench.rounds)


def _cold(bench: Bench, place: Place) -> None:
    """Directories and contents that nobody has in memory: a new mount each round."""
    names, both, grep, again = [], [], [], []
    for number in range(bench.rounds):
        with place.shown(f"cold{number}") as (shown, _):
            place.forget_all()
            names.append(_once(shown, place.native, _list))
            place.forget_all()
            both.append(_once(shown, place.native, _list_and_stat))
            place.forget_all()
            grep.append(_once(shown, place.native, _grep))
            again.append(_once(shown, place.native, _grep))
    files = f"{place.files:,}"
    bench.cost(f"readdir of {files}, cold", "native", 18, names)
    bench.cost(f"readdir of {files}, then stat of each, cold", "native", 3.5, both)
    bench.cost(f"grep -r over {files}, not yet in memory", "native", 8, grep)
    bench.cost(f"grep -r over {files}, again", "native", 5, again)


def _once(shown: Path, native: Path, work: Callable[[Path], object]) -> Round:
    return one_by_one(1, lambda _: work(shown)), one_by_one(1, lambda _: work(native))


def _list(folder: Path) -> object:
    return os.listdir(folder / "many")


def _list_and_stat(folder: Path) -> object:
    with os.scandir(folder / "many") as entries:
        return [entry.stat() for entry in entries]


def _grep(folder: Path) -> object:
    command = ["grep", "-r", "no such words at all", str(folder / "many")]
    return subprocess.run(command, check=False, capture_output=True)


def _reads(bench: Bench, place: Place, shown: Path) -> None:
    files, count = place.files, bench.size(2_000, 300)

    def stat(folder: Path, number: int) -> object:
        return os.stat(folder / f"many/{number % files:05}.md")

    def read(folder: Path, number: int) -> object:
        return _read(folder / f"many/{number % files:05}.md")

    def same(folder: Path, _: int) -> object:
        return _read(folder / "many/00001.md")

    def large(folder: Path, _: int) -> object:
        return _read(folder / "large/one.md")

    for what, goal, work in (
        ("stat again", 1.3, stat),
        ("open, read, close 2 KB", 7, read),
        ("the same file again", 7, same),
        ("read 100 KB, again", 5, large),
    ):
        bench.cost(what, "native", goal, _sides(bench, (shown, place.native), work, work, count))
    bench.cost("write() of 1 byte", "native", 30, _bytes(bench, shown, place.native))


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, LARGE + 1)
    finally:
        os.close(fd)


def _bytes(bench: Bench, shown: Path, native: Path) -> list[Round]:
    def side(folder: Path) -> Timing:
        fd = os.open(folder / "bytes.md", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        try:
            return one_by_one(bench.size(2_000, 200), lambda _: os.write(fd, b"x"))
        finally:
            os.close(fd)

    return paired(lambda: side(shown), lambda: side(native), bench.rounds)


def _saves(bench: Bench, place: Place, shown: Path) -> None:
    text, native, count = Texts(3).of_bytes(MEMORY).encode(), place.native, bench.size(500, 20)
    (shown / "log.md").write_text("log\n")
    (native / "log.md").write_text("log\n")

    def create(sync: bool) -> Work:
        return lambda folder, number: _save(folder / f"new{number}.md", text, sync=sync)

    def append(sync: bool) -> Work:
        flags = os.O_WRONLY | os.O_APPEND
        return lambda folder, _: _save(folder / "log.md", b"a line\n", flags=flags, sync=sync)

    def replace(sync: bool) -> Work:
        def work(folder: Path, _: int) -> None:
            _save(folder / "whole.md.tmp", text, sync=sync)
            os.rename(folder / "whole.md.tmp", folder / "whole.md")
            if sync:
                _sync(folder)

        return work

    rounds = _sides(bench, (shown, native), create(sync=False), create(sync=True), count)
    bench.cost(f"create, write, close, {count} files", "the same with fsync", 1.2, rounds)
    few = bench.size(100, 20)
    rounds = _sides(bench, (shown, native), append(sync=False), append(sync=True), few)
    bench.cost("append, close", "append, fsync, close", 2.5, rounds)
    rounds = _sides(bench, (shown, native), replace(sync=False), replace(sync=True), few)
    bench.cost("write temporary, rename over", "the same with two fsyncs", 1.2, rounds)
    _removals(bench, shown, native, few)


def _removals(bench: Bench, shown: Path, native: Path, count: int) -> None:
    def side(folder: Path, *, sync: bool) -> Timing:
        paths = [folder / f"gone{number}.md" for number in range(count)]
        for path in paths:
            path.write_text("x")

        def unlink(number: int) -> None:
            paths[number].unlink()
            if sync:
                _sync(folder)

        return one_by_one(count, unlink)

    rounds = paired(lambda: side(shown, sync=False), lambda: side(native, sync=True), bench.rounds)
    bench.cost("unlink", "unlink, fsync of the directory", 4.5, rounds)


def _save(
    path: Path, text: bytes, *, sync: bool, flags: int = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
) -> None:
    fd = os.open(path, flags, 0o644)
    try:
        os.write(fd, text)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _together(bench: Bench, shown: Path) -> None:
    """Eight programs at once, and one that does all of it: both in the mount."""
    text, numbers = Texts(4).of_bytes(MEMORY).encode(), iter(range(10**9))

    def saved(programs: int, files: int) -> Timing:
        names = [[f"p{next(numbers)}.md" for _ in range(files)] for _ in range(programs)]
        begun = perf_counter_ns()
        children = [_forked(shown, text, each) for each in names]
        for child in children:
            if os.waitpid(child, 0)[1]:
                raise SystemExit("a program could not save its files")
        return Timing(each=(perf_counter_ns() - begun) / (programs * files))

    rounds = paired(lambda: saved(8, 8), lambda: saved(1, 64), bench.rounds)
    bench.cost("8 programs saving 8 files each", "one saving 64", 0.9, rounds)


def _forked(folder: Path, text: bytes, names: list[str]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for name in names:
            _save(folder / name, text, sync=False)
        code = 0
    finally:
        os._exit(code)


def _while_a_save_hangs(bench: Bench, place: Place, shown: Path) -> None:
    """Another program holds the file's write lock, so a save waits; do others?"""

    def look() -> float:
        begun = perf_counter_ns()
        os.listdir(shown / "large")
        _read(shown / "many/00001.md")
        return (perf_counter_ns() - begun) / 1e6

    more: list[float] = []
    for number in range(bench.rounds):
        idle = min(look() for _ in range(5))
        holder = apsw.Connection(str(place.folder / "mount.db"))
        holder.setbusytimeout(5_000)
        holder.execute("begin immediate")
        saving = threading.Thread(
            target=_save, args=(shown / f"hangs{number}.md", b"x"), kwargs={"sync": False}
        )
        saving.start()
        threading.Event().wait(0.2)
        more.append(max(look() for _ in range(20)) - idle)
        holder.execute("rollback")
        holder.close()
        saving.join()
    bench.amount("ls and a cached read while a save hangs", "idle, more", 20, "ms", more)


def _seen(bench: Bench, place: Place, shown: Path) -> None:
    """From the answer of a write elsewhere until the mount shows it."""
    found: list[float] = []
    for number in range(bench.size(50, 5)):
        content = f"from elsewhere {number}"
        path = shown / "elsewhere.md"
        memory = place.hf.memory_stores.memories.at(place.store, "/elsewhere.md")
        if memory is None:
            place.hf.memory_stores.memories.create(
                place.store, path="/elsewhere.md", content=content
            )
        else:
            place.hf.memory_stores.memories.update(
                memory.id, memory_store_id=place.store, content=content
            )
        begun = monotonic()
        while not path.exists() or path.read_text() != content:
            if monotonic() - begun > 10:
                raise SystemExit("a change made elsewhere was not seen within 10 s")
        found.append((monotonic() - begun) * 1000)
    bench.amount("a change made elsewhere is seen", "after its answer", 50, "ms", found)


def _amounts(bench: Bench, mount: Mount, files: int) -> None:
    status = Path(f"/proc/{mount.process.pid}/status").read_text().splitlines()
    resident = int(next(line for line in status if "VmRSS" in line).split()[1]) / 1024
    most = 80.0 if files <= 2_000 else 120.0
    bench.amount(f"resident with {files:,} memories", "the process", most, "MiB", [resident])


def _ready(bench: Bench, files: int, seconds: float) -> None:
    most = 1.5 if files <= 2_000 else 3.0
    bench.amount(f"ready with {files:,} memories", "the command", most, "s", [seconds])


if __name__ == "__main__":
    main("mount", __doc__ or "", run)
