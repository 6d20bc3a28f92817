"""Memories through the SDK."""

from hashlib import sha256

import pytest
from anthropic import BadRequestError, ConflictError, NotFoundError
from anthropic.types.beta.memory_stores import BetaManagedAgentsDeletedMemory
from wire.asking import Client, answered, walked

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store_id(client: Client) -> str:
    store = await answered(client.beta.memory_stores.create(name="Notes"))
    return store.id


async def test_a_memory_tells_of_its_content_by_view(client: Client, store_id: str) -> None:
    memories = client.beta.memory_stores.memories
    text = "Ada préfère tabs.\r\n\ufeff\0"

    basic = await answered(memories.create(store_id, path="/a.md", content=text))
    full = await answered(memories.retrieve(basic.id, memory_store_id=store_id))

    assert basic.content is None
    assert full.content == text
    assert basic.content_sha256 == full.content_sha256 == sha256(text.encode()).hexdigest()
    assert full.content_size_bytes == len(text.encode())


async def test_every_call_takes_the_view_it_should_answer_with(
    client: Client, store_id: str
) -> None:
    memories = client.beta.memory_stores.memories

    made = await answered(memories.create(store_id, path="/a.md", content="1", view="full"))
    changed = await answered(
        memories.update(made.id, memory_store_id=store_id, content="2", view="full")
    )
    found = await answered(memories.retrieve(made.id, memory_store_id=store_id, view="basic"))
    listed = await walked(memories.list(store_id, view="full"))

    assert (made.content, changed.content, found.content) == ("1", "2", None)
    assert listed == [changed]


async def test_empty_content_is_content_and_null_is_not(client: Client, store_id: str) -> None:
    memories = client.beta.memory_stores.memories

    empty = await answered(memories.create(store_id, path="/a.md", content="", view="full"))

    assert (empty.content, empty.content_size_bytes) == ("", 0)
    with pytest.raises(BadRequestError, match="content"):
        await answered(memories.create(store_id, path="/b.md", content=None))


async def test_content_and_path_change_in_one_version(client: Client, store_id: str) -> None:
    memories = client.beta.memory_stores.memories
    made = await answered(memories.create(store_id, path="/a.md", content="1"))

    moved = await answered(
        memories.update(made.id, memory_store_id=store_id, content="2", path="/b/c.md")
    )

    assert (moved.id, moved.path, moved.created_at) == (made.id, "/b/c.md", made.created_at)
    assert moved.memory_version_id != made.memory_version_id
    assert moved.updated_at > made.updated_at
    versions = await walked(client.beta.memory_stores.memory_versions.list(store_id))
    assert [version.operation for version in versions] == ["modified", "created"]


async def test_null_is_left_out_and_nothing_at_all_is_refused(
    client: Client, store_id: str
) -> None:
    memories = client.beta.memory_stores.memories
    made = await answered(memories.create(store_id, path="/a.md", content="1"))

    moved = await answered(
        memories.update(made.id, memory_store_id=store_id, content=None, path="/b.md")
    )

    assert (moved.path, moved.content_sha256) == ("/b.md", made.content_sha256)
    with pytest.raises(BadRequestError):
        await answered(memories.update(made.id, memory_store_id=store_id))


async def test_a_precondition_lets_the_first_writer_win(client: Client, store_id: str) -> None:
    memories = client.beta.memory_stores.memories
    read = await answered(memories.create(store_id, path="/a.md", content="1"))

    await answered(
        memories.update(
            read.id,
            memory_store_id=store_id,
            content="2",
            precondition={"type": "content_sha256", "content_sha256": read.content_sha256},
        )
    )

    with pytest.raises(ConflictError) as lost:
        await answered(
            memories.update(
                read.id,
                memory_store_id=store_id,
                content="3",
                precondition={"type": "content_sha256", "content_sha256": read.content_sha256},
            )
        )
    assert lost.value.type == "memory_precondition_failed_error"


async def test_a_write_sent_again_is_answered_as_the_first_time(
    client: Client, store_id: str
) -> None:
    memories = client.beta.memory_stores.memories
    read = await answered(memories.create(store_id, path="/a.md", content="1"))

    first, again = [
        await answered(
            memories.update(
                read.id,
                memory_store_id=store_id,
                content="2",
                precondition={"type": "content_sha256", "content_sha256": read.content_sha256},
            )
        )
        for _ in range(2)
    ]

    assert again == first


async def test_a_deletion_may_name_what_it_has_seen(client: Client, store_id: str) -> None:
    memories = client.beta.memory_stores.memories
    made = await answered(memories.create(store_id, path="/a.md", content="1"))

    async def delete(seen: str) -> BetaManagedAgentsDeletedMemory:
        return await answered(
            memories.delete(made.id, memory_store_id=store_id, expected_content_sha256=seen)
        )

    with pytest.raises(ConflictError):
        await delete("0" * 64)
    deleted = await delete(made.content_sha256)

    assert (deleted.id, deleted.type) == (made.id, "memory_deleted")
    with pytest.raises(NotFoundError):
        await answered(memories.retrieve(made.id, memory_store_id=store_id))
    again = await answered(memories.create(store_id, path="/a.md", content="1"))
    assert again.id != made.id


async def test_a_listing_is_by_path_and_rolls_up_what_lies_deeper(
    client: Client, store_id: str
) -> None:
    memories = client.beta.memory_stores.memories
    for path in ("/b.md", "/a/x.md", "/a/y/z.md", "/ab.md"):
        await answered(memories.create(store_id, path=path, content=""))

    below = await walked(memories.list(store_id, path_prefix="/a/"))
    children = await walked(memories.list(store_id, path_prefix="/", depth=1))

    assert [each.path for each in below] == ["/a/x.md", "/a/y/z.md"]
    assert [(each.type, each.path) for each in children] == [
        ("memory_prefix", "/a/"),
        ("memory", "/ab.md"),
        ("memory", "/b.md"),
    ]


async def test_the_client_walks_all_pages_of_a_store(client: Client, store_id: str) -> None:
    memories = client.beta.memory_stores.memories
    paths = [f"/{n:02}.md" for n in range(23)]
    for path in paths:
        await answered(memories.create(store_id, path=path, content=path))

    by_default = await walked(memories.list(store_id))
    in_small_pages = await walked(memories.list(store_id, limit=5))
    with_content = await walked(memories.list(store_id, limit=100, view="full"))

    assert [each.path for each in by_default] == paths
    assert in_small_pages == by_default
    assert [each.content for each in with_content if each.type == "memory"] == paths


async def test_an_empty_store_is_one_empty_page(client: Client, store_id: str) -> None:
    page = await answered(client.beta.memory_stores.memories.list(store_id))

    assert (page.data, page.next_page) == ([], None)


async def test_a_cursor_belongs_to_the_list_it_came_from(client: Client, store_id: str) -> None:
    memories = client.beta.memory_stores.memories
    for path in ("/a.md", "/b.md"):
        await answered(memories.create(store_id, path=path, content=""))
    page = await answered(memories.list(store_id, limit=1))
    assert page.next_page is not None

    second = await answered(memories.list(store_id, page=page.next_page, limit=2))

    assert [each.path for each in second.data] == ["/b.md"]
    with pytest.raises(BadRequestError, match="page"):
        await answered(memories.list(store_id, page=page.next_page, depth=1))


async def test_an_older_release_may_ask_for_the_order_there_is_and_update_by_patch(
    client: Client, store_id: str
) -> None:
    memories = client.beta.memory_stores.memories
    await answered(memories.create(store_id, path="/b.md", content=""))
    made = await answered(memories.create(store_id, path="/a.md", content=""))
    older = {"order_by": "path", "order": "asc"}
    path = f"/v1/memory_stores/{store_id}/memories/{made.id}"

    listed = await walked(memories.list(store_id, extra_query=older))
    await answered(client.patch(path, cast_to=object, body={"content": "2"}))

    assert [each.path for each in listed] == ["/a.md", "/b.md"]
    found = await answered(memories.retrieve(made.id, memory_store_id=store_id))
    assert found.content == "2"


@pytest.mark.parametrize(
    ("asked", "named"),
    [({"order_by": "created_at"}, "order_by"), ({"order_by": "path", "order": "desc"}, "order")],
)
async def test_an_order_of_an_older_release_that_there_is_not_is_refused(
    client: Client, store_id: str, asked: dict[str, str], named: str
) -> None:
    memories = client.beta.memory_stores.memories

    with pytest.raises(BadRequestError, match=f"{named}: must be "):
        await answered(memories.list(store_id, extra_query=asked))
