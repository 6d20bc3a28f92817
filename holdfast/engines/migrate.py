"""Apply migrations in order, each once, in one transaction with its record.

The differences between the engines (locking, running a statement, making a copy) are behind
`Ground`; the rules are here, written once.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Protocol

from msgspec import Struct

from holdfast.engines.base import Dialect
from holdfast.ground.errors import EngineFault, TooNew, Unavailable

_FILE = re.compile(r"(\d{4})_(\w+)\.(sqlite|postgres)\.sql")
_TOKEN = re.compile(
    r"""(?P<kept>'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
      | (?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<end>;)
      | (?P<word>\w+)
      | (?P<other>\s+|.)""",
    re.VERBOSE | re.DOTALL,
)
_WITH_BODY = re.compile(
    r"\s*create\s+(or\s+replace\s+)?(temp\s+|temporary\s+)?(trigger|function|procedure)\b",
    re.IGNORECASE,
)


class Migration(Struct, frozen=True, kw_only=True):
    """One schema migration, as read from its file."""

    number: int
    name: str
    sha256: str
    statements: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.number:04}_{self.name}"


class AppliedMigration(Struct, frozen=True, kw_only=True):
    """One migration recorded as applied in a database."""

    number: int
    name: str
    sha256: str


class Ground(Protocol):
    """The database to migrate."""

    dialect: Dialect

    def recorded(self) -> list[AppliedMigration]:
        """Return the applied migrations; none for a new database."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Return a transaction that locks out all other migrations.

        An error rolls it back.
        """
        ...

    def execute(self, statement: str) -> None:
        """Run one statement within `locked`."""
        ...

    def record(self, migration: Migration) -> None:
        """Record, within `locked`, that *migration* was applied."""
        ...

    def keep_copy(self, number: int) -> None:
        """Copy the database before migration *number*, if the engine supports it."""
        ...


@cache
def known(dialect: Dialect) -> tuple[Migration, ...]:
    """Return the migrations of this release for *dialect*, in order."""
    found: list[Migration] = []
    for file in files("holdfast.engines").joinpath("migrations").iterdir():
        if (match := _FILE.fullmatch(file.name)) and match[3] == dialect:
            text = file.read_text(encoding="utf-8")
            found.append(
                Migration(
                    number=int(match[1]),
                    name=match[2],
                    sha256=sha256(text.encode()).hexdigest(),
                    statements=tuple(statements(text)),
                )
            )
    return tuple(sorted(found, key=lambda migration: migration.number))


def missing(recorded: Iterable[AppliedMigration], known: Iterable[Migration]) -> list[Migration]:
    """Return the migrations of *known* that are not *recorded*, in order.

    Raises TooNew for an unknown number, and EngineFault naming both hashes when a file changed
    after it was applied.
    """
    ours = {migration.number: migration for migration in known}
    newest = max(ours, default=0)
    taken = {step.number: step for step in recorded}
    if (found := max(taken, default=0)) > newest:
        raise TooNew(found, newest)
    for number, step in taken.items():
        mine = ours.get(number)
        if mine is None or mine.sha256 != step.sha256:
            raise EngineFault(
                f"Migration {number:04} was applied as {step.name} ({step.sha256}); this release"
                f" has {mine.name if mine else 'none'} ({mine.sha256 if mine else '-'})."
            )
    return [ours[number] for number in sorted(ours.keys() - taken.keys())]


def migrate(
    ground: Ground, migrations: Iterable[Migration] | None = None, *, allowed: bool = True
) -> list[Migration]:
    """Migrate *ground* to this release's schema; return the applied migrations.

    Each migration is checked again under the lock, so processes that open one database together
    apply it once. Raises what `missing` raises, and Unavailable listing the missing migrations
    when not *allowed*.
    """
    migrations = known(ground.dialect) if migrations is None else tuple(migrations)
    todo = missing(ground.recorded(), migrations)
    if not todo:
        return []
    if not allowed:
        raise Unavailable(
            f"The database lacks the migrations {', '.join(map(str, todo))}.",
            reason="read_only",
            next="Open it once with a login that may migrate, and with migrations allowed.",
        )
    ground.keep_copy(todo[0].number)
    applied: list[Migration] = []
    for migration in todo:
        with ground.locked():
            if migration not in missing(ground.recorded(), migrations):
                continue
            for statement in migration.statements:
                ground.execute(statement)
            ground.record(migration)
        applied.append(migration)
    return applied


@cache
def release() -> str:
    """Return this release's version, as a database records it."""
    # Importing it costs more than opening a database, and only a new database needs it.
    from importlib import metadata

    try:
        return metadata.version("holdfast")
    except metadata.PackageNotFoundError:
        return "unknown"


def statements(text: str) -> Iterator[str]:
    """Yield each statement of *text*, without comments and the closing semicolon.

    A semicolon in quotes, in a comment, between dollar quotes, or in the `begin … end` of a
    trigger or function does not end a statement.
    """
    so_far, depth = "", 0
    for token in _TOKEN.finditer(text):
        if token["comment"]:
            continue
        if token["end"] and depth == 0:
            if so_far.strip():
                yield so_far.strip()
            so_far = ""
            continue
        word = (token["word"] or "").lower()
        if word in ("begin", "case") and _WITH_BODY.match(so_far):
            depth += 1
        elif word == "end" and depth:
            depth -= 1
        so_far += token[0]
    if so_far.strip():
        yield so_far.strip()
