"""Contract of durable memory as it was at an earlier moment."""

from contextlib import suppress
from datetime import datetime, timedelta, timezone
from random import Random

import pytest

from contracts.durable_writes import DAILY, GivenAnAgent, bad, keys_of
from holdfast.ground.errors import InvalidInput, MemoryFull, NotFound
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import DurableEntry
from holdfast.testing.fakes import FrozenClock

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEYS = ("a", "b", "c", "d", "e")
CATEGORIES = ("core", "note", "workspace")


def shown(durable: DurableMemory, at: datetime | str | None = None) -> list[DurableEntry]:
    """Return the entries of all pages, as they were."""
    return list(durable.list(limit=2, at=at).all())


def a_write(random: Random, durable: DurableMemory) -> None:
    """Write some entry; nothing where only core entries could go for it."""
    tags = random.sample(("t", "u", "v"), random.randint(0, 2))
    category = random.choice(CATEGORIES)
    with suppress(MemoryFull):
        durable.set(random.choice(KEYS), f"text {random.random()}", category=category, tags=tags)


class Erased:
    """The numbers of changes that were erased, as a reader of the rules would count."""

    def __init__(self, durable: DurableMemory) -> None:
        self.seqs = set[int]()
        self._durable = durable
        self._written = dict[tuple[str, str], set[int]]()

    def wrote(self) -> None:
        """Learn the numbers of what is there now."""
        for each in self._durable.list().data:
            self._written.setdefault((each.scope, each.key), set()).add(each.seq)

    def forget(self, key: str) -> None:
        """Forget *key*: of the agent, or else of both."""
        entry = self._durable.get(key)
        self._durable.forget(key)
        scopes = ("agent",) if entry and entry.scope == "agent" else ("agent", "workspace")
        for scope in scopes:
            self.seqs |= self._written.get((scope, key), set())

    def redact(self, random: Random) -> None:
        """Redact some change that has content."""
        held = [each.seq for each in self._durable.history().data if each.content is not None]
        if held:
            seq = random.choice(held)
            self._durable.redact(seq)
            self.seqs.add(seq)


class DurableHistoryContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.surface("http", "times and pages cross the wire")
    @pytest.mark.parametrize("seed", range(3))
    def test_entries_are_at_each_moment_what_a_reader_got_then(
        self, durable: DurableMemory, clock: FrozenClock, seed: int, surface: str
    ) -> None:
        random = Random(seed)
        durable.set_limits(cap=3)
        kept = [(clock.now(), shown(durable), {key: durable.get(key) for key in KEYS})]
        for _ in range(10 if surface == "http" else 30):
            clock.tick(random.choice((1, 60, 3_600)))
            a_write(random, durable)
            kept.append((clock.now(), shown(durable), {key: durable.get(key) for key in KEYS}))
        clock.tick()

        for then, entries, by_key in kept:
            assert shown(durable, then) == entries
            assert {key: durable.get(key, at=then) for key in KEYS} == by_key
            assert durable.list(at=then).erased == 0

    @pytest.mark.parametrize("seed", range(4))
    def test_what_was_erased_since_was_never_there(
        self, durable: DurableMemory, clock: FrozenClock, seed: int
    ) -> None:
        random, erased = Random(seed), Erased(durable)
        kept = list[tuple[datetime, list[DurableEntry]]]()
        for _ in range(40):
            clock.tick(random.choice((1, 60, 3_600)))
            what = random.choice(("write", "write", "write", "forget", "redact"))
            if what == "write":
                a_write(random, durable)
            elif what == "forget":
                erased.forget(random.choice(KEYS))
            else:
                erased.redact(random)
            erased.wrote()
            kept.append((clock.now(), shown(durable)))

        for then, entries in kept:
            left = [each for each in entries if each.seq not in erased.seqs]
            assert shown(durable, then) == left
            assert durable.list(at=then).erased == len(entries) - len(left)

    @pytest.mark.parametrize("seed", range(3))
    def test_where_the_clock_was_set_back_the_last_write_counts(
        self, durable: DurableMemory, clock: FrozenClock, seed: int
    ) -> None:
        random, start = Random(seed), clock.now()
        writes = list[tuple[datetime, DurableEntry]]()
        for _ in range(25):
            clock.tick(random.choice((1, 60, 3_600, -60, -1_800)))
            key = random.choice(KEYS)
            durable.set(key, f"text {random.random()}", category="note")
            entry = durable.get(key)
            assert entry is not None
            writes.append((clock.now(), entry))
        clock.tick(2 * DAY.total_seconds())

        for then in (start, *(at for at, _ in writes)):
            there = {entry.key: entry for at, entry in writes if at <= then}
            assert {each.key: each for each in shown(durable, then)} == there

    @pytest.mark.surface("http", "filters cross the wire")
    def test_filters_are_about_the_entries_of_then(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("deploy", "heroku", category="core", tags=["ops"])
        durable.set("door", "blue", category="note")
        then = clock.now()
        clock.tick(60)
        durable.set("deploy", "fly.io", category="note", tags=["infra"])

        assert keys_of(durable.list(category="core", at=then).data) == ["deploy"]
        assert keys_of(durable.list(tags=["ops"], query="HERO", at=then).data) == ["deploy"]
        assert keys_of(durable.list(key_prefix="do", at=then).data) == ["door"]
        assert durable.list(since=then + HOUR / 100, at=then).data == []
        assert keys_of(durable.list(since=then, at=then).data) == ["door", "deploy"]

    @pytest.mark.surface("http", "times cross the wire")
    def test_a_moment_is_a_time_with_a_zone_that_has_been(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("owner", "Ada", category="core")
        now = clock.now()
        eastern = now.astimezone(timezone(timedelta(hours=2)))

        for moment in (now, eastern, now.isoformat(), eastern.isoformat()):
            assert durable.get("owner", at=moment) == durable.get("owner")
        assert durable.get("owner", at=now - HOUR) is None
        assert durable.get("nothing", at=now) is None
        for wrong in (now + HOUR, now.replace(tzinfo=None), "yesterday"):
            with bad("at"):
                durable.list(at=wrong)
            with bad("at"):
                durable.get("owner", at=wrong)

    @pytest.mark.surface("http", "the reason crosses the wire")
    def test_before_its_retention_the_history_has_not_begun(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("owner", "Ada", category="core")
        then = clock.now()
        clock.tick((91 * DAY).total_seconds())
        durable.set("other", "x", category="core")
        durable.sweep()

        for look in (lambda: durable.get("owner", at=then), lambda: durable.list(at=then)):
            with pytest.raises(InvalidInput) as early:
                look()
            assert early.value.field == "at"
            assert early.value.reason.startswith("history begins 2026-")
        page = durable.list(at=clock.now() - DAY)
        assert (keys_of(page.data), page.erased) == (["owner"], 0)
        assert durable.get("owner", at=clock.now() - DAY) == durable.get("owner")

    def test_of_a_key_with_many_changes_the_history_begins_later(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("quiet", "x", category="core")
        then = clock.now()
        for n in range(25):
            clock.tick(60)
            durable.set("owner", str(n), category="core")
        entry = durable.get("owner", at=clock.now() - HOUR / 4)
        assert entry is not None
        assert entry.content == "9"

        assert durable.get("quiet", at=then) == durable.get("quiet")
        with pytest.raises(InvalidInput, match="history begins"):
            durable.get("owner", at=then)
        page = durable.list(at=then)
        assert (keys_of(page.data), page.erased) == (["quiet"], 1)

    def test_a_daily_entry_is_there_until_it_expires_and_then_never_was(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("ticket", "Call Ada back", category="daily")
        then = clock.now()
        clock.tick(DAY.total_seconds())
        assert [each.content for each in shown(durable, then)] == ["Call Ada back"]
        assert durable.get("ticket", at=then) == durable.get("ticket")

        clock.tick(DAILY.total_seconds())
        for _ in range(2):
            page = durable.list(at=then)
            assert (page.data, page.erased) == ([], 1)
            assert durable.get("ticket", at=then) is None
            durable.sweep()

    def test_an_entry_moves_between_scopes_as_it_did(
        self, durable: DurableMemory, other: DurableMemory, clock: FrozenClock
    ) -> None:
        durable.set("style", "own", category="core")
        own = clock.now()
        clock.tick(60)
        durable.set("style", "shared", category="workspace")
        shared = clock.now()
        clock.tick(60)
        other.forget("style", scope="workspace")

        entry = durable.get("style", at=own)
        assert entry is not None
        assert (entry.content, entry.scope) == ("own", "agent")
        assert durable.get("style", at=shared) is None
        assert other.get("style", at=own) is None
        assert (durable.list(at=shared).data, durable.list(at=shared).erased) == ([], 1)

    @pytest.mark.surface("http", "runs cross the wire")
    def test_entries_of_runs_have_no_history(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        with durable.run("run_1") as run:
            run.set("plan", "Ask first", category="conversation")
            run.set("owner", "Ada", category="core")

            assert [each.key for each in run.list(at=clock.now())] == ["owner"]
            assert run.get("plan", at=clock.now()) is None
            found = run.get("owner", at=clock.now())
        assert found == durable.get("owner")
        assert durable.list(at=clock.now()).erased == 0

    def test_a_forgotten_change_is_no_number_of_the_past(
        self, durable: DurableMemory, clock: FrozenClock
    ) -> None:
        seq = durable.set("owner", "Ada", category="core").seq
        durable.forget("owner")
        durable.set("owner", "Bob", category="core")

        with pytest.raises(NotFound):
            durable.restore("owner", seq)
        entry = durable.get("owner", at=clock.now())
        assert entry is not None
        assert entry.content == "Bob"
