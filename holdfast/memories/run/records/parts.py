"""The parts of a run, such as tasks, steps and agents, with their states.

Each is computed from the events of the run and stored with them, so that the parts of a run are
those that its followers have received.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds_or_none
from holdfast.memories.run.records.event import ENDS, REASONS, RunEvent
from holdfast.memories.run.records.record import MILLISECOND

PartKind = Literal["task", "step", "item", "node", "agent", "board_task"]
"""What a part is: an `item` is one of a step's list, a `node` one of a workflow."""

PartState = Literal["pending", "running", "waiting", "completed", "failed", "blocked", "cancelled"]
"""State of a part."""

PartKey: TypeAlias = tuple[str, str]
"""Kind and id of a part: a task and a step may have one id."""

SETTLED: Final = frozenset(("completed", "failed", "blocked", "cancelled"))
"""The states of a part that is over."""

_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_names: Final = msgspec.json.Decoder(tuple[str, ...])
_usage: Final = msgspec.json.Decoder(dict[str, Any])
_NO_NAMES: Final[tuple[str, ...]] = ()
_AGAIN: Final = 4_096
"""Parts of one event that have places of their own among all parts of the run."""


class RunPart(Struct, frozen=True, kw_only=True):
    """A part of a run, as it is now.

    `within` is the task of a step, the step of an item, the parent of a board task. `depends_on`
    are parts of its kind, or keys of inputs. `attempts` counts its starts, `cause` says why it
    failed, waits or is blocked.
    """

    id: str
    kind: PartKind
    title: str | None = None
    state: PartState = "pending"
    within: str | None = None
    depends_on: tuple[str, ...] = _NO_NAMES
    agent: str | None = None
    model: str | None = None
    attempts: int = 0
    cause: str | None = None
    usage: dict[str, Any] | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    def export(self) -> dict[str, Any]:
        """Return it as a dict of JSON."""
        return msgspec.to_builtins(self)


def part_from_wire(wire: object) -> RunPart:
    """Convert *wire* to a part."""
    return msgspec.convert(wire, RunPart)


class PartRow(Struct, frozen=True, kw_only=True):
    """A part as it is stored; `place` is in the order of the first events."""

    id: str
    kind: str
    title: str | None = None
    state: str = "pending"
    within: str | None = None
    depends_on: str = "[]"
    agent: str | None = None
    model: str | None = None
    attempts: int = 0
    cause: str | None = None
    usage: str | None = None
    place: int
    started_at: int | None = None
    ended_at: int | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The parts and inputs that it depends on."""
        return _names.decode(self.depends_on)

    def part(self) -> RunPart:
        """Return the public record."""
        facts: dict[str, Any] = asdict(self)
        del facts["place"]
        for name in ("started_at", "ended_at"):
            facts[name] = from_microseconds_or_none(facts[name])
        facts["usage"] = None if self.usage is None else _usage.decode(self.usage)
        facts["depends_on"] = self.needs
        return RunPart(**facts)


Parts: TypeAlias = dict[PartKey, PartRow]


class PartChange(Struct, frozen=True, kw_only=True):
    """Change of a part by an event: its new state, and facts in place of others."""

    id: str
    kind: PartKind
    state: PartState | None = None
    begins: bool = False
    facts: dict[str, Any] = {}


_STATES: Final[dict[str, PartState]] = {
    "created": "running",
    "started": "running",
    "retried": "running",
    "waiting": "waiting",
    "completed": "completed",
    "restored": "completed",
    "failed": "failed",
    "blocked": "blocked",
    "cancelled": "cancelled",
}
"""The state of a task, a step, an item or a node after each of its events."""

_BOARD: Final[dict[str, PartState]] = {
    "created": "pending",
    "claimed": "running",
    "working": "running",
    "blocked": "blocked",
    "released": "pending",
    "completed": "completed",
    "failed": "failed",
}
"""The state of a board task after each of its events."""

_AGENT: Final[dict[str, PartState]] = {
    "started": "running",
    "finished": "completed",
    "skipped": "cancelled",
}
"""The state of an agent after each of its events."""


def changes_of(event: RunEvent, parts: Mapping[PartKey, PartRow]) -> list[PartChange]:
    """Return the changes of *parts* that *event* tells, those of its own part last."""
    about, _, moment = event.type.partition(".")
    find = _RULES.get(about)
    return [] if find is None else find(event, moment, parts)


def _of_plan(event: RunEvent, moment: str, parts: Mapping[PartKey, PartRow]) -> list[PartChange]:
    del parts
    if moment != "ready":
        return []
    return [
        PartChange(id=id, kind=kind, facts={"depends_on": needs})
        for id, kind, needs in _listed(event.data.get("parts"), "task")
    ]


def _of_task(event: RunEvent, moment: str, parts: Mapping[PartKey, PartRow]) -> list[PartChange]:
    del parts
    if event.part is None or moment == "removed":
        return []
    state = _STATES.get(moment)
    if event.data.get("planned"):
        state = None
    steps = [
        PartChange(id=id, kind="step", facts={"within": event.part, "depends_on": needs})
        for id, _, needs in _listed(event.data.get("steps"), "step")
    ]
    begins = moment == "created" and state is not None
    return [*steps, _change(event, "task", state, begins=begins)]


def _of_step(event: RunEvent, moment: str, parts: Mapping[PartKey, PartRow]) -> list[PartChange]:
    state = _STATES.get(moment)
    if event.part is None or state is None:
        return []
    task, item = event.data.get("task"), event.data.get("item_index")
    kind: PartKind = "step"
    if item is not None:
        kind, task = "item", event.part.rpartition(".")[0]
    elif task is None or (task == event.part and ("node", event.part) in parts):
        kind, task = "node", None
    return [_change(event, kind, state, begins=moment == "started", within=_text(task))]


def _of_agent(event: RunEvent, moment: str, parts: Mapping[PartKey, PartRow]) -> list[PartChange]:
    del parts
    state = _AGENT.get(moment)
    if event.agent is None or state is None:
        return []
    reason = event.data.get("stop_reason")
    if moment == "finished" and reason == "waiting":
        state = "waiting"
    elif moment == "finished" and isinstance(reason, str):
        state = REASONS.get(reason, "completed")
    cause = reason if state == "failed" else None
    change = _change(event, "agent", state, begins=moment == "started", cause=_text(cause))
    return [replace(change, id=event.part or event.agent)]


def _of_board(event: RunEvent, moment: str, parts: Mapping[PartKey, PartRow]) -> list[PartChange]:
    del parts
    if event.part is None or moment not in _BOARD:
        return []
    begins, within = moment == "claimed", _text(event.data.get("parent"))
    change = _change(event, "board_task", _BOARD[moment], begins=begins, within=within)
    if moment in {"created", "released"}:
        # It has a creator, or a former claimant; neither works on it.
        change = replace(change, facts=change.facts | {"agent": None})
    return [change]


_Rule: TypeAlias = Callable[[RunEvent, str, Mapping[PartKey, PartRow]], list[PartChange]]

_RULES: Final[dict[str, _Rule]] = {
    "plan": _of_plan,
    "task": _of_task,
    "step": _of_step,
    "agent": _of_agent,
    "board": _of_board,
}


def _change(
    event: RunEvent,
    kind: PartKind,
    state: PartState | None,
    *,
    begins: bool,
    within: str | None = None,
    cause: str | None = None,
) -> PartChange:
    """Return the change of the part of *event*, with the facts that its data has."""
    data, needs = event.data, event.data.get("depends_on")
    cause = cause or _text(data.get("cause")) or _text(data.get("why"))
    facts: dict[str, Any] = {
        "title": _text(data.get("title")),
        "within": within,
        "depends_on": None if needs is None else _encode(_ids(needs)).decode(),
        "agent": event.agent or _text(data.get("by")),
        "model": _text(data.get("model")),
        "usage": _encode(data["usage"]).decode() if isinstance(data.get("usage"), dict) else None,
        "cause": cause if state in {"failed", "waiting", "blocked", "cancelled"} else None,
    }
    facts = {name: each for name, each in facts.items() if each is not None}
    if event.type == "step.retried":
        facts["attempts"] = _number(data.get("attempt")) + 1
    return PartChange(id=event.part or "", kind=kind, state=state, begins=begins, facts=facts)


def applied(part: PartRow, change: PartChange, at: int) -> PartRow:
    """Return *part* after *change* at *at*, in microseconds since 1970."""
    facts = change.facts
    state = change.state or part.state
    if change.begins:
        facts = {"attempts": part.attempts + 1, "started_at": at, "ended_at": None} | facts
    if state in SETTLED and (part.state != state or part.ended_at is None):
        facts = facts | {"ended_at": at}
    elif state not in SETTLED:
        facts = facts | {"ended_at": None}
    if state != part.state and "cause" not in facts:
        facts = facts | {"cause": None}
    return replace(part, state=state, **facts)


def add_parts(
    tx: Transaction, sql: SimpleNamespace, run_id: str, events: Sequence[RunEvent]
) -> None:
    """Apply *events*, which are stored in this transaction, to the parts of the run.

    What is running waits once the run waits, is pending once the run is queued, and is cancelled by
    the end of the run.
    """
    if emitted := [event for event in events if event.type.partition(".")[0] in _RULES]:
        _store(tx, sql, run_id, emitted)
    last = events[-1]
    if last.type in ENDS:
        tx.run(sql.end_parts, run=run_id, now=last.at * MILLISECOND)
    elif last.type == "run.waiting":
        tx.run(sql.rest_parts, run=run_id)
    elif last.type == "run.queued":
        tx.run(sql.requeue_parts, run=run_id)


def _store(tx: Transaction, sql: SimpleNamespace, run_id: str, events: Iterable[RunEvent]) -> None:
    named = _encode(sorted({id for event in events for id in _named(event)})).decode()
    there = tx.all(PartRow, sql.parts_named, run=run_id, ids=named)
    before: Parts = {(row.kind, row.id): row for row in there}
    parts = dict(before)
    for event in events:
        for number, change in enumerate(changes_of(event, parts)):
            key = (change.kind, change.id)
            place = event.seq * _AGAIN + min(number, _AGAIN - 1)
            part = parts.get(key) or PartRow(id=change.id, kind=change.kind, place=place)
            parts[key] = applied(part, change, event.at * MILLISECOND)
        if event.type == "task.removed":
            parts.pop(("task", event.part or ""), None)
    if changed := [part for key, part in parts.items() if before.get(key) != part]:
        tx.run_many(sql.set_part, [{"run": run_id, **asdict(part)} for part in changed])
    for kind, id in before.keys() - parts.keys():
        tx.run(sql.delete_part, run=run_id, kind=kind, id=id)


def _named(event: RunEvent) -> list[str]:
    """Return the ids of the parts that *event* may change."""
    listed = [*_listed(event.data.get("parts"), "task"), *_listed(event.data.get("steps"), "step")]
    own = [each for each in (event.part, event.agent) if each is not None]
    return [*own, *(id for id, _, _ in listed)]


def _listed(given: object, usual: PartKind) -> list[tuple[str, PartKind, str]]:
    """Return id, kind and needs (JSON) of each part that *given* lists."""
    found: list[tuple[str, PartKind, str]] = []
    for each in cast("list[object]", given) if isinstance(given, list) else ():
        if not isinstance(each, dict):
            continue
        facts = cast("dict[str, object]", each)
        id, kind = _text(facts.get("id")), facts.get("kind", usual)
        if id and kind in get_args(PartKind):
            needs = _encode(_ids(facts.get("depends_on"))).decode()
            found.append((id, cast("PartKind", kind), needs))
    return found


def _ids(given: object) -> list[str]:
    """Return the ids in *given*, the data of an event."""
    if not isinstance(given, list | tuple):
        return []
    named = (_text(each) for each in cast("Iterable[object]", given))
    return [each for each in named if each]


def _text(given: object) -> str | None:
    """Return *given* if it is text, without U+0000 and lone surrogates."""
    if not isinstance(given, str) or not given:
        return None
    return given.encode(errors="replace").decode().replace("\0", "�")


def _number(given: object) -> int:
    return given if isinstance(given, int) and 0 <= given < 2**31 else 0


class Touch(Struct, frozen=True):
    """A key that a part, or an agent where no part is known, read or wrote."""

    key: str
    by: str
    written: bool


class PartGraph:
    """What the parts of a run depend on: each other, and the keys that they read.

    >>> parts = [PartRow(id=id, kind="step", place=0) for id in "ab"]
    >>> graph = PartGraph(parts, [Touch("shared:x", "a", True), Touch("shared:x", "b", False)])
    >>> graph.affected(["shared:x"], ())
    {('step', 'b')}
    >>> sorted(graph.affected((), ["a"]))
    [('step', 'a'), ('step', 'b')]
    """

    def __init__(self, parts: Iterable[PartRow], touches: Iterable[Touch] = ()) -> None:
        self._parts: dict[PartKey, PartRow] = {(part.kind, part.id): part for part in parts}
        self._inner: dict[PartKey, list[PartKey]] = {}
        self._named: dict[str, list[PartKey]] = {}
        self._of_agent: dict[str | None, list[PartKey]] = {}
        for part, row in self._parts.items():
            self._named.setdefault(row.id, []).append(part)
            self._of_agent.setdefault(row.agent, []).append(part)
            if (outer := _container(row)) is not None:
                self._inner.setdefault(outer, []).append(part)
        self._needed_by: dict[str, set[PartKey]] = {}
        self._writes: dict[PartKey, set[str]] = {}
        for part, row in self._parts.items():
            inner = {result_of(each) for each in self._inner.get(part, ())}
            for key in (self._needs(part, row) | inner) - {result_of(part)}:
                self._needed_by.setdefault(key, set()).add(part)
        for touch in touches:
            for part in self._by(touch.by):
                if touch.written:
                    self._writes.setdefault(part, set()).add(touch.key)
                else:
                    self._needed_by.setdefault(touch.key, set()).add(part)

    def affected(self, changed: Iterable[str], again: Iterable[str]) -> set[PartKey]:
        """Return the parts of the ids *again*, and those that need a key of *changed*.

        What these write is changed as well, so that it holds for what needs that.
        """
        found: set[PartKey] = set()
        ahead = [part for key in changed for part in self._needed_by.get(key, ())]
        ahead += [part for id in again for part in self.within(self.named(id))]
        while ahead:
            part = ahead.pop()
            if part in found:
                continue
            found.add(part)
            for key in {result_of(part), *self._writes.get(part, ())}:
                ahead += self._needed_by.get(key, ())
        return found

    def named(self, id: str) -> list[PartKey]:
        """Return the parts of this id."""
        return list(self._named.get(id, ()))

    def resulting(self, key: str) -> list[PartKey]:
        """Return the parts of which *key* is the result."""
        return [part for part in self.named(key.partition(":")[2]) if result_of(part) == key]

    def within(self, parts: Iterable[PartKey]) -> set[PartKey]:
        """Return *parts* and what is within them."""
        found: set[PartKey] = set()
        ahead = list(parts)
        while ahead:
            part = ahead.pop()
            if part not in found:
                found.add(part)
                ahead += self._inner.get(part, ())
        return found

    def around(self, parts: Iterable[PartKey]) -> set[PartKey]:
        """Return *parts* and what they are within."""
        found = set(parts)
        for part in list(found):
            row: PartRow | None = self._parts.get(part)
            while row is not None and (outer := _container(row)) is not None:
                found.add(outer)
                row = self._parts.get(outer)
        return found

    def _by(self, name: str) -> list[PartKey]:
        """Return the parts called *name*, else those that the agent *name* works on."""
        found = [part for part in self.named(name) if part[0] != "task"]
        return found or list(self._of_agent.get(name, ()))

    def _needs(self, part: PartKey, row: PartRow) -> set[str]:
        """Return the keys that *part* depends on by itself: results of others, and inputs.

        A step needs the tasks that its own needs, an item what its step does.
        """
        outer = _container(row)
        whole = None if outer is None else self._parts.get(outer)
        found = {self._key_of(part[0], need) for need in row.needs}
        if outer is None or whole is None or part[0] == "board_task":
            return found
        if part[0] == "step":
            return found | {f"task:{need}" for need in whole.needs}
        return found | self._needs(outer, whole)

    def _key_of(self, kind: str, need: str) -> str:
        if kind in {"task", "board_task"}:
            return f"task:{need}"
        known = ("node" if kind == "node" else "step", need) in self._parts
        return f"step:{need}" if known else f"input:{need}"


def _container(row: PartRow) -> PartKey | None:
    """Return the part that *row* is within."""
    if row.within is None:
        return None
    kinds = {"step": "task", "item": "step"}
    return kinds.get(row.kind, row.kind), row.within


def result_of(part: PartKey) -> str:
    """Return the key of the result of *part*."""
    kind, id = part
    return f"task:{id}" if kind in {"task", "board_task"} else f"step:{id}"


def fact_key(part: PartKey) -> str:
    """Return the key of the fact that *part* is completed."""
    return f"task:{part[1]}" if part[0] == "task" else part[1]


def call_number(part: PartKey) -> int:
    """Return the number of a call of an agent, as in `ada.3`; -1 for other parts."""
    index = part[1].rpartition(".")[2]
    return int(index) if part[0] == "agent" and index.isascii() and index.isdigit() else -1
