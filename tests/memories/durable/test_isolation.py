"""Row-level security of durable memory: whatever a statement says, nobody reaches another's."""

from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest
from psycopg import errors, sql

import holdfast
from holdfast.ground.errors import InvalidInput
from holdfast.testing.postgres import TEMPLATE, PostgresServer

TABLES = """
select c.relname, c.relrowsecurity, c.relforcerowsecurity
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'holdfast' and c.relkind in ('r', 'p') and c.relname like 'durable%'
order by 1
"""
COLUMNS = """
select column_name from information_schema.columns
where table_schema = 'holdfast' and table_name = %s and is_generated = 'NEVER'
order by ordinal_position
"""
EXPECTED = {
    "durable_entries",
    "durable_changes",
    "durable_tombstones",
    "durable_secrets",
    "durable_runs",
    "durable_lanes",
    "durable_agents",
    "durable_limits",
    "durable_replays",
}
"""Tables that there must be at least; what is tried is tried on all that the catalog lists."""


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> str:
    """Give a database in which two workspaces have used all there is, with two agents each."""
    url = postgres_server.url(postgres_server.new_database(TEMPLATE))
    with holdfast.open(url) as hf:
        for workspace in ("ours", "theirs"):
            here = hf.acting(workspace=workspace)
            here.set_durable_limits(budget=1000)
            for agent in ("mine", "yours"):
                durable = here.durable(agent)
                durable.set_limits(cap=5)
                durable.set("a", "x", category="core", idempotency_key="once")
                durable.set("w", "x", category="workspace")
                durable.set("gone", "x", category="core")
                durable.run("r").set("c", "x", category="conversation")
                durable.forget("gone")
    return url


@pytest.fixture
def app(database: str) -> Iterator[psycopg.Connection]:
    """Give a connection that is our role and has no settings, undone afterwards."""
    with psycopg.connect(database) as connection:
        connection.execute("set role holdfast_app")
        yield connection
        connection.rollback()


@pytest.fixture(scope="module")
def tables(database: str) -> dict[str, list[str]]:
    """Give the tables of durable memory, each with its columns."""
    with psycopg.connect(database) as connection:
        names = [row[0] for row in connection.execute(TABLES)]
        return {name: [row[0] for row in connection.execute(COLUMNS, (name,))] for name in names}


def be(app: psycopg.Connection, workspace: str | None, agent: str | None) -> None:
    """Set whose rows *app* may reach."""
    for name, value in (("workspace", workspace), ("agent", agent)):
        if value is not None:
            app.execute("select set_config(%s, %s, true)", (f"holdfast.{name}", value))


def owners(app: psycopg.Connection, table: str, columns: list[str]) -> set[tuple[str, ...]]:
    """Return whose rows of *table* are seen."""
    own = [each for each in ("workspace", "agent") if each in columns]
    query = sql.SQL("select distinct {} from {}").format(
        sql.SQL(", ").join(map(sql.Identifier, own)), sql.Identifier("holdfast", table)
    )
    return set(app.execute(query))


def test_every_table_is_secured_against_its_owner_too(database: str) -> None:
    with psycopg.connect(database) as connection:
        found = list(connection.execute(TABLES))

    assert {name for name, _, _ in found} >= EXPECTED
    assert [name for name, enabled, forced in found if not (enabled and forced)] == []


def test_every_table_has_rows_to_guard(
    app: psycopg.Connection, tables: dict[str, list[str]]
) -> None:
    app.execute("reset role")

    empty = [name for name, columns in tables.items() if columns and not owners(app, name, columns)]

    assert empty == []


@pytest.mark.parametrize(
    ("workspace", "agent"),
    [(None, None), ("ours", "nobody"), ("ours", None), (None, "mine"), ("", ""), ("else", "mine")],
)
def test_with_another_scope_or_none_no_agents_row_is_seen(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    workspace: str | None,
    agent: str | None,
) -> None:
    be(app, workspace, agent)

    seen = {name: owners(app, name, columns) for name, columns in tables.items()}

    shared = {("ours", ""), ("ours",)} if workspace == "ours" else set[tuple[str, ...]]()
    assert {name: rows - shared for name, rows in seen.items() if rows - shared} == {}


def test_an_agent_sees_its_own_and_what_is_shared(
    app: psycopg.Connection, tables: dict[str, list[str]]
) -> None:
    be(app, "ours", "mine")

    assert owners(app, "durable_entries", tables["durable_entries"]) == {
        ("ours", "mine"),
        ("ours", ""),
    }


def test_whoever_is_every_agent_is_so_in_one_workspace(
    app: psycopg.Connection, tables: dict[str, list[str]]
) -> None:
    be(app, "ours", "*")

    for name, columns in tables.items():
        seen = owners(app, name, columns)
        assert {row[0] for row in seen} == {"ours"}, name
        if "agent" in columns:
            assert {("ours", "mine"), ("ours", "yours")} <= seen, name


@pytest.mark.parametrize(
    ("workspace", "agent", "others"),
    [
        (None, None, "true"),
        ("ours", None, "agent <> '' or workspace = 'theirs'"),
        ("ours", "mine", "agent = 'yours' or workspace = 'theirs'"),
        ("theirs", "yours", "agent = 'mine' or workspace = 'ours'"),
        ("ours", "*", "workspace = 'theirs'"),
    ],
)
def test_the_rows_of_another_are_not_written(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    workspace: str | None,
    agent: str | None,
    others: LiteralString,
) -> None:
    be(app, workspace, agent)

    for table, columns in tables.items():
        name = sql.Identifier("holdfast", table)
        owned = "agent" in columns
        where = sql.SQL(others if owned else "workspace is distinct from {}").format(workspace)
        change = "update {} set workspace = workspace where {}"
        changed = app.execute(sql.SQL(change).format(name, where)).rowcount
        locked = app.execute(
            sql.SQL("select 1 from {} where {} for update").format(name, where)
        ).rowcount
        deleted = app.execute(sql.SQL("delete from {} where {}").format(name, where)).rowcount
        assert (changed, locked, deleted) == (0, 0, 0), table


@pytest.mark.parametrize(
    ("to_workspace", "to_agent"), [("ours", "yours"), ("theirs", "mine"), ("theirs", "")]
)
def test_own_rows_are_not_given_to_another(
    app: psycopg.Connection, tables: dict[str, list[str]], to_workspace: str, to_agent: str
) -> None:
    be(app, "ours", "mine")

    for table, columns in tables.items():
        name = sql.Identifier("holdfast", table)
        if "agent" in columns:
            give = "update {} set workspace = {}, agent = {} where agent = 'mine'"
        elif to_workspace == "ours":
            continue
        else:
            give = "update {} set workspace = {}"
        told = sql.SQL(give).format(name, to_workspace, to_agent)
        with pytest.raises(errors.InsufficientPrivilege), app.transaction():
            app.execute(told)


@pytest.mark.parametrize(
    ("workspace", "agent"), [(None, None), ("ours", "nobody"), ("theirs", "mine"), ("theirs", "*")]
)
def test_nothing_is_put_in_for_another(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    workspace: str | None,
    agent: str | None,
) -> None:
    for table, columns in tables.items():
        owned = "agent" in columns
        if workspace == "ours" and not owned:
            continue
        be(app, "ours", "mine")
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        name = sql.Identifier("holdfast", table)
        where = sql.SQL("agent = 'mine'" if owned else "true")
        row = app.execute(
            sql.SQL("select {} from {} where {} limit 1").format(names, name, where)
        ).fetchone()
        assert row is not None, table
        be(app, workspace or "", agent or "")
        put = sql.SQL("insert into {} ({}) values ({})").format(
            name, names, sql.SQL(", ").join(sql.Placeholder() * len(columns))
        )

        with pytest.raises(errors.InsufficientPrivilege), app.transaction():
            app.execute(put, row)


def test_no_table_is_emptied_or_altered(
    app: psycopg.Connection, tables: dict[str, list[str]]
) -> None:
    be(app, "ours", "mine")

    for table in tables:
        for statement in (
            "truncate {}",
            "alter table {} disable row level security",
            "alter table {} no force row level security",
            "create policy mine on {} using (true)",
            "drop table {}",
        ):
            told = sql.SQL(statement).format(sql.Identifier("holdfast", table))
            with pytest.raises(errors.InsufficientPrivilege), app.transaction():
                app.execute(told)


@pytest.mark.parametrize("name", ["*", "", "mine' or '1'='1", "a,b", "ours\0"])
def test_no_name_stands_for_everybody(database: str, name: str) -> None:
    with holdfast.open(database, workspace="ours") as hf, pytest.raises(InvalidInput):
        hf.durable(name)
    with pytest.raises(InvalidInput):
        holdfast.open(database, workspace=name)


@pytest.mark.parametrize("name", ["*", "", "ours\0"])
def test_nobody_is_forgotten_by_a_name_for_all(database: str, name: str) -> None:
    with holdfast.open(database, workspace="ours") as hf, pytest.raises(InvalidInput):
        hf.forget_agent(name)
