"""Names in a mount: temporary files, renames, links and directories."""

import fcntl
import os
import socket
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from itertools import count

import pytest
from doors.mount.real.calls import (
    EXCHANGE,
    NOREPLACE,
    WHITEOUT,
    fallocate,
    listing,
    opened,
    quiet,
    refused,
    rename,
    write,
)
from doors.mount.real.kept import Kept
from doors.mount.real.mounting import Mount, Start, Target, eventually
from doors.mount.real.place import Place

pytestmark = pytest.mark.fuse


CREATE = os.O_WRONLY | os.O_CREAT
NFD = unicodedata.normalize("NFD", "é.md")

INVALID = {
    b"bad\xff.md": "EILSEQ",
    b"x" * 256: "ENAMETOOLONG",
    "é".encode() * 128: "ENAMETOOLONG",
    b"a\x07b": "EINVAL",
    b"a\nb": "EINVAL",
    "a\u200db".encode(): "EINVAL",
    "a\u2028b".encode(): "EINVAL",
    "a\u2029b".encode(): "EINVAL",
    "\x85".encode(): "EINVAL",
    NFD.encode(): "EINVAL",
}
SCRATCH = [
    *(".a.md.swp", ".a.md.swo", ".a.swpx", "4913", ".#a.md", "#a.md#", ".a.md.un~"),
    *("a.md.kate-swp", ".a.md.kate-swp", ".~lock.a.md#", ".fuse_hidden0001", ".nfs0001"),
    *(".DS_Store", "._a.md"),
]
TRANSIENT = [
    *("sedAb12_9", "XXAb12_9", "a.md~", "a.tmp", "a.tmp.123", "tmpab12_9zZ", ".a.md.Ab12_9"),
    *("a.md.oAb12_9", ".tmpfile", ".goutputstream-AB12", "a.part", "a.crdownload"),
]
PLAIN = [
    *("sedAb12_", "sedAb12_99", "XXAb-12_", "tmpab12_9z", "atmp", "a.tmpx", "a.md.bak", ".hidden"),
    *(
        " ",
        "a b",
        "-rf",
        "a\\b",
        "日本語",
        "x" * 255,
        "é" * 127,
        "😀",
        "4914",
        "a.swp",
        "git",
        ".gitignore",
    ),
]

_numbers = count(1)


@pytest.mark.parametrize(("name", "error"), INVALID.items(), ids=repr)
def test_a_name_that_no_memory_can_have_is_refused(place: Place, name: bytes, error: str) -> None:
    file = os.path.join(os.fsencode(place.dir), name)  # noqa: PTH118 - bytes
    good = os.fsencode(place.given("good.md", "x"))

    with refused(error):
        os.close(os.open(file, CREATE, 0o644))
    with refused(error):
        os.mkdir(file)  # noqa: PTH102 - bytes
    with refused(error):
        os.rename(good, file)  # noqa: PTH104 - bytes

    assert listing(place.dir) == ["good.md"]
    assert place.told() == ["created good.md"]


@pytest.mark.parametrize("name", PLAIN, ids=repr)
def test_any_other_name_is_a_memory_as_soon_as_it_is_closed(place: Place, name: str) -> None:
    place.given(name, "x")

    assert place.kept() == {name: "x"}
    assert listing(place.dir) == [name]


def test_a_path_has_twenty_names_and_no_more(mount: Mount, place: Place) -> None:
    deepest = mount.root().joinpath(*(["deep"] * 19))
    deepest.mkdir(parents=True)
    (deepest / "a.md").write_text("x")

    with refused("ENAMETOOLONG"):
        (deepest / "d" / "e").mkdir(parents=True)
    with refused("ENAMETOOLONG"), opened(deepest / "d" / "a.md", CREATE):
        pass

    at = place.hf.memory_stores.memories.at(place.store_id, f"/{'deep/' * 19}a.md")
    assert at is not None


def test_a_path_has_1024_bytes_and_no_more(mount: Mount, place: Place) -> None:
    directory = mount.root().joinpath("x" * 255, "x" * 255, "x" * 255)
    directory.mkdir(parents=True)
    fits = 1024 - 3 * 256 - 1

    (directory / ("y" * fits)).write_text("x")
    with refused("ENAMETOOLONG"), opened(directory / ("z" * (fits + 1)), CREATE):
        pass

    path = f"/{('x' * 255 + '/') * 3}{'y' * fits}"
    assert place.hf.memory_stores.memories.at(place.store_id, path) is not None


def test_the_reserved_name_is_refused_at_the_top_alone(mount: Mount, place: Place) -> None:
    name = ".anthropic-memory-store"

    with refused("EINVAL"), opened(mount.root() / name, CREATE):
        pass
    with refused("EINVAL"):
        place.given("a.md", "x").rename(mount.root() / name)
    place.given(name, "x")

    assert place.kept() == {"a.md": "x", name: "x"}


def test_a_memory_whose_name_no_file_can_have_is_counted_as_hidden(
    mount: Mount, place: Place
) -> None:
    hidden = mount.store().hidden

    place.put("x" * 256, "x")
    place.put("a.md", "x")

    eventually(lambda: listing(place.dir) == ["a.md"])
    assert mount.store().hidden == hidden + 1


@pytest.mark.parametrize("name", [".git", ".hg", ".svn", ".jj"])
def test_version_control_is_refused_before_it_begins(place: Place, name: str) -> None:
    place.given("a.md", "x")
    (place.dir / "d").mkdir()

    with refused("EPERM"):
        (place.dir / name).mkdir()
    with refused("EPERM"), opened(place.dir / name, CREATE):
        pass
    with refused("EPERM"):
        (place.dir / "a.md").rename(place.dir / name)
    with refused("EPERM"):
        (place.dir / "d").rename(place.dir / name)

    assert listing(place.dir) == ["a.md", "d"]


@pytest.mark.parametrize("name", SCRATCH)
def test_a_scratch_file_takes_any_bytes_and_is_no_memory(place: Place, name: str) -> None:
    file = place.dir / name

    file.write_bytes(b"\xff\0" * 100_000)
    with opened(file, os.O_WRONLY | os.O_APPEND) as fd:
        write(fd, b"more")
        os.fsync(fd)

    assert file.read_bytes() == b"\xff\0" * 100_000 + b"more"
    assert listing(place.dir) == [name]
    file.unlink()
    assert (place.told(), place.spooled()) == ([], [])


def test_a_scratch_file_that_gets_a_real_name_is_saved_there(place: Place) -> None:
    place.given(".a.swp", "tabs")

    (place.dir / ".a.swp").rename(place.dir / "a.md")

    assert place.kept() == {"a.md": "tabs"}
    assert place.told() == ["created a.md"]


def test_a_scratch_file_that_is_no_text_gets_no_real_name(place: Place) -> None:
    place.given("a.md", "tabs")
    (place.dir / ".b.swp").write_bytes(b"\xff\0")
    (place.dir / ".c.swp").write_bytes(b"x" * 102_401)

    for new in ("a.md", "new.md"):
        with refused("EILSEQ"):
            (place.dir / ".b.swp").rename(place.dir / new)
        with refused("EFBIG"):
            (place.dir / ".c.swp").rename(place.dir / new)

    assert place.kept() == {"a.md": "tabs"}
    assert listing(place.dir) == [".b.swp", ".c.swp", "a.md"]
    (place.dir / ".b.swp").rename(place.dir / ".d.swp")


def test_scratch_files_have_a_limit_each_and_one_together(place: Place) -> None:
    mebibyte = b"\xff" * 1024 * 1024
    files = [place.dir / f".{number}.swp" for number in range(12)]

    with refused("ENOSPC"):
        files[0].write_bytes(mebibyte * 6 + b"x")
    files[0].unlink()
    with refused("ENOSPC"):
        for file in files:
            file.write_bytes(mebibyte * 6)
    place.given("a.md", "tabs")

    place.sh("rm .*.swp")
    assert place.kept() == {"a.md": "tabs"}


@pytest.mark.parametrize("name", TRANSIENT)
def test_a_temporary_file_is_on_disk_at_once_and_no_memory_yet(place: Place, name: str) -> None:
    file = place.given(name, "tabs")

    assert file.read_text() == "tabs"
    assert place.told() == []
    (entry,) = place.spooled()
    assert entry.read_text() == "tabs"
    file.unlink()
    assert place.told() == []
    assert place.spooled() == []


def test_a_temporary_file_is_held_to_the_ordinary_rules(place: Place) -> None:
    with refused("EILSEQ"):
        (place.dir / "a.tmp").write_bytes(b"\xff")
    with refused("EFBIG"):
        (place.dir / "b.tmp").write_bytes(b"x" * 102_401)

    eventually(lambda: listing(place.dir) == [])


def test_fsync_of_its_directory_makes_a_temporary_file_a_memory(place: Place) -> None:
    place.given("a.tmp", "tabs")
    promoted = place.mount.store().promoted

    with opened(place.dir, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)

    assert place.kept() == {"a.tmp": "tabs"}
    assert place.told() == ["created a.tmp"]
    assert place.mount.store().promoted == promoted + 1


def test_a_memory_made_elsewhere_is_no_temporary_file_whatever_its_name(place: Place) -> None:
    for name in ("a.tmp", ".a.swp", "b.md~"):
        place.put(name, "x")
    eventually(lambda: len(listing(place.dir)) == 3)

    place.sh("for f in a.tmp .a.swp b.md~; do echo more >> $f; done")

    assert place.kept() == dict.fromkeys(["a.tmp", ".a.swp", "b.md~"], "xmore\n")


def test_a_memory_that_moves_to_a_backup_name_is_seen_there_at_once(place: Place) -> None:
    memory = place.put("a.md", "tabs")
    eventually((place.dir / "a.md").exists)

    (place.dir / "a.md").rename(place.dir / "a.md.bak")

    assert listing(place.dir) == ["a.md.bak"]
    assert (place.dir / "a.md.bak").read_text() == "tabs"
    assert place.told() == ["created a.md"]
    assert place.id("a.md") == memory.id


@pytest.mark.parametrize("suffix", ["~", ".bak", ".orig", ".old", ".sav", ".save"])
def test_what_is_written_again_after_a_backup_is_the_same_memory(place: Place, suffix: str) -> None:
    memory = place.put("a.md", "tabs")
    file = place.dir / "a.md"
    eventually(file.exists)

    file.rename(place.dir / f"a.md{suffix}")
    file.write_text("spaces")

    assert place.content("a.md") == "spaces"
    assert place.id("a.md") == memory.id
    assert place.told() == ["created a.md", "modified a.md"]
    assert (place.dir / f"a.md{suffix}").read_text() == "tabs"


@pytest.fixture(scope="module")
def hasty(start: Start, shared: Kept) -> Iterator[Mount]:
    """Give a mount whose grace is short."""
    with start(Target(shared.db, (shared.store("Hasty"),)), "--grace=0.3") as mount:
        yield mount


@pytest.fixture
def brief(hasty: Mount, shared: Kept) -> Place:
    """Give a place where nothing stays temporary for long."""
    return Place(hasty, shared.hf, f"t{next(_numbers)}")


def test_a_temporary_file_becomes_a_memory_after_the_grace(brief: Place) -> None:
    brief.given("a.tmp", "tabs")

    eventually(lambda: brief.kept() == {"a.tmp": "tabs"})
    eventually(lambda: brief.spooled() == [])
    brief.sh("echo more >> a.tmp")
    eventually(lambda: brief.told() == ["created a.tmp", "modified a.tmp"])


def test_a_backup_is_a_move_after_the_grace(brief: Place) -> None:
    brief.given("a.md", "tabs")
    memory = brief.id("a.md")

    brief.sh("mv a.md a.md.bak")

    eventually(lambda: brief.kept() == {"a.md.bak": "tabs"})
    assert brief.id("a.md.bak") == memory
    assert brief.told() == ["created a.md", "modified a.md.bak"]


def test_a_backup_of_what_was_written_again_is_a_memory_of_its_own_after_the_grace(
    brief: Place,
) -> None:
    brief.given("a.md", "tabs")
    memory = brief.id("a.md")

    brief.sh("mv a.md a.md.bak; echo spaces > a.md")

    eventually(lambda: brief.kept() == {"a.md": "spaces\n", "a.md.bak": "tabs"})
    assert brief.id("a.md") == memory
    assert brief.told() == ["created a.md", "modified a.md", "created a.md.bak"]


def test_what_waits_is_a_memory_when_the_mount_ends(kept: Kept, start: Start) -> None:
    with start(Target(kept.db, (kept.store(),)), "--grace=600") as mount:
        place = Place(mount, kept.hf)
        place.sh("echo one > a.tmp; echo two > b.md; mv b.md b.md~; echo three > .c.swp")
        place.given("unsaved", "old")
        fd = os.open(place.dir / "unsaved", os.O_WRONLY | os.O_TRUNC)
        write(fd, b"new")

        assert mount.stop() == 0

        with quiet():
            os.close(fd)
    assert place.kept() == {"a.tmp": "one\n", "b.md~": "two\n", "unsaved": "new"}
    assert mount.entries() == []


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
