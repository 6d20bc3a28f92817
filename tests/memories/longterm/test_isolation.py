"""Row-level security of long-term memory: whatever a statement says, nobody reaches another's."""

import re
from collections.abc import Iterator
from typing import Any, LiteralString, cast

import psycopg
import pytest
from contracts.longterm_items import kept, memory_of, said
from psycopg import errors, sql

import holdfast
from holdfast.engines.queries import load
from holdfast.ground.errors import InvalidInput
from holdfast.testing.embedders import WordEmbedder
from holdfast.testing.postgres import TEMPLATE, PostgresServer

LONGTERM = "holdfast.memories.longterm"
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
    insert into holdfast.ltm_item_history (workspace, collection, item, seq, at, actor, op, text,
        kind, importance, tier, valid_from)
    select workspace, collection, number, number, 0, '', 'create', text, kind, importance, tier, 0
    from holdfast.ltm_items
    on conflict do nothing
    """,
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


MANY = (
    """
    insert into holdfast.ltm_collections (number, id, workspace, user_id, namespace, workspace_id,
        version, redone, marks, items, superseded, turns, analyzer, indexed, created_at)
    select n, 'coll_' || n, 'ours', 'user' || n / 2, 'chat' || n % 2, '', 1, 1, 0, 30, 0, 30, 1, 1,
        0
    from generate_series(1, 400) n
    """,
    """
    insert into holdfast.ltm_items (collection, number, id, workspace, kind, importance, origin,
        source, created_at, updated_at, tier, said_by, origin_ref, valid_from, flags, terms, fold,
        body, text)
    select c, c * 100 + n, 'item_' || c || '_' || n, 'ours', 'fact', 0.5, 'api', '', 0, 0, 'said',
        '', '', 0, 0, 2,
        decode(md5(n::text), 'hex'), 'like tab', 'Likes tabs'
    from generate_series(1, 400) c, generate_series(1, 30) n
    """,
    """
    insert into holdfast.ltm_turns (collection, number, id, workspace, role, speaker, at, thread_id,
        session, created_at, tier, said_by, origin_ref, flags, terms, fingerprint, caption, body,
        text)
    select c, c * 100 + n + 30, 'turn_' || c || '_' || n, 'ours', 'user', '', n, 't', 't', 0,
        'said', '', '', 0, 2, '', '', 'like tab', 'I like tabs'
    from generate_series(1, 400) c, generate_series(1, 30) n
    """,
    """
    insert into holdfast.ltm_links (workspace, collection, item, turn, at)
    select workspace, collection, number, number + 30, 0 from holdfast.ltm_items
    """,
    """
    insert into holdfast.ltm_item_history (workspace, collection, item, seq, at, actor, op, text,
        kind, importance, tier, valid_from)
    select workspace, collection, number, number, 0, '', 'create', text, kind, importance, tier, 0
    from holdfast.ltm_items
    """,
    """
    insert into holdfast.ltm_access (workspace, collection, number, last_accessed_at, access_count)
    select workspace, collection, number, 0, 1 from holdfast.ltm_items
    """,
    """
    insert into holdfast.ltm_tombstones (workspace, collection, id, at, terms)
    select workspace, collection, id, 0, '' from holdfast.ltm_items
    """,
    """
    insert into holdfast.ltm_cursors (workspace, collection, thread_id, chunk, fingerprints)
    select workspace, collection, 't', number, '' from holdfast.ltm_items
    """,
    """
    insert into holdfast.ltm_jobs (number, workspace, collection, kind, state, about, attempts,
        next_at, created_at)
    select number, workspace, collection, 'embed', 'queued', '[]', 0, 0, 0 from holdfast.ltm_items
    """,
    """
    insert into holdfast.ltm_lex (workspace, collection, number, lex)
    select workspace, collection, number, array_to_tsvector(array['like', 'tab'])
    from holdfast.ltm_items
    """,
    """
    insert into holdfast.ltm_df (workspace, collection, term, n)
    select workspace, collection, 'term' || number, 1 from holdfast.ltm_items
    """,
    """
    insert into holdfast.ltm_vectors (workspace, collection, id, dimension, vector)
    select workspace, 'coll_' || collection, id, 2, array[0, 1] from holdfast.ltm_items
    """,
    """
    insert into holdfast.ltm_vector_sets (workspace, collection, seq)
    select workspace, id, 1 from holdfast.ltm_collections
    """,
    """
    insert into holdfast.ltm_secrets (workspace, user_id, secret)
    select workspace, user_id, decode(repeat('00', 32), 'hex')
    from holdfast.ltm_collections where namespace = 'chat0'
    """,
    "analyze",
)
"""Many users' rows, enough of them that the planner sees what a scan costs."""

GIVEN: dict[str, object] = {
    "workspace": "ours",
    "user": "user50",
    "namespace": "chat0",
    "workspace_id": "",
    "collection": 100,
    "collection_id": "coll_100",
    "id": "item_100_1",
    "ids": '["item_100_1"]',
    "item": 10001,
    "number": 10001,
    "numbers": "[10001, 10031]",
    "items": "[10001]",
    "turns": "[10031]",
    "terms": '["term10001"]',
    "weights": '{"tab": 1.0}',
    "counts": '{"tab": 1}',
    "vector": "{0,1}",
    "fold": b"",
    "fingerprints": b"",
    "secret": b"",
    "thread_id": "t",
    "source": "thread:t",
    "said_by": "",
    "first": "item_",
    "last": "item_z",
    "kind": "embed",
    "other": "reembed",
    "kinds": "",
    "state": "queued",
    "token": "",
    "model": "openai:gpt",
    "second": "a%",
    "third": "b%",
    "fourth": "c%",
}
"""What statements are given when they are explained; numbers else."""

OF_ALL = {"held_by_all", "jobs_of_all", "left_over", "list_people", "mining_of_all"}
"""Statements that are asked of every user's rows."""


def by_index() -> list[tuple[str, str]]:
    """Return the statements that find rows of one user or collection, by package and name."""
    found: list[tuple[str, str]] = []
    for package in (LONGTERM, f"{LONGTERM}.background", f"{LONGTERM}.vectors"):
        for name, text in vars(load(package, "postgres")).items():
            finds = text.startswith(("select", "with", "delete")) and "ltm_" in text
            if finds and name not in OF_ALL:
                found.append((package, name))
    return found


Owner = tuple[str, str]
"""A workspace, and a user in it."""

OURS, YOURS = ("ours", "mine"), ("ours", "yours")
ALL = {OURS, YOURS, ("theirs", "mine"), ("theirs", "yours")}


@pytest.fixture(scope="module")
def owned(database: str) -> dict[object, Owner]:
    """Give the owner of each collection, by its number and by its id."""
    query = "select number, id, workspace, user_id from holdfast.ltm_collections"
    with psycopg.connect(database) as connection:
        rows = connection.execute(query).fetchall()
    return {key: (row[2], row[3]) for row in rows for key in row[:2]}


def mark_of(columns: list[str]) -> str:
    """Return the column that says, with the workspace, whose a row is."""
    return "user_id" if "user_id" in columns else "collection"


def owners(
    app: psycopg.Connection, table: str, columns: list[str], owned: dict[object, Owner]
) -> list[Owner]:
    """Return the owner of each row of *table* that is seen."""
    query = sql.SQL("select workspace, {} from {}").format(
        sql.Identifier(mark_of(columns)), sql.Identifier("holdfast", table)
    )
    return [owned.get(mark, (workspace, mark)) for workspace, mark in app.execute(query)]


def test_every_table_is_secured_against_its_owner_too(database: str) -> None:
    with psycopg.connect(database) as connection:
        found = list(connection.execute(TABLES))

    assert {name for name, _, _ in found} >= EXPECTED
    assert [name for name, enabled, forced in found if not (enabled and forced)] == []


def test_every_table_says_whose_its_rows_are(tables: dict[str, list[str]]) -> None:
    assert [name for name, columns in tables.items() if "workspace" not in columns] == []


def test_every_table_has_rows_to_guard(
    app: psycopg.Connection, tables: dict[str, list[str]], owned: dict[object, Owner]
) -> None:
    app.execute("reset role")

    seen = {name: set(owners(app, name, columns, owned)) for name, columns in tables.items()}

    assert {name: rows for name, rows in seen.items() if rows != ALL} == {}


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ((None, None), set[Owner]()),
        ((None, "mine"), set[Owner]()),
        ((None, "*"), set[Owner]()),
        (("", ""), set[Owner]()),
        (("else", "mine"), set[Owner]()),
        (("else", "*"), set[Owner]()),
        (("ours", None), set[Owner]()),
        (("ours", ""), set[Owner]()),
        (("ours", "nobody"), set[Owner]()),
        (OURS, {OURS}),
        (("ours", "*"), {OURS, YOURS}),
        (("*", "*"), ALL),
    ],
)
def test_a_user_sees_no_row_but_their_own(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    owned: dict[object, Owner],
    given: tuple[str | None, str | None],
    seen: set[Owner],
) -> None:
    be(app, *given)

    found = {name: set(owners(app, name, columns, owned)) for name, columns in tables.items()}

    assert found == dict.fromkeys(tables, seen)


@pytest.mark.parametrize("act", ["update {} set workspace = workspace", "delete from {}"])
def test_a_user_writes_all_of_their_own_rows_and_no_other(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    owned: dict[object, Owner],
    act: LiteralString,
) -> None:
    app.execute("reset role")
    rows = {name: owners(app, name, columns, owned) for name, columns in tables.items()}
    app.execute("set role holdfast_app")
    be(app, *OURS)

    # Rows of a collection are found by it, so it goes last.
    for table in sorted(tables, key=lambda name: name == "ltm_collections"):
        changed = app.execute(sql.SQL(act).format(sql.Identifier("holdfast", table))).rowcount
        assert changed == rows[table].count(OURS), table


@pytest.mark.parametrize(
    ("workspace", "user"), [(None, None), ("ours", None), OURS, ("theirs", "yours"), ("ours", "*")]
)
def test_the_rows_of_another_are_not_written(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    owned: dict[object, Owner],
    workspace: str | None,
    user: str | None,
) -> None:
    be(app, workspace, user)
    own = {each for each in ALL if each[0] == workspace and user in (each[1], "*")}

    for table, columns in tables.items():
        name, mark = sql.Identifier("holdfast", table), mark_of(columns)
        where = sql.SQL("workspace = {} and cast({} as text) = {}")
        for key, owner in owned.items():
            if owner in own:
                continue
            said = owner[1] if mark == "user_id" else str(key)
            theirs = where.format(owner[0], sql.Identifier(mark), said)
            change = sql.SQL("update {} set workspace = workspace where {}").format(name, theirs)
            lock = sql.SQL("select 1 from {} where {} for update").format(name, theirs)
            drop = sql.SQL("delete from {} where {}").format(name, theirs)
            assert [app.execute(each).rowcount for each in (change, lock, drop)] == [0, 0, 0], table


def test_own_rows_are_not_given_to_another(
    app: psycopg.Connection, tables: dict[str, list[str]], owned: dict[object, Owner]
) -> None:
    be(app, *OURS)
    yours = {type(key): key for key, owner in owned.items() if owner == YOURS}

    for table, columns in tables.items():
        id_or_number = str if table in {"ltm_vectors", "ltm_vector_sets"} else int
        gifts = {"workspace": "theirs", "user_id": "yours", "collection": yours[id_or_number]}
        for column in gifts.keys() & set(columns):
            give = sql.SQL("update {} set {} = {}").format(
                sql.Identifier("holdfast", table), sql.Identifier(column), gifts[column]
            )
            with pytest.raises(errors.InsufficientPrivilege), app.transaction():
                app.execute(give)


@pytest.mark.parametrize(
    ("workspace", "user"),
    [(None, None), ("ours", "nobody"), YOURS, ("theirs", "mine"), ("theirs", "*")],
)
def test_nothing_is_put_in_for_another(
    app: psycopg.Connection,
    tables: dict[str, list[str]],
    workspace: str | None,
    user: str | None,
) -> None:
    for table, columns in tables.items():
        be(app, *OURS)
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


@pytest.fixture(scope="module")
def many(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    """Give a connection that is one of many users."""
    url = postgres_server.url(postgres_server.new_database(TEMPLATE))
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in MANY:
            connection.execute(statement)
        connection.execute("set role holdfast_app")
        for name, value in (("workspace", "ours"), ("user", "user50")):
            connection.execute("select set_config(%s, %s, false)", (f"holdfast.{name}", value))
        connection.execute("set search_path = holdfast")
        yield connection


@pytest.mark.parametrize(("package", "name"), by_index())
def test_the_policies_turn_no_read_by_index_into_a_scan(
    many: psycopg.Connection, package: str, name: str
) -> None:
    statement: str = getattr(load(package, "postgres"), name)
    given = {each: GIVEN.get(each, 1) for each in re.findall(r"%\(([a-z0-9_]+)\)s", statement)}
    if package.endswith("vectors"):
        given["collection"] = "coll_100"

    plan = many.execute(cast("Any", f"explain {statement}"), given).fetchall()

    scans = [line for (line,) in plan if re.search(r"Seq Scan on ltm_", line)]
    assert scans == [], "\n".join(line for (line,) in plan)


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
