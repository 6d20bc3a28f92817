"""Ledger of erasures: rows before a deletion, completed after it, in a chain."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from holdfast.engines.base import Engine, Reader, Transaction, scalar
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none, to_rfc3339
from holdfast.ground.errors import NotFound
from holdfast.ground.events import Event
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import EVERYBODY, Scope, user_hash
from holdfast.library.erasure.receipt import (
    TYPE,
    VERSION,
    canonical,
    link_of,
    mac_of,
    seal,
    subject_text,
)
from holdfast.library.erasure.records import (
    ErasureRecord,
    ErasureState,
    ErasureSubject,
    ReceiptJSON,
    ReceiptLine,
    SubjectKind,
    Unreached,
)
from holdfast.memories.durable.records import agent_hash
from holdfast.memories.stores.rows import StoresContext

QUERIES: Final = "holdfast.library.erasure"
SECRET_BYTES: Final = 32
LISTED: Final = 100


ERASURES: Final = REGISTRY.counter(
    "erasures_total",
    "Erasures of people and agents.",
    kind=("user", "agent"),
    outcome=("completed", "pending"),
)
UNREACHED: Final = REGISTRY.counter(
    "erasure_unreached", "Copies that erasures could not reach, as their receipts count them."
)


class LedgerRow(Struct, frozen=True, kw_only=True):
    """A row of the ledger; instants are microseconds since 1970."""

    id: str
    number: int
    kind: SubjectKind
    subject: bytes
    at: int
    seq: int
    state: ErasureState
    completed_at: int | None
    counts: str
    unreached: str
    pending: str
    actor: str
    receipt: str | None
    link: str | None
    mac: str | None
    names: str = "[]"

    @property
    def record(self) -> ErasureRecord:
        """The row as a record."""
        return ErasureRecord(
            id=self.id,
            kind=self.kind,
            subject=subject_text(self.subject),
            at=from_microseconds(self.at),
            state=self.state,
            completed_at=from_microseconds_or_none(self.completed_at),
            counts=self.counted,
            unreached=self.places,
            link=self.link,
        )

    @property
    def counted(self) -> dict[str, int]:
        """Deleted rows by table, so far."""
        return msgspec.json.decode(self.counts, type=dict[str, int])

    @property
    def places(self) -> tuple[Unreached, ...]:
        """What was not reached."""
        return msgspec.json.decode(self.unreached, type=tuple[Unreached, ...])

    @property
    def vectors(self) -> tuple["OutsideVectors", ...]:
        """Vectors that are still to be deleted elsewhere."""
        return msgspec.json.decode(self.pending, type=tuple[OutsideVectors, ...])

    @property
    def redacted(self) -> tuple["NameHash", ...]:
        """The names that were redacted in texts of others."""
        return msgspec.json.decode(self.names, type=tuple[NameHash, ...])

    @property
    def sealed(self) -> ReceiptJSON | None:
        """The receipt, once completed."""
        if self.receipt is None:
            return None
        return msgspec.json.decode(self.receipt, type=dict[str, Any])


class OutsideVectors(Struct, frozen=True, kw_only=True):
    """A collection of vectors in a provider outside the database."""

    provider: str
    collection: str


class NameHash(Struct, frozen=True, kw_only=True):
    """A name that was redacted: its keyed hash, and its length in code points."""

    length: int
    hash: bytes


class Proof(Struct, frozen=True, kw_only=True):
    """Result of the separate pass after a deletion: what was looked at, and found."""

    tables: int
    rows_scanned: int
    files: int
    needles: int
    found: int


def whole(context: StoresContext) -> Engine:
    """Return the engine of *context* in the scope of all agents and users."""
    return context.engine.scoped(Scope(workspace=context.workspace, agent="*", user="*"))


def statements(engine: Engine) -> SimpleNamespace:
    """Return the statements of erasures in the dialect of *engine*."""
    return engine.queries(QUERIES)


def subject_hash(secret: bytes, subject: ErasureSubject) -> bytes:
    """Return the keyed hash of the name of *subject*."""
    if subject.kind == "user":
        return user_hash(secret, subject.name)
    return agent_hash(secret, subject.name)


def begin(
    context: StoresContext,
    subject: ErasureSubject,
    hashed_names: Callable[[bytes], tuple[NameHash, ...]],
) -> LedgerRow:
    """Write the row of a new erasure of *subject*, before anything is deleted.

    *hashed_names* returns the hashes, with the workspace's secret, of the names that are redacted.
    """
    engine = whole(context)
    sql = statements(engine)

    def work(tx: Transaction) -> LedgerRow:
        tx.run(sql.make_workspace_secret, secret=secrets.token_bytes(SECRET_BYTES))
        secret = tx.one(scalar, sql.workspace_secret)
        hashed = subject_hash(secret, subject)
        now = context.now()
        id = context.ids.new("eras", now)
        named = context.actor.id == subject.name
        actor = {"type": context.actor.kind, "id": "the subject" if named else context.actor.id}
        tx.run(
            sql.begin,
            id=id,
            kind=subject.kind,
            subject=hashed,
            at=now,
            seq=tx.seq,
            actor=msgspec.json.encode(actor).decode(),
            names=encoded(hashed_names(secret)),
        )
        row = tx.one(LedgerRow, sql.get_erasure, id=id)
        tx.note(_event(context, "started", row))
        return row

    return engine.write(work)


def _event(context: StoresContext, what: str, row: LedgerRow, **data: int) -> Event:
    shown = msgspec.json.decode(row.actor)["id"] == context.actor.id
    return Event(
        type=f"erasure.{what}",
        at=from_microseconds(context.now()),
        workspace=context.workspace,
        actor=context.actor if shown else None,
        ids={"erasure_id": row.id},
        data={"kind": row.kind, **data},
    )


def row_of(reader: Reader, sql: SimpleNamespace, id: str) -> LedgerRow:
    """Return the row *id*; raise NotFound if the workspace has none."""
    row = reader.first(LedgerRow, sql.get_erasure, id=id)
    if row is None:
        raise NotFound("erasure", id)
    return row


def add_counts(tx: Transaction, sql: SimpleNamespace, id: str, counts: Mapping[str, int]) -> None:
    """Add *counts* to those of the erasure *id*, in the transaction of the deletion."""
    known = row_of(tx, sql, id).counted
    for table, rows in counts.items():
        if rows:
            known[table] = known.get(table, 0) + rows
    tx.run(sql.set_counts, id=id, counts=msgspec.json.encode(known, order="sorted").decode())


def encoded(value: object) -> str:
    """Return *value* as the JSON of a column."""
    return msgspec.json.encode(value).decode()


def put_pending(
    context: StoresContext,
    row: LedgerRow,
    unreached: tuple[Unreached, ...],
    vectors: tuple[OutsideVectors, ...],
) -> LedgerRow:
    """Record that the erasure is not complete, and which vectors remain."""
    engine = whole(context)
    sql = statements(engine)

    def work(tx: Transaction) -> LedgerRow:
        tx.run(
            sql.set_pending,
            id=row.id,
            pending=encoded(vectors),
            unreached=encoded(unreached),
        )
        if row.state != "pending":
            tx.note(_event(context, "pending", row))
        return row_of(tx, sql, row.id)

    return engine.write(work)


def complete(
    context: StoresContext,
    row: LedgerRow,
    unreached: tuple[Unreached, ...],
    proof: Proof,
    *,
    key: Any,
) -> LedgerRow:
    """Seal the receipt of the erasure at the end of the chain."""
    engine = whole(context)
    sql = statements(engine)

    def work(tx: Transaction) -> LedgerRow:
        tx.all(scalar, sql.hold_chain)
        found = row_of(tx, sql, row.id)
        if found.state == "completed":
            return found
        end = tx.first(SimpleNamespace, sql.chain_end)
        now = context.now()
        facts = facts_of(context.workspace, found, unreached, proof)
        facts["completed_at"] = to_rfc3339(from_microseconds(now))
        facts["previous"] = facts["workspace_sha256"] if end is None else end.link
        receipt = seal(facts, secret=tx.one(scalar, sql.workspace_secret), key=key)
        tx.run(
            sql.complete,
            id=row.id,
            number=1 if end is None else end.number + 1,
            now=now,
            unreached=encoded(unreached),
            receipt=canonical(receipt).decode(),
            link=receipt["link"],
            mac=receipt["mac"],
        )
        rows = sum(found.counted.values())
        tx.note(_event(context, "completed", found, rows=rows))
        return row_of(tx, sql, row.id)

    return engine.write(work)


def facts_of(
    workspace: str, row: LedgerRow, unreached: tuple[Unreached, ...], proof: Proof
) -> ReceiptJSON:
    """Return what a receipt says of the erasure *row*, without its seals."""
    return {
        "type": TYPE,
        "version": VERSION,
        "id": row.id,
        "release": version("holdfast"),
        "workspace_sha256": workspace_sha256(workspace),
        "subject": subject_text(row.subject),
        "subject_kind": row.kind,
        "requested_at": to_rfc3339(from_microseconds(row.at)),
        "actor": msgspec.json.decode(row.actor),
        "counts": row.counted,
        "verified": msgspec.to_builtins(proof),
        "unreached": msgspec.to_builtins(unreached),
        "pending": [],
    }


def workspace_sha256(workspace: str) -> str:
    """Return what stands for the workspace in a receipt."""
    return sha256(workspace.encode()).hexdigest()


def check_ledger(
    reader: Reader, sql: SimpleNamespace, workspace: str, receipt: ReceiptJSON
) -> Iterator[ReceiptLine]:
    """Yield the checks of *receipt* against the ledger: MAC, its row, the chain."""
    secret = reader.first(scalar, sql.workspace_secret)
    mac = secret is not None and receipt["mac"] == mac_of(secret, receipt["link"])
    says = "is of this workspace's key" if mac else "is not of this workspace's key"
    yield ReceiptLine(name="mac", ok=mac, says=says)
    row = reader.first(LedgerRow, sql.get_erasure, id=str(receipt["id"]))
    same = row is not None and row.sealed == receipt
    says = "has this receipt" if same else "has no such receipt"
    yield ReceiptLine(name="ledger", ok=same, says=says)
    count, ok = _chain(reader, sql, workspace)
    says = f"whole, {count} receipts" if ok else f"broken after {count} receipts"
    yield ReceiptLine(name="chain", ok=ok, says=says)


def _chain(reader: Reader, sql: SimpleNamespace, workspace: str) -> tuple[int, bool]:
    """Return how many receipts follow each other, and whether these are all."""
    previous = workspace_sha256(workspace)
    count = 0
    for receipt, link in reader.rows(sql.chain):
        found = msgspec.json.decode(receipt, type=dict[str, Any])
        if found["previous"] != previous or link_of(found) != link or found["link"] != link:
            return count, False
        previous, count = link, count + 1
    return count, True


def subject_of(reader: Reader, sql: SimpleNamespace, row: LedgerRow) -> ErasureSubject | None:
    """Return the subject of *row* if the database of *reader* has its name."""
    secret = reader.first(scalar, sql.workspace_secret)
    if secret is None:
        return None
    names = sql.names_in_workspace if row.kind == "user" else sql.agents_in_workspace
    found: list[str] = reader.all(scalar, names)
    if row.kind == "user":
        found += reader.all(scalar, sql.users_of_stores)
    subjects = (ErasureSubject(kind=row.kind, name=name) for name in found)
    return next((each for each in subjects if subject_hash(secret, each) == row.subject), None)


# Rows that outlive a restore


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
    known = {each.workspace: each.secret for each in ledger.erasures}

    def work(tx: Transaction) -> None:
        for workspace, secret in known.items():
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
