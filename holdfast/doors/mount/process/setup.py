"""Resolve the options of a mount to stores, directory names and access."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from holdfast.doors.mount.filesystem.tree import MountContext
from holdfast.doors.mount.names import MountOptions
from holdfast.doors.mount.process.registry import Register
from holdfast.doors.mount.process.system import answered, at
from holdfast.doors.mount.process.unmount import detach
from holdfast.doors.mount.storage.deadline import Deadline, Later
from holdfast.doors.mount.storage.source import Contents, StoreSource
from holdfast.doors.mount.storage.spool import Spool
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import InvalidInput, NotFound, NotPermitted
from holdfast.ground.events import EventBus
from holdfast.ground.ids import Ids
from holdfast.library.holdfast import Holdfast
from holdfast.library.settings import location
from holdfast.memories.stores.records import Access, Resource, Store
from holdfast.memories.stores.rows import id_of_name, is_id
from holdfast.memories.stores.validation import ROOT, slug

MOST = 8
"""Limit of stores in one mount, the same as in one session."""

PAGE = 100


class MountedStore(Struct, frozen=True, kw_only=True):
    """One store of the mount, and its resource."""

    store: Store
    resource: Resource

    @property
    def slug(self) -> str:
        """The name of the store's directory."""
        return self.resource.mount_path.rpartition("/")[2]


class MountRequest(Struct, frozen=True, kw_only=True):
    """The stores to mount, in order, with their handle and session.

    `warnings` has one for each difference from the options.
    """

    hf: Holdfast
    session_id: str | None
    stores: tuple[MountedStore, ...]
    warnings: tuple[str, ...] = ()

    def repeated(self) -> MountedStore | None:
        """Return the first store that repeats the store of an earlier one, or None."""
        seen: set[str] = set()
        for each in self.stores:
            if each.store.id in seen:
                return each
            seen.add(each.store.id)
        return None


def mount_request(
    hf: Holdfast, *, session: str | None, stores: Sequence[str], read_only: bool = False
) -> MountRequest:
    """Return the mount request for *stores*, ids or names, or for a session.

    A session is used if *session* names one or *hf* belongs to one: its attached stores are
    mounted, narrowed by *stores*, and its actor writes. The handle in the result is closed with
    *hf*. Raise NotFound for a store that does not exist or is not attached, InvalidInput for an
    ambiguous name.
    """
    own = hf.actor.id if hf.actor.kind == "session" else None
    if session is not None and own not in (None, session):
        raise NotPermitted(
            "The token is of another session.", needed="read", next="Leave out --session."
        )
    if session is None and own is None:
        return _read_only(_of_workspace(hf, stores), only=read_only)
    id = session or own or ""
    narrowed, warnings = (hf, ()) if own is not None else _narrowed(hf, id)
    found = _of_session(narrowed, id, stores)
    found = replace(found, warnings=(*warnings, *found.warnings))
    return _read_only(found, only=read_only or bool(warnings))


def _narrowed(hf: Holdfast, session_id: str) -> tuple[Holdfast, tuple[str, ...]]:
    """Return *hf* narrowed to the session, and warnings.

    If its key may not create a token, return *hf* itself with a warning.
    """
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
            stores=tuple(
                MountedStore(store=hf.memory_stores.retrieve(each.memory_store_id), resource=each)
                for each in resources
            ),
        )
    found: list[MountedStore] = []
    warnings: list[str] = []
    for each in attached:
        try:
            store = hf.memory_stores.retrieve(each.memory_store_id)
        except NotFound:
            warnings.append(
                f"{each.name} ({each.memory_store_id}) was deleted, and is not mounted."
            )
        else:
            found.append(MountedStore(store=store, resource=each))
    if not found:
        raise NotFound("memory store of the session", session_id, next="All of them were deleted.")
    return MountRequest(hf=hf, session_id=session_id, stores=tuple(found), warnings=tuple(warnings))


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
    found: list[MountedStore] = []
    for store in stores:
        slugs.append(slug(store.name, store.id, slugs))
        found.append(MountedStore(store=store, resource=_agreed(store, slugs[-1])))
    return MountRequest(hf=hf, session_id=None, stores=tuple(found))


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
    """Return *given* with effective access: read-only if *only* or archived."""
    return replace(
        given,
        stores=tuple(
            replace(each, resource=replace(each.resource, access=_access(each, only=only)))
            for each in given.stores
        ),
    )


def _access(each: MountedStore, *, only: bool) -> Access:
    archived = each.store.archived_at is not None
    return "read_only" if only or archived else each.resource.access


class MountDependencies(Struct, frozen=True, kw_only=True):
    """Dependencies of a core or a synced directory.

    `sources` has slug, source and access of each store.
    """

    sources: tuple[tuple[str, StoreSource, Access], ...]
    context: MountContext
    deadlines: tuple[Deadline, ...]

    def close(self) -> None:
        """Stop delayed calls and storage calls; calls that hang are abandoned."""
        self.context.later.close()
        for deadline in self.deadlines:
            deadline.close()


def assemble(request: MountRequest, options: MountOptions) -> MountDependencies:
    """Build the dependencies of a mount, with a separate deadline for each store."""
    clock, contents = SystemClock(), Contents(options.cache_bytes)
    deadlines = tuple(Deadline(options.deadline) for _ in request.stores)
    sources: tuple[tuple[str, StoreSource, Access], ...] = tuple(
        (
            each.slug,
            StoreSource(request.hf, each.store, deadline=deadline, contents=contents),
            each.resource.access,
        )
        for each, deadline in zip(request.stores, deadlines, strict=True)
    )
    # A server accepts no events.
    events = cast("object", request.hf.events)
    context = MountContext(
        options=options,
        spool=Spool(options.spool, clock=clock),
        later=Later(),
        clock=clock,
        ids=Ids(),
        publish=events.publish if isinstance(events, EventBus) else lambda _: None,
    )
    return MountDependencies(sources=sources, context=context, deadlines=deadlines)


def absolute(directory: Path | str) -> Path:
    """Return the absolute real path of *directory*, even if a mount there hangs."""
    whole = os.path.abspath(directory)  # noqa: PTH100 - without `..`, which Path.absolute keeps
    above, name = os.path.split(whole)
    silent = os.path.join(os.path.realpath(above), name)  # noqa: PTH118
    return Path(answered(lambda: os.path.realpath(whole), silent))


def claim(directory: Path, register: Register, *, may_hold_files: bool = False) -> str | None:
    """Prepare *directory*, an absolute path, for a mount; create it if missing.

    Detach a stale mount of a killed process and return a message about it, else None. Raise
    InvalidInput for a live mount (in *register* or mounted), with its process, and if it is not an
    empty directory; with *may_hold_files* it need not be empty.
    """
    message = cleared(directory)
    if register.is_held(directory):
        known = register.get(directory)
        raise taken(directory, known.pid if known else None)
    wanted = "must be a directory" if may_hold_files else "must be an empty directory"
    if directory.exists() and not directory.is_dir():
        raise InvalidInput("DIR", wanted, given=str(directory))
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not may_hold_files and any(directory.iterdir()):
        raise InvalidInput("DIR", wanted, given=str(directory))
    return message


def taken(directory: Path, pid: int | None) -> InvalidInput:
    """Return the error that the process *pid* already uses *directory*."""
    by = f"process {pid}" if pid else "another process"
    return InvalidInput(
        "DIR",
        f"is mounted already, by {by}",
        given=str(directory),
        next=f"Unmount it first: holdfast unmount {directory}",
    )


def cleared(directory: Path) -> str | None:
    """Detach dead mounts of Holdfast from *directory*; return a message, or None.

    Raise InvalidInput for a live one.
    """
    message = None
    while (found := at(directory)) is not None and found.ours:
        if found.state() != "dead":
            raise taken(directory, found.pid)
        detach(directory, lazy=True)
        of = f"process {found.pid}" if found.pid else "a process"
        message = f"{directory}: detached a stale mount, left by {of} that has exited"
    return message
