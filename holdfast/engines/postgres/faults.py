"""Map PostgreSQL errors to ours."""

import re
from typing import Literal

import psycopg
from msgspec import Struct

from holdfast.ground.errors import (
    Corrupt,
    EngineFault,
    HoldfastError,
    InvalidInput,
    NotPermitted,
    Reason,
    ScopeDenied,
    Unavailable,
)

Again = Literal["serialization", "deadlock", "locked", "lost", "read_only", "plan", "unprepared"]
"""Reasons why the whole of a `work` may be run again."""

_AGAIN: dict[str, Again] = {
    "40001": "serialization",
    "40P01": "deadlock",
    "55P03": "locked",
    "25006": "read_only",
    "26000": "unprepared",  # an unknown prepared statement: another connection's, or discarded
    "42P05": "unprepared",
}
_STARTS = re.compile("the database system (is [a-z ]+)")
_NO_DATABASE = re.compile('database ".*" does not exist')
_LOST = frozenset({"57P01", "57P02", "57P03", "57P04", "57P05"})
_REASONS: tuple[tuple[str, Reason, str], ...] = (
    ("53100", "full", "The server's disk is full."),
    ("53200", "overloaded", "The server has not enough memory."),
    ("53300", "busy", "The server has no free connections."),
    ("53", "overloaded", "The server lacks resources."),
    ("55P03", "locked", "A row stayed locked by others."),
    ("55006", "locked", "The object is in use."),
    ("40P01", "locked", "Writes waited for each other."),
    ("40001", "locked", "Writes kept getting in each other's way."),
    ("57014", "timeout", "The statement took too long, or an operator cancelled it."),
    ("25P03", "timeout", "The transaction stood idle too long."),
    ("25P04", "timeout", "The transaction took longer than the server's transaction_timeout."),
    ("25006", "read_only", "The server accepts no writes."),
    ("58", "io", "The server cannot reach its files."),
    ("08", "lost", "The connection to the server was lost."),
)
_NEXT: dict[Reason, str] = {
    "full": "Free some space on the server; the next write then succeeds by itself.",
    "read_only": "Use the primary server, or a login that may write.",
    "io": "Check the server's log.",
}
_LATER = "Try again in a moment."
_SSLROOTCERT = "Set sslrootcert in the URL to the certificate of the authority that signed theirs."
_REFUSALS: tuple[tuple[str, Reason, str, str], ...] = (
    ("too many clients", "busy", "The server has no free connections.", _LATER),
    ("connection slots", "busy", "The server has no free connections.", _LATER),
    (
        "session is read-only",
        "read_only",
        "No server of {target} accepts writes.",
        "Promote a standby, or put the primary server into the URL.",
    ),
    (
        "certificate verify failed",
        "io",
        "The certificate of {target} is expired, or signed by no authority in sslrootcert.",
        _SSLROOTCERT,
    ),
    (
        "does not match host name",
        "io",
        "The certificate of {target} is for another host name.",
        "Put the host name of the certificate into the URL; sslmode=verify-ca does not compare it.",
    ),
    (
        "root certificate file",
        "io",
        "The certificate of {target} cannot be verified: the file sslrootcert is missing.",
        _SSLROOTCERT,
    ),
)
"""What a refused connection says, and the reason, message and advice of our error."""
_SOON: frozenset[Reason] = frozenset({"busy", "locked", "lost", "overloaded"})


class Fault(Struct, frozen=True):
    """Our error, caused by the driver's, and why the work may be run again."""

    error: HoldfastError
    again: Again | None = None


def fault_of(error: Exception, *, target: str, name: str = "", writing: bool = True) -> Fault:
    """Map *error*, raised by the statement *name* at *target*."""
    state = (error.sqlstate if isinstance(error, psycopg.Error) else None) or ""
    if state in _LOST or state.startswith("08"):
        return Fault(chained(lost(), error), "lost")
    again = _AGAIN.get(state)
    if state == "0A000" and "cached plan" in str(error):
        # The schema changed under a prepared statement; a new connection prepares it again.
        again = "plan"
    if again == "read_only" and not writing:
        again = None
    return Fault(chained(_meaning(error, state, target, name, writing=writing), error), again)


def lost(written: Literal[False] | None = False) -> Unavailable:
    """Return the error of a lost connection; *written* is None if unknown."""
    message = "The connection to the server was lost."
    if written is None:
        message = "The connection was lost while committing; whether it was written is unknown."
    return Unavailable(message, reason="lost", written=written, retry_after=1.0)


def chained(error: HoldfastError, cause: BaseException) -> HoldfastError:
    """Return *error* with *cause* as its cause."""
    error.__cause__ = cause
    return error


def refused_at_connect(error: psycopg.Error, target: str) -> HoldfastError:
    """Return the error of a connection that could not be opened."""
    said = str(error)
    if "password authentication failed" in said or "no password supplied" in said:
        return NotPermitted(
            f"{target} does not accept this login.",
            needed="login",
            next="Check user and password in the URL.",
        )
    if _NO_DATABASE.search(said):
        return InvalidInput(
            "target", "names a database that does not exist", given=target, next="Create it first."
        )
    if starts := _STARTS.search(said):
        # 57P03: while connecting, the driver gives the text without a code.
        return Unavailable(
            f"{target} {starts[1]}.",
            reason="lost",
            retry_after=1.0,
            next="Try again once the server accepts connections.",
        )
    for words, reason, message, then in _REFUSALS:
        if words in said:
            return Unavailable(
                message.format(target=target),
                reason=reason,
                retry_after=None if reason == "io" else 1.0,
                next=then,
            )
    if "does not support SSL" in said:
        return Unavailable(
            f"{target} offers no TLS, and the setting sslmode={_sslmode(error)} requires it.",
            reason="io",
            next="Set ssl = on in the server's postgresql.conf, or put sslmode=prefer into the URL"
            " to connect without encryption.",
        )
    return Unavailable(
        f"{target} cannot be reached.",
        reason="lost",
        retry_after=1.0,
        next="Check that the server runs and that the URL is right.",
    )


def _sslmode(error: psycopg.Error) -> str:
    """Return the `sslmode` of the connection that *error* refused.

    It may come from the URL, the environment or the default.
    """
    options = error.pgconn.info if error.pgconn else []
    given = next((each.val for each in options if each.keyword == b"sslmode"), None)
    return (given or b"require").decode()


def _meaning(
    error: Exception, state: str, target: str, name: str, *, writing: bool
) -> HoldfastError:
    if state in ("XX001", "XX002"):
        return Corrupt(target, str(error).splitlines()[0])
    if state == "42501":
        if "row-level security" in str(error):
            return ScopeDenied("It belongs to another owner.", needed="owner")
        return NotPermitted(
            f"The database login may not do that: {str(error).splitlines()[0]}.",
            needed="the privileges of holdfast_app",
            next="Open the database once with the login that owns its tables.",
        )
    for prefix, reason, message in _REASONS:
        if state.startswith(prefix) and state and (writing or reason != "read_only"):
            return Unavailable(
                message,
                reason=reason,
                retry_after=1.0 if reason in _SOON else None,
                next=_NEXT.get(reason, _LATER),
            )
    what = f"no value for :{error.args[0]}" if isinstance(error, KeyError) else str(error)
    said = what.splitlines()[0] if what else type(error).__name__
    return EngineFault(f"The statement {name!r} failed: {said}.", statement=name)
