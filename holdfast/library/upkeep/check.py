"""One thing that a doctor looked at."""

from msgspec import Struct


class Check(Struct, frozen=True, kw_only=True):
    """One thing looked at: whether it is well, and what there is to say of it."""

    name: str
    ok: bool
    says: str
