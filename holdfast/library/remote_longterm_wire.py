"""Asks a server about one user's long-term memory, and reads its records."""

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
from holdfast.library.wire_client import Method, WireClient
from holdfast.library.wire_request import body_of, route
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
    """Requests below one user's memory, by the holder of a credential.

    `scope` names the collection in each query, switches it on and says how it is to be. What is
    remembered is of `origin`.
    """

    client: WireClient
    prefix: str
    scope: Mapping[str, object]
    origin: Origin = "api"

    def by_tool(self) -> "LongTermWire":
        """Return the like of it whose items are an agent's choice."""
        return replace(self, origin="tool")

    def read(self, *below: str, **query: object) -> JSONObject:
        """Return what a GET answers."""
        return self.client.read(route(self.prefix, *below), {**self.scope, **query})

    def write(
        self,
        method: Method,
        *below: str,
        body: Mapping[str, object] | None = None,
        again: bool = False,
    ) -> JSONObject:
        """Return what *method* answers; *again* when twice is the same as once."""
        path = route(self.prefix, *below)
        return self.client.write(method, path, body, query=self.scope, again=again)

    def lines(self, *below: str) -> list[bytes]:
        """Return the lines that a GET answers."""
        return self.client.read_lines(route(self.prefix, *below), self.scope)

    def write_lines(self, lines: Iterable[bytes], *below: str) -> JSONObject:
        """Return what a POST of *lines* answers."""
        return self.client.write_lines(route(self.prefix, *below), lines, self.scope)

    def page(self, make: Callable[[object], T], *below: str, **query: object) -> Page[T]:
        """Return a page of what a GET lists, each thing made by *make*; it walks on by itself."""
        listed = self.read(*below, **query)
        return Page(
            [make(each) for each in list_of(listed, "data")],
            cast("str | None", listed.get("next_page")),
            more=lambda cursor: self.page(make, *below, **{**query, "page": cursor}),
        )


def wire_of(client: WireClient, asked: LongTermSpec) -> LongTermWire:
    """Return what asks about the collection that *asked* names.

    InvalidInput for a name that is none, and for what cannot be sent to a server.
    """
    user = checked_user(asked.user_id)
    named = {"namespace": checked_name("namespace", asked.namespace)}
    if asked.workspace_id is not None:
        named["workspace_id"] = checked_name("workspace_id", asked.workspace_id)
    equipped = {
        "embedder": _NO_EMBEDDER if asked.embedder is False else _model("embedder", asked.embedder),
        "extractor": _model("extractor", asked.extractor),
        "options": _options(asked.options),
    }
    return LongTermWire(client=client, prefix=route(LONGTERM, user), scope=named | equipped)


def switched(wire: LongTermWire, enabled: bool | None) -> LongTermWire | None:
    """Return *wire* as memory is switched on for it, or None where anybody switched it off.

    The server is asked: it has a say too.
    """
    variable = os.environ.get(ENABLED)
    on = is_on(enabled, variable)
    if enabled is False or said_by(variable) is False:
        return None
    wire = replace(wire, scope={**wire.scope, "enabled": True if on else None})
    return wire if value_of(wire.read("status"), "enabled", bool) else None


def record(make: type[R], wire: object) -> R:
    """Return the *make* in *wire*; EngineFault when the server answered something else."""
    try:
        return from_wire(make, wire)
    except msgspec.ValidationError as error:
        raise EngineFault(f"The server's answer is not a {make.__name__}: {error}.") from error


def list_of(wire: JSONObject, name: str) -> list[object]:
    """Return the list that *wire* holds under *name*."""
    return value_of(wire, name, list[object])


def value_of(wire: JSONObject, name: str, kind: type[T]) -> T:
    """Return what *wire* holds under *name*, which is of *kind*."""
    try:
        return msgspec.convert(wire.get(name), kind)
    except msgspec.ValidationError as error:
        raise EngineFault(f"The server's answer is of another shape: {error}.") from error


def sendable(value: object) -> object:
    """Return *value* with each instant in it as it is written in JSON."""
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
    """Return the options that are not as usual, as JSON; None when all are."""
    if options.credentials is not None:
        reason = "cannot be sent to a server, which has its own"
        raise InvalidInput("credentials", reason)
    told = {**asdict(options), "weights": asdict(options.weights)}
    usual = {**asdict(_USUAL), "weights": asdict(_USUAL.weights)}
    given = {name: value for name, value in told.items() if value != usual[name]}
    return body_of(given).decode() if given else None
