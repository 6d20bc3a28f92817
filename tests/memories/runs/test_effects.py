"""Effects of tool calls happen once, however often the call is made again."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.ground.errors import Conflict, StaleRun
from holdfast.ground.events import Event
from holdfast.ground.metrics import REGISTRY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.history.effects import effects_of
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.record import RunAcquisition
from holdfast.memories.run.records.write import begin
from holdfast.memories.run.records.writer import RunOpening, RunWriter
from holdfast.testing.serving import new_workspace
from holdfast.tools import durable


def opened(hf: Holdfast, **more: Any) -> RunWriter:
    opening = RunOpening(kind="plan", name="n", **more)
    return hf.runs.open_run(RunMemory(run_id="run_1"), opening)


def count(outcome: str) -> float:
    return REGISTRY.flat()[f'run_effects_total{{outcome="{outcome}"}}']


def _set(hf: Holdfast) -> object:
    return hf.durable("ada").set("berth", "7", category="custom")


def _forget(hf: Holdfast) -> object:
    return hf.durable("ada").forget("key")


def _file(hf: Holdfast) -> object:
    store = hf.memory_stores.list().data[0]
    return hf.memory_stores.memories.create(store.id, path="/a.md", content="x")


def _remember(hf: Holdfast) -> object:
    memory = hf.longterm("bob", enabled=True)
    assert memory is not None
    return memory.remember("Likes tea.")


WRITES: dict[str, Callable[[Holdfast], object]] = {
    "durable set": _set,
    "durable forget": _forget,
    "a file": _file,
    "long-term": _remember,
}


@pytest.mark.parametrize("name", WRITES)
def test_a_call_made_again_returns_the_first_answer_and_writes_nothing(
    kept: Holdfast, name: str
) -> None:
    kept.memory_stores.create(name="s")
    kept.durable("ada").set("key", "x", category="custom")
    writer, act, before = opened(kept), WRITES[name], count("repeated")
    with effects_of("run_1", "read:call_1"):
        first = act(kept)
    heard: list[Event] = []
    kept.events.subscribe(heard.append)

    with effects_of("run_1", "read:call_1"):
        again = act(kept)

    assert again == first
    assert [each for each in heard if each.type != "engine.scrubbed"] == []
    assert count("repeated") > before
    writer.end("completed")


def test_two_calls_are_two_effects(kept: Holdfast) -> None:
    writer, memory = opened(kept), kept.durable("ada")
    for call in ("read:call_1", "read:call_2"):
        with effects_of("run_1", call):
            memory.set(f"berth-{call[-1]}", "7", category="custom")
            memory.set("other", call, category="custom")

    with effects_of("run_1", "read:call_1"):
        memory.set("berth-1", "7", category="custom")
        memory.set("other", "read:call_1", category="custom")

    other = memory.get("other")
    assert other is not None
    assert other.content == "read:call_2"
    writer.end("completed")


def test_without_the_record_of_a_run_each_call_writes(kept: Holdfast) -> None:
    memory = kept.durable("ada")
    for content in ("1", "2"):
        with effects_of("run_none", "read:call_1"):
            memory.set("berth", content, category="custom")

    entry = memory.get("berth")
    assert entry is not None
    assert entry.content == "2"


def test_a_former_owner_has_no_effects(kept: Holdfast) -> None:
    first, before = opened(kept), count("refused")
    context = kept.runs.context
    context.engine.write(
        lambda tx: tx.run(
            context.engine.queries("holdfast.memories.run").end_ownerless,
            run="run_1",
            status="cancelled",
            reason="cancelled",
            detail="",
            seq=2,
            ended_at=1,
        )
    )

    with effects_of("run_1", "read:call_1"), pytest.raises(StaleRun):
        kept.durable("ada").set("berth", "7", category="custom")

    assert kept.durable("ada").get("berth") is None
    assert count("refused") == before + 1
    first.end("completed")


def stolen(hf: Holdfast, holder: str) -> None:
    """Take the run from its owner, for one that is not of this process."""
    begin(
        hf.runs.context,
        RunAcquisition(
            run_id="run_1",
            holder=holder,
            name="n",
            kind="plan",
            place="rock:7",
            started_at=1,
            take_over="always",
        ),
    )


def test_a_run_of_the_same_id_in_another_database_is_another_run(kept: Holdfast) -> None:
    writer = opened(kept)
    with holdfast.open(":memory:") as other:
        stolen(other, "elsewhere")
        stolen(other, "elsewhere-2")
        for content in ("1", "2"):
            with effects_of("run_1", "read:call_1"):
                other.durable("ada").set("berth", content, category="custom")

        entry = other.durable("ada").get("berth")
        assert entry is not None
        assert entry.content == "2"
    writer.end("completed")


def test_owning_a_run_of_the_same_id_in_another_workspace_is_no_right_to_write(
    target: str, kept: Holdfast
) -> None:
    first = opened(kept)
    stolen(kept, "elsewhere")
    with holdfast.open(target, workspace=new_workspace()) as other:
        opened(other).end("completed")
        second = opened(other)
        assert second.fence == kept.runs.retrieve("run_1").fence == 2

        with effects_of("run_1", "read:call_1"), pytest.raises(StaleRun):
            kept.durable("ada").set("berth", "7", category="custom")

        second.end("completed")
    first.end("completed")


def test_an_owner_writes_once_through_another_handle_on_its_database(
    sqlite_file: Path,
) -> None:
    with holdfast.open(sqlite_file) as hf, holdfast.open(sqlite_file) as other:
        writer = opened(hf)
        for content in ("1", "2"):
            with effects_of("run_1", "read:call_1"):
                other.durable("ada").set("berth", content, category="custom")

        entry = hf.durable("ada").get("berth")
        assert entry is not None
        assert entry.content == "1"
        writer.end("completed")


def test_a_write_whose_result_has_no_json_form_is_not_made_again(kept: Holdfast) -> None:
    writer, made = opened(kept), list[int]()
    engine = kept.runs.context.engine

    def write(_: object) -> object:
        made.append(1)
        return object()

    with effects_of("run_1", "read:call_1"):
        engine.write(write)
    with effects_of("run_1", "read:call_1"), pytest.raises(Conflict, match="made before"):
        engine.write(write)

    assert made == [1]
    writer.end("completed")


def test_results_of_every_form_come_back(kept: Holdfast) -> None:
    writer, engine = opened(kept), kept.runs.context.engine
    value = {
        "a": (1, None, [2.5, b"x"]),
        "b": {frozenset({"y"}): datetime(2026, 7, 1, 0, 0, 0, 7, tzinfo=UTC)},
        "c": kept.durable("ada").set("berth", "7", category="custom"),
    }
    found: list[object] = []
    for _ in range(2):
        with effects_of("run_1", "read:call_1"):
            found.append(engine.write(lambda _: value))

    assert found[1] == value
    assert found[1] is not value
    writer.end("completed")


def test_tools_answer_the_same_again(kept: Holdfast) -> None:
    writer = opened(kept)
    tools = {tool.name: tool for tool in durable(kept.durable("ada"))}
    name = next(name for name in tools if name.endswith("_store"))
    answers: list[object] = []
    for _ in range(2):
        with effects_of("run_1", "read:call_1"):
            answers.append(tools[name].call({"key": "berth", "content": "7", "category": "custom"}))

    assert answers[0] == answers[1]
    assert "error" not in str(answers[0])
    writer.end("completed")
