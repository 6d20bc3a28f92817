"""Records of runs: whether each has its owner, and counts what its rows come to."""

from collections.abc import Iterator
from types import SimpleNamespace

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.library.upkeep.tables import Finding


class _Stray(Struct, frozen=True, kw_only=True):
    table: str
    id: str
    found: str


class _Run(Struct, frozen=True, kw_only=True):
    id: str
    entries: int
    bytes: int
    seq: int
    counted_entries: int
    counted_bytes: int
    last_seq: int


def check_runs(reader: Reader, sql: SimpleNamespace, counts: dict[str, int]) -> Iterator[Finding]:
    """Give each record that does not fit its rows; *counts* gets how many records there are."""
    for stray in reader.all(_Stray, sql.stray_runs):
        yield Finding(
            check="owners", table=stray.table, id=stray.id, expected="its", found=stray.found
        )
    for run in reader.all(_Run, sql.all_runs):
        counts["runs"] += 1
        if (run.entries, run.bytes) != (run.counted_entries, run.counted_bytes):
            expected = f"{run.counted_entries} entries, {run.counted_bytes} bytes"
            found = f"{run.entries} entries, {run.bytes} bytes"
            yield Finding(check="counters", table="runs", id=run.id, expected=expected, found=found)
        if run.last_seq > run.seq:
            yield Finding(
                check="counters",
                table="runs",
                id=run.id,
                expected=f"{run.last_seq} events",
                found=f"{run.seq} events",
            )
