"""Contract of deleting a thread, and of forgetting an agent with results."""

from holdfast.library.holdfast import Holdfast
from holdfast.testing.contracts.history import THREAD, began, ended, made, said
from holdfast.testing.fakes import FrozenClock


class ThreadForgettingContract:
    """Subclass it, and give it `hf`, `elsewhere` and `clock` fixtures."""

    def test_a_thread_goes_with_its_turns_and_runs_and_no_other(self, hf: Holdfast) -> None:
        for thread in (THREAD, "other"):
            hf.threads.append(thread, [said(), made()])
            hf.network_runs.put(began(f"run_of_{thread}", thread_id=thread))

        deleted = hf.threads.delete(THREAD)

        assert deleted
        assert [each.id for each in hf.threads.list()] == ["other"]
        assert [each.id for each in hf.network_runs.list()] == ["run_of_other"]
        assert hf.threads.retrieve("other").turns == 2

    def test_what_is_not_there_is_not_deleted(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [made()])
        hf.threads.delete(THREAD)

        assert not hf.threads.delete(THREAD)

    def test_a_deleted_thread_can_begin_anew(self, hf: Holdfast, clock: FrozenClock) -> None:
        hf.threads.append(THREAD, [made(0), made(1)])
        hf.threads.delete(THREAD)
        clock.tick()

        appended = hf.threads.append(THREAD, [made(1, text="Else.")])

        assert appended.stored == (made(1).id,)
        assert hf.threads.retrieve(THREAD).created_at == clock.now()
        assert [each.text for each in hf.threads.results(THREAD)] == ["Else."]

    def test_a_forgotten_agents_results_go_and_nobody_elses(
        self, hf: Holdfast, elsewhere: Holdfast
    ) -> None:
        mine, others = made(0, agent="writer"), made(1, agent="editor")
        for each in (hf, elsewhere):
            each.threads.append(THREAD, [said(), mine, others])
            each.threads.append("other", [made(2, agent="editor")])

        report = hf.forget_agent("writer")

        assert report.counts["thread_turns"] == 1
        assert hf.threads.results(THREAD) == [others]
        assert [each.kind for each in hf.threads.turns(THREAD)] == ["user", "result"]
        assert hf.threads.retrieve(THREAD).turns == 2
        assert hf.threads.retrieve("other").turns == 1
        assert elsewhere.threads.retrieve(THREAD).turns == 3

    def test_an_agent_is_forgotten_by_any_name_that_a_network_gives(self, hf: Holdfast) -> None:
        name = 'The "Editor", or 1=1; \N{CRAB}'
        hf.threads.append(THREAD, [made(0, agent=name), made(1)])
        hf.network_runs.put(ended(skipped=[[name, "off"]]))

        report = hf.forget_agent(name)

        assert (report.counts["thread_turns"], report.counts["network_runs"]) == (1, 1)
        assert hf.threads.results(THREAD) == [made(1)]

    def test_records_of_runs_lose_what_names_a_forgotten_agent(self, hf: Holdfast) -> None:
        failed = {"name": "Odd", "message": "The agent editor was odd."}
        named = ended(
            "run_1", status="failed", error=failed, stop_detail="editor", dropped=["editor"], more=1
        )
        hf.network_runs.put(named)
        hf.network_runs.put(ended("run_2", dropped=["writer", "editors"]))

        report = hf.forget_agent("editor")

        first, second = (hf.network_runs.retrieve(each) for each in ("run_1", "run_2"))
        assert report.counts["network_runs"] == 1
        assert (first.extras, first.error, first.stop_detail) == ({"more": 1}, None, None)
        assert (first.status, first.usage) == (named.status, named.usage)
        assert second == ended("run_2", dropped=["writer", "editors"])

    def test_who_made_nothing_is_forgotten_without_a_trace(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [made()])

        report = hf.forget_agent("nobody")

        assert set(report.counts.values()) == {0}
        assert hf.threads.retrieve(THREAD).turns == 1
