"""Parse agent files of Letta: blocks of memory and messages of agents."""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, cast

from holdfast.library.graph import file_name
from holdfast.library.imports.exports import likeness
from holdfast.library.imports.files import documents
from holdfast.library.imports.records import (
    ForeignItem,
    ForeignMessage,
    ForeignPage,
    ForeignRecord,
    ImportLog,
    ImportOptions,
    digest,
    fields_of,
    instant,
    list_of,
    pieces,
    word_of,
)

_LISTS: Final = frozenset(("agents", "blocks", "tools", "files", "sources", "groups"))
_LEGACY: Final = frozenset(("core_memory", "messages"))
_HUMAN: Final = "human"
_PARTS: Final = ("agents", "blocks")
_COUNTED: Final = (*sorted(_LISTS - set(_PARTS)), "mcp_servers", "skills")
_SENDS: Final = "send_message"
_EVENT: Final = "user_message"

# Ids are numbered within each file, so `message-0` is no id of a message. A row's id is made of the
# agent's name, the time and the text instead.


def letta(
    name: str, content: BinaryIO, options: ImportOptions, log: ImportLog
) -> Iterator[ForeignRecord]:
    """Yield items, pages and turns of an agent file, also of the first format."""
    found: dict[str, list[dict[str, Any]]] = {each: [] for each in (*_PARTS, *_LEGACY)}
    legacy: dict[str, Any] = {}
    for place, key, each in documents(name, content, _LISTS | _LEGACY, log):
        if key in found and isinstance(each, dict):
            found[key].append(fields_of(cast("object", each)))
        elif key in _COUNTED and each:
            log.leave(key)
        elif key == "":
            log.unlike(likeness(each), place, "it is no agent file")
        else:
            legacy[key] = each
    if found["core_memory"] or (found["messages"] and "agent_type" in legacy):
        blocks = [{"id": str(n), **each} for n, each in enumerate(found["core_memory"])]
        log.known = True
        yield from _agent(name, {**legacy, "messages": found["messages"]}, blocks, options, log)
        return
    if not found["agents"]:
        log.unlike(likeness({**legacy, **found} if found["blocks"] else legacy), name, "no agent")
        return
    log.known = True
    yield from _agents(name, found["agents"], found["blocks"], options, log)


def _agents(
    name: str,
    agents: list[dict[str, Any]],
    blocks: list[dict[str, Any]],
    options: ImportOptions,
    log: ImportLog,
) -> Iterator[ForeignRecord]:
    by_id = {str(each.get("id")): each for each in blocks}
    for agent in agents:
        if options.agent not in (None, agent.get("name"), agent.get("id")):
            log.leave("agents")
            continue
        ids = [str(each) for each in list_of(agent.get("block_ids"))]
        owned = [by_id.pop(id) for id in ids if id in by_id]
        yield from _agent(name, agent, owned, options, log)
    if options.agent is None:
        yield from _blocks(name, "shared", list(by_id.values()), options, log)
    else:
        log.leave("blocks", len(by_id))


def _agent(
    name: str,
    agent: dict[str, Any],
    blocks: list[dict[str, Any]],
    options: ImportOptions,
    log: ImportLog,
) -> Iterator[ForeignRecord]:
    called = str(agent.get("name") or "agent")
    if agent.get("system"):
        log.leave("system")
    yield from _blocks(name, called, blocks, options, log)
    for number, each in enumerate(list_of(agent.get("messages")), start=1):
        place = f"{name}, {called}, message {number:,}"
        yield from _message(place, called, fields_of(each), log)


def _blocks(
    name: str,
    agent: str,
    blocks: list[dict[str, Any]],
    options: ImportOptions,
    log: ImportLog,
) -> Iterator[ForeignRecord]:
    taken: dict[str, str] = {}
    for block in blocks:
        label, value = block.get("label"), block.get("value")
        place = f"{name}, {agent}, block {label}"
        if not isinstance(label, str) or not isinstance(value, str):
            log.skip(place, "it has no label, or no value")
        elif not value.strip():
            log.leave("empty blocks")
        elif label in {_HUMAN, *options.human}:
            for line in value.splitlines():
                for text in pieces(line.strip().removeprefix("- ")):
                    id = f"{agent}/{label}/{digest(text)}"
                    yield ForeignItem(id=id, place=place, text=text)
        else:
            if taken.setdefault(label, value) != value:
                label = f"{label}-{digest(value)[:8]}"
            yield ForeignPage(
                id=f"{agent}/{label}", place=place, text=value, path=f"/letta/{file_name(label)}.md"
            )


def _message(
    place: str, agent: str, message: dict[str, Any], log: ImportLog
) -> Iterator[ForeignMessage]:
    role = word_of(message.get("role"))
    if role not in {"user", "assistant"}:
        log.leave(f"role {role}")
        return
    texts = _texts(message.get("content", message.get("text")), log)
    if role == "user":
        text = _spoken(texts, log)
    else:
        sent = _sent(message.get("tool_calls"), log)
        if sent:
            log.leave("reasoning", len(texts))
        text = "\n".join(sent or texts)
    if not text.strip():
        return
    created = message.get("created_at")
    said = f"{agent}/{created or message.get('id')}/{role}/{digest(text)}"
    yield ForeignMessage(
        id=said,
        place=place,
        text=text,
        role=cast("Any", role),
        thread=agent,
        at=instant(created),
    )


def _texts(content: object, log: ImportLog) -> list[str]:
    if isinstance(content, str):
        return [content]
    texts: list[str] = []
    for each in list_of(content):
        part = fields_of(each)
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str):
            texts.append(text)
        else:
            log.leave(f"content {word_of(part.get('type'))}")
    return texts


def _spoken(texts: list[str], log: ImportLog) -> str:
    """Return what the user said.

    Messages are wrapped in JSON, beside events of the machine.
    """
    said: list[str] = []
    for text in texts:
        event = _decoded(text)
        kind = event.get("type")
        if not isinstance(kind, str):
            said.append(text)
        elif kind == _EVENT and isinstance(event.get("message"), str):
            said.append(event["message"])
        else:
            log.leave(f"event {kind}")
    return "\n".join(said)


def _sent(calls: object, log: ImportLog) -> list[str]:
    """Return the texts that an agent sent by its tool for messages."""
    sent: list[str] = []
    for each in list_of(calls):
        call = fields_of(each)
        function = fields_of(call.get("function"))
        message = _decoded(str(function.get("arguments"))).get("message")
        if function.get("name") == _SENDS and isinstance(message, str):
            sent.append(message)
        else:
            log.leave("tool_calls")
    return sent


def _decoded(text: str) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return fields_of(value)
