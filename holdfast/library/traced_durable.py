"""Which calls of durable memory make spans, and what these tell."""

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.library.spans import Face, TracedMethod
from holdfast.memories.durable.records import DurableEntry, ImportReport, StoredEntry, StoredMany


def _found(entry: DurableEntry | None) -> Sequence[DurableEntry]:
    return () if entry is None else (entry,)


def _stored(entry: StoredEntry) -> Sequence[StoredEntry]:
    return (entry,)


def _tried(many: StoredMany) -> int:
    return len(many.stored) + len(many.refused)


def _files_read(report: ImportReport) -> int:
    kept = len(report.created) + len(report.replaced) + len(report.unchanged)
    return kept + len(report.rejected)


def _entry_attributes(entry: DurableEntry) -> Mapping[str, object]:
    told = {"key": entry.key, "category": entry.category, "tags": entry.tags}
    return {"id": entry.id, "content": entry.content, "metadata": told}


_MANY: Final = TracedMethod(
    operation="upsert_memory", records=lambda many: many.stored, count=_tried
)
_IN_A_RUN: Final = {
    "get": TracedMethod(operation="search_memory", records=_found, single=True, query="key"),
    "list": TracedMethod(operation="search_memory", records=lambda page: page.data, query="query"),
    "hydrate": TracedMethod(operation="search_memory", records=lambda hydration: hydration.entries),
    "set": TracedMethod(operation="upsert_memory", records=_stored, single=True),
    "set_many": _MANY,
    "forget": TracedMethod(operation="delete_memory", count=lambda _: 1),
}
DURABLE: Final = Face(
    acts={
        **_IN_A_RUN,
        "import_markdown": TracedMethod(operation="upsert_memory", count=_files_read),
        "promote": TracedMethod(operation="upsert_memory", records=_stored, single=True),
    },
    shown=_entry_attributes,
    opens={"run": Face(acts={**_IN_A_RUN, "capture": _MANY}, shown=_entry_attributes)},
)
