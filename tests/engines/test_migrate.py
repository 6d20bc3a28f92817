"""Migrations: in order, once, each whole, and equal to the schema of verify."""

import runpy
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from holdfast.engines.base import Dialect
from holdfast.engines.migrate import (
    AppliedMigration,
    Ground,
    Migration,
    known,
    migrate,
    missing,
    statements,
)
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.postgres.engine import PostgresGround
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.connection import connect
from holdfast.engines.sqlite.database import SQLiteGround
from holdfast.ground.errors import EngineFault, TooNew, Unavailable
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


LATER = (
    Migration(
        number=9000,
        name="notes",
        sha256="n",
        statements=(
            "create table notes (id integer primary key, body text)",
            "insert into notes (id, body) values (1, 'one'), (2, 'three')",
        ),
    ),
    Migration(
        number=9001,
        name="sizes",
        sha256="s",
        statements=(
            "alter table notes add column size integer",
            "update notes set size = length(body)",
        ),
    ),
)
"""Two made-up migrations of a later release; the second changes the rows of the first."""


def sizes_after_an_upgrade(ground: Ground, read: Callable[[str], list[object]]) -> list[object]:
    """Upgrade a used database of this release in two steps, and then again."""
    release = known(ground.dialect)

    assert migrate(ground, [*release, LATER[0]]) == [LATER[0]]
    assert migrate(ground, [*release, *LATER]) == [LATER[1]]
    assert migrate(ground, [*release, *LATER]) == []
    return read("select size from {}notes order by id")


def test_a_later_release_upgrades_a_sqlite_file_step_by_step(sqlite_file: Path):
    SQLiteEngine.open(sqlite_file, clock=FrozenClock()).close()
    connection = connect(str(sqlite_file), "writer")

    found = sizes_after_an_upgrade(
        SQLiteGround(connection, FrozenClock()),
        lambda sql: [row[0] for row in connection.rows(sql.format(""), {})],
    )

    assert found == [3, 5]
    assert connection.number("pragma user_version") == 9001
    connection.raw.close()


def test_a_later_release_upgrades_a_postgres_database_step_by_step(
    postgres_server: PostgresServer,
):
    """As a login that is bound by the policies."""
    name = postgres_server.new_database()
    postgres_server.execute(
        "create role migrator login", f"alter database {name} owner to migrator"
    )
    url = postgres_server.url(name, user="migrator")
    PostgresEngine.open(url, clock=FrozenClock()).close()

    with psycopg.connect(url, autocommit=True) as connection:
        found = sizes_after_an_upgrade(
            PostgresGround(connection, FrozenClock()),
            lambda sql: [row[0] for row in connection.execute(sql.format("holdfast.").encode())],
        )

    assert found == [3, 5]


SCRIPT = Path(__file__).parents[2] / "scripts" / "dump_schema.py"


def test_the_expected_schema_for_postgres_is_what_the_migrations_make(
    postgres_server: PostgresServer,
) -> None:
    dump = runpy.run_path(str(SCRIPT))

    assert dump["schema"](postgres_server) == dump["FILE"].read_text(encoding="utf-8")
