"""Which stores are mounted, under which names, how far they may be written, and by whom."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.errors import InvalidInput, NotFound, NotPermitted
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
