"""Records of runs over HTTP: reported, looked into, followed, and a run of the server reached."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from contracts.runs import Held
from doors.http.asking import Asker, Said

from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.state.result import Usage
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import serving

RUN = "/api/runs/run_1"
OPENING = {
    "action": "acquire",
    "holder": "h1",
    "name": "research",
    "place": "rock:7",
    "started_at": 1_767_225_600_000,
    "take_over": "always",
}
AT = 1_767_225_600_123
ENTRY = {
    "key": "shared:a",
    "kind": "shared",
    "version": 1,
    "created_at": AT,
    "updated_at": AT,
    "value": '{"a":18446744073709551615}',
    "value_bytes": 26,
}
WRITTEN = {
    "type": "memory.written",
    "seq": 0,
    "at": AT,
    "run_id": "run_1",
    "data": {"key": "shared:a", "version": 1},
}


@pytest.fixture
def begun(ask: Asker) -> Asker:
    assert ask.post(f"{RUN}/lease", OPENING).status == 200
    return ask


def reported(ask: Asker, number: int = 1, **report: Any) -> Said:
    return ask.post(f"{RUN}/events", {"holder": "h1", "number": number, **report})


def test_a_run_of_another_process_is_shown(ask: Asker) -> None:
    facts = {**OPENING, "agent": "ada", "metadata": {"a": "b"}}
    said = ask.post(f"{RUN}/lease", facts).json()

    (opened,) = said.pop("opened")
    assert (said.pop("seq"), opened["seq"], opened["type"]) == (1, 1, "run.started")
    seen_at = said.pop("seen_at")
    assert said == {
        "id": "run_1",
        "kind": "memory",
        "name": "research",
        "definition": None,
        "agent": "ada",
        "status": "running",
        "reason": None,
        "detail": None,
        "error": None,
        "thread_id": None,
        "parent_id": None,
        "queue": None,
        "priority": None,
        "metadata": {"a": "b"},
        "started_at": "2026-01-01T00:00:00.000Z",
        "ended_at": None,
        "place": "rock:7",
        "fence": 1,
        "usage": Usage().export(),
        "forked_from": None,
        "parts": {},
        "entries": 0,
        "bytes": 0,
        "versions": 0,
        "questions": [],
    }
    said["seen_at"] = seen_at
    assert ask.get("/api/runs").json() == {"data": [said], "next_page": None}
    assert ask.get(RUN).json() == said


def test_a_report_is_told_as_the_tools_tell_it(begun: Asker) -> None:
    assert reported(begun, events=[WRITTEN], entries=[{**ENTRY, "title": "T"}]).status == 200

    assert begun.get(f"{RUN}/entries").json() == {
        "total": 1,
        "returned": 1,
        "truncated": False,
        "next_page": None,
        "entries": [
            {
                "key": "shared:a",
                "kind": "shared",
                "title": "T",
                "valueBytes": 26,
                "createdAt": "2026-01-01T00:00:00.123Z",
                "updatedAt": "2026-01-01T00:00:00.123Z",
                "version": 1,
            }
        ],
    }
    assert begun.get(f"{RUN}/entries/shared%3Aa").json() == {
        "key": "shared:a",
        "kind": "shared",
        "value": {"a": 2**64 - 1},
        "title": "T",
        "createdAt": AT,
        "updatedAt": AT,
        "version": 1,
    }


def test_a_report_that_comes_twice_is_taken_once(begun: Asker) -> None:
    for _ in range(2):
        assert reported(begun, events=[WRITTEN], entries=[ENTRY]).status == 200
    reported(begun, 2, ended="completed")
    assert reported(begun, 2, ended="completed").status == 200

    assert begun.get(RUN).json()["entries"] == 1
    assert [each["id"] for each in followed(begun)] == ["1", "2", "3"]


def test_who_was_superseded_is_refused(begun: Asker) -> None:
    begun.post(f"{RUN}/lease", {**OPENING, "holder": "h2"})

    said = reported(begun, entries=[ENTRY])
    assert (said.status, said.error["reason"]) == (409, "superseded")


def test_what_is_over_takes_no_more_reports(begun: Asker) -> None:
    reported(begun, ended="failed")

    said = reported(begun, 2, entries=[ENTRY])
    assert (said.status, said.error["reason"]) == (409, "ended")
    assert begun.get(RUN).json()["status"] == "failed"


def test_a_report_of_an_unknown_run_is_not_found(ask: Asker) -> None:
    assert reported(ask).error["type"] == "not_found_error"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"events": [WRITTEN] * 257}, "events"),
        ({"events": [{**WRITTEN, "type": "run.exploded"}]}, "type"),
        ({"events": [{**WRITTEN, "at": -1}]}, "at"),
        ({"entries": [ENTRY, ENTRY]}, "entries"),
        ({"entries": [ENTRY], "deleted": ["shared:a"]}, "entries"),
        ({"deleted": ["a"]}, "key"),
        ({"entries": [{**ENTRY, "kind": "input"}]}, "kind"),
        ({"entries": [{**ENTRY, "value": "{"}]}, "value"),
        ({"entries": [{**ENTRY, "value": '"' + "x" * 400_000 + '"'}]}, "value"),
        ({"entries": [{**ENTRY, "part_of": "text"}]}, "total"),
        ({"entries": [{**ENTRY, "part_of": "text", "total": 9}]}, "value"),
        ({"entries": [{**ENTRY, "title": "x" * 301}]}, "title"),
        ({"events": [{**WRITTEN, "type": "run.completed"}]}, "events"),
        ({"events": [{**WRITTEN, "type": "text.delta"}]}, "type"),
        ({"ended": "lost"}, "ended"),
        ({"holder": ""}, "holder"),
        ({"fence": -1}, "fence"),
    ],
)
def test_what_cannot_have_happened_is_refused(
    begun: Asker, wrong: dict[str, Any], field: str
) -> None:
    said = reported(begun, **wrong)

    assert (said.status, said.error["type"]) == (400, "invalid_request_error")
    assert said.error["field"].split(".")[0] == field
    assert begun.get(RUN).json()["entries"] == 0


def test_reports_are_at_most_a_mebibyte(begun: Asker) -> None:
    said = reported(begun, holder="x" * 1_100_000)

    assert (said.status, said.error["type"]) == (413, "request_too_large")


def test_a_live_run_is_not_deleted(begun: Asker) -> None:
    assert begun("DELETE", RUN).status == 409
    reported(begun, ended="completed")
    assert begun("DELETE", RUN).json() == {"id": "run_1", "type": "run_deleted"}
    assert begun.get(RUN).status == 404


def test_runs_of_other_processes_are_not_steered(begun: Asker) -> None:
    said = begun.post(f"{RUN}/steer", {"text": "hurry"})

    assert (said.status, said.error["reason"]) == (409, "elsewhere")
    assert "rock:7" in said.error["message"]


def test_a_run_of_another_process_learns_that_it_is_to_end(begun: Asker) -> None:
    assert begun.post(f"{RUN}/cancel", {"reason": "enough"}).status == 202

    assert reported(begun).json() == {"id": "run_1", "number": 1, "seq": 1, "cancel": "enough"}


def test_a_run_of_this_process_is_cancelled_and_steered(ask: Asker, hf: Holdfast) -> None:
    held = Held("a", "b")
    over = hf.runs.attach(RunMemory(run_id="run_1"), name="n", control=held)

    cancelled = ask.post(f"{RUN}/cancel", {"reason": "enough"})
    steered = ask.post(f"{RUN}/steer", {"text": "hurry", "step": None})
    over("cancelled")

    assert (cancelled.status, steered.json()) == (202, {"steps": ["a", "b"]})
    assert held.asked == [("cancel", "enough"), ("steer", "hurry", "a", "b")]
    assert ask.post(f"{RUN}/cancel").error["reason"] == "ended"


def test_entries_are_asked_for_by_their_filters(begun: Asker) -> None:
    kinds = {"shared:a": "shared", "shared:b": "shared", "task:t": "task_result"}
    entries = [{**ENTRY, "key": key, "kind": kind} for key, kind in kinds.items()]
    entries[0]["source"] = "ada"
    reported(begun, entries=entries)

    def keys(query: str) -> list[str]:
        told = begun.get(f"{RUN}/entries?{query}").json()
        return [each["key"] for each in told["entries"]]

    assert keys("kind=shared&order=oldest") == ["shared:a", "shared:b"]
    assert keys("kind=shared&kind=task_result&limit=1") == ["task:t"]
    assert keys("key_prefix=task:") == ["task:t"]
    assert keys("source=ada") == ["shared:a"]
    assert begun.get(f"{RUN}/entries?kind=x").status == 400
    assert begun.get(f"{RUN}/entries?colour=red").status == 400


def test_reported_events_go_through_the_servers_bus(begun: Asker, hf: Holdfast) -> None:
    heard: list[Event] = []
    off = hf.events.subscribe(heard.append, types={"run.entry_written"})
    reported(begun, events=[WRITTEN])
    reported(begun, events=[WRITTEN])
    off()

    assert [(each.ids, each.data) for each in heard] == [
        ({"run_id": "run_1", "key": "shared:a"}, {"version": 1})
    ]


@pytest.fixture
def url(hf: Holdfast, clock: FrozenClock) -> Iterator[str]:
    with serving(hf, clock=clock) as url:
        yield url


def followed(ask: Asker) -> list[dict[str, str]]:
    """Return all messages of the run's stream, which has ended."""
    with serving(ask.app.state.hf, clock=ask.app.state.clock) as url:
        return messages(httpx.get(f"{url}{RUN}/events", timeout=60))


def messages(answer: httpx.Response) -> list[dict[str, str]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = [each for each in answer.text.split("\n\n") if each and not each.startswith(":")]
    parted = [dict(line.split(": ", 1) for line in each.splitlines()) for each in told]
    return [each for each in parted if "id" in each or each["event"] == "gap"]


def test_a_stream_ends_with_the_run(begun: Asker, url: str) -> None:
    reported(begun, events=[WRITTEN, {**WRITTEN, "type": "memory.deleted"}])
    reported(begun, 2, ended="failed")

    answer = httpx.get(f"{url}{RUN}/events", timeout=60)
    begin, first, second, last = messages(answer)
    assert (begin["id"], begin["event"]) == ("1", "run.started")
    assert (first["id"], first["event"]) == ("2", "memory.written")
    assert json.loads(first["data"]) == {
        **WRITTEN,
        "seq": 2,
        "thread_id": None,
        "network": None,
        "part": None,
        "agent": None,
        "call_id": None,
    }
    assert (second["id"], last["event"]) == ("3", "run.failed")
    assert answer.text.endswith('event: ended\ndata: {"run_id":"run_1","status":"failed"}\n\n')


def test_a_stream_goes_on_after_the_last_event_that_was_seen(begun: Asker, url: str) -> None:
    reported(begun, events=[WRITTEN] * 5)
    reported(begun, 2, ended="completed")

    def seen(query: str = "", **headers: str) -> list[str]:
        told = messages(httpx.get(f"{url}{RUN}/events{query}", headers=headers, timeout=60))
        return [each["id"] for each in told]

    assert seen("?after=4") == ["5", "6", "7"]
    assert seen(**{"last-event-id": "6"}) == ["7"]
    assert seen("?after=1", **{"last-event-id": "6"}) == ["7"]
    assert seen("?types=run.started,run.completed") == ["1", "7"]


def test_what_was_missed_is_told_as_a_gap(begun: Asker, url: str) -> None:
    reported(begun, events=[WRITTEN])
    reported(begun, 2, events=[{**WRITTEN, "seq": 10}])
    reported(begun, 3, ended="completed")

    told = messages(httpx.get(f"{url}{RUN}/events", timeout=60))
    assert [(each["id"], each["event"]) for each in told] == [
        ("1", "run.started"),
        ("2", "memory.written"),
        ("9", "gap"),
        ("10", "memory.written"),
        ("11", "run.completed"),
    ]
    assert json.loads(told[2]["data"])["data"] == {"missed": 7}


@pytest.mark.parametrize("given", ["x", "-1", "1" * 19])
def test_no_other_position_is_gone_on_from(begun: Asker, given: str) -> None:
    said = begun.get(f"{RUN}/events", **{"last-event-id": given})

    assert (said.status, said.error["field"]) == (400, "last-event-id")


def test_a_stream_of_an_unknown_run_is_not_found(ask: Asker) -> None:
    assert ask.get(f"{RUN}/events").status == 404


def test_numbers_of_runs_are_told(begun: Asker) -> None:
    reported(begun, entries=[ENTRY])

    told: dict[str, Any] = dict(
        line.rsplit(" ", 1)
        for line in begun.get("/metrics").body.decode().splitlines()
        if line.startswith("holdfast_run_")
    )
    assert (told["holdfast_run_entries"], told["holdfast_run_bytes"]) == ("1", "26")
    assert told["holdfast_run_live"] == "1"
    assert 'holdfast_run_writes_total{kind="task_result"}' in told
