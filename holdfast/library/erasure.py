"""Report of forgetting a person or an agent."""

from msgspec import Struct


class ForgetReport(Struct, frozen=True, kw_only=True):
    """Rows deleted or anonymised, by table, and where their bytes remain.

    `pending` is empty when no file of the database holds any of them.
    """

    counts: dict[str, int]
    pending: tuple[str, ...] = ()
