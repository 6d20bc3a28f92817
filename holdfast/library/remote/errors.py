"""Rebuild a server's error response as our error class with its facts.

The header `holdfast-error` contains the class and the facts. Where a proxy removed that header, or
responded by itself, the body's `error.type` and the status give the class.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast, get_type_hints

import msgspec

from holdfast.ground import errors, json_values
from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.memories.durable.records import CODES

HEADER = "holdfast-error"

# Facts that a parent's __init__ sets and no header contains.
_INHERITED: tuple[tuple[type[HoldfastError], str, object], ...] = (
    (errors.Conflict, "reason", ""),
    (errors.Corrupt, "reason", "io"),
    (errors.TooNew, "reason", "read_only"),
    (errors.Unavailable, "reason", "lost"),
    (errors.RunFailed, "stop_reason", ""),
    (errors.Unavailable, "written", False),
)

_BY_NAME = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, HoldfastError)
}

_BY_TYPE: dict[str, type[HoldfastError]] = {
    "memory_path_conflict_error": errors.PathTaken,
    "memory_precondition_failed_error": errors.PreconditionFailed,
    "conflict_error": errors.Conflict,
    "not_found_error": errors.NotFound,
    "permission_error": errors.NotPermitted,
    "longterm_off": errors.LongTermOff,
    "authentication_error": errors.NotAuthenticated,
    "request_too_large": errors.TooLarge,
}

_BY_CODE = {code: kind for kind, code in reversed(CODES.items())}

_BY_STATUS: dict[int, type[HoldfastError]] = {
    400: errors.InvalidInput,
    401: errors.NotAuthenticated,
    403: errors.NotPermitted,
    404: errors.NotFound,
    405: errors.Unsupported,
    408: errors.Unavailable,
    409: errors.Conflict,
    413: errors.TooLarge,
    421: errors.InvalidInput,
    429: errors.Unavailable,
    431: errors.TooLarge,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}

# Refused before processing. After a gateway's 502 to 504 the server may have done the write.
_NEVER_BEGUN = frozenset({408, 429})
# The one status that an error code does not decide.
_TOO_LARGE = 413


class _ErrorHeader(msgspec.Struct, frozen=True):
    kind: str = msgspec.field(name="class")
    code: str | None = None
    next: str = ""
    facts: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


def rebuilt(
    header: str, message: str = "", more: Mapping[str, object] | None = None
) -> HoldfastError | None:
    """Return the error in *header*; None if this release does not know its class.

    *message* is the body's message, with or without `next`. *more* are facts that were too long
    for a header.
    """
    try:
        parsed = msgspec.json.decode(header, type=_ErrorHeader)
    except msgspec.DecodeError:
        return None
    kind = _BY_NAME.get(parsed.kind)
    if kind is None:
        return None
    error = made(kind, message, parsed.next, {**(more or {}), **parsed.facts})
    if parsed.code is not None:
        error.code = parsed.code
    return error


def of_code(wire: Mapping[str, object]) -> HoldfastError:
    """Return the error of a durable call, encoded as *wire*, by its code."""
    code = str(wire.get("code"))
    kind = _BY_CODE.get(code, errors.EngineFault)
    error = made(kind, str(wire.get("message") or ""), str(wire.get("next") or ""), wire)
    error.code = code
    return error


def from_answer(
    status: int, headers: Mapping[str, str], body: bytes, *, writes: bool
) -> HoldfastError:
    """Return the error of a response with *status*; *writes* if the request wrote."""
    wire = _error_of(body)
    message = str(wire.get("message") or f"The server answered {status}.")
    if (header := headers.get(HEADER)) and (error := rebuilt(header, message, wire)):
        return error
    if wire.get("code") in _BY_CODE and status != _TOO_LARGE:
        return of_code(wire)
    kind = _BY_TYPE.get(str(wire.get("type"))) or _BY_STATUS.get(status, errors.EngineFault)
    facts: dict[str, object] = {name: wire[name] for name in _names(kind) if name in wire}
    if kind is errors.Unavailable:
        unknown = writes and status not in _NEVER_BEGUN
        facts = {
            "reason": "overloaded" if status in {429, 503} else "lost",
            "written": None if unknown else False,
            "retry_after": _seconds(headers.get("retry-after")),
        }
    if kind in {errors.InvalidInput, errors.NotFound}:
        facts = {"field": "request", "reason": message, "kind": "resource", "id": ""} | facts
    return made(kind, message, str(wire.get("next") or ""), facts)


def made(
    kind: type[HoldfastError], message: str, next: str, facts: Mapping[str, object]
) -> HoldfastError:
    """Build a *kind* with *facts* and *message*, bypassing its own __init__."""
    error = kind.__new__(kind)
    sentence = message.removesuffix(next).rstrip()
    error.args, error.message, error.next = (sentence,), sentence, next
    for name in _names(kind):
        setattr(error, name, _fact(kind, name, facts))
    if isinstance(index := facts.get("index"), int):
        error.index = index
    return error


def _names(kind: type[HoldfastError]) -> set[str]:
    return {name for each in kind.__mro__ if issubclass(each, HoldfastError) for name in each.facts}


def _fact(kind: type[HoldfastError], name: str, facts: Mapping[str, object]) -> object:
    if name not in facts:
        return next((v for k, n, v in _INHERITED if n == name and issubclass(kind, k)), None)
    hint = get_type_hints(kind.__init__).get(name)
    value = facts[name]
    if hint in (datetime, datetime | None) and isinstance(value, str):
        return msgspec.convert(value, datetime)
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        wire = json_values.read(body, "body")
    except InvalidInput:
        return {}
    error = cast("dict[str, object]", wire).get("error") if isinstance(wire, dict) else None
    return cast("dict[str, Any]", error) if isinstance(error, dict) else {}


def _seconds(given: str | None) -> float | None:
    try:
        return None if given is None else float(given)
    except ValueError:  # an HTTP date, which proxies may send
        return None
