"""Compare a database's schema with the one that this release's migrations make."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines import queries
from holdfast.engines.base import Dialect, Engine, Reader
from holdfast.engines.migrate import known
from holdfast.engines.sqlite.connection import APPLICATION_ID, Connection, connect
from holdfast.library.upkeep.tables import Finding

_DROPPED: Final = ("trigger", "view", "index", "table")
"""Kinds of objects in the order in which foreign ones are dropped."""

SCHEMA: Final = "schema"
"""Name of this check in findings."""

_Key = tuple[str, str, str]
"""Kind, table and name of an object."""
_ObjectRow = tuple[str, str, str, str]
"""A key with the object's definition: a line of `schema.postgres.json`."""


class SchemaObject(Struct, frozen=True, kw_only=True):
    """A table, index, trigger, column or other object of a schema.

    *text* is its definition, if compared.
    """

    kind: str
    table: str
    name: str
    text: str

    @property
    def key(self) -> _Key:
        """The key of this object."""
        return self.kind, self.table, self.name


def check_schema(engine: Engine, reader: Reader, sql: SimpleNamespace) -> Iterator[Finding]:
    """Yield a finding for each foreign, missing or differently defined object."""
    expected, found = schema_of(engine.dialect), objects_in(reader, sql)
    for key in sorted({*expected, *found}):
        kind, table, name = key
        whole = ("table", table, table)
        if kind == "column" and not (whole in expected and whole in found):
            continue
        if expected.get(key) != found.get(key):
            yield Finding(
                check=SCHEMA,
                table=table,
                id=name,
                expected=f"the {kind} of this release" if key in expected else "nothing",
                found=("another" if key in expected else f"a foreign {kind}")
                if key in found
                else "nothing",
            )


@cache
def schema_of(dialect: Dialect) -> dict[_Key, str]:
    """Return the objects of this release's schema, each with its definition."""
    if dialect == "sqlite":
        return _sqlite_schema(max(migration.number for migration in known("sqlite")))
    rows = files("holdfast.engines").joinpath("migrations", "schema.postgres.json").read_bytes()
    found = msgspec.json.decode(rows, type=list[_ObjectRow])
    return {(kind, table, name): text for kind, table, name, text in found}


def objects_in(reader: Reader, sql: SimpleNamespace) -> dict[_Key, str]:
    """Return the objects of the database of *reader*, each with its definition."""
    return {each.key: _plain(each.text) for each in reader.all(SchemaObject, sql.schema_objects)}


def drop_foreign(path: Path) -> tuple[str, ...]:
    """Drop all objects of the SQLite file *path* that no migration of ours creates.

    Return their names.

    These are tables with their rows, views, triggers and indexes. A file that is not ours, or of a
    newer release, is not changed.
    """
    connection = connect(str(path), "writer")
    try:
        number = connection.number("pragma user_version")
        newest = max(migration.number for migration in known("sqlite"))
        ours = connection.number("pragma application_id") == APPLICATION_ID
        if not ours or not 0 < number <= newest:
            return ()
        expected = _sqlite_schema(number)
        foreign = [each for each in _objects(connection) if each.key not in expected]
        connection.do("pragma foreign_keys = off")
        for each in sorted(foreign, key=lambda each: _DROPPED.index(each.kind)):
            name = each.name.replace('"', '""')
            connection.do(f'drop {each.kind} if exists "{name}"')
        return tuple(sorted(f"{each.kind} {each.name}" for each in foreign))
    finally:
        connection.raw.close(force=True)


@cache
def _sqlite_schema(number: int) -> dict[_Key, str]:
    """Return the objects that the migrations up to *number* create."""
    connection = connect(":memory:", "writer")
    try:
        for migration in known("sqlite"):
            if migration.number <= number:
                for statement in migration.statements:
                    connection.do(statement)
        return {each.key: _plain(each.text) for each in _objects(connection)}
    finally:
        connection.raw.close(force=True)


def _objects(connection: Connection) -> list[SchemaObject]:
    sql = queries.load("holdfast.library.upkeep", "sqlite")
    return connection.all(SchemaObject, sql.schema_objects, {})


def _plain(text: str) -> str:
    """Return *text* without quotes and white space, which vary by SQLite version."""
    return re.sub(r'[\s"`\[\]]+', "", text)
