"""The example of a customer who comes back, in two processes that share only a database."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from fork_server import forked_script
from runtime.providers.speaking import Say, speaker

EXAMPLE = Path(__file__).parents[2] / "examples" / "support_session.py"


def talk(database: Path, conversation: str, *options: str, **env: str) -> str:
    """Return what *conversation* shows in a forked process."""
    return printed(forked_script(EXAMPLE, str(database), conversation, *options), **env)


def printed(command: list[str], **env: str) -> str:
    inherited = {key: each for key, each in os.environ.items() if not key.startswith("HOLDFAST_")}
    shown = subprocess.run(
        command,
        env={**inherited, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def line(shown: str, start: str) -> str:
    return next(each for each in shown.splitlines() if each.startswith(start))


class First(NamedTuple):
    """What the first conversation showed, and the database that it left."""

    shown: str
    database: Path


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> First:
    database = tmp_path_factory.mktemp("first") / "desk.db"
    command = [sys.executable, "-W", "error", str(EXAMPLE), str(database), "first"]
    return First(printed(command), database)


@pytest.fixture
def desk(first: First, tmp_path: Path) -> Path:
    """Give a copy of the database that the first conversation left."""
    return Path(shutil.copy(first.database, tmp_path / "desk.db"))


@pytest.fixture(scope="module")
def second(first: First, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what the second conversation shows."""
    desk = shutil.copy(first.database, tmp_path_factory.mktemp("second") / "desk.db")
    return talk(Path(desk), "second")


def test_the_second_conversation_starts_with_what_the_first_one_left(
    first: First, second: str
) -> None:

    assert "entries=[]" in line(first.shown, "[hydrated]")
    assert "entries=['order_1042']" in line(second, "[hydrated]")
    assert "item_" in line(second, "[recalled]")
    assert line(second, "agent:").endswith(
        "By mail. Order 1042 was late: the carrier has been asked."
    )


def test_what_the_start_had_no_room_for_is_said(second: str) -> None:
    assert "'key': 'returns'" in line(second, "[omitted]")
    assert "'reason': 'too_big'" in line(second, "[omitted]")


def test_who_was_never_there_is_not_known(tmp_path: Path) -> None:
    shown = talk(tmp_path / "desk.db", "second")

    assert line(shown, "agent:").endswith("I do not know you yet.")


@pytest.mark.parametrize("model", ["openai-chat:gpt-4o", "openai-responses:gpt-4o", "anthropic:x"])
def test_any_provider_may_be_named(desk: Path, model: str) -> None:
    with speaker(Say(["By mail."])) as server:
        shown = talk(
            desk,
            "second",
            f"--model={model}",
            OPENAI_API_KEY="none",
            OPENAI_BASE_URL=f"{server.url}/v1",
            ANTHROPIC_API_KEY="none",
            ANTHROPIC_BASE_URL=server.url,
        )

    assert line(shown, "agent:").endswith("By mail.")
    assert "carrier asked" in str(server.bodies[0])
