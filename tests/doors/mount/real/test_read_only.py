"""A store that is attached for reading refuses every change, in words that a shell knows."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from anthropic import Anthropic
from doors.mount.real.kept import Kept, serving
from doors.mount.real.kept import opened as opened_db
from doors.mount.real.mounting import Mount, Reaper, Start, Target
from doors.mount.real.place import Place

pytestmark = pytest.mark.fuse

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
