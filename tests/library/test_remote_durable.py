"""Writes of durable memory whose answer is lost: asked for again under the key of the first."""

from collections.abc import Callable
from typing import Any

import pytest
from library.scripted import HANG_UP, Answer, Scripted

from holdfast.ground.scope import LOCAL
from holdfast.library.remote.handle import RemoteHoldfast
from holdfast.memories.durable.memory import DurableMemory

AT = "2026-11-21T04:00:00.000Z"
BY = LOCAL.to_wire()
STORED: dict[str, Any] = {
    "id": "entry_1",
    "key": "a",
    "content": "x",
    "category": "core",
    "tags": [],
    "scope": "agent",
    "workspace": "default",
    "agent": "agent_7",
    "run_id": None,
    "seq": 7,
    "size_bytes": 6,
    "created_at": AT,
    "updated_at": AT,
    "expires_at": None,
    "created_by": BY,
    "updated_by": BY,
    "outcome": "created",
    "evicted": [],
    "expired": [],
    "shadows": None,
    "notices": [],
}

WRITES: dict[str, tuple[Callable[[DurableMemory], object], dict[str, Any]]] = {
    "restore": (lambda durable: durable.restore("a", 3).seq, STORED),
    "forget": (lambda durable: durable.forget("a"), {"forgotten": True, "key": "a"}),
    "set_many": (
        lambda durable: durable.set_many([{"key": "a", "content": "x", "category": "core"}]),
        {"stored": [STORED], "refused": []},
    ),
    "sweep": (
        lambda durable: durable.sweep(),
        {"expired": [], "ended_runs": 0, "removed": 0},
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_it_is_asked_for_again_and_done_once(
    hf: RemoteHoldfast, scripted: Scripted, name: str
) -> None:
    write, answer = WRITES[name]
    scripted.says(HANG_UP, Answer(answer))

    assert write(hf.durable("agent_7"))

    first, second = scripted.asked
    assert (first.method, first.target, first.body) == (second.method, second.target, second.body)
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_each_write_has_a_key_of_its_own(hf: RemoteHoldfast, scripted: Scripted) -> None:
    scripted.says(Answer(STORED), Answer(STORED))
    durable = hf.durable("agent_7")

    durable.restore("a", 3)
    durable.restore("a", 3)

    first, second = scripted.asked
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]
