"""Pipelined PostgreSQL statements, and the conversion of their values.

The driver's own pipeline hides when it waits and which statement failed. Here a round trip is one
call, and its results show how far the server came, so that a write knows whether its commit can
have happened.
"""

import re
import secrets
import select
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import postgres
from psycopg.abc import AdaptContext, Buffer
from psycopg.abc import Transformer as TransformerProtocol
from psycopg.adapt import AdaptersMap, Loader, PyFormat, Transformer
from psycopg.errors import Diagnostic, error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.types.numeric import NumericBinaryLoader

from holdfast.engines.base import Row
from holdfast.engines.queries import name_of

# Numbers are sent with their width, text without a type, so the server infers it from the column.
# Results are decoded so that both engines give equal values: JSON as text, whole numbers as int,
# bytes as bytes.

_PLACE = re.compile(r"%\((\w+)\)s|%%")
_BOOL, _BYTEA, _INT8, _INT4, _FLOAT8, _NUMERIC = 16, 17, 20, 23, 701, 1700
_UNTYPED = 0

Sent = tuple[Buffer | None, int, Format]


class BoundStatement(NamedTuple):
    """One statement with its encoded values, ready to send."""

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


def bind(sql: str, params: Mapping[str, object]) -> BoundStatement:
    """Bind *params* to *sql*, which the loader has spelled for PostgreSQL.

    Raises KeyError for a missing value, ValueError and psycopg.Error for one that cannot be
    encoded.
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
            adapted = reading()
            (dumped,) = adapted.dump_sequence([value], [PyFormat.AUTO])
            types, formats = adapted.types, adapted.formats
            sent = dumped, types[0] if types else _UNTYPED, formats[0] if formats else Format.TEXT
    return sent


def _width(value: int) -> int:
    if -(2**31) <= value < 2**31:
        return _INT4
    return _INT8 if -(2**63) <= value < 2**63 else _NUMERIC


class _Number(Loader):
    """Decode `numeric` without a fraction as int: sums of whole numbers are numeric."""

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
    """Adapters of values, without a connection."""

    adapters = _adapters()
    connection: Any = None


_context: AdaptContext = _Context()


def reading() -> TransformerProtocol:
    """Return the decoder of rows for one connection."""
    return Transformer(_context)


T = TypeVar("T")

PATIENCE = 40.0
"""Seconds to wait for a result; longer than any statement may run on the server."""

_MOST_PREPARED = 512
_ERRORS = (ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED)


class Lost(Exception):
    """The connection broke; `answers` holds the results received before.

    `sent` is False if the last statement of the round trip was certainly not sent.
    """

    def __init__(self, answers: "Answers", cause: Exception | None, *, sent: bool = True) -> None:
        super().__init__("the connection was lost")
        self.answers, self.sent = answers, sent
        self.__cause__ = cause


class _NoResponse(psycopg.OperationalError):
    """The server did not respond in time."""


class Answers:
    """Results of the statements of a round trip, as far as they arrived."""

    __slots__ = ("all_sent", "results", "statements")

    def __init__(self, statements: Sequence[BoundStatement]) -> None:
        self.statements = statements
        self.all_sent = False
        self.results: list[PGresult | None] = [None] * len(statements)

    def failure(self) -> tuple[BoundStatement, psycopg.Error] | None:
        """Return the failed statement and its error; those after it were not run."""
        for statement, result in zip(self.statements, self.results, strict=True):
            if result is not None and result.status == ExecStatus.FATAL_ERROR:
                return statement, error_from_result(result, encoding="utf-8")
        return None


class _Expected:
    """A pending result: of a statement, of its preparation, or of a round trip's end."""

    __slots__ = ("answers", "came", "key", "place")

    def __init__(
        self,
        answers: Answers | None = None,
        place: int = 0,
        key: tuple[bytes, tuple[int, ...]] | None = None,
    ) -> None:
        self.answers, self.place, self.key, self.came = answers, place, key, False

    def fill(self, result: PGresult) -> None:
        """Store *result* for its statement, unless one is stored."""
        if self.answers is not None and self.answers.results[self.place] is None:
            self.answers.results[self.place] = result


def _add_warning(states: list[str], notice: Diagnostic) -> None:
    if notice.severity_nonlocalized == "WARNING":
        states.append(notice.sqlstate or "")


class Wire:
    """A connection for one thread at a time.

    `exchange` is a round trip; `leave` sends a last statement without waiting: its result is read
    with the next one's, so a read does not wait for its rollback.

    `warned` has the states of the server's warnings since it was cleared.
    """

    def __init__(self, connection: "psycopg.Connection[Any]", *, prepare: bool) -> None:
        self.raw = connection
        self.warned: list[str] = []
        connection.add_notice_handler(partial(_add_warning, self.warned))
        self._pg = connection.pgconn
        self._pg.enter_pipeline_mode()
        self._prepare = prepare
        self._prepared: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._next_name = 0
        # Behind a pooler a statement may reach a connection to the server that has another client's
        # statements: under one name it would be another statement.
        self._prefix = b"hf" + secrets.token_hex(4).encode()
        self._names: dict[bytes, tuple[str, ...]] = {}
        self._expected: deque[_Expected] = deque()
        self._rows = reading()
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)
        self.idle_since = monotonic()

    @property
    def broken(self) -> bool:
        """Whether the connection can send no more statements."""
        return self._pg.status != ConnStatus.OK

    def exchange(
        self,
        batch: Sequence[BoundStatement],
        *,
        before_last: bool = False,
        patience: float = PATIENCE,
    ) -> Answers:
        """Send *batch* and return its results; raises Lost if the connection breaks.

        With *before_last* the server sends what it has before it runs the last statement.
        """
        answers = Answers(batch)
        try:
            self._send(answers, before_last=before_last)
            self._flush(monotonic() + patience)
        except psycopg.Error as error:
            while self.broken and self._expected and self._take():
                pass
            self.close()
            raise Lost(answers, error, sent=answers.all_sent) from error
        except BaseException:
            self.close()
            raise
        try:
            self._collect(answers, monotonic() + patience)
        except Lost:
            raise
        except BaseException:
            self.close()
            raise
        return answers

    def leave(self, last: BoundStatement) -> None:
        """Send *last* without waiting for its result."""
        try:
            self._send(Answers([last]), before_last=False)
            self._flush(monotonic() + 1.0)
        except (psycopg.Error, Lost):
            self.close()

    def tuples(self, result: PGresult) -> list[Row]:
        """Return each row of *result* as a tuple."""
        if not result.ntuples:
            return []
        self._rows.set_pgresult(result)
        return self._rows.load_rows(0, result.ntuples, tuple)

    def rows(self, statement: BoundStatement, result: PGresult, make: Callable[..., T]) -> list[T]:
        """Return each row of *result*, made by *make*."""
        if not result.ntuples:
            return []
        names = self._names.get(statement.text)
        if names is None or len(names) != result.nfields:
            found = [result.fname(column) or b"" for column in range(result.nfields)]
            names = self._names[statement.text] = tuple(name.decode() for name in found)
        return [make(**dict(zip(names, row, strict=True))) for row in self.tuples(result)]

    def answers_still(self) -> bool:
        """Return whether the connection seems intact, without a round trip."""
        if self.broken:
            return False
        if self._poll.poll(0):
            try:
                self._pg.consume_input()
            except psycopg.Error:
                return False
        return not self.broken

    def stop_preparing(self) -> None:
        """Send all statements unprepared from now on."""
        self._prepare = False
        self._prepared.clear()

    def close(self) -> None:
        """Close the connection."""
        self._expected.clear()
        self.raw.close()

    def _send(self, answers: Answers, *, before_last: bool) -> None:
        last = len(answers.statements) - 1
        for place, statement in enumerate(answers.statements):
            answers.all_sent = place == last
            if before_last and place == last:
                self._pg.send_flush_request()
            self._send_one(answers, place, statement)
        self._pg.pipeline_sync()
        self._expected.append(_Expected())

    def _send_one(self, answers: Answers, place: int, statement: BoundStatement) -> None:
        key = (statement.text, statement.types)
        name = self._prepared.get(key)
        if name is None and self._prepare and len(self._prepared) < _MOST_PREPARED:
            name = b"%s_%d" % (self._prefix, self._next_name)
            self._next_name += 1
            self._pg.send_prepare(name, statement.text, statement.types)
            self._expected.append(_Expected(key=key))
            self._prepared[key] = name
        if name is None:
            self._pg.send_query_params(
                statement.text, statement.values, statement.types, statement.formats, Format.BINARY
            )
        else:
            self._pg.send_query_prepared(name, statement.values, statement.formats, Format.BINARY)
        self._expected.append(_Expected(answers, place))

    def _flush(self, until: float) -> None:
        while self._pg.flush():
            self._wait(select.POLLIN | select.POLLOUT, until)
            self._pg.consume_input()

    def _wait(self, what: int, until: float) -> None:
        if what != select.POLLIN:
            self._poll.modify(self._pg.socket, what)
        try:
            left = until - monotonic()
            if left <= 0 or not self._poll.poll(left * 1000):
                raise _NoResponse("no answer in time")
        finally:
            if what != select.POLLIN:
                self._poll.modify(self._pg.socket, select.POLLIN)

    def _collect(self, answers: Answers, until: float) -> None:
        dead: psycopg.Error | None = None
        while self._expected:
            if dead is None and self._pg.is_busy():
                try:
                    self._wait(select.POLLIN, until)
                    self._pg.consume_input()
                except _NoResponse as error:
                    self.close()
                    raise Lost(answers, error) from error
                except psycopg.Error as error:
                    dead = error
                continue
            if not self._take():
                self.close()
                raise Lost(answers, dead)

    def _take(self) -> bool:
        """Read one result; return False if the server sends no more."""
        result = self._pg.get_result()
        first = self._expected[0]
        if result is None:
            if not first.came:
                # No statement runs, yet a result is missing: it will not arrive.
                return False
            self._expected.popleft()
            return True
        status = result.status
        if status == ExecStatus.PIPELINE_SYNC:
            self._expected.popleft()
            return True
        if status == ExecStatus.FATAL_ERROR and not result.error_field(DiagnosticField.SQLSTATE):
            return False
        first.came = True
        if first.key is not None:
            if status in _ERRORS:
                # Report the failed preparation as the statement's error.
                self._prepared.pop(first.key, None)
                if status == ExecStatus.FATAL_ERROR:
                    self._expected[1].fill(result)
        else:
            first.fill(result)
        return True
