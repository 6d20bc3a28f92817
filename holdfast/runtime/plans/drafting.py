"""A plan in the making: what a model adds, takes away and calls finished, and what it is told."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, Final, cast

from holdfast.ground.errors import InvalidPlan
from holdfast.ground.json_values import JSON
from holdfast.runtime.plans.plan import ID_LENGTH, PlanProblem, Step, Task, TaskPlan, shaped
from holdfast.tools.base import Schema

STEP_FIELDS: Final = (
    *("id", "instructions", "depends_on", "output_schema", "tools"),
    *("mode", "per_item_instructions", "per_item_schema"),
)
"""What a model may say of a step; the rest is the caller's."""

_CALLERS: Final = {each.name for each in fields(Step) if each.init} - {*STEP_FIELDS}
_OTHERS = re.compile(r"[^A-Za-z0-9_.-]+")

Answer = dict[str, JSON]


class Draft:
    """The tasks so far. Each act answers what the model is to be told of it.

    *inputs* and *tools* are the names steps may use. With *shaped_result* the plan's result must
    have a schema. An id that failed *max_failures* times is closed: no model is to try for ever.
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
        """Whether so much has failed that trying on makes no sense."""
        return self.failures > 3 * self._max_failures

    def add(self, arguments: Mapping[str, Any]) -> Answer:
        """Add the task that *arguments* describe, if nothing is wrong with it."""
        told = {"id": self._id_for(arguments.get("title")), **_given_arguments(arguments)}
        id = told["id"] if isinstance(told["id"], str) else ""
        if self._failed[id] >= self._max_failures:
            closed = PlanProblem("task", "closed", self._closed(id))
            return self._refused([closed], because=self._last[id])
        if len(self.tasks) >= self._max_tasks:
            told_most = f"there may be at most {self._max_tasks} tasks"
            return self._refused([PlanProblem("plan", "too_many", told_most)])
        try:
            task = shaped(Task, told, "task")
        except InvalidPlan as error:
            found = [*cast("tuple[PlanProblem, ...]", error.problems), *_unasked(told)]
        else:
            found = [*self._problems_with(task), *_unasked(told)]
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
        """Take away the task that *arguments* name, if no other needs it."""
        id = arguments.get("id")
        if id not in {task.id for task in self.tasks}:
            there = ", ".join(task.id for task in self.tasks) or "none"
            told = f"no task has the id {str(id)[:60]!r}; there are: {there}"
            return self._refused([PlanProblem("id", "unknown", told)])
        if needing := [task.id for task in self.tasks if id in task.depends_on]:
            told = f"{', '.join(needing)} need it: remove these first"
            return self._refused([PlanProblem("id", "needed", told)])
        self.tasks = [task for task in self.tasks if task.id != id]
        return {"status": "task_removed", "tasks_so_far": len(self.tasks)}

    def finish(self, arguments: Mapping[str, Any]) -> Answer:
        """Make a plan of the tasks, if nothing is wrong with it."""
        title, final = arguments.get("title") or self._title, arguments.get("final_task")
        if not isinstance(title, str) or not isinstance(final, str | None):
            told = "title and final_task must be text"
            return self._refused([PlanProblem("plan", "type", told)])
        plan = TaskPlan(title=title, tasks=self.tasks, final_task=final)
        if problems := plan.problems(self._inputs, self._tools) or self._misshapen(plan):
            return self._refused(problems)
        self.plan = plan
        return {"status": "plan_finished", "tasks": len(self.tasks)}

    def reopen(self) -> None:
        """Let the plan that was finished be changed again."""
        self.plan = None

    def refuse(self, where: str, code: str, message: str) -> Answer:
        """Answer that a call was none of these, and why."""
        return self._refused([PlanProblem(where, code, message)])

    def _problems_with(self, task: Task) -> list[PlanProblem]:
        """Return what is wrong with *task* beside those that are there, told as of it alone."""
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
        """Return whether the result cannot have the shape that is asked of it."""
        if not self._shaped_result or plan.final.steps[-1].mode != "process":
            return []
        told = "its last step gives the plan's result: it must not be a process step"
        return [PlanProblem(f"task {plan.final.id}", "mode", told)]

    def _id_for(self, title: object) -> str:
        """Return an id made of *title* that no task has."""
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
        """Answer with *problems*; `problems` holds those *because* of which they are, too."""
        self.failures += 1
        self.problems = (*because, *problems)
        return {"status": "validation_failed", "errors": [str(each) for each in problems]}


def with_schema(plan: TaskPlan, schema: Schema | str | None) -> TaskPlan:
    """Return *plan*, its result as *schema* says: that of the finish step of its final task."""
    if schema is None:
        return plan
    final = plan.final
    finish = replace(final.steps[-1], output_schema=schema)
    changed = replace(final, steps=[*final.steps[:-1], finish])
    return replace(plan, tasks=[changed if task is final else task for task in plan.tasks])


def _given_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was said in *arguments*: null is as good as nothing, in steps too."""
    said = {name: value for name, value in arguments.items() if value is not None}
    if isinstance(steps := said.get("steps"), list):
        said["steps"] = [
            _given_arguments(cast("Mapping[str, Any]", each)) if isinstance(each, dict) else each
            for each in cast("list[object]", steps)
        ]
    return said


def _unasked(told: Mapping[str, Any]) -> list[PlanProblem]:
    """Find fields of steps that are the caller's to set."""
    steps = told.get("steps")
    return [
        PlanProblem(f"task.steps[{number}].{name}", "unknown_key", "is not yours to set")
        for number, step in enumerate(cast("list[Any]", steps) if isinstance(steps, list) else ())
        if isinstance(step, dict)
        for name in cast("dict[str, Any]", step)
        if name in _CALLERS
    ]
