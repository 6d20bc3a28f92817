"""Requests about one agent's durable memory, and decoding of their responses."""

import secrets
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from holdfast.ground.errors import (
    EngineFault,
    HoldfastError,
    ImportRefused,
    InvalidInput,
    PreconditionFailed,
)
from holdfast.ground.pages import Page
from holdfast.library.remote.client import Method, WireClient, body_of, route
from holdfast.library.remote.errors import of_code
from holdfast.memories.durable.records import (
    DurableEntry,
    NotStored,
    RejectedFile,
    StoredEntry,
    StoredMany,
    give_code,
)
from holdfast.memories.durable.validation import checked_idempotency_key
from holdfast.memories.durable.wire import Wire, from_wire
from holdfast.memories.stores.records import JSONObject

R = TypeVar("R", bound=Struct)
T = TypeVar("T")

DURABLE = "/api/durable"
SECOND = timedelta(seconds=1)


class DurableWire:
    """Requests below one *prefix*, with one credential, perhaps in a run.

    Their errors carry the code of a durable call.
    """

    def __init__(
        self, client: WireClient, prefix: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._client, self._prefix, self._headers = client, prefix, dict(headers or {})

    def within(self, run_id: str, token: int) -> "DurableWire":
        """Return the same for requests within a run."""
        headers = {"holdfast-run": run_id, "holdfast-run-token": str(token)}
        return DurableWire(self._client, self._prefix, headers)

    def read(self, *below: str, **query: object) -> JSONObject:
        """Return the response of a GET."""
        with coded_errors():
            path = route(self._prefix, *below)
            return self._client.read(path, query, headers=self._headers)

    def write(
        self,
        method: Method,
        *below: str,
        body: Mapping[str, object] | None = None,
        query: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
    ) -> JSONObject:
        """Return the response of *method*.

        Each write has an idempotency key, so it may be retried after a lost response: it is done
        once.
        """
        with coded_errors():
            key = checked_idempotency_key(idempotency_key)
            key = secrets.token_hex(16) if key is None else key
            headers: dict[str, str | bytes] = {**self._headers, "idempotency-key": key.encode()}
            return self._client.write(
                method,
                route(self._prefix, *below),
                body,
                query=query,
                headers=headers,
                again=True,
            )

    def page(self, make: Callable[[Wire], T], *below: str, **query: object) -> Page[T]:
        """Return a page of the list of a GET, each item decoded by *make*.

        Its `all()` fetches the following pages.
        """
        listed = self.read(*below, **query)
        return Page(
            [make(each) for each in list_of(listed, "data")],
            cast("str | None", listed.get("next_page")),
            more=lambda cursor: self.page(make, *below, **{**query, "page": cursor}),
        )


@contextmanager
def coded_errors() -> Generator[None, None, None]:
    """Add the error code to an error raised within, and decode records in its facts."""
    try:
        yield
    except HoldfastError as error:
        _complete(error)
        raise


def _complete(error: HoldfastError) -> None:
    give_code(error)
    if isinstance(error, PreconditionFailed):
        current: object = error.current
        if isinstance(current, dict):
            error.current = record(DurableEntry, cast("Wire", current))
    if isinstance(error, ImportRefused):
        given = cast("tuple[Any, ...]", error.rejected)
        error.rejected = tuple(
            record(RejectedFile, cast("Wire", each)) if isinstance(each, dict) else each
            for each in given
        )


def record(make: type[R], wire: Wire) -> R:
    """Decode *wire* as *make*; EngineFault if the response has another shape."""
    try:
        return from_wire(make, wire)
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise EngineFault(f"The server's answer is not a {make.__name__}: {error}.") from error


def list_of(wire: Wire, name: str) -> list[Wire]:
    """Return the list of objects *name* of *wire*."""
    found = wire.get(name)
    if not isinstance(found, list):
        raise EngineFault(f"The server's answer has no list {name}.")
    return cast("list[Wire]", found)


def value_of(wire: Wire, name: str, kind: type[T]) -> T:
    """Return the field *name* of *wire*, decoded as *kind*."""
    try:
        return msgspec.convert(wire.get(name), kind)
    except msgspec.ValidationError as error:
        raise EngineFault(f"The server's answer is of another shape: {error}.") from error


def since_of(given: object) -> str | None:
    """Encode *given* for a query: an aware datetime, a timedelta, or None."""
    if given is None or given == "":
        return None
    if isinstance(given, timedelta) and given >= timedelta(0):
        return f"{given / SECOND:.6f}s"
    if isinstance(given, datetime) and given.tzinfo is not None:
        return given.isoformat()
    raise InvalidInput(
        "since", "must be an aware datetime, or a timedelta back from now", given=given
    )


class Sendable:
    """Items of `set_many` encoded for a request; the others are refused here."""

    def __init__(self, items: Iterable[object]) -> None:
        self.wires: list[Wire] = []
        self.places: list[int] = []
        self.refused: list[NotStored] = []
        for index, item in enumerate(items):
            wire = _item(item)
            try:
                body_of(wire if all(isinstance(name, str) for name in wire) else {"items": wire})
            except InvalidInput as error:
                error.index = index
                give_code(error)
                self.refused.append(NotStored(index, _key(wire), error))
            else:
                self.wires.append(wire)
                self.places.append(index)

    def many(self, answer: Wire) -> StoredMany:
        """Return the results of all items; *answer* has those of the sent ones."""
        refused = [_refused(each, self.places) for each in list_of(answer, "refused")]
        return StoredMany(
            stored=tuple(record(StoredEntry, each) for each in list_of(answer, "stored")),
            refused=tuple(sorted([*self.refused, *refused], key=lambda each: each.index)),
        )


def _item(item: object) -> dict[Any, Any]:
    if isinstance(item, Mapping):
        return dict(cast("Mapping[Any, object]", item))
    named = ("key", "content", "category", "tags")
    return {name: _plain(getattr(item, name)) for name in named if hasattr(item, name)}


def _plain(value: object) -> object:
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _key(wire: Wire) -> str:
    key = wire.get("key", "")
    return key.encode("utf-8", "backslashreplace").decode() if isinstance(key, str) else ""


def _refused(wire: Wire, places: list[int]) -> NotStored:
    index = places[value_of(wire, "index", int)]
    error = of_code(value_of(wire, "error", dict[str, Any]))
    error.index = index
    return NotStored(index, value_of(wire, "key", str), error)
