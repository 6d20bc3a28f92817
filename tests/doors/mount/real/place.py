"""A directory of a test's own in a mount, and what the library says is kept there."""

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from doors.mount.real.mounting import Mount, eventually

from holdfast.ground.errors import HoldfastError
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Version

SECONDS = 180


class Place:
    """A directory below a mount; everything about it is asked of the library, not of the mount."""

    def __init__(self, mount: Mount, hf: Holdfast, name: str = "", store: int = 0) -> None:
        self.mount, self.hf, self.store_id = mount, hf, mount.ready.stores[store].id
        self.prefix = f"/{name}/" if name else "/"
        self.dir = mount.root(store) / name if name else mount.root(store)
        self.dir.mkdir(exist_ok=True)

    def at(self, name: str) -> Memory | None:
        """Return the memory that is kept as *name*."""
        return self.hf.memory_stores.memories.at(self.store_id, self.prefix + name)

    def content(self, name: str) -> str | None:
        found = self.at(name)
        return None if found is None else found.content

    def id(self, name: str) -> str:
        found = self.at(name)
        assert found is not None, name
        return found.id

    def kept(self) -> dict[str, str | None]:
        """Return what is kept here: contents by name."""
        listed = self.hf.memory_stores.memories.list(
            self.store_id, path_prefix=self.prefix, view="full"
        )
        memories = [each for each in listed.all() if each.type == "memory"]
        return {each.path.removeprefix(self.prefix): each.content for each in memories}

    def versions(self) -> list[Version]:
        """Return every version that was made here, oldest first."""
        listed = self.hf.memory_stores.memory_versions.list(self.store_id, limit=100)
        return [each for each in listed.all() if (each.path or "").startswith(self.prefix)][::-1]

    def told(self) -> list[str]:
        """Return the history of this place, oldest first: `created a.md`."""
        return [
            f"{each.operation} {(each.path or '').removeprefix(self.prefix)}"
            for each in self.versions()
        ]

    def spooled(self) -> list[Path]:
        """Return the files in the mount's spool that are this place's, oldest first."""
        found: list[Path] = []
        for each in self.mount.entries():
            with suppress(FileNotFoundError):
                said = json.loads(each.with_name(f"{each.name}.json").read_bytes())
                found += [each] if said["path"].startswith(self.prefix) else []
        return found

    def put(self, name: str, content: str) -> Memory:
        """Write a memory as somebody else does: not through the mount."""
        memories, there = self.hf.memory_stores.memories, self.at(name)
        if there is None:
            return memories.create(self.store_id, path=self.prefix + name, content=content)
        return memories.update(there.id, memory_store_id=self.store_id, content=content)

    def placed(self, name: str, content: str) -> Memory:
        """Write a memory as somebody else does, and wait until the mount shows it."""
        memory, file = self.put(name, content), self.dir / name
        eventually(lambda: file.is_file() and file.read_text() == content)
        return memory

    def drop(self, name: str) -> None:
        """Delete a memory as somebody else does."""
        self.hf.memory_stores.memories.delete(self.id(name), memory_store_id=self.store_id)

    def move(self, name: str, new: str) -> None:
        """Rename a memory, or a directory of them, as somebody else does."""
        memories = self.hf.memory_stores.memories
        memories.rename(self.store_id, self.prefix + name, self.prefix + new)

    def given(self, name: str, content: str) -> Path:
        """Write a file through the mount, and return where it is."""
        file = self.dir / name
        file.write_text(content)
        return file

    def holds(self, name: str, content: str) -> bool:
        """Tell whether the library has *content* under *name* by now."""
        try:
            return self.content(name) == content
        except HoldfastError:
            return False

    def sh(self, script: str, *, env: dict[str, str] | None = None) -> str:
        """Run *script* here, in a real shell; it must succeed. Return what it says."""
        ran = bash(script, self.dir, env)
        assert (ran.returncode, ran.stderr) == (0, ""), ran
        return ran.stdout

    def refuses(self, script: str) -> str:
        """Run *script* here; it must fail. Return what it says of it."""
        ran = bash(script, self.dir, None)
        assert ran.returncode != 0, ran
        return ran.stderr


def bash(script: str, dir: Path, env: dict[str, str] | None) -> subprocess.CompletedProcess[str]:
    """Run *script* in *dir*."""
    own = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": "/nowhere", "TERM": "dumb"}
    line: Sequence[str] = ["bash", "-euo", "pipefail", "-c", script]
    return subprocess.run(
        line,
        cwd=dir,
        env=own | (env or {}),
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
