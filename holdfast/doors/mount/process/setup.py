"""Options of a mount to stores, names and access."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from holdfast.doors.mount.names import MountOptions
from holdfast.doors.mount.process.registry import Register
from holdfast.doors.mount.process.system import answered, at
from holdfast.doors.mount.process.unmount import detach
from holdfast.doors.mount.storage.deadline import Deadline, Later
from holdfast.doors.mount.storage.source import Contents, StoreSource
from holdfast.doors.mount.storage.spool import Spool
from holdfast.ground.clock import Clock, SystemClock
from holdfast.ground.errors import InvalidInput, NotFound, NotPermitted
from holdfast.ground.events import Event, EventBus
from holdfast.ground.ids import Ids
from holdfast.library.holdfast import Holdfast
from holdfast.library.settings import location
from holdfast.memories.stores.records import Access, Resource, Store
from holdfast.memories.stores.rows import id_of_name, is_id
from holdfast.memories.stores.validation import ROOT, slug

MOST = 8
"""Stores of one mount, as of one session."""

PAGE = 100


class MountedStore(Struct, frozen=True, kw_only=True):
    """One store of the mount, and what was agreed about it."""

    store: Store
    resource: Resource

    @property
    def slug(self) -> str:
        """The name of its directory."""
        return self.resource.mount_path.rpartition("/")[2]


class MountRequest(Struct, frozen=True, kw_only=True):
    """What is to be mounted: through which handle, for which session, in order.

    `said` tells what is other than was asked for.
    """

    hf: Holdfast
    session_id: str | None
    parts: tuple[MountedStore, ...]
    said: tuple[str, ...] = ()

    def repeated(self) -> MountedStore | None:
        """Return a part whose store was named before, or None."""
        seen: set[str] = set()
        for part in self.parts:
            if part.store.id in seen:
                return part
            seen.add(part.store.id)
        return None


def asked(
    hf: Holdfast, *, session: str | None, stores: Sequence[str], read_only: bool = False
) -> MountRequest:
    """Return the mount of *stores*, ids or names: of a session where one is named or *hf* is one's.

    A session attaches what it may reach, and its actor writes; *stores* narrows that. The handle
    in the answer is closed with *hf*. Raises NotFound for a store that is not there or not
    attached, InvalidInput for a name that several have.
    """
    own = hf.actor.id if hf.actor.kind == "session" else None
    if session is not None and own not in (None, session):
        raise NotPermitted(
            "The token is of another session.", needed="read", next="Leave out --session."
        )
    if session is None and own is None:
        return _read_only(_of_workspace(hf, stores), only=read_only)
    id = session or own or ""
    narrowed, said = (hf, ()) if own is not None else _narrowed(hf, id)
    found = _of_session(narrowed, id, stores)
    return _read_only(replace(found, said=(*said, *found.said)), only=read_only or bool(said))


def _narrowed(hf: Holdfast, session_id: str) -> tuple[Holdfast, tuple[str, ...]]:
    """Return *hf* as the session; where its key may not make a token, as itself, and say so."""
    if hf.sessions.retrieve(session_id).archived_at is not None:
        raise InvalidInput("--session", "is archived", given=session_id, next="Create a new one.")
    try:
        return hf.for_session(session_id), ()
    except NotPermitted:
        return hf, ("The key may not make a session token: everything is mounted read-only.",)


def _of_session(hf: Holdfast, session_id: str, wanted: Sequence[str]) -> MountRequest:
    attached = hf.sessions.resources(session_id)
    if not attached:
        raise InvalidInput("--session", "attaches no memory store", given=session_id)
    if wanted:
        resources = [_attached(name, attached) for name in wanted]
        return MountRequest(
            hf=hf,
            session_id=session_id,
            parts=tuple(
                MountedStore(store=hf.memory_stores.retrieve(each.memory_store_id), resource=each)
                for each in resources
            ),
        )
    parts: list[MountedStore] = []
    said: list[str] = []
    for each in attached:
        try:
            store = hf.memory_stores.retrieve(each.memory_store_id)
        except NotFound:
            said.append(f"{each.name} ({each.memory_store_id}) was deleted, and is not mounted.")
        else:
            parts.append(MountedStore(store=store, resource=each))
    if not parts:
        raise NotFound("memory store of the session", session_id, next="All of them were deleted.")
    return MountRequest(hf=hf, session_id=session_id, parts=tuple(parts), said=tuple(said))


def _attached(wanted: str, resources: Iterable[Resource]) -> Resource:
    ids = {each.memory_store_id: each for each in resources}
    names = [(each.name, each.memory_store_id) for each in resources]
    if wanted in ids:
        return ids[wanted]
    kind = "attached memory store"
    return ids[id_of_name(wanted, names, field="--store", place="the session", kind=kind)]


def _of_workspace(hf: Holdfast, wanted: Sequence[str]) -> MountRequest:
    names: list[tuple[str, str]] | None = None
    stores: list[Store] = []
    for name in wanted:
        if is_id("memstore", name):
            stores.append(hf.memory_stores.retrieve(name))
            continue
        if names is None:
            every = hf.memory_stores.list(limit=PAGE, include_archived=True).all()
            names = [(each.name, each.id) for each in every]
        stores.append(
            hf.memory_stores.retrieve(
                id_of_name(name, names, field="--store", place=location(hf.opened, hf.workspace))
            )
        )
    slugs: list[str] = []
    parts: list[MountedStore] = []
    for store in stores:
        slugs.append(slug(store.name, store.id, slugs))
        parts.append(MountedStore(store=store, resource=_agreed(store, slugs[-1])))
    return MountRequest(hf=hf, session_id=None, parts=tuple(parts))


def _agreed(store: Store, slug: str) -> Resource:
    return Resource(
        memory_store_id=store.id,
        access="read_write",
        name=store.name,
        description=store.description,
        instructions=None,
        mount_path=f"{ROOT}/{slug}",
    )


def _read_only(given: MountRequest, *, only: bool) -> MountRequest:
    """Return *given* with the access that there is: none to write where *only* or archived."""
    return replace(
        given,
        parts=tuple(
            replace(part, resource=replace(part.resource, access=_access(part, only=only)))
            for part in given.parts
        ),
    )


def _access(part: MountedStore, *, only: bool) -> Access:
    archived = part.store.archived_at is not None
    return "read_only" if only or archived else part.resource.access


class Assembled(Struct, frozen=True, kw_only=True):
    """What a core, or a synced directory, is made of: slug, source and access of each store."""

    sources: tuple[tuple[str, StoreSource, Access], ...]
    options: MountOptions
    spool: Spool
    later: Later
    clock: Clock
    ids: Ids
    publish: Callable[[Event], None]
    deadlines: tuple[Deadline, ...]

    def close(self) -> None:
        """Begin nothing more; what hangs is left alone."""
        self.later.close()
        for deadline in self.deadlines:
            deadline.close()


def assemble(asked: MountRequest, options: MountOptions) -> Assembled:
    """Return the parts of the mount of what is *asked*, each store with a deadline of its own."""
    clock, contents = SystemClock(), Contents(options.cache_bytes)
    deadlines = tuple(Deadline(options.deadline) for _ in asked.parts)
    return Assembled(
        sources=tuple(
            (
                part.slug,
                StoreSource(asked.hf, part.store, deadline=deadline, contents=contents),
                part.resource.access,
            )
            for part, deadline in zip(asked.parts, deadlines, strict=True)
        ),
        options=options,
        spool=Spool(options.spool, clock=clock),
        later=Later(),
        clock=clock,
        ids=Ids(),
        publish=_publish(asked.hf),
        deadlines=deadlines,
    )


def _publish(hf: Holdfast) -> Callable[[Event], None]:
    """Return who hears of events: this process's listeners; a server takes none from outside."""
    events = cast("object", hf.events)
    return events.publish if isinstance(events, EventBus) else _unheard


def _unheard(event: Event) -> None:
    del event


def absolute(directory: Path | str) -> Path:
    """Return *directory* from the root, links followed, whether it answers or not."""
    whole = os.path.abspath(directory)  # noqa: PTH100 - without `..`, which Path.absolute keeps
    above, name = os.path.split(whole)
    silent = os.path.join(os.path.realpath(above), name)  # noqa: PTH118
    return Path(answered(lambda: os.path.realpath(whole), silent))


def claim(directory: Path, register: Register, *, may_hold_files: bool = False) -> str | None:
    """Make *directory*, an absolute path, ready to be mounted on; *register* knows of the others.

    Returns what was cleared away: a mount left behind by a process that was killed. Raises
    InvalidInput for a live mount, naming its process, and for what is no empty directory, unless
    it *may_hold_files*.
    """
    said = cleared(directory)
    if register.is_held(directory):
        known = register.get(directory)
        raise taken(directory, known.pid if known else None)
    wanted = "must be a directory" if may_hold_files else "must be an empty directory"
    if directory.exists() and not directory.is_dir():
        raise InvalidInput("DIR", wanted, given=str(directory))
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not may_hold_files and any(directory.iterdir()):
        raise InvalidInput("DIR", wanted, given=str(directory))
    return said


def taken(directory: Path, pid: int | None) -> InvalidInput:
    """Return the error that says *directory* is in use already, by the process *pid*."""
    by = f"process {pid}" if pid else "another process"
    return InvalidInput(
        "DIR",
        f"is mounted already, by {by}",
        given=str(directory),
        next=f"Unmount it first: holdfast unmount {directory}",
    )


def cleared(directory: Path) -> str | None:
    """Detach dead mounts of ours from *directory*, and say so; InvalidInput for a live one."""
    said = None
    while (found := at(directory)) is not None and found.ours:
        if found.state() != "dead":
            raise taken(directory, found.pid)
        detach(directory, lazy=True)
        of = f"process {found.pid}" if found.pid else "a process"
        said = f"{directory}: detached a stale mount, left by {of} that has exited"
    return said
