"""What is changed elsewhere shows in a mount, and what is changed at both ends is kept."""

import os
import subprocess
from collections.abc import Iterator
from errno import EROFS
from time import perf_counter

import pytest
from doors.mount.real.calls import listing, opened, quiet, refused, write
from doors.mount.real.kept import Kept, serving
from doors.mount.real.kept import opened as opened_db
from doors.mount.real.mounting import Mount, Reaper, Start, Target, eventually
from doors.mount.real.place import Place

from holdfast.testing.postgres import TEMPLATE, PostgresServer

pytestmark = pytest.mark.fuse

CREATE = os.O_WRONLY | os.O_CREAT
LONG = "--grace=600"
WRITERS, EACH = 50, 4


class Pair(tuple[Place, Place]):
    """One directory of one store, as two mounts show it."""

    __slots__ = ()


@pytest.fixture(scope="module", params=["sqlite", "postgres", "server"])
def mounts(
    request: pytest.FixtureRequest,
    start: Start,
    reaper: Reaper,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Kept, Mount, Mount]]:
    """Give two mounts of one store."""
    file = tmp_path_factory.mktemp("kept") / "h.db"
    db = str(file)
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        db = postgres.url(postgres.new_database(TEMPLATE))
    with opened_db(db) as kept:
        store = kept.store()
        if request.param == "server":
            with serving(db, reaper, file.with_suffix(".log")) as server:
                yield from two(start, kept, Target(server.url, (store,)))
        else:
            yield from two(start, kept, Target(db, (store,)))


def two(start: Start, kept: Kept, target: Target) -> Iterator[tuple[Kept, Mount, Mount]]:
    with start(target, LONG) as one, start(target, LONG) as other:
        yield kept, one, other


_numbers = iter(range(1, 1_000_000))


@pytest.fixture
def pair(mounts: tuple[Kept, Mount, Mount]) -> Pair:
    """Give a directory of the test's own in both mounts."""
    kept, one, other = mounts
    name = f"t{next(_numbers)}"
    return Pair((Place(one, kept.hf, name), Place(other, kept.hf, name)))


@pytest.fixture
def place(pair: Pair) -> Place:
    """Give a directory of the test's own in one of the mounts."""
    return pair[0]


def test_new_content_shows_and_the_old_is_never_read_again(place: Place) -> None:
    file = place.given("a.md", "0")
    took: list[float] = []

    for number in range(1, 20):
        new = f"{number} " + "x" * number
        assert file.read_text() != new
        begun = perf_counter()
        place.put("a.md", new)
        eventually(lambda new=new: file.read_text() == new)
        took.append(perf_counter() - begun)
        assert [file.read_text() for _ in range(10)] == [new] * 10
        assert file.stat().st_size == len(new)

    print(f"seen after {min(took) * 1000:.0f} to {max(took) * 1000:.0f} ms")  # noqa: T201


def test_content_of_the_same_length_shows_as_well(place: Place) -> None:
    file = place.given("a.md", "tabs")
    assert file.read_text() == "tabs"

    place.put("a.md", "TABS")

    eventually(lambda: file.read_text() == "TABS")


def test_a_handle_that_is_open_reads_what_is_new(place: Place) -> None:
    file = place.given("a.md", "tabs")

    with opened(file, os.O_RDONLY) as fd:
        assert os.pread(fd, 100, 0) == b"tabs"
        place.put("a.md", "spaces and more")
        eventually(lambda: file.read_text() == "spaces and more")
        eventually(lambda: os.pread(fd, 100, 0) == b"spaces and more")


def test_names_come_and_go_as_they_do_elsewhere(place: Place) -> None:
    place.put("a.md", "x")
    place.put("d/e/b.md", "x")
    eventually(lambda: listing(place.dir) == ["a.md", "d"])
    assert (place.dir / "d/e/b.md").read_text() == "x"

    place.drop("a.md")
    place.move("d", "f")

    eventually(lambda: listing(place.dir) == ["f"])
    eventually(lambda: not (place.dir / "a.md").exists())
    eventually(lambda: not (place.dir / "d").exists())
    assert (place.dir / "f/e/b.md").read_text() == "x"


def test_a_name_that_went_elsewhere_is_free_for_a_new_file(place: Place) -> None:
    for number, flags in enumerate([CREATE, CREATE | os.O_EXCL, os.O_RDWR | os.O_CREAT] * 8):
        name = f"{number}.md"
        file = place.given(name, "old")
        assert file.stat().st_size == 3
        place.drop(name)
        eventually(lambda name=name: name not in listing(place.dir))

        with opened(file, flags) as fd:
            write(fd, b"new")

        assert place.content(name) == "new"


def test_a_name_that_went_elsewhere_is_free_for_a_new_directory(place: Place) -> None:
    file = place.given("a", "old")
    assert file.stat().st_size == 3
    place.drop("a")
    eventually(lambda: "a" not in listing(place.dir))

    file.mkdir()
    (file / "b.md").write_text("new")

    assert place.kept() == {"a/b.md": "new"}


def test_a_directory_that_went_elsewhere_is_free_for_a_new_file(place: Place) -> None:
    place.put("d/e/a.md", "old")
    eventually((place.dir / "d/e/a.md").exists)
    place.drop("d/e/a.md")
    eventually(lambda: not (place.dir / "d").exists())

    def is_free() -> bool:
        # A listing is fresh at once; what the kernel knows of a name it holds until it is told.
        try:
            (place.dir / "d").write_text("new")
        except IsADirectoryError:
            return False
        return True

    eventually(is_free)
    assert place.kept() == {"d": "new"}


def test_a_name_is_there_at_once_where_the_kernel_knew_there_was_none(place: Place) -> None:
    file = place.dir / "a.md"
    assert not file.exists()

    place.put("a.md", "x")

    eventually(file.exists)
    with refused("EEXIST"), opened(file, CREATE | os.O_EXCL):
        pass


def test_a_save_follows_a_memory_that_was_renamed_elsewhere(place: Place) -> None:
    file = place.given("a.md", "tabs")
    memory = place.id("a.md")

    with opened(file, os.O_WRONLY | os.O_TRUNC) as fd:
        place.move("a.md", "b.md")
        eventually(lambda: listing(place.dir) == ["b.md"])
        write(fd, b"spaces")

    assert place.kept() == {"b.md": "spaces"}
    assert place.id("b.md") == memory


def test_what_was_deleted_elsewhere_is_made_anew_by_an_append_or_a_replacement(
    place: Place,
) -> None:
    append = os.O_WRONLY | os.O_APPEND
    for name, flags in (("a.md", append), ("b.md", os.O_WRONLY | os.O_TRUNC)):
        file = place.given(name, "old ")
        with opened(file, flags) as fd:
            write(fd, b"new")
            place.drop(name)

    assert place.kept() == {"a.md": "new", "b.md": "new"}


def test_what_was_deleted_elsewhere_is_not_made_anew_by_an_edit(place: Place) -> None:
    file = place.given("a.md", "tabs")

    with refused("ESTALE"), opened(file, os.O_RDWR) as fd:
        write(fd, b"TABS")
        place.drop("a.md")

    assert place.kept() == {}
    (entry,) = place.spooled()
    assert entry.read_text() == "TABS"
    eventually(lambda: listing(place.dir) == [])


def test_of_two_editors_in_two_mounts_the_first_wins(pair: Pair) -> None:
    one, other = pair
    one.given("a.md", "tabs and spaces")
    eventually((other.dir / "a.md").exists)
    first = os.open(one.dir / "a.md", os.O_RDWR)
    second = os.open(other.dir / "a.md", os.O_RDWR)
    conflicts = other.mount.store().conflicts

    write(first, b"first")
    write(second, b"other")
    os.close(first)
    with refused("ESTALE"):
        os.close(second)

    assert one.kept() == {"a.md": "firstand spaces"}
    eventually(lambda: (other.dir / "a.md").read_text() == "firstand spaces")
    (entry,) = other.spooled()
    assert entry.read_text() == "otherand spaces"
    assert other.mount.store().conflicts == conflicts + 1
    assert one.spooled() == []


def test_of_fifty_writers_in_two_mounts_no_line_is_lost_or_twice(pair: Pair) -> None:
    pair[0].given("log", "begin\n")
    eventually((pair[1].dir / "log").exists)
    script = f"for i in $(seq {EACH}); do echo $0 $i >> log; done"

    writers = [
        subprocess.Popen(["bash", "-c", script, f"w{n}"], cwd=pair[n % 2].dir)
        for n in range(WRITERS)
    ]
    codes = [each.wait(90) for each in writers]

    wanted = ["begin", *(f"w{n} {i + 1}" for n in range(WRITERS) for i in range(EACH))]
    assert codes == [0] * WRITERS
    eventually(lambda: not pair[0].spooled() + pair[1].spooled())
    content = pair[0].content("log") or ""
    assert sorted(content.splitlines()) == sorted(wanted)
    for place in pair:
        eventually(lambda place=place: (place.dir / "log").read_text() == content)


def test_a_file_removed_or_renamed_in_one_mount_is_so_in_the_other(pair: Pair) -> None:
    one, other = pair
    one.sh("mkdir d; echo a > d/a; echo b > b; echo c > c")
    eventually(lambda: listing(other.dir) == ["b", "c", "d"])

    other.sh("mv d e; rm b; mv c f")

    eventually(lambda: listing(one.dir) == ["d", "e", "f"])
    eventually(lambda: listing(one.dir / "d") == [])
    assert one.sh("cat e/a f") == "a\nc\n"


def test_a_directory_is_of_one_mount_until_something_is_in_it(pair: Pair) -> None:
    one, other = pair
    (one.dir / "d").mkdir()
    one.given("after", "x")
    eventually(lambda: "after" in listing(other.dir))

    assert "d" not in listing(other.dir)
    (one.dir / "d" / "a").write_text("x")

    eventually((other.dir / "d" / "a").exists)


def test_a_listing_never_lacks_what_one_mount_is_renaming_over(pair: Pair) -> None:
    one, other = pair
    one.given("a.md", "0")
    eventually((other.dir / "a.md").exists)
    script = "for i in $(seq 40); do echo $i > b.tmp; mv b.tmp a.md; done"

    with subprocess.Popen(["bash", "-c", script], cwd=one.dir) as writer:
        while writer.poll() is None:
            for place in pair:
                assert "a.md" in listing(place.dir)
                assert (place.dir / "a.md").read_text() != ""

    assert one.content("a.md") == "40\n"
    assert one.told() == ["created a.md", *(["modified a.md"] * 40)]


def test_an_archived_store_is_read_only_and_what_was_not_saved_is_kept_aside(
    kept: Kept, start: Start
) -> None:
    with start(Target(kept.db, (kept.store(),))) as mount:
        place = Place(mount, kept.hf)
        file = place.given("a.md", "tabs")
        fd = os.open(file, os.O_WRONLY | os.O_APPEND)
        write(fd, b" and spaces")

        kept.hf.memory_stores.archive(place.store_id)

        eventually(lambda: mount.store().archived_at)
        with refused("EROFS"):
            os.close(fd)
        with refused("EROFS"):
            file.write_text("spaces")
        with refused("EROFS"):
            file.unlink()
        with refused("EROFS"):
            (place.dir / "d").mkdir()
        eventually(lambda: file.read_text() == "tabs")
        (entry,) = place.spooled()
        assert entry.read_text().endswith(" and spaces")


def test_a_deleted_store_is_empty_and_nothing_of_it_stays(kept: Kept, start: Start) -> None:
    stores = kept.store("Goes"), kept.store("Stays")
    with start(Target(kept.db, stores), LONG) as mount:
        place, other = Place(mount, kept.hf), Place(mount, kept.hf, store=1)
        file = place.given("a.md", "tabs")
        place.given("b.tmp", "waits")
        fd = os.open(file, os.O_WRONLY | os.O_APPEND)
        write(fd, b" and spaces")

        kept.hf.memory_stores.delete(place.store_id)

        eventually(lambda: listing(place.dir) == [])
        with refused("ESTALE"):
            os.write(fd, b"more")
        with quiet():
            os.close(fd)
        with refused("ESTALE"), opened(place.dir / "new", CREATE):
            pass
        eventually(lambda: mount.entries() == [])
        other.sh("echo more > a.md; cat a.md")
        assert listing(mount.dir) == ["goes", "stays"]


def test_when_its_session_is_archived_a_mount_takes_nothing_more(kept: Kept, start: Start) -> None:
    session = kept.session(kept.store())
    with start(Target(kept.db, session=session)) as mount:
        place = Place(mount, kept.hf)
        file = place.given("a.md", "tabs")

        kept.hf.sessions.archive(session)

        def refused_now() -> bool:
            try:
                file.write_text("again")
            except OSError as error:
                return error.errno == EROFS
            return False

        eventually(refused_now)
        with refused("EROFS"):
            (place.dir / "b.md").write_text("x")
        assert sorted(place.kept()) == ["a.md"]
        eventually(lambda: file.read_text() == place.content("a.md"))
