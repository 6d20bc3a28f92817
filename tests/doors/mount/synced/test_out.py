"""What happens to memories is done to files."""

import stat
from datetime import UTC, datetime

from doors.mount.synced.conftest import Sides
from doors.mount.synced.directories import Side, eventually

from holdfast.library.holdfast import Holdfast


def test_every_head_is_there_when_it_has_started(sides: Sides) -> None:
    side = sides()
    for number in range(40):
        side.make(f"/d{number % 3}/{number}.md", f"number {number}\n")

    side.start()

    assert side.equal()
    assert len(side.files()) == 40


def test_files_have_the_modes_of_ordinary_ones_and_the_times_of_their_memories(
    sides: Sides,
) -> None:
    side = sides()
    made = side.make("/d/a.md", "one")

    side.start()

    found = (side.root / "d/a.md").stat()
    assert stat.S_IMODE(found.st_mode) == 0o644
    assert stat.S_IMODE((side.root / "d").stat().st_mode) == 0o755
    assert datetime.fromtimestamp(found.st_mtime, UTC) == made.updated_at
    assert stat.S_IMODE(side.directory.stat().st_mode) == 0o555


def test_a_memory_made_elsewhere_appears(side: Side) -> None:
    side.make("/d/e/a.md", "one")

    eventually(lambda: side.has("/d/e/a.md", "one"))


def test_a_memory_changed_elsewhere_changes(side: Side) -> None:
    side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    side.change("/a.md", content="two")

    eventually(lambda: side.has("/a.md", "two"))


def test_a_memory_deleted_elsewhere_goes_and_so_do_its_directories(side: Side) -> None:
    side.make("/d/e/a.md", "one")
    side.make("/b.md", "two")
    eventually(lambda: len(side.files()) == 2)

    side.delete("/d/e/a.md")

    eventually(lambda: not (side.root / "d").exists())
    assert side.files() == {"/b.md": "two"}


def test_a_directory_made_here_stays_when_it_empties_from_elsewhere(side: Side) -> None:
    (side.root / "d").mkdir()
    (side.root / "after").write_text("")
    eventually(lambda: side.head("/after"))
    side.make("/d/a.md", "one")
    eventually(lambda: side.has("/d/a.md", "one"))

    side.delete("/d/a.md")

    eventually(lambda: not (side.root / "d/a.md").exists())
    assert (side.root / "d").is_dir()


def test_a_memory_renamed_elsewhere_is_the_same_file(side: Side) -> None:
    side.make("/d/a.md", "one")
    eventually(lambda: side.has("/d/a.md", "one"))
    inode = (side.root / "d/a.md").stat().st_ino

    side.change("/d/a.md", to="/e/b.md")

    eventually(lambda: side.has("/e/b.md", "one"))
    eventually(lambda: not (side.root / "d").exists())
    assert (side.root / "e/b.md").stat().st_ino == inode


def test_two_memories_that_change_places_elsewhere_do_so_here(side: Side) -> None:
    side.make("/a", "one")
    side.make("/b", "two")
    eventually(lambda: len(side.files()) == 2)
    versions = len(side.versions())

    side.change("/a", to="/t")
    side.change("/b", to="/a")
    side.change("/t", to="/b")

    eventually(lambda: side.files() == {"/a": "two", "/b": "one"})
    assert len(side.versions()) == versions + 3


def test_a_file_that_a_directory_takes_the_place_of_elsewhere(side: Side) -> None:
    side.make("/a", "file")
    eventually(lambda: side.has("/a", "file"))

    side.delete("/a")
    side.make("/a/b", "below")

    eventually(lambda: side.files() == {"/a/b": "below"})

    side.delete("/a/b")
    side.make("/a", "file again")

    eventually(lambda: side.files() == {"/a": "file again"})
    eventually(lambda: side.errors() == "")


def test_a_memory_made_elsewhere_is_plain_whatever_its_name(side: Side) -> None:
    for path in ("/.a.swp", "/b.tmp", "/.git/config"):
        side.make(path, "one")
    eventually(lambda: len(side.files()) == 3)

    for path in ("/.a.swp", "/b.tmp", "/.git/config"):
        (side.root / path[1:]).write_text("two")

    eventually(lambda: set(side.heads().values()) == {"two"})


def test_what_no_directory_can_hold_is_hidden_and_counted(sides: Sides) -> None:
    side = sides()
    side.make(f"/{'x' * 256}", "too long a name")
    side.make("/.memory-errors", "a name of ours")
    side.make("/a", "one")

    side.start()

    assert side.files() == {"/a": "one"}
    assert side.status().hidden == 2
    assert side.status().memories == 3
    assert [event.data for event in side.told("refused")] == [{"hidden": True}] * 2
    assert side.stop() == 0
    assert len(side.heads()) == 3


def test_a_memory_whose_place_is_taken_by_a_directory_is_hidden_until_it_is_free(
    side: Side,
) -> None:
    (side.root / "d").mkdir()
    (side.root / "d/.a.swp").write_text("scratch")

    side.make("/d", "hidden")

    eventually(lambda: side.status().hidden == 1)
    eventually(lambda: "EEXIST /d " in side.errors())
    (side.root / "d/.a.swp").unlink()
    (side.root / "d").rmdir()
    eventually(lambda: side.has("/d", "hidden"))
    eventually(lambda: side.status().hidden == 0)


def test_several_stores_have_a_directory_each(hf: Holdfast, sides: Sides) -> None:
    names = ["Team Rules", "Notes on Ada"]
    stores = [hf.memory_stores.create(name=name).id for name in names]
    side = sides(stores=stores).start()

    for slug in ("team-rules", "notes-on-ada"):
        (side.directory / slug / "a.md").write_text(slug)

    for store, slug in zip(stores, ("team-rules", "notes-on-ada"), strict=True):
        eventually(lambda store=store: hf.memory_stores.memories.at(store, "/a.md"))
        memory = hf.memory_stores.memories.list(store, view="full").data[0]
        assert memory.content == slug  # type: ignore[union-attr]


def test_what_is_open_for_reading_stays_whole(side: Side) -> None:
    side.make("/a.md", "one" * 1000)
    eventually(lambda: side.has("/a.md", "one" * 1000))

    with (side.root / "a.md").open() as file:
        first = file.read(10)
        side.change("/a.md", content="two" * 1000)
        eventually(lambda: side.has("/a.md", "two" * 1000))
        assert first + file.read() == "one" * 1000
    assert [each.name for each in side.root.iterdir()] == ["a.md"]
