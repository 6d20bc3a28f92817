import asyncio
from pathlib import Path
from typing import Any

import pytest
from doors.http.asking import Asker, SharedApp

import holdfast
from holdfast.doors.http.app import App, make_app, routes
from holdfast.doors.http.auth import host_policy
from holdfast.doors.http.request import HttpRoute
from holdfast.ground.errors import InvalidInput
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

KEYED = [each for each in routes(strict=False) if each.needs not in {"any", "nothing"}]
ENDING = [each for each in KEYED if each.path != "/api/events"]
UNBOUND = {"/api/import/{kind}": "admin"}
"""What a key that is not bound needs, where it is more than a bound one does."""
OPEN = [each for each in routes(strict=False) if each.needs == "nothing"]


def key(hf: Holdfast, **more: str) -> str:
    return str(hf.keys.create("k", **more).secret)  # pyright: ignore[reportArgumentType] - scopes come as text here


def target(route: HttpRoute) -> str:
    path = route.path
    for name in ("s", "m", "v", "id", "rid", "tid"):
        path = path.replace(f"{{{name}}}", f"{name}_1")
    return path


async def status_of(app: App, headers: tuple[tuple[bytes, bytes], ...]) -> int:
    """Return the status of `GET /healthz` with exactly *headers*."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/healthz", "raw_path": b"/healthz"}
    await app({**scope, "query_string": b"", "headers": list(headers)}, receive, send)
    return sent[0]["status"]


def test_an_open_server_takes_anybody_for_the_local_key(ask: Asker) -> None:
    for headers in ({}, {"x_api_key": "hf_made_up"}, {"authorization": "Bearer hf_made_up"}):
        said = ask.as_(**headers).get("/api/me").json()

        assert said["actor"] == {"type": "api_actor", "api_key_id": "apikey_local"}
        assert (said["scope"], said["workspace"]) == ("admin", "default")


def test_an_open_server_still_refuses_a_token_that_opens_nothing(ask: Asker) -> None:
    assert ask.as_(x_api_key="hfs_made_up").get("/api/me").status == 401


def test_the_first_key_closes_an_open_server(ask: Asker, hf: Holdfast) -> None:
    secret = key(hf, scope="read")

    assert ask.get("/api/me").status == 401
    assert ask.as_(x_api_key=secret).get("/api/me").json()["scope"] == "read"


def test_a_key_that_another_process_just_created_is_who_acts(
    tmp_path: Path, clock: FrozenClock, ask: Asker
) -> None:
    target = str(tmp_path / "h.db")
    with holdfast.open(target, clock=clock) as here, holdfast.open(target, clock=clock) as far:
        app = make_app(here, loopback=True, clock=clock)
        own = Asker(app, ask.runner)
        assert own.get("/api/me").json()["actor"]["api_key_id"] == "apikey_local"

        created = far.keys.create("k", "read")
        said = own.as_(x_api_key=str(created.secret)).get("/api/me").json()

        after = own.get("/api/me")

        app.state.close()
        assert (said["actor"]["api_key_id"], said["scope"]) == (created.id, "read")
        assert after.status == 401


def test_a_host_that_others_reach_is_never_open(
    hf: Holdfast, clock: FrozenClock, ask: Asker
) -> None:
    app = make_app(hf, loopback=False, clock=clock)

    said = Asker(app, ask.runner).get("/api/me")

    app.state.close()
    assert said.status == 401


def test_either_header_opens_and_a_session_token_wins(ask: Asker, hf: Holdfast) -> None:
    one, two = key(hf), key(hf)
    session = hf.sessions.create(agent="a", environment_id="e").id
    token = str(hf.sessions.create_token(session).token)

    def actor(**headers: str) -> dict[str, str]:
        return ask.as_(**headers).get("/api/me").json()["actor"]

    by_bearer, by_both = (
        actor(authorization=f"bearer {two}"),
        actor(x_api_key=one, authorization=f"Bearer {two}"),
    )
    assert actor(x_api_key=one) == by_both != by_bearer
    assert actor(x_api_key=one, authorization=f"Bearer {token}")["type"] == "session_actor"
    assert actor(x_api_key=token, authorization=f"Bearer {two}")["type"] == "session_actor"


@pytest.mark.parametrize("secret", ["", "hf_made_up", "hfs_made_up", "other", "hf_\xff"])
def test_whatever_opens_nothing_gets_the_same_answer(ask: Asker, hf: Holdfast, secret: str) -> None:
    key(hf)

    said = ask.as_(x_api_key=secret).get("/v1/memory_stores")

    assert said.status == 401
    assert said.error == {
        "type": "authentication_error",
        "message": "The API key or token is missing or not valid."
        " Send a valid one as x-api-key or Authorization: Bearer.",
    }


@pytest.mark.parametrize("route", ENDING, ids=lambda each: f"{each.method} {each.path}")
@pytest.mark.parametrize("scope", ["read", "write", "admin"])
def test_a_key_reaches_what_its_scope_allows_and_no_more(
    shared: SharedApp, route: HttpRoute, scope: str
) -> None:
    hf, ask = shared
    ranks = ["read", "write", "admin"]
    enough = ranks.index(scope) >= ranks.index(UNBOUND.get(route.path, route.needs))

    said = ask.as_(x_api_key=key(hf, scope=scope))(route.method, target(route), {})

    # Long-term memory that is not switched on is 403 as well, for everybody.
    denied = said.status == 403 and said.error["type"] == "permission_error"
    assert denied is not enough
    assert said.status < 500


@pytest.mark.parametrize("route", KEYED, ids=lambda each: f"{each.method} {each.path}")
def test_a_bound_key_reaches_none_of_these(shared: SharedApp, route: HttpRoute) -> None:
    hf, ask = shared
    bound = key(hf, scope="admin", agent="agent_7")

    assert ask.as_(x_api_key=bound)(route.method, target(route), {}).status == 403


def test_a_bound_key_may_ask_who_it_is(ask: Asker, hf: Holdfast) -> None:
    said = ask.as_(x_api_key=key(hf, scope="write", user="ada")).get("/api/me").json()

    assert (said["user"], said["agent"], said["scope"]) == ("ada", None, "write")


@pytest.mark.parametrize("route", OPEN, ids=lambda each: each.path)
def test_some_routes_want_no_credential(ask: Asker, hf: Holdfast, route: HttpRoute) -> None:
    key(hf)

    assert ask.get(route.path).status == 200


@pytest.mark.parametrize("header", ["anthropic_workspace_id", "holdfast_workspace"])
def test_a_header_chooses_the_workspace_of_an_open_server(ask: Asker, header: str) -> None:
    there = ask.as_(**{header: "lab"})
    store = there.post("/v1/memory_stores", {"name": "n"}).json()["id"]

    assert there.get(f"/v1/memory_stores/{store}").headers["anthropic-workspace-id"] == "lab"
    assert ask.get(f"/v1/memory_stores/{store}").status == 404


@pytest.mark.parametrize("header", ["anthropic_workspace_id", "holdfast_workspace"])
def test_a_key_is_of_one_workspace(ask: Asker, hf: Holdfast, header: str) -> None:
    secret = key(hf, workspace="lab")

    own = ask.as_(x_api_key=secret, **{header: "lab"}).get("/api/me")
    other = ask.as_(x_api_key=secret, **{header: "default"}).get("/api/me")

    assert (own.status, own.headers["anthropic-workspace-id"]) == (200, "lab")
    assert (other.status, other.error["type"]) == (403, "permission_error")


@pytest.mark.parametrize("name", ["a b", "\xff", "x" * 200])
def test_a_workspace_that_cannot_be_is_refused(ask: Asker, name: str) -> None:
    assert ask.as_(anthropic_workspace_id=name).get("/api/me").status == 400


@pytest.mark.parametrize("name", ["lab", "a b", "\xff", "x" * 200])
def test_to_a_key_every_other_name_is_another_workspace(
    ask: Asker, hf: Holdfast, name: str
) -> None:
    said = ask.as_(x_api_key=key(hf), anthropic_workspace_id=name).get("/api/me")

    assert (said.status, said.error["type"]) == (403, "permission_error")


def test_a_key_makes_no_key_to_another_workspace(ask: Asker, hf: Holdfast) -> None:
    admin = ask.as_(x_api_key=key(hf, scope="admin"))

    said = admin.post("/api/keys", {"name": "k", "scope": "admin", "workspace": "lab"})

    assert said.status == 403


def test_a_revoked_key_opens_nothing(ask: Asker, hf: Holdfast) -> None:
    admin = ask.as_(x_api_key=key(hf, scope="admin"))
    other = admin.post("/api/keys", {"name": "other"}).json()

    revoked = admin("DELETE", f"/api/keys/{other['id']}").json()

    assert revoked["revoked_at"] is not None
    assert "secret" not in revoked
    assert ask.as_(x_api_key=other["secret"]).get("/api/me").status == 401
    assert admin.get("/api/keys").json()["data"][0]["id"] == other["id"]


LOCAL_HOSTS = ["127.0.0.1", "127.0.0.1:8420", "LocalHost:80", "localhost", "[::1]", "[::1]:8420"]
FOREIGN_HOSTS = [
    *("evil.example", "evil.example:8420", "127.0.0.1.evil.example", "localhost.evil.example:8420"),
    *("", "localhost.", "127.0.0.1@evil.example", "[::1].evil.example", "10.0.0.1:8420", "\xff"),
]
FOREIGN_ORIGINS = ["https://elsewhere.example", "http://evil.example:8420", "null", "", "localhost"]
LOCAL_ORIGINS = ["http://127.0.0.1:8420", "http://localhost:5173", "https://[::1]"]


@pytest.mark.parametrize("host", LOCAL_HOSTS)
def test_a_loopback_server_answers_to_the_names_of_this_machine(ask: Asker, host: str) -> None:
    assert ask.as_(host=host).get("/api/me").status == 200


@pytest.mark.parametrize("keyed", [False, True], ids=["open", "keyed"])
@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_loopback_server_answers_421_to_every_other_host(
    ask: Asker, hf: Holdfast, host: str, keyed: bool
) -> None:
    secret = key(hf, scope="admin") if keyed else "any"

    said = ask.as_(host=host, origin=f"http://{host}", x_api_key=secret).post(
        "/api/keys", {"name": "e", "scope": "admin"}
    )

    assert (said.status, said.error["type"]) == (421, "invalid_request_error")
    assert (said.error["field"], "secret" in said.error) == ("host", False)
    assert len(hf.keys.list()) == int(keyed)


@pytest.mark.parametrize(
    "target", ["/healthz", "/readyz", "/openapi.json", "/metrics", "/", "/nowhere", "/v1/sessions"]
)
def test_the_host_and_the_origin_are_checked_on_every_path(ask: Asker, target: str) -> None:
    assert ask.as_(host="evil.example:8420").get(target).status == 421
    assert ask.as_(origin="http://evil.example:8420").get(target).status == 403


def test_a_request_with_two_hosts_or_none_is_answered_421(app: App, runner: asyncio.Runner) -> None:
    def status(*headers: tuple[bytes, bytes]) -> int:
        return runner.run(status_of(app, headers))

    assert status((b"host", b"localhost"), (b"host", b"evil.example")) == 421
    assert status((b"host", b"evil.example"), (b"host", b"localhost")) == 421
    assert status() == 421
    assert status((b"host", b"localhost")) == 200


@pytest.mark.parametrize("keyed", [False, True], ids=["open", "keyed"])
@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_loopback_server_answers_403_to_a_page_of_another_site(
    ask: Asker, hf: Holdfast, origin: str, keyed: bool
) -> None:
    secret = key(hf, scope="admin") if keyed else "any"

    said = ask.as_(origin=origin, x_api_key=secret).post("/v1/memory_stores", {"name": "n"})

    assert (said.status, said.error["type"]) == (403, "permission_error")


@pytest.mark.parametrize("origin", LOCAL_ORIGINS)
def test_a_page_of_this_machine_is_answered(ask: Asker, origin: str) -> None:
    assert ask.as_(origin=origin).post("/v1/memory_stores", {"name": "n"}).status == 200


def test_bound_elsewhere_any_host_and_only_listed_origins_are_answered(
    hf: Holdfast, clock: FrozenClock, ask: Asker
) -> None:
    policy = host_policy(
        "0.0.0.0",
        public_url="https://memory.example/base",
        allow_origins=["http://pages.example:3000", "HTTPS://Other.example:443"],
    )
    app = make_app(hf, loopback=False, policy=policy, clock=clock)
    asker = Asker(app, ask.runner)

    def status(origin: str) -> int:
        return asker.as_(host="anything.example", origin=origin).get("/healthz").status

    assert asker.as_(host="anything.example").get("/healthz").status == 200
    assert status("https://memory.example") == 200
    assert status("http://pages.example:3000") == 200
    assert status("https://other.example") == 200
    for foreign in (
        *("http://memory.example", "https://memory.example:8443", "http://pages.example"),
        *("http://anything.example", "http://localhost", "null"),
    ):
        assert status(foreign) == 403
    app.state.close()


def test_a_listed_origin_is_answered_on_loopback_too_and_no_other_host(
    hf: Holdfast, clock: FrozenClock, ask: Asker
) -> None:
    policy = host_policy("127.0.0.1", allow_origins=["https://pages.example"])
    app = make_app(hf, policy=policy, clock=clock)
    asker = Asker(app, ask.runner)

    assert asker.as_(origin="https://pages.example").get("/api/me").status == 200
    assert asker.as_(host="pages.example").get("/api/me").status == 421
    app.state.close()


def test_a_server_on_another_loopback_address_answers_to_it() -> None:
    assert host_policy("127.0.0.2").hosts == host_policy("127.0.0.1").hosts | {"127.0.0.2"}  # pyright: ignore[reportOptionalOperand] - both are on loopback


@pytest.mark.parametrize(
    "origin", ["pages.example", "ftp://pages.example", "https://", "https://a/b?c", "*", "null"]
)
def test_an_option_that_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        host_policy("0.0.0.0", allow_origins=[origin])

    assert refused.value.field == "allow_origin"


def test_a_public_url_without_a_host_is_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        host_policy("0.0.0.0", public_url="memory.example")

    assert refused.value.field == "public_url"


def test_who_is_turned_away_is_told_as_an_event(ask: Asker, hf: Holdfast) -> None:
    heard: list[Event] = []
    hf.events.subscribe(heard.append, types={"access.denied"})
    reader = key(hf, scope="read")

    ask.get("/v1/memory_stores")
    ask.as_(x_api_key=reader).post("/v1/memory_stores", {"name": "n"})

    ask.as_(host="evil.example").get("/healthz")

    assert [each.data["status"] for each in heard] == [401, 403, 421]
    assert heard[1].workspace == "default"
