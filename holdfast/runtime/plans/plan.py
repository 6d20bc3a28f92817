"""A plan: tasks that need one another's results, and the one whose result is the plan's."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from holdfast.runtime.plans.checks import problems_of
from holdfast.runtime.plans.problem import PlanProblem
from holdfast.runtime.plans.reading import read, written
from holdfast.runtime.plans.shapes import Step, Task


@dataclass(kw_only=True)
class TaskPlan:
    """Tasks by what they need; `final_task` is the last in the list unless it is named.

    >>> plan = TaskPlan(title="Greet", tasks=[Task(id="hi", title="Say hi", steps=[])])
    >>> [str(problem) for problem in plan.problems()]
    ['plan.tasks[0]: has no steps']
    """

    title: str
    tasks: list[Task]
    final_task: str | None = None

    @property
    def final(self) -> Task:
        """The task whose result is the plan's."""
        return self.task(self.final_task) if self.final_task else self.tasks[-1]

    @property
    def steps(self) -> list[Step]:
        """The steps of all tasks, in order."""
        return [step for task in self.tasks for step in task.steps]

    def task(self, id: str) -> Task:
        """Return the task with this id; KeyError when there is none."""
        for task in self.tasks:
            if task.id == id:
                return task
        raise KeyError(id)

    def problems(
        self, inputs: Iterable[str] = (), tools: Collection[str] | None = None
    ) -> list[PlanProblem]:
        """Return all that keeps it from being run.

        *inputs* are the keys a run will be given, *tools* the names of the tools that will be
        there; without them the tools that steps name are not looked at.
        """
        return problems_of(self.title, self.tasks, self.final_task, inputs=inputs, tools=tools)

    def to_json(self) -> str:
        """Return what its author wrote, as JSON."""
        return written(self)

    @staticmethod
    def from_json(text: str) -> "TaskPlan":
        """Return the plan in *text*; InvalidPlan names every key that is not known."""
        return read(TaskPlan, text, "plan")
