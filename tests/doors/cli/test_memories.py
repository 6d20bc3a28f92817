import hashlib
from pathlib import Path

import pytest
from doors.cli.lines import Run

from holdfast.doors.cli.command import login
from holdfast.doors.cli.stores import READ_AT_MOST

ODD = "\ufeffa\r\nb\n\n\x00 日本".encode()


@pytest.fixture(autouse=True)
def store(run: Run) -> str:
    return run("stores", "create", "Prefs").json["id"]


def test_put_writes_a_new_memory_and_then_new_versions(run: Run) -> None:
    first = run("memories", "put", "Prefs", "/a.md", stdin=b"one").json
    second = run("memories", "put", "Prefs", "/a.md", "-", stdin=b"two").json

    assert first["id"] == second["id"]
    assert run("memories", "show", "Prefs", "/a.md").json["content"] == "two"
    assert [each["operation"] for each in run("versions", "list", "Prefs").data] == [
        "modified",
        "created",
    ]


def test_content_comes_and_goes_byte_for_byte(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "content"
    file.write_bytes(ODD)

    run("memories", "put", "Prefs", "/odd", str(file))

    assert run("memories", "show", "Prefs", "/odd", "--raw").out == ODD


def test_who_writes_is_the_person_logged_in(run: Run) -> None:
    run("memories", "put", "Prefs", "/a.md", stdin=b"one")

    (version,) = run("versions", "list", "Prefs").data

    assert version["created_by"] == {"type": "user_actor", "user_id": f"user_{login()}"}


def test_put_with_a_hash_writes_only_over_that_content(run: Run, fails: Run) -> None:
    run("memories", "put", "Prefs", "/a.md", stdin=b"one")
    right, wrong = hashlib.sha256(b"one").hexdigest(), "0" * 64

    says = fails("memories", "put", "Prefs", "/a.md", "--if-sha256", wrong, stdin=b"x").err
    kept = run("memories", "show", "Prefs", "/a.md").json["content"]
    run("memories", "put", "Prefs", "/a.md", "--if-sha256", right, stdin=b"two")

    assert "changed since" in says
    assert kept == "one"
    assert run("memories", "show", "Prefs", "/a.md").json["content"] == "two"


def test_put_with_a_hash_does_not_make_a_memory(run: Run, fails: Run) -> None:
    fails("memories", "put", "Prefs", "/a.md", "--if-sha256", "0" * 64, stdin=b"x")

    assert run("memories", "list", "Prefs").data == []


def test_a_hash_that_is_none_is_wrong_usage(line: Run, db: str) -> None:
    ran = line("memories", "put", "Prefs", "/a.md", "--if-sha256", "ABC", "--db", db, stdin=b"x")

    assert (ran.code, ran.out) == (2, b"")


def test_what_is_not_text_is_refused(fails: Run) -> None:
    says = fails("memories", "put", "Prefs", "/a.md", stdin=b"ab\xff").err

    assert "UTF-8" in says
    assert "byte 2" in says


def test_an_endless_file_is_refused_before_it_is_read_to_the_end(fails: Run) -> None:
    says = fails("memories", "put", "Prefs", "/a.md", "/dev/zero").err

    assert f"{READ_AT_MOST:,}" in says


def test_a_file_that_is_not_there_is_said_by_name(fails: Run) -> None:
    assert (
        "/nowhere/a.md: No such file"
        in fails("memories", "put", "Prefs", "/a", "/nowhere/a.md").err
    )


def test_a_taken_path_is_said_with_what_is_there(run: Run, fails: Run) -> None:
    made = run("memories", "put", "Prefs", "/a", stdin=b"x").json

    assert made["id"] in fails("memories", "put", "Prefs", "/a/b", stdin=b"x").err


def test_a_list_can_be_narrowed_and_kept_shallow(run: Run) -> None:
    for path in ("/a.md", "/n/b.md", "/n/deep/c.md"):
        run("memories", "put", "Prefs", path, stdin=b"x")

    def paths(*options: str) -> list[str]:
        return [each["path"] for each in run("memories", "list", "Prefs", *options).data]

    assert paths() == ["/a.md", "/n/b.md", "/n/deep/c.md"]
    assert paths("--prefix", "/n/") == ["/n/b.md", "/n/deep/c.md"]
    assert paths("--depth", "1") == ["/a.md", "/n/"]


def test_a_memory_is_known_by_its_id_too(run: Run) -> None:
    made = run("memories", "put", "Prefs", "/a.md", stdin=b"x").json

    shown = run("memories", "show", "Prefs", made["id"]).json

    assert shown == made | {"content": "x"}


def test_a_directory_is_renamed_whole(run: Run) -> None:
    for path in ("/n/a.md", "/n/b.md"):
        run("memories", "put", "Prefs", path, stdin=b"x")

    renamed = run("memories", "rename", "Prefs", "/n", "/m").json

    assert [each["path"] for each in renamed["data"]] == ["/m/a.md", "/m/b.md"]
    assert list(renamed) == ["data"]


def test_a_memory_is_deleted_when_meant(run: Run, fails: Run) -> None:
    made = run("memories", "put", "Prefs", "/a.md", stdin=b"x").json

    gone = run("memories", "delete", "Prefs", "/a.md", "--yes").json

    assert gone == {"id": made["id"], "type": "memory_deleted"}
    assert "no memory /a.md" in fails("memories", "show", "Prefs", "/a.md").err


def test_words_find_memories(run: Run) -> None:
    run("memories", "put", "Prefs", "/a.md", stdin=b"Ada prefers tabs")
    run("memories", "put", "Prefs", "/b.md", stdin=b"nothing of the kind")

    found = run("memories", "search", "Prefs", "tabs", "--limit", "5").json

    assert [each["memory"]["path"] for each in found["data"]] == ["/a.md"]
    assert list(found) == ["data"]


@pytest.mark.parametrize("option", [("--limit", "0"), ("--limit", "101"), ("--limit", "many")])
def test_a_limit_out_of_range_is_wrong_usage(line: Run, db: str, option: tuple[str, str]) -> None:
    ran = line("memories", "search", "Prefs", "tabs", *option, "--db", db)

    assert (ran.code, ran.out) == (2, b"")
    assert "--limit" in ran.err
