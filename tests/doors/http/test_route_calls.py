"""Each route refuses a wrong request."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from contracts.runs import Held
from doors.http.asking import Asker
from doors.http.calls import ALWAYS_REFUSED, CALLS, filled, name_of
from doors.world import app_of, objects

import holdfast
from holdfast.doors.http.app import routes
from holdfast.doors.http.request import HttpRoute
from holdfast.testing.fakes import FrozenClock

ROUTES = routes(strict=False)
REFUSABLE = [each for each in ROUTES if each.needs != "nothing" and each.path != "/metrics"]
"""Routes that take an argument; the others answer each request."""


class Called(NamedTuple):
    """An administrator, and the ids of an object of each kind."""

    ask: Asker
    ids: dict[str, str]


@pytest.fixture(scope="module")
def called() -> Iterator[Called]:
    """Give a server for all tests: what is refused changes nothing."""
    clock = FrozenClock()
    with (
        ExitStack() as stack,
        asyncio.Runner() as runner,
        holdfast.open(":memory:", clock=clock) as hf,
    ):
        app = app_of(hf, clock)
        stack.callback(app.state.close)
        secret = str(hf.keys.create("admin", scope="admin").secret)
        ask = Asker(app, runner, {"x-api-key": secret})
        yield Called(ask, objects(hf, ask, stack, Held("s")))


def test_each_call_is_of_a_route() -> None:
    assert set(CALLS) | ALWAYS_REFUSED <= {name_of(each) for each in ROUTES}


@pytest.mark.parametrize("route", REFUSABLE, ids=name_of)
def test_a_wrong_request_to_a_route_is_refused(called: Called, route: HttpRoute) -> None:
    ask, ids = called
    path = filled(route.path, route, ids)
    if route.ours:
        answer = ask(route.method, f"{path}?other=1", {} if route.body else None)
        assert answer.status == 400, answer.body
    elif route.body is not None:
        answer = ask(route.method, path, b"[")
        assert answer.status == 400, answer.body
    elif any(each.wire == "limit" for each in route.query):
        answer = ask(route.method, f"{path}?limit=-1")
        assert answer.status == 400, answer.body
    else:
        answer = ask(route.method, filled(route.path, route, dict.fromkeys(ids, "unknown")))
        assert answer.status == 404, answer.body
    assert answer.json()["type"] == "error"
    assert answer.facts["class"]
