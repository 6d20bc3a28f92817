"""Roles and settings of a PostgreSQL connection."""

from typing import Any, NamedTuple

import psycopg
from msgspec import Struct
from psycopg import errors
from psycopg.rows import namedtuple_row

from holdfast.engines.postgres.protocol import BoundStatement, bind
from holdfast.ground.errors import NotPermitted
from holdfast.ground.scope import Scope

# All settings are local to the transaction, so a connection has no state of its own, and an
# external pooler may give every transaction another connection.

APP_ROLE = "holdfast_app"

_SETTINGS = (
    ("search_path", "holdfast"),
    ("statement_timeout", "30s"),
    ("idle_in_transaction_session_timeout", "30s"),
    ("lock_timeout", "5s"),
)

BEGIN = bind("begin", {})
BEGIN_MOMENT = bind("begin isolation level repeatable read, read only", {})
COMMIT = bind("commit", {})
ROLLBACK = bind("rollback", {})


class Preamble(Struct, frozen=True):
    """Statements that begin a transaction of one owner: to write, and to read once."""

    writing: BoundStatement
    looking: BoundStatement


def preamble(scope: Scope | None, *, as_app: bool) -> Preamble:
    """Return the statements that set *scope*; None has no owner and sees no rows.

    *as_app* switches to the role `holdfast_app`, for a login that is not that role itself.
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
        writing=bind(_select((*role, *_SETTINGS)), given),
        looking=bind(_select((*role, *_SETTINGS, ("transaction_read_only", "on"))), given),
    )


def _select(settings: tuple[tuple[str, str], ...]) -> str:
    fixed = [f"set_config('{name}', '{value}', true)" for name, value in settings]
    owner = [
        f"set_config('holdfast.{name}', %({name})s, true)"
        for name in ("workspace", "agent", "user", "credential")
    ]
    return f"select {', '.join((*fixed, *owner))}"


_TRIES = 5
_LOCK = 0x484F4C45
"""Key of the advisory lock for grants; migrations use the one before."""
_SET_OPTION_SINCE = 160000

_LOGIN = """
select current_user = %(role)s as is_app, rolsuper as superuser, rolbypassrls as bypasses,
    rolsuper or rolcreaterole as may_create,
    exists (select 1 from pg_roles where rolname = %(role)s) as app_exists,
    exists (select 1 from pg_roles where rolname = %(role)s and (rolsuper or rolbypassrls))
        as app_bypasses
from pg_roles where rolname = current_user
"""
_TABLES_LACKING = """
select count(*) from pg_class c
where c.relnamespace = cast('holdfast' as regnamespace) and c.relkind in ('r', 'p')
    and c.relname <> 'migrations'
    and not (has_table_privilege(%(role)s, c.oid, 'select')
        and has_table_privilege(%(role)s, c.oid, 'insert')
        and has_table_privilege(%(role)s, c.oid, 'update')
        and has_table_privilege(%(role)s, c.oid, 'delete'))
"""
_GRANTS = (
    "grant usage on schema holdfast to holdfast_app",
    "grant select, insert, update, delete on all tables in schema holdfast to holdfast_app",
    "revoke insert, update, delete on holdfast.migrations from holdfast_app",
    "grant usage, select, update on all sequences in schema holdfast to holdfast_app",
)
# Roles belong to the whole server, so opening another database may create them at the same time.
_MET = (errors.DuplicateObject, errors.UniqueViolation, errors.InternalError_)


class _Login(NamedTuple):
    is_app: bool
    superuser: bool
    bypasses: bool
    may_create: bool
    app_exists: bool
    app_bypasses: bool


def become_app(connection: "psycopg.Connection[Any]") -> bool:
    """Return whether statements run as `holdfast_app` by switching to it.

    The role is created, and its membership granted, if the login may. Raises NotPermitted if the
    role is unavailable and the login can bypass row-level security, or if the role itself can.
    """
    for _ in range(_TRIES - 1):
        try:
            return _become_app(connection)
        except _MET:
            continue
    return _become_app(connection)


def grant(connection: "psycopg.Connection[Any]", *, always: bool) -> None:
    """Grant the tables to the role, if it exists and lacks a privilege.

    With *always*, grant also if it lacks none.
    """
    if not _login(connection).app_exists:
        return
    lacking = connection.execute(_TABLES_LACKING, {"role": APP_ROLE}).fetchone()
    if not always and lacking is not None and lacking[0] == 0:
        return
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        for statement in _GRANTS:
            connection.execute(statement)


def _become_app(connection: "psycopg.Connection[Any]") -> bool:
    login = _login(connection)
    if login.app_bypasses:
        raise _unsafe(f"The role {APP_ROLE} can bypass row-level security.")
    if login.is_app:
        return False
    if not login.app_exists and login.may_create:
        connection.execute("create role holdfast_app nologin nosuperuser nobypassrls")
        login = _login(connection)
    if login.app_exists and not _may_become(connection) and login.may_create:
        # Without inheritance the login acts as the role only after an explicit `set role`.
        if connection.info.server_version >= _SET_OPTION_SINCE:
            connection.execute("grant holdfast_app to current_user with inherit false, set true")
        else:
            connection.execute("grant holdfast_app to current_user")
    if login.app_exists and _may_become(connection):
        return True
    if login.superuser or login.bypasses:
        raise _unsafe(f"The login can bypass row-level security and cannot become {APP_ROLE}.")
    return False


def _login(connection: "psycopg.Connection[Any]") -> _Login:
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        row = cursor.execute(_LOGIN, {"role": APP_ROLE}).fetchone()
    return _Login(*row) if row else _Login(*[False] * 6)


def _may_become(connection: "psycopg.Connection[Any]") -> bool:
    right = "SET" if connection.info.server_version >= _SET_OPTION_SINCE else "MEMBER"
    row = connection.execute(
        "select pg_has_role(current_user, %s, %s)", (APP_ROLE, right)
    ).fetchone()
    return bool(row and row[0])


def _unsafe(message: str) -> NotPermitted:
    return NotPermitted(
        message,
        needed=APP_ROLE,
        next=f"Create the role {APP_ROLE}, without superuser and bypassrls, and grant it.",
    )
