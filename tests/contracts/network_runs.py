"""What holds of the records of runs of networks."""

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.ground.errors import Conflict, InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.testing.contracts.history import AT, THREAD, began, ended, made
from holdfast.testing.fakes import FrozenClock


class NetworkRunsContract:
    """Subclass it, and give it `hf`, `elsewhere` and `clock` fixtures."""

    def test_a_run_is_recorded_at_its_start_and_at_its_end(self, hf: Holdfast) -> None:
        hf.network_runs.put(began())
        there = hf.network_runs.retrieve("run_1")

        hf.network_runs.put(ended())

        assert there == began()
        assert hf.network_runs.retrieve("run_1") == ended()
        assert ended().extras == {"dropped": ["editor"]}

    def test_a_record_may_be_given_as_its_dict(self, hf: Holdfast) -> None:
        record = ended(error={"name": "Odd", "message": "It was."}, status="failed")

        assert hf.network_runs.put(record.export()) == record
        assert hf.network_runs.retrieve("run_1") == record

    def test_a_run_that_goes_on_may_change_its_record(self, hf: Holdfast) -> None:
        hf.network_runs.put(began(thread_id=None))

        hf.network_runs.put(replace(began(), calls=1))

        assert hf.network_runs.retrieve("run_1").calls == 1
        assert [each.id for each in hf.threads.runs(THREAD)] == ["run_1"]

    @pytest.mark.parametrize("record", [began(), ended(calls=7), ended(status="failed")])
    def test_a_run_that_has_ended_stays_as_it_ended(self, hf: Holdfast, record: Any) -> None:
        hf.network_runs.put(ended())
        hf.network_runs.put(ended())

        with pytest.raises(Conflict) as refused:
            hf.network_runs.put(record)

        assert refused.value.reason == "ended"
        assert hf.network_runs.retrieve("run_1") == ended()

    def test_a_run_makes_its_thread(self, hf: Holdfast, clock: FrozenClock) -> None:
        hf.network_runs.put(began())

        thread = hf.threads.retrieve(THREAD)
        assert (thread.turns, thread.runs, thread.created_at) == (0, 1, clock.now())
        assert hf.threads.results(THREAD) == []
        assert list(hf.threads.turns(THREAD)) == []

    def test_a_thread_without_runs_has_none(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [made()])

        assert hf.threads.runs(THREAD) == []

    def test_runs_are_listed_newest_first_and_by_filters(self, hf: Holdfast) -> None:
        for number in range(6):
            started = AT.replace(minute=number)
            even = number % 2 == 0
            record = began(
                f"run_{number}",
                thread_id="even" if even else None,
                network=None if number == 5 else "desk",
                started_at=started,
            )
            hf.network_runs.put(record)
        hf.network_runs.put(ended("run_4", thread_id="even", started_at=AT.replace(minute=4)))

        def ids(**filters: Any) -> list[str]:
            return [each.id[-1:] for each in hf.network_runs.list(limit=2, **filters).all()]

        assert ids() == ["5", "4", "3", "2", "1", "0"]
        assert ids(network="desk") == ["4", "3", "2", "1", "0"]
        assert ids(thread_id="even") == ["4", "2", "0"]
        assert ids(status="completed") == ["4"]
        assert ids(thread_id="even", status="running", network="desk") == ["2", "0"]
        assert ids(network="else") == []
        assert [each.id[-1:] for each in hf.threads.runs("even")] == ["4", "2", "0"]

    def test_an_unknown_run_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound) as refused:
            hf.network_runs.retrieve("run_x")

        assert (refused.value.kind, refused.value.id) == ("run", "run_x")

    def test_another_workspace_has_runs_of_its_own(self, hf: Holdfast, elsewhere: Holdfast) -> None:
        hf.network_runs.put(began())
        elsewhere.network_runs.put(ended())

        assert hf.network_runs.retrieve("run_1") == began()
        assert [each.status for each in elsewhere.network_runs.list()] == ["completed"]

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"id": "a b"}, "id"),
            ({"thread_id": ""}, "thread_id"),
            ({"network": ""}, "network"),
            ({"network": "é" * 257}, "network"),
            ({"status": "lost"}, "status"),
            ({"status": "running"}, "ended_at"),
            ({"ended_at": None}, "ended_at"),
            ({"ended_at": "soon"}, "ended_at"),
            ({"started_at": 7}, "started_at"),
            ({"calls": -1}, "calls"),
            ({"stop_reason": 7}, "stop_reason"),
            ({"error": "odd"}, "error"),
            ({"error": {"name": "Odd", "message": 7}}, "error.message"),
            ({"usage": {"requests": "many"}}, "usage.requests"),
        ],
    )
    def test_what_is_no_record_is_refused_by_its_field(
        self, hf: Holdfast, changes: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.network_runs.put({**ended().export(), **changes})

        assert refused.value.field == field

    @pytest.mark.parametrize("given", [None, 7, "run_1", ["run_1"]])
    def test_what_is_no_object_is_no_record(self, hf: Holdfast, given: Any) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.network_runs.put(given)

        assert refused.value.field == "record"

    @pytest.mark.parametrize(
        "filters", [{"network": ""}, {"thread_id": "a b"}, {"status": "lost"}, {"limit": 0}]
    )
    def test_what_filters_nothing_is_refused(self, hf: Holdfast, filters: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.network_runs.list(**filters)

        assert refused.value.field == next(iter(filters))
