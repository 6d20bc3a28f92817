"""A mount and its drawing side by side: what one does is done to the other, and both are compared.

Rules are in `test_state_machine.py`; here is what they share.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EILSEQ, EIO, ESTALE
from itertools import combinations

from doors.mount.core.drawn import (
    Did,
    File,
    Opened,
    Outcome,
    Sent,
    Trouble,
    above,
    is_text,
    landed,
    parent,
    same,
    step,
)
from doors.mount.core.driven import Driven, refused
from doors.mount.core.trouble import unsure

from holdfast.doors.mount.names import Kind

LONG = 20.0
"""Seconds in which every grace is over and everything that waits is tried again."""


class Table:
    """What is drawn, and the mount it is drawn of."""

    def __init__(self, mount: Driven) -> None:
        self.mount = mount
        self.files: dict[str, File] = {}
        self.made: set[str] = set()
        self.kept: set[str] = set()
        self.opened: list[Opened] = []
        self.lost: list[bytes] = []
        self.heads: dict[str, tuple[str, bytes]] = {}
        self.trouble: Trouble | None = None
        self._newest: str | None = None
        self._words = 0

    # The drawing

    def word(self) -> bytes:
        """Return some text that was never written before."""
        self._words += 1
        return f"w{self._words}\n".encode()

    def head(self, file: File) -> bytes | None:
        """Return the content of the file's memory, None if it has none."""
        found = self.heads.get(file.memory or "")
        return None if found is None else found[1]

    def shown(self, file: File) -> bytes:
        """Return what a reader of the mount sees."""
        if file.content is not None:
            return file.content
        head = self.head(file)
        assert head is not None, f"the drawing has no content of {file}"
        return head

    def dirs(self) -> set[str]:
        """Return every directory of the mount but the root."""
        local = self.made | self.kept
        return local | {each for path in [*self.files, *local] for each in above(path)}

    def is_dir(self, path: str) -> bool:
        return path == "" or path in self.dirs()

    def is_empty(self, directory: str) -> bool:
        below = f"{directory}/"
        return not any(path.startswith(below) for path in [*self.files, *self.dirs()])

    def takes(self, path: str) -> bool:
        """Tell whether a file can be made at *path*."""
        return (
            self.is_dir(parent(path))
            and path not in self.files
            and not self.is_dir(path)
            and path not in self.reserved()
        )

    def reserved(self) -> set[str]:
        """Return the paths whose memory is shown under the name of its backup."""
        return {file.aside_of for file in self.files.values() if file.aside_of}

    def handles(self, file: File) -> list[Opened]:
        return [each for each in self.opened if each.file is file]

    def writers(self, file: File) -> list[Opened]:
        return [each for each in self.handles(file) if each.writes]

    def emptied(self, path: str) -> None:
        """Keep the directory from which *path* was taken here."""
        directory = parent(path)
        if directory and not self.is_dir(directory):
            self.kept.add(directory)

    def adopt(self) -> None:
        """Take over which of the directories are still there of which nothing is promised."""
        for directory in sorted(self.kept - self.made, reverse=True):
            if self.is_empty(directory) and not self.mount.exists(f"/notes{directory}"):
                self.kept.discard(directory)

    def drop(self, file: File) -> None:
        """Take *file* out of the mount; its handles go on."""
        assert file.path is not None
        del self.files[file.path]
        path, file.path = file.path, None
        directory = parent(path)
        if directory and not self.is_dir(directory):
            self.kept.add(directory)
            self.adopt()

    # What the store says

    def observe(self) -> list[tuple[str, Did]]:
        """Return the versions made since the last time, the oldest first, by memory."""
        self.mount.settle()
        stores = self.mount.hf.memory_stores
        found: list[tuple[str, Did]] = []
        newest = self._newest
        for each in stores.memory_versions.list(self.mount.id(), view="full", limit=20).all():
            if each.id == self._newest:
                break
            newest = each.id if not found else newest
            content = None if each.content is None else each.content.encode()
            found.append((each.memory_id, Did(each.operation, each.path or "", content)))
        self._newest = newest
        return found[::-1]

    def expect(self, *expected: tuple[File, list[Outcome]]) -> None:
        """Take over what the store did; for each file that is one of its outcomes, else nothing."""
        groups: dict[str, Outcome] = {}
        for memory, did in self.observe():
            groups.setdefault(memory, []).append(did)
            if did.content is None:
                del self.heads[memory]
            else:
                self.heads[memory] = (did.path, did.content)
        for file, outcomes in expected:
            memory = self._memory(file, groups)
            did = groups.pop(memory, [])
            assert any(same(did, each) for each in outcomes), f"{did} is none of {outcomes}"
            if memory in self.heads:
                file.memory = memory
        assert not groups, f"nobody asked for {groups}"

    def _memory(self, file: File, groups: dict[str, Outcome]) -> str:
        if file.memory in groups:
            return file.memory
        for memory, outcome in groups.items():
            if outcome[0].operation == "created" and outcome[0].path == file.path:
                return memory
        return file.memory or ""

    # Saves

    def chains(self, file: File, *, done: bool = True) -> list[Outcome]:
        """Return what saving *file* may come to while storage works; empty if it conflicts.

        What was sent before may be done first, since nobody can know whether it was; unless
        *done* that may be all.
        """
        head, path = self.head(file), file.path or ""
        found: list[Outcome] = []
        earlier = [each for each in file.sent if not done or each.content != file.content]
        for number in range(len(earlier) + 1):
            for chosen in combinations(earlier, number):
                outcome, now = list[Did](), head
                for each in [*chosen, *([None] if done else [])]:
                    after = self.landing(file, each, head)
                    if after is None:
                        return []
                    outcome += step(self.heads.get(file.memory or "", (path,))[0], now, after)
                    now = after
                found.append(outcome)
        return found

    def landing(self, file: File, sent: Sent | None, head: bytes | None) -> bytes | None:
        """Return the content after a save of *file*, or after one that was *sent* before."""
        content = file.content if sent is None else sent.content
        assert content is not None
        if file.unsure:
            return content
        how, base = (file.how, file.base) if sent is None else (sent.how, sent.base)
        return landed(how, base, content, head)

    def saved(self, file: File) -> None:
        """Draw *file* as its memory is."""
        file.content, file.spooled, file.touched, file.in_doubt = None, None, False, False
        file.sent.clear()
        for each in self.handles(file):
            each.wrote = False

    def save(self, file: File, act: Callable[[], object]) -> None:
        """Do *act*, which saves *file*, and see what came of it."""
        content = file.content
        assert content is not None
        if file.kind is Kind.SCRATCH:
            act()
            self.expect()
            self._settled(file)
        elif not is_text(content):
            self.fail(file, act, EILSEQ)
        elif file.kind is Kind.TRANSIENT:
            act()
            self.expect()
            file.spooled = content
            self._settled(file)
        elif self.trouble:
            self._save_in_trouble(file, act)
        elif chains := self.chains(self.take_over(file)):
            act()
            self.expect((file, chains))
            self.saved(file)
        else:
            self.fail(file, act, ESTALE)

    def take_over(self, file: File) -> File:
        """Let *file* have the memory that is still at its path, if what was there was put aside."""
        for each in self.files.values():
            if each.aside_of is not None and each.aside_of == file.path:
                file.memory, each.memory = each.memory, None
                each.aside_of, each.backup = None, True
        return file

    def _settled(self, file: File) -> None:
        file.touched = False
        for each in self.handles(file):
            each.wrote = False

    def _save_in_trouble(self, file: File, act: Callable[[], object]) -> None:
        content, trouble = file.content, self.trouble
        assert content is not None
        assert trouble is not None
        with refused(EIO):
            act()
        if trouble == "lost" and not file.sent:
            unsent: list[Outcome] = [[]] if file.in_doubt else []
            self.expect((file, [step(file.path or "", self.head(file), content), *unsent]))
        else:
            self.expect()
        file.sent.append(Sent(file.how, file.base, content, trouble))
        file.spooled = content
        self._settled(file)

    def fail(self, file: File, act: Callable[[], object], number: int) -> None:
        """Do *act*, which cannot save *file*: its bytes are spooled, the old head shows."""
        with refused(number):
            act()
        self.expect()
        self.lost.append(file.tail if file.how == "append" else file.content or b"")
        self.revert(file)

    def revert(self, file: File) -> None:
        """Draw *file* as its memory is, or not at all if it has none."""
        self.saved(file)
        if self.head(file) is None:
            self.drop(file)

    def fits(self, file: File) -> bool:
        """Tell whether it is clear what saving *file* now must come to."""
        content = file.content
        alone = len(self.handles(file)) <= 1
        if content is None or file.kind is Kind.SCRATCH:
            return True
        if not is_text(content):
            answered = not (file.in_doubt and self.trouble)
            return alone and answered and not file.waits and file.spooled is None
        if file.kind is Kind.TRANSIENT:
            return True
        if len(file.sent) > 3:
            return False
        if self.trouble in ("lost", "unsure"):
            head = self.head(file)
            new = file.memory is None
            return bool(file.sent) or (new or head == file.base)
        return bool(self.trouble or self.chains(file)) or (alone and not file.waits)

    # Trouble, ends and beginnings

    def begin_trouble(self, trouble: Trouble) -> None:
        source = self.mount.sources["notes"]
        self.trouble = trouble
        if trouble == "gone":
            source.away()
        elif trouble == "unsure":
            source.refusing = unsure
        else:
            source.losing = unsure

    def heal(self) -> None:
        self.trouble = None
        self.mount.sources["notes"].heal()

    def is_quiet(self) -> bool:
        """Tell whether it is clear what becomes of everything when time passes."""
        return not any(
            (file.waits and file.sent[-1].content != file.content)
            or (file.aside_of in self.files)
            or (self.trouble and file.kind is Kind.TRANSIENT)
            for file in self.files.values()
        )

    def wait_long(self) -> None:
        """Let so much time pass that everything which can be saved is saved."""
        if self.trouble:
            self.mount.later.advance(LONG)
            self.expect()
            return
        due = [*self._due()]
        self.mount.later.advance(LONG)
        self.expect(*((file, outcomes or [[]]) for file, outcomes in due))
        for file, outcomes in due:
            if not outcomes:
                self.leave(file)
                self.revert(file)
            else:
                file.aside_of, file.backup = None, False
                self.saved(file)

    def _due(self) -> Iterator[tuple[File, list[Outcome]]]:
        """Give what time makes of the files, nothing of those that it finds overtaken."""
        for file in [*self.files.values()]:
            if file.aside_of:
                yield file, [[Did("modified", file.path or "", self.head(file))]]
            elif (
                file.waits
                or file.backup
                or (file.kind is Kind.TRANSIENT and not self.handles(file))
            ):
                yield file, self.chains(file)

    def leave(self, file: File) -> None:
        """Draw what *file* could not save as left in the spool."""
        last = file.sent[-1]
        tail = last.content[len(last.base) :]
        self.lost.append(tail if last.how == "append" else last.content)

    def can_stop(self) -> bool:
        """Tell whether stopping saves everything."""
        return not self.trouble and all(
            file.content is None
            or file.kind is Kind.SCRATCH
            or (is_text(file.content) and self.chains(file) and file.aside_of not in self.files)
            for file in self.files.values()
        )

    def stop(self) -> None:
        """Unmount and mount again."""
        due: list[tuple[File, list[Outcome]]] = []
        for file in self.files.values():
            if file.aside_of:
                due.append((file, [[Did("modified", file.path or "", self.head(file))]]))
            elif file.content is not None and file.kind is not Kind.SCRATCH:
                due.append((file, self.chains(file)))
        assert self.mount.stop() == 0
        self._begin_again(due)

    def crash(self) -> None:
        """Kill the mount, and mount again."""
        due: list[tuple[File, list[Outcome]]] = []
        for file in self.files.values():
            if file.kind is Kind.TRANSIENT and file.spooled is not None:
                due.append((file, [step(file.path or "", None, file.spooled)]))
            elif file.waits:
                outcomes = self._recovered(file)
                due.append((file, outcomes or [[]]))
                if not outcomes:
                    self.leave(file)
        self.mount.crash()
        self._begin_again(due)

    def _recovered(self, file: File) -> list[Outcome]:
        """Return what the next mount may make of *file*, which waits; nothing if it leaves it."""
        last, head = file.sent[-1], self.head(file)
        file.how, file.base, file.content = last.how, last.base, last.content
        always = file.unsure or last.how == "append" or file.memory is None
        return self.chains(file) if always or head == last.base else []

    def _begin_again(self, due: list[tuple[File, list[Outcome]]]) -> None:
        self.trouble = None
        self.mount = self.mount.again()
        self.mount.later.advance(LONG)
        self.expect(*due)
        self.opened.clear()
        self.made.clear()
        self.kept.clear()
        self.files = {path: File(path, memory) for memory, (path, _) in self.heads.items()}

    # What must always hold

    def agree(self) -> None:
        """Compare the mount with the drawing."""
        self.mount.settle()
        self._names_agree()
        for path, file in self.files.items():
            self._content_agrees(path, file)
        self._store_agrees()
        self._spool_agrees()

    def _names_agree(self) -> None:
        found = [path.removeprefix("/notes") for path in self.mount.find("/notes")]
        drawn = [*self.files, *(f"{each}/" for each in self.dirs())]
        assert sorted(found) == sorted(drawn), f"{found} and not {drawn}"
        for directory in ["", *self.dirs()]:
            for entry in self.mount.core.readdir(f"/notes{directory}"):
                path = f"/notes{directory}/{entry.name}"
                assert entry.attributes == self.mount.core.getattr(path), path

    def _content_agrees(self, path: str, file: File) -> None:
        wanted = self.shown(file)
        assert self.mount.size(f"/notes{path}") == len(wanted), (path, wanted)
        if self.trouble == "gone" and file.content is None:
            with suppress(OSError):
                assert self.mount.cat(f"/notes{path}") == wanted, path
        else:
            assert self.mount.cat(f"/notes{path}") == wanted, path

    def _store_agrees(self) -> None:
        kept = {path: (content or "").encode() for path, content in self.mount.kept().items()}
        drawn = dict(self.heads.values())
        assert kept == drawn, f"{kept} and not {drawn}"
        told = self.mount.told()
        waiting = [file for file in self.files.values() if file.waits]
        counts = (told["memories"], told["retrying"])
        assert counts == (len(kept), len(waiting)), f"{counts} for {kept} and {waiting}"

    def _spool_agrees(self) -> None:
        left = self.mount.spooled()
        contents = Counter(each.content for each in left)
        contents.subtract(self.lost)
        transient = [f for f in self.files.values() if f.kind is Kind.TRANSIENT]
        contents.subtract(f.spooled for f in transient if f.spooled is not None)
        assert min(contents.values(), default=0) >= 0, f"{contents} is not all in the spool"
        waiting = [file for file in self.files.values() if file.waits]
        ours = {part for file in waiting for part in self._parts(file)}
        for file in waiting:
            last = [contents[part] for part in self._parts(file, last=True)]
            assert max(last) > 0, f"{file} is not in the spool"
        ours |= {
            file.content for file in self.files.values() if file.backup and file.content is not None
        }
        strange = {content for content, number in contents.items() if number > 0} - ours
        assert not strange, f"{strange} is in the spool"

    def _parts(self, file: File, *, last: bool = False) -> set[bytes]:
        """Return what may be kept of what *file* sent: all, or what it appended."""
        found: set[bytes] = set()
        before = [b""]
        for each in file.sent:
            before.append(each.base)
            if not last or each is file.sent[-1]:
                found |= {each.content[len(base) :] for base in before}
            before.append(each.content)
        return found
