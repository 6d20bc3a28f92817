"""A store with two memories, attached to a session and downloaded by the SDK's sync."""

import os
from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic.lib._scoped_client import _copy_client_with_bearer_auth
from anthropic.lib.tools import _memories
from anthropic.lib.tools._memories import SessionMemoryStores
from wire.asking import client_of
from wire.folder.synced import BEGIN, Attach, Passing, Synced
from wire.serving import Served

_numbers = count()


@pytest.fixture
async def there(server: Served) -> AsyncGenerator[AsyncAnthropic]:
    """Give a client that is not the session's."""
    headers = {"anthropic-workspace-id": f"folder-{os.getpid()}-{next(_numbers)}"}
    client = client_of("async", server.url, api_key="any", default_headers=headers)
    assert isinstance(client, AsyncAnthropic)
    async with client:
        yield client


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> Passing:
    # The sync has no other way to be told the time.
    passing = Passing()
    monkeypatch.setattr(_memories, "monotonic", passing)
    return passing


@pytest.fixture
def attach(there: AsyncAnthropic, seconds: Passing, tmp_path: Path) -> Attach:
    """Attach a new store of *memories* to a new session, and download it."""

    async def attach_and_download(memories: dict[str, str] = BEGIN, **how: Any) -> Synced:
        store = await there.beta.memory_stores.create(name="Notes")
        for path, content in memories.items():
            await there.beta.memory_stores.memories.create(store.id, path=path, content=content)
        attached: Any = {"type": "memory_store", "memory_store_id": store.id, **how}
        session = await there.beta.sessions.create(
            agent="agent_1", environment_id="env_1", resources=[attached]
        )
        token: Any = await there.post(f"/api/sessions/{session.id}/tokens", cast_to=object, body={})
        # As the SDK's worker makes its own client of the token that came with its work.
        client = _copy_client_with_bearer_auth(
            there, auth_token=token["token"], helper="environments-worker"
        )
        folder = tmp_path / "mnt" / store.id
        session = await client.beta.sessions.retrieve(session.id)
        for resource in session.resources:
            # Its own place is below /mnt, where a test has no business.
            resource.mount_path = str(folder)
        stores = SessionMemoryStores(client, workdir=tmp_path)
        await stores.download(session)
        return Synced(folder, stores, seconds, client, there, store.id, session.id)

    return attach_and_download


@pytest.fixture
async def synced(attach: Attach) -> Synced:
    return await attach()
