"""Who may start now, and who never will, given what each needs and how the others ended.

Whoever needs something waits until all of it is settled, so that what it is blocked by does not
depend on what happened to end first.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct


class Blocked(Struct, frozen=True):
    """One that never starts, and the failures it would have needed, in the order of all."""

    id: str
    by: tuple[str, ...]


class ScheduleChange(Struct, frozen=True):
    """What follows when one is settled: who may start now, who never will."""

    ready: tuple[str, ...]
    blocked: tuple[Blocked, ...]


class Schedule:
    """Names by what they need, in their order; each is settled once.

    >>> schedule = Schedule({"a": [], "b": ["a"], "c": ["b"]})
    >>> schedule.first()
    ('a',)
    >>> schedule.failed("a").blocked
    (Blocked(id='b', by=('a',)), Blocked(id='c', by=('a',)))
    """

    def __init__(self, needs: Mapping[str, Sequence[str]]) -> None:
        self._place = {id: place for place, id in enumerate(needs)}
        self._needed_by: dict[str, list[str]] = {id: [] for id in needs}
        self._left: dict[str, int] = {}
        self._causes: dict[str, set[str]] = {id: set() for id in needs}
        for id, wanted in needs.items():
            mine = [each for each in dict.fromkeys(wanted) if each in self._place]
            self._left[id] = len(mine)
            for each in mine:
                self._needed_by[each].append(id)

    def first(self) -> tuple[str, ...]:
        """Return those that need nothing."""
        return tuple(id for id, left in self._left.items() if left == 0)

    def completed(self, id: str) -> ScheduleChange:
        """Settle *id* as done."""
        return self._settle(id, ())

    def failed(self, id: str) -> ScheduleChange:
        """Settle *id* as failed: what needs it, directly or not, is blocked by it."""
        return self._settle(id, (id,))

    def _settle(self, id: str, causes: Iterable[str]) -> ScheduleChange:
        ready: list[str] = []
        blocked: list[str] = []
        settled = [(id, set(causes))]
        while settled:
            one, why = settled.pop()
            for each in self._needed_by[one]:
                self._left[each] -= 1
                self._causes[each] |= why
                if self._left[each]:
                    continue
                if self._causes[each]:
                    blocked.append(each)
                    settled.append((each, self._causes[each]))
                else:
                    ready.append(each)
        return ScheduleChange(
            tuple(self._in_order(ready)),
            tuple(Blocked(each, self._named(each)) for each in self._in_order(blocked)),
        )

    def _in_order(self, ids: Iterable[str]) -> list[str]:
        return sorted(ids, key=self._place.__getitem__)

    def _named(self, id: str) -> tuple[str, ...]:
        return tuple(self._in_order(self._causes[id]))
