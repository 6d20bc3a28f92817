"""Rules of the game: opening, writing, truncating, saving and closing files."""

import os
from collections.abc import Callable
from errno import EEXIST, EILSEQ, EIO

from doors.mount.core.drawn import (
    File,
    Opened,
    begin,
    is_text,
    parent,
    truncate,
    write,
)
from doors.mount.core.driven import Driven, Handle, refused
from doors.mount.core.play import Table
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from holdfast.doors.mount.names import Kind

DIRS = ["", "/d", "/d/e", "/f", "/g"]
PLAIN = ["a.md", "b.md", "c.md"]
NAMES = [*PLAIN, *PLAIN, "t.tmp", "u.tmp", ".s.swp"]

picks = st.integers(min_value=0, max_value=40)
dirs = st.sampled_from(DIRS)
paths = st.builds("{}/{}".format, dirs, st.sampled_from(NAMES))
plain_paths = st.builds("{}/{}".format, dirs, st.sampled_from(PLAIN))
places = st.sampled_from(["start", "end", "end", "beyond"])
ways = st.sampled_from(
    [os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC, os.O_RDONLY]
)


def any_file(file: File) -> bool:
    """Want every file."""
    return file.path is not None


has_handles = precondition(lambda self: bool(self.table.opened))


class FileRules(RuleBasedStateMachine):
    """Does to files of a mount what it draws. Files and handles go by number, modulo how many."""

    def __init__(self, fresh: Callable[[], Driven]) -> None:
        super().__init__()
        self.first = fresh()
        self.table = Table(self.first)

    @property
    def mount(self) -> Driven:
        return self.table.mount

    def teardown(self) -> None:
        self.first.end()

    def file(self, pick: int, wanted: Callable[[File], bool]) -> File | None:
        """Return one of the files that are *wanted*."""
        found = [each for _, each in sorted(self.table.files.items()) if wanted(each)]
        return found[pick % len(found)] if found else None

    def here(self, path: str) -> str:
        """Return *path*, or its name in the root if its directory is not there."""
        return path if self.table.is_dir(parent(path)) else path[path.rindex("/") :]

    @rule(path=paths, pieces=st.sampled_from([1, 2, 3, 0]))
    def put(self, path: str, pieces: int) -> None:
        """Write a whole file and close it, as `>` does."""
        opened = self._open(self.here(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        if opened is None:
            return
        for _ in range(pieces):
            self._write(opened, "end")
        self._close(opened)

    @rule(pick=picks, appends=st.booleans())
    def change(self, pick: int, appends: bool) -> None:
        """Append to a file, or write over its beginning, and close it."""
        file = self.file(pick, any_file)
        if file is not None:
            self._change(file, appends=appends)

    def _change(self, file: File, *, appends: bool) -> None:
        if file.path is None:
            return
        if opened := self._open(file.path, os.O_WRONLY | (os.O_APPEND if appends else 0)):
            self._write(opened, "start")
            self._close(opened)

    @rule(pick=picks, how=ways)
    def open(self, pick: int, how: int) -> None:
        file = self.file(pick, any_file)
        if file and file.path:
            self._open(file.path, how)

    @rule(pick=picks, how=ways, place=places)
    def open_and_write(self, pick: int, how: int, place: str) -> None:
        """Leave a file open of which something is unsaved."""
        self._open_and_write(pick, how, place)

    def _open_and_write(self, pick: int, how: int, place: str) -> Opened | None:
        file = self.file(pick, any_file)
        opened = self._open(file.path, how) if file and file.path else None
        if opened is None or not opened.writes:
            return None
        self._write(opened, place)
        return opened

    @rule(path=paths, exclusive=st.booleans())
    def create(self, path: str, exclusive: bool) -> None:
        path = self.here(path)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if exclusive else os.O_TRUNC)
        if exclusive and path in self.table.files:
            with refused(EEXIST):
                self.mount.core.create(f"/notes{path}", flags)
        else:
            self._open(path, flags)

    def _open(self, path: str, flags: int) -> Opened | None:
        """Open *path*; None where it is not clear what that does, or storage refuses."""
        table = self.table
        file = table.files.get(path)
        if file is None:
            if not table.takes(path) and path not in table.reserved():
                return None
            if not table.is_dir(parent(path)) or table.is_dir(path):
                return None
        elif not self._can_open(file, flags):
            return None
        handle = self._opened(path, flags)
        if handle is None:
            return None
        if file is None:
            file = table.files[path] = File(path, content=b"", touched=True)
        elif flags & os.O_TRUNC:
            begin(file, table.head(file) or b"")
            file.how, file.content, file.touched = "replace", b"", True
        writes = flags & (os.O_WRONLY | os.O_RDWR) != 0
        opened = Opened(file, handle, bool(flags & os.O_APPEND), writes)
        table.opened.append(opened)
        return opened

    def _can_open(self, file: File, flags: int) -> bool:
        if flags & (os.O_WRONLY | os.O_RDWR) == 0:
            return file.kind is not Kind.TRANSIENT
        overtaken = file.content is not None and self.table.head(file) not in (None, file.base)
        return not (file.aside_of or file.backup or (flags & os.O_TRUNC and overtaken))

    def _opened(self, path: str, flags: int) -> Handle | None:
        if self.table.trouble != "gone":
            return self.mount.open(f"/notes{path}", flags)
        try:
            return self.mount.open(f"/notes{path}", flags)
        except OSError as error:
            if error.errno != EIO:
                raise
            return None

    @has_handles
    @rule(pick=picks, place=places)
    def write(self, pick: int, place: str) -> None:
        opened = self.table.opened[pick % len(self.table.opened)]
        if opened.writes:
            self._write(opened, place)

    def _write(self, opened: Opened, place: str) -> None:
        data, handle, file = self.table.word(), opened.handle, opened.file
        if file.path is None:
            handle.write(data, 0)
            return
        begin(file, self.table.head(file) or b"")
        size = len(file.content or b"")
        at = {"start": 0, "end": size, "beyond": size + 2}[place]
        assert handle.write(data, at) == len(data)
        write(file, data, size if opened.appends else at)
        opened.wrote = True

    @has_handles
    @rule(pick=picks)
    def fill(self, pick: int) -> None:
        """Write over what holes there are."""
        opened = self.table.opened[pick % len(self.table.opened)]
        file = opened.file
        hole = (file.content or b"").find(b"\0")
        if opened.writes and not opened.appends and file.path and hole >= 0:
            opened.handle.write(b"..", hole)
            write(file, b"..", hole)
            opened.wrote = True

    @has_handles
    @rule(pick=picks, left=st.sampled_from([0, 2, 2, 100]))
    def truncate(self, pick: int, left: int) -> None:
        opened = self.table.opened[pick % len(self.table.opened)]
        file = opened.file
        if not opened.writes or file.path is None:
            return
        length = min(left, len(self.table.shown(file)))
        opened.handle.truncate(length)
        if length == 0 or length != len(self.table.shown(file)):
            begin(file, self.table.head(file) or b"")
            truncate(file, length)
            file.touched = True

    @rule(pick=picks, left=st.sampled_from([0, 2]))
    def truncate_by_path(self, pick: int, left: int) -> None:
        table = self.table
        file = self.file(pick, lambda each: each.kind is Kind.PLAIN and each.memory in table.heads)
        if file is None or file.content is not None or file.aside_of or table.writers(file):
            return
        begin(file, table.head(file) or b"")
        if left >= len(file.content or b"") or table.trouble == "gone":
            file.content = None
            return
        truncate(file, left)
        table.save(file, lambda: self.mount.core.truncate(f"/notes{file.path}", left))

    @has_handles
    @rule(pick=picks)
    def flush(self, pick: int) -> None:
        opened = self.table.opened[pick % len(self.table.opened)]
        if opened.file.path is None or not self._is_clear(opened):
            return
        if not opened.wrote:
            opened.handle.flush()
            self.table.expect()
        elif self._is_good(opened.file):
            self.table.save(opened.file, opened.handle.flush)

    @has_handles
    @rule(pick=picks)
    def fsync(self, pick: int) -> None:
        opened = self.table.opened[pick % len(self.table.opened)]
        file = opened.file
        dirty = file.touched or any(each.wrote for each in self.table.handles(file))
        if not (opened.writes and file.path and dirty):
            return
        if self._is_clear(opened) and self._is_good(file):
            self.table.save(file, opened.handle.fsync)

    def _is_good(self, file: File) -> bool:
        """Tell whether saving *file* now does not fail for good."""
        return file.kind is Kind.SCRATCH or (
            is_text(file.content or b"")
            and (file.kind is Kind.TRANSIENT or bool(self.table.trouble or self.table.chains(file)))
        )

    def _is_clear(self, opened: Opened) -> bool:
        """Tell whether it is clear what closing *opened* does."""
        file = opened.file
        if file.waits and not opened.wrote:
            return False
        return self.table.fits(file)

    @has_handles
    @rule(pick=picks)
    def close(self, pick: int) -> None:
        self._close(self.table.opened[pick % len(self.table.opened)])

    def _close(self, opened: Opened) -> None:
        table, file = self.table, opened.file
        if file.path is None or not opened.writes:
            opened.handle.close()
            table.opened.remove(opened)
            table.expect()
            return
        if not self._is_clear(opened):
            return
        last = table.writers(file) == [opened]
        if opened.wrote:
            table.save(file, opened.handle.flush)
        else:
            opened.handle.flush()
            table.expect()
        released = [opened.handle.release]
        if last and file.path and file.touched:
            table.save(file, lambda: self._release(opened, file))
        else:
            released[0]()
            table.expect()
        table.opened.remove(opened)

    def _release(self, opened: Opened, file: File) -> None:
        """Release the handle, and raise what the kernel would drop."""
        self.mount.core.release(opened.handle.fh)
        if self.table.trouble and file.kind is Kind.PLAIN:
            raise OSError(EIO, "what the release of this file failed with")

    @rule(path=plain_paths)
    def sticky_error(self, path: str) -> None:
        """Write what is no text: told at once, at every write and at the close."""
        table, path = self.table, self.here(path)
        file = table.files.get(path)
        if file and (table.handles(file) or file.content is not None or file.aside_of):
            return
        opened = self._open(path, os.O_WRONLY | os.O_CREAT)
        if opened is None:
            return
        if opened.file.content is None or not opened.file.memory:
            for data in (b"\xff", b"good"):
                with refused(EILSEQ):
                    opened.handle.write(data, 0)
            with refused(EILSEQ):
                opened.handle.flush()
        opened.handle.release()
        table.opened.remove(opened)
        table.expect()
        table.revert(opened.file)

    @rule(pick=picks)
    def same_again(self, pick: int) -> None:
        """Write what is there already."""
        table = self.table
        file = self.file(pick, lambda each: each.content is None and not table.handles(each))
        if file is None or table.trouble:
            return
        self.mount.put(f"/notes{file.path}", table.shown(file))
        table.expect()
