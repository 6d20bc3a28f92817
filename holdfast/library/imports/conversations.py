"""Parse exports of conversations: ChatGPT and Claude."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Final, Literal

from holdfast.library.imports.exports import likeness
from holdfast.library.imports.files import documents
from holdfast.library.imports.records import (
    ForeignItem,
    ForeignMessage,
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

_NONE: Final[frozenset[str]] = frozenset()
_MEMORIES: Final = frozenset(("memories",))
_CONVERSATIONS: Final = re.compile(r"conversations(-\d+)?\.json", re.IGNORECASE)
_MEMORY: Final = re.compile(r"memor(y|ies)(-\d+)?\.json", re.IGNORECASE)
_ROLES: Final[Mapping[object, Literal["user", "assistant"]]] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
}


def is_conversations(path: str) -> bool:
    """Return whether *path* is of an archive's conversations or memories."""
    name = PurePosixPath(path)
    return bool(
        _CONVERSATIONS.fullmatch(name.name)
        or _MEMORY.fullmatch(name.name)
        or (name.parent.name == "memories" and name.suffix == ".json")
    )


def chatgpt(
    name: str, content: BinaryIO, _options: ImportOptions, log: ImportLog
) -> Iterator[ForeignRecord]:
    """Yield turns of conversations of ChatGPT, and memories that are enabled."""
    for place, key, each in documents(name, content, _MEMORIES, log):
        record = fields_of(each)
        if isinstance(record.get("mapping"), dict):
            log.known = True
            yield from _conversation(place, record, fields_of(record["mapping"]), log)
        elif key in {"", "memories"} and isinstance(record.get("content"), str):
            log.known = True
            yield from _saved_memory(place, record, log)
        else:
            log.unlike(likeness(each), place, "it is no conversation or memory of ChatGPT")


def _saved_memory(place: str, memory: dict[str, Any], log: ImportLog) -> Iterator[ForeignItem]:
    if memory.get("enabled", True) is False:
        log.skip(place, "it is not enabled")
        return
    log.others(memory, _OF_MEMORY)
    created, text = memory.get("created_at", memory.get("create_time")), memory["content"]
    id = str(memory.get("id") or digest(text))
    for number, piece in enumerate(pieces(text)):
        yield ForeignItem(
            id=f"memory/{id}/{number}" if number else f"memory/{id}",
            place=place,
            text=piece,
            created_at=instant(created if created is not None else memory.get("updated_at")),
        )


_OF_MEMORY: Final = frozenset(
    ("id", "content", "enabled", "created_at", "create_time", "updated_at", "update_time")
)


def _conversation(
    place: str, conversation: dict[str, Any], mapping: dict[str, Any], log: ImportLog
) -> Iterator[ForeignMessage]:
    began = conversation.get("create_time")
    title = str(conversation.get("title") or "")
    id = conversation.get("conversation_id") or conversation.get("id")
    thread = str(id or digest(title, str(began)))
    branch = _branch(mapping, conversation.get("current_node"))
    other = sum(1 for node, each in mapping.items() if node not in branch and _has_text(each))
    log.leave("messages of other branches", other)
    for number, node in enumerate(branch, start=1):
        message = _message_of(mapping[node])
        text, role = _chat_text(message, log) if message else ("", None)
        if role is None or not text.strip():
            continue
        at = message.get("create_time")
        yield ForeignMessage(
            id=f"{thread}/{message.get('id') or node}",
            place=f"{place}, message {number:,}",
            text=text,
            role=role,
            thread=thread,
            at=instant(began if at is None else at),
        )


def _branch(mapping: dict[str, Any], leaf: object) -> list[str]:
    """Return the nodes from the root to *leaf*, or to the newest one if it names none."""
    if not isinstance(leaf, str) or leaf not in mapping:
        leaf = max(mapping, key=lambda node: _time_of(mapping[node]), default=None)
    found: dict[str, None] = {}
    while isinstance(leaf, str) and leaf in mapping and leaf not in found:
        found[leaf] = None
        leaf = fields_of(mapping[leaf]).get("parent")
    return list(found)[::-1]


def _message_of(node: object) -> dict[str, Any]:
    return fields_of(fields_of(node).get("message"))


def _time_of(node: object) -> float:
    at = instant(_message_of(node).get("create_time"))
    return 0.0 if at is None else at.timestamp()


def _has_text(node: object) -> bool:
    text, role = _chat_text(_message_of(node), ImportLog())
    return role is not None and bool(text.strip())


def _chat_text(
    message: dict[str, Any], log: ImportLog
) -> tuple[str, Literal["user", "assistant"] | None]:
    """Return the text of *message* and who said it; None if neither said it."""
    given = word_of(fields_of(message.get("author")).get("role"))
    role = _ROLES.get(given)
    content, metadata = fields_of(message.get("content")), fields_of(message.get("metadata"))
    kind = content.get("content_type")
    hidden = metadata.get("is_visually_hidden_from_conversation")
    if role is None:
        log.leave(f"role {given}")
    elif hidden or message.get("weight") == 0:
        log.leave("hidden messages")
    elif message.get("recipient") not in (None, "all"):
        log.leave("messages to tools")
    elif kind not in ("text", "multimodal_text"):
        log.leave(f"content {word_of(kind)}")
    else:
        return _parts(content.get("parts"), log), role
    return "", None


def _parts(parts: object, log: ImportLog) -> str:
    texts: list[str] = []
    for each in list_of(parts):
        part = fields_of(each)
        if isinstance(each, str):
            texts.append(each)
        elif part.get("content_type") == "audio_transcription" and "text" in part:
            texts.append(str(part["text"]))
        else:
            log.leave(f"part {word_of(part.get('content_type'))}")
    return "\n".join(each for each in texts if each.strip())


def claude(
    name: str, content: BinaryIO, _options: ImportOptions, log: ImportLog
) -> Iterator[ForeignRecord]:
    """Yield the turns of the conversations of Claude, and what it remembers, as items.

    A file of memories is a list of accounts, or one account.
    """
    alone: dict[str, Any] = {}
    for place, key, each in documents(name, content, _NONE, log):
        record = fields_of(each)
        if key:
            alone[key] = each
        elif isinstance(record.get("chat_messages"), list):
            log.known = True
            yield from _chat(place, record, log)
        else:
            yield from _account(place, record, log)
    if alone:
        yield from _account(name, alone, log)


def _chat(place: str, conversation: dict[str, Any], log: ImportLog) -> Iterator[ForeignMessage]:
    uuid, began = conversation.get("uuid"), conversation.get("created_at")
    if conversation.get("summary"):
        log.leave("summary")
    thread = str(uuid or digest(str(conversation.get("name")), str(began)))
    known = [fields_of(each) for each in list_of(conversation["chat_messages"])]
    branch = _newest_branch(known, conversation.get("current_leaf_message_uuid"))
    log.leave("messages of other branches", len(known) - len(branch))
    for number, message in enumerate(branch, start=1):
        sender = word_of(message.get("sender"))
        role = _ROLES.get(sender)
        if role is None:
            log.leave(f"sender {sender}")
            continue
        text = _claude_text(message, log)
        if not text.strip():
            continue
        at = message.get("created_at") or began
        id = message.get("uuid") or digest(str(at), role, text)
        yield ForeignMessage(
            id=f"{thread}/{id}",
            place=f"{place}, message {number:,}",
            text=text,
            role=role,
            thread=thread,
            at=instant(at),
        )


def _newest_branch(messages: list[dict[str, Any]], leaf: object) -> list[dict[str, Any]]:
    """Return the messages of the branch that ends in *leaf*, or in the newest message.

    Messages that do not name their parents are one branch.
    """
    by_id = {str(each.get("uuid")): each for each in messages}
    parents = {str(each.get("parent_message_uuid")) for each in messages}
    if not parents & by_id.keys():
        return messages
    if not isinstance(leaf, str) or leaf not in by_id:
        ends = [each for each in messages if str(each.get("uuid")) not in parents]
        newest = max(ends or messages, key=lambda each: str(each.get("created_at")))
        leaf = newest.get("uuid")
    found: dict[str, dict[str, Any]] = {}
    while isinstance(leaf, str) and leaf in by_id and leaf not in found:
        found[leaf] = by_id[leaf]
        leaf = by_id[leaf].get("parent_message_uuid")
    return list(found.values())[::-1]


def _claude_text(message: dict[str, Any], log: ImportLog) -> str:
    """Return the text of *message*: its parts, or its plain form if it has none.

    The plain form has a remark in place of each part that is no text.
    """
    for name in ("attachments", "files"):
        log.leave(name, len(list_of(message.get(name))))
    parts = message.get("content")
    texts: list[str] = []
    for each in list_of(parts):
        part = fields_of(each)
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str):
            texts.append(text)
        else:
            log.leave(f"content {word_of(part.get('type'))}")
    if texts or parts:
        return "\n".join(each for each in texts if each.strip())
    text = message.get("text")
    return text if isinstance(text, str) else ""


_MEMORY_FIELDS: Final = frozenset(("conversations_memory", "project_memories", "account_uuid"))


def _account(place: str, account: dict[str, Any], log: ImportLog) -> Iterator[ForeignItem]:
    if not account.keys() & {"conversations_memory", "project_memories"}:
        log.unlike(likeness(account), place, "it is no conversation or memory of Claude")
        return
    log.known = True
    log.others(account, _MEMORY_FIELDS)
    texts: dict[str, object] = {"": account.get("conversations_memory")}
    texts |= fields_of(account.get("project_memories"))
    for project, text in texts.items():
        if not isinstance(text, str):
            continue
        where = f"{place}, project {project}" if project else place
        for fact in facts(text, log):
            id = f"memory/{project}/{digest(fact)}" if project else f"memory/{digest(fact)}"
            yield ForeignItem(id=id, place=where, text=fact)


_BULLET: Final = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_HEADING: Final = re.compile(r"^\s*(?:#{1,6}\s.*|\*\*[^*]+\*\*:?|__[^_]+__:?)\s*$")


def facts(text: str, log: ImportLog) -> Iterator[str]:
    """Split *text* at blank lines and bullets; headings are counted in *log*."""
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        bullet = _BULLET.match(line)
        heading = _HEADING.match(line)
        if (bullet or heading or not line.strip()) and block:
            yield from pieces(" ".join(block))
            block = []
        if heading:
            log.leave("headings")
        elif line.strip():
            block.append((line[bullet.end() :] if bullet else line).strip())
