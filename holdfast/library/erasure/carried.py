"""Ledger rows that outlive a restore: carried into the copy."""

from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from holdfast.engines.base import Engine, Reader, Transaction, scalar
from holdfast.ground.scope import EVERYBODY
from holdfast.library.erasure.ledger import LedgerRow, statements


class CarriedErasure(LedgerRow, frozen=True, kw_only=True):
    """A row of the ledger with its workspace, and the secret of its hashes."""

    workspace: str
    secret: bytes


class CarriedBackup(Struct, frozen=True, kw_only=True):
    """A backup that was made, which may hold what was erased since."""

    at: int
    seq: int
    rows: int
    name: str


class CarriedLedger(Struct, frozen=True, kw_only=True):
    """The ledger of all workspaces of a database, and its list of backups."""

    erasures: tuple[CarriedErasure, ...] = ()
    backups: tuple[CarriedBackup, ...] = ()


def ledger_of(reader: Reader, engine: Engine) -> CarriedLedger:
    """Return the ledger of the database of *reader*, which sees all owners."""
    sql = statements(engine)
    return CarriedLedger(
        erasures=tuple(reader.all(CarriedErasure, sql.carried_erasures)),
        backups=tuple(reader.all(CarriedBackup, sql.carried_backups)),
    )


def carry_secrets(engine: Engine, ledger: CarriedLedger) -> None:
    """Give *engine* the secrets of *ledger*, for workspaces that have none there.

    Before anything is forgotten there, which would make a secret of its own.
    """
    sql = statements(engine)
    secrets = {each.workspace: each.secret for each in ledger.erasures}

    def work(tx: Transaction) -> None:
        for workspace, secret in secrets.items():
            tx.run(sql.carry_secret, of=workspace, secret=secret)

    engine.scoped(EVERYBODY).write(work)


def carry_ledger(engine: Engine, ledger: CarriedLedger) -> None:
    """Write the rows of *ledger* to *engine*.

    It has secrets from `carry_secrets`. Rows of a workspace that hashes with another secret there
    are left out.
    """
    sql = statements(engine)

    def work(tx: Transaction) -> None:
        for each in ledger.erasures:
            if tx.one(scalar, sql.carried_secret, of=each.workspace) == each.secret:
                facts: dict[str, Any] = asdict(each)
                del facts["secret"]
                tx.run(sql.carry_erasure, of=facts.pop("workspace"), **facts)
        for backup in ledger.backups:
            tx.run(sql.put_backup, **asdict(backup))

    engine.scoped(EVERYBODY).write(work)
