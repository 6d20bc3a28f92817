"""Tombstones of forgotten users and threads, by keyed hashes of their names."""

from collections.abc import Callable, Iterable

from msgspec import Struct


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
