"""Decode responses of a server into records and pages."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from holdfast.ground.errors import EngineFault
from holdfast.ground.pages import Page
from holdfast.library.remote.client import WireClient
from holdfast.memories.stores.records import JSONObject, Record, from_wire

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class _Listed(msgspec.Struct, frozen=True):
    data: list[JSONObject]
    next_page: str | None = None
    prev_page: str | None = None


def record(make: type[R], wire: JSONObject) -> R:
    """Decode *wire* as *make*; EngineFault if the response has another shape."""
    try:
        return from_wire(make, wire)
    except (msgspec.ValidationError, KeyError) as error:
        raise EngineFault(f"The server's answer is not a {make.__name__}: {error}.") from error


def records(make: type[R], wire: JSONObject) -> list[R]:
    """Decode every *make* of a list without pages."""
    return [record(make, each) for each in _converted(_Listed, wire).data]


def paged(
    client: WireClient,
    path: str,
    query: Mapping[str, object],
    make: Callable[[JSONObject], T],
) -> Page[T]:
    """Return a page of the list at GET *path*, each item decoded by *make*.

    Its `all()` fetches the following pages.
    """
    listed = _converted(_Listed, client.read(path, query))
    return Page(
        [make(each) for each in listed.data],
        listed.next_page,
        prev_page=listed.prev_page,
        more=lambda cursor: paged(client, path, {**query, "page": cursor}, make),
    )


def field_of(kind: type[T], wire: JSONObject, name: str) -> T:
    """Return the field *name* of *wire*, decoded as *kind*."""
    return _converted(kind, wire.get(name))


def _converted(kind: type[T], wire: object) -> T:
    try:
        return msgspec.convert(wire, kind)
    except msgspec.ValidationError as error:
        raise EngineFault(f"The server's answer is of another shape: {error}.") from error
