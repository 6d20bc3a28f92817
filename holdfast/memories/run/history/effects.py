"""Effects of tool calls that happen once, however often a call is made again.

The write of a call and a row with its result are one transaction. When the call is made again, as
after a crash, the write returns the first result and changes nothing. So it is with a version whose
save comes twice, as over HTTP.
"""

import sys
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime
from threading import Lock
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct

from holdfast.engines.base import WRITES, Engine, Transaction, scalar
from holdfast.ground.clock import Clock, from_microseconds, to_microseconds
from holdfast.ground.errors import Conflict, StaleRun
from holdfast.ground.events import EventBus
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.pages import NEWEST
from holdfast.memories.run.history.turns import open_turns
from holdfast.memories.run.history.versions import (
    CHANGED_MOST,
    SavedVersion,
    VersionRows,
    VersionSave,
    bytes_of,
    completed,
    saved,
    state_at,
)
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.read import AT_ONCE, EventRow
from holdfast.memories.run.records.record import MILLISECOND, RunRow, RunsContext
from holdfast.memories.run.records.run import RunVersionRow
from holdfast.memories.run.records.write import PACKAGE, statements

T = TypeVar("T")

_EFFECTS: Final = REGISTRY.counter(
    "run_effects_total",
    "Writes of tool calls in runs.",
    outcome=("written", "repeated", "refused"),
)

OUTCOME_BYTES: Final = 65_536
"""Bytes of a stored result as JSON; of a larger one only that it was written."""

_OPAQUE: Final = '{"opaque":true}'
_PACKAGE: Final = "holdfast."
_encode: Final = msgspec.json.Encoder().encode


class EffectOwner(Struct, frozen=True, kw_only=True, eq=False):
    """The owner of a run in this process; *bus* is that of its database's engine."""

    holder: str
    fence: int
    workspace: str
    bus: EventBus | None
    clock: Clock


class _Locked(Struct, frozen=True, kw_only=True):
    workspace: str
    holder: str | None
    fence: int


_owned: Final[dict[str, list[EffectOwner]]] = {}
_lock: Final = Lock()

RESTS: Final = frozenset(("run.waiting", "run.queued"))
"""The types of events with which a run leaves its process."""


def own(run_id: str, owner: EffectOwner) -> Callable[[], None]:
    """Register that *owner* has the run *run_id*; return the end of that."""
    with _lock:
        _owned.setdefault(run_id, []).append(owner)

    def release() -> None:
        with _lock:
            owners = _owned.get(run_id, [])
            if owner in owners:
                owners.remove(owner)
            if not owners:
                _owned.pop(run_id, None)

    return release


@contextmanager
def effects_of(run_id: str, call: str) -> Generator[None]:
    """Let each write within the block happen once in the run, as effects of *call*.

    It holds for writes to the database that has the record of the run, while this process owns it.
    """
    token = WRITES.set(_Effects(run_id, call).once)
    try:
        yield
    finally:
        WRITES.reset(token)


class _Effects:
    """The effects of one call, each known by the name of its write."""

    def __init__(self, run_id: str, call: str) -> None:
        self._run_id, self._call = run_id, call
        self._met: Counter[str] = Counter()

    def once(self, work: Callable[[Transaction], T], engine: Engine) -> Callable[[Transaction], T]:
        """Return *work* as one that happens once."""
        with _lock:
            owners = tuple(_owned.get(self._run_id, ()))
        if not owners:
            return work
        name = getattr(work, "__qualname__", type(work).__name__).partition(".")[0]
        self._met[name] += 1
        facts = {"run": self._run_id, "key": f"{self._call}/{name}.{self._met[name]}"}

        def effect(tx: Transaction) -> T:
            sql = engine.queries(PACKAGE)
            locked = tx.first(_Locked, sql.lock_owner, run=self._run_id)
            owner = None if locked is None else _owner_of(locked, owners, engine)
            if owner is None:
                # The memory is not where the record of the run is.
                return work(tx)
            known = tx.first(scalar, sql.get_effect, **facts)
            if known is not None:
                tx.after_commit(lambda: _EFFECTS.add("repeated"))
                return cast("T", _result(known, facts["key"]))
            value = work(tx)
            now = to_microseconds(owner.clock.now())
            tx.run(sql.add_effect, fence=owner.fence, now=now, outcome=_outcome(value), **facts)
            tx.after_commit(lambda: _EFFECTS.add("written"))
            return value

        return effect


def _owner_of(locked: _Locked, owners: Iterable[EffectOwner], engine: Engine) -> EffectOwner | None:
    """Return which of *owners* has the run; None if it is another run of the same id.

    Raise StaleRun where they had it. Its owner may write through another engine of its database.
    """
    now = (locked.holder, locked.fence)
    here = [
        each
        for each in owners
        if (each.holder, each.fence) == now
        or (each.bus is engine.events and each.workspace == locked.workspace)
    ]
    for each in here:
        if (each.holder, each.fence) == now:
            return each
    if here:
        _EFFECTS.add("refused")
        token = max(each.fence for each in here)
        raise StaleRun("superseded", token=token, live_token=locked.fence)
    return None


class _OpaqueValue(Exception):
    """A value that has no form as JSON."""


def _outcome(value: object) -> str:
    try:
        stored = _encode({"value": _written(value)}).decode()
    except (_OpaqueValue, msgspec.MsgspecError, UnicodeEncodeError, TypeError):
        return _OPAQUE
    return stored if len(stored.encode()) <= OUTCOME_BYTES else _OPAQUE


def _result(outcome: str, key: str) -> object:
    """Return the stored result; raise `Conflict` where only its write is known."""
    stored = msgspec.json.decode(outcome)
    if "value" not in stored:
        raise Conflict(
            f"The call {key} was made before, and its write is done.",
            reason="done",
            next="Read what it wrote; do not call again.",
        )
    return _read(stored["value"])


def _written(value: Any) -> Any:
    """Return *value* as JSON in which each object names its type."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Struct):
        fields = value.__struct_fields__
        return {"of": _name_of(value), "fields": _all(getattr(value, each) for each in fields)}
    if isinstance(value, tuple) and hasattr(cast("object", value), "_fields"):
        return {"of": _name_of(cast("object", value)), "fields": _all(cast("Any", value))}
    if isinstance(value, datetime):
        return {"at": to_microseconds(value)}
    return _several(value)


def _several(value: Any) -> dict[str, Any]:
    """Return bytes or several values as JSON."""
    if isinstance(value, bytes):
        return {"bytes": b64encode(value).decode()}
    if type(value) is dict:
        return {"dict": [_all(pair) for pair in cast("dict[Any, Any]", value).items()]}
    name = next((name for kind, name in _SEVERAL.items() if type(value) is kind), None)
    if name is None:
        raise _OpaqueValue
    return {name: _all(value)}


_SEVERAL: Final[dict[type, str]] = {
    list: "list",
    tuple: "tuple",
    frozenset: "frozenset",
    set: "set",
}


def _all(values: Iterable[Any]) -> list[Any]:
    return [_written(each) for each in values]


def _name_of(value: object) -> str:
    kind = type(value)
    if not kind.__module__.startswith(_PACKAGE) or "<" in kind.__qualname__:
        raise _OpaqueValue
    return f"{kind.__module__}:{kind.__qualname__}"


def _read(stored: Any) -> Any:
    """Return the value that `_written` made *stored* of."""
    if not isinstance(stored, dict):
        return stored
    given = cast("dict[str, Any]", stored)
    if "of" in given:
        return _made(str(given["of"]), [_read(each) for each in given["fields"]])
    if "at" in given:
        return from_microseconds(given["at"])
    if "bytes" in given:
        return b64decode(given["bytes"])
    if "dict" in given:
        return {_read(key): _read(value) for key, value in given["dict"]}
    ((name, values),) = given.items()
    kind: Any = next(kind for kind, each in _SEVERAL.items() if each == name)
    return kind(_read(each) for each in values)


def _made(name: str, values: list[Any]) -> object:
    """Return the object of the type *name*, one of ours, with *values*."""
    module, _, path = name.partition(":")
    kind: Any = sys.modules.get(module) if module.startswith(_PACKAGE) else None
    for each in path.split("."):
        kind = getattr(kind, each, None)
    if not isinstance(kind, type):
        raise Conflict(f"{name} is no type of a result.", reason="done", next="Do not call again.")
    if issubclass(kind, Struct):
        return kind(**dict(zip(kind.__struct_fields__, values, strict=True)))
    return kind(*values)


def save_once(context: RunsContext, save: VersionSave) -> SavedVersion:
    """Store *save* as `save_version` does; a repeat does nothing."""

    def work(tx: Transaction) -> SavedVersion:
        if save.cause is None or save.after is None:
            return saved(context, tx, save)
        sql, number = statements(context), save.after + 1
        run = tx.first(RunRow, sql.lock_run, run=save.run_id)
        there = {"run": save.run_id, "before": number + 1, "rows": 1}
        found = tx.first(RunVersionRow, sql.list_versions, **there)
        if run is None or found is None or found.number != number or not _is_of(found, save):
            return saved(context, tx, save)
        rows = tx.all(EventRow, sql.events_after, run=run.id, after=save.seq, rows=AT_ONCE)
        events = _stored_with(number, [row.event(run) for row in rows])
        return SavedVersion(number=number, events=events)

    return context.engine.write(work)


def replace_once(context: RunsContext, save: VersionSave) -> SavedVersion:
    """Store *save* as `VersionRows.replace` does; a repeat does nothing."""

    def work(tx: Transaction) -> SavedVersion:
        sql = statements(context)
        found = tx.first(RunVersionRow, sql.list_versions, run=save.run_id, before=NEWEST, rows=1)
        if found is not None and _is_at(found, save) and _is_whole(tx, sql, save):
            return SavedVersion(number=found.number)
        return VersionRows(context).replaced(tx, save)

    return context.engine.write(work)


def _is_at(found: RunVersionRow, save: VersionSave) -> bool:
    """Return whether *found* was stored when, for what and by whom *save* is."""
    facts = (found.at, found.cause, found.part, found.agent, found.fence)
    return facts == (save.at * MILLISECOND, save.cause, save.part, save.agent, save.fence)


def _is_of(found: RunVersionRow, save: VersionSave) -> bool:
    """Return whether *found* is the version that *save* is stored as."""
    names = tuple(save.changed)[:CHANGED_MOST]
    same = found.record().changed == names and found.bytes == bytes_of(save)
    return same and _is_at(found, save)


def _is_whole(tx: Transaction, sql: SimpleNamespace, save: VersionSave) -> bool:
    """Return whether the run has the facts and messages of *save*, and no others."""
    given = {(row.kind, row.key): row.body for row in save.rows}
    state = state_at(tx, sql, save.run_id)
    there = open_turns(tx, sql, save.run_id, completed(state))
    turns = sorted(save.turns, key=lambda turn: (turn.part, turn.n))
    return state == given and there == turns


_WITH: Final = frozenset(("version.kept", "question.asked", "version.folded"))


def _stored_with(number: int, events: Iterable[RunEvent]) -> tuple[RunEvent, ...]:
    """Return those of *events* that were stored with the version *number*."""
    found: list[RunEvent] = []
    for event in events:
        if event.type == "version.kept":
            if found:
                break
            found = [event] if event.data.get("version") == number else []
        elif found:
            if event.type not in _WITH and event.type not in RESTS:
                break
            found.append(event)
            if event.type in RESTS:
                break
    return tuple(found)
