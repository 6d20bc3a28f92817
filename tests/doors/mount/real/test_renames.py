"""Renames, links, directories: what keeps its id, what is refused; nothing is half done."""

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from doors.mount.real.calls import (
    EXCHANGE,
    NOREPLACE,
    WHITEOUT,
    fallocate,
    listing,
    opened,
    refused,
    rename,
    write,
)
from doors.mount.real.kept import Kept
from doors.mount.real.mounting import Mount, Start, Target, eventually
from doors.mount.real.place import Place

pytestmark = pytest.mark.fuse

CREATE = os.O_WRONLY | os.O_CREAT


def test_a_memory_that_moves_to_a_free_name_keeps_its_id(place: Place) -> None:
    file = place.given("a.md", "tabs")
    memory = place.id("a.md")

    file.rename(place.dir / "b.md")

    assert place.id("b.md") == memory
    assert place.told() == ["created a.md", "modified b.md"]
    assert not file.exists()


def test_a_memory_that_moves_over_another_is_its_next_version(place: Place) -> None:
    file, target = place.given("a.md", "tabs"), place.given("b.md", "spaces")
    ids = place.id("a.md"), place.id("b.md")

    file.rename(target)

    assert place.kept() == {"b.md": "tabs"}
    assert place.id("b.md") == ids[1]
    last = {(each.memory_id, each.operation, each.path) for each in place.versions()[2:]}
    assert {(id, operation) for id, operation, _ in last} == {
        (ids[0], "deleted"),
        (ids[1], "modified"),
    }
    assert target.read_text() == "tabs"
    assert listing(place.dir) == ["b.md"]


@pytest.mark.parametrize("name", [".a.swp", "sedAb12_9", "a.tmp"])
def test_a_temporary_file_that_moves_over_a_memory_is_its_next_version(
    place: Place, name: str
) -> None:
    target = place.given("a.md", "spaces")
    memory = place.id("a.md")
    file = place.given(name, "tabs")

    file.rename(target)

    assert place.kept() == {"a.md": "tabs"}
    assert place.id("a.md") == memory
    assert place.told() == ["created a.md", "modified a.md"]
    assert place.spooled() == []


def test_a_temporary_file_that_moves_to_a_free_name_is_a_new_memory(place: Place) -> None:
    place.given("a.tmp", "tabs").rename(place.dir / "a.md")

    assert place.kept() == {"a.md": "tabs"}
    assert place.told() == ["created a.md"]
    assert place.spooled() == []


def test_equal_content_moved_over_a_memory_is_no_version_of_it(place: Place) -> None:
    target = place.given("a.md", "tabs")

    place.given("a.tmp", "tabs").rename(target)

    assert place.told() == ["created a.md"]
    assert listing(place.dir) == ["a.md"]


def test_what_is_not_saved_yet_is_saved_by_its_rename(place: Place) -> None:
    target = place.given("a.md", "spaces")
    memory = place.id("a.md")

    with opened(place.dir / "a.tmp", CREATE) as fd:
        write(fd, b"tabs")
        (place.dir / "a.tmp").rename(target)
        assert place.kept() == {"a.md": "tabs"}

    assert place.id("a.md") == memory
    assert place.told() == ["created a.md", "modified a.md"]


def test_an_open_file_goes_on_under_its_new_name(place: Place) -> None:
    file = place.given("a.md", "tabs")
    memory = place.id("a.md")

    with opened(file, os.O_WRONLY | os.O_APPEND) as fd:
        file.rename(place.dir / "b.md")
        write(fd, b" and spaces")

    assert place.kept() == {"b.md": "tabs and spaces"}
    assert place.id("b.md") == memory


def test_a_rename_to_a_name_that_no_memory_can_have_changes_nothing(place: Place) -> None:
    file = place.given("a.md", "tabs")

    for name, error in (("x" * 256, "ENAMETOOLONG"), ("a\u200d", "EINVAL"), (".git", "EPERM")):
        with refused(error):
            file.rename(place.dir / name)

    assert listing(place.dir) == ["a.md"]
    assert place.told() == ["created a.md"]


def test_a_directory_takes_along_what_is_below_and_what_is_not_saved(place: Place) -> None:
    place.sh("mkdir -p d/e empty; echo a > d/a; echo b > d/e/b; echo t > d/e/t.tmp")

    with opened(place.dir / "d" / "new", CREATE) as fd:
        write(fd, b"new")
        (place.dir / "d").rename(place.dir / "f")
        write(fd, b"er")

    assert place.kept() == {"f/a": "a\n", "f/e/b": "b\n", "f/new": "newer"}
    assert place.sh("find f | sort").split() == ["f", "f/a", "f/e", "f/e/b", "f/e/t.tmp", "f/new"]
    made, moved, saved = place.told()[:2], place.told()[2:4], place.told()[4:]
    assert made == ["created d/a", "created d/e/b"]
    assert sorted(moved) == ["modified f/a", "modified f/e/b"]
    assert saved == ["created f/new"]


def test_a_directory_may_replace_an_empty_one_alone(place: Place) -> None:
    place.sh("mkdir d e; echo a > d/a; echo b > e/b; echo c > c; mkdir empty")

    with refused("ENOTEMPTY"):
        (place.dir / "d").rename(place.dir / "e")
    with refused("ENOTDIR"):
        (place.dir / "d").rename(place.dir / "c")
    with refused("EISDIR"):
        (place.dir / "c").rename(place.dir / "e")
    with refused("EINVAL"):
        (place.dir / "d").rename(place.dir / "d" / "below")
    (place.dir / "d").rename(place.dir / "empty")

    assert place.kept() == {"c": "c\n", "e/b": "b\n", "empty/a": "a\n"}


def test_a_directory_moves_nowhere_if_one_path_below_would_be_too_long(place: Place) -> None:
    deep = "/".join(["d"] * 14)
    place.sh(f"mkdir -p {deep} e/e/e/e/e; echo a > {deep}/a; echo b > d/b")
    told = place.told()

    with refused("ENAMETOOLONG"):
        (place.dir / "d").rename(place.dir / "e/e/e/e/e/d")

    assert place.kept() == {f"{deep}/a": "a\n", "d/b": "b\n"}
    assert place.told() == told
    assert (place.dir / "d" / "b").read_text() == "b\n"


@pytest.fixture(scope="module")
def two(start: Start, shared: Kept) -> Iterator[tuple[Place, Place]]:
    """Give two stores in one mount."""
    stores = shared.store("One"), shared.store("Two")
    with start(Target(shared.db, stores)) as mount:
        yield Place(mount, shared.hf, store=0), Place(mount, shared.hf, store=1)


def test_a_rename_never_crosses_stores_and_mv_copies(two: tuple[Place, Place]) -> None:
    one, other = two
    file = one.given("a.md", "tabs")

    with refused("EXDEV"):
        file.rename(other.dir / "a.md")
    one.sh(f"mv a.md {other.dir}/a.md")

    assert (one.kept(), other.kept()) == ({}, {"a.md": "tabs"})
    assert (one.told(), other.told()) == (["created a.md", "deleted a.md"], ["created a.md"])


def test_a_rename_that_may_not_replace_does_not(place: Place) -> None:
    file, target = place.given("a.md", "tabs"), place.given("b.md", "spaces")

    with refused("EEXIST"):
        rename(file, target, NOREPLACE)
    rename(file, place.dir / "c.md", NOREPLACE)

    assert place.kept() == {"b.md": "spaces", "c.md": "tabs"}


def test_a_rename_that_may_not_replace_sees_what_was_just_made_elsewhere(place: Place) -> None:
    file = place.given("a.md", "tabs")

    for number in range(10):
        place.put(f"{number}.md", "elsewhere")
        with refused("EEXIST"):
            rename(file, place.dir / f"{number}.md", NOREPLACE)

    assert place.content("a.md") == "tabs"
    assert place.content("9.md") == "elsewhere"


@pytest.mark.parametrize("flag", [EXCHANGE, WHITEOUT])
def test_a_rename_of_another_kind_is_refused(place: Place, flag: int) -> None:
    file, target = place.given("a.md", "tabs"), place.given("b.md", "spaces")

    with refused("EINVAL"):
        rename(file, target if flag == EXCHANGE else place.dir / "c.md", flag)

    assert place.kept() == {"a.md": "tabs", "b.md": "spaces"}


def test_a_directory_that_is_not_empty_is_not_removed(place: Place) -> None:
    place.sh("mkdir d e; echo a > d/a; echo x > e/.a.swp")

    for name in ("d", "e"):
        with refused("ENOTEMPTY"):
            (place.dir / name).rmdir()
    with refused("EEXIST"):
        (place.dir / "d").mkdir()

    assert place.kept() == {"d/a": "a\n"}


def test_a_directory_stays_when_its_last_file_is_removed_here(place: Place) -> None:
    place.put("d/a", "a")
    eventually((place.dir / "d" / "a").exists)

    (place.dir / "d" / "a").unlink()
    assert listing(place.dir / "d") == []
    (place.dir / "d").rmdir()

    assert listing(place.dir) == []


def test_a_directory_goes_when_it_empties_elsewhere_unless_it_was_made_here(place: Place) -> None:
    (place.dir / "mine").mkdir()
    place.put("mine/a", "a")
    place.put("yours/a", "a")
    eventually(lambda: listing(place.dir) == ["mine", "yours"])
    eventually((place.dir / "mine" / "a").exists)

    place.drop("mine/a")
    place.drop("yours/a")

    eventually(lambda: listing(place.dir) == ["mine"])
    eventually(lambda: listing(place.dir / "mine") == [])


def test_a_file_replaces_an_empty_directory_of_its_name_when_it_appears_elsewhere(
    place: Place,
) -> None:
    (place.dir / "d").mkdir()

    place.put("d", "a file")

    eventually((place.dir / "d").is_file)
    assert (place.dir / "d").read_text() == "a file"


def test_a_file_stays_hidden_while_a_directory_of_its_name_has_what_is_not_saved(
    place: Place,
) -> None:
    (place.dir / "d").mkdir()
    hidden = place.mount.store().hidden

    with refused("EEXIST"), opened(place.dir / "d" / "a", CREATE) as fd:
        write(fd, b"mine")
        place.put("d", "yours")
        eventually(lambda: place.mount.store().hidden == hidden + 1)
        assert (place.dir / "d").is_dir()

    (entry,) = place.spooled()
    assert (entry.read_bytes(), "-EEXIST-" in entry.name) == (b"mine", True)
    eventually((place.dir / "d").is_file)
    assert place.kept() == {"d": "yours"}


def test_nothing_but_files_and_directories_is_made(place: Place) -> None:
    file, new = place.given("a.md", "tabs"), place.dir / "new"

    with refused("EPERM"):
        new.symlink_to(file)
    with refused("EPERM"):
        new.hardlink_to(file)
    with refused("EPERM"):
        os.mkfifo(new)
    with (
        opened(place.dir, os.O_PATH) as fd,
        socket.socket(socket.AF_UNIX) as listening,
        refused("EPERM"),
    ):
        listening.bind(f"/proc/self/fd/{fd}/new")

    assert listing(place.dir) == ["a.md"]


def test_what_no_memory_needs_is_declined_so_that_programs_fall_back(place: Place) -> None:
    with opened(place.given("a.md", "tabs"), os.O_RDWR) as fd:
        with refused("EOPNOTSUPP"):
            fallocate(fd, 100)
        with refused("ENOTTY"):
            fcntl.ioctl(fd, 0x5401)
        with refused("EOPNOTSUPP"):
            os.open(place.dir, os.O_TMPFILE | os.O_RDWR)

    assert place.told() == ["created a.md"]


def test_locks_hold_between_programs_of_one_mount(place: Place) -> None:
    file = place.given("a.md", "tabs")
    line = (
        "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.{}(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )

    with file.open("a") as held:
        for kind in ("flock", "lockf"):
            getattr(fcntl, kind)(held, fcntl.LOCK_EX)
            other = [sys.executable, "-c", line.format(kind), str(file)]
            ran = subprocess.run(other, capture_output=True, check=False, timeout=30)
            assert b"BlockingIOError" in ran.stderr
            getattr(fcntl, kind)(held, fcntl.LOCK_UN)
            subprocess.run(other, check=True, timeout=30)

    assert place.told() == ["created a.md"]


def test_the_names_of_stores_stay_when_a_store_is_renamed(mount: Mount, place: Place) -> None:
    place.hf.memory_stores.update(place.store_id, name="Another name")
    place.put("a.md", "tabs")

    eventually((place.dir / "a.md").exists)
    assert listing(mount.dir) == ["notes"]
    place.hf.memory_stores.update(place.store_id, name="Notes")
