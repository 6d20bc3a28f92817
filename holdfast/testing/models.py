"""Models of memories, for random operations on a memory and on its model.

It is slow and only in memory. A tested store must return the same results.
"""

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, NamedTuple

from holdfast.ground.clock import EPOCH
from holdfast.ground.errors import (
    ContentGone,
    HeadVersion,
    HoldfastError,
    InvalidInput,
    NotFound,
    PathTaken,
    PreconditionFailed,
    StoreFull,
)
from holdfast.memories.stores.records import Operation

RESERVED = "/.anthropic-memory-store"


def is_path(text: str) -> bool:
    """Check whether *text* is a valid path of a memory."""
    segments = text.split("/")[1:]
    return (
        text.startswith("/")
        and 2 <= len(text.encode("utf-8", "surrogatepass")) <= 1024
        and len(segments) <= 20
        and not {"", ".", ".."} & set(segments)
        and not any(unicodedata.category(char) in {"Cc", "Cf", "Cs"} for char in text)
        and not {"\u2028", "\u2029"} & set(text)
        and unicodedata.normalize("NFC", text) == text
        and text != RESERVED
    )


def is_content(text: str) -> bool:
    """Check whether *text* is valid content of a memory."""
    surrogate = any("\ud800" <= char <= "\udfff" for char in text)
    return not surrogate and len(text.encode()) <= 102_400


def excludes(path: str, other: str) -> bool:
    """Check whether memories at *path* and *other* would conflict."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


class ModelMemory(NamedTuple):
    """A live memory; `head` is the index of its newest version in `versions`."""

    path: str
    content: str
    head: int


class ModelVersion(NamedTuple):
    """One version; path and content are None if deleted or redacted."""

    memory: int
    operation: Operation
    path: str | None
    content: str | None
    redacted: bool = False


class ModelStore:
    """Model of a store. Memories and versions are identified by number."""

    def __init__(self, cap: int = 10_000) -> None:
        self.cap = cap
        self.memories: dict[int, ModelMemory] = {}
        self.versions: list[ModelVersion] = []
        self._numbers = count()

    def create(self, path: str, content: str) -> int:
        """Create a memory and return its number; raise the errors of a store."""
        _check(path, content)
        self._check_free(path)
        self._check_room()
        number = next(self._numbers)
        self._write(number, "created", path, content)
        return number

    def update(
        self, number: int, *, path: str | None, content: str | None, expected: str | None
    ) -> None:
        """Change path, content or both, if the content is *expected* (None: any)."""
        memory = self._live(number)
        _check(path, content)
        if path is None and content is None:
            raise InvalidInput("content", "nothing to change")
        path = memory.path if path is None else path
        content = memory.content if content is None else content
        if (path, content) == memory[:2]:
            return
        _check_expected(memory, expected)
        self._check_free(path, moving=[number])
        self._write(number, "modified", path, content)

    def delete(self, number: int, *, expected: str | None) -> None:
        """Delete a memory, if its content is *expected* (None: any)."""
        _check_expected(self._live(number), expected)
        self._end(number)

    def rename(self, old: str, new: str) -> None:
        """Move the memory at *old*, or all below it, to the free path *new*."""
        if not is_path(new):
            raise InvalidInput("new_path", "is no path")
        moved = self._under(old)
        if not moved:
            raise NotFound("path", old)
        if old == new:
            return
        if new.startswith(f"{old}/"):
            raise InvalidInput("new_path", "is within the old")
        targets = {number: new + self.memories[number].path[len(old) :] for number in moved}
        if not all(map(is_path, targets.values())):
            raise InvalidInput("new_path", "makes what is no path")
        self._check_free(new, moving=targets)
        for number, path in targets.items():
            self._write(number, "modified", path, self.memories[number].content)

    def delete_under(self, path: str) -> int:
        """Delete the memory at *path*, or all below it; return how many."""
        doomed = self._under(path)
        for number in doomed:
            self._end(number)
        return len(doomed)

    def redact(self, version: int) -> None:
        """Redact path and content of a version that is no head."""
        old = self.versions[version]
        live = self.memories.get(old.memory)
        if live and live.head == version:
            raise HeadVersion(str(version), str(old.memory))
        self.versions[version] = old._replace(path=None, content=None, redacted=True)

    def restore(self, version: int) -> None:
        """Write the content of an older version again, under the memory's old number."""
        old = self.versions[version]
        if old.redacted:
            raise ContentGone(str(version), EPOCH)
        if old.path is None or old.content is None:
            raise InvalidInput("version", "tells of a deletion")
        live = self.memories.get(old.memory)
        if live is None:
            self._check_free(old.path)
            self._check_room()
            self._write(old.memory, "created", old.path, old.content)
        elif live.content != old.content:
            self._write(old.memory, "modified", live.path, old.content)

    def listed(self, prefix: str = "/", depth: int = 0) -> list[str]:
        """Return the paths of a list of the store, in byte order."""
        below = [each.path for each in self.memories.values() if each.path.startswith(prefix)]
        if depth:
            below = [prefix + _first(path[len(prefix) :]) for path in below]
        return sorted(set(below), key=str.encode)

    def _live(self, number: int) -> ModelMemory:
        if number not in self.memories:
            raise NotFound("memory", str(number))
        return self.memories[number]

    def _under(self, path: str) -> list[int]:
        return [
            number
            for number, each in self.memories.items()
            if (each.path + "/").startswith(path + "/")
        ]

    def _check_free(self, path: str, *, moving: Collection[int] = ()) -> None:
        blockers = [
            each.path
            for number, each in self.memories.items()
            if number not in moving and excludes(each.path, path)
        ]
        if blockers:
            raise PathTaken("", min(blockers, key=str.encode))

    def _check_room(self) -> None:
        if len(self.memories) >= self.cap:
            raise StoreFull("", self.cap)

    def _write(self, number: int, operation: Operation, path: str, content: str) -> None:
        self.memories[number] = ModelMemory(path, content, len(self.versions))
        self.versions.append(ModelVersion(number, operation, path, content))

    def _end(self, number: int) -> None:
        gone = self.memories.pop(number)
        self.versions.append(ModelVersion(number, "deleted", gone.path, None))


def _check(path: str | None, content: str | None) -> None:
    if path is not None and not is_path(path):
        raise InvalidInput("path", "is no path")
    if content is not None and not is_content(content):
        raise InvalidInput("content", "is no content")


def _check_expected(memory: ModelMemory, expected: str | None) -> None:
    if expected is not None and expected != memory.content:
        raise PreconditionFailed("", expected=expected, current=memory.content)


def _first(path: str) -> str:
    head, slash, _ = path.partition("/")
    return head + slash


def same_refusal(ours: HoldfastError | None, theirs: HoldfastError | None) -> bool:
    """Check whether two errors, or None, have the same class and conflicting path."""
    path = getattr(ours, "conflicting_path", None)
    return type(ours) is type(theirs) and path == getattr(theirs, "conflicting_path", None)


CAP: Final = 3
"""Limit of entries of an agent, a workspace and a run in the model."""
DAILY: Final = 72 * 3600
LAPSE: Final = 24 * 3600
SHARED: Final = "workspace"

Place = tuple[str, str]
"""Owner of an entry: `agent` and its name, `run` and its number, or the workspace."""


@dataclass(frozen=True)
class Drawn:
    """An entry: `order` is its last write, `number` its identity."""

    key: str
    content: str
    category: str
    order: int
    number: int
    expires: int | None

    @property
    def size(self) -> int:
        """Its size in bytes, as counted by a hydration budget."""
        return len(f"{self.key}{self.content}{self.category}".encode())


@dataclass
class DrawnRun:
    """A run of an agent: when it began, its last heartbeat, and whether it is over."""

    agent: str
    lane: str
    number: int
    began: int
    seen: int
    over: bool = False

    @property
    def place(self) -> Place:
        """The owner of its conversation entries."""
        return ("run", str(self.number))


@dataclass(frozen=True)
class Result:
    """Outcome of a write, or its refusal: `must` is required, `may` allows one too."""

    outcome: str | None = None
    number: int = -1
    evicted: tuple[str, ...] = ()
    must: str | None = None
    may: bool = False


@dataclass
class DrawnMemory:
    """All memories of a workspace."""

    now: int = 0
    order: int = 0
    entries: dict[tuple[Place, str], Drawn] = field(default_factory=dict[tuple[Place, str], Drawn])
    forgets: list[tuple[Place, str, int, int]] = field(
        default_factory=list[tuple[Place, str, int, int]]
    )
    runs: list[DrawnRun] = field(default_factory=list[DrawnRun])

    def live(self, run: DrawnRun) -> bool:
        """Check whether *run* may still write."""
        return not run.over and self.now - run.seen <= LAPSE

    def places(self, agent: str, run: DrawnRun | None) -> list[Place]:
        """Return the owners whose entries *agent* sees in *run*, the nearest first."""
        own = [("agent", agent), (SHARED, "")]
        return own if run is None else [run.place, *own]

    def held(self, place: Place) -> list[Drawn]:
        """Return the visible entries of *place*, newest first."""
        here = [
            each
            for (where, _), each in self.entries.items()
            if where == place and (each.expires is None or self.now <= each.expires)
        ]
        return sorted(here, key=lambda each: -each.order)

    def visible(self, agent: str, run: DrawnRun | None) -> list[tuple[Place, Drawn]]:
        """Return the entries that *agent* lists in *run*, newest first."""
        found = [(place, each) for place in self.places(agent, run) for each in self.held(place)]
        return sorted(found, key=lambda each: -each[1].order)

    def set(self, agent: str, run: DrawnRun | None, wish: Drawn, *, refresh: bool) -> Result:
        """Return the result of writing *wish*, without applying it."""
        if run is not None and not self.live(run):
            return Result(must="StaleRun")
        if wish.category == "conversation" and run is None:
            return Result(must="RunRequired")
        place = self._place(agent, run, wish.category)
        if self._forgotten(agent, run, place, wish.key):
            return Result(must="Forgotten")
        before = next((each for each in self.held(place) if each.key == wish.key), None)
        may = self._maybe_forgotten(agent, run, wish.key)
        evicted: list[Drawn] = []
        if before is None:
            victim = self._victim(place, wish)
            if victim == "full":
                return Result(must="MemoryFull", may=may)
            evicted = [victim] if isinstance(victim, Drawn) else []
        same = before is not None and (before.content, before.category) == (
            wish.content,
            wish.category,
        )
        outcome = "created" if before is None else "refreshed" if same else "replaced"
        if same and not refresh:
            outcome = "unchanged"
        number = self.order + 1 if before is None else before.number
        return Result(
            outcome=outcome, number=number, evicted=tuple(each.key for each in evicted), may=may
        )

    def written(self, agent: str, run: DrawnRun | None, wish: Drawn, result: Result) -> None:
        """Apply the *result* of writing *wish*."""
        place = self._place(agent, run, wish.category)
        self.order += 1
        for key in result.evicted:
            del self.entries[place, key]
        if run is not None:
            run.seen = self.now
        places = self.places(agent, run)
        for nearer in places[: places.index(place)]:
            self.entries.pop((nearer, wish.key), None)
        if result.outcome == "unchanged":
            return
        expires = self.now + DAILY if wish.category == "daily" else None
        self.entries[place, wish.key] = replace(
            wish, order=self.order, number=result.number, expires=expires
        )

    def forget(self, agent: str, run: DrawnRun | None, key: str) -> bool:
        """Forget *key*; return whether it existed."""
        places = self.places(agent, run)
        there = [place for place in places if key in {each.key for each in self.held(place)}]
        own = [place for place in there if place[0] != SHARED]
        self.order += 1
        if run is not None:
            run.seen = self.now
        for place in own or there:
            del self.entries[place, key]
            self.forgets.append((place, key, self.order, -1 if run is None else run.number))
        return bool(there)

    def open(self, agent: str, lane: str) -> DrawnRun:
        """Begin a run, which supersedes the open one of the same lane."""
        self.order += 1
        for each in self.runs:
            if (each.agent, each.lane) == (agent, lane):
                self.end(each)
        run = DrawnRun(agent, lane, len(self.runs), self.order, self.now)
        self.runs.append(run)
        return run

    def end(self, run: DrawnRun) -> int:
        """End *run*; return how many entries were deleted with it."""
        gone = [each for each in self.entries if each[0] == run.place]
        for each in gone:
            del self.entries[each]
        run.over = True
        return len(gone)

    def hydrated(
        self, agent: str, run: DrawnRun | None, budget: int
    ) -> tuple[list[str], dict[tuple[str, str], str]]:
        """Return the hydrated keys in order, and the reason of each omitted entry."""
        nearest: dict[str, tuple[Place, Drawn]] = {}
        omitted: dict[tuple[str, str], str] = {}
        for place in self.places(agent, run):
            for each in self.held(place):
                if each.key in nearest:
                    omitted[place[0], each.key] = "shadowed"
                else:
                    nearest[each.key] = (place, each)
        taken, left = list[str](), budget
        newest = sorted(nearest.values(), key=lambda each: -each[1].order)
        for place, each in sorted(newest, key=lambda each: each[1].category != "core"):
            if each.size <= left:
                taken.append(each.key)
                left -= each.size
            else:
                omitted[place[0], each.key] = "too_big" if each.size > budget else "over_budget"
        return taken, omitted

    def _place(self, agent: str, run: DrawnRun | None, category: str) -> Place:
        if category == "conversation" and run is not None:
            return run.place
        return (SHARED, "") if category == "workspace" else ("agent", agent)

    def _victim(self, place: Place, wish: Drawn) -> Drawn | str | None:
        held = self.held(place)
        if len(held) < CAP:
            return None
        coldest_first = held[::-1]
        windowed = [each for each in coldest_first if each.category != "core"]
        if windowed:
            return windowed[0]
        return coldest_first[0] if wish.category == "core" else "full"

    def _after(self, agent: str, run: DrawnRun, key: str) -> list[tuple[Place, int]]:
        """Return the owner and run of each forget of *key* since *run* began."""
        places = self.places(agent, run)
        return [
            (place, by)
            for place, forgotten, order, by in self.forgets
            if forgotten == key and order > run.began and place in places
        ]

    def _forgotten(self, agent: str, run: DrawnRun | None, place: Place, key: str) -> bool:
        """Check whether a write of *run* at *place* must be refused as forgotten."""
        if run is None or (place, key) in self.entries:
            return False
        after = self._after(agent, run, key)
        return place in {where for where, _ in after} and all(by != run.number for _, by in after)

    def _maybe_forgotten(self, agent: str, run: DrawnRun | None, key: str) -> bool:
        """Check whether a write may be refused as forgotten."""
        if run is None:
            return False
        return any(by != run.number for _, by in self._after(agent, run, key))
