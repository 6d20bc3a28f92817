"""Who reaches durable memory over HTTP: scopes, bound keys, other agents, other workspaces."""

import pytest
from doors.http.asking import Asker, Said, SharedApp

from holdfast.doors.http.app import routes
from holdfast.doors.http.request import HttpRoute
from holdfast.ground.metrics import REGISTRY
from holdfast.library.holdfast import Holdfast

CORE = {"content": "a secret of agent_7", "category": "core"}
E = "/api/durable/agent_7"
DURABLE = [each for each in routes(strict=False) if each.durable]
AGENTS = [each for each in DURABLE if "{agent}" in each.path]
RANK = {"read": 0, "write": 1, "admin": 2}


def name(route: HttpRoute) -> str:
    return f"{route.method} {route.path}"


def asked(ask: Asker, route: HttpRoute, agent: str = "agent_7") -> Said:
    target = route.path
    for place, value in {"agent": agent, "key": "k", "run_id": "r", "seq": "1"}.items():
        target = target.replace(f"{{{place}}}", value)
    return ask(route.method, target, {} if route.body else None)


def holder(hf: Holdfast, ask: Asker, scope: str = "admin", **bound: str) -> Asker:
    key = hf.keys.create("k", scope, **bound)  # pyright: ignore[reportArgumentType] - one of them
    assert key.secret is not None
    return ask.as_(x_api_key=key.secret)


def write(hf: Holdfast) -> None:
    hf.durable("agent_7").set("k", CORE["content"], category="core")


@pytest.fixture
def written(hf: Holdfast) -> None:
    write(hf)


@pytest.mark.parametrize("route", DURABLE, ids=name)
@pytest.mark.parametrize("scope", ["read", "write"])
def test_a_key_of_too_small_a_scope_is_refused(
    shared: SharedApp, route: HttpRoute, scope: str
) -> None:
    hf, ask = shared
    said = asked(holder(hf, ask, scope), route)

    refused = RANK[scope] < RANK[route.needs]
    assert (said.status == 403) == refused
    if refused:
        assert (said.error["code"], said.error["needed"]) == ("HF-MEM-001", route.needs)


@pytest.mark.parametrize("route", DURABLE, ids=name)
def test_who_sends_no_key_is_told_nothing(shared: SharedApp, route: HttpRoute) -> None:
    hf, ask = shared
    write(hf)
    holder(hf, ask)

    for asker in (ask, ask.as_(x_api_key="hf_" + "x" * 43)):
        assert asked(asker, route).status == 401


@pytest.mark.parametrize("route", DURABLE, ids=name)
def test_a_bound_key_reaches_no_other_agent(shared: SharedApp, route: HttpRoute) -> None:
    hf, ask = shared
    write(hf)

    said = asked(holder(hf, ask, agent="agent_1"), route)

    assert (said.status, said.error["code"]) == (403, "HF-MEM-001")
    assert b"secret" not in said.body


@pytest.mark.parametrize("route", AGENTS, ids=name)
def test_a_bound_key_reaches_all_of_its_agents_but_its_limits(
    shared: SharedApp, route: HttpRoute
) -> None:
    hf, ask = shared
    said = asked(holder(hf, ask, agent="agent_7"), route)

    assert (said.status == 403) == (name(route) == "PATCH /api/durable/{agent}/limits")


@pytest.mark.usefixtures("written")
def test_another_agents_memory_says_the_same_whether_there_is_one_or_not(
    hf: Holdfast, ask: Asker
) -> None:
    bound = holder(hf, ask, agent="agent_1")

    there, absent = (bound.get(f"/api/durable/{a}/entries/k") for a in ("agent_7", "agent_2"))

    assert there.status == absent.status == 403
    assert there.error == absent.error


def test_a_key_bound_to_a_user_reaches_no_agent(hf: Holdfast, ask: Asker) -> None:
    bound = holder(hf, ask, user="ada")

    assert {asked(bound, route).status for route in DURABLE} == {403}


def test_a_bound_key_learns_who_it_is_and_nothing_else(hf: Holdfast, ask: Asker) -> None:
    bound = holder(hf, ask, agent="agent_7")

    me = bound.get("/api/me").json()

    assert (me["agent"], me["scope"]) == ("agent_7", "admin")
    assert bound.get("/v1/memory_stores").status == 403
    assert bound.get("/metrics").status == 403
    assert bound.get("/api/events").status == 403


def test_a_bound_key_reads_what_its_workspace_shares(hf: Holdfast, ask: Asker) -> None:
    hf.durable("agent_1").set("shared", "for all", category="workspace")

    said = holder(hf, ask, "read", agent="agent_7").get(f"{E}/entries/shared")

    assert said.json()["content"] == "for all"


def test_an_agent_nobody_wrote_to_is_an_empty_memory(ask: Asker) -> None:
    said = [
        ask.get("/api/durable/nobody/entries"),
        ask.get("/api/durable/nobody/history"),
        ask.get("/api/durable/nobody/hydration"),
        ask.get("/api/durable/nobody/limits"),
    ]

    assert {each.status for each in said} == {200}
    assert ask.get("/api/durable").json()["data"] == []


@pytest.mark.parametrize("route", AGENTS, ids=name)
def test_another_workspaces_header_is_refused(shared: SharedApp, route: HttpRoute) -> None:
    hf, ask = shared
    key = hf.keys.create("k", "admin").secret
    assert key is not None

    for header in ("anthropic-workspace-id", "holdfast-workspace"):
        said = asked(ask.as_(**{"x-api-key": key, header: "lab"}), route)
        assert (said.status, said.error["code"]) == (403, "HF-MEM-001")


def test_workspaces_of_an_open_server_see_nothing_of_each_other(ask: Asker) -> None:
    lab = ask.as_(holdfast_workspace="lab")
    ask("PUT", f"{E}/entries/k", {**CORE, "category": "workspace"})
    ask("PUT", f"{E}/entries/own", CORE)

    assert lab.get(f"{E}/entries").json()["data"] == []
    assert lab.get(f"{E}/entries/k").status == 404
    assert lab.get(f"{E}/history").json()["data"] == []
    assert lab.get("/api/durable").json()["data"] == []
    assert lab("DELETE", f"{E}/entries/k").json()["forgotten"] is False
    assert lab.post(f"{E}/history/1/redact").status == 404
    assert lab.post("/api/forget", {"agent": "agent_7"}).json()["counts"]["durable_entries"] == 0
    assert ask.get(f"{E}/entries/own").status == 200


def test_a_cursor_of_another_agent_is_refused(ask: Asker) -> None:
    for key in ("a", "b"):
        ask("PUT", f"{E}/entries/{key}", CORE)
    page = ask.get(f"{E}/entries?limit=1").json()["next_page"]

    said = ask.get(f"/api/durable/agent_1/entries?limit=1&page={page}")

    assert (said.status, said.error["code"]) == (400, "HF-MEM-004")


@pytest.mark.usefixtures("written")
def test_replacing_by_import_needs_admin(hf: Holdfast, ask: Asker) -> None:
    writer = holder(hf, ask, "write")

    upsert = writer.post(f"{E}/import", {"files": []})
    replace = writer.post(f"{E}/import", {"files": [], "mode": "replace"})

    assert upsert.status == 200
    assert (replace.status, replace.error["code"], replace.error["needed"]) == (
        403,
        "HF-MEM-001",
        "admin",
    )
    assert hf.durable("agent_7").get("k") is not None


def test_a_session_token_reaches_no_durable_memory(hf: Holdfast, ask: Asker) -> None:
    session = hf.sessions.create(agent="agent_7", environment_id="e")
    token = hf.sessions.create_token(session.id).token
    assert token is not None

    said = [asked(ask.as_(x_api_key=token), route) for route in DURABLE]

    assert {(each.status, each.error["code"]) for each in said} == {(403, "HF-MEM-001")}


def test_a_bad_name_of_an_agent_is_no_name(ask: Asker) -> None:
    for bad in ("%20", "a%2Fb", "%00", "*", "x" * 129, ".."):
        said = ask.get(f"/api/durable/{bad}/entries")
        assert (said.status, said.error["code"]) == (400, "HF-MEM-004"), bad


def refused_so_far() -> float:
    numbers = REGISTRY.flat()
    return sum(numbers[name] for name in numbers if name.startswith("durable_refused_total"))


def test_a_write_refused_at_the_door_is_counted_and_told(hf: Holdfast, ask: Asker) -> None:
    heard: list[str] = []
    off = hf.events.subscribe(lambda event: heard.append(event.type), types=["durable.refused"])
    before = refused_so_far()

    ask("PUT", f"{E}/entries/k", {"content": 1})
    ask("PUT", f"{E}/entries/k", {"content": "c", "category": "conversation"})
    ask.get(f"{E}/entries?limit=0")
    off()

    assert heard == ["durable.refused"] * 2
    assert refused_so_far() == before + 2
