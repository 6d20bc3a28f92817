"""Fixtures and expected errors of the contracts of durable memory."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import timedelta

import pytest

from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.hydration import Hydration
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import DurableEntry, Gone

DAILY = timedelta(hours=72)
MILLISECOND = timedelta(milliseconds=1)
WIDTHS = ("a", "é", "語", "🦀")
"""A character of each length in UTF-8, 1 to 4 bytes."""


class GivenAnAgent:
    """Gives the memories of two agents, made through the subclass's `hf`."""

    @pytest.fixture
    def durable(self, hf: Holdfast) -> DurableMemory:
        """Give the memory of one agent."""
        return hf.durable("agent_7")

    @pytest.fixture
    def other(self, hf: Holdfast) -> DurableMemory:
        """Give the memory of another agent of the same workspace."""
        return hf.durable("agent_8")


def text_of(size: int, char: str = "a") -> str:
    """Return a text of exactly *size* UTF-8 bytes, of *char* as far as it goes."""
    whole, rest = divmod(size, len(char.encode()))
    return char * whole + "b" * rest


def keys_of(entries: Iterable[DurableEntry | Gone]) -> list[str]:
    """Return the keys of *entries*, in their order."""
    return [each.key for each in entries]


def listed(durable: DurableMemory) -> list[str]:
    """Return the keys that *durable* lists, newest first."""
    return keys_of(durable.list(limit=1000).all())


def seen(hydration: Hydration) -> list[str]:
    """Return the keys that *hydration* took, in their order."""
    return keys_of(hydration.entries)


@contextmanager
def refused(kind: type[HoldfastError], code: str) -> Generator[pytest.ExceptionInfo[HoldfastError]]:
    """Expect a refusal of *kind* that carries the durable *code*."""
    with pytest.raises(kind) as caught:
        yield caught
    assert (caught.value.code, type(caught.value)) == (f"HF-MEM-{code}", kind)
    assert caught.value.message
    assert caught.value.next


@contextmanager
def bad(field: str) -> Generator[pytest.ExceptionInfo[HoldfastError]]:
    """Expect InvalidInput that names *field*, or something within it."""
    with refused(InvalidInput, "004") as caught:
        yield caught
    error = caught.value
    assert isinstance(error, InvalidInput)
    assert error.field.split("[", maxsplit=1)[0].split(".", maxsplit=1)[0] == field
