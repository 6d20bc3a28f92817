"""Checks of durable memory, and tombstones of what was forgotten."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.text import sha256_hex
from holdfast.library.upkeep.tables import Finding, in_batches, miscounted
from holdfast.memories.durable.records import agent_hash, key_hash
from holdfast.memories.durable.rows import NO_RUN, SHARED, tags_of

ROWS_AT_ONCE = 500
"""Rows read at a time; changes come with their contents."""


class StoredTombstone(Struct, frozen=True, kw_only=True):
    """Tombstone of a forgotten key, hashed with its workspace's secret."""

    workspace: str
    agent: str
    run_id: str
    key_hash: bytes
    seq: int
    at: int
    actor: str
    secret: bytes


class Tombstones:
    """Tombstones of durable memory, by owner and hash."""

    def __init__(self, found: Iterable[StoredTombstone]) -> None:
        self._by_owner: defaultdict[tuple[str, str], dict[tuple[str, bytes], StoredTombstone]]
        self._by_owner = defaultdict(dict)
        self._secrets: dict[str, bytes] = {}
        for each in found:
            self._secrets[each.workspace] = each.secret
            self._by_owner[each.workspace, each.agent][each.run_id, each.key_hash] = each

    def over(self, row: "VerifiedEntry | LoggedChange") -> StoredTombstone | None:
        """Return the tombstone of *row*'s key that is newer than *row*, or None."""
        if row.key is None or (row.workspace, row.agent) not in self._by_owner:
            return None
        hashed = key_hash(self._secrets[row.workspace], row.key)
        found = self._by_owner[row.workspace, row.agent].get((row.run_id, hashed))
        return found if found is not None and found.seq > row.seq else None

    def over_agent(self, workspace: str, agent: str, seq: int) -> StoredTombstone | None:
        """Return the tombstone of *agent* that is newer than *seq*, or None."""
        if not agent or (workspace, SHARED) not in self._by_owner:
            return None
        hashed = agent_hash(self._secrets[workspace], agent)
        found = self._by_owner[workspace, SHARED].get((NO_RUN, hashed))
        return found if found is not None and found.seq > seq else None


class VerifiedEntry(Struct, frozen=True, kw_only=True):
    """A durable entry, without its content."""

    workspace: str
    agent: str
    run_id: str
    key: str
    id: str
    category: str
    tags: str
    size_bytes: int
    seq: int
    content_bytes: int

    @property
    def measured(self) -> int:
        """Its size in bytes, computed from its texts."""
        texts = (self.key, self.category, *tags_of(self.tags))
        return self.content_bytes + sum(len(text.encode()) for text in texts)


class LoggedChange(Struct, frozen=True, kw_only=True):
    """One row of the log of durable entries."""

    seq: int
    workspace: str
    agent: str
    run_id: str
    key: str | None
    content: str | None
    content_sha256: str | None


COUNTED = ("entries", "core_entries", "size_bytes")


class _Miscounted(Struct, frozen=True, kw_only=True):
    workspace: str
    agent: str
    entries: int
    core_entries: int
    size_bytes: int
    counted_entries: int
    counted_core_entries: int
    counted_size_bytes: int
    late: int


def check_entries(
    reader: Reader, sql: SimpleNamespace, counts: dict[str, int], *, quick: bool
) -> Iterator[Finding]:
    """Yield findings on durable memory, and add the rows checked to *counts*.

    *quick* leaves out the hashes of the log's contents.
    """
    yield from miscounted_agents(reader, sql)
    buried = Tombstones(reader.all(StoredTombstone, sql.tombstones))
    for entry in entries(reader, sql):
        counts["durable_entries"] += 1
        if entry.size_bytes != entry.measured:
            expected, found = str(entry.measured), str(entry.size_bytes)
            yield Finding("counters", "durable_entries", entry.id, expected, found)
        if _is_buried(buried, entry):
            yield Finding("forgotten", "durable_entries", entry.id, "nothing of it", "an entry")
    for change in changes(reader, sql):
        counts["durable_changes"] += 1
        id = str(change.seq)
        if change.content is not None and not quick:
            found = sha256_hex(change.content.encode())
            if found != change.content_sha256:
                expected = change.content_sha256 or "none"
                yield Finding("heads", "durable_changes", id, expected, found)
        if _is_buried(buried, change):
            yield Finding("forgotten", "durable_changes", id, "nothing of it", "a change")


def entries(reader: Reader, sql: SimpleNamespace) -> Iterator[VerifiedEntry]:
    """Give every durable entry, without its content."""
    by = {
        "workspace_after": "workspace",
        "agent_after": "agent",
        "run_after": "run_id",
        "key_after": "key",
    }
    statement = sql.durable_entries_after
    return in_batches(reader, VerifiedEntry, statement, by, start="", rows=ROWS_AT_ONCE)


def changes(reader: Reader, sql: SimpleNamespace) -> Iterator[LoggedChange]:
    """Give every row of the log."""
    by, statement = {"after": "seq"}, sql.durable_changes_after
    return in_batches(reader, LoggedChange, statement, by, rows=ROWS_AT_ONCE)


def _is_buried(buried: Tombstones, row: VerifiedEntry | LoggedChange) -> bool:
    agents = buried.over_agent(row.workspace, row.agent, row.seq)
    return agents is not None or buried.over(row) is not None


def miscounted_agents(reader: Reader, sql: SimpleNamespace) -> Iterator[Finding]:
    """Yield each counter of an agent that differs from its entries."""
    for row in reader.all(_Miscounted, sql.miscounted_agents):
        yield from miscounted("durable_agents", row.agent, row, COUNTED)
        if row.late:
            expected = "no entry that expires before it says"
            yield Finding("counters", "durable_agents", row.agent, expected, "one")


class NameTombstone(Struct, frozen=True, kw_only=True):
    """Tombstone of a forgotten user or thread.

    The name is hashed with its workspace's secret.
    """

    workspace: str
    name_hash: bytes
    seq: int
    at: int
    secret: bytes


class Named(Struct, frozen=True, kw_only=True):
    """A user or a thread that has rows."""

    workspace: str
    name: str


class NameTombstones:
    """Tombstones of users, or of threads, by name; *hashed* hashes their names."""

    def __init__(
        self, found: Iterable[NameTombstone], hashed: Callable[[bytes, str], bytes]
    ) -> None:
        self._hashed = hashed
        self._secrets: dict[str, bytes] = {}
        self._by_hash: dict[tuple[str, bytes], NameTombstone] = {}
        for each in found:
            self._secrets[each.workspace] = each.secret
            self._by_hash[each.workspace, each.name_hash] = each

    def over(self, workspace: str, name: str) -> NameTombstone | None:
        """Return the tombstone of *name*, or None."""
        secret = self._secrets.get(workspace)
        if secret is None:
            return None
        return self._by_hash.get((workspace, self._hashed(secret, name)))

    def newer(self, than: Iterable[NameTombstone]) -> list[NameTombstone]:
        """Return the tombstones that *than* lacks, or has with a lower number."""
        known = {(each.workspace, each.name_hash): each.seq for each in than}
        return [each for mark, each in self._by_hash.items() if each.seq > known.get(mark, 0)]
