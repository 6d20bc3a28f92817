"""A mount for the length of a block: on each target, as a session, and whatever happens in it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.doors.mount import Mount, mounted
from holdfast.doors.mount.process.registry import Register, note_of
from holdfast.doors.mount.process.system import at
from holdfast.ground.errors import InvalidInput, Unavailable
from holdfast.ground.scope import Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Store
from holdfast.testing.serving import Server, new_workspace

pytestmark = pytest.mark.fuse


@pytest.fixture(params=["file", "postgres", "http"])
def hf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    """Give a handle that another process can follow, on each target in turn."""
    match request.param:
        case "file":
            target = str(tmp_path / "h.db")
        case "postgres":
            target = request.getfixturevalue("postgres_url")
        case _:
            server: Server = request.getfixturevalue("server")
            target = server.url
    with holdfast.open(target, workspace=new_workspace()) as hf:
        yield hf


@pytest.fixture
def local(sqlite_file: Path) -> Iterator[Holdfast]:
    with holdfast.open(sqlite_file) as hf:
        yield hf


def contents(hf: Holdfast, store: Store) -> dict[str, str | None]:
    listed = hf.memory_stores.memories.list(store.id, view="full")
    return {each.path: each.content for each in listed if isinstance(each, Memory)}


def is_left(place: Path, pid: int) -> bool:
    """Tell whether the mount, or its process, is still there."""
    return at(place) is not None or Path(f"/proc/{pid}").exists()


def test_what_is_written_is_a_memory_when_it_is_closed(hf: Holdfast, tmp_path: Path) -> None:
    store = hf.memory_stores.create(name="Notes")

    with mounted(hf, tmp_path / "m", stores=["Notes"]) as mount:
        (mount.paths["notes"] / "a.md").write_text("one\n")

        assert contents(hf, store) == {"/a.md": "one\n"}
        assert mount.status()["stores"][0]["saves"] == 1

    assert not is_left(tmp_path / "m", mount.process.pid)


def test_a_session_mounts_what_it_attaches_and_is_the_writer(hf: Holdfast, tmp_path: Path) -> None:
    notes, rules = (hf.memory_stores.create(name=name) for name in ("Notes", "Rules"))
    session = hf.sessions.create(
        agent="agent_7",
        environment_id="laptop",
        resources=[
            {"type": "memory_store", "memory_store_id": notes.id},
            {"type": "memory_store", "memory_store_id": rules.id, "access": "read_only"},
        ],
    )

    with mounted(hf, tmp_path / "m", session=session.id) as mount:
        (mount.paths["notes"] / "a.md").write_text("one\n")
        with pytest.raises(OSError, match="Read-only file system"):
            (mount.paths["rules"] / "a.md").write_text("one\n")

    (version,) = hf.memory_stores.memory_versions.list(notes.id)
    assert version.created_by == Actor.session(session.id)
    assert mount.ready["session_id"] == session.id
    assert hf.sessions.list_tokens(session.id) == []


def test_a_narrowed_handle_names_no_session(local: Holdfast, tmp_path: Path) -> None:
    store = local.memory_stores.create(name="Notes")
    attached = [{"type": "memory_store", "memory_store_id": store.id}]
    session = local.sessions.create(agent="a", environment_id="e", resources=attached)

    with mounted(local.for_session(session.id), tmp_path / "m") as mount:
        assert mount.ready["session_id"] == session.id


def test_the_note_is_the_session_s_with_the_paths_there_are(
    local: Holdfast, tmp_path: Path
) -> None:
    store = local.memory_stores.create(name="Notes", description="What was said")
    attached = [
        {
            "type": "memory_store",
            "memory_store_id": store.id,
            "access": "read_only",
            "instructions": "Look here <first>",
        }
    ]
    session = local.sessions.create(agent="a", environment_id="e", resources=attached)

    with mounted(local, tmp_path / "m", session=session.id) as mount:
        told = note_of(mount.directory, Register())

    assert told == local.sessions.note(session.id, root=str(tmp_path / "m"))


def test_what_is_open_when_the_block_ends_is_saved(local: Holdfast, tmp_path: Path) -> None:
    store = local.memory_stores.create(name="Notes")

    with mounted(local, tmp_path / "m", stores=["Notes"], grace=600.0) as mount:
        file = os.open(mount.paths["notes"] / "a.md", os.O_WRONLY | os.O_CREAT)
        os.write(file, b"open\n")
        (mount.paths["notes"] / "b.tmp").write_text("temporary\n")

    with pytest.raises(OSError, match="not connected"):
        os.close(file)
    assert contents(local, store) == {"/a.md": "open\n", "/b.tmp": "temporary\n"}


def write_and_fail(mount: Mount) -> None:
    (mount.paths["notes"] / "a.md").write_text("one\n")
    raise ZeroDivisionError


def test_nothing_is_left_after_an_error_in_the_block(local: Holdfast, tmp_path: Path) -> None:
    store = local.memory_stores.create(name="Notes")

    with (
        pytest.raises(ZeroDivisionError),
        mounted(local, tmp_path / "m", stores=["Notes"]) as mount,
    ):
        write_and_fail(mount)

    assert not is_left(tmp_path / "m", mount.process.pid)
    assert contents(local, store) == {"/a.md": "one\n"}


def test_nothing_is_left_of_a_process_that_was_killed(local: Holdfast, tmp_path: Path) -> None:
    local.memory_stores.create(name="Notes")

    with (
        pytest.raises(Unavailable, match="The mount was killed"),
        mounted(local, tmp_path / "m", stores=["Notes"]) as mount,
    ):
        mount.process.kill()

    assert not is_left(tmp_path / "m", mount.process.pid)


def test_what_cannot_be_mounted_is_told_in_the_process_s_own_words(
    local: Holdfast, tmp_path: Path
) -> None:
    local.memory_stores.create(name="Notes")
    with (
        pytest.raises(Unavailable, match="The nearest is 'Notes'"),
        mounted(local, tmp_path / "m", stores=["Nodes"]),
    ):
        pass

    assert not (tmp_path / "m").exists()


def test_what_is_in_memory_cannot_be_mounted(tmp_path: Path) -> None:
    with (
        holdfast.open(":memory:") as hf,
        pytest.raises(InvalidInput, match="reached by this process alone"),
        mounted(hf, tmp_path / "m", stores=["Notes"]),
    ):
        pass
