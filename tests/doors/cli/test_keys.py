import pytest
from doors.cli.lines import Run


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
