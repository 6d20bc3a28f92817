"""The change feed across connections: nobody is passed over, and too old is said."""

import threading
from collections.abc import Callable

import psycopg
import pytest

from holdfast.engines.base import Transaction
from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.errors import CursorExpired
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.testing.contracts.engine import happened, noting

Opened = Callable[[str], PostgresEngine]


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
