"""JSON responses and error responses.

An error has the status and the type of its nearest ancestor in the table. A contract route's body
holds no more than its clients know, so the whole error is in the header `holdfast-error`.
"""

import json
import logging
import math
import re
import traceback
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from datetime import datetime
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from holdfast.ground import errors
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import HoldfastError
from holdfast.memories.durable.wire import entry_to_wire
from holdfast.memories.stores.records import JSONObject

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = tuple[tuple[bytes, bytes], ...]

JSON = b"application/json"
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
LIVE = b"text/event-stream; charset=utf-8"

encode_json = msgspec.json.Encoder().encode


class Response(Struct, frozen=True, kw_only=True):
    """One complete response."""

    body: bytes
    type: bytes = JSON
    status: int = 200
    headers: Headers = ()


Piece = Callable[[bytes], Awaitable[None]]
"""Sends one piece of a live response."""


class LiveAnswer(Struct, frozen=True, kw_only=True):
    """A live response: *run* sends pieces until it returns."""

    run: Callable[[Piece], Awaitable[None]]
    type: bytes = LIVE
    headers: Headers = ((b"cache-control", b"no-store"),)


def of_json(payload: JSONObject, *, status: int = 200) -> Response:
    """Return the JSON object *payload* as a response."""
    return Response(body=encode_json(payload), status=status)


HEADER = b"holdfast-error"

_HASH = re.compile(r"[0-9a-f]{64}")
_FAULT = "Something failed on our side."
_log = logging.getLogger(__name__)


class WrongMethod(errors.Unsupported):
    """The route is known, but not with this method."""

    def __init__(self, method: str, allow: str) -> None:
        super().__init__(f"The method {errors.shortened(method)}", next=f"Use {allow}.")
        self.allow = allow


class MisdirectedRequest(errors.InvalidInput):
    """The `Host` of the request is not a name of this server."""

    def __init__(self, host: str, hosts: Sequence[str]) -> None:
        names = f"{', '.join(hosts[:-1])} or {hosts[-1]}"
        next = "Send one of these, or bind the server to another address with --host."
        super().__init__("host", f"must be {names}", given=host, next=next)


class HeadTooLarge(errors.TooLarge):
    """The request line and the headers are over a limit, in bytes or in lines."""

    def __init__(self, limit: int, unit: Literal["bytes", "header lines"]) -> None:
        super().__init__(limit, next="Send fewer or shorter headers.")
        self.message = f"The head of the request has more than {limit:,} {unit}."


class RequestTimeout(errors.Unavailable):
    """The client did not send the head or the body of its request in time."""

    def __init__(self, part: Literal["head", "body"]) -> None:
        super().__init__(
            f"The {part} of the request did not arrive in time.",
            reason="timeout",
            next="Send the request again.",
        )


ANSWERS: dict[type[HoldfastError], tuple[int, str]] = {
    HoldfastError: (500, "api_error"),
    errors.InvalidInput: (400, "invalid_request_error"),
    errors.Refused: (400, "invalid_request_error"),
    WrongMethod: (405, "invalid_request_error"),
    MisdirectedRequest: (421, "invalid_request_error"),
    errors.TooLarge: (413, "request_too_large"),
    HeadTooLarge: (431, "request_too_large"),
    errors.NotAuthenticated: (401, "authentication_error"),
    errors.NotPermitted: (403, "permission_error"),
    errors.LongTermOff: (403, "longterm_off"),
    errors.NotFound: (404, "not_found_error"),
    errors.Conflict: (409, "conflict_error"),
    errors.PathTaken: (409, "memory_path_conflict_error"),
    errors.PreconditionFailed: (409, "memory_precondition_failed_error"),
    errors.NotRunnable: (400, "invalid_request_error"),
    errors.RunFailed: (500, "api_error"),
    errors.RunCancelled: (409, "conflict_error"),
    errors.RunWaiting: (409, "conflict_error"),
    errors.WaitTimeout: (504, "timeout_error"),
    errors.Unavailable: (503, "overloaded_error"),
    RequestTimeout: (408, "timeout_error"),
    errors.EngineFault: (500, "api_error"),
    errors.MissingExtra: (500, "api_error"),
}
"""Status and `error.type` of each error."""

TOLD_BY_CONTRACT: dict[type[HoldfastError], tuple[str, ...]] = {
    errors.PathTaken: ("conflicting_memory_id", "conflicting_path")
}
"""The facts that a contract route's body holds; no other error has any there."""


def status_and_type(kind: type[HoldfastError]) -> tuple[int, str]:
    """Return status and type of *kind*, or of its nearest ancestor in the table."""
    return next(ANSWERS[each] for each in _lineage(kind) if each in ANSWERS)


def error_answer(error: Exception, *, request_id: str, contract: bool) -> Response:
    """Return the response to *error*; *contract* limits the body's keys.

    An error that is not ours is logged by class and place, and not disclosed.
    """
    if not isinstance(error, HoldfastError):
        log_fault(error)
        error = errors.EngineFault(_FAULT)
    status, type = status_and_type(error.__class__)
    if isinstance(error, errors.EngineFault) and error.message != _FAULT:
        log_fault(error)
        error = errors.EngineFault(_FAULT)
    facts = _facts(error)
    if contract:
        fields: dict[str, object] = {"type": type, "message": _text(str(error))}
        names = TOLD_BY_CONTRACT.get(error.__class__, ())
        fields |= {name: facts[name] for name in names}
    else:
        fields = told_of(error)
    body = {"type": "error", "error": fields, "request_id": request_id}
    return Response(
        status=status,
        body=msgspec.json.encode(body),
        type=JSON,
        headers=(*_advice(error, status), (HEADER, _header(error, facts))),
    )


def told_of(error: HoldfastError) -> dict[str, object]:
    """Return *error* as the JSON object of our own routes.

    It has the type, the code if there is one, message, next step and facts.
    """
    _, type = status_and_type(error.__class__)
    if error.code is not None:
        # The one type that names memories of stores.
        type = "conflict_error" if isinstance(error, errors.PreconditionFailed) else type
    fields: dict[str, object] = {"type": type}
    fields |= {"code": error.code} if error.code else {}
    fields |= {"message": _text(error.message), "next": _text(error.next)}
    return fields | {name: fact for name, fact in _facts(error).items() if name not in fields}


def _advice(error: HoldfastError, status: int) -> Iterator[tuple[bytes, bytes]]:
    if status == 409:  # noqa: PLR2004 - a conflict stays one, however often it is sent
        yield b"x-should-retry", b"false"
    if status == 401:  # noqa: PLR2004 - which kind of credential is wanted
        yield b"www-authenticate", b'Bearer realm="holdfast"'
    if status == 408:  # noqa: PLR2004 - the rest of the request is not waited for
        yield b"connection", b"close"
    if status in {429, 503}:
        seconds = getattr(error, "retry_after", None) or 1
        yield b"retry-after", b"%d" % max(1, math.ceil(seconds))
    if isinstance(error, WrongMethod):
        yield b"allow", error.allow.encode()


def _header(error: HoldfastError, facts: dict[str, object]) -> bytes:
    public = next(kind for kind in _lineage(error.__class__) if kind.__module__ == errors.__name__)
    # An entry may be longer than a header, so it is only in the body.
    small = {name: fact for name, fact in facts.items() if not _has_objects(fact)}
    fields: dict[str, object] = {"class": public.__name__}
    fields |= {"code": error.code} if error.code else {}
    fields |= {"next": _text(error.next), "facts": small}
    # DEL is ASCII and may stand in JSON, but not in a header.
    return json.dumps(fields, separators=(",", ":")).replace("\x7f", "\\u007f").encode()


def _has_objects(fact: object) -> bool:
    within = cast("list[object]", fact) if isinstance(fact, list) else [fact]
    return any(isinstance(each, dict) for each in within)


def _facts(error: HoldfastError) -> dict[str, object]:
    hashless = isinstance(error, errors.PreconditionFailed)
    return {
        name: None if hashless and _is_hash(fact) else _plain(fact)
        for name, fact in error.carried().items()
    }


def _is_hash(fact: object) -> bool:
    return isinstance(fact, str) and _HASH.fullmatch(fact) is not None


def _plain(fact: object) -> object:
    if fact is None or isinstance(fact, bool | int | float):
        return fact
    if isinstance(fact, datetime):
        return to_rfc3339(fact)
    if isinstance(fact, msgspec.Struct):
        return entry_to_wire(fact)
    if isinstance(fact, list | tuple):
        return [_plain(each) for each in cast("tuple[object, ...]", fact)]
    return _text(str(fact))


def _text(given: str) -> str:
    """Return *given* with lone surrogates, which are not text, escaped."""
    return given.encode("utf-8", "backslashreplace").decode()


def _lineage(kind: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    return (each for each in kind.__mro__ if issubclass(each, HoldfastError))


def log_fault(error: BaseException) -> None:
    """Log the class of *error* and where it was raised.

    Its message is not logged: it may repeat what a client sent.
    """
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            log_fault(each)
    else:
        _log.error("a request failed: %s", _place(error))


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{each.name}:{each.lineno}" for each in reversed(frames[-4:]))
    cause = error.__cause__
    return f"{type(error).__name__} at {where}" + (f", after {_place(cause)}" if cause else "")
