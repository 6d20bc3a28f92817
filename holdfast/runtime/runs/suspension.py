"""Questions of a run to people: `ask_human`, `once`, approval of calls.

A call that asks is suspended. Once its questions are answered it is made again from its start.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final, TypeAlias, TypeVar, cast

from msgspec import UNSET
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.toolsets import ToolsetTool

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.memories.run.records.question import (
    BY_TIMEOUT,
    TEXT_BYTES,
    Question,
    QuestionKind,
    approval_identity,
    expiry,
    identity,
)
from holdfast.runtime.concurrency import Suspended
from holdfast.runtime.inference.validation import json_form
from holdfast.runtime.plans.schema import OutputSchema, ResultSchema
from holdfast.runtime.runs.part_log import PartLog
from holdfast.tools.base import asker

T = TypeVar("T")
Arguments: TypeAlias = dict[str, Any]

WAITS: Final = "This call waits for a person."
"""The place of an answer that is not there yet; no model gets it."""

NOTE: Final = 4_096
"""Characters of a person's note that a model gets."""

current_part: ContextVar[PartLog | None] = ContextVar("current_part", default=None)
"""The part at work, outside of its calls of tools: what its hooks ask belongs to it."""


class PartWaits(Exception):
    """The part has come to rest: a question of it is open."""


class AnswerTimeout(Exception):
    """The question has expired without an answer and without a default."""

    def __init__(self, question: Question) -> None:
        super().__init__(f"the question was not answered in time: {question.text}")


class Denied(Exception):
    """A person denied the call, or it needs an approval and there is nobody to ask."""


@dataclass(eq=False)
class PartCall:
    """One call in the part of *log*: of a tool with *arguments*, of a hook or a node."""

    log: PartLog
    call_id: str
    tool: str | None = None
    arguments: JSON = None
    saves: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _equal: Counter[str] = field(default_factory=Counter[str])

    def begin(self) -> None:
        """Begin the call from its start: what it asks is counted anew."""
        self._equal.clear()

    def ask(
        self,
        text: str,
        schema: OutputSchema | None = None,
        *,
        key: str | None = None,
        **form: Any,
    ) -> Any:
        """Return the answer to a question; raise Suspended until there is one."""
        wanted = None if schema is None else ResultSchema(schema)
        shape = None if wanted is None else wanted.schema
        if key is None:
            first = identity(text, shape)
            key = identity(text, shape, number=self._equal[first])
            self._equal[first] += 1
        question = self.question("question", key, text, schema=shape, **form)
        found = settled(question, self.log)
        if wanted is None or (found.answered_by == BY_TIMEOUT and wanted.problems(found.answer)):
            return found.answer
        return wanted.instance(found.answer)

    def question(
        self,
        kind: QuestionKind,
        key: str,
        text: str,
        *,
        options: Sequence[JSON] | None = None,
        timeout: float | None = None,
        **form: Any,
    ) -> Question:
        """Return the question *key* of this call, as it was asked before or as a new one."""
        if known := self.log.questions_of(self.call_id, key):
            return known[0]
        log, run = self.log, self.log.run
        now = run.clock.now()
        return Question(
            id=run.new_id(),
            run_id=run.run_id,
            kind=kind,
            key=key,
            text=text,
            options=list(options or ()),
            part=log.part,
            agent=log.agent,
            tool=self.tool,
            call_id=self.call_id,
            arguments=self.arguments,
            asked_at=now,
            expires_at=expiry(now, timeout),
            **form,
        )

    def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Return the JSON result of *function*, which is called the first time alone."""
        name = f"{self.log.point}.{self.call_id}:{key}"
        known = name in self.log.results
        if iscoroutinefunction(function):
            return self._once(name, function)
        if known:
            return self.log.results[name]
        value = function()
        if isawaitable(value):
            return self._awaited(name, value)
        return self._keep(name, json_form(value))

    async def _once(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:
        if name in self.log.results:
            return self.log.results[name]
        return await self._awaited(name, function())

    async def _awaited(self, name: str, value: Awaitable[Any]) -> Any:
        found = json_form(await value)
        await self.log.keep_result(name, found)
        return found

    def _keep(self, name: str, value: JSON) -> JSON:
        """Keep *value*, and return it: on a thread once it is stored."""
        saving = self.log.keep_result(name, value)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            asyncio.run_coroutine_threadsafe(saving, self._loop).result()
        else:
            self.saves.append(asyncio.ensure_future(saving))
        return value


def settled(question: Question, log: PartLog) -> Question:
    """Return *question* once it is answered; raise Suspended before."""
    found = question.settled(log.run.clock.now())
    if found.id in log.questions:
        log.questions[found.id] = found
    log.run.emit_settled(found)
    if found.status != "answered":
        raise Suspended(found)
    return found


async def asking(call: PartCall, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of *work*, which may ask people and is then made again.

    Raise Suspended for a question that is left to wait, AnswerTimeout for one that has expired.
    """
    tokens = asker.set(call), current_part.set(None)
    try:
        for question in call.log.questions_of(call.call_id):
            await _left(call, lambda each=question: settled(each, call.log))
        while True:
            call.begin()
            try:
                return await work()
            except Suspended as suspended:
                await _heed(call, suspended)
            finally:
                if call.saves:
                    await asyncio.gather(*call.saves)
    finally:
        asker.reset(tokens[0])
        current_part.reset(tokens[1])


async def _left(call: PartCall, read: Callable[[], Question]) -> None:
    try:
        read()
    except Suspended as suspended:
        await _heed(call, suspended)


async def _heed(call: PartCall, suspended: Suspended) -> None:
    """Ask the question in this process; raise *suspended* if it is not answered here."""
    question = suspended.question
    if question.status == "expired":
        raise AnswerTimeout(question) from suspended
    if not await call.log.keep_question(question):
        raise suspended


def ask_human(
    question: str,
    schema: OutputSchema | None = None,
    *,
    key: str | None = None,
    options: Sequence[JSON] | None = None,
    timeout: float | None = None,
    default: Any = UNSET,
    who: Sequence[str] = (),
) -> Any:
    """Return the answer of a person to *question*.

    Call it in a tool, node, hook or router of a run. Until there is an answer the call is
    suspended, and made again from its start afterwards. The answer fits *schema*, is one of
    *options*, or is text. A question is known again by *key*, else by its text and schema. After
    *timeout* seconds *default* is the answer; without one the part fails. *who* may answer:
    `user:NAME`, `key:NAME`, `scope:admin`; if empty, all that may write.
    """
    form = {"options": options, "timeout": timeout, "default": default, "who": who}
    return _here("ask_human").ask(question, schema, key=key, **form)


def once(key: str, function: Callable[[], Any]) -> Any:
    """Return the JSON result of *function*, called once though its call is made again.

    *key* names it within the call. The result of an awaitable function is to be awaited.
    """
    return _here("once").once(key, function)


def _here(name: str) -> PartCall:
    call: PartCall | None = asker.get()
    if call is None:
        raise InvalidInput(
            name,
            "can be called only in a tool, node, hook or router of a run",
            next="On a thread of your own, run it in a copy of the context variables.",
        )
    return call


@dataclass(eq=False)
class Consent:
    """The consent of a person to *call* of *tool*.

    *check* returns other arguments for it as the tool takes them, *make* makes the call with them.
    """

    call: PartCall
    tool: ToolsetTool[Any]
    ctx: RunContext[Any]
    check: Callable[[Arguments], Awaitable[Arguments]]
    make: Callable[[Arguments, RunContext[Any]], Awaitable[Any]]

    async def made(self, arguments: Arguments) -> Any:
        """Return the value of the call; raise Denied, or Suspended for an open question.

        A call that is made elsewhere has the answer of a person as its value.
        """
        asked = {each.kind for each in self.call.log.questions_of(self.call.call_id)}
        kind = self.tool.tool_def.kind
        if kind == "unapproved" or "approval" in asked:
            return await self._approved(arguments, None)
        if kind != "function" or "external" in asked:
            return self._external(None)
        try:
            return await self.make(arguments, self.ctx)
        except ApprovalRequired as error:
            return await self._approved(arguments, error.metadata)
        except CallDeferred as error:
            return self._external(error.metadata)

    async def _approved(self, arguments: Arguments, metadata: object) -> Any:
        call = self.call
        text = _text(f"May {call.log.agent or call.log.part} call {call.tool}?", metadata)
        schema = self.tool.tool_def.parameters_json_schema
        found = settled(self._left_open("approval", text, schema=schema), call.log)
        given: Any = found.answer
        other = cast("Arguments", given) if isinstance(given, dict) else {}
        if given is not True and other.get("approved") is not True:
            note = json.dumps((found.note or "")[:NOTE], ensure_ascii=False)
            raise Denied("a person denied the call" + (f": {note}" if found.note else ""))
        if (changed := other.get("arguments")) is not None:
            arguments = await self.check(changed)
        return await self.make(arguments, replace(self.ctx, tool_call_approved=True))

    def _external(self, metadata: object) -> Any:
        text = _text(f"What is the result of {self.call.tool}?", metadata)
        return settled(self._left_open("external", text), self.call.log).answer

    def _left_open(self, kind: QuestionKind, text: str, **form: Any) -> Question:
        call = self.call
        key = approval_identity(f"{call.log.point}.{call.call_id}", call.arguments)
        return call.question(kind, key, text, **form)


def _text(question: str, metadata: object) -> str:
    """Return *question* with *metadata* as JSON below it."""
    if not metadata:
        return question
    added = json.dumps(metadata, ensure_ascii=False, default=str)
    return f"{question}\n\n{added}".encode()[:TEXT_BYTES].decode(errors="ignore")
