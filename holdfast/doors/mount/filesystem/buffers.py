"""What is written to a file and not yet saved, and what a memory's content may be.

One buffer serves all handles of a file. It knows how it differs from what was last saved, for that
decides how it is saved: bytes only appended go after whatever the memory is by then, a whole
replacement is unconditional, any other edit holds only for the content it was made on.
"""

import codecs
import sys
from datetime import datetime
from errno import EFBIG, EILSEQ

from msgspec import Struct
from msgspec.structs import replace

from holdfast.memories.stores.validation import CONTENT_BYTES_MAX

SCRATCH_BYTES_MAX = 6 * 1024 * 1024
"""Bytes of one scratch file: vim's swap file of the largest memory, many times over."""

_UNTOUCHED = sys.maxsize
_CHARACTER_MAX = 4
"""Bytes of the longest character."""
_ASCII_END = 0x80
_LEADS = ((0xC0, 2), (0xE0, 3), (0xF0, 4))
"""From which byte on characters begin that have so many bytes."""


def content_fault(content: bytes, *, zeros: bool = False) -> int:
    """Return why *content* cannot be a memory's, EFBIG or EILSEQ, or 0.

    Zero bytes are a fault unless *zeros*.
    """
    if len(content) > CONTENT_BYTES_MAX:
        return EFBIG
    if not zeros and 0 in content:
        return EILSEQ
    if not content.isascii():
        try:
            content.decode()
        except UnicodeDecodeError:
            return EILSEQ
    return 0


def _cut_at_end(content: bytes | bytearray) -> bytes:
    """Return the bytes of a character that is not yet whole at the end of *content*."""
    tail = bytes(content[1 - _CHARACTER_MAX :])
    for back in range(1, len(tail) + 1):
        byte = tail[-back]
        if not _continues(byte):
            whole = max((size for lead, size in _LEADS if byte >= lead), default=1)
            return tail[-back:] if back < whole else b""
    return b""


def _continues(byte: int) -> bool:
    """Tell whether *byte* is in a character and does not begin it."""
    return _ASCII_END <= byte < _LEADS[0][0]


def _is_text(stream: bytes) -> bool:
    """Tell whether *stream* is UTF-8, but for a character that its end may have cut."""
    try:
        codecs.utf_8_decode(stream, "strict", False)
    except UnicodeDecodeError:
        return False
    return True


class Frozen(Struct, frozen=True, kw_only=True):
    """A file's content at one moment, and how it differs from what was there before.

    `appended` is what was added to the base, if nothing else was done.
    """

    content: bytes
    memory_id: str | None
    base_sha256: str | None
    base_size: int
    low: int
    replaced: bool
    zeros: bool

    @property
    def appended(self) -> bytes | None:
        """What goes after whatever the memory is by then; None for other changes."""
        if self.replaced or self.base_sha256 is None or self.low < self.base_size:
            return None
        return self.content[self.base_size :]

    def on(self, earlier: "Frozen") -> "Frozen":
        """Return this, which was made on *earlier*, as made on what that was made on."""
        return replace(
            self,
            memory_id=earlier.memory_id,
            base_sha256=earlier.base_sha256,
            base_size=earlier.base_size,
            low=min(self.low, earlier.low),
            replaced=self.replaced or earlier.replaced,
        )


class Buffer:
    """The bytes of one open file, and their difference to *base*, what was last saved.

    *memory_id* is whose content the base is, None for a file that is new, which is a replacement
    of nothing. *zeros* says whether zero bytes may be in it: None when that is not known yet.
    """

    __slots__ = (
        "base_sha256",
        "base_size",
        "changed_at",
        "data",
        "low",
        "memory_id",
        "replaced",
        "unsaved",
        "version",
        "zeros",
    )

    def __init__(
        self,
        base: bytes,
        changed_at: datetime,
        *,
        memory_id: str | None = None,
        base_sha256: str | None = None,
        zeros: bool | None = False,
    ) -> None:
        self.data = bytearray(base)
        self.changed_at = changed_at
        self.memory_id, self.base_sha256, self.base_size = memory_id, base_sha256, len(base)
        self.low = _UNTOUCHED
        self.replaced = False
        self.unsaved = False
        self.zeros = zeros
        self.version = 0

    def fault(self, data: bytes, offset: int) -> int:
        """Return why a memory cannot hold *data* at *offset*, EFBIG or EILSEQ, or 0.

        What can only be judged with bytes yet to come, a character that the end of a write cuts,
        is no fault. Neither are zero bytes that are not in *data* but between it and the end.
        """
        if offset + len(data) > CONTENT_BYTES_MAX:
            return EFBIG
        if not self.zeros and 0 in data:
            return EILSEQ
        size = len(self.data)
        if offset == size and size and self.data[-1] >= _ASCII_END:
            return 0 if _is_text(_cut_at_end(self.data) + data) else EILSEQ
        if data.isascii():
            return 0
        start = 0
        if 0 < offset != size:
            # What stands before may still be written, and so may begin the first character.
            while start < min(len(data), _CHARACTER_MAX - 1) and _continues(data[start]):
                start += 1
        return 0 if _is_text(data[start:]) else EILSEQ

    def write(self, data: bytes, offset: int, at: datetime) -> None:
        """Put *data* at *offset*; what lies between the end and it becomes zero bytes."""
        own, size = self.data, len(self.data)
        if offset < size:
            own[offset : offset + len(data)] = data
        else:
            if offset > size:
                own.extend(bytes(offset - size))
                offset = size
            own += data
        self._touched(offset, at)

    def truncate(self, length: int, at: datetime) -> None:
        """Cut the file to *length*, or let it grow by zero bytes; to nothing is a replacement."""
        size = len(self.data)
        if length == 0:
            self.data.clear()
            self.replaced = True
        elif length < size:
            del self.data[length:]
        elif length > size:
            self.data.extend(bytes(length - size))
        else:
            return
        self._touched(min(length, size), at)

    def replace(self, content: bytes, at: datetime) -> None:
        """Make *content* all there is."""
        self.data[:] = content
        self.replaced = True
        self._touched(0, at)

    def freeze(self) -> Frozen:
        """Return the file as it is now, to be saved; what is written from now on comes after."""
        frozen = Frozen(
            content=bytes(self.data),
            memory_id=self.memory_id,
            base_sha256=self.base_sha256,
            base_size=self.base_size,
            low=self.low,
            replaced=self.replaced or self.memory_id is None,
            zeros=bool(self.zeros),
        )
        self.base_size = len(self.data)
        self.low, self.replaced, self.unsaved = _UNTOUCHED, False, False
        return frozen

    def thaw(self, frozen: Frozen) -> None:
        """Take back *frozen*, the last that was frozen, which was not saved."""
        self.memory_id = frozen.memory_id
        self.base_sha256, self.base_size = frozen.base_sha256, frozen.base_size
        self.low = min(self.low, frozen.low)
        self.replaced = self.replaced or frozen.replaced
        self.unsaved = True

    def restore(self, frozen: Frozen, *, unsaved: bool) -> None:
        """Be again what *frozen* was, as something saved or *unsaved*."""
        self.data[:] = frozen.content
        self.base_size = len(self.data)
        self.low, self.replaced, self.unsaved = _UNTOUCHED, False, False
        self.version += 1
        if unsaved:
            self.thaw(frozen)

    def rebase(self, content: bytes, *, memory_id: str, base_sha256: str) -> None:
        """Put what was appended since the last save after *content*, which is there by now."""
        tail = self.data[self.base_size :]
        self.data = bytearray(content) + tail
        self.base_size = len(content)
        self.low = self.base_size if tail else _UNTOUCHED
        self.memory_id, self.base_sha256 = memory_id, base_sha256
        self.version += 1

    @property
    def only_appended(self) -> bool:
        """Whether nothing was done since the last save but to add bytes at the end."""
        return not self.replaced and self.low >= self.base_size

    def _touched(self, low: int, at: datetime) -> None:
        self.low = min(self.low, low)
        self.unsaved = True
        self.changed_at = at
        self.version += 1
