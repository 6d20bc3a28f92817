"""Row-level security of threads: whatever a statement says, nobody reaches another's."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors, sql

import holdfast
from holdfast.testing.contracts.history import THREAD, began, made, said
from holdfast.testing.postgres import TEMPLATE, PostgresServer

TABLES = ("threads", "thread_turns", "runs")
SECURED = """
select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'holdfast' and c.relname = any (%s)
  and c.relrowsecurity and c.relforcerowsecurity
"""


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> str:
    """Give a database in which two workspaces have a thread and a run each."""
    url = postgres_server.url(postgres_server.new_database(TEMPLATE))
    with holdfast.open(url) as hf:
        for workspace in ("ours", "theirs"):
            here = hf.acting(workspace=workspace)
            here.threads.append(THREAD, [said(), made()])
            here.runs.put(began())
    return url


@pytest.fixture
def app(database: str) -> Iterator[psycopg.Connection]:
    """Give a connection that is our role and has no settings, undone afterwards."""
    with psycopg.connect(database) as connection:
        connection.execute("set role holdfast_app")
        yield connection
        connection.rollback()


def be(app: psycopg.Connection, workspace: str) -> None:
    app.execute("select set_config('holdfast.workspace', %s, true)", (workspace,))


def seen(app: psycopg.Connection, table: str) -> set[str]:
    """Return whose rows of *table* are seen."""
    asked = sql.SQL("select workspace from {}").format(sql.Identifier("holdfast", table))
    return {row[0] for row in app.execute(asked)}


def test_every_table_is_secured_against_its_owner_too(database: str) -> None:
    with psycopg.connect(database) as connection:
        found = {row[0] for row in connection.execute(SECURED, (list(TABLES),))}

    assert found == set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_a_workspace_sees_its_own_rows_alone(app: psycopg.Connection, table: str) -> None:
    without = seen(app, table)
    be(app, "ours")
    ours = seen(app, table)
    be(app, "*")

    assert (without, ours, seen(app, table)) == (set(), {"ours"}, {"ours", "theirs"})


@pytest.mark.parametrize("table", TABLES)
def test_another_workspaces_rows_are_not_changed(app: psycopg.Connection, table: str) -> None:
    be(app, "ours")
    name = sql.Identifier("holdfast", table)
    changed = app.execute(sql.SQL("update {} set id = id where workspace = 'theirs'").format(name))
    deleted = app.execute(sql.SQL("delete from {} where workspace = 'theirs'").format(name))

    assert (changed.rowcount, deleted.rowcount) == (0, 0)


@pytest.mark.parametrize("table", TABLES)
def test_no_row_is_moved_to_another_workspace(app: psycopg.Connection, table: str) -> None:
    be(app, "ours")
    name = sql.Identifier("holdfast", table)

    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(sql.SQL("update {} set workspace = 'theirs'").format(name))
