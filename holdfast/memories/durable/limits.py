"""What an agent may keep: the limits, their defaults and their ranges."""

from msgspec import Struct

from holdfast.memories.durable.records import Gone

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
