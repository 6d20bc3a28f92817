import pytest
from doors.cli.lines import Run


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
