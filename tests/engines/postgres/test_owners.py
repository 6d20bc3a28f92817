"""Row-level security: who sees and writes what, whatever a statement says."""

from collections.abc import Callable
from types import SimpleNamespace as Row

import psycopg
import pytest
from psycopg import errors

from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.errors import NotPermitted, ScopeDenied
from holdfast.ground.scope import Scope
from holdfast.testing.contracts.engine import SCRATCH, noting
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import PostgresServer

INSERT = """
insert into holdfast.changes (seq, at, workspace, type, ids, data)
values (nextval('holdfast.seq'), 0, %s, 'test.a', '{}', '{}')
"""
INSERT_OWNED = """
insert into holdfast.changes (seq, at, workspace, type, owner, ids, data)
values (nextval('holdfast.seq'), 0, 'ours', %s, %s, '{}', '{}')
"""
LONGTERM = {("longterm.stored", "mine"), ("longterm.stored", "yours")}
COUNT = "select count(*) from holdfast.changes"

WITHOUT_POLICY = {
    "migrations": ({"workspace"}, "has no owner, and the role may not write it"),
    "durable_secrets": (
        {"agent"},
        "one key a workspace: its agents share entries, and their marks",
    ),
}
"""What some table's policies do not go by, and why."""

Opened = Callable[[str], PostgresEngine]


@pytest.fixture
def app(admin: psycopg.Connection) -> psycopg.Connection:
    """Give a connection that is our role, with one row each of two workspaces in its reach."""
    for workspace in ("ours", "theirs"):
        admin.execute(INSERT, (workspace,))
    admin.execute("set role holdfast_app")
    return admin


def set_workspace(connection: psycopg.Connection, workspace: str) -> None:
    connection.execute("select set_config('holdfast.workspace', %s, false)", (workspace,))


def set_owner(connection: psycopg.Connection, *, agent: str, user: str) -> None:
    for name, value in (("agent", agent), ("user", user)):
        connection.execute("select set_config(%s, %s, false)", (f"holdfast.{name}", value))


def count(connection: psycopg.Connection) -> int:
    row = connection.execute(COUNT).fetchone()
    return row[0] if row else -1


def test_without_settings_nothing_is_seen(app: psycopg.Connection) -> None:
    assert count(app) == 0


def test_without_settings_nothing_is_written(app: psycopg.Connection) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(INSERT, ("ours",))


@pytest.mark.parametrize(("workspace", "seen"), [("ours", 1), ("else", 0), ("*", 2), ("", 0)])
def test_a_workspace_sees_its_own(app: psycopg.Connection, workspace: str, seen: int) -> None:
    set_workspace(app, workspace)

    assert count(app) == seen


def test_another_workspace_is_not_written(app: psycopg.Connection) -> None:
    set_workspace(app, "ours")

    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(INSERT, ("theirs",))
    assert app.execute("update holdfast.changes set at = 1").rowcount == 1
    assert app.execute("delete from holdfast.changes").rowcount == 1


@pytest.fixture
def changes(admin: psycopg.Connection) -> psycopg.Connection:
    """Give a connection that is our role, with changes of an agent and a user of the same names."""
    for type in ("durable.stored", "longterm.stored"):
        for owner in ("mine", "yours", None):
            admin.execute(INSERT_OWNED, (type, owner))
    admin.execute("set role holdfast_app")
    set_workspace(admin, "ours")
    return admin


@pytest.mark.parametrize(
    ("agent", "user", "seen"),
    [
        ("", "", set[tuple[str, str]]()),
        ("mine", "", {("durable.stored", "mine")}),
        ("", "mine", {("longterm.stored", "mine")}),
        ("*", "", {("durable.stored", "mine"), ("durable.stored", "yours")}),
        ("yours", "*", {("durable.stored", "yours"), *LONGTERM}),
    ],
)
def test_an_owner_sees_and_writes_their_own_changes_and_those_of_the_workspace(
    changes: psycopg.Connection, agent: str, user: str, seen: set[tuple[str, str]]
) -> None:
    set_owner(changes, agent=agent, user=user)

    found = changes.execute("select type, owner from holdfast.changes").fetchall()

    assert {row for row in found if row[1] is not None} == seen
    assert len(found) == len(seen) + 2
    assert changes.execute("update holdfast.changes set at = 1").rowcount == len(found)
    for type, owner in {("durable.stored", "yours"), *LONGTERM} - seen:
        with pytest.raises(errors.InsufficientPrivilege):
            changes.execute(INSERT_OWNED, (type, owner))


@pytest.mark.parametrize(
    "statement",
    [
        "create table holdfast.mine (a integer)",
        "truncate holdfast.changes",
        "alter table holdfast.changes disable row level security",
        "delete from holdfast.migrations",
    ],
)
def test_the_role_may_not_change_the_schema(app: psycopg.Connection, statement: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(statement.encode())


def test_every_table_has_a_forced_policy_by_its_owner(admin: psycopg.Connection) -> None:
    found = admin.execute("""
        select c.relname, c.relrowsecurity and c.relforcerowsecurity as forced,
            array(
                select s.name from unnest(array['workspace', 'agent', 'user']) s (name)
                where exists (
                    select 1 from pg_policy p
                    where p.polrelid = c.oid and p.polcmd = '*'
                        and (s.name = 'workspace') = p.polpermissive
                        and pg_get_expr(p.polqual, c.oid) like '%holdfast.' || s.name || '%'
                        and pg_get_expr(p.polwithcheck, c.oid) like '%holdfast.' || s.name || '%'
                )
            ) as by
        from pg_class c
        where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p')
        order by c.relname
    """).fetchall()

    held = {name: set(by) if forced else set[str]() for name, forced, by in found}
    lacking = {name: missing for name, by in held.items() if (missing := wanted(name) - by)}
    assert lacking == {name: allowed[0] for name, allowed in WITHOUT_POLICY.items()}


def wanted(table: str) -> set[str]:
    """Return by which settings the rows of *table* are to be held apart."""
    if table == "changes":
        return {"workspace", "agent", "user"}
    if table.startswith("ltm_"):
        return {"workspace", "user"}
    return {"workspace", "agent"} if table.startswith("durable_") else {"workspace"}


def test_the_role_owns_nothing_and_has_no_power(admin: psycopg.Connection) -> None:
    row = admin.execute("""
        select rolcanlogin, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb,
            (select count(*) from pg_class where relowner = r.oid)
        from pg_roles r where rolname = 'holdfast_app'
    """).fetchone()

    assert row == (False, False, False, False, False, 0)


def test_statements_run_as_the_role_though_the_login_is_a_superuser(opened: Opened) -> None:
    engine = opened("")

    assert engine.status().details["runs_as"] == "holdfast_app"
    with pytest.raises(NotPermitted):
        engine.write(lambda tx: tx.run("drop table changes"))


def test_an_engine_without_a_scope_writes_and_sees_nothing(opened: Opened) -> None:
    engine = opened("")
    engine.scoped(Scope(workspace="ours", agent="*")).write(noting("test.a", "ours"))

    with pytest.raises(ScopeDenied):
        engine.write(noting("test.b", "ours"))
    assert engine.all(Row, "select seq from changes") == []


def test_a_scope_does_not_reach_into_the_next_statement(opened: Opened) -> None:
    engine = opened("&pool=1")
    asked = "select current_setting('holdfast.workspace', true) as workspace, current_user as role"

    scoped = engine.scoped(Scope(workspace="ours"))

    assert scoped.read(lambda reader: reader.one(Row, asked)).workspace == "ours"
    assert scoped.write(lambda tx: tx.one(Row, asked)).workspace == "ours"
    assert engine.one(Row, asked) == Row(workspace="", role="holdfast_app")


def test_a_credential_admits_its_row_alone(opened: Opened, admin: psycopg.Connection) -> None:
    insert = """
        insert into holdfast.api_keys (id, workspace, name, scope, secret_hash, created_at)
        values (%s, 'ours', 'a', 'read', %s, 0)
    """
    admin.execute(insert, ("apikey_1", "hash_1"))
    admin.execute(insert, ("apikey_2", "hash_2"))
    holder = opened("").scoped(Scope(workspace="", credential="hash_1"))

    assert holder.all(Row, "select id from api_keys") == [Row(id="apikey_1")]
    assert holder.write(lambda tx: tx.run("update api_keys set name = 'b'")) == 0


def test_a_login_that_bypasses_and_cannot_step_down_is_refused(
    postgres_server: PostgresServer, fresh_postgres_url: str
) -> None:
    postgres_server.execute("drop role if exists passer", "create role passer login bypassrls")
    url = fresh_postgres_url.replace("postgres@", "passer@")

    with pytest.raises(NotPermitted, match="row-level security"):
        PostgresEngine.open(url, clock=FrozenClock())


def test_a_plain_login_relies_on_the_policies(
    postgres_server: PostgresServer, fresh_postgres_url: str, admin: psycopg.Connection
) -> None:
    postgres_server.execute("drop role if exists plain", "create role plain login")
    for statement in (
        "grant usage on schema holdfast to plain",
        "grant select, insert on all tables in schema holdfast to plain",
        "grant usage on all sequences in schema holdfast to plain",
    ):
        admin.execute(statement.encode())
    url = fresh_postgres_url.replace("postgres@", "plain@")
    engine = PostgresEngine.open(url, clock=FrozenClock())

    engine.scoped(Scope(workspace="ours", agent="*")).write(noting("test.a", "ours"))

    asked = "select seq from changes"
    assert engine.status().details["runs_as"] == "login"
    assert len(engine.scoped(Scope(workspace="ours", agent="*")).all(Row, asked)) == 1
    assert engine.all(Row, asked) == []
    engine.close()
    for statement in ("drop owned by plain", "drop role plain"):
        admin.execute(statement.encode())


def test_the_contract_statements_name_no_owner(opened: Opened) -> None:
    assert "workspace" not in opened("").queries(SCRATCH).put
