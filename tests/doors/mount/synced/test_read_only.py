"""Stores that cannot be written: what is changed is kept elsewhere, undone and told of."""

import stat

from doors.mount.synced.conftest import Sides
from doors.mount.synced.directories import OFTEN, Side, eventually, insist

from holdfast.library.holdfast import Holdfast


def started(sides: Sides) -> Side:
    side = sides(read_only=True)
    side.make("/d/a.md", "one")
    return side.start(pace=OFTEN)


def test_files_and_directories_look_read_only(sides: Sides) -> None:
    side = started(sides)

    assert stat.S_IMODE((side.root / "d/a.md").stat().st_mode) == 0o444
    assert stat.S_IMODE((side.root / "d").stat().st_mode) == 0o555
    assert stat.S_IMODE(side.root.stat().st_mode) == 0o555
    assert side.status().access == "read_only"


def test_a_changed_file_is_as_before_and_the_change_is_in_the_spool(sides: Sides) -> None:
    side = started(sides)

    insist(side.root / "d/a.md").write_text("mine")

    eventually(lambda: side.has("/d/a.md", "one"))
    eventually(lambda: "EROFS /d/a.md" in side.errors())
    (entry,) = side.spooled()
    assert (entry.path, entry.errno, entry.kind) == ("/d/a.md", "EROFS", "save")
    (path,) = [path for path, _ in side.assembled.context.spool.list(side.stores[0])]
    assert path.read_text() == "mine"
    assert side.status().refused == {"EROFS": 1}
    assert len(side.versions()) == 1


def test_a_new_file_goes_to_the_spool(sides: Sides) -> None:
    side = started(sides)

    insist(side.root / "new.bin").write_bytes(b"\xff\0")

    eventually(lambda: not (side.root / "new.bin").exists())
    eventually(lambda: "EROFS /new.bin" in side.errors())
    (path,) = [path for path, _ in side.assembled.context.spool.list(side.stores[0])]
    assert path.read_bytes() == b"\xff\0"


def test_a_deleted_file_comes_back(sides: Sides) -> None:
    side = started(sides)

    insist(side.root / "d/a.md").unlink()

    eventually(lambda: side.has("/d/a.md", "one"))
    eventually(lambda: "EROFS /d/a.md" in side.errors())
    assert side.spooled() == []


def test_a_renamed_file_comes_back(sides: Sides) -> None:
    side = started(sides)

    insist(side.root / "d").rename(side.root / "e")

    eventually(lambda: side.files() == {"/d/a.md": "one"})
    assert len(side.versions()) == 1


def test_changes_from_elsewhere_still_come(sides: Sides) -> None:
    side = started(sides)

    side.change("/d/a.md", content="two")
    side.make("/b.md", "new")

    eventually(lambda: side.equal() and len(side.files()) == 2)
    assert stat.S_IMODE((side.root / "b.md").stat().st_mode) == 0o444
    assert side.errors() == ""


def test_a_store_archived_meanwhile_is_read_only(hf: Holdfast, side: Side, store: str) -> None:
    side.make("/a.md", "one")
    eventually(lambda: side.has("/a.md", "one"))

    hf.memory_stores.archive(store)

    eventually(lambda: stat.S_IMODE((side.root / "a.md").stat().st_mode) == 0o444)
    assert side.status().archived_at is not None
    insist(side.root / "a.md").write_text("too late")
    eventually(lambda: side.has("/a.md", "one"))
    assert len(side.spooled()) == 1


def test_a_store_read_only_before_and_writable_now_looks_so(sides: Sides) -> None:
    side = started(sides)
    side.stop()

    again = sides(read_only=False)
    again.base = side.base
    again.directory, again.spool = side.directory, side.spool
    again.start()

    assert stat.S_IMODE((again.root / "d/a.md").stat().st_mode) == 0o644
    assert stat.S_IMODE(again.root.stat().st_mode) == 0o755


def test_a_session_archived_meanwhile_leaves_changes_where_they_are(
    hf: Holdfast, sides: Sides, store: str
) -> None:
    session = hf.sessions.create(
        agent="helper",
        environment_id="env_local",
        resources=[{"type": "memory_store", "memory_store_id": store}],
    )
    side = sides(session=session.id, stores=[])
    side.stores = [store]
    side.make("/a.md", "one")
    side.start()

    hf.sessions.archive(session.id)

    eventually(lambda: stat.S_IMODE((side.root / "a.md").stat().st_mode) == 0o444)
    insist(side.root / "a.md").write_text("too late")
    eventually(lambda: "EACCES /a.md" in side.errors())
    assert side.has("/a.md", "too late")


def test_a_store_deleted_meanwhile_leaves_nothing(hf: Holdfast, side: Side, store: str) -> None:
    side.make("/d/a.md", "one")
    eventually(lambda: side.has("/d/a.md", "one"))
    (side.root / "d/a.md").write_text("two")
    eventually(lambda: side.keeps("/d/a.md", "two"))

    hf.memory_stores.delete(store)

    eventually(lambda: list(side.root.iterdir()) == [])
    eventually(lambda: not list((side.base / "state").rglob("*.jsonl")))
    assert side.stop() == 0
