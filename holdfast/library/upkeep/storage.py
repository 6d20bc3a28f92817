"""Whether the engine itself finds its tables and indexes whole."""

from collections.abc import Iterator
from types import SimpleNamespace

from holdfast.engines.base import Engine, Reader
from holdfast.ground.errors import Corrupt
from holdfast.library.upkeep.finding import Finding
from holdfast.library.upkeep.tables import TABLES, CopiedTable, ours


def check_storage(engine: Engine, reader: Reader, *, quick: bool) -> Iterator[Finding]:
    """Give what *engine* says of its own files, and rows that refer to none."""
    sql = engine.queries("holdfast.library.upkeep")
    for text in reader.all(_text, sql.quick_integrity if quick else sql.integrity):
        if text != "ok":
            yield _finding("", "", text)
    for text in reader.all(_text, sql.orphans):
        yield _finding("", "", text)
    if engine.dialect == "postgres" and not quick:
        for table in TABLES:
            yield from _scanned(reader, sql, table)


def check_indexes(engine: Engine) -> Iterator[Finding]:
    """Give each index that the server's extension amcheck finds damaged, if it is there for us.

    It tells by failing, so each index is looked at by itself.
    """
    sql = engine.queries("holdfast.library.upkeep")
    for name, statement in engine.all(_check_of, sql.index_checks):
        try:
            engine.all(dict[str, object], ours(statement))
        except Corrupt:
            yield _finding(name, "an index that fits its table", "a damaged one")


def _scanned(reader: Reader, sql: SimpleNamespace, table: CopiedTable) -> Iterator[Finding]:
    """Count *table* by its rows and by its primary key, each with the other way closed."""
    key = ", ".join(table.key)
    counts: list[int] = []
    by_rows = f"select count(*) as rows from {table.name}"
    by_key = f"select count(*) as rows from (select {key} from {table.name} order by {key}) k"
    for way, statement in ((sql.by_rows, by_rows), (sql.by_key, by_key)):
        reader.all(dict[str, object], way)
        counts.append(reader.one(_rows, ours(statement)))
    reader.all(dict[str, object], sql.by_any)
    if counts[0] != counts[1]:
        yield _finding(table.name, f"{counts[0]} by row", f"{counts[1]} by key")


def _finding(table: str, expected: str, found: str) -> Finding:
    return Finding(check="storage", table=table, id="", expected=expected or "ok", found=found)


def _text(*, finding: str) -> str:
    return finding


def _rows(*, rows: int) -> int:
    return rows


def _check_of(*, name: str, statement: str) -> tuple[str, str]:
    return name, statement
