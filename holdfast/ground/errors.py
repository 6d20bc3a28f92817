"""Everything that can go wrong, and what each error knows.

HoldfastError
├── InvalidInput            the input breaks a stated limit
│   ├── UnknownFormat           a text is of no format or release that is known here
│   ├── ChecksumMismatch        a result is not what it was when it was written
│   ├── InvalidPlan             a plan cannot be run; all its problems at once
│   ├── PlanningFailed          the model did not arrive at a plan
│   └── CheckpointUnreadable    what was kept of a run cannot be read
├── Refused                 a rule of the thing itself forbids it
│   ├── StoreArchived           the store is archived: it can be read, not written
│   ├── StoreFull               the store holds as many memories as it may
│   ├── HeadVersion             the version is the current one of a live memory
│   ├── Unsupported             this target or route cannot do that
│   ├── LimitExceeded           more than the memory of a run may hold
│   ├── TooLarge                a body, or what an append would make, is over its limit
│   ├── RunRequired             a conversation entry needs a run to belong to
│   ├── ImportRefused           files were rejected, so nothing was replaced
│   ├── SecretRefused           a text holds what looks like a credential
│   └── ToolRefused             what a model asked of a tool cannot be done
├── NotAuthenticated        no credential, or one that is not known
├── NotPermitted            the credential does not reach that far
│   ├── ScopeDenied             it belongs to another agent, user or workspace
│   └── LongTermOff             long-term memory is not switched on
├── NotFound                nothing is there
├── Conflict                the write lost to the state of things
│   ├── PathTaken               another memory sits at this path, above it or below it
│   ├── PreconditionFailed      it is not what you read
│   ├── ContentGone             the version was redacted
│   ├── CursorExpired           the position is not among those that are kept
│   ├── MemoryFull              an agent holds as many entries as it may, all of them core
│   ├── StaleRun                the run was superseded, ended, or lapsed
│   ├── Forgotten               the key was forgotten after this run began
│   ├── IdempotencyMismatch     the id of this request was another request's
│   ├── ResultDiffers           the thread holds another result under this id
│   ├── CheckpointMismatch      the run that was kept is not the one asked for
│   ├── ClaimRefused            a task of a team cannot be claimed
│   ├── NotOwner                a task of a team is somebody else's
│   ├── TaskSettled             a task of a team is done or failed
│   ├── AgentNameTaken          two agents of one network or team have one name
│   └── ToolNameTaken           two tools answer to one name
├── NotRunnable             it cannot be run as it is; nothing was stored or sent
│   ├── NoModel                 nobody named a model
│   ├── NoRouter                nobody chooses which agent goes next
│   └── NoAgentEnabled          there is no agent, or all are switched off
├── RunFailed               a run ended in failure; what was done before is kept
│   ├── StepFailed              a step failed, and what needed its result
│   ├── TaskFailed              steps of a task failed
│   └── PlanFailed              tasks of a plan failed
├── RunCancelled            a run was cancelled; what was completed is kept
├── WaitTimeout             what was waited for did not come in time
├── Unavailable             the storage cannot be reached; the cause is chained
│   ├── Corrupt                 the file is damaged, or not a database
│   └── TooNew                  the database is of a newer release
├── EngineFault             a bug of ours below the memories
└── MissingExtra            an optional part of the package is not installed
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
"""Why storage is unavailable."""

SHOWN = 60
"""Characters of a bad value that a message may repeat."""


def shortened(given: object) -> str:
    """Return *given* as at most 60 characters of text, for a message.

    A character that nobody would see is spelled as its escape.
    """
    text = given if isinstance(given, str) else _told(given)
    if not text.isprintable():
        text = "".join(map(_visible, text[: SHOWN + 1]))
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _told(given: object) -> str:
    try:
        return repr(given)
    except (RecursionError, ValueError):
        # Nested without a bottom, or a number of thousands of digits.
        return f"<{type(given).__name__}>"


def _visible(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


class HoldfastError(Exception):
    """Base of every error raised here on purpose.

    `message` says what is so, `next` what to do about it; `facts` names the
    attributes that travel with the error through every door.
    """

    facts: ClassVar[tuple[str, ...]] = ()
    code: str | None = None
    """`HF-MEM-…` on an error of a durable call."""
    index: int | None = None
    """Which of many it is about, where many were asked for at once."""

    def __init__(self, message: str, *, next: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next = next

    def __str__(self) -> str:
        return f"{self.message} {self.next}" if self.next else self.message

    def carried(self) -> dict[str, object]:
        """Return its facts by name, and which of many it is about, if it is."""
        facts: dict[str, object] = {name: getattr(self, name, None) for name in self.facts}
        return facts if self.index is None else facts | {"index": self.index}


class InvalidInput(HoldfastError):
    """The input breaks a stated limit."""

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
    """The text is not of a format, or a release of it, that can be read here."""

    facts = (*InvalidInput.facts, "format", "version")

    def __init__(self, field: str, *, format: object, version: object, known: str) -> None:
        super().__init__(
            field,
            f"its format is {shortened(format)}, version {shortened(version)}; known is {known}",
            next="Give what to_json() made, or upgrade holdfast.",
        )
        self.format, self.version = format, version


class ChecksumMismatch(InvalidInput):
    """A result is not what it was when its checksum was written."""

    facts = (*InvalidInput.facts, "id", "stored", "computed")

    def __init__(self, id: str, *, stored: str, computed: str) -> None:
        super().__init__(
            "checksum",
            f"the result {shortened(id)} changed since its checksum was written",
            next="Restore that thread, or pass verify=False to read it as it is.",
        )
        self.id, self.stored, self.computed = id, stored, computed


class InvalidPlan(InvalidInput):
    """The plan cannot be run; every problem of it is told at once."""

    facts = (*InvalidInput.facts, "problems")

    def __init__(self, problems: Sequence[object]) -> None:
        told = "; ".join(str(each) for each in problems)
        super().__init__("plan", told, next="Correct these problems, then run the plan.")
        self.problems = tuple(problems)


class PlanningFailed(InvalidInput):
    """The model did not arrive at a plan."""

    facts = (*InvalidInput.facts, "problems", "tasks")

    def __init__(
        self, reason: str, *, problems: Sequence[object] = (), tasks: Sequence[object] = ()
    ) -> None:
        told = "; ".join(str(each) for each in problems)
        super().__init__(
            "plan",
            f"{reason}: {told}" if told else reason,
            next="State the objective more narrowly, or write the plan yourself.",
        )
        self.problems, self.tasks = tuple(problems), tuple(tasks)


class CheckpointUnreadable(InvalidInput):
    """What was kept of a run is there and cannot be read."""

    facts = (*InvalidInput.facts, "path")

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            "checkpoint",
            f"{shortened(path)} cannot be read: {shortened(why)}",
            next="Restore it from a copy, or delete it to start the run again.",
        )
        self.path = path


class Refused(HoldfastError):
    """A rule of the thing itself forbids it."""


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
    """The store holds as many memories as it may."""

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
    """It is larger, or there are more, than the memory of a run may hold."""

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
    """A body, or what an append would make, is over its limit."""

    facts = ("limit",)

    def __init__(
        self, limit: int, *, what: str = "request body", next: str = "Send less in one request."
    ) -> None:
        super().__init__(f"The {what} is larger than {limit:,} bytes.", next=next)
        self.limit = limit


class RunRequired(Refused):
    """A conversation entry needs a run to belong to."""

    def __init__(self) -> None:
        super().__init__(
            "A conversation entry belongs to a run, and this is not one.",
            next="Store it inside `with durable.run() as run`, or choose another category.",
        )


class ImportRefused(Refused):
    """Files were rejected, so nothing was replaced; `rejected` says which, and why."""

    facts = ("rejected",)

    def __init__(self, message: str, *, rejected: object = (), next: str = "") -> None:
        super().__init__(message, next=next)
        self.rejected = rejected


class SecretRefused(Refused):
    """A text holds what looks like a credential; `reasons` are the kinds, never the text."""

    facts = ("reasons",)

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__(
            f"The text holds what looks like a secret ({', '.join(reasons)}); it was not stored.",
            next="Leave the secret out, and keep it where secrets are kept.",
        )
        self.reasons = reasons


class ToolRefused(Refused):
    """What a model asked of a tool cannot be done; `str(error)` is the tool's text."""


class NotAuthenticated(HoldfastError):
    """No credential, or one that is not known. One sentence for every cause."""

    def __init__(self) -> None:
        super().__init__(
            "The API key or token is missing or not valid.",
            next="Send a valid one as x-api-key or Authorization: Bearer.",
        )


class NotPermitted(HoldfastError):
    """The credential does not reach that far."""

    facts = ("needed",)

    def __init__(self, message: str, *, needed: str, next: str = "") -> None:
        super().__init__(message, next=next)
        self.needed = needed


class ScopeDenied(NotPermitted):
    """It belongs to another agent, user or workspace."""


class LongTermOff(NotPermitted):
    """Long-term memory is not switched on; `by` says where: `request` or `server`."""

    facts = ("needed", "by")

    def __init__(self, by: Literal["request", "server"]) -> None:
        super().__init__(
            f"Long-term memory is off, by the {by}.",
            needed="long-term memory",
            next="Send enabled=true, or set HOLDFAST_LTM_ENABLED=1 where the server runs.",
        )
        self.by: Literal["request", "server"] = by


class NotFound(HoldfastError):
    """Nothing is there."""

    facts = ("kind", "id")

    def __init__(self, kind: str, id: str, *, next: str = "Check the id.") -> None:
        id = shortened(id)
        super().__init__(f"There is no {kind} {id}.", next=next)
        self.kind, self.id = kind, id


class Conflict(HoldfastError):
    """The write lost to the state of things."""

    facts: ClassVar[tuple[str, ...]] = ("reason",)

    def __init__(self, message: str, *, reason: str = "", next: str = "") -> None:
        super().__init__(message, next=next)
        self.reason = reason


class PathTaken(Conflict):
    """Another memory sits at this path, above it or below it."""

    facts = ("conflicting_memory_id", "conflicting_path")

    def __init__(self, conflicting_memory_id: str, conflicting_path: str) -> None:
        super().__init__(
            f"The path is taken: the memory {conflicting_memory_id} is at {conflicting_path}.",
            next="Update it, or choose a path that is not that one, above it or below it.",
        )
        self.conflicting_memory_id = conflicting_memory_id
        self.conflicting_path = conflicting_path


class PreconditionFailed(Conflict):
    """It is not what you read."""

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
    """The position is not among those that are kept."""

    facts = ("oldest",)

    def __init__(self, oldest: str | int) -> None:
        super().__init__(
            "The position is not among the changes that are kept.",
            next="Read the present state, then follow from now.",
        )
        self.oldest = oldest


class MemoryFull(Conflict):
    """An agent holds as many entries as it may, and none of them may go for this one."""

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
    """The run was superseded, ended, or lapsed: nothing was written and nothing read."""

    facts = ("reason", "token", "live_token")

    def __init__(self, reason: str, *, token: int, live_token: int | None) -> None:
        super().__init__(
            f"This run (token {token}) was {reason}.",
            reason=reason,
            next="Open a new run, which sees what was stored meanwhile.",
        )
        self.token, self.live_token = token, live_token


class Forgotten(Conflict):
    """The key was forgotten by somebody else after this run began."""

    facts = ("forgotten_at", "by")

    def __init__(self, forgotten_at: datetime, by: str) -> None:
        super().__init__(
            f"The key was forgotten by {by} after this run began.",
            next="Check that the fact is true again, then store it from a new run.",
        )
        self.forgotten_at, self.by = forgotten_at, by


class IdempotencyMismatch(Conflict):
    """The id of this request was another request's."""

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
    """The run that was kept is not the run that is asked for."""

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
    """The task is somebody else's."""

    facts = ("owner",)

    def __init__(self, task_id: str, owner: str | None) -> None:
        whose = f"is claimed by {shortened(owner)}" if owner else "has no owner"
        super().__init__(
            f"The task {shortened(task_id)} {whose}.",
            next="Send its owner a message." if owner else "Claim it first.",
        )
        self.owner = owner


class TaskSettled(Conflict):
    """The task is done or failed, and stays so."""

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
    """Two tools answer to one name."""

    facts = ("name", "ids")

    def __init__(self, name: str, *ids: str) -> None:
        super().__init__(
            f"Two tools are named {name}: {' and '.join(ids)}.",
            next='Lay out the run tools with profile="together".',
        )
        self.name, self.ids = name, ids


class NotRunnable(HoldfastError):
    """It cannot be run as it is; nothing was stored or sent."""

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
    """Nobody named a model."""


class NoRouter(NotRunnable):
    """Nobody chooses which agent goes next."""


class NoAgentEnabled(NotRunnable):
    """There is no agent, or all of them are switched off."""


class RunFailed(HoldfastError):
    """The run ended in failure; everything done before is in `run`. The cause is chained."""

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
    """A step failed, and with it what needed its result."""

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
    """The run was cancelled; what was completed is kept."""

    facts = ("reason", "completed")

    def __init__(self, reason: str, *, completed: Sequence[str] = ()) -> None:
        super().__init__(
            f"The run was cancelled: {shortened(reason)}.",
            next="Run it again with the same run_id to go on from what is completed.",
        )
        self.reason, self.completed = reason, tuple(completed)


class WaitTimeout(HoldfastError):
    """What was waited for did not come in time."""

    facts = ("key", "seconds")

    def __init__(self, key: str, seconds: float) -> None:
        super().__init__(
            f"{shortened(key)} was not written within {seconds:g} s.",
            next="Wait longer, or check that its writer still runs.",
        )
        self.key, self.seconds = key, seconds


class Unavailable(HoldfastError):
    """The storage cannot be reached; the cause is chained.

    `written` is False when the write certainly did not happen, None when that
    is not known.
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
    """The database is of a newer release."""

    facts = ("found", "known")

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"The database has schema {found}, this release knows {known}. It was not touched.",
            reason="read_only",
            next="Upgrade holdfast.",
        )
        self.found, self.known = found, known


class EngineFault(HoldfastError):
    """A bug of ours below the memories."""

    facts = ("statement",)

    def __init__(self, message: str, *, statement: str = "") -> None:
        super().__init__(message, next="Please report it.")
        self.statement = statement


class MissingExtra(HoldfastError, ImportError):
    """An optional part of the package is not installed."""

    facts = ("extra", "command")

    def __init__(self, extra: str, *, command: str | None = None) -> None:
        self.extra = extra
        self.command = command or f"pip install 'holdfast[{extra}]'"
        super().__init__(f"{extra!r} is not installed.", next=f"Install it: {self.command}")
