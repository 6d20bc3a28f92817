"""Stores through the SDK."""

from datetime import UTC, timedelta

import pytest
from anthropic import BadRequestError, NotFoundError
from wire.asking import Client, answered, walked

pytestmark = pytest.mark.anyio


async def test_a_store_is_what_it_was_made_as(client: Client) -> None:
    stores = client.beta.memory_stores

    made = await answered(stores.create(name="Notes", description="d", metadata={"team": "a"}))
    found = await answered(stores.retrieve(made.id))

    assert found == made
    assert (found.name, found.description, found.metadata) == ("Notes", "d", {"team": "a"})
    assert found.created_at.utcoffset() == timedelta(0)


async def test_what_is_left_out_is_empty_and_never_null(client: Client) -> None:
    store = await answered(client.beta.memory_stores.create(name="Notes"))

    assert (store.description, store.metadata, store.archived_at) == ("", {}, None)


async def test_an_update_changes_what_it_names_and_none_leaves_alone(client: Client) -> None:
    stores = client.beta.memory_stores
    store = await answered(
        stores.create(name="Notes", description="d", metadata={"team": "a", "old": "x"})
    )

    patched = await answered(stores.update(store.id, name=None, metadata={"old": None, "new": "y"}))
    cleared = await answered(stores.update(store.id, description="", metadata=None))

    assert (patched.name, patched.description) == ("Notes", "d")
    assert patched.metadata == cleared.metadata == {"team": "a", "new": "y"}
    assert patched.updated_at > store.updated_at
    assert cleared.description == ""


async def test_an_update_of_nothing_moves_nothing(client: Client) -> None:
    stores = client.beta.memory_stores
    store = await answered(stores.create(name="Notes"))

    assert await answered(stores.update(store.id)) == store
    assert await answered(stores.update(store.id, name="Notes")) == store


async def test_archiving_twice_is_archiving_once(client: Client) -> None:
    stores = client.beta.memory_stores
    store = await answered(stores.create(name="Notes"))

    once = await answered(stores.archive(store.id))
    twice = await answered(stores.archive(store.id))

    assert once.archived_at is not None
    assert once == twice == await answered(stores.retrieve(store.id))
    with pytest.raises(BadRequestError):
        await answered(stores.update(store.id, name="Other"))


async def test_a_deleted_store_is_found_no_more(client: Client) -> None:
    stores = client.beta.memory_stores
    store = await answered(stores.create(name="Notes"))

    deleted = await answered(stores.delete(store.id))

    assert (deleted.id, deleted.type) == (store.id, "memory_store_deleted")
    with pytest.raises(NotFoundError):
        await answered(stores.retrieve(store.id))


async def test_the_client_walks_all_pages_newest_first(client: Client) -> None:
    stores = client.beta.memory_stores
    made = [(await answered(stores.create(name=f"Notes {n}"))).id for n in range(7)]

    found = [store.id for store in await walked(stores.list(limit=3))]

    assert found == made[::-1]


async def test_archived_stores_are_listed_when_asked_for(client: Client) -> None:
    stores = client.beta.memory_stores
    kept = await answered(stores.create(name="Kept"))
    archived = await answered(stores.create(name="Archived"))
    await answered(stores.archive(archived.id))

    without = await walked(stores.list())
    all_of_them = await walked(stores.list(include_archived=True))

    assert [store.id for store in without] == [kept.id]
    assert [store.id for store in all_of_them] == [archived.id, kept.id]


async def test_bounds_of_time_hold_what_is_on_them(client: Client) -> None:
    stores = client.beta.memory_stores
    first, second, third = [
        await answered(stores.create(name=name)) for name in ("one", "two", "three")
    ]

    since = await walked(stores.list(created_at_gte=second.created_at))
    until = await walked(stores.list(created_at_lte=second.created_at.isoformat()))

    assert [store.id for store in since] == [third.id, second.id]
    assert [store.id for store in until] == [second.id, first.id]


async def test_a_bound_without_a_zone_is_utc(client: Client) -> None:
    stores = client.beta.memory_stores
    store = await answered(stores.create(name="Notes"))
    naive = store.created_at.astimezone(UTC).replace(tzinfo=None)

    assert await walked(stores.list(created_at_gte=naive, created_at_lte=naive)) == [store]
    assert await walked(stores.list(created_at_gte=naive + timedelta(microseconds=1))) == []
