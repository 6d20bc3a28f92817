"""Rules of the game: removing and renaming files and directories, and putting them aside."""

from errno import EEXIST, EIO, ENOTEMPTY

from doors.mount.core.drawn import Did, File, Outcome, is_text, parent, step
from doors.mount.core.driven import refused
from doors.mount.core.files_played import DIRS, FileRules, any_file, paths, picks
from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.doors.mount.names import Kind, kind_of


def kind_at(path: str) -> Kind:
    return kind_of(path.rpartition("/")[2])


class NameRules(FileRules):
    """Does to names of a mount what it draws."""

    @rule(pick=picks)
    def unlink(self, pick: int) -> None:
        table = self.table
        file = self.file(pick, lambda each: each.aside_of not in table.files)
        path = file.path if file else None
        if file is None or path is None:
            return
        if table.trouble and (file.memory or file.waits):
            if not file.waits and table.trouble != "lost" and file.memory in table.heads:
                with refused(EIO):
                    self.mount.core.unlink(f"/notes{path}")
                file.in_doubt = True
                table.expect()
            return
        outcomes = self._unlinked(file)
        self.mount.core.unlink(f"/notes{path}")
        table.expect((file, outcomes))
        table.drop(file)

    def _unlinked(self, file: File) -> list[Outcome]:
        head = self.table.heads.get(file.memory or "")
        gone = Did("deleted", head[0] if head else file.path or "", None)
        outcomes: list[Outcome] = [[gone]] if head else [[]]
        if file.waits:
            outcomes += [[*each, gone] for each in self.table.chains(file, done=False)]
        return outcomes

    @rule(pick=picks)
    def put_aside(self, pick: int) -> None:
        """Rename a memory to the name of its backup."""
        table = self.table
        file = self.file(pick, lambda each: each.content is None and not table.handles(each))
        if file is None or table.trouble or not file.path or file.path.endswith(".bak"):
            return
        path, new = file.path, f"{file.path}.bak"
        if new in table.files or table.is_dir(new) or kind_at(path) is not Kind.PLAIN:
            return
        file.base = file.content = table.shown(file)
        file.how, file.aside_of = "replace", path
        self.mount.core.rename(f"/notes{path}", f"/notes{new}")
        table.expect()
        self._moved(file, new, None)

    @rule(pick=picks)
    def put_back(self, pick: int) -> None:
        """Rename a backup to where its memory still is."""
        table = self.table
        file = self.file(pick, lambda each: each.aside_of is not None)
        path = file.aside_of if file else None
        if file is None or path is None or path in table.files or table.is_dir(path):
            return
        self.mount.core.rename(f"/notes{path}.bak", f"/notes{path}")
        table.expect()
        file.content = file.aside_of = None
        self._moved(file, path, None)

    @rule(pick=picks, onto=picks, new=paths)
    def rename(self, pick: int, onto: int, new: str) -> None:
        """Rename a file to a name that is free, or over another file."""
        table = self.table
        source, new = self.file(pick, any_file), self.here(new)
        if onto % 2 and (target := self.file(onto, any_file)):
            new = target.path or new
        target, old = table.files.get(new), source.path if source else None
        if source is None or old is None or old == new:
            return
        if not self._can_rename(source, new, target):
            return
        if kind_at(new) is not Kind.PLAIN:
            self.mount.core.rename(f"/notes{old}", f"/notes{new}")
            table.expect()
            self._moved(source, new, target)
        elif not table.trouble:
            self._rename_to_real(source, new, target)
        elif target is None and source.content is None and table.trouble != "lost":
            with refused(EIO):
                self.mount.core.rename(f"/notes{old}", f"/notes{new}")
            source.in_doubt = True
            table.expect()

    def _can_rename(self, source: File, new: str, target: File | None) -> bool:
        """Tell whether it is clear what renaming *source* does."""
        table = self.table
        if target is None and (not table.is_dir(parent(new)) or table.is_dir(new)):
            return False
        for each in (source, target):
            if each and (each.waits or each.aside_of or each.backup):
                return False
        if kind_at(new) is not Kind.PLAIN:
            return source.kind is kind_at(new) and (target is None or target.kind is source.kind)
        if new in table.reserved():
            return source.kind is Kind.TRANSIENT and not target and not table.writers(source)
        if source.content is None:
            return True
        overtaken = source.memory is not None and table.head(source) != source.base
        return is_text(source.content) and not overtaken

    def _rename_to_real(self, source: File, new: str, target: File | None) -> None:
        table, after = self.table, self.table.shown(source)
        old, kind = source.path or "", source.kind
        over = target if target and table.head(target) is not None else None
        dirty = source.content is not None
        if new in table.reserved():
            over, source.path = source, new
            table.take_over(source)
            source.path = old
        head, due = table.head(source), list[tuple[File, list[Outcome]]]()
        if over:
            due.append((over, [step(new, table.head(over), after)]))
            if over is not source and head is not None:
                due.append((source, [[Did("deleted", old, None)]]))
        elif head is not None:
            moved = Did("modified", new, head)
            both = [moved, *step(new, head, after)]
            due.append((source, [[moved], [Did("modified", new, after)], both]))
        else:
            # An empty file that may still be written waits for the last who may write it.
            writers = table.writers(source)
            waits = kind is Kind.PLAIN or (bool(writers) and not after)
            later: list[Outcome] = [[]] if waits else []
            due.append((File(new), [[Did("created", new, after)], *later]))
        self.mount.core.rename(f"/notes{old}", f"/notes{new}")
        table.expect(*due)
        source.memory = due[0][0].memory
        self._moved(source, new, target)
        if dirty and table.head(source) == after:
            table.saved(source)

    def _moved(self, source: File, new: str, target: File | None) -> None:
        """Draw *source* at *new*, in place of *target*."""
        table, old = self.table, source.path or ""
        if target:
            del table.files[new]
            target.path = None
        del table.files[old]
        source.path = new
        table.files[new] = source
        table.emptied(old)

    # Directories

    @rule(path=st.sampled_from(DIRS[1:]))
    def mkdir(self, path: str) -> None:
        table = self.table
        if not table.is_dir(parent(path)):
            return
        if table.is_dir(path) or path in table.files:
            with refused(EEXIST):
                self.mount.core.mkdir(f"/notes{path}")
        else:
            self.mount.core.mkdir(f"/notes{path}")
            table.made.add(path)
        table.expect()

    @rule(path=st.sampled_from(DIRS[1:]))
    def rmdir(self, path: str) -> None:
        table = self.table
        if not table.is_dir(path):
            return
        if table.is_empty(path):
            self.mount.core.rmdir(f"/notes{path}")
            table.made.discard(path)
            table.kept.discard(path)
            table.emptied(path)
        else:
            with refused(ENOTEMPTY):
                self.mount.core.rmdir(f"/notes{path}")
        table.expect()

    @rule(old=st.sampled_from(DIRS[1:]), new=st.sampled_from(["/d", "/f", "/g", "/d/e", "/f/h"]))
    def rename_directory(self, old: str, new: str) -> None:
        table = self.table
        if not table.is_dir(old) or not table.is_dir(parent(new)) or new in table.files:
            return
        if f"{new}/".startswith(f"{old}/") or f"{old}/".startswith(f"{new}/"):
            return
        below = [each for path, each in table.files.items() if path.startswith(f"{old}/")]
        if table.trouble or any(each.waits or each.aside_of or each.backup for each in below):
            return
        if any(each.memory and table.head(each) is None for each in below):
            return
        if table.is_dir(new) and not table.is_empty(new):
            with refused(ENOTEMPTY):
                self.mount.core.rename(f"/notes{old}", f"/notes{new}")
            table.expect()
        else:
            self._rename_directory(old, new, below)

    def _rename_directory(self, old: str, new: str, below: list[File]) -> None:
        table = self.table

        def moved(path: str) -> str:
            return new + path[len(old) :] if f"{path}/".startswith(f"{old}/") else path

        due = [
            (each, [[Did("modified", moved(each.path or ""), table.head(each))]])
            for each in below
            if each.memory
        ]
        self.mount.core.rename(f"/notes{old}", f"/notes{new}")
        table.expect(*due)
        was_made = old in table.made or old in table.kept
        table.files = {moved(path): each for path, each in table.files.items()}
        for path, each in table.files.items():
            each.path = path
        table.made = {moved(path) for path in table.made}
        table.kept = {moved(path) for path in table.kept}
        assert was_made or below or table.is_dir(new)
        table.emptied(old)
