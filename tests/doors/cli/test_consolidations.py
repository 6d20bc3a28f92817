"""`holdfast consolidate`, on a database and on a server."""

import pytest
from doors.cli.lines import Run


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")


def test_a_proposal_is_shown_accepted_and_undone(run: Run) -> None:
    for city in ("Lisbon", "Madrid"):
        run("ltm", "remember", "ada", f"Lives in {city}")
    job = run("consolidate", "start", "ada").json
    (change,) = job["proposal"]["changes"]

    assert (job["status"], change["op"]) == ("completed", "supersede")
    assert "-[fact] Lives in Lisbon" in change["diff"]
    done = run("consolidate", "accept", job["id"], "--only", change["id"]).json
    assert done["changed"] == [change["id"]]
    assert run("consolidate", "show", job["id"]).json["proposal"]["status"] == "accepted"
    assert run("consolidate", "undo", job["id"]).json["kept"] == []
    (row,) = run("consolidate", "list", "--user", "ada").data
    assert (row["id"], row["proposal"]) == (job["id"], "undone")


def test_a_rejected_proposal_stays_rejected(run: Run) -> None:
    run("ltm", "remember", "ada", "Lives in Lisbon")
    job = run("consolidate", "start", "ada").json
    assert job["proposal"]["changes"] == []
    assert run("consolidate", "reject", job["id"]).json["proposal"]["status"] == "rejected"
    assert run("consolidate", "cancel", job["id"]).json["status"] == "completed"


def test_stores_and_agents_are_consolidated(run: Run) -> None:
    store = run("stores", "create", "Notes").json["id"]
    run("durable", "set", "agent_7", "a", "The office is in Porto", "--category", "core")
    run("durable", "set", "agent_7", "b", "The office is in Porto", "--category", "core")

    job = run("consolidate", "start", "--agent", "agent_7").json
    assert [each["op"] for each in job["proposal"]["changes"]] == ["merge"]
    assert "-The office is in Porto" in job["proposal"]["changes"][0]["diff"]
    assert run("consolidate", "accept", job["id"]).json["stale"] == []
    job = run("consolidate", "start", "--store", store, "--into", "new_store").json
    assert (job["store"], job["into"], job["proposal"]["changes"]) == (store, "new_store", [])
    (row,) = run("consolidate", "list", "--store", store).data
    assert row["id"] == job["id"]
