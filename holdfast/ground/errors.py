"""All errors of the package and the facts they carry.

HoldfastError
├── InvalidInput            the input breaks a stated limit
│   ├── UnknownFormat           the text's format or version is unknown to this release
│   ├── ChecksumMismatch        a result changed since its checksum was written
│   ├── InvalidPlan             a plan cannot be run; lists all its problems
│   ├── PlanningFailed          the model did not produce a valid plan
│   └── CheckpointUnreadable    the checkpoint of a run cannot be read
├── Refused                 a rule of the object forbids the operation
│   ├── StoreArchived           the store is archived: it can be read, not written
│   ├── StoreFull               the store has reached its cap of memories
│   ├── HeadVersion             the version is the current one of a live memory
│   ├── Unsupported             this target or route cannot do that
│   ├── LimitExceeded           the memory of a run would exceed a limit
│   ├── TooLarge                a body, or the result of an append, is over its limit
│   ├── RunRequired             a conversation entry needs a run
│   ├── ImportRefused           files were rejected, so nothing was replaced
│   ├── SecretRefused           a text contains what looks like a credential
│   └── ToolRefused             a tool call of a model cannot be carried out
├── NotAuthenticated        the credential is missing or unknown
├── NotPermitted            the credential lacks the permission
│   ├── ScopeDenied             the object belongs to another agent, user or workspace
│   └── LongTermOff             long-term memory is disabled
├── NotFound                the object does not exist
│   └── HistoryGone             part of what a call was sent was forgotten
├── Conflict                the write conflicts with the current state
│   ├── PathTaken               another memory has this path, a parent or a child of it
│   ├── PreconditionFailed      the value changed since it was read
│   ├── ContentGone             the version was redacted
│   ├── CursorExpired           the change feed no longer holds this position
│   ├── MemoryFull              an agent has reached its cap, and no entry may be evicted
│   ├── StaleRun                the run was superseded, ended, or lapsed
│   ├── RunTaken                another process or executor has the run
│   ├── AlreadyAnswered         the question of a run has another answer
│   ├── Forgotten               the key was forgotten after this run began
│   ├── IdempotencyMismatch     another request used this request id
│   ├── ResultDiffers           the thread holds another result under this id
│   ├── CheckpointMismatch      the checkpoint is of another run
│   ├── ClaimRefused            a task of a team cannot be claimed
│   ├── NotOwner                another agent owns the task of a team
│   ├── TaskSettled             a task of a team is done or failed
│   ├── AgentNameTaken          two agents of one network or team have one name
│   └── ToolNameTaken           two tools have one name
├── NotRunnable             it cannot be run as configured; nothing was stored or sent
│   ├── NoModel                 no model is configured
│   ├── NoRouter                no router chooses the next agent
│   └── NoAgentEnabled          there is no agent, or all are disabled
├── RunFailed               a run failed; everything done before is in `run`
│   ├── StepFailed              a step failed, and with it the steps that need its result
│   ├── TaskFailed              steps of a task failed
│   └── PlanFailed              tasks of a plan failed
├── RunCancelled            a run was cancelled; completed results remain
├── RunWaiting              a run waits for answers; everything done before is kept
├── WaitTimeout             the awaited key was not written before the timeout
├── Unavailable             the storage cannot be reached; the cause is chained
│   ├── Corrupt                 the file is damaged, or not a database
│   └── TooNew                  a newer release wrote the database
├── EngineFault             a bug in the storage layer
└── MissingExtra            an optional extra is not installed
"""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Literal

Reason = Literal[
    "busy",
    "overloaded",
    "full",
    "read_only",
    "lost",
    "closed",
    "timeout",
    "io",
    "locked",
    "replaced",
]
"""Reasons why storage is unavailable."""

SHOWN = 60
"""Characters of a bad value that a message may repeat."""


def shortened(given: object) -> str:
    """Return *given* as at most 60 characters of text, for a message.

    A character that is not printable is written as its escape.
    """
    text = given if isinstance(given, str) else _represented(given)
    if not text.isprintable():
        text = "".join(map(_visible, text[: SHOWN + 1]))
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _represented(given: object) -> str:
    try:
        return repr(given)
    except (RecursionError, ValueError):
        # Nested without end, or an integer of thousands of digits.
        return f"<{type(given).__name__}>"


def _visible(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


class HoldfastError(Exception):
    """Base of every error raised here on purpose.

    `message` states what is wrong, `next` what to do about it. `facts` names the attributes that
    every entry point sends with the error.
    """

    facts: ClassVar[tuple[str, ...]] = ()
    code: str | None = None
    """`HF-MEM-…` on an error of a durable call."""
    index: int | None = None
    """Position of the faulty item in a request of several items."""

    def __init__(self, message: str, *, next: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next = next

    def __str__(self) -> str:
        return f"{self.message} {self.next}" if self.next else self.message

    def carried(self) -> dict[str, object]:
        """Return its facts by name, with `index` if that is set."""
        facts: dict[str, object] = {name: getattr(self, name, None) for name in self.facts}
        return facts if self.index is None else facts | {"index": self.index}


class InvalidInput(HoldfastError):
    """The input breaks a documented limit."""

    facts = ("field", "reason", "limit", "given", "index")

    def __init__(
        self,
        field: str,
        reason: str,
        *,
        limit: int | None = None,
        given: object = None,
        index: int | None = None,
        next: str = "",
    ) -> None:
        field, shown = shortened(field), None if given is None else shortened(given)
        super().__init__(
            f"{field}: {reason}" + (f" (given: {shown})" if shown is not None else "") + ".",
            next=next,
        )
        self.field, self.reason, self.limit, self.given, self.index = (
            field,
            reason,
            limit,
            shown,
            index,
        )


class UnknownFormat(InvalidInput):
    """The text's format or version is unknown to this release."""

    facts = (*InvalidInput.facts, "format", "version")

    def __init__(
        self,
        field: str,
        *,
        format: object,
        version: object,
        known: str,
        next: str = "Give what to_json() made, or upgrade holdfast.",
    ) -> None:
        numbered = "" if version is None else f", version {shortened(version)}"
        super().__init__(
            field, f"its format is {shortened(format)}{numbered}; known is {known}", next=next
        )
        self.format, self.version = format, version


class ChecksumMismatch(InvalidInput):
    """A result changed since its checksum was written."""

    facts = (*InvalidInput.facts, "id", "stored", "computed")

    def __init__(self, id: str, *, stored: str, computed: str) -> None:
        super().__init__(
            "checksum",
            f"the result {shortened(id)} changed since its checksum was written",
            next="Restore that thread, or pass verify=False to read it as it is.",
        )
        self.id, self.stored, self.computed = id, stored, computed


class InvalidPlan(InvalidInput):
    """The plan cannot be run; the message lists every problem."""

    facts = (*InvalidInput.facts, "problems")

    def __init__(self, problems: Sequence[object]) -> None:
        listed = "; ".join(str(each) for each in problems)
        super().__init__("plan", listed, next="Correct these problems, then run the plan.")
        self.problems = tuple(problems)


class PlanningFailed(InvalidInput):
    """The model did not produce a valid plan."""

    facts = (*InvalidInput.facts, "problems", "tasks")

    def __init__(
        self, reason: str, *, problems: Sequence[object] = (), tasks: Sequence[object] = ()
    ) -> None:
        listed = "; ".join(str(each) for each in problems)
        super().__init__(
            "plan",
            f"{reason}: {listed}" if listed else reason,
            next="State the objective more narrowly, or write the plan yourself.",
        )
        self.problems, self.tasks = tuple(problems), tuple(tasks)


class CheckpointUnreadable(InvalidInput):
    """The checkpoint of a run exists and cannot be read."""

    facts = (*InvalidInput.facts, "path")

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            "checkpoint",
            f"{shortened(path)} cannot be read: {shortened(why)}",
            next="Restore it from a copy, or delete it to start the run again.",
        )
        self.path = path


class Refused(HoldfastError):
    """A rule of the object forbids the operation."""


class StoreArchived(Refused):
    """The store is archived: it can be read, not written."""

    facts = ("store_id",)

    def __init__(self, store_id: str) -> None:
        super().__init__(
            f"The memory store {store_id} is archived and read-only.",
            next="Write to another store; deleting memories and the store still works.",
        )
        self.store_id = store_id


class StoreFull(Refused):
    """The store has reached its cap of memories."""

    facts = ("store_id", "cap")

    def __init__(self, store_id: str, cap: int) -> None:
        super().__init__(
            f"The memory store {store_id} holds {cap:,} memories, its cap.",
            next="Delete or merge memories, or raise the cap, then try again.",
        )
        self.store_id, self.cap = store_id, cap


class HeadVersion(Refused):
    """The version is the current one of a live memory."""

    facts = ("version_id", "memory_id")

    def __init__(self, version_id: str, memory_id: str) -> None:
        super().__init__(
            f"The version {version_id} is the current one of the live memory {memory_id}.",
            next="Write a newer version or delete the memory first, then redact.",
        )
        self.version_id, self.memory_id = version_id, memory_id


class Unsupported(Refused):
    """This target or route cannot do that."""

    facts = ("feature",)

    def __init__(self, feature: str, *, next: str = "") -> None:
        super().__init__(f"{feature} is not supported here.", next=next)
        self.feature = feature


class LimitExceeded(Refused):
    """The memory of a run would exceed a limit of size or number."""

    facts = ("limit", "allowed", "actual")

    def __init__(
        self, limit: str, *, allowed: int, actual: int, what: str = "", next: str = ""
    ) -> None:
        about = f" of {shortened(what)}" if what else ""
        super().__init__(
            f"{limit}{about} would be {actual:,}; the limit is {allowed:,}.",
            next=next or "Store a reference to it, or raise the limit.",
        )
        self.limit, self.allowed, self.actual = limit, allowed, actual


class TooLarge(Refused):
    """A body, or the result of an append, is over its limit."""

    facts = ("limit",)

    def __init__(
        self, limit: int, *, what: str = "request body", next: str = "Send less in one request."
    ) -> None:
        super().__init__(f"The {what} is larger than {limit:,} bytes.", next=next)
        self.limit = limit


class RunRequired(Refused):
    """A conversation entry needs a run."""

    def __init__(self) -> None:
        super().__init__(
            "A conversation entry belongs to a run, and this is not one.",
            next="Store it inside `with durable.run() as run`, or choose another category.",
        )


class ImportRefused(Refused):
    """Files were rejected, so nothing was replaced.

    `rejected` lists the files, each with the reason.
    """

    facts = ("rejected",)

    def __init__(self, message: str, *, rejected: object = (), next: str = "") -> None:
        super().__init__(message, next=next)
        self.rejected = rejected


class SecretRefused(Refused):
    """A text contains what looks like a credential.

    `reasons` are the kinds of credentials, never the text.
    """

    facts = ("reasons",)

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__(
            f"The text holds what looks like a secret ({', '.join(reasons)}); it was not stored.",
            next="Leave the secret out, and keep it where secrets are kept.",
        )
        self.reasons = reasons


class ToolRefused(Refused):
    """A tool call cannot be carried out; `str(error)` is the tool's text."""


class NotAuthenticated(HoldfastError):
    """The credential is missing or unknown. One message for every cause."""

    def __init__(self) -> None:
        super().__init__(
            "The API key or token is missing or not valid.",
            next="Send a valid one as x-api-key or Authorization: Bearer.",
        )


class NotPermitted(HoldfastError):
    """The credential lacks the permission."""

    facts = ("needed",)

    def __init__(self, message: str, *, needed: str, next: str = "") -> None:
        super().__init__(message, next=next)
        self.needed = needed


class ScopeDenied(NotPermitted):
    """The object belongs to another agent, user or workspace."""


class LongTermOff(NotPermitted):
    """Long-term memory is disabled; `by` is `request` or `server`."""

    facts = ("needed", "by")

    def __init__(self, by: Literal["request", "server"]) -> None:
        super().__init__(
            f"Long-term memory is off, by the {by}.",
            needed="long-term memory",
            next="Send enabled=true, or set HOLDFAST_LTM_ENABLED=1 where the server runs.",
        )
        self.by: Literal["request", "server"] = by


class NotFound(HoldfastError):
    """The object does not exist."""

    facts = ("kind", "id")

    def __init__(self, kind: str, id: str, *, next: str = "Check the id.") -> None:
        id = shortened(id)
        super().__init__(f"There is no {kind} {id}.", next=next)
        self.kind, self.id = kind, id


class HistoryGone(NotFound):
    """Part of what a call was sent was forgotten, or is not at hand."""

    def __init__(self, id: str, *, kind: str = "complete history of") -> None:
        super().__init__(
            kind,
            id,
            next="Read the result from its state, or from hf.threads. A forgotten part stays gone.",
        )


class Conflict(HoldfastError):
    """The write conflicts with the current state."""

    facts: ClassVar[tuple[str, ...]] = ("reason",)

    def __init__(self, message: str, *, reason: str = "", next: str = "") -> None:
        super().__init__(message, next=next)
        self.reason = reason


class PathTaken(Conflict):
    """Another memory has this path, a parent or a child of it."""

    facts = ("conflicting_memory_id", "conflicting_path")

    def __init__(self, conflicting_memory_id: str, conflicting_path: str) -> None:
        super().__init__(
            f"The path is taken: the memory {conflicting_memory_id} is at {conflicting_path}.",
            next="Update it, or choose a path that is not that one, above it or below it.",
        )
        self.conflicting_memory_id = conflicting_memory_id
        self.conflicting_path = conflicting_path


class PreconditionFailed(Conflict):
    """The value changed since it was read."""

    facts = ("key", "expected", "current")

    def __init__(self, key: str, *, expected: object, current: object) -> None:
        super().__init__(
            f"The precondition on {shortened(key)} failed: it changed since you read it.",
            next="Read it again, then decide.",
        )
        self.key, self.expected, self.current = key, expected, current


class ContentGone(Conflict):
    """The version was redacted."""

    facts = ("version_id", "redacted_at")

    def __init__(self, version_id: str, redacted_at: datetime) -> None:
        super().__init__(
            f"The content of {version_id} was redacted and cannot come back.",
            next="Choose a version that was not redacted.",
        )
        self.version_id, self.redacted_at = version_id, redacted_at


class CursorExpired(Conflict):
    """The change feed no longer holds this position."""

    facts = ("oldest",)

    def __init__(self, oldest: str | int) -> None:
        super().__init__(
            "The position is not among the changes that are kept.",
            next="Read the present state, then follow from now.",
        )
        self.oldest = oldest


class MemoryFull(Conflict):
    """An agent has reached its cap, and no entry may be evicted for this one."""

    facts = ("cap", "entries", "core_entries", "coldest", "would_evict")

    def __init__(
        self,
        *,
        cap: int,
        entries: int,
        core_entries: int,
        coldest: tuple[str, ...] = (),
        would_evict: int = 0,
    ) -> None:
        least = ", ".join(shortened(key) for key in coldest)
        super().__init__(
            f"{entries:,} entries are kept, {core_entries:,} of them core; the cap is {cap:,}."
            + (f" {would_evict:,} would have to go." if would_evict else ""),
            next="Evict them with evict=True, or choose a higher cap."
            if would_evict
            else f"Forget stale core keys (coldest: {least}), or store this as core if it must"
            " be known.",
        )
        self.cap, self.entries, self.core_entries = cap, entries, core_entries
        self.coldest, self.would_evict = coldest, would_evict


class StaleRun(Conflict):
    """The run was superseded, ended, or lapsed; nothing was written or read."""

    facts = ("reason", "token", "live_token")

    def __init__(self, reason: str, *, token: int, live_token: int | None) -> None:
        super().__init__(
            f"This run (token {token}) was {reason}.",
            reason=reason,
            next="Open a new run, which sees what was stored meanwhile.",
        )
        self.token, self.live_token = token, live_token


class RunTaken(Conflict):
    """Another process or executor has the run; nothing was run.

    `holder` has its lease until `until`, in `place`. `ids` are those of the steps, tasks or nodes
    that another executor of the same context has.
    """

    facts = ("run_id", "holder", "place", "until", "ids")

    def __init__(
        self,
        run_id: str,
        *,
        holder: str = "",
        place: str = "",
        until: datetime | None = None,
        ids: Sequence[str] = (),
    ) -> None:
        parts = ", ".join(map(shortened, ids))
        where = f", in {shortened(place)}" if place else ""
        super().__init__(
            f"Another executor in this context has {parts}."
            if parts
            else f"The run {shortened(run_id)} has an owner{where}.",
            next="Give the parts other ids, or run them in context.copy()."
            if parts
            else 'Wait for its end, take another run_id, or take it over with take_over="always".',
        )
        self.run_id, self.holder, self.place = run_id, holder, place
        self.until, self.ids = until, tuple(ids)


class AlreadyAnswered(Conflict):
    """The question has an answer, which is another; the first one holds."""

    facts = ("by", "at")

    def __init__(self, id: str, *, by: str | None, at: datetime | None) -> None:
        super().__init__(
            f"The question {shortened(id)} was answered by {shortened(by or 'another')}.",
            next="Read the question: its answer holds.",
        )
        self.by, self.at = by, at


class Forgotten(Conflict):
    """Another client forgot the key after this run began."""

    facts = ("forgotten_at", "by")

    def __init__(self, forgotten_at: datetime, by: str) -> None:
        super().__init__(
            f"The key was forgotten by {by} after this run began.",
            next="Check that the fact is true again, then store it from a new run.",
        )
        self.forgotten_at, self.by = forgotten_at, by


class IdempotencyMismatch(Conflict):
    """Another request used this request id."""

    def __init__(self, id: str) -> None:
        super().__init__(
            f"{shortened(id)} was already used for something else.",
            next="Make a new id for each new request; repeat one only with the same request.",
        )


class ResultDiffers(Conflict):
    """The thread holds another result under this id."""

    facts = ("id", "stored", "given")

    def __init__(self, id: str, *, stored: str, given: str) -> None:
        super().__init__(
            f"The thread holds another result as {shortened(id)}.",
            next="Use a new run_id to run it again.",
        )
        self.id, self.stored, self.given = id, stored, given


class CheckpointMismatch(Conflict):
    """The checkpoint is of another run than the requested one."""

    facts = ("parts",)

    def __init__(self, parts: Sequence[str]) -> None:
        super().__init__(
            f"The checkpoint is of another run: {', '.join(parts)} differ.",
            next="Run the plan that was begun, use a new run_id,"
            ' or start again with on_mismatch="restart".',
        )
        self.parts = tuple(parts)


class ClaimRefused(Conflict):
    """The task cannot be claimed; `reason` is taken, blocked, skills or settled."""

    def __init__(self, task_id: str, reason: str, why: str, *, next: str = "") -> None:
        super().__init__(
            f"The task {shortened(task_id)} cannot be claimed: {why}.", reason=reason, next=next
        )


class NotOwner(Conflict):
    """Another agent owns the task, or it has no owner."""

    facts = ("owner",)

    def __init__(self, task_id: str, owner: str | None) -> None:
        claim = f"is claimed by {shortened(owner)}" if owner else "has no owner"
        super().__init__(
            f"The task {shortened(task_id)} {claim}.",
            next="Send its owner a message." if owner else "Claim it first.",
        )
        self.owner = owner


class TaskSettled(Conflict):
    """The task is done or failed, which is final."""

    facts = ("status",)

    def __init__(self, task_id: str, status: str) -> None:
        super().__init__(
            f"The task {shortened(task_id)} is {status}, which is final.",
            next="Create a new task for the remaining work.",
        )
        self.status = status


class AgentNameTaken(Conflict):
    """Two agents of one network or team have one name."""

    facts = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Two agents are named {shortened(name)}.", next="Give each a name of its own."
        )
        self.name = name


class ToolNameTaken(Conflict):
    """Two tools have one name."""

    facts = ("name", "ids")

    def __init__(self, name: str, *ids: str) -> None:
        super().__init__(
            f"Two tools are named {name}: {' and '.join(ids)}.",
            next='Lay out the run tools with profile="together".',
        )
        self.name, self.ids = name, ids


class NotRunnable(HoldfastError):
    """It cannot be run as configured; nothing was stored or sent."""

    facts: ClassVar[tuple[str, ...]] = ("network", "agent")

    def __init__(
        self,
        message: str,
        *,
        network: str | None = None,
        agent: str | None = None,
        next: str = "",
    ) -> None:
        super().__init__(message, next=next)
        self.network, self.agent = network, agent


class NoModel(NotRunnable):
    """No model is configured."""


class NoRouter(NotRunnable):
    """No router chooses the next agent."""


class NoAgentEnabled(NotRunnable):
    """There is no agent, or all are disabled."""


class RunFailed(HoldfastError):
    """The run failed; `run` holds everything done before. The cause is chained."""

    facts: ClassVar[tuple[str, ...]] = ("run", "result", "stop_reason")

    def __init__(
        self,
        message: str,
        *,
        run: object = None,
        result: object = None,
        stop_reason: str = "",
        next: str = "",
    ) -> None:
        super().__init__(message, next=next)
        self.run, self.result, self.stop_reason = run, result, stop_reason


class StepFailed(RunFailed):
    """A step failed, and with it the steps that need its result."""

    facts = ("step_id", "error")

    def __init__(self, step_id: str, error: object, *, run: object = None) -> None:
        super().__init__(f"The step {shortened(step_id)} failed: {error}", run=run)
        self.step_id, self.error = step_id, error


class TaskFailed(RunFailed):
    """Steps of a task failed; those that needed them were not run."""

    facts = ("task_id", "failed", "blocked")

    def __init__(
        self,
        task_id: str,
        cause: str,
        *,
        failed: Sequence[str],
        blocked: Sequence[str],
        run: object = None,
    ) -> None:
        waited = f" Not run: {', '.join(blocked)}." if blocked else ""
        super().__init__(f"The task {shortened(task_id)} failed: {cause}.{waited}", run=run)
        self.task_id, self.failed, self.blocked = task_id, tuple(failed), tuple(blocked)


class PlanFailed(RunFailed):
    """Tasks of a plan failed; those that needed them were not run."""

    facts = ("failed", "blocked", "report")

    def __init__(
        self,
        cause: str,
        *,
        failed: Sequence[str],
        blocked: Sequence[str],
        report: object,
        run: object = None,
    ) -> None:
        waited = f" Not run: {', '.join(blocked)}." if blocked else ""
        super().__init__(f"The plan failed: {cause}.{waited}", run=run)
        self.failed, self.blocked, self.report = tuple(failed), tuple(blocked), report


class RunCancelled(HoldfastError):
    """The run was cancelled; completed results remain."""

    facts = ("reason", "completed")

    def __init__(self, reason: str, *, completed: Sequence[str] = ()) -> None:
        super().__init__(
            f"The run was cancelled: {shortened(reason)}.",
            next="Run it again with the same run_id to go on from what is completed.",
        )
        self.reason, self.completed = reason, tuple(completed)


class RunWaiting(HoldfastError):
    """The run waits for answers; everything done before is kept.

    `questions` are its open questions.
    """

    facts = ("run_id", "questions")

    def __init__(self, run_id: str, questions: Sequence[object]) -> None:
        number = len(questions)
        super().__init__(
            f"The run {shortened(run_id)} waits for {number} answer{'s' * (number != 1)}.",
            next="Answer with hf.runs.answer, then run it again under its run_id.",
        )
        self.run_id, self.questions = run_id, tuple(questions)


class WaitTimeout(HoldfastError):
    """The awaited key was not written before the timeout."""

    facts = ("key", "seconds")

    def __init__(self, key: str, seconds: float) -> None:
        super().__init__(
            f"{shortened(key)} was not written within {seconds:g} s.",
            next="Wait longer, or check that its writer still runs.",
        )
        self.key, self.seconds = key, seconds


class Unavailable(HoldfastError):
    """The storage cannot be reached; the cause is chained.

    `written` is False when the write certainly did not happen, None when that is unknown.
    """

    facts: ClassVar[tuple[str, ...]] = ("reason", "written", "retry_after")

    def __init__(
        self,
        message: str,
        *,
        reason: Reason,
        written: Literal[False] | None = False,
        retry_after: float | None = None,
        next: str = "Try again in a moment.",
    ) -> None:
        super().__init__(message, next=next)
        self.reason: Reason = reason
        self.written, self.retry_after = written, retry_after


class Corrupt(Unavailable):
    """The file is damaged, or not a database."""

    facts = ("path", "findings")

    def __init__(self, path: str, findings: str) -> None:
        super().__init__(
            f"{path} is damaged or not a database: {findings}.",
            reason="io",
            next="Run holdfast verify, then holdfast restore from a backup.",
        )
        self.path, self.findings = path, findings


class TooNew(Unavailable):
    """A newer release wrote the database."""

    facts = ("found", "known")

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"The database has schema {found}, this release knows {known}. It was not touched.",
            reason="read_only",
            next="Upgrade holdfast.",
        )
        self.found, self.known = found, known


class EngineFault(HoldfastError):
    """A bug in the storage layer."""

    facts = ("statement",)

    def __init__(self, message: str, *, statement: str = "") -> None:
        super().__init__(message, next="Please report it.")
        self.statement = statement


class MissingExtra(HoldfastError, ImportError):
    """An optional extra of the package is not installed."""

    facts = ("extra", "command")

    def __init__(self, extra: str, *, command: str | None = None) -> None:
        self.extra = extra
        self.command = command or f"pip install 'holdfast[{extra}]'"
        super().__init__(f"{extra!r} is not installed.", next=f"Install it: {self.command}")
