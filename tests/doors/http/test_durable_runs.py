"""Runs of durable memory over HTTP: headers, fence, end."""

import pytest
from doors.http.asking import Asker, Said

from holdfast.testing.fakes import FrozenClock

E = "/api/durable/agent_7"
SCRATCH = {"content": "c", "category": "conversation"}


def opened(ask: Asker, run_id: str = "run_1", **more: object) -> dict[str, str]:
    said = ask.post(f"{E}/runs", {"run_id": run_id, **more})
    assert said.status == 201, said.body
    return {"holdfast-run": run_id, "holdfast-run-token": str(said.json()["token"])}


def test_opening_a_run_hydrates_it(ask: Asker) -> None:
    ask("PUT", f"{E}/entries/k", {"content": "c", "category": "core"})

    said = ask.post(f"{E}/runs", {"run_id": "run_1", "lane": "night", "budget": 100}).json()

    assert (said["run_id"], said["lane"], said["token"] > 0) == ("run_1", "night", True)
    assert [each["key"] for each in said["hydration"]["entries"]] == ["k"]
    assert said["hydration"]["budget"] == 100


def test_a_run_without_a_name_is_given_one(ask: Asker) -> None:
    said = ask.post(f"{E}/runs")

    assert said.status == 201
    assert said.json()["run_id"].startswith("run_")


def test_a_runs_own_entries_are_seen_in_it_alone(ask: Asker) -> None:
    run = opened(ask)

    stored = ask("PUT", f"{E}/entries/k", SCRATCH, headers=run).json()

    assert (stored["scope"], stored["run_id"]) == ("run", "run_1")
    assert stored["created_by"] == {
        "type": "agent_actor",
        "agent_id": "agent_7",
        "run_id": "run_1",
        "run_token": int(run["holdfast-run-token"]),
    }
    assert ask("GET", f"{E}/entries/k", headers=run).status == 200
    assert ask.get(f"{E}/entries/k").status == 404
    assert ask.get(f"{E}/entries").json()["data"] == []


def test_ending_a_run_takes_its_entries(ask: Asker) -> None:
    run = opened(ask)
    ask("PUT", f"{E}/entries/k", SCRATCH, headers=run)

    said = ask("POST", f"{E}/runs/run_1/end", {"outcome": "failed"}, headers=run)

    assert said.json() == {"ended": True, "removed": 1}


def test_an_end_repeated_under_its_key_is_done_once(ask: Asker) -> None:
    run = {**opened(ask), "idempotency-key": "one"}

    said = [ask("POST", f"{E}/runs/run_1/end", headers=run) for _ in range(2)]

    assert [each.status for each in said] == [200, 200]
    assert said[0].body == said[1].body


def test_a_heartbeat_tells_when_the_run_would_lapse(ask: Asker, clock: FrozenClock) -> None:
    run = opened(ask)
    clock.tick(60)

    said = ask("POST", f"{E}/runs/run_1/heartbeat", headers=run)

    assert said.json()["lapses_at"].endswith("Z")
    assert said.status == 200


def everything_of(ask: Asker, run: dict[str, str]) -> list[Said]:
    return [
        ask("GET", f"{E}/entries", headers=run),
        ask("GET", f"{E}/entries/k", headers=run),
        ask("GET", f"{E}/entries/k/explanation", headers=run),
        ask("GET", f"{E}/hydration", headers=run),
        ask("PUT", f"{E}/entries/k", SCRATCH, headers=run),
        ask("POST", f"{E}/entries", {"entries": []}, headers=run),
        ask("DELETE", f"{E}/entries/k", headers=run),
        ask("POST", f"{E}/runs/{run['holdfast-run']}/heartbeat", headers=run),
        ask("POST", f"{E}/runs/{run['holdfast-run']}/end", headers=run),
    ]


def test_a_superseded_run_does_nothing_more(ask: Asker) -> None:
    old, new = opened(ask), opened(ask, "run_2")

    said = everything_of(ask, old)

    assert {each.status for each in said} == {409}
    assert {each.error["code"] for each in said} == {"HF-MEM-006"}
    assert {each.error["reason"] for each in said} == {"superseded"}
    assert {each.error["live_token"] for each in said} == {int(new["holdfast-run-token"])}


def test_a_token_that_was_never_given_is_stale(ask: Asker) -> None:
    run = opened(ask)
    run["holdfast-run-token"] = str(int(run["holdfast-run-token"]) + 1_000)

    assert {each.status for each in everything_of(ask, run)} == {409}


def test_a_run_of_another_agent_is_stale_here(ask: Asker) -> None:
    said = ask.post("/api/durable/agent_1/runs", {"run_id": "run_1"}).json()
    run = {"holdfast-run": "run_1", "holdfast-run-token": str(said["token"])}

    answers = everything_of(ask, run)

    assert {each.status for each in answers} == {409}
    assert {each.error["live_token"] for each in answers} == {None}


@pytest.mark.parametrize("missing", ["holdfast-run", "holdfast-run-token"])
def test_a_run_is_named_by_both_headers_or_none(ask: Asker, missing: str) -> None:
    run = opened(ask)
    del run[missing]

    said = ask("GET", f"{E}/entries", headers=run)

    assert (said.status, said.error["code"], said.error["field"]) == (400, "HF-MEM-004", missing)


@pytest.mark.parametrize("token", ["x", "-1", "1.0", "9" * 30, "", "²"])
def test_a_token_is_a_number(ask: Asker, token: str) -> None:
    said = ask("GET", f"{E}/entries", headers={"holdfast-run": "r", "holdfast-run-token": token})

    assert (said.status, said.error["code"]) == (400, "HF-MEM-004")


@pytest.mark.parametrize(
    ("method", "below"),
    [
        ("POST", "/runs"),
        ("GET", "/history"),
        ("GET", "/limits"),
        ("POST", "/sweep"),
        ("GET", "/export"),
    ],
)
def test_what_is_no_act_of_a_run_refuses_one(ask: Asker, method: str, below: str) -> None:
    said = ask(method, E + below, headers=opened(ask))

    assert (said.status, said.error["field"]) == (400, "holdfast-run")


@pytest.mark.parametrize("act", ["heartbeat", "end"])
def test_an_act_on_a_run_is_made_in_it(ask: Asker, act: str) -> None:
    run = opened(ask)

    other = ask("POST", f"{E}/runs/run_2/{act}", headers=run)
    none = ask("POST", f"{E}/runs/run_1/{act}")

    assert (other.status, other.error["code"]) == (400, "HF-MEM-004")
    assert (none.status, none.error["code"]) == (400, "HF-MEM-008")


def test_a_resumed_run_sees_what_the_crashed_one_kept(ask: Asker) -> None:
    crashed = opened(ask)
    ask("PUT", f"{E}/entries/k", SCRATCH, headers=crashed)

    said = ask.post(f"{E}/runs", {"run_id": "run_1", "resume": True}).json()

    assert [each["key"] for each in said["hydration"]["entries"]] == ["k"]


def test_a_key_forgotten_meanwhile_is_not_brought_back(ask: Asker) -> None:
    core = {"content": "c", "category": "core"}
    ask("PUT", f"{E}/entries/k", core)
    run = opened(ask)
    ask("DELETE", f"{E}/entries/k")

    said = ask("PUT", f"{E}/entries/k", core, headers=run)

    assert (said.status, said.error["code"]) == (409, "HF-MEM-007")
    assert said.error["by"] == "api:apikey_local"
