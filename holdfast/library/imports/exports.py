"""Parse exports of memories: mem0, LangMem, and the memory server of MCP."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, BinaryIO, Final, cast

from holdfast.library.imports.files import documents, json_lines
from holdfast.library.imports.records import (
    EVERY_USER,
    ForeignItem,
    ForeignLine,
    ImportLog,
    ImportOptions,
    fields_of,
    instant,
    list_of,
)

_MEM0: Final = frozenset(
    ("id", "memory", "user_id", "agent_id", "created_at", "updated_at", "expiration_date", "hash")
)
_RESULTS: Final = frozenset(("results", "memories"))


def mem0(
    name: str, content: BinaryIO, options: ImportOptions, log: ImportLog
) -> Iterator[ForeignItem]:
    """Yield the memories of `get_all`, of an export, or of a list of them."""
    for place, key, each in documents(name, content, _RESULTS, log):
        if key in {"", *_RESULTS} and isinstance(each, dict):
            yield from _memory(place, fields_of(cast("object", each)), options, log)
        elif key in _RESULTS and each == []:
            log.known = True
        elif key and key not in _RESULTS:
            log.unlike(f"an object with {key!r}", place, f"{key} is no list of memories")
        else:
            log.unlike(type(each).__name__, place, "it is no memory")


def _memory(
    place: str, record: dict[str, Any], options: ImportOptions, log: ImportLog
) -> Iterator[ForeignItem]:
    text, id = record.get("memory"), record.get("id")
    if not isinstance(text, str) or not isinstance(id, str | int):
        log.unlike(likeness(record), place, "it has no id, or no memory")
        return
    log.known = True
    owner = record.get("user_id")
    if (reason := _not_wanted(record, options)) is not None:
        log.skip(place, reason)
        return
    log.others(record, _MEM0)
    created_at, expires = instant(record.get("created_at")), record.get("expiration_date")
    if expires and _day_after(expires) is None:
        log.leave("expiration_date")
    yield ForeignItem(
        id=str(id),
        place=place,
        text=text,
        user=owner if isinstance(owner, str) else None,
        created_at=created_at,
        valid_to=_day_after(expires),
    )


def _not_wanted(record: dict[str, Any], options: ImportOptions) -> str | None:
    """Return why *record* is not imported with *options*, or None if it is."""
    owner, agent = record.get("user_id"), record.get("agent_id")
    if options.agent is not None and agent != options.agent:
        return "it is of no agent" if agent is None else f"it is of the agent {agent!r}"
    if owner is None and agent is not None and options.agent is None:
        return f"it is of the agent {agent!r} alone"
    if options.user == EVERY_USER:
        return None if isinstance(owner, str) and owner else "it is of no user"
    if owner not in (None, options.user):
        return f"it is of the user {owner!r}"
    return None


def _day_after(given: object) -> datetime | None:
    """Return the end of the day *given*, throughout which a memory is valid."""
    try:
        day = date.fromisoformat(str(given)[:10]) + timedelta(days=1)
    except (ValueError, OverflowError):
        return None
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def likeness(record: object) -> str:
    """Return what *record* looks like, for a message about a file of another kind."""
    members: frozenset[str] = frozenset(
        cast("dict[str, Any]", record) if isinstance(record, dict) else ()
    )
    for marks, what in _MARKS:
        if members >= marks:
            return what
    return "unknown"


_MARKS: Final = (
    (frozenset(("mapping",)), "chatgpt"),
    (frozenset(("chat_messages",)), "claude"),
    (frozenset(("memory", "id")), "mem0"),
    (frozenset(("namespace", "key", "value")), "langmem"),
    (frozenset(("type", "name", "observations")), "mcp-graph"),
    (frozenset(("type", "relationType")), "mcp-graph"),
    (frozenset(("agents", "blocks")), "letta"),
    (frozenset(("block_ids",)), "letta"),
)


_STORE_ITEM: Final = frozenset(("namespace", "key", "value", "created_at", "updated_at", "score"))


def langmem(
    name: str, content: BinaryIO, _options: ImportOptions, log: ImportLog
) -> Iterator[ForeignItem]:
    """Yield the items of a LangGraph store, as a list or one in each line."""
    if _begins_list(content):
        found = ((place, each) for place, _, each in documents(name, content, frozenset(), log))
    else:
        found = json_lines(name, content, log)
    for place, each in found:
        yield from _store_item(place, each, log)


def _begins_list(content: BinaryIO) -> bool:
    start = cast("Any", content).peek(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    return start[:1] == b"["


def _store_item(place: str, given: object, log: ImportLog) -> Iterator[ForeignItem]:
    record = fields_of(given)
    namespace, key, value = record.get("namespace"), record.get("key"), record.get("value")
    if not isinstance(key, str) or not isinstance(value, dict):
        log.unlike(likeness(given), place, "it is no item of a store")
        return
    log.known = True
    log.others(record, _STORE_ITEM)
    names = [str(each) for each in list_of(namespace)]
    members = cast("dict[str, Any]", value)
    text = _text_of(members.get("content"))
    if text is None:
        log.skip(place, "its value has no content")
        return
    log.others(members, frozenset(("kind", "content")), "value.")
    created_at = instant(record.get("created_at"))
    id = "/".join((*names, key))
    yield ForeignItem(id=id, place=place, text=text, created_at=created_at)


def _text_of(content: object) -> str | None:
    """Return a memory's text: an object's only field of text, else its JSON."""
    if isinstance(content, str):
        return content
    fields = fields_of(content)
    texts = [each for each in fields.values() if isinstance(each, str)]
    if len(texts) == len(fields) == 1:
        return texts[0]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) if fields else None


def mcp_graph(
    name: str, content: BinaryIO, options: ImportOptions, log: ImportLog
) -> Iterator[ForeignItem | ForeignLine]:
    """Yield the lines of a knowledge graph for a store, items of a user, or both.

    An observation is an item, and so is a relation.
    """
    for place, each in json_lines(name, content, log):
        record = fields_of(each)
        if record.get("type") not in ("entity", "relation"):
            log.unlike(likeness(each), place, "its type is no entity or relation")
            continue
        log.known = True
        if options.store is not None:
            yield ForeignLine(place=place, members=record)
        if options.user is None:
            continue
        if record["type"] == "entity":
            yield from _observations(place, record, log)
        else:
            yield from _relation(place, record, log)


def _relation(place: str, record: dict[str, Any], log: ImportLog) -> Iterator[ForeignItem]:
    found = [record.get(each) for each in ("from", "relationType", "to")]
    texts = [each for each in found if isinstance(each, str)]
    if len(texts) == len(found):
        yield ForeignItem(id="\0".join(texts), place=place, text=" ".join(texts))
    else:
        log.skip(place, "it is no whole relation")


def _observations(place: str, record: dict[str, Any], log: ImportLog) -> Iterator[ForeignItem]:
    entity, observations = record.get("name"), list_of(record.get("observations"))
    if not isinstance(entity, str) or not isinstance(record.get("observations", []), list):
        log.skip(place, "it is no whole entity")
        return
    log.others(record, frozenset(("type", "name", "entityType", "observations")))
    for each in observations:
        if isinstance(each, str):
            yield ForeignItem(id=f"{entity}\0{each}", place=place, text=f"{entity}: {each}")
        else:
            log.skip(place, "an observation is no text")
