"""One thing that is not as it should be."""

from msgspec import Struct


class Finding(Struct, frozen=True, kw_only=True):
    """Which check, where, and what was expected and found; ids, counts and hashes alone."""

    check: str
    table: str
    id: str
    expected: str
    found: str
