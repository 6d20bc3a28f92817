"""Thousands of operations at random, in a mount and in a model, and then all that is kept."""

import errno
import os
import random
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path as File_

import pytest
from doors.mount.real.calls import listing
from doors.mount.real.kept import Kept
from doors.mount.real.mounting import Start, Target, eventually
from doors.mount.real.place import Place
from doors.mount.real.plain import File, Path, Plain, Refused

pytestmark = pytest.mark.fuse

STEPS = int(os.environ.get("HOLDFAST_MOUNT_STEPS", "1000"))
NAMES = ["a", "b", "c.md", "d é", "e"]
TEMPORARY = ["sedAb12_9", "x.tmp", "tmpab12_9zZ"]


class Held:
    """A descriptor that stays open for a while, appending."""

    def __init__(self, fd: int, file: File) -> None:
        self.fd, self.file, self.wrote = fd, file, False


class Walk:
    """Does one thing after the other, in a mount and in the model, and compares."""

    def __init__(self, place: Place, seed: int) -> None:
        self.place, self.chance, self.model = place, random.Random(seed), Plain()
        self.held: list[Held] = []
        self.did: Counter[str] = Counter()
        self.acts: dict[str, tuple[int, Callable[[], None]]] = {
            "write": (10, self.write),
            "append": (10, self.append),
            "edit": (6, self.edit),
            "cut": (3, self.cut),
            "replace": (8, self.replace),
            "unlink": (5, self.unlink),
            "rename": (12, self.rename),
            "mkdir": (6, self.mkdir),
            "rmdir": (3, self.rmdir),
            "read": (10, self.read),
            "list": (6, self.list),
            "stat": (6, self.stat),
            "touch": (2, self.touch),
            "scratch": (2, self.scratch),
            "hold": (4, self.hold),
            "write held": (8, self.write_held),
            "save held": (2, self.save_held),
            "close held": (4, self.close_held),
            "elsewhere": (3, self.elsewhere),
        }

    def step(self) -> None:
        """Do one thing, any one."""
        names = list(self.acts)
        (name,) = self.chance.choices(names, [self.acts[each][0] for each in names])
        self.did[name] += 1
        self.acts[name][1]()

    def real(self, path: Path) -> File_:
        return self.place.dir.joinpath(*path)

    def path(self, *, deep: int = 3) -> Path:
        """Return a path, often one of something that is there."""
        directories = sorted(self.model.directories)
        there = [*self.model.files, *directories[1:]]
        if there and self.chance.random() < 0.6:
            return self.chance.choice(there)
        roof = self.chance.choice([each for each in directories if len(each) < deep])
        return (*roof, self.chance.choice(NAMES))

    def text(self) -> bytes:
        words = self.chance.choices(
            ["tabs", "spaces", "é", "\n", "日本"], k=self.chance.randint(1, 9)
        )
        return "".join(words).encode()

    def both(self, real: Callable[[], object], model: Callable[[], object]) -> bool:
        """Do both, which must end alike; tell whether they were done."""
        wanted, found = 0, 0
        try:
            model()
        except Refused as refused:
            wanted = refused.errno
        try:
            real()
        except OSError as error:
            found = error.errno
        assert found == wanted, f"{found} instead of {wanted} after {self.did}"
        return found == 0

    def save(
        self,
        path: Path,
        flags: int,
        change: Callable[[bytes], bytes],
        data: bytes,
        at: int | None = None,
    ) -> None:
        """Open, write and close: one save."""

        def real() -> None:
            fd = os.open(self.real(path), flags, 0o644)
            try:
                assert (os.write(fd, data) if at is None else os.pwrite(fd, data, at)) == len(data)
            finally:
                os.close(fd)

        def model() -> None:
            file = self.model.opened(path, make=bool(flags & os.O_CREAT))
            file.content = change(file.content)
            self.saved(file)

        self.both(real, model)

    def saved(self, file: File) -> None:
        """Tell the model of a save: what other handles wrote is in it."""
        file.save()
        for each in self.held:
            if each.file is file:
                each.wrote = False

    def write(self) -> None:
        text = self.text()
        self.save(self.path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, lambda _: text, text)

    def append(self) -> None:
        text = self.text()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.save(self.path(), flags, lambda old: old + text, text)

    def edit(self) -> None:
        path = self.path()
        old = self.model.files[path].content if path in self.model.files else b""
        if not old.isascii():
            return
        at = self.chance.randint(0, len(old))
        text = b"edit" * self.chance.randint(1, 3)
        self.save(path, os.O_RDWR, lambda old: old[:at] + text + old[at + len(text) :], text, at)

    def cut(self) -> None:
        path = self.path()
        file = self.model.files.get(path)
        if file is not None and (file.holders or not file.content.isascii()):
            return
        length = self.chance.randint(0, len(file.content)) if file else 0

        def model() -> None:
            file = self.model.opened(path, make=False)
            file.content = file.content[:length]
            file.save()

        self.both(lambda: os.truncate(self.real(path), length), model)

    def replace(self) -> None:
        """Write a temporary file, and rename it over another."""
        target = self.path()
        if self.busy(target):
            return
        temporary, text = (*target[:-1], self.chance.choice(TEMPORARY)), self.text()

        def write() -> None:
            self.model.opened(temporary, make=True, temporary=True).content = text

        if self.both(lambda: self.real(temporary).write_bytes(text), write) and not self.both(
            lambda: self.real(temporary).rename(self.real(target)),
            lambda: self.model.rename(temporary, target),
        ):
            self.both(lambda: self.real(temporary).unlink(), lambda: self.model.unlink(temporary))

    def busy(self, path: Path) -> bool:
        """Tell whether somebody holds what is at *path* or below."""
        return any(
            file.holders for each, file in self.model.files.items() if each[: len(path)] == path
        )

    def unlink(self) -> None:
        path = self.path()
        self.both(lambda: self.real(path).unlink(), lambda: self.model.unlink(path))

    def rename(self) -> None:
        old, new = self.path(), self.path()
        if self.busy(old) or self.busy(new) or len(old) + len(new) > 8:
            return
        self.both(
            lambda: self.real(old).rename(self.real(new)), lambda: self.model.rename(old, new)
        )

    def mkdir(self) -> None:
        path = self.path()
        self.both(lambda: self.real(path).mkdir(), lambda: self.model.mkdir(path))

    def rmdir(self) -> None:
        path = self.path()
        self.both(lambda: self.real(path).rmdir(), lambda: self.model.rmdir(path))

    def read(self) -> None:
        path = self.path()

        def model() -> None:
            assert self.model.opened(path, make=False).content == self.real(path).read_bytes()

        self.both(lambda: self.real(path).read_bytes(), model)

    def list(self) -> None:
        path = self.chance.choice(sorted(self.model.directories))
        assert listing(self.real(path)) == self.model.names(path)

    def stat(self) -> None:
        path = self.path()
        try:
            shown = self.real(path).lstat()
        except FileNotFoundError:
            assert path not in self.model.files
            assert path not in self.model.directories
        else:
            if stat.S_ISDIR(shown.st_mode):
                assert path in self.model.directories
            else:
                assert shown.st_size == len(self.model.files[path].content)

    def touch(self) -> None:
        if path := self.any_file():
            os.utime(self.real(path))

    def any_file(self) -> Path | None:
        return self.chance.choice(list(self.model.files)) if self.model.files else None

    def scratch(self) -> None:
        roof = self.chance.choice(sorted(self.model.directories))
        file = self.real((*roof, ".a.swp"))
        file.write_bytes(b"\xff\0")
        assert file.read_bytes() == b"\xff\0"
        file.unlink()

    def hold(self) -> None:
        path = self.any_file()
        if path is not None and len(self.held) < 5:
            fd = os.open(self.real(path), os.O_RDWR | os.O_APPEND)
            file = self.model.files[path]
            file.holders += 1
            self.held.append(Held(fd, file))

    def any_held(self) -> Held | None:
        return self.chance.choice(self.held) if self.held else None

    def write_held(self) -> None:
        if held := self.any_held():
            text = self.text()
            assert os.write(held.fd, text) == len(text)
            held.file.content += text
            held.wrote = True
            assert os.pread(held.fd, 1_000_000, 0) == held.file.content

    def save_held(self) -> None:
        if held := self.any_held():
            os.fsync(held.fd)
            held.wrote |= any(each.wrote for each in self.held if each.file is held.file)
            self.keep(held)

    def close_held(self) -> None:
        if held := self.any_held():
            os.close(held.fd)
            self.keep(held)
            self.held.remove(held)
            held.file.holders -= 1

    def keep(self, held: Held) -> None:
        """Tell the model that what *held* wrote was saved, unless its file is gone."""
        if held.wrote and any(each is held.file for each in self.model.files.values()):
            self.saved(held.file)

    def elsewhere(self) -> None:
        """Change what nobody holds, as somebody else, and wait until the mount shows it."""
        path = self.any_file()
        if path is None or self.model.files[path].holders:
            return
        file, name = self.model.files[path], "/".join(path)
        if self.chance.random() < 0.3:
            self.place.drop(name)
            self.model.drop(path)
            eventually(lambda: not self.real(path).exists())
            return
        file.content = self.text()
        self.place.put(name, file.content.decode())
        file.save()
        eventually(lambda: self.real(path).read_bytes() == file.content)

    def finish(self) -> None:
        while self.held:
            self.close_held()

    def check(self, place: Place) -> None:
        """Compare what *place* shows, and what is kept of it, with the model."""
        wanted = {"/".join(path): file.content for path, file in self.model.files.items()}
        eventually(lambda: is_shown(place, wanted))
        kept = {name: (content or "").encode() for name, content in place.kept().items()}
        assert kept == wanted
        for path in self.model.files:
            memory = place.at("/".join(path))
            assert memory is not None
            assert os.getxattr(place.dir.joinpath(*path), "user.holdfast.id").decode() == memory.id

    def check_histories(self) -> None:
        """Compare the versions of every memory there ever was with the model."""
        histories: dict[str, list[str]] = {}
        for version in self.place.versions():
            histories.setdefault(version.memory_id, []).append(version.operation)
        for path, file in self.model.files.items():
            assert histories.pop(self.place.id("/".join(path))) == file.history, (path, self.did)
        gone = sorted(file.history for file in self.model.gone)
        assert sorted(histories.values()) == gone


def is_shown(place: Place, wanted: dict[str, bytes]) -> bool:
    """Return whether *place* shows *wanted*; it may change while it is read."""
    try:
        return shown(place) == wanted
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ESTALE}:
            raise
        return False


def shown(place: Place) -> dict[str, bytes]:
    """Return every file below *place*, read."""
    return {
        str(File_(roof, name).relative_to(place.dir)): File_(roof, name).read_bytes()
        for roof, _, names in os.walk(place.dir)
        for name in names
    }


@pytest.mark.parametrize(("seed", "cache"), [(1, 64), (2, 0), (3, 64), (4, 0)], ids=str)
def test_a_mount_does_what_a_directory_does(
    kept: Kept, start: Start, seed: int, cache: int
) -> None:
    target = Target(kept.db, (kept.store(),))
    options = (f"--cache={cache}", "--grace=600")
    with start(target, *options) as mount, start(target, "--read-only", *options) as second:
        walk = Walk(Place(mount, kept.hf), seed)
        for number in range(STEPS):
            walk.step()
            if number % 250 == 0:
                assert shown(walk.place).keys() == {"/".join(path) for path in walk.model.files}
        walk.finish()

        walk.check(walk.place)
        walk.check(Place(second, kept.hf))
        walk.check_histories()
        assert mount.settled()
        assert kept.hf.verify().findings == ()
