"""Things as recall gives them, made by hand."""

from datetime import UTC, datetime
from typing import Any

from holdfast.memories.longterm.records import Item, Recalled, Turn

NOW = datetime(2026, 11, 2, 9, 30, tzinfo=UTC)


def item(text: str, **given: Any) -> Item:
    told: dict[str, Any] = {
        "id": "item_1",
        "text": text,
        "kind": "preference",
        "importance": 0.5,
        "origin": "api",
        "source": "",
        "turns": (),
        "supersedes": (),
        "superseded_by": None,
        "superseded_at": None,
        "created_at": NOW,
        "updated_at": NOW,
        "last_accessed_at": None,
        "access_count": 0,
    }
    return Item(**(told | given))


def turn(text: str, **given: Any) -> Turn:
    told: dict[str, Any] = {"role": "user", "text": text, "id": "turn_1", "at": NOW}
    return Turn(**(told | given))


def recalled(found: Item | Turn, score: float = 0.5) -> Recalled:
    return Recalled(
        item=found if isinstance(found, Item) else None,
        turn=found if isinstance(found, Turn) else None,
        score=score,
        similarity=score,
        relevance=score,
        recency=1,
        importance=0.5,
        neighbours=None,
        why={},
    )
