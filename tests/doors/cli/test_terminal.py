"""What a person at a terminal sees: tables, questions, and nothing that could drive it."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from doors.cli.lines import Run

from holdfast.doors.cli.main import main
from holdfast.ground.text import printable

HOLDFAST = (sys.executable, "-m", "holdfast.doors.cli.main")

Seen = tuple[int, str]


@pytest.fixture
def at_terminal(db: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Seen]:
    """Run a command line with a terminal for all its streams; what is typed is *keys*."""

    def run(*argv: str, keys: bytes = b"", columns: str = "200") -> Seen:
        ours, theirs = pty.openpty()
        os.write(ours, keys)
        with monkeypatch.context() as patch, ThreadPoolExecutor() as reader:
            for name, value in settings(db, columns).items():
                patch.setenv(name, value)
            seen = reader.submit(_read_all, ours)
            # The output comes to its end once the last of these is closed.
            with os.fdopen(os.dup(theirs)) as stdin, os.fdopen(theirs, "w") as out:
                for name, stream in {"stdin": stdin, "stdout": out, "stderr": out}.items():
                    patch.setattr(sys, name, stream)
                code = main(argv)
        return code, seen.result()

    return run


@pytest.fixture
def process_at_terminal(db: str) -> Callable[..., Seen]:
    """Run a command line in a process of its own, with a terminal for all its streams."""

    def run(*argv: str, columns: str = "200") -> Seen:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*HOLDFAST, *argv],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, **settings(db, columns)},
        )
        os.close(theirs)
        seen = _read_all(ours)
        return process.wait(timeout=60), seen

    return run


def settings(db: str, columns: str) -> dict[str, str]:
    return {"HOLDFAST_DB": db, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": columns}


def _read_all(terminal: int) -> str:
    seen = b"".join(iter(lambda: _read(terminal), b""))
    os.close(terminal)
    return seen.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # so Linux says that nobody holds the other end any more
        return b""


def test_a_terminal_gets_a_table(run: Run, at_terminal: Callable[..., Seen]) -> None:
    made = run("stores", "create", "Prefs [bold]x", "--description", "a\x1b[2Jb\nc").json

    code, seen = at_terminal("stores", "list")

    assert code == 0
    assert made["id"] in seen
    assert "Prefs [bold]x" in seen
    assert "ab c" in seen
    assert "{" not in seen


def test_a_process_at_a_terminal_prints_the_same_table(
    run: Run, at_terminal: Callable[..., Seen], process_at_terminal: Callable[..., Seen]
) -> None:
    run("stores", "create", "Prefs")

    assert process_at_terminal("stores", "list") == at_terminal("stores", "list")


def test_a_terminal_gets_json_when_asked_for(run: Run, at_terminal: Callable[..., Seen]) -> None:
    run("stores", "create", "Prefs")

    _, seen = at_terminal("stores", "list", "--json")

    assert seen.startswith('{"data":[{"type":"memory_store"')


def test_content_is_shown_without_what_drives_a_terminal(
    run: Run, at_terminal: Callable[..., Seen]
) -> None:
    run("stores", "create", "Prefs")
    run("memories", "put", "Prefs", "/a.md", stdin=b"# one\n\x1b]0;title\x07two\x1b[31m\n")

    _, seen = at_terminal("memories", "show", "Prefs", "/a.md")

    assert "/a.md" in seen
    assert "# one\ntwo\n" in seen
    assert "\x1b]" not in seen
    assert "\x1b[31m" not in seen


@pytest.mark.parametrize(("keys", "left"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1), (b"\x04", 1)])
def test_a_deletion_is_asked_about(
    run: Run, at_terminal: Callable[..., Seen], keys: bytes, left: int
) -> None:
    run("stores", "create", "Prefs")

    code, seen = at_terminal("stores", "delete", "Prefs", keys=keys)

    assert "Delete the store Prefs" in seen
    assert code == left
    assert len(run("stores", "list").data) == left


@pytest.mark.parametrize("columns", ["0", "1", "20", "wide"])
def test_a_terminal_of_any_width_will_do(
    run: Run, process_at_terminal: Callable[..., Seen], columns: str
) -> None:
    made = run("stores", "create", "Prefs").json

    code, seen = process_at_terminal("stores", "show", "Prefs", columns=columns)

    assert code == 0
    assert made["id"] in "".join(printable(seen).split())


@pytest.mark.parametrize(
    "argv",
    [
        ["memories", "list", "Prefs"],
        ["memories", "search", "Prefs", "text"],
        ["versions", "list", "Prefs"],
        ["sessions", "list"],
        ["keys", "list"],
        ["stores", "configure"],
        ["scrub"],
        ["verify"],
    ],
)
def test_every_answer_has_a_form_for_people(
    run: Run, at_terminal: Callable[..., Seen], argv: list[str]
) -> None:
    run("stores", "create", "Prefs")
    run("memories", "put", "Prefs", "/a.md", stdin=b"text")
    run("sessions", "create", "--agent", "a", "--environment", "e", "--store", "Prefs")
    run("keys", "create", "ci")

    code, seen = at_terminal(*argv)

    assert code == 0, seen
    assert seen.strip()
    assert "{" not in seen


def test_entries_are_a_table_with_the_beginning_of_each(
    run: Run, at_terminal: Callable[..., Seen]
) -> None:
    long = "a\x1b[2Jb \n\n c" + "x" * 100
    run("durable", "set", "agent_7", "owner", long, "--category", "core", "--tag", "t")

    code, seen = at_terminal("durable", "list", "agent_7")

    assert code == 0
    assert all(name in seen for name in ("KEY", "CATEGORY", "UPDATED", "SIZE", "PREVIEW"))
    assert "ab c" + "x" * 76 + "\n" in seen.replace(" \n", "\n").replace(" \n", "\n")
    assert "x" * 77 not in seen


def test_a_hydration_ends_with_what_was_left_out(
    run: Run, at_terminal: Callable[..., Seen]
) -> None:
    run("durable", "set", "agent_7", "owner", "Ada", "--category", "core")

    assert at_terminal("durable", "hydrate", "agent_7")[1].endswith("Nothing was left out.\n")
    _, short = at_terminal("durable", "hydrate", "agent_7", "--budget", "1")
    assert short.endswith("Left out: 1 entries, 12 bytes: owner\n")


def test_an_empty_memory_says_so(run: Run, at_terminal: Callable[..., Seen]) -> None:
    run("stores", "create", "Prefs")

    code, seen = at_terminal("durable", "list", "agent_7")

    assert code == 0
    assert "No results." in seen


def test_an_explanation_is_a_sentence(run: Run, at_terminal: Callable[..., Seen]) -> None:
    run("durable", "set", "agent_7", "owner", "Ada", "--category", "core")

    _, seen = at_terminal("durable", "explain", "agent_7", "owner")

    assert seen.startswith('"owner" is hydrated')
    assert seen.count("\n") == 1


@pytest.mark.parametrize("columns", ["40", "80", "120"])
@pytest.mark.parametrize(
    "argv",
    [
        ["stores", "list"],
        ["memories", "list", "Prefs"],
        ["memories", "search", "Prefs", "tabs"],
        ["versions", "list", "Prefs"],
        ["sessions", "list"],
        ["keys", "list"],
        ["ltm", "list", "ada"],
        ["ltm", "recall", "ada", "tabs"],
    ],
)
def test_ids_are_whole_at_every_width(
    run: Run, at_terminal: Callable[..., Seen], argv: list[str], columns: str
) -> None:
    run("stores", "create", "Prefs", "--description", "what Ada prefers " * 5)
    run("memories", "put", "Prefs", "/a/long/path/to/editor.md", stdin=b"tabs " * 30)
    run("sessions", "create", "--agent", "a", "--environment", "e", "--store", "Prefs")
    run("keys", "create", "ci")
    run("ltm", "remember", "ada", "Ada prefers tabs over spaces, " * 3)
    answer = run(*argv).json
    rows = answer.get("data") or answer["results"]
    things = [row.get("memory") or row.get("item") or row for row in rows]

    code, seen = at_terminal(*argv, columns=columns)

    assert code == 0
    assert things
    assert all(thing["id"] in seen for thing in things)
