"""Pages of memory stores: the list, a store as a tree, its versions and settings."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, cast

from holdfast.doors.console.views import (
    ROWS_MOST,
    Answer,
    ConsoleRoute,
    PageView,
    Redirect,
    Visit,
    act,
    address,
    confirmation,
    page,
    pager,
)
from holdfast.ground.errors import Conflict, InvalidInput, NotFound, Refused
from holdfast.memories.stores.records import Memory, Operation, Store, Version

SECTION: Final = "Stores"
PUT_BACK_MOST: Final = ROWS_MOST
"""Versions that may be put back at once: those of one page."""

DONE: Final = {
    "store-created": "The store was created.",
    "store-saved": "The settings were saved.",
    "store-archived": "The store was archived: it can be read, not written.",
    "store-deleted": "The store was deleted, with all its memories and versions.",
    "put-back": "What was ticked was put back.",
}


def crumbs(store: Store | None = None, below: str = "/") -> tuple[tuple[str, str], ...]:
    """Return the links above a page of *store*, or above the path *below* in it."""
    first = (("Stores", address("stores")),)
    if store is None:
        return first
    above = (*first, (store.name, address("stores", store.id)))
    directory, _, _ = below.rstrip("/").rpartition("/")
    if not directory:
        return above
    return (*above, (directory[1:], address("stores", store.id, path=f"{directory}/")))


def tabs(store: Store, current: str) -> list[tuple[str, str, bool]]:
    """Return the navigation of one store."""
    found = (
        ("Memories", address("stores", store.id)),
        ("Versions", address("stores", store.id, "versions")),
        ("Proposals", address("stores", store.id, "proposals")),
        ("Sessions", address("sessions", store=store.id)),
        ("Settings", address("stores", store.id, "settings")),
    )
    return [(label, target, label == current) for label, target in found]


def list_stores(visit: Visit) -> Answer:
    """Show the stores of the workspace, newest first."""
    archived = visit.text("archived") == "1"
    found = visit.hf.memory_stores.list(
        limit=visit.limit, page=visit.page, include_archived=archived
    )
    values = {
        "stores": found.data,
        "sizes": visit.hf.memory_stores.sizes(each.id for each in found),
        "archived": archived,
        "pager": pager(visit, found, "stores"),
        "new": visit.text("new") == "1" or visit.error is not None,
    }
    return PageView(template="stores.html", title="Stores", section=SECTION, values=values)


def create_store(visit: Visit) -> Answer:
    """Create a store from the form of the list."""
    store = visit.hf.memory_stores.create(
        name=visit.written("name"), description=visit.written("description")
    )
    return Redirect(address("stores", store.id, done="store-created"))


def show_store(visit: Visit) -> Answer:
    """Show one directory of a store, or all its memories as a flat list."""
    store = visit.hf.memory_stores.retrieve(visit["s"])
    query = visit.text("q")
    flat = visit.text("layout") == "flat"
    prefix = visit.text("path") or "/"
    values: dict[str, Any] = {
        "store": store,
        "tabs": tabs(store, "Memories"),
        "prefix": prefix,
        "parts": _parts(store, prefix),
        "query": query,
        "flat": flat,
        "layouts": [
            ("Tree", address("stores", store.id, path=prefix), not flat),
            ("Flat", address("stores", store.id, path=prefix, layout="flat"), flat),
        ],
        "pager": None,
        "matches": None,
        "memories": [],
    }
    memories = visit.hf.memory_stores.memories
    if query:
        values["matches"] = memories.search(store.id, query, limit=visit.limit)
    else:
        found = memories.list(
            store.id,
            path_prefix=prefix,
            depth=None if flat else 1,
            limit=visit.limit,
            page=visit.page,
        )
        values["memories"] = found.data
        values["pager"] = pager(visit, found, "stores", store.id)
    return PageView(
        template="store.html",
        title=store.name,
        section=SECTION,
        values=values,
        up=crumbs() if prefix == "/" else crumbs(store, prefix),
    )


def _parts(store: Store, prefix: str) -> list[tuple[str, str]]:
    """Return the directories that lead to *prefix*, outermost first."""
    names = [each for each in prefix.split("/") if each]
    return [
        (name, address("stores", store.id, path=f"/{'/'.join(names[: at + 1])}/"))
        for at, name in enumerate(names)
    ]


def show_settings(visit: Visit) -> Answer:
    """Show what a store is called, and what ends it."""
    store = visit.hf.memory_stores.retrieve(visit["s"])
    values = {
        "store": store,
        "tabs": tabs(store, "Settings"),
        "token": confirmation(store.name, store.id),
        "confirm": visit.text("confirm") or visit.form.get("confirm"),
        "metadata": "\n".join(f"{name}={value}" for name, value in store.metadata.items()),
    }
    return PageView(
        template="store_settings.html",
        title="Settings",
        section=SECTION,
        values=values,
        up=crumbs(store),
    )


def save_settings(visit: Visit) -> Answer:
    """Save name, description and metadata."""
    id = visit["s"]
    before = visit.hf.memory_stores.retrieve(id)
    metadata = _metadata(visit.written("metadata"))
    removed: dict[str, str | None] = {
        name: None for name in before.metadata if name not in metadata
    }
    visit.hf.memory_stores.update(
        id,
        name=visit.written("name"),
        description=visit.written("description"),
        metadata={**removed, **metadata},
    )
    return Redirect(address("stores", id, "settings", done="store-saved"))


def _metadata(text: str) -> dict[str, str | None]:
    """Return the lines `name=value` of *text* as metadata."""
    found: dict[str, str | None] = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, separator, value = line.partition("=")
        if not separator:
            raise InvalidInput("metadata", "must have lines such as team=search", given=line)
        found[name.strip()] = value.strip()
    return found


def archive_store(visit: Visit) -> Answer:
    """Archive a store."""
    visit.hf.memory_stores.archive(visit["s"])
    return Redirect(address("stores", visit["s"], "settings", done="store-archived"))


def delete_store(visit: Visit) -> Answer:
    """Delete a store, once its name was confirmed."""
    store = visit.hf.memory_stores.retrieve(visit["s"])
    visit.confirm(confirmation(store.name, store.id))
    visit.hf.memory_stores.delete(store.id)
    return Redirect(address("stores", done="store-deleted"))


# Versions of a store, and putting back what was before them


def list_versions(visit: Visit) -> Answer:
    """Show the versions of a store, newest first, by who wrote them and when."""
    store = visit.hf.memory_stores.retrieve(visit["s"])
    operation = visit.text("operation")
    found = visit.hf.memory_stores.memory_versions.list(
        store.id,
        operation=cast("Operation | None", operation),
        session_id=visit.text("session_id"),
        api_key_id=visit.text("api_key_id"),
        created_at_gte=_day(visit, "from"),
        created_at_lte=_day(visit, "to"),
        limit=visit.limit,
        page=visit.page,
    )
    values = {
        "store": store,
        "tabs": tabs(store, "Versions"),
        "versions": found.data,
        "pager": pager(visit, found, "stores", store.id, "versions"),
        "filters": {
            name: visit.query.get(name, "")
            for name in ("operation", "session_id", "api_key_id", "from", "to")
        },
    }
    return PageView(
        template="store_versions.html",
        title="Versions",
        section=SECTION,
        values=values,
        up=crumbs(store),
    )


def _day(visit: Visit, name: str) -> datetime | None:
    """Return the instant that the address gives as a day or a time, in UTC."""
    given = visit.text(name)
    if given is None:
        return None
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        reason = "must be a day or a time, such as 2026-11-24 or 2026-11-24T09:30"
        raise InvalidInput(name, reason, given=given) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


class _Step:
    """What putting back does to one memory: from its head to an earlier version."""

    def __init__(self, memory_id: str, path: str | None) -> None:
        self.memory_id, self.path = memory_id, path
        self.act = "none"
        self.target: Version | None = None
        self.head: Memory | None = None
        self.later = False
        """Whether something else was written after the ticked versions."""
        self.result = ""


def plan_put_back(visit: Visit) -> Answer:
    """Show what putting back the ticked versions would do, memory by memory."""
    store = visit.hf.memory_stores.retrieve(visit["s"])
    steps = _steps(visit, store, visit.ticks("version"))
    return _put_back_view(visit, store, steps, done=False)


def put_back(visit: Visit) -> Answer:
    """Write, for each ticked memory, the version before the ticked ones once more."""
    store = visit.hf.memory_stores.retrieve(visit["s"])
    chosen = set(visit.ticks("memory"))
    steps = [
        each for each in _steps(visit, store, visit.ticks("version")) if each.memory_id in chosen
    ]
    for step in steps:
        step.result = _carry_out(visit, store, step)
    return _put_back_view(visit, store, steps, done=True)


def _put_back_view(visit: Visit, store: Store, steps: Sequence[_Step], *, done: bool) -> PageView:
    values = {
        "store": store,
        "tabs": tabs(store, "Versions"),
        "steps": steps,
        "versions": visit.ticks("version"),
        "carried_out": done,
    }
    return PageView(
        template="put_back.html",
        title="Put back",
        section=SECTION,
        values=values,
        up=(*crumbs(store), ("Versions", address("stores", store.id, "versions"))),
        done=DONE["put-back"] if done else None,
    )


def _steps(visit: Visit, store: Store, ids: Sequence[str]) -> list[_Step]:
    """Return what would be done for each memory of the ticked versions."""
    versions = visit.hf.memory_stores.memory_versions
    ticked: dict[str, set[str]] = {}
    for id in islice(dict.fromkeys(ids), PUT_BACK_MOST):
        version = versions.retrieve(id, memory_store_id=store.id, view="basic")
        ticked.setdefault(version.memory_id, set()).add(version.id)
    return [_step(visit, store, memory_id, own) for memory_id, own in ticked.items()]


def _step(visit: Visit, store: Store, memory_id: str, ticked: set[str]) -> _Step:
    """Return what would be done for one memory with the versions *ticked*."""
    memories, versions = visit.hf.memory_stores.memories, visit.hf.memory_stores.memory_versions
    step = _Step(memory_id, None)
    newest: Version | None = None
    for version in versions.list(store.id, memory_id=memory_id, limit=100).all():
        if version.id in ticked:
            newest = newest or version
        elif newest is None:
            step.later = True
        else:
            step.target = version
            break
    try:
        step.head = memories.retrieve(memory_id, memory_store_id=store.id, view="basic")
    except NotFound:
        step.head = None
    step.path = (step.head and step.head.path) or (newest and newest.path)
    if step.target is None or step.target.operation == "deleted":
        step.act = "delete" if step.head else "none"
    elif step.target.redacted_at is not None:
        step.act = "redacted"
    elif step.head and step.target.content_sha256 == step.head.content_sha256:
        step.act = "rename" if step.target.path != step.head.path else "none"
    else:
        step.act = "restore"
    return step


def _carry_out(visit: Visit, store: Store, step: _Step) -> str:
    """Do what *step* says; return how it went, as a sentence."""
    memories, versions = visit.hf.memory_stores.memories, visit.hf.memory_stores.memory_versions
    try:
        if step.act == "delete" and step.head:
            memories.delete(
                step.memory_id,
                memory_store_id=store.id,
                expected_content_sha256=step.head.content_sha256,
            )
        elif step.act == "restore" and step.target:
            versions.restore(step.target.id, memory_store_id=store.id)
        if step.act in {"rename", "restore"} and step.target and step.target.path:
            head = memories.retrieve(step.memory_id, memory_store_id=store.id, view="basic")
            if head.path != step.target.path:
                memories.update(step.memory_id, memory_store_id=store.id, path=step.target.path)
    except (Conflict, Refused, NotFound) as error:
        return str(error)
    return {"delete": "Deleted.", "restore": "Restored.", "rename": "Renamed back."}.get(
        step.act, "Nothing was to be done."
    )


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/stores", list_stores),
    act("/stores", create_store, again=list_stores),
    page("/stores/{s}", show_store),
    page("/stores/{s}/settings", show_settings),
    act("/stores/{s}/settings", save_settings, again=show_settings),
    act("/stores/{s}/archive", archive_store, again=show_settings),
    act("/stores/{s}/delete", delete_store, needs="admin", again=show_settings),
    page("/stores/{s}/versions", list_versions),
    act("/stores/{s}/versions/plan", plan_put_back),
    act("/stores/{s}/versions/put-back", put_back),
)
