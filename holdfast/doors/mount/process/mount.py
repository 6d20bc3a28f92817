"""Run a mount in this process until it is stopped."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from msgspec import Struct

from holdfast.doors.mount.names import MIB, MountOptions
from holdfast.doors.mount.process.lifecycle import End, Life, RunningMount
from holdfast.doors.mount.process.registry import Facts, Mode, Register
from holdfast.doors.mount.process.setup import Assembled, MountRequest, assemble, claim
from holdfast.doors.mount.process.system import HERE, Machine, lacking_for_fuse, mounts, require
from holdfast.doors.mount.storage.spool import default_root
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import InvalidInput
from holdfast.memories.stores.records import JSONObject


class MountPlan(Struct, frozen=True, kw_only=True):
    """Options of `holdfast mount`; every path is absolute."""

    directory: Path
    mode: Literal["auto", "fuse", "sync"] = "auto"
    read_only: bool = False
    deadline: float = 5.0
    grace: float = 3.0
    spool: Path | None = None
    cache_mib: int = 64
    allow_other: bool = False

    def options(self, session_id: str | None) -> MountOptions:
        """Return the options for the filesystem core."""
        return MountOptions(
            spool=self.spool or default_root(),
            deadline=self.deadline,
            grace=self.grace,
            cache_bytes=self.cache_mib * MIB,
            read_only=self.read_only,
            session_id=session_id,
        )


def live(
    request: MountRequest,
    plan: MountPlan,
    *,
    tell: Callable[[JSONObject], None],
    warn: Callable[[str], None],
    machine: Machine = HERE,
) -> End:
    """Mount the stores of *request* by *plan* until unmounted or signalled.

    *tell* is called with the status once the first `ls` works, *warn* with each warning before
    that. An error that prevents the mount is raised, and nothing is mounted.
    """
    options = plan.options(request.session_id)
    _keep_apart(plan.directory, options.spool)
    mode, reason = _chosen(plan, machine)
    register = Register()
    cleared = claim(plan.directory, register, may_hold_files=mode == "sync")
    for warning in (*([cleared] if cleared else []), *request.said):
        warn(warning)
    facts = Facts(
        dir=str(plan.directory),
        mode=mode,
        binding=_binding(mode),
        pid=os.getpid(),
        session_id=request.session_id,
        since=to_rfc3339(datetime.now(UTC)),
        spool=str(options.spool),
        resources=tuple(part.resource for part in request.parts),
        reason=reason,
    )
    if reason is not None and plan.mode == "auto":
        warn(f"{reason}: a synced directory takes the place of a mount.")
    assembled = assemble(request, options)
    running = _running(assembled, facts, register, allow_other=plan.allow_other)
    return Life(running, tell=tell).run()


def _running(
    assembled: Assembled, facts: Facts, register: Register, *, allow_other: bool
) -> RunningMount:
    """Return the mount for the mode; import a binding only if it is used."""
    if facts.mode == "sync":
        from holdfast.doors.mount.process.lifecycle import ThroughSync

        return ThroughSync(assembled, facts, register)
    from holdfast.doors.mount.process.lifecycle import ThroughFuse

    return ThroughFuse(assembled, facts, register, allow_other=allow_other)


def _binding(mode: Mode) -> str | None:
    if mode == "sync":
        return f"watchfiles {version('watchfiles')}"
    from holdfast.doors.mount.fuse.libfuse import binding

    return binding()


def _chosen(plan: MountPlan, machine: Machine) -> tuple[Mode, str | None]:
    """Return the mode, and for a synced directory the reason."""
    if plan.mode == "sync":
        require(machine, fuse=False)
        return "sync", "requested by --mode sync"
    lacking = lacking_for_fuse(machine) if plan.mode == "auto" else None
    require(machine, fuse=lacking is None, allow_other=plan.allow_other)
    return ("fuse", None) if lacking is None else ("sync", lacking.says.rstrip("."))


def _keep_apart(directory: Path, spool: Path) -> None:
    """Raise InvalidInput if the spool is inside a mount: it must work when that fails."""
    ours = [each.directory for each in mounts() if each.ours]
    for mount in (directory, *ours):
        if spool == mount or mount in spool.parents:
            reason = f"must not be inside the mount {mount}"
            raise InvalidInput("--spool", reason, given=str(spool), next="Choose another folder.")
