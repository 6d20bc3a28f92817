"""Records of durable memory: entries, limits, changes, reports."""

import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from types import TracebackType
from typing import Final, Literal

from msgspec import Struct

from holdfast.ground import errors
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import HoldfastError
from holdfast.ground.scope import Actor
from holdfast.ground.trust import HeldFor, Tier

EntryScope = Literal["agent", "workspace", "run"]
Outcome = Literal["created", "replaced", "refreshed", "unchanged"]

CORE, DAILY, CONVERSATION, WORKSPACE = "core", "daily", "conversation", "workspace"
CATEGORIES = (CORE, DAILY, CONVERSATION, WORKSPACE)
"""Categories with their own lifetime; any other is custom, windowed and without expiry."""
CUSTOM = "custom"
LABELS = (*CATEGORIES, CUSTOM)
"""Labels of categories in events and metrics; custom names are not published."""


def label_of(category: str) -> str:
    """Return the label of *category* in events and metrics."""
    return category if category in CATEGORIES else CUSTOM


class By(Struct, frozen=True, kw_only=True, gc=False):
    """The actor of a write, and its run."""

    actor: Actor
    run_id: str | None = None
    run_token: int | None = None

    def __str__(self) -> str:
        """Return the text for a prompt, such as `agent:agent_7 run:run_41`."""
        who = f"{self.actor.kind}:{self.actor.id}"
        return f"{who} run:{self.run_id}" if self.run_id else who


class DurableEntry(Struct, frozen=True, gc=False):
    """A durable entry: the content stored under one key.

    `seq` is the number of its last write, `size_bytes` the UTF-8 bytes of key, content, category
    and tags. `agent` is None on workspace entries; `run_id` is set on conversation entries
    alone; `expires_at` on daily ones. Times have whole milliseconds. `tier` tells who stands behind
    the content, `origin_ref` where a text from outside came from, `held` why it waits for a person.
    """

    # A hydration creates a thousand: positional arguments halve the time. No field can be part of a
    # reference cycle, so the garbage collector skips them.
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
    tier: Tier = "said"
    origin_ref: str | None = None
    held: HeldFor | None = None


class Gone(Struct, frozen=True, kw_only=True, gc=False):
    """An entry that a write or a sweep deleted."""

    key: str
    category: str
    scope: EntryScope
    size_bytes: int
    seq: int


class StoredEntry(DurableEntry, frozen=True, kw_only=True, gc=False):
    """An entry after a write, with the effects of that write."""

    outcome: Outcome
    evicted: tuple[Gone, ...] = ()
    expired: tuple[Gone, ...] = ()
    shadows: Literal["workspace", "agent"] | None = None
    notices: tuple[str, ...] = ()


class EntryFields(Struct, frozen=True, kw_only=True):
    """What a client sets of an entry, besides its key."""

    content: str
    category: str
    tags: Iterable[str] = ()


class NewEntry(EntryFields, frozen=True, kw_only=True):
    """One item of `set_many`."""

    key: str
    tags: tuple[str, ...] = ()


class NotStored(Struct, frozen=True):
    """An item of `set_many` that was refused."""

    index: int
    key: str
    error: HoldfastError


class StoredMany(Struct, frozen=True, kw_only=True):
    """Result of `set_many`: the stored entries and the refused items."""

    stored: tuple[StoredEntry, ...]
    refused: tuple[NotStored, ...] = ()


class Swept(Struct, frozen=True, kw_only=True):
    """Result of a sweep: expired entries, lapsed runs, deletions.

    `removed` counts the conversation entries of the lapsed runs.
    """

    expired: tuple[Gone, ...]
    ended_runs: int
    removed: int


class AgentSummary(Struct, frozen=True, kw_only=True):
    """Summary of one agent of a workspace that has durable memory.

    `last_write` is None before the first write.
    """

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
    """The limits in force for one agent.

    The agent's own limits take precedence over its workspace's, and those over the defaults.

    `cap` counts an agent's entries without conversation and workspace entries; `workspace_cap` a
    workspace's shared entries; `run_cap` a run's conversation entries. `content_bytes` and `budget`
    are UTF-8 bytes, `daily_hours` hours from an entry's last write.
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
"""Least and greatest value of each limit."""


class LimitsChanged(Struct, frozen=True, kw_only=True):
    """The limits in force after a change, and the entries that a lower cap evicted."""

    limits: DurableLimits
    evicted: tuple[Gone, ...] = ()


Verdict = Literal[
    "core",
    "window",
    "held",
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
    """Why an entry is hydrated or not; `text` is a sentence for people.

    `rank` counts from 1 in the order considered, `left_before` is the budget remaining at that
    point. Fields that do not apply to an absent key are None; `at` and `by` describe a deletion.
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
    """Result of ending a run; `removed` counts its conversation entries."""

    ended: bool
    removed: int


class RejectedFile(Struct, frozen=True, kw_only=True):
    """A file that was not imported: its path, error code and reason."""

    path: str
    code: str
    reason: str


class ExportReport(Struct, frozen=True, kw_only=True):
    """Paths that an export wrote, and paths of an earlier export that it removed."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


class ImportReport(Struct, frozen=True, kw_only=True):
    """Result of an import by key, or with `dry_run` its expected result.

    `ignored` counts unknown fields.
    """

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
"""The cause of a change, such as `{"evicted_for": key}` or `{"source": "sweep"}`."""


class EntryChange(Struct, frozen=True, kw_only=True):
    """One change of an entry; `key` is None if forgotten, `content` once deleted."""

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
        """The run of the change, or None."""
        return self.actor.run_id

    @property
    def run_token(self) -> int | None:
        """The fencing token of that run, or None."""
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
    """Return *instant*, in UTC, as RFC 3339 with milliseconds and `Z`."""
    # Rendering spends most of its time here, and `isoformat` takes three times as long.
    day = f"{_year(instant.year)}-{_TWO[instant.month]}-{_TWO[instant.day]}"
    time = f"{_TWO[instant.hour]}:{_TWO[instant.minute]}:{_TWO[instant.second]}"
    return f"{day}T{time}.{_THREE[instant.microsecond // MILLISECOND]}Z"


@lru_cache(maxsize=16)
def _year(year: int) -> str:
    return f"{year:04}"


# Retention. A write deletes old rows of its own agent once a day; the sweep those of all agents.

TIDY_EVERY: Final = DAY
CHANGES_KEPT: Final = 90 * DAY
EVICTED_KEPT: Final = 30 * DAY
"""Microseconds for which the content of an evicted entry can be restored."""
REPLAYS_KEPT: Final = DAY
ENDED_KEPT: Final = 30 * DAY
"""Microseconds for which ended runs and tombstones are stored."""


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
    """Set the code of *error*, and a default for its next step."""
    error.code = error.code or code_of(error)
    error.next = error.next or _NEXT


class _Coded:
    """Add codes to the errors raised within; stateless, so one is shared."""

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
    """Return a context manager that adds codes to the errors raised within."""
    return _CODED


SECRET_BYTES: Final = 32

_AGENT = "\0agent\0"
"""Prefix of hashed agent names. No key begins with it."""


class Tombstone(Struct, frozen=True, kw_only=True):
    """A tombstone: the hash of a key that was forgotten."""

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
    """Return the hash that a tombstone stores for a forgotten agent's name."""
    return key_hash(secret, _AGENT + agent)
