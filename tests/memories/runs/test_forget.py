"""What agents and people left in versions, messages and questions of runs, and its erasure."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.ground.errors import NotFound, NotPermitted
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.history.turns import KeptTurn, open_turns
from holdfast.memories.run.history.versions import StateRow, VersionSave, entry_row, save_version
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.question import Question
from holdfast.memories.run.records.record import RunAcquisition, RunReport
from holdfast.memories.run.records.write import begin, statements, take
from holdfast.runtime import Agent, EngineHistory, ToolContext
from holdfast.testing import ScriptedModel
from holdfast.testing import call as calling

MARK = "kelpmarker"


def begun(hf: Holdfast, run_id: str = "run_1", agent: str | None = None) -> None:
    start = RunAcquisition(
        run_id=run_id, holder="a", name="n", kind="plan", agent=agent, place="rock:7", started_at=1
    )
    begin(hf.runs.context, start)


def entry(key: str, value: object, source: str = "read") -> StateRow:
    return entry_row(
        RunEntry(
            key=key,
            kind="shared",
            value_json=msgspec.json.encode(value),
            source=source,
            created_at=1,
            updated_at=1,
            version=1,
        )
    )


def save(hf: Holdfast, *rows: StateRow, **more: Any) -> None:
    facts: dict[str, Any] = {"run_id": "run_1", "cause": "step", "at": 7, **more}
    save_version(hf.runs.context, VersionSave(fence=1, rows=rows, **facts))


def question(**more: Any) -> Question:
    facts: dict[str, Any] = {
        "id": "question_1",
        "run_id": "run_1",
        "kind": "question",
        "key": "k",
        "text": f"Which {MARK}?",
        "asked_at": datetime(2026, 7, 1, tzinfo=UTC),
        **more,
    }
    return Question(**facts)


def values(hf: Holdfast, version: int | None = None) -> dict[str, Any]:
    return {each.key: each.value for each in hf.runs.at("run_1", version).memory.snapshot()}


def said(text: str) -> bytes:
    part = {"part_kind": "text", "content": text}
    return msgspec.json.encode({"kind": "response", "parts": [part]})


def test_what_a_forgotten_agent_wrote_is_in_no_version(kept: Holdfast) -> None:
    begun(kept)
    save(kept, entry("shared:a", "old"), entry("shared:b", "of another"))
    save(kept, entry("shared:a", MARK), agent="ada", part="ada")
    save(
        kept, entry("shared:c", MARK, source="ada"), turns=(KeptTurn("ada", 0, said(MARK), "ada"),)
    )

    kept.forget_agent("ada")

    assert values(kept) == {"shared:b": "of another"}
    assert values(kept, 1) == {"shared:a": "old", "shared:b": "of another"}
    assert kept.runs.messages("run_1", "ada") == []
    three, two, one = kept.runs.versions("run_1")
    assert (one.gaps, two.gaps, three.gaps) == (0, 1, 1)
    assert (two.agent, two.part) == (None, None)


def test_a_run_whose_only_question_was_of_a_forgotten_agent_may_be_taken_up(
    kept: Holdfast,
) -> None:
    begun(kept)
    save(kept, questions=(question(agent="ada"),), status="waiting", cause="question")

    kept.forget_agent("ada")

    assert list(kept.runs.questions(status=None, run="run_1")) == []
    assert kept.runs.retrieve("run_1").status == "queued"


def test_answers_of_a_forgotten_person_are_deleted_with_their_messages(kept: Holdfast) -> None:
    begun(kept)
    asked = question(part="moor", call_id="call_7", who=("user:ada",))
    answer = msgspec.json.encode({"answer": {"call_id": "call_7", "message": {"parts": []}}})
    other = said("Good day.")
    save(
        kept,
        entry("shared:a", "ada"),
        questions=(asked,),
        turns=(KeptTurn("moor", 0, other), KeptTurn("moor", 1, answer)),
        status="waiting",
        cause="question",
    )
    kept.runs.answer("run_1", MARK, by="user:ada")

    counts = kept.forget_user("ada").counts

    assert counts["run_questions"] == 1
    assert list(kept.runs.questions(status=None, run="run_1")) == []
    assert [each.export()["content"] for each in kept.runs.messages("run_1", "moor")] == [
        "Good day."
    ]
    assert values(kept) == {}
    (version,) = kept.runs.versions("run_1")
    assert version.gaps == 1


def reported(hf: Holdfast, *events: RunEvent) -> None:
    take(hf.runs.context, "run_1", RunReport(holder="a", number=1, fence=1, events=events))


def told(type: str, **data: Any) -> RunEvent:
    return RunEvent(type=type, seq=0, at=1, run_id="run_1", part="p", call_id="call_1", data=data)


def test_a_redacted_key_is_in_no_version_message_or_event(kept: Holdfast) -> None:
    begun(kept)
    call = {"part_kind": "tool-call", "tool_call_id": "call_1", "tool_name": "memory_write"}
    sent = {"kind": "response", "parts": [{**call, "args": {"key": "a", "value": MARK}}]}
    back = {"part_kind": "tool-return", "tool_call_id": "call_1", "content": MARK}
    answer = {"answer": {"call_id": "call_1", "message": {"parts": [back]}}}
    bodies = [msgspec.json.encode(each) for each in (sent, answer)]
    turns = tuple(KeptTurn("p", n, body) for n, body in enumerate(bodies))
    save(kept, entry("shared:a", MARK), entry("shared:b", 1), turns=turns)
    save(kept, entry("shared:a", MARK * 2))
    reported(
        kept,
        told("tool.called", name="memory_write", input={"key": "a", "value": MARK}),
        told("tool.returned", name="memory_write", content=MARK),
    )

    assert kept.runs.redact("run_1", "shared:a") == 2

    assert values(kept) == {"shared:b": 1}
    assert values(kept, 1) == {"shared:b": 1}
    assert [each.gaps for each in kept.runs.versions("run_1")] == [1, 1]
    assert MARK not in repr(kept.runs.messages("run_1", "p"))
    stored = kept.runs.follow("run_1", types=("tool.called", "tool.returned"))
    assert [next(stored).data, next(stored).data] == [{"redacted": True}] * 2
    with pytest.raises(NotFound):
        kept.runs.redact("run_none", "shared:a")


def asked_about(text: str) -> tuple[KeptTurn, ...]:
    """Return a call that writes *text* under shared:a, and its answer, as they are kept."""
    call = {"part_kind": "tool-call", "tool_call_id": "call_1", "tool_name": "memory_write"}
    sent = {"kind": "response", "parts": [{**call, "args": {"key": "a", "value": text}}]}
    back = {"part_kind": "tool-return", "tool_call_id": "call_1", "content": text}
    answer = {
        "call_id": "call_1",
        "message": {"parts": [back]},
        "facts": {"content": {"data": text}, "extras": {"part": text}},
        "pages": {"page_1": text},
    }
    bodies = [msgspec.json.encode(each) for each in (sent, {"answer": answer})]
    return tuple(KeptTurn("p", n, body) for n, body in enumerate(bodies))


def kept_bodies(hf: Holdfast, run_id: str) -> str:
    context = hf.runs.context
    return repr(open_turns(context.engine, statements(context), run_id, ()))


def values_of(hf: Holdfast, run_id: str, version: int | None = None) -> dict[str, Any]:
    return {each.key: each.value for each in hf.runs.at(run_id, version).memory.snapshot()}


def test_what_forks_have_copied_is_redacted_and_what_they_wrote_stays(kept: Holdfast) -> None:
    begun(kept)
    save(kept, entry("shared:a", MARK), entry("shared:b", 1), turns=asked_about(MARK))
    save(kept, entry("shared:b", 2))
    save(kept, entry("shared:c", MARK), cause=None)
    same = kept.runs.fork("run_1")
    again = kept.runs.fork(same.id)
    other = kept.runs.fork("run_1", version=1, set={"shared:a": "of the fork"})
    late = kept.runs.fork(other.id)

    assert kept.runs.redact("run_1", "shared:a") == 1
    assert kept.runs.redact("run_1", "shared:c") == 1

    for run in ("run_1", same.id, again.id):
        assert values_of(kept, run) == values_of(kept, run, 2) == {"shared:b": 2}
        assert values_of(kept, run, 1) == {"shared:b": 1}
        assert [each.key for each in kept.runs.entries(run)] in ([], ["shared:b"])
    for run in (other.id, late.id):
        assert values_of(kept, run, 1) == {"shared:b": 1}
        assert values_of(kept, run)["shared:a"] == "of the fork"
        assert {each.key for each in kept.runs.entries(run)} == {"shared:a", "shared:b"}
    for run in ("run_1", same.id, again.id, other.id, late.id):
        assert MARK not in kept_bodies(kept, run)
    assert kept.verify().ok


def test_a_fork_that_is_redacted_leaves_its_origin_as_it_is(kept: Holdfast) -> None:
    begun(kept)
    save(kept, entry("shared:a", MARK), turns=asked_about(MARK))
    fork = kept.runs.fork("run_1")

    kept.runs.redact(fork.id, "shared:a")

    assert values_of(kept, fork.id) == {}
    assert values(kept) == {"shared:a": MARK}
    assert MARK in kept_bodies(kept, "run_1")


def test_results_of_agents_and_of_their_forks_are_redacted(sqlite_file: Path) -> None:
    def memory_note(ctx: ToolContext, key: str, value: str) -> str:
        """Note a value."""
        ctx.state.kv.set(key, value)
        return value

    def talk(run: str, **place: Any) -> None:
        note = calling("memory_note", key="berth", value=MARK)
        script = ScriptedModel([note, "Noted."])
        agent = Agent("ada", instructions="", model=script, tools=[memory_note], **place)
        asyncio.run(agent.run("Note it.", run_id=run))

    with holdfast.open(sqlite_file) as hf:
        talk("run_1", history=EngineHistory(hf))
        talk("run_2", hf=hf)
        for run in ("run_1", "run_2"):
            hf.runs.fork(run)
            assert MARK in repr(hf.runs.messages(run, "ada.0"))

            assert hf.runs.redact(run, "berth") == 1

            told = hf.runs.messages(run, "ada.0")
            assert [each.role for each in told if each.role == "tool_result"]
            assert MARK not in repr(told)
        assert hf.verify().ok
    assert MARK.encode() not in sqlite_file.read_bytes()


@pytest.mark.parametrize("forget", [True, False])
def test_a_forgotten_agent_is_in_no_fork(kept: Holdfast, forget: bool) -> None:
    begun(kept)
    save(kept, entry("shared:a", MARK), agent="ada", part="ada")
    save(kept, entry("shared:b", MARK, source="ada"), turns=(KeptTurn("p", 0, said(MARK), "ada"),))
    fork = kept.runs.fork("run_1")
    if forget:
        kept.forget_agent("ada")

    assert (values_of(kept, fork.id) == {}) is forget
    assert (MARK in kept_bodies(kept, fork.id)) is not forget


def test_a_session_redacts_nothing(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="s")
    resources = [{"type": "memory_store", "memory_store_id": store.id}]
    session = kept.sessions.create(agent="a", environment_id="e", resources=resources)

    with pytest.raises(NotPermitted):
        kept.for_session(session.id).runs.redact("run_1", "shared:a")


ERASERS: dict[str, Callable[[Holdfast], object]] = {
    "a run is deleted": lambda hf: hf.runs.delete("run_1"),
    "a thread is deleted": lambda hf: hf.threads.delete("t"),
    "an agent is forgotten": lambda hf: hf.forget_agent("ada"),
    "a key is redacted": lambda hf: hf.runs.redact("run_1", "shared:a"),
}


@pytest.mark.parametrize("name", ERASERS)
def test_no_byte_is_left_in_any_file(sqlite_file: Path, name: str) -> None:
    def left() -> set[str]:
        files = sqlite_file.parent.iterdir()
        return {each.name for each in files if MARK.encode() in each.read_bytes()}

    with holdfast.open(sqlite_file) as hf:
        begin(
            hf.runs.context,
            RunAcquisition(
                run_id="run_1",
                holder="a",
                name="n",
                kind="network",
                thread_id="t",
                place="rock:7",
                started_at=1,
            ),
        )
        only_key = name == "a key is redacted"
        more: dict[str, Any] = {} if only_key else {"questions": (question(agent="ada"),)}
        turns = () if only_key else (KeptTurn("ada", 0, said(MARK * 3_000), "ada"),)
        save(hf, entry("shared:a", MARK * 9_000), agent="ada", turns=turns, **more)
        take(hf.runs.context, "run_1", RunReport(holder="a", number=1, fence=1, ended="completed"))
        there = left()

        ERASERS[name](hf)

        assert there
        assert left() == set()


def test_entries_of_a_forgotten_agent_are_taken_out_of_the_record(kept: Holdfast) -> None:
    memory = RunMemory(run_id="run_1")
    over = kept.runs.attach(memory, name="n")
    memory.set("shared:a", 1, source="ada")
    memory.set("shared:b", 2, source="bob")
    over()
    assert kept.runs.retrieve("run_1").entries == 2

    kept.forget_agent("ada")

    assert [each.key for each in kept.runs.entries("run_1")] == ["shared:b"]
    assert kept.runs.retrieve("run_1").entries == 1
    assert kept.verify().ok
