"""The schema that is written down for reading is the sum of the migrations."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from holdfast.engines.migrate import statements
from holdfast.engines.sqlite.connection import connect
from holdfast.testing.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
MIGRATIONS = ROOT / "holdfast" / "engines" / "migrations"


@pytest.fixture(scope="module")
def dump() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "dump_schema.py"))


def written_down(dialect: str) -> str:
    return (MIGRATIONS / f"schema.{dialect}.sql").read_text(encoding="utf-8")


def test_the_file_for_sqlite_is_what_the_migrations_make(
    dump: dict[str, Any], tmp_path: Path
) -> None:
    assert dump["migrated_sqlite"](tmp_path / "h.db") == written_down("sqlite")


def test_the_file_for_sqlite_makes_the_same_schema(dump: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    path.touch()
    connection = connect(str(path), "writer")
    for statement in statements(written_down("sqlite")):
        connection.do(statement)
    connection.raw.close()

    assert dump["sqlite_schema"](path) == written_down("sqlite")


def test_the_file_for_postgres_is_what_the_migrations_make(
    dump: dict[str, Any], postgres_server: PostgresServer
) -> None:
    assert dump["migrated_postgres"](postgres_server) == written_down("postgres")


def test_the_file_for_postgres_makes_the_same_schema(
    dump: dict[str, Any], postgres_server: PostgresServer
) -> None:
    database = postgres_server.new_database()
    postgres_server.execute(*statements(written_down("postgres")), database=database)

    assert dump["postgres_schema"](postgres_server, database) == written_down("postgres")
