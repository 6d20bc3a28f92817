"""Statements and values as they travel: there as parameters, back as what SQLite would give.

Numbers are sent with their width, text without a type, so the server reads it as the column
beside it. What comes back is read so that both engines give equal values: JSON as text, whole
numbers as int, bytes as bytes.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from psycopg import postgres
from psycopg.abc import AdaptContext, Buffer
from psycopg.abc import Transformer as TransformerProtocol
from psycopg.adapt import AdaptersMap, Loader, PyFormat, Transformer
from psycopg.pq import Format
from psycopg.types.numeric import NumericBinaryLoader

from holdfast.engines.queries import name_of

_PLACE = re.compile(r"%\((\w+)\)s|%%")
_BOOL, _BYTEA, _INT8, _INT4, _FLOAT8, _NUMERIC = 16, 17, 20, 23, 701, 1700
_UNTYPED = 0

Sent = tuple[Buffer | None, int, Format]


class BoundStatement(NamedTuple):
    """One statement with its values, ready to be sent."""

    name: str
    text: bytes
    values: tuple[Buffer | None, ...] = ()
    types: tuple[int, ...] = ()
    formats: tuple[Format, ...] = ()


class _Spelled(NamedTuple):
    text: bytes
    names: tuple[str, ...]
    title: str


@lru_cache(maxsize=4096)
def _spelled(sql: str) -> _Spelled:
    names: dict[str, int] = {}

    def numbered(place: re.Match[str]) -> str:
        if place[1] is None:
            return "%"
        return f"${names.setdefault(place[1], len(names) + 1)}"

    text = _PLACE.sub(numbered, sql).encode()
    return _Spelled(text, tuple(names), name_of(sql))


def asked(sql: str, params: Mapping[str, object]) -> BoundStatement:
    """Return *sql*, as the loader spells it for PostgreSQL, with what it needs of *params*.

    Raises KeyError for a value that is missing, ValueError and psycopg.Error for one that
    cannot be sent.
    """
    spelled = _spelled(sql)
    if not spelled.names:
        return BoundStatement(spelled.title, spelled.text)
    sent = [_sent(params[name]) for name in spelled.names]
    values, types, formats = zip(*sent, strict=True)
    return BoundStatement(spelled.title, spelled.text, values, types, formats)


def _sent(value: object) -> Sent:
    match value:
        case None:
            sent = (None, _UNTYPED, Format.TEXT)
        case str():
            if "\0" in value:
                raise ValueError("text holds the character U+0000, which a text column cannot")
            sent = (value.encode(), _UNTYPED, Format.TEXT)
        case bool():
            sent = (b"t" if value else b"f", _BOOL, Format.TEXT)
        case int():
            sent = (str(value).encode(), _width(value), Format.TEXT)
        case bytes():
            sent = (value, _BYTEA, Format.BINARY)
        case float():
            sent = (repr(value).encode(), _FLOAT8, Format.TEXT)
        case _:
            sent = _adapted(value)
    return sent


def _adapted(value: object) -> Sent:
    adapted = reading()
    (dumped,) = adapted.dump_sequence([value], [PyFormat.AUTO])
    types, formats = adapted.types, adapted.formats
    return dumped, types[0] if types else _UNTYPED, formats[0] if formats else Format.TEXT


def _width(value: int) -> int:
    if -(2**31) <= value < 2**31:
        return _INT4
    return _INT8 if -(2**63) <= value < 2**63 else _NUMERIC


class _Number(Loader):
    """Sums of whole numbers come as `numeric`, and are whole numbers."""

    format = Format.BINARY

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._exact = NumericBinaryLoader(oid, context)

    def load(self, data: Buffer) -> int | float:
        number: Decimal = self._exact.load(data)
        return int(number) if number == number.to_integral_value() else float(number)


class _JsonText(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


class _JsonbText(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        # The first byte is the version of the format, 1.
        return bytes(data[1:]).decode()


class _Xid8(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        return int.from_bytes(data, "big")


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(postgres.adapters)
    adapters.register_loader("numeric", _Number)
    adapters.register_loader("json", _JsonText)
    adapters.register_loader("jsonb", _JsonbText)
    adapters.register_loader(5069, _Xid8)
    return adapters


class _Context:
    """How values are adapted, without a connection."""

    adapters = _adapters()
    connection: Any = None


_context: AdaptContext = _Context()


def reading() -> TransformerProtocol:
    """Return what turns rows into values; for one connection."""
    return Transformer(_context)
