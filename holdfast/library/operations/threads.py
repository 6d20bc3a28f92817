"""Operations of threads and of the records of network runs."""

from functools import partial
from typing import Any, Final

from msgspec import Struct

from holdfast.ground.validation import check_limit
from holdfast.library.operations.base import (
    MIB,
    Operation,
    OperationTable,
    Param,
    WireForm,
    field_form,
)
from holdfast.memories.state.message import one_of
from holdfast.memories.state.run_records import STATUSES, RunRecord, checked_name_or_none
from holdfast.memories.state.serialize import exported, imported
from holdfast.memories.state.thread import (
    MOST_LISTED,
    PER_PAGE,
    TURNS_LISTED,
    Appended,
    Thread,
    ThreadTurn,
    checked_id,
    checked_id_or_none,
    checked_kind,
)
from holdfast.memories.state.thread_store import turns_of
from holdfast.memories.state.threads import NetworkRuns, Threads

_LIMIT: Final = 32 * MIB

_THREADS: Final = "/api/threads"
_THREAD: Final = f"{_THREADS}/{{id}}"
_RUNS: Final = "/api/network_runs"
_RUN: Final = f"{_RUNS}/{{id}}"

THREAD: Final = WireForm(exported, partial(imported, Thread))
TURN: Final = WireForm(ThreadTurn.export, ThreadTurn.from_dict)
RUN: Final = WireForm(RunRecord.export, RunRecord.from_dict)

_ID: Final = {"id": Param(encode=partial(checked_id, "thread_id"))}
_PAGED: Final = {"limit": Param(encode=partial(check_limit, most=MOST_LISTED, default=PER_PAGE))}


_get = partial(Operation, method="GET", scope="read")


class PostThreadTurns(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Turns of a thread.

    Each is `{"kind": "user", "message": …}` or `{"kind": "result", "result": …}`.
    """

    turns: list[Any]


def _exported(turns: object) -> list[dict[str, Any]]:
    return [turn.export() for turn in turns_of(turns)]


def _run(record: object) -> dict[str, Any]:
    given = record if isinstance(record, RunRecord) else RunRecord.from_dict(record)
    return given.export()


def _checked_status(given: object) -> object:
    if given is not None:
        one_of("status", given, STATUSES)
    return given


THREADS: Final = OperationTable(
    facade=Threads,
    operations=(
        _get(
            name="threads.list",
            path=_THREADS,
            summary="List threads, newest first.",
            special=_PAGED,
            result=THREAD,
            paged=True,
            lane="slow",
        ),
        _get(
            name="threads.retrieve",
            path=_THREAD,
            summary="Retrieve a thread.",
            special=_ID,
            result=THREAD,
        ),
        Operation(
            name="threads.delete",
            method="DELETE",
            path=_THREAD,
            summary="Delete a thread with its turns and runs.",
            scope="write",
            special=_ID,
            result=field_form("deleted", bool),
            echo=("id",),
            lane="slow",
        ),
        _get(
            name="threads.turns",
            path=f"{_THREAD}/turns",
            summary="List the turns of a thread, oldest first.",
            special={
                **_ID,
                "limit": Param(encode=partial(check_limit, most=MOST_LISTED, default=TURNS_LISTED)),
                "kind": Param(encode=checked_kind),
            },
            result=TURN,
            paged=True,
            lane="slow",
        ),
        Operation(
            name="threads.append",
            method="POST",
            path=f"{_THREAD}/turns",
            summary="Add turns to a thread, all or none.",
            scope="write",
            params=PostThreadTurns,
            special={**_ID, "turns": Param(encode=_exported)},
            result=WireForm(exported, partial(imported, Appended)),
            limit=_LIMIT,
            deep=True,
            retry="safe",
            lane="write",
        ),
    ),
)

NETWORK_RUNS: Final = OperationTable(
    facade=NetworkRuns,
    operations=(
        _get(
            name="network_runs.list",
            path=_RUNS,
            summary="List runs of networks, newest first.",
            special={
                **_PAGED,
                "network": Param(encode=partial(checked_name_or_none, "network")),
                "thread_id": Param(encode=partial(checked_id_or_none, "thread_id")),
                "status": Param(encode=_checked_status),
            },
            result=RUN,
            paged=True,
            lane="slow",
        ),
        _get(
            name="network_runs.retrieve",
            path=_RUN,
            summary="Retrieve a run.",
            special={"run_id": Param(wire="id", encode=partial(checked_id, "run_id"))},
            result=RUN,
        ),
        Operation(
            name="network_runs.put",
            method="PUT",
            path=_RUN,
            summary="Keep a run's record: at its start, and at its end.",
            scope="write",
            body="record",
            special={"record": Param(encode=_run)},
            result=RUN,
            limit=_LIMIT,
            deep=True,
            retry="safe",
            lane="write",
        ),
    ),
)
