"""What `holdfast doctor` sees of mounts: what this machine lacks, and what waits in the spool."""

from msgspec import Struct

from holdfast.doors.mount.process.system import HERE, Machine, needs
from holdfast.doors.mount.storage.spool import Spool, default_root
from holdfast.ground.clock import SystemClock

SHOWN = 3
"""Entries of the spool that are named; the others are counted."""


class MachineCheck(Struct, frozen=True, kw_only=True):
    """One thing looked at; one that is *optional* is missed by those alone who mount."""

    name: str
    ok: bool
    says: str
    optional: bool


def look(machine: Machine = HERE, spool: Spool | None = None) -> list[MachineCheck]:
    """Return what there is to say; nothing is changed."""
    spool = spool or Spool(default_root(), clock=SystemClock())
    lacks = [
        MachineCheck(name=f"mount: {need.name}", ok=need.met, says=str(need), optional=True)
        for need in needs(machine)
    ]
    return [*lacks, _spool(spool)]


def _spool(spool: Spool) -> MachineCheck:
    # What a living mount holds it is about to save.
    left = [(path, each) for path, each in spool.list() if not spool.held(path)]
    says = "nothing is queued"
    if left:
        shown = "; ".join(f"{path} ({each.errno} {each.path})" for path, each in left[:SHOWN])
        more = f"; and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        says = f"{len(left)} not saved: {shown}{more}. Mount the store again, or save them by hand."
    return MachineCheck(name="mount: spool", ok=not left, says=says, optional=False)
