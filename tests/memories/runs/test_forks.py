"""Forks of runs: what is copied, what runs again, and what stays as it is."""

from datetime import UTC, datetime
from itertools import count
from typing import Any, Final, LiteralString

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.ground.errors import NotFound
from holdfast.ground.json_values import hashed
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.history.turns import KeptTurn, open_turns
from holdfast.memories.run.history.versions import (
    State,
    StateRow,
    VersionSave,
    entry_in,
    entry_row,
    save_version,
    state_at,
)
from holdfast.memories.run.keys import kind_of
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.parts import PartGraph, PartRow, Touch
from holdfast.memories.run.records.question import Question
from holdfast.memories.run.records.record import RunAcquisition, RunReport
from holdfast.memories.run.records.write import begin, statements, take
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.thread import ThreadTurn, message_id
from holdfast.testing.contracts.history import THREAD, made, said

ORIGINAL: Final[tuple[LiteralString, ...]] = (
    "select * from runs where id = 'run_1' order by workspace",
    "select * from run_entries where run_id = 'run_1' order by workspace, key",
    "select * from run_events where run_id = 'run_1' order by workspace, seq",
    "select * from run_parts where run_id = 'run_1' order by workspace, kind, id",
    "select * from run_versions where run_id = 'run_1' order by workspace, number",
    "select * from run_version_rows where run_id = 'run_1' order by workspace, kind, key, number",
    "select * from run_turns where run_id = 'run_1' order by workspace, part, n",
    "select * from run_questions where run_id = 'run_1' order by workspace, id",
)
"""All rows of the run that is forked."""

DONE: Final = b'{"state":"completed"}'


class Life:
    """The run `run_1` of *hf*, whose events and versions a test stores."""

    def __init__(self, hf: Holdfast, **more: Any) -> None:
        self.hf, self.numbers = hf, count(1)
        facts: dict[str, Any] = {"holder": "h", "name": "n", "kind": "plan", "started_at": 1}
        begin(hf.runs.context, RunAcquisition(run_id="run_1", place="rock:7", **(facts | more)))

    def tell(self, type: str, part: str, **data: Any) -> None:
        """Store an event of *part*."""
        agent = data.pop("agent", None)
        event = RunEvent(type=type, seq=0, at=5, run_id="run_1", part=part, agent=agent, data=data)
        report = RunReport(holder="h", number=next(self.numbers), events=(event,))
        take(self.hf.runs.context, "run_1", report)

    def keep(self, *rows: StateRow, **more: Any) -> None:
        """Store a version of *rows*."""
        facts: dict[str, Any] = {"run_id": "run_1", "cause": "step", "at": 7, "fence": 1}
        save_version(self.hf.runs.context, VersionSave(rows=rows, **(facts | more)))

    def done(self, step: str, value: object = 1, task: str = "t") -> None:
        """Store that *step* of *task* has run, as a version."""
        self.tell("step.started", step, task=task)
        self.keep(entry(f"step:{step}", value), StateRow("part", step, DONE), part=step)
        self.tell("step.completed", step, task=task)

    def rows(self) -> list[Any]:
        """Return all rows of the run."""
        context = self.hf.runs.context
        found = [row for each in ORIGINAL for row in context.engine.rows(each)]
        return [row for row in found if context.workspace in row]


def entry(key: str, value: object) -> StateRow:
    return entry_row(
        RunEntry(
            key=key,
            kind=kind_of(key),
            value_json=msgspec.json.encode(value),
            source=None,
            title=None,
            description=None,
            created_at=1,
            updated_at=1,
            version=1,
            failed=False,
        )
    )


def state(hf: Holdfast, run: str, version: int | None = None) -> State:
    context = hf.runs.context
    return state_at(context.engine, statements(context), run, version)


def values(hf: Holdfast, run: str) -> dict[str, object]:
    """Return the value of each entry that *run* knows."""
    return {
        key: msgspec.json.decode(entry_in(body).value_json)
        for (kind, key), body in state(hf, run).items()
        if kind == "entry"
    }


def part(kind: str, id: str, *needs: str, within: str | None = None) -> PartRow:
    depends_on = msgspec.json.encode(needs).decode()
    return PartRow(id=id, kind=kind, within=within, depends_on=depends_on, place=0)


def affected(graph: PartGraph, *changed: str) -> set[str]:
    return {f"{kind} {id}" for kind, id in graph.affected(changed, ())}


PLAN = [
    part("task", "a"),
    part("task", "b", "a"),
    part("step", "a1", "ships", within="a"),
    part("step", "a2", "a1", within="a"),
    part("step", "a3", within="a"),
    part("step", "b1", within="b"),
    part("item", "b1.0", within="b1"),
    part("item", "b1.1", within="b1"),
]


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ("input:ships", {"step a1", "step a2", "task a", "step b1", "task b", "item b1.0"}),
        ("step:a1", {"step a2", "task a", "step b1", "task b", "item b1.0"}),
        ("step:a2", {"task a", "step b1", "task b", "item b1.0"}),
        ("task:a", {"step b1", "task b", "item b1.0"}),
        ("step:b1.0", {"step b1", "task b"}),
        ("step:b1", {"task b"}),
        ("task:b", set[str]()),
        ("shared:x", set[str]()),
    ],
)
def test_a_part_is_affected_by_what_it_depends_on_directly_or_not(
    changed: str, wanted: set[str]
) -> None:
    if "item b1.0" in wanted:
        wanted = wanted | {"item b1.1"}

    assert affected(PartGraph(PLAN), changed) == wanted


def test_a_part_is_affected_by_a_key_that_it_read() -> None:
    touches = [Touch("shared:x", "a3", False), Touch("shared:y", "a3", True)]
    graph = PartGraph(PLAN, [*touches, Touch("shared:y", "b1.1", False)])

    assert affected(graph, "shared:x") >= {"step a3", "item b1.1", "step b1"}
    assert affected(graph, "shared:y") == {"item b1.1", "step b1", "task b"}


def test_a_part_is_found_by_the_agent_that_works_on_it() -> None:
    parts = [PartRow(id="writer.0", kind="agent", agent="writer", place=0)]
    graph = PartGraph(parts, [Touch("plan", "writer", False)])

    assert affected(graph, "plan") == {"agent writer.0"}


def test_nodes_and_board_tasks_depend_on_one_another() -> None:
    parts = [part("node", "b", "a"), part("node", "a"), part("board_task", "t2", "t1")]
    graph = PartGraph([*parts, part("board_task", "t3", within="t2"), part("board_task", "t1")])

    assert affected(graph, "step:a") == {"node b"}
    assert affected(graph, "task:t1") == {"board_task t2"}
    assert affected(graph, "task:t3") == {"board_task t2"}


def test_the_original_is_the_same_byte_for_byte_after_a_fork(kept: Holdfast) -> None:
    life = Life(kept)
    life.done("read")
    life.keep(entry("shared:x", 1), turns=(KeptTurn("write", 1, b'{"m":1}'),))
    life.tell("step.started", "write", task="t")
    before = life.rows()

    fork = kept.runs.fork("run_1", set={"shared:x": 2, "input:new": 3}, rerun=["read"], start=True)
    kept.runs.cancel(fork.id)

    assert life.rows() == before


def test_a_fork_has_the_history_up_to_its_version(kept: Holdfast) -> None:
    life = Life(kept)
    for number, step in enumerate(("a", "b", "c"), start=1):
        life.done(step, number)
    fork = kept.runs.fork("run_1", version=2)

    assert values(kept, fork.id) == {"step:a": 1, "step:b": 2}
    assert state(kept, fork.id, 1) == state(kept, "run_1", 1)
    assert state(kept, fork.id, 2) == state(kept, "run_1", 2)
    assert (fork.forked_from, fork.entries) == (("run_1", 2), 2)
    assert {part.id: part.state for part in kept.runs.parts(fork.id)} == {
        "a": "completed",
        "b": "completed",
        "c": "pending",
    }


def test_a_fork_before_a_part_is_at_the_version_before_that_began(kept: Holdfast) -> None:
    life = Life(kept)
    life.done("a")
    life.done("b")
    life.done("c")

    forked = [kept.runs.fork("run_1", before=each).forked_from for each in "abc"]
    assert forked == [("run_1", 0), ("run_1", 1), ("run_1", 2)]
    with pytest.raises(NotFound):
        kept.runs.fork("run_1", before="d")


def test_the_changes_are_the_next_version_of_the_fork(kept: Holdfast) -> None:
    life = Life(kept)
    life.keep(entry("shared:x", 1), entry("shared:y", 1), StateRow("value", "k", b'{"value":1}'))
    heard: list[str] = []
    kinds = {"run.forked", "run.version_kept"}
    kept.events.subscribe(lambda event: heard.append(event.type), types=kinds)
    fork = kept.runs.fork("run_1", set={"shared:x": 2, "k": [2]}, delete=["shared:y"])

    assert values(kept, fork.id) == {"shared:x": 2}
    changed = msgspec.json.decode(state(kept, fork.id)["value", "k"])
    assert (changed["value"], changed["version"]) == ([2], 1)
    kept.runs.cancel(fork.id)
    forked, stored, _ = kept.runs.follow(fork.id)
    assert forked.data["changed"] == ["shared:x", "k", "shared:y"]
    assert heard[:2] == ["run.forked", "run.version_kept"]
    assert (stored.data["version"], stored.data["cause"]) == (2, "fork")
    assert state(kept, fork.id, 1) == state(kept, "run_1", 1)


def test_results_of_parts_that_run_again_are_not_in_the_fork(kept: Holdfast) -> None:
    life = Life(kept)
    steps = [{"id": "a"}, {"id": "b", "depends_on": ["a"]}, {"id": "c"}]
    life.tell("task.created", "t", steps=steps)
    for step in "abc":
        life.done(step)
    life.keep(StateRow("once", "b:call_1:mail", b"1"), StateRow("once", "c:call_1:mail", b"1"))
    life.keep(entry("task:t", 1), StateRow("part", "task:t", DONE))
    fork = kept.runs.fork("run_1", set={"step:a": 5})

    assert values(kept, fork.id) == {"step:a": 5, "step:c": 1}
    found = {key for kind, key in state(kept, fork.id) if kind in {"part", "once"}}
    assert found == {"a", "c", "c:call_1:mail"}
    states = {part.id: part.state for part in kept.runs.parts(fork.id)}
    assert states == {"a": "completed", "b": "pending", "c": "completed", "t": "pending"}


def test_a_deleted_result_is_asked_for_again(kept: Holdfast) -> None:
    life = Life(kept)
    life.tell("task.created", "t", steps=[{"id": "a"}, {"id": "b", "depends_on": ["a"]}])
    life.done("a")
    life.done("b")
    fork = kept.runs.fork("run_1", delete=["step:a"])

    assert values(kept, fork.id) == {}


def test_a_list_of_parts_runs_again_with_what_they_are_within(kept: Holdfast) -> None:
    life = Life(kept)
    life.tell("task.created", "t", steps=[{"id": "a"}, {"id": "b", "depends_on": ["a"]}])
    life.done("a")
    life.done("b")
    life.keep(entry("task:t", 1), StateRow("part", "task:t", DONE))

    assert set(values(kept, kept.runs.fork("run_1", rerun=["a"]).id)) == {"step:b"}
    assert set(values(kept, kept.runs.fork("run_1", rerun=["t"]).id)) == set()
    none = kept.runs.fork("run_1", set={"step:a": 5}, rerun="none")
    assert set(values(kept, none.id)) == {"step:a", "step:b", "task:t"}


def test_a_changed_input_changes_the_hash_of_the_fork_alone(kept: Holdfast) -> None:
    life = Life(kept)
    parts = {"plan": "p", "inputs": hashed({"ships": 3, "berth": "a"})}
    begun = msgspec.json.encode({"plan_hash": hashed(parts), "parts": parts})
    rows = (entry("input:ships", 3), entry("input:berth", "a"))
    life.keep(StateRow("start", "parts", begun), *rows)
    fork = kept.runs.fork("run_1", set={"input:ships": 5})

    changed = msgspec.json.decode(state(kept, fork.id)["start", "parts"])
    wanted = {"plan": "p", "inputs": hashed({"ships": 5, "berth": "a"})}
    assert changed == {"plan_hash": hashed(wanted), "parts": wanted}
    assert state(kept, "run_1")["start", "parts"] == begun


def test_messages_are_copied_but_not_those_of_parts_that_ask_or_run_again(kept: Holdfast) -> None:
    life = Life(kept)
    for step in ("a", "b"):
        life.done(step)
    turns = tuple(KeptTurn(each, 1, b'{"m":1}') for each in ("a", "b", "asks", "cut"))
    question = Question(
        id="question_1",
        run_id="run_1",
        kind="question",
        key="k",
        text="Which?",
        part="asks",
        asked_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    life.keep(turns=turns, questions=(question,))
    fork = kept.runs.fork("run_1", rerun=["a"])

    context = kept.runs.context
    found = open_turns(context.engine, statements(context), fork.id, ())
    assert [turn.part for turn in found] == ["b", "cut"]
    older = kept.runs.fork("run_1", version=2)
    found = open_turns(context.engine, statements(context), older.id, ())
    assert [turn.part for turn in found] == ["a", "b"]
    assert kept.runs.questions("open").data[0].run_id == "run_1"
    assert len(kept.runs.questions("open").data) == 1


def test_a_fork_that_begins_goes_on_and_keeps_its_parts(kept: Holdfast) -> None:
    life = Life(kept)
    life.done("a")
    fork = kept.runs.fork("run_1")
    again = RunAcquisition(
        run_id=fork.id, holder="b", name="n", kind="plan", place="rock:8", started_at=2
    )
    grant = begin(kept.runs.context, again)

    assert [event.type for event in grant.opened] == ["run.resumed"]
    run = kept.runs.retrieve(fork.id)
    assert (run.status, run.fence, run.forked_from) == ("running", 1, ("run_1", 1))
    assert run.parts == {"completed": 1}


def test_a_fork_of_a_definition_is_in_the_queue_once_it_is_started(kept: Holdfast) -> None:
    Life(kept, definition="weekly")

    resting, queued = kept.runs.fork("run_1"), kept.runs.fork("run_1", start=True)
    assert (resting.status, resting.queue) == ("queued", None)
    assert (queued.status, queued.queue, queued.definition) == ("queued", "default", "weekly")


def test_a_fork_of_a_run_of_a_thread_has_a_thread_of_its_own(kept: Holdfast) -> None:
    early, late = said("Before."), said("After.")
    asked = ThreadTurn.said(said("Write.", message_id("run_1")), run_id="run_1")
    results = [made(index) for index in range(3)]
    kept.threads.append(THREAD, [early, asked, *results, late], user="ada")
    life = Life(kept, kind="network", thread_id=THREAD)
    for number, each in enumerate(results):
        body = msgspec.json.encode({"id": each.id, "result": each.export()})
        done = StateRow("part", f"writer.{number}", DONE)
        life.keep(StateRow("result", f"{number:06d}", body), done, part=f"writer.{number}")
    fork = kept.runs.fork("run_1", version=2)

    assert fork.thread_id not in (None, THREAD)
    thread = kept.threads.retrieve(fork.thread_id or "")
    assert (thread.runs, thread.turns, thread.user) == (1, 4, "ada")
    turns = list(kept.threads.turns(thread.id).all())
    assert [turn.run_id for turn in turns] == [None, fork.id, fork.id, fork.id]
    assert turns[1].id == message_id(fork.id)
    found = [turn.result for turn in turns[2:]]
    assert found == [replace(each, run_id=fork.id) for each in results[:2]]
    assert kept.threads.retrieve(THREAD).turns == 6
    own = msgspec.json.decode(state(kept, fork.id)["result", "000001"])["result"]
    assert InferenceResult.from_dict(own) == replace(results[1], run_id=fork.id)


def test_a_network_calls_all_agents_again_after_the_first_that_a_change_affects(
    kept: Holdfast,
) -> None:
    life = Life(kept, kind="network")
    for number, name in enumerate(("ada", "bob", "ada")):
        each = f"{name}.{number}"
        life.tell("agent.started", each, agent=name)
        if name == "bob":
            life.tell("value.read", each, agent=name, key="word")
        body = msgspec.json.encode({"id": f"res_{number}"})
        life.keep(
            StateRow("result", f"{number:06d}", body), StateRow("part", each, DONE), part=each
        )
    life.keep(StateRow("value", "word", b'{"value":"rain","version":1}'))
    fork = kept.runs.fork("run_1", set={"word": "sun"})

    found = [key for kind, key in state(kept, fork.id) if kind in {"part", "result"}]
    assert found == ["000000", "ada.0"]
    assert kept.runs.fork("run_1", before="bob").forked_from == ("run_1", 1)


def test_what_is_within_a_part_with_a_given_result_does_not_run_again(kept: Holdfast) -> None:
    life = Life(kept)
    life.tell("task.created", "t", steps=[{"id": "a", "depends_on": ["ships"]}])
    life.tell("task.created", "u", depends_on=["t"], steps=[{"id": "b"}])
    for step, task in (("a", "t"), ("b", "u")):
        life.done(step, task=task)
        life.keep(entry(f"task:{task}", 1), StateRow("part", f"task:{task}", DONE))
    fork = kept.runs.fork("run_1", set={"input:ships": 2, "task:t": 7})

    assert values(kept, fork.id) == {"step:a": 1, "task:t": 7, "input:ships": 2}


def test_a_fork_at_the_newest_version_has_what_unfinished_parts_have_written(
    kept: Holdfast,
) -> None:
    life = Life(kept)
    life.done("a")
    life.keep(entry("shared:x", 1), cause=None, turns=(KeptTurn("b", 1, b'{"m":1}'),))

    assert values(kept, kept.runs.fork("run_1").id) == {"step:a": 1, "shared:x": 1}
    changed = kept.runs.fork("run_1", set={"shared:x": 2})
    assert values(kept, changed.id) == {"step:a": 1, "shared:x": 2}
    assert values(kept, kept.runs.fork("run_1", version=0).id) == {}
    assert ("entry", "shared:x") not in state(kept, changed.id, 1)
