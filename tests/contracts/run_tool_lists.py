"""Contract of the list of a run's entries: form, order and pages."""

from typing import Any

import pytest

from contracts.run_asked import AT, Listed, call, listed_keys, mistake
from contracts.run_memory import GivenARun, NewMemory, keys_of
from holdfast.memories.run import keys
from holdfast.memories.run.memory import RunMemory
from holdfast.testing.fakes import FrozenClock


class RunListToolContract(GivenARun):
    """A subclass provides `new` and `clock`, and `listed` for another interface."""

    @pytest.fixture
    def listed(self) -> Listed:
        """Return a function that calls the tool itself."""
        return lambda memory, **arguments: call(memory, 0, arguments)

    def test_a_list_has_all_but_the_value(self, memory: RunMemory, listed: Listed) -> None:
        memory.set(
            "task:research",
            {"findings": ["alpha"]},
            source="research",
            title="Research\nfindings",
            description="Top three sources.",
        )

        assert listed(memory) == {
            "total": 1,
            "returned": 1,
            "truncated": False,
            "next_page": None,
            "entries": [
                {
                    "key": "task:research",
                    "kind": "task_result",
                    "title": "Research findings",
                    "description": "Top three sources.",
                    "source": "research",
                    "valueBytes": 22,
                    "createdAt": AT,
                    "updatedAt": AT,
                    "version": 1,
                }
            ],
        }

    def test_what_is_null_is_left_out_and_failed_is_there_when_true(
        self, memory: RunMemory, listed: Listed
    ) -> None:
        memory.set("step:a", None, failed=True)
        memory.set("step:b", None)

        second, first = listed(memory)["entries"]

        required = {"key", "kind", "valueBytes", "createdAt", "updatedAt", "version"}
        assert set(first) == required | {"failed"}
        assert set(second) == required

    def test_a_long_description_is_cut(self, memory: RunMemory, listed: Listed) -> None:
        memory.set("step:a", 1, description="x" * 241)
        memory.set("step:b", 1, description="x" * 240)

        assert [each["description"] for each in listed(memory)["entries"]] == [
            "x" * 240,
            "x" * 240 + "…",
        ]

    def test_the_latest_write_comes_first_unless_the_oldest_is_asked_for(
        self, memory: RunMemory, listed: Listed, clock: FrozenClock
    ) -> None:
        for name in "abc":
            memory.set(keys.shared(name), 1)
        clock.tick()
        memory.set("shared:a", 2)

        assert listed_keys(listed(memory)) == ["shared:a", "shared:c", "shared:b"]
        assert listed_keys(listed(memory, order="oldest")) == ["shared:b", "shared:c", "shared:a"]

    def test_what_was_restored_stands_where_its_time_is(
        self, memory: RunMemory, listed: Listed, clock: FrozenClock
    ) -> None:
        memory.set("shared:old", 1)
        clock.tick()
        kept = memory.snapshot()
        memory.set("shared:new", 1)

        memory.restore(kept)

        assert listed_keys(listed(memory)) == ["shared:new", "shared:old"]

    @pytest.mark.parametrize(
        ("arguments", "found"),
        [
            ({"kind": ["step_result"]}, ["step:a"]),
            ({"kind": "step_result"}, ["step:a"]),
            ({"kind": []}, []),
            ({"key_prefix": "s"}, ["shared:b", "step:a"]),
            ({"sources": ["x"]}, ["step:a"]),
            ({"kind": None, "key_prefix": None, "sources": None, "limit": None}, None),
        ],
    )
    def test_a_filter_narrows_and_null_is_none(
        self, memory: RunMemory, listed: Listed, arguments: dict[str, Any], found: list[str] | None
    ) -> None:
        memory.set("step:a", 1, source="x")
        memory.set("input:c", 1, source="y")
        memory.set("shared:b", 1)

        answer = listed(memory, **arguments)

        assert listed_keys(answer) == (
            ["shared:b", "input:c", "step:a"] if found is None else found
        )
        assert answer["total"] == len(listed_keys(answer))

    @pytest.mark.parametrize("order", ["newest", "oldest"])
    def test_pages_lead_through_everything_once(
        self, memory: RunMemory, listed: Listed, clock: FrozenClock, order: str
    ) -> None:
        for number in range(250):
            memory.set(keys.shared(str(number)), 1)
            if number % 3 == 0:
                clock.tick()
        first = listed(memory, order=order)
        second = listed(memory, page=first["next_page"])

        assert (first["total"], first["returned"], first["truncated"]) == (250, 200, True)
        assert (second["total"], second["returned"], second["truncated"]) == (250, 50, False)
        every = keys_of(memory)
        assert listed_keys(first) + listed_keys(second) == (
            every if order == "oldest" else every[::-1]
        )

    def test_what_is_written_between_pages_neither_repeats_nor_hides_others(
        self, memory: RunMemory, listed: Listed
    ) -> None:
        for name in "abcdef":
            memory.set(keys.shared(name), 1)
        first = listed(memory, limit=2)
        memory.set("shared:g", 1)
        memory.delete("shared:e")
        memory.set("shared:a", 2)

        second = listed(memory, limit=10, page=first["next_page"])

        assert listed_keys(first) == ["shared:f", "shared:e"]
        assert listed_keys(second) == ["shared:d", "shared:c", "shared:b"]

    def test_a_cursor_carries_its_filter_and_refuses_another(
        self, memory: RunMemory, listed: Listed
    ) -> None:
        for name in "abc":
            memory.set(keys.shared(name), 1)
            memory.set(keys.step(name), 1)
        arguments = {"kind": ["shared"], "order": "oldest", "limit": 1}
        cursor = listed(memory, **arguments)["next_page"]

        assert listed_keys(listed(memory, page=cursor)) == ["shared:b", "shared:c"]
        assert listed_keys(listed(memory, **arguments, page=cursor)) == ["shared:b"]
        for other in ({"kind": ["step_result"]}, {"key_prefix": "s"}, {"order": "newest"}):
            mistake(listed(memory, page=cursor, **other), "page")

    @pytest.mark.parametrize("bad", ["", "page_", "nonsense", "page_AAAA"])
    def test_a_bad_cursor_is_a_mistake(self, memory: RunMemory, listed: Listed, bad: str) -> None:
        mistake(listed(memory, page=bad), "page")

    def test_a_cursor_of_another_run_is_a_mistake(self, new: NewMemory, listed: Listed) -> None:
        one, other = new(), new()
        for memory in (one, other):
            memory.set("shared:a", 1)
            memory.set("shared:b", 1)

        mistake(listed(other, page=listed(one, limit=1)["next_page"]), "page")

    @pytest.mark.parametrize(
        ("field", "bad"),
        [("kind", ["facts"]), ("limit", 0), ("limit", 201), ("order", "random")],
    )
    def test_a_mistake_names_its_field(
        self, memory: RunMemory, listed: Listed, field: str, bad: object
    ) -> None:
        mistake(listed(memory, **{field: bad}), field)
