"""Durable memory drawn on paper: a plain dict, and the rules in their plainest words."""

from dataclasses import dataclass, field, replace
from typing import Final

CAP: Final = 3
"""How many entries an agent, a workspace and a run may have here."""
DAILY: Final = 72 * 3600
LAPSE: Final = 24 * 3600
SHARED: Final = "workspace"

Place = tuple[str, str]
"""What keeps an entry: `agent` and its name, `run` and its token's number, or the workspace."""


@dataclass(frozen=True)
class Drawn:
    """An entry: `order` is when it was written, `number` which entry it is."""

    key: str
    content: str
    category: str
    order: int
    number: int
    expires: int | None

    @property
    def size(self) -> int:
        """Its bytes, as a budget counts them."""
        return len(f"{self.key}{self.content}{self.category}".encode())


@dataclass
class DrawnRun:
    """A run of an agent: when it began, when it was last seen, and whether it is over."""

    agent: str
    lane: str
    number: int
    began: int
    seen: int
    over: bool = False

    @property
    def place(self) -> Place:
        """Where its conversation entries are."""
        return ("run", str(self.number))


@dataclass(frozen=True)
class Result:
    """What a write came to, or why it was refused: of `may` any, of `must` one."""

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
        """Say whether *run* may still act."""
        return not run.over and self.now - run.seen <= LAPSE

    def places(self, agent: str, run: DrawnRun | None) -> list[Place]:
        """Return where *agent*, in *run*, finds entries, the nearest first."""
        own = [("agent", agent), (SHARED, "")]
        return own if run is None else [run.place, *own]

    def held(self, place: Place) -> list[Drawn]:
        """Return what is visible at *place*, newest first."""
        here = [
            each
            for (where, _), each in self.entries.items()
            if where == place and (each.expires is None or self.now <= each.expires)
        ]
        return sorted(here, key=lambda each: -each.order)

    def visible(self, agent: str, run: DrawnRun | None) -> list[tuple[Place, Drawn]]:
        """Return what *agent* lists in *run*, newest first."""
        found = [(place, each) for place in self.places(agent, run) for each in self.held(place)]
        return sorted(found, key=lambda each: -each[1].order)

    def set(self, agent: str, run: DrawnRun | None, wish: Drawn, *, refresh: bool) -> Result:
        """Write *wish*, or say why not."""
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
        """Draw what the write of *wish* came to."""
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
        """Forget *key* and say whether something was there."""
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
        """Begin a run, which supersedes the one that was open in its lane."""
        self.order += 1
        for each in self.runs:
            if (each.agent, each.lane) == (agent, lane):
                self.end(each)
        run = DrawnRun(agent, lane, len(self.runs), self.order, self.now)
        self.runs.append(run)
        return run

    def end(self, run: DrawnRun) -> int:
        """End *run* and return how many entries went with it."""
        gone = [each for each in self.entries if each[0] == run.place]
        for each in gone:
            del self.entries[each]
        run.over = True
        return len(gone)

    def hydrated(
        self, agent: str, run: DrawnRun | None, budget: int
    ) -> tuple[list[str], dict[tuple[str, str], str]]:
        """Return the keys taken in their order, and why each other entry is not."""
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
        """Return where and through whom *key* was forgotten since *run* began."""
        places = self.places(agent, run)
        return [
            (place, by)
            for place, forgotten, order, by in self.forgets
            if forgotten == key and order > run.began and place in places
        ]

    def _forgotten(self, agent: str, run: DrawnRun | None, place: Place, key: str) -> bool:
        """Say whether a write of *run* at *place* would surely revive *key*."""
        if run is None or (place, key) in self.entries:
            return False
        after = self._after(agent, run, key)
        return place in {where for where, _ in after} and all(by != run.number for _, by in after)

    def _maybe_forgotten(self, agent: str, run: DrawnRun | None, key: str) -> bool:
        """Say whether a refusal as forgotten would be in order as well."""
        if run is None:
            return False
        return any(by != run.number for _, by in self._after(agent, run, key))
