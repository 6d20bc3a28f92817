import pytest
from doors.cli.lines import Run


@pytest.fixture(autouse=True)
def heads(run: Run) -> list[str]:
    """Ids of the versions of /a.md, which held one, then two; the first first."""
    run("stores", "create", "Prefs")
    written = [
        run("memories", "put", "Prefs", "/a.md", stdin=text).json for text in (b"one\n", b"two\n")
    ]
    return [each["memory_version_id"] for each in written]


def test_versions_are_listed_the_newest_first(run: Run, heads: list[str]) -> None:
    listed = run("versions", "list", "Prefs").json

    assert [each["id"] for each in listed["data"]] == heads[::-1]
    assert listed["next_page"] is None


def test_versions_of_one_memory_are_found_by_its_path_even_after_its_end(
    run: Run, heads: list[str]
) -> None:
    run("memories", "put", "Prefs", "/b.md", stdin=b"other")
    run("memories", "delete", "Prefs", "/a.md", "--yes")

    listed = run("versions", "list", "Prefs", "--memory", "/a.md").data

    assert [each["operation"] for each in listed] == ["deleted", "modified", "created"]
    assert [each["id"] for each in listed[1:]] == heads[::-1]


def test_a_path_that_never_was_is_said(fails: Run) -> None:
    assert "/never" in fails("versions", "list", "Prefs", "--memory", "/never").err


def test_a_version_is_shown_with_its_content(run: Run, heads: list[str]) -> None:
    assert run("versions", "show", "Prefs", heads[0]).json["content"] == "one\n"


def test_two_versions_are_compared(run: Run, heads: list[str]) -> None:
    found = run("versions", "diff", "Prefs", *heads).json

    assert list(found) == ["type", "from", "to", "diff"]
    assert "-one\n+two\n" in found["diff"]


def test_an_old_version_becomes_current_again(run: Run, heads: list[str]) -> None:
    restored = run("versions", "restore", "Prefs", heads[0]).json

    assert restored["path"] == "/a.md"
    assert run("memories", "show", "Prefs", "/a.md").json["content"] == "one\n"


def test_a_version_is_redacted(run: Run, heads: list[str]) -> None:
    redacted = run("versions", "redact", "Prefs", heads[0]).json

    assert redacted["redacted_at"]
    assert run("versions", "show", "Prefs", heads[0]).json == redacted


def test_several_versions_are_redacted_at_once(run: Run, heads: list[str]) -> None:
    run("memories", "put", "Prefs", "/a.md", stdin=b"three")

    redacted = run("versions", "redact", "Prefs", *heads).data

    assert [each["id"] for each in redacted] == heads


def test_what_was_redacted_before_an_error_is_told(line: Run, db: str, heads: list[str]) -> None:
    ran = line("versions", "redact", "Prefs", *heads, "--db", db)

    assert ran.code == 1
    assert "Write a newer version" in ran.err
    assert [each["id"] for each in ran.data] == [heads[0]]
