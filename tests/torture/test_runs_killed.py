"""Runs of every kind that are killed at any moment: another process goes on, nothing is repeated.

In the long form of the tests (`make torture`) at every moment, else at a few.
"""

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec import Struct
from msgspec.structs import replace
from runtime.lives import KINDS, Death, Life, Point, begun, killed, lived
from torture.counts import counted

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.event import ENDS
from holdfast.runtime.runs.run_record import Recorded
from holdfast.testing.serving import new_workspace

pytestmark = pytest.mark.anyio

EVERY = "HOLDFAST_TORTURE_LIVES" in os.environ
LIFE = 120
"""Seconds after which a process that does not end has failed."""
RUN_KILLS = "kills in the middle of a run"


class Trail(Struct, frozen=True):
    """What a run has done: requests and calls, writes to a memory of ours, parts by state."""

    notes: dict[str, int]
    writes: int = 0
    parts: dict[tuple[str, str], int] = {}


class Place(Struct, frozen=True, kw_only=True):
    """A run of *kind* at *target*, and the file that counts what it does."""

    kind: str
    target: str
    log: Path
    record: Recorded = "content"

    def life(self, *death: Death) -> Life:
        """Return the next process of the run, which meets *death*."""
        return Life(self.log, *death, stores=self.kind not in UNTOOLED, record=self.record)

    @property
    def is_database(self) -> bool:
        """Whether the run has a record."""
        return not self.target.startswith("files:")

    def open(self) -> Holdfast:
        """Open the database of the run."""
        workspace, _, database = self.target.partition("@")
        return holdfast.open(database, workspace=workspace)

    def trail(self) -> Trail:
        """Return what the run has done so far."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        notes = Counter(line for line in lines if line != "dies")
        if not self.is_database:
            return Trail(dict(notes))
        with self.open() as hf:
            writes = len(list(hf.durable("ada").history("berth")))
            parts = Counter(
                (part.kind, part.state)
                for part in hf.runs.parts("run_1")
                # The end of a turn is told after it is kept, so it may be told by no process.
                if self.kind != "team" or part.kind != "agent"
            )
        return Trail(dict(notes), writes, dict(parts))


UNTOOLED = ("planner", "mode")
"""Kinds whose models get no tools of ours here."""


_undisturbed: dict[tuple[str, bool], Trail] = {}


async def undisturbed(kind: str, *, files: bool) -> Trail:
    """Return what a run of *kind* does that is not disturbed."""
    if (kind, files) not in _undisturbed:
        with TemporaryDirectory() as folder:
            target = f"files:{folder}/kept" if files else f"{new_workspace()}@{folder}/h.db"
            place = Place(kind=kind, target=target, log=Path(folder) / "log")
            assert await lived(kind, target, place.life()) == KINDS[kind][1]
            _undisturbed[kind, files] = place.trail()
    return _undisturbed[kind, files]


async def gone_on_with(place: Place, deaths: Sequence[Death]) -> None:
    """Kill a process of the run at each of *deaths*; let another one end it, and judge it all."""
    for death in deaths:
        killed(place.kind, place.target, place.life(death))
    assert await lived(place.kind, place.target, place.life()) == KINDS[place.kind][1]
    await check(place, fence=len(deaths) + 1)
    counted(RUN_KILLS, len(deaths))


async def check(place: Place, fence: int) -> None:
    """Check that a run, of which *fence* is the last owner, was executed once."""
    whole = await undisturbed(place.kind, files=not place.is_database)
    trail = place.trail()
    # A function, a router or another's tool in flight is called again, and never a model.
    assert trail.notes["reply"] == whole.notes["reply"]
    assert set(trail.notes) == set(whole.notes)
    assert (trail.writes, trail.parts) == (whole.writes, whole.parts)
    if not place.is_database:
        return
    with place.open() as hf:
        run = hf.runs.retrieve("run_1")
        events = list(hf.runs.follow("run_1"))
        versions = list(hf.runs.versions("run_1", limit=1000))
    assert (run.status, run.fence) == ("completed", fence)
    assert [event.type for event in events if event.type in ENDS] == ["run.completed"]
    assert events[-1].type == "run.completed"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [each.number for each in versions] == list(range(len(versions), 0, -1))
    kept = [event.data["version"] for event in events if event.type == "version.kept"]
    assert kept == list(range(1, len(versions) + 1))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return str(tmp_path / "h.db")


SOME: dict[str, list[Death]] = {
    "step": [Death("version", 1), Death("tool", 2)],
    "task": [Death("tool", 2), Death("version", 3)],
    "plan": [Death("version", 5), Death("tool", 1)],
    "team": [Death("version", 4), Death("tool", 1)],
    "workflow": [Death("version", 2), Death("tool", 2)],
    "network": [Death("tool", 2), Death("version", 2)],
    "agent": [Death("tool", 2), Death("version", 4)],
}
"""Moments at which one run after the other of each kind is killed in the short form."""


@pytest.mark.parametrize("kind", SOME)
async def test_killed_twice_another_process_ends_the_run_and_nothing_is_repeated(
    kind: str, sqlite: str, log: Path
) -> None:
    target = f"{new_workspace()}@{sqlite}"
    await gone_on_with(Place(kind=kind, target=target, log=log), SOME[kind])


@pytest.mark.parametrize("kind", SOME)
async def test_killed_on_postgres_another_process_ends_the_run(
    kind: str, postgres_url: str, log: Path
) -> None:
    target = f"{new_workspace()}@{postgres_url}"
    await gone_on_with(Place(kind=kind, target=target, log=log), SOME[kind][:1])


@pytest.mark.parametrize("where", ["files", "sqlite", "postgres"])
async def test_a_plan_of_six_tasks_killed_three_times_asks_for_each_once(
    where: str, sqlite: str, postgres_url: str, tmp_path: Path, log: Path
) -> None:
    workspace = new_workspace()
    targets = {
        "files": f"files:{tmp_path / 'kept'}",
        "sqlite": f"{workspace}@{sqlite}",
        "postgres": f"{workspace}@{postgres_url}",
    }
    place = Place(kind="plan", target=targets[where], log=log)

    await gone_on_with(place, [Death("request", 2), Death("version", 2), Death("request", 3)])


async def each_moment(place: Place, point: Point, folder: Path) -> AsyncIterator[Place]:
    """Kill runs like *place*, each at the next *point*; yield those that were killed."""
    for number in count(1):
        database = place.target.partition("@")[2]
        kept = folder / f"kept-{number}"
        made = replace(
            place,
            target=f"{new_workspace()}@{database}" if place.is_database else f"files:{kept}",
            log=folder / f"log-{number}",
        )
        process = begun(made.kind, made.target, made.life(Death(point, number)))
        process.join(LIFE)
        if process.exitcode == 0:
            assert number > 1
            await check(made, fence=1)
            return
        assert process.exitcode == -signal.SIGKILL
        yield made
        counted(RUN_KILLS, 1)


KINDS_IN = {
    "sqlite": tuple(KINDS),
    "postgres": tuple(SOME),
    "files": ("step", "task", "plan", "workflow"),
}
"""The kinds of runs that are killed at every moment, by where they are kept."""

POINTS: tuple[Point, ...] = ("version", "tool", "request")

MOMENTS = [
    (where, kind, point)
    for where, kinds in KINDS_IN.items()
    for kind in kinds
    for point in POINTS
    if point != "tool" or kind == "step" or (kind not in UNTOOLED and where != "files")
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("where", "kind", "point"), MOMENTS if EVERY else [])
async def test_killed_at_each_moment_another_process_ends_the_run(
    where: str, kind: str, point: Point, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database = request.getfixturevalue("postgres_url" if where == "postgres" else "sqlite")
    target = "files:" if where == "files" else f"@{database}"
    place = Place(kind=kind, target=target, log=tmp_path)

    async for each in each_moment(place, point, tmp_path):
        assert await lived(kind, each.target, each.life()) == KINDS[kind][1]
        await check(each, fence=2)


@pytest.mark.parametrize("kind", SOME if EVERY else ["plan", "network"])
async def test_killed_once_its_end_is_stored_a_run_is_over(
    kind: str, sqlite: str, log: Path
) -> None:
    place = Place(kind=kind, target=f"{new_workspace()}@{sqlite}", log=log)

    killed(kind, place.target, place.life(Death("end", 1)))

    await check(place, fence=1)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["team", "network"] if EVERY else [])
async def test_killed_at_each_moment_with_the_facts_of_events_alone(
    kind: str, sqlite: str, tmp_path: Path
) -> None:
    place = Place(kind=kind, target=f"@{sqlite}", log=tmp_path, record="facts")

    async for each in each_moment(place, "version", tmp_path):
        assert await lived(kind, each.target, each.life()) == KINDS[kind][1]
        await check(each, fence=2)
