"""Which entries of a run are meant: by kind, key, the beginning of the key, or source."""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.ground.text import encoded, to_nfc
from holdfast.memories.run.keys import Kind, checked, checked_kind

OneOrMany: TypeAlias = "str | Iterable[str] | None"


class Filterable(Protocol):
    """What a filter looks at."""

    @property
    def key(self) -> str:
        """Its key."""
        ...

    @property
    def kind(self) -> str:
        """What it is."""
        ...

    @property
    def source(self) -> str | None:
        """Who produced it."""
        ...


E = TypeVar("E", bound=Filterable)


class EntryFilter(Struct, frozen=True, kw_only=True):
    """Conditions that all hold; None is no condition, an empty tuple is met by nothing."""

    kinds: tuple[Kind, ...] | None = None
    keys: tuple[str, ...] | None = None
    key_prefix: str = ""
    sources: tuple[str, ...] | None = None

    def chosen(self, entries: Iterable[E]) -> list[E]:
        """Return those of *entries* that are meant, in their order."""
        if self.kinds is not None:
            entries = _of_kinds(self.kinds, entries)
        if self.keys is not None:
            keys = frozenset(self.keys)
            entries = [each for each in entries if each.key in keys]
        if prefix := self.key_prefix:
            entries = [each for each in entries if each.key.startswith(prefix)]
        if self.sources is not None:
            sources = frozenset(self.sources)
            entries = [each for each in entries if each.source in sources]
        return entries if isinstance(entries, list) else list(entries)

    def told(self) -> dict[str, JSON]:
        """Return the conditions that there are, by name."""
        conditions: dict[str, JSON] = {}
        for name, among in (("kind", self.kinds), ("keys", self.keys), ("sources", self.sources)):
            if among is not None:
                conditions[name] = list(among)
        return conditions | ({"key_prefix": self.key_prefix} if self.key_prefix else {})


def _of_kinds(kinds: tuple[Kind, ...], entries: Iterable[E]) -> list[E]:
    if len(kinds) == 1:
        # What is mostly asked, and at half the cost of looking into a set.
        only = kinds[0]
        return [each for each in entries if each.kind == only]
    among = frozenset[str](kinds)
    return [each for each in entries if each.kind in among]


EVERYTHING = EntryFilter()


def filter_of(
    kind: OneOrMany = None,
    keys: Iterable[str] | None = None,
    key_prefix: str | None = None,
    sources: OneOrMany = None,
) -> EntryFilter:
    """Return the filter of these; InvalidInput names what is none."""
    if kind is None and keys is None and key_prefix is None and sources is None:
        return EVERYTHING
    if isinstance(keys, str):
        raise _not_a_list("keys", keys)
    asked: tuple[Kind, ...] = ()
    if kind is not None:
        asked = tuple([checked_kind(each) for each in _many("kind", kind)])
    return EntryFilter(
        kinds=None if kind is None else asked,
        keys=None if keys is None else tuple(map(checked, _many("keys", keys))),
        key_prefix="" if key_prefix is None else to_nfc(encoded("key_prefix", key_prefix).decode()),
        sources=None if sources is None else tuple(_many("sources", sources)),
    )


def _many(field: str, given: object) -> list[str]:
    """Return *given*, one or many, each once and sorted, so that equal filters are equal values."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise _not_a_list(field, cast("object", given))
    many = cast("Iterable[object]", given)
    return sorted({encoded(field, each).decode() for each in many})


def _not_a_list(field: str, given: object) -> InvalidInput:
    return InvalidInput(
        field, f"must be a list of strings, is {type(given).__name__}", next="Give a list."
    )
