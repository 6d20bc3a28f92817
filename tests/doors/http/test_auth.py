import pytest
from doors.http.asking import Asker

from holdfast.doors.http.app import make_app
from holdfast.doors.http.route_table import routes
from holdfast.doors.http.routes import Route
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

KEYED = [each for each in routes(strict=False) if each.needs not in {"any", "nothing"}]
ENDING = [each for each in KEYED if each.path != "/api/events"]
OPEN = [each for each in routes(strict=False) if each.needs == "nothing"]


def key(hf: Holdfast, **more: str) -> str:
    return str(hf.keys.create("k", **more).secret)  # pyright: ignore[reportArgumentType] - scopes come as text here


def target(route: Route) -> str:
    path = route.path
    for name in ("s", "m", "v", "id", "rid", "tid"):
        path = path.replace(f"{{{name}}}", f"{name}_1")
    return path


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


def test_a_host_that_others_reach_is_never_open(
    hf: Holdfast, clock: FrozenClock, ask: Asker
) -> None:
    app = make_app(hf, loopback=False, clock=clock)

    said = Asker(app, ask.runner).get("/api/me")

    app.house.close()
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
    ask: Asker, hf: Holdfast, route: Route, scope: str
) -> None:
    enough = ["read", "write", "admin"].index(scope) >= ["read", "write", "admin"].index(
        route.needs
    )

    said = ask.as_(x_api_key=key(hf, scope=scope))(route.method, target(route), {})

    # Long-term memory that is not switched on is 403 as well, for everybody.
    denied = said.status == 403 and said.error["type"] == "permission_error"
    assert denied is not enough
    assert said.status < 500


@pytest.mark.parametrize("route", KEYED, ids=lambda each: f"{each.method} {each.path}")
def test_a_bound_key_reaches_none_of_these(ask: Asker, hf: Holdfast, route: Route) -> None:
    bound = key(hf, scope="admin", agent="agent_7")

    assert ask.as_(x_api_key=bound)(route.method, target(route), {}).status == 403


def test_a_bound_key_may_ask_who_it_is(ask: Asker, hf: Holdfast) -> None:
    said = ask.as_(x_api_key=key(hf, scope="write", user="ada")).get("/api/me").json()

    assert (said["user"], said["agent"], said["scope"]) == ("ada", None, "write")


@pytest.mark.parametrize("route", OPEN, ids=lambda each: each.path)
def test_some_routes_want_no_credential(ask: Asker, hf: Holdfast, route: Route) -> None:
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


def test_a_page_of_another_site_is_not_taken_for_the_user(ask: Asker) -> None:
    foreign = ask.as_(origin="https://elsewhere.example", host="127.0.0.1:8420")
    own = ask.as_(origin="http://127.0.0.1:8420", host="127.0.0.1:8420")

    assert foreign.post("/v1/memory_stores", {"name": "n"}).status == 403
    assert own.post("/v1/memory_stores", {"name": "n"}).status == 200


def test_who_is_turned_away_is_told_as_an_event(ask: Asker, hf: Holdfast) -> None:
    heard: list[Event] = []
    hf.events.subscribe(heard.append, types={"access.denied"})
    reader = key(hf, scope="read")

    ask.get("/v1/memory_stores")
    ask.as_(x_api_key=reader).post("/v1/memory_stores", {"name": "n"})

    assert [each.data["status"] for each in heard] == [401, 403]
    assert heard[1].workspace == "default"
