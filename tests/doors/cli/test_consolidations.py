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
