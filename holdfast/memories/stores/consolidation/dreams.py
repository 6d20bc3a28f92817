"""Dreams: consolidations of a store that apply what they propose by themselves.

A dream is a job with a model, which reads a store and what sessions wrote into it. Once it is
complete, its changes are applied in the same transaction, to a copy or to the store itself, by the
dream's own session.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Transaction, scalar
from holdfast.ground.errors import Conflict, InvalidInput
from holdfast.ground.scope import Actor
from holdfast.ground.validation import check_text, is_list
from holdfast.memories.longterm.consolidation.decisions import accept_within
from holdfast.memories.longterm.consolidation.jobs import (
    Finish,
    JobRow,
    NewJob,
    put_job,
    statements,
)
from holdfast.memories.longterm.consolidation.records import Budget, JobRequest, encoded
from holdfast.memories.stores.consolidation.decisions import StoreMemory
from holdfast.memories.stores.records import JSONObject
from holdfast.memories.stores.rows import StoresContext, missing, shaped
from holdfast.memories.stores.session_input import checked_session
from holdfast.memories.stores.sessions import put_session
from holdfast.memories.stores.transaction import StoreTransaction

BUDGET: Final = Budget(tokens=2_000_000, seconds=7_200, calls=1_000)
"""What a dream may use of its model."""
MOST_SESSIONS: Final = 100
MOST_INSTRUCTIONS: Final = 4_096
"""Characters."""
_MOST_MODEL: Final = 256
_JOB: Final = "cons_"
_DREAM: Final = "drm_"
_INPUTS: Final = "must be one memory_store and one sessions entry"


class DreamTask(Struct, frozen=True, kw_only=True):
    """The request of a dream.

    `model` is the one that its request named, `session_id` the session that writes. It `updates`
    its store, or makes a new one. `output` is the store that holds the result.
    """

    model: str
    sessions: tuple[str, ...]
    updates: bool = False
    session_id: str = ""
    output: str | None = None


class DreamOrder(Struct, frozen=True, kw_only=True):
    """A checked request for a dream."""

    store_id: str
    task: DreamTask
    instructions: str


_task = msgspec.json.Decoder(DreamTask)


def task_of(row: JobRow) -> DreamTask:
    """Return the request of the dream *row*."""
    return _task.decode(row.dream or "")


def checked_dream(
    *, inputs: object, model: object, instructions: object, output_behavior: object
) -> DreamOrder:
    """Return the request for a dream; raise InvalidInput with the key that is wrong."""
    store_id, sessions = _checked_inputs(inputs)
    text = instructions
    if text is not None:
        text = check_text("instructions", text, least=1, most=4 * MOST_INSTRUCTIONS)
        if len(text) > MOST_INSTRUCTIONS:
            reason = f"must have at most {MOST_INSTRUCTIONS:,} characters"
            raise InvalidInput("instructions", reason, limit=MOST_INSTRUCTIONS)
    updates = _checked_behavior(output_behavior, store_id)
    task = DreamTask(model=_checked_model(model), sessions=sessions, updates=updates)
    return DreamOrder(store_id=store_id, task=task, instructions=text or "")


def _checked_inputs(given: object) -> tuple[str, tuple[str, ...]]:
    if not is_list(given):
        raise InvalidInput("inputs", _INPUTS)
    found: dict[str, object] = {}
    keys = {"memory_store": "memory_store_id", "sessions": "session_ids"}
    for each in given:
        entry = _object("inputs", each)
        kind = entry.get("type")
        if kind not in keys or kind in found:
            raise InvalidInput("inputs", _INPUTS)
        found[kind] = _only("inputs", entry, keys[kind])
    if len(found) != len(keys):
        raise InvalidInput("inputs", _INPUTS)
    named = found["sessions"]
    every = [*named] if is_list(named) else [None]
    sessions = [id for id in every if isinstance(id, str)]
    if len(sessions) < len(every):
        raise InvalidInput("inputs.session_ids", "must be a list of ids")
    if not 1 <= len(sessions) <= MOST_SESSIONS or len(set(sessions)) < len(sessions):
        reason = f"must be 1 to {MOST_SESSIONS} ids, none of them twice"
        raise InvalidInput("inputs.session_ids", reason, limit=MOST_SESSIONS)
    return _store_id("inputs", found["memory_store"]), tuple(sorted(sessions))


def _checked_model(given: object) -> str:
    if not isinstance(given, str):
        config = _object("model", given)
        if config.get("speed") not in (None, "standard"):
            raise InvalidInput("model.speed", "must be standard", given=config["speed"])
        given = _only("model", {"type": None, "speed": None, **config}, "id", "speed")
    return check_text("model", given, least=1, most=_MOST_MODEL)


def _checked_behavior(given: object, store_id: str) -> bool:
    """Return whether the dream updates its store."""
    field = "output_behavior"
    if given is None:
        return False
    behavior = _object(field, given)
    if behavior == {"type": "create_new"}:
        return False
    if behavior.get("type") != "update_existing":
        raise InvalidInput(field, "must be of type create_new or update_existing")
    if _store_id(field, _only(field, behavior, "memory_store_id")) != store_id:
        reason = "must name the memory store of inputs"
        raise InvalidInput(f"{field}.memory_store_id", reason)
    return True


def _object(field: str, given: object) -> JSONObject:
    if not isinstance(given, dict):
        raise InvalidInput(field, "must be an object" if field != "inputs" else _INPUTS)
    return given  # pyright: ignore[reportUnknownVariableType] - decoded JSON


def _only(field: str, entry: JSONObject, key: str, *more: str) -> Any:
    """Return the value of *key*, beside which there is a type alone, and *more*."""
    unknown = next((name for name in entry if name not in {"type", key, *more}), None)
    if unknown is not None:
        raise InvalidInput(f"{field}.{unknown}", "is not a key here")
    if key not in entry:
        raise InvalidInput(f"{field}.{key}", "is required")
    return entry[key]


def _store_id(field: str, given: object) -> str:
    if not isinstance(given, str):
        raise InvalidInput(f"{field}.memory_store_id", "must be a string")
    return given


def put_dream(context: StoresContext, order: DreamOrder, *, model: str) -> str:
    """Store a dream that *model* does, and its session; return the id of its job.

    Raise NotFound for an unknown store or session, StoreArchived, and Conflict while another dream
    updates the store.
    """
    id = context.ids.new("cons", context.now())
    memory = StoreMemory(context, order.store_id)
    request = JobRequest(
        model=model,
        instructions=order.instructions,
        into="proposal" if order.task.updates else "new_store",
    )
    owner = {"owner_kind": "store", "owner": order.store_id, "scope": "{}"}
    job = NewJob(id=id, owner=owner, request=request, limits=BUDGET)
    attached = {
        "type": "memory_store",
        "memory_store_id": order.store_id,
        "access": "read_write" if order.task.updates else "read_only",
    }
    session = checked_session(
        agent="dream",
        environment_id="dream",
        resources=[attached],
        title=dream_id(id),
        metadata=None,
    )

    def work(tx: Transaction) -> str:
        unit = StoreTransaction(context, tx, order.store_id)
        unit.refuse_archived()
        sql = statements(context.engine)
        _demand_sessions(context, tx, order.task.sessions)
        others = tx.all(scalar, sql.dreams_under_way, store=order.store_id)
        if order.task.updates and any(_task.decode(each).updates for each in others):
            raise Conflict(
                "Another dream updates this memory store.", next="Wait for it, or cancel it."
            )
        dream = encoded(replace(order.task, session_id=put_session(context, tx, session).id))
        put_job(tx, memory, replace(job, dream=dream))
        return id

    return context.engine.write(work)


def _demand_sessions(context: StoresContext, tx: Transaction, ids: Sequence[str]) -> None:
    shapes = encoded([shaped("sesn", each) for each in ids])
    known = set(tx.all(scalar, statements(context.engine).known_sessions, sessions=shapes))
    unknown = next((each for each in ids if each not in known), None)
    if unknown is not None:
        raise missing("sesn", unknown)


def dreaming(memory: StoreMemory, row: JobRow) -> tuple[StoreMemory, Finish]:
    """Return *memory* as a dream reads and writes it, and what applies its changes."""
    task = task_of(row)
    acting = replace(memory.context, actor=Actor.session(task.session_id))
    own = replace(memory, context=acting, sessions=task.sessions)
    opens = own.opener(row, (), accepts=True)

    def finish(tx: Transaction) -> Callable[[], None]:
        unit = opens(tx)

        def change() -> None:
            applied = accept_within(own, unit, row.id)
            made = replace(task, output=applied.store_id)
            tx.run(statements(own.engine).set_dream, id=row.id, dream=encoded(made))

        return change

    return own, finish


def dream_id(job: str) -> str:
    """Return the id of the dream that the job of the id *job* is."""
    return _DREAM + job.removeprefix(_JOB)


def job_id(dream: str) -> str:
    """Return the id of the job of a dream; an id of another form is of no job."""
    return _JOB + dream.removeprefix(_DREAM) if dream.startswith(_DREAM) else ""
