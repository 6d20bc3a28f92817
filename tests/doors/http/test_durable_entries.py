"""Durable memory over HTTP: entries written, read, forgotten, explained."""

from typing import Any
from urllib.parse import unquote

import pytest
from doors.http.asking import Asker, Said

from holdfast.testing.fakes import FrozenClock

E = "/api/durable/agent_7"
CORE = {"content": "fly.io", "category": "core"}


def put(ask: Asker, key: str, body: dict[str, Any] | None = None, **headers: str) -> Said:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask("PUT", f"{E}/entries/{key}", body or CORE, headers=told)


def test_a_new_entry_is_201_and_one_written_over_200(ask: Asker) -> None:
    first, second = put(ask, "target"), put(ask, "target", {**CORE, "content": "render"})

    assert (first.status, first.json()["outcome"]) == (201, "created")
    assert (second.status, second.json()["outcome"]) == (200, "replaced")
    assert first.json()["id"] == second.json()["id"]


def test_an_entry_has_the_fields_of_the_library_and_times_of_milliseconds(
    ask: Asker, clock: FrozenClock
) -> None:
    put(ask, "k", {"content": "c", "category": "daily", "tags": ["b", "a", "b"]})

    entry = ask.get(f"{E}/entries/k").json()

    now = clock.now().isoformat(timespec="milliseconds")[:-6] + "Z"
    by = {"type": "api_actor", "api_key_id": "apikey_local"}
    assert entry == {
        "id": entry["id"],
        "key": "k",
        "content": "c",
        "category": "daily",
        "tags": ["a", "b"],
        "scope": "agent",
        "workspace": "default",
        "agent": "agent_7",
        "run_id": None,
        "seq": 1,
        "size_bytes": 9,
        "created_at": now,
        "updated_at": now,
        "expires_at": entry["expires_at"],
        "created_by": by,
        "updated_by": by,
        "tier": "said",
        "origin_ref": None,
        "held": None,
    }
    assert len(entry["expires_at"]) == len("2026-11-21T04:00:00.000Z")


@pytest.mark.parametrize("key", ["a%2Fb", "a+b", "a%20b", "%C3%A9", "%2E%2E", "restore", "a%25b"])
def test_a_key_is_one_segment_of_the_path(ask: Asker, key: str) -> None:
    said = put(ask, key)

    assert (said.status, said.json()["key"]) == (201, unquote(key))


def test_an_absent_key_is_404_with_its_code(ask: Asker) -> None:
    said = ask.get(f"{E}/entries/nope")

    assert (said.status, said.error["code"], said.error["kind"]) == (404, "HF-MEM-002", "entry")


def test_a_failed_precondition_tells_the_present_entry_in_the_body_alone(ask: Asker) -> None:
    put(ask, "k", {"content": "x" * 16_000, "category": "core"})

    said = put(ask, "k", {**CORE, "expected_seq": 0})

    assert (said.status, said.error["type"], said.error["code"]) == (
        409,
        "conflict_error",
        "HF-MEM-009",
    )
    assert said.error["current"]["seq"] == 1
    assert len(said.headers["holdfast-error"]) < 1_000


def test_a_write_repeated_under_its_key_is_done_once(ask: Asker) -> None:
    first = put(ask, "k", idempotency_key="one")
    ask("DELETE", f"{E}/entries/k")
    again = put(ask, "k", idempotency_key="one")

    assert again.json() == first.json()
    assert ask.get(f"{E}/entries/k").status == 404


def test_a_key_of_another_write_is_refused(ask: Asker) -> None:
    put(ask, "k", idempotency_key="one")

    said = put(ask, "other", idempotency_key="one")

    assert (said.status, said.error["code"]) == (409, "HF-MEM-010")


def test_many_are_written_at_once_or_none(ask: Asker) -> None:
    good, bad = {"key": "k", **CORE}, {"key": "", **CORE}

    said = ask.post(f"{E}/entries", {"entries": [good, bad]})

    assert (said.status, said.error["code"], said.error["index"]) == (400, "HF-MEM-004", 1)
    assert ask.get(f"{E}/entries").json()["data"] == []


def test_what_is_skipped_is_told_by_its_place_with_its_error(ask: Asker) -> None:
    entries = [{"key": "k", **CORE}, {"key": "", **CORE}, {"key": "x", "odd": 1}, 7]

    said = ask.post(f"{E}/entries", {"entries": entries, "on_error": "skip"}).json()

    assert [each["key"] for each in said["stored"]] == ["k"]
    assert [each["index"] for each in said["refused"]] == [1, 2, 3]
    assert {each["error"]["code"] for each in said["refused"]} == {"HF-MEM-004"}


def test_a_list_is_filtered_and_goes_on_by_its_cursor(ask: Asker) -> None:
    for number in range(3):
        put(ask, f"k{number}", {"content": "Ada", "category": "own", "tags": ["a", "b"]})
    put(ask, "other", {"content": "Ada", "category": "own", "tags": ["a"]})
    asked = f"{E}/entries?tag=a&tag=b&category=own&key_prefix=k&query=ada&since=1h&limit=2"

    first = ask.get(asked).json()
    last = ask.get(f"{asked}&page={first['next_page']}").json()

    assert [each["key"] for each in first["data"]] == ["k2", "k1"]
    assert [each["key"] for each in last["data"]] == ["k0"]
    assert last["next_page"] is None


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "since=soon", "page=page_x", "tag=", "odd=1"]
)
def test_a_bad_filter_is_refused(ask: Asker, query: str) -> None:
    said = ask.get(f"{E}/entries?{query}")

    assert (said.status, said.error["code"]) == (400, "HF-MEM-004")


@pytest.mark.parametrize("unit", ["3600s", "60.0m", "1h", "2d"])
def test_a_span_reaches_back_from_now(ask: Asker, clock: FrozenClock, unit: str) -> None:
    put(ask, "old")
    clock.tick(3 * 24 * 3600)
    put(ask, "new")

    found = ask.get(f"{E}/entries?since={unit}").json()["data"]

    assert [each["key"] for each in found] == ["new"]


def test_forgetting_tells_whether_there_was_anything(ask: Asker) -> None:
    put(ask, "k")

    said = [ask("DELETE", f"{E}/entries/k?scope=agent") for _ in range(2)]

    assert [each.json() for each in said] == [
        {"forgotten": True, "key": "k"},
        {"forgotten": False, "key": "k"},
    ]


def test_a_hydration_comes_rendered(ask: Asker) -> None:
    put(ask, "k")

    said = ask.get(f"{E}/hydration?budget=10").json()

    assert [each["reason"] for each in said["omitted"]] == ["too_big"]
    assert said["rendered"].startswith('<durable_memory agent="agent_7" entries="0" omitted="1">')


def test_an_explanation_says_why(ask: Asker) -> None:
    put(ask, "k")

    said = ask.get(f"{E}/entries/k/explanation").json()

    assert (said["hydrated"], said["reason"], said["tier"]) == (True, "core", "pinned")


def test_a_change_is_listed_redacted_and_brought_back(ask: Asker) -> None:
    put(ask, "k", {**CORE, "promoted_from": "shared:target"})
    put(ask, "k", {**CORE, "content": "render"})

    last, first = ask.get(f"{E}/history?key=k").json()["data"]
    restored = ask.post(f"{E}/entries/k/restore", {"seq": first["seq"]})
    redacted = ask.post(f"{E}/history/{first['seq']}/redact")

    assert (first["op"], last["op"]) == ("create", "replace")
    assert first["cause"] == {"promoted_from": "shared:target"}
    assert restored.json()["content"] == "fly.io"
    assert (redacted.json()["content"], redacted.json()["actor"]["type"]) == (None, "api_actor")


@pytest.mark.parametrize("seq", ["0", "99", "x", "-1", "9" * 30, "1.0"])
def test_a_change_that_is_not_there_cannot_be_redacted(ask: Asker, seq: str) -> None:
    said = ask.post(f"{E}/history/{seq}/redact")

    assert (said.status, said.error["code"]) == (404, "HF-MEM-002")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"content": "c"}, "category"),
        ({"content": 1, "category": "c"}, "content"),
        ({**CORE, "tags": "ab"}, "tags"),
        ({**CORE, "agent": "other"}, "agent"),
        ({**CORE, "workspace": "other"}, "workspace"),
        ({**CORE, "expected_seq": "1"}, "expected_seq"),
    ],
)
def test_a_body_is_what_it_should_be_and_never_says_whose(
    ask: Asker, body: dict[str, Any], field: str
) -> None:
    said = put(ask, "k", body)

    assert (said.status, said.error["code"], said.error["field"]) == (400, "HF-MEM-004", field)


def test_a_body_has_room_for_4_mib(ask: Asker) -> None:
    many = [{"key": f"k{n}", "content": "x" * 16_000, "category": "own"} for n in range(200)]

    said = ask.post(f"{E}/entries", {"entries": many})

    assert (said.status, len(said.json()["stored"])) == (200, 200)


def test_a_body_of_more_is_refused_unread(ask: Asker) -> None:
    said = ask("POST", f"{E}/entries", b"{" + b" " * (4 << 20))

    assert (said.status, said.error["code"]) == (413, "HF-MEM-004")


def test_a_conversation_entry_needs_a_run(ask: Asker) -> None:
    said = put(ask, "k", {"content": "c", "category": "conversation"})

    assert (said.status, said.error["code"]) == (400, "HF-MEM-008")


def test_a_full_memory_says_what_fills_it(ask: Asker) -> None:
    ask("PATCH", f"{E}/limits", {"cap": 1})
    put(ask, "k")

    said = put(ask, "other", {"content": "c", "category": "own"})

    assert (said.status, said.error["code"], said.error["coldest"]) == (409, "HF-MEM-005", ["k"])


def test_limits_are_told_set_and_let_go_of(ask: Asker) -> None:
    ask("PATCH", "/api/settings/durable", {"cap": 9, "workspace_cap": 5})
    ask("PATCH", f"{E}/limits", {"cap": 3, "budget": 0})
    own = ask.get(f"{E}/limits").json()
    changed = ask("PATCH", f"{E}/limits", {"cap": None}).json()

    assert (own["cap"], own["budget"], own["workspace_cap"]) == (3, 0, 5)
    assert (changed["limits"]["cap"], changed["evicted"]) == (9, [])
    assert ask.get("/api/settings/durable").json()["cap"] == 9


def test_a_lower_cap_evicts_only_when_told_to(ask: Asker) -> None:
    put(ask, "k")
    put(ask, "other", {"content": "c", "category": "own"})

    refused = ask("PATCH", f"{E}/limits", {"cap": 1})
    done = ask("PATCH", f"{E}/limits", {"cap": 1, "evict": True})

    assert (refused.status, refused.error["would_evict"]) == (409, 1)
    assert [each["key"] for each in done.json()["evicted"]] == ["other"]


def test_sweeps_tell_what_was_over(ask: Asker, clock: FrozenClock) -> None:
    put(ask, "k", {"content": "c", "category": "daily"})
    clock.tick(73 * 3600)

    swept, again = ask.post("/api/sweep").json(), ask.post(f"{E}/sweep").json()

    assert [each["key"] for each in swept["expired"]] == ["k"]
    assert again == {"expired": [], "ended_runs": 0, "removed": 0}


def test_agents_are_listed_by_name(ask: Asker) -> None:
    put(ask, "k")
    ask("PUT", "/api/durable/agent_1/entries/k", CORE)

    said = ask.get("/api/durable").json()

    assert [each["agent"] for each in said["data"]] == ["agent_1", "agent_7"]
    assert {each["entries"] for each in said["data"]} == {1}


def test_forgetting_an_agent_leaves_nothing_of_it(ask: Asker) -> None:
    put(ask, "k")

    report = ask.post("/api/forget", {"agent": "agent_7"}).json()

    assert (report["type"], report["counts"]["durable_entries"]) == ("forget_report", 1)
    assert ask.get("/api/durable").json()["data"] == []


def test_files_go_out_and_come_in(ask: Asker) -> None:
    put(ask, "k")
    files = ask.get(f"{E}/export").json()["files"]
    ask("DELETE", f"{E}/entries/k")

    dry = ask.post(f"{E}/import", {"files": files, "dry_run": True}).json()
    report = ask.post(f"{E}/import", {"files": files}).json()

    assert [each["path"] for each in files] == [".holdfast-export", "core/k.md"]
    assert dry["created"] == report["created"] == ["k"]
    assert (dry["dry_run"], report["dry_run"]) == (True, False)


def test_replacing_with_a_file_that_could_not_be_sent_changes_nothing(ask: Asker) -> None:
    put(ask, "k")
    unread = {"path": "bad.md", "code": "HF-MEM-004", "reason": "is not UTF-8"}

    said = ask.post(f"{E}/import", {"files": [], "mode": "replace", "rejected": [unread]})

    assert (said.status, said.error["code"]) == (400, "HF-MEM-011")
    assert said.error["rejected"] == [unread]
    assert ask.get(f"{E}/entries/k").status == 200
