"""Records of durable memory: entries, limits, changes, reports."""

import hmac
import secrets
from datetime import datetime
from functools import lru_cache
from types import TracebackType
from typing import Final, Literal

from msgspec import Struct

from holdfast.ground import errors
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import HoldfastError
from holdfast.ground.scope import Actor

EntryScope = Literal["agent", "workspace", "run"]
Outcome = Literal["created", "replaced", "refreshed", "unchanged"]

CORE, DAILY, CONVERSATION, WORKSPACE = "core", "daily", "conversation", "workspace"
CATEGORIES = (CORE, DAILY, CONVERSATION, WORKSPACE)
"""The four with a lifetime of their own; any other is the caller's, windowed and kept."""
CUSTOM = "custom"
LABELS = (*CATEGORIES, CUSTOM)
"""What events and metrics call a category: a label of the caller's is told to nobody."""


def label_of(category: str) -> str:
    """Return what events and metrics call *category*."""
    return category if category in CATEGORIES else CUSTOM


class By(Struct, frozen=True, kw_only=True, gc=False):
    """Who wrote, and in which run."""

    actor: Actor
    run_id: str | None = None
    run_token: int | None = None

    def __str__(self) -> str:
        """Return it as a rendering shows it: `agent:agent_7 run:run_41`."""
        who = f"{self.actor.kind}:{self.actor.id}"
        return f"{who} run:{self.run_id}" if self.run_id else who


class DurableEntry(Struct, frozen=True, gc=False):
    """What is kept under one key.

    `seq` is the write that made it so, `size_bytes` its UTF-8 bytes of key, content, category
    and tags. `agent` is None on workspace entries; `run_id` is set on conversation entries
    alone; `expires_at` on daily ones. Times have whole milliseconds.
    """

    # A hydration makes a thousand: by position in half the time, and nothing in them can be part
    # of a cycle.
    id: str
    key: str
    content: str
    category: str
    tags: tuple[str, ...]
    scope: EntryScope
    workspace: str
    agent: str | None
    run_id: str | None
    seq: int
    size_bytes: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    created_by: By
    updated_by: By


class Gone(Struct, frozen=True, kw_only=True, gc=False):
    """An entry that a write or a sweep took away."""

    key: str
    category: str
    scope: EntryScope
    size_bytes: int
    seq: int


class StoredEntry(DurableEntry, frozen=True, kw_only=True, gc=False):
    """An entry as a write left it, with all that the write brought about."""

    outcome: Outcome
    evicted: tuple[Gone, ...] = ()
    expired: tuple[Gone, ...] = ()
    shadows: Literal["workspace", "agent"] | None = None
    notices: tuple[str, ...] = ()


class NewEntry(Struct, frozen=True, kw_only=True):
    """What `set_many` is given for one entry."""

    key: str
    content: str
    category: str
    tags: tuple[str, ...] = ()


class NotStored(Struct, frozen=True):
    """An item of `set_many` that was refused."""

    index: int
    key: str
    error: HoldfastError


class StoredMany(Struct, frozen=True, kw_only=True):
    """What became of many writes in one transaction."""

    stored: tuple[StoredEntry, ...]
    refused: tuple[NotStored, ...] = ()


class Swept(Struct, frozen=True, kw_only=True):
    """What a sweep removed: expired entries, runs that lapsed, and their conversation entries."""

    expired: tuple[Gone, ...]
    ended_runs: int
    removed: int


class AgentSummary(Struct, frozen=True, kw_only=True):
    """One agent of a workspace that has durable memory; `last_write` is None before the first."""

    agent: str
    entries: int
    size_bytes: int
    last_write: datetime | None


MOST_KEY = 255
"""UTF-8 bytes of a key."""
MOST_CATEGORY = MOST_TAG = 64
"""UTF-8 bytes of a category, and of a tag."""
MOST_TAGS = 32
MOST_PROMOTED_FROM = 487
"""UTF-8 bytes of a key of a run's memory: the longest namespace, a colon, a name of 480."""
MOST_BATCH = 1_000
"""Entries of one `set_many`."""
MOST_IDEMPOTENCY_KEY = 128
"""UTF-8 bytes."""


class DurableLimits(Struct, frozen=True, kw_only=True):
    """The limits in force for one agent: its own over its workspace's over the defaults.

    `cap` counts an agent's entries, conversation and workspace entries left out; `workspace_cap`
    a workspace's shared entries; `run_cap` a run's conversation entries. `content_bytes` and
    `budget` are UTF-8 bytes, `daily_hours` hours from an entry's last write.
    """

    cap: int = 1_000
    workspace_cap: int = 1_000
    run_cap: int = 1_000
    content_bytes: int = 16_384
    budget: int = 262_144
    daily_hours: int = 72


RANGES: dict[str, tuple[int, int]] = {
    "cap": (1, 100_000),
    "workspace_cap": (1, 100_000),
    "run_cap": (1, 100_000),
    "content_bytes": (1, 65_536),
    "budget": (0, 16_777_216),
    "daily_hours": (1, 8_760),
}
"""What each limit may be set to, both ends included."""


class LimitsChanged(Struct, frozen=True, kw_only=True):
    """The limits now in force, and what a lowered cap evicted."""

    limits: DurableLimits
    evicted: tuple[Gone, ...] = ()


Verdict = Literal[
    "core",
    "window",
    "too_big",
    "over_budget",
    "shadowed",
    "expired",
    "evicted",
    "forgotten",
    "run_ended",
    "never_stored",
]


class Explanation(Struct, frozen=True, kw_only=True):
    """Why an entry is hydrated, or is not; `text` says it in one sentence for a person.

    `rank` counts from 1 in the order considered, `left_before` is the budget left at that point.
    What does not apply to an absent key is None; `at` and `by` tell of one that is gone.
    """

    key: str
    hydrated: bool
    reason: Verdict
    text: str
    budget: int
    category: str | None = None
    scope: EntryScope | None = None
    tier: Literal["pinned", "windowed"] | None = None
    rank: int | None = None
    size_bytes: int | None = None
    left_before: int | None = None
    at: datetime | None = None
    by: By | None = None


class RunEnded(Struct, frozen=True, kw_only=True):
    """A run that ended, and how many conversation entries went with it."""

    ended: bool
    removed: int


class RejectedFile(Struct, frozen=True, kw_only=True):
    """A file that was not imported: where, which code, and why."""

    path: str
    code: str
    reason: str


class ExportReport(Struct, frozen=True, kw_only=True):
    """What an export wrote, and what it removed of an earlier one, by path."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


class ImportReport(Struct, frozen=True, kw_only=True):
    """What an import did, or with `dry_run` would do, by key; `ignored` counts unknown fields."""

    created: tuple[str, ...]
    replaced: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    rejected: tuple[RejectedFile, ...]
    ignored: int
    dry_run: bool


Op = Literal[
    "create",
    "replace",
    "refresh",
    "move",
    "evict",
    "expire",
    "forget",
    "end",
    "redact",
    "restore",
]
Cause = dict[str, str]
"""What brought a change about, such as `{"evicted_for": key}` or `{"source": "sweep"}`."""


class EntryChange(Struct, frozen=True, kw_only=True):
    """One mutation: `key` is None once it was forgotten, `content` once it was let go."""

    seq: int
    at: datetime
    op: Op
    key: str | None
    category: str | None
    scope: EntryScope
    size_bytes: int
    content: str | None
    content_sha256: str | None
    actor: By
    cause: Cause
    redacted_at: datetime | None

    @property
    def run_id(self) -> str | None:
        """The run it was made in, if it was made in one."""
        return self.actor.run_id

    @property
    def run_token(self) -> int | None:
        """The token of that run."""
        return self.actor.run_token


MILLISECOND = 1_000
"""In microseconds."""
HOUR = 3_600_000_000
"""In microseconds."""
DAY = 24 * HOUR
"""In microseconds."""


def to_milliseconds(instant: datetime) -> int:
    """Return *instant* in microseconds since 1970, cut to a whole millisecond."""
    microseconds = to_microseconds(instant)
    return microseconds - microseconds % MILLISECOND


_TWO: Final = tuple(f"{number:02}" for number in range(60))
_THREE: Final = tuple(f"{number:03}" for number in range(1_000))


def to_milliseconds_text(instant: datetime) -> str:
    """Return *instant*, which is in UTC, as RFC 3339 with three fraction digits and `Z`."""
    # A rendering spends most of its time on these, and `isoformat` takes three times as long.
    day = f"{_year(instant.year)}-{_TWO[instant.month]}-{_TWO[instant.day]}"
    time = f"{_TWO[instant.hour]}:{_TWO[instant.minute]}:{_TWO[instant.second]}"
    return f"{day}T{time}.{_THREE[instant.microsecond // MILLISECOND]}Z"


@lru_cache(maxsize=16)
def _year(year: int) -> str:
    return f"{year:04}"


# A write drops it for its own agent once a day; the sweep for everybody.

TIDY_EVERY: Final = DAY
CHANGES_KEPT: Final = 90 * DAY
EVICTED_KEPT: Final = 30 * DAY
"""How long the content of an evicted entry can be brought back."""
REPLAYS_KEPT: Final = DAY
ENDED_KEPT: Final = 30 * DAY
"""How long an ended run is known, and what was forgotten since it began."""


CODES: dict[type[HoldfastError], str] = {
    errors.NotPermitted: "HF-MEM-001",
    errors.NotFound: "HF-MEM-002",
    errors.Unavailable: "HF-MEM-003",
    errors.InvalidInput: "HF-MEM-004",
    errors.TooLarge: "HF-MEM-004",
    errors.MemoryFull: "HF-MEM-005",
    errors.StaleRun: "HF-MEM-006",
    errors.Forgotten: "HF-MEM-007",
    errors.RunRequired: "HF-MEM-008",
    errors.PreconditionFailed: "HF-MEM-009",
    errors.IdempotencyMismatch: "HF-MEM-010",
    errors.ImportRefused: "HF-MEM-011",
}


_NEXT: Final = "Correct the request and retry."


def code_of(error: HoldfastError) -> str | None:
    """Return the code of *error*'s class or its nearest ancestor that has one."""
    return next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), None)


def give_code(error: HoldfastError) -> None:
    """Let *error* carry its code, and say what to do where it says nothing."""
    error.code = error.code or code_of(error)
    error.next = error.next or _NEXT


class _Coded:
    """Lets what is raised within carry its code; it has no state, so one is enough for all."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, HoldfastError):
            give_code(error)


_CODED: Final = _Coded()


def coded() -> _Coded:
    """Return what lets the errors raised within it carry their codes."""
    return _CODED


SECRET_BYTES: Final = 32

_AGENT = "\0agent\0"
"""Before an agent's name where that is hashed: no key begins like this."""


class Tombstone(Struct, frozen=True, kw_only=True):
    """That a key was forgotten."""

    key_hash: bytes
    agent: str
    seq: int
    at: int
    actor: str


def new_secret() -> bytes:
    """Return a random key for the hashes of a workspace."""
    return secrets.token_bytes(SECRET_BYTES)


def key_hash(secret: bytes, key: str) -> bytes:
    """Return HMAC-SHA256 of *key* with the workspace's random *secret*."""
    return hmac.digest(secret, key.encode(), "sha256")


def agent_hash(secret: bytes, agent: str) -> bytes:
    """Return what is kept of the name of an agent that was forgotten."""
    return key_hash(secret, _AGENT + agent)
