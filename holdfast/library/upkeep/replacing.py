"""One database file in the place of another, at once, and while nobody has it open."""

import os
import shutil
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.maintenance import alone
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import Corrupt, InvalidInput, Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.library.upkeep.aside import beside, sync
from holdfast.library.upkeep.reapply import ForgottenRecords, forgotten_of
from holdfast.library.upkeep.redactions import Redaction, redactions
from holdfast.library.upkeep.revocations import Revocation, revocations
from holdfast.library.upkeep.tables import is_used

Stamp = tuple[int, int, int]


class PresentFile(Struct, frozen=True, kw_only=True):
    """What is in the place: a file as it was when looked at, or none.

    `readable` is False when it is too damaged to tell what it redacted, revoked and forgot.
    """

    stamp: Stamp | None
    redactions: tuple[Redaction, ...] = ()
    revocations: tuple[Revocation, ...] = ()
    forgotten: ForgottenRecords = ForgottenRecords()
    keep: bool = False
    readable: bool = True

    @staticmethod
    def used(target: str) -> InvalidInput:
        """Return the error of a *target* that is not empty."""
        return InvalidInput(
            "target", "is in use", given=target, next="Restore into an empty one, or --replace it."
        )


def look_at(place: Path, *, replace: bool) -> PresentFile:
    """Return what is at *place*; InvalidInput when it is used, or damaged, and not *replace*."""
    if not place.exists() or not place.stat().st_size:
        return PresentFile(stamp=_stamp(place))
    try:
        engine = SQLiteEngine.open(str(place), clock=SystemClock())
    except Corrupt:
        return _damaged(place, replace=replace)
    try:
        everybody = engine.scoped(EVERYBODY)
        used = everybody.read(is_used)
        sql = engine.queries("holdfast.library.upkeep")
        redacted, revoked = redactions(everybody, sql), revocations(everybody, sql)
        forgotten = forgotten_of(everybody, sql)
    except Corrupt:
        return _damaged(place, replace=replace)
    finally:
        engine.close()
    if used and not replace:
        raise PresentFile.used(str(place))
    return PresentFile(
        stamp=_stamp(place),
        redactions=tuple(redacted),
        revocations=tuple(revoked),
        forgotten=forgotten,
        keep=used,
    )


def put_in_place(part: Path, place: Path, present: PresentFile) -> str | None:
    """Rename *part* to *place*, where *present* is, and return where that is kept, if it is.

    Raises Unavailable when somebody has it open, or wrote to it since it was looked at.
    """
    there: AbstractContextManager[None] = nullcontext()
    if present.stamp is not None:
        there = alone(place)
    kept = f"{place}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}" if present.keep else None
    with there:
        if _stamp(place) != present.stamp:
            raise Unavailable(f"{place} changed while the backup was made ready.", reason="busy")
        if present.stamp is not None:
            _take_after(place, part)
        if kept is not None:
            _keep(place, kept)
        for file in beside(place):
            # Left by who did not close it; beside the new file it would be taken for its own.
            ending = file.name.removeprefix(place.name)
            file.rename(kept + ending) if kept else file.unlink()
        part.replace(place)
        sync(place.parent)
    return kept


def _damaged(place: Path, *, replace: bool) -> PresentFile:
    if not replace:
        raise InvalidInput(
            "target",
            "is damaged",
            given=str(place),
            next="Restore into another, or --replace it: what it redacted may come back.",
        )
    return PresentFile(stamp=_stamp(place), keep=True, readable=False)


def _keep(place: Path, kept: str) -> None:
    """Give the file at *place* a second name, so that the place is never empty."""
    try:
        os.link(place, kept)
    except OSError:
        # A file system without second names.
        place.rename(kept)


def _take_after(place: Path, part: Path) -> None:
    """Let *part* be for the eyes that *place* was for."""
    shutil.copymode(place, part)
    if os.geteuid() == 0:
        found = place.stat()
        os.chown(part, found.st_uid, found.st_gid)


def _stamp(place: Path) -> Stamp | None:
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
