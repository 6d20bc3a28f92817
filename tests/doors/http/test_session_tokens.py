import pytest
from doors.http.asking import Asker, SharedApp

from holdfast.doors.http.app import routes
from holdfast.doors.http.request import HttpRoute
from holdfast.library.holdfast import Holdfast

ROUTES = [each for each in routes(strict=False) if each.needs != "nothing"]
SCOPED = [each for each in ROUTES if each.needs != "any"]
REACHED = {
    ("GET", "/v1/sessions/{id}"),
    ("GET", "/v1/sessions/{id}/resources"),
    ("GET", "/v1/sessions/{id}/resources/{rid}"),
    ("GET", "/api/sessions/{id}/note"),
    ("GET", "/v1/memory_stores/{s}"),
    ("GET", "/v1/memory_stores/{s}/memories"),
    ("POST", "/v1/memory_stores/{s}/memories"),
    ("GET", "/v1/memory_stores/{s}/memories/{m}"),
    ("POST", "/v1/memory_stores/{s}/memories/{m}"),
    ("PATCH", "/v1/memory_stores/{s}/memories/{m}"),
    ("DELETE", "/v1/memory_stores/{s}/memories/{m}"),
    ("GET", "/v1/memory_stores/{s}/memory_versions"),
    ("GET", "/v1/memory_stores/{s}/memory_versions/{v}"),
    ("GET", "/api/memory_stores/{s}/at"),
    ("GET", "/api/memory_stores/{s}/memories"),
    ("GET", "/api/memory_stores/{s}/search"),
    ("GET", "/api/memory_stores/{s}/diff"),
    ("POST", "/api/memory_stores/{s}/memory_versions/{v}/restore"),
    ("POST", "/api/memory_stores/{s}/rename"),
    ("POST", "/api/memory_stores/{s}/delete_under"),
    ("GET", "/api/memory_stores/{s}/snapshot"),
    ("GET", "/api/memory_stores/{s}/changes"),
    ("POST", "/api/memory_stores/{s}/apply"),
    ("GET", "/api/me"),
}


def session_of(hf: Holdfast, store: str) -> str:
    """Create a session with *store* to write, and another to read."""
    only_read = hf.memory_stores.create(name="only read").id
    resources = [
        {"type": "memory_store", "memory_store_id": store},
        {"type": "memory_store", "memory_store_id": only_read, "access": "read_only"},
    ]
    return hf.sessions.create(agent="a", environment_id="e", resources=resources).id


@pytest.fixture
def session(hf: Holdfast, store: str) -> str:
    return session_of(hf, store)


@pytest.fixture
def worker(ask: Asker, hf: Holdfast, session: str) -> Asker:
    return ask.as_(x_api_key=str(hf.sessions.create_token(session).token))


def filled(route: HttpRoute, **names: str) -> str:
    path = route.path
    for name in ("s", "m", "v", "id", "rid", "tid"):
        path = path.replace(f"{{{name}}}", names.get(name, f"{name}_1"))
    return path


@pytest.mark.parametrize("route", SCOPED, ids=lambda each: f"{each.method} {each.path}")
def test_a_token_reaches_no_other_store_and_no_other_session(
    shared: SharedApp, route: HttpRoute
) -> None:
    hf, ask = shared
    session = session_of(hf, hf.memory_stores.create(name="notes").id)
    worker = ask.as_(x_api_key=str(hf.sessions.create_token(session).token))
    other = hf.memory_stores.create(name="other").id

    for store in (other, "memstore_1"):
        assert worker(route.method, filled(route, s=store), {}).status == 403


def test_what_a_token_writes_is_by_its_session(worker: Asker, session: str, store: str) -> None:
    worker.post(f"/v1/memory_stores/{store}/memories", {"path": "/b.md", "content": "x"})

    version = worker.get(f"/v1/memory_stores/{store}/memory_versions").json()["data"][0]
    assert version["created_by"] == {"type": "session_actor", "session_id": session}


def test_a_store_attached_to_read_is_not_written_even_badly(
    worker: Asker, hf: Holdfast, session: str
) -> None:
    only_read = hf.sessions.resources(session)[1].memory_store_id
    target = f"/v1/memory_stores/{only_read}/memories"

    good, bad = (
        worker.post(target, {"path": "/b.md", "content": ""}),
        worker.post(target, {"path": 1}),
    )

    assert (good.status, bad.status) == (403, 403)
    assert "only read" in good.error["message"]
    assert "read_only" in good.error["message"]


def test_a_token_ends_with_its_session(worker: Asker, hf: Holdfast, session: str) -> None:
    hf.sessions.archive(session)

    assert worker.get("/api/me").status == 401


def test_tokens_are_made_listed_and_revoked(ask: Asker, session: str) -> None:
    made = ask.post(f"/api/sessions/{session}/tokens", {"expires_in": 60}).json()
    listed = ask.get(f"/api/sessions/{session}/tokens").json()
    revoked = ask("DELETE", f"/api/sessions/{session}/tokens/{made['id']}").json()

    assert [*made] == ["type", "id", "session_id", "token", "created_at", "expires_at"]
    assert listed == {"data": [revoked], "next_page": None}
    assert "token" not in revoked
    assert ask.as_(x_api_key=made["token"]).get("/api/me").status == 401


@pytest.mark.parametrize("seconds", [0, -1, True, "60", 1e300])
def test_a_time_that_cannot_be_is_refused(ask: Asker, session: str, seconds: object) -> None:
    assert ask.post(f"/api/sessions/{session}/tokens", {"expires_in": seconds}).status == 400


def test_nothing_is_attached_after_creation(ask: Asker, session: str, store: str) -> None:
    resources = f"/v1/sessions/{session}/resources"

    refused = [
        ask.post(resources, {"type": "file"}),
        ask.post(f"{resources}/{store}", {}),
        ask("DELETE", f"{resources}/{store}"),
    ]

    assert {each.status for each in refused} == {400}
    assert "attach at session creation only" in refused[0].error["message"]


def test_resources_come_in_pages(ask: Asker, session: str) -> None:
    resources = f"/v1/sessions/{session}/resources"

    whole = ask.get(resources).json()
    first = ask.get(f"{resources}?limit=1").json()
    second = ask.get(f"{resources}?limit=1&page={first['next_page']}").json()

    assert whole["next_page"] is None
    assert first["data"] + second["data"] == whole["data"]
    assert second["next_page"] is None
    assert ask.get(f"{resources}?limit=1001").status == 400
