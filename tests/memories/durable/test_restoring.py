"""Restoring what a change held, once, however often it is asked for."""

import pytest

from holdfast.ground.errors import IdempotencyMismatch, NotFound
from holdfast.memories.durable.history import restore
from holdfast.memories.durable.memory import DurableMemory


def test_a_repeat_returns_the_first_result_and_changes_nothing(durable: DurableMemory) -> None:
    first = durable.set("a", "x", category="core")
    durable.set("a", "y", category="core")

    restored = restore(durable.context.once("once"), "a", first.seq)
    durable.set("a", "z", category="core")
    again = restore(durable.context.once("once"), "a", first.seq)

    assert again == restored
    entry = durable.get("a")
    assert entry is not None
    assert entry.content == "z"
    assert len(durable.history("a", op="restore").data) == 1


def test_a_repeat_after_forgetting_does_not_revive(durable: DurableMemory) -> None:
    first = durable.set("a", "x", category="core")
    restore(durable.context.once("once"), "a", first.seq)
    durable.forget("a")

    with pytest.raises(NotFound):
        restore(durable.context.once("once"), "a", first.seq)
    assert durable.get("a") is None


def test_another_change_under_the_same_key_is_a_mismatch(durable: DurableMemory) -> None:
    first = durable.set("a", "x", category="core")
    second = durable.set("a", "y", category="core")
    restore(durable.context.once("once"), "a", first.seq)

    with pytest.raises(IdempotencyMismatch):
        restore(durable.context.once("once"), "a", second.seq)
