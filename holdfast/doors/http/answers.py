"""What goes back: status, headers and bytes, encoded once."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.ground.pages import Page
from holdfast.memories.stores.records import JSONObject, Memory, Record, record_to_wire

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

JSON = b"application/json"
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
LIVE = b"text/event-stream; charset=utf-8"

_encode = msgspec.json.Encoder().encode


class Response(Struct, frozen=True, kw_only=True):
    """One whole answer."""

    body: bytes
    type: bytes = JSON
    status: int = 200
    headers: Headers = ()


Piece = Callable[[bytes], Awaitable[None]]
"""Sends one piece of an answer that goes on."""


class LiveAnswer(Struct, frozen=True, kw_only=True):
    """An answer that goes on: *run* sends pieces until it returns."""

    run: Callable[[Piece], Awaitable[None]]
    type: bytes = LIVE
    headers: Headers = ((b"cache-control", b"no-store"),)


def of_record(record: Record) -> Response:
    """Return *record* as an answer."""
    return Response(body=_encode(encodable(record)))


def of_records(records: Iterable[Record]) -> Response:
    """Return all of *records* as an answer that has no further pages."""
    return of_json({"data": [encodable(each) for each in records]})


def of_page(page: Page[Any], *, both_ways: bool = False) -> Response:
    """Return *page*, of records or JSON objects, as an answer; *both_ways* tells `prev_page`."""
    told: JSONObject = {
        "data": [encodable(each) for each in page.data],
        "next_page": page.next_page,
    }
    if both_ways:
        told["prev_page"] = page.prev_page
    return of_json(told)


def encodable(value: object) -> object:
    """Return what encodes as *value* is told on the wire.

    The encoder writes a memory as `to_wire` does, in an eighth of the time, but for an instant on
    a whole second, whose six zeros it leaves out.
    """
    if isinstance(value, Memory) and value.created_at.microsecond and value.updated_at.microsecond:
        return value
    return record_to_wire(value) if isinstance(value, Record) else value


def of_json(told: JSONObject, *, status: int = 200) -> Response:
    """Return a JSON object as an answer."""
    return Response(body=_encode(told), status=status)
