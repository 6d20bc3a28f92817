"""The three tools of long-term memory: recall, remember and forget.

An error of the model is a result, `{"error": …}`, never an exception.
"""

from functools import partial
from typing import Final

from msgspec import Struct

from holdfast import memories
from holdfast.ground.clock import to_rfc3339
from holdfast.memories.longterm.records import Recalled
from holdfast.memories.longterm.trust.rules import SessionTrust
from holdfast.memories.longterm.validation import KINDS
from holdfast.tools.base import JSON, Schema, Tool, object_schema, told, toolset
from holdfast.tools.durable import read

K: Final = 5
MOST_RECALLED: Final = 20

_SAYS: Final = {
    "duplicate": "This is already known; the existing item was refreshed.",
    "secret": "This looks like a password, key or other secret, so it was not stored."
    " Do not try again in other words; tell the user that secrets are not remembered.",
    "held": "It was kept, and is not used until the user accepts it. Do not store it again.",
    "blank": "There was no text, so nothing was stored.",
}


class RecallItems(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `ltm_recall`: a query, and the limit of results."""

    query: str
    k: int = K


class Remember(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `ltm_remember`: one sentence to store."""

    text: str
    kind: str = "fact"
    importance: float = 0.5


class ForgetItem(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `ltm_forget`: the id of an item or a turn."""

    id: str


SCHEMAS: Final[dict[str, Schema]] = {
    "recall": object_schema(
        {
            "query": {"type": "string", "minLength": 1},
            "k": {"type": "integer", "minimum": 1, "maximum": MOST_RECALLED, "default": K},
        },
        "query",
    ),
    "remember": object_schema(
        {
            "text": {"type": "string", "minLength": 1, "maxLength": 4_096},
            "kind": {"type": "string", "enum": list(KINDS), "default": "fact"},
            "importance": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
        },
        "text",
    ),
    "forget": object_schema({"id": {"type": "string"}}, "id"),
}
"""The JSON Schema of each tool's arguments."""


def longterm(
    ltm: "memories.LongTermMemory | None",
    *,
    touch: bool = True,
    session: SessionTrust | None = None,
) -> list[Tool]:
    """Return the tools `ltm_recall`, `ltm_remember` and `ltm_forget`; none for None.

    *ltm* is the result of `hf.longterm(user_id)`. Their results are JSON objects, errors too.
    Without *touch* recalls are not recorded. What an agent remembers is believed as the user's word
    only if messages of the user in *session* state it.
    """
    if ltm is None:
        return []
    recall = partial(_recall, touch=touch, session=session)
    acts = {"recall": recall, "remember": _remember, "forget": _forget}
    agents = ltm.by_tool(session)
    bound = {name: partial(act, agents) for name, act in acts.items()}
    return toolset("longterm", "ltm", bound, SCHEMAS, told)


def _recall(
    ltm: "memories.LongTermMemory",
    arguments: object,
    *,
    touch: bool,
    session: SessionTrust | None,
) -> JSON:
    params = read(RecallItems, arguments)
    found = ltm.recall(params.query, min(max(params.k, 1), MOST_RECALLED), touch=touch)
    if session is not None:
        session.add_recalled((each.text, each.tier) for each in found)
    mode = str(found[0].why["mode"]) if found else ltm.status().mode
    return {"results": [_result(each) for each in found], "count": len(found), "mode": mode}


def _result(found: Recalled) -> JSON:
    item, turn = found.item, found.turn
    at = item.created_at if item else turn and (turn.at or turn.created_at)
    return {
        "id": found.id,
        "type": "item" if item else "turn",
        "text": found.text,
        "kind": item.kind if item else None,
        "speaker": (turn.speaker or turn.role) if turn else None,
        "at": to_rfc3339(at) if at else None,
        "tier": found.tier,
        "importance": found.importance,
        "score": found.score,
        "why": str(found.why["text"]),
    }


def _remember(ltm: "memories.LongTermMemory", arguments: object) -> JSON:
    params = read(Remember, arguments)
    done = ltm.remember(params.text, params.kind, params.importance)
    id = done.stored.id if done.stored else None
    if done.outcome == "stored":
        return {"stored": True, "id": id, "outcome": done.outcome}
    return {"stored": False, "id": id, "outcome": done.outcome, "message": _SAYS[done.outcome]}


def _forget(ltm: "memories.LongTermMemory", arguments: object) -> JSON:
    gone = ltm.forget(read(ForgetItem, arguments).id)
    return {"forgotten": bool(gone), "items": list(gone.items), "turns": list(gone.turns)}
