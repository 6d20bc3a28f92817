"""The nine tools of a team, as a model would call them."""

from typing import Any, cast

import pytest
from teams import task_on

from holdfast import tools
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.bus import MessageBus
from holdfast.runtime.team.tools import team_tools
from holdfast.tools.base import Tool

Answer = dict[str, Any]
NAMES = [
    *("send_message", "broadcast", "check_messages", "create_task", "list_tasks"),
    *("claim_task", "complete_task", "fail_task", "decompose_task"),
]


@pytest.fixture
def board() -> TaskBoard:
    return TaskBoard()


@pytest.fixture
def bus() -> MessageBus:
    bus = MessageBus()
    bus.register("bob")
    bus.register("cleo")
    return bus


@pytest.fixture
def table(board: TaskBoard, bus: MessageBus) -> dict[str, Tool]:
    return tools.lay_out(team_tools(board, bus, "ada", ["sql"]))


def answer(table: dict[str, Tool], name: str, /, **arguments: object) -> Answer:
    return cast("Answer", table[name].call(arguments))


def error(table: dict[str, Tool], name: str, /, **arguments: object) -> Answer:
    told = answer(table, name, **arguments)
    assert set(told) == {"error"}
    assert set(told["error"]) == {"type", "message", "next", "field"}
    return cast("Answer", told["error"])


def test_there_are_exactly_nine(table: dict[str, Tool]) -> None:
    assert list(table) == NAMES
    for tool in table.values():
        assert tool.id == f"team.{tool.name}"
        assert tool.description
        assert tool.parameters["additionalProperties"] is False


def test_a_message_is_from_the_agent_and_no_other(table: dict[str, Tool], bus: MessageBus) -> None:
    told = answer(table, "send_message", to="bob", subject="Seals", body="12", type="request")

    (message,) = bus.receive("bob")
    assert told == {"ok": True, "message_id": message.id, "to": "bob"}
    assert (message.sender, message.type) == ("ada", "request")


def test_nobody_can_be_named_as_the_sender(table: dict[str, Tool]) -> None:
    told = error(table, "send_message", to="bob", subject="Seals", body="12", sender="cleo")

    assert told["type"] == "invalid_input"
    assert "sender" in told["message"]


def test_an_unknown_teammate_is_answered_with_those_there_are(table: dict[str, Tool]) -> None:
    told = error(table, "send_message", to="dora", subject="Seals", body="12")

    assert told["type"] == "not_found"
    assert "bob, cleo, ada" in told["next"]


def test_an_agent_does_not_write_to_itself(table: dict[str, Tool]) -> None:
    told = error(table, "send_message", to="ada", subject="Seals", body="12")

    assert (told["type"], told["field"]) == ("invalid_input", "to")


def test_a_message_about_a_task_needs_that_task(table: dict[str, Tool]) -> None:
    told = error(table, "send_message", to="bob", subject="Seals", body="12", task_id="task_x")

    assert told["type"] == "not_found"


def test_a_broadcast_reaches_all_teammates(table: dict[str, Tool], bus: MessageBus) -> None:
    told = answer(table, "broadcast", subject="Seals", body="12")

    assert told["ok"] is True
    assert [bus.pending_count(name) for name in ("ada", "bob", "cleo")] == [0, 1, 1]


def test_messages_are_shown_once(table: dict[str, Tool], bus: MessageBus) -> None:
    sent = bus.send("bob", "ada", "Seals", "12")

    first = answer(table, "check_messages")
    second = answer(table, "check_messages")

    assert first["messages"] == [
        {"id": sent.id, "from": "bob", "type": "info", "subject": "Seals", "body": "12"}
    ]
    assert second == {"messages": []}


def test_a_task_is_created_by_the_agent(table: dict[str, Tool], board: TaskBoard) -> None:
    first = board.create("Count")

    told = answer(
        table,
        "create_task",
        title="Report",
        description="One page.",
        depends_on=first.id,
        required_skills=["sql"],
        priority=0,
    )

    task = task_on(board, told["task_id"])
    assert told["ok"] is True
    assert (task.created_by, task.description, task.priority) == ("ada", "One page.", 0)
    assert (task.depends_on, task.required_skills) == ((first.id,), ("sql",))


def test_null_counts_as_left_out(table: dict[str, Tool], board: TaskBoard) -> None:
    told = answer(
        table, "create_task", title="Count", description=None, depends_on=None, priority=None
    )

    assert task_on(board, told["task_id"]).priority == 5


def test_a_list_tells_all_but_results(table: dict[str, Tool], board: TaskBoard) -> None:
    task = board.create("Count")
    board.claim(task.id, "bob")
    board.complete(task.id, "bob", "secret")
    board.create("Report")

    told = answer(table, "list_tasks")

    assert told["total"] == 2
    assert [each["title"] for each in told["tasks"]] == ["Report", "Count"]
    assert told["tasks"][1]["result_bytes"] == 8
    assert "secret" not in str(told)


def test_a_list_is_narrowed_by_status_and_by_what_can_be_claimed(
    table: dict[str, Tool], board: TaskBoard
) -> None:
    first = board.create("Count")
    board.create("Report", depends_on=[first.id])
    board.create("Paint", required_skills=["brush"])
    board.create("Query", required_skills=["sql"], priority=0)

    free = answer(table, "list_tasks", available_only=True)
    none = answer(table, "list_tasks", status="done")

    assert [each["title"] for each in free["tasks"]] == ["Query", "Count"]
    assert none == {"tasks": [], "total": 0}


def test_a_long_list_says_what_it_leaves_out(table: dict[str, Tool], board: TaskBoard) -> None:
    for number in range(205):
        board.create(str(number), description="x" * 241)

    told = answer(table, "list_tasks")

    assert (len(told["tasks"]), told["total"], told["left_out"]) == (200, 205, 5)
    assert told["tasks"][0]["description"] == "x" * 240 + "…"


def test_to_claim_is_to_start_and_to_know_what_to_read(
    table: dict[str, Tool], board: TaskBoard
) -> None:
    first = board.create("Count")
    board.claim(first.id, "bob")
    board.complete(first.id, "bob", 12)
    task = board.create("Report", depends_on=[first.id], description="x" * 300)

    told = answer(table, "claim_task", task_id=task.id)

    assert (task_on(board, task.id).status, task_on(board, task.id).claimed_by) == (
        "working",
        "ada",
    )
    assert told["task"]["description"] == "x" * 300
    assert told["read_first"] == [f"task:{first.id}"]


def test_a_refused_claim_says_why(table: dict[str, Tool], board: TaskBoard) -> None:
    task = board.create("Paint", required_skills=["brush"])

    told = error(table, "claim_task", task_id=task.id)

    assert told["type"] == "claim_refused"
    assert '"brush"' in told["message"]


@pytest.mark.parametrize("result", [None, 0, "", {"a": [1]}])
def test_a_task_is_completed_with_any_json(
    table: dict[str, Tool], board: TaskBoard, result: object
) -> None:
    task = board.create("Count")
    answer(table, "claim_task", task_id=task.id)

    told = answer(table, "complete_task", task_id=task.id, result=result, artifacts=["map.png"])

    assert told == {"ok": True, "task_id": task.id, "status": "done"}
    assert task_on(board, task.id).result == result
    assert task_on(board, task.id).artifacts == ("map.png",)


def test_a_task_is_not_completed_without_a_result(table: dict[str, Tool], board: TaskBoard) -> None:
    task = board.create("Count")
    answer(table, "claim_task", task_id=task.id)

    told = error(table, "complete_task", task_id=task.id)

    assert "result" in told["message"]
    assert task_on(board, task.id).status == "working"


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("complete_task", {"result": 1}),
        ("fail_task", {"reason": "no"}),
        ("decompose_task", {"subtasks": [{"title": "Part"}]}),
    ],
)
def test_what_a_teammate_has_is_left_to_it(
    table: dict[str, Tool], board: TaskBoard, name: str, more: dict[str, object]
) -> None:
    task = board.create("Count")
    claimed = board.claim(task.id, "bob")

    told = error(table, name, task_id=task.id, **more)

    assert told["type"] == "not_owner"
    assert "bob" in told["message"]
    assert board.get(task.id) == claimed


def test_a_task_fails_with_its_reason(table: dict[str, Tool], board: TaskBoard) -> None:
    task = board.create("Count")
    answer(table, "claim_task", task_id=task.id)

    told = answer(table, "fail_task", task_id=task.id, reason="fog")

    assert told == {"ok": True, "task_id": task.id, "status": "failed"}
    assert task_on(board, task.id).failure_reason == "fog"


def test_a_task_is_parted(table: dict[str, Tool], board: TaskBoard) -> None:
    task = board.create("Report")
    answer(table, "claim_task", task_id=task.id)

    told = answer(
        table,
        "decompose_task",
        task_id=task.id,
        subtasks=[{"title": "Count"}, {"title": "Write", "depends_on": "Count"}],
    )

    parts = board.subtasks(task.id)
    assert told == {
        "ok": True,
        "task_id": task.id,
        "subtask_ids": [part.id for part in parts],
    }
    assert parts[1].depends_on == (parts[0].id,)


def test_a_parent_is_not_completed_beside_its_parts(
    table: dict[str, Tool], board: TaskBoard
) -> None:
    task = board.create("Report")
    answer(table, "claim_task", task_id=task.id)
    answer(table, "decompose_task", task_id=task.id, subtasks=[{"title": "Count"}])

    told = error(table, "complete_task", task_id=task.id, result=1)

    assert told["type"] == "conflict"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "arguments",
    [[], "x", {"title": 7}, {"task_id": ["x"]}, {"to": "\ud800", "subject": "x", "body": "x"}],
)
def test_nonsense_is_answered_and_never_raised(
    table: dict[str, Tool], name: str, arguments: object
) -> None:
    told = cast("Answer", table[name].call(arguments))

    assert told["error"]["type"] in ("invalid_input", "not_found")


def test_two_agents_have_different_hands(board: TaskBoard, bus: MessageBus) -> None:
    mine = tools.lay_out(team_tools(board, bus, "ada"))
    theirs = tools.lay_out(team_tools(board, bus, "bob"))
    task = board.create("Count")

    answer(mine, "claim_task", task_id=task.id)
    refused = error(theirs, "claim_task", task_id=task.id)

    assert "ada has it" in refused["message"]
