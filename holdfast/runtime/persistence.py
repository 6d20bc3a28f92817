"""Record the objective and result of a finished run in a user's long-term memory.

An agent does so with `auto_persist`. Within a session the session's memory is used: one that vetoes
long-term memory keeps it from being recorded by any run within. A failure never fails the run.
"""

import asyncio
import logging
from contextvars import ContextVar
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast import library
from holdfast.ground.errors import HoldfastError
from holdfast.memories import longterm as longterm_memory
from holdfast.memories.longterm.records import Turn
from holdfast.memories.longterm.validation import TURN_BYTES
from holdfast.runtime.context import Context
from holdfast.runtime.inference.run_types import working

_log = logging.getLogger(__name__)

_CUT: Final = "…"


class SessionPersistence(Struct, frozen=True, kw_only=True):
    """The long-term memory of a session, for the runs that its agent starts.

    With `on` each run within is recorded; with `vetoed` none is.
    """

    user: str | None = None
    memory: Any = None
    on: bool = False
    vetoed: bool = False


class FinishedRun(Struct, frozen=True, kw_only=True):
    """A run that has completed: its objective, its result, and the user it was for.

    `on` is the switch of its agents, `nested` is true of a run that a part of another one started.
    """

    run_id: str
    objective: str
    result: object
    hf: "library.Holdfast | None"
    user: str | None
    on: bool
    nested: bool = False


session_persistence: ContextVar[SessionPersistence | None] = ContextVar(
    "session_persistence", default=None
)
"""The session that encloses what runs here."""
enclosed: ContextVar[bool] = ContextVar("enclosed", default=False)
"""Whether a step, plan or team encloses what runs here."""


def finished_in(context: Context, objective: str, result: object, *, nested: bool) -> FinishedRun:
    """Return the finished run of *context*."""
    root = context.root
    return FinishedRun(
        run_id=context.run_id,
        objective=objective,
        result=result,
        hf=root.hf,
        user=root.user,
        on=root.auto_persist,
        nested=nested,
    )


async def persist(run: FinishedRun) -> None:
    """Record *run* as two turns of the thread `run:<run id>`, to be mined.

    Nothing is recorded where its switch or the user's long-term memory is off.
    """
    session = session_persistence.get()
    by_person = not (run.nested or enclosed.get() or working.get() is not None)
    try:
        await asyncio.to_thread(_record, run, session, by_person=by_person)
    except HoldfastError as error:
        _log.warning("the run %s was not recorded: %s", run.run_id, type(error).__name__)


def _record(run: FinishedRun, session: SessionPersistence | None, *, by_person: bool) -> None:
    memory = _memory_of(run, session)
    if memory is None:
        return
    turns = [
        Turn(role="user", text=cut(run.objective), tier=None if by_person else "assistant"),
        Turn(role="assistant", text=cut(text_of_result(run.result))),
    ]
    memory.remember_conversation(turns, f"run:{run.run_id}")


def _memory_of(
    run: FinishedRun, session: SessionPersistence | None
) -> "longterm_memory.LongTermMemory | None":
    """Return the memory to record *run* in; None for none."""
    if session is not None and session.vetoed:
        return None
    if not (run.on or (session is not None and session.on)):
        return None
    if session is not None and session.memory is not None and run.user in (None, session.user):
        return session.memory
    user = run.user or (session.user if session is not None else None)
    return None if run.hf is None or user is None else run.hf.longterm(user)


def text_of_result(result: object) -> str:
    """Return *result* as text: JSON unless it is text, "" for None."""
    if result is None:
        return ""
    if isinstance(result, str):
        return result
    return msgspec.json.encode(result, enc_hook=str).decode()


def cut(text: str) -> str:
    """Return *text* within the limit of a turn, with a mark where it was cut."""
    body = text.encode(errors="replace")
    if len(body) <= TURN_BYTES:
        return body.decode()
    return body[: TURN_BYTES - len(_CUT.encode())].decode(errors="ignore") + _CUT
