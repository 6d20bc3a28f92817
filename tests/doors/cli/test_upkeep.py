import sqlite3
from pathlib import Path

import pytest
from doors.cli.lines import Run


@pytest.fixture(autouse=True)
def store(run: Run) -> str:
    made = run("stores", "create", "Prefs").json
    run("memories", "put", "Prefs", "/a.md", stdin=b"text")
    return made["id"]


def test_a_backup_comes_back(run: Run, line: Run, tmp_path: Path, store: str) -> None:
    file, other = str(tmp_path / "backup.db"), str(tmp_path / "other.db")

    copied = run("backup", file).json
    restored = line("restore", file, "--db", other)

    assert copied["rows"] > 0
    assert restored.code == 0, restored.err
    assert restored.json["rows"] > 0
    shown = line("memories", "show", store, "/a.md", "--raw", "--db", other)
    assert shown.out == b"text"


def test_a_backup_replaces_a_file_only_when_told(run: Run, fails: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "backup.db")
    run("backup", file)

    fails("backup", file)

    assert run("backup", file, "--force").json["rows"] > 0


def test_a_used_database_is_replaced_only_when_told(run: Run, fails: Run, tmp_path: Path) -> None:
    file = str(tmp_path / "backup.db")
    run("backup", file)
    run("stores", "create", "Later")

    fails("restore", file)
    run("restore", file, "--replace")

    assert [each["name"] for each in run("stores", "list").data] == ["Prefs"]


def test_what_is_whole_is_ok(run: Run, store: str) -> None:
    report = run("verify").json

    assert report["ok"] is True
    assert report["findings"] == []
    assert list(report["links"]) == [store]


def test_a_link_noted_earlier_is_still_there(run: Run, line: Run, db: str, store: str) -> None:
    noted = run("verify", "--quick").json["links"][store]
    run("memories", "put", "Prefs", "/b.md", stdin=b"more")

    assert run("verify", "--head", noted).json["ok"] is True
    assert line("verify", "--head", "0" * 64, "--db", db).code == 1


def test_what_is_not_whole_is_found_and_exits_1(line: Run, db: str) -> None:
    with sqlite3.connect(db) as raw:
        raw.execute("update memories set content_size_bytes = 99")
    raw.close()

    ran = line("verify", "--db", db)

    assert ran.code == 1
    assert ran.json["ok"] is False
    assert set(ran.json["findings"][0]) == {"check", "table", "id", "expected", "found"}


def test_what_was_deleted_is_scrubbed(run: Run) -> None:
    assert run("scrub").json == {"done": True, "pending": []}


def test_a_full_scrub_leaves_everything_readable(run: Run) -> None:
    assert run("scrub", "--full").json == {"done": True, "pending": []}

    assert run("memories", "show", "Prefs", "/a.md", "--raw").out == b"text"


def test_words_out_of_step_are_rebuilt_on_request(run: Run, line: Run, db: str) -> None:
    with sqlite3.connect(db) as raw:
        raw.execute("update memories set words = 99")
    raw.close()

    assert line("verify", "--db", db).code == 1
    assert run("verify", "--repair").json["repaired"] is True
    assert run("verify").json["ok"] is True


def test_what_is_no_link_is_refused(fails: Run) -> None:
    assert "64 hexadecimal digits" in fails("verify", "--head", "x").err


def test_the_doctor_exits_1_exactly_if_something_needs_a_person(line: Run, db: str) -> None:
    ran = line("doctor", "--db", db)

    assert all(set(each) == {"name", "ok", "says"} for each in ran.data)
    assert ran.code == (0 if all(each["ok"] for each in ran.data) else 1)
    assert ran.err == ""


def test_the_doctor_exits_1_on_a_damaged_database(line: Run, db: str) -> None:
    with sqlite3.connect(db) as raw:
        (root,) = raw.execute(
            "select rootpage from sqlite_schema where name = 'versions'"
        ).fetchone()
        (size,) = raw.execute("pragma page_size").fetchone()
    raw.close()
    with Path(db).open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)

    ran = line("doctor", "--db", db)

    assert ran.code == 1
    assert "storage" in [each["name"] for each in ran.data if not each["ok"]]


@pytest.mark.parametrize("command", [["backup", "x.db"], ["verify"], ["scrub"], ["doctor"]])
def test_a_database_that_is_not_there_is_not_made(
    line: Run, tmp_path: Path, command: list[str]
) -> None:
    nowhere = tmp_path / "nowhere.db"

    ran = line(*command, "--db", str(nowhere))

    assert ran.code == 1
    assert "There is no database" in ran.err
    assert not nowhere.exists()
