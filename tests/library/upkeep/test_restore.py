"""A backup comes back as it was, on either engine, but for what was redacted since."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from contracts.stores import written
from library.upkeep.meddling import MARKER, asking, everything, fill, opened

import holdfast
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import Corrupt, InvalidInput, TooNew, Unavailable
from holdfast.ground.scope import Actor
from holdfast.library.activity import take_samples
from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.restore import restore
from holdfast.memories.stores.credentials import Credentials, SignIns
from holdfast.memories.stores.records import Memory, Store
from holdfast.testing.postgres import TEMPLATE, PostgresServer


@pytest.fixture
def backup(hf: Holdfast, store: Store, tmp_path: Path) -> Path:
    """Give a backup of everything in `hf`."""
    assert store.id
    place = tmp_path / "b.db"
    hf.backup(place)
    return place


@pytest.fixture(params=["sqlite", "postgres"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give another target, which is empty."""
    if request.param == "sqlite":
        return str(tmp_path / "other.db")
    return request.getfixturevalue("other_postgres_url")


@pytest.fixture
def other_postgres_url(postgres_server: PostgresServer) -> str:
    return postgres_server.url(postgres_server.new_database(TEMPLATE))


@pytest.fixture
def across(request: pytest.FixtureRequest, engine_name: str, tmp_path: Path) -> str:
    """Give a target on the engine that `hf` is not on, which is empty."""
    if engine_name == "postgres":
        return str(tmp_path / "other.db")
    return request.getfixturevalue("other_postgres_url")


def test_all_of_it_comes_back_on_either_engine(hf: Holdfast, backup: Path, other: str) -> None:
    before = everything(hf)

    report = restore(backup, other)

    assert (report.redacted, report.deleted, report.kept, report.pending) == (0, (), None, ())
    with opened(other) as back:
        assert everything(back) == before
        found = back.verify()
        assert found.findings == ()
        assert found.links == hf.verify().links


def test_writes_go_on_where_they_were(
    hf: Holdfast, store: Store, backup: Path, across: str
) -> None:
    seq = last_seq(hf)
    restore(backup, across)

    with opened(across) as back:
        written(back, store, "/after/one", "/after/two")
        fill(back)

        assert (
            back.memory_stores.memories.search(store.id, "after one")[0].memory.path == "/after/one"
        )
        assert last_seq(back) > seq
        assert back.verify().findings == ()


def last_seq(hf: Holdfast) -> int:
    sql = hf.engine.queries("holdfast.library.upkeep").last_seq
    return hf.engine.one(dict[str, int], sql)["seq"]


def test_a_restored_database_can_be_backed_up_again(
    hf: Holdfast, backup: Path, across: str, tmp_path: Path
) -> None:
    before = everything(hf)
    restore(backup, across)
    again, third = tmp_path / "again.db", tmp_path / "third.db"
    with opened(across) as back:
        back.backup(again)

    restore(again, str(third))

    with opened(third) as back:
        assert everything(back) == before


def test_a_key_still_opens_and_a_change_feed_still_tells(
    hf: Holdfast, store: Store, tmp_path: Path, across: str
) -> None:
    key = hf.keys.create("door")
    hf.backup(tmp_path / "b.db")

    restore(tmp_path / "b.db", across)

    with opened(across) as back:
        assert key.secret is not None
        found = Credentials(back.engine, SystemClock()).find(key.secret)
        assert found is not None
        assert found.id == key.id
        feed = back.engine.feed()
        written(back, store, "/told")
        assert [each.type for each in feed.poll(10)] == ["memory.created"]
        feed.close()


class TestIntoAUsedOne:
    def test_it_is_refused_and_nothing_changes(
        self, hf: Holdfast, target: str, backup: Path
    ) -> None:
        hf.memory_stores.create(name="Later")
        before = everything(hf)
        hf.close()

        with pytest.raises(InvalidInput, match="is in use"):
            restore(backup, target)

        with opened(target) as same:
            assert everything(same) == before

    def test_what_was_revoked_since_opens_nothing(
        self, hf: Holdfast, target: str, tmp_path: Path
    ) -> None:
        key, good = hf.keys.create("lost"), hf.keys.create("kept")
        session = hf.sessions.create(agent="a", environment_id="e")
        token = hf.sessions.create_token(session.id)
        hf.backup(tmp_path / "b2.db")
        hf.keys.revoke(key.id)
        hf.sessions.revoke_token(token.id, session_id=session.id)
        hf.close()

        restore(tmp_path / "b2.db", target, replace=True)

        with opened(target) as back:
            credentials = Credentials(back.engine, SystemClock())
            assert credentials.find(str(key.secret)) is None
            assert credentials.find(str(token.token)) is None
            assert credentials.find(str(good.secret)) is not None

    def test_it_is_replaced_when_one_insists(self, hf: Holdfast, target: str, backup: Path) -> None:
        before = everything(hf)
        later = hf.memory_stores.create(name="Later")
        written(hf, later, "/x")
        hf.close()

        restore(backup, target, replace=True)

        with opened(target) as same:
            assert everything(same) == before
            assert same.verify().findings == ()

    def test_what_was_redacted_since_stays_redacted(self, target: str, tmp_path: Path) -> None:
        backup = tmp_path / "b.db"
        with opened(target) as hf:
            store = hf.memory_stores.create(name="Notes")
            head, old = written(hf, store, f"/{MARKER}", "/old", content=f"a {MARKER} b")
            memories, versions = hf.memory_stores.memories, hf.memory_stores.memory_versions
            memories.update(old.id, memory_store_id=store.id, content="clean")
            hf.backup(backup)
            memories.rename(store.id, f"/{MARKER}", "/clean")
            memories.update(head.id, memory_store_id=store.id, content="clean")
            admin = hf.acting(actor=Actor.api("apikey_admin"))
            for version in _marked(hf, store):
                admin.memory_stores.memory_versions.redact(version, memory_store_id=store.id)
            redacted = versions.retrieve(old.memory_version_id, memory_store_id=store.id)

        report = restore(backup, target, replace=True)

        assert (report.redacted, report.deleted) == (2, (head.id,))
        with opened(target) as same:
            assert same.verify().findings == ()
            assert _marked(same, store) == []
            listed = same.memory_stores.memories.list(store.id).data
            assert [each.path for each in listed] == ["/old"]
            found = same.memory_stores.memory_versions.retrieve(
                old.memory_version_id, memory_store_id=store.id
            )
            assert found == redacted

    def test_redactions_older_than_the_backup_are_in_it_already(
        self, hf: Holdfast, target: str, backup: Path
    ) -> None:
        hf.close()

        assert restore(backup, target, replace=True).redacted == 0

    def test_a_redacted_version_of_an_archived_store_stays_redacted(
        self, target: str, tmp_path: Path
    ) -> None:
        backup = tmp_path / "b.db"
        with opened(target) as hf:
            store = hf.memory_stores.create(name="Notes")
            (memory,) = written(hf, store, "/a", content=MARKER)
            hf.memory_stores.archive(store.id)
            hf.backup(backup)
            hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
            hf.memory_stores.memory_versions.redact(
                memory.memory_version_id, memory_store_id=store.id
            )

        report = restore(backup, target, replace=True)

        assert report.deleted == (memory.id,)
        with opened(target) as same:
            assert same.verify().ok


def _marked(hf: Holdfast, store: Store) -> list[str]:
    """Return the ids of the versions that hold the marker."""
    versions = hf.memory_stores.memory_versions.list(store.id, view="full").all()
    return [each.id for each in versions if MARKER in (each.content or "") + (each.path or "")]


class TestIntoAFile:
    @pytest.fixture
    def engine_name(self) -> str:
        return "sqlite"

    def test_the_old_file_is_kept_whole_and_said_where(
        self, hf: Holdfast, target: str, backup: Path
    ) -> None:
        hf.memory_stores.create(name="Later")
        before = everything(hf)
        hf.close()

        kept = restore(backup, target, replace=True).kept

        assert kept is not None
        assert kept.startswith(f"{target}.replaced-")
        with opened(kept) as old:
            assert everything(old) == before
            assert old.verify().ok

    def test_nothing_else_is_left_beside_it(self, hf: Holdfast, target: str, backup: Path) -> None:
        hf.close()

        first = restore(backup, target, replace=True).kept
        second = restore(backup, target, replace=True).kept

        names = {path.name for path in Path(target).parent.iterdir()}
        assert first is not None
        assert second is not None
        assert names == {"b.db", "h.db", Path(first).name, Path(second).name}

    def test_the_marker_of_what_was_redacted_is_in_no_file_but_the_backup(
        self, hf: Holdfast, target: str, tmp_path: Path
    ) -> None:
        store, memory = _with_marker(hf)
        backup = tmp_path / "b.db"
        hf.backup(backup)
        hf.memory_stores.memories.delete_under(store.id, f"/{MARKER}")
        for version in _marked(hf, store):
            hf.memory_stores.memory_versions.redact(version, memory_store_id=store.id)
        hf.close()

        restore(backup, target, replace=True)

        holding = [path.name for path in tmp_path.iterdir() if MARKER in _bytes(path)]
        assert holding == ["b.db"]
        assert memory.path == f"/{MARKER}"

    def test_a_file_that_somebody_has_open_is_left_alone(
        self, hf: Holdfast, target: str, backup: Path
    ) -> None:
        written(hf, hf.memory_stores.create(name="Later"), "/x")

        with pytest.raises(Unavailable, match="open in another process") as caught:
            restore(backup, target, replace=True)

        assert caught.value.reason == "locked"
        assert hf.verify().ok
        assert [path.name for path in backup.parent.glob(".*")] == []
        hf.memory_stores.create(name="Goes on")

    def test_a_file_that_another_process_has_open_is_left_alone(
        self, hf: Holdfast, target: str, backup: Path
    ) -> None:
        hf.close()
        code = (
            "import holdfast, sys; hf = holdfast.open(sys.argv[1]); hf.memory_stores.list();"
            " print('open', flush=True); sys.stdin.read(); hf.close()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"open\n"
            with pytest.raises(Unavailable, match="open in another process"):
                restore(backup, target, replace=True)
            server.communicate(b"")

        restore(backup, target, replace=True)

    def test_a_link_still_leads_to_the_file(self, hf: Holdfast, target: str, backup: Path) -> None:
        hf.close()
        link = Path(target).with_name("link.db")
        link.symlink_to(target)

        restore(backup, f"sqlite:{link}", replace=True)

        assert link.is_symlink()
        with opened(link) as back:
            assert back.verify().ok

    def test_it_stays_readable_by_whom_it_was(
        self, hf: Holdfast, target: str, backup: Path
    ) -> None:
        hf.close()
        Path(target).chmod(0o640)

        restore(backup, target, replace=True)

        assert Path(target).stat().st_mode & 0o777 == 0o640

    def test_a_new_file_is_for_its_owner_alone(self, backup: Path, tmp_path: Path) -> None:
        restore(backup, str(tmp_path / "new.db"))

        assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600

    def test_a_log_left_behind_by_nobody_is_not_taken_for_its_own(
        self, hf: Holdfast, backup: Path, tmp_path: Path
    ) -> None:
        before, new = everything(hf), tmp_path / "new.db"
        with opened(tmp_path / "killed.db") as killed:
            fill(killed)
            for ending in ("-wal", "-shm"):
                found = Path(f"{tmp_path / 'killed.db'}{ending}")
                Path(f"{new}{ending}").write_bytes(found.read_bytes())

        restore(backup, str(new))

        with opened(new) as back:
            assert everything(back) == before


def _with_marker(hf: Holdfast) -> tuple[Store, Memory]:
    store = hf.memory_stores.create(name="Marked")
    (memory,) = written(hf, store, f"/{MARKER}", content=f"{MARKER} " * 3000)
    return store, memory


def _bytes(path: Path) -> str:
    return path.read_bytes().decode("latin-1")


class TestOverADamagedFile:
    @pytest.fixture
    def engine_name(self) -> str:
        return "sqlite"

    @pytest.fixture(params=["first page", "a page within", "no database"])
    def damaged(
        self, request: pytest.FixtureRequest, hf: Holdfast, target: str, backup: Path
    ) -> bytes:
        assert backup.exists()
        hf.close()
        file = Path(target)
        content = bytearray(file.read_bytes())
        if request.param == "first page":
            content[:100] = b"x" * 100
        elif request.param == "a page within":
            with asking(target) as ask:
                (root,) = ask("select rootpage from sqlite_schema where name = 'versions'")[0]
            content[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
        else:
            content[:] = b"Dear diary, " * 100
        file.write_bytes(content)
        return bytes(content)

    def test_it_is_put_in_its_place_and_what_it_cannot_tell_is_said(
        self, damaged: bytes, target: str, backup: Path
    ) -> None:
        report = restore(backup, target, replace=True)

        assert report.redactions_read is False
        assert report.kept is not None
        assert Path(report.kept).stat().st_size == len(damaged)
        with opened(target) as back:
            assert back.verify().ok

    @pytest.mark.usefixtures("damaged")
    def test_it_is_refused_unless_one_insists(self, target: str, backup: Path) -> None:
        with pytest.raises(InvalidInput, match="is damaged"):
            restore(backup, target)


class TestWhatIsNoBackup:
    @pytest.fixture
    def engine_name(self) -> str:
        return "sqlite"

    def test_nothing_empty_damaged_or_strange_replaces_a_database(
        self, hf: Holdfast, target: str, backup: Path, tmp_path: Path
    ) -> None:
        before = everything(hf)
        hf.close()
        whole = backup.read_bytes()
        for name, content in (
            ("empty", b""),
            ("text", b"Dear diary, " * 100),
            ("cut", whole[: len(whole) // 2]),
            ("short", whole[:300]),
        ):
            (tmp_path / name).write_bytes(content)
        with asking(str(tmp_path / "strange")) as ask:
            ask("create table t (a)")
            ask("insert into t values (1)")

        for name in ("empty", "text", "cut", "short", "strange", "nowhere", "."):
            with pytest.raises((Corrupt, InvalidInput), match=r"(?i)file|damaged"):
                restore(tmp_path / name, target, replace=True)

        with opened(target) as same:
            assert everything(same) == before

    def test_a_backup_that_was_edited_is_refused(
        self, hf: Holdfast, target: str, backup: Path
    ) -> None:
        hf.close()
        with asking(str(backup)) as ask:
            ask("update versions set content = x'00' where path = '/empty'")

        with pytest.raises(Corrupt, match="4 findings, the first of chains in versions"):
            restore(backup, target, replace=True)

    def test_a_backup_of_a_newer_release_is_refused(
        self, hf: Holdfast, target: str, backup: Path
    ) -> None:
        hf.close()
        with asking(str(backup)) as ask:
            ask("pragma user_version = 999")

        with pytest.raises(TooNew):
            restore(backup, target, replace=True)

    def test_a_database_in_use_is_no_backup(self, hf: Holdfast, target: str, other: str) -> None:
        hf.memory_stores.create(name="In the log")

        with pytest.raises(InvalidInput, match="not a backup"):
            restore(target, other)

    def test_memory_is_no_target(self, backup: Path) -> None:
        with pytest.raises(InvalidInput, match="file or a server"):
            restore(backup, ":memory:")


def test_a_restore_onto_a_server_is_one_moment_to_its_readers(
    hf: Holdfast, backup: Path, other_postgres_url: str
) -> None:
    with holdfast.open(other_postgres_url) as served:
        fill(served)
        seen: list[int] = []

        def told(_: int) -> None:
            seen.append(len(served.memory_stores.list(include_archived=True).data))

        restore(backup, other_postgres_url, replace=True, progress=told)

        assert set(seen) == {3}
        assert everything(served) == everything(hf)


def test_who_writes_during_a_restore_writes_to_what_came_back(
    hf: Holdfast, backup: Path, other_postgres_url: str
) -> None:
    before, meanwhile = everything(hf), threading.Event()
    with holdfast.open(other_postgres_url, workspace="third") as served:
        fill(served)
        writer = threading.Thread(target=lambda: (meanwhile.wait(), served.keys.create("late")))
        writer.start()

        restore(backup, other_postgres_url, replace=True, progress=lambda _: meanwhile.set())
        writer.join()

        assert [key.name for key in served.keys.list()] == ["late"]
        assert everything(served.acting(workspace="default")) == before
        assert served.verify().ok


FOREIGN = {
    "table theirs": "create table theirs (x)",
    'view "of" theirs': 'create view """of"" theirs" as select id from stores',
    "trigger spy": "create trigger spy after insert on stores begin delete from sessions; end",
    "index extra": "create index extra on stores (workspace)",
}


def test_what_is_foreign_in_a_backup_stays_behind_and_is_named(
    hf: Holdfast, backup: Path, across: str
) -> None:
    before = everything(hf)
    with asking(str(backup)) as ask:
        for statement in FOREIGN.values():
            ask(statement)
        ask("pragma journal_mode = delete")

    report = restore(backup, across)

    assert report.left_out == tuple(sorted(FOREIGN))
    with opened(across) as back:
        assert everything(back) == before
        assert back.verify().findings == ()


def test_a_database_with_foreign_objects_can_be_backed_up(
    hf: Holdfast, store: Store, target: str, tmp_path: Path
) -> None:
    assert store.id
    with asking(target) as ask:
        ask("create table theirs (x integer)")

    report = hf.backup(tmp_path / "b.db")

    assert report.rows
    assert [each.id for each in hf.verify(quick=True).findings] == ["theirs"]


@pytest.mark.parametrize("other", ["postgres"], indirect=True)
def test_numbers_go_on_after_those_that_were_there(
    hf: Holdfast, store: Store, backup: Path, other: str
) -> None:
    restore(backup, other)
    memory = hf.memory_stores.memories.at(store.id, "/empty")
    assert memory is not None

    with opened(other) as back:
        back.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="new")
        newest = back.memory_stores.memory_versions.list(store.id, limit=1).data[0]

        assert newest.memory_id == memory.id
        assert back.verify().ok


def test_sizes_by_day_come_back_and_sign_ins_do_not(
    hf: Holdfast, store: Store, across: str, tmp_path: Path
) -> None:
    assert store.id
    clock = SystemClock()
    take_samples(hf.engine, clock.now())
    key = hf.keys.create("laptop").secret
    assert key is not None
    secret = SignIns(hf.engine, clock).begin(key)
    assert secret is not None
    hf.backup(tmp_path / "b.db")

    restore(tmp_path / "b.db", across)

    with opened(across) as back:
        assert back.samples() == hf.samples()
        assert back.samples() != []
        sign_ins = SignIns(back.engine, clock)
        assert sign_ins.find(secret) is None
        assert sign_ins.begin(key) is not None
