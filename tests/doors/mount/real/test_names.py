"""Which names a file may have, and which of them say that it is temporary."""

import os
import unicodedata
from collections.abc import Iterator
from itertools import count

import pytest
from doors.mount.real.calls import listing, opened, quiet, refused, write
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
