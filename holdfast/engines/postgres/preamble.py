"""What each transaction says first: as whom it runs, for which owner, and how long it may take.

Everything is set for the transaction alone, so a connection has no state of its own, and a
pooler between us and the server may give every transaction another one.
"""

from msgspec import Struct

from holdfast.engines.postgres.values import BoundStatement, asked
from holdfast.ground.scope import Scope

APP_ROLE = "holdfast_app"

_SETTINGS = (
    ("search_path", "holdfast"),
    ("statement_timeout", "30s"),
    ("idle_in_transaction_session_timeout", "30s"),
    ("lock_timeout", "5s"),
)

BEGIN = asked("begin", {})
BEGIN_MOMENT = asked("begin isolation level repeatable read, read only", {})
COMMIT = asked("commit", {})
ROLLBACK = asked("rollback", {})


class Preamble(Struct, frozen=True):
    """The statement that begins a transaction of one owner: to write, and for one look."""

    writing: BoundStatement
    looking: BoundStatement


def preamble(scope: Scope | None, *, as_app: bool) -> Preamble:
    """Return what sets *scope*; None is nobody's, and sees nothing.

    *as_app* says that the login is somebody else, and steps down to the role.
    """
    owner = {
        "workspace": scope.workspace if scope else None,
        "agent": scope.agent if scope else None,
        "user": scope.user if scope else None,
        "credential": scope.credential if scope else None,
    }
    given = {name: value or "" for name, value in owner.items()}
    role = (("role", APP_ROLE),) if as_app else ()
    return Preamble(
        writing=asked(_select((*role, *_SETTINGS)), given),
        looking=asked(_select((*role, *_SETTINGS, ("transaction_read_only", "on"))), given),
    )


def _select(settings: tuple[tuple[str, str], ...]) -> str:
    fixed = [f"set_config('{name}', '{value}', true)" for name, value in settings]
    owner = [
        f"set_config('holdfast.{name}', %({name})s, true)"
        for name in ("workspace", "agent", "user", "credential")
    ]
    return f"select {', '.join((*fixed, *owner))}"
