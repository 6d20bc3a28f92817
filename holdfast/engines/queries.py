"""Named statements from `.sql` files, in the engine's dialect.

SQL is written once, with `:name` parameters, in a `queries.sql` beside its only user. The
placeholders of PostgreSQL's driver are substituted here, when the file is first read.
"""

import re
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Self, TypeVar

from holdfast.engines.base import Dialect
from holdfast.ground.errors import EngineFault

T = TypeVar("T")

_HEADING = re.compile(r"^-- ([a-z][a-z0-9_]*)(?: \((sqlite|postgres)\))? --[ \t]*$", re.MULTILINE)
_TOKEN = re.compile(
    r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<cast>::)
      | (?<![\w:]):(?P<name>[a-z_][a-z0-9_]*)
      | (?P<percent>%)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


class Statement(str):
    """Text of one statement with its name, for messages and events."""

    __slots__ = ("name",)

    name: str

    def __new__(cls, text: str, name: str) -> Self:
        """Return *text*, named *name*."""
        statement = super().__new__(cls, text)
        statement.name = name
        return statement

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (str(self), self.name)


def name_of(sql: str) -> str:
    """Return the name of *sql*, or its beginning if it has none."""
    return sql.name if isinstance(sql, Statement) else " ".join(sql.split())[:60]


def only(rows: list[T], sql: str) -> T:
    """Return the only one of *rows*, the result of *sql*; else raise EngineFault."""
    if len(rows) != 1:
        name = name_of(sql)
        raise EngineFault(f"{name!r} gave {len(rows)} rows, not one.", statement=name)
    return rows[0]


@cache
def load(package: str, dialect: Dialect) -> SimpleNamespace:
    """Return the statements of *package*'s `queries.sql`, each under its name.

    Raises EngineFault for `::`, which SQLite does not know, for a name given twice, and for a
    statement that only the other dialect has.
    """
    text = files(package).joinpath("queries.sql").read_text(encoding="utf-8")
    return SimpleNamespace(**read(text, dialect, source=package))


def read(text: str, dialect: Dialect, *, source: str) -> dict[str, Statement]:
    """Return the statements of *text*, read from *source*, in *dialect*.

    Raises what `load` raises.
    """
    _, *parts = _HEADING.split(text)
    found: dict[str, Statement] = {}
    names: set[str] = set()
    for name, variant, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        names.add(name)
        if variant not in (None, dialect):
            continue
        if name in found:
            raise EngineFault(f"{source} names a statement twice: {name}.", statement=name)
        found[name] = Statement(_spelled(body, dialect, name), name)
    if missing := sorted(names - found.keys()):
        raise EngineFault(
            f"{source} has no {dialect} statement {missing[0]}.", statement=missing[0]
        )
    return found


def _spelled(body: str, dialect: Dialect, name: str) -> str:
    def spelled(token: re.Match[str]) -> str:
        if token["comment"]:
            return ""
        if token["cast"]:
            raise EngineFault(f"{name} uses '::'; write cast(x as t).", statement=name)
        if dialect == "sqlite":
            return token[0]
        if token["name"]:
            return f"%({token['name']})s"
        # The driver looks for placeholders in quoted text too, so a percent sign there is
        # doubled like any other.
        return token[0].replace("%", "%%")

    lines = (line.rstrip() for line in _TOKEN.sub(spelled, body).splitlines())
    return "\n".join(line for line in lines if line).rstrip(";")
