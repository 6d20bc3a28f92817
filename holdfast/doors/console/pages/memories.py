"""Pages of one memory: content, edit, versions, comparison, redaction."""

import json
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version as release
from itertools import count
from posixpath import dirname, join, normpath
from typing import Any, Final

from holdfast.doors.console.diffs import diff_rows, split_rows
from holdfast.doors.console.pages.forget import pending_erasure
from holdfast.doors.console.pages.stores import SECTION, crumbs
from holdfast.doors.console.views import (
    Answer,
    ConsoleRoute,
    Download,
    PageView,
    Redirect,
    Undo,
    Visit,
    act,
    address,
    confirmation,
    page,
    pager,
)
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import (
    HeadVersion,
    InvalidInput,
    NotFound,
    PathTaken,
    PreconditionFailed,
)
from holdfast.memories.stores.records import Memory, SessionRecord, Store, Version

RENDERED: Final = 8 * 1024
"""Bytes up to which Markdown is rendered unless source is chosen."""
RENDERED_MOST: Final = 32 * 1024
SESSIONS_SHOWN: Final = 20
PENDING_MOST: Final = 10
"""Places in a receipt where bytes remain, of `PENDING_SHOWN` characters."""
PENDING_SHOWN: Final = 100
LINKS_MOST: Final = 50
"""Links of one memory to others that are looked up."""

DONE: Final = {
    "created": "The memory was created.",
    "saved": "The memory was saved as a new version.",
    "deleted": "The memory was deleted. Its versions stay.",
    "restored": "The version was restored.",
    "accepted": "The memory was accepted: agents may view it from now on.",
}


def _where(store: str, memory: str, **query: object) -> str:
    return address("stores", store, "memories", memory, **query)


def _head(visit: Visit, store: Store) -> Memory | None:
    """Return the memory of the address; None if it was deleted."""
    memories = visit.hf.memory_stores
    try:
        return memories.memories.retrieve(visit["m"], memory_store_id=store.id, view="full")
    except NotFound:
        if not memories.memory_versions.list(store.id, memory_id=visit["m"], limit=1).data:
            raise
        return None


def _attached(visit: Visit, store: Store) -> Iterable[tuple[SessionRecord, str]]:
    """Return the newest open sessions that attach *store*, with their access."""
    found = visit.hf.sessions.list(memory_store_id=store.id, limit=SESSIONS_SHOWN)
    for session in found.data:
        for each in session.resources:
            if each.memory_store_id == store.id:
                yield session, each.access


def show_memory(visit: Visit) -> Answer:
    """Show a memory with its facts and its versions."""
    store = visit.hf.memory_stores.retrieve(visit["s"])
    memory = _head(visit, store)
    found = visit.hf.memory_stores.memory_versions.list(
        store.id, memory_id=visit["m"], limit=visit.limit, page=visit.page
    )
    title = memory.path if memory else next((v.path for v in found.data if v.path), visit["m"])
    values: dict[str, Any] = {
        "store": store,
        "memory": memory,
        "memory_id": visit["m"],
        "versions": found.data,
        "attached": list(_attached(visit, store)),
        "rendered": False,
        "may_render": False,
        "edited": visit.text("edit") == "1" or "content" in visit.form,
        "mine": None,
        "changed": (),
        "blocker": None,
        "redaction": _redaction(visit, found.data),
        "marks": [(v.created_at, v.operation, v.id[-6:]) for v in found.data],
        "pager": pager(visit, found, "stores", store.id, "memories", visit["m"]),
    }
    if memory is not None:
        moved = isinstance(visit.error, PreconditionFailed)
        shown = memory.content_sha256 if moved else visit.typed("shown", memory.content_sha256)
        values |= {"shown": shown} | _shape(visit, memory) | _conflict(visit, memory)
    return PageView(
        template="memory.html",
        title=title,
        section=SECTION,
        values=values,
        up=crumbs(store, title),
        undo=_undo(visit, store, found.data),
    )


def _shape(visit: Visit, memory: Memory) -> dict[str, Any]:
    """Return how the content is shown: rendered, and whether it may be."""
    size = memory.content_size_bytes
    may = memory.path.endswith(".md") and size <= RENDERED_MOST
    chosen = visit.text("view")
    rendered = may and (chosen or _usual(size)) == "rendered"
    return {"may_render": may, "rendered": rendered, "link": _link(visit, memory)}


def _link(visit: Visit, memory: Memory) -> Callable[[str], str | None]:
    """Return a function that resolves paths in the Markdown of *memory* to pages.

    Past `LINKS_MOST` paths nothing is looked up; those stay text, as paths without a memory do.
    """
    left = count(LINKS_MOST, -1)

    def page_of(path: str) -> str | None:
        whole = normpath(join(dirname(memory.path), path))
        try:
            at = visit.hf.memory_stores.memories.at
            found = at(memory.memory_store_id, whole) if next(left) > 0 else None
        except InvalidInput:
            return None
        return found and _where(memory.memory_store_id, found.id)

    return page_of


def _usual(size: int) -> str:
    return "rendered" if size <= RENDERED else "source"


def _conflict(visit: Visit, memory: Memory) -> dict[str, Any]:
    """Return both texts and their difference, where the head moved meanwhile."""
    error = visit.error
    if isinstance(error, PreconditionFailed):
        mine = visit.written("content")
        return {"mine": mine, "changed": diff_rows(memory.content or "", mine)}
    if isinstance(error, PathTaken):
        return {"blocker": _where(memory.memory_store_id, error.conflicting_memory_id)}
    return {}


def _undo(visit: Visit, store: Store, versions: Sequence[Version]) -> Undo | None:
    """Return the form that undoes what was just done, if restoring a version does."""
    done = visit.text("done")
    before = 1 if done in {"deleted", "restored", "saved"} else None
    if before is None or visit.page or len(versions) <= before or not visit.visitor.may("write"):
        return None
    target = versions[before]
    if target.operation == "deleted" or target.redacted_at is not None:
        return None
    action = address("stores", store.id, "memories", visit["m"], "restore")
    return Undo(action, {"version": target.id})


def _redaction(visit: Visit, versions: Sequence[Version]) -> list[Version]:
    """Return the versions that the visitor is to confirm the redaction of."""
    chosen = set(visit.ticks("version" if visit.text("redacting") else "redact"))
    return [each for each in versions if each.id in chosen]


def edit_form(visit: Visit) -> Answer:
    """Show the form of a new memory."""
    store = visit.hf.memory_stores.retrieve(visit["s"])
    blocker = None
    if isinstance(visit.error, PathTaken):
        blocker = _where(store.id, visit.error.conflicting_memory_id)
    values = {"store": store, "prefix": visit.text("path") or "/", "blocker": blocker}
    return PageView(
        template="memory_new.html",
        title="New memory",
        section=SECTION,
        values=values,
        up=crumbs(store),
    )


def create_memory(visit: Visit) -> Answer:
    """Create a memory from the form."""
    memory = visit.hf.memory_stores.memories.create(
        visit["s"], path=visit.written("path"), content=visit.written("content")
    )
    return Redirect(_where(visit["s"], memory.id, done="created"))


def save_memory(visit: Visit) -> Answer:
    """Save what was typed, unless the memory changed since it was shown."""
    content = visit.written("content")
    if visit.form.get("ends") == "crlf":
        content = content.replace("\n", "\r\n")
    visit.hf.memory_stores.memories.update(
        visit["m"],
        memory_store_id=visit["s"],
        content=content,
        path=visit.written("path"),
        precondition={"type": "content_sha256", "content_sha256": visit.written("shown")},
    )
    return Redirect(_where(visit["s"], visit["m"], done="saved"))


def accept_memory(visit: Visit) -> Answer:
    """Release a held memory."""
    visit.hf.memory_stores.memories.accept(visit["m"], memory_store_id=visit["s"])
    return Redirect(_where(visit["s"], visit["m"], done="accepted"))


def delete_memory(visit: Visit) -> Answer:
    """Delete a memory; its versions stay."""
    visit.hf.memory_stores.memories.delete(visit["m"], memory_store_id=visit["s"])
    return Redirect(_where(visit["s"], visit["m"], done="deleted"))


def restore_version(visit: Visit) -> Answer:
    """Write an old version once more."""
    visit.hf.memory_stores.memory_versions.restore(
        visit.written("version"), memory_store_id=visit["s"]
    )
    return Redirect(_where(visit["s"], visit["m"], done="restored"))


def redact_versions(visit: Visit) -> Answer:
    """Erase the ticked versions for good, once confirmed; show the receipt."""
    store = visit.hf.memory_stores.retrieve(visit["s"])
    ids = list(dict.fromkeys(visit.ticks("redact")))
    if not ids:
        raise InvalidInput("redact", "names no version", next="Tick the versions to redact.")
    visit.confirm(confirmation("", ids[0]))
    versions, head = visit.hf.memory_stores.memory_versions, _head(visit, store)
    # Nothing is erased if one of them may not be.
    for id in ids:
        version = versions.retrieve(id, memory_store_id=store.id, view="basic")
        if version.memory_id != visit["m"]:
            raise NotFound("version of this memory", id)
        if head is not None and id == head.memory_version_id:
            raise HeadVersion(id, head.id)
    redacted = [versions.redact(id, memory_store_id=store.id) for id in ids]
    pending = pending_erasure(visit)
    path = ("stores", store.id, "memories", visit["m"], "receipt")
    values = {
        "store": store,
        "memory_id": visit["m"],
        "facts": redaction_facts(visit, redacted, pending),
        "download": address(*path, redact=tuple(ids), pending=pending),
    }
    return PageView(
        template="redacted.html",
        title="Redacted",
        section=SECTION,
        values=values,
        up=(*crumbs(store), ("Memory", _where(store.id, visit["m"]))),
    )


def redaction_facts(
    visit: Visit, redacted: Sequence[Version], pending: Sequence[str]
) -> list[tuple[str, str]]:
    """Return what the receipt of redacted versions says; nothing of their content.

    *pending* is where bytes of them remain.
    """
    at = [each.redacted_at for each in redacted if each.redacted_at is not None]
    by = {each.redacted_by.id for each in redacted if each.redacted_by is not None}
    left = "no byte of it is left in the database's files"
    if pending:
        left = f"{'; '.join(pending)}, until no reader holds it"
    elif visit.hf.engine.dialect == "postgres":
        left = (
            "none in live tables and indexes; the server's log archive and backups keep what"
            " they hold until they expire"
        )
    return [
        ("Done", "redacted"),
        ("Versions", ", ".join(each.id for each in redacted)),
        ("Memory", redacted[0].memory_id),
        ("Store", redacted[0].memory_store_id),
        ("memory_versions", str(len(redacted))),
        ("Pending", left),
        ("By", ", ".join(sorted(by))),
        ("At", to_rfc3339(max(at)) if at else ""),
        ("Server", release("holdfast")),
    ]


def download_receipt(visit: Visit) -> Answer:
    """Give the receipt of redacted versions as JSON."""
    versions = visit.hf.memory_stores.memory_versions
    found = [
        versions.retrieve(id, memory_store_id=visit["s"], view="basic")
        for id in dict.fromkeys(visit.ticks("redact"))
    ]
    redacted = [each for each in found if each.redacted_at is not None]
    if not redacted:
        raise NotFound("receipt", visit["m"], next="Nothing of this memory was redacted.")
    pending = [each[:PENDING_SHOWN] for each in visit.ticks("pending")[:PENDING_MOST]]
    said = redaction_facts(visit, redacted, pending)
    facts = {name.lower(): value for name, value in said}
    body = json.dumps({"type": "redaction_receipt", **facts}, indent=2).encode()
    return Download(name=f"receipt-{visit['m']}.json", type="application/json", body=body)


def show_version(visit: Visit) -> Answer:
    """Show the content of one version."""
    store = visit.hf.memory_stores.retrieve(visit["s"])
    version = visit.hf.memory_stores.memory_versions.retrieve(visit["v"], memory_store_id=store.id)
    memory = _where(store.id, version.memory_id)
    return PageView(
        template="version.html",
        title=version.path or "Redacted version",
        section=SECTION,
        values={"store": store, "version": version, "memory": memory},
        up=(*crumbs(store), ("Memory", memory)),
    )


def compare(visit: Visit) -> Answer:
    """Show what two versions of a memory differ in."""
    store = visit.hf.memory_stores.retrieve(visit["s"])
    versions = visit.hf.memory_stores.memory_versions
    match visit.ticks("version") or [visit.query.get("from", ""), visit.query.get("to", "")]:
        case [first, second]:
            found = [versions.retrieve(id, memory_store_id=store.id) for id in (first, second)]
        case _:
            advice = "Tick two versions to compare."
            raise InvalidInput("version", "must be two versions", next=advice)
    older, newer = sorted(found, key=lambda each: (each.created_at, each.id))
    rows = diff_rows(older.content or "", newer.content or "")
    split = visit.text("layout") == "split"
    here = {"from": older.id, "to": newer.id}
    values = {
        "store": store,
        "older": older,
        "newer": newer,
        "rows": rows,
        "pairs": split_rows(rows) if split else (),
        "split": split,
        "layouts": [
            ("Unified", address("stores", store.id, "diff", **here), not split),
            ("Split", address("stores", store.id, "diff", **here, layout="split"), split),
        ],
        "memory": _where(store.id, newer.memory_id),
    }
    return PageView(
        template="diff.html",
        title="Compare versions",
        section=SECTION,
        values=values,
        up=(*crumbs(store), ("Memory", _where(store.id, newer.memory_id))),
    )


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/stores/{s}/new", edit_form, needs="write"),
    act("/stores/{s}/new", create_memory, again=edit_form),
    page("/stores/{s}/memories/{m}", show_memory),
    act("/stores/{s}/memories/{m}", save_memory, again=show_memory),
    act("/stores/{s}/memories/{m}/accept", accept_memory, again=show_memory),
    act("/stores/{s}/memories/{m}/delete", delete_memory, again=show_memory),
    act("/stores/{s}/memories/{m}/restore", restore_version, again=show_memory),
    act("/stores/{s}/memories/{m}/redact", redact_versions, needs="admin", again=show_memory),
    page("/stores/{s}/memories/{m}/receipt", download_receipt),
    page("/stores/{s}/versions/{v}", show_version),
    page("/stores/{s}/diff", compare),
)
