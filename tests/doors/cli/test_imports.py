"""`holdfast import`, on a database and on a server."""

from pathlib import Path
from typing import Any

import pytest
from doors.cli.lines import Run

from holdfast.testing.serving import Server, new_workspace

FILES = Path(__file__).parents[2] / "library" / "imports" / "files"
MEM0 = str(FILES / "mem0.json")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_LTM_ENABLED", raising=False)


def found(run: Run, user: str = "ada") -> list[str]:
    return [each["text"] for each in run("ltm", "list", user).data]


def test_a_dry_run_prints_the_report_and_an_import_does_it(run: Run) -> None:
    rehearsed: dict[str, Any] = run("import", "mem0", MEM0, "--user", "ada", "--dry-run").json
    assert found(run) == []
    done = run("import", "mem0", MEM0, "--user", "ada").json

    assert rehearsed | {"dry_run": False} == done
    assert (done["read"], done["stored"], len(done["skipped"])) == (4, 2, 2)
    assert len(found(run)) == 2


def test_several_files_and_options_are_given(run: Run) -> None:
    files = [str(FILES / f"claude_{each}.json") for each in ("conversations", "memories")]
    done = run("import", "claude", *files, "--user", "ada", "--limit", "4").json
    assert (done["read"], done["turns"], done["items"]) == (4, 3, 1)

    pages = run(
        "import", "letta", str(FILES / "letta.af"), "--store", "Notes", "--human", "human"
    ).json
    assert pages["memories"] == 1
    assert [each["name"] for each in run("stores", "list").data] == ["Notes"]


def test_what_cannot_be_imported_is_one_line(fails: Run, line: Run, db: str) -> None:
    assert "known is an export of ChatGPT" in fails("import", "chatgpt", MEM0, "--user", "ada").err
    assert "kind" in fails("import", "zep", MEM0, "--user", "ada").err
    assert "needs a user" in fails("import", "mem0", MEM0).err
    assert line("import", "mem0", "--db", db).code == 2
    assert line("import", "mem0", MEM0, "--limit", "0", "--db", db).code == 2


def test_memory_that_is_switched_off_is_not_imported_into(
    fails: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "0")

    assert "Long-term memory is off" in fails("import", "mem0", MEM0, "--user", "ada").err


def test_a_server_is_imported_into(line: Run, server: Server) -> None:
    workspace = new_workspace()
    given = ("--db", server.url, "--workspace", workspace)
    ran = line(
        "import", "chatgpt", str(FILES / "chatgpt_conversations.json"), "--user", "ada", *given
    )

    assert (ran.code, ran.json["turns"]) == (0, 4)
    listed = line("ltm", "list", "ada", "--turns", *given)
    assert len(listed.data) == 4
