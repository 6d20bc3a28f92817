"""How everything here is measured: ours and its baseline in paired rounds, told as ratios.

A figure is the median of the rounds' ratios, because a neighbour's load hits both sides of a
round; the order within a round alternates, and a first round is thrown away.
"""

import argparse
import gc
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from math import log
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Literal, TypeVar

import msgspec
from machine import Load, Machine, here, load
from msgspec import Struct, field

T = TypeVar("T")

SAME = 1.15
"""Ratios closer to 1 than this, either way, are noise and told as "the same"."""

UNSYNCED = 1.4
"""A write on one thread that is this much faster than a synced one was not synced."""

Sense = Literal["at least", "at most"]


class Timing(Struct, frozen=True, kw_only=True):
    """One side of one round: nanoseconds an operation, and how they were spread."""

    each: float
    p50: float = 0
    p95: float = 0
    p99: float = 0
    worst: float = 0


Side = Callable[[], Timing]
Round = tuple[Timing, Timing]


class Row(Struct, frozen=True, kw_only=True):
    """One line of a table: a ratio of rates (`at least`) or of costs (`at most`), by round.

    With a `unit` the rounds are amounts of that, not ratios. `never_above` is where a figure is
    too good to be true.
    """

    what: str
    of: str
    sense: Sense
    goal: float
    rounds: list[float]
    unit: str = ""
    never_above: float | None = None
    ours: Timing | None = None
    theirs: Timing | None = None

    @property
    def title(self) -> str:
        """What is measured, and against what; no two rows of a report have the same."""
        return f"{self.what} / {self.of}"

    @property
    def reached(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)

    @property
    def met(self) -> bool:
        """Whether the goal is reached, and honestly."""
        if self.broken:
            return False
        return self.reached >= self.goal if self.sense == "at least" else self.reached <= self.goal

    @property
    def broken(self) -> bool:
        """Whether the figure can only come from a promise that was not kept."""
        return self.never_above is not None and self.reached > self.never_above

    @property
    def failed(self) -> bool:
        """Whether it is so far off that a change must have caused it."""
        if self.sense == "at least":
            return self.broken or self.reached < self.goal / 2
        return self.reached > self.goal * 2

    def said(self) -> str:
        """Return the figure as it is told."""
        number = f"{self.reached:.3g}"
        if self.unit:
            return f"{number} {self.unit}"
        return f"the same ({number})" if 1 / SAME < self.reached < SAME else number

    def spread(self) -> str:
        """Return the least and the most of the rounds."""
        return f"{min(self.rounds):.3g} to {max(self.rounds):.3g}"


class Report(Struct, kw_only=True):
    """All that one benchmark found, and under which circumstances."""

    name: str
    question: str
    quick: bool
    rounds: int
    machine: Machine
    load_before: Load
    load_after: Load
    rows: list[Row] = field(default_factory=list[Row])
    curve: dict[str, float] = field(default_factory=dict[str, float])
    stages: dict[str, float] = field(default_factory=dict[str, float])
    curves: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    costs: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    before: dict[str, str] = field(default_factory=dict[str, str])
    """What an earlier state of the code reached in the same run, by `Row.title`."""

    @property
    def busy(self) -> bool:
        """Whether others were at work before: afterwards its own callers count too."""
        return self.load_before.busy

    def lines(self) -> Iterator[str]:
        """Give the report as a person reads it."""
        if self.busy:
            yield "LOAD ABOVE 1 A CORE: others were at work on this machine; judge with care."
        yield f"{self.name}: {self.question}"
        yield f"{self.rounds} rounds, load a core {_loads(self)}{', quick' if self.quick else ''}"
        where = self.machine
        yield f"{where.cpu}, {where.cores} cores, {where.memory_mb} MB, {where.file_system}"
        yield f"Linux {where.kernel}, {where.python}, SQLite {where.sqlite}"
        yield ", ".join(f"{name} {found}" for name, found in where.packages.items())
        yield ""
        for row in self.rows:
            mark = "NOT SYNCED" if row.broken else "ok" if row.met else "MISSED"
            goal = f"{row.sense} {row.goal:g}{f' {row.unit}' if row.unit else ''}"
            yield f"{mark:10} {row.what} / {row.of}: {row.said()} ({goal}; {row.spread()})"
            yield from _latencies(row)
        for stage, microseconds in self.stages.items():
            yield f"stage      {stage}: {microseconds:.1f} µs"
        for what, parts in self.costs.items():
            yield f"a write    {what}: {', '.join(f'{part} {n:.1f}' for part, n in parts.items())}"
        for what, points in self.curves.items():
            shown = ", ".join(f"{int(size):,}: {figure:.4g}" for size, figure in points.items())
            yield f"curve      {what}: {shown}; exponent {exponent(points):.2f}"


def exponent(points: dict[str, float]) -> float:
    """Return the power of the size that figures at *points* follow: least squares on logarithms."""
    spots = [(log(float(size)), log(figure)) for size, figure in points.items()]
    middles = [sum(axis) / len(spots) for axis in zip(*spots, strict=True)]
    spread = sum((x - middles[0]) ** 2 for x, _ in spots)
    return sum((x - middles[0]) * (y - middles[1]) for x, y in spots) / spread


def _loads(report: Report) -> str:
    return f"{report.load_before.a_core} before, {report.load_after.a_core} after"


def _latencies(row: Row) -> Iterator[str]:
    for side, timing in (("ours", row.ours), ("theirs", row.theirs)):
        if timing is not None and timing.p50:
            shown = (timing.p50, timing.p95, timing.p99, timing.worst)
            yield f"{'':10}   {side}, µs: " + ", ".join(
                f"{name} {nanoseconds / 1000:.1f}"
                for name, nanoseconds in zip(("p50", "p95", "p99", "max"), shown, strict=True)
            )


class Bench:
    """One benchmark being run: how thorough it is, where its files are, what it found."""

    def __init__(
        self,
        report: Report,
        folder: Path,
        *,
        stages: bool = False,
        full: bool = False,
        writes: bool = False,
    ) -> None:
        self.report, self.folder, self.stages, self.full = report, folder, stages, full
        self.writes = writes
        """Whether only writes of one caller and of many are measured."""
        self.quick, self.rounds = report.quick, report.rounds

    def size(self, whole: int, quick: int) -> int:
        """Return how much to do: *whole*, or *quick* when it must not take long."""
        return quick if self.quick else whole

    def rate(
        self,
        what: str,
        of: str,
        goal: float,
        rounds: list[Round],
        *,
        never_above: float | None = None,
    ) -> None:
        """Add the row of how fast ours is, as a share of theirs."""
        self._add(what, of, "at least", goal, rounds, never_above=never_above)

    def cost(self, what: str, of: str, goal: float, rounds: list[Round]) -> None:
        """Add the row of how much more ours costs than theirs."""
        self._add(what, of, "at most", goal, rounds)

    def amount(self, what: str, of: str, goal: float, unit: str, found: list[float]) -> None:
        """Add the row of an amount that may not be above *goal*."""
        row = Row(what=what, of=of, sense="at most", goal=goal, rounds=found, unit=unit)
        self.report.rows.append(row)

    def _add(
        self,
        what: str,
        of: str,
        sense: Sense,
        goal: float,
        rounds: list[Round],
        *,
        never_above: float | None = None,
    ) -> None:
        faster = [theirs.each / ours.each for ours, theirs in rounds]
        row = Row(
            what=what,
            of=of,
            sense=sense,
            goal=goal,
            rounds=faster if sense == "at least" else [1 / ratio for ratio in faster],
            never_above=never_above,
            ours=middle([ours for ours, _ in rounds]),
            theirs=middle([theirs for _, theirs in rounds]),
        )
        self.report.rows.append(row)


def middle(timings: list[Timing]) -> Timing:
    """Return the median of each figure of *timings*."""
    names = Timing.__struct_fields__
    return Timing(**{name: median(getattr(each, name) for each in timings) for name in names})


def paired(ours: Side, theirs: Side, rounds: int) -> list[Round]:
    """Return both sides of each of *rounds* rounds, after one that is thrown away."""
    found: list[Round] = []
    for number in range(rounds + 1):
        if number % 2:
            mine, other = _settled(ours), _settled(theirs)
        else:
            other, mine = _settled(theirs), _settled(ours)
        found.append((mine, other))
    return found[1:]


def _settled(side: Side) -> Timing:
    gc.collect()
    return side()


def one_by_one(
    count: int, call: Callable[[int], T], after: Callable[[T], object] | None = None
) -> Timing:
    """Return what each of *count* calls of *call*(number) took, one after the other.

    *after* is given what each call returned; its time is not counted.
    """
    took: list[int] = []
    for number in range(count):
        begun = perf_counter_ns()
        given = call(number)
        took.append(perf_counter_ns() - begun)
        if after is not None:
            after(given)
    took.sort()
    return Timing(
        each=sum(took) / count,
        p50=took[count // 2],
        p95=took[count * 95 // 100],
        p99=took[count * 99 // 100],
        worst=took[-1],
    )


def together(threads: int, count: int, call: Callable[[int], object]) -> Timing:
    """Return what each of *count* calls of *call*(number) took, shared out among *threads*."""
    share = count // threads
    gate = threading.Barrier(threads + 1)
    failed: list[BaseException] = []

    def work(first: int) -> None:
        gate.wait()
        try:
            for number in range(first, first + share):
                call(number)
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            failed.append(error)

    workers = [threading.Thread(target=work, args=(each * share,)) for each in range(threads)]
    for worker in workers:
        worker.start()
    gate.wait()
    begun = perf_counter_ns()
    for worker in workers:
        worker.join()
    took = perf_counter_ns() - begun
    if failed:
        raise failed[0]
    return Timing(each=took / (share * threads))


@contextmanager
def beside(threads: int, call: Callable[[int], object]) -> Generator[None]:
    """Let *threads* go on calling *call*(number), each number once, while the block runs."""
    stop = threading.Event()

    def work(number: int) -> None:
        while not stop.is_set():
            call(number)
            number += threads

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def main(name: str, question: str, run: Callable[[Bench], None]) -> None:
    """Run the benchmark *run* as the command line asks, print its table, and exit.

    The exit code is 1 when a figure is below half its goal, or too good to be true.
    """
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--quick", action="store_true", help="few rounds, small data")
    parser.add_argument("--rounds", type=int, help="how many rounds count")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    parser.add_argument("--stages", action="store_true", help="say where a write's time goes")
    parser.add_argument("--full", action="store_true", help="as far as before a release")
    parser.add_argument("--writes", action="store_true", help="only writes, in benches of writes")
    given = parser.parse_args()
    before = load()
    report = Report(
        name=name,
        question=question,
        quick=given.quick,
        rounds=given.rounds or (3 if given.quick else 7),
        machine=here(),
        load_before=before,
        load_after=before,
    )
    with TemporaryDirectory(prefix="hfb") as folder:
        how = {"stages": given.stages, "full": given.full, "writes": given.writes}
        run(Bench(report, Path(folder), **how))
    report.load_after = load()
    print("\n".join(report.lines()))
    if given.json:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    sys.exit(int(any(row.failed for row in report.rows)))
