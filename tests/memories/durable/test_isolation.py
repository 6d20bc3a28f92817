"""Row-level security of durable memory: whatever a statement says, nobody reaches another's."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors, sql

import holdfast
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
    "durable_runs",
    "durable_agents",
    "durable_limits",
    "durable_replays",
}


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


@pytest.mark.parametrize("table", sorted(EXPECTED))
@pytest.mark.parametrize(
    ("workspace", "agent"), [(None, None), ("ours", "mine"), ("theirs", "yours")]
)
def test_the_rows_of_another_are_not_written(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    table: str,
    workspace: str | None,
    agent: str | None,
) -> None:
    be(app, workspace, agent)
    where = sql.SQL("where (workspace, agent) in (('ours', 'yours'), ('theirs', 'mine'))")
    name = sql.Identifier("holdfast", table)

    changed = app.execute(sql.SQL("update {} set agent = agent {}").format(name, where)).rowcount
    deleted = app.execute(sql.SQL("delete from {} {}").format(name, where)).rowcount

    assert "agent" in tables[table]
    assert (changed, deleted) == (0, 0)


@pytest.mark.parametrize("table", sorted(EXPECTED))
@pytest.mark.parametrize(
    ("to_workspace", "to_agent"), [("ours", "yours"), ("theirs", "mine"), ("theirs", "")]
)
def test_own_rows_are_not_given_to_another(
    app: psycopg.Connection, table: str, to_workspace: str, to_agent: str
) -> None:
    be(app, "ours", "mine")
    give = sql.SQL("update {} set workspace = %s, agent = %s where agent = 'mine'").format(
        sql.Identifier("holdfast", table)
    )

    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(give, (to_workspace, to_agent))


@pytest.mark.parametrize(
    ("workspace", "agent"), [(None, None), ("ours", "nobody"), ("theirs", "mine")]
)
def test_nothing_is_put_in_for_another(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    workspace: str | None,
    agent: str | None,
) -> None:
    columns = tables["durable_entries"]
    be(app, "ours", "mine")
    row = app.execute(
        sql.SQL("select {} from holdfast.durable_entries where agent = 'mine' limit 1").format(
            sql.SQL(", ").join(map(sql.Identifier, columns))
        )
    ).fetchone()
    assert row is not None
    be(app, workspace or "", agent or "")
    put = sql.SQL("insert into holdfast.durable_entries ({}) values ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(sql.Placeholder() * len(columns)),
    )

    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(put, row)


def test_no_table_is_emptied_or_altered(app: psycopg.Connection) -> None:
    be(app, "ours", "mine")

    for statement in (
        "truncate holdfast.durable_entries",
        "alter table holdfast.durable_entries disable row level security",
        "drop table holdfast.durable_entries",
    ):
        with pytest.raises(errors.InsufficientPrivilege), app.transaction():
            app.execute(statement)
