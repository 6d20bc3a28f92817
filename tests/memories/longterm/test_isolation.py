"""Row-level security of long-term memory: whatever a statement says, nobody reaches another's."""

from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest
from psycopg import errors, sql

import holdfast
from holdfast.ground.errors import InvalidInput
from holdfast.testing.contracts.longterm_given import kept, memory_of, said
from holdfast.testing.embedders import WordEmbedder
from holdfast.testing.postgres import TEMPLATE, PostgresServer

TABLES = """
select c.relname, c.relrowsecurity, c.relforcerowsecurity
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'holdfast' and c.relkind in ('r', 'p') and c.relname like 'ltm%'
order by 1
"""
COLUMNS = """
select column_name from information_schema.columns
where table_schema = 'holdfast' and table_name = %s and is_generated = 'NEVER'
order by ordinal_position
"""
EXPECTED = {
    "ltm_collections",
    "ltm_items",
    "ltm_turns",
    "ltm_links",
    "ltm_access",
    "ltm_cursors",
    "ltm_tombstones",
    "ltm_secrets",
    "ltm_jobs",
    "ltm_vectors",
    "ltm_vector_sets",
    "ltm_lex",
    "ltm_df",
}
"""Tables that there must be at least; what is tried is tried on all that the catalog lists."""

FILLED = (
    """
    insert into holdfast.ltm_jobs (number, workspace, collection, kind, state, about, attempts,
        next_at, created_at)
    select number, workspace, number, 'extract', 'failed', '[]', 4, 0, 0
    from holdfast.ltm_collections
    """,
    """
    insert into holdfast.ltm_lex (workspace, collection, number, lex)
    select workspace, collection, number, array_to_tsvector(string_to_array(body, ' '))
    from holdfast.ltm_items
    """,
    """
    insert into holdfast.ltm_df (workspace, collection, term, n)
    select workspace, number, 'tab', 1 from holdfast.ltm_collections
    """,
)
"""What only much use brings."""


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> str:
    """Give a database in which two workspaces have used all there is, with two users each."""
    url = postgres_server.url(postgres_server.new_database(TEMPLATE))
    with holdfast.open(url) as hf:
        for workspace in ("ours", "theirs"):
            for user in ("mine", "yours"):
                ltm = memory_of(hf.acting(workspace=workspace), user, embedder=WordEmbedder())
                turn = ltm.record([said("We went to the lake")], thread_id="t").turns[0]
                kept(ltm, "Likes lakes", turns=[turn.id])
                ltm.remember_conversation([said("I like tabs")], thread_id="u")
                ltm.forget(kept(ltm, "Has a parrot").id)
                ltm.recall("lakes")
                assert ltm.flush(20).done
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in FILLED:
            connection.execute(statement)
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
    """Give the tables of long-term memory, each with its columns."""
    with psycopg.connect(database) as connection:
        names = [row[0] for row in connection.execute(TABLES)]
        return {name: [row[0] for row in connection.execute(COLUMNS, (name,))] for name in names}


def be(app: psycopg.Connection, workspace: str | None, user: str | None) -> None:
    """Set whose rows *app* may reach."""
    for name, value in (("workspace", workspace), ("user", user)):
        if value is not None:
            app.execute("select set_config(%s, %s, true)", (f"holdfast.{name}", value))


def owners(app: psycopg.Connection, table: str, columns: list[str]) -> set[tuple[str, ...]]:
    """Return whose rows of *table* are seen."""
    own = [each for each in ("workspace", "user_id") if each in columns]
    query = sql.SQL("select distinct {} from {}").format(
        sql.SQL(", ").join(map(sql.Identifier, own)), sql.Identifier("holdfast", table)
    )
    return set(app.execute(query))


def test_every_table_is_secured_against_its_owner_too(database: str) -> None:
    with psycopg.connect(database) as connection:
        found = list(connection.execute(TABLES))

    assert {name for name, _, _ in found} >= EXPECTED
    assert [name for name, enabled, forced in found if not (enabled and forced)] == []


def test_every_table_says_whose_its_rows_are(tables: dict[str, list[str]]) -> None:
    assert [name for name, columns in tables.items() if "workspace" not in columns] == []


def test_every_table_has_rows_to_guard(
    app: psycopg.Connection, tables: dict[str, list[str]]
) -> None:
    app.execute("reset role")

    seen = {name: {row[0] for row in owners(app, name, cols)} for name, cols in tables.items()}

    assert {name: rows for name, rows in seen.items() if rows != {"ours", "theirs"}} == {}


@pytest.mark.parametrize(
    ("workspace", "user"), [(None, None), (None, "mine"), ("", ""), ("else", "mine"), ("else", "*")]
)
def test_without_the_workspace_no_row_is_seen(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    workspace: str | None,
    user: str | None,
) -> None:
    be(app, workspace, user)

    seen = {name: owners(app, name, columns) for name, columns in tables.items()}

    assert {name: rows for name, rows in seen.items() if rows} == {}


@pytest.mark.parametrize(
    ("user", "seen"),
    [
        (None, set[str]()),
        ("", set[str]()),
        ("nobody", set[str]()),
        ("mine", {"mine"}),
        ("*", {"mine", "yours"}),
    ],
)
def test_a_user_finds_no_collection_but_their_own(
    app: psycopg.Connection, tables: dict[str, list[str]], user: str | None, seen: set[str]
) -> None:
    be(app, "ours", user)

    found = owners(app, "ltm_collections", tables["ltm_collections"])

    assert found == {("ours", each) for each in seen}


@pytest.mark.parametrize(
    ("workspace", "user", "others"),
    [
        (None, None, "true"),
        ("ours", None, "true"),
        ("ours", "mine", "user_id = 'yours' or workspace = 'theirs'"),
        ("theirs", "yours", "user_id = 'mine' or workspace = 'ours'"),
        ("ours", "*", "workspace = 'theirs'"),
    ],
)
def test_the_rows_of_another_are_not_written(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    workspace: str | None,
    user: str | None,
    others: LiteralString,
) -> None:
    be(app, workspace, user)

    for table, columns in tables.items():
        name = sql.Identifier("holdfast", table)
        owned = "user_id" in columns
        where = sql.SQL(others if owned else "workspace is distinct from {}").format(workspace)
        change = sql.SQL("update {} set workspace = workspace where {}").format(name, where)
        lock = sql.SQL("select 1 from {} where {} for update").format(name, where)
        drop = sql.SQL("delete from {} where {}").format(name, where)
        assert [app.execute(each).rowcount for each in (change, lock, drop)] == [0, 0, 0], table


def test_own_rows_are_not_given_to_another(
    app: psycopg.Connection, tables: dict[str, list[str]]
) -> None:
    be(app, "ours", "mine")

    for table, columns in tables.items():
        gifts = [("workspace", "theirs"), ("user_id", "yours")]
        for column, to in (each for each in gifts if each[0] in columns):
            give = sql.SQL("update {} set {} = {}").format(
                sql.Identifier("holdfast", table), sql.Identifier(column), to
            )
            with pytest.raises(errors.InsufficientPrivilege), app.transaction():
                app.execute(give)


@pytest.mark.parametrize(
    ("workspace", "user"), [(None, None), ("ours", "nobody"), ("theirs", "mine"), ("theirs", "*")]
)
def test_nothing_is_put_in_for_another(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    workspace: str | None,
    user: str | None,
) -> None:
    for table, columns in tables.items():
        if workspace == "ours" and "user_id" not in columns:
            continue
        be(app, "ours", "mine")
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        name = sql.Identifier("holdfast", table)
        row = app.execute(sql.SQL("select {} from {} limit 1").format(names, name)).fetchone()
        assert row is not None, table
        be(app, workspace or "", user or "")
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


@pytest.mark.parametrize("name", ["", "ours\0"])
def test_no_name_breaks_out_of_its_scope(database: str, name: str) -> None:
    with holdfast.open(database, workspace="ours") as hf:
        with pytest.raises(InvalidInput):
            hf.longterm(name, enabled=True)
        with pytest.raises(InvalidInput):
            hf.forget_user(name)


@pytest.mark.parametrize("name", ["mine' or '1'='1", "mine,yours", "%"])
def test_no_name_stands_for_somebody_else(database: str, name: str) -> None:
    with holdfast.open(database, workspace="ours") as hf:
        assert memory_of(hf, name).list().data == []
        assert memory_of(hf, name).recall("lakes", min_relevance=0) == []
        assert hf.forget_user(name).counts["ltm_collections"] == 0
        assert memory_of(hf, "mine").status().items == 1
