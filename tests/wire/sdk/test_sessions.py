"""Sessions, their resources, agents and environments through the SDK."""

from typing import Any

import pytest
from anthropic import BadRequestError, ConflictError, NotFoundError
from wire.asking import Client, answered, walked

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store_id(client: Client) -> str:
    return (await answered(client.beta.memory_stores.create(name="Notes"))).id


@pytest.fixture
async def session_id(client: Client, store_id: str) -> str:
    """Give a session with the store attached."""
    session = await answered(
        client.beta.sessions.create(
            agent="agent_external",
            environment_id="env_external",
            title="Pairing",
            metadata={"team": "a"},
            resources=attached(store_id),
        )
    )
    return session.id


def attached(store_id: str, **more: Any) -> Any:
    """Return resources; the oldest release has no name for a store among them."""
    return [{"type": "memory_store", "memory_store_id": store_id, **more}]


async def test_what_is_null_or_left_out_has_its_defaults(client: Client, store_id: str) -> None:
    session = await answered(
        client.beta.sessions.create(
            agent="agent_external",
            environment_id="env_1",
            resources=attached(store_id, access=None, instructions=None),
            title=None,
        )
    )

    (resource,) = session.resources
    assert (session.status, session.title, session.metadata) == ("idle", None, {})
    assert (session.agent.id, session.agent.version) == ("agent_external", 1)
    assert (session.agent.name, session.agent.model.id) == ("external", "external")
    assert resource.to_dict()["access"] == "read_write"
    assert resource.mount_path == "/mnt/memory/notes"


async def test_a_session_keeps_its_agent_as_it_was(client: Client) -> None:
    agents = client.beta.agents
    agent = await answered(agents.create(name="Pair", model="claude-opus-4-6", system="Be kind."))
    session = await answered(
        client.beta.sessions.create(
            agent={"type": "agent", "id": agent.id, "version": 1}, environment_id="env_1"
        )
    )

    await answered(agents.update(agent.id, version=1, name="Renamed"))
    found = await answered(client.beta.sessions.retrieve(session.id))

    assert (found.agent.id, found.agent.name, found.agent.system) == (agent.id, "Pair", "Be kind.")


async def test_an_update_patches_and_leaves_the_rest(client: Client, session_id: str) -> None:
    sessions = client.beta.sessions

    renamed = await answered(sessions.update(session_id, title="Review"))
    patched = await answered(sessions.update(session_id, metadata={"team": None, "new": "b"}))

    assert (renamed.title, renamed.metadata) == ("Review", {"team": "a"})
    assert (patched.title, patched.metadata) == ("Review", {"new": "b"})


async def test_an_archived_session_is_over(client: Client, session_id: str) -> None:
    sessions = client.beta.sessions

    once = await answered(sessions.archive(session_id))
    twice = await answered(sessions.archive(session_id))

    assert once == twice
    assert (once.status, once.archived_at is None) == ("terminated", False)
    assert await walked(sessions.list()) == []
    assert await walked(sessions.list(include_archived=True)) == [once]


async def test_a_deleted_session_is_found_no_more(client: Client, session_id: str) -> None:
    deleted = await answered(client.beta.sessions.delete(session_id))

    assert (deleted.id, deleted.type) == (session_id, "session_deleted")
    with pytest.raises(NotFoundError):
        await answered(client.beta.sessions.retrieve(session_id))


async def test_sessions_are_walked_forwards_in_either_order(client: Client) -> None:
    sessions = client.beta.sessions
    made = [
        (await answered(sessions.create(agent="agent_1", environment_id="env_1"))).id
        for _ in range(5)
    ]

    newest_first = await walked(sessions.list(limit=2))
    oldest_first = await walked(sessions.list(limit=2, order="asc"))

    assert [each.id for each in newest_first] == made[::-1]
    assert [each.id for each in oldest_first] == made


async def test_a_filter_that_no_session_has_is_refused(client: Client) -> None:
    with pytest.raises(BadRequestError, match="deployment_id: is not kept"):
        await answered(client.beta.sessions.list(extra_query={"deployment_id": "depl_1"}))


async def test_a_page_of_sessions_leads_back_as_well(client: Client) -> None:
    sessions = client.beta.sessions
    for _ in range(5):
        await answered(sessions.create(agent="agent_1", environment_id="env_1"))

    first = await answered(sessions.list(limit=2))
    assert first.next_page is not None
    second = await answered(sessions.list(limit=2, page=first.next_page))
    back = await answered(sessions.list(limit=2, page=previous(second)))

    assert (previous(first), previous(back)) == (None, None)
    assert [each.id for each in back.data] == [each.id for each in first.data]


def previous(page: Any) -> str:
    """Return the cursor that leads back, which the oldest release has no name for."""
    return page.to_dict()["prev_page"]


async def test_sessions_are_found_by_what_they_are_about(
    client: Client, store_id: str, session_id: str
) -> None:
    sessions = client.beta.sessions
    other = await answered(sessions.create(agent="agent_2", environment_id="env_1"))
    await answered(sessions.archive(other.id))

    async def found(**filters: Any) -> list[str]:
        pages = sessions.list(include_archived=True, extra_query=filters)
        return [each.id for each in await walked(pages)]

    assert await found(agent_id="agent_2") == [other.id]
    assert await found(agent_id="agent_2", agent_version=2) == []
    assert await found(memory_store_id=store_id) == [session_id]
    assert await found(**{"statuses[]": "terminated"}) == [other.id]
    since = await walked(sessions.list(created_at_gt=other.created_at, include_archived=True))
    assert since == []


async def test_resources_are_listed_and_found_by_their_store(
    client: Client, store_id: str, session_id: str
) -> None:
    resources = client.beta.sessions.resources

    listed = await walked(resources.list(session_id))
    found = await answered(resources.retrieve(store_id, session_id=session_id))

    assert [each.to_dict() for each in listed] == [found.to_dict()]
    assert found.to_dict()["memory_store_id"] == store_id


async def test_stores_attach_when_a_session_begins_and_not_later(
    client: Client, store_id: str, session_id: str
) -> None:
    resources = client.beta.sessions.resources

    with pytest.raises(BadRequestError):
        await answered(resources.add(session_id, file_id="file_1", type="file"))
    with pytest.raises(BadRequestError):
        await answered(resources.update(store_id, session_id=session_id, authorization_token="t"))
    with pytest.raises(BadRequestError):
        await answered(resources.delete(store_id, session_id=session_id))


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        ("vault_ids", {"vault_ids": ["vault_1"]}),
        ("initial_events", {"extra_body": {"initial_events": [{"type": "user.message"}]}}),
        ("budget", {"extra_body": {"budget": {"type": "limit"}}}),
        ("resources", {"resources": [{"type": "file", "file_id": "file_1"}]}),
    ],
)
async def test_what_is_not_kept_here_is_refused_by_name(
    client: Client, key: str, refused: dict[str, Any]
) -> None:
    with pytest.raises(BadRequestError, match=key):
        await answered(
            client.beta.sessions.create(agent="agent_1", environment_id="env_1", **refused)
        )


async def test_events_are_not_kept_here(client: Client, session_id: str) -> None:
    with pytest.raises(NotFoundError, match="attach"):
        await answered(client.beta.sessions.events.list(session_id))


async def test_an_agent_counts_its_changes(client: Client) -> None:
    agents = client.beta.agents
    made = await answered(agents.create(name="Pair", model="claude-opus-4-6"))

    changed = await answered(agents.update(made.id, version=1, description="d"))
    found = await answered(agents.retrieve(made.id))
    versions = await walked(agents.versions.list(made.id))

    assert (made.version, changed.version, found) == (1, 2, changed)
    assert [each.version for each in versions] == [2, 1]
    with pytest.raises(ConflictError) as stale:
        await answered(agents.update(made.id, version=1, description="e"))
    assert stale.value.type == "conflict_error"


async def test_agents_are_walked_and_archived(client: Client) -> None:
    agents = client.beta.agents
    made = [
        (await answered(agents.create(name=f"Pair {n}", model="claude-opus-4-6"))).id
        for n in range(3)
    ]

    archived = await answered(agents.archive(made[0]))

    assert archived.archived_at is not None
    assert [each.id for each in await walked(agents.list(limit=1))] == made[:0:-1]


async def test_an_environment_is_echoed_changed_and_archived(client: Client) -> None:
    environments = client.beta.environments
    config: Any = {"type": "cloud", "packages": {"pip": ["numpy"]}}

    made = await answered(environments.create(name="Here", description="c", config=config))
    changed = await answered(environments.update(made.id, description="d", metadata={"a": "b"}))
    found = await answered(environments.retrieve(made.id))
    archived = await answered(environments.archive(made.id))

    told: Any = made.config
    assert (told.type, told.packages.pip, told.packages.npm) == ("cloud", ["numpy"], [])
    assert (changed.name, changed.description, changed.metadata) == ("Here", "d", {"a": "b"})
    assert found == changed
    assert archived.archived_at is not None
    assert await walked(environments.list()) == []
