"""What was agreed is kept line by line, and read back whatever happened in between."""

from pathlib import Path

import pytest

from holdfast.doors.mount.sync.files import Mark
from holdfast.doors.mount.sync.state import Header, Known, State

HEADER = Header(store_id="memstore_1", slug="notes")


def known(path: str, id: str = "mem_1", sha256: str = "aa") -> Known:
    return Known(path, id, sha256, Mark(1, 2, 3, 4), 5)


@pytest.fixture
def state(tmp_path: Path) -> State:
    state = State(tmp_path / "sync/s.jsonl", HEADER)
    state.open()
    return state


def read(tmp_path: Path) -> list[Known]:
    """Return what another process would know now."""
    return list(State(tmp_path / "sync/s.jsonl", HEADER))


def test_what_is_put_is_known_to_the_next_at_once(tmp_path: Path, state: State) -> None:
    state.put(known("/a"))
    state.put(known("/b", "mem_2"))
    state.forget("/a")

    assert read(tmp_path) == [known("/b", "mem_2")]


def test_a_memory_that_moved_is_known_at_both_paths_until_one_is_forgotten(
    tmp_path: Path, state: State
) -> None:
    state.put(known("/a"))
    state.put(known("/b"))
    assert read(tmp_path) == [known("/a"), known("/b")]
    assert state.of("mem_1") == known("/b")

    state.forget("/a")

    assert read(tmp_path) == [known("/b")]
    assert state.of("mem_1") == known("/b")


def test_two_memories_may_change_places(tmp_path: Path, state: State) -> None:
    state.put(known("/a", "mem_1"), known("/b", "mem_2"))
    state.put(known("/b", "mem_1"), known("/a", "mem_2"))

    assert {each.path: each.memory_id for each in read(tmp_path)} == {"/b": "mem_1", "/a": "mem_2"}


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_line_that_was_cut_short_does_not_count(tmp_path: Path, state: State, cut: int) -> None:
    state.put(known("/a"))
    file = tmp_path / "sync/s.jsonl"
    whole = file.read_bytes()
    state.put(known("/b", "mem_2"))
    longer = file.read_bytes()

    file.write_bytes(longer[: min(len(whole) + cut, len(longer) - 1)])

    assert read(tmp_path) == [known("/a")]


def test_it_does_not_grow_for_ever(tmp_path: Path, state: State) -> None:
    for number in range(3_000):
        state.put(known("/a", sha256=str(number)))
    state.tidy()

    assert len((tmp_path / "sync/s.jsonl").read_bytes().splitlines()) == 2
    state.put(known("/b", "mem_2"))
    assert len(read(tmp_path)) == 2


def test_it_knows_the_name_its_directory_had(tmp_path: Path, state: State) -> None:
    state.put(known("/a"))

    again = State(tmp_path / "sync/s.jsonl", Header(store_id="memstore_1", slug="diary"))

    assert (again.slug, again.existed) == ("notes", True)


def test_a_store_that_is_no_more_leaves_nothing(tmp_path: Path, state: State) -> None:
    state.put(known("/a"))

    state.remove()

    assert list((tmp_path / "sync").iterdir()) == []
    assert list(state) == []


def test_names_of_directories_do_not_reach_across(state: State) -> None:
    state.put(known("/a/b", "mem_1"), known("/ab", "mem_2"), known("/a", "mem_3"))

    assert state.below("/a") == ["/a/b"]
    assert len(state.below("/")) == 3
