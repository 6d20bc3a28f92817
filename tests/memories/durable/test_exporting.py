"""An agent's entries as a folder of files, and what an export does and does not touch."""

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from holdfast.ground.errors import InvalidInput, Unavailable
from holdfast.memories.durable.markdown.folder import MOST_BYTES, target
from holdfast.memories.durable.markdown.format import MARKER
from holdfast.memories.durable.markdown.transfer import export_files, export_markdown, write_export
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.fakes import FrozenClock


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file in *folder* by its path."""
    files = [each for each in folder.rglob("*") if each.is_file()]
    return {each.relative_to(folder).as_posix(): each.read_bytes() for each in files}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_an_export_is_a_file_for_each_entry(durable: DurableMemory, folder: Path) -> None:
    durable.set("owner", "Ada\r\n", category="core")
    durable.set("Plan B", "x", category="notes")
    durable.set("house", "style", category="workspace")

    report = export_markdown(durable.context, folder)

    assert report.removed == ()
    assert set(report.written) == tree(folder).keys() - {MARKER}
    assert {path.split("/")[0] for path in report.written} == {"core", "notes", "workspace"}
    assert (folder / "core/owner.md").read_bytes().endswith(b"---\nAda\r\n\n")
    assert json.loads((folder / MARKER).read_bytes()) == {
        "format": 1,
        "agent": "agent_7",
        "workspace": durable.context.workspace,
        "count": 3,
    }


def test_an_export_is_for_its_owner_alone_whatever_the_umask(
    durable: DurableMemory, tmp_path: Path
) -> None:
    durable.set("owner", "Ada", category="core")
    folder, mask = tmp_path / "new" / "out", os.umask(0)

    try:
        export_markdown(durable.context, folder)
    finally:
        os.umask(mask)

    made = [folder.parent, folder, *folder.rglob("*")]
    modes = {(each.is_dir(), stat.S_IMODE(each.stat().st_mode)) for each in made}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_an_earlier_export_keeps_the_modes_of_its_folders(
    durable: DurableMemory, folder: Path
) -> None:
    durable.set("owner", "Ada", category="core")
    export_markdown(durable.context, folder)
    (folder / "core").chmod(0o755)
    (folder / "core/owner.md").chmod(0o644)

    export_markdown(durable.context, folder)

    assert stat.S_IMODE((folder / "core").stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "core/owner.md").stat().st_mode) == 0o600


def test_conversation_and_expired_entries_stay_out(
    durable: DurableMemory, clock: FrozenClock, folder: Path
) -> None:
    with durable.run() as run:
        run.set("scratch", "x", category="conversation")
        durable.set("ticket", "x", category="daily")
        durable.set("kept", "x", category="core")
        clock.tick(72 * 3600 + 0.001)

        report = export_markdown(durable.context, folder)

    assert report.written == ("core/kept.md",)


def test_what_the_workspace_shares_may_be_left_out(durable: DurableMemory, folder: Path) -> None:
    durable.set("house", "style", category="workspace")
    durable.set("mine", "x", category="core")

    report = export_markdown(durable.context, folder, include_workspace=False)

    assert report.written == ("core/mine.md",)


def test_an_own_entry_and_the_one_it_shadows_are_both_there(
    durable: DurableMemory, folder: Path
) -> None:
    durable.set("house", "ours", category="workspace")
    durable.set("house", "mine", category="core")

    assert export_markdown(durable.context, folder).written == (
        "core/house.md",
        "workspace/house.md",
    )


def test_the_same_memory_gives_the_same_bytes(
    durable: DurableMemory, clock: FrozenClock, tmp_path: Path
) -> None:
    for key in ("a", "B", "c"):
        durable.set(key, "x", category="notes", tags=["t"])
    export_markdown(durable.context, tmp_path / "one")
    clock.tick(60)

    export_markdown(durable.context, tmp_path / "two")

    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_an_earlier_export_is_renewed(durable: DurableMemory, folder: Path) -> None:
    durable.set("gone", "x", category="notes")
    durable.set("old", "x", category="core")
    export_markdown(durable.context, folder)
    durable.forget("gone")
    durable.set("old", "y", category="core")

    report = export_markdown(durable.context, folder)

    assert report.removed == ("notes/gone.md",)
    assert tree(folder) == {path: text.encode() for path, text in export_files(durable.context)}
    assert not (folder / "notes").exists()


def test_a_file_that_was_edited_goes_as_well_when_its_entry_is_gone(
    durable: DurableMemory, folder: Path
) -> None:
    durable.set("gone", "x", category="notes")
    export_markdown(durable.context, folder)
    durable.forget("gone")
    path = folder / "notes/gone.md"
    path.write_text(path.read_text().replace('key: "gone"', "key: gone"))

    assert export_markdown(durable.context, folder).removed == ("notes/gone.md",)


def test_what_no_export_wrote_is_left_alone(
    durable: DurableMemory, other: DurableMemory, folder: Path, tmp_path: Path
) -> None:
    other.set("theirs", "x", category="notes")
    export_markdown(other.context, tmp_path / "theirs")
    durable.set("mine", "x", category="notes")
    export_markdown(durable.context, folder)
    by_hand = {
        "README.md": b"About this",
        "notes/new.md": b"---\nkey: new\ncategory: notes\n---\nby hand\n",
        "notes/copied.md": (folder / "notes/mine.md").read_bytes(),
        "notes/theirs.md": (tmp_path / "theirs/notes/theirs.md").read_bytes(),
        "notes/huge.md": b"x" * (MOST_BYTES + 1),
        "notes/bytes.md": b"\xff",
        ".git/HEAD": b"ref: x",
    }
    for path, content in by_hand.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)

    report = export_markdown(durable.context, folder)

    assert report.removed == ()
    assert by_hand.items() <= tree(folder).items()


def test_a_folder_is_made_with_those_above_it(durable: DurableMemory, tmp_path: Path) -> None:
    export_markdown(durable.context, tmp_path / "a/b/c")

    assert tree(tmp_path / "a").keys() == {f"b/c/{MARKER}"}


@pytest.mark.parametrize(
    "content",
    [
        {"note.txt": "x"},
        {".git/HEAD": "x"},
        {MARKER: "x"},
        {MARKER: '{"format": 2, "agent": "agent_7", "workspace": "w", "count": 0}'},
        {MARKER: '{"format": 1, "agent": "agent_8", "workspace": "w", "count": 0}'},
        {MARKER: '{"format": 1, "agent": "agent_7", "workspace": "v", "count": 0}'},
        {f"{MARKER}/x": "x"},
    ],
    ids=["a file", "a folder", "no marker", "newer", "another agent", "another workspace", "odd"],
)
def test_any_other_folder_is_refused_and_untouched(
    durable: DurableMemory, folder: Path, content: dict[str, str]
) -> None:
    durable.set("k", "x", category="core")
    for path, text in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace('"w"', f'"{durable.context.workspace}"'))
    before = tree(folder)

    with pytest.raises(InvalidInput) as refused:
        export_markdown(durable.context, folder)

    assert (refused.value.field, refused.value.code) == ("directory", "HF-MEM-004")
    assert tree(folder) == before


def test_a_file_is_no_folder(durable: DurableMemory, folder: Path) -> None:
    folder.write_text("x")

    with pytest.raises(InvalidInput):
        export_markdown(durable.context, folder)

    assert folder.read_text() == "x"


@pytest.mark.parametrize("directory", ["", "a\0b", 7, b"bytes", None])
def test_what_is_no_path_is_refused(durable: DurableMemory, directory: object) -> None:
    with pytest.raises(InvalidInput):
        export_markdown(durable.context, directory)  # pyright: ignore[reportArgumentType]


def test_a_link_in_the_place_of_a_folder_leads_nowhere(
    durable: DurableMemory, folder: Path, tmp_path: Path
) -> None:
    durable.set("k", "x", category="core")
    export_markdown(durable.context, folder)
    elsewhere = tmp_path / "elsewhere"
    (folder / "core").rename(elsewhere)
    (folder / "core").symlink_to(elsewhere)
    durable.set("k", "y", category="core")
    before = tree(elsewhere)

    with pytest.raises(InvalidInput):
        export_markdown(durable.context, folder)

    assert tree(elsewhere) == before


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_written_through(
    durable: DurableMemory, folder: Path, tmp_path: Path
) -> None:
    durable.set("k", "x", category="core")
    export_markdown(durable.context, folder)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (folder / "core/k.md").unlink()
    (folder / "core/k.md").symlink_to(precious)

    export_markdown(durable.context, folder)

    assert precious.read_text() == "precious"
    assert not (folder / "core/k.md").is_symlink()


def test_a_folder_in_the_place_of_a_file_is_refused_before_anything_is_written(
    durable: DurableMemory, folder: Path
) -> None:
    durable.set("a", "x", category="core")
    export_markdown(durable.context, folder)
    durable.set("a", "y", category="core")
    durable.set("k", "x", category="core")
    (folder / "core/k.md").mkdir()
    before = tree(folder)

    with pytest.raises(InvalidInput):
        export_markdown(durable.context, folder)

    assert tree(folder) == before


def test_what_a_broken_off_export_left_is_cleared_away(
    durable: DurableMemory, folder: Path
) -> None:
    aside = f".holdfast-{'0' * 16}.part"
    folder.mkdir()
    (folder / aside).write_text("half")
    durable.set("k", "x", category="core")
    export_markdown(durable.context, folder)
    (folder / "core" / aside).write_text("half")

    export_markdown(durable.context, folder)

    assert tree(folder).keys() == {MARKER, "core/k.md"}


def test_a_pipe_among_the_files_is_not_waited_for(durable: DurableMemory, folder: Path) -> None:
    durable.set("k", "x", category="core")
    export_markdown(durable.context, folder)
    os.mkfifo(folder / "core/pipe.md")

    export_markdown(durable.context, folder)

    assert (folder / "core/pipe.md").is_fifo()


@pytest.mark.parametrize(
    "path",
    ["../x.md", "./x.md", "/x.md", "a/../../x.md", "a/b/c.md", "x.md", "a/x", "A/x.md", "a/x.md\n"],
)
def test_files_of_a_hostile_server_stay_in_the_folder(folder: Path, path: str) -> None:
    marker = '{"format": 1, "agent": "agent_7", "workspace": "w", "count": 1}'

    with pytest.raises(InvalidInput):
        write_export(folder, ((MARKER, marker), (path, "x")))

    assert tree(folder.parent) == {}


def test_files_without_a_marker_are_refused(folder: Path) -> None:
    with pytest.raises(InvalidInput):
        write_export(folder, (("a/x.md", "x"),))


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, "full"), (errno.EROFS, "read_only"), (errno.EIO, "io")]
)
def test_a_disk_that_fails_is_no_fault_of_the_folder(
    folder: Path, number: int, reason: str
) -> None:
    with pytest.raises(Unavailable) as failed, target(folder):
        raise OSError(number, "it fails")

    assert failed.value.reason == reason


def test_a_folder_that_may_not_be_made_is_refused(durable: DurableMemory) -> None:
    with pytest.raises(InvalidInput):
        export_markdown(durable.context, "/proc/holdfast")
