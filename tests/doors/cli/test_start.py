"""From a command line to an exit code, in a process of its own where that matters."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from doors.cli.lines import Run

from holdfast.doors.cli.main import __file__, report_error
from holdfast.doors.http import response
from holdfast.ground.errors import HoldfastError, StoreFull
from holdfast.runtime.networks import network

ROOT = Path(__file__).parents[3]
HOLDFAST = (sys.executable, "-m", "holdfast.doors.cli.main")


def fresh(code: str) -> subprocess.CompletedProcess[str]:
    """Run *code* in a new interpreter that has no variables of ours."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_without_the_extra_its_name_is_said() -> None:
    ran = fresh(
        "import sys; sys.modules['typer'] = None\n"
        "from holdfast.doors.cli.main import main; sys.exit(main(['stores', 'list']))"
    )

    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert "holdfast[cli]" in ran.stderr


def test_help_lists_the_commands(line: Run) -> None:
    ran = line("--help")

    assert (ran.code, ran.err) == (0, "")
    assert b"holdfast" in ran.out
    assert b"Make, list and revoke API keys." in ran.out


def test_nothing_asked_for_is_help(line: Run) -> None:
    assert line().out == line("--help").out


def test_the_version_is_that_of_the_package(line: Run) -> None:
    ran = line("--version")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.decode() == f"holdfast {version('holdfast')}\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("holdfast sto", {"stores"}),
        ("holdfast sess", {"sessions"}),
        ("holdfast stores a", {"archive"}),
        ("holdfast durable set --cat", {"--category"}),
        ("holdfast doc", {"doctor"}),
        ("holdfast --ver", {"--version"}),
    ],
)
def test_a_shell_completes_commands_and_options(words: str, offered: set[str]) -> None:
    last = str(len(words.split()) - 1)
    asked = {"_HOLDFAST_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": last}

    ran = subprocess.run(
        HOLDFAST,
        cwd=ROOT,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert set(ran.stdout.split()) == offered


@pytest.mark.parametrize(("shell", "does"), [("bash", "complete -o"), ("zsh", "compdef")])
def test_the_completion_of_a_shell_is_shown(shell: str, does: str) -> None:
    # Detection looks at the process that runs the command: here that is no shell.
    ran = subprocess.run(
        [*HOLDFAST, "--show-completion", shell],
        cwd=ROOT,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert does in ran.stdout
    assert "_HOLDFAST_COMPLETE" in ran.stdout


def test_completion_is_installed_for_the_shell(tmp_path: Path) -> None:
    names = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

    ran = subprocess.run(
        [*HOLDFAST, "--install-completion", "bash"],
        cwd=ROOT,
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ".bash_completions/holdfast.sh" in (tmp_path / ".bashrc").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["stors"], "Did you mean 'stores'"),
        (["stores"], "Missing command"),
        (["stores", "creat"], "Did you mean 'create'"),
        (["stores", "create"], "NAME"),
        (["stores", "create", "a", "b"], "unexpected"),
        (["stores", "list", "--nothing"], "--nothing"),
        (["stores", "list", "--db"], "--db"),
        (["memories", "list", "Prefs", "--depth", "2"], "--depth"),
        (["memories", "show", "Prefs"], "PATH|ID"),
        (["sessions", "token", "sesn_x", "--expires-in", "soon"], "--expires-in"),
        (["serve", "--port", "70000"], "--port"),
        (["serve", "--json"], "--json"),
        (["backup", "f", "--db", "http://127.0.0.1:1"], "--db"),
        (["restore", "f", "--db", "https://127.0.0.1:1"], "--db"),
        (["restore", "f"], "--db"),
        (["verify", "--db", "http://127.0.0.1:1"], "--db"),
        (["scrub", "--db", "http://127.0.0.1:1"], "--db"),
        (["doctor", "--db", "http://127.0.0.1:1"], "--db"),
        (["serve", "--db", "http://127.0.0.1:1"], "--db"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(line: Run, argv: list[str], says: str) -> None:
    ran = line(*argv)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, b"", 1)
    assert says in ran.err
    assert "--help" in ran.err


def test_wrong_usage_touches_no_database(line: Run, db: str) -> None:
    line("stores", "create", "--db", db)
    line("stores", "delete", "x", "--db", db)

    assert not Path(db).exists()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (StoreFull("memstore_x", 7), "Delete or merge memories"),
        (HoldfastError("two\nlines \x1b[31m", next="Try."), "two lines  Try."),
        (PermissionError(13, "Permission denied", "/x"), "/x: Permission denied"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_what_fails_is_one_line_and_exit_1(
    capsys: pytest.CaptureFixture[str], error: Exception, says: str
) -> None:
    code = report_error(error)

    shown = capsys.readouterr()
    assert (code, shown.out, shown.err.count("\n")) == (1, "", 1)
    assert says in shown.err
    assert "\x1b" not in shown.err


OURS = {HoldfastError.__module__, response.__name__, network.__name__}
"""The modules of errors: which others have been imported differs from worker to worker."""


def every_error(kind: type[HoldfastError] = HoldfastError) -> list[type[HoldfastError]]:
    ours = [each for each in kind.__subclasses__() if each.__module__ in OURS]
    return [kind, *(each for below in ours for each in every_error(below))]


EVERY_ERROR = sorted(every_error(), key=lambda each: each.__name__)


@pytest.mark.parametrize("kind", EVERY_ERROR)
def test_every_error_of_ours_exits_1_with_what_to_try(
    capsys: pytest.CaptureFixture[str], kind: type[HoldfastError]
) -> None:
    error = kind.__new__(kind)
    HoldfastError.__init__(error, "It is so.", next="Try this.")

    code = report_error(error)

    assert (code, capsys.readouterr().err) == (1, "holdfast: It is so. Try this.\n")


def test_a_bug_tells_its_place_and_no_values(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError) as bug:
        dict[str, int]()["the content"]

    code = report_error(bug.value)

    shown = capsys.readouterr().err
    assert code == 1
    assert "KeyError at test_start.py:" in shown
    assert "the content" not in shown


def test_a_reader_that_leaves_is_no_failure() -> None:
    reads, writes = os.pipe()
    os.close(reads)

    ran = subprocess.run(
        [*HOLDFAST, "--help"], cwd=ROOT, stdout=writes, stderr=subprocess.PIPE, check=False
    )
    os.close(writes)

    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_closed_stream_is_no_failure(closed: str) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", f'"$0" "$@" {closed}', *HOLDFAST, "--help"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, b"")


def test_an_answer_that_cannot_be_written_is_a_failure() -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [*HOLDFAST, "--help"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False
        )

    assert ran.returncode == 1
    assert ran.stderr.count(b"\n") == 1


def test_help_loads_no_engine_no_server_and_no_drawing() -> None:
    ran = fresh(
        "import sys\n"
        "from holdfast.doors.cli.main import main\n"
        "main(['--help'])\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )

    loaded = {name.split(".")[0] for name in ran.stderr.split()}
    assert not loaded & {"apsw", "psycopg", "starlette", "uvicorn", "httpx", "pydantic"}
    assert not {"rich.console", "importlib.metadata"} & set(ran.stderr.split())
    assert "holdfast.doors.cli.stores" not in ran.stderr.split()
