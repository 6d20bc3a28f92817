"""Which commands create a database, and what the others say of one that does not exist."""

from pathlib import Path

import psycopg
import pytest
from doors.cli.lines import Run
from doors.test_cli_page import EXPECTED

import holdfast
from holdfast.testing.postgres import PostgresServer

FILES = Path(__file__).parents[2] / "library" / "imports" / "files"

CREATES = {
    "stores create": "Prefs",
    "stores configure": "--memories-cap 7",
    "keys create": "ci",
    "durable set": "agent_7 owner Ada --category core",
    "durable import": "agent_7 {folder}",
    "durable limits": "agent_7 --cap 7",
    "ltm remember": "ada tabs",
    "ltm import": "ada",
    "ltm configure": "ada --extractor none",
    "import": "mem0 {files}/mem0.json --user ada",
    "runs start": "report",
}
"""Command lines that write what needs nothing else to exist."""

READS = {
    "stores list": "",
    "stores show": "Prefs",
    "stores update": "Prefs --name N",
    "stores archive": "Prefs",
    "stores delete": "Prefs --yes",
    "stores restore": "Prefs --at 2026-01-01T00:00:00Z --yes",
    "stores configure": "",
    "memories list": "Prefs",
    "memories show": "Prefs /a.md",
    "memories put": "Prefs /a.md",
    "memories accept": "Prefs /a.md",
    "memories rename": "Prefs /a.md /b.md",
    "memories delete": "Prefs /a.md --yes",
    "memories search": "Prefs tabs",
    "versions list": "Prefs",
    "versions show": "Prefs memver_x",
    "versions diff": "Prefs memver_x memver_y",
    "versions restore": "Prefs memver_x",
    "versions redact": "Prefs memver_x",
    "sessions create": "--agent a --environment e --store Prefs",
    "sessions list": "",
    "sessions show": "sesn_x",
    "sessions token": "sesn_x",
    "sessions archive": "sesn_x",
    "sessions delete": "sesn_x --yes",
    "keys list": "",
    "keys revoke": "apikey_x",
    "durable list": "agent_7",
    "durable get": "agent_7 owner",
    "durable accept": "agent_7 owner",
    "durable forget": "agent_7 owner",
    "durable search": "agent_7 tabs",
    "durable hydrate": "agent_7",
    "durable explain": "agent_7 owner",
    "durable export": "agent_7 {folder}",
    "durable history": "agent_7",
    "durable agents": "",
    "durable limits": "agent_7",
    "durable sweep": "",
    "runs list": "",
    "runs show": "run_x",
    "runs parts": "run_x",
    "runs versions": "run_x",
    "runs at": "run_x 1",
    "runs messages": "run_x read",
    "runs fork": "run_x",
    "runs compare": "run_x run_y",
    "runs entries": "run_x",
    "runs read": "run_x shared:a",
    "runs watch": "run_x",
    "runs questions": "",
    "runs answer": "run_x --approve",
    "runs cancel": "run_x",
    "runs steer": "run_x on",
    "runs delete": "run_x",
    "ltm status": "ada",
    "ltm recall": "ada tabs",
    "ltm list": "ada",
    "ltm show": "ada item_x",
    "ltm update": "ada item_x --text t",
    "ltm forget": "ada item_x",
    "ltm accept": "ada item_x",
    "ltm reject": "ada item_x",
    "ltm clear": "ada --yes",
    "ltm export": "ada",
    "ltm flush": "ada",
    "ltm retry": "ada",
    "ltm remine": "ada",
    "forget": "--user ada --yes",
    "erasures list": "",
    "consolidate start": "ada",
    "consolidate policy": "ada",
    "consolidate policies": "",
    "consolidate list": "",
    "consolidate show": "cons_x",
    "consolidate accept": "cons_x",
    "consolidate reject": "cons_x",
    "consolidate undo": "cons_x",
    "consolidate resume": "cons_x",
    "consolidate cancel": "cons_x",
    "backup": "{folder}/copy.db",
    "verify": "",
    "scrub": "",
    "doctor": "",
}
"""Command lines that need what only an existing database can hold."""

ELSEWHERE = {
    "serve": "creates; tested where it runs",
    "mcp": "creates; tested where it runs",
    "mount": "creates; tested where it runs",
    "work": "creates; tested where it runs",
    "unmount": "takes no database",
    "restore": "creates from a backup",
    "eval locomo": "takes a file of its own",
    "eval poisoning": "makes its own databases",
}


def argv(name: str, arguments: str, folder: Path) -> list[str]:
    given = [each.format(folder=folder, files=FILES) for each in arguments.split()]
    return [*name.split(), *given]


def test_every_command_is_listed_here() -> None:
    assert CREATES.keys() | READS.keys() | ELSEWHERE.keys() == EXPECTED.keys()


@pytest.mark.parametrize("name", READS)
def test_a_command_that_only_reads_or_changes_creates_no_database(
    line: Run, db: str, tmp_path: Path, name: str
) -> None:
    ran = line(*argv(name, READS[name], tmp_path), "--db", db)

    assert (ran.code, ran.out, ran.err.count("\n")) == (1, b"", 1)
    assert "There is no database" in ran.err
    assert "t.db" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", CREATES)
def test_a_command_that_writes_creates_the_database(
    run: Run, db: str, tmp_path: Path, name: str
) -> None:
    run(*argv(name, CREATES[name], tmp_path))

    assert Path(db).exists()


def test_the_nearest_database_of_the_folder_is_named(line: Run, tmp_path: Path) -> None:
    for name in ("notes.db", "other.sqlite"):
        holdfast.open(tmp_path / name).close()
    (tmp_path / "note.db").write_text("no database", encoding="utf-8")

    ran = line("stores", "list", "--db", str(tmp_path / "note2.db"))

    assert ran.code == 1
    assert "note2.db" in ran.err
    assert "The nearest is 'notes.db'" in ran.err
    assert "other.sqlite" not in ran.err


def test_the_users_own_database_is_not_created_by_reading(
    line: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    ran = line("stores", "list")

    assert ran.code == 1
    assert "holdfast.db" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_stays_empty(line: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()

    ran = line("stores", "list", "--db", str(empty))

    assert ran.code == 1
    assert "empty.db" in ran.err
    assert empty.stat().st_size == 0


def test_a_server_without_our_schema_stays_as_it_is(
    line: Run, postgres_server: PostgresServer
) -> None:
    url = postgres_server.url(postgres_server.new_database())

    ran = line("stores", "list", "--db", url)

    assert ran.code == 1
    assert ran.err.startswith("holdfast: There is no database postgresql://")
    with psycopg.connect(url) as server:
        found = server.execute("select 1 from pg_namespace where nspname = 'holdfast'").fetchone()
    assert found is None
    assert line("stores", "create", "Prefs", "--db", url).code == 0
    assert len(line("stores", "list", "--db", url).data) == 1
