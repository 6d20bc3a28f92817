"""Network state to JSON and back."""

from datetime import datetime
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from holdfast.ground.errors import InvalidInput, UnknownFormat
from holdfast.ground.json_values import is_nested_over
from holdfast.ground.text import encoded
from holdfast.memories.state import message
from holdfast.memories.state.cells import (
    Cell,
    Schema,
    StateContents,
    WriteOrigin,
    check_room,
    check_size,
    encoded_value,
)
from holdfast.memories.state.message import (
    StateLimits,
    checked_key,
    from_text,
    messages_of,
    to_milliseconds,
    to_text,
    wire_of,
)
from holdfast.memories.state.result import (
    InferenceResult,
    canonical_of,
    check_sum,
    encoded_result,
    read_result,
)
from holdfast.memories.state.sources import in_order

FORMAT: Final = "holdfast.network_state"
VERSION: Final = 1

_MEMBERS: Final = ("thread_id", "revision", "values", "messages", "results")
_TIMES: Final = ("created_at", "updated_at")
_ORIGIN: Final = WriteOrigin.__struct_fields__
_VALUE: Final = ("key", "value", "version", *_TIMES, *_ORIGIN)

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def to_json(held: StateContents) -> bytes:
    """Return *held* as one line of JSON."""
    return _encode(
        {
            "format": FORMAT,
            "version": VERSION,
            "thread_id": held.thread_id,
            "revision": held.revision,
            "values": [_value(key, cell) for key, cell in held.cells.items()],
            "messages": [wire_of(each) for each in held.messages],
            "results": [msgspec.Raw(encoded_result(each)) for each in held.results],
        }
    )


def parsed(text: object) -> object:
    """Parse *text*; raise `UnknownFormat` if it is not JSON, or nested too deeply."""
    given = text if isinstance(text, bytes) else encoded("state", text)
    if is_nested_over(given):
        raise _unknown(None, None)
    try:
        return _decode(given)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unknown(None, None) from error


def from_wire(
    given: object, *, verify: bool, limits: StateLimits, schema: Schema | None
) -> StateContents:
    """Return the contents of the state in *given*, its parsed JSON.

    Raise `UnknownFormat` if it is not a state, or of a later release, `InvalidInput` for a wrong
    member, and with *verify* `ChecksumMismatch` for a result that was changed.
    """
    found = _body(given)
    revision = message.whole("revision", found["revision"])
    read = _Cells(revision, limits, schema)
    given = message.items("results", found["results"], lambda each: _result(each, verify, limits))
    results, newest = in_order(given)
    return StateContents(
        cells=read.all(found["values"]),
        messages=list(messages_of("messages", found["messages"])),
        results=results,
        newest=newest,
        thread_id=message.text_or_none("thread_id", found["thread_id"]),
        revision=revision,
        total_bytes=read.total_bytes,
    )


class _Cells:
    """Reads cells one after the other, and sums their sizes."""

    def __init__(self, revision: int, limits: StateLimits, schema: Schema | None) -> None:
        self._revision, self._limits, self._schema = revision, limits, schema
        self._cells: dict[str, Cell] = {}
        self.total_bytes = 0

    def all(self, given: object) -> dict[str, Cell]:
        """Return the cells in the list *given*, by key."""
        message.items("values", given, self._take)
        return self._cells

    def _take(self, given: object) -> None:
        found = _members(given, _VALUE)
        key = checked_key(found["key"], self._limits)
        if key in self._cells:
            raise InvalidInput("key", "is there twice", given=key)
        version = message.whole("version", found["version"])
        if not 1 <= version <= self._revision:
            raise InvalidInput("version", "must be from 1 to the revision", given=version)
        data = encoded_value(key, found["value"], self._limits, self._schema)
        self.total_bytes += len(data)
        self._cells[key] = Cell(
            data,
            version,
            from_text("created_at", found["created_at"]),
            from_text("updated_at", found["updated_at"]),
            WriteOrigin(**{name: message.text_or_none(name, found[name]) for name in _ORIGIN}),
        )
        check_room(key, len(self._cells), self.total_bytes, self._limits)


def _body(given: object) -> dict[str, Any]:
    """Return the members of *given*; check its format and version."""
    if not isinstance(given, dict):
        raise _unknown(None, None)
    found = cast("dict[str, Any]", given)
    format, version = found.get("format"), found.get("version")
    if format != FORMAT or (type(version) is int and version > VERSION):
        raise _unknown(format, version)
    if type(version) is not int or version != VERSION:
        raise InvalidInput("version", f"must be {VERSION}", given=version)
    return _members(found, ("format", "version", *_MEMBERS))


def _members(given: object, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the members of *given*; raise `InvalidInput` if they are not *names*."""
    found = message.members(given)
    for name in names:
        if name not in found:
            raise InvalidInput(name, "is missing")
    for name in found:
        if name not in names:
            raise InvalidInput(name, "is no member known here")
    return found


def _value(key: str, cell: Cell) -> dict[str, Any]:
    return {
        "key": key,
        "value": msgspec.Raw(cell.data),
        "version": cell.version,
        "created_at": to_text(to_milliseconds("created_at", cell.created_at)),
        "updated_at": to_text(to_milliseconds("updated_at", cell.updated_at)),
        **asdict(cell.origin),
    }


def _result(given: object, verify: bool, limits: StateLimits) -> InferenceResult:
    result, stored = read_result(given)
    canonical = canonical_of(result)
    check_size(result, len(canonical), limits)
    if verify and stored is not None:
        check_sum(result, stored, canonical)
    return result


def _unknown(format: object, version: object) -> UnknownFormat:
    return UnknownFormat(
        "state", format=format, version=version, known=f"{FORMAT}, version {VERSION}"
    )


R = TypeVar("R", bound=Struct)


def exported(record: Struct) -> dict[str, Any]:
    """Return *record* as JSON values.

    Its fields are text, numbers, instants and tuples of text.
    """
    return {name: _plain(value) for name, value in asdict(record).items()}


def imported(make: type[R], wire: object) -> R:
    """Convert *wire* to *make*; raise `msgspec.ValidationError` if it does not fit."""
    return msgspec.convert(wire, make)


def _plain(value: object) -> object:
    return to_text(value) if isinstance(value, datetime) else value
