"""Files and memories follow each other wherever memories are kept."""

from pathlib import Path

from doors.mount.synced.directories import Side, eventually
from targets import hf, in_memory, postgres

from holdfast.library.holdfast import Holdfast

__all__ = ["hf", "in_memory", "postgres"]


def test_what_is_done_on_one_side_is_done_on_the_other(hf: Holdfast, tmp_path: Path) -> None:
    store = hf.memory_stores.create(name="Notes").id
    side = Side(hf, [store], tmp_path / "side")
    for number in range(30):
        side.make(f"/d/{number}", f"there {number}")
    side.start()
    try:
        assert side.equal()

        (side.root / "here.md").write_text("here")
        (side.root / "d/0").write_text("changed here")
        (side.root / "d/1").unlink()
        (side.root / "d/2").rename(side.root / "moved")
        side.make("/there.md", "there")
        side.change("/d/3", content="changed there")
        side.delete("/d/4")

        eventually(lambda: side.equal() and len(side.heads()) == 30)
        assert side.heads()["/d/0"] == "changed here"
        assert side.heads()["/moved"] == "there 2"
    finally:
        assert side.stop() == 0


def test_a_state_from_one_handle_serves_the_next(hf: Holdfast, tmp_path: Path) -> None:
    store = hf.memory_stores.create(name="Notes").id
    side = Side(hf, [store], tmp_path / "side").start()
    (side.root / "a.md").write_text("one")
    assert side.stop() == 0
    (side.root / "a.md").write_text("two")

    side.start()

    try:
        eventually(lambda: side.keeps("/a.md", "two"))
    finally:
        side.stop()
