"""Runs under DBOS that are killed at any moment: another process goes on, nothing is repeated.

In the long form of the tests (`make torture`) at every moment, else at a few.
"""

import asyncio
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from runtime.lives import KINDS, Death, Point
from runtime.plans.test_dbos_killed import begun, killed, lived, opened
from torture.counts import counted
from torture.test_runs_killed import (
    EVERY,
    LIFE,
    POINTS,
    RUN_KILLS,
    SOME,
    UNTOOLED,
    Place,
    check,
)

from holdfast.testing.serving import new_workspace


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "h.db")
    return request.getfixturevalue("fresh_postgres_url")


def queued(kind: str, database: str, log: Path) -> Place:
    """Return a run of *kind* that is queued in a workspace of its own in *database*."""
    place = Place(kind=kind, target=f"{new_workspace()}@{database}", log=log)
    with opened(place.target, 0) as hf:
        hf.runs.start("life", run_id="run_1")
    return place


FEW = ("plan", "team", "network", "agent")
"""Kinds of runs that are killed in the short form."""


@pytest.mark.parametrize("kind", SOME if EVERY else FEW)
def test_killed_twice_under_dbos_another_worker_ends_the_run(
    kind: str, database: str, tmp_path: Path
) -> None:
    place, deaths = queued(kind, database, tmp_path / "log"), SOME[kind]

    for lives, death in enumerate(deaths):
        killed(kind, place.target, lives, place.life(death))
    lived(kind, place.target, len(deaths), place.life())

    asyncio.run(check(place, fence=len(deaths) + 1))
    counted(RUN_KILLS, len(deaths))


def each_moment(kind: str, database: str, point: Point, folder: Path) -> Iterator[Place]:
    """Kill a worker at the next *point* of each run of *kind*; yield the runs that it had."""
    for number in count(1):
        place = queued(kind, database, folder / f"log-{number}")
        process = begun(kind, place.target, 0, place.life(Death(point, number)))
        process.join(LIFE)
        if process.exitcode == 0:
            assert number > 1
            asyncio.run(check(place, fence=1))
            return
        assert process.exitcode == -signal.SIGKILL
        yield place
        counted(RUN_KILLS, 1)


MOMENTS = [
    (kind, point) for kind in KINDS for point in POINTS if point != "tool" or kind not in UNTOOLED
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "point"), MOMENTS if EVERY else [])
def test_killed_under_dbos_at_each_moment_another_worker_ends_the_run(
    kind: str, point: Point, database: str, tmp_path: Path
) -> None:
    for place in each_moment(kind, database, point, tmp_path):
        lived(kind, place.target, 1, place.life())
        asyncio.run(check(place, fence=2))
