"""Contract of the wish to mine a collection: its extractor, states, budget and what is left."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Literal

import pytest

from contracts.longterm_extraction import Scripted, orphan, outcomes, told
from contracts.longterm_items import items, memory_of, said
from contracts.longterm_vectors import SECONDS, jobs, until
from holdfast.ground.errors import InvalidInput
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.background import schedule
from holdfast.memories.longterm.background.wishes import spend
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, Turn
from holdfast.testing.fakes import FrozenClock

TEA = '[{"text": "Ana likes tea"}]'
FAR = "openai:far"
"""A model whose key no test has."""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set no extractor and no key."""
    for name in ("HOLDFAST_LTM_EXTRACTOR", "HOLDFAST_LTM_EXTRACTOR_BUDGET", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def states(ltm: LongTermMemory) -> tuple[str | None, str, str | None]:
    """Return extractor, state and reason of *ltm*."""
    status = ltm.status()
    return status.extractor, status.extractor_state, status.extractor_reason


@contextmanager
def waiting_events(hf: Holdfast) -> Generator[list[Event]]:
    """Give the events of this workspace about extractors that do not do their work."""
    events: list[Event] = []

    def note(event: Event) -> None:
        if event.workspace == hf.workspace:
            events.append(event)

    off = hf.events.subscribe(note, types=["longterm.extraction_waiting"])
    yield events
    off()


@pytest.mark.embedded("a server must be started with --allow-model: TestOverHTTP does that")
class WishByNameContract:
    """What also holds through a server, where an extractor is a name. Give it `hf`."""

    def test_without_a_wish_turns_are_stored_and_not_queued(self, hf: Holdfast) -> None:
        ltm = memory_of(hf, "ada")
        recorded = ltm.remember_conversation([{"role": "user", "content": "I like tea"}])

        status = ltm.status()
        assert (recorded.queued, status.pending_extraction, status.unmined) == (False, 0, 1)
        assert states(ltm) == (None, "none", None)
        assert ltm.remine() == 0

    def test_a_collection_keeps_an_extractor_of_its_own(self, hf: Holdfast) -> None:
        status = hf.longterm_data("ada").configure(extractor=FAR)

        assert (status.extractor, status.extractor_state) == (FAR, "waiting")
        assert status.extractor_reason == f"{FAR}: no key OPENAI_API_KEY"
        ltm = memory_of(hf, "ada")
        assert ltm.remember_conversation([{"role": "user", "content": "tea"}]).queued
        assert (ltm.status().pending_extraction, ltm.status().unmined) == (1, 0)
        assert memory_of(hf, "bob").status().extractor is None

    def test_a_wish_that_waits_is_not_waited_for(self, hf: Holdfast) -> None:
        hf.longterm_data("ada").configure(extractor=FAR)
        ltm = memory_of(hf, "ada")
        ltm.remember_conversation([{"role": "user", "content": "tea"}])

        flushed = ltm.flush(SECONDS)

        assert (flushed.done, flushed.pending, flushed.failed) == (False, 1, 0)

    def test_an_own_extractor_may_be_withdrawn(self, hf: Holdfast) -> None:
        data = hf.longterm_data("ada")
        data.configure(extractor=FAR)

        assert data.configure().extractor == FAR
        assert data.configure(extractor=None).extractor is None

    @pytest.mark.parametrize("withdrawn", [None, False])
    def test_what_waits_for_a_withdrawn_extractor_is_unmined_again(
        self, withdrawn: Literal[False] | None, hf: Holdfast
    ) -> None:
        hf.longterm_data("ada").configure(extractor=FAR)
        ltm = memory_of(hf, "ada")
        ltm.remember_conversation([{"role": "user", "content": "tea"}])

        status = ltm.configure(extractor=withdrawn)

        assert (status.extractor_state, status.pending_extraction, status.unmined) == ("none", 0, 1)

    @pytest.mark.parametrize("given", ["", "model", "openai:"])
    def test_what_names_no_model_is_refused(self, given: str, hf: Holdfast) -> None:
        with pytest.raises(InvalidInput, match="extractor"):
            hf.longterm_data("ada").configure(extractor=given)

    def test_the_variable_is_for_collections_without_an_extractor_of_their_own(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hf.longterm_data("ada").configure(extractor=FAR)
        hf.longterm_data("eve").configure(extractor=False)
        monkeypatch.setenv("HOLDFAST_LTM_EXTRACTOR", "openai:near")

        found = [memory_of(hf, user).status().extractor for user in ("ada", "bob", "eve")]

        assert found == [FAR, "openai:near", None]
        assert memory_of(hf, "bob", extractor=False).status().extractor is None

    def test_remine_queues_what_no_job_has_covered(self, hf: Holdfast) -> None:
        ltm = memory_of(hf, "ada")
        ltm.record(
            [
                said("I like tea", thread_id="a", at="2024-01-01T00:00:00Z"),
                said("I like cake", thread_id="a", at="2024-03-01T00:00:00Z"),
                said("I like rain", thread_id="b", at="2024-03-01T00:00:00Z"),
                said("Ada is rich", thread_id="b", tier="outside", origin_ref="page"),
            ]
        )
        ltm.configure(extractor=FAR)

        assert ltm.status().unmined == 3
        assert ltm.remine("2024-02-01T00:00:00Z", "a") == 1
        assert ltm.remine(thread_id="a") == 1
        assert ltm.remine() == 1
        assert ltm.remine() == 0
        assert (ltm.status().pending_extraction, ltm.status().unmined) == (3, 0)


@pytest.mark.embedded("a function is no model of a server")
class LongTermWishContract(WishByNameContract):
    """Subclass it, and give it `hf` and `clock`."""

    def test_what_an_agent_wrote_in_the_place_of_the_user_is_context_alone(
        self, hf: Holdfast
    ) -> None:
        script = Scripted(TEA)
        ltm = memory_of(hf, "ada", extractor=script)
        written = Turn(role="user", text="Ana likes tea", tier="assistant")
        ltm.remember_conversation([written], "t")

        assert outcomes(ltm.flush(SECONDS)) == ["unconfirmed"]
        assert [turn.role for turn in script.asked[0].turns] == ["assistant"]

    def test_the_callers_extractor_comes_first(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hf.longterm_data("ada").configure(extractor=FAR)
        monkeypatch.setenv("HOLDFAST_LTM_EXTRACTOR", FAR)
        ltm = memory_of(hf, "ada", extractor=Scripted(TEA))

        told(ltm, "I like tea")

        assert states(ltm) == ("function", "ready", None)
        assert items(ltm) == ["Ana likes tea"]

    def test_a_collections_options_switch_mining_off(self, hf: Holdfast) -> None:
        hf.longterm_data("ada").configure(extractor=FAR)
        ltm = memory_of(hf, "ada", extractor=Scripted(), options=LongTermOptions(mine=False))

        assert not ltm.remember_conversation([{"role": "user", "content": "tea"}]).queued
        assert states(ltm) == (None, "none", None)

    def test_what_was_recorded_before_is_mined_when_asked(self, hf: Holdfast) -> None:
        memory_of(hf, "ada").remember_conversation([{"role": "user", "content": "I like tea"}])
        ltm = memory_of(hf, "ada", extractor=Scripted(TEA))
        assert ltm.flush(SECONDS).results == ()

        assert ltm.remine() == 1

        assert outcomes(ltm.flush(SECONDS)) == ["stored"]
        assert ltm.status().unmined == 0

    def test_an_extractor_that_never_fails_is_ready(self, hf: Holdfast, clock: FrozenClock) -> None:
        ltm = memory_of(hf, "ada", extractor=Scripted(TEA))
        assert ltm.status().mined_at is None
        with waiting_events(hf) as events:
            told(ltm, "I like tea")

        assert states(ltm) == ("function", "ready", None)
        assert ltm.status().mined_at == clock.now()
        assert events == []

    def test_one_that_fails_three_times_is_failing_until_it_answers(
        self, hf: Holdfast, clock: FrozenClock
    ) -> None:
        ltm = memory_of(hf, "ada", extractor=Scripted(*[ValueError("tea")] * 3, TEA))
        with waiting_events(hf) as events:
            ltm.remember_conversation([{"role": "user", "content": "I like tea"}])
            for tries, pause in enumerate((1, 10, 60), 1):
                until(lambda tries=tries: jobs(ltm) == [("queued", tries)])
                assert states(ltm) == ("function", "failing", "function: ValueError")
                clock.tick(pause + 0.1)
                if tries < 3:
                    ltm.flush(0)
            assert outcomes(ltm.flush(SECONDS)) == ["stored"]

        assert states(ltm) == ("function", "ready", None)
        assert [event.data["state"] for event in events] == ["failing"]
        assert "tea" not in repr(events)

    def test_one_that_always_fails_is_tried_each_quarter_of_an_hour(
        self, hf: Holdfast, clock: FrozenClock
    ) -> None:
        ltm = memory_of(hf, "ada", extractor=Scripted(*[ValueError("x")] * 9))
        ltm.remember_conversation([{"role": "user", "content": "I like tea"}])
        for tries, pause in enumerate((1, 10, 60), 1):
            until(lambda tries=tries: jobs(ltm) == [("queued", tries)])
            clock.tick(pause + 0.1)
            ltm.flush(0)
        until(lambda: jobs(ltm) == [("queued", 4)])
        assert ltm.flush(SECONDS).pending == 1
        clock.tick(890)
        assert ltm.flush(SECONDS).pending == 1
        assert jobs(ltm) == [("queued", 4)]

        clock.tick(11)

        assert ltm.flush(SECONDS).pending == 1
        assert jobs(ltm) == [("queued", 5)]
        assert states(ltm) == ("function", "failing", "function: ValueError")

    def test_an_answer_that_does_not_parse_is_a_failure_and_drops_no_turn(
        self, hf: Holdfast, clock: FrozenClock
    ) -> None:
        ltm = memory_of(hf, "ada", extractor=Scripted("As you wish!", TEA))
        ltm.remember_conversation([{"role": "user", "content": "I like tea"}])
        until(lambda: jobs(ltm) == [("queued", 1)])

        assert states(ltm) == ("function", "failing", "function: UnreadableAnswer")
        clock.tick(1.1)
        assert outcomes(ltm.flush(SECONDS)) == ["stored"]

    def test_one_that_hangs_is_failing(
        self, hf: Holdfast, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(schedule, "SECONDS", 0.1)
        script = Scripted(TEA, TEA)
        stuck = threading.Event()
        script.before = lambda: stuck.wait(SECONDS)
        ltm = memory_of(hf, "ada", extractor=script)
        ltm.remember_conversation([{"role": "user", "content": "I like tea"}])
        until(lambda: jobs(ltm) == [("queued", 1)])

        assert states(ltm) == ("function", "failing", "function: TimeoutError")
        monkeypatch.undo()
        stuck.set()
        clock.tick(1.1)
        assert outcomes(ltm.flush(SECONDS)) == ["stored"]

    def test_what_crashes_again_and_again_is_tried_slowly(
        self, hf: Holdfast, clock: FrozenClock
    ) -> None:
        script = Scripted(TEA, TEA, TEA, TEA, TEA)
        ltm = memory_of(hf, "ada", extractor=script)
        script.before = lambda: orphan(ltm)
        ltm.remember_conversation([{"role": "user", "content": "I like tea"}])
        for crashes in range(4):
            until(lambda crashes=crashes: len(script.asked) == crashes + 1)
            until(lambda crashes=crashes: jobs(ltm) == [("running", crashes)])
            ltm.flush(0.1)
            clock.tick(6.1)
            ltm.flush(0)
        until(lambda: jobs(ltm) == [("queued", 5)])

        assert states(ltm) == ("function", "failing", "function: Crashed")
        assert len(script.asked) == 4
        script.before = lambda: None
        clock.tick(901)
        assert outcomes(ltm.flush(SECONDS)) == ["stored"]

    def test_a_model_that_waits_is_told_of_once(self, hf: Holdfast) -> None:
        with waiting_events(hf) as events:
            ltm = memory_of(hf, "ada", extractor=FAR)
            for line in ("tea", "cake", "rain"):
                ltm.remember_conversation([{"role": "user", "content": line}], line)
                ltm.flush(0)
            until(lambda: bool(events))
            ltm.flush(0.1)

        assert [event.data["state"] for event in events] == ["waiting"]
        assert events[0].data["reason"] == f"{FAR}: no key OPENAI_API_KEY"

    def test_a_provider_that_does_not_exist_is_waited_for(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ACME_API_KEY", "k")
        ltm = memory_of(hf, "ada", extractor="acme:one")

        assert states(ltm) == ("acme:one", "waiting", "acme:one: no provider acme")

    def test_mining_pauses_when_the_days_tokens_are_spent(
        self, hf: Holdfast, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_LTM_EXTRACTOR_BUDGET", "1")
        ltm = memory_of(hf, "ada", extractor=Scripted(TEA, '[{"text": "Ana likes cake"}]'))
        assert outcomes(told(ltm, "I like tea", thread="a")) == ["stored"]

        flushed = told(ltm, "I like cake", thread="b")

        assert (flushed.results, flushed.pending) == ((), 1)
        assert states(ltm) == ("function", "waiting", "budget")
        # Another handle, as of another process, finds the same.
        other = memory_of(hf, "bob", extractor=Scripted(TEA))
        assert states(other) == ("function", "waiting", "budget")
        clock.tick(86_400)
        assert outcomes(ltm.flush(SECONDS)) == ["stored"]

    def test_a_flush_waits_for_a_job_at_work_after_the_days_tokens_are_spent(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_LTM_EXTRACTOR_BUDGET", "1")
        script = Scripted(TEA)
        ltm = memory_of(hf, "ada", extractor=script)
        spent, go_on = threading.Event(), threading.Event()

        def slow() -> None:
            spend(ltm.context, 1)
            spent.set()
            go_on.wait(SECONDS)

        script.before = slow
        ltm.remember_conversation([{"role": "user", "content": "I like tea"}])
        assert spent.wait(SECONDS)

        with ThreadPoolExecutor(1) as pool:
            flushing = pool.submit(ltm.flush, SECONDS)
            with pytest.raises(TimeoutError):
                flushing.result(0.1)
            go_on.set()
            assert outcomes(flushing.result(SECONDS)) == ["stored"]

    def test_a_budget_of_0_is_no_limit(self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOLDFAST_LTM_EXTRACTOR_BUDGET", "0")
        ltm = memory_of(hf, "ada", extractor=Scripted(TEA, '[{"text": "Ana likes cake"}]'))
        told(ltm, "I like tea", thread="a")

        assert outcomes(told(ltm, "I like cake", thread="b")) == ["stored"]

    def test_a_budget_met_within_a_job_keeps_the_rest_of_it(
        self, hf: Holdfast, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_LTM_EXTRACTOR_BUDGET", "1")
        ltm = memory_of(hf, "ada", extractor=Scripted(TEA, '[{"text": "Bob has a dog"}]'))

        first = told(ltm, "tea and cake I like " * 400, "a dog has Bob " * 700)

        assert (outcomes(first), first.pending) == (["stored"], 1)
        assert jobs(ltm) == [("queued", 0)]
        clock.tick(86_400)
        assert outcomes(ltm.flush(SECONDS)) == ["stored"]

    @pytest.mark.parametrize(
        ("name", "value"),
        [("HOLDFAST_LTM_EXTRACTOR_BUDGET", "much"), ("HOLDFAST_LTM_EXTRACTOR", "gpt")],
    )
    def test_a_variable_of_no_known_form_is_refused(
        self, name: str, value: str, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, value)

        with pytest.raises(InvalidInput, match=name):
            memory_of(hf, "ada")
        assert hf.longterm_data("ada").list().data == []

    def test_the_chosen_embedder_is_named_at_once(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOLDFAST_LTM_EMBEDDING_MODEL", "openai:text-embedding-3-small")

        status = memory_of(hf, "ada").status()

        assert (status.embedding_model, status.mode) == ("openai:text-embedding-3-small", "lexical")
        assert "OPENAI_API_KEY" in str(status.reason)
