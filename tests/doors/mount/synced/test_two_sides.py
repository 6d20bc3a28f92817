"""Two directories of one store, changed at once by programs that know nothing of each other."""

import random
from pathlib import Path
from threading import Thread

import pytest
from doors.mount.synced.conftest import Sides
from doors.mount.synced.directories import OFTEN, Side, eventually

NAMES = ("a", "b", "d/c", "d/e")
ACTS = 60


class Program(Thread):
    """Changes files at random; `last` is what it wrote to each, unless it took that away again."""

    def __init__(self, side: Side, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._side, self._called = side, name
        self._random = random.Random(seed)
        self.last: dict[str, str] = {}

    def run(self) -> None:
        for number in range(ACTS):
            name = self._random.choice(NAMES)
            content = f"{self._called} {number}\n"
            path = self._side.root / name
            match self._random.randrange(6):
                case 0 | 1:
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(content)
                    self.last[name] = content
                case 2 | 3:
                    path.parent.mkdir(exist_ok=True)
                    part = path.with_name(f".{path.name}.tmp")
                    part.write_text(content)
                    part.replace(path)
                    self.last[name] = content
                case 4:
                    path.unlink(missing_ok=True)
                    self.last.pop(name, None)
                case _:
                    self._other_way(path, name)

    def _other_way(self, path: Path, name: str) -> None:
        """Rename a file over another."""
        other = self._random.choice(NAMES)
        try:
            path.rename(self._side.root / other)
        except OSError:
            return
        self.last.pop(other, None)
        content = self.last.pop(name, None)
        if content is not None:
            self.last[other] = content


@pytest.mark.parametrize("seed", range(3))
def test_both_come_to_be_equal_and_what_each_wrote_last_is_kept(sides: Sides, seed: int) -> None:
    one, other = sides(grace=0.1).start(pace=OFTEN), sides(grace=0.1).start(pace=OFTEN)
    programs = [Program(one, "one", seed), Program(other, "other", seed + 100)]

    for program in programs:
        program.start()
    for program in programs:
        program.join()

    eventually(lambda: one.equal() and other.equal())
    for each in (one, other):
        assert each.stop() == 0
    for each in (one, other):
        each.start()
        eventually(each.equal)
    kept = history(one)
    for program in programs:
        assert set(program.last.values()) <= kept


def history(side: Side) -> set[str]:
    page = side.hf.memory_stores.memory_versions.list(side.stores[0], view="full", limit=20)
    return {each.content for each in page.all() if each.content is not None}
