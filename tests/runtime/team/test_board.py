"""The board of a team: its rules, its properties, and access by many threads."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeAlias, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from teams import task_on

from holdfast.errors import (
    ClaimRefused,
    Conflict,
    HoldfastError,
    InvalidInput,
    LimitExceeded,
    NotFound,
    NotOwner,
    TaskSettled,
)
from holdfast.runtime.events import TeamUpdate
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.bus import MessageBus
from holdfast.runtime.team.task import BoardTask, Subtask
from holdfast.testing.fakes import FrozenClock


@pytest.fixture
def board() -> TaskBoard:
    return TaskBoard(clock=FrozenClock())


def done(board: TaskBoard, task: BoardTask, result: object = None) -> BoardTask:
    board.claim(task.id, "ada", skills=task.required_skills)
    return board.complete(task.id, "ada", result)


def failed(board: TaskBoard, task: BoardTask) -> BoardTask:
    board.claim(task.id, "ada", skills=task.required_skills)
    return board.fail(task.id, "ada", "no ink")


def moments(events: list[TeamUpdate]) -> list[tuple[str, str | None]]:
    return [(event.event, event.title) for event in events]


def test_a_new_task_is_open_and_nobodys(board: TaskBoard) -> None:
    task = board.create("Count  the\nseals", description="On the rocks.", priority=0)

    assert task.title == "Count the seals"
    assert (task.status, task.claimed_by, task.created_by) == ("open", None, "system")
    assert (task.priority, task.result, task.parent) == (0, None, None)
    assert task.created_at == task.updated_at == 1_767_225_600_000
    assert board.get(task.id) == task


@pytest.mark.parametrize("field", ["depends_on", "parent"])
def test_a_new_task_needs_what_it_names(board: TaskBoard, field: str) -> None:
    named: dict[str, object] = {"depends_on": ["task_x"]} if field == "depends_on" else {}
    parent = "task_x" if field == "parent" else None

    with pytest.raises(NotFound) as caught:
        board.create("Count", parent=parent, **named)  # pyright: ignore[reportArgumentType]

    assert (caught.value.kind, caught.value.id) == ("task", "task_x")
    assert board.list() == []


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("title", " "),
        ("title", "x" * 301),
        ("title", 7),
        ("description", "\ud800"),
        ("priority", -1),
        ("priority", True),
        ("required_skills", [""]),
        ("created_by", ""),
    ],
)
def test_what_a_task_cannot_have_is_named(board: TaskBoard, field: str, given: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        board.create(**({"title": "Count"} | {field: given}))  # pyright: ignore[reportArgumentType]

    assert caught.value.field == field


def test_a_task_is_claimed_started_and_completed(board: TaskBoard) -> None:
    task = board.create("Count")

    claimed = board.claim(task.id, "ada")
    working = board.start(task.id, "ada")
    settled = board.complete(task.id, "ada", {"seals": [12]}, artifacts=["map.png"])

    assert [each.status for each in (claimed, working, settled)] == ["claimed", "working", "done"]
    assert settled.result == {"seals": [12]}
    assert settled.artifacts == ("map.png",)


def test_a_result_is_a_copy_each_time(board: TaskBoard) -> None:
    given = {"seals": [12]}
    task = done(board, board.create("Count"), given)

    given["seals"].append(13)
    task.result["seals"].append(14)

    assert task_on(board, task.id).result == {"seals": [12]}


def test_a_result_that_is_no_json_settles_nothing(board: TaskBoard) -> None:
    task = board.create("Count")
    board.claim(task.id, "ada")

    with pytest.raises(InvalidInput, match=r"\$\.seals"):
        board.complete(task.id, "ada", {"seals": {12}})

    assert task_on(board, task.id).status == "claimed"


def test_a_result_has_a_limit() -> None:
    board = TaskBoard(result_bytes=10)
    task = board.create("Count")
    board.claim(task.id, "ada")

    with pytest.raises(LimitExceeded) as caught:
        board.complete(task.id, "ada", "x" * 9)

    assert (caught.value.allowed, caught.value.actual) == (10, 11)


def test_a_claimed_task_is_refused_to_others_by_name(board: TaskBoard) -> None:
    task = board.create("Count")
    board.claim(task.id, "ada")

    with pytest.raises(ClaimRefused, match="ada has it") as caught:
        board.claim(task.id, "bob")

    assert caught.value.reason == "taken"


def test_a_task_waits_for_what_it_depends_on(board: TaskBoard) -> None:
    first = board.create("Count")
    second = board.create("Report", depends_on=[first.id])

    with pytest.raises(ClaimRefused, match=first.id) as caught:
        board.claim(second.id, "ada")
    done(board, first)
    claimed = board.claim(second.id, "ada")

    assert caught.value.reason == "blocked"
    assert claimed.claimed_by == "ada"


def test_a_failed_dependency_never_lets_go(board: TaskBoard) -> None:
    first = board.create("Count")
    second = board.create("Report", depends_on=[first.id])
    failed(board, first)

    with pytest.raises(ClaimRefused, match="failed") as caught:
        board.claim(second.id, "ada")

    assert caught.value.reason == "blocked"


def test_all_required_skills_must_be_held_whatever_their_case(board: TaskBoard) -> None:
    task = board.create("Query", required_skills=["sql", "french"])

    with pytest.raises(ClaimRefused, match='"french"') as caught:
        board.claim(task.id, "ada", skills=["SQL"])
    claimed = board.claim(task.id, "ada", skills=["SQL", "French"])

    assert caught.value.reason == "skills"
    assert claimed.claimed_by == "ada"


def test_a_settled_task_cannot_be_claimed(board: TaskBoard) -> None:
    task = done(board, board.create("Count"))

    with pytest.raises(ClaimRefused) as caught:
        board.claim(task.id, "bob")

    assert caught.value.reason == "settled"


Act: TypeAlias = Callable[[TaskBoard, str, str], object]

ACTS: dict[str, Act] = {
    "start": lambda board, id, agent: board.start(id, agent),
    "complete": lambda board, id, agent: board.complete(id, agent, 1),
    "fail": lambda board, id, agent: board.fail(id, agent, "no"),
    "release": lambda board, id, agent: board.release(id, agent),
    "block": lambda board, id, agent: board.block(id, agent, "no"),
    "unblock": lambda board, id, agent: board.unblock(id, agent),
    "decompose": lambda board, id, agent: board.decompose(id, agent, [{"title": "Part"}]),
}
LOOKS: dict[str, Act] = {
    "claim": lambda board, id, agent: board.claim(id, agent),
    "subtasks": lambda board, id, _: board.subtasks(id),
}


@pytest.mark.parametrize("act", ACTS)
def test_what_somebody_has_is_touched_by_nobody_else(board: TaskBoard, act: str) -> None:
    task = board.create("Count", created_by="bob")
    claimed = board.claim(task.id, "ada")

    with pytest.raises(NotOwner) as caught:
        ACTS[act](board, task.id, "bob")

    assert caught.value.owner == "ada"
    assert board.list() == [claimed]


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("settle", [done, failed])
def test_what_is_settled_never_changes(
    board: TaskBoard, act: str, settle: Callable[[TaskBoard, BoardTask], BoardTask]
) -> None:
    task = settle(board, board.create("Count"))

    with pytest.raises(TaskSettled) as caught:
        ACTS[act](board, task.id, "ada")

    assert caught.value.status == task.status
    assert board.list() == [task]


def test_a_task_that_is_not_there_is_none(board: TaskBoard) -> None:
    board.create("Count")

    assert board.get("nope") is None


@pytest.mark.parametrize("act", [*ACTS, *LOOKS])
def test_a_task_that_is_not_there_is_not_found(board: TaskBoard, act: str) -> None:
    with pytest.raises(NotFound):
        (ACTS | LOOKS)[act](board, "task_x", "ada")


@pytest.mark.parametrize("act", ["start", "complete", "release", "block", "unblock"])
def test_what_nobody_claimed_has_no_owner(board: TaskBoard, act: str) -> None:
    task = board.create("Count", created_by="ada")

    with pytest.raises(NotOwner) as caught:
        ACTS[act](board, task.id, "ada")

    assert caught.value.owner is None


def test_the_creator_may_fail_what_nobody_claimed(board: TaskBoard) -> None:
    task = board.create("Count", created_by="ada")

    with pytest.raises(NotOwner):
        board.fail(task.id, "bob", "no")
    settled = board.fail(task.id, "ada", "not needed")

    assert (settled.status, settled.failure_reason) == ("failed", "not needed")


def test_a_released_task_is_there_for_others(board: TaskBoard) -> None:
    task = board.create("Count")
    board.claim(task.id, "ada")

    board.release(task.id, "ada")

    assert board.claim(task.id, "bob").claimed_by == "bob"


def test_a_blocked_task_says_why_until_it_goes_on(board: TaskBoard) -> None:
    task = board.create("Count")
    board.claim(task.id, "ada")

    blocked = board.block(task.id, "ada", "fog")
    with pytest.raises(Conflict, match="fog"):
        board.start(task.id, "ada")
    going_on = board.unblock(task.id, "ada")

    assert (blocked.status, blocked.blocked_reason) == ("blocked", "fog")
    assert (going_on.status, going_on.blocked_reason) == ("working", None)


def test_available_is_what_could_be_claimed_by_priority_and_age(board: TaskBoard) -> None:
    first = board.create("First")
    urgent = board.create("Urgent", priority=0)
    board.create("Waiting", depends_on=[first.id])
    skilled = board.create("Skilled", required_skills=["sql"])
    taken = board.create("Taken", priority=0)
    board.claim(taken.id, "bob")

    assert [each.id for each in board.available()] == [urgent.id, first.id]
    assert [each.id for each in board.available(["sql"])] == [urgent.id, first.id, skilled.id]


def test_a_list_is_in_order_of_age_and_of_one_status_if_asked(board: TaskBoard) -> None:
    first, second = board.create("First"), board.create("Second")
    settled = done(board, first)

    assert [each.id for each in board.list()] == [first.id, second.id]
    assert board.list("done") == [settled]
    with pytest.raises(InvalidInput, match="open, claimed"):
        board.list("lost")  # pyright: ignore[reportArgumentType]


def test_a_board_is_complete_when_all_is_settled(board: TaskBoard) -> None:
    empty = board.is_complete()
    first, second = board.create("First"), board.create("Second")
    done(board, first)
    half = board.is_complete()
    failed(board, second)

    assert (empty, half, board.is_complete()) == (False, False, True)


def test_a_decomposed_task_waits_for_its_parts_and_keeps_its_claimant(board: TaskBoard) -> None:
    task = board.create("Report", priority=2)
    board.claim(task.id, "ada")

    parts = board.decompose(
        task.id,
        "ada",
        [{"title": "Count"}, Subtask(title="Write", depends_on=("Count",), priority=0)],
    )

    parent = task_on(board, task.id)
    assert (parent.status, parent.claimed_by) == ("blocked", "ada")
    assert board.subtasks(task.id) == parts
    assert [(part.parent, part.created_by, part.priority) for part in parts] == [
        (task.id, "ada", 2),
        (task.id, "ada", 0),
    ]
    assert parts[1].depends_on == (parts[0].id,)


def test_anybody_may_decompose_an_open_task(board: TaskBoard) -> None:
    task = board.create("Report")

    board.decompose(task.id, "bob", [{"title": "Count"}])

    assert (task_on(board, task.id).status, task_on(board, task.id).claimed_by) == ("blocked", None)


def test_a_task_has_at_least_one_part(board: TaskBoard) -> None:
    task = board.create("Report")

    with pytest.raises(InvalidInput, match="at least one"):
        board.decompose(task.id, "ada", [])


def test_one_bad_part_and_none_is_made(board: TaskBoard) -> None:
    task = board.create("Report")

    with pytest.raises(InvalidInput) as caught:
        board.decompose(task.id, "ada", [{"title": "Count"}, {"title": "Write", "who": "bob"}])
    with pytest.raises(NotFound):
        board.decompose(task.id, "ada", [{"title": "Count"}, {"title": "B", "depends_on": ["x"]}])

    assert caught.value.field == "subtasks[1]"
    assert board.list() == [task]


def test_a_parent_is_done_with_the_results_of_its_parts(board: TaskBoard) -> None:
    task = board.create("Report")
    one, two = board.decompose(task.id, "ada", [{"title": "One"}, {"title": "Two"}])

    done(board, two, "second")
    waiting = task_on(board, task.id).status
    done(board, one, {"n": 1})

    parent = task_on(board, task.id)
    assert (waiting, parent.status) == ("blocked", "done")
    assert parent.result == [
        {"task_id": one.id, "title": "One", "result": {"n": 1}},
        {"task_id": two.id, "title": "Two", "result": "second"},
    ]


def test_a_parent_with_a_failed_part_fails_and_is_never_completed(board: TaskBoard) -> None:
    told: list[TeamUpdate] = []
    task = board.create("Report")
    one, two = board.decompose(task.id, "ada", [{"title": "One"}, {"title": "Two"}])
    board.on_event(told.append)

    failed(board, one)
    waiting = task_on(board, task.id).status
    done(board, two)

    parent = task_on(board, task.id)
    assert (waiting, parent.status, parent.result) == ("blocked", "failed", None)
    assert f"{one.id} (no ink)" in str(parent.failure_reason)
    assert ("task_failed", "Report") in moments(told)
    assert ("task_completed", "Report") not in moments(told)


def test_parents_settle_all_the_way_up(board: TaskBoard) -> None:
    top = board.create("Top")
    (middle,) = board.decompose(top.id, "ada", [{"title": "Middle"}])
    (low,) = board.decompose(middle.id, "ada", [{"title": "Low"}])

    done(board, low, 1)

    assert [each.status for each in board.list()] == ["done", "done", "done"]
    assert task_on(board, top.id).result[0]["result"][0]["result"] == 1


@pytest.mark.parametrize("act", ["start", "complete", "unblock"])
def test_a_parent_is_not_worked_on_beside_its_parts(board: TaskBoard, act: str) -> None:
    task = board.create("Report")
    board.claim(task.id, "ada")
    (part,) = board.decompose(task.id, "ada", [{"title": "Count"}])

    with pytest.raises(Conflict, match=part.id) as caught:
        ACTS[act](board, task.id, "ada")

    assert caught.value.reason == "blocked"


def test_a_released_parent_goes_on_waiting(board: TaskBoard) -> None:
    task = board.create("Report")
    board.claim(task.id, "ada")
    (part,) = board.decompose(task.id, "ada", [{"title": "Count"}])

    board.release(task.id, "ada")
    with pytest.raises(ClaimRefused) as caught:
        board.claim(task.id, "bob")
    done(board, part)

    assert caught.value.reason == "blocked"
    assert task_on(board, task.id).status == "done"


def test_a_part_waits_for_what_its_parent_waited_for(board: TaskBoard) -> None:
    first = board.create("First")
    second = board.create("Second", depends_on=[first.id])

    (part,) = board.decompose(second.id, "ada", [{"title": "Part"}])

    assert part.depends_on == (first.id,)
    assert [each.id for each in board.available()] == [first.id]


def test_a_task_created_below_another_is_one_of_its_parts(board: TaskBoard) -> None:
    top = board.create("Top")

    part = board.create("Part", parent=top.id)

    assert task_on(board, top.id).status == "blocked"
    assert board.subtasks(top.id) == [part]
    done(board, part, 5)
    assert task_on(board, top.id).result == [{"task_id": part.id, "title": "Part", "result": 5}]


def test_nothing_waits_for_what_waits_for_it(board: TaskBoard) -> None:
    top = board.create("Top")
    after = board.create("After", depends_on=[top.id])

    for needed in (top, after):
        with pytest.raises(Conflict, match="waits for it"):
            board.decompose(top.id, "ada", [{"title": "Part", "depends_on": [needed.id]}])

    assert task_on(board, top.id).status == "open"


def test_nothing_failed_is_no_deadlock(board: TaskBoard) -> None:
    first = board.create("First")
    board.create("Second", depends_on=[first.id], required_skills=["unheard of"])

    assert board.deadlock() == []


def test_a_deadlock_is_what_needs_a_failed_task_however_far_off(board: TaskBoard) -> None:
    first = board.create("First")
    second = board.create("Second", depends_on=[first.id])
    third = board.create("Third", depends_on=[second.id])
    board.create("Other")

    failed(board, first)

    assert board.deadlock() == [second.id, third.id]


def test_what_needs_a_parent_that_will_fail_is_in_deadlock_and_the_parent_is_not(
    board: TaskBoard,
) -> None:
    top = board.create("Top")
    after = board.create("After", depends_on=[top.id])
    one, two = board.decompose(top.id, "ada", [{"title": "One"}, {"title": "Two"}])

    failed(board, one)
    before = board.deadlock()
    done(board, two)

    assert before == [after.id]
    assert task_on(board, top.id).status == "failed"


def test_a_parent_whose_part_never_settles_is_in_deadlock(board: TaskBoard) -> None:
    top = board.create("Top")
    one, two = board.decompose(
        top.id, "ada", [{"title": "One"}, {"title": "Two", "depends_on": ["One"]}]
    )

    failed(board, one)

    assert board.deadlock() == [top.id, two.id]


def test_a_deadlock_a_thousand_tasks_deep_is_found(board: TaskBoard) -> None:
    ids = [board.create("0").id]
    for number in range(1, 1_000):
        ids.append(board.create(str(number), depends_on=[ids[-1]]).id)

    failed(board, task_on(board, ids[0]))

    assert board.deadlock() == ids[1:]


def test_every_change_is_told_once_in_order(board: TaskBoard) -> None:
    told: list[TeamUpdate] = []
    off = board.on_event(told.append)
    task = board.create("Count", created_by="bob")
    board.claim(task.id, "ada")
    board.start(task.id, "ada")
    board.block(task.id, "ada", "fog")
    board.unblock(task.id, "ada")
    board.release(task.id, "ada")
    done(board, task, 12)
    off()
    board.create("Unheard")

    assert [(event.event, event.agent, event.content, event.result) for event in told] == [
        ("task_created", "bob", None, None),
        ("task_claimed", "ada", None, None),
        ("task_working", "ada", None, None),
        ("task_blocked", "ada", "fog", None),
        ("task_working", "ada", None, None),
        ("task_released", "ada", None, None),
        ("task_claimed", "ada", None, None),
        ("task_completed", "ada", None, 12),
    ]
    assert [event.seq for event in told] == list(range(1, 9))


def test_a_refused_call_tells_nothing(board: TaskBoard) -> None:
    task = board.create("Count")
    told: list[TeamUpdate] = []
    board.on_event(told.append)

    for act in ACTS.values():
        with pytest.raises(HoldfastError):
            act(board, "task_x", "ada")
    with pytest.raises(NotOwner):
        board.complete(task.id, "ada")

    assert told == []


def test_a_listener_may_change_the_board_and_is_told_after(board: TaskBoard) -> None:
    told: list[TeamUpdate] = []

    def follow_up(event: TeamUpdate) -> None:
        told.append(event)
        if event.event == "task_created" and event.title == "First":
            board.create("Second")

    board.on_event(follow_up)
    board.create("First")

    assert moments(told) == [("task_created", "First"), ("task_created", "Second")]


def test_a_listener_that_raises_is_logged_and_undoes_nothing(
    board: TaskBoard, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[TeamUpdate] = []

    def raises(_: TeamUpdate) -> None:
        raise RuntimeError("no")

    board.on_event(raises)
    board.on_event(told.append)
    task = board.create("Count")

    assert board.list() == [task]
    assert len(told) == 1
    assert "A listener of a team failed." in caplog.text


def test_an_async_listener_is_refused(board: TaskBoard) -> None:
    async def listener(_: TeamUpdate) -> None: ...

    with pytest.raises(InvalidInput, match="plain function"):
        board.on_event(listener)


def test_every_event_has_its_json(board: TaskBoard) -> None:
    told: list[TeamUpdate] = []
    board.on_event(told.append)
    done(board, board.create("Count"), {"n": 1})

    assert '"result":{"n":1}' in told[-1].to_json()


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


T = TypeVar("T")

THREADS = 8


def race(work: Callable[[int], T], threads: int = THREADS) -> list[T]:
    """Let *work* begin in all threads at one moment; return what each came to."""
    barrier = Barrier(threads)

    def begin(number: int) -> T:
        barrier.wait(timeout=60)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def test_a_task_is_had_by_one_alone() -> None:
    board = TaskBoard()
    tasks = [board.create(str(number)) for number in range(50)]

    def claim_all(number: int) -> list[str]:
        won: list[str] = []
        for task in tasks:
            try:
                won.append(board.claim(task.id, f"agent {number}").id)
            except ClaimRefused:
                continue
        return won

    won = [id for ids in race(claim_all) for id in ids]

    assert sorted(won) == sorted(task.id for task in tasks)


def test_a_parent_settles_once_whichever_part_is_last() -> None:
    board = TaskBoard()
    told: list[TeamUpdate] = []
    board.on_event(told.append)
    parents = [board.create(str(number)) for number in range(30)]
    parts = {
        task.id: board.decompose(task.id, "ada", [{"title": str(n)} for n in range(THREADS)])
        for task in parents
    }

    def settle(number: int) -> None:
        for task in parents:
            part = parts[task.id][number]
            board.claim(part.id, "ada")
            if number == 0:
                board.fail(part.id, "ada", "no")
            else:
                board.complete(part.id, "ada", number)

    race(settle)

    settled = Counter(event.task_id for event in told if event.event == "task_failed")
    assert {task_on(board, task.id).status for task in parents} == {"failed"}
    assert all(settled[task.id] == 1 for task in parents)


def test_a_settled_task_is_settled_once() -> None:
    board = TaskBoard()
    tasks = [board.create(str(number)) for number in range(50)]
    for task in tasks:
        board.claim(task.id, "ada")

    def settle(number: int) -> int:
        wins = 0
        for task in tasks:
            try:
                if number % 2:
                    board.complete(task.id, "ada", number)
                else:
                    board.fail(task.id, "ada", str(number))
                wins += 1
            except TaskSettled:
                pass
        return wins

    assert sum(race(settle)) == len(tasks)


def test_changes_are_told_in_the_order_they_were_made() -> None:
    board = TaskBoard()
    told: list[TeamUpdate] = []
    board.on_event(told.append)

    race(lambda number: [board.create(f"{number}.{each}") for each in range(50)])

    assert [event.seq for event in told] == list(range(1, THREADS * 50 + 1))
    assert [event.task_id for event in told] == [task.id for task in board.list()]


def test_no_message_is_lost_or_had_twice_while_others_write() -> None:
    bus = MessageBus()
    bus.register("ada")
    got: list[str] = []

    def work(number: int) -> None:
        for each in range(100):
            if number == 0:
                got.extend(message.body for message in bus.receive("ada"))
            else:
                bus.send(f"agent {number}", "ada", "Seals", f"{number}.{each}")

    race(work)
    got.extend(message.body for message in bus.receive("ada"))

    assert Counter(got) == Counter(f"{n}.{each}" for n in range(1, THREADS) for each in range(100))
