"""Versions through the SDK."""

import pytest
from anthropic import BadRequestError
from wire.asking import Client, answered, walked

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store_id(client: Client) -> str:
    """Give a store where /a.md was made, changed and deleted, and /b.md made."""
    store = await answered(client.beta.memory_stores.create(name="Notes"))
    memories = client.beta.memory_stores.memories
    a = await answered(memories.create(store.id, path="/a.md", content="1"))
    await answered(memories.update(a.id, memory_store_id=store.id, content="2"))
    await answered(memories.create(store.id, path="/b.md", content="3"))
    await answered(memories.delete(a.id, memory_store_id=store.id))
    return store.id


async def test_history_is_newest_first_and_its_filters_narrow_it(
    client: Client, store_id: str
) -> None:
    versions = client.beta.memory_stores.memory_versions
    all_of_it = await walked(versions.list(store_id))
    memory_id = all_of_it[0].memory_id

    of_one = await walked(versions.list(store_id, memory_id=memory_id))
    created = await walked(versions.list(store_id, operation="created"))
    by_key = await walked(versions.list(store_id, api_key_id="apikey_local"))
    by_nobody = await walked(versions.list(store_id, session_id="sesn_" + "0" * 24))

    assert [each.operation for each in of_one] == ["deleted", "modified", "created"]
    assert [each.path for each in created] == ["/b.md", "/a.md"]
    assert by_key == all_of_it
    assert by_nobody == []


async def test_the_client_walks_all_pages_of_a_history(client: Client, store_id: str) -> None:
    versions = client.beta.memory_stores.memory_versions
    all_of_it = await walked(versions.list(store_id, limit=100))

    in_small_pages = await walked(versions.list(store_id, limit=1))

    assert [each.operation for each in all_of_it] == ["deleted", "created", "modified", "created"]
    assert in_small_pages == all_of_it


async def test_bounds_of_time_hold_what_is_on_them(client: Client, store_id: str) -> None:
    versions = client.beta.memory_stores.memory_versions
    newest, *_, oldest = all_of_it = await walked(versions.list(store_id))

    since = await walked(
        versions.list(store_id, created_at_gte=oldest.created_at, created_at_lte=newest.created_at)
    )

    assert since == all_of_it


async def test_content_comes_with_the_full_view(client: Client, store_id: str) -> None:
    versions = client.beta.memory_stores.memory_versions

    basic = await walked(versions.list(store_id))
    full = await walked(versions.list(store_id, view="full"))
    one = await answered(versions.retrieve(full[1].id, memory_store_id=store_id))

    assert {each.content for each in basic} == {None}
    assert [each.content for each in full] == [None, "3", "2", "1"]
    assert one == full[1]


async def test_redacting_takes_content_path_and_hash(client: Client, store_id: str) -> None:
    versions = client.beta.memory_stores.memory_versions
    target = (await walked(versions.list(store_id, operation="modified")))[0]

    once = await answered(versions.redact(target.id, memory_store_id=store_id))
    twice = await answered(versions.redact(target.id, memory_store_id=store_id))

    assert once == twice
    assert (once.path, once.content, once.content_sha256, once.content_size_bytes) == (None,) * 4
    assert once.redacted_at is not None
    assert once.redacted_by == once.created_by == target.created_by


async def test_the_head_of_a_live_memory_cannot_be_redacted(client: Client, store_id: str) -> None:
    versions = client.beta.memory_stores.memory_versions
    head = (await walked(versions.list(store_id, operation="created")))[0]

    with pytest.raises(BadRequestError, match="delete the memory"):
        await answered(versions.redact(head.id, memory_store_id=store_id))
