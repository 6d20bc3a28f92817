"""Applies migrations in order, once, each in a transaction with the record of it.

What differs between the engines (how to lock, how to run a statement, how to keep a copy) is
behind `Ground`; the rules are here, written once.
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
    """One step of the schema, as its file has it."""

    number: int
    name: str
    sha256: str
    statements: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.number:04}_{self.name}"


class AppliedMigration(Struct, frozen=True, kw_only=True):
    """One step that a database says it has taken."""

    number: int
    name: str
    sha256: str


class Ground(Protocol):
    """The database to migrate."""

    dialect: Dialect

    def recorded(self) -> list[AppliedMigration]:
        """Return the steps it has taken; none when it is new."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Return a transaction that nobody else's migration runs beside; an error undoes it."""
        ...

    def execute(self, statement: str) -> None:
        """Run one statement within `locked`."""
        ...

    def record(self, migration: Migration) -> None:
        """Write down, within `locked`, that *migration* was applied."""
        ...

    def keep_copy(self, number: int) -> None:
        """Set aside what is there before migration *number* changes it, where that is done."""
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
    """Return which of *known* are not *recorded*, in order.

    Raises TooNew for a number we do not know, and EngineFault naming both hashes when a file
    changed after it was applied.
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
    """Bring *ground* to this release's schema; return what was applied.

    Each migration is looked for again under the lock, so processes that open one database
    together apply it once. Raises what `missing` raises, and Unavailable listing what is missing
    when it is not *allowed*.
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


def release() -> str:
    """Return this release's name, as a database records it."""
    # Loading it costs more than opening a database, and only a new one needs it.
    from importlib import metadata

    try:
        return metadata.version("holdfast")
    except metadata.PackageNotFoundError:
        return "unknown"


def statements(text: str) -> Iterator[str]:
    """Give each statement of *text*, without comments and the closing semicolon.

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
