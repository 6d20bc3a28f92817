"""One thing that a step, a task, a caller or an agent put into the memory of a run."""

from threading import TIMEOUT_MAX
from typing import Final

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON, decode, encode
from holdfast.ground.text import encoded
from holdfast.memories.run.keys import Kind

VALUE_DEPTH: Final = 200
"""How deep a value may be nested."""
TITLE_CHARS: Final = 300
DESCRIPTION_CHARS: Final = 4_000
LATEST: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""


class RunEntry(Struct, frozen=True, kw_only=True, gc=False):
    """What one key of a run's memory holds; times are milliseconds since 1970.

    `value_json` is the value as compact JSON, `value` a fresh copy of it at each access.
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
        """The value, as a copy that is the caller's own."""
        return decode(self.value_json)

    @property
    def value_bytes(self) -> int:
        """The size of the value: bytes of its compact JSON."""
        return len(self.value_json)

    def to_wire(self) -> dict[str, JSON]:
        """Return it as a JSON object, as `restore` takes it."""
        return {
            "key": self.key,
            "kind": self.kind,
            "value": self.value,
            "source": self.source,
            "title": self.title,
            "description": self.description,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "version": self.version,
            "failed": self.failed,
        }


def value_json(value: object) -> bytes:
    """Return *value* as an entry keeps it; InvalidInput names the place that is no JSON."""
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
    return _whole(field, given, least=least, most=2**63 - 1, of="a whole number")


def checked_seconds(given: object) -> float:
    """Return *given* seconds, or the most that can be waited; InvalidInput if it is no time."""
    if not isinstance(given, int | float) or isinstance(given, bool) or not given >= 0:
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
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        raise InvalidInput(field, f"must be {of}, from {least}", given=given, next="Give that.")
    return given
