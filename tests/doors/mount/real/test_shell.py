"""A shell in a mount, wherever its store is, and a store attached for reading."""

import getpass
import json
import shlex
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from anthropic import Anthropic
from doors.mount.real.kept import Kept, opened, serving
from doors.mount.real.kept import opened as opened_db
from doors.mount.real.mounting import Mount, Reaper, Start, Target
from doors.mount.real.place import Place

from holdfast.ground.scope import Actor
from holdfast.testing.postgres import TEMPLATE, PostgresServer

pytestmark = pytest.mark.fuse


LONG = "--grace=600"

_numbers = count(1)


class Way(NamedTuple):
    """A mount, what is kept beneath it, and as whom it writes."""

    kept: Kept
    mount: Mount
    actor: Actor


@contextmanager
def by_name(db: str, start: Start) -> Generator[Way]:
    """Mount a store that is named, straight from a database."""
    with opened(db) as kept:
        kept.store()
        with start(Target(db, ("Notes",)), LONG) as mount:
            yield Way(kept, mount, Actor.user(f"user_{getpass.getuser()}"))


@contextmanager
def by_session(db: str, start: Start) -> Generator[Way]:
    """Mount what a session attaches, straight from a database."""
    with opened(db) as kept:
        session = kept.session(kept.store())
        with start(Target(db, session=session), LONG) as mount:
            yield Way(kept, mount, Actor.session(session))


@contextmanager
def by_server(
    db: Path, start: Start, reaper: Reaper, *, session: bool, token: bool
) -> Generator[Way]:
    """Mount a store that a server keeps: with a key, perhaps for a session, or with its token."""
    with ExitStack() as stack:
        kept = stack.enter_context(opened(db))
        # Before the server starts: one that was open regards itself as open for a moment longer.
        key, store = kept.hf.keys.create("mount"), kept.store()
        server = stack.enter_context(serving(str(db), reaper, db.with_suffix(".log")))
        attached = kept.session(store)
        secret = kept.hf.sessions.create_token(attached).token if token else key.secret
        target = (
            Target(server.url, session=attached, api_key=secret)
            if session
            else Target(server.url, (store,), api_key=secret)
        )
        with start(target, LONG) as mount:
            as_session = session or token
            yield Way(kept, mount, Actor.session(attached) if as_session else Actor.api(key.id))


WAYS = ["sqlite", "postgres", "session", "key", "key for a session", "token"]


@pytest.fixture(scope="module", params=WAYS)
def way(
    request: pytest.FixtureRequest,
    start: Start,
    reaper: Reaper,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Way]:
    """Give a mount of one store, for each way there is to come to one."""
    db = tmp_path_factory.mktemp("kept") / "h.db"
    match request.param:
        case "sqlite":
            made = by_name(str(db), start)
        case "postgres":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            made = by_session(server.url(server.new_database(TEMPLATE)), start)
        case "session":
            made = by_session(str(db), start)
        case "key":
            made = by_server(db, start, reaper, session=False, token=False)
        case "key for a session":
            made = by_server(db, start, reaper, session=True, token=False)
        case _:
            made = by_server(db, start, reaper, session=True, token=True)
    with made as way:
        yield way


@pytest.fixture
def place(way: Way) -> Place:
    """Give a directory of the test's own."""
    return Place(way.mount, way.kept.hf, f"t{next(_numbers)}")


def test_what_is_echoed_into_a_file_is_a_memory_when_the_line_ends(place: Place) -> None:
    place.sh("echo tabs > a.md")

    assert place.kept() == {"a.md": "tabs\n"}
    assert place.told() == ["created a.md"]


def test_its_writer_is_who_the_mount_writes_as(place: Place, way: Way) -> None:
    place.sh("echo tabs > a.md; echo spaces > a.md; mv a.md b.md; rm b.md")

    assert {each.created_by for each in place.versions()} == {way.actor}


def test_cat_shows_what_is_kept(place: Place) -> None:
    place.placed("a.md", "tabs\nspaces\n")

    assert place.sh("cat a.md") == "tabs\nspaces\n"


def test_an_append_is_one_version(place: Place) -> None:
    place.sh("echo one >> a.md; echo two >> a.md; printf '%s\\n' three >> a.md")

    assert place.content("a.md") == "one\ntwo\nthree\n"
    assert place.told() == ["created a.md", "modified a.md", "modified a.md"]


def test_an_edit_in_place_by_sed_is_one_version(place: Place) -> None:
    memory = place.placed("a.md", "tabs\n")

    place.sh("sed -i s/tabs/spaces/ a.md")

    assert place.kept() == {"a.md": "spaces\n"}
    assert place.told() == ["created a.md", "modified a.md"]
    assert place.id("a.md") == memory.id


def test_a_file_keeps_its_id_when_it_moves(place: Place) -> None:
    memory = place.placed("a.md", "tabs")

    place.sh("mkdir -p old/notes; mv a.md old/notes/b.md")

    assert place.kept() == {"old/notes/b.md": "tabs"}
    assert place.told() == ["created a.md", "modified old/notes/b.md"]
    assert place.id("old/notes/b.md") == memory.id


def test_a_directory_moves_with_all_that_is_below(place: Place) -> None:
    for name in ("d/a", "d/e/b", "d/e/c"):
        place.placed(name, name)

    place.sh("mv d f")

    assert place.kept() == {"f/a": "d/a", "f/e/b": "d/e/b", "f/e/c": "d/e/c"}
    moved = ["modified f/a", "modified f/e/b", "modified f/e/c"]
    assert sorted(place.told()[3:]) == moved


def test_grep_finds_what_it_would_in_a_directory(place: Place) -> None:
    for number in range(30):
        place.placed(f"d{number % 3}/{number}.md", "a needle\n" if number % 10 == 4 else "hay\n")

    found = place.sh("grep -rl needle . | sort").split()

    assert found == ["./d0/24.md", "./d1/4.md", "./d2/14.md"]


def test_what_is_removed_is_deleted_and_stays_in_the_history(place: Place) -> None:
    place.sh("echo tabs > a.md; rm a.md; ls")

    assert place.kept() == {}
    assert place.told() == ["created a.md", "deleted a.md"]


def test_a_tree_is_removed_whole(place: Place) -> None:
    for name in ("d/a", "d/e/b", "d/e/c", "stays"):
        place.placed(name, name)

    place.sh("rm -r d; test ! -e d")

    assert place.kept() == {"stays": "stays"}


def test_a_directory_is_there_before_anything_is_in_it(place: Place) -> None:
    place.sh("mkdir -p a/b/c; test -d a/b/c; rmdir a/b/c; test ! -e a/b/c")

    assert place.told() == []


def test_ls_shows_names_and_sizes(place: Place) -> None:
    place.placed("d/a.md", "tabs")
    place.placed("é ü.md", "tab")

    assert place.sh("ls -1") == "d\né ü.md\n"
    shown = place.sh("stat -c '%s %A %F' 'é ü.md' d/a.md; stat -c '%A %F' d")
    assert shown.splitlines() == [
        "3 -rw-r--r-- regular file",
        "4 -rw-r--r-- regular file",
        "drwxr-xr-x directory",
    ]


def test_df_tells_how_many_more_memories_there_may_be(place: Place) -> None:
    place.sh("echo tabs > a.md")

    shown = place.sh("df --output=itotal,iused,iavail . | tail -n1").split()

    held = len(place.hf.memory_stores.memories.list(place.store_id, limit=100))
    assert shown == ["10000", str(held), str(10_000 - held)]


def test_a_file_tells_which_memory_it_is(place: Place) -> None:
    memory = place.placed("a.md", "tabs")

    def told(name: str) -> str:
        line = f'import os; print(os.getxattr("a.md", "user.holdfast.{name}").decode())'
        return place.sh(f"python3 -c '{line}'").strip()

    assert told("id") == memory.id
    assert told("version") == memory.memory_version_id
    assert told("sha256") == memory.content_sha256


def test_too_much_is_refused_where_the_program_sees_it(place: Place) -> None:
    place.placed("a.md", "tabs")

    said = place.refuses("head -c 200000 /dev/zero | tr '\\0' x | tee a.md > /dev/null")

    assert "File too large" in said
    assert place.kept() == {"a.md": "tabs"}


def test_a_change_elsewhere_is_in_the_shell_as_well(place: Place) -> None:
    place.placed("a.md", "tabs\n")
    place.sh("cat a.md; ls")

    place.put("a.md", "spaces, and more\n")
    place.put("b.md", "new\n")

    again = (
        'for i in {1..500}; do [ "$(cat a.md b.md 2>&1)" = "$0" ] && exit; sleep .02; done; exit 1'
    )
    place.sh(f"bash -c {shlex.quote(again)} $'spaces, and more\\nnew'")


def test_status_names_the_mount_and_its_store(place: Place, way: Way) -> None:
    said = json.loads(
        place.sh(
            'python3 -c \'import os; print(os.getxattr("../..", "user.holdfast.status").decode())\''
        )
    )

    assert said["pid"] == way.mount.process.pid
    assert [each["id"] for each in said["stores"]] == [place.store_id]


CHANGES = {
    "write": "echo new > a.md",
    "append": "echo new >> a.md",
    "create": "echo new > b.md",
    "scratch": "echo new > .b.swp",
    "remove": "rm -f a.md",
    "rename": "mv a.md b.md",
    "rename over": "mv a.md d/a.md",
    "rename a directory": "mv d e",
    "mkdir": "mkdir e",
    "rmdir": "rm -rf d",
    "sed": "sed -i s/tabs/spaces/ a.md",
    "truncate": "truncate -s 1 a.md",
    "tee": "echo new | tee a.md > /dev/null",
    "cp": "cp a.md b.md",
    "tar": "tar c a.md | tar x --one-top-level=x",
}


class Attached(NamedTuple):
    """A session with one store for writing and one for reading, mounted."""

    session: str
    url: str
    mount: Mount
    rules: Place
    notes: Place


@pytest.fixture(scope="module", params=["database", "server"])
def attached(
    request: pytest.FixtureRequest,
    start: Start,
    reaper: Reaper,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Attached]:
    """Give the mount of a session, from a database and through a server."""
    file = tmp_path_factory.mktemp("kept") / "h.db"
    with opened_db(file) as kept, serving(str(file), reaper, file.with_suffix(".log")) as server:
        rules, notes = kept.store("Team Rules"), kept.store("Notes")
        session = kept.session(notes, read_only=(rules,))
        given = kept.hf.memory_stores.memories
        for path in ("/a.md", "/d/a.md"):
            given.create(rules, path=path, content="tabs\n")
        db = str(file) if request.param == "database" else server.url
        with start(Target(db, session=session)) as mount:
            slugs = [each.slug for each in mount.ready.stores]
            places = [
                Place(mount, kept.hf, store=slugs.index(each)) for each in ("team-rules", "notes")
            ]
            yield Attached(session, server.url, mount, *places)


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_refused(attached: Attached, change: str) -> None:
    said = attached.rules.refuses(CHANGES[change])

    assert "Read-only file system" in said
    assert attached.rules.kept() == {"a.md": "tabs\n", "d/a.md": "tabs\n"}
    assert attached.rules.sh("find . -type f | sort") == "./a.md\n./d/a.md\n"


def test_reading_is_not(attached: Attached) -> None:
    assert attached.rules.sh("cat a.md; grep -r tabs .; test ! -w a.md; ls").endswith("a.md\nd\n")


def test_the_other_store_of_the_session_takes_changes(attached: Attached) -> None:
    attached.notes.sh(f"cp {attached.rules.dir}/a.md .; echo more >> a.md; rm a.md")

    assert attached.notes.told()[-3:] == ["created a.md", "modified a.md", "deleted a.md"]


def test_the_status_names_the_access_of_each(attached: Attached) -> None:
    status = attached.mount.status()

    assert {each.slug: each.access for each in status.stores} == {
        "team-rules": "read_only",
        "notes": "read_write",
    }
    assert status.session_id == attached.session


def test_the_official_client_sees_the_session_as_the_writer(attached: Attached) -> None:
    attached.notes.sh("echo one > seen.md; echo two > seen.md")

    with Anthropic(base_url=attached.url, api_key="any") as client:
        versions = client.beta.memory_stores.memory_versions.list(attached.notes.store_id)
        told = [each for each in versions if each.path == "/seen.md"]

    assert [each.operation for each in told] == ["modified", "created"]
    for each in told:
        actor = each.created_by
        assert actor is not None
        assert actor.type == "session_actor"
        assert actor.session_id == attached.session


def test_a_mount_may_be_read_only_as_a_whole(kept: Kept, start: Start) -> None:
    with start(Target(kept.db, (kept.store(),)), "--read-only") as mount:
        place = Place(mount, kept.hf)

        assert "Read-only file system" in place.refuses("echo new > a.md")
        assert mount.store().access == "read_only"


def test_an_archived_store_is_mounted_for_reading(kept: Kept, start: Start) -> None:
    store = kept.store()
    kept.hf.memory_stores.memories.create(store, path="/a.md", content="tabs\n")
    kept.hf.memory_stores.archive(store)

    with start(Target(kept.db, (store,))) as mount:
        place = Place(mount, kept.hf)
        assert place.sh("cat a.md") == "tabs\n"
        assert "Read-only file system" in place.refuses("echo new > a.md")
        assert mount.store().archived_at is not None


def test_a_token_that_the_mount_made_ends_with_it(
    start: Start, reaper: Reaper, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("kept") / "h.db"
    with opened_db(file) as kept, serving(str(file), reaper, file.with_suffix(".log")) as server:
        key, session = kept.hf.keys.create("mount"), kept.session(kept.store())
        with start(Target(server.url, session=session, api_key=key.secret)) as mount:
            assert len(kept.hf.sessions.list_tokens(session)) == 1
            assert mount.stop() == 0
            assert kept.hf.sessions.list_tokens(session) == []
