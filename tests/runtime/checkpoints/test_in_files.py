"""The contract of checkpoints in files, and what a file may have become."""

import os
import stat
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.errors import CheckpointUnreadable
from holdfast.runtime.plans.leases import LeaseFile, LeaseState
from holdfast.runtime.runs.checkpoints import Checkpoint, FileCheckpoints
from holdfast.testing.contracts.checkpoints import LoggedCheckpointsContract, change, checkpoint


@pytest.fixture
def checkpoints(tmp_path: Path) -> FileCheckpoints:
    return FileCheckpoints(tmp_path / "kept")


class TestInFiles(LoggedCheckpointsContract):
    @pytest.fixture
    def checkpoints(self, checkpoints: FileCheckpoints) -> FileCheckpoints:
        return checkpoints


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"not a checkpoint",
        b'{"format": "holdfast.checkpoint", "version": 1}\n{}',
        b'{"format": "holdfast.checkpoint", "version": 1, "sha256": "00"}\n{}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_checkpoint_is_unreadable_and_never_empty(
    checkpoints: FileCheckpoints, content: bytes
) -> None:
    checkpoints.save(checkpoint())
    path = checkpoints.path("run_1")
    path.write_bytes(content)

    with pytest.raises(CheckpointUnreadable) as caught:
        checkpoints.load("run_1")

    assert caught.value.path == str(path)


def test_a_checkpoint_with_a_value_nested_too_deeply_is_unreadable(
    checkpoints: FileCheckpoints,
) -> None:
    checkpoints.save(checkpoint())
    body = b'{"run_id": "run_1", "entries": ' + b"[" * 100_000
    header = {
        "format": "holdfast.checkpoint",
        "version": 1,
        "size": len(body),
        "sha256": sha256(body).hexdigest(),
    }
    checkpoints.path("run_1").write_bytes(msgspec.json.encode(header) + b"\n" + body)

    with pytest.raises(CheckpointUnreadable, match="nested over 200"):
        checkpoints.load("run_1")


def test_a_file_cut_short_anywhere_is_unreadable(checkpoints: FileCheckpoints) -> None:
    checkpoints.save(checkpoint())
    path = checkpoints.path("run_1")
    whole = path.read_bytes()

    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointUnreadable):
            checkpoints.load("run_1")


def test_a_changed_byte_is_noticed(checkpoints: FileCheckpoints) -> None:
    checkpoints.save(checkpoint())
    path = checkpoints.path("run_1")
    whole = bytearray(path.read_bytes())
    whole[-40] ^= 1
    path.write_bytes(whole)

    with pytest.raises(CheckpointUnreadable):
        checkpoints.load("run_1")


def test_a_checkpoint_of_a_later_release_is_unreadable(checkpoints: FileCheckpoints) -> None:
    checkpoints.save(checkpoint())
    path = checkpoints.path("run_1")
    path.write_bytes(path.read_bytes().replace(b'"version":2', b'"version":3', 1))

    with pytest.raises(CheckpointUnreadable, match="version 3"):
        checkpoints.load("run_1")


def test_a_file_of_the_first_version_of_the_format_is_read(
    checkpoints: FileCheckpoints,
) -> None:
    body = b"""{"run_id": "run_1", "plan_hash": "0f", "parts": {"inputs": "aa"}, "completed_tasks":
        ["t"], "completed_steps": ["s0"], "saved_at": 7, "fence": 2, "entries": []}"""
    header = {
        "format": "holdfast.checkpoint",
        "version": 1,
        "change": False,
        "size": len(body),
        "sha256": sha256(body).hexdigest(),
    }
    checkpoints.save(checkpoint())
    checkpoints.path("run_1").write_bytes(msgspec.json.encode(header) + b"\n" + body)

    assert checkpoints.load("run_1") == Checkpoint(
        run_id="run_1",
        plan_hash="0f",
        parts={"inputs": "aa"},
        completed_tasks=("t",),
        completed_steps=("s0",),
        entries=(),
        saved_at=7,
    )


def test_a_file_of_another_run_is_not_taken_for_this_ones(checkpoints: FileCheckpoints) -> None:
    checkpoints.save(checkpoint("run_1"))
    checkpoints.path("run_1").rename(checkpoints.path("run_2"))

    with pytest.raises(CheckpointUnreadable, match="run_1"):
        checkpoints.load("run_2")


def test_a_run_id_never_leads_out_of_the_directory(tmp_path: Path) -> None:
    checkpoints = FileCheckpoints(tmp_path / "kept")

    for run_id in ("../out", "..", "/etc/x", "a/b", "ä" * 200, "r" * 400):
        checkpoints.save(replace(checkpoint(), run_id=run_id))
        loaded = checkpoints.load(run_id)
        assert loaded is not None
        assert loaded.run_id == run_id

    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
    assert len(list((tmp_path / "kept").iterdir())) == 6


def test_only_its_owner_may_read_a_file(tmp_path: Path) -> None:
    checkpoints, mask = FileCheckpoints(tmp_path / "a" / "kept"), os.umask(0)

    try:
        checkpoints.save(checkpoint())
    finally:
        os.umask(mask)

    path = checkpoints.path("run_1")
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, tmp_path / "a")]
    assert modes == [0o600, 0o700, 0o700]


def test_a_save_into_folders_that_are_new_syncs_the_name_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def sync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())

    monkeypatch.setattr(os, "fsync", sync)
    folder = tmp_path / "runs" / "kept"

    FileCheckpoints(folder).save(checkpoint())

    assert [each for each in synced if each.is_dir()] == [tmp_path, folder.parent, folder]


def test_a_save_that_fails_leaves_what_was_there(
    checkpoints: FileCheckpoints, tmp_path: Path
) -> None:
    checkpoints.save(checkpoint(saved_at=1))
    # A directory in the place of the file: it cannot be replaced.
    other = checkpoints.path("run_2")
    (other / "within").mkdir(parents=True)

    with pytest.raises(OSError, match="directory"):
        checkpoints.save(checkpoint("run_2"))

    assert checkpoints.load("run_1") == checkpoint(saved_at=1)
    names = sorted(each.name for each in (tmp_path / "kept").iterdir())
    assert names == ["run_1.checkpoint", "run_2.checkpoint"]


def test_what_a_killed_process_left_half_written_goes_with_the_run(
    checkpoints: FileCheckpoints,
) -> None:
    checkpoints.save(checkpoint())
    path = checkpoints.path("run_1")
    path.with_name(f"{path.name}.abc.new").write_bytes(b"half")

    checkpoints.delete("run_1")

    assert list(path.parent.iterdir()) == []


def test_a_change_cut_short_anywhere_counts_as_never_saved(checkpoints: FileCheckpoints) -> None:
    log = checkpoints.begin(checkpoint())
    path = checkpoints.path("run_1")
    before = path.stat().st_size
    log.append(change("s7"))
    whole = path.read_bytes()

    for length in range(before, len(whole)):
        path.write_bytes(whole[:length])
        assert checkpoints.load("run_1") == checkpoint()


def test_a_change_partly_on_the_disk_counts_as_never_saved(checkpoints: FileCheckpoints) -> None:
    log = checkpoints.begin(checkpoint())
    path = checkpoints.path("run_1")
    log.append(change("s7"))
    saved, before = checkpoints.load("run_1"), path.stat().st_size
    log.append(change("s8"))
    whole = path.read_bytes()

    for place in range(before, len(whole)):
        zeros = bytes(min(40, len(whole) - place))
        path.write_bytes(whole[:place] + zeros + whole[place + len(zeros) :])
        assert checkpoints.load("run_1") == saved


def test_zeros_in_a_change_that_others_follow_are_noticed(checkpoints: FileCheckpoints) -> None:
    log = checkpoints.begin(checkpoint())
    path = checkpoints.path("run_1")
    before = path.stat().st_size
    log.append(change("s7"))
    after = path.stat().st_size
    log.append(change("s8"))
    whole = path.read_bytes()

    for place in (before + 3, before + 250, after - 40):
        path.write_bytes(whole[:place] + bytes(40) + whole[place + 40 :])
        with pytest.raises(CheckpointUnreadable):
            checkpoints.load("run_1")


def test_a_changed_byte_in_a_change_is_noticed(checkpoints: FileCheckpoints) -> None:
    log = checkpoints.begin(checkpoint())
    path = checkpoints.path("run_1")
    before = path.stat().st_size
    log.append(change("s7"))
    log.append(change("s8"))
    whole = path.read_bytes()

    for place in (before + 3, before + 250, len(whole) - 40):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(CheckpointUnreadable):
            checkpoints.load("run_1")


def test_nothing_is_appended_to_a_file_that_was_cut_short(checkpoints: FileCheckpoints) -> None:
    log = checkpoints.begin(checkpoint())
    log.append(change("s7"))
    path = checkpoints.path("run_1")
    path.write_bytes(path.read_bytes()[:-5])

    assert not log.append(change("s8"))
    assert checkpoints.load("run_1") == checkpoint()


def test_changes_are_in_the_one_file_of_the_run(checkpoints: FileCheckpoints) -> None:
    log = checkpoints.begin(checkpoint())
    log.append(change("s7"))

    assert [each.name for each in checkpoints.path("run_1").parent.iterdir()] == [
        "run_1.checkpoint"
    ]


def test_a_process_killed_while_it_stores_a_lease_leaves_one_with_its_token(
    tmp_path: Path,
) -> None:
    path, found = tmp_path / "run_1.lease", list[int]()
    long = LeaseState(fence=7, holder="h" * 24, place="rock:7", until=2**50)

    def look(*_: object) -> Any:
        found.append(msgspec.json.decode(path.read_bytes(), type=LeaseState).fence)
        return look

    with LeaseFile(path) as file:
        file.write(long)
        sys.settrace(look)
        try:
            file.write(replace(long, until=0))
        finally:
            sys.settrace(None)
        assert file.read() == replace(long, until=0)

    assert len(found) > 3
    assert set(found) == {7}
