"""Operations of durable memory: entries, history, limits, runs, and a workspace."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.validation import check_limit
from holdfast.library.erasure import ForgetReport
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.base import (
    AT,
    MIB,
    Operation,
    OperationTable,
    Param,
    WireForm,
    field_form,
)
from holdfast.memories.durable.history import CHANGE
from holdfast.memories.durable.hydration import Hydration, checked_budget
from holdfast.memories.durable.memory import DurableEntries, DurableMemory, DurableRun
from holdfast.memories.durable.read import LISTED, MOST_LISTED
from holdfast.memories.durable.records import (
    AgentSummary,
    DurableEntry,
    DurableLimits,
    EntryChange,
    EntryFields,
    Explanation,
    LimitsChanged,
    RunEnded,
    StoredEntry,
    Swept,
    to_milliseconds_text,
)
from holdfast.memories.durable.runs import OpenRun
from holdfast.memories.durable.validation import checked_idempotency_key, checked_key, checked_tags
from holdfast.memories.durable.wire import entry_to_wire, from_wire
from holdfast.memories.durable.write import PromotionSource

R = TypeVar("R", bound=Struct)

LIMIT: Final = 4 * MIB
_DIGITS: Final = 18
_SECOND: Final = timedelta(seconds=1)

AGENT: Final = "/api/durable/{agent}"
_ENTRIES: Final = f"{AGENT}/entries"
_ENTRY: Final = f"{_ENTRIES}/{{key}}"
_RUN: Final = f"{AGENT}/runs/{{run_id}}"
_SETTINGS: Final = "/api/settings/durable"


def _form(make: type[R]) -> WireForm[R]:
    return WireForm(entry_to_wire, partial(from_wire, make))


ENTRY: Final = _form(DurableEntry)
STORED: Final = _form(StoredEntry)
LIMITS: Final = _form(DurableLimits)
CHANGED: Final = _form(LimitsChanged)
SWEPT: Final = _form(Swept)
HYDRATION: Final = _form(Hydration)


class PutEntry(EntryFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole entry.

    `promoted_from` is the source of its content, `origin_ref` where one from outside came from,
    `subject` the person that it is about.
    """

    tags: list[str] = field(default_factory=list[str])
    refresh: bool = True
    expected_seq: int | UnsetType | None = UNSET
    promoted_from: str | PromotionSource | None = None
    subject: str | None = None
    origin_ref: str | None = None


class PostEntries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Entries to write in one transaction, in their order."""

    entries: list[Any]
    on_error: str = "abort"
    refresh: bool = True


class Restore(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The change with the content to restore."""

    seq: int


class EndRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run ended."""

    outcome: str = "ok"


class ForgetOwner(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent or the user to forget, and what is done about names elsewhere."""

    agent: str | None = None
    user: str | None = None
    names: list[str] = []
    mentions: str = "report"
    receipt: bool = True


SetLimits = msgspec.defstruct(
    "SetLimits",
    [
        *((name, int | UnsetType | None, UNSET) for name in DurableLimits.__struct_fields__),
        ("evict", bool, False),
    ],
    namespace={
        "__doc__": "The limits to set; null removes one, `evict` evicts entries beyond a new cap."
    },
    forbid_unknown_fields=True,
)


def _since(given: object) -> str | None:
    """Encode *given* for a query: an aware datetime, a timedelta, or None."""
    if given is None or given == "":
        return None
    if isinstance(given, timedelta) and given >= timedelta(0):
        return f"{given / _SECOND:.6f}s"
    if isinstance(given, datetime) and given.tzinfo is not None:
        return given.isoformat()
    raise InvalidInput(
        "since", "must be an aware datetime, or a timedelta back from now", given=given
    )


def _checked_budget(given: int | None) -> int | None:
    checked_budget(given)
    return given


def _tags(given: Iterable[str] | None) -> list[str]:
    return list(checked_tags(given or ()))


def _seq_text(given: object) -> str:
    if not isinstance(given, int) or isinstance(given, bool):
        raise InvalidInput("seq", "must be the number of a change", given=given)
    return str(given)


def _seq(digits: str) -> int:
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS:
        raise NotFound(CHANGE, digits, next="Find its number in the history.")
    return int(digits)


class OpenedRun(Struct, frozen=True, kw_only=True):
    """A new run: its id, fencing token, lane and first hydration."""

    run_id: str
    token: int
    lane: str
    hydration: Hydration


def _opened(run: DurableRun) -> dict[str, object]:
    hydration = entry_to_wire(run.hydration)
    return {"run_id": run.run_id, "token": run.token, "lane": run.lane, "hydration": hydration}


def _opened_from(wire: dict[str, Any]) -> OpenedRun:
    hydration = from_wire(Hydration, wire["hydration"])
    return msgspec.convert({**wire, "hydration": hydration}, OpenedRun)


def _created(stored: StoredEntry) -> int:
    return 201 if stored.outcome == "created" else 200


def _same(wire: Any) -> Any:
    return wire


_KEY: Final = {"key": Param(encode=checked_key)}
_PAGED: Final = {"limit": Param(encode=partial(check_limit, most=MOST_LISTED, default=LISTED))}
_BUDGET: Final = {"budget": Param(encode=_checked_budget)}
_SINCE: Final = {"since": Param(encode=_since)}

_get = partial(Operation, method="GET", scope="read")
_post = partial(Operation, method="POST", scope="write", retry="keyed")

SET: Final = Operation(
    "durable.set",
    _ENTRY,
    "Write an entry.",
    STORED,
    method="PUT",
    scope="write",
    params=PutEntry,
    special={**_KEY, "idempotency_key": Param(encode=checked_idempotency_key)},
    status=_created,
    retry="keyed",
    lane="write",
)
SET_MANY: Final = _post(
    "durable.set_many",
    _ENTRIES,
    "Write entries in one transaction.",
    WireForm(_same, _same),
    params=PostEntries,
    special={"items": Param(wire="entries")},
    lane="write",
)
ENTRIES: Final = OperationTable(
    facade=DurableEntries,
    limit=LIMIT,
    bound="agent",
    coded=True,
    operations=(
        _get(
            "durable.list",
            _ENTRIES,
            "List entries, newest first.",
            ENTRY,
            special={"tags": Param(wire="tag", encode=_tags), **_SINCE, **_PAGED, "at": AT},
            paged=True,
            lane="slow",
        ),
        SET_MANY,
        SET,
        _get(
            "durable.get",
            _ENTRY,
            "Retrieve the entry under a key.",
            ENTRY,
            special={**_KEY, "at": AT},
            missing=("entry", "key", "Check the key, or list the entries."),
        ),
        Operation(
            "durable.forget",
            _ENTRY,
            "Forget a key.",
            field_form("forgotten", bool),
            method="DELETE",
            scope="write",
            special=_KEY,
            echo=("key",),
            retry="keyed",
            lane="slow",
        ),
        _get(
            "durable.explain",
            f"{_ENTRY}/explanation",
            "Explain why an entry is hydrated, or is not.",
            _form(Explanation),
            special={**_KEY, **_BUDGET},
            lane="slow",
        ),
        _get(
            "durable.hydrate",
            f"{AGENT}/hydration",
            "Retrieve what the agent would see at a run's start.",
            HYDRATION,
            special=_BUDGET,
            lane="slow",
        ),
    ),
)
MEMORY: Final = OperationTable(
    facade=DurableMemory,
    limit=LIMIT,
    bound="agent",
    coded=True,
    operations=(
        _post(
            "durable.restore",
            f"{_ENTRY}/restore",
            "Restore the content of an earlier change.",
            STORED,
            params=Restore,
            special=_KEY,
            status=_created,
            lane="write",
        ),
        _post(
            "durable.accept",
            f"{_ENTRY}/accept",
            "Release a held entry, which a person confirms by it.",
            STORED,
            special=_KEY,
            status=_created,
            lane="write",
        ),
        _post(
            "durable.run",
            f"{AGENT}/runs",
            "Open a run and hydrate it.",
            WireForm(_opened, _opened_from),
            params=OpenRun,
            optional=True,
            status=201,
            lane="slow",
        ),
        _get(
            "durable.history",
            f"{AGENT}/history",
            "List changes, newest first.",
            _form(EntryChange),
            special={"op": Param(type=str), **_SINCE, **_PAGED},
            paged=True,
            lane="slow",
        ),
        Operation(
            "durable.redact",
            f"{AGENT}/history/{{seq}}/redact",
            "Take the content out of a change.",
            _form(EntryChange),
            method="POST",
            scope="admin",
            special={"seq": Param(encode=_seq_text, decode=_seq)},
            retry="keyed",
            lane="slow",
        ),
        _get("durable.limits", f"{AGENT}/limits", "Retrieve the limits in force.", LIMITS),
        Operation(
            "durable.set_limits",
            f"{AGENT}/limits",
            "Set limits of the agent's own.",
            CHANGED,
            method="PATCH",
            scope="admin",
            params=SetLimits,
            bound="never",
            retry="keyed",
            lane="write",
        ),
        _post(
            "durable.sweep",
            f"{AGENT}/sweep",
            "Remove expired entries and lapsed runs.",
            SWEPT,
            lane="slow",
        ),
    ),
)
HEARTBEAT: Final = _post(
    "durable.heartbeat",
    f"{_RUN}/heartbeat",
    "Say that a run is alive.",
    WireForm(
        lambda lapses_at: {"lapses_at": to_milliseconds_text(lapses_at)},
        field_form("lapses_at", datetime).decode,
    ),
    lane="write",
)
END: Final = _post(
    "durable.end",
    f"{_RUN}/end",
    "End a run.",
    _form(RunEnded),
    params=EndRun,
    optional=True,
    lane="write",
)
RUN: Final = OperationTable(
    facade=DurableRun, limit=LIMIT, bound="agent", coded=True, operations=(HEARTBEAT, END)
)
FORGET: Final = _post(
    "forget_agent",
    "/api/forget",
    "Forget all of an agent's or a user's.",
    WireForm(
        lambda report: {"type": "forget_report", **entry_to_wire(report)},
        partial(msgspec.convert, type=ForgetReport),
    ),
    scope="admin",
    params=ForgetOwner,
    special={"names": Param(encode=lambda names: [*names])},
    lane="slow",
)
WORKSPACE: Final = OperationTable(
    facade=Holdfast,
    coded=True,
    operations=(
        FORGET,
        _get(
            "durable_agents",
            "/api/durable",
            "List agents that have durable memory.",
            _form(AgentSummary),
            special=_PAGED,
            paged=True,
        ),
        _get(
            "durable_limits",
            _SETTINGS,
            "Retrieve the workspace's limits of durable memory.",
            LIMITS,
        ),
        Operation(
            "set_durable_limits",
            _SETTINGS,
            "Set the workspace's limits of durable memory.",
            CHANGED,
            method="PATCH",
            scope="admin",
            params=SetLimits,
            retry="keyed",
            lane="write",
        ),
        Operation(
            "sweep",
            "/api/sweep",
            "Remove expired entries and lapsed runs of all agents.",
            SWEPT,
            method="POST",
            scope="admin",
            retry="keyed",
            lane="slow",
        ),
    ),
)
