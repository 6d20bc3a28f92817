"""What happens in the memory of a run, told without any value."""

from typing import ClassVar

import msgspec
from msgspec import Struct

from holdfast.ground.clock import from_microseconds
from holdfast.ground.events import Event, Fact
from holdfast.ground.json_values import JSON
from holdfast.memories.run.keys import Kind


class RunMemoryEvent(Struct, frozen=True, kw_only=True):
    """Something that happened in the memory of the run *run_id*, at *at* ms since 1970."""

    type: ClassVar[str]

    run_id: str
    at: int

    @property
    def data(self) -> dict[str, JSON]:
        """Everything it tells but its type, its run and its time, by name."""
        told = [each for each in self.__struct_fields__ if each not in ("run_id", "at")]
        return {name: getattr(self, name) for name in told}

    def notice(self, workspace: str = "") -> Event:
        """Return it as it goes through a bus: the run and its key are ids."""
        data = self.data
        key = data.pop("key", None)
        return Event(
            type=self.type,
            at=from_microseconds(self.at * 1_000),
            workspace=workspace,
            ids={"run_id": self.run_id} | ({"key": key} if isinstance(key, str) else {}),
            data={name: _fact(each) for name, each in data.items()},
        )


class EntryWritten(RunMemoryEvent, frozen=True, kw_only=True):
    """A key has a new value; `replaced_source` produced the former one."""

    type: ClassVar[str] = "run.entry_written"

    key: str
    kind: Kind
    source: str | None
    title: str | None
    version: int
    value_bytes: int
    failed: bool
    replaced_source: str | None


class EntryDeleted(RunMemoryEvent, frozen=True, kw_only=True):
    """A key is there no more."""

    type: ClassVar[str] = "run.entry_deleted"

    key: str


class EntriesCleared(RunMemoryEvent, frozen=True, kw_only=True):
    """All entries that met `filter` are there no more; an empty one is met by all."""

    type: ClassVar[str] = "run.entries_cleared"

    count: int
    filter: dict[str, JSON]


class EntryRead(RunMemoryEvent, frozen=True, kw_only=True):
    """A model read an entry, or a part of its value."""

    type: ClassVar[str] = "run.entry_read"

    key: str
    reader: str
    part: bool


class EntryRefused(RunMemoryEvent, frozen=True, kw_only=True):
    """A write was refused: `reason` is the limit it passed, or the error in snake case."""

    type: ClassVar[str] = "run.entry_refused"

    key: str
    reason: str
    actual: int | None
    allowed: int | None


class RunRestored(RunMemoryEvent, frozen=True, kw_only=True):
    """Entries came back from where they were kept."""

    type: ClassVar[str] = "run.restored"

    count: int


def _fact(value: JSON) -> Fact:
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else value
