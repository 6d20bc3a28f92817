"""Messages of the parts of a run, as they are stored, and as those of a state.

The JSON is that which the runtime keeps for each part of a run: requests and responses in the form
of pydantic-ai, and answers of tools that no request has sent yet. Their long system texts are
stored once a run, by hash.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from holdfast.engines.base import Reader, Transaction, scalar
from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.memories.state.message import (
    ErrorKind,
    Message,
    TextMessage,
    ToolCall,
    ToolCallMessage,
    ToolResultMessage,
)
from holdfast.memories.state.references import Find, base_of
from holdfast.memories.state.result import InferenceResult

TEXT_LEAST: Final = 128
"""Bytes of a system text, as JSON, from which on it is stored once a run."""

_encode: Final = msgspec.json.Encoder().encode


class KeptTurn(Struct, frozen=True):
    """The message *n* of a part, as JSON: of a model, or the answer of one call."""

    part: str
    n: int
    body: bytes
    agent: str | None = None


class _TextName(Struct, frozen=True):
    """What stands for a text in a stored message: its SHA-256."""

    text: str


_name: Final = msgspec.json.Decoder(_TextName)
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_part_members: Final = msgspec.json.Decoder(list[dict[str, Raw]])


_INSTRUCTIONS: Final = b'"instructions":'
_SYSTEM: Final = b'"system-prompt"'


class _SystemTexts:
    """The system texts of the stored message *body*, and the place of each.

    None is found where no text can begin with *first*, or the message has another form, as others'
    places may have kept it.
    """

    def __init__(self, body: bytes, first: bytes) -> None:
        self.places: list[tuple[dict[str, Raw], str]] = []
        self._body = body
        self._members: dict[str, Raw] = {}
        self._parts: list[dict[str, Raw]] = []
        if _INSTRUCTIONS + first not in body and _SYSTEM not in body:
            return
        try:
            self._members = _members.decode(body)
            if _SYSTEM in body:
                self._parts = _part_members.decode(self._members.get("parts", b"[]"))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        found = [(self._members, "instructions")]
        found += [
            (each, "content")
            for each in self._parts
            if bytes(each.get("part_kind", b"")) == _SYSTEM
        ]
        self.places = [
            place for place in found if bytes(place[0].get(place[1], b"")).startswith(first)
        ]

    def body(self) -> bytes:
        """Return the message, with what was changed at `places`."""
        if not self.places:
            return self._body
        if self._parts:
            self._members["parts"] = Raw(_encode(self._parts))
        return _encode(self._members)


def without_texts(body: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Return the message *body* with hashes for long system texts, and these."""
    found, texts = _SystemTexts(body, b'"'), dict[str, bytes]()
    for members, member in found.places:
        if len(bytes(members[member])) >= TEXT_LEAST:
            text = msgspec.json.decode(members[member], type=str).encode()
            name = sha256(text).hexdigest()
            members[member], texts[name] = Raw(_encode(_TextName(name))), text
    return found.body(), texts


def with_texts(body: bytes, texts: Mapping[str, bytes]) -> bytes:
    """Return the message *body* with its system texts, of *texts* by hash.

    One that is not there, since it was forgotten, is left out.
    """
    found = _SystemTexts(body, b"{")
    for members, member in found.places:
        text = texts.get(_name.decode(members[member]).text, b"")
        members[member] = Raw(_encode(text.decode()))
    return found.body()


def names_in(body: bytes) -> list[str]:
    """Return the hashes of the texts that the stored message *body* names."""
    places = _SystemTexts(body, b"{").places
    return [_name.decode(members[member]).text for members, member in places]


def set_turns(tx: Transaction, sql: SimpleNamespace, run_id: str, turns: Iterable[KeptTurn]) -> int:
    """Store *turns* of the run with their texts; return the bytes of the messages."""
    rows: list[dict[str, object]] = []
    texts: dict[str, bytes] = {}
    size = 0
    for turn in turns:
        body, new = without_texts(turn.body)
        texts |= new
        facts = {"run": run_id, "part": turn.part, "n": turn.n, "agent": turn.agent}
        rows.append({**facts, "body": body})
        size += len(body)
    named = [{"run": run_id, "sha256": name, "body": text} for name, text in texts.items()]
    tx.run_many(sql.set_text, named)
    tx.run_many(sql.set_turn, rows)
    return size


def turns_of(reader: Reader, sql: SimpleNamespace, run_id: str, part: str) -> list[KeptTurn]:
    """Return the kept messages of the part *part* of the run *run_id*, in order."""
    return _whole(reader, sql, run_id, reader.rows(sql.turns_of_part, run=run_id, part=part))


def open_turns(
    reader: Reader, sql: SimpleNamespace, run_id: str, over: Container[str]
) -> list[KeptTurn]:
    """Return the kept messages of the parts of the run that are not *over*, in order.

    Those of the others stay where they are: they may be most of what a run has stored.
    """
    parts = sorted(reader.all(scalar, sql.parts_with_turns, run=run_id))
    rows = [
        row
        for part in parts
        if part not in over
        for row in reader.rows(sql.turns_of_part, run=run_id, part=part)
    ]
    return _whole(reader, sql, run_id, rows)


def _whole(
    reader: Reader, sql: SimpleNamespace, run_id: str, rows: Iterable[Any]
) -> list[KeptTurn]:
    """Return the messages in *rows* with their texts."""
    found = [KeptTurn(part, n, bytes(body), agent) for part, n, agent, body in rows]
    texts: dict[str, bytes] = {}
    for name in dict.fromkeys(name for turn in found for name in names_in(turn.body)):
        text = reader.first(scalar, sql.get_text, run=run_id, sha256=name)
        if text is not None:
            texts[name] = bytes(text)
    return [replace(turn, body=with_texts(turn.body, texts)) for turn in found]


class _ResultRow(Struct, frozen=True):
    """A fact with a result: its id, and the result unless the thread has it."""

    id: str
    result: Raw = Raw(b"")

    @property
    def is_whole(self) -> bool:
        return bool(bytes(self.result))


_result_row: Final = msgspec.json.Decoder(_ResultRow)


def with_results(
    reader: Reader, sql: SimpleNamespace, run_id: str, facts: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return the *facts* of results of the run, with those that its thread has.

    One that was forgotten there stays as it is, without a result.
    """
    rows = {key: _result_row.decode(body) for key, body in facts.items()}
    ids = [row.id for row in rows.values() if not row.is_whole]
    if not ids:
        return dict(facts)
    found = reader.rows(sql.results_in_thread, run=run_id, ids=_encode(ids).decode())
    filled = dict(facts)
    there = {id: body.encode() for id, body in found}
    for key, row in rows.items():
        if row.id in there:
            filled[key] = _encode({"id": row.id, "result": Raw(there[row.id])})
    return filled


def messages_of_call(
    reader: Reader, sql: SimpleNamespace, run_id: str, part: str
) -> list[Message] | None:
    """Return the messages of *part*, a completed call of an agent, or else None."""
    agent, _, index = part.rpartition(".")
    if not index.isdecimal():
        return None
    key = f"{int(index):06d}"
    body = reader.first(scalar, sql.result_of_part, run=run_id, key=key)
    if body is None:
        return None
    facts = with_results(reader, sql, run_id, {key: bytes(body)})
    row = _result_row.decode(facts[key])
    if not row.is_whole:
        return None
    result = InferenceResult.from_dict(msgspec.json.decode(row.result), verify=False)

    def text(name: str) -> Sequence[Message]:
        if result.seen is not None and name in result.seen.texts:
            return result.seen.texts[name]
        other = reader.first(scalar, sql.result_with_text, run=run_id, text=name)
        if other is None:
            return ()
        seen = InferenceResult.from_dict(msgspec.json.decode(other), verify=False).seen
        return () if seen is None else seen.texts.get(name, ())

    return _messages_in_result(result, text) if result.agent == agent else None


def _messages_in_result(result: InferenceResult, text: Find) -> list[Message]:
    """Return what a call was sent, without earlier results, and what it was answered."""
    seen = result.seen
    sent = [] if seen is None else base_of(seen, result.input, text, ())
    if not result.raw:
        return [*sent, *result.output, *result.tool_calls]
    bodies = msgspec.json.decode(result.raw, type=list[Raw])
    return [*sent, *messages_in((result.agent, bytes(body)) for body in bodies)]


_TEXTS: Final[Mapping[str, Any]] = {
    "system-prompt": "system",
    "user-prompt": "user",
    "text": "assistant",
    "thinking": "assistant",
}
"""The role of each kind of part that is a text."""

_KINDS: Final[Mapping[str, ErrorKind]] = {
    "retried": "bad_arguments",
    "denied": "denied",
    "interrupted": "interrupted",
    "failed": "raised",
}
"""Why a call failed, by its outcome."""


class _Answer(Struct):
    call_id: str
    message: dict[str, Any]
    failed: bool = False


class _Kept(Struct):
    """One kept message: a request, a response, an answer, or a restart of the part."""

    kind: str = ""
    parts: list[dict[str, Any]] = []
    instructions: str | None = None
    answer: _Answer | None = None
    begin: int | UnsetType = UNSET


_read: Final = msgspec.json.Decoder(_Kept)


def messages_in(bodies: Iterable[tuple[str | None, bytes]]) -> list[Message]:
    """Return the messages in *bodies*, each with its agent, in order.

    A part that was restarted has only those since. Raise `InvalidInput` for another form.
    """
    transcript = _Transcript()
    for index, (agent, body) in enumerate(bodies):
        try:
            transcript.add(_read.decode(body), agent)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidInput(f"messages[{index}]", f"has another form: {error}") from error
    return transcript.messages


class _Transcript:
    """Collects messages, and matches the answers of tools with their calls."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._calls: dict[str, ToolCall] = {}
        self._answered: set[str] = set()
        self._instructions: str | None = None

    def _clear(self) -> None:
        self.messages, self._instructions = [], None
        self._calls, self._answered = {}, set()

    def add(self, kept: _Kept, agent: str | None) -> None:
        """Add the messages of *kept*, by *agent*."""
        if kept.begin is not UNSET:
            self._clear()
        if kept.answer is not None:
            for part in cast("list[dict[str, Any]]", kept.answer.message.get("parts", [])):
                self._request(part, agent, failed=kept.answer.failed)
            return
        if kept.instructions and kept.instructions != self._instructions:
            self._instructions = kept.instructions
            self._say("system", kept.instructions, agent)
        if kept.kind == "response":
            self._respond(kept.parts, agent)
        else:
            for part in kept.parts:
                self._request(part, agent)

    def _respond(self, parts: Iterable[dict[str, Any]], agent: str | None) -> None:
        calls: list[ToolCall] = []
        for part in parts:
            if part.get("part_kind") == "tool-call":
                calls.append(_call(part))
            elif (kind := part.get("part_kind")) in _TEXTS and part.get("content"):
                extras: dict[str, JSON] = {"part_kind": kind} if kind == "thinking" else {}
                self._say("assistant", str(part["content"]), agent, extras)
        if calls:
            self._calls |= {call.id: call for call in calls}
            self._answered -= {call.id for call in calls}
            self.messages.append(ToolCallMessage(tools=calls, agent=agent))

    def _request(self, part: dict[str, Any], agent: str | None, *, failed: bool = False) -> None:
        kind, id = part.get("part_kind"), str(part.get("tool_call_id", ""))
        if kind in ("tool-return", "retry-prompt") and id in self._calls:
            # An answer that was kept by itself is sent again with the next request.
            if id not in self._answered:
                self._answered.add(id)
                content = _result(part, failed=failed)
                call = self._calls[id]
                self.messages.append(ToolResultMessage(tool=call, content=content, agent=agent))
        else:
            role = _TEXTS.get(str(kind), "user")
            text, omitted = _text(part.get("content"))
            self._say(role, text, agent, {"omitted": omitted} if omitted else {})

    def _say(
        self, role: Any, text: str, agent: str | None, extras: Mapping[str, JSON] | None = None
    ) -> None:
        self.messages.append(
            TextMessage(role=role, content=text, agent=agent, extras=dict(extras or {}))
        )


def _call(part: Mapping[str, Any]) -> ToolCall:
    given = part.get("args")
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError:
            given = str(given)
    return ToolCall(id=part["tool_call_id"], name=part["tool_name"], input=given)


def _result(part: Mapping[str, Any], *, failed: bool) -> dict[str, JSON]:
    outcome = "retried" if part["part_kind"] == "retry-prompt" else part.get("outcome", "success")
    if failed and outcome == "success":
        outcome = "failed"
    if outcome == "success":
        return {"data": part.get("content")}
    kind = _KINDS.get(outcome, "raised")
    text, _ = _text(part.get("content"))
    return {"error": {"name": kind, "message": text, "kind": kind}}


def _text(content: object) -> tuple[str, list[JSON]]:
    """Return the text of *content*, and the kinds of its parts that are no text."""
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        return "" if content is None else _encode(content).decode(), []
    parts = cast("list[Any]", content)
    texts = [each for each in parts if isinstance(each, str)]
    if not texts and not all(isinstance(each, dict) and "kind" in each for each in parts):
        return _encode(parts).decode(), []
    omitted: list[JSON] = [
        str(cast("dict[str, Any]", each).get("kind", "part"))
        for each in parts
        if isinstance(each, dict)
    ]
    return "\n".join(texts), omitted
