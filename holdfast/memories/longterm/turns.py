"""Record turns and whole conversations."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput
from holdfast.ground.validation import is_list, nested
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.recall.block import without_blocks
from holdfast.memories.longterm.records import (
    HASH_BYTES,
    Recorded,
    Skipped,
    Turn,
    hashed,
    in_order,
)
from holdfast.memories.longterm.remember import graves
from holdfast.memories.longterm.removal import evict_turns
from holdfast.memories.longterm.transaction import CollectionTransaction
from holdfast.memories.longterm.validation import (
    checked_name,
    checked_thread,
    checked_turn,
    checked_turns,
)
from holdfast.memories.longterm.write import PreparedTurn, print_of, put_turns, ready_turns

CHUNK: Final = 256
"""Fingerprints that stand in one row of a cursor."""


class CursorChunk(Struct, frozen=True):
    """A part of a thread's cursor."""

    chunk: int
    fingerprints: bytes


def record(
    context: CollectionContext, turns: Iterable[Turn], *, thread_id: str | None = None
) -> Recorded:
    """Store *turns* without mining them; *thread_id* is for turns without a thread."""
    thread = checked_thread(thread_id)
    given = [_in_thread(turn, thread) for turn in checked_turns(turns)]
    fit, skipped = ready_turns(context, list(enumerate(given)))

    def work(tx: Transaction) -> Recorded:
        if not fit:
            return Recorded(turns=(), skipped=tuple(skipped))
        unit = CollectionTransaction(context, tx)
        _, stored = put_turns(unit, fit)
        remember_seen(unit, fit)
        unit.note("stored", {"turn": [turn.id for turn in stored]}, turns=len(stored))
        gone = evict_turns(unit)
        unit.close()
        return Recorded(turns=tuple(stored), skipped=tuple(skipped), evicted=gone)

    return context.engine.write(work)


def remember_seen(unit: CollectionTransaction, turns: Sequence[PreparedTurn]) -> None:
    """Add *turns* to the cursors of their threads."""
    threads: dict[str, list[bytes]] = {}
    for each in turns:
        threads.setdefault(each.turn.thread_id or "", []).append(print_of(unit, each.turn))
    for thread, prints in threads.items():
        append_to_cursor(unit, thread, b"".join(prints))


def cursor_of(unit: CollectionTransaction, thread: str) -> bytes:
    """Return the fingerprints of all recorded turns of *thread*, in order."""
    chunks = unit.tx.all(
        CursorChunk, unit.sql.cursor_chunks, collection=unit.number, thread_id=thread
    )
    return b"".join(each.fingerprints for each in chunks)


def append_to_cursor(unit: CollectionTransaction, thread: str, prints: bytes) -> None:
    """Append *prints*, concatenated fingerprints, to the cursor of *thread*."""
    last = unit.tx.first(CursorChunk, unit.sql.last_chunk, collection=unit.number, thread_id=thread)
    place, held = (0, b"") if last is None else (last.chunk, last.fingerprints)
    size = CHUNK * HASH_BYTES
    whole = held + prints
    for start in range(0, len(whole), size):
        chunk = whole[start : start + size]
        if chunk != held or start:
            unit.tx.send(
                unit.sql.put_chunk,
                collection=unit.number,
                thread_id=thread,
                chunk=place + start // size,
                fingerprints=chunk,
            )


def _in_thread(turn: Turn, thread: str | None) -> Turn:
    return replace(turn, thread_id=thread) if turn.thread_id is None and thread else turn


def seen(recorded: Sequence[bytes], given: Sequence[bytes]) -> int:
    """Return how many of *given*, from its first, were *recorded* before.

    Both are fingerprints in order. The result is the length of the longest end of *recorded* with
    which *given* begins, or of all of *given* if it is a run of *recorded*. So a caller may pass
    the whole list each time, or only its new part.

    >>> seen([b"a", b"b", b"c"], [b"b", b"c", b"d"])
    2
    >>> seen([b"a", b"b", b"c"], [b"a", b"b"])
    2
    >>> seen([b"a", b"b", b"c"], [b"d"])
    0
    """
    borders = _borders(given)
    matched = 0
    for each in recorded:
        if matched == len(given):
            break
        matched = _advanced(given, borders, matched, each)
    return matched


def _borders(given: Sequence[bytes]) -> list[int]:
    """Return the failure table of *given* for the search in `seen`.

    Each entry is the length of the longest end of a beginning that is a shorter beginning.

    With these a run is found in one pass (Knuth, Morris, Pratt: Fast pattern matching in strings).
    """
    borders = [0] * len(given)
    for place in range(1, len(given)):
        borders[place] = _advanced(given, borders, borders[place - 1], given[place])
    return borders


def _advanced(given: Sequence[bytes], borders: Sequence[int], matched: int, each: bytes) -> int:
    """Return how much of *given* is matched after *each* follows the *matched* part."""
    while matched and given[matched] != each:
        matched = borders[matched - 1]
    return matched + 1 if matched < len(given) and given[matched] == each else 0


# Recall blocks in a prompt are removed, so that recalled text is never recorded as the user's own.

SAID_BY: Final = frozenset(("user", "assistant"))
NOT_SAID: Final = frozenset(("system", "developer", "tool", "function"))
"""Roles of messages that are not recorded; they reach neither the store nor a model."""


_STANDING: Final = ("tier", "by", "origin_ref", "held")
"""Fields of a message that say who stands behind it."""


def read_messages(given: object) -> list[Turn | None]:
    """Return the turns of *given*'s messages, None for a role that is not recorded.

    Each is a Turn, or an object with `role`, `content`, and perhaps `name`, `at`, `event_id`, and
    `tier`, `by`, `origin_ref` and `held` as a Turn has them. A content is text, or parts of which
    those of the type `text` are joined. InvalidInput names the index of the first that is neither.
    """
    if not is_list(given):
        raise InvalidInput("messages", "must be a list of messages")
    turns: list[Turn | None] = []
    for index, each in enumerate(given):
        try:
            turns.append(_read(each))
        except InvalidInput as error:
            raise nested(error, f"messages[{index}]", index=index) from None
    return turns


def event_ids(given: Iterable[object]) -> dict[int, str]:
    """Return the `event_id` of those messages of *given* that have one, by index."""
    found: dict[int, str] = {}
    for index, each in enumerate(given):
        if not isinstance(each, Mapping):
            continue
        id = cast("Mapping[str, object]", each).get("event_id")
        if id is None:
            continue
        try:
            found[index] = checked_name("event_id", id)
        except InvalidInput as error:
            raise nested(error, f"messages[{index}]", index=index) from None
    return found


def _read(given: object) -> Turn | None:
    if isinstance(given, Turn):
        turn = checked_turn(given)
    elif isinstance(given, Mapping):
        message = cast("Mapping[str, object]", given)
        role = message.get("role")
        if role in NOT_SAID:
            return None
        if role not in SAID_BY:
            reason = f"must be one of {', '.join(sorted(SAID_BY | NOT_SAID))}"
            raise InvalidInput("role", reason, given=role)
        turn = checked_turn(
            {
                "role": role,
                "text": _text_of(message.get("content")),
                "speaker": message.get("name"),
                "at": message.get("at"),
                **{name: message.get(name) for name in _STANDING},
            }
        )
    else:
        raise InvalidInput("message", "must be a Turn, or an object with role and content")
    text = without_blocks(turn.text)
    return turn if text == turn.text else replace(turn, text=text)


def _text_of(content: object) -> str:
    """Return the text of a message's *content*; "" for one that is a tool call alone."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise InvalidInput("content", "must be text, or a list of parts")
    texts: list[str] = []
    for part in cast("list[object]", content):
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, Mapping):
            raise InvalidInput("content", "must be text, or a list of parts")
        members = cast("Mapping[str, object]", part)
        if members.get("type") == "text":
            text = members.get("text")
            if not isinstance(text, str):
                raise InvalidInput("content", "has a part of text without a text")
            texts.append(text)
    return "\n".join(texts)


EXTRACT: Final = "extract"
"""The kind of a job that mines turns."""


def remember_conversation(
    context: CollectionContext, messages: Iterable[object], thread_id: str | None = None
) -> Recorded:
    """Record the new turns of *messages*, and queue them if they are to be mined.

    They are queued also while their extractor cannot be used. The whole list or only its new part
    may be passed: turns of the thread that were recorded before are recognised. Turns and job are
    written in one transaction.
    """
    thread = checked_thread(thread_id)
    given = list(messages) if is_list(messages) else messages
    read = read_messages(given)
    named = event_ids(given)
    skipped = [Skipped(index, "role") for index, turn in enumerate(read) if turn is None]
    said = [
        (index, replace(turn, thread_id=thread or turn.thread_id))
        for index, turn in enumerate(read)
        if turn is not None
    ]
    fit, unfit = ready_turns(context, said)
    skipped += unfit

    def work(tx: Transaction) -> Recorded:
        if not fit:
            return Recorded(turns=(), skipped=_in_order(skipped))
        unit = CollectionTransaction(context, tx)
        new, passed = _new_of(unit, fit, named)
        wished = context.wish(unit.there.extractor).name is not None
        numbers, stored = put_turns(unit, new, covered=wished)
        queued = wished and any(turn.tier != "outside" for turn in stored)
        if queued:
            queue(unit, EXTRACT, numbers)
            context.shared.expect_mining(context.mining_place)
            tx.after_commit(context.tend)
        if stored:
            unit.note("stored", {"turn": [turn.id for turn in stored]}, turns=len(stored))
        gone = evict_turns(unit)
        unit.close()
        return Recorded(
            turns=tuple(stored),
            skipped=_in_order([*skipped, *passed]),
            queued=queued,
            evicted=gone,
        )

    return context.engine.write(work)


def queue(unit: CollectionTransaction, kind: str, numbers: Sequence[int]) -> None:
    """Queue a job about the rows *numbers*."""
    unit.tx.send(
        unit.sql.queue_job,
        number=unit.numbers(1)[0],
        collection=unit.number,
        kind=kind,
        about=msgspec.json.encode(numbers).decode(),
        model=unit.context.wish(unit.there.extractor).model,
        now=unit.now,
    )


def _new_of(
    unit: CollectionTransaction, turns: Sequence[PreparedTurn], named: Mapping[int, str]
) -> tuple[list[PreparedTurn], list[Skipped]]:
    """Return the turns that are new to their threads; add all of them to the cursors.

    Those of *named* are recognised by that id alone, the others by their order.
    """
    buried = graves(unit) if unit.there.buried else []
    dead = {grave.fingerprint for grave in buried}
    threads: dict[str, list[tuple[PreparedTurn, bytes]]] = {}
    for each in turns:
        id = named.get(each.index)
        own = print_of(unit, each.turn) if id is None else hashed(unit.secret, f"event\0{id}")
        threads.setdefault(each.turn.thread_id or "", []).append((each, own))
    new: list[PreparedTurn] = []
    passed: list[Skipped] = []
    for thread, printed in threads.items():
        places = _recorded(in_order(cursor_of(unit, thread)), printed, named)
        passed += [Skipped(place, "seen") for place in places]
        rest = [(each, own) for each, own in printed if each.index not in places]
        for each, _ in rest:
            if print_of(unit, each.turn) in dead:
                passed.append(Skipped(each.index, "forgotten"))
            else:
                new.append(each)
        if rest:
            append_to_cursor(unit, thread, b"".join(own for _, own in rest))
    return sorted(new, key=lambda each: each.index), passed


def _recorded(
    cursor: Sequence[bytes], printed: Sequence[tuple[PreparedTurn, bytes]], named: Mapping[int, str]
) -> set[int]:
    """Return the places of the turns that their thread's *cursor* or batch has."""
    ordered = [(each.index, own) for each, own in printed if each.index not in named]
    count = seen(cursor, [own for _, own in ordered])
    places = {index for index, _ in ordered[:count]}
    known = set(cursor)
    for each, own in printed:
        if each.index not in named:
            continue
        if own in known:
            places.add(each.index)
        known.add(own)
    return places


def _in_order(skipped: Iterable[Skipped]) -> tuple[Skipped, ...]:
    return tuple(sorted(skipped, key=lambda each: each.index))
