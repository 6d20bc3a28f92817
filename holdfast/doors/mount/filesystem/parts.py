"""What works on one mounted store."""

from holdfast.doors.mount.filesystem.nodes import File
from holdfast.doors.mount.filesystem.save import Keeping, Saves, StoreWriter
from holdfast.doors.mount.filesystem.store_dir import Branch
from holdfast.doors.mount.filesystem.transient import Grace
from holdfast.doors.mount.names import Kind


class Parts:
    """The directory of one store, and what saves, keeps and promotes its files."""

    def __init__(self, branch: Branch) -> None:
        self.branch = branch
        self.keeping = Keeping(branch)
        self.sending = StoreWriter(branch)
        self.saves = Saves(branch, self.keeping, self.sending)
        self.grace = Grace(branch, self.saves, self.keeping, self.sending)
        self.left: set[File] = set()
        """What was unsaved at the end, and is left in the spool."""

    def close(self, file: File) -> None:
        """Do what a close of *file* asks for, after something was written; OSError if it fails."""
        if file.orphan or file.kind is Kind.SCRATCH:
            return
        if file.kind is Kind.TRANSIENT:
            self.grace.close(file)
        else:
            self.saves.save(file)

    def sync(self, file: File) -> None:
        """Do what an fsync of *file* asks for; OSError if it fails."""
        if file.kind is Kind.TRANSIENT and not file.orphan:
            self.grace.sync(file)
        else:
            self.close(file)
