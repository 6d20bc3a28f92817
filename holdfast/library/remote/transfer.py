"""Import long-term records into a server, in batches of requests."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, cast

from msgspec.structs import replace

from holdfast.ground.errors import InvalidInput
from holdfast.library.operations.longterm import USER, form
from holdfast.library.remote.calls import MemoryRequests, decoded
from holdfast.library.remote.client import filled, json_of
from holdfast.memories.longterm.records import Imported, RejectedRecord

BYTES_AT_ONCE: Final = 8_388_608
"""Bytes of lines in one request; a server accepts four times as much."""


class _Batches:
    """Batch of lines with their positions, and the results of sent batches."""

    def __init__(self, requests: MemoryRequests) -> None:
        self._requests = requests
        self._lines: list[bytes] = []
        self._places: list[int] = []
        self._size = 0
        self.rejected: list[RejectedRecord] = []
        self.done: list[Imported] = []

    def add(self, index: int, line: bytes) -> None:
        """Add *line* to the batch; send the batch first if it is full."""
        if self._lines and self._size + len(line) >= BYTES_AT_ONCE:
            self.send()
        self._lines.append(line)
        self._places.append(index)
        self._size += len(line) + 1

    def send(self) -> None:
        """Send the batch."""
        if not self._lines:
            return
        lines, places = self._lines, self._places
        self._lines, self._places, self._size = [], [], 0
        requests = self._requests
        path = filled(f"{USER}/import", requests.segments)
        answer = requests.client.write_lines(path, lines, requests.query)
        done = decoded(form(Imported).decode, answer)
        self.rejected += [replace(each, index=places[each.index]) for each in done.rejected]
        self.done.append(done)


def imported(requests: MemoryRequests, records: Iterable[object]) -> Imported:
    """Send *records*; reject those that JSON cannot encode."""
    batches = _Batches(requests)
    for index, each in enumerate(records):
        try:
            batches.add(index, json_of("record", _sendable(each)))
        except InvalidInput as error:
            batches.rejected.append(RejectedRecord(index, f"{error.field}: {error.reason}"))
    batches.send()
    return Imported(
        items=sum(each.items for each in batches.done),
        turns=sum(each.turns for each in batches.done),
        skipped=sum(each.skipped for each in batches.done),
        rejected=tuple(sorted(batches.rejected, key=lambda each: each.index)),
        evicted=tuple(id for each in batches.done for id in each.evicted),
    )


def _sendable(value: object) -> object:
    """Return *value* with each instant in it as RFC 3339 text."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _sendable(each) for name, each in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_sendable(each) for each in cast("list[object]", value)]
    return value
