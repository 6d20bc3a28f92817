"""Whatever is sent, the answer is one of ours and never a fault."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from doors.http.asking import Asker, Said
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

import holdfast
from holdfast.doors.http.app import make_app, routes
from holdfast.doors.http.request import HttpRoute
from holdfast.testing.postgres import TEMPLATE, PostgresServer

SEGMENTS = ["s", "m", "v", "id", "rid", "tid", "agent", "key", "run_id", "seq"]
ENDS = {
    ("GET", "/api/events"),
    ("POST", "/api/keys"),
    ("DELETE", "/v1/memory_stores/{s}"),
    ("DELETE", "/v1/sessions/{id}"),
    ("POST", "/v1/memory_stores/{s}/archive"),
    ("POST", "/v1/sessions/{id}/archive"),
}
"""Routes that would go on for ever, or leave nothing for the others to reach."""

FINITE = [each for each in routes(strict=False) if (each.method, each.path) not in ENDS]
ROUTES = st.sampled_from(FINITE)
_KEYS = (
    "name description metadata path content precondition type content_sha256 agent version"
    " environment_id resources title expires_in memories_cap old_path new_path scope workspace"
    " initial_events budget vault_ids model system tools config entries key category tags"
    " refresh expected_seq lane resume cap evict files text mode rejected"
)
KEYS = st.sampled_from(_KEYS.split())
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "/", "/a.md", "/a/../b", "\ud800", "\0", "memory_store", "agent"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
_NAMES = (
    "limit page view depth path_prefix include_archived created_at[gte] created_at[lt] q path"
    " from to order statuses[] memory_id operation session_id version types other"
    " category tag since key_prefix query budget key op include_workspace"
)
NAMES = st.sampled_from(_NAMES.split())
QUERIES = st.lists(st.tuples(NAMES, st.text(max_size=12) | st.just("1")), max_size=4)
PLACES = st.text(min_size=1, max_size=30) | st.sampled_from(["..", "a/b", "\0", "%", "x" * 3_000])
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "x-api-key",
            "authorization",
            "anthropic-workspace-id",
            "holdfast-workspace",
            "origin",
            "holdfast-run",
            "holdfast-run-token",
            "idempotency-key",
        ]
    ),
    st.text(st.characters(max_codepoint=255), max_size=30)
    | st.sampled_from(["Bearer hf_x", "Bearer", "hfs_", "lab", "1"]),
    max_size=2,
)


@pytest.fixture(scope="module", params=["memory", "postgres"])
def asker(request: pytest.FixtureRequest) -> Iterator[Asker]:
    target = ":memory:"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        target = server.url(server.new_database(TEMPLATE))
    with holdfast.open(target) as hf, asyncio.Runner() as runner:
        app = make_app(hf)
        yield Asker(app, runner)
        app.state.close()


@pytest.fixture(scope="module")
def real(asker: Asker) -> dict[str, str]:
    """Give ids of things that are there, by their places."""
    store = asker.post("/v1/memory_stores", {"name": "n"}).json()["id"]
    body = {"path": "/kept.md", "content": "x"}
    memory = asker.post(f"/v1/memory_stores/{store}/memories", body).json()
    attached = [{"type": "memory_store", "memory_store_id": store}]
    session = {"agent": "a", "environment_id": "e", "resources": attached}
    session_id = asker.post("/v1/sessions", session).json()["id"]
    entry = {"content": "x", "category": "core"}
    assert asker("PUT", "/api/durable/agent_7/entries/kept", entry).status == 201
    return {
        "s": store,
        "m": memory["id"],
        "v": memory["memory_version_id"],
        "id": session_id,
        "rid": store,
        "tid": "sestok_1",
        "agent": "agent_7",
        "key": "kept",
        "run_id": "run_1",
        "seq": "1",
    }


def percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


def in_order(said: Said) -> None:
    assert said.status < 500, said.body
    if said.status not in {200, 201}:
        assert said.json()["type"] == "error"
        assert said.facts["class"]


class Request(Struct, frozen=True):
    route: HttpRoute
    body: bytes
    query: list[tuple[str, str]]
    headers: dict[str, str]
    places: dict[str, str | None]


def bodies(route: HttpRoute) -> st.SearchStrategy[bytes]:
    """Give bodies whose keys are mostly the route's own, so that values are looked at too."""
    own = route.body.__struct_fields__ if isinstance(route.body, type) else ()
    shaped = st.fixed_dictionaries({}, optional=dict.fromkeys(own, VALUES))
    any_shape = st.dictionaries(KEYS, VALUES, max_size=6)
    return st.binary(max_size=60) | (shaped | any_shape).map(lambda body: json.dumps(body).encode())


REQUESTS = ROUTES.flatmap(
    lambda route: st.builds(
        Request,
        st.just(route),
        bodies(route),
        QUERIES,
        HEADERS,
        st.fixed_dictionaries({name: st.none() | PLACES for name in SEGMENTS}),
    )
)


@given(sent=REQUESTS)
def test_a_request_of_any_shape_is_answered(
    asker: Asker, real: dict[str, str], sent: Request
) -> None:
    target = sent.route.path
    for name, place in sent.places.items():
        target = target.replace(f"{{{name}}}", percent(place or real[name]))
    asked = "&".join(f"{name}={percent(value)}" for name, value in sent.query)

    said = asker(sent.route.method, f"{target}?{asked}", sent.body, headers=sent.headers)

    in_order(said)


@given(st.text(max_size=60), st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "TRACE", "X"]))
def test_a_path_of_any_shape_is_answered(asker: Asker, path: str, method: str) -> None:
    in_order(asker(method, f"/{percent(path)}"))


@given(st.binary(max_size=40))
def test_a_query_of_any_bytes_is_answered(asker: Asker, raw: bytes) -> None:
    in_order(asker.get(f"/v1/sessions?limit={raw.decode('latin-1')}"))
