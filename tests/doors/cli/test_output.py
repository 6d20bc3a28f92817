"""Output of the command line: tables, progress, questions, and printable text."""

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from doors.cli.lines import Run
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import holdfast
from holdfast.doors.cli.main import main
from holdfast.doors.cli.output import bar, brief, cell, print_fields, print_table
from holdfast.ground.text import one_line, printable


def drawn(width: int = 80) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=width, force_terminal=False), out


def test_markup_in_a_cell_is_text() -> None:
    console, out = drawn()

    print_table(["name"], [["[bold]not bold[/bold] [link=http://x]"]], console=console)

    assert "[bold]not bold[/bold] [link=http://x]" in out.getvalue()


def test_a_cell_that_is_too_wide_is_folded_and_not_cut() -> None:
    console, out = drawn(width=20)

    print_table(["id"], [["x" * 50]], console=console)

    assert out.getvalue().count("x") == 50


@pytest.mark.parametrize("width", [1, 2, 7, 500])
def test_any_width_will_do(width: int) -> None:
    console, out = drawn(width=width)

    print_table(["id", "name"], [["1", "one"], ["2", "two"]], console=console)
    print_fields({"id": "1", "name": "one"}, console=console)

    assert "1" in out.getvalue()


ID = "memstore_" + "0aB" * 8
NAMES = ["id", "name", "description", "updated_at", "archived_at"]
WIDE = [ID, "User preferences of Ada", "word " * 40, "2026-11-21T06:19:26Z", ""]


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40, 10])
def test_an_id_is_never_broken_whatever_the_width(width: int) -> None:
    console, out = drawn(width=width)

    print_table(NAMES, [WIDE, WIDE], console=console)

    assert out.getvalue().count(ID) == 2
    assert out.getvalue().count("word") == 80


@pytest.mark.parametrize("width", [200, 120, 80])
def test_a_table_is_no_wider_than_the_terminal(width: int) -> None:
    console, out = drawn(width=width)

    print_table(NAMES, [WIDE], console=console)

    assert max(map(len, out.getvalue().splitlines())) <= width
    assert out.getvalue().split()[:4] == ["id", "name", "description", "updated"]


def test_an_id_within_a_cell_is_not_broken() -> None:
    console, out = drawn()

    print_table(
        ["id", "path", "created_by"],
        [["memver_" + "1" * 24, "/a" * 40, f"session_id={ID}"]],
        console=console,
    )

    assert f"session_id={ID}" in out.getvalue()


@pytest.mark.parametrize("name", ["id", "ID", "thread_id"])
def test_a_column_of_ids_is_not_broken_whatever_they_look_like(name: str) -> None:
    console, out = drawn(width=50)
    chosen = "a run of 21 November, 06:19"

    print_table([name, "says"], [[chosen, "word " * 20]], console=console)

    assert chosen in out.getvalue()


def test_too_narrow_a_terminal_gets_a_line_for_each_field() -> None:
    console, out = drawn(width=40)

    print_table(["id", "agent", "title"], [[ID, ID[::-1], "one"], [ID, ID, ""]], console=console)

    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines == [
        ["id", ID],
        ["agent", ID[::-1]],
        ["title", "one"],
        [],
        ["id", ID],
        ["agent", ID],
    ]


def test_a_field_that_is_an_id_is_not_broken() -> None:
    console, out = drawn(width=40)

    print_fields({"memory_version_id": ID, "description": "word " * 20}, console=console)

    assert ID in out.getvalue()


def test_a_column_that_is_empty_is_left_out() -> None:
    console, out = drawn()

    print_table(NAMES, [WIDE, [ID, "n", "", "", ""]], console=console)

    assert "archived" not in out.getvalue()
    assert "updated" in out.getvalue()


def test_a_table_of_empty_cells_keeps_its_first_column() -> None:
    console, out = drawn()

    print_table(["store", "last_link"], [["", ""]], console=console)

    assert out.getvalue().split() == ["store", "─" * 5]


def test_an_empty_table_says_so() -> None:
    console, out = drawn()

    print_table(["id"], [], console=console)

    assert out.getvalue().strip() == "No results."


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        ("a\nb", "a b"),
        (True, "yes"),
        (7, "7"),
        ({}, ""),
        ({"k\x1b[1m": "v\x1b[31m", "l": "w"}, "k=v, l=w"),
        ({"type": "user_actor", "user_id": "user_ada"}, "user_id=user_ada"),
        (["a", {"b": None}], "a; b="),
    ],
)
def test_a_value_becomes_one_printable_line(value: object, shown: str) -> None:
    assert cell(value) == shown


def test_a_list_shows_instants_to_the_second() -> None:
    assert brief("2026-11-21T06:19:26.116935Z") == "2026-11-21T06:19:26Z"
    assert brief("v1.116935Z") == "v1.116935Z"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b2Jcleared", "cleared"),
        ("\x1b]0;a title\x07named", "named"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\drawn", "drawn"),
        ("\x1bcreset", "reset"),
        ("\x1b\x1b[31m[31m", "[31m"),
        ("a\rb\x08c\x00d\x7fe\x85f", "abcdef"),
        ("\u202egnp.exe", "gnp.exe"),
        ("lone \ud800", "lone \ufffd"),
        ("日本 é 🙂", "日本 é 🙂"),
    ],
)
def test_what_would_drive_a_terminal_is_taken_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_sequence_without_an_end_hides_nothing() -> None:
    assert printable("\x1b]0;not ended") == "]0;not ended"


def test_lines_stay_lines_unless_one_is_wanted() -> None:
    assert printable("a\r\nb\tc") == "a\nb\tc"
    assert one_line("a\r\nb\tc\n") == "a b c"


@given(st.text(alphabet=st.characters() | st.sampled_from("\x1b\x9b\x9d[];m\x07\\")))
def test_no_text_keeps_a_control_character(text: str) -> None:
    shown = one_line(text)

    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)
    assert shown == shown.encode().decode()


class Terminal(io.StringIO):
    """A terminal that says when something was drawn on it."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if "Working" in text:
            self.drawn.set()
        return super().write(text)


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of standard error; pytest would undo that after a fixture."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def test_work_that_takes_long_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)

    with bar("Working", after=0) as told:
        told(1234)
        assert terminal.drawn.wait(timeout=30)

    assert "Working" in terminal.getvalue()


def test_work_that_is_soon_over_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)

    with bar("Working", after=3600) as told:
        told(1)

    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)

    with bar("Working", after=0) as told:
        told(1)

    assert written.getvalue() == ""


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


@pytest.fixture
def filled(db: str) -> None:
    """Fill the test's database with one of each of what is listed."""
    with holdfast.open(db) as hf:
        prefers = "what Ada prefers " * 5
        store = hf.memory_stores.create(name="Prefs", description=prefers).id
        path = "/a/long/path/to/editor.md"
        hf.memory_stores.memories.create(store, path=path, content="tabs " * 30)
        attached = [{"type": "memory_store", "memory_store_id": store}]
        hf.sessions.create(agent="a", environment_id="e", resources=attached)
        hf.keys.create("ci")
        ltm = hf.longterm("ada", enabled=True)
        assert ltm is not None
        ltm.remember("Ada prefers tabs over spaces, " * 3)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "argv",
    [
        ["memories", "list", "Prefs"],
        ["memories", "search", "Prefs", "tabs"],
        ["versions", "list", "Prefs"],
        ["sessions", "list"],
        ["keys", "list"],
        ["stores", "configure"],
        ["scrub"],
        ["verify"],
    ],
)
def test_every_answer_has_a_form_for_people(
    at_terminal: Callable[..., Seen], argv: list[str]
) -> None:
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


@pytest.mark.usefixtures("filled")
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
    answer = run(*argv).json
    rows = answer.get("data") or answer["results"]
    things = [row.get("memory") or row.get("item") or row for row in rows]

    code, seen = at_terminal(*argv, columns=columns)

    assert code == 0
    assert things
    assert all(thing["id"] in seen for thing in things)
