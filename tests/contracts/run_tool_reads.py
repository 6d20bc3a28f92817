"""Contract of reading a run through its tools: whole values, paths, and parts."""

import json

import pytest

from contracts.run_memory import GivenARun, keys_of, milliseconds
from contracts.run_tools import Answer, call, length, listed_keys
from holdfast.ground.json_values import JSON
from holdfast.memories.run import keys
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory
from holdfast.testing.fakes import FrozenClock


class RunReadToolContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    def test_what_is_there_is_given_and_what_is_not_is_named(
        self, memory: RunMemory, clock: FrozenClock
    ) -> None:
        memory.set(
            "task:research", {"findings": ["alpha"]}, source="research", title="Research findings"
        )
        memory.set("step:a", None, failed=True)

        answer = call(
            memory, 1, {"keys": ["task:research", "other:x", "step:a", "other:x", "task:research"]}
        )

        at = milliseconds(clock)
        times = {"createdAt": at, "updatedAt": at, "version": 1}
        assert answer == {
            "entries": {
                "task:research": {
                    "key": "task:research",
                    "kind": "task_result",
                    "value": {"findings": ["alpha"]},
                    "source": "research",
                    "title": "Research findings",
                    **times,
                },
                "step:a": {
                    "key": "step:a",
                    "kind": "step_result",
                    "value": None,
                    **times,
                    "failed": True,
                },
            },
            "missing": ["other:x"],
        }

    def test_no_keys_are_no_entries(self, memory: RunMemory) -> None:
        assert call(memory, 1, {"keys": []}) == {"entries": {}, "missing": []}

    def test_a_hundred_keys_are_read_at_once(self, memory: RunMemory) -> None:
        memory.set("shared:a", 1)

        assert list(call(memory, 1, {"keys": ["shared:a"] * 100})["entries"]) == ["shared:a"]

    def test_one_bare_key_is_a_list_of_it(self, memory: RunMemory) -> None:
        memory.set("shared:a", 1)

        assert list(call(memory, 1, {"keys": "shared:a"})["entries"]) == ["shared:a"]

    def test_a_name_without_a_namespace_is_what_agents_share(self, memory: RunMemory) -> None:
        memory.set("shared:a", 1)

        answer = call(memory, 1, {"keys": ["a", "b"]})

        assert list(answer["entries"]) == ["a"]
        assert answer["entries"]["a"]["key"] == "shared:a"
        assert answer["missing"] == ["b"]

    def test_near_keys_are_named_for_missing_ones(self, memory: RunMemory) -> None:
        for name in ("summary", "summary2", "summary3", "summary4", "other"):
            memory.set(keys.step(name), 1)

        answer = call(memory, 1, {"keys": ["step:sumary", "task:other", "shared:nothing_like"]})

        near = answer["did_you_mean"]
        assert near["step:sumary"][0] == "step:summary"
        assert len(near["step:sumary"]) == 3
        assert near["task:other"] == ["step:other"]
        assert "shared:nothing_like" not in near

    @pytest.mark.parametrize("requested", ["step:b7", "zz", "shared:b7", "step:"])
    def test_a_short_key_is_not_near_just_for_its_namespace(
        self, memory: RunMemory, requested: str
    ) -> None:
        memory.set("step:a1", 1)
        memory.set("shared:a1", 1)

        assert "did_you_mean" not in call(memory, 1, {"keys": [requested]})

    @pytest.mark.parametrize("requested", ["sumary", "stp:summary", "shared:summary"])
    def test_a_key_is_near_in_whichever_namespace(self, memory: RunMemory, requested: str) -> None:
        memory.set("step:summary", 1)

        near = call(memory, 1, {"keys": [requested]})["did_you_mean"]

        assert near == {requested: ["step:summary"]}

    def test_without_near_keys_nothing_is_said_of_them(self, memory: RunMemory) -> None:
        memory.set("step:a", 1)

        assert "did_you_mean" not in call(memory, 1, {"keys": ["shared:quite_different"]})

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("", {"a": {"": [10, {"x/y": 1, "m~n": 2}]}}),
            ("/a//0", 10),
            ("/a//1/x~1y", 1),
            ("/a//1/m~0n", 2),
        ],
    )
    def test_a_path_leads_into_the_value(self, memory: RunMemory, path: str, value: JSON) -> None:
        memory.set("shared:a", {"a": {"": [10, {"x/y": 1, "m~n": 2}]}})

        answer = call(memory, 1, {"keys": ["shared:a"], "path": path})

        assert answer["entries"]["shared:a"]["value"] == value

    @pytest.mark.parametrize(
        ("path", "error"),
        [
            ("/a/x", "no member 'x' at /a"),
            ("/x", "no member 'x' at the top"),
            ("/rows/2", "no element '2' at /rows, which has 2"),
            ("/rows/-", "no element '-' at /rows, which has 2"),
            ("/rows/01", "no element '01' at /rows, which has 2"),
            ("/rows/0/x", "no member 'x' at /rows/0, which is no object"),
        ],
    )
    def test_a_path_that_leads_nowhere_hurts_no_other_entry(
        self, memory: RunMemory, path: str, error: str
    ) -> None:
        memory.set("shared:a", {"a": {}, "rows": [1, 2]})
        memory.set(
            "shared:b", {"a": {"x": 1}, "x": 1, "rows": {"2": 1, "-": 1, "01": 1, "0": {"x": 1}}}
        )

        entries = call(memory, 1, {"keys": ["shared:a", "shared:b"], "path": path})["entries"]

        assert (entries["shared:a"]["value"], entries["shared:a"]["path_error"]) == (None, error)
        assert entries["shared:b"]["value"] == 1

    def test_what_is_read_is_told_with_its_reader(self, memory: RunMemory) -> None:
        events: list[RunMemoryEvent] = []
        memory.set("shared:a", "x" * 1_000)
        memory.on_event(events.append)

        call(memory, 1, {"keys": ["shared:a", "shared:b"]}, writer="planner")
        call(memory, 1, {"keys": ["a"]}, budget=400)

        assert [(each.type, each.data) for each in events] == [
            ("run.entry_read", {"key": "shared:a", "reader": "planner", "part": False}),
            ("run.entry_read", {"key": "shared:a", "reader": "memory_read", "part": True}),
        ]


class RunPiecesContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    BUDGET = 600

    def ask(self, memory: RunMemory, *names: str, **arguments: object) -> Answer:
        """Return what the read tool answers within the budget, which it keeps."""
        answer = call(memory, 1, {"keys": list(names), **arguments}, budget=self.BUDGET)
        assert length(answer) <= self.BUDGET
        return answer

    def test_text_comes_by_characters(self, memory: RunMemory) -> None:
        text = '\U0001f600"\n\u00e9' * 500
        memory.set("shared:a", text)
        pieces, offset = list[str](), 0
        while offset is not None:
            entry = self.ask(memory, "shared:a", offset=offset)["entries"]["shared:a"]
            part = entry["part"]
            assert (part["of"], part["offset"], part["total"]) == ("text", offset, len(text))
            assert part["returned"] == len(entry["value"]) > 1
            pieces.append(entry["value"])
            offset = part["next_offset"]

        assert "".join(pieces) == text

    def test_an_array_comes_by_whole_elements(self, memory: RunMemory) -> None:
        rows = [{"row": number, "text": "x" * (number % 50)} for number in range(100)]
        memory.set("shared:a", rows)
        read, offset = list[JSON](), 0
        while offset is not None:
            entry = self.ask(memory, "shared:a", offset=offset)["entries"]["shared:a"]
            assert (entry["part"]["of"], entry["part"]["total"]) == ("array", 100)
            read += entry["value"]
            offset = entry["part"]["next_offset"]

        assert read == rows

    @pytest.mark.parametrize(
        "value", [{"a": ["x" * 900, 2]}, [1, "x" * 900, 2]], ids=["object", "huge element"]
    )
    def test_anything_else_comes_by_characters_of_its_json(
        self, memory: RunMemory, value: JSON
    ) -> None:
        memory.set("shared:a", value)
        pieces, offset = list[str](), 0
        while offset is not None:
            entry = self.ask(memory, "shared:a", offset=offset)["entries"]["shared:a"]
            assert entry["part"]["of"] == "json"
            pieces.append(entry["value"])
            offset = entry["part"]["next_offset"]

        assert json.loads("".join(pieces)) == value

    def test_what_does_not_fit_is_given_in_part_and_what_is_after_it_is_named(
        self, memory: RunMemory
    ) -> None:
        for name, value in (("a", 1), ("b", "x" * 900), ("c", 3), ("d", 4)):
            memory.set(keys.shared(name), value)

        answer = self.ask(memory, "shared:a", "shared:b", "shared:no", "shared:c", "shared:d")

        assert list(answer["entries"]) == ["shared:a", "shared:b"]
        assert "part" not in answer["entries"]["shared:a"]
        assert answer["entries"]["shared:b"]["part"]["returned"] > 100
        assert answer["missing"] == ["shared:no"]
        assert answer["deferred"] == ["shared:c", "shared:d"]

    def test_what_fits_is_whole_and_nothing_is_deferred(self, memory: RunMemory) -> None:
        memory.set("shared:a", 1)
        memory.set("shared:b", [1, 2])

        answer = self.ask(memory, "shared:a", "shared:b")

        assert set(answer) == {"entries", "missing"}
        assert [each["value"] for each in answer["entries"].values()] == [1, [1, 2]]

    def test_a_path_reaches_into_what_would_be_pieces(self, memory: RunMemory) -> None:
        memory.set("shared:a", {"long": "x" * 900, "short": "y"})

        entries = self.ask(memory, "shared:a", path="/short")["entries"]

        assert entries["shared:a"]["value"] == "y"
        assert "part" not in entries["shared:a"]

    def test_the_first_key_always_makes_progress(self, memory: RunMemory) -> None:
        memory.set("shared:a", "xyz")
        memory.set("shared:b", "xyz")

        answer = call(memory, 1, {"keys": ["shared:a", "shared:b"]}, budget=1)

        assert answer["entries"]["shared:a"]["value"] == "x"
        assert answer["entries"]["shared:a"]["part"]["next_offset"] == 1
        assert answer["deferred"] == ["shared:b"]

    def test_a_list_ends_before_the_entry_that_would_pass_the_budget(
        self, memory: RunMemory
    ) -> None:
        for number in range(20):
            memory.set(keys.shared(str(number)), 1)
        found, page = list[str](), None
        while True:
            answer = call(memory, 0, {"page": page}, budget=self.BUDGET)
            assert length(answer) <= self.BUDGET
            assert answer["truncated"] == isinstance(answer["next_page"], str)
            found += listed_keys(answer)
            if (page := answer["next_page"]) is None:
                break

        assert found == keys_of(memory)[::-1]

    def test_a_list_never_ends_before_the_first(self, memory: RunMemory) -> None:
        memory.set("shared:a", 1)
        memory.set("shared:b", 1)

        answer = call(memory, 0, {}, budget=1)

        assert (listed_keys(answer), answer["truncated"]) == (["shared:b"], True)
