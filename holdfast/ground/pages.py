"""Pages of a list, and the opaque cursors between them.

A cursor is self-contained, so it is valid on another server process and after a restart: it
holds the list it belongs to, a digest of the filters, and the last key returned.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Final, Generic, TypeVar

import msgspec

from holdfast.ground.errors import InvalidInput

T = TypeVar("T")
K = TypeVar("K", str, int)
Key = list[str | int]

NEWEST: Final = 2**63 - 1
"""The key before the first row of a list that begins with the greatest number."""

FORMAT = 1
PREFIX = "page_"


class Page(Generic[T]):
    """One page of a list: `data`, and `next_page`, the cursor of the next or None.

    Iterating yields the items of this page; `all()` also fetches the following pages. In a list
    as of an earlier moment `erased` counts rows that were there and were erased since.
    """

    __slots__ = ("_more", "data", "erased", "next_page", "prev_page")

    def __init__(
        self,
        data: list[T],
        next_page: str | None = None,
        *,
        prev_page: str | None = None,
        erased: int = 0,
        more: "Callable[[str], Page[T]] | None" = None,
    ) -> None:
        self.erased = erased
        self.data, self.next_page, self.prev_page, self._more = data, next_page, prev_page, more

    def __iter__(self) -> Iterator[T]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"Page(data={self.data!r}, next_page={self.next_page!r})"

    def all(self) -> Iterator[T]:
        """Yield every item of the list, fetching further pages as needed."""
        page = self
        while True:
            yield from page.data
            if page.next_page is None or page._more is None:
                return
            page = page._more(page.next_page)


class _Cursor(msgspec.Struct, array_like=True, frozen=True):
    format: int
    list: str
    digest: str
    backward: bool
    key: Key


def digest(*filters: object) -> str:
    """Return a short digest of *filters*, to compare with a cursor's."""
    return sha256(repr(filters).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def write_cursor(list: str, digest: str, key: Key, *, backward: bool = False) -> str:
    """Return the cursor after *key* in *list* with the filters of *digest*."""
    body = msgspec.json.encode(_Cursor(FORMAT, list, digest, backward, key))
    return PREFIX + urlsafe_b64encode(sha256(body).digest()[:6] + body).decode().rstrip("=")


def read_cursor(list: str, digest: str, given: object) -> tuple[Key, bool]:
    """Return the key that *given* stands after, and whether it pages backward.

    InvalidInput when it was cut or altered, or belongs to another list or other filters.
    """
    if not isinstance(given, str):
        raise _bad_cursor("must be a string")
    try:
        raw = given.removeprefix(PREFIX)
        packed = urlsafe_b64decode(raw + "=" * (-len(raw) % 4))
        cursor = msgspec.json.decode(packed[6:], type=_Cursor)
        whole = (
            given.startswith(PREFIX)
            and sha256(packed[6:]).digest()[:6] == packed[:6]
            and urlsafe_b64encode(packed).decode().rstrip("=") == raw
        )
    except (ValueError, msgspec.DecodeError):
        raise _bad_cursor("is not a cursor of ours, or was cut or altered") from None
    if not whole or cursor.format != FORMAT:
        raise _bad_cursor("is not a cursor of ours, or was cut or altered")
    if (cursor.list, cursor.digest) != (list, digest):
        raise _bad_cursor("belongs to another list, or to other filters")
    return cursor.key, cursor.backward


def read_key(list: str, digest: str, given: object, kind: type[K]) -> K:
    """Return the only value of the key of *given*, a *kind*; see `read_cursor`.

    No number is beyond 64 bits, and no text has U+0000.
    """
    key, _ = read_cursor(list, digest, given)
    match key:
        case [value] if isinstance(value, kind) and _is_storable(value):
            return value
        case _:
            raise no_cursor()


def _is_storable(value: str | int) -> bool:
    return "\0" not in value if isinstance(value, str) else abs(value) < NEWEST


def _bad_cursor(reason: str) -> InvalidInput:
    return InvalidInput("page", reason, next="Start again without page, or send the same filters.")


def no_cursor() -> InvalidInput:
    """Return the error for the cursor of another list."""
    return InvalidInput("page", "is not a cursor of this list", next="Start again without page.")


def place_in(key: Key) -> tuple[int, str]:
    """Return the instant and the id in *key*; InvalidInput for another list's."""
    match key:
        case [int(started_at), str(run_id)] if "\0" not in run_id:
            return started_at, run_id
        case _:
            raise no_cursor()
