"""Whatever a team does, in whatever order, its board keeps its promises."""

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from teams import task_on

from holdfast.errors import Conflict, HoldfastError
from holdfast.runtime.events import TeamUpdate
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.task import BoardTask

AGENTS = ("ada", "bob")
Pick: TypeAlias = int
PICKS = st.integers(0, 1_000)
SKILLS = st.sampled_from([(), ("sql",)])


class BoardMachine(RuleBasedStateMachine):
    """Agents that do anything a board offers, on tasks they pick at random."""

    def __init__(self) -> None:
        super().__init__()
        self.board = TaskBoard()
        self.settled: dict[str, BoardTask] = {}
        self.told: list[TeamUpdate] = []
        self.board.on_event(self.told.append)

    def pick(self, number: Pick) -> BoardTask:
        tasks = self.board.list()
        return tasks[number % len(tasks)]

    def some(self, numbers: list[Pick]) -> list[str]:
        return [self.pick(number).id for number in numbers] if self.board.list() else []

    def attempt(self, act: Callable[[], object]) -> None:
        before = self.board.list(), len(self.told)
        try:
            act()
        except HoldfastError:
            assert (self.board.list(), len(self.told)) == before
        else:
            assert self.board.list() == before[0] or len(self.told) > before[1]

    @rule(needs=st.lists(PICKS, max_size=2), skills=SKILLS, priority=st.integers(0, 3))
    def create(self, needs: list[Pick], skills: tuple[str, ...], priority: int) -> None:
        needed = self.some(needs)
        self.board.create("t", depends_on=needed, required_skills=skills, priority=priority)

    @precondition(lambda self: self.board.list())
    @rule(parent=PICKS, needs=st.lists(PICKS, max_size=1))
    def create_below(self, parent: Pick, needs: list[Pick]) -> None:
        id, needed = self.pick(parent).id, self.some(needs)
        self.attempt(lambda: self.board.create("t", parent=id, depends_on=needed))

    @precondition(lambda self: self.board.list())
    @rule(number=PICKS, agent=st.sampled_from(AGENTS), skills=SKILLS)
    def claim(self, number: Pick, agent: str, skills: tuple[str, ...]) -> None:
        id = self.pick(number).id
        offered = id in {task.id for task in self.board.available(skills)}
        try:
            self.board.claim(id, agent, skills=skills)
        except Conflict:
            assert not offered
        else:
            assert offered

    @precondition(lambda self: self.board.list())
    @rule(
        number=PICKS,
        agent=st.sampled_from(AGENTS),
        act=st.sampled_from(["start", "complete", "release", "unblock"]),
    )
    def act(self, number: Pick, agent: str, act: str) -> None:
        id = self.pick(number).id
        self.attempt(lambda: getattr(self.board, act)(id, agent))

    @precondition(lambda self: self.board.list())
    @rule(
        number=PICKS,
        agent=st.sampled_from(("system", *AGENTS)),
        act=st.sampled_from(["fail", "block"]),
    )
    def act_with_a_reason(self, number: Pick, agent: str, act: str) -> None:
        id = self.pick(number).id
        self.attempt(lambda: getattr(self.board, act)(id, agent, "no"))

    @precondition(lambda self: self.board.list())
    @rule(number=PICKS, agent=st.sampled_from(AGENTS), needs=st.lists(PICKS, max_size=1))
    def decompose(self, number: Pick, agent: str, needs: list[Pick]) -> None:
        id, needed = self.pick(number).id, self.some(needs)
        parts = [{"title": "one"}, {"title": "two", "depends_on": ["one", *needed]}]
        self.attempt(lambda: self.board.decompose(id, agent, parts))

    @invariant()
    def what_is_settled_stays_as_it_is(self) -> None:
        tasks = {task.id: task for task in self.board.list()}
        assert all(tasks[id] == task for id, task in self.settled.items())
        self.settled = {id: task for id, task in tasks.items() if task.settled}

    @invariant()
    def who_has_a_task_can_go_on_with_it(self) -> None:
        for task in self.board.list():
            if task.status in ("claimed", "working"):
                assert task.claimed_by
                assert all(task_on(self.board, id).status == "done" for id in task.depends_on)
                assert not self.board.subtasks(task.id)

    @invariant()
    def a_parent_settles_with_the_last_of_its_parts(self) -> None:
        for task in self.board.list():
            parts = self.board.subtasks(task.id)
            if not parts or task.status == "failed":
                continue
            if task.status == "done":
                assert {part.status for part in parts} == {"done"}
            else:
                assert task.status == "blocked"
                assert any(not part.settled for part in parts)

    @invariant()
    def a_deadlock_is_what_no_effort_could_settle(self) -> None:
        assert set(self.board.deadlock()) == _hopeless(self.board)

    @invariant()
    def a_task_is_settled_and_told_of_once(self) -> None:
        ended = [each.task_id for each in self.told if each.event in _ENDS]
        assert sorted(map(str, ended)) == sorted(t.id for t in self.board.list() if t.settled)


_ENDS = ("task_completed", "task_failed")


def _hopeless(board: TaskBoard) -> set[str]:
    """Return what stays unsettled although everybody does what they can, and succeeds."""
    tasks = board.list()
    status = {task.id: task.status for task in tasks}
    parts = {task.id: [each.id for each in board.subtasks(task.id)] for task in tasks}
    moved = True
    while moved:
        moved = False
        for task in tasks:
            if status[task.id] in ("done", "failed"):
                continue
            left = parts[task.id]
            if left and all(status[id] in ("done", "failed") for id in left):
                status[task.id] = "failed" if "failed" in map(status.get, left) else "done"
                moved = True
            elif not left and all(status[id] == "done" for id in task.depends_on):
                status[task.id] = "done"
                moved = True
    return {id for id, each in status.items() if each not in ("done", "failed")}


TestBoard = BoardMachine.TestCase
