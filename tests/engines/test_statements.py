"""Named statements: each is understood by its engine, and returns own rows only."""

import pickle
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

import holdfast
from holdfast.engines.queries import Statement, load, name_of, read
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.connection import Connection, connect
from holdfast.ground.errors import EngineFault
from holdfast.ground.scope import EVERYBODY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Save

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(
    ".".join(file.parent.relative_to(ROOT).parts)
    for file in (ROOT / "holdfast").rglob("queries.sql")
    if "testing" not in file.parts
)
STORES = "holdfast.memories.stores"
NAME = re.compile(r"(?<![\w:]):([a-z0-9_]+)")

WITHOUT_WORKSPACE = {
    "key_by_credential": "the workspace is what it is to tell",
    "token_by_credential": "the workspace is what it is to tell",
    "sign_in_by_credential": "the workspace is what it is to tell",
}
"""Statements of the stores that name no workspace, and why."""


def statements(package: str, dialect: Any) -> dict[str, Statement]:
    return vars(load(package, dialect))


@pytest.fixture(scope="module")
def used_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a database in which the workspace `ours` has something of every kind."""
    path = tmp_path_factory.mktemp("used") / "h.db"
    with holdfast.open(path, workspace="ours") as hf:
        fill(hf)
    return path


def fill(hf: Holdfast) -> None:
    store = hf.memory_stores.create(name="notes")
    hf.memory_stores.configure(memories_cap=9)
    memory = hf.memory_stores.memories.create(store.id, path="/a/b.md", content="tabs and spaces")
    hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="tabs")
    edit = Save(path="/c.md", content="spaces")
    hf.memory_stores.memories.apply(store.id, [edit], edit_id="edit_1")
    attached: list[dict[str, str]] = [{"type": "memory_store", "memory_store_id": store.id}]
    session = hf.sessions.create(agent="a", environment_id="e", resources=attached)
    hf.sessions.create_token(session.id)
    hf.agents.create({"name": "Coder", "model": "claude-x"})
    hf.environments.create({"name": "laptop"})
    hf.keys.create("ci")


@pytest.fixture(scope="module")
def raw(used_file: Path) -> Iterator[Connection]:
    connection = connect(str(used_file), "writer")
    with closing(connection.raw):
        yield connection


def ids(raw: Connection) -> dict[str, object]:
    """Return what the statements' parameters would be, were they asked by `ours`."""

    def one(table: str, column: str = "id") -> object:
        return raw.execute(f"select {column} from {table}", {}).fetchall()[0][0]

    store, session = cast("str", one("stores")), cast("str", one("sessions"))
    known: dict[str, object] = {
        "store": store,
        "store_id": store,
        "memory_store_id": store,
        "store_ids": f'["{store}"]',
        "memory": one("memories"),
        "version": one("versions"),
        "session_id": session,
        "session_ids": f'["{session}"]',
        "token_id": one("session_tokens"),
        "path": "/a/b.md",
        "lineage": '["/a", "/a/b.md"]',
        "terms": '["1_tabs"]',
        "low": "/",
        "memories": f'["{one("memories")}"]',
        "versions": f'["{one("versions")}"]',
        "targets": '["/a"]',
        "lineages": '["/a", "/a/b.md"]',
        "edit": "edit_1",
        "stale": 2**62,
        "start": "/",
        "high": "0",
        "from": "/",
        "after": "",
        "mine": "",
        "old": "/z",
        "old_low": "/z/",
        "old_high": "/z0",
        "skip": 2,
        "full": 1,
        "archived": 1,
        "include_archived": 1,
        "oldest": 0,
        "since": 0,
        "at": 2**62,
        "until": 2**62,
        "before": 2**62,
        "base": 0,
        "rows": 9,
        "words": "1_tabs",
        "idle": 1,
        "terminated": 1,
    }
    return known


@pytest.mark.parametrize("package", PACKAGES)
def test_sqlite_understands_each_statement(package: str, raw: Connection) -> None:
    wrong: dict[str, str] = {}
    for name, statement in statements(package, "sqlite").items():
        explained = "" if statement.startswith("pragma") else "explain "
        params = dict.fromkeys(NAME.findall(statement))
        try:
            raw.execute(cast("Any", explained + statement), params).fetchall()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it is reported by name
            wrong[name] = str(error)

    assert wrong == {}


@pytest.fixture(scope="module")
def postgres(postgres_url: str) -> Iterator[psycopg.Connection]:
    holdfast.open(postgres_url).close()
    with psycopg.connect(postgres_url, options="-c search_path=holdfast") as connection:
        yield connection


@pytest.mark.parametrize("package", PACKAGES)
def test_postgres_understands_each_statement(package: str, postgres: psycopg.Connection) -> None:
    wrong: dict[str, str] = {}
    for name, statement in statements(package, "postgres").items():
        explained = "" if statement.startswith("lock") else "explain "
        params = dict.fromkeys(re.findall(r"%\(([a-z0-9_]+)\)s", statement))
        try:
            with postgres.transaction(force_rollback=True):
                postgres.execute(cast("Any", explained + statement), params)
        except psycopg.Error as error:
            wrong[name] = str(error)

    assert wrong == {}


@pytest.mark.parametrize("name", statements(STORES, "sqlite"))
def test_a_statement_names_whose_rows_it_means(name: str) -> None:
    statement = statements(STORES, "sqlite")[name]

    assert (":workspace" in statement) == (name not in WITHOUT_WORKSPACE)


def makes_a_row(statement: str) -> bool:
    """Tell whether *statement* only adds what it is given, and so finds nothing."""
    return statement.startswith("insert") and "select" not in statement


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, statement in statements(STORES, "sqlite").items()
        if name not in WITHOUT_WORKSPACE and not makes_a_row(statement)
    ],
)
def test_a_statement_finds_nothing_of_anothers(name: str, raw: Connection) -> None:
    statement = statements(STORES, "sqlite")[name]
    params = {**dict.fromkeys(NAME.findall(statement)), **ids(raw), "workspace": "theirs"}

    raw.do("begin")
    try:
        rows = raw.execute(statement, params).fetchall()
        changed = 0 if statement.startswith(("select", "with")) else raw.raw.changes()
    finally:
        raw.do("rollback")

    nothing = (0,) if statement.startswith("select count(*)") else (None,)
    assert [row for row in rows if row != nothing] == []
    assert changed == 0


def test_upkeep_alone_sees_every_workspace(used_file: Path) -> None:
    with holdfast.open(used_file, workspace="theirs") as hf:
        assert isinstance(hf.engine, SQLiteEngine)
        assert list(hf.memory_stores.list()) == []
        assert hf.engine.scoped(EVERYBODY).one(dict[str, Any], "select count(*) as n from stores")


TEXT = """
-- shared --
-- Why it is so: 100% of a reason, with a ' in it.
select 'a:b % it''s' as "x:y", 7 % 2 as odd -- :not_a_name
from t
where a = :a and b like :b_2;

-- only (sqlite) --
select json_extract(:x, '$.a')

-- only (postgres) --
select :x -> 'a'
"""


def test_sqlite_keeps_the_text_but_for_comments():
    found = read(TEXT, "sqlite", source="here")

    assert found["shared"] == (
        "select 'a:b % it''s' as \"x:y\", 7 % 2 as odd\nfrom t\nwhere a = :a and b like :b_2"
    )
    assert found["only"] == "select json_extract(:x, '$.a')"


def test_postgres_gets_its_own_placeholders_and_doubled_percent_signs():
    found = read(TEXT, "postgres", source="here")

    assert found["shared"] == (
        "select 'a:b %% it''s' as \"x:y\", 7 %% 2 as odd\n"
        "from t\nwhere a = %(a)s and b like %(b_2)s"
    )
    assert found["only"] == "select %(x)s -> 'a'"


def test_a_statement_knows_its_name_even_after_a_journey():
    statement = read(TEXT, "sqlite", source="here")["shared"]

    assert name_of(statement) == "shared"
    assert name_of(pickle.loads(pickle.dumps(statement))) == "shared"
    assert name_of("select  1") == "select 1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-- a --\nselect :x::text\n", "cast"),
        ("-- a --\nselect 1\n-- a --\nselect 2\n", "twice"),
        ("-- a (postgres) --\nselect 1\n", "no sqlite statement a"),
    ],
)
def test_what_cannot_run_on_both_engines_is_refused_when_read(text: str, said: str):
    with pytest.raises(EngineFault, match=said) as caught:
        read(text, "sqlite", source="here")

    assert caught.value.statement == "a"
