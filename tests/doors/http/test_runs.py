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
from holdfast.memories.run.records.read import FollowOptions, look
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


LEASE = f"{RUN}/lease"
ACQUIRED = {"action": "acquire", "holder": "h1"}
VERSION = {
    "fence": 1,
    "at": AT,
    "cause": "step",
    "part": "read",
    "rows": [{"kind": "value", "key": "a", "body": '{"b":1.0}'}],
}


def keyed(ask: Asker, hf: Holdfast, **facts: Any) -> Asker:
    """Return the requests of a new key with *facts*."""
    return ask.as_(x_api_key=str(hf.keys.create("k", **facts).secret))


def test_a_lease_is_acquired_once_renewed_and_released(ask: Asker, clock: FrozenClock) -> None:
    taken = ask.post(LEASE, ACQUIRED).json()
    again = ask.post(LEASE, ACQUIRED).json()
    clock.tick(50)
    renewed = ask.post(LEASE, {"action": "renew", "holder": "h1", "fence": 1}).json()
    clock.tick(50)
    refused = ask.post(LEASE, {**ACQUIRED, "holder": "h2"})
    release = {"action": "release", "holder": "h1", "fence": 1}
    released = [ask.post(LEASE, release).json() for _ in range(2)]
    next = ask.post(LEASE, {**ACQUIRED, "holder": "h2"}).json()

    assert [each["type"] for each in taken["opened"]] == ["run.started"]
    assert (again["fence"], again["opened"]) == (1, [])
    assert renewed == {"id": "run_1", "fence": 1, "cancel": None}
    assert (refused.status, refused.facts["class"]) == (409, "RunTaken")
    assert [each["status"] for each in released] == ["queued", "queued"]
    assert [each["event"] and each["event"]["type"] for each in released] == ["run.queued", None]
    assert (next["fence"], next["status"]) == (2, "running")


def test_a_release_with_a_status_is_the_end_of_the_run(begun: Asker) -> None:
    reported(begun, 3, events=[WRITTEN])
    release = {"action": "release", "holder": "h1", "fence": 1, "status": "failed"}

    ends = [begun.post(LEASE, release).json()["status"] for _ in range(2)]

    assert ends == ["failed", "failed"]
    assert [each["event"] for each in followed(begun)].count("run.failed") == 1


@pytest.mark.parametrize("action", ["renew", "release"])
def test_a_former_owner_neither_renews_nor_releases(begun: Asker, action: str) -> None:
    begun.post(LEASE, {**OPENING, "holder": "h2"})

    for holder, fence in (("h1", 1), ("h1", 2), ("h2", 1)):
        said = begun.post(LEASE, {"action": action, "holder": holder, "fence": fence})
        assert (said.status, said.facts["class"]) == (409, "StaleRun")
    assert begun.get(RUN).json()["fence"] == 2


def test_an_owner_learns_from_its_renewal_that_it_is_to_end(begun: Asker) -> None:
    begun.post(f"{RUN}/cancel", {"reason": "enough"})
    look = {"action": "renew", "holder": "h1", "fence": 1, "extend": False}

    assert begun.post(LEASE, look).json()["cancel"] == "enough"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"action": "steal"}, "action"),
        ({"holder": ""}, "holder"),
        ({"take_over": "perhaps"}, "take_over"),
        ({"action": "renew"}, "fence"),
        ({"kind": "dance"}, "kind"),
        ({"started_at": -1}, "started_at"),
    ],
)
def test_what_no_lease_can_be_is_refused(ask: Asker, wrong: dict[str, Any], field: str) -> None:
    said = ask.post(LEASE, {**ACQUIRED, **wrong})

    assert (said.status, said.error["field"]) == (400, field)


def test_who_may_not_write_acquires_nothing(ask: Asker, hf: Holdfast) -> None:
    keyed(ask, hf, scope="admin")
    session = hf.sessions.create(agent="a", environment_id="e", resources=[]).id
    token = hf.sessions.create_token(session).token
    refused = [
        keyed(ask, hf, scope="read"),
        keyed(ask, hf, scope="write", agent="ada"),
        keyed(ask, hf, scope="write", user="anna"),
        ask.as_(x_api_key=str(token)),
    ]

    for each in refused:
        for method, path in (("POST", LEASE), ("PUT", f"{RUN}/versions/1")):
            body = ACQUIRED if method == "POST" else VERSION
            assert each(method, path, body).status in {401, 403}
    assert keyed(ask, hf, scope="write").post(LEASE, ACQUIRED).status == 200


def test_a_workspace_has_its_own_leases(ask: Asker, hf: Holdfast) -> None:
    other = keyed(ask, hf.acting(workspace="other"), scope="write")
    here = keyed(ask, hf, scope="write")

    assert here.post(LEASE, ACQUIRED).json()["fence"] == 1
    assert other("PUT", f"{RUN}/versions/1", VERSION).status == 404
    assert other.post(LEASE, {**ACQUIRED, "holder": "h2"}).json()["fence"] == 1


def test_a_version_that_comes_twice_is_stored_once(begun: Asker, hf: Holdfast) -> None:
    said = [begun("PUT", f"{RUN}/versions/1", VERSION).json() for _ in range(2)]

    assert said[0] == said[1]
    assert (said[0]["number"], said[0]["stored"]) == (1, True)
    assert [each["type"] for each in said[0]["events"]] == ["version.kept"]
    assert [each.number for each in hf.runs.versions("run_1")] == [1]
    assert [each["event"] for each in followed_so_far(hf)].count("version.kept") == 1


def test_the_version_with_which_a_run_rests_may_come_twice(begun: Asker, hf: Holdfast) -> None:
    asked = {
        "id": "question_1",
        "run_id": "run_1",
        "kind": "question",
        "key": "berth",
        "text": "Which?",
        "asked_at": "2026-01-01T00:00:00Z",
    }
    rests = {**VERSION, "cause": "question", "status": "waiting", "questions": [asked], "seq": 4}

    said = [begun("PUT", f"{RUN}/versions/1", rests).json() for _ in range(2)]

    assert said[0] == said[1]
    types = [each["type"] for each in said[0]["events"]]
    assert types == ["version.kept", "question.asked", "run.waiting"]
    assert hf.runs.retrieve("run_1").status == "waiting"
    assert len(hf.runs.questions().data) == 1


def test_another_version_of_a_number_is_not_stored(begun: Asker, hf: Holdfast) -> None:
    begun("PUT", f"{RUN}/versions/1", VERSION)

    other = begun("PUT", f"{RUN}/versions/1", {**VERSION, "at": AT + 1}).json()
    ahead = begun("PUT", f"{RUN}/versions/3", VERSION).json()

    assert [(each["number"], each["stored"]) for each in (other, ahead)] == [(None, False)] * 2
    assert len(hf.runs.versions("run_1").data) == 1


def test_a_former_owner_stores_no_version(begun: Asker, hf: Holdfast) -> None:
    begun.post(LEASE, {**OPENING, "holder": "h2"})

    said = begun("PUT", f"{RUN}/versions/1", VERSION)

    assert (said.status, said.facts["class"], said.error["reason"]) == (
        409,
        "StaleRun",
        "superseded",
    )
    assert not hf.runs.versions("run_1").data


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"at": -1}, "at"),
        ({"cause": "a\n"}, "cause"),
        ({"cause": None, "status": "waiting"}, "cause"),
        ({"rows": [{"kind": "value", "key": "a", "body": "{"}]}, "body"),
        ({"rows": [{"kind": "value", "key": "a", "body": "[" * 300 + "]" * 300}]}, "body"),
        ({"rows": [{"kind": "value", "key": "a\0", "body": "1"}]}, "key"),
        ({"rows": [{"kind": "dance", "key": "a", "body": "1"}]}, "rows[0].kind"),
        ({"turns": [{"part": "a", "n": -1, "body": "{}"}]}, "n"),
        ({"questions": [{"id": "question_1"}]}, "run_id"),
    ],
)
def test_what_no_version_can_be_is_refused(
    begun: Asker, hf: Holdfast, wrong: dict[str, Any], field: str
) -> None:
    said = begun("PUT", f"{RUN}/versions/1", {**VERSION, **wrong})

    assert (said.status, said.error["field"]) == (400, field)
    assert begun("PUT", f"{RUN}/versions/newest", VERSION).status == 400
    assert not hf.runs.versions("run_1").data


def test_the_newest_version_is_read_with_what_goes_on_from_it(begun: Asker) -> None:
    turn = {"part": "write", "n": 0, "body": '{"kind":"request"}', "agent": "ada"}
    begun("PUT", f"{RUN}/versions/1", {**VERSION, "turns": [turn]})

    assert begun.get(f"{RUN}/checkpoint").json() == {
        "id": "run_1",
        "number": 1,
        "at": AT,
        "rows": VERSION["rows"],
        "turns": [turn],
        "questions": [],
    }
    assert begun("DELETE", f"{RUN}/checkpoint").json() == {"id": "run_1", "deleted": True}
    assert begun.get(f"{RUN}/checkpoint").status == 404


def test_a_checkpoint_that_comes_twice_is_one_version(ask: Asker, hf: Holdfast) -> None:
    whole = {**VERSION, "fence": 0}
    said = [ask("PUT", f"{RUN}/checkpoint", whole).json() for _ in range(2)]
    turn = {"part": "write", "n": 0, "body": "{}"}
    other = ask("PUT", f"{RUN}/checkpoint", {**whole, "turns": [turn]}).json()

    assert [each["number"] for each in (*said, other)] == [1, 1, 2]
    assert len(hf.runs.versions("run_1").data) == 2


def followed_so_far(hf: Holdfast) -> list[dict[str, Any]]:
    """Return the events of the run that are stored now."""
    found = look(hf.runs.context, "run_1", FollowOptions())
    return [{"event": each.type} for each in found.events]
