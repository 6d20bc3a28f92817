"""From a target to a handle."""

from pathlib import Path

import pytest

import holdfast
from holdfast.errors import InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast


@pytest.fixture
def hf() -> Holdfast:
    return holdfast.open(":memory:")


def test_an_agent_opens_no_handle(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        holdfast.open(tmp_path / "h.db", actor=holdfast.Actor.agent("agent_7"))

    assert list(tmp_path.iterdir()) == []


def test_without_create_a_database_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    holdfast.open(tmp_path / "Notes.db").close()

    with pytest.raises(NotFound, match=r"typo\.db\. The nearest is 'Notes\.db'") as error:
        holdfast.open(tmp_path / "typo.db", create=False)

    assert error.value.kind == "database"
    assert not (tmp_path / "typo.db").exists()
    holdfast.open(tmp_path / "Notes.db", create=False).close()


def test_without_create_a_database_in_memory_is_opened() -> None:
    with holdfast.open(":memory:", create=False) as hf:
        assert list(hf.memory_stores.list()) == []


def test_an_agent_is_no_author_of_versions(hf: Holdfast) -> None:
    with pytest.raises(InvalidInput):
        hf.acting(actor=holdfast.Actor.agent("agent_7"))


def test_who_opens_a_handle_is_the_author() -> None:
    with holdfast.open(":memory:", actor=holdfast.Actor.user("user_ada")) as hf:
        store = hf.memory_stores.create(name="notes")
        hf.memory_stores.memories.create(store.id, path="/a", content="")

        (version,) = hf.memory_stores.memory_versions.list(store.id)

    assert version.created_by == holdfast.Actor.user("user_ada")


def test_a_narrowed_handle_leaves_the_database_open(hf: Holdfast) -> None:
    session = hf.sessions.create(agent="agent_7", environment_id="here")

    with hf.for_session(session.id) as narrow:
        narrow.sessions.retrieve(session.id)

    assert hf.sessions.retrieve(session.id) == session


@pytest.mark.parametrize("target", ["", "nowhere/h.db", "mysql://host/db", "sqlite:"])
def test_what_names_no_database_is_refused(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidInput):
        holdfast.open(target)

    assert list(tmp_path.iterdir()) == []
