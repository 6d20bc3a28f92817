"""One agent of a team while the team works: what it could do now, and how its turns went."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from holdfast.runtime.agent import AnyModel
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.bus import Mailbox
from holdfast.runtime.team.history import TurnHistory
from holdfast.runtime.team.result import Workforce
from holdfast.runtime.team.task import HELD, BoardTask
from holdfast.runtime.team.tools import TurnToolbox

PATIENCE = 3
"""Turns in a row that may fail, or that may leave a task as it was."""

Versions = Mapping[str, int]
"""Tasks by their ids, each at the version it was seen."""


class Sight(Struct, frozen=True):
    """What an agent could act on at one moment."""

    held: tuple[BoardTask, ...]
    claimable: tuple[BoardTask, ...]

    @property
    def mine(self) -> tuple[BoardTask, ...]:
        """The tasks in hand that can be gone on with."""
        return tuple(task for task in self.held if task.status in HELD)


@dataclass(eq=False)
class Member:
    """*agent*, its *model* and *toolbox*, and what the team remembers of its turns.

    `passed` are the tasks it could claim when its last turn began, `called` those of a last call.
    `fruitless` counts turns that changed nothing on a task of its own. One that is `benched`
    takes no more turns; one that is `away` is switched off for now.
    """

    agent: Agent
    model: AnyModel
    toolbox: TurnToolbox
    mailbox: Mailbox
    board: TaskBoard
    history: TurnHistory = field(default_factory=TurnHistory)
    passed: dict[str, int] = field(default_factory=dict[str, int])
    called: dict[str, int] = field(default_factory=dict[str, int])
    fruitless: dict[str, int] = field(default_factory=dict[str, int])
    failures: int = 0
    cuts: int = 0
    last_turn: int = 0
    benched: bool = False
    away: bool = False
    busy: bool = False

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.agent.name

    @property
    def present(self) -> bool:
        """Whether it could take a turn, had it anything to do."""
        return not (self.benched or self.away or self.busy)

    def sight(self) -> Sight:
        """Return what it could act on now."""
        held = [task for task in self.board.list() if task.claimed_by == self.name]
        return Sight(
            tuple(task for task in held if not task.settled),
            tuple(self.board.available(self.agent.skills)),
        )

    def workable(self) -> bool:
        """Tell whether it could take a turn, and has a reason to."""
        return self.present and self.has_work()

    def has_work(self) -> bool:
        """Tell whether there is anything for it to do that it has not looked at and left."""
        if len(self.mailbox):
            return True
        seen = self.sight()
        return bool(seen.mine or _is_new(seen.claimable, self.passed))

    def uncalled(self) -> bool:
        """Tell whether there is anything to claim that it was not yet called upon to claim."""
        return self.present and _is_new(self.sight().claimable, self.called)

    def call(self) -> None:
        """Note that it is called upon to claim what it left, for nobody else will."""
        self.called = _versions(self.sight().claimable)

    def took_a_turn(self, seen: Sight, *, cut: bool) -> list[BoardTask]:
        """Note that it took a turn, beginning with *seen*; return its tasks that get nowhere.

        One that was *cut* had more to say, and may say it, but not for ever.
        """
        self.failures = 0
        self.cuts = self.cuts + 1 if cut else 0
        self.passed = {} if cut and self.cuts < PATIENCE else _versions(seen.claimable)
        versions = _versions(self.sight().mine)
        same = [task for task in seen.mine if versions.get(task.id) == task.version]
        # Who has several tasks goes on with one at a time; none is held against it then.
        stood_still = len(same) == len(seen.mine)
        self.fruitless = {task.id: self.fruitless.get(task.id, 0) + stood_still for task in same}
        return [task for task in same if self.fruitless[task.id] >= PATIENCE]

    def failed_a_turn(self) -> bool:
        """Note that its turn failed; tell whether that was once too often."""
        self.mailbox.unanswered()
        # It said nothing to what it was shown, so that is as new to it as before.
        self.passed, self.called = {}, {}
        self.failures += 1
        self.benched = self.failures >= PATIENCE
        return self.benched

    def workforce(self) -> Workforce:
        """Return what it counts for."""
        out = "benched" if self.benched else "switched off" if self.away else None
        return Workforce(self.name, self.agent.skills, out)


def _versions(tasks: tuple[BoardTask, ...]) -> dict[str, int]:
    return {task.id: task.version for task in tasks}


def _is_new(tasks: tuple[BoardTask, ...], known: Versions) -> bool:
    """Tell whether there are *tasks*, and they are not those that are *known*."""
    return bool(tasks) and _versions(tasks) != known
