"""What the server does for durable memory by itself, and the numbers it tells of it."""

from collections.abc import Iterator

import pytest
from doors.http.asking import Asker

import holdfast
from holdfast.doors.http.app import make_app
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

E = "/api/durable/agent_7"
LATE = 73 * 3600


@pytest.fixture(params=["sqlite", "postgres"])
def both(request: pytest.FixtureRequest, clock: FrozenClock) -> Iterator[Holdfast]:
    sqlite = request.param == "sqlite"
    target = ":memory:" if sqlite else request.getfixturevalue("fresh_postgres_url")
    with holdfast.open(target, clock=clock) as hf:
        yield hf


def test_the_server_sweeps_idle_agents_of_every_workspace(
    both: Holdfast, clock: FrozenClock
) -> None:
    lab = both.acting(workspace="lab").durable("agent_7")
    own = both.durable("agent_7")
    for each in (lab, own):
        each.set("k", "c", category="daily")
    clock.tick(LATE)
    app = make_app(both, clock=clock)

    app.state.sweep_durable()
    app.state.close()

    assert [change.op for each in (lab, own) for change in each.history(op="expire")] == [
        "expire",
        "expire",
    ]


def samples(ask: Asker) -> dict[str, float]:
    lines = ask.get("/metrics").body.decode().splitlines()
    told = [each.rpartition(" ") for each in lines if each.startswith("holdfast_durable_")]
    return {name: float(value) for name, _, value in told}


def test_every_number_is_there_from_the_start(ask: Asker) -> None:
    names = {name.partition("{")[0].removeprefix("holdfast_durable_") for name in samples(ask)}

    assert names == {
        "stored_total",
        "refused_total",
        "evicted_total",
        "expired_total",
        "forgotten_total",
        "hydrations_total",
        "hydrated_entries_total",
        "hydrated_bytes_total",
        "omitted_entries_total",
        "omitted_bytes_total",
        "searches_total",
        "recalls_total",
        "runs_total",
        "sweep_lag_seconds",
    }


def test_the_numbers_follow_what_happens(ask: Asker) -> None:
    before = samples(ask)
    ask("PUT", f"{E}/entries/k", {"content": "ada", "category": "core"})
    ask.get(f"{E}/entries/k")
    ask.get(f"{E}/entries/nope")
    ask.get(f"{E}/entries?query=ada")
    ask.get(f"{E}/hydration")
    ask("DELETE", f"{E}/entries/k")

    risen = {name for name, value in samples(ask).items() if value > before[name]}

    assert risen == {
        'holdfast_durable_stored_total{outcome="created"}',
        'holdfast_durable_recalls_total{result="hit"}',
        'holdfast_durable_recalls_total{result="miss"}',
        'holdfast_durable_searches_total{result="hit"}',
        "holdfast_durable_hydrations_total",
        "holdfast_durable_hydrated_entries_total",
        "holdfast_durable_hydrated_bytes_total",
        "holdfast_durable_forgotten_total",
    }


def test_the_lag_is_the_age_of_what_is_over_and_still_there(ask: Asker, clock: FrozenClock) -> None:
    ask("PUT", f"{E}/entries/k", {"content": "c", "category": "daily"})
    clock.tick(LATE)
    lag = samples(ask)["holdfast_durable_sweep_lag_seconds"]

    ask.app.state.sweep_durable()

    assert lag == pytest.approx(3600, abs=1)
    assert samples(ask)["holdfast_durable_sweep_lag_seconds"] == 0
