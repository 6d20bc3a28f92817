"""The engine's contract on each version of PostgreSQL here, and behind pgbouncer."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from torture.postgres_load import MAKE_SCRATCH, opened, wait_for

from holdfast.engines.postgres import PostgresEngine
from holdfast.testing.contracts.engine import EngineContract
from holdfast.testing.postgres import (
    TEMPLATE,
    PostgresServer,
    binaries,
    running_postgres,
    server_folder,
)

ALL = int(os.environ.get("HOLDFAST_TORTURE_LIVES", "3")) >= 50
_SETTINGS = """[databases]
* = host={server} user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = 3
server_idle_timeout = 1
logfile = {folder}/log
"""
_GIVEN = os.environ.get("HOLDFAST_POSTGRES", "").split(os.pathsep)


def versions() -> list[Path]:
    """Return the programs of each server that is here, or of the oldest one of the package.

    Further folders can be in HOLDFAST_POSTGRES.
    """
    if not ALL:
        return binaries()[:1]
    debian = sorted(each.parent for each in Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return [*binaries(), *debian, *(Path(each) for each in _GIVEN if each)]


def new_database(server: PostgresServer) -> str:
    """Return the name of a new database with our schema and the contract's table."""
    name = server.new_database(TEMPLATE)
    server.execute(*MAKE_SCRATCH, database=name)
    return name


def emptied(server: PostgresServer, name: str) -> None:
    """Empty the contract's table in the database *name*."""
    server.execute("truncate holdfast.scratch", database=name)


@pytest.fixture(scope="module", params=versions(), ids=lambda each: each.parent.name)
def version(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with running_postgres(request.param) as server:
        server.make_template()
        yield server


@pytest.fixture(scope="module")
def on_version(version: PostgresServer) -> str:
    return new_database(version)


class TestOnEachVersion(EngineContract):
    @pytest.fixture
    def engine(self, version: PostgresServer, on_version: str) -> Iterator[PostgresEngine]:
        emptied(version, on_version)
        with opened(version.url(on_version)) as engine:
            yield engine


@pytest.fixture(scope="module")
def pooler(postgres_server: PostgresServer) -> Iterator[Path]:
    """Run pgbouncer in transaction mode before the server; give the folder of its socket."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    with server_folder() as folder:
        settings = folder / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(server=postgres_server.folder, folder=folder))
        command = [program, str(settings)]
        user = "nobody" if os.geteuid() == 0 else None
        with subprocess.Popen(command, user=user, stderr=subprocess.DEVNULL) as process:
            wait_for((folder / ".s.PGSQL.6432").exists)
            yield folder
            process.terminate()


@pytest.fixture(scope="module")
def pooled(postgres_server: PostgresServer) -> str:
    return new_database(postgres_server)


class TestBehindPgbouncer(EngineContract):
    @pytest.fixture(params=["prepare=0", "prepare=1"])
    def engine(
        self,
        request: pytest.FixtureRequest,
        postgres_server: PostgresServer,
        pooler: Path,
        pooled: str,
    ) -> Iterator[PostgresEngine]:
        emptied(postgres_server, pooled)
        url = f"postgresql://postgres@/{pooled}?host={pooler}&port=6432&{request.param}"
        with opened(url) as engine:
            yield engine
