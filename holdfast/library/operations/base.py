"""Declare an operation of the library once, for its route and its remote method.

An `Operation` is a public method of a façade, and its request. From the tables of this folder come
the routes of a server with their handlers and OpenAPI description (`doors/http/app`), and the
methods of a remote memory (`library/remote/calls`), which have the signatures of the façade.

1. **The façade's signature is the list of parameters.** A parameter is a segment if its wire name
   stands in braces in the path, a field of the body if it is a field of the struct `params`, the
   whole body if `body` names it, and else part of the query. `idempotency_key` is a header. The
   fields of `params` that are left over are a parameter `**names` of the signature.
2. **Query parameters** have the order of the signature, as a rule `limit` and `page` last, and no
   default on the wire. Their types decide how they are parsed and encoded: text, numbers,
   `Literal`, lists of text, instants, and spans of time.
3. **A `Param`** is declared where name and type are not enough: another name on the wire, another
   type in a query, a check. `encode` runs in the client, `decode` in the server. The client checks
   only what a request cannot carry: the server, which knows the limits, checks the rest.
4. **The body's struct** has the types of the wire. Where the library's own error says more than
   that of a conversion, its field has the wider type (`str` instead of a `Literal`).
5. **A result has a `WireForm`**: how it is encoded, and decoded again. A response that is no JSON
   object, a stream, a long poll, and whatever needs the visitor of a request stays a handwritten
   route in `doors/http/own`. A method of several requests is written as a function of the remote
   memory and passed to `remote_memory`.
6. **A table states facts.** It decides nothing, and imports records, validation and wire forms.
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Generic, Literal, NewType, TypeVar

import msgspec
from msgspec import Struct, field

T = TypeVar("T")
F = TypeVar("F")

MIB = 1_048_576

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Needs = Literal["nothing", "any", "read", "write", "admin"]
"""The least right: no credential at all, any credential, or a key of that scope."""

Retry = Literal["never", "safe", "guarded", "keyed"]
"""Whether a client may repeat a write after a lost response.

`safe` is idempotent; `guarded` is so under a precondition; `keyed` has an idempotency key in each
request. Reads are always repeated.
"""

Lane = Literal["quick", "page", "slow", "write"]
"""How the server runs it: `quick` reads one row or a few consecutive ones, `page` does so unless a
long page is requested, `slow` may be large or wait, `write` ends with one write that is awaited
without a thread."""

Session = Literal["never", "own", "store"]
"""Whether a session's token may use it: `own` on its own session, `store` on its stores."""

Existence = Literal["store", "memory", "version", "session", "agent", "environment"]
"""Kind of the object that the path names."""

RawText = NewType("RawText", str)
"""Text of a query that may hold U+0000, which the library refuses."""


Bound = Literal["never", "agent", "user", "named"]
"""A key may be bound to the agent, or to the user, in the path; `never` refuses bound keys.

`named` admits those bound to a user, to the objects that name this user.
"""


class Param(Struct, frozen=True, kw_only=True):
    """A parameter for which name and type of the signature are not enough."""

    wire: str = ""
    """Its name in the request."""
    type: Any = None
    """Its type in a query, if not that of the signature."""
    encode: Callable[[Any], object] | None = None
    """Check and encode an argument in the client."""
    decode: Callable[[Any], object] | None = None
    """Convert a parsed value to the argument in the server."""
    sent: bool = True
    """Whether it is in the request; what is not, a handwritten handler supplies."""


def time_text(given: object) -> object:
    """Return a datetime as ISO 8601; anything else as it is, for the server to check."""
    return given.isoformat() if isinstance(given, datetime) else given


AT: Final = Param(type=str, encode=time_text)
"""The moment of an answer about the past: an aware datetime or RFC 3339."""


class WireForm(Struct, Generic[T], frozen=True):
    """How a result is encoded as JSON values, and decoded."""

    encode: Callable[[T], Any]
    decode: Callable[[Any], T]


def field_form(name: str, kind: Any) -> WireForm[Any]:
    """Return the form of a value that is the field *name* of an object."""
    return WireForm(lambda value: {name: value}, lambda wire: msgspec.convert(wire.get(name), kind))


class Operation(Struct, frozen=True):
    """One public method of a façade, and its request."""

    name: str
    """The place of the façade on a handle, and the method: `threads.turns`."""
    path: str
    summary: str
    result: WireForm[Any]
    """The form of the result, or of each item of a page."""
    method: Method
    scope: Needs
    paged: bool = False
    params: type[Struct] | None = None
    body: str = ""
    """The parameter that is the whole body, a JSON object."""
    optional: bool = False
    """Whether the body may be left out."""
    special: Mapping[str, Param] = field(default_factory=dict[str, Param])
    status: int | Callable[[Any], int] = 200
    retry: Retry = "never"
    lane: Lane = "quick"
    limit: int | None = None
    """Most bytes of the body, if not those of the table."""
    deep: bool = False
    """Whether the body may hold output of models and tools, nested deeper."""
    bound: Bound | None = None
    """Whom a bound key must be bound to, if not as in the table."""
    session: Session = "never"
    existence: Existence | None = None
    """The object that is reported as not found before a request as invalid."""
    both_ways: bool = False
    """Whether a page names the page before it too."""
    waits: tuple[str, float] = ("", 0.0)
    """The parameter for which the server may wait, and the most seconds."""
    unchanged: Callable[[Any, datetime], bool] | None = None
    """Whether a write, by its result and the instant of the request, changed nothing."""
    echo: tuple[str, ...] = ()
    """Arguments that the response repeats."""
    missing: tuple[str, str, str] | None = None
    """Kind, parameter and advice of the NotFound that stands for the result None.

    The argument of that parameter names what was not found.
    """

    @property
    def act(self) -> str:
        """The name of the façade's method."""
        return self.name.rpartition(".")[2]

    def wire(self, name: str) -> str:
        """Return the name of the parameter *name* in the request."""
        special = self.special.get(name)
        return (special and special.wire) or name

    def is_sent(self, name: str) -> bool:
        """Return whether the parameter *name* is in the request."""
        return name not in self.special or self.special[name].sent


class OperationTable(Struct, Generic[F], frozen=True, kw_only=True):
    """The operations of one façade, and what their routes have in common."""

    facade: type[F]
    operations: tuple[Operation, ...]
    limit: int = MIB
    """Most bytes of a body."""
    bound: Bound = "never"
    coded: bool = False
    """Whether errors have a code of durable memory."""
    paging_last: bool = True
    """Whether `limit` and `page` are described after all other parameters of a query."""

    def layout(self, operation: Operation) -> "ParamLayout":
        """Return where each parameter of *operation* stands in its request."""
        signature = inspect.signature(getattr(self.facade, operation.act), eval_str=True)
        parameters = list(signature.parameters.values())[1:]
        fields = operation.params.__struct_fields__ if operation.params else ()
        segments: dict[str, str] = {}
        body: dict[str, str] = {}
        query: list[inspect.Parameter] = []
        for each in parameters:
            wire = operation.wire(each.name)
            if each.kind is inspect.Parameter.VAR_KEYWORD:
                body |= {name: name for name in fields if name not in body.values()}
            elif f"{{{wire}}}" in operation.path:
                segments[each.name] = wire
            elif wire in fields:
                body[each.name] = wire
            elif operation.is_sent(each.name) and each.name not in {operation.body, _KEY}:
                query.append(each)
        rest = {name: name for name in fields if name not in body.values()}
        return ParamLayout(
            signature=signature,
            segments=segments,
            body=body,
            fields=body | rest,
            query=tuple(query),
        )


_KEY = "idempotency_key"


class ParamLayout(Struct, frozen=True, kw_only=True):
    """Segments and fields of the body by parameter, and the parameters of the query.

    `fields` are all fields of the body, those that are no parameter by their own name.
    """

    signature: inspect.Signature
    segments: Mapping[str, str]
    body: Mapping[str, str]
    fields: Mapping[str, str]
    query: tuple[inspect.Parameter, ...]
