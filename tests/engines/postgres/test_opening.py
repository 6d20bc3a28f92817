"""Opening: which databases are fit, which are refused, and that those refused are not touched."""

import ssl
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from proxied import Proxy, proxied

from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.postgres.server import resolve
from holdfast.ground.errors import EngineFault, HoldfastError, InvalidInput, TooNew, Unavailable
from holdfast.ground.events import EventBus
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import PostgresServer

Opened = Callable[[str], PostgresEngine]


@pytest.fixture
def empty_url(postgres_server: PostgresServer) -> str:
    return postgres_server.url(postgres_server.new_database())


def open(url: str, *, migrate: bool = True, events: EventBus | None = None) -> PostgresEngine:
    return PostgresEngine.open(url, clock=FrozenClock(), migrate=migrate, events=events)


def test_processes_that_open_a_new_database_together_all_succeed(empty_url: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        engines = list(pool.map(open, [empty_url] * 6))

    assert {engine.status().ready for engine in engines} == {True}
    for engine in engines:
        engine.close()


def test_opening_says_so_once_it_is_open(empty_url: str) -> None:
    events, heard = EventBus(), list[str]()
    events.subscribe(lambda event: heard.append(event.type))

    open(empty_url, events=events).close()

    assert heard == ["engine.migrated", "engine.opened", "engine.closed"]


def test_without_migrations_what_is_missing_is_listed(empty_url: str) -> None:
    with pytest.raises(Unavailable, match="0001_schema") as caught:
        open(empty_url, migrate=False)

    assert caught.value.reason == "read_only"


def test_a_login_that_may_not_migrate_hears_what_is_missing(
    postgres_server: PostgresServer, empty_url: str
) -> None:
    postgres_server.execute("drop role if exists weak", "create role weak login")

    with pytest.raises(Unavailable, match="0001_schema") as caught:
        open(empty_url.replace("postgres@", "weak@"))

    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    "statements",
    [
        ("create table holdfast.theirs (a integer)",),
        ("create table holdfast.migrations (id integer, name text)",),
    ],
)
def test_a_schema_of_somebody_elses_is_refused(empty_url: str, statements: tuple[str, ...]) -> None:
    with psycopg.connect(empty_url, autocommit=True) as connection:
        for statement in ("create schema holdfast", *statements):
            connection.execute(statement.encode())

        with pytest.raises(InvalidInput, match="another program"):
            open(empty_url)

        tables = connection.execute(
            "select count(*) from pg_class where relnamespace = 'holdfast'::regnamespace"
        ).fetchone()
    assert tables == (1,)


def test_a_schema_of_a_newer_release_is_refused(
    fresh_postgres_url: str, admin: psycopg.Connection
) -> None:
    admin.execute("insert into holdfast.migrations values (9999, 'later', 'x', 0, '9.9')")

    with pytest.raises(TooNew) as caught:
        open(fresh_postgres_url)

    assert caught.value.found == 9999


def test_a_migration_that_changed_after_it_was_applied_is_a_fault(
    fresh_postgres_url: str, admin: psycopg.Connection
) -> None:
    admin.execute("update holdfast.migrations set sha256 = 'other' where number = 1")

    with pytest.raises(EngineFault, match="other"):
        open(fresh_postgres_url)


def test_another_encoding_is_refused(postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        "drop database if exists latin",
        "create database latin template template0 encoding 'LATIN1' locale 'C'",
    )

    with pytest.raises(Unavailable, match="LATIN1"):
        open(postgres_server.url("latin"))


def test_a_server_that_acknowledges_too_early_is_refused_unless_accepted(
    empty_url: str, postgres_server: PostgresServer
) -> None:
    database = empty_url.partition("@/")[2].partition("?")[0]
    postgres_server.execute(f"alter database {database} set synchronous_commit = off")

    with pytest.raises(Unavailable, match="synchronous_commit"):
        open(empty_url)

    engine = open(empty_url + "&durability=off")
    assert engine.status().details["synchronous_commit"] == "off"
    engine.close()


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("postgresql://user:secret@127.0.0.1:1/db", Unavailable),
        ("postgresql://user:secret@/db?host=/nowhere", Unavailable),
        ("postgresql://user:secret@/db?nonsense=1", InvalidInput),
        ("postgresql://user:secret@/db?pool=0", InvalidInput),
        ("postgresql://user:secret@/db?pool=many", InvalidInput),
        ("postgresql://user:secret@/db?prepare=2", InvalidInput),
        ("postgresql://user:secret@/db?durability=maybe", InvalidInput),
    ],
)
def test_what_cannot_be_opened_says_why_without_the_password(
    url: str, error: type[HoldfastError]
) -> None:
    with pytest.raises(error) as caught:
        open(url)

    assert "secret" not in str(caught.value)


def test_a_database_that_is_not_there_is_the_callers_mistake(
    postgres_server: PostgresServer,
) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        open(postgres_server.url("nowhere"))


@pytest.mark.parametrize("mode", ["require", "verify-full"])
def test_a_server_without_tls_is_refused_with_the_setting_that_requires_it(
    postgres_server: PostgresServer, empty_url: str, mode: str
) -> None:
    database = empty_url.partition("@/")[2].partition("?")[0]
    with proxied(postgres_server) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{database}"
        with pytest.raises(Unavailable) as caught:
            open(f"{url}?sslmode={mode}")
        open(f"{url}?sslmode=prefer").close()

    assert f"sslmode={mode}" in caught.value.message
    assert "ssl = on" in caught.value.next
    assert "sslmode=prefer" in caught.value.next
    assert caught.value.reason == "io"


class Certificate:
    """A certificate for *name* that signs itself, and its key, as files in *folder*."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file, self.key_file = folder / f"{name}.crt", folder / f"{name}.key"
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(key, hashes.SHA256())
        )
        self.file.write_bytes(made.public_bytes(Encoding.PEM))
        self.key_file.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )

    @property
    def served(self) -> ssl.SSLContext:
        """The settings of a server that shows it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key_file)
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificate, Certificate]:
    """Give the certificate of this machine, and another one."""
    folder = tmp_path_factory.mktemp("certificates")
    return Certificate(folder, "localhost"), Certificate(folder, "db.example")


def over_tls(url: str, proxy: Proxy, authority: Path) -> str:
    """Return the URL of *url*'s database through *proxy*, verified by *authority*."""
    database = url.partition("@/")[2].partition("?")[0]
    options = f"hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert={authority}"
    return f"postgresql://postgres@localhost:{proxy.port}/{database}?{options}"


def test_a_server_with_a_certificate_that_is_verified_is_opened(
    postgres_server: PostgresServer, empty_url: str, certificates: tuple[Certificate, Certificate]
) -> None:
    ours, _ = certificates
    with proxied(postgres_server, ours.served) as proxy:
        engine = open(over_tls(empty_url, proxy, ours.file))
        assert engine.status().ready
        engine.close()


@pytest.mark.parametrize(
    ("shown", "trusted", "meaning", "then"),
    [
        (0, 1, "signed by no authority in sslrootcert", "Set sslrootcert"),
        (1, 1, "is for another host name", "Put the host name"),
        (0, None, "the file sslrootcert is missing", "Set sslrootcert"),
    ],
    ids=["another authority", "another host", "no authority"],
)
def test_a_server_with_a_certificate_that_cannot_be_verified_is_refused(
    postgres_server: PostgresServer,
    empty_url: str,
    certificates: tuple[Certificate, Certificate],
    *,
    shown: int,
    trusted: int | None,
    meaning: str,
    then: str,
) -> None:
    authority = Path("/nowhere.crt") if trusted is None else certificates[trusted].file
    with (
        proxied(postgres_server, certificates[shown].served) as proxy,
        pytest.raises(Unavailable, match=meaning) as caught,
    ):
        open(over_tls(empty_url, proxy, authority))

    assert caught.value.reason == "io"
    assert caught.value.message.count(".") == 1
    assert caught.value.next.startswith(then)


def test_our_options_are_taken_out_of_the_url() -> None:
    target = resolve("postgresql://u:p@h1:5432,h2:5433/db?pool=3&prepare=0&sslmode=disable")

    assert (target.most, target.prepare, target.durability_off) == (3, False, False)
    assert target.shown == "postgresql://u@h1,h2:5432,5433/db"
    assert "target_session_attrs=read-write" in target.conninfo
    assert "sslmode=disable" in target.conninfo
    assert "pool" not in target.conninfo


def test_settings_hold_within_each_transaction(opened: Opened) -> None:
    asked = """
        select current_setting('statement_timeout') as statement,
            current_setting('lock_timeout') as lock,
            current_setting('idle_in_transaction_session_timeout') as idle,
            current_setting('search_path') as path
    """
    wanted = {"statement": "30s", "lock": "5s", "idle": "30s", "path": "holdfast"}
    engine = opened("&pool=1")

    assert engine.one(dict[str, str], asked) == wanted
    assert engine.read(lambda reader: reader.one(dict[str, str], asked)) == wanted
    assert engine.write(lambda tx: tx.one(dict[str, str], asked)) == wanted


def test_without_the_driver_the_extra_is_named() -> None:
    code = """
        import sys
        sys.modules["psycopg"] = None
        import holdfast
        from holdfast.ground.errors import MissingExtra
        try:
            holdfast.open("postgresql://localhost/db")
        except MissingExtra as error:
            print(error.extra)
    """

    done = subprocess.run(
        [sys.executable, "-c", dedent(code)], capture_output=True, check=True, text=True
    )

    assert done.stdout == "postgres\n"
