"""What a machine lacks is said, with what to do, before anything is mounted."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.doors.mount.process.system import Machine, lacking_for_fuse, needs, require
from holdfast.ground.errors import MissingExtra, Refused

MAY_MOUNT = "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n"
MAY_NOT = "CapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\n"


def not_there(name: str) -> object:
    raise OSError(name)


def nowhere(_: str) -> None:
    return None


@pytest.fixture
def whole(tmp_path: Path) -> Machine:
    """Give a machine that has everything, used by somebody who is not root."""
    for name, content in (
        ("fuse", ""),
        ("fuse.conf", "# words\nuser_allow_other\n"),
        ("status", MAY_MOUNT),
    ):
        (tmp_path / name).write_text(content)
    return Machine(
        load=lambda name: name,
        which=lambda name: f"/usr/bin/{name}",
        find=lambda name: name,
        device=tmp_path / "fuse",
        settings=tmp_path / "fuse.conf",
        process=tmp_path / "status",
        user=1000,
    )


def test_a_machine_that_has_everything_lacks_nothing(whole: Machine) -> None:
    require(whole, fuse=True, allow_other=True)

    assert [need.name for need in needs(whole)] == [
        "extra",
        "libfuse3",
        "fusermount3",
        "/dev/fuse",
        "allow other",
    ]
    assert all(need.met for need in needs(whole))


def test_libfuse_is_missed_in_one_sentence_that_says_what_to_install(whole: Machine) -> None:
    with pytest.raises(Refused) as refused:
        require(replace(whole, load=not_there), fuse=True)

    assert str(refused.value) == (
        "libfuse3 is not installed. Debian, Ubuntu: apt install libfuse3-3 fuse3."
        " Or use --mode sync."
    )


def test_a_newer_libfuse_will_do(whole: Machine) -> None:
    def load(name: str) -> object:
        return name if name == "libfuse3.so.4" else not_there(name)

    assert lacking_for_fuse(replace(whole, load=load)) is None


def test_fusermount_is_missed_by_those_who_need_it(whole: Machine) -> None:
    bare = replace(whole, which=nowhere)

    assert str(lacking_for_fuse(bare)).startswith("fusermount3 is not installed. Debian, Ubuntu:")
    assert lacking_for_fuse(replace(bare, user=0)) is None


def test_a_missing_device_is_told_from_one_that_is_not_permitted(
    whole: Machine, tmp_path: Path
) -> None:
    missing = lacking_for_fuse(replace(whole, device=tmp_path / "none"))
    refused = lacking_for_fuse(replace(whole, device=tmp_path))  # a folder is not opened to write

    assert f"{tmp_path}/none is missing. In a container: --device /dev/fuse" in str(missing)
    assert f"{tmp_path} may not be opened" in str(refused)
    assert "--cap-add SYS_ADMIN" in str(refused)


@pytest.mark.parametrize("user", [0, 1000])
def test_a_container_without_the_right_to_mount_is_told_so(whole: Machine, user: int) -> None:
    whole.process.write_text(MAY_NOT)

    assert "mounting is not permitted" in str(lacking_for_fuse(replace(whole, user=user)))


def test_letting_others_in_wants_a_line_in_the_settings(whole: Machine) -> None:
    whole.settings.write_text("#user_allow_other\n")

    require(whole, fuse=True)
    with pytest.raises(Refused, match="Add the line: user_allow_other"):
        require(whole, fuse=True, allow_other=True)
    require(replace(whole, user=0), fuse=True, allow_other=True)


def test_both_forms_want_the_extra(whole: Machine) -> None:
    def find(name: str) -> object | None:
        return None if name == "watchfiles" else name

    bare = replace(whole, find=find)

    for fuse in (True, False):
        with pytest.raises(MissingExtra, match=r"holdfast\[mount\]"):
            require(bare, fuse=fuse)


def test_a_synced_directory_wants_nothing_but_the_extra(whole: Machine, tmp_path: Path) -> None:
    bare = replace(whole, load=not_there, which=nowhere, device=tmp_path / "none")

    require(bare, fuse=False)
