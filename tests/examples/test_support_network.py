"""The example of a help desk, whose thread goes on in another process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fork_server import forked_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "support_network.py"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "desk.db")
    return request.getfixturevalue("postgres_url")


def ask(database: str, question: str, *options: str) -> dict[str, str]:
    """Return what the desk printed in a forked process, by what each line begins with."""
    return printed(forked_script(EXAMPLE, database, question, *options))


def printed(command: list[str]) -> dict[str, str]:
    """Return what the desk printed, by what each line begins with."""
    shown = subprocess.run(
        command,
        env={key: each for key, each in os.environ.items() if not key.startswith("HOLDFAST_")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    return dict(line.split(" ", 1) for line in shown.stdout.splitlines())


def test_the_state_decides_who_answers(tmp_path: Path) -> None:
    database = str(tmp_path / "desk.db")
    command = [sys.executable, "-W", "error", str(EXAMPLE), database]
    money = printed([*command, "Invoice 77 was charged twice."])
    fault = ask(database, "The app shows error 500.")

    assert money["billing:"] == "That was our mistake: I refund 20 euros."
    assert fault["engineer:"] == "Please update to version 2.1, which mends that."
    assert ("engineer:" in money, "billing:" in fault) == (False, False)
    assert money["[case]"].endswith("from triage")


def test_a_thread_goes_on_in_another_process(database: str) -> None:
    first = ask(database, "Invoice 77 was charged twice.")

    second = ask(database, "Was my refund sent?", "--thread", first["[thread]"])

    assert second["billing:"] == "It was sent yesterday: 20 euros."
    assert second["[thread]"] == first["[thread]"]


def test_another_thread_knows_nothing_of_it(database: str) -> None:
    ask(database, "Invoice 77 was charged twice.")

    assert ask(database, "Was my refund sent?")["billing:"] == "I know of no refund."
