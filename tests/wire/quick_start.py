"""A first hour with memory stores, as anybody's program that uses the SDK; prints JSON.

Nothing is set but the address and the key: `python quick_start.py URL KEY`. Needs the SDK and
nothing else, so that one script judges every release of it.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, cast

import anthropic
from anthropic import Anthropic, AsyncAnthropic
from asking import Client, answered
from pydantic import BaseModel


class Notebook:
    """What was asked, and each answer twice: its JSON, and what the SDK made of it."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any]] = {}

    async def note(self, name: str, asked: Awaitable[Any] | Any) -> Any:
        """Keep the answer to what was *asked*, and return it as the SDK's object."""
        raw = await answered(asked)
        # Releases differ in which parts of a raw response are called and which awaited.
        text: Any = raw.text() if callable(raw.text) else raw.text
        given = await answered(raw.parse())
        self.answers[name] = {
            "json": json.loads(await answered(text)),
            "read": plain(given),
            "class": type(given).__name__,
        }
        return given

    async def refused(self, name: str, asked: Any) -> None:
        """Keep the error that *asked* ends with."""
        try:
            await answered(asked())
        except anthropic.APIStatusError as error:
            self.answers[name] = {
                "json": error.body,
                "class": type(error).__name__,
                "status": error.status_code,
                "request_id": error.request_id,
                "request_id_header": error.response.headers["request-id"],
            }


def plain(given: Any) -> Any:
    """Return the SDK's objects as JSON, with a mark on what it reads as an instant."""
    if isinstance(given, BaseModel):
        # A page is iterated over for what is on it, not for its fields.
        extra = given.model_extra or {}
        fields = {name: getattr(given, name) for name in given.model_fields_set} | extra
        return {name: plain(each) for name, each in fields.items()}
    if isinstance(given, datetime):
        return {"instant": given.astimezone(UTC).isoformat(timespec="microseconds")}
    if isinstance(given, dict):
        return {key: plain(each) for key, each in cast("dict[str, Any]", given).items()}
    if isinstance(given, list):
        return [plain(each) for each in cast("list[Any]", given)]
    return given


async def write(book: Notebook, client: Client) -> tuple[str, str]:
    """Seed a store, read it and change it; return its id and that of the memory changed."""
    stores: Any = client.beta.memory_stores.with_raw_response
    memories: Any = client.beta.memory_stores.memories.with_raw_response

    store = await book.note(
        "store", stores.create(name="User Preferences", description="How Ada works.")
    )
    at = {"memory_store_id": store.id}
    memory = await book.note(
        "created", memories.create(store.id, path="/style/tabs.md", content="Tabs.", view="full")
    )
    await book.note("second", memories.create(store.id, path="/name.md", content="Ada"))
    await book.note("listed", memories.list(store.id, path_prefix="/", depth=1))
    await book.note("retrieved", memories.retrieve(memory.id, **at))
    seen = {"type": "content_sha256", "content_sha256": memory.content_sha256}
    await book.note(
        "updated", memories.update(memory.id, **at, content="Spaces.", precondition=seen)
    )
    await book.refused(
        "lost", lambda: memories.update(memory.id, **at, content="Both.", precondition=seen)
    )
    await book.refused(
        "taken", lambda: memories.create(store.id, path="/style", content="A directory's name.")
    )
    return store.id, memory.id


async def attach(book: Notebook, client: Client, store_id: str) -> None:
    """Attach the store to a session, look at it there, and end the session."""
    sessions: Any = client.beta.sessions.with_raw_response
    resources: Any = client.beta.sessions.resources.with_raw_response
    resource = {
        "type": "memory_store",
        "memory_store_id": store_id,
        "access": "read_only",
        "instructions": "Read this first.",
    }

    session = await book.note(
        "session",
        sessions.create(
            agent="agent_external",
            environment_id="env_external",
            title="Pairing",
            resources=[resource],
        ),
    )
    await book.note("sessions", sessions.list(limit=1))
    await book.note("resources", resources.list(session.id))
    await book.note("resource", resources.retrieve(store_id, session_id=session.id))
    await book.note("session archived", sessions.archive(session.id))
    await book.note("session deleted", sessions.delete(session.id))


async def look_back(book: Notebook, client: Client, store_id: str, memory_id: str) -> None:
    """Read the history, redact from it, and clear everything away."""
    stores: Any = client.beta.memory_stores.with_raw_response
    memories: Any = client.beta.memory_stores.memories.with_raw_response
    versions: Any = client.beta.memory_stores.memory_versions.with_raw_response
    at = {"memory_store_id": store_id}

    history = await book.note("versions", versions.list(store_id, memory_id=memory_id, view="full"))
    await book.note("redacted", versions.redact(history.data[-1].id, **at))
    await book.note("version", versions.retrieve(history.data[0].id, **at))
    await book.note("deleted", memories.delete(memory_id, **at))
    await book.note("tombstone", versions.list(store_id, operation="deleted"))
    await book.note("archived", stores.archive(store_id))
    await book.note("stores", stores.list(include_archived=True, limit=100))
    await book.note("store deleted", stores.delete(store_id))


async def name_who_works(book: Notebook, client: Client) -> None:
    """Keep an agent and an environment."""
    agents: Any = client.beta.agents.with_raw_response
    environments: Any = client.beta.environments.with_raw_response
    cloud = {"type": "cloud", "networking": {"type": "unrestricted"}, "packages": {}}

    await book.note("agent", agents.create(name="Pair", model="claude-opus-4-6"))
    await book.note("environment", environments.create(name="Here", config=cloud))


async def quick_start(client: Client) -> dict[str, Any]:
    """Return what came of it all."""
    book = Notebook()
    store_id, memory_id = await write(book, client)
    await attach(book, client, store_id)
    await look_back(book, client, store_id, memory_id)
    await name_who_works(book, client)
    return book.answers


async def with_both_clients(url: str, key: str) -> dict[str, Any]:
    """Return what came of it with the sync client, then with the async one."""
    with Anthropic(base_url=url, api_key=key) as client:
        plainly = await quick_start(client)
    async with AsyncAnthropic(base_url=url, api_key=key) as client:
        awaiting = await quick_start(client)
    return {"sdk": anthropic.__version__, "sync": plainly, "async": awaiting}


if __name__ == "__main__":
    json.dump(asyncio.run(with_both_clients(*sys.argv[1:])), sys.stdout)
