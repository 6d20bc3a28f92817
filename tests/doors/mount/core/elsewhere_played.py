"""Rules of the game: what others do, trouble with storage, time, and ends of the mount."""

from doors.mount.core.drawn import Did, File, Trouble, above, parent
from doors.mount.core.files_played import any_file, paths, picks, places, plain_paths, ways
from doors.mount.core.names_played import NameRules
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from holdfast.doors.mount.names import Kind
from holdfast.ground.errors import PathTaken

WHAT = ("change", "delete", "rename")

troubles = st.sampled_from(["gone", "unsure", "lost"])
seldom = st.sampled_from([False, False, False, True])
healthy = precondition(lambda self: self.table.trouble is None)


class MountMachine(NameRules):
    """Does to a mount, and to the store behind it, what it draws."""

    @initialize(memories=st.sets(plain_paths, min_size=1, max_size=5), made=st.booleans())
    def begin_with(self, memories: set[str], made: bool) -> None:
        for path in sorted(memories):
            self._create_elsewhere(path)
        if made:
            self.mkdir("/g")

    @rule(path=paths)
    def create_elsewhere(self, path: str) -> None:
        self._create_elsewhere(path)

    def _create_elsewhere(self, path: str) -> None:
        table = self.table
        if path in table.files or table.is_dir(path) or path in table.reserved():
            return
        if any(each in table.files or each in table.reserved() for each in above(path)):
            return
        content = table.word()
        try:
            self.mount.given_elsewhere(path, content.decode())
        except PathTaken:
            return
        file = File(path)
        table.expect((file, [[Did("created", path, content)]]))
        table.files[path] = file

    @rule(pick=picks)
    def change_elsewhere(self, pick: int) -> None:
        if file := self.file(pick, self._may_change):
            self._change_elsewhere(file)

    def _change_elsewhere(self, file: File) -> None:
        table = self.table
        content = table.word()
        path, _ = table.heads[file.memory or ""]
        self._memories.update(
            file.memory or "", memory_store_id=self.mount.id(), content=content.decode()
        )
        table.expect((file, [[Did("modified", path, content)]]))

    @rule(pick=picks, path=plain_paths)
    def rename_elsewhere(self, pick: int, path: str) -> None:
        if file := self.file(pick, self._may_change):
            self._rename_elsewhere(file, path)

    def _rename_elsewhere(self, file: File, path: str) -> None:
        table = self.table
        if path in table.files or table.is_dir(path) or path in table.reserved():
            return
        if any(each in table.files or each in table.reserved() for each in above(path)):
            return
        old, content = table.heads[file.memory or ""]
        try:
            self._memories.update(file.memory or "", memory_store_id=self.mount.id(), path=path)
        except PathTaken:
            return
        table.expect((file, [[Did("modified", path, content)]]))
        assert file.path == old
        del table.files[old]
        file.path = path
        table.files[path] = file
        table.adopt()

    @rule(pick=picks)
    def delete_elsewhere(self, pick: int) -> None:
        if file := self.file(pick, self._may_change):
            self._delete_elsewhere(file)

    def _delete_elsewhere(self, file: File) -> None:
        table = self.table
        path, _ = table.heads[file.memory or ""]
        self._memories.delete(file.memory or "", memory_store_id=self.mount.id())
        table.expect((file, [[Did("deleted", path, None)]]))
        if file.content is None:
            del table.files[path]
            file.path = None
            table.adopt()

    @rule(pick=picks, how=ways, place=places, what=st.sampled_from([*WHAT]), path=plain_paths)
    def overtake(self, pick: int, how: int, place: str, what: str, path: str) -> None:
        """Let something happen elsewhere between a write and its close."""
        opened = self._open_and_write(pick, how, place)
        if opened is None or not self._may_change(opened.file):
            return
        if what == "rename":
            self._rename_elsewhere(opened.file, path)
        elif what == "delete":
            self._delete_elsewhere(opened.file)
        else:
            self._change_elsewhere(opened.file)
        self.table.agree()
        self._close(opened)

    @property
    def _memories(self):
        return self.mount.hf.memory_stores.memories

    def _may_change(self, file: File) -> bool:
        """Tell whether it is clear what becomes of *file* when its memory changes elsewhere."""
        handles = len(self.table.handles(file))
        if file.memory not in self.table.heads or file.aside_of or file.unsure:
            return False
        if file.waits:
            return handles == 0
        if file.content is None:
            return not self.table.writers(file)
        return handles == 1

    # Trouble

    @healthy
    @rule(trouble=troubles)
    def begin_trouble(self, trouble: Trouble) -> None:
        files = self.table.files.values()
        if not any(each.waits or each.aside_of or each.backup for each in files):
            self.table.begin_trouble(trouble)

    @healthy
    @rule(pick=picks, trouble=troubles, appends=st.lists(st.booleans(), min_size=1, max_size=3))
    def fail(self, pick: int, trouble: Trouble, appends: list[bool]) -> None:
        """Let one save after another of a file fail, until storage is back."""
        file = self.file(pick, any_file)
        if file is None or any(each.waits or each.aside_of for each in self.table.files.values()):
            return
        self.table.begin_trouble(trouble)
        for each in appends:
            self._change(file, appends=each)
            self.table.agree()
        self.table.heal()

    @precondition(lambda self: self.table.trouble is not None)
    @rule()
    def heal(self) -> None:
        self.table.heal()

    # Time, and ends

    @rule(now=seldom)
    def wait(self, now: bool) -> None:
        if now and self.table.is_quiet():
            self.table.wait_long()

    @healthy
    @rule(now=seldom)
    def fsync_directory(self, now: bool) -> None:
        """Sync the root, where no backup is deferred."""
        table = self.table
        inside = [each for path, each in table.files.items() if parent(path) == ""]
        due = [(each, table.chains(each)) for each in inside if each.kind is Kind.TRANSIENT]
        if not now or any(each.aside_of or each.backup for each in inside):
            return
        if not any(table.handles(each) for each, _ in due):
            self.mount.core.fsyncdir("/notes")
            table.expect(*due)
            for each, _ in due:
                table.saved(each)

    @precondition(lambda self: self.table.can_stop())
    @rule(now=seldom)
    def stop(self, now: bool) -> None:
        if now:
            self.table.stop()

    @rule(now=seldom)
    def crash(self, now: bool) -> None:
        if now and not any(each.aside_of or each.backup for each in self.table.files.values()):
            self.table.crash()

    @invariant()
    def both_are_the_same(self) -> None:
        self.table.agree()
