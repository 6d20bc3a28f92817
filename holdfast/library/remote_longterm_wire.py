"""Requests about one user's long-term memory, and decoding of their responses."""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.ground.errors import EngineFault, InvalidInput
from holdfast.ground.pages import Page
from holdfast.library.longterm import LongTermSpec
from holdfast.library.remote.client import Method, WireClient, body_of, route
from holdfast.memories.longterm.context import ENABLED, is_on, said_by
from holdfast.memories.longterm.records import LongTermOptions, Origin, from_wire
from holdfast.memories.longterm.validation import checked_name, checked_user
from holdfast.memories.stores.records import JSONObject

R = TypeVar("R", bound=Struct)
T = TypeVar("T")

LONGTERM = "/api/longterm"
_NO_EMBEDDER = "none"
_USUAL = LongTermOptions()


class LongTermWire(Struct, frozen=True, kw_only=True):
    """Requests below one user's memory, with one credential.

    `scope` is sent in each query: the collection's name, whether it is enabled, its options. New
    items get the `origin`.
    """

    client: WireClient
    prefix: str
    scope: Mapping[str, object]
    origin: Origin = "api"

    def by_tool(self) -> "LongTermWire":
        """Return the same with `tool` as the origin of new items."""
        return replace(self, origin="tool")

    def read(self, *below: str, **query: object) -> JSONObject:
        """Return the response of a GET."""
        return self.client.read(route(self.prefix, *below), {**self.scope, **query})

    def write(
        self,
        method: Method,
        *below: str,
        body: Mapping[str, object] | None = None,
        again: bool = False,
    ) -> JSONObject:
        """Return the response of *method*; *again* if the request is idempotent."""
        path = route(self.prefix, *below)
        return self.client.write(method, path, body, query=self.scope, again=again)

    def lines(self, *below: str) -> list[bytes]:
        """Return the lines of a GET's response."""
        return self.client.read_lines(route(self.prefix, *below), self.scope)

    def write_lines(self, lines: Iterable[bytes], *below: str) -> JSONObject:
        """Return the response of a POST of *lines*."""
        return self.client.write_lines(route(self.prefix, *below), lines, self.scope)

    def page(self, make: Callable[[object], T], *below: str, **query: object) -> Page[T]:
        """Return a page of the list of a GET, each item decoded by *make*.

        Its `all()` fetches the following pages.
        """
        listed = self.read(*below, **query)
        return Page(
            [make(each) for each in list_of(listed, "data")],
            cast("str | None", listed.get("next_page")),
            more=lambda cursor: self.page(make, *below, **{**query, "page": cursor}),
        )


def wire_of(client: WireClient, spec: LongTermSpec) -> LongTermWire:
    """Return the requests for the collection that *spec* names.

    Raises InvalidInput for an invalid name, and for a model or option that cannot be sent.
    """
    user = checked_user(spec.user_id)
    named = {"namespace": checked_name("namespace", spec.namespace)}
    if spec.workspace_id is not None:
        named["workspace_id"] = checked_name("workspace_id", spec.workspace_id)
    equipped = {
        "embedder": _NO_EMBEDDER if spec.embedder is False else _model("embedder", spec.embedder),
        "extractor": _model("extractor", spec.extractor),
        "options": _options(spec.options),
    }
    return LongTermWire(client=client, prefix=route(LONGTERM, user), scope=named | equipped)


def switched(wire: LongTermWire, enabled: bool | None) -> LongTermWire | None:
    """Return *wire* with memory switched on, or None where it is switched off.

    The server is queried too, since it may switch memory off.
    """
    variable = os.environ.get(ENABLED)
    on = is_on(enabled, variable)
    if enabled is False or said_by(variable) is False:
        return None
    wire = replace(wire, scope={**wire.scope, "enabled": True if on else None})
    return wire if value_of(wire.read("status"), "enabled", bool) else None


def record(make: type[R], wire: object) -> R:
    """Decode *wire* as *make*; EngineFault if the response has another shape."""
    try:
        return from_wire(make, wire)
    except msgspec.ValidationError as error:
        raise EngineFault(f"The server's answer is not a {make.__name__}: {error}.") from error


def list_of(wire: JSONObject, name: str) -> list[object]:
    """Return the list *name* of *wire*."""
    return value_of(wire, name, list[object])


def value_of(wire: JSONObject, name: str, kind: type[T]) -> T:
    """Return the field *name* of *wire*, decoded as *kind*."""
    try:
        return msgspec.convert(wire.get(name), kind)
    except msgspec.ValidationError as error:
        raise EngineFault(f"The server's answer is of another shape: {error}.") from error


def sendable(value: object) -> object:
    """Return *value* with each instant in it as RFC 3339 text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: sendable(each) for name, each in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [sendable(each) for each in cast("list[object]", value)]
    return value


def _model(field: str, given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise InvalidInput(
            field,
            "must be provider:model against a server",
            given=type(given).__name__,
            next="An object works where the database is.",
        )
    return given


def _options(options: LongTermOptions) -> str | None:
    """Encode the options that differ from the defaults as JSON; None if none do."""
    if options.credentials is not None:
        reason = "cannot be sent to a server, which has its own"
        raise InvalidInput("credentials", reason)
    fields = {**asdict(options), "weights": asdict(options.weights)}
    usual = {**asdict(_USUAL), "weights": asdict(_USUAL.weights)}
    given = {name: value for name, value in fields.items() if value != usual[name]}
    return body_of(given).decode() if given else None
