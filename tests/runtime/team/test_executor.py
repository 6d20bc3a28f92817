"""A team at work: turns, tasks and messages from the objective to the result."""

import asyncio
import json
from typing import Any

import pytest
from teams import (
    LAY_OUT,
    REMIND,
    a_team,
    all_events,
    an_agent,
    asked_of,
    claimable,
    complete,
    create,
    idle,
    leading,
    messages,
    mine,
    opening,
    updates,
    work,
)

from holdfast.errors import AgentNameTaken, InvalidInput, NoModel, ToolNameTaken
from holdfast.memories.state import history as messages_of
from holdfast.runtime import Agent, AgentHooks, AgentStart, InferenceResult, McpServer, TaskBoard
from holdfast.runtime.context import Context
from holdfast.runtime.events import LogUpdate, RunUpdate, TeamUpdate, ToolResultUpdate, from_json
from holdfast.runtime.team.executor import TeamExecutor
from holdfast.testing.scripted import Asked, call

pytestmark = pytest.mark.anyio


async def test_what_the_first_lays_out_is_done_and_kept_in_memory() -> None:
    team = a_team(an_agent("ada", leading([create("Count"), create("Report")])), an_agent("bob"))

    result = await team.run()

    assert result.status == "completed"
    assert [task.title for task in result.done] == ["Count", "Report"]
    assert result.result == [
        {"task_id": task.id, "title": task.title, "result": f"{task.title} is done"}
        for task in result.done
    ]
    for task in result.done:
        entry = team.context.memory.get(f"task:{task.id}")
        assert entry is not None
        assert (entry.kind, entry.source, entry.title) == ("task_result", task.id, task.title)
        assert entry.value == f"{task.title} is done"


async def test_one_top_level_task_gives_its_bare_result() -> None:
    team = a_team(an_agent("ada"), strategy="autonomous")

    result = await team.run()

    (task,) = result.done
    assert (task.title, task.description) == ("Count the seals.", "Count the seals.")
    assert task.priority == 0
    assert result.result == "Count the seals. is done"


async def test_the_stream_begins_and_ends_with_the_run_and_closes_the_team() -> None:
    team = a_team(an_agent("ada", leading([create("Count")])), an_agent("bob"))

    events = await all_events(team)

    first, *_, complete, last = events
    assert isinstance(first, RunUpdate)
    assert (first.event, first.executor) == ("started", "team")
    assert isinstance(complete, TeamUpdate)
    assert (complete.event, complete.content) == ("team_complete", "completed")
    assert isinstance(last, RunUpdate)
    assert (last.event, last.result) == ("completed", "Count is done")
    assert [event.seq for event in events] == sorted(event.seq for event in events)
    assert {event.run_id for event in events} == {team.context.run_id}


async def test_board_and_bus_are_told_in_the_stream() -> None:
    def tell(asked: Asked) -> object:
        if LAY_OUT in opening(asked):
            return [create("Count"), call("send_message", to="bob", subject="Seals", body="Go on.")]
        return "Done."

    team = a_team(an_agent("ada", tell), an_agent("bob"))

    events = await all_events(team)

    told = [event.event for event in updates(events)]
    assert told.index("task_created") < told.index("message_sent") < told.index("task_claimed")
    assert told.index("task_working") < told.index("task_completed") < told.index("team_complete")
    (sent,) = updates(events, "message_sent")
    assert (sent.agent, sent.to, sent.title, sent.content) == ("ada", "bob", "Seals", "Go on.")
    (done,) = updates(events, "task_completed")
    assert done.result == "Count is done"


async def test_every_event_has_its_way_to_json_and_back() -> None:
    team = a_team(an_agent("ada", leading([create("Count")])), an_agent("bob"))

    for event in await all_events(team):
        assert json.loads(event.to_json())["type"] == event.type
        assert from_json(event.to_json()).seq == event.seq


async def test_workable_agents_take_their_turns_at_once() -> None:
    meeting = asyncio.Barrier(3)

    async def meet(asked: Asked) -> object:
        if opening(asked) and claimable(asked):
            async with asyncio.timeout(30):
                await meeting.wait()
        return work(asked)

    plan = [create(str(number)) for number in range(3)]
    team = a_team(
        an_agent("ada", leading(plan, meet)), an_agent("bob", meet), an_agent("cleo", meet)
    )

    async with asyncio.timeout(60):
        result = await team.run()

    assert result.status == "completed"


@pytest.mark.parametrize("where", ["executor", "context"])
async def test_no_more_turns_are_taken_at_once_than_the_cap(where: str) -> None:
    at_once, most = 0, 0

    async def count(asked: Asked) -> object:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return work(asked)

    plan = [create(str(number)) for number in range(8)]
    team = a_team(
        an_agent("ada", leading(plan, count)),
        *(an_agent(name, count) for name in ("bob", "cleo", "dora")),
        context=Context(max_concurrency=2 if where == "context" else 5),
        max_concurrency=2 if where == "executor" else 5,
    )

    result = await team.run()

    assert result.status == "completed"
    assert most == 2


async def test_an_agent_has_one_turn_at_a_time() -> None:
    running: dict[str, int] = {}

    def watched(name: str) -> Agent:
        async def act(asked: Asked) -> object:
            assert running.get(name, 0) == 0
            running[name] = 1
            await asyncio.sleep(0)
            running[name] = 0
            return work(asked)

        return an_agent(name, leading(plan, act) if name == "ada" else act)

    plan = [create(str(number)) for number in range(6)]
    team = a_team(watched("ada"), watched("bob"))

    assert (await team.run()).status == "completed"


async def test_two_agents_never_hold_one_task() -> None:
    plan = [create(str(number)) for number in range(5)]
    names = ("ada", "bob", "cleo", "dora")
    team = a_team(*(an_agent(name, leading(plan)) for name in names))

    events = await all_events(team)

    claims = [event.task_id for event in updates(events, "task_claimed")]
    assert len(claims) == len(set(claims)) == 5


async def test_work_waits_for_what_it_depends_on() -> None:
    def lead(asked: Asked) -> object:
        if LAY_OUT in opening(asked):
            return create("Count")
        if len(team.board.list()) == 1 and not mine(asked) and not claimable(asked):
            return create("Report", depends_on=[team.board.list()[0].id])
        return work(asked)

    team = a_team(an_agent("ada", lead), an_agent("bob"))

    events = await all_events(team)

    told = [(each.event, each.title) for each in updates(events)]
    assert told.index(("task_completed", "Count")) < told.index(("task_claimed", "Report"))


async def test_who_claims_is_told_what_to_read_first() -> None:
    board = TaskBoard()
    first = board.create("Count")
    board.create("Report", depends_on=[first.id])
    ada = an_agent("ada")
    team = a_team(ada, strategy="autonomous", board=board)

    await team.run()

    said = "".join(each.text for each in asked_of(ada))
    assert f"'read_first': ['task:{first.id}']" in said


async def test_only_the_coordinator_creates_tasks() -> None:
    def meddle(asked: Asked) -> object:
        return create("Mine") if claimable(asked) else "Refused, then."

    bob = an_agent("bob", meddle)
    team = a_team(an_agent("ada", leading([create("Count")])), bob)

    result = await team.run()

    assert [task.title for task in result.done] == ["Count"]
    assert "not_permitted" in asked_of(bob)[1].text


@pytest.mark.parametrize("strategy", ["hybrid", "autonomous"])
async def test_elsewhere_everybody_does(strategy: str) -> None:
    def add(asked: Asked) -> object:
        if claimable(asked) and len(team.board.list()) == 1:
            return create("Mine")
        return work(asked)

    team = a_team(
        an_agent("ada", leading([create("Count")])), an_agent("bob", add), strategy=strategy
    )

    result = await team.run()

    assert result.status == "completed"
    assert "Mine" in [task.title for task in result.done]


async def test_who_lays_out_nothing_is_reminded_once() -> None:
    def late(asked: Asked) -> object:
        return create("Count") if REMIND in opening(asked) else work(asked)

    ada = an_agent("ada", late)
    team = a_team(ada, an_agent("bob"))

    result = await team.run()

    assert [task.title for task in result.done] == ["Count"]
    assert sum(REMIND in opening(asked) for asked in asked_of(ada)) == 1


async def test_without_any_plan_the_objective_is_the_only_task() -> None:
    team = a_team(an_agent("ada", idle), an_agent("bob"), objective="Count the seals. " * 20)

    events = await all_events(team)

    (task,) = team.get_result().done
    assert len(task.title) == 80
    assert task.description == ("Count the seals. " * 20).strip()
    warnings = [each for each in events if isinstance(each, LogUpdate)]
    assert any("ada laid out no task" in each.content for each in warnings)


async def test_a_board_with_tasks_needs_no_laying_out() -> None:
    board = TaskBoard()
    task = board.create("Count")
    ada = an_agent("ada")
    team = a_team(ada, an_agent("bob"), board=board)

    result = await team.run()

    assert [each.id for each in result.done] == [task.id]
    assert not any(LAY_OUT in opening(asked) for asked in asked_of(ada))


async def test_what_was_done_before_is_there_to_be_read() -> None:
    board = TaskBoard()
    first = board.create("Count")
    board.claim(first.id, "zoe")
    board.complete(first.id, "zoe", 12)
    board.create("Report", depends_on=[first.id])
    team = a_team(an_agent("ada"), strategy="autonomous", board=board)

    await team.run()

    assert team.context.memory.get_value(f"task:{first.id}") == 12


async def test_a_decomposed_task_is_done_by_its_parts() -> None:
    def part(asked: Asked) -> object:
        held = mine(asked) or [{"id": ""}]
        if held[0].get("status") == "working" and len(team.board.list()) == 1:
            parts = [{"title": "North"}, {"title": "South"}]
            return call("decompose_task", task_id=held[0]["id"], subtasks=parts)
        if len(team.board.list()) == 1 and claimable(asked):
            return call("claim_task", task_id=claimable(asked)[0]["id"])
        return work(asked) if len(team.board.list()) > 1 else "Next turn."

    team = a_team(an_agent("ada", part), an_agent("bob", idle), strategy="autonomous")

    result = await team.run()

    assert result.status == "completed"
    assert [each["title"] for each in result.result] == ["North", "South"]
    top = result.done[0]
    assert team.context.memory.get_value(f"task:{top.id}") == result.result


async def test_a_failed_parent_is_not_a_result() -> None:
    board = TaskBoard()
    top = board.create("Report")
    north, south = board.decompose(top.id, "system", [{"title": "North"}, {"title": "South"}])

    def act(asked: Asked) -> object:
        held = mine(asked) or claimable(asked)
        if held and held[0]["id"] == south.id:
            board.claim(south.id, "ada")
            return call("fail_task", task_id=south.id, reason="fog")
        return work(asked)

    team = a_team(an_agent("ada", act), strategy="autonomous", board=board)

    events = await all_events(team)

    result = team.get_result()
    assert (result.status, result.result) == ("failed", None)
    assert [(each.id, each.failure_reason) for each in result.failed][1] == (south.id, "fog")
    assert [each.id for each in result.done] == [north.id]
    assert not team.context.memory.has(f"task:{top.id}")
    assert not team.context.memory.has(f"task:{south.id}")
    settled = [(each.event, each.task_id) for each in updates(events) if each.task_id == top.id]
    assert ("task_failed", top.id) in settled
    assert ("task_completed", top.id) not in settled


async def test_a_team_with_a_failed_task_has_failed_and_keeps_what_is_done() -> None:
    def act(asked: Asked) -> object:
        held = mine(asked)
        if held and held[0]["title"] == "Paint":
            return call("fail_task", task_id=held[0]["id"], reason="no brush")
        if free := claimable(asked):
            return call("claim_task", task_id=free[0]["id"])
        return work(asked) if held else "Next turn."

    team = a_team(
        an_agent("ada", leading([create("Count"), create("Paint")], act)), an_agent("bob", act)
    )

    events = await all_events(team)

    result = team.get_result()
    assert (result.status, result.result) == ("failed", "Count is done")
    assert [each.failure_reason for each in result.failed] == ["no brush"]
    last = events[-1]
    assert isinstance(last, RunUpdate)
    assert (last.event, last.reason) == ("failed", "steps")


async def test_the_watch_on_the_board_ends_with_the_run() -> None:
    board = TaskBoard()
    board.create("Count")
    team = a_team(an_agent("ada"), strategy="autonomous", board=board)
    await team.run()

    late = board.create("Late")
    board.claim(late.id, "ada")
    board.complete(late.id, "ada", 1)

    assert not team.context.memory.has(f"task:{late.id}")


async def test_a_turn_has_so_many_requests_and_the_next_goes_on_where_it_was() -> None:
    def look(asked: Asked) -> object:
        if len(asked_of(ada)) <= 4:
            return call("list_tasks")
        return work(asked)

    ada = an_agent("ada", look)
    team = a_team(ada, strategy="autonomous", max_iterations=2)

    events = await all_events(team)

    assert team.get_result().status == "completed"
    assert [bool(opening(asked)) for asked in asked_of(ada)[:5]] == [True, False] * 2 + [True]
    assert len(asked_of(ada)[4].messages) > len(asked_of(ada)[2].messages)
    assert len(updates(events, "agent_started")) >= 3


async def test_a_tool_that_raises_is_answered_and_the_turn_goes_on() -> None:
    def seals() -> int:
        raise ValueError("the camera is off")

    def act(asked: Asked) -> object:
        return (
            call("seals")
            if opening(asked) and claimable(asked) and len(asked_of(ada)) == 1
            else work(asked)
        )

    ada = an_agent("ada", act)
    team = a_team(ada, strategy="autonomous", tools=[seals])

    events = await all_events(team)

    assert team.get_result().status == "completed"
    assert "the camera is off" in asked_of(ada)[1].text
    results = [each for each in events if isinstance(each, ToolResultUpdate)]
    assert [each.ok for each in results if each.name == "seals"] == [False]


async def test_the_system_text_says_who_is_who_and_how_to_read_memory() -> None:
    ada = an_agent("ada", leading([create("Count")]))
    bob = an_agent("bob", skills=("sql",), role="analyst")
    team = a_team(ada, bob, objective="Count $the seals.")

    await team.run()

    told = asked_of(bob)[0].instructions
    assert told.startswith("I am bob.")
    assert "You are bob" in told
    assert "Count $the seals." in told
    assert "- ada: It is ada." in told
    assert "- bob (you; analyst; skills: sql): It is bob." in told
    assert "ada alone creates them" in told
    assert "## Shared Memory (progressive disclosure)" in told
    assert "## Memory Tools" not in told


async def test_each_agent_has_its_own_tools_and_the_teams() -> None:
    def camera() -> int:
        return 12

    def map_of() -> str:
        return "rocks"

    ada = an_agent("ada", leading([create("Count")]), tools=[camera])
    bob = an_agent("bob")
    team = a_team(ada, bob, tools=[map_of])

    await team.run()

    assert "camera" in asked_of(ada)[0].offered
    assert "camera" not in asked_of(bob)[0].offered
    for name in ("send_message", "claim_task", "memory_list", "memory_read", "map_of"):
        assert name in asked_of(bob)[0].offered


async def test_an_agent_that_is_switched_off_has_no_turn() -> None:
    bob = an_agent("bob", hooks=AgentHooks(enabled=False))
    team = a_team(an_agent("ada", leading([create("Count")])), bob)

    result = await team.run()

    assert result.status == "completed"
    assert asked_of(bob) == []


async def test_who_is_switched_off_is_named_when_nothing_goes_on() -> None:
    bob = an_agent("bob", hooks=AgentHooks(enabled=lambda _agent, _run: False), skills=("sql",))
    team = a_team(an_agent("ada", leading([create("Count", required_skills=["sql"])])), bob)

    events = await all_events(team)

    (stalled,) = updates(events, "stalled")
    assert "could be claimed by bob, who is switched off" in str(stalled.content)


async def test_instructions_may_be_a_function_of_the_run() -> None:
    def instructions(run: Context) -> str:
        return f"This is {run.run_id}."

    ada = an_agent("ada", instructions=instructions)
    team = a_team(ada, strategy="autonomous", context=Context(run_id="run_1"))

    await team.run()

    assert asked_of(ada)[0].instructions.startswith("This is run_1.")


async def test_an_agent_without_a_description_is_warned_of() -> None:
    team = a_team(an_agent("ada", description=""), strategy="autonomous")

    events = await all_events(team)

    warnings = [each.content for each in events if isinstance(each, LogUpdate)]
    assert any("ada has no description" in each for each in warnings)


async def test_what_the_user_says_meanwhile_is_a_message() -> None:
    def act(asked: Asked) -> object:
        if claimable(asked):
            context.steer("Only the young ones.")
        return work(asked)

    context = Context()
    ada = an_agent("ada", act)
    team = a_team(ada, strategy="autonomous", context=context, max_iterations=1)

    await team.run()

    said = [each["body"] for asked in asked_of(ada) for each in messages(asked)]
    assert said == ["Only the young ones."]


async def test_what_is_spent_is_counted() -> None:
    ada = an_agent("ada")
    team = a_team(ada, strategy="autonomous")

    await team.run()

    assert team.context.usage.requests == len(asked_of(ada)) == 3


def test_a_script_needs_no_event_loop() -> None:
    team = a_team(an_agent("ada"), strategy="autonomous")

    assert team.run_sync().status == "completed"


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("agents", {"agents": [an_agent("ada")]}),
        ("agents", {"agents": [], "strategy": "autonomous"}),
        ("strategy", {"strategy": "anarchy"}),
        ("objective", {"objective": " "}),
        ("max_turns", {"max_turns": 0}),
        ("max_concurrency", {"max_concurrency": 0}),
        ("max_iterations", {"max_iterations": True}),
    ],
)
def test_what_no_team_can_be_is_named(field: str, told: dict[str, object]) -> None:
    usual = {"agents": [an_agent("ada"), an_agent("bob")], "objective": "o", "context": Context()}

    with pytest.raises(InvalidInput) as caught:
        TeamExecutor(**(usual | told))  # pyright: ignore[reportArgumentType]

    assert caught.value.field == field


def test_two_agents_have_two_names() -> None:
    with pytest.raises(AgentNameTaken):
        a_team(an_agent("ada"), an_agent("ada"))


def test_an_agent_needs_a_model() -> None:
    with pytest.raises(NoModel, match="bob"):
        a_team(an_agent("ada"), an_agent("bob", model=None))


def test_a_tool_named_as_one_of_the_teams_is_refused() -> None:
    def claim_task() -> None: ...

    with pytest.raises(ToolNameTaken, match="claim_task"):
        a_team(an_agent("ada", tools=[claim_task]), an_agent("bob"))


async def test_a_model_is_found_nearest_first() -> None:
    bare = an_agent("bob", model=None)
    team = a_team(bare, strategy="autonomous", context=Context(model=an_agent("x").model))

    assert (await team.run()).status == "completed"


async def test_completing_gives_what_the_model_said() -> None:
    def act(asked: Asked) -> object:
        if held := mine(asked):
            return complete(held[0], {"seals": 12})
        return work(asked) if opening(asked) else "Claimed."

    team = a_team(an_agent("ada", act), strategy="autonomous")

    assert (await team.run()).result == {"seals": 12}


async def test_a_hook_may_put_other_words_before_an_agent_but_not_the_rules_away() -> None:
    def start(start: AgentStart) -> dict[str, Any]:
        told = messages_of.user("Only count.")
        return {"prompt": (messages_of.system("Be brief."), told, *start.prompt[1:])}

    ada = an_agent("ada", work, hooks=AgentHooks(on_start=start))
    team = a_team(ada, strategy="autonomous", max_iterations=1, max_turns=2)

    await team.run()

    first, second = asked_of(ada)
    assert first.instructions.startswith("Be brief.")
    assert "## Shared Memory" in first.instructions
    assert first.text.count("Only count.") == 1
    # The next turn begins with the answer to the last call of the first.
    assert "claim_task" in [getattr(p, "tool_name", "") for m in second.messages for p in m.parts]


async def test_hooks_see_each_reply_and_the_end_of_a_turn() -> None:
    seen: list[str] = []

    def heard(result: InferenceResult, run: Context) -> None:
        seen.append(f"reply in {run.run_id} of {result.agent}")

    def finished(_result: InferenceResult, _run: Context) -> None:
        seen.append("end")

    hooks = AgentHooks(on_response=heard, on_finish=finished)
    ada = an_agent("ada", hooks=hooks)
    team = a_team(ada, strategy="autonomous", context=Context(run_id="run_1"))

    await team.run()

    assert seen == ["reply in run_1 of ada"] * 3 + ["end"]


@pytest.mark.parametrize("what", ["raises", "stops"])
async def test_a_hook_that_lets_no_turn_begin_benches_its_agent(what: str) -> None:
    def start(_: AgentStart) -> dict[str, Any]:
        if what == "stops":
            return {"stop": True}
        raise ValueError("no")

    ada = an_agent("ada", hooks=AgentHooks(on_start=start))
    team = a_team(ada, strategy="autonomous")

    events = await all_events(team)

    assert asked_of(ada) == []
    assert len(updates(events, "agent_benched")) == 1
    errors = [each.content for each in events if isinstance(each, LogUpdate)]
    assert any("on_start" in each for each in errors)


async def test_a_server_that_cannot_be_reached_is_told_once_whoever_has_turns() -> None:
    server = McpServer("far", command="/nonexistent/server", timeout=60)
    team = a_team(
        an_agent("ada", leading([create("Look")])), an_agent("bob", work), toolsets=[server]
    )

    events = await all_events(team)

    told = [each for each in events if isinstance(each, LogUpdate)]
    assert [each.content.partition(" cannot")[0] for each in told] == ["the MCP server far"]
    assert team.get_result().status == "completed"
