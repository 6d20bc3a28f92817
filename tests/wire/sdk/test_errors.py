"""Errors through the SDK: their class, what they tell, and how often the client asks."""

from collections.abc import Callable
from typing import Any

import anthropic
import pytest
from wire.asking import Client, answered
from wire.serving import Served

pytestmark = pytest.mark.anyio

MEMORIES = "/v1/memory_stores/{s}/memories"


@pytest.fixture
async def store_id(client: Client) -> str:
    store = await answered(client.beta.memory_stores.create(name="Notes"))
    await answered(client.beta.memory_stores.memories.create(store.id, path="/a/b.md", content="x"))
    return store.id


Ask = Callable[[Client, str], Any]


def without_a_name(client: Client, store_id: str) -> Any:
    return client.beta.memory_stores.update(store_id, name="")


def with_an_unknown_key(client: Client, store_id: str) -> Any:
    return client.beta.memory_stores.update(store_id, extra_body={"color": "red"})


def of_another_kind(client: Client, store_id: str) -> Any:
    return client.beta.memory_stores.retrieve(store_id.replace("memstore", "mem"))


def below_a_memory(client: Client, store_id: str) -> Any:
    return client.beta.memory_stores.memories.create(store_id, path="/a/b.md/c", content="")


def above_a_memory(client: Client, store_id: str) -> Any:
    return client.beta.memory_stores.memories.create(store_id, path="/a", content="")


def beyond_the_body(client: Client, store_id: str) -> Any:
    return client.beta.memory_stores.memories.create(store_id, path="/c", content="x" * 2**20)


def beyond_the_content(client: Client, store_id: str) -> Any:
    return client.beta.memory_stores.memories.create(store_id, path="/c", content="x" * 102_401)


def where_no_route_is(client: Client, store_id: str) -> Any:
    return client.get(f"/v1/memory_stores/{store_id}/", cast_to=object)


def with_another_method(client: Client, store_id: str) -> Any:
    return client.put(f"/v1/memory_stores/{store_id}", cast_to=object)


REFUSALS: dict[Ask, tuple[int, str]] = {
    without_a_name: (400, "invalid_request_error"),
    with_an_unknown_key: (400, "invalid_request_error"),
    of_another_kind: (404, "not_found_error"),
    below_a_memory: (409, "memory_path_conflict_error"),
    above_a_memory: (409, "memory_path_conflict_error"),
    beyond_the_body: (413, "request_too_large"),
    beyond_the_content: (400, "invalid_request_error"),
    where_no_route_is: (404, "not_found_error"),
    with_another_method: (405, "invalid_request_error"),
}


@pytest.mark.parametrize("ask", REFUSALS, ids=lambda ask: ask.__name__)
async def test_a_refusal_is_told_once_and_names_its_request(
    client: Client, server: Served, store_id: str, ask: Ask
) -> None:
    before = server.asked()

    with pytest.raises(anthropic.APIStatusError) as refused:
        await answered(ask(client, store_id))

    error = refused.value
    body: Any = error.body
    assert (error.status_code, error.type) == REFUSALS[ask]
    assert set(body) == {"type", "error", "request_id"}
    assert body["type"] == "error"
    assert body["request_id"] == error.request_id == error.response.headers["request-id"]
    assert [n for key, n in (server.asked() - before).items() if key[2] == error.status_code] == [1]


CLASSES = [
    (without_a_name, anthropic.BadRequestError),
    (of_another_kind, anthropic.NotFoundError),
    (below_a_memory, anthropic.ConflictError),
]


@pytest.mark.parametrize(("ask", "kind"), CLASSES, ids=[kind.__name__ for _, kind in CLASSES])
async def test_the_client_raises_the_class_of_the_status(
    client: Client, store_id: str, ask: Ask, kind: type[anthropic.APIStatusError]
) -> None:
    with pytest.raises(kind):
        await answered(ask(client, store_id))


async def test_a_conflict_says_that_asking_again_is_no_use(
    client: Client, server: Served, store_id: str
) -> None:
    before = server.asked()

    with pytest.raises(anthropic.ConflictError) as refused:
        await answered(below_a_memory(client, store_id))

    assert client.max_retries > 0
    assert (server.asked() - before)[MEMORIES, "POST", 409] == 1
    assert refused.value.response.headers["x-should-retry"] == "false"


async def test_a_message_says_what_to_do_and_never_the_content(
    client: Client, store_id: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match="102,400") as refused:
        await answered(beyond_the_content(client, store_id))

    assert "xxx" not in str(refused.value)


async def test_every_answer_says_which_request_and_which_workspace(client: Client) -> None:
    raw: Any = await answered(client.beta.memory_stores.with_raw_response.list())

    assert raw.headers["request-id"].startswith("req_")
    assert raw.headers["anthropic-workspace-id"].startswith("wire-")
