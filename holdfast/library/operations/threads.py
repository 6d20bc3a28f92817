"""Operations of threads."""

from functools import partial
from typing import Any, Final

from msgspec import Struct

from holdfast.ground.validation import check_limit, check_whole
from holdfast.library.operations.base import (
    MIB,
    Operation,
    OperationTable,
    Param,
    WireForm,
    field_form,
)
from holdfast.memories.state import message as checks
from holdfast.memories.state.serialize import exported, imported
from holdfast.memories.state.thread import (
    MOST_LISTED,
    PER_PAGE,
    TURNS_LISTED,
    Appended,
    Thread,
    ThreadTurn,
    checked_id,
    checked_kind,
    checked_user,
)
from holdfast.memories.state.threads import Threads, turns_of

LIMIT: Final = 32 * MIB

_THREADS: Final = "/api/threads"
_THREAD: Final = f"{_THREADS}/{{id}}"

THREAD: Final = WireForm(exported, partial(imported, Thread))
TURN: Final = WireForm(ThreadTurn.export, ThreadTurn.from_dict)

_ID: Final = {"id": Param(encode=partial(checked_id, "thread_id"))}
_USER: Final = Param(encode=checked_user)
_FENCE: Final = Param(encode=partial(checks.whole, "fence"))
_PAGED: Final = {"limit": Param(encode=partial(check_limit, most=MOST_LISTED, default=PER_PAGE))}


_get = partial(Operation, method="GET", scope="read")


class PostThreadTurns(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Turns of a thread.

    Each is `{"kind": "user", "message": …}`, `{"kind": "result", "result": …}` or
    `{"kind": "foreign", "value": …, "source": …}`. A new thread is *user*'s. *fence* is that of
    the turns' run: once it has another owner they are refused.
    """

    turns: list[Any]
    user: str | None = None
    fence: int = 0


class PostPop(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which turn to take away: the last one of a kind."""

    kind: str = "foreign"
    user: str | None = None


def _exported(turns: object) -> list[dict[str, Any]]:
    return [turn.export() for turn in turns_of(turns)]


def _popped(turn: ThreadTurn | None) -> dict[str, Any]:
    return {"turn": None if turn is None else turn.export()}


def _popped_from(given: Any) -> ThreadTurn | None:
    return None if given["turn"] is None else ThreadTurn.from_dict(given["turn"])


def _checked_last(given: object) -> object:
    return None if given is None else check_whole("last", given, least=1)


THREADS: Final = OperationTable(
    facade=Threads,
    operations=(
        _get(
            "threads.list",
            _THREADS,
            "List threads, newest first.",
            THREAD,
            special={**_PAGED, "user": _USER},
            paged=True,
            lane="slow",
        ),
        _get("threads.retrieve", _THREAD, "Retrieve a thread.", THREAD, special=_ID),
        Operation(
            "threads.delete",
            _THREAD,
            "Delete a thread with its turns and runs.",
            field_form("deleted", bool),
            method="DELETE",
            scope="write",
            special=_ID,
            echo=("id",),
            lane="slow",
        ),
        _get(
            "threads.turns",
            f"{_THREAD}/turns",
            "List the turns of a thread, oldest first.",
            TURN,
            special={
                **_ID,
                "limit": Param(encode=partial(check_limit, most=MOST_LISTED, default=TURNS_LISTED)),
                "kind": Param(encode=checked_kind),
                "last": Param(encode=_checked_last),
                "user": _USER,
            },
            paged=True,
            lane="slow",
        ),
        Operation(
            "threads.append",
            f"{_THREAD}/turns",
            "Add turns to a thread, all or none.",
            WireForm(exported, partial(imported, Appended)),
            method="POST",
            scope="write",
            params=PostThreadTurns,
            special={**_ID, "turns": Param(encode=_exported), "user": _USER, "fence": _FENCE},
            limit=LIMIT,
            deep=True,
            retry="safe",
            lane="write",
        ),
        Operation(
            "threads.pop",
            f"{_THREAD}/pop",
            "Take the last turn of a thread away.",
            WireForm(_popped, _popped_from),
            method="POST",
            scope="write",
            params=PostPop,
            special={**_ID, "kind": Param(encode=checked_kind), "user": _USER},
            lane="write",
        ),
    ),
)
