"""`PartLog`: the messages of a part of a run, which goes on where it was cut off.

A part is a step, an item, a node, a turn or a call of an agent. Each response of a model is kept
before its tools run, and each answer of a tool after it. A part that begins with a log runs the
calls of its last response that have no answer yet; nothing before that is requested again.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct
from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import PydanticSerializationError

from holdfast.ground.json_values import JSON
from holdfast.memories.run.records.versions import KeptTurn

log = logging.getLogger(__name__)

CallKey: TypeAlias = tuple[int, str]
"""The number of a response in its part, counted from 1, and the id of one of its calls."""

Body: TypeAlias = dict[str, Any] | msgspec.Raw
"""What is stored of one message, as JSON or to be made it."""


class PartStore(Protocol):
    """The place that keeps the messages of parts."""

    async def keep_turns(self, turns: Sequence[KeptTurn]) -> None:
        """Return once *turns* are stored."""
        ...


class KeptAnswer(Struct, frozen=True, kw_only=True):
    """The answer of one call: *shown* to the model, as a failure if it *failed*.

    *facts* are those of the loop that made the call, *pages* the long results that it may read.
    """

    shown: Any
    failed: bool = False
    facts: dict[str, JSON] = {}
    pages: dict[str, str] = {}


@dataclass(eq=False)
class PartLog:
    """The messages of *part* by *agent*, in memory and, if there is one, in *store*.

    `messages` end with a response of a model, and begin with the request of the part.
    """

    part: str
    agent: str | None = None
    store: PartStore | None = None
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage], init=False)
    answers: dict[CallKey, KeptAnswer] = field(
        default_factory=dict[CallKey, KeptAnswer], init=False
    )
    pages: dict[str, str] = field(default_factory=dict[str, str], init=False)
    begun: set[CallKey] = field(default_factory=set[CallKey], init=False)
    replies: int = field(default=0, init=False)
    _written: int = field(default=0, init=False)
    _stale: bool = field(default=False, init=False)
    _whole: bool = field(default=True, init=False)

    def restore(self, bodies: Iterable[bytes]) -> None:
        """Read what an earlier stay has kept, in the order of its numbers."""
        for body in bodies:
            self._written += 1
            try:
                self._read(body)
            except (ValidationError, msgspec.MsgspecError) as error:
                # Another release of a library may have written it: what was read before counts.
                log.warning("a message of the part %s cannot be read: %s", self.part, error)
                self._stale = True

    def _read(self, body: bytes) -> None:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        if "begin" in fields:
            self._stale = False
            self._clear()
        elif self._stale:
            return
        elif "answer" in fields:
            stored = msgspec.json.decode(fields["answer"], type=StoredAnswer)
            self._take(self._key(stored.call_id), _answer_of(stored))
        elif "called" in fields:
            self.begun.add(self._key(msgspec.json.decode(fields["called"], type=str)))
        else:
            self._append(ModelMessagesTypeAdapter.validate_json(b"[%s]" % body))

    def reset(self) -> None:
        """Begin anew: the next message that is kept is the first."""
        self._stale = self._stale or bool(self.messages)
        self._clear()

    def _clear(self) -> None:
        self.messages, self.replies = [], 0
        self.answers, self.pages, self.begun = {}, {}, set()

    @property
    def responses(self) -> list[ModelResponse]:
        """The responses in its messages."""
        return [each for each in self.messages if isinstance(each, ModelResponse)]

    def share(self, pages: dict[str, str]) -> None:
        """Add the kept pages to *pages*, which are those of the loop."""
        pages.update(self.pages)
        self.pages = dict(pages)

    def answer_of(self, call_id: str) -> KeptAnswer | None:
        """Return the answer of the call *call_id* of the last response, if it is kept."""
        return self.answers.get(self._key(call_id))

    async def keep(self, messages: Sequence[ModelMessage]) -> None:
        """Keep *messages*, of which the last one is a response with calls."""
        self._append(messages)
        await self._store([_message_body(each) for each in messages] if self.store else ())

    async def keep_answer(self, call_id: str, answer: KeptAnswer, pages: dict[str, str]) -> None:
        """Keep the *answer* of a call of the last response, and which *pages* are new."""
        new = {name: text for name, text in pages.items() if name not in self.pages}
        made = msgspec.structs.replace(answer, pages=new)
        self._take(self._key(call_id), made)
        await self._store([_answer_body(call_id, made)] if self.store else ())

    async def keep_begun(self, call_id: str) -> None:
        """Keep that a call has begun, which is not to be made again."""
        self.begun.add(self._key(call_id))
        await self._store([{"called": call_id}])

    def is_begun(self, call_id: str) -> bool:
        """Whether the call was begun in an earlier stay, and cut off."""
        return self._key(call_id) in self.begun

    def _key(self, call_id: str) -> CallKey:
        return self.replies, call_id

    def _append(self, messages: Sequence[ModelMessage]) -> None:
        self.messages += messages
        self.replies += sum(isinstance(each, ModelResponse) for each in messages)

    def _take(self, key: CallKey, answer: KeptAnswer) -> None:
        self.answers[key] = answer
        self.pages.update(answer.pages)

    async def _store(self, bodies: Sequence[Body | None]) -> None:
        """Store *bodies*, unless an earlier one could not be."""
        self._whole = self._whole and None not in bodies
        if self.store is None or not bodies or not self._whole:
            return
        if self._stale:
            bodies, self._stale = [{"begin": self._written}, *bodies], False
        turns: list[KeptTurn] = []
        for body in bodies:
            turns.append(KeptTurn(self.part, self._written, msgspec.json.encode(body), self.agent))
            self._written += 1
        await self.store.keep_turns(turns)


class StoredAnswer(Struct, frozen=True, kw_only=True):
    """A kept answer as it is stored: *message* has it in the form of pydantic-ai."""

    call_id: str
    message: msgspec.Raw
    failed: bool
    facts: dict[str, Any]
    pages: dict[str, str]


def _message_body(message: ModelMessage) -> msgspec.Raw | None:
    """Return *message* as JSON; None if it has no such form."""
    try:
        return msgspec.Raw(ModelMessagesTypeAdapter.dump_json([message])[1:-1])
    except (PydanticSerializationError, ValueError) as error:
        # A provider may put anything in the details of a part.
        log.info("a message has no JSON form: %s", error)
        return None


_RETURNED: Final = "tool"


def _answer_body(call_id: str, answer: KeptAnswer) -> Body | None:
    value, metadata, content = answer.shown, None, None
    if isinstance(value, ToolReturn):
        returned = cast("ToolReturn[Any]", value)
        value, metadata, content = returned.return_value, returned.metadata, returned.content
    parts: list[ModelRequestPart] = [ToolReturnPart(_RETURNED, value, call_id, metadata=metadata)]
    if content is not None:
        parts.append(UserPromptPart(content))
    message = _message_body(ModelRequest(parts))
    if message is None:
        return None
    stored = StoredAnswer(
        call_id=call_id,
        message=message,
        failed=answer.failed,
        facts=answer.facts,
        pages=answer.pages,
    )
    return {"answer": stored}


def _answer_of(stored: StoredAnswer) -> KeptAnswer:
    message = ModelMessagesTypeAdapter.validate_json(b"[%s]" % bytes(stored.message))[0]
    returned, *more = cast("list[Any]", message.parts)
    shown: Any = returned.content
    if more or returned.metadata is not None:
        content = more[0].content if more else None
        shown = ToolReturn(shown, content=content, metadata=returned.metadata)
    return KeptAnswer(shown=shown, failed=stored.failed, facts=stored.facts, pages=stored.pages)


class PartLogs:
    """The logs of the parts of one run, by part.

    *store* keeps them; *restored* returns what an earlier stay has kept of a part.
    """

    def __init__(
        self,
        store: PartStore | None = None,
        restored: Callable[[str], Iterable[bytes]] | None = None,
    ) -> None:
        self.store, self.restored = store, restored
        self._logs: dict[str, PartLog] = {}

    def of(self, part: str, agent: str | None = None) -> PartLog:
        """Return the log of *part*, which *agent* works on."""
        found = self._logs.get(part)
        if found is None:
            found = self._logs[part] = PartLog(part, agent, self.store)
            if self.restored is not None:
                found.restore(self.restored(part))
        return found

    def end(self, part: str) -> None:
        """Drop the log of *part*, which has ended."""
        self._logs.pop(part, None)
