"""Nobody learns over HTTP whether another's durable memory has something: refusals are alike."""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from contracts.durable_writes import keys_of
from doors.http.asking import Asker, Said, SharedApp
from memories.durable.beneath import everything
from msgspec import Struct
from msgspec.structs import replace

from holdfast.doors.http.app import routes
from holdfast.doors.http.request import HttpRoute
from holdfast.library.holdfast import Holdfast

CONTENT, KEY = "Zw3xSecretContent", "Kq9fSecretKey"
ENTRY = {"content": "x", "category": "core"}

AGENTS = "/api/durable/{agent}"
BODIES: dict[str, object] = {
    "GET /api/durable": None,
    "GET /api/settings/durable": None,
    "PATCH /api/settings/durable": {"budget": 1000},
    "POST /api/sweep": None,
    "POST /api/forget": {"agent": "{agent}"},
    f"GET {AGENTS}/entries": None,
    f"POST {AGENTS}/entries": {"entries": [{"key": "{key}", **ENTRY}]},
    f"PUT {AGENTS}/entries/{{key}}": ENTRY,
    f"GET {AGENTS}/entries/{{key}}": None,
    f"DELETE {AGENTS}/entries/{{key}}": None,
    f"GET {AGENTS}/entries/{{key}}/explanation": None,
    f"POST {AGENTS}/entries/{{key}}/accept": None,
    f"POST {AGENTS}/entries/{{key}}/restore": {"seq": "{seq}"},
    f"GET {AGENTS}/hydration": None,
    f"POST {AGENTS}/runs": {"run_id": "{run_id}"},
    f"POST {AGENTS}/runs/{{run_id}}/heartbeat": None,
    f"POST {AGENTS}/runs/{{run_id}}/end": None,
    f"GET {AGENTS}/export": None,
    f"POST {AGENTS}/import": {"files": [{"path": "a.md", "text": "---\nkey: k\n---\nx"}]},
    f"GET {AGENTS}/history": None,
    f"POST {AGENTS}/history/{{seq}}/redact": None,
    f"GET {AGENTS}/limits": None,
    f"PATCH {AGENTS}/limits": {"cap": 7},
    f"POST {AGENTS}/sweep": None,
}
"""What each route is asked for with, so that whoever may gets what he asks for."""


class Named(Struct, frozen=True):
    """What a request names: something that is there, or nothing that ever was."""

    agent: str
    key: str
    run_id: str
    token: int
    seq: int


def name(route: HttpRoute) -> str:
    return f"{route.method} {route.path}"


def ask_for(ask: Asker, route: HttpRoute, named: Named, *, in_run: bool = False) -> Said:
    """Ask for *route* about what is *named*, in its run where that is needed or asked for."""

    def filled(value: Any) -> Any:
        match value:
            case "{seq}":
                return named.seq
            case str():
                return re.sub(r"\{(\w+)\}", lambda place: str(getattr(named, place[1])), value)
            case dict():
                fields = cast("dict[str, Any]", value)
                return {name: filled(each) for name, each in fields.items()}
            case list():
                return [filled(each) for each in cast("list[Any]", value)]
            case _:
                return value

    headers = dict[str, str]()
    if in_run or "{run_id}" in route.path:
        headers = {"holdfast-run": named.run_id, "holdfast-run-token": str(named.token)}
    return ask(route.method, filled(route.path), filled(BODIES[name(route)]), headers=headers)


def seen(said: Said, named: Named | None = None) -> tuple[int, dict[str, str], str]:
    """Return all that *said* shows but the request's own id; of what is *named* only that it is."""
    headers = {key: value for key, value in said.headers.items() if key != "request-id"}
    body = re.sub(r'"request_id":"[^"]*"', "", said.body.decode())
    if named is not None:
        headers.pop("content-length")
        told = f"{headers} {body}"
        for each in (named.agent, named.key, named.run_id):
            told = told.replace(each, "_")
        headers, body = {}, re.sub(r"\b[0-9a-f]{64}\b|(entry|run|eras)_\w+|\d+", "#", told)
    return said.status, headers, body


DURABLE = [each for each in routes(strict=False) if name(each) in BODIES]
OF_AGENTS = [each for each in DURABLE if "{agent}" in each.path]

Refused = Callable[[Holdfast, Asker, HttpRoute], Asker | None]


def key_of(hf: Holdfast, scope: str = "admin", **bound: str) -> str:
    key = hf.keys.create("k", scope, **bound)  # pyright: ignore[reportArgumentType] - one of them
    assert key.secret is not None
    return key.secret


def nobody(hf: Holdfast, ask: Asker, _: HttpRoute) -> Asker:
    key_of(hf)
    return ask


def a_stranger(hf: Holdfast, ask: Asker, _: HttpRoute) -> Asker:
    key_of(hf)
    return ask.as_(x_api_key="hf_" + "x" * 43)


def one_whose_key_was_revoked(hf: Holdfast, ask: Asker, _: HttpRoute) -> Asker:
    key_of(hf)
    key = hf.keys.create("k", "admin")
    assert key.secret is not None
    hf.keys.revoke(key.id)
    return ask.as_(x_api_key=key.secret)


def another_agent(hf: Holdfast, ask: Asker, _: HttpRoute) -> Asker:
    return ask.as_(x_api_key=key_of(hf, agent="agent_1"))


def a_user(hf: Holdfast, ask: Asker, _: HttpRoute) -> Asker:
    return ask.as_(x_api_key=key_of(hf, user="ada"))


def one_of_too_small_a_scope(hf: Holdfast, ask: Asker, route: HttpRoute) -> Asker | None:
    below = {"write": "read", "admin": "write"}.get(route.needs)
    return None if below is None else ask.as_(x_api_key=key_of(hf, below))


def another_workspace(hf: Holdfast, ask: Asker, _: HttpRoute) -> Asker:
    """Hold a key of another workspace, and ask for this one's."""
    key = key_of(hf.acting(workspace="lab"))
    return ask.as_(x_api_key=key, holdfast_workspace="default")


REFUSED: list[Refused] = [
    nobody,
    a_stranger,
    one_whose_key_was_revoked,
    another_agent,
    a_user,
    one_of_too_small_a_scope,
    another_workspace,
]


def put(hf: Holdfast) -> Named:
    """Store an agent with a key, a run and a change."""
    durable = hf.durable("agent_7")
    durable.set(KEY, CONTENT, category="core")
    seq = durable.set(KEY, f"{CONTENT} changed", category="core").seq
    run = durable.run("run_7")
    run.set("scratch", CONTENT, category="conversation")
    return Named("agent_7", KEY, run.run_id, run.token, seq)


@pytest.fixture
def there(hf: Holdfast) -> Named:
    """Give what is there: an agent, with a key, a run and a change."""
    return put(hf)


def none_like(there: Named) -> Named:
    """Return names of the like that nothing has."""
    return Named("agent_0", "Kq9fNothingKey", "run_0", there.token + 400, there.seq + 400)


@pytest.fixture
def absent(there: Named) -> Named:
    """Give names of the like that nothing has."""
    return none_like(there)


@contextmanager
def demanded(hf: Holdfast, there: Named) -> Generator[None]:
    """Demand that what is there stays as it is."""

    def rows() -> list[str]:
        return [
            str(row)
            for table, rows in everything(hf).items()
            for row in rows
            if table != "changes" and row.get("agent", "") in (there.agent, "")
        ]

    before = rows()
    yield
    assert rows() == before


@pytest.fixture
def unchanged(hf: Holdfast, there: Named) -> Iterator[None]:
    with demanded(hf, there):
        yield


@pytest.fixture(scope="module")
def shared_there(shared: SharedApp) -> Named:
    return put(shared.hf)


@pytest.fixture
def undisturbed(shared: SharedApp, shared_there: Named) -> Iterator[None]:
    with demanded(shared.hf, shared_there):
        yield


def test_every_route_of_durable_memory_is_asked_for() -> None:
    """A route that is new, or was made without saying that it is durable, fails here."""
    every = [
        each
        for each in routes(strict=False)
        if each.durable or "durable" in each.path or "durable" in each.answer.__module__
    ]

    assert {name(each) for each in every} == BODIES.keys()
    assert [name(each) for each in every if not each.durable] == []


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize("who", REFUSED, ids=lambda who: who.__name__)
@pytest.mark.parametrize("route", DURABLE, ids=name)
def test_a_refusal_is_the_same_whether_it_is_there_or_not(
    shared: SharedApp, route: HttpRoute, who: Refused, shared_there: Named
) -> None:
    there, absent = shared_there, none_like(shared_there)
    asker = who(*shared, route)
    if asker is None:
        return

    said = ask_for(asker, route, there)

    assert said.status in (401, 403)
    if said.status == 403:
        assert said.error["code"] == "HF-MEM-001"
    for one in (
        absent,
        replace(there, agent=absent.agent),
        replace(there, key=absent.key),
        replace(there, run_id=absent.run_id, token=absent.token),
        replace(there, seq=absent.seq),
    ):
        for in_run in (False, True):
            assert seen(ask_for(asker, route, one, in_run=in_run)) == seen(said)


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize("who", [nobody, another_agent, one_of_too_small_a_scope])
@pytest.mark.parametrize("route", [each for each in DURABLE if each.body], ids=name)
def test_who_may_not_ask_is_not_told_that_the_request_is_bad(
    shared: SharedApp, route: HttpRoute, who: Refused, shared_there: Named
) -> None:
    asker = who(*shared, route)
    if asker is None:
        return
    said = ask_for(asker, route, shared_there)
    target = route.path.format(agent="agent_7", key=KEY, run_id="run_7", seq=shared_there.seq)

    for bad in (b"{", b'{"nothing": 1}', b"[]"):
        assert seen(asker(route.method, target, bad)) == seen(said)
    assert seen(asker(route.method, f"{target}?nothing=1")) == seen(said)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("open_to_all", [True, False])
@pytest.mark.parametrize("route", DURABLE, ids=name)
def test_from_another_workspace_an_agent_is_like_one_that_nobody_has(
    hf: Holdfast,
    ask: Asker,
    route: HttpRoute,
    there: Named,
    absent: Named,
    *,
    open_to_all: bool,
) -> None:
    lab = hf.acting(workspace="lab")
    own = {"holdfast_workspace": "lab"} if open_to_all else {"x_api_key": key_of(lab)}

    for in_run in (False, True):
        told = [ask_for(ask.as_(**own), route, one, in_run=in_run) for one in (there, absent)]

        assert seen(told[0], there) == seen(told[1], absent)
        assert not [each for each in told if CONTENT.encode() in each.body]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("route", OF_AGENTS, ids=name)
def test_in_its_own_memory_anothers_run_and_change_are_none(
    hf: Holdfast, ask: Asker, route: HttpRoute, there: Named, absent: Named
) -> None:
    if name(route) == f"PATCH {AGENTS}/limits":
        return
    bound = ask.as_(x_api_key=key_of(hf, agent="agent_1"))
    hf.durable("agent_1").set("own", "x", category="core")

    for in_run in (False, True):
        their, none = replace(there, agent="agent_1"), replace(absent, agent="agent_1")
        told = [ask_for(bound, route, one, in_run=in_run) for one in (their, none)]

        assert seen(told[0], their) == seen(told[1], none)
        assert not [each for each in told if CONTENT.encode() in each.body]
    assert keys_of(hf.durable("agent_7").list().data) == [KEY]
