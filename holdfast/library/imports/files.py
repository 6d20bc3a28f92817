"""Read files of an import as streams: archives by member, JSON by element."""

import codecs
import json
import stat
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, Final, cast

from holdfast.ground.errors import InvalidInput
from holdfast.library.imports.records import ImportLog

FILE_BYTES: Final = 1 << 30
"""Bytes of a file, and of all members of an archive together that are read."""
ELEMENT_BYTES: Final = 1 << 26
"""Characters of one record, such as a conversation."""
MEMBERS_MOST: Final = 200_000
RATIO_MOST: Final = 400
"""Bytes from one compressed byte. Text of conversations has 4 to 20; a bomb has 1,000."""
_RATIO_FROM: Final = 1 << 20
_METHODS: Final = frozenset((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
_CHUNK: Final = 1 << 16
_NUMBER_END: Final = 3
"""Characters that must follow a number for it to be whole: `1e+` may go on as `1e+5`."""
_ZIP: Final = b"PK\x03\x04"
_BLANK: Final = " \t\r\n"

Readable = str | PathLike[str] | BinaryIO
"""A path, or an open binary file."""


@contextmanager
def opened(file: Readable) -> Generator[tuple[str, BinaryIO]]:
    """Open *file* and give its name; raise InvalidInput for what is no regular file."""
    if not isinstance(file, str | PathLike):
        name = getattr(file, "name", None)
        yield (Path(name).name if isinstance(name, str) else "file"), file
        return
    path = Path(fspath(file))
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput("files", "must be regular files", given=str(path))
        if found.st_size > FILE_BYTES:
            raise _too_large(str(path))
        content = path.open("rb")
    except OSError as error:
        raise InvalidInput("files", f"cannot be read: {error.strerror}", given=str(path)) from None
    with content:
        yield path.name, content


def _too_large(name: str) -> InvalidInput:
    return InvalidInput(
        "files", f"must have at most {FILE_BYTES:,} bytes", limit=FILE_BYTES, given=name
    )


def members(
    name: str, content: BinaryIO, wanted: Callable[[str], bool], log: ImportLog
) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the *wanted* members of a zip archive, or the file itself if it is none.

    Nothing is unpacked to disk. Members that are not wanted are counted in *log*. Raise
    InvalidInput for an archive that is damaged, encrypted, or that would unpack to too much.
    """
    head = content.read(len(_ZIP))
    content.seek(0)
    if head != _ZIP:
        yield name, cast("BinaryIO", _limited(content, FILE_BYTES, name))
        return
    try:
        archive = zipfile.ZipFile(content)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        raise InvalidInput("files", "is a damaged zip archive", given=name) from None
    with archive:
        room = FILE_BYTES
        for each in _chosen(archive, name, wanted, log):
            with _member(archive, each, name) as member:
                limited = _Limited(member, room, name)
                yield f"{name}/{each.filename}", cast("BinaryIO", BufferedReader(limited, _CHUNK))
                room -= limited.taken


def _chosen(
    archive: zipfile.ZipFile, name: str, wanted: Callable[[str], bool], log: ImportLog
) -> list[zipfile.ZipInfo]:
    every = archive.infolist()
    if len(every) > MEMBERS_MOST:
        reason = f"has more than {MEMBERS_MOST:,} members"
        raise InvalidInput("files", reason, limit=MEMBERS_MOST, given=name)
    chosen: list[zipfile.ZipInfo] = []
    for each in every:
        _check_path(each, name)
        if each.is_dir() or each.filename.startswith("__MACOSX/"):
            continue
        if wanted(each.filename):
            _check_size(each, name)
            chosen.append(each)
        else:
            log.leave(_kind_of_file(each.filename))
    if sum(each.file_size for each in chosen) > FILE_BYTES:
        raise _too_large(name)
    return sorted(chosen, key=lambda each: each.filename)


def _kind_of_file(path: str) -> str:
    """Return the name under which a file that is not read is counted."""
    found = PurePosixPath(path)
    return found.name if found.suffix in {".json", ".html"} else f"*{found.suffix or found.name}"


def _check_path(each: zipfile.ZipInfo, name: str) -> None:
    path = each.orig_filename.replace("\\", "/")
    drive = path[1:2] == ":"
    links = stat.S_ISLNK(each.external_attr >> 16)
    if path.startswith("/") or drive or ".." in path.split("/") or "\0" in path or links:
        raise InvalidInput(
            "files", "has a member that leads out of the archive", given=f"{name}: {path}"
        )


def _check_size(each: zipfile.ZipInfo, name: str) -> None:
    if each.flag_bits & 1:
        raise InvalidInput("files", "is encrypted", given=name, next="Unpack it first.")
    if each.compress_type not in _METHODS:
        raise InvalidInput("files", "is compressed by another method than deflate", given=name)
    if each.file_size > _RATIO_FROM and each.file_size > RATIO_MOST * max(1, each.compress_size):
        reason = "has a member that is compressed far more than text is"
        raise InvalidInput("files", reason, given=f"{name}: {each.filename}")


@contextmanager
def _member(archive: zipfile.ZipFile, each: zipfile.ZipInfo, name: str) -> Generator[IO[bytes]]:
    try:
        member = archive.open(each)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError):
        raise InvalidInput("files", "is a damaged zip archive", given=name) from None
    with member:
        yield member


class _Limited(RawIOBase):
    """A stream that refuses to give more than *most* bytes, whatever its head says."""

    def __init__(self, stream: IO[bytes], most: int, name: str) -> None:
        self._stream, self._most, self._name = stream, most, name
        self.taken = 0

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill *buffer*; raise InvalidInput at the limit, and for damaged content."""
        try:
            chunk = self._stream.read(len(buffer))
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
            raise InvalidInput("files", "is damaged", given=self._name) from error
        self.taken += len(chunk)
        if self.taken > self._most:
            raise _too_large(self._name)
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _limited(stream: BinaryIO, most: int, name: str) -> BufferedReader:
    return BufferedReader(_Limited(stream, most, name), _CHUNK)


# JSON by element: a top-level list, or the lists that a top-level object has, are read an element
# at a time. An element is decoded from a buffer that doubles until it is whole.


class BrokenJSON(Exception):
    """The text is no JSON from here on."""


class _Text:
    """The text of a stream, as far as it has been read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._ended = False
        self._whole = json.JSONDecoder(parse_constant=_refused)
        self.buffer, self.at = "", 0

    def _fill(self) -> bool:
        """Read as much again as the buffer has; return False at the end."""
        if self._ended:
            return False
        self.buffer, self.at = self.buffer[self.at :], 0
        chunk = self._stream.read(max(_CHUNK, len(self.buffer)))
        self._ended = not chunk
        try:
            self.buffer += self._decode(chunk, final=self._ended)
        except UnicodeDecodeError:
            raise BrokenJSON("it is not UTF-8") from None
        return bool(chunk)

    def peek(self) -> str:
        """Return the next character that is not blank, or "" at the end."""
        while True:
            while self.at < len(self.buffer):
                if self.buffer[self.at] not in _BLANK:
                    return self.buffer[self.at]
                self.at += 1
            if not self._fill():
                return ""

    def take(self, wanted: str) -> None:
        """Skip the character *wanted*; raise BrokenJSON for another."""
        if self.peek() != wanted:
            raise BrokenJSON(f"{wanted!r} was expected")
        self.at += 1

    def value(self) -> object:
        """Decode the next value."""
        self.peek()
        while True:
            try:
                value, end = self._whole.raw_decode(self.buffer, self.at)
            except RecursionError:
                raise BrokenJSON("it is nested too deeply") from None
            except ValueError:
                self._more()
                continue
            # A number may go on in what is not read yet.
            number = isinstance(value, int | float)
            if number and len(self.buffer) - end < _NUMBER_END and self._fill():
                continue
            self.at = end
            return value

    def _more(self) -> None:
        if len(self.buffer) - self.at > ELEMENT_BYTES:
            raise BrokenJSON(f"a record is broken, or has more than {ELEMENT_BYTES:,} characters")
        if not self._fill():
            raise BrokenJSON("the file ends within a record, or is broken there")


def _refused(name: str) -> object:
    raise ValueError(name)


def elements(stream: BinaryIO, lists: frozenset[str]) -> Iterator[tuple[str, object]]:
    """Yield each element of the list in *stream*, under "".

    If the text is an object: yield each element of those of its members that *lists* names, and
    each other member whole, under the member's name. Raise BrokenJSON where the text is no JSON.
    """
    text = _Text(stream)
    first = text.peek()
    if first == "[":
        yield from (("", each) for each in _list(text))
    elif first == "{":
        yield from _object(text, lists)
    else:
        raise BrokenJSON("it is no JSON list or object" if first else "it is empty")
    if text.peek():
        raise BrokenJSON("more follows after the end of the JSON")


def _list(text: _Text) -> Iterator[object]:
    text.take("[")
    if text.peek() == "]":
        text.take("]")
        return
    while True:
        yield text.value()
        if text.peek() == "]":
            text.take("]")
            return
        text.take(",")


def _object(text: _Text, lists: frozenset[str]) -> Iterator[tuple[str, object]]:
    text.take("{")
    if text.peek() == "}":
        text.take("}")
        return
    while True:
        name = text.value()
        if not isinstance(name, str):
            raise BrokenJSON("an object has a key that is no text")
        text.take(":")
        if name in lists and text.peek() == "[":
            yield from ((name, each) for each in _list(text))
        else:
            yield name, text.value()
        if text.peek() == "}":
            text.take("}")
            return
        text.take(",")


def documents(
    name: str, stream: BinaryIO, lists: frozenset[str], log: ImportLog
) -> Iterator[tuple[str, str, Any]]:
    """Yield `elements` of the file *name* with their places; *log* what is broken."""
    number = 0
    try:
        for key, each in elements(stream, lists):
            number += 1
            yield f"{name}, record {number:,}", key, each
    except BrokenJSON as broken:
        place = f"{name}, after record {number:,}" if number else name
        log.unlike("text that is no JSON", place, str(broken))


def json_lines(name: str, stream: BinaryIO, log: ImportLog) -> Iterator[tuple[str, Any]]:
    """Yield the values of lines of *name* with their places; *log* broken ones."""
    for number, value in _numbered(stream):
        place = f"{name}, line {number:,}"
        if isinstance(value, BrokenJSON):
            log.unlike("text that is no JSON", place, str(value))
        else:
            yield place, value


def _numbered(stream: BinaryIO) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(_lines(stream), start=1):
        if line is None:
            reason = f"it has more than {ELEMENT_BYTES:,} bytes"
            yield number, BrokenJSON(reason)
        elif line.strip():
            yield number, _line(line)


def _line(line: bytes) -> object:
    try:
        text = line.decode("utf-8-sig")
        return json.loads(text, parse_constant=_refused)
    except UnicodeDecodeError:
        return BrokenJSON("it is not UTF-8")
    except (ValueError, RecursionError):
        return BrokenJSON("it is no JSON")


def _lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """Yield each line, None for one that is too long."""
    while line := stream.readline(ELEMENT_BYTES):
        if len(line) < ELEMENT_BYTES or line.endswith(b"\n"):
            yield line
            continue
        while (rest := stream.readline(ELEMENT_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield None
