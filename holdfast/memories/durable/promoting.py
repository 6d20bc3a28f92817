"""A value of one run or one network, kept between runs: promoted to a durable entry."""

import json
from collections.abc import Iterable
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.memories.durable.asked import checked_promoted_from
from holdfast.memories.durable.caller import Caller
from holdfast.memories.durable.codes import coded
from holdfast.memories.durable.entry import StoredEntry
from holdfast.memories.durable.setting import set_one
from holdfast.memories.durable.storing import PLAIN, Wish

PROMOTED_FROM: Final = "promoted_from"
"""What the log calls the key that an entry was promoted from."""

_NAMESPACES: Final = frozenset({"step", "task", "input", "shared"})
"""Of a run's memory, where each key has one before its first colon."""


class Promotable(Protocol):
    """A value, and what is known of it."""

    @property
    def value(self) -> object:
        """The value: text, or anything else that is JSON."""
        ...

    @property
    def kind(self) -> str:
        """What kind of value it is."""
        ...

    @property
    def source(self) -> str | None:
        """Who made it, if that is known."""
        ...


class Promotes(Protocol):
    """A memory that values can be promoted from."""

    def get(self, key: str, /) -> Promotable | None:
        """Return the value under *key*, or None."""
        ...


class Promotion(Struct, frozen=True, kw_only=True):
    """What a promotion is to write: under which key, and what brought it about."""

    key: str
    content: str
    cause: dict[str, str]


def promotion(memory: Promotes, key: str, as_key: str | None = None) -> Promotion:
    """Return the promotion of what *memory* has under *key*; NotFound if that is nothing.

    Text stays as it is, another value becomes canonical JSON. The key loses its namespace, unless
    *as_key* is given.
    """
    found = memory.get(key)
    with coded():
        if found is None:
            raise NotFound("value", key, next="Ask the memory which keys it has.")
        checked_promoted_from(key)
        content = _content(found.value)
    name = _without_namespace(key) if as_key is None else as_key
    return Promotion(key=name, content=content, cause={PROMOTED_FROM: key})


def promote(
    caller: Caller,
    what: Promotion,
    *,
    category: str,
    tags: Iterable[str] = (),
    wish: Wish = PLAIN,
) -> StoredEntry:
    """Write the entry that *what* asks for."""
    told = replace(wish, cause=what.cause)
    return set_one(caller, what.key, what.content, category, tags, wish=told)


def _without_namespace(key: str) -> str:
    namespace, colon, name = key.partition(":")
    return name if colon and namespace in _NAMESPACES else key


def _content(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
        )
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("value", "must be text or JSON", given=type(value).__name__) from None
