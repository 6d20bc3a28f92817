"""Records of erasures: report, ledger entry, subject link, result of a check."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

SubjectKind: TypeAlias = Literal["user", "agent"]
ErasureState: TypeAlias = Literal["running", "pending", "completed"]
LinkKind: TypeAlias = Literal[
    "thread", "run", "network_run", "durable_entry", "store", "memory", "version", "consolidation"
]
MentionChoice: TypeAlias = Literal["report", "redact", "ignore"]

ERASED: Final = "[erased]"
"""What stands for a name that was redacted."""

ReceiptJSON: TypeAlias = dict[str, Any]
"""A receipt as the JSON object of its file."""


class Unreached(Struct, frozen=True, kw_only=True):
    """Copies that an erasure could not reach: how many, why, and who can."""

    what: str
    count: int
    reason: str
    who: str


class Mentions(Struct, frozen=True, kw_only=True):
    """Objects of one place with a searched name in their text.

    `ids` holds 100 at most, `redacted` is the number of those that contain it no more.
    """

    count: int
    ids: tuple[str, ...] = ()
    redacted: int = 0


class ForgetReport(Struct, frozen=True, kw_only=True):
    """Rows deleted or anonymised, by table, and where data or bytes remain.

    `pending` is empty when no file of the database and no vector provider holds any of them.
    `unreached` is what the process cannot erase, `mentions` the names found in texts of others, by
    place. `receipt` is None while anything is pending.
    """

    counts: dict[str, int]
    pending: tuple[str, ...] = ()
    unreached: tuple[Unreached, ...] = ()
    mentions: dict[str, Mentions] = {}
    receipt: ReceiptJSON | None = None


class ErasureOptions(Struct, frozen=True, kw_only=True):
    """Options of an erasure: what is done about names in texts of others."""

    mentions: MentionChoice = "report"
    names: tuple[str, ...] = ()
    receipt: bool = True


class ErasureSubject(Struct, frozen=True, kw_only=True):
    """The person or the agent to erase."""

    kind: SubjectKind
    name: str


class ErasureRecord(Struct, frozen=True, kw_only=True):
    """An erasure of the ledger. It holds no name: `subject` is a keyed hash."""

    id: str
    kind: SubjectKind
    subject: str
    at: datetime
    state: ErasureState
    completed_at: datetime | None = None
    counts: Mapping[str, int] = {}
    unreached: tuple[Unreached, ...] = ()
    link: str | None = None


class SubjectLink(Struct, frozen=True, kw_only=True):
    """An object that is a person's, and since when that is recorded."""

    user: str
    kind: LinkKind
    id: str
    at: datetime


class ReceiptLine(Struct, frozen=True, kw_only=True):
    """One check of a receipt; `ok` is None if it could not be made."""

    name: str
    ok: bool | None
    says: str


class ReceiptCheck(Struct, frozen=True, kw_only=True):
    """Result of the checks of a receipt, in order; `ok` if none failed."""

    ok: bool
    checks: tuple[ReceiptLine, ...]
