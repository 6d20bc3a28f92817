"""`TaskPlanner`: a model drafts a plan."""

import re
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import fields
from functools import partial
from importlib.resources import files
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
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
from pydantic_ai.tools import ToolDefinition

from holdfast.ground.errors import InvalidInput, InvalidPlan, PlanningFailed
from holdfast.ground.json_schema import BadSchema
from holdfast.ground.json_values import JSON, hashed
from holdfast.ground.validation import listed
from holdfast.memories.run.history.versions import StateRow
from holdfast.memories.run.records.event import Reason, RunEvent
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool, model_name, named
from holdfast.runtime.concurrency import awaited, cause_of, contained
from holdfast.runtime.context import Context, model_of
from holdfast.runtime.events import EventFacts, ExecutionEvent, PlanningUpdate, TaskUpdate
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.inference.agent_loop import response_facts
from holdfast.runtime.inference.validation import repair
from holdfast.runtime.plans.plan import ID_LENGTH, Step, Task, TaskPlan, with_schema
from holdfast.runtime.plans.schema import OutputSchema, schema_of
from holdfast.runtime.plans.wire import NEW_PLAN, NEW_TASK, PlanProblem, shaped
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.part_log import MessageSizes
from holdfast.runtime.runs.run_events import OnEvent, observer_of
from holdfast.runtime.runs.version_writer import KeptReplies, OnMismatch, checked_mismatch
from holdfast.runtime.tools import offered
from holdfast.tools.base import object_schema

STEP_FIELDS: Final = (
    *("id", "instructions", "depends_on", "output_schema", "tools"),
    *("mode", "per_item_instructions", "per_item_schema"),
)
"""The fields of a step that a model may set; the rest is for the user's code."""

NOT_YOURS: Final = "is not yours to set"
_USERS: Final = ("agent", "model")
_CALLERS: Final = {each.name for each in fields(Step) if each.init} - {*STEP_FIELDS}
_OTHERS = re.compile(r"[^A-Za-z0-9_.-]+")

Answer = dict[str, JSON]


class Draft:
    """The tasks so far. Each method returns the result for the model.

    *inputs* and *tools* are the names steps may use. With *shaped_result* the plan's result must
    have a schema. An id that failed *max_failures* times is closed, so that no model retries
    forever.
    """

    def __init__(
        self,
        title: str,
        *,
        inputs: Iterable[str] = (),
        tools: Collection[str] | None = None,
        shaped_result: bool = False,
        max_failures: int = 3,
        max_tasks: int = 50,
    ) -> None:
        self.tasks: list[Task] = []
        self.plan: TaskPlan | None = None
        self.problems: tuple[PlanProblem, ...] = ()
        self.failures = 0
        self._title, self._inputs, self._tools = title, tuple(inputs), tools
        self._shaped_result = shaped_result
        self._max_failures, self._max_tasks = max_failures, max_tasks
        self._failed: Counter[str] = Counter()
        self._last: dict[str, list[PlanProblem]] = {}

    @property
    def given_up(self) -> bool:
        """Whether too many attempts have failed."""
        return self.failures > 3 * self._max_failures

    def add(self, arguments: Mapping[str, Any]) -> Answer:
        """Add the task in *arguments*, if it has no problems."""
        fields_given = {"id": self._id_for(arguments.get("title")), **_given_arguments(arguments)}
        id = fields_given["id"] if isinstance(fields_given["id"], str) else ""
        if self._failed[id] >= self._max_failures:
            closed = PlanProblem("task", "closed", self._closed(id))
            return self._refused([closed], because=self._last[id])
        if len(self.tasks) >= self._max_tasks:
            message = f"there may be at most {self._max_tasks} tasks"
            return self._refused([PlanProblem("plan", "too_many", message)])
        try:
            task = shaped(Task, fields_given, "task")
        except InvalidPlan as error:
            found = [
                *cast("tuple[PlanProblem, ...]", error.problems),
                *_forbidden_fields(fields_given),
            ]
        else:
            found = [*self._problems_with(task), *_forbidden_fields(fields_given)]
            if not found:
                self.tasks.append(task)
                return {
                    "status": "task_added",
                    "task_id": task.id,
                    "tasks_so_far": len(self.tasks),
                }
        self._failed[id] += 1
        self._last[id] = list(found)
        if self._failed[id] >= self._max_failures:
            found.append(PlanProblem("task", "closed", self._closed(id)))
        return self._refused(found)

    def remove(self, arguments: Mapping[str, Any]) -> Answer:
        """Remove the task that *arguments* name, if no other task needs it."""
        id = arguments.get("id")
        if id not in {task.id for task in self.tasks}:
            there = ", ".join(task.id for task in self.tasks) or "none"
            message = f"no task has the id {str(id)[:60]!r}; there are: {there}"
            return self._refused([PlanProblem("id", "unknown", message)])
        if needing := [task.id for task in self.tasks if id in task.depends_on]:
            message = f"{', '.join(needing)} need it: remove these first"
            return self._refused([PlanProblem("id", "needed", message)])
        self.tasks = [task for task in self.tasks if task.id != id]
        return {"status": "task_removed", "tasks_so_far": len(self.tasks)}

    def finish(self, arguments: Mapping[str, Any]) -> Answer:
        """Make a plan of the tasks, if it has no problems."""
        title, final = arguments.get("title") or self._title, arguments.get("final_task")
        if not isinstance(title, str) or not isinstance(final, str | None):
            message = "title and final_task must be text"
            return self._refused([PlanProblem("plan", "type", message)])
        plan = TaskPlan(title=title, tasks=self.tasks, final_task=final)
        if problems := plan.problems(self._inputs, self._tools) or self._misshapen(plan):
            return self._refused(problems)
        self.plan = plan
        return {"status": "plan_finished", "tasks": len(self.tasks)}

    def reopen(self) -> None:
        """Reopen the finished plan for changes."""
        self.plan = None

    def refuse(self, where: str, code: str, message: str) -> Answer:
        """Return the result for an invalid call."""
        return self._refused([PlanProblem(where, code, message)])

    def _problems_with(self, task: Task) -> list[PlanProblem]:
        """Return the problems that *task* adds to the draft, with paths in it alone."""
        together = TaskPlan(title=self._title, tasks=[*self.tasks, task])
        place = f"plan.tasks[{len(self.tasks)}]"
        return [
            PlanProblem(
                each.where.replace(place, "task", 1),
                each.code,
                each.message.replace(place, "task"),
            )
            for each in together.problems(self._inputs, self._tools)
        ]

    def _misshapen(self, plan: TaskPlan) -> list[PlanProblem]:
        """Return a problem if the result cannot have the requested shape."""
        if not self._shaped_result or plan.final.steps[-1].mode != "process":
            return []
        message = "its last step gives the plan's result: it must not be a process step"
        return [PlanProblem(f"task {plan.final.id}", "mode", message)]

    def _id_for(self, title: object) -> str:
        """Return a new id made of *title*."""
        words = _OTHERS.sub("_", title if isinstance(title, str) else "").strip("_").lower()
        stem = words[: ID_LENGTH - 4] or "task"
        taken = {task.id for task in self.tasks}
        numbered = (f"{stem}_{number}" for number in range(2, len(taken) + 3))
        return stem if stem not in taken else next(id for id in numbered if id not in taken)

    def _closed(self, id: str) -> str:
        return (
            f"the id {id!r} has failed {self._max_failures} times and is closed: "
            "take another approach, under another id"
        )

    def _refused(
        self, problems: list[PlanProblem], *, because: Iterable[PlanProblem] = ()
    ) -> Answer:
        """Return *problems* as the result.

        The draft's `problems` become these, after those they are *because* of.
        """
        self.failures += 1
        self.problems = (*because, *problems)
        return {"status": "validation_failed", "errors": [str(each) for each in problems]}


def _given_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return *arguments* without nulls, in steps too: null means left out."""
    said = {name: value for name, value in arguments.items() if value is not None}
    if isinstance(steps := said.get("steps"), list):
        said["steps"] = [
            _given_arguments(cast("Mapping[str, Any]", each)) if isinstance(each, dict) else each
            for each in cast("list[object]", steps)
        ]
    return said


def _forbidden_fields(task: Mapping[str, Any]) -> list[PlanProblem]:
    """Return a problem for each field of a step that a model may not set."""
    steps = task.get("steps")
    own = [PlanProblem(f"task.{name}", "unknown_key", NOT_YOURS) for name in _USERS if name in task]
    return own + [
        PlanProblem(f"task.steps[{number}].{name}", "unknown_key", NOT_YOURS)
        for number, step in enumerate(cast("list[Any]", steps) if isinstance(steps, list) else ())
        if isinstance(step, dict)
        for name in cast("dict[str, Any]", step)
        if name in _CALLERS
    ]


ADD, REMOVE, FINISH = "add_task", "remove_task", "finish_plan"


TOOLS: Final = (
    ToolDefinition(
        name=ADD,
        description="Add a task with its steps. All its problems are returned at once.",
        parameters_json_schema=object_schema(NEW_TASK, "title", "steps"),
    ),
    ToolDefinition(
        name=REMOVE,
        description="Take a task out of the plan again. No other task may need it.",
        parameters_json_schema=object_schema({"id": NEW_TASK["id"]}, "id"),
    ),
    ToolDefinition(
        name=FINISH,
        description="Declare the plan complete. It is then checked as a whole.",
        parameters_json_schema=object_schema(NEW_PLAN),
    ),
)


REVISIONS = 3
"""Limit of revisions of a plan that is not approved."""

IDLE_MOST = 5
"""Limit of consecutive replies without a tool call."""

PART: Final = "planner:plan"
"""The part that the replies of the model are kept of."""

TITLE = 80
"""Characters of the objective in the title of a plan without one."""

REMINDER: Final = "That planned nothing. Call add_task, or finish_plan when all is there."
FINISHED: Final[Answer] = {"status": "not_run", "message": "The plan is finished."}

_PLACE = re.compile(r"\{(objective|inputs|tools)\}")


Phase: TypeAlias = Literal[
    "initialization", "generation", "validation", "awaiting_approval", "revision", "complete"
]
Status: TypeAlias = Literal["running", "success", "failed"]


class Approval(Struct, frozen=True):
    """The approval of a plan, or the feedback for a revision."""

    ok: bool
    feedback: str = ""


Approve = Callable[[TaskPlan], Approval | Awaitable[Approval]]


class TaskPlanner:
    """Lets a model plan the work on *objective*; `plan` is the plan, or None.

    *tools* are those of the steps, *inputs* the names (or the values by name) of the run's inputs;
    *output_schema* is the schema of the plan's result. *system_prompt* comes before the planner's
    own, which it cannot replace. *approve* gets the finished plan, and may reject it. Each reply
    and decision is kept at *checkpoint*, and a run that was cut off goes on from the last one.
    """

    def __init__(
        self,
        *,
        objective: str,
        context: Context,
        model: AnyModel | None = None,
        tools: Sequence[AnyTool] = (),
        inputs: Mapping[str, JSON] | Sequence[str] | None = None,
        output_schema: OutputSchema | None = None,
        system_prompt: str | None = None,
        max_iterations: int = 100,
        max_failures: int = 3,
        max_tasks: int = 50,
        approve: Approve | None = None,
        checkpoint: Checkpoints | None = None,
        on_mismatch: OnMismatch = "refuse",
        on_event: OnEvent | None = None,
    ) -> None:
        self._observer = observer_of(on_event)
        self.checkpoints, self.on_mismatch = checkpoint, checked_mismatch(on_mismatch)
        if not objective.strip():
            raise InvalidInput("objective", "must not be blank", next="Say what is to be done.")
        self.context, self._objective = context, objective
        self._model = model_of(context, model=model)
        try:
            schema_of(output_schema)
        except BadSchema as error:
            raise InvalidInput("output_schema", str(error)) from error
        self._schema = output_schema
        self._inputs = listed(inputs or ())
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
        values = {
            "objective": objective.strip(),
            "inputs": "\n".join(f"- `{name}`" for name in self._inputs) or "There are none.",
            "tools": "\n".join(map(_line, offered(tools))) or "There are none.",
        }
        page = files("holdfast.runtime.plans").joinpath("prompts", "planner.md").read_text("utf-8")
        # In one pass: replaced text is not scanned for placeholders.
        ours = _PLACE.sub(lambda found: values[found[1]], page).strip()
        self._instructions = (
            f"{system_prompt.strip()}\n\n{ours}"
            if system_prompt and system_prompt.strip()
            else ours
        )
        self._max_iterations, self._approve = max_iterations, approve
        self._draft = self._new_draft()
        self._sizes = MessageSizes()
        self.messages: list[ModelMessage] = []
        self._revisions = 0
        self._reason: Reason = "rejected"
        self.plan: TaskPlan | None = None
        self.error: PlanningFailed | None = None

    def execute(self) -> AsyncGenerator[ExecutionEvent]:
        """Execute it; yield its events as they happen."""
        return executor.events(self, self._observer)

    def stream(self) -> AsyncGenerator[RunEvent]:
        """Do as `execute` does, and yield every event of the run."""
        return executor.stream(self, self._observer)

    async def run(self) -> TaskPlan:
        """Execute it and return the plan; raise PlanningFailed or RunCancelled."""
        return await executor.run(self, self._observer)

    def run_sync(self) -> TaskPlan:
        """Do as `run` does, without an event loop."""
        return executor.run_sync(self, self._observer)

    @property
    def parts(self) -> tuple[str, ...]:
        """No entries: other executors may be at work beside it."""
        return ()

    def begun_with(self) -> dict[str, str]:
        """Return the hash of each part of the run by its name."""
        model = model_name(self._model)
        return {"instructions": hashed(self._instructions), "model": hashed(model)}

    async def perform(self) -> None:
        """Do the work and emit its events."""
        self._draft, self._revisions = self._new_draft(), 0
        self.plan = self.error = None
        self._replies, self._decisions = KeptReplies(self.context.versions, PART), 0
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
        """Return the outcome."""
        if self.error is not None:
            return ExecutionOutcome(
                state="failed",
                reason=self._reason,
                detail=self.error.message,
                failure=self.error,
            )
        return ExecutionOutcome(state="completed", result=self.plan)

    async def _planned(self) -> TaskPlan:
        """Call the model until a plan is finished and approved."""
        idle = 0
        for _ in range(self._max_iterations):
            if (response := self._replies.next()) is None:
                response = await self._ask()
                await self._replies.keep(response)
            self.messages.append(response)
            idle = 0 if response.tool_calls else idle + 1
            if idle == IDLE_MOST:
                raise self._failed(f"{IDLE_MOST} replies in a row called no tool", "no_answer")
            await self._answer(response)
            if self._draft.plan is not None:
                plan = with_schema(self._draft.plan, self._schema)
                if await self._approved(plan):
                    return plan
            elif self._draft.given_up:
                raise self._failed(f"{self._draft.failures} attempts failed")
        raise self._failed(
            f"no plan after {self._max_iterations} calls of the model", "max_iterations"
        )

    async def _ask(self) -> ModelResponse:
        """Return the model's reply to the messages so far."""
        async with self.context.slots.taken():
            await self._tell_request()
            began = self.context.now()
            try:
                with contained():
                    response = await model_request(
                        self._model,
                        self.messages,
                        model_request_parameters=ModelRequestParameters(function_tools=list(TOOLS)),
                        instrument=self._traced(),
                    )
            except Exception as error:
                # A provider may raise anything: the model gave no reply.
                why = cause_of(error)
                raise self._failed(f"the model failed: {why}", "model_error") from error
        repair(response)
        self.context.spend(response.usage)
        data = response_facts(response, ms=self.context.now() - began)
        await self.context.emit(EventFacts(type="model.responded", data=data))
        return response

    async def _tell_request(self) -> None:
        if self.context.watched:
            data = {
                "model": model_name(self._model),
                "messages": len(self.messages),
                "bytes": self._sizes.total(self.messages),
                "tools": [each.name for each in TOOLS],
            }
            await self.context.emit(EventFacts(type="model.requested", data=data))

    def _traced(self) -> InstrumentationSettings | None:
        """Return the tracing of a request: below the run's span, if there is one."""
        if not get_current_span().is_recording():
            return None
        return InstrumentationSettings(
            tracer_provider=self.context.tracer_provider,
            include_content=self.context.trace_content,
        )

    async def _answer(self, response: ModelResponse) -> None:
        """Run the calls of *response* in order, and append their results."""
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
        """Request approval if required; on rejection, send the feedback to the model."""
        if self._approve is None:
            return True
        await self._tell("awaiting_approval", "running", plan.to_json())
        approval = await self._decision(self._approve, plan)
        if approval.ok:
            await self._tell("awaiting_approval", "success")
            return True
        await self._tell("awaiting_approval", "failed", approval.feedback)
        self._revisions += 1
        if self._revisions > REVISIONS:
            raise self._failed(f"not approved after {REVISIONS} revisions: {approval.feedback}")
        await self._tell("revision", "running", approval.feedback)
        self._draft.reopen()
        feedback = (
            f"The plan was not approved. Change it, then finish it again: {approval.feedback}"
        )
        self.messages.append(
            ModelRequest([UserPromptPart(feedback)], instructions=self._instructions)
        )
        return False

    async def _decision(self, approve: Approve, plan: TaskPlan) -> Approval:
        """Return the approval of *plan*; it is requested once."""
        self._decisions += 1
        versions, key = self.context.versions, f"approval:{self._decisions}"
        if (known := versions.restored.get("state", key)) is not None:
            return Approval(**known)
        with contained():
            approval = await awaited(approve(plan))
        row = StateRow("state", key, msgspec.json.encode(approval))
        await versions.keep("plan", part=PART, rows=[row])
        return approval

    def _failed(self, why: str, reason: Reason = "rejected") -> PlanningFailed:
        draft, self._reason = self._draft, reason
        return PlanningFailed(why, problems=draft.problems, tasks=[task.id for task in draft.tasks])

    async def _tell(self, phase: Phase, status: Status, content: str = "") -> None:
        await self.context.tell(PlanningUpdate(phase=phase, status=status, content=content))

    async def _tell_refused(self) -> None:
        await self._tell("validation", "failed", "; ".join(map(str, self._draft.problems)))

    async def _tell_of(
        self, event: Literal["task_planned", "task_removed"], id: str, title: str | None = None
    ) -> None:
        await self.context.tell(TaskUpdate(event=event, task_id=id, title=title))


def _line(tool: ModelTool[Any]) -> str:
    described = " ".join((tool.description or "").split())
    return f"- `{tool.name}`: {described}" if described else f"- `{tool.name}`"
