"""Which calls of long-term memory make spans, and what these tell."""

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.library.traced import Act, Face
from holdfast.memories.longterm.item import (
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


def _taken_in(done: Imported) -> int:
    return done.items + done.turns + done.skipped + len(done.rejected)


def _gone(done: ForgetResult) -> int:
    return len(done.items) + len(done.turns)


def _cleared(done: Cleared) -> int:
    return done.items + done.turns


def _shown(record: Recalled | Item | Turn) -> Mapping[str, object]:
    if isinstance(record, Recalled):
        found = record.item or record.turn
        return {} if found is None else {**_shown(found), "score": record.score}
    if isinstance(record, Item):
        told: Mapping[str, object] = {
            "type": "item",
            "kind": record.kind,
            "importance": record.importance,
        }
    else:
        told = {"type": "turn", "role": record.role, "speaker": record.speaker}
    return {"id": record.id, "content": record.text, "metadata": told}


_RECORDED: Final = Act(operation="create_memory", records=lambda done: done.turns, count=_said)
_ACTS: Final = {
    "recall": Act(operation="search_memory", records=lambda found: found, query="query"),
    "remember": Act(operation="create_memory", records=_kept, count=lambda _: 1, single=True),
    "record": _RECORDED,
    "remember_conversation": _RECORDED,
    "update": Act(operation="update_memory", records=lambda item: (item,), single=True),
    "import_": Act(operation="upsert_memory", count=_taken_in),
    "forget": Act(operation="delete_memory", count=_gone, record="id"),
    "clear": Act(operation="delete_memory", count=_cleared),
}
LONGTERM: Final = Face(acts=_ACTS, shown=_shown, opens={"by_tool": Face(acts=_ACTS, shown=_shown)})
