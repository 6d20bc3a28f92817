"""Transactions on PostgreSQL: values, round trips, owners, and the change feed."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace as Row
from typing import LiteralString

import psycopg
import pytest
from psycopg import errors

import holdfast
from holdfast.engines.base import Reader, Transaction, scalar
from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.errors import CursorExpired, EngineFault, NotPermitted, ScopeDenied
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.testing.contracts.engine import SCRATCH, happened, noting
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import PostgresServer


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("sum(cast(n as bigint))", 6),
        ("avg(n)", 2),
        ("avg(n) / 4", 0.5),
        ("sum(n / 2.0)", 3),
        ("count(*)", 3),
        ('cast(\'{"b": 1, "a": "ä"}\' as jsonb)', '{"a": "ä", "b": 1}'),
        ("cast('[1, 2]' as json)", "[1, 2]"),
        ("bool_and(n > 0)", True),
        ("cast('18446744073709551615' as xid8)", 2**64 - 1),
        ("cast(null as text)", None),
    ],
)
def test_what_comes_back_is_what_the_other_engine_gives(
    engine: PostgresEngine, expression: LiteralString, value: object
) -> None:
    found = engine.all(Row, f"select {expression} as it from generate_series(1, 3) n")[0]

    assert found.it == value
    assert type(found.it) is type(value)


@pytest.mark.parametrize(
    ("given", "cast"),
    [(True, "boolean"), (2**31, "bigint"), (1.5, "float8"), (b"\0\xff", "bytea"), ("a", "text")],
)
def test_what_is_sent_arrives(engine: PostgresEngine, given: object, cast: LiteralString) -> None:
    found = engine.one(Row, f"select cast(%(it)s as {cast}) as it", it=given)

    assert found.it == given


def test_a_list_is_sent_as_an_array(engine: PostgresEngine) -> None:
    asked = "select n from unnest(cast(%(them)s as text[])) n order by n"

    assert [row.n for row in engine.all(Row, asked, them=["b", "a\"'", "ä"])] == ["a\"'", "b", "ä"]


@pytest.mark.parametrize("value", ["a\0b", "\ud800", object()])
def test_what_cannot_be_sent_is_a_fault_and_the_transaction_goes_on(
    engine: PostgresEngine, sql: Row, value: object
) -> None:
    def work(tx: Transaction) -> None:
        with pytest.raises(EngineFault) as caught:
            tx.run(sql.put_number, key=value, number=1)
        assert caught.value.__cause__ is not None
        tx.run(sql.put_number, key="a", number=1)

    engine.write(work)

    assert engine.one(Row, sql.count).n == 1


def test_large_statements_go_both_ways_at_once(engine: PostgresEngine, sql: Row) -> None:
    """More than the buffers between us and the server hold, in both directions."""
    rows = [{"key": f"{n:04}", "number": n, "real": None, "text": "x" * 20_000} for n in range(900)]

    changed = engine.write(
        lambda tx: tx.run_many(sql.put, [row | {"bytes": b"\0" * 20_000} for row in rows])
    )
    found = engine.all(Row, "select key, text, bytes from scratch order by key")

    assert changed == 900
    assert all(len(row.text) == len(row.bytes) == 20_000 for row in found)


def trips(engine: PostgresEngine, act: Callable[[], object]) -> int:
    """Return how many round trips *act* takes, once it was done before."""
    act()
    before = engine.round_trips
    act()
    return engine.round_trips - before


def test_a_single_look_is_one_round_trip(engine: PostgresEngine, sql: Row) -> None:
    assert trips(engine, lambda: engine.first(Row, sql.get_number, key="a")) == 1


def test_a_moment_takes_one_for_each_statement(engine: PostgresEngine, sql: Row) -> None:
    def work(reader: Reader) -> None:
        reader.first(Row, sql.get_number, key="a")
        reader.all(Row, sql.list)

    assert trips(engine, lambda: engine.read(work)) == 2


def test_reads_one_after_the_other_share_a_connection(engine: PostgresEngine) -> None:
    """Also while the rollback of the one before is in flight."""

    def backend(reader: Reader) -> int:
        return reader.one(Row, "select pg_backend_pid() as pid").pid

    assert len({engine.read(backend) for _ in range(10)}) == 1


def test_a_write_that_only_sends_is_one_round_trip(engine: PostgresEngine, sql: Row) -> None:
    def work(tx: Transaction) -> None:
        tx.send(sql.put_number, key="a", number=1)
        tx.send(sql.put_number, key="b", number=2)
        tx.note(happened())
        tx.note(happened())

    assert trips(engine, lambda: engine.write(work)) == 1


def test_a_number_comes_with_the_lock_it_follows(engine: PostgresEngine, sql: Row) -> None:
    def work(tx: Transaction) -> None:
        tx.run(sql.put_number, key="a", number=1)
        tx.send(sql.put_number, key="b", number=tx.seq)

    assert trips(engine, lambda: engine.write(work)) == 2


def test_a_write_that_changed_nothing_does_not_wait_for_its_commit(
    engine: PostgresEngine, sql: Row
) -> None:
    assert trips(engine, lambda: engine.write(lambda tx: tx.first(Row, sql.list))) == 1
    assert trips(engine, lambda: engine.write(lambda _: None)) == 0


def test_many_rows_are_one_round_trip(engine: PostgresEngine, sql: Row) -> None:
    rows = [{"key": f"k{number}", "number": number} for number in range(500)]

    assert trips(engine, lambda: engine.write(lambda tx: tx.run_many(sql.put_number, rows))) == 2


def test_a_number_is_drawn_after_what_was_sent_before(engine: PostgresEngine, sql: Row) -> None:
    def work(tx: Transaction) -> tuple[int, int]:
        tx.run(sql.put_number, key="a", number=1)
        before = tx.one(Row, "select last_value as number from holdfast.seq").number
        return before, tx.seq

    before, seq = engine.write(work)

    assert seq > before


def test_writes_of_one_owner_are_numbered_in_the_order_they_commit(
    engine: PostgresEngine, sql: Row
) -> None:
    """Each write reads the number of the one before under the row's lock."""
    engine.write(lambda tx: tx.run(sql.put_number, key="owner", number=0))
    lock = "select number from scratch where key = 'owner' for update"

    def work(tx: Transaction) -> tuple[int, int]:
        before = tx.one(Row, lock).number
        tx.send(sql.put_number, key="owner", number=tx.seq)
        return before, tx.seq

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(engine.write, work) for _ in range(200)]
    pairs: list[tuple[int, int]] = [future.result() for future in futures]

    assert all(before < seq for before, seq in pairs)
    assert len({before for before, _ in pairs}) == 200


@pytest.mark.parametrize(
    ("call", "most"), [("create", 4), ("update", 4), ("retrieve", 1), ("at", 1)]
)
def test_memories_keep_to_their_round_trips(fresh_postgres_url: str, call: str, most: int) -> None:
    with holdfast.open(fresh_postgres_url) as hf:
        store = hf.memory_stores.create(name="a")
        memories = hf.memory_stores.memories
        one = memories.create(store.id, path="/one.md", content="some words")
        memories.update(one.id, memory_store_id=store.id, content="other words")
        acts: dict[str, Callable[[], object]] = {
            "create": lambda: memories.create(store.id, path="/two.md", content="more words"),
            "update": lambda: memories.update(one.id, memory_store_id=store.id, content="new"),
            "retrieve": lambda: memories.retrieve(one.id, memory_store_id=store.id),
            "at": lambda: memories.at(store.id, "/one.md"),
        }
        engine = hf.engine
        assert isinstance(engine, PostgresEngine)
        before = engine.round_trips

        acts[call]()

        assert engine.round_trips - before <= most


def test_feeds_cost_the_writer_nothing(engine: PostgresEngine) -> None:
    assert trips(engine, lambda: engine.write(noting("test.a"))) == 1


INSERT = """
insert into holdfast.changes (seq, at, workspace, type, ids, data)
values (nextval('holdfast.seq'), 0, %s, 'test.a', '{}', '{}')
"""
INSERT_OWNED = """
insert into holdfast.changes (seq, at, workspace, type, owner, ids, data)
values (nextval('holdfast.seq'), 0, 'ours', %s, %s, '{}', '{}')
"""
LONGTERM = {("longterm.stored", "mine"), ("longterm.stored", "yours")}
COUNT = "select count(*) from holdfast.changes"

WITHOUT_POLICY = {
    "migrations": ({"workspace"}, "has no owner, and the role may not write it"),
    "durable_secrets": (
        {"agent"},
        "one key a workspace: its agents share entries, and their marks",
    ),
}
"""What some table's policies do not go by, and why."""

Opened = Callable[[str], PostgresEngine]


@pytest.fixture
def app(admin: psycopg.Connection) -> psycopg.Connection:
    """Give a connection that is our role, with one row each of two workspaces in its reach."""
    for workspace in ("ours", "theirs"):
        admin.execute(INSERT, (workspace,))
    admin.execute("set role holdfast_app")
    return admin


def set_workspace(connection: psycopg.Connection, workspace: str) -> None:
    connection.execute("select set_config('holdfast.workspace', %s, false)", (workspace,))


def set_owner(connection: psycopg.Connection, *, agent: str, user: str) -> None:
    for name, value in (("agent", agent), ("user", user)):
        connection.execute("select set_config(%s, %s, false)", (f"holdfast.{name}", value))


def count(connection: psycopg.Connection) -> int:
    row = connection.execute(COUNT).fetchone()
    return row[0] if row else -1


def test_without_settings_nothing_is_seen(app: psycopg.Connection) -> None:
    assert count(app) == 0


def test_without_settings_nothing_is_written(app: psycopg.Connection) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(INSERT, ("ours",))


@pytest.mark.parametrize(("workspace", "seen"), [("ours", 1), ("else", 0), ("*", 2), ("", 0)])
def test_a_workspace_sees_its_own(app: psycopg.Connection, workspace: str, seen: int) -> None:
    set_workspace(app, workspace)

    assert count(app) == seen


def test_another_workspace_is_not_written(app: psycopg.Connection) -> None:
    set_workspace(app, "ours")

    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(INSERT, ("theirs",))
    assert app.execute("update holdfast.changes set at = 1").rowcount == 1
    assert app.execute("delete from holdfast.changes").rowcount == 1


@pytest.fixture
def changes(admin: psycopg.Connection) -> psycopg.Connection:
    """Give a connection that is our role, with changes of an agent and a user of the same names."""
    for type in ("durable.stored", "longterm.stored"):
        for owner in ("mine", "yours", None):
            admin.execute(INSERT_OWNED, (type, owner))
    admin.execute("set role holdfast_app")
    set_workspace(admin, "ours")
    return admin


@pytest.mark.parametrize(
    ("agent", "user", "seen"),
    [
        ("", "", set[tuple[str, str]]()),
        ("mine", "", {("durable.stored", "mine")}),
        ("", "mine", {("longterm.stored", "mine")}),
        ("*", "", {("durable.stored", "mine"), ("durable.stored", "yours")}),
        ("yours", "*", {("durable.stored", "yours"), *LONGTERM}),
    ],
)
def test_an_owner_sees_and_writes_their_own_changes_and_those_of_the_workspace(
    changes: psycopg.Connection, agent: str, user: str, seen: set[tuple[str, str]]
) -> None:
    set_owner(changes, agent=agent, user=user)

    found = changes.execute("select type, owner from holdfast.changes").fetchall()

    assert {row for row in found if row[1] is not None} == seen
    assert len(found) == len(seen) + 2
    assert changes.execute("update holdfast.changes set at = 1").rowcount == len(found)
    for type, owner in {("durable.stored", "yours"), *LONGTERM} - seen:
        with pytest.raises(errors.InsufficientPrivilege):
            changes.execute(INSERT_OWNED, (type, owner))


@pytest.mark.parametrize(
    "statement",
    [
        "create table holdfast.mine (a integer)",
        "truncate holdfast.changes",
        "alter table holdfast.changes disable row level security",
        "delete from holdfast.migrations",
    ],
)
def test_the_role_may_not_change_the_schema(app: psycopg.Connection, statement: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        app.execute(statement.encode())


def test_every_table_has_a_forced_policy_by_its_owner(admin: psycopg.Connection) -> None:
    found = admin.execute("""
        select c.relname, c.relrowsecurity and c.relforcerowsecurity as forced,
            array(
                select s.name from unnest(array['workspace', 'agent', 'user']) s (name)
                where exists (
                    select 1 from pg_policy p
                    where p.polrelid = c.oid and p.polcmd = '*'
                        and (s.name = 'workspace') = p.polpermissive
                        and pg_get_expr(p.polqual, c.oid) like '%holdfast.' || s.name || '%'
                        and pg_get_expr(p.polwithcheck, c.oid) like '%holdfast.' || s.name || '%'
                )
            ) as by
        from pg_class c
        where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p')
        order by c.relname
    """).fetchall()

    held = {name: set(by) if forced else set[str]() for name, forced, by in found}
    lacking = {name: missing for name, by in held.items() if (missing := wanted(name) - by)}
    assert lacking == {name: allowed[0] for name, allowed in WITHOUT_POLICY.items()}


def wanted(table: str) -> set[str]:
    """Return by which settings the rows of *table* are to be held apart."""
    if table == "changes":
        return {"workspace", "agent", "user"}
    if table.startswith("ltm_"):
        return {"workspace", "user"}
    return {"workspace", "agent"} if table.startswith("durable_") else {"workspace"}


def test_the_role_owns_nothing_and_has_no_power(admin: psycopg.Connection) -> None:
    row = admin.execute("""
        select rolcanlogin, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb,
            (select count(*) from pg_class where relowner = r.oid)
        from pg_roles r where rolname = 'holdfast_app'
    """).fetchone()

    assert row == (False, False, False, False, False, 0)


def test_statements_run_as_the_role_though_the_login_is_a_superuser(opened: Opened) -> None:
    engine = opened("")

    assert engine.status().details["runs_as"] == "holdfast_app"
    with pytest.raises(NotPermitted):
        engine.write(lambda tx: tx.run("drop table changes"))


def test_an_engine_without_a_scope_writes_and_sees_nothing(opened: Opened) -> None:
    engine = opened("")
    engine.scoped(Scope(workspace="ours", agent="*")).write(noting("test.a", "ours"))

    with pytest.raises(ScopeDenied):
        engine.write(noting("test.b", "ours"))
    assert engine.all(Row, "select seq from changes") == []


def test_a_scope_does_not_reach_into_the_next_statement(opened: Opened) -> None:
    engine = opened("&pool=1")
    asked = "select current_setting('holdfast.workspace', true) as workspace, current_user as role"

    scoped = engine.scoped(Scope(workspace="ours"))

    assert scoped.read(lambda reader: reader.one(Row, asked)).workspace == "ours"
    assert scoped.write(lambda tx: tx.one(Row, asked)).workspace == "ours"
    assert engine.one(Row, asked) == Row(workspace="", role="holdfast_app")


def test_a_credential_admits_its_row_alone(opened: Opened, admin: psycopg.Connection) -> None:
    insert = """
        insert into holdfast.api_keys (id, workspace, name, scope, secret_hash, created_at)
        values (%s, 'ours', 'a', 'read', %s, 0)
    """
    admin.execute(insert, ("apikey_1", "hash_1"))
    admin.execute(insert, ("apikey_2", "hash_2"))
    holder = opened("").scoped(Scope(workspace="", credential="hash_1"))

    assert holder.all(Row, "select id from api_keys") == [Row(id="apikey_1")]
    assert holder.write(lambda tx: tx.run("update api_keys set name = 'b'")) == 0


def test_the_hash_of_a_sign_in_admits_its_row_alone(
    opened: Opened, admin: psycopg.Connection
) -> None:
    insert = """
        insert into holdfast.console_sessions
            (hash, key_id, workspace, created_at, seen_at, expires_at)
        values (%s, 'apikey_1', 'ours', 0, 0, 0)
    """
    for hash in ("hash_1", "hash_2"):
        admin.execute(insert, (hash,))
    holder = opened("").scoped(Scope(workspace="", credential="hash_1"))
    other = opened("").scoped(Scope(workspace="theirs"))

    assert holder.all(scalar, "select hash from console_sessions") == ["hash_1"]
    assert holder.write(lambda tx: tx.run("update console_sessions set expires_at = 1")) == 0
    assert other.all(scalar, "select hash from console_sessions") == []


def test_a_login_that_bypasses_and_cannot_step_down_is_refused(
    postgres_server: PostgresServer, fresh_postgres_url: str
) -> None:
    postgres_server.execute("drop role if exists passer", "create role passer login bypassrls")
    url = fresh_postgres_url.replace("postgres@", "passer@")

    with pytest.raises(NotPermitted, match="row-level security"):
        PostgresEngine.open(url, clock=FrozenClock())


def test_a_plain_login_relies_on_the_policies(
    postgres_server: PostgresServer, fresh_postgres_url: str, admin: psycopg.Connection
) -> None:
    postgres_server.execute("drop role if exists plain", "create role plain login")
    for statement in (
        "grant usage on schema holdfast to plain",
        "grant select, insert on all tables in schema holdfast to plain",
        "grant usage on all sequences in schema holdfast to plain",
    ):
        admin.execute(statement.encode())
    url = fresh_postgres_url.replace("postgres@", "plain@")
    engine = PostgresEngine.open(url, clock=FrozenClock())

    engine.scoped(Scope(workspace="ours", agent="*")).write(noting("test.a", "ours"))

    asked = "select seq from changes"
    assert engine.status().details["runs_as"] == "login"
    assert len(engine.scoped(Scope(workspace="ours", agent="*")).all(Row, asked)) == 1
    assert engine.all(Row, asked) == []
    engine.close()
    for statement in ("drop owned by plain", "drop role plain"):
        admin.execute(statement.encode())


def test_the_contract_statements_name_no_owner(opened: Opened) -> None:
    assert "workspace" not in opened("").queries(SCRATCH).put


def test_one_that_commits_late_is_not_passed_over(opened: Opened) -> None:
    engine = opened("").scoped(EVERYBODY)
    feed = engine.feed()
    begun, ended = threading.Event(), threading.Event()

    def late(tx: Transaction) -> None:
        tx.one(dict[str, object], "select pg_current_xact_id() as xid")
        begun.set()
        ended.wait(30)
        tx.note(happened("test.late"))

    future = engine.submit(late)
    begun.wait(30)
    engine.write(noting("test.early"))
    held_back = feed.poll()
    ended.set()
    future.result(30)
    seen: list[str] = []
    while len(seen) < 2:
        seen += [event.type for event in feed.poll(30)]

    assert held_back == []
    assert seen == ["test.late", "test.early"]


def test_another_process_is_woken_by_a_notice(opened: Opened, admin: psycopg.Connection) -> None:
    writing, listening = opened("").scoped(EVERYBODY), opened("").scoped(EVERYBODY)
    feed = listening.feed()
    admin.execute("listen holdfast")
    writing.write(noting("test.a", "ours"))

    notice = next(admin.notifies(timeout=30))

    assert (notice.channel, notice.payload) == ("holdfast", "ours")
    assert [event.type for event in feed.poll(30)] == ["test.a"]


def test_a_feed_begun_now_gives_nothing_older(opened: Opened) -> None:
    engine = opened("").scoped(EVERYBODY)
    engine.write(noting("test.before"))

    feed = engine.feed()
    engine.write(noting("test.after"))

    assert [event.type for event in feed.poll(30)] == ["test.after"]


def test_a_cursor_older_than_what_is_kept_says_so(
    opened: Opened, admin: psycopg.Connection
) -> None:
    engine = opened("").scoped(EVERYBODY)
    feed = engine.feed()
    for number in range(4):
        engine.write(noting(f"test.n{number}"))
    cursors = [event.cursor for event in feed.poll(30)]
    admin.execute("delete from holdfast.changes where type in ('test.n0', 'test.n1')")
    admin.execute("update holdfast.changes set type = 'feed.trimmed' where type = 'test.n2'")

    with pytest.raises(CursorExpired) as caught:
        engine.feed(cursors[0])

    assert caught.value.oldest == cursors[2]
    assert [event.type for event in engine.feed(cursors[2]).poll(30)] == ["test.n3"]


def test_a_feed_left_behind_by_trimming_says_so(opened: Opened, admin: psycopg.Connection) -> None:
    engine = opened("").scoped(EVERYBODY)
    feed = engine.feed()
    engine.write(noting("test.a"))
    admin.execute("update holdfast.changes set type = 'feed.trimmed'")

    with pytest.raises(CursorExpired):
        feed.poll(30)


def test_many_workspaces_each_follow_their_own_in_order(opened: Opened) -> None:
    engine = opened("")
    names = [f"w{number}" for number in range(4)]
    feeds = {name: engine.scoped(Scope(workspace=name)).feed() for name in names}

    def write(name: str) -> None:
        for number in range(20):
            engine.scoped(Scope(workspace=name, agent="*")).write(
                noting(f"test.n{number:02}", name)
            )

    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    seen: dict[str, list[str]] = {name: [] for name in names}
    for name, feed in feeds.items():
        while len(seen[name]) < 20:
            seen[name] += [event.type for event in feed.poll(30)]
    for thread in threads:
        thread.join()

    assert set(map(tuple, seen.values())) == {tuple(f"test.n{n:02}" for n in range(20))}
