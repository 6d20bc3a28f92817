"""A value of one run or one network, kept between runs: promoted to a durable entry."""

import json
from collections.abc import Iterable
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.records import StoredEntry, coded
from holdfast.memories.durable.validation import checked_origin, checked_promoted_from
from holdfast.memories.durable.write import set_one
from holdfast.memories.durable.write_entry import PLAIN, EntryWrite

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


class PromotionSource(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Where a value was promoted from: its key, and of which run, by whom, in which version."""

    key: str
    run_id: str | None = None
    source: str | None = None
    version: int | None = None

    def cause(self) -> dict[str, str]:
        """Return what the log says of it; InvalidInput for what cannot stand there."""
        told = {PROMOTED_FROM: checked_promoted_from(self.key)}
        named = {"run_id": self.run_id, "source": self.source}
        told |= {name: checked_origin(name, each) for name, each in named.items() if each}
        return told if self.version is None else told | {"version": str(self.version)}


class Promotion(Struct, frozen=True, kw_only=True):
    """What a promotion is to write: under which key, and where it comes from."""

    key: str
    content: str
    origin: PromotionSource


def promotion(memory: Promotes, key: str, as_key: str | None = None) -> Promotion:
    """Return the promotion of what *memory* has under *key*; NotFound if that is nothing.

    Text stays as it is, another value becomes canonical JSON. The key loses its namespace, unless
    *as_key* is given.
    """
    found = memory.get(key)
    with coded():
        if found is None:
            raise NotFound("value", key, next="List the keys of the memory.")
        origin = _origin(memory, key, found)
        origin.cause()
        content = _content(found.value)
    name = _without_namespace(key) if as_key is None else as_key
    return Promotion(key=name, content=content, origin=origin)


def promote(
    caller: AgentContext,
    what: Promotion,
    *,
    category: str,
    tags: Iterable[str] = (),
    wish: EntryWrite = PLAIN,
) -> StoredEntry:
    """Write the entry that *what* asks for."""
    told = replace(wish, cause=what.origin.cause())
    return set_one(caller, what.key, what.content, category, tags, wish=told)


def _origin(memory: Promotes, key: str, found: Promotable) -> PromotionSource:
    """Return where *found* is from, as far as its memory knows."""
    version = getattr(found, "version", None)
    return PromotionSource(
        key=key,
        run_id=_fitting("run_id", getattr(memory, "run_id", None)),
        source=_fitting("source", found.source),
        version=version if isinstance(version, int) else None,
    )


def _fitting(name: str, given: object) -> str | None:
    """Return *given* if the log can tell it: a run may call its sources anything."""
    try:
        return checked_origin(name, given)
    except InvalidInput:
        return None


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
