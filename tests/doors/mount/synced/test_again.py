"""What ended, was killed or was never finished goes on from what was agreed."""

import shutil
from hashlib import sha256

import pytest
from doors.mount.core.trouble import gone
from doors.mount.synced.conftest import Sides
from doors.mount.synced.directories import PACE, Told, eventually

from holdfast.doors.mount.process.setup import mount_request
from holdfast.doors.mount.sync import files as local_files
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Version


@pytest.fixture(autouse=True, params=["just now", "long ago"])
def since(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files that did not change be known by their marks, as they are after some seconds."""
    if request.param == "long ago":
        monkeypatch.setattr(local_files, "FRESH_NS", 0)


def test_what_was_done_meanwhile_on_either_side_is_done_on_the_other(sides: Sides) -> None:
    side = sides()
    for number in range(12):
        side.make(f"/{number}", "base")
    side.start()
    side.stop()
    (side.root / "0").write_text("from here")
    side.change("/1", content="from there")
    (side.root / "new here").write_text("1")
    side.make("/new there", "2")
    side.delete("/2")
    (side.root / "3").unlink()
    (side.root / "4").rename(side.root / "d")
    side.change("/5", to="/e")

    side.start()

    eventually(lambda: side.equal() and side.head("/3") is None)
    expected = {f"/{number}": "base" for number in range(6, 12)}
    expected |= {"/0": "from here", "/1": "from there", "/new here": "1", "/new there": "2"}
    assert side.heads() == {**expected, "/d": "base", "/e": "base"}
    assert side.status().conflicts == 0


def test_nothing_is_done_when_nothing_happened(sides: Sides) -> None:
    side = sides()
    for number in range(12):
        side.make(f"/{number}", "base")
    side.start()
    side.stop()
    before = {path: path.stat().st_ctime_ns for path in side.root.iterdir()}

    side.start()
    side.stop()

    assert {path: path.stat().st_ctime_ns for path in side.root.iterdir()} == before
    assert len(side.versions()) == 12
    assert side.trouble.applies == []
    assert side.trouble.reads == 0


def test_a_directory_with_files_that_was_never_synced_is_refused(sides: Sides) -> None:
    side = sides()
    side.make("/a.md", "one")
    side.root.mkdir(parents=True)
    (side.root / "mine").write_text("mine")

    with pytest.raises(InvalidInput, match="was not synced with these stores"):
        side.start()
    assert side.files() == {"/mine": "mine"}
    assert side.heads() == {"/a.md": "one"}


def test_a_directory_with_anything_in_it_that_was_never_synced_is_refused(sides: Sides) -> None:
    side = sides()
    side.directory.mkdir(parents=True)
    (side.directory / "mine").write_text("mine")

    with pytest.raises(InvalidInput, match="was not synced with these stores"):
        side.start()


def test_a_directory_synced_with_another_store_is_refused_where_they_share_a_name(
    hf: Holdfast, sides: Sides
) -> None:
    side = sides().start()
    (side.root / "a.md").write_text("one")
    side.stop()
    side.stores = [hf.memory_stores.create(name="Notes").id]

    with pytest.raises(InvalidInput, match="was not synced with these stores"):
        side.start()


def test_files_taken_away_as_a_whole_while_nothing_ran_come_back(sides: Sides) -> None:
    side = sides()
    side.make("/a.md", "one")
    side.start()
    side.stop()
    shutil.rmtree(side.directory)

    side.start()

    assert side.files() == {"/a.md": "one"}
    side.stop()
    assert side.heads() == {"/a.md": "one"}


def test_a_store_renamed_meanwhile_keeps_its_files(hf: Holdfast, sides: Sides, store: str) -> None:
    side = sides()
    side.make("/a.md", "one")
    side.start()
    side.stop()
    (side.root / "a.md").write_text("two")
    hf.memory_stores.update(store, name="Diary")

    side.start()

    assert side.root.name == "diary"
    eventually(lambda: side.keeps("/a.md", "two"))
    assert [each.name for each in side.directory.iterdir()] == ["diary"]


def test_stores_whose_names_changed_places_keep_their_own_files(
    hf: Holdfast, sides: Sides, store: str
) -> None:
    other = hf.memory_stores.create(name="Notes").id
    side = sides(stores=[store, other])
    memories = hf.memory_stores.memories
    for each in (store, other):
        memories.create(each, path="/whose.md", content=each)
    before, after = slugs(hf, store, other), slugs(hf, other, store)
    assert before[store] == after[other]
    side.start()
    assert (side.directory / before[store] / "whose.md").read_text() == store
    side.stop()
    (side.directory / before[store] / "edited.md").write_text(store)

    side.stores = [other, store]
    side.start()
    side.stop()

    for each, slug in after.items():
        assert (side.directory / slug / "whose.md").read_text() == each
        assert {version.operation for version in versions(hf, each)} == {"created"}
    assert memories.at(store, "/edited.md") is not None
    assert memories.at(other, "/edited.md") is None


def test_a_change_of_names_that_was_cut_short_is_finished(
    hf: Holdfast, sides: Sides, store: str
) -> None:
    side = sides()
    side.make("/a.md", "one")
    side.start()
    side.stop()
    (side.root / "a.md").write_text("two")
    hf.memory_stores.update(store, name="Diary")
    moving = f".moving-{sha256(store.encode()).hexdigest()[:16]}"
    side.root.rename(side.directory / moving)

    side.start()

    assert [each.name for each in side.directory.iterdir()] == ["diary"]
    eventually(lambda: side.keeps("/a.md", "two"))


def slugs(hf: Holdfast, *stores: str) -> dict[str, str]:
    """Return the name of the directory of each of *stores*, synced in that order."""
    return {
        each.store.id: each.slug for each in mount_request(hf, session=None, stores=stores).stores
    }


def versions(hf: Holdfast, store: str) -> list[Version]:
    return list(hf.memory_stores.memory_versions.list(store, limit=100).data)


@pytest.mark.parametrize("lines", [0, 1, 2, 5])
def test_a_state_that_is_older_than_files_and_store_is_no_conflict(
    sides: Sides, lines: int
) -> None:
    side = sides()
    side.start()
    for number in range(4):
        (side.root / str(number)).write_text("base")
    eventually(lambda: len(side.heads()) == 4)
    side.stop()
    (state,) = (side.base / "state").rglob("*.jsonl")
    kept = state.read_bytes().splitlines(keepends=True)[:lines]
    state.write_bytes(b"".join(kept) + b'["/cut short", "mem')

    side.start()
    side.stop()

    assert side.heads() == dict.fromkeys(("/0", "/1", "/2", "/3"), "base") == side.files()
    assert len(side.versions()) == 4


def test_a_save_that_was_done_and_not_noted_is_found_done(sides: Sides) -> None:
    side = sides()
    made = side.make("/a.md", "one")
    side.start()
    eventually(lambda: side.has("/a.md", "one"))
    (state,) = (side.base / "state").rglob("*.jsonl")
    older = state.read_bytes()
    (side.root / "a.md").write_text("two")
    eventually(lambda: side.keeps("/a.md", "two"))
    side.stop()
    state.write_bytes(older)

    side.start()
    side.stop()

    assert side.versions(made.id) == [Told("created", "/a.md"), Told("modified", "/a.md")]
    assert side.files() == {"/a.md": "two"}


def test_a_start_that_fails_can_be_made_again(sides: Sides) -> None:
    side = sides()
    for number in range(3):
        side.make(f"/{number}", str(number))
    side.start()
    side.stop()

    side.start(pace=PACE)
    side.trouble.refusing = gone
    (side.root / "0").write_text("changed")
    eventually(lambda: side.status().retrying == 1)
    side.stop(0.1)

    side.start()
    eventually(lambda: side.keeps("/0", "changed"))


def test_the_directory_has_its_mode_again_at_the_end(sides: Sides) -> None:
    side = sides()
    side.directory.mkdir(parents=True, mode=0o750)
    before = side.directory.stat().st_mode

    side.start()
    side.stop()

    assert side.directory.stat().st_mode == before
