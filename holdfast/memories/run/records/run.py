"""The record of a run of any kind: what it is, its status, and how it ended."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, Self, TypeAlias, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, force_setattr, replace

from holdfast.ground.clock import from_microseconds, to_microseconds
from holdfast.ground.errors import Conflict, InvalidInput, LimitExceeded
from holdfast.ground.json_values import JSON
from holdfast.ground.validation import check_one_of, check_text, is_list
from holdfast.memories.run.entry import RunEntry, RunLimits, checked_version
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import Ending
from holdfast.memories.state import message
from holdfast.memories.state.frozen import kept
from holdfast.memories.state.message import from_text, to_milliseconds, to_text
from holdfast.memories.state.result import NO_USAGE, Usage
from holdfast.memories.state.serialize import FORMAT, VERSION
from holdfast.memories.state.state import NetworkState

RunKind = Literal[
    "step", "task", "plan", "team", "workflow", "network", "agent", "session", "memory"
]
"""What runs; `memory` is a run memory that was only attached."""

RunStatus = Literal["queued", "running", "waiting", "lost", "completed", "failed", "cancelled"]
"""Status of a run; `lost`: it was running, and its lease ran out."""

KINDS: Final[tuple[str, ...]] = get_args(RunKind)
STATUSES: Final[tuple[str, ...]] = get_args(RunStatus)
ENDINGS: Final[tuple[str, ...]] = get_args(Ending)

Statuses: TypeAlias = RunStatus | Iterable[RunStatus] | None
"""One status, several, or None for all."""

MOST_BYTES: Final = 16_777_216
"""Limit of a record as JSON."""

METADATA_MOST: Final = 16
"""Pairs of metadata; as those of a store they have at most 64 and 512 characters."""

NO_METADATA: Final[dict[str, str]] = {}
NO_PARTS: Final[dict[str, int]] = {}

_ID: Final = re.compile(r"[A-Za-z0-9_.:@+-]{1,128}")
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Run(Struct, frozen=True, kw_only=True):
    """A run of any kind, such as a plan, a network or an agent.

    `place` is the process that has it, `fence` the number of times that it was acquired, `seen_at`
    its last sign of life. `forked_from` is the run, and its version, of which it is a fork. `parts`
    counts its parts by state; `entries` and `bytes` are the size of its memory, `versions` is the
    number of its newest version; `questions` are the ids of its open questions. `extras` has more
    JSON members that the run stores.
    """

    id: str
    kind: RunKind
    name: str
    definition: str | None = None
    agent: str | None = None
    status: RunStatus = "running"
    reason: str | None = None
    detail: str | None = None
    error: dict[str, JSON] | None = None
    thread_id: str | None = None
    parent_id: str | None = None
    forked_from: tuple[str, int] | None = None
    queue: str | None = None
    priority: int | None = None
    metadata: dict[str, str] = NO_METADATA
    started_at: datetime
    seen_at: datetime | None = None
    ended_at: datetime | None = None
    place: str | None = None
    fence: int = 0
    usage: Usage = NO_USAGE
    parts: dict[str, int] = NO_PARTS
    entries: int = 0
    bytes: int = 0
    versions: int = 0
    questions: tuple[str, ...] = ()
    extras: dict[str, JSON] = message.NO_EXTRAS

    def __post_init__(self) -> None:
        """Check every field; InvalidInput names the one that is wrong."""
        checked_run_id("id", self.id)
        message.one_of("kind", self.kind, KINDS)
        message.checked_name("name", self.name)
        message.one_of("status", self.status, STATUSES)
        for name in ("definition", "agent"):
            checked_run_name_or_none(name, getattr(self, name))
        for name in ("thread_id", "parent_id"):
            checked_run_id_or_none(name, getattr(self, name))
        force_setattr(self, "forked_from", _forked_from(self.forked_from))
        for name in ("reason", "detail", "queue", "place"):
            message.text_or_none(name, getattr(self, name))
        message.whole_or_none("priority", self.priority)
        for name in ("fence", "entries", "bytes", "versions"):
            message.whole(name, getattr(self, name))
        force_setattr(self, "questions", tuple(self.questions))
        for each in self.questions:
            message.text("questions", each)
        force_setattr(self, "error", _error(self.error))
        force_setattr(self, "metadata", checked_metadata(self.metadata))
        self._set_instants()
        force_setattr(self, "extras", message.extra_members(self.extras, _FIELDS))

    def _set_instants(self) -> None:
        """Cut the instants to milliseconds; the last sign of life may be the end."""
        if self.ended != (self.ended_at is not None):
            raise InvalidInput("ended_at", "must be given when the run has ended, and only then")
        seen_at = self.seen_at or self.ended_at or self.started_at
        for name, each in (("started_at", self.started_at), ("seen_at", seen_at)):
            force_setattr(self, name, to_milliseconds(name, each))
        if self.ended_at is not None:
            force_setattr(self, "ended_at", to_milliseconds("ended_at", self.ended_at))

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.status in ENDINGS

    @property
    def network(self) -> str | None:
        """The name of the network that runs; None for other kinds."""
        return self.name if self.kind == "network" else None

    @classmethod
    def from_dict(cls, given: object) -> Self:
        """Convert the dict *given* to a record; unknown members go to `extras`."""
        with message.whole_is("record"):
            members = message.gathered(message.members(given), _FIELDS)
        for name in ("started_at", "seen_at", "ended_at"):
            if isinstance(members.get(name), str):
                members = {**members, name: from_text(name, members[name])}
        if "usage" in members and not isinstance(members["usage"], Usage):
            with message.inside("usage"):
                members = {**members, "usage": Usage.from_dict(members["usage"])}
        return message.made(cls, members, ("id", "kind", "name", "started_at"))

    def export(self) -> dict[str, Any]:
        """Return it as a dict of JSON, each of `extras` beside the fields."""
        wire = asdict(self)
        extras = wire.pop("extras")
        wire["usage"] = self.usage.export()
        wire["questions"] = list(self.questions)
        for name in ("started_at", "seen_at", "ended_at"):
            wire[name] = None if wire[name] is None else to_text(wire[name])
        return wire | extras


_FIELDS: Final = frozenset(Run.__struct_fields__) - {"extras"}

_STORED: Final = (
    *("seen_at", "forked_from", "place", "fence", "parts", "entries", "bytes"),
    *("versions", "questions"),
)
"""Fields that the storage fills in, whatever a record says."""

_LATER: Final = ("reason", "detail", "error", "thread_id", "usage", "extras")
"""Fields that the record of an ended run may still get, where it has none."""


def run_to_wire(run: Run) -> dict[str, Any]:
    """Return *run* as the JSON object of the wire."""
    return run.export()


_QUEUED: Final = ("definition", "queue", "priority", "metadata")
"""Fields of a queued run that a record of it may leave out."""


def merged(held: Run, given: Run) -> Run:
    """Return the record of an ended run *held* with what *given* adds to it.

    Raise `Conflict` if *given* says otherwise.
    """
    given = replace(
        given, **{name: getattr(given, name) or getattr(held, name) for name in _QUEUED}
    )
    if given.status != held.status:
        raise already_ended(held.id)
    stored = {name: getattr(held, name) for name in _STORED}
    added = {
        name: getattr(given, name)
        for name in _LATER
        if getattr(held, name) == _default(name) != getattr(given, name)
    }
    if held.started_at <= given.started_at and held.kind == given.kind:
        stored["started_at"] = held.started_at
    if replace(given, **stored, ended_at=held.ended_at) != replace(held, **added):
        raise already_ended(held.id)
    return replace(held, **added)


def _default(name: str) -> object:
    return {"usage": NO_USAGE, "extras": message.NO_EXTRAS}.get(name)


def already_ended(run_id: str) -> Conflict:
    """Return the error for a run that ended with another record."""
    return Conflict(
        f"The run {run_id} has ended, and its record is another.",
        reason="ended",
        next="Use a new run_id to run it again.",
    )


class RunFilter(Struct, frozen=True, kw_only=True):
    """Filters of a list of runs; None is no filter, *status* is one or several."""

    status: Statuses = None
    kind: RunKind | None = None
    definition: str | None = None
    thread: str | None = None
    parent: str | None = None
    queue: str | None = None
    since: datetime | None = None

    def __post_init__(self) -> None:
        """Raise `InvalidInput` for a filter that no run can pass."""
        checked_statuses(self.status)
        if self.kind is not None:
            message.one_of("kind", self.kind, KINDS)
        checked_run_name_or_none("definition", self.definition)
        checked_run_name_or_none("queue", self.queue)
        checked_run_id_or_none("thread", self.thread)
        checked_run_id_or_none("parent", self.parent)
        if self.since is not None:
            force_setattr(self, "since", to_milliseconds("since", self.since))

    @property
    def may_be_queued(self) -> bool:
        """Whether it names runs that are queued, which a question that is due may make."""
        return "queued" in checked_statuses(self.status)

    def params(self) -> dict[str, object]:
        """Return the parameters of a statement; '' is no filter."""
        return {
            "statuses": _encode(checked_statuses(self.status) or STATUSES).decode(),
            "kind": self.kind or "",
            "definition": self.definition or "",
            "parent": self.parent or "",
            "queue": self.queue or "",
            "since": 0 if self.since is None else to_microseconds(self.since),
        }


def checked_statuses(given: object) -> tuple[str, ...]:
    """Return the statuses *given*, one or several, in order; InvalidInput for another."""
    if given is None:
        return ()
    statuses: Iterable[object] = given if is_list(given) else (given,)
    reason = f"must be {', '.join(STATUSES)}"
    return tuple(sorted(str(check_one_of("status", each, STATUSES, reason)) for each in statuses))


def checked_ending(given: object) -> Ending:
    """Return *given* if it is a final status of a run; else InvalidInput."""
    reason = f"must be {' or '.join(ENDINGS)}"
    return cast("Ending", check_one_of("status", given, ENDINGS, reason))


def checked_run_id(field: str, given: object) -> str:
    """Validate the id of a run or a thread; raise `InvalidInput`."""
    if not isinstance(given, str) or not _ID.fullmatch(given):
        reason = "must be 1 to 128 of the characters A-Z a-z 0-9 _ . : @ + -"
        raise InvalidInput(field, reason, limit=128, given=given)
    return given


def checked_run_id_or_none(field: str, given: object) -> str | None:
    """Validate the id of a run or a thread, or None."""
    return None if given is None else checked_run_id(field, given)


def checked_run_name_or_none(field: str, given: object) -> str | None:
    """Validate the name of a run, a network or an agent, or None."""
    return None if given is None else message.checked_name(field, given)


def checked_metadata(given: object) -> dict[str, str]:
    """Return *given* if it is metadata of a run: at most 16 short pairs of text."""
    if not isinstance(given, Mapping):
        raise InvalidInput("metadata", "must be an object of strings", given=given)
    pairs = cast("Mapping[object, object]", given)
    if len(pairs) > METADATA_MOST:
        reason = f"must have at most {METADATA_MOST} pairs, has {len(pairs)}"
        raise InvalidInput("metadata", reason, limit=METADATA_MOST)
    return {
        check_text("metadata", key, least=1, most=64, part="a key "): check_text(
            "metadata", value, most=512, part="a value "
        )
        for key, value in pairs.items()
    }


def _error(given: object) -> dict[str, JSON] | None:
    """Return *given*, the name and the message of an error, read-only.

    Raise `InvalidInput` for other values.
    """
    if given is None:
        return None
    found = kept(given, "error")
    if not isinstance(found, dict) or found.keys() != {"name", "message"}:
        raise InvalidInput("error", "must hold name and message, and nothing else")
    for name, text in found.items():
        message.text(f"error.{name}", text)
    return found


def _forked_from(given: object) -> tuple[str, int] | None:
    """Return *given*, a run and a number of a version of it."""
    if given is None:
        return None
    match list(given) if is_list(given) else []:
        case [run_id, version]:
            return checked_run_id("forked_from", run_id), message.whole("forked_from", version)
        case _:
            raise InvalidInput("forked_from", "must be the id of a run and a version", given=given)


class StoredFacts(Struct, frozen=True, kw_only=True):
    """The facts of a run that are stored as JSON, or as text that may be long."""

    detail: str | None
    error: str | None
    usage: str | None
    extras: str | None


def stored_facts(run: Run) -> StoredFacts:
    """Encode the facts of *run*; raise `LimitExceeded` if they are too large."""
    facts = StoredFacts(
        detail=run.detail,
        error=None if run.error is None else _encode(run.error).decode(),
        usage=None if run.usage == NO_USAGE else _encode(run.usage.export()).decode(),
        extras=_encode(run.extras).decode() if run.extras else None,
    )
    size = sum(len(each.encode()) for each in asdict(facts).values() if each is not None)
    if size > MOST_BYTES:
        raise LimitExceeded("run_bytes", allowed=MOST_BYTES, actual=size, what=run.id)
    return facts


class RunVersion(Struct, frozen=True, kw_only=True):
    """A version of a run: when and why it was stored, and by which part and agent.

    `changed` names the keys that it changed, 1,000 at most; `bytes` is the size of what it stored.
    `gaps` counts the changes of it that were forgotten.
    """

    number: int
    at: datetime
    cause: str
    part: str | None = None
    agent: str | None = None
    changed: tuple[str, ...] = ()
    bytes: int = 0
    fence: int = 0
    gaps: int = 0

    def export(self) -> dict[str, Any]:
        """Return it as a dict of JSON."""
        return {**asdict(self), "at": to_text(self.at)}


class RunVersionRow(Struct, frozen=True, kw_only=True):
    """A version as it is stored."""

    number: int
    at: int
    cause: str
    part: str | None
    agent: str | None
    changed: str
    bytes: int
    fence: int
    gaps: int

    def record(self) -> RunVersion:
        """Return the public record."""
        facts: dict[str, Any] = {
            **asdict(self),
            "at": from_microseconds(self.at),
            "changed": _names.decode(self.changed),
        }
        return RunVersion(**facts)


_names: Final = msgspec.json.Decoder(tuple[str, ...])

When: TypeAlias = Literal["before", "after"]
"""Whether a state is that before a part began, or after its last version."""

PART_MOST: Final = 4_096
"""Characters of the id of a part."""


class VersionChoice(Struct, frozen=True, kw_only=True):
    """A version of a run: *version*, else the newest one; that before or after *part*."""

    version: int | None = None
    part: str | None = None
    when: When = "after"

    def __post_init__(self) -> None:
        """Raise `InvalidInput` for what no version can be."""
        if self.version is not None:
            checked_version("version", self.version)
        if self.part is not None:
            check_text("part", self.part, most=PART_MOST)
        check_one_of("when", self.when, get_args(When))


UNLIMITED: Final = RunLimits(value_bytes=2**53, entries=2**53, total_bytes=2**53)
"""The limits of a copy of what a run held: those of the run are not known."""


class RunState(Struct, frozen=True, kw_only=True):
    """What a run knew at the version *number*: detached copies.

    `state` has the values of a network; its results are those of the thread. `parts` are the facts
    of each part by id, `board` and `messages` the tasks and messages of a team, `pending` the parts
    that are not over.
    """

    number: int
    memory: RunMemory
    state: NetworkState | None = None
    parts: dict[str, JSON]
    board: list[JSON]
    messages: list[JSON] = message.NO_ITEMS
    pending: tuple[str, ...] = ()

    def export(self) -> dict[str, Any]:
        """Return it as a dict of JSON."""
        entries = self.memory.snapshot()
        return {
            "number": self.number,
            "run_id": self.memory.run_id,
            "entries": [each.to_wire() | {"value": each.value} for each in entries],
            "state": None if self.state is None else self.state.to_dict(),
            "parts": self.parts,
            "board": self.board,
            "messages": list(self.messages),
            "pending": list(self.pending),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Convert the dict *given*, as of `export`, to a state."""
        memory = RunMemory(run_id=given["run_id"], limits=UNLIMITED)
        memory.restore(given["entries"])
        state = None if given["state"] is None else NetworkState.from_dict(given["state"])
        facts = {name: given[name] for name in ("number", "parts", "board", "messages")}
        return cls(memory=memory, state=state, pending=tuple(given["pending"]), **facts)


def detached(
    run_id: str,
    number: int,
    entries: Iterable[RunEntry],
    facts: Mapping[tuple[Any, str], bytes],
) -> RunState:
    """Return the state of a run with *entries* and other *facts*."""
    bodies: dict[str, dict[str, JSON]] = {}
    for (kind, key), body in facts.items():
        if kind != "entry":
            bodies.setdefault(kind, {})[key] = msgspec.json.decode(body)
    memory = RunMemory(run_id=run_id, limits=UNLIMITED)
    memory.restore(entries)
    parts, values = bodies.get("part", {}), bodies.get("value")
    return RunState(
        number=number,
        memory=memory,
        state=None if values is None else _network_state(values),
        parts=parts,
        board=list(bodies.get("board", {}).values()),
        messages=list(bodies.get("message", {}).values()),
        pending=tuple([id for id, body in parts.items() if _state_of(body) not in _OVER]),
    )


_OVER: Final = frozenset(("completed", "failed", "blocked", "cancelled"))


def _state_of(body: JSON) -> object:
    return body.get("state") if isinstance(body, dict) else None


def _network_state(values: Mapping[str, JSON]) -> NetworkState:
    """Return a state with *values*, each with its version and origin."""
    cells = [
        dict.fromkeys(_CELL) | _TIMES | {"key": key} | cast("dict[str, JSON]", body)
        for key, body in values.items()
    ]
    revision = max([cast("int", cell["version"]) for cell in cells], default=0)
    wire = {"values": cells, "revision": revision, "thread_id": None, "messages": [], "results": []}
    return NetworkState.from_dict({"format": FORMAT, "version": VERSION, **wire})


_CELL: Final = ("agent", "run_id", "tool", "call_id")
_EPOCH: Final = to_text(from_microseconds(0))
_TIMES: Final[dict[str, JSON]] = {"version": 1, "created_at": _EPOCH, "updated_at": _EPOCH}
