"""Migrations: in order, once, each whole; and what becomes of the rows that were there."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from holdfast.engines.base import Dialect, Engine
from holdfast.engines.migrate import (
    AppliedMigration,
    Migration,
    known,
    migrate,
    missing,
    statements,
)
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.connection import APPLICATION_ID, connect
from holdfast.engines.sqlite.database import SQLiteGround
from holdfast.ground.errors import EngineFault, TooNew, Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import PostgresServer


def migration(number: int, *statements: str) -> Migration:
    return Migration(number=number, name=f"m{number}", sha256=f"s{number}", statements=statements)


def recorded(number: int, sha256: str | None = None) -> AppliedMigration:
    return AppliedMigration(number=number, name=f"m{number}", sha256=sha256 or f"s{number}")


class Remembered:
    """A database that only remembers what was done to it."""

    dialect: Dialect = "sqlite"

    def __init__(self, *taken: int) -> None:
        self.taken = [recorded(number) for number in taken]
        self.done: list[str] = []

    def recorded(self) -> list[AppliedMigration]:
        return list(self.taken)

    @contextmanager
    def locked(self) -> Generator[None]:
        self.done.append("lock")
        yield
        self.done.append("commit")

    def execute(self, statement: str) -> None:
        self.done.append(statement)

    def record(self, migration: Migration) -> None:
        self.taken.append(recorded(migration.number))

    def keep_copy(self, number: int) -> None:
        self.done.append(f"copy before {number}")


def test_statements_end_at_semicolons_that_end_statements():
    text = """
    -- a comment; with a semicolon
    create table a (x text default 'a;b'); /* another; one */
    create trigger t after insert on a begin
      update a set x = case when 1 then 'end' else "b" end;
      delete from a;
    end;
    create function f() returns int as $body$ begin; end; $body$ language plpgsql;
    select 1
    """

    first, trigger, function, last = statements(text)

    assert first == "create table a (x text default 'a;b')"
    assert trigger.startswith("create trigger")
    assert trigger.endswith("end")
    assert function.endswith("language plpgsql")
    assert last == "select 1"


def test_missing_migrations_are_applied_in_order_after_one_copy():
    ground = Remembered(1)

    applied = migrate(ground, [migration(1), migration(2, "two"), migration(3, "three", "four")])

    assert [one.number for one in applied] == [2, 3]
    assert ground.done == [
        *("copy before 2", "lock", "two", "commit"),
        *("lock", "three", "four", "commit"),
    ]


def test_nothing_is_locked_or_copied_when_nothing_is_missing():
    ground = Remembered(1)

    assert migrate(ground, [migration(1)]) == []
    assert ground.done == []


def test_a_migration_that_somebody_else_applied_meanwhile_is_not_applied_again():
    class Beaten(Remembered):
        def keep_copy(self, number: int) -> None:
            self.taken.append(recorded(number))

    ground = Beaten()

    assert migrate(ground, [migration(1, "one")]) == []
    assert ground.done == ["lock", "commit"]


def test_without_permission_to_migrate_the_missing_ones_are_listed():
    with pytest.raises(Unavailable, match="0002_m2, 0003_m3") as caught:
        migrate(Remembered(1), [migration(1), migration(2), migration(3)], allowed=False)

    assert caught.value.reason == "read_only"


def test_a_file_that_changed_after_it_was_applied_is_a_fault_naming_both_hashes():
    with pytest.raises(EngineFault, match=r"\(theirs\).*\(s1\)"):
        missing([recorded(1, "theirs")], [migration(1)])


def test_a_number_above_ours_is_too_new():
    with pytest.raises(TooNew) as caught:
        missing([recorded(1), recorded(7)], [migration(1)])

    assert (caught.value.found, caught.value.known) == (7, 1)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_release_numbers_its_migrations_from_one_without_gaps(dialect: Dialect):
    numbers = [one.number for one in known(dialect)]

    assert numbers == list(range(1, len(numbers) + 1))
    assert all(one.statements for one in known(dialect))


def test_both_engines_have_the_same_migrations():
    assert [str(one) for one in known("sqlite")] == [str(one) for one in known("postgres")]


OWNERS = 9
"""The migration that gives each user's hashes a key of their own."""

USED_BEFORE = (
    *(
        "insert into {ltm}_collections (number, id, workspace, user_id, namespace, workspace_id,"
        " version, redone, marks, items, superseded, turns, analyzer, indexed, created_at)"
        f" values ({number}, 'coll_{number}', '{workspace}', '{user}', 'chat{number}', '',"
        " 1, 0, 0, 0, 0, 0, 1, 0, 0)"
        for number, (workspace, user) in enumerate(
            [("ours", "ada"), ("ours", "ada"), ("ours", "bob"), ("theirs", "ada")]
        )
    ),
    "insert into {ltm}_secrets (workspace, secret) values ('ours', {key})",
    "insert into {ltm}_secrets (workspace, secret) values ('unused', {key})",
)
"""Two users of one workspace that has a key, one with two collections, and one without a key."""


def used_sqlite(path: Path) -> Engine:
    path.touch()
    connection = connect(str(path), "writer")
    connection.do(f"pragma application_id = {APPLICATION_ID}")
    migrate(SQLiteGround(connection, FrozenClock()), known("sqlite")[: OWNERS - 1])
    for statement in USED_BEFORE:
        connection.do(statement.format(ltm="ltm", key=f"x'{'ab' * 32}'"))
    connection.raw.close()
    return SQLiteEngine.open(path, clock=FrozenClock())


def used_postgres(server: PostgresServer) -> Engine:
    """Open a database whose owner is bound by the policies, and migrates it."""
    name = server.new_database()
    server.execute("create role migrator login", f"alter database {name} owner to migrator")
    key = f"decode('{'ab' * 32}', 'hex')"
    with psycopg.connect(server.url(name, user="migrator")) as connection:
        for each in known("postgres")[: OWNERS - 1]:
            for statement in each.statements:
                connection.execute(statement.encode())
            connection.execute(
                "insert into holdfast.migrations values (%s, %s, %s, 0, '')",
                (each.number, each.name, each.sha256),
            )
        for setting in ("workspace", "user"):
            connection.execute("select set_config(%s, '*', true)", (f"holdfast.{setting}",))
        for statement in USED_BEFORE:
            connection.execute(statement.format(ltm="holdfast.ltm", key=key).encode())
    return PostgresEngine.open(server.url(name, user="migrator"), clock=FrozenClock())


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_each_user_keeps_the_key_of_what_was_hashed_before_keys_were_a_users(
    dialect: Dialect, sqlite_file: Path, postgres_server: PostgresServer
):
    engine = (
        used_sqlite(sqlite_file) if dialect == "sqlite" else used_postgres(postgres_server)
    ).scoped(EVERYBODY)

    found = engine.rows("select workspace, user_id, secret from ltm_secrets order by user_id")

    assert found == [("ours", user, b"\xab" * 32) for user in ("ada", "bob")]
    engine.close()
