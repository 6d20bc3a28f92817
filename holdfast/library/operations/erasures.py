"""Operations on the ledger of erasures, and on links of objects to people."""

from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.ground.clock import to_rfc3339
from holdfast.library.erasure.erasures import Erasures, Subjects
from holdfast.library.erasure.records import ErasureRecord, ReceiptCheck, SubjectLink
from holdfast.library.operations.base import Operation, OperationTable, Param, WireForm

_ERASURES: Final = "/api/erasures"
_SUBJECTS: Final = "/api/subjects"


class CheckReceipt(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The receipt to check, the stored one without it, and whom it should be about."""

    receipt: dict[str, Any] | None = None
    user: str | None = None
    agent: str | None = None


class LinkSubject(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The object that is a person's."""

    kind: str
    id: str
    user: str


def erasure_to_wire(erasure: ErasureRecord) -> dict[str, Any]:
    """Return *erasure* as the JSON object of the wire."""
    completed = erasure.completed_at
    return {
        "type": "erasure",
        **msgspec.to_builtins(erasure),
        "at": to_rfc3339(erasure.at),
        "completed_at": completed and to_rfc3339(completed),
    }


def link_to_wire(link: SubjectLink) -> dict[str, Any]:
    """Return *link* as the JSON object of the wire."""
    return {"type": "subject", **msgspec.to_builtins(link), "at": to_rfc3339(link.at)}


def _check_to_wire(check: ReceiptCheck) -> dict[str, Any]:
    return {"type": "receipt_check", **msgspec.to_builtins(check)}


def _receipt(wire: Any) -> dict[str, Any]:
    return msgspec.convert(wire, dict[str, Any])


_ERASURE: Final = WireForm(erasure_to_wire, partial(msgspec.convert, type=ErasureRecord))
_LINK: Final = WireForm(link_to_wire, partial(msgspec.convert, type=SubjectLink))
_CHECK: Final = WireForm(_check_to_wire, partial(msgspec.convert, type=ReceiptCheck))
_get = partial(Operation, method="GET", scope="admin", lane="slow")
_post = partial(Operation, method="POST", scope="admin", lane="slow")

ERASURES: Final = OperationTable(
    facade=Erasures,
    operations=(
        _get("erasures.list", _ERASURES, "List erasures, newest first.", _ERASURE, paged=True),
        _get(
            "erasures.receipt",
            f"{_ERASURES}/{{id}}",
            "Retrieve the receipt of an erasure.",
            WireForm(_receipt, _receipt),
        ),
        _post(
            "erasures.check",
            f"{_ERASURES}/{{id}}/verify",
            "Verify a receipt against the ledger and every table; nothing is changed.",
            _CHECK,
            params=CheckReceipt,
            optional=True,
            retry="safe",
        ),
    ),
)
SUBJECTS: Final = OperationTable(
    facade=Subjects,
    operations=(
        _post(
            "subjects.link",
            _SUBJECTS,
            "Record that an object is a person's.",
            _LINK,
            params=LinkSubject,
            retry="safe",
        ),
        _get(
            "subjects.list",
            _SUBJECTS,
            "List the objects that are people's.",
            _LINK,
            special={"user": Param(type=str)},
            paged=True,
        ),
    ),
)
