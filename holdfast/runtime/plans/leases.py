"""Leases on the places of checkpoints: one owner of a run's checkpoint at a time.

A place that has `acquire`, `renew` and `release` refuses what a former owner saves. Another place
is used without a lease.
"""

import asyncio
import fcntl
import logging
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol, Self, runtime_checkable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.clock import from_microseconds, to_microseconds
from holdfast.ground.errors import HoldfastError, RunTaken, StaleRun
from holdfast.memories.run.records.event import Ending
from holdfast.memories.run.records.record import (
    LEASE,
    MILLISECOND,
    HeldRun,
    RunAcquisition,
    TakeOver,
)
from holdfast.memories.run.records.writer import Shown

RENEWED_EVERY: Final = 15.0
"""Seconds between two renewals of a lease."""

LEASES: Final = ".lease"
"""The end of the name of a file with the lease on a run."""

Saving = Callable[[str, int], AbstractContextManager[None]]
"""Locks the run of an id for a block, and checks a token."""

log = logging.getLogger(__name__)


class LeaseRequest(Struct, frozen=True, kw_only=True):
    """Who wants the run *run_id*, and when it is taken from another owner."""

    run_id: str
    name: str
    holder: str
    place: str
    take_over: TakeOver = "expired"


class CheckpointLease(Struct, frozen=True, kw_only=True):
    """A lease on a run's checkpoint; what is saved carries its *fence*.

    One that is *shared* is part of the lease on the run's record, which renews it.
    """

    run_id: str
    holder: str
    fence: int
    shared: bool = False


@runtime_checkable
class LeasedCheckpoints(Protocol):
    """A place of checkpoints with leases. Any thread may call it."""

    def acquire(self, request: LeaseRequest) -> CheckpointLease:
        """Take the run for 60 s; raise RunTaken if another owner has it."""
        ...

    def renew(self, lease: CheckpointLease) -> None:
        """Extend *lease* to 60 s from now; raise StaleRun if another owner has the run."""
        ...

    def release(self, lease: CheckpointLease, status: Ending | None) -> None:
        """Give *lease* back, of a run that ended with *status*, or waits for people."""
        ...


class LeaseState(Struct, frozen=True, kw_only=True):
    """The last lease on a run: its owner, and until when (microseconds since 1970).

    `until` is 0 for one that was given back.
    """

    fence: int
    holder: str
    place: str
    until: int


def granted(last: LeaseState | None, request: LeaseRequest, now: int) -> LeaseState:
    """Return the lease after *last*; raise RunTaken while another owner has it."""
    if last is not None and last.until >= now and last.holder != request.holder:
        _refuse_taken(last, request)
    return LeaseState(
        fence=1 + (last.fence if last else 0),
        holder=request.holder,
        place=request.place,
        until=now + LEASE,
    )


def _refuse_taken(last: LeaseState, request: LeaseRequest) -> None:
    if request.take_over != "always":
        raise RunTaken(
            request.run_id,
            holder=last.holder,
            place=last.place,
            until=from_microseconds(last.until),
        )


def renewed(last: LeaseState | None, lease: CheckpointLease, now: int) -> LeaseState:
    """Return *last* with 60 s from *now*; raise StaleRun if it is another owner's."""
    return replace(owned(last, lease.fence), until=now + LEASE)


def released(last: LeaseState | None, lease: CheckpointLease) -> LeaseState:
    """Return *last* as given back; raise StaleRun if it is another owner's."""
    return replace(owned(last, lease.fence), until=0)


def owned(last: LeaseState | None, fence: int) -> LeaseState:
    """Return *last* if *fence* is its token; raise StaleRun otherwise."""
    if last is None or last.fence != fence:
        raise StaleRun("superseded", token=fence, live_token=None if last is None else last.fence)
    return last


class EngineLeases:
    """Leases on the runs of a database, kept in their records where *shown* says."""

    def __init__(self, shown: Shown) -> None:
        self._clock, self._owners = shown.clock, shown.recorder

    def now(self) -> int:
        """Return the present instant in milliseconds since 1970."""
        return to_microseconds(self._clock.now()) // MILLISECOND

    def acquire(self, request: LeaseRequest) -> CheckpointLease:
        """Take the run; raise RunTaken if another owner has it."""
        start = RunAcquisition(
            run_id=request.run_id,
            holder=request.holder,
            name=request.name,
            kind="plan",
            place=request.place,
            started_at=self.now(),
            take_over=request.take_over,
        )
        grant = self._owners.begin(start)
        return CheckpointLease(
            run_id=request.run_id,
            holder=request.holder,
            fence=grant.fence,
            shared=not grant.opened,
        )

    def renew(self, lease: CheckpointLease) -> None:
        """Extend *lease*; raise StaleRun if another owner has the run."""
        if lease.holder not in self._owners.renew([_held(lease)]):
            raise StaleRun("superseded", token=lease.fence, live_token=None)

    def release(self, lease: CheckpointLease, status: Ending) -> None:
        """Give *lease* back, and record that the run ended with *status*."""
        self._owners.release(_held(lease), status)


def _held(lease: CheckpointLease) -> HeldRun:
    return HeldRun(run_id=lease.run_id, holder=lease.holder, fence=lease.fence, number=0)


class LeaseFile:
    """The file at *path* with the last lease on a run, locked within a `with` block."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(handle, "r+b", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self) -> LeaseState | None:
        """Return the last lease; None for none, or one that cannot be read."""
        self._file.seek(0)
        try:
            return msgspec.json.decode(self._file.read(), type=LeaseState)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def write(self, state: LeaseState) -> None:
        """Store *state* in place of the last one, with one system call.

        A process that is killed leaves one of the two: without a token the next would be 1 again.
        """
        content = msgspec.json.encode(state)
        handle = self._file.fileno()
        os.pwrite(handle, content.ljust(os.fstat(handle).st_size), 0)
        os.fsync(handle)


class HeldLease:
    """The lease of *place* on a run, renewed until `give_back`.

    *lost* is called once another owner has the run.
    """

    def __init__(
        self, place: LeasedCheckpoints, lease: CheckpointLease, lost: Callable[[StaleRun], object]
    ) -> None:
        self._place, self.lease, self._lost = place, lease, lost
        self._renewing = None if lease.shared else asyncio.create_task(self._renew())

    def covers(self, place: object) -> bool:
        """Return whether *place* is the one that it is a lease of."""
        return place is self._place

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWED_EVERY)
            try:
                await asyncio.to_thread(self._place.renew, self.lease)
            except StaleRun as error:
                self._lost(error)
                return
            except (HoldfastError, OSError):
                log.warning("the lease of %s is not renewed", self.lease.run_id, exc_info=True)

    async def give_back(self, status: Ending | None) -> None:
        """Stop renewing the lease, and give it back."""
        if self._renewing is not None:
            self._renewing.cancel()
        if self.lease.shared:
            return
        try:
            await asyncio.to_thread(self._place.release, self.lease, status)
        except StaleRun:
            log.debug("the run %s has another owner", self.lease.run_id)


class RunOwnership:
    """Who this process is as the owner of a run, and its lease of a checkpoint.

    `stale` is the error once another owner has the run.
    """

    def __init__(self) -> None:
        self.holder = secrets.token_hex(12)
        self.leased: HeldLease | None = None
        self.stale: StaleRun | None = None

    def fence_of(self, place: object) -> int:
        """Return the token of its lease of *place*, 0 without one."""
        held = self.leased
        return held.lease.fence if held is not None and held.covers(place) else 0


_unleased: Final[set[type]] = set()


async def lease_of(
    place: object, request: LeaseRequest, lost: Callable[[StaleRun], object]
) -> HeldLease | None:
    """Acquire a lease of *place*; return None for a place without leases.

    There is one warning for such a place. Raise RunTaken if another owner has the run.
    """
    if not isinstance(place, LeasedCheckpoints):
        if type(place) not in _unleased:
            _unleased.add(type(place))
            log.warning("the checkpoints of %s have no leases", type(place).__name__)
        return None
    return HeldLease(place, await asyncio.to_thread(place.acquire, request), lost)
