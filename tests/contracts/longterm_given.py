"""Fixtures and expected errors of the contracts of long-term memory."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import Item, LongTermOptions, Recalled, Turn


class GivenAUser:
    """Gives the memories of two users, made through the subclass's `hf`."""

    @pytest.fixture
    def ltm(self, hf: Holdfast) -> LongTermMemory:
        """Give the memory of one user."""
        return memory_of(hf, "ada")

    @pytest.fixture
    def let_go(self, hf: Holdfast) -> Callable[[], None]:
        """Give what makes the process let go of the postings it keeps."""
        return hf.longterm_shared.kept.clear

    @pytest.fixture
    def other(self, hf: Holdfast) -> LongTermMemory:
        """Give the memory of another user of the same workspace."""
        return memory_of(hf, "bob")


def memory_of(hf: Holdfast, user: str, **given: Any) -> LongTermMemory:
    """Return the memory of *user*, switched on."""
    memory = hf.longterm(user, enabled=True, **given)
    assert memory is not None
    return memory


def capped(hf: Holdfast, cap: int, **options: Any) -> LongTermMemory:
    """Return a memory that holds at most *cap* items."""
    return memory_of(hf, "ada", options=LongTermOptions(max_items=cap, **options))


def said(text: str, **given: Any) -> Turn:
    """Return a turn of the user's."""
    return Turn(role="user", text=text, **given)


def kept(ltm: LongTermMemory, text: str, **given: Any) -> Item:
    """Remember *text* and return the item that holds it."""
    stored = ltm.remember(text, **given).stored
    assert stored is not None
    return stored


def texts(found: Iterable[Item | Turn | Recalled]) -> list[str]:
    """Return the texts of *found*, in their order."""
    return [each.text for each in found]


def items(ltm: LongTermMemory) -> list[str]:
    """Return the texts of all live items, newest first."""
    return texts(ltm.list(limit=1000).all())


def turns(ltm: LongTermMemory) -> list[str]:
    """Return the texts of all turns, newest first."""
    return texts(ltm.list("turns", limit=1000).all())


@contextmanager
def bad(field: str) -> Generator[pytest.ExceptionInfo[InvalidInput]]:
    """Expect InvalidInput that names *field*, or something within it."""
    with pytest.raises(InvalidInput) as caught:
        yield caught
    assert caught.value.field.split("[", maxsplit=1)[0].split(".", maxsplit=1)[0] == field
