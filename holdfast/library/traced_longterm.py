"""Which calls of long-term memory make spans, and what these tell."""

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.library.spans import Face, TracedMethod
from holdfast.memories.longterm.records import (
    Cleared,
    ForgetResult,
    Imported,
    Item,
    Recalled,
    Recorded,
    Remembered,
    Turn,
)


def _kept(done: Remembered) -> Sequence[Item]:
    return () if done.stored is None else (done.stored,)


def _said(done: Recorded) -> int:
    return len(done.turns) + len(done.skipped)


def _records_read(done: Imported) -> int:
    return done.items + done.turns + done.skipped + len(done.rejected)


def _gone(done: ForgetResult) -> int:
    return len(done.items) + len(done.turns)


def _cleared(done: Cleared) -> int:
    return done.items + done.turns


def _record_attributes(record: Recalled | Item | Turn) -> Mapping[str, object]:
    if isinstance(record, Recalled):
        found = record.item or record.turn
        return {} if found is None else {**_record_attributes(found), "score": record.score}
    if isinstance(record, Item):
        told: Mapping[str, object] = {
            "type": "item",
            "kind": record.kind,
            "importance": record.importance,
        }
    else:
        told = {"type": "turn", "role": record.role, "speaker": record.speaker}
    return {"id": record.id, "content": record.text, "metadata": told}


_RECORDED: Final = TracedMethod(
    operation="create_memory", records=lambda done: done.turns, count=_said
)
_ACTS: Final = {
    "recall": TracedMethod(operation="search_memory", records=lambda found: found, query="query"),
    "remember": TracedMethod(
        operation="create_memory", records=_kept, count=lambda _: 1, single=True
    ),
    "record": _RECORDED,
    "remember_conversation": _RECORDED,
    "update": TracedMethod(operation="update_memory", records=lambda item: (item,), single=True),
    "import_": TracedMethod(operation="upsert_memory", count=_records_read),
    "forget": TracedMethod(operation="delete_memory", count=_gone, record="id"),
    "clear": TracedMethod(operation="delete_memory", count=_cleared),
}
LONGTERM: Final = Face(
    acts=_ACTS,
    shown=_record_attributes,
    opens={"by_tool": Face(acts=_ACTS, shown=_record_attributes)},
)
