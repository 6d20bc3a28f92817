"""Who reaches long-term memory over HTTP: scopes, bound keys, other users, other workspaces."""

import asyncio
import json
from typing import Any

import pytest
from doors.http.asking import Asker, Said, SharedApp

from holdfast import Budget
from holdfast.doors.http.app import make_app, routes
from holdfast.doors.http.request import HttpRoute
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import Turn

SECRET = "Ada keeps a secret garden"
LONGTERM = [each for each in routes(strict=False) if each.path.startswith("/api/longterm/")]
BODIES: dict[str, Any] = {
    "POST /recall": {"query": "garden"},
    "POST /items": {"text": "Likes tabs"},
    "PATCH /items/{id}": {"importance": 1},
    "POST /turns": {"turns": []},
    "POST /conversations": {"messages": []},
    "POST /flush": {},
    "POST /retry": {},
    "POST /remine": {},
    "PATCH /settings": {},
    "POST /import": None,
}
OFF = {f"{method} {path}" for method, path in (each.split() for each in BODIES)} - {
    "PATCH /items/{id}",
    "PATCH /settings",
}
"""What is refused while memory is off; the rest is a person's own data."""
DECISIONS = {"POST /items/{id}/accept", "POST /items/{id}/reject"}
"""What is for held rows alone."""


def below(route: HttpRoute) -> str:
    return f"{route.method} {route.path.removeprefix('/api/longterm/{user}')}"


def asked(
    ask: Asker, route: HttpRoute, user: str = "ada", id: str = "item_x", query: str = ""
) -> Said:
    id = id if id.startswith(route.path.rpartition("/")[0].rpartition("/")[2][:4]) else "turn_x"
    target = route.path.replace("{user}", user).replace("{id}", id)
    on = "?enabled=true"
    return ask(route.method, f"{target}{on}{query}", BODIES.get(below(route)))


def holder(hf: Holdfast, ask: Asker, scope: str = "admin", **bound: str) -> Asker:
    key = hf.keys.create("k", scope, **bound)  # pyright: ignore[reportArgumentType] - one of them
    assert key.secret is not None
    return ask.as_(x_api_key=key.secret)


def put(hf: Holdfast) -> str:
    """Store a turn and an item, and return the item's id."""
    ltm = hf.longterm("ada", enabled=True)
    assert ltm is not None
    ltm.record([Turn(role="user", text=SECRET)])
    stored = ltm.remember(SECRET).stored
    assert stored is not None
    return stored.id


@pytest.fixture
def item(hf: Holdfast) -> str:
    return put(hf)


@pytest.fixture(scope="module")
def shared_item(shared: SharedApp) -> str:
    return put(shared.hf)


def kept(hf: Holdfast) -> list[dict[str, object]]:
    return list(hf.longterm_data("ada").export())


def test_every_route_is_asked_with_a_body_that_it_takes() -> None:
    bodies = {below(each) for each in LONGTERM if each.body}

    assert bodies == set(BODIES)
    assert len(LONGTERM) == 22


@pytest.mark.usefixtures("item")
@pytest.mark.parametrize("route", LONGTERM, ids=below)
def test_a_bound_key_reaches_all_of_its_user(hf: Holdfast, ask: Asker, route: HttpRoute) -> None:
    assert asked(holder(hf, ask, user="ada"), route).status in {200, 202, 404}


@pytest.mark.parametrize("route", LONGTERM, ids=below)
def test_another_users_route_finds_and_changes_nothing_of_it(
    shared: SharedApp, route: HttpRoute, shared_item: str
) -> None:
    hf, ask = shared
    before = kept(hf)

    said = asked(ask, route, user="bob", id=shared_item)

    assert said.status in {200, 202, 404}
    assert b"garden" not in said.body
    assert kept(hf) == before


@pytest.mark.parametrize("route", LONGTERM, ids=below)
@pytest.mark.parametrize("other", ["&namespace=work", "&workspace_id=w1"])
def test_nor_does_another_collections(
    shared: SharedApp, route: HttpRoute, shared_item: str, other: str
) -> None:
    hf, ask = shared
    before = kept(hf)

    said = asked(ask, route, id=shared_item, query=other)

    assert said.status in {200, 202, 404}
    assert b"garden" not in said.body
    assert kept(hf) == before


@pytest.mark.parametrize("route", LONGTERM, ids=below)
def test_nor_does_another_workspaces(shared: SharedApp, route: HttpRoute, shared_item: str) -> None:
    hf, ask = shared
    before = kept(hf)

    said = asked(ask.as_(holdfast_workspace="lab"), route, id=shared_item)

    assert said.status in {200, 202, 404}
    assert b"garden" not in said.body
    assert kept(hf) == before


def test_a_key_bound_to_both_reaches_both(hf: Holdfast, ask: Asker) -> None:
    bound = holder(hf, ask, agent="agent_7", user="ada")

    assert bound.get("/api/longterm/ada/status").status == 200
    assert bound.get("/api/durable/agent_7/entries").status == 200
    assert bound.get("/api/longterm/agent_7/status").status == 403
    assert bound.get("/api/durable/ada/entries").status == 403


def test_a_bound_key_reaches_nothing_beside_its_user(hf: Holdfast, ask: Asker) -> None:
    bound = holder(hf, ask, user="ada")

    assert bound.get("/api/me").json()["user"] == "ada"
    own = ("/metrics", "/api/events", "/api/durable", "/api/longterm", "/api/activity")
    for path in ("/v1/memory_stores", *own, "/api/samples"):
        assert bound.get(path).status == 403
    assert bound.post("/api/forget", {"user": "ada"}).status == 403


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_LTM_ENABLED", raising=False)


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("query", ["?enabled=false", ""])
@pytest.mark.parametrize("route", LONGTERM, ids=below)
def test_off_it_recalls_and_keeps_nothing_and_hides_nothing(
    hf: Holdfast, ask: Asker, route: HttpRoute, item: str, query: str
) -> None:
    before = kept(hf)
    target = route.path.replace("{user}", "ada").replace("{id}", item)

    said = ask(route.method, target + query, BODIES.get(below(route)))

    if below(route) in OFF:
        told = said.error
        assert (said.status, told["type"]) == (403, "longterm_off")
        assert told["by"] == ("request" if query else "server")
        assert told["next"]
        assert kept(hf) == before
    elif below(route) in DECISIONS:
        assert (said.status, said.error["type"]) == (400, "invalid_request_error")
        assert "held" in said.error["message"]
    else:
        assert said.status in {200, 404}


@pytest.mark.parametrize("query", ["", "?enabled=true"])
def test_the_server_has_a_veto(ask: Asker, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "0")

    said = ask.post(f"/api/longterm/ada/recall{query}", {"query": "garden"})

    assert (said.status, said.error["by"]) == (403, "server")
    assert ask.get(f"/api/longterm/ada/status{query}").json()["enabled"] is False


def test_the_server_may_switch_it_on_for_all(ask: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")

    assert ask.post("/api/longterm/ada/recall", {"query": "garden"}).status == 200
    assert ask.get("/api/longterm/ada/status").json()["enabled"] is True
    assert ask.get("/api/longterm/ada/status?enabled=false").json()["enabled"] is False


def test_who_may_only_read_leaves_no_mark(hf: Holdfast, ask: Asker, item: str) -> None:
    for scope, times in (("read", 0), ("write", 1)):
        said = holder(hf, ask, scope).post(
            "/api/longterm/ada/recall?enabled=true", {"query": "garden", "what": "items"}
        )
        assert [each["id"] for each in said.json()["results"]] == [item]
        ltm = hf.longterm("ada", enabled=True)
        assert ltm is not None
        ltm.flush()
        (stored,) = [each for each in kept(hf) if each["type"] == "item"]
        assert stored["access_count"] == times


@pytest.mark.parametrize("bad", ["%00", "a%0A", "e%CC%81", "x" * 257])
def test_a_bad_name_of_a_user_is_no_name(ask: Asker, bad: str) -> None:
    for route in LONGTERM:
        said = asked(ask, route, user=bad)
        assert (said.status, json.loads(said.body)["error"]["field"]) == (400, "user_id"), route


def test_a_slash_in_a_users_name_leads_nowhere_else(hf: Holdfast, ask: Asker) -> None:
    ask.post("/api/longterm/a%2Fb/items?enabled=true", {"text": "Likes tabs"})

    assert hf.longterm_data("a/b").status().items == 1
    assert hf.longterm_data("a").status().items == 0
    bound = holder(hf, ask, user="a")
    assert bound.get("/api/longterm/a%2Fb/items").status == 403


MODEL = "openai:large"
KEYS = ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OLLAMA_API_URL", "OLLAMA_BASE_URL")


@pytest.fixture
def keyless(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (*KEYS, "HOLDFAST_LTM_EMBEDDING_MODEL", "HOLDFAST_LTM_EMBEDDING_PROVIDER"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.usefixtures("keyless")
@pytest.mark.parametrize("field", ["embedder", "extractor"])
def test_a_request_names_no_model_that_the_operator_does_not_allow(
    hf: Holdfast, ask: Asker, field: str
) -> None:
    query = f"?enabled=true&{field}={MODEL}"

    kept_none = ask.post(f"/api/longterm/ada/items{query}", {"text": "Likes tabs"})
    told_none = ask.get(f"/api/longterm/ada/status{query}")

    for said in (kept_none, told_none):
        assert (said.status, said.error["type"]) == (403, "permission_error")
        assert said.error["needed"] == f"--allow-model {MODEL}"
        assert field in said.error["next"]
        assert "--allow-model" in said.error["next"]
    assert kept(hf) == []


@pytest.mark.usefixtures("keyless")
@pytest.mark.parametrize("field", ["embedder", "extractor"])
def test_a_request_names_a_model_that_the_operator_allows(
    hf: Holdfast, runner: asyncio.Runner, field: str
) -> None:
    app = make_app(hf, models=["openai:small", MODEL])
    ask = Asker(app, runner)
    query = f"?enabled=true&{field}={MODEL}"

    assert ask.post(f"/api/longterm/ada/items{query}", {"text": "Likes tabs"}).status == 200
    assert ask.get(f"/api/longterm/ada/status?enabled=true&{field}=openai:huge").status == 403
    app.state.close()


@pytest.mark.parametrize(
    ("variable", "value", "model"),
    [
        ("HOLDFAST_LTM_EMBEDDING_MODEL", MODEL, MODEL),
        ("OPENAI_API_KEY", "sk-x", "openai:text-embedding-3-small"),
    ],
)
def test_a_request_names_the_embedder_that_the_server_is_configured_with(
    ask: Asker, keyless: pytest.MonkeyPatch, variable: str, value: str, model: str
) -> None:
    status = f"/api/longterm/ada/status?enabled=true&embedder={model}"
    before = ask.get(status).status
    keyless.setenv(variable, value)

    assert (before, ask.get(status).status) == (403, 200)
    assert ask.get(status.replace("embedder", "extractor")).status == 403


@pytest.mark.usefixtures("keyless")
def test_a_request_may_always_do_without_an_embedder(ask: Asker) -> None:
    assert ask.get("/api/longterm/ada/status?enabled=true&embedder=none").status == 200


@pytest.mark.usefixtures("keyless", "item")
@pytest.mark.parametrize(
    "path", ["consolidations", "consolidations/{id}/resume", "consolidation_policies"]
)
def test_a_request_names_no_model_for_a_consolidation_that_the_operator_does_not_allow(
    hf: Holdfast, ask: Asker, runner: asyncio.Runner, path: str
) -> None:
    job = hf.consolidations.create("ada", model=str, budget=Budget(calls=0)).id
    hf.consolidations.wait(job)
    allowing = make_app(hf, models=[MODEL])
    target = f"/api/{path}".replace("{id}", job)
    owner = {} if "resume" in path else {"user": "ada"}

    refused = ask.post(target, {"model": MODEL, **owner})

    assert (refused.status, refused.error["type"]) == (403, "permission_error")
    assert refused.error["needed"] == f"--allow-model {MODEL}"
    assert len(hf.consolidations.list().data) == 1
    assert hf.consolidations.policies() == []
    assert hf.consolidations.retrieve(job).status == "partial"
    assert Asker(allowing, runner).post(target, {"model": MODEL, **owner}).status < 300
    assert ask.post(target, {"model": "large", **owner}).status == 400
    allowing.state.close()
