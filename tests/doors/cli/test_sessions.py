"""Commands for sessions, keys and runs."""

from collections.abc import Iterator

import msgspec
import pytest
from doors.cli.lines import Run
from msgspec.structs import replace

import holdfast
from holdfast import RunMemory
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.record import RunAcquisition
from holdfast.memories.run.records.write import begin
from holdfast.memories.run.records.writer import RunOpening


@pytest.fixture
def session(run: Run) -> str:
    run("stores", "create", "Prefs")
    run("stores", "create", "Notes")
    given = ("--agent", "agent_x", "--environment", "env_x", "--title", "Monday")
    made = run("sessions", "create", *given, "--store", "Prefs", "--store", "Notes:ro").json
    return made["id"]


def test_a_session_attaches_stores_by_name_and_access(run: Run, session: str) -> None:
    shown = run("sessions", "show", session).json

    assert shown["title"] == "Monday"
    assert [(each["name"], each["access"]) for each in shown["resources"]] == [
        ("Prefs", "read_write"),
        ("Notes", "read_only"),
    ]


def test_a_session_without_a_store_is_wrong_usage(line: Run, db: str) -> None:
    ran = line("sessions", "create", "--agent", "a", "--environment", "e", "--db", db)

    assert ran.code == 2
    assert "--store" in ran.err


def test_sessions_are_listed_until_archived(run: Run, session: str) -> None:
    before = run("sessions", "list").data
    archived = run("sessions", "archive", session).json

    assert [each["id"] for each in before] == [session]
    assert archived["status"] == "terminated"
    assert run("sessions", "list").data == []


def test_a_token_is_shown_once(run: Run, session: str) -> None:
    token = run("sessions", "token", session, "--expires-in", "60").json

    assert token["token"].startswith("hfs_")
    assert token["expires_at"]
    assert run("sessions", "token", session).json["expires_at"] is None


def test_a_session_is_deleted_when_meant(run: Run, line: Run, db: str, session: str) -> None:
    refused = line("sessions", "delete", session, "--db", db)
    gone = run("sessions", "delete", session, "--yes").json

    assert refused.code == 2
    assert gone == {"id": session, "type": "session_deleted"}


def test_a_key_is_printed_with_its_secret_once(run: Run) -> None:
    made = run("keys", "create", "ci", "--scope", "admin").json

    assert list(made) == [
        "type",
        "id",
        "name",
        "scope",
        "workspace",
        "agent",
        "user",
        "secret",
        "created_at",
        "last_used_at",
        "revoked_at",
    ]
    assert made["secret"].startswith("hf_")
    del made["secret"]
    assert run("keys", "list").json == {"data": [made]}


def test_a_key_writes_unless_said_otherwise(run: Run) -> None:
    assert run("keys", "create", "ci").json["scope"] == "write"


def test_a_key_is_of_the_workspace_given(run: Run) -> None:
    assert run("keys", "create", "ci", "--workspace", "blue").json["workspace"] == "blue"


@pytest.mark.parametrize("owner", ["agent", "user"])
def test_a_key_is_bound_to_whom_it_is_for(run: Run, owner: str) -> None:
    assert run("keys", "create", "ci", f"--{owner}", "ada").json[owner] == "ada"


def test_a_key_is_revoked(run: Run) -> None:
    made = run("keys", "create", "ci").json

    revoked = run("keys", "revoke", made["id"]).json

    assert revoked["revoked_at"]
    assert "secret" not in revoked


def test_a_scope_that_is_none_is_wrong_usage(line: Run, db: str) -> None:
    ran = line("keys", "create", "ci", "--scope", "root", "--db", db)

    assert (ran.code, ran.out) == (2, b"")
    assert "admin" in ran.err


@pytest.fixture
def hf(db: str) -> Iterator[Holdfast]:
    with holdfast.open(db) as hf:
        yield hf


@pytest.fixture
def ended(hf: Holdfast) -> str:
    memory = RunMemory()
    over = hf.runs.attach(memory, name="research", agent="ada")
    memory.set("task:t", {"a": [1]}, title="Findings", source="t")
    memory.set("shared:owner", "Ada\x1b[31m", source="a")
    memory.delete("shared:owner")
    memory.set("shared:owner", "Ada\x1b[31m", source="a")
    over()
    assert hf.runs.retrieve(memory.run_id).status == "completed"
    return memory.run_id


def test_runs_are_listed_and_shown(run: Run, ended: str) -> None:
    (listed,) = run("runs", "list").data

    assert listed == run("runs", "show", ended).json
    assert (listed["id"], listed["name"], listed["agent"]) == (ended, "research", "ada")
    assert (listed["status"], listed["entries"]) == ("completed", 2)


def test_the_parts_of_a_run_are_listed_with_their_states(run: Run, hf: Holdfast) -> None:
    writer = hf.runs.open_run(RunMemory(run_id="run_7"), RunOpening(kind="plan", name="Count"))
    event = RunEvent(type="step.started", seq=2, at=1, run_id="run_7", part="read")
    writer.emit(replace(event, data={"task": "count"}))
    writer.end("failed")

    (part,) = run("runs", "parts", "run_7").data
    assert (part["id"], part["kind"], part["within"]) == ("read", "step", "count")
    assert (part["state"], part["attempts"]) == ("cancelled", 1)


def test_entries_are_listed_by_kind_and_beginning(run: Run, ended: str) -> None:
    every = run("runs", "entries", ended).json
    tasks = run("runs", "entries", ended, "--kind", "task_result").json
    shared = run("runs", "entries", ended, "--prefix", "shared:").json

    assert (every["total"], every["truncated"], every["next_page"]) == (2, False, None)
    assert [each["key"] for each in tasks["entries"]] == ["task:t"]
    assert [each["key"] for each in shared["entries"]] == ["shared:owner"]


def test_an_entry_is_read_with_its_value(run: Run, ended: str) -> None:
    read = run("runs", "read", ended, "task:t").json

    assert (read["value"], read["title"], read["version"]) == ({"a": [1]}, "Findings", 1)
    assert "failed" not in read


def test_watching_prints_a_line_for_each_event(run: Run, ended: str) -> None:
    lines = run("runs", "watch", ended).out.splitlines()

    told = [msgspec.json.decode(line) for line in lines]
    assert [each["type"] for each in told] == [
        "run.started",
        "memory.written",
        "memory.written",
        "memory.deleted",
        "memory.written",
        "run.completed",
    ]
    assert [each["seq"] for each in told] == [1, 2, 3, 4, 5, 6]
    assert {each["run_id"] for each in told} == {ended}


def test_a_run_that_is_over_is_deleted(run: Run, fails: Run, ended: str) -> None:
    gone = run("runs", "delete", ended).json

    assert gone == {"id": ended, "type": "run_deleted"}
    assert run("runs", "list").data == []
    assert "There is no run" in fails("runs", "show", ended).err


def test_what_runs_elsewhere_is_cancelled_there_and_not_steered(
    hf: Holdfast, run: Run, fails: Run
) -> None:
    opening = RunAcquisition(
        run_id="run_1",
        holder="h",
        name="n",
        agent=None,
        metadata={},
        place="rock:7",
        started_at=1,
    )
    begin(hf.runs.context, opening)

    assert run("runs", "cancel", "run_1").json == {"id": "run_1"}
    assert "rock:7" in fails("runs", "steer", "run_1", "hurry").err


def test_what_is_over_is_not_cancelled(fails: Run, ended: str) -> None:
    assert "is completed" in fails("runs", "cancel", ended).err


def test_a_wrong_kind_is_an_error(fails: Run, ended: str) -> None:
    assert "kind" in fails("runs", "entries", ended, "--kind", "tasks").err
