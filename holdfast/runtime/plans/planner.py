"""A model that makes a plan: task by task, each checked as it comes."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from inspect import isawaitable
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from opentelemetry.trace import get_current_span
from pydantic_ai import Tool as ModelTool
from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.instrumented import InstrumentationSettings

from holdfast.ground.errors import InvalidInput, PlanningFailed
from holdfast.ground.json_values import JSON
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool, named
from holdfast.runtime.context import Context, model_of
from holdfast.runtime.events import ExecutionEvent, PlanningUpdate, TaskUpdate
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.plans.drafting import Answer, Draft, with_schema
from holdfast.runtime.plans.plan import BadSchema, TaskPlan, schema_of
from holdfast.runtime.plans.planning_tools import ADD, FINISH, REMOVE, TOOLS
from holdfast.runtime.tools import offered
from holdfast.tools.base import Schema

REVISIONS = 3
"""How often a plan that was not approved is made again."""

TITLE = 80
"""Characters of the objective that a plan without a title of its own is called by."""

REMINDER: Final = "That planned nothing. Call add_task, or finish_plan when all is there."
FINISHED: Final[Answer] = {"status": "not_run", "message": "The plan is finished."}

_PLACE = re.compile(r"\{(objective|inputs|tools)\}")


Phase: TypeAlias = Literal[
    "initialization", "generation", "validation", "awaiting_approval", "revision", "complete"
]
Status: TypeAlias = Literal["running", "success", "failed"]


class Approval(Struct, frozen=True):
    """Whether a plan may be run, and what is to be different if not."""

    ok: bool
    feedback: str = ""


Approve = Callable[[TaskPlan], Approval | Awaitable[Approval]]


class TaskPlanner:
    """Lets a model plan the work on *objective*; `plan` is what came of it, None before.

    *tools* are those that steps will have, *inputs* the names (or the values by name) a run will
    be given; *output_schema* is what the plan's result must be. *system_prompt* comes before the
    planner's own, which it cannot replace. *approve* sees the finished plan, and may send it back.
    """

    def __init__(
        self,
        *,
        objective: str,
        context: Context,
        model: AnyModel | None = None,
        tools: Sequence[AnyTool] = (),
        inputs: Mapping[str, JSON] | Sequence[str] | None = None,
        output_schema: Schema | str | None = None,
        system_prompt: str | None = None,
        max_calls: int = 100,
        max_failures: int = 3,
        max_tasks: int = 50,
        approve: Approve | None = None,
    ) -> None:
        if not objective.strip():
            raise InvalidInput("objective", "must not be blank", next="Say what is to be done.")
        self.context, self._objective = context, objective
        self._model = model_of(context, model=model)
        self._schema = _checked(output_schema)
        self._inputs = tuple(inputs or ())
        self.name, self.title = "planner", objective.strip().splitlines()[0][:TITLE]
        self._new_draft = partial(
            Draft,
            self.title,
            inputs=self._inputs,
            tools=list(named(tools)),
            shaped_result=output_schema is not None,
            max_failures=max_failures,
            max_tasks=max_tasks,
        )
        self._instructions = _instructions(
            system_prompt, objective=objective, inputs=self._inputs, tools=tools
        )
        self._max_calls, self._approve = max_calls, approve
        self._draft = self._new_draft()
        self.messages: list[ModelMessage] = []
        self._revisions = 0
        self.plan: TaskPlan | None = None
        self.error: PlanningFailed | None = None

    def execute(self) -> AsyncGenerator[ExecutionEvent]:
        """Execute it; give its events as they happen."""
        return executor.events(self)

    async def run(self) -> TaskPlan:
        """Execute it; return the plan, or raise PlanningFailed or RunCancelled."""
        return await executor.run(self)

    def run_sync(self) -> TaskPlan:
        """Do as `run` does, without an event loop."""
        return executor.run_sync(self)

    async def perform(self) -> None:
        """Do the work, telling of it."""
        self._draft, self._revisions = self._new_draft(), 0
        self.plan = self.error = None
        await self._tell("initialization", "success", self._objective)
        await self._tell("generation", "running")
        self.messages = [
            ModelRequest([UserPromptPart(self._objective)], instructions=self._instructions)
        ]
        try:
            self.plan = await self._planned()
        except PlanningFailed as error:
            self.error = error
            return await self._tell("complete", "failed", error.message)
        return await self._tell("complete", "success", self.plan.to_json())

    def ending(self) -> ExecutionOutcome:
        """Return what came of it."""
        if self.error is not None:
            return ExecutionOutcome(state="failed", reason=self.error.message, failure=self.error)
        return ExecutionOutcome(state="completed", result=self.plan)

    async def _planned(self) -> TaskPlan:
        """Ask until a plan is finished and approved."""
        for _ in range(self._max_calls):
            await self._answer(await self._ask())
            if self._draft.plan is not None:
                plan = with_schema(self._draft.plan, self._schema)
                if await self._approved(plan):
                    return plan
            elif self._draft.given_up:
                raise self._failed(f"{self._draft.failures} attempts failed")
        raise self._failed(f"no plan after {self._max_calls} calls of the model")

    async def _ask(self) -> ModelResponse:
        """Return what the model answers to all that was said."""
        async with self.context.slots.taken():
            try:
                response = await model_request(
                    self._model,
                    self.messages,
                    model_request_parameters=ModelRequestParameters(function_tools=list(TOOLS)),
                    instrument=self._traced(),
                )
            except Exception as error:
                # Whatever a provider's code raises, it is the model that did not answer.
                raise self._failed(f"the model failed: {error}") from error
        self.context.spend(response.usage)
        self.messages.append(response)
        return response

    def _traced(self) -> InstrumentationSettings | None:
        """Return how a request is traced: below the run's span, when there is one."""
        if not get_current_span().is_recording():
            return None
        return InstrumentationSettings(
            tracer_provider=self.context.tracer_provider,
            include_content=self.context.trace_content,
        )

    async def _answer(self, response: ModelResponse) -> None:
        """Do what *response* calls for, one call after the other, and say what came of each."""
        parts: list[ModelRequestPart] = []
        for call in response.tool_calls:
            answer = FINISHED if self._draft.plan is not None else await self._act(call)
            parts.append(ToolReturnPart(call.tool_name, answer, call.tool_call_id))
        if not parts:
            parts.append(UserPromptPart(REMINDER))
        self.messages.append(ModelRequest(parts, instructions=self._instructions))

    async def _act(self, call: ToolCallPart) -> Answer:
        try:
            arguments = call.args_as_dict()
        except (ValueError, AssertionError) as error:
            return self._draft.refuse("arguments", "json", f"must be a JSON object: {error}")
        if call.tool_name == ADD:
            return await self._add(arguments)
        if call.tool_name == REMOVE:
            answer = self._draft.remove(arguments)
            if answer["status"] == "task_removed":
                await self._tell_of("task_removed", str(arguments["id"]))
            return answer
        if call.tool_name == FINISH:
            return await self._finish(arguments)
        return self._draft.refuse("tool", "unknown", f"there are {ADD}, {REMOVE} and {FINISH}")

    async def _add(self, arguments: Mapping[str, Any]) -> Answer:
        answer = self._draft.add(arguments)
        if answer["status"] == "task_added":
            await self._tell_of("task_planned", str(answer["task_id"]), self._draft.tasks[-1].title)
        else:
            await self._tell_refused()
        return answer

    async def _finish(self, arguments: Mapping[str, Any]) -> Answer:
        await self._tell("validation", "running")
        answer = self._draft.finish(arguments)
        if self._draft.plan is None:
            await self._tell_refused()
        else:
            await self._tell("validation", "success")
        return answer

    async def _approved(self, plan: TaskPlan) -> bool:
        """Ask for approval, if it is to be; let the model go on with what is to be different."""
        if self._approve is None:
            return True
        await self._tell("awaiting_approval", "running", plan.to_json())
        said = self._approve(plan)
        approval = await said if isawaitable(said) else said
        if approval.ok:
            await self._tell("awaiting_approval", "success")
            return True
        await self._tell("awaiting_approval", "failed", approval.feedback)
        self._revisions += 1
        if self._revisions > REVISIONS:
            raise self._failed(f"not approved after {REVISIONS} revisions: {approval.feedback}")
        await self._tell("revision", "running", approval.feedback)
        self._draft.reopen()
        told = f"The plan was not approved. Change it, then finish it again: {approval.feedback}"
        self.messages.append(ModelRequest([UserPromptPart(told)], instructions=self._instructions))
        return False

    def _failed(self, reason: str) -> PlanningFailed:
        draft = self._draft
        return PlanningFailed(
            reason, problems=draft.problems, tasks=[task.id for task in draft.tasks]
        )

    async def _tell(self, phase: Phase, status: Status, content: str = "") -> None:
        await self.context.tell(PlanningUpdate(phase=phase, status=status, content=content))

    async def _tell_refused(self) -> None:
        await self._tell("validation", "failed", "; ".join(map(str, self._draft.problems)))

    async def _tell_of(
        self, event: Literal["task_planned", "task_removed"], id: str, title: str | None = None
    ) -> None:
        await self.context.tell(TaskUpdate(event=event, task_id=id, title=title))


def _checked(schema: Schema | str | None) -> Schema | str | None:
    try:
        schema_of(schema)
    except BadSchema as error:
        raise InvalidInput("output_schema", str(error)) from error
    return schema


def _instructions(
    preamble: str | None, *, objective: str, inputs: Sequence[str], tools: Sequence[AnyTool]
) -> str:
    """Return what the model is told; what stands in it for a place is not filled in again."""
    told = {
        "objective": objective.strip(),
        "inputs": "\n".join(f"- `{name}`" for name in inputs) or "There are none.",
        "tools": "\n".join(map(_line, offered(tools))) or "There are none.",
    }
    page = files("holdfast.runtime.plans").joinpath("prompts", "planner.md").read_text("utf-8")
    ours = _PLACE.sub(lambda found: told[found[1]], page).strip()
    return f"{preamble.strip()}\n\n{ours}" if preamble and preamble.strip() else ours


def _line(tool: ModelTool[Any]) -> str:
    described = " ".join((tool.description or "").split())
    return f"- `{tool.name}`: {described}" if described else f"- `{tool.name}`"
