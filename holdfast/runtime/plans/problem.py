"""One thing that is wrong with a plan: where, of which kind, and in words."""

from msgspec import Struct


class PlanProblem(Struct, frozen=True):
    """Why a plan cannot be run; `where` is a path such as `plan.tasks[2].steps[0]`."""

    where: str
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"
