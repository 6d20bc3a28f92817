"""Entries of run memory: keys, limits, filters."""

from collections.abc import Iterable, Mapping
from threading import TIMEOUT_MAX
from typing import Final, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct, field

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON, decode, encode, repr_with_value
from holdfast.ground.text import encoded, to_nfc
from holdfast.ground.validation import LARGEST, is_number, is_whole
from holdfast.memories.run.keys import Kind, checked, checked_kind

VALUE_DEPTH: Final = 200
"""Deepest nesting of a value."""
TITLE_CHARS: Final = 300
DESCRIPTION_CHARS: Final = 4_000
LATEST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""


class RunEntry(Struct, frozen=True, kw_only=True, gc=False):
    """The entry under one key of a run's memory; times are milliseconds since 1970.

    `value_json` is the value as compact JSON, `value` a new copy of it at each access.
    """

    key: str
    kind: Kind
    value_json: bytes
    source: str | None = None
    title: str | None = None
    description: str | None = None
    created_at: int
    updated_at: int
    version: int
    failed: bool = False

    @property
    def value(self) -> JSON:
        """A new copy of the value."""
        return decode(self.value_json)

    @property
    def value_bytes(self) -> int:
        """The size of the value: bytes of its compact JSON."""
        return len(self.value_json)

    def __repr__(self) -> str:
        return repr_with_value(self, "value_json", self.value_json)

    def to_wire(self) -> dict[str, JSON]:
        """Return it as a JSON object for `restore`."""
        names = [name.removesuffix("_json") for name in self.__struct_fields__]
        return {name: getattr(self, name) for name in names}


class StoredRunEntry(Struct, frozen=True, kw_only=True):
    """A stored entry of a run, without its value; times are milliseconds since 1970.

    `written` rises in the order of last writes.
    """

    key: str
    kind: Kind
    written: int
    source: str | None
    title: str | None
    description: str | None
    created_at: int
    updated_at: int
    version: int
    value_bytes: int
    failed: bool


class ListedEntry(Struct, frozen=True, kw_only=True):
    """An entry without its value; times are milliseconds since 1970."""

    key: str
    kind: Kind
    title: str | None = None
    description: str | None = None
    source: str | None = None
    value_bytes: int = field(name="valueBytes")
    created_at: int = field(name="createdAt")
    updated_at: int = field(name="updatedAt")
    version: int
    failed: bool = False


def value_json(value: object) -> bytes:
    """Encode *value* as an entry stores it.

    `InvalidInput` names the place that is not JSON.
    """
    return encode(value, root="$", depth=VALUE_DEPTH, field="value")


def checked_source(given: object) -> str | None:
    """Return *given* if it is text or None; else InvalidInput."""
    return None if given is None else encoded("source", given).decode()


def checked_title(given: object) -> str | None:
    """Return *given* if it can be a title, or is None; else InvalidInput."""
    return _text("title", given, TITLE_CHARS)


def checked_description(given: object) -> str | None:
    """Return *given* if it can be a description, or is None; else InvalidInput."""
    return _text("description", given, DESCRIPTION_CHARS)


def checked_time(field: str, given: object) -> int:
    """Return *given* if it is milliseconds since 1970; else InvalidInput."""
    return _whole(field, given, least=0, most=LATEST, of="milliseconds since 1970")


def checked_version(field: str, given: object, *, least: int = 0) -> int:
    """Return *given* if it is a whole number from *least*; else InvalidInput."""
    return _whole(field, given, least=least, most=LARGEST, of="a whole number")


def checked_seconds(given: object) -> float:
    """Return *given* seconds, at most the longest possible wait.

    Raise `InvalidInput` if it is not a time.
    """
    if not is_number(given) or not given >= 0:
        raise InvalidInput(
            "timeout", "must be seconds from 0, or None", given=given, next="Give seconds."
        )
    return min(float(given), TIMEOUT_MAX)


def _text(field: str, given: object, most: int) -> str | None:
    if given is None:
        return None
    text = encoded(field, given).decode()
    if len(text) > most:
        raise InvalidInput(
            field,
            f"must have at most {most:,} characters, has {len(text):,}",
            limit=most,
            next="Shorten it; put long text into the value.",
        )
    return text


def _whole(field: str, given: object, *, least: int, most: int, of: str) -> int:
    if not is_whole(given, least, most):
        raise InvalidInput(field, f"must be {of}, from {least}", given=given, next="Give that.")
    return given


class RunLimits(Struct, frozen=True, kw_only=True):
    """Limits of the memory of one run; sizes are bytes of values as compact JSON.

    `tool_value_bytes` is the most that a model may write as one value.
    """

    value_bytes: int = 4_194_304
    entries: int = 10_000
    total_bytes: int = 67_108_864
    tool_value_bytes: int = 262_144

    def __post_init__(self) -> None:
        """Raise `InvalidInput` for a wrong limit."""
        for name in self.__struct_fields__:
            limit: object = getattr(self, name)
            if not is_whole(limit):
                reason, next = "must be a whole number from 0", "Give the most there may be."
                raise InvalidInput(name, reason, given=limit, next=next)


UNLESS_SAID: RunLimits = RunLimits()
"""The default limits of a memory."""


OneOrMany: TypeAlias = "str | Iterable[str] | None"


class Filterable(Protocol):
    """The properties that a filter tests."""

    @property
    def key(self) -> str:
        """Its key."""
        ...

    @property
    def kind(self) -> str:
        """Its kind."""
        ...

    @property
    def source(self) -> str | None:
        """Its producer."""
        ...


E = TypeVar("E", bound=Filterable)


class EntryFilter(Struct, frozen=True, kw_only=True):
    """Conditions that must all hold.

    None is no condition; nothing matches an empty tuple.
    """

    kinds: tuple[Kind, ...] | None = None
    keys: tuple[str, ...] | None = None
    key_prefix: str = ""
    sources: tuple[str, ...] | None = None

    def chosen(self, entries: Iterable[E]) -> list[E]:
        """Return the *entries* that match, in their order."""
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
        """Return the set conditions by name."""
        conditions: dict[str, JSON] = {}
        for name, among in (("kind", self.kinds), ("keys", self.keys), ("sources", self.sources)):
            if among is not None:
                conditions[name] = list(among)
        return conditions | ({"key_prefix": self.key_prefix} if self.key_prefix else {})


def _of_kinds(kinds: tuple[Kind, ...], entries: Iterable[E]) -> list[E]:
    if len(kinds) == 1:
        # The most frequent filter, at half the cost of a set.
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
    """Return the filter of these conditions; `InvalidInput` names a wrong one."""
    if kind is None and keys is None and key_prefix is None and sources is None:
        return EVERYTHING
    kinds: tuple[Kind, ...] = ()
    if kind is not None:
        kinds = tuple([checked_kind(each) for each in _many("kind", kind)])
    return EntryFilter(
        kinds=None if kind is None else kinds,
        keys=None if keys is None else tuple(map(checked, _many("keys", keys))),
        key_prefix="" if key_prefix is None else to_nfc(encoded("key_prefix", key_prefix).decode()),
        sources=None if sources is None else tuple(_many("sources", sources)),
    )


def _many(field: str, given: object) -> list[str]:
    """Return *given*, one or many, each once and sorted.

    So equal filters are equal values.
    """
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
