"""The assignment of a step: prompt, limits, retries, and the check of its result."""

import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from datetime import datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Struct
from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelHTTPError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

from holdfast.ground.errors import EngineFault, InvalidInput
from holdfast.ground.json_schema import BadSchema
from holdfast.memories.run import keys
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import Reason
from holdfast.runtime.concurrency import awaited, cause_of, contained, described
from holdfast.runtime.context import Profile
from holdfast.runtime.events import StepError
from holdfast.runtime.plans.plan import Step, Task
from holdfast.runtime.plans.schema import OutputSchema, ResultSchema
from holdfast.tools.base import Schema
from holdfast.tools.run import run_prompt

CHARACTERS: Final = 4
"""Characters per token, where no provider has counted tokens."""


def _reported(messages: Sequence[ModelMessage]) -> int:
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return message.usage.input_tokens + message.usage.output_tokens
    return 0


def characters(message: ModelMessage) -> int:
    """Return the number of characters in *message*."""
    total = 0
    for part in message.parts:
        content: Any = getattr(part, "content", None)
        if isinstance(part, ToolCallPart):
            total += len(part.tool_name) + len(part.args_as_json_str())
        elif isinstance(part, ToolReturnPart):
            total += len(part.model_response_str())
        elif isinstance(content, str):
            total += len(content)
        elif isinstance(part, UserPromptPart):
            total += sum(len(each) for each in part.content if isinstance(each, str))
    return total


RETRIED: Final = frozenset({"model_error", "timeout"})
"""Reasons that may pass, so that a retry makes sense."""

LONGEST_WAIT: Final = 30.0
"""Longest wait between two tries, in seconds; the first is 1 s, and each doubles."""


class Stopped(Exception):
    """The loop ended without a result, for *reason*; *message* has the true cause."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.error = StepError(reason, message)


def wait_after(tries: int) -> float:
    """Return the seconds to wait after *tries* failed tries."""
    return min(2.0 ** (tries - 1), LONGEST_WAIT)


def of_model(error: Exception) -> Stopped:
    """Return the end of a step whose model request raised *error*."""
    if isinstance(error, UnexpectedModelBehavior):
        return Stopped("no_answer", described(error))
    return Stopped("model_error", _model_error_text(error))


def _model_error_text(error: BaseException) -> str:
    if isinstance(error, ModelHTTPError):
        return f"{error.model_name} answered {error.status_code}: {_body(error)}"
    if isinstance(error, ModelAPIError):
        return f"{error.model_name}: {error.message}"
    if isinstance(error, FallbackExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return "; ".join(map(_model_error_text, group.exceptions))
    return cause_of(error)


def _body(error: ModelHTTPError) -> str:
    """Return the provider's own message."""
    body: Any = error.body
    while isinstance(body, dict):
        known = cast("dict[str, Any]", body)
        body = known.get("error", known.get("message"))
    return str(body) if body else error.message


FULL: Final = 0.9
"""The share of its token budget at which a step is to conclude."""

CONCLUDING: Final = 3
"""Limit of requests in which a step concludes."""


class Stage:
    """Progress of one try: at most *most* requests of about *budget* tokens each.

    Each message and tool is measured once. *system* is the text before the messages.
    """

    def __init__(self, system: str, *, most: int, budget: int) -> None:
        self.requests = 0
        self.concluding = False
        self._most, self._budget = most, budget
        self._tokens, self._weighed, self._last_ones = 0, 0, 0
        self._system = len(system)
        self._messages: list[int] = []
        self._tools: dict[str, int] = {}

    def begin_request(self) -> None:
        """Count one more request; raise Stopped if none is left."""
        if self.requests >= self._most:
            message = f"no result after {self.requests} model requests, the most that are allowed"
            raise Stopped("max_iterations", message)
        if self._last_ones >= CONCLUDING:
            raise Stopped(
                "token_budget",
                f"no result in {CONCLUDING} requests after the context took {self._tokens} tokens "
                f"of a budget of {self._budget}",
            )
        self.requests += 1

    def resume(self, messages: Sequence[ModelMessage]) -> None:
        """Count the requests that *messages* answer, which an earlier stay has made."""
        for message in messages:
            if isinstance(message, ModelResponse):
                self.requests += 1
                self._last_ones += self.concluding
            elif any(_is_conclusion(part) for part in message.parts):
                self.concluding = True

    def concludes(self, messages: Sequence[ModelMessage], tools: Iterable[ToolDefinition]) -> bool:
        """Return whether the step is to conclude from this request on.

        *messages* and *tools* are those of the request.
        """
        if self._weighed == self.requests:
            return False
        self._weighed = self.requests
        before = self.concluding
        if not before:
            self._tokens = self._measured(messages, tools)
            last = self.requests == self._most
            self.concluding = last or self._tokens > FULL * self._budget
        self._last_ones += self.concluding
        return self.concluding and not before

    def _measured(self, messages: Sequence[ModelMessage], tools: Iterable[ToolDefinition]) -> int:
        """Return the larger of the last reported tokens and a quarter of the characters."""
        # The last one measured may have grown since, by texts put before its request.
        del self._messages[-1:]
        self._messages += [characters(each) for each in messages[len(self._messages) :]]
        size = self._system + sum(self._messages)
        for tool in tools:
            if tool.name not in self._tools:
                schema = msgspec.json.encode(tool.parameters_json_schema)
                named = len(tool.name) + len(tool.description or "")
                self._tools[tool.name] = named + len(schema)
            size += self._tools[tool.name]
        return max(_reported(messages), -(-size // CHARACTERS))


def _is_conclusion(part: ModelRequestPart) -> bool:
    return isinstance(part, UserPromptPart) and part.content in (CONCLUDE, CONCLUDE_IN_TEXT)


# Values of memory or inputs are in neither: the model gets their keys.

Kind: TypeAlias = Literal["schema", "finish", "unstructured"]

CONCLUDE: Final = (
    "You have reached the limit of this step. Do not start anything new: "
    "call `finish_step` now, with what you know so far."
)
CONCLUDE_IN_TEXT: Final = (
    "You have reached the limit of this step. Do not start anything new: "
    "answer now in plain text, with what you know so far."
)

_PLACES: Final = re.compile(r"<(memory|schema)>")


class Contract(Struct, frozen=True, kw_only=True):
    """The part of a step's prompt that nothing before it can change."""

    schema: Schema | None
    finish: bool
    profile: Profile

    @property
    def text(self) -> str:
        """The page, with the memory's section and the schema inserted."""
        parts = {
            "memory": run_prompt(profile=self.profile),
            "schema": "",
        }
        page: Kind = "unstructured"
        if self.schema is not None:
            page = "finish" if self.finish else "schema"
            encoded = msgspec.json.encode(self.schema)
            parts["schema"] = msgspec.json.format(encoded, indent=2).decode()
        # In one pass: inserted text is not scanned again.
        return _PLACES.sub(lambda found: parts[found[1]], _page(page))


def system_text(preamble: Sequence[str | None], contract: Contract, *, now: datetime) -> str:
    """Return the non-blank texts of *preamble*, the contract and the date."""
    before = [text.strip() for text in preamble if text and text.strip()]
    return "\n\n".join([*before, contract.text, f"The date is {now:%Y-%m-%d} (UTC)."])


def upstream_keys(task: Task, step: Step, upstream: Sequence[str], memory: RunMemory) -> list[str]:
    """Return the keys that *step* is to read: its dependencies, then *upstream*.

    A name that is a step of the task means that step; else it is an input, unless only a step of
    that name has stored something.
    """
    steps = {each.id for each in task.steps}
    found: list[str] = []
    for name in step.depends_on:
        as_step = keys.step(name)
        is_step = name in steps or (memory.has(as_step) and not memory.has(keys.input(name)))
        found.append(as_step if is_step else keys.input(name))
    return list(dict.fromkeys([*found, *upstream]))


@cache
def _page(kind: Kind) -> str:
    page = files("holdfast.runtime.steps").joinpath("prompts", f"{kind}.md")
    return page.read_text("utf-8").strip()


def result_schema(given: OutputSchema | None) -> ResultSchema | None:
    """Return the schema *given*, None for None; raise InvalidInput if it is none."""
    if given is None:
        return None
    try:
        # Making one takes longer than the rest of a step, and the items of a list share one.
        if isinstance(given, dict):
            return _cached_schema(msgspec.json.encode(given).decode())
        return _cached_schema(given) if isinstance(given, Hashable) else ResultSchema(given)
    except (BadSchema, TypeError, ValueError, RecursionError) as error:
        raise InvalidInput("output_schema", str(error)) from error


@lru_cache(maxsize=256, typed=True)
def _cached_schema(given: Hashable) -> ResultSchema:
    return ResultSchema(given)


def parameters(schema: Schema) -> Schema:
    """Return the schema of `finish_step`'s arguments, with *schema* for `result`.

    Definitions move to its root, where every provider looks for them; other references to the
    schema's own places are rewritten.
    """
    moved = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    rest = {name: value for name, value in schema.items() if name not in moved}
    return {
        "type": "object",
        "properties": {"result": _pointed(rest)},
        "required": ["result"],
        "additionalProperties": False,
        **{name: _pointed(value) for name, value in moved.items()},
    }


def _pointed(part: object) -> Any:
    if isinstance(part, dict):
        moved: dict[str, Any] = {}
        for name, value in cast("dict[str, Any]", part).items():
            if name == "$ref" and isinstance(value, str) and value.startswith("#"):
                kept = value.startswith(("#/$defs/", "#/definitions/"))
                moved[name] = value if kept else f"#/properties/result{value[1:]}"
            elif name not in ("$schema", "$id"):
                moved[name] = _pointed(value)
        return moved
    if isinstance(part, list):
        return [_pointed(each) for each in cast("list[object]", part)]
    return part


AcceptResult: TypeAlias = Callable[[Any], str | Awaitable[str | None] | None]
"""Returns the reason to reject a result, or None."""


REFUSALS: Final = 3
"""Rejections by *accept_result*; the last one fails the step."""

_THOUGHTS: Final = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL | re.IGNORECASE)


class Acceptance:
    """Checks results: by their schema *wanted*, then by *accept_result*.

    `result` is the last one accepted, UNSET before; `finished` is true from then until the next
    request.
    """

    def __init__(self, wanted: ResultSchema | None, accept_result: AcceptResult | None) -> None:
        self.result: Any = UNSET
        self.finished = False
        self.wanted, self._accept_result = wanted, accept_result
        self._refusals = 0

    async def of_arguments(self, arguments: dict[str, Any]) -> Any:
        """Return the result in *arguments* of `finish_step`; raise ModelRetry if invalid."""
        wanted = self.wanted
        if wanted is None:
            raise EngineFault("finish_step was called where it was not offered")
        candidate = await wanted.checked(arguments)
        if candidate.problems:
            message = "\n".join(f"- {each}" for each in candidate.problems)
            raise ModelRetry(f"The result was refused. Correct this and call again:\n{message}")
        return await self._accepted(candidate.value)

    async def of_text(self, text: str) -> str:
        """Return the answer in *text*, without thoughts; raise ModelRetry if it is blank."""
        answer = _THOUGHTS.sub("", text).strip()
        if not answer:
            raise ModelRetry("The answer was blank. Answer in plain text.")
        return await self._accepted(answer)

    async def _accepted(self, candidate: Any) -> Any:
        with contained():
            reason = await awaited(self._accept_result(candidate)) if self._accept_result else None
        if reason is not None:
            self._refusals += 1
            if self._refusals == REFUSALS:
                raise Stopped("rejected", f"the result was refused {REFUSALS} times: {reason}")
            raise ModelRetry(f"The result was refused: {reason}")
        self.finished, self.result = True, candidate
        return candidate
