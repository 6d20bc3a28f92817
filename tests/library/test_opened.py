"""What another process is told, so that it reaches what a handle reaches."""

from pathlib import Path

import pytest

import holdfast
from holdfast.library.settings import HandleTarget
from holdfast.testing.serving import Server


def test_a_file_is_named_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with holdfast.open("h.db") as hf:
        assert hf.opened == HandleTarget(target=str(tmp_path / "h.db"))


def test_a_handle_for_others_is_opened_as_the_one_it_came_from() -> None:
    with holdfast.open(":memory:") as hf:
        assert hf.acting(workspace="other").opened == hf.opened == HandleTarget(target=":memory:")


def test_a_server_is_named_with_the_credential(server: Server) -> None:
    with holdfast.open(server.url, api_key="hf_1") as hf:
        assert hf.opened == HandleTarget(target=server.url, api_key="hf_1")


def test_neither_target_nor_credential_is_shown() -> None:
    shown = repr(HandleTarget(target="postgresql://ada:secret@host/db", api_key="hf_secret"))

    assert "secret" not in shown


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/notes.db", "/notes.db"),
        ("postgresql://ada:secret@host:5432/db?password=secret", "postgresql://ada@host:5432/db"),
        ("https://host/", "https://host/"),
        ("https://ada:secret@host", "https://ada@host"),
    ],
)
def test_a_message_shows_a_target_without_its_password(target: str, shown: str) -> None:
    assert HandleTarget(target=target).shown == shown
