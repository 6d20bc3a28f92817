"""Durable memory against the one drawn on paper: random acts, and both must say the same."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import holdfast
from holdfast.ground.errors import HoldfastError, StaleRun
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory, DurableRun
from holdfast.memories.durable.records import StoredEntry
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.models import CAP, Drawn, DrawnMemory, DrawnRun, Result
from holdfast.testing.serving import Server, new_workspace

pytestmark = pytest.mark.hypothesis

AGENTS = ("agent_1", "agent_2")
agents = st.sampled_from(AGENTS)
lanes = st.sampled_from(["one", "two"])
keys = st.sampled_from(["a", "b", "c", "d", "e", "é"])
contents = st.sampled_from(["x", "y", "🦀" * 5, "z" * 60])
categories = st.sampled_from(["core", "core", "daily", "note", "CORE", "workspace", "conversation"])
picks = st.none() | st.integers(min_value=0, max_value=40)
spans = st.sampled_from([60, 60, 40 * 3600, 73 * 3600])


class DurableMachine(RuleBasedStateMachine):
    """Does to memories what it does to the drawn ones. Runs go by number, modulo how many."""

    def __init__(self, hf: Holdfast, clock: FrozenClock) -> None:
        super().__init__()
        self.hf, self.clock = hf, clock
        hf.set_durable_limits(cap=CAP, workspace_cap=CAP, run_cap=CAP)
        self.drawn = DrawnMemory()
        self.runs: list[DurableRun] = []
        self.ids: dict[int, str] = {}

    def acting(
        self, agent: str, pick: int | None
    ) -> tuple[str, DrawnRun | None, DurableMemory | DurableRun]:
        """Return who acts: the run of that number, or *agent* outside of any."""
        if pick is None or not self.runs:
            return agent, None, self.hf.durable(agent)
        number = pick % len(self.runs)
        run = self.drawn.runs[number]
        return run.agent, run, self.runs[number]

    @rule(
        agent=agents,
        pick=picks,
        key=keys,
        content=contents,
        category=categories,
        refresh=st.booleans(),
    )
    def set(  # noqa: PLR0917 - what an entry is, as it was drawn
        self,
        agent: str,
        pick: int | None,
        key: str,
        content: str,
        category: str,
        refresh: bool,
    ) -> None:
        name, run, real = self.acting(agent, pick)
        wish = Drawn(key, content, category, 0, 0, None)
        wanted = self.drawn.set(name, run, wish, refresh=refresh)
        try:
            stored = real.set(key, content, category=category, refresh=refresh)
        except HoldfastError as error:
            refusal = type(error).__name__
            assert refusal == wanted.must or (wanted.may and refusal == "Forgotten"), wanted
            return
        assert wanted.must is None, f"{wanted.must} was due, not {stored}"
        self.agree(stored, wanted)
        self.drawn.written(name, run, wish, wanted)

    def agree(self, stored: StoredEntry, wanted: Result) -> None:
        """Compare what a write came to with what was drawn."""
        assert stored.outcome == wanted.outcome
        assert tuple(each.key for each in stored.evicted) == wanted.evicted
        if wanted.outcome == "created":
            assert stored.id not in self.ids.values()
            self.ids[wanted.number] = stored.id
        assert stored.id == self.ids[wanted.number]

    @rule(agent=agents, pick=picks, key=keys)
    def forget(self, agent: str, pick: int | None, key: str) -> None:
        name, run, real = self.acting(agent, pick)
        if run is not None and not self.drawn.live(run):
            with pytest.raises(StaleRun):
                real.forget(key)
        else:
            assert real.forget(key) == self.drawn.forget(name, run, key)

    @rule(seconds=spans)
    def advance(self, seconds: int) -> None:
        self.clock.tick(seconds)
        self.drawn.now += seconds

    @rule(agent=agents, lane=lanes)
    def open(self, agent: str, lane: str) -> None:
        self.runs.append(self.hf.durable(agent).run(lane=lane))
        self.drawn.open(agent, lane)

    @precondition(lambda self: self.runs)
    @rule(pick=st.integers(min_value=0, max_value=40))
    def end(self, pick: int) -> None:
        _, run, _ = self.acting("", pick)
        assert run is not None
        if self.drawn.live(run):
            assert self.runs[run.number].end().removed == self.drawn.end(run)
        else:
            with pytest.raises(StaleRun):
                self.runs[run.number].end()

    @rule(agent=agents, pick=picks, budget=st.integers(min_value=0, max_value=300))
    def hydrate(self, agent: str, pick: int | None, budget: int) -> None:
        name, run, real = self.acting(agent, pick)
        if run is not None and not self.drawn.live(run):
            with pytest.raises(StaleRun):
                real.hydrate(budget)
            return
        hydration = real.hydrate(budget)
        taken, omitted = self.drawn.hydrated(name, run, budget)
        assert [each.key for each in hydration.entries] == taken
        assert {(each.scope, each.key): each.reason for each in hydration.omitted} == omitted
        assert hydration.size_bytes <= budget

    @rule()
    def sweep(self) -> None:
        self.hf.sweep()

    @invariant()
    def lists_tell_the_same(self) -> None:
        everybody = [self.acting(agent, None) for agent in AGENTS]
        living = [self.acting("", each.number) for each in self.drawn.runs if self.drawn.live(each)]
        for name, run, real in everybody + living:
            shown = [
                (each.scope, each.key, each.content, each.category, each.id)
                for each in real.list(limit=100).data
            ]
            assert shown == [
                (place[0], each.key, each.content, each.category, self.ids[each.number])
                for place, each in self.drawn.visible(name, run)
            ]


def play(hf: Holdfast, clock: FrozenClock, *, share: int = 1) -> None:
    """Play one in *share* of the games of the profile, each in a workspace of its own."""

    class Game(DurableMachine):
        def __init__(self) -> None:
            super().__init__(hf.acting(workspace=new_workspace()), clock)

    games = settings().max_examples // share
    run_state_machine_as_test(Game, settings=settings(max_examples=games))


@pytest.fixture
def in_memory(clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(":memory:", clock=clock) as hf:
        yield hf


def test_in_memory(in_memory: Holdfast, clock: FrozenClock) -> None:
    play(in_memory, clock)


def test_where_it_is_kept(hf: Holdfast, clock: FrozenClock) -> None:
    play(hf, clock, share=5)


def test_over_http(remote: Holdfast, server: Server) -> None:
    play(remote, server.clock, share=5)
