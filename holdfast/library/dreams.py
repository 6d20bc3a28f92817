"""Dreams: the contract of the official SDK over consolidations of stores.

A dream is a consolidation whose changes are applied once it is complete. The dream `drm_X` is the
job `cons_X`, where its changes can be looked at and, in a store that was updated, undone.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Literal, get_args

from holdfast.ground.clock import from_microseconds, from_microseconds_or_none, to_rfc3339
from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Page, digest, read_key, write_cursor
from holdfast.ground.scope import Scope
from holdfast.ground.validation import check_limit, check_one_of
from holdfast.library.consolidations import Consolidations
from holdfast.library.longterm import model_wish
from holdfast.memories.longterm.consolidation.jobs import JobRow, statements
from holdfast.memories.stores.consolidation.dreams import (
    checked_dream,
    dream_id,
    job_id,
    put_dream,
    task_of,
)
from holdfast.memories.stores.records import JSONObject
from holdfast.memories.stores.rows import missing, refuse_narrowed, shaped
from holdfast.memories.stores.validation import bounds

DreamStatus = Literal["pending", "running", "completed", "failed", "canceled"]
_STATUSES: Final[dict[DreamStatus, tuple[str, ...]]] = {
    "pending": ("pending",),
    "running": ("running",),
    "completed": ("completed",),
    "failed": ("failed", "partial"),
    "canceled": ("cancelled",),
}
"""The statuses of jobs by that of the dream."""
_STATUS_OF: Final = {job: dream for dream, jobs in _STATUSES.items() for job in jobs}
_ENDED: Final = frozenset[str](("completed", "failed", "canceled"))
_FAILURES: Final = {
    "StoreArchived": ("memory_store_archived", "The memory store was archived meanwhile."),
    "UnreadableAnswer": ("unreadable_answer", "The model's response could not be read."),
}
_LIST: Final = "dreams"
_HIGHEST: Final = "~"


class Dreams:
    """The dreams of a workspace, as JSON objects of the contract.

    *model* does new ones, whichever model a request names: `provider:model`, one of pydantic-ai's
    models, or a function, as an extractor.
    """

    def __init__(self, jobs: Consolidations, model: object = None) -> None:
        self._jobs, self._context, self._model = jobs, jobs.context, model
        scope = Scope(workspace=self._context.workspace, agent="*", user="*")
        self._engine = self._context.engine.scoped(scope)
        self._sql = statements(self._engine)

    def create(
        self,
        *,
        inputs: object,
        model: object,
        instructions: object = None,
        output_behavior: object = None,
    ) -> JSONObject:
        """Start a dream and return it.

        Raise InvalidInput with the key that is wrong, or if no model can do it; NotFound,
        StoreArchived, and Conflict while another dream updates the same store.
        """
        refuse_narrowed(self._context, "write")
        order = checked_dream(
            inputs=inputs, model=model, instructions=instructions, output_behavior=output_behavior
        )
        job = put_dream(self._context, order, model=self._usable())
        made = dream_to_wire(self._row(dream_id(job)))
        # Looked at, a job begins; a model that has no name is handed over.
        if isinstance(self._model, str):
            self._jobs.retrieve(job)
        else:
            self._jobs.resume(job, model=self._model)
        return made

    def retrieve(self, id: str) -> JSONObject:
        """Return the dream *id*, an archived one too; raise NotFound."""
        row = self._row(id)
        if _status(row) not in _ENDED:
            self._jobs.retrieve(row.id)
        return dream_to_wire(row)

    def list(
        self,
        *,
        created_at_gt: datetime | None = None,
        created_at_lt: datetime | None = None,
        include_archived: bool = False,
        limit: int | None = None,
        page: str | None = None,
        statuses: Iterable[str] | None = None,
    ) -> Page[JSONObject]:
        """Return a page of dreams, newest first, archived ones only if asked for."""
        refuse_narrowed(self._context, "read")
        rows = check_limit(limit)
        since, until = bounds(gt=created_at_gt, lt=created_at_lt)
        known, wanted = get_args(DreamStatus), [*(statuses or ())]
        for each in wanted:
            check_one_of("statuses[]", each, known, f"must be one of {known}")
        named = ",".join(sorted(job for job, dream in _STATUS_OF.items() if dream in wanted))
        params: dict[str, Any] = {
            "since": since,
            "until": until,
            "archived": int(include_archived),
            "statuses": f",{named}," if named else "",
        }
        mark = digest(self._context.workspace, *params.values())
        before = _HIGHEST if page is None else read_key(_LIST, mark, page, str)
        found = self._engine.all(
            JobRow, self._sql.list_dreams, before=before, rows=rows + 1, **params
        )
        last = found[rows - 1] if len(found) > rows else None
        return Page(
            [dream_to_wire(row) for row in found[:rows]],
            last and write_cursor(_LIST, mark, [last.id]),
        )

    def cancel(self, id: str) -> JSONObject:
        """Stop the dream *id*; raise InvalidInput if it is completed or failed."""
        refuse_narrowed(self._context, "write")
        row = self._row(id)
        if _status(row) in ("completed", "failed"):
            raise InvalidInput("dream_id", f"is of a dream that is {_status(row)}", given=id)
        self._jobs.cancel(row.id)
        return dream_to_wire(self._row(id))

    def archive(self, id: str) -> JSONObject:
        """Leave the dream *id* out of lists; raise InvalidInput while it is under way."""
        refuse_narrowed(self._context, "write")
        now, job = self._context.now(), self._row(id).id
        self._engine.write(lambda tx: tx.run(self._sql.archive_job, id=job, now=now))
        row = self._row(id)
        if row.archived_at is None:
            next = "Cancel it first."
            raise InvalidInput("dream_id", f"is of a dream that is {_status(row)}", next=next)
        return dream_to_wire(row)

    def _usable(self) -> str:
        """Return the model that does dreams; raise InvalidInput if there is none."""
        if self._model is None:
            raise InvalidInput(
                "model",
                "cannot dream: the server has no model for it",
                next="Start the server with --dream-model provider:model.",
            )
        wish = model_wish(self._jobs.shared, self._model)
        if wish.extractor is None or wish.name is None:
            raise InvalidInput("model", f"cannot dream on this server: {wish.reason}")
        return wish.name

    def _row(self, id: str) -> JobRow:
        refuse_narrowed(self._context, "read")
        row = self._engine.first(JobRow, self._sql.get_job, id=job_id(shaped("drm", id)))
        if row is None or row.dream is None:
            raise missing("drm", id)
        return row


def dream_to_wire(row: JobRow) -> JSONObject:
    """Return the dream *row* as the JSON object of the contract."""
    task, status = task_of(row), _status(row)
    behavior = {"type": "update_existing", "memory_store_id": row.owner}
    output = row.owner if task.updates and status != "pending" else task.output
    return {
        "type": "dream",
        "id": dream_id(row.id),
        "status": status,
        "inputs": [
            {"type": "memory_store", "memory_store_id": row.owner},
            {"type": "sessions", "session_ids": [*task.sessions]},
        ],
        "outputs": [{"type": "memory_store", "memory_store_id": output}] if output else [],
        "model": {"id": task.model, "speed": "standard"},
        "instructions": row.task.instructions or None,
        "output_behavior": behavior if task.updates else {"type": "create_new"},
        "session_id": task.session_id,
        "created_at": to_rfc3339(from_microseconds(row.created_at)),
        "ended_at": _time(row.ended_at),
        "archived_at": _time(row.archived_at),
        "usage": {
            "input_tokens": row.used.tokens - row.used.output_tokens,
            "output_tokens": row.used.output_tokens,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        },
        "error": _error(row),
    }


def _status(row: JobRow) -> str:
    return _STATUS_OF[row.status]


def _time(given: int | None) -> str | None:
    at = from_microseconds_or_none(given)
    return None if at is None else to_rfc3339(at)


def _error(row: JobRow) -> JSONObject | None:
    if row.status == "partial":
        return {"type": "timeout", "message": "The dream needs more of its model than it may use."}
    if row.status != "failed":
        return None
    type, message = _FAILURES.get(
        row.error or "", ("internal_error", f"The dream failed: {row.error}.")
    )
    return {"type": type, "message": message}
