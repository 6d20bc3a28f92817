"""Forget a person or an agent, with a report."""

from msgspec import Struct


class ForgetReport(Struct, frozen=True, kw_only=True):
    """How many rows went, or lost a name, by table, and where bytes of them may still be for now.

    `pending` is empty when nothing of them is in any file of the database.
    """

    counts: dict[str, int]
    pending: tuple[str, ...] = ()
