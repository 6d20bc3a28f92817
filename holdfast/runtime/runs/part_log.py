"""`PartLog`: the messages of a part of a run, which goes on where it was cut off.

A part is a step, an item, a node, a turn or a call of an agent. Each response of a model is kept
before its tools run, and each answer of a tool after it. A part that begins with a log runs the
calls of its last response that have no answer yet; nothing before that is requested again. What the
part has asked people is in its log too.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
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
    SystemPromptPart,
    TextPart,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import PydanticSerializationError

from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.ids import Ids
from holdfast.ground.json_values import JSON
from holdfast.ground.scope import LOCAL
from holdfast.memories.run.history.turns import KeptTurn
from holdfast.memories.run.history.versions import StateRow
from holdfast.memories.run.records.question import (
    Answer,
    Question,
    answered,
    answerer_of,
    checked_answer,
    event_of,
)
from holdfast.runtime.concurrency import awaited, contained
from holdfast.runtime.events import EventFacts

log = logging.getLogger(__name__)

CallKey: TypeAlias = tuple[int, str]
"""The number of a response in its part, counted from 1, and the id of one of its calls."""

Body: TypeAlias = dict[str, Any] | msgspec.Raw
"""What is stored of one message, as JSON or to be made it."""


class RestoredParts(Protocol):
    """What an earlier stay has kept of the parts of a run."""

    @property
    def turns(self) -> Mapping[str, Sequence[KeptTurn]]:
        """The messages of each part."""
        ...

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions of the run with their answers."""
        ...

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the facts of *kind* by key."""
        ...


class PartStore(Protocol):
    """The place that keeps the messages of parts, if it is open.

    `last` are the last messages of parts, to be stored with the versions that complete them; None
    where these are not kept.
    """

    last: dict[str, Sequence[KeptTurn]] | None

    @property
    def is_open(self) -> bool:
        """Whether anything is kept."""
        ...

    @property
    def restored(self) -> RestoredParts:
        """What an earlier stay has kept."""
        ...

    async def keep_turns(self, turns: Sequence[KeptTurn], rows: Iterable[StateRow] = ()) -> None:
        """Return once *turns* and *rows* are stored."""
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
    """The messages of *part* by *agent* in *run*, in memory and where the run is kept.

    `messages` end with a response of a model, and begin with the request of the part. `questions`
    are those of its calls at work, by id, `results` what they made once, by name. `point` is the
    number of responses so far, kept or not. It is `unheard` if a hook has not had the last one.
    """

    part: str
    agent: str | None
    run: "PartLogs"
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage], init=False)
    answers: dict[CallKey, KeptAnswer] = field(
        default_factory=dict[CallKey, KeptAnswer], init=False
    )
    pages: dict[str, str] = field(default_factory=dict[str, str], init=False)
    questions: dict[str, Question] = field(default_factory=dict[str, Question], init=False)
    results: dict[str, JSON] = field(default_factory=dict[str, JSON], init=False)
    replies: int = field(default=0, init=False)
    point: int = field(default=0, init=False)
    unheard: bool = field(default=False, init=False)
    begun: set[str] = field(default_factory=set[str], init=False)
    _left_open: dict[str, str] = field(default_factory=dict[str, str], init=False)
    _written: int = field(default=0, init=False)
    _stale: bool = field(default=False, init=False)
    _whole: bool = field(default=True, init=False)

    def restore(self, found: RestoredParts) -> None:
        """Read what an earlier stay has kept."""
        for turn in found.turns.get(self.part, ()):
            self._written = turn.n + 1
            try:
                self._read(turn.body)
            except (ValidationError, msgspec.MsgspecError) as error:
                # Another release of a library may have written it: what was read before counts.
                log.warning("a message of the part %s cannot be read: %s", self.part, error)
                self._stale = True
        self.questions |= {each.id: each for each in found.questions if each.id in self._left_open}
        within = f"{self.part}:"
        self.results |= {
            key.removeprefix(within): value
            for key, value in found.of("once").items()
            if key.startswith(within)
        }

    def _read(self, body: bytes) -> None:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        if "begin" in fields:
            self._stale = False
            self._clear()
        elif self._stale:
            return
        elif "answer" in fields:
            stored = msgspec.json.decode(fields["answer"], type=StoredAnswer)
            self._take(stored.call_id, _answer_of(stored))
        elif "called" in fields:
            self.begun.add(msgspec.json.decode(fields["called"], type=str))
        elif "asked" in fields:
            self._ask(*msgspec.json.decode(fields["asked"], type=tuple[str, str]))
        elif "unheard" in fields:
            self.unheard = True
        else:
            self._append(ModelMessagesTypeAdapter.validate_json(b"[%s]" % body))

    def reset(self) -> None:
        """Begin anew: the next message that is kept is the first."""
        self._stale = self._stale or self._written > 0
        self._clear()
        self._drop_last()

    async def fail(self) -> None:
        """Begin anew in a later stay: the part has failed, and may be tried again."""
        self.reset()
        await self._store(())

    def _clear(self) -> None:
        self.messages, self.replies, self.point, self.unheard = [], 0, 0, False
        self.answers, self.pages, self.questions = {}, {}, {}
        self.begun, self._left_open = set(), {}

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
        return self.answers.get((self.replies, call_id))

    @property
    def open(self) -> list[Question]:
        """The questions without an answer."""
        return [each for each in self.questions.values() if each.status == "open"]

    def questions_of(self, call_id: str, key: str | None = None) -> list[Question]:
        """Return the questions of a call, or that with *key* alone."""
        known = [each for each in self.questions.values() if each.call_id == call_id]
        return [each for each in known if key in (None, each.key)]

    def late(self) -> Question | None:
        """Return a question that has expired without a default, as of now, or None."""
        now = self.run.clock.now()
        self.questions = {id: each.settled(now) for id, each in self.questions.items()}
        return next((each for each in self.questions.values() if each.status == "expired"), None)

    async def keep(self, messages: Sequence[ModelMessage], *, unheard: bool = False) -> None:
        """Keep *messages*, of which the last one is a response; *unheard* by its hook."""
        self._append(messages)
        self.unheard = unheard
        if self._is_stored:
            more: list[Body] = [{"unheard": True}] if unheard else []
            await self._store([*(_message_body(each) for each in messages), *more])

    def note_last(self, messages: Sequence[ModelMessage]) -> None:
        """Keep *messages* with the version that completes the part, or with more."""
        if not self._whole:
            return
        try:
            bodies = msgspec.json.decode(messages_json(messages), type=list[msgspec.Raw])
        except (PydanticSerializationError, ValueError) as error:
            log.info("a message has no JSON form: %s", error)
            return
        if self.run.store is not None and self.run.store.last is not None:
            self.run.store.last[self.part] = self._turns(bodies)

    async def keep_answer(self, call_id: str, answer: KeptAnswer, pages: dict[str, str]) -> None:
        """Keep the *answer* of a call of the last response, and which *pages* are new."""
        new = {name: text for name, text in pages.items() if name not in self.pages}
        made = msgspec.structs.replace(answer, pages=new)
        self._take(call_id, made)
        if self._is_stored:
            await self._store([_answer_body(call_id, made)])

    async def keep_begun(self, call_id: str) -> None:
        """Keep that a call has begun, which is not to be made again."""
        self.begun.add(call_id)
        await self._store([{"called": call_id}])

    async def keep_question(self, question: Question) -> bool:
        """Keep *question*; return whether it is answered at once, in this process."""
        self.questions[question.id] = question
        answered = await self.run.answered_here(question)
        if not answered:
            call_id = question.call_id or ""
            self._ask(question.id, call_id)
            await self._store([{"asked": [question.id, call_id]}])
        return answered

    async def keep_result(self, name: str, value: JSON) -> None:
        """Keep *value*, which a call made once, under *name*."""
        self.results[name] = value
        if self._is_stored:
            row = StateRow("once", f"{self.part}:{name}", msgspec.json.encode(value))
            await self.run.keep([], [row])

    def _ask(self, question: str, call_id: str) -> None:
        self._left_open[question] = call_id
        # It is made again from its start, by intention.
        self.begun.discard(call_id)

    def _append(self, messages: Sequence[ModelMessage]) -> None:
        self.messages += messages
        self.replies += sum(isinstance(each, ModelResponse) for each in messages)
        # What the hook of this very response asks belongs to it.
        hooks = [f"{name}:{self.replies}" for name in ("on_response", "on_finish")]
        asked = {id: call for id, call in self._left_open.items() if call in hooks}
        self.questions = {id: each for id, each in self.questions.items() if id in asked}
        self.begun, self._left_open = set(), asked

    def _take(self, call_id: str, answer: KeptAnswer) -> None:
        self.answers[self.replies, call_id] = answer
        self.pages.update(answer.pages)
        for question in self.questions_of(call_id):
            del self.questions[question.id]

    @property
    def _is_stored(self) -> bool:
        return self._whole and self.run.is_stored

    async def _store(self, bodies: Sequence[Body | None]) -> None:
        """Store *bodies*, unless an earlier one could not be."""
        if not self._is_stored:
            return
        self._whole = None not in bodies
        if not self._whole:
            return
        if turns := self._turns(bodies):
            self._written, self._stale = turns[-1].n + 1, False
            self._drop_last()
            await self.run.keep(turns)

    def _drop_last(self) -> None:
        if self.run.store is not None and self.run.store.last:
            self.run.store.last.pop(self.part, None)

    def _turns(self, bodies: Sequence[Body | None]) -> list[KeptTurn]:
        """Return *bodies* as the next messages of the part."""
        again: list[Body] = [{"begin": self._written}] if self._stale else []
        return [
            KeptTurn(self.part, n, msgspec.json.encode(body), self.agent)
            for n, body in enumerate((*again, *bodies), self._written)
        ]


class StoredAnswer(Struct, frozen=True, kw_only=True):
    """A kept answer as it is stored: *message* has it in the form of pydantic-ai."""

    call_id: str
    message: msgspec.Raw
    failed: bool
    facts: dict[str, Any]
    pages: dict[str, str]


class MessageSizes(Struct):
    """The bytes of the messages of an agent's requests, each message measured once.

    A message that is made again of the same parts or texts counts as the same. Those that the last
    request does not have are forgotten.
    """

    known: dict[Hashable, tuple[Sequence[object], int]] = {}

    def total(self, messages: Iterable[ModelMessage]) -> int:
        """Return the bytes of *messages*, those of a request."""
        known, self.known, total = self.known, {}, 0
        for message in messages:
            key = _size_key(message)
            found = known.get(key) or self.known.get(key)
            if found is None:
                # What a key names by its id is held as long as the key.
                found = tuple(message.parts), size_of(message)
            self.known[key] = found
            total += found[1]
        return total


def size_of(message: ModelMessage) -> int:
    """Return the bytes of *message* as JSON; 0 if it has no such form."""
    try:
        return len(ModelMessagesTypeAdapter.dump_json([message]))
    except (PydanticSerializationError, ValueError):
        # A provider may put anything in the details of a part.
        return 0


def _size_key(message: ModelMessage) -> Hashable:
    """Return the texts of *message*, and the ids of its other parts."""
    if isinstance(message, ModelRequest):
        facts = message.instructions, message.run_id is None, message.timestamp is None
    elif message.model_name is None:
        facts = ("response",)
    else:
        return "response", *map(id, message.parts)
    keys = [
        (part.part_kind, part.content)
        if isinstance(part, UserPromptPart | SystemPromptPart | TextPart)
        and isinstance(part.content, str)
        and getattr(part, "id", None) is getattr(part, "provider_details", None) is None
        else id(part)
        for part in message.parts
    ]
    return *facts, *keys


_list: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_usage: Final = msgspec.json.Decoder(dict[str, Any])
_NULL: Final = b"null"
_VALUES: Final = frozenset(("content", "args", "metadata"))
"""Members of a part of which null is a value."""


def messages_json(messages: Sequence[ModelMessage]) -> bytes:
    """Return *messages* as JSON of pydantic-ai, without members that have nothing.

    Raise `PydanticSerializationError` or ValueError for one that has no such form.
    """
    found = _list.decode(ModelMessagesTypeAdapter.dump_json([*messages]))
    for each in found:
        parts = _list.decode(each["parts"])
        for members in (each, *parts):
            for name in [name for name, value in members.items() if bytes(value) == _NULL]:
                if members is each or name not in _VALUES:
                    del members[name]
        each["parts"] = msgspec.Raw(msgspec.json.encode(parts))
        if "usage" in each:
            counts = {name: count for name, count in _usage.decode(each["usage"]).items() if count}
            each["usage"] = msgspec.Raw(msgspec.json.encode(counts))
    return msgspec.json.encode(found)


def _message_body(message: ModelMessage) -> msgspec.Raw | None:
    """Return *message* as JSON; None if it has no such form."""
    try:
        return msgspec.Raw(messages_json([message])[1:-1])
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


OnQuestion: TypeAlias = Callable[[Question], Any]
"""Returns the answer to a question, perhaps awaitable, or None to leave it to wait."""

_ids: Final = Ids()


def question_facts(question: Question, type: str) -> EventFacts:
    """Return the event *type* of *question*."""
    found = event_of(question, type, None)
    where = {"part": found.part, "agent": found.agent, "call_id": found.call_id}
    return EventFacts(type=type, data=found.data, **where)


class PartLogs:
    """The logs of the parts of the run *run_id*, by part.

    *store* keeps them. *on_question* may answer first, in this process. *emit* takes the events of
    questions that are not stored with the run.
    """

    def __init__(
        self,
        run_id: str,
        *,
        clock: Clock | None = None,
        store: PartStore | None = None,
        on_question: OnQuestion | None = None,
        emit: Callable[[EventFacts], object] | None = None,
    ) -> None:
        self.run_id, self.clock = run_id, clock or SystemClock()
        self._emit, self._asked = emit, set[str]()
        self.on_question = on_question
        self.store = store
        self._logs: dict[str, PartLog] = {}

    def of(self, part: str, agent: str | None = None) -> PartLog:
        """Return the log of *part*, which *agent* works on."""
        found = self._logs.get(part)
        if found is None:
            found = self._logs[part] = PartLog(part, agent, self)
            if self.store is not None:
                found.restore(self.store.restored)
        return found

    def settle(self, questions: Iterable[Question]) -> None:
        """Take the answers in stored *questions* for those that are open here."""
        for question in questions:
            for log in self._logs.values():
                known = log.questions.get(question.id)
                if known is not None and known.status == "open":
                    log.questions[question.id] = question

    def end(self, part: str) -> None:
        """Drop the log of *part*, which has ended."""
        self._logs.pop(part, None)

    @property
    def is_stored(self) -> bool:
        """Whether the run has a place where they are kept."""
        return self.store is not None and self.store.is_open

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions of its parts without an answer, in the order they were asked."""
        every = [question for log in self._logs.values() for question in log.open]
        return tuple(sorted(every, key=lambda question: question.asked_at))

    def answer(
        self, value: object, question: str | None = None, *, note: str | None = None
    ) -> Question:
        """Answer *question*, or the only open one, and return it."""
        known = [each for log in self._logs.values() for each in log.questions.values()]
        meant = self.questions if question is None else [q for q in known if q.id == question]
        if len(meant) > 1:
            raise InvalidInput("question", f"must be given: {len(meant)} questions are open")
        if not meant:
            raise NotFound("question", question or self.run_id)
        return self._settle(meant[0], checked_answer(meant[0], value, note))

    def _settle(self, question: Question, answer: Answer) -> Question:
        now = self.clock.now()
        settled = answered(question.settled(now), answer, answerer_of(LOCAL), now)
        for log in self._logs.values():
            if settled.id in log.questions:
                log.questions[settled.id] = settled
        return settled

    async def answered_here(self, question: Question) -> bool:
        """Ask `on_question`, on a thread if it is plain; return whether it has answered."""
        ask = self.on_question
        if ask is None or question.status != "open":
            return False
        with contained():
            if iscoroutinefunction(ask):
                value = await ask(question)
            else:
                value = await awaited(await asyncio.to_thread(ask, question))
        if value is not None:
            self._settle(question, checked_answer(question, value))
            if self._emit is not None:
                self._emit(self.asked(question))
        return value is not None

    @property
    def not_asked(self) -> tuple[Question, ...]:
        """Its open questions for which `asked` was not called."""
        return tuple(each for each in self.questions if each.id not in self._asked)

    def asked(self, question: Question) -> EventFacts:
        """Return the event `question.asked`; `emit_settled` emits how it ended."""
        self._asked.add(question.id)
        return question_facts(question, "question.asked")

    def emit_settled(self, question: Question) -> None:
        """Emit once how *question* ended, if `asked` was called for it."""
        if question.id in self._asked and question.status != "open" and self._emit is not None:
            self._asked.discard(question.id)
            self._emit(question_facts(question, f"question.{question.status}"))

    async def keep(self, turns: Sequence[KeptTurn], rows: Iterable[StateRow] = ()) -> None:
        """Return once *turns* and *rows* are stored."""
        if self.store is not None:
            await self.store.keep_turns(turns, rows)

    def new_id(self) -> str:
        """Return the id of a new question."""
        return _ids.new("question", to_microseconds(self.clock.now()))
