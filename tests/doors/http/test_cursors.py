"""A cursor that somebody made up, checksum and all, is refused and never a fault."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from doors.http.asking import Asker

KEYS: list[list[Any]] = [
    [],
    [1],
    ["a"],
    [1, 2],
    ["x", 1],
    [-1, "a"],
    [2**63, "a"],
    [1, "\0"],
    ["\0"],
    [1, 2, 3],
]


def made(ask: Asker, path: str, body: dict[str, Any]) -> str:
    return ask.post(path, body).json()["id"]


def lists(ask: Asker) -> list[str]:
    """Give a query for each list, none of which is over after one."""
    stores = [made(ask, "/v1/memory_stores", {"name": "n"}) for _ in range(2)]
    store, memories = stores[0], f"/v1/memory_stores/{stores[0]}/memories"
    attached = [{"type": "memory_store", "memory_store_id": each} for each in stores]
    asked = {"agent": "a", "environment_id": "e", "resources": attached}
    for path in ("/1/a.md", "/2/a.md"):
        made(ask, memories, {"path": path, "content": ""})
    session, _ = (made(ask, "/v1/sessions", asked) for _ in range(2))
    agent, _ = (made(ask, "/v1/agents", {"name": "a", "model": "m"}) for _ in range(2))
    made(ask, f"/v1/agents/{agent}", {"name": "b"})
    for name in ("e", "f"):
        made(ask, "/v1/environments", {"name": name})
    return [
        "/v1/memory_stores?limit=1",
        f"/v1/memory_stores/{store}/memories?limit=1",
        f"/v1/memory_stores/{store}/memories?limit=1&depth=1",
        f"/v1/memory_stores/{store}/memory_versions?limit=1",
        "/v1/sessions?limit=1",
        f"/v1/sessions/{session}/resources?limit=1",
        "/v1/agents?limit=1",
        f"/v1/agents/{agent}/versions?limit=1",
        "/v1/environments?limit=1",
    ]


def forged(page: str, key: list[Any]) -> str:
    """Return the cursor *page* with another key, and the checksum that goes with it."""
    raw = page.removeprefix("page_")
    packed = urlsafe_b64decode(raw + "=" * (-len(raw) % 4))
    *told, _ = msgspec.json.decode(packed[6:])
    body = msgspec.json.encode([*told, key])
    return "page_" + urlsafe_b64encode(sha256(body).digest()[:6] + body).decode().rstrip("=")


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_what_it_stands_after_cannot_be_made_up(ask: Asker, key: list[Any]) -> None:
    for query in lists(ask):
        page = ask.get(query).json()["next_page"]

        said = ask.get(f"{query}&page={forged(page, key)}")

        assert said.status in {200, 400}, query
