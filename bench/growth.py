"""Does durable memory stay fast and small as agents and entries grow in number?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, cast

import apsw
from measure import Bench, Round, Row, Timing, main, one_by_one, paired, together
from msgspec import Struct
from texts import Texts

import holdfast
from holdfast.memories.durable.memory import DurableMemory

CONTENT = 200
LEAST = 3 * CONTENT + 600
"""Bytes on disk that an entry may take, its row of the log included."""
FLAT = 1.5
AGENTS = (1_000, 2_000, 5_000, 10_000)
MORE_AGENTS = (20_000, 50_000, 100_000)
FEW_AGENTS = (100, 200)
HELD = (10, 100, 1_000, 10_000)
AGENTS_GROW, ENTRIES_GROW = "agents", "entries of the agent"
DUE = 100
"""Entries that a measured sweep finds expired."""

_STARTED = """
import sys
from time import perf_counter
begun = perf_counter()
import holdfast
hf = holdfast.open({path!r})
hf.durable("agent_000007").get("entry_007")
took = perf_counter() - begun
for number in range({calls}):
    durable = hf.durable(f"agent_{{number * 7919 % {agents}:06}}")
    durable.get("entry_003")
    if number % 10 == 0:
        durable.set("entry_004", "Seen.", category="note")
resident = next(line for line in open("/proc/self/status") if "VmRSS" in line).split()[1]
print(took * 1000, int(resident) / 1024)
hf.close()
"""


class Shifted:
    """The machine's clock, set back by as much as is wanted."""

    def __init__(self) -> None:
        self.back = timedelta(0)

    def now(self) -> datetime:
        """Return the present instant, less that."""
        return datetime.now(UTC) - self.back


class Grown:
    """A file with agents of as many entries each.

    Two of them stand beside each other, one that stays as it was and one that grows: at each size
    both are measured in turn, so that a figure is a ratio of what was measured at the same time.
    """

    def __init__(self, path: Path, entries: int) -> None:
        self.path, self.entries, self.agents = path, entries, 0
        self.clock = Shifted()
        self.hf = holdfast.open(path, clock=self.clock)
        texts = Texts(3)
        self.pool = [texts.of_bytes(CONTENT) for _ in range(200)]
        self._numbers = count()

    def grow(self, agents: int) -> None:
        """Add agents until there are as many."""
        first = self.agents
        together(2, agents - first, lambda number: self._write(first + number, range(self.entries)))
        self.agents = agents

    def _write(self, agent: int, numbers: range) -> None:
        self.agent(agent).set_many(
            [
                {
                    "key": f"entry_{number:03}",
                    "content": self.pool[(agent + number) % len(self.pool)],
                    "category": "note" if number % 10 else "core",
                }
                for number in numbers
            ]
        )

    def hold(self) -> None:
        """Give one agent all the entries."""
        self.agents = 1
        self.agent(0).set_limits(cap=100_000)
        for first in range(0, self.entries, 1_000):
            self._write(0, range(first, min(self.entries, first + 1_000)))

    def agent(self, number: int) -> DurableMemory:
        return self.hf.durable(f"agent_{number:06}")

    def some(self) -> tuple[DurableMemory, str, str]:
        """Return an agent, a key it has and a text, others each time, from all over the file."""
        number = next(self._numbers)
        text = self.pool[number * 31 % len(self.pool)]
        key = f"entry_{number * 13 % self.entries:03}"
        return self.agent(number * 7919 % self.agents), key, text

    def get(self, _: int) -> object:
        durable, key, _text = self.some()
        return durable.get(key)

    def set(self, _: int) -> object:
        durable, key, text = self.some()
        return durable.set(key, text, category="note")

    def forget(self, _: int) -> tuple[DurableMemory, str]:
        durable, key, _text = self.some()
        if not durable.forget(key):
            raise SystemExit(f"there was no {key} to forget")
        return durable, key

    def again(self, forgotten: tuple[DurableMemory, str]) -> None:
        durable, key = forgotten
        durable.set(key, self.pool[0], category="note")

    def list(self, _: int) -> object:
        return self.some()[0].list(limit=50)

    def list_few(self, _: int) -> object:
        return self.some()[0].list(limit=10)

    def hydrate(self, _: int) -> object:
        return self.some()[0].hydrate()

    def open_run(self, _: int) -> Any:
        return self.some()[0].run()

    def let_expire(self) -> None:
        """Write entries of many agents that have expired by now."""
        self.clock.back = timedelta(hours=73)
        for _ in range(DUE):
            durable, _key, text = self.some()
            durable.set("due", text, category="daily")
        self.clock.back = timedelta(0)

    def sweep(self, _: int) -> None:
        swept = self.hf.sweep()
        if not swept.expired:
            raise SystemExit("the sweep found nothing")

    def pages(self) -> int:
        """Return how many pages all connections have asked for so far."""
        core: Any = cast("Any", self.hf.engine).core
        # After a write the engine's thread may still be at work on the writer's connection.
        with core.database.turn:
            return sum(
                connection.raw.status(which)[0]
                for connection in self._connections()
                for which in (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
            )

    def _connections(self) -> Iterator[Any]:
        core: Any = cast("Any", self.hf.engine).core
        yield core.writer.group.connection()
        yield from core.readers._all  # noqa: SLF001 - what it counts is nobody's to tell

    def bytes_an_entry(self) -> float:
        """Return what the file takes for each entry, its log emptied."""
        self.hf.engine.scrub()
        return self.path.stat().st_size / (self.agents * self.entries)


class Act(Struct, frozen=True):
    """Something that is done in a file: what one call is, how often, and what is not timed."""

    times: int
    call: Callable[[Grown, int], Any]
    before: Callable[[Grown], object] = lambda _: None
    after: Callable[[Grown, Any], object] | None = None

    def timed(self, grown: Grown) -> Timing:
        """Do it in *grown*; what each call took is told by their p50, which no burst moves."""
        self.before(grown)
        after = None if self.after is None else partial(self.after, grown)
        timing = one_by_one(self.times, partial(self.call, grown), after)
        return Timing(each=timing.p50)

    def pages(self, grown: Grown) -> Timing:
        """Return the pages that each call asks for, those of what is around it included."""
        before = grown.pages()
        self.timed(grown)
        return Timing(each=(grown.pages() - before) / self.times)


def _acts(times: int) -> dict[str, Act]:
    seldom = max(5, times // 10)
    return {
        "get": Act(times, Grown.get),
        "set": Act(times, Grown.set),
        "list of 50": Act(times, Grown.list),
        "hydrate": Act(times, Grown.hydrate),
        "opening a run": Act(seldom, Grown.open_run, after=lambda _, run: run.end()),
        "forget": Act(seldom, Grown.forget, after=Grown.again),
        f"sweep of {DUE} that expired": Act(1, Grown.sweep, before=Grown.let_expire),
    }


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    _agents(bench)
    _entries(bench)


def _sizes(bench: Bench) -> tuple[int, ...]:
    if bench.quick:
        return FEW_AGENTS
    return (*AGENTS, *MORE_AGENTS) if bench.full else AGENTS


def _agents(bench: Bench) -> None:
    sizes, entries = _sizes(bench), bench.size(100, 20)
    small = Grown(bench.folder / "small.db", entries)
    grown = Grown(bench.folder / "grown.db", entries)
    small.grow(sizes[0])
    acts, disk = _acts(bench.size(300, 40)), 0.0
    for size in sizes:
        grown.grow(size)
        disk = grown.bytes_an_entry() if size == sizes[-1] else disk
        _compare(bench, acts, {size: grown, sizes[0]: small}, AGENTS_GROW, last=size == sizes[-1])
    what = f"disk, entries of {CONTENT} bytes, one write a key"
    bench.amount(what, "each entry", LEAST, "bytes", [disk])
    for each in (small, grown):
        each.hf.close()
    _processes(bench, small, grown)


def _compare(
    bench: Bench, acts: dict[str, Act], files: dict[int, Grown], of: str, *, last: bool
) -> None:
    """Measure *acts* in two files, the grown one and the one it is held against, by their sizes."""
    grown, small = next(iter(files.values())), list(files.values())[-1]
    size, first = next(iter(files)), list(files)[-1]
    for name, act in acts.items():
        rounds = paired(partial(act.timed, grown), partial(act.timed, small), bench.rounds)
        act.pages(grown), act.pages(small)
        pages = [(act.pages(grown), act.pages(small))]
        _point(bench, f"{name} against {of}, µs", size, rounds, per=1_000)
        _point(bench, f"{name} against {of}, pages", size, pages)
        if not last:
            continue
        _ratio(bench, f"{name}, {size:,} {of}", f"{first:,}", rounds)
        if of == AGENTS_GROW:
            # An agent's own entries may make its part of the tree deeper.
            _ratio(bench, f"{name}, pages, {size:,} {of}", f"{first:,}", pages)


def _point(bench: Bench, what: str, size: int, rounds: list[Round], *, per: int = 1) -> None:
    """Add to the curve of *what* how it is at *size*: the ratio, in units of the first size."""
    points = bench.report.curves.setdefault(what, {})
    ratio = median(ours.each / theirs.each for ours, theirs in rounds)
    first = next(iter(points.values()), median(theirs.each for _, theirs in rounds) / per)
    points[str(size)] = first * ratio if points else first


def _ratio(bench: Bench, what: str, of: str, rounds: list[Round], goal: float = FLAT) -> None:
    found = [ours.each / theirs.each for ours, theirs in rounds]
    row = Row(what=what, of=of, sense="at most", goal=goal, rounds=found)
    bench.report.rows.append(row)


def _processes(bench: Bench, small: Grown, grown: Grown) -> None:
    """Start a process on each file, let it ask for many agents, and see what it takes."""
    calls = bench.size(20_000, 200)
    found = [
        (_started(grown, calls), _started(small, calls)) for _ in range(max(3, bench.rounds // 2))
    ]
    starts = [(ours[0], theirs[0]) for ours, theirs in found]
    memory = [(ours[1], theirs[1]) for ours, theirs in found]
    of = f"{small.agents:,}"
    _ratio(bench, f"start of a process, first read, {grown.agents:,} agents", of, starts)
    what = f"resident memory after {calls:,} calls, {grown.agents:,} agents"
    _ratio(bench, what, of, memory)


def _started(grown: Grown, calls: int) -> Round:
    """Return the time to the first read, and the memory that is resident at the end."""
    code = _STARTED.format(path=str(grown.path), calls=calls, agents=grown.agents)
    ran = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    took, resident = map(float, ran.stdout.split())
    return Timing(each=took), Timing(each=resident)


def _entries(bench: Bench) -> None:
    """One agent's entries: each call but a hydration costs what it did with few."""
    sizes, times = HELD[: bench.size(4, 3)], bench.size(300, 40)
    held = {size: Grown(bench.folder / f"held_{size}.db", size) for size in sizes}
    for each in held.values():
        each.hold()
    acts = {
        "get": Act(times, Grown.get),
        "set": Act(times, Grown.set),
        "list of 10": Act(times, Grown.list_few),
    }
    for size, each in held.items():
        files = {size: each, sizes[0]: held[sizes[0]]}
        _compare(bench, acts, files, ENTRIES_GROW, last=size == sizes[-1])
    hydrate = Act(5, Grown.hydrate)
    many, few = held[sizes[-1]], held[sizes[-2]]
    rounds = paired(partial(hydrate.timed, many), partial(hydrate.timed, few), bench.rounds)
    what = f"hydrate, {sizes[-1]:,} entries of the agent"
    _ratio(bench, what, f"{sizes[-2]:,}", rounds, goal=sizes[-1] / sizes[-2])
    for each in held.values():
        each.hf.close()


if __name__ == "__main__":
    main("growth", __doc__ or "", run)
