"""Files and folders for their owner alone, whatever the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.ground.permissions import create_file, create_folders


@pytest.fixture(params=[0, 0o777], ids=["open", "shut"])
def umask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    before = os.umask(request.param)
    yield tmp_path
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_and_the_folders_above_it_are_for_their_owner(umask: Path) -> None:
    folder = umask / "a" / "b"

    create_folders(folder)
    with create_file(folder / "c.md") as file:
        file.write(b"x")

    assert [mode(folder.parent), mode(folder), mode(folder / "c.md")] == [0o700, 0o700, 0o600]
    assert (folder / "c.md").read_bytes() == b"x"


def test_each_folder_that_is_created_survives_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def sync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())

    monkeypatch.setattr(os, "fsync", sync)

    create_folders(tmp_path / "a" / "b" / "c")

    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]


def test_a_folder_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    create_folders(tmp_path)

    assert mode(tmp_path) == 0o755


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()

    with pytest.raises(FileExistsError):
        create_folders(tmp_path / "a")
