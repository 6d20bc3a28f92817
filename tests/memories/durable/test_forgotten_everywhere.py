"""What was forgotten is nowhere, whatever was done with it before and is tried after: not a byte.

On SQLite every file beside the database is searched while it is open; on PostgreSQL every row of
every table, and, once the tables were rewritten, every file of the database.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast.ground.errors import Forgotten, HoldfastError, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.markdown.transfer import How, import_files
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.write import set_many
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.serving import new_workspace

KEY, CONTENT, TAG = "kq9fforgottenkey", "zw3xforgottencontent " * 400, "tb7nforgottentag"
MARKS = (b"kq9f", b"zw3x", b"tb7n")
ENTRY = {"key": KEY, "content": CONTENT, "category": "core", "tags": [TAG]}
FILE = f'---\nkey: "{KEY}"\ncategory: "core"\ntags: ["{TAG}"]\n---\n{CONTENT}\n'

Left = Callable[[], set[tuple[str, bytes]]]
Story = Callable[[Holdfast, DurableMemory], object]


class Places:
    """Where a database keeps bytes: its rows as they are seen from outside, and its files."""

    def __init__(self, target: str, server: PostgresServer | None) -> None:
        self.target, self._server = target, server

    def left(self) -> set[tuple[str, bytes]]:
        """Return which marks are where, now."""
        if self._server is None:
            return self._in_files(Path(self.target).parent)
        with psycopg.connect(self.target) as owner:
            return {(table, mark) for table, row in _rows(owner) for mark in MARKS if mark in row}

    def left_in_files(self) -> set[tuple[str, bytes]]:
        """Return which marks are in which file of the database."""
        if self._server is None:
            return self.left()
        with psycopg.connect(self.target, autocommit=True) as owner:
            owner.execute("checkpoint")
            found = owner.execute("select oid from pg_database where datname = current_database()")
            (oid,) = found.fetchall()[0]
        files = self._server.folder / "data" / "base" / str(oid)
        assert any(files.iterdir())
        return self._in_files(files)

    @staticmethod
    def _in_files(folder: Path) -> set[tuple[str, bytes]]:
        found = set[tuple[str, bytes]]()
        for file in folder.rglob("*"):
            with suppress(FileNotFoundError):
                data = file.read_bytes() if file.is_file() else b""
                found |= {(str(file), mark) for mark in MARKS if mark in data}
        return found


def _rows(owner: psycopg.Connection) -> Iterator[tuple[str, bytes]]:
    names = owner.execute(
        "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.relkind = 'r' and (n.nspname = 'holdfast' or c.relname = 'pg_statistic')"
    ).fetchall()
    assert len(names) > 10
    for schema, table in names:
        every = sql.SQL("select t::text from {} t").format(sql.Identifier(schema, table))
        for (row,) in owner.execute(every):
            yield table, row.encode()


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> str:
    """Give the URL of a database of the module's own, where each test leaves no mark."""
    return postgres_server.url(postgres_server.new_database(TEMPLATE))


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, sqlite_file: Path) -> Places:
    if request.param == "sqlite":
        return Places(str(sqlite_file), None)
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return Places(request.getfixturevalue("database"), server)


@pytest.fixture
def hf(places: Places, clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(places.target, workspace=new_workspace(), clock=clock) as hf:
        yield hf


def store(durable: DurableMemory, category: str = "core", key: str | None = None) -> int:
    return durable.set(KEY, CONTENT, category=category, tags=[TAG], idempotency_key=key).seq


def stored(hf: Holdfast, durable: DurableMemory) -> None:
    assert hf
    store(durable)


def shared(hf: Holdfast, durable: DurableMemory) -> None:
    assert hf
    store(durable)
    store(durable, "workspace")


def written_to_be_repeated(hf: Holdfast, durable: DurableMemory) -> None:
    assert hf
    store(durable, key="once")
    set_many(durable.context.once("many"), [ENTRY], on_error="skip")
    import_files(durable.context.once("files"), [(f"core/{KEY}.md", FILE)])


def evicted(hf: Holdfast, durable: DurableMemory) -> None:
    assert hf
    durable.set_limits(cap=1)
    store(durable, "note")
    durable.set("warm", "x", category="note", idempotency_key="warm")


def evicting(hf: Holdfast, durable: DurableMemory) -> None:
    evicted(hf, durable)
    store(durable, "note", key="once")


def expired(hf: Holdfast, durable: DurableMemory) -> None:
    store(durable, "daily")
    clock = durable.context.clock
    assert isinstance(clock, FrozenClock)
    clock.tick(73 * 3600)
    hf.sweep()


def imported(hf: Holdfast, durable: DurableMemory) -> None:
    assert hf
    files = [(f"core/{KEY}.md", FILE), (f"{KEY}.md", FILE.replace('"core"', '"conversation"'))]
    import_files(durable.context.once("files"), files)


def named_in_a_refusal_of_files(hf: Holdfast, durable: DurableMemory) -> None:
    assert hf
    durable.set_limits(cap=1)
    store(durable)
    file = FILE.replace(KEY, "another").replace('"core"', '"note"').replace(CONTENT, "x")
    told = import_files(durable.context.once("files"), [("a.md", file.replace(TAG, "t"))])
    assert told.rejected


def named_in_a_refusal_of_many(hf: Holdfast, durable: DurableMemory) -> None:
    assert hf
    durable.set_limits(cap=1)
    store(durable)
    item = {"key": "another", "content": "x", "category": "note"}
    assert set_many(durable.context.once("many"), [item], on_error="skip").refused


def restored_and_redacted(hf: Holdfast, durable: DurableMemory) -> None:
    assert hf
    seq = store(durable)
    durable.set(KEY, "x", category="core")
    durable.restore(KEY, seq)
    durable.redact(seq)


def of_a_run(hf: Holdfast, durable: DurableMemory) -> None:
    assert hf
    with durable.run() as run:
        run.set(KEY, CONTENT, category="conversation", tags=[TAG])
        run.hydrate()
    store(durable)


def moved_out_of_a_run(hf: Holdfast, durable: DurableMemory) -> None:
    assert hf
    run = durable.run()
    run.set(KEY, CONTENT, category="conversation", tags=[TAG])
    run.set(KEY, CONTENT, category="workspace", tags=[TAG])


STORIES: list[Story] = [
    stored,
    shared,
    written_to_be_repeated,
    evicted,
    evicting,
    expired,
    imported,
    named_in_a_refusal_of_files,
    named_in_a_refusal_of_many,
    restored_and_redacted,
    of_a_run,
    moved_out_of_a_run,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_key_that_was_forgotten_is_nowhere(
    hf: Holdfast, places: Places, durable: DurableMemory, story: Story
) -> None:
    story(hf, durable)
    there = places.left()
    durable.forget(KEY)

    assert there
    assert places.left() == set()
    assert durable.history(KEY).data
    assert KEY not in {each.key for each in durable.history().data}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_an_agent_that_was_forgotten_is_nowhere(hf: Holdfast, places: Places, story: Story) -> None:
    durable = hf.durable("tb7nAgent")
    story(hf, durable)
    durable.run("tb7nRun", lane="tb7nLane").set("own", "x", category="conversation")
    if hf.durable("agent_8").get(KEY) is not None:
        hf.durable("agent_8").forget(KEY)
    hf.forget_agent("tb7nAgent")

    assert places.left() == set()
    assert "tb7nAgent" not in {each.agent for each in hf.durable_agents().data}


def test_what_the_run_that_was_open_writes_late_is_nowhere(
    places: Places, durable: DurableMemory
) -> None:
    run = durable.run()
    run.set(KEY, CONTENT, category="core", tags=[TAG])
    scratch = durable.run(lane="two")
    scratch.set("other", "x", category="conversation")
    durable.forget(KEY)

    for late in (run, scratch):
        for category in ("core", "daily", "conversation", "workspace"):
            with pytest.raises(Forgotten):
                late.set(KEY, CONTENT, category=category, tags=[TAG], idempotency_key=category)
        assert len(late.capture([ENTRY]).refused) == 1
        assert len(late.set_many([ENTRY], on_error="skip").refused) == 1
        with pytest.raises(Forgotten):
            late.set_many([ENTRY])
        late.end()

    assert places.left() == set()
    assert durable.get(KEY) is None


def test_what_is_repeated_by_its_idempotency_key_is_nowhere(
    hf: Holdfast, places: Places, durable: DurableMemory
) -> None:
    written_to_be_repeated(hf, durable)
    durable.forget(KEY)

    written_to_be_repeated(hf, durable)

    assert places.left() == set()
    assert durable.get(KEY) is None


def test_what_is_asked_for_by_who_knows_the_key_is_nowhere(
    places: Places, durable: DurableMemory
) -> None:
    seq = store(durable)
    durable.forget(KEY)

    for ask in (durable.get, durable.explain, durable.history, durable.forget):
        ask(KEY)
    durable.list(key_prefix=KEY, query=CONTENT[:200], tags=[TAG])
    for act in (lambda: durable.restore(KEY, seq), lambda: durable.redact(seq)):
        with suppress(NotFound):
            act()
    with suppress(HoldfastError):
        durable.set(KEY, CONTENT, category="core", expected_seq=seq)

    assert places.left() == set()


def test_what_was_forgotten_among_many_is_in_no_file(
    hf: Holdfast, places: Places, durable: DurableMemory, clock: FrozenClock
) -> None:
    durable.set_many(
        [{"key": f"{KEY} {n}", "content": CONTENT, "category": "note"} for n in range(300)]
    )
    hf.close()
    assert places.left_in_files()
    with holdfast.open(places.target, workspace=hf.workspace, clock=clock) as again:
        mine = again.durable("agent_7")
        mine.set("stays", "x", category="core")
        import_files(
            mine.context, [("a.md", "---\nkey: stays\ncategory: core\n---\nx")], How(mode="replace")
        )
        left = places.left()
        again.engine.scrub_full()

        assert left == set()
        assert places.left_in_files() == set()
        assert [entry.key for entry in mine.list().data] == ["stays"]
