"""Contract of the tools of run memory: names, errors, writes, and prompts."""

import json
from typing import Any, Protocol, cast

import pytest

from contracts.run_memory import GivenARun, NewMemory, invalid, keys_of
from holdfast import tools
from holdfast.memories.run import keys
from holdfast.memories.run.entry import RunLimits
from holdfast.memories.run.memory import RunMemory
from holdfast.testing.fakes import FrozenClock

Answer = dict[str, Any]
AT = "2026-01-01T00:00:00.000Z"
"""The instant at which the test's clock stands."""


class Listed(Protocol):
    """List the entries of a memory; a subclass may override the interface it uses."""

    def __call__(self, memory: RunMemory, **arguments: object) -> Answer:
        """Return the result for *arguments*."""
        ...


def call(memory: RunMemory, tool: int, arguments: object, **options: Any) -> Answer:
    """Return the result of tool number *tool* of *memory* for *arguments*."""
    return cast("Answer", tools.run(memory, **options)[tool].call(arguments))


def length(answer: object) -> int:
    """Return the length of *answer* as compact JSON, in characters."""
    return len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")))


def listed_keys(answer: Answer) -> list[str]:
    """Return the keys of the entries in *answer*, a result of the list tool."""
    return [each["key"] for each in answer["entries"]]


def mistake(answer: Answer, field: str | None, type: str = "invalid_input") -> Answer:
    """Check that *answer* is an error about *field* with a next step, and return it."""
    assert set(answer) == {"error"}
    error: Answer = answer["error"]
    assert (error["type"], error["field"]) == (type, field)
    assert error["message"]
    assert error["next"].endswith(".")
    return error


class RunToolsContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    def test_names_follow_the_profile_and_ids_do_not(self, memory: RunMemory) -> None:
        for profile, names in tools.RUN_TOOL_NAMES.items():
            made = tools.run(memory, profile=cast("Any", profile))
            assert [tool.name for tool in made] == list(names)
            assert [tool.id for tool in made] == ["run.list", "run.read", "run.write"]
        assert tools.RUN_TOOL_NAMES["alone"] == ("memory_list", "memory_read", "memory_write")
        assert tools.RUN_TOOL_NAMES["together"] == ("run_list", "run_read", "run_write")
        assert [tool.id for tool in tools.run(memory, write=False)] == ["run.list", "run.read"]

    def test_a_schema_is_strict_and_describes_each_argument(self, memory: RunMemory) -> None:
        required = [[], ["keys"], ["key", "value"]]
        for tool, needed in zip(tools.run(memory), required, strict=True):
            assert tool.parameters["type"] == "object"
            assert tool.parameters["required"] == needed
            assert tool.parameters["additionalProperties"] is False
            for argument in tool.parameters["properties"].values():
                assert argument["description"].count(".") >= 1

    @pytest.mark.parametrize("tool", [0, 1, 2])
    @pytest.mark.parametrize("bad", [None, [], "text", 7])
    def test_arguments_that_are_no_object_are_a_mistake(
        self, memory: RunMemory, tool: int, bad: object
    ) -> None:
        mistake(call(memory, tool, bad), None)

    @pytest.mark.parametrize("tool", [0, 1, 2])
    def test_an_unknown_argument_is_named_with_the_ones_there_are(
        self, memory: RunMemory, tool: int
    ) -> None:
        error = mistake(call(memory, tool, {"agent": "x"}), "agent")

        for known in tools.run(memory)[tool].parameters["properties"]:
            assert known in error["message"]

    @pytest.mark.parametrize(
        ("tool", "arguments", "field"),
        [
            (0, {"kind": 7}, "kind"),
            (0, {"kind": [7]}, "kind"),
            (0, {"key_prefix": ["s"]}, "key_prefix"),
            (0, {"sources": {"x": 1}}, "sources"),
            (0, {"limit": "10"}, "limit"),
            (0, {"limit": True}, "limit"),
            (0, {"page": 7}, "page"),
            (1, {}, "keys"),
            (1, {"keys": None}, "keys"),
            (1, {"keys": 7}, "keys"),
            (1, {"keys": ["shared:a", 7]}, "keys"),
            (1, {"keys": [f"shared:{number}" for number in range(101)]}, "keys"),
            (1, {"keys": ["shared:a"] * 101}, "keys"),
            (1, {"keys": ["shared:a"], "path": "rows"}, "path"),
            (1, {"keys": ["shared:a"], "path": "/~2"}, "path"),
            (1, {"keys": ["shared:a"], "offset": -1}, "offset"),
            (1, {"keys": ["shared:a"], "offset": 1.5}, "offset"),
            (1, {"keys": ["shared:a", "shared:b"], "offset": 1}, "offset"),
            (1, {"keys": ["shared:a"], "offset": 2}, "offset"),
            (2, {"value": 1}, "key"),
            (2, {"key": None, "value": 1}, "key"),
            (2, {"key": 7, "value": 1}, "key"),
            (2, {"key": "", "value": 1}, "key"),
            (2, {"key": "shared:", "value": 1}, "key"),
            (2, {"key": "x" * 201, "value": 1}, "key"),
            (2, {"key": " b", "value": 1}, "key"),
            (2, {"key": "b\x00", "value": 1}, "key"),
            (2, {"key": "b"}, "value"),
            (2, {"key": "b", "value": float("nan")}, "value"),
            (2, {"key": "b", "value": "\ud800"}, "value"),
            (2, {"key": "b", "value": 1, "title": 7}, "title"),
            (2, {"key": "b", "value": 1, "title": "x" * 301}, "title"),
            (2, {"key": "b", "value": 1, "description": "x" * 4_001}, "description"),
            (2, {"key": "b", "value": 1, "expected_version": -1}, "expected_version"),
        ],
    )
    def test_a_mistake_is_an_answer_and_stores_nothing(
        self, memory: RunMemory, tool: int, arguments: dict[str, Any], field: str
    ) -> None:
        memory.set("shared:a", 7)
        before = memory.snapshot()

        mistake(call(memory, tool, arguments), field)

        assert memory.snapshot() == before


class RunWriteToolContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    def write(self, memory: RunMemory, **arguments: object) -> Answer:
        """Return what the write tool answers."""
        return call(memory, 2, arguments, writer="researcher")

    @pytest.mark.parametrize(
        ("given", "key"),
        [
            ("owner", "shared:owner"),
            ("shared:owner", "shared:owner"),
            ("shared:shared:owner", "shared:shared:owner"),
            ("task:x", "shared:task:x"),
            ("step:x:y", "shared:step:x:y"),
        ],
    )
    def test_a_write_reaches_what_is_shared_and_nothing_else(
        self, memory: RunMemory, given: str, key: str
    ) -> None:
        memory.set("task:x", "untouched")

        answer = self.write(memory, key=given, value=None)

        assert answer == {
            "ok": True,
            "key": key,
            "kind": "shared",
            "createdAt": AT,
            "updatedAt": AT,
            "version": 1,
        }
        entry = memory.get(key)
        assert entry is not None
        assert (entry.source, entry.title, entry.value) == ("researcher", key[7:], None)
        assert memory.get_value("task:x") == "untouched"

    def test_what_was_replaced_is_told(self, memory: RunMemory) -> None:
        memory.set("shared:a", 1, source="planner")
        first = self.write(memory, key="a", value=2, title="T", description="D")
        second = self.write(memory, key="a", value=3)

        assert first["replaced"] == {"source": "planner", "version": 1}
        assert second["replaced"] == {"source": "researcher", "version": 2}
        assert second["version"] == 3

    def test_without_a_writer_the_source_is_the_tool(self, memory: RunMemory) -> None:
        call(memory, 2, {"key": "a", "value": 1}, profile="together")

        entry = memory.get("shared:a")
        assert entry is not None
        assert entry.source == "run_write"

    def test_an_expected_version_that_is_not_there_is_told_with_what_is(
        self, memory: RunMemory
    ) -> None:
        absent = self.write(memory, key="a", value=1, expected_version=3)
        self.write(memory, key="a", value=1, expected_version=0)
        other = self.write(memory, key="a", value=2, expected_version=0)

        field = "expected_version"
        assert mistake(absent, field, "precondition_failed")["current"] is None
        assert mistake(other, field, "precondition_failed")["current"] == {
            "version": 1,
            "source": "researcher",
            "updatedAt": AT,
        }
        assert memory.get_value("shared:a") == 1

    def test_a_value_that_is_too_large_is_told_with_both_numbers(self, memory: RunMemory) -> None:
        error = mistake(self.write(memory, key="a", value="x" * 262_143), "value", "limit_exceeded")

        assert (error["allowed"], error["actual"]) == (262_144, 262_145)
        assert "262,144" in error["message"]
        assert "summary" in error["next"]
        assert len(memory) == 0

    def test_a_full_memory_is_told(self, new: NewMemory) -> None:
        memory = new(limits=RunLimits(entries=1))
        memory.set("task:a", 1)

        mistake(self.write(memory, key="a", value=1), None, "limit_exceeded")


class RunPromptContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    @pytest.mark.parametrize("profile", ["alone", "together"])
    @pytest.mark.parametrize("write", [True, False])
    def test_the_section_names_the_tools_there_are(self, profile: Any, write: bool) -> None:
        section = tools.run_prompt(profile, write)

        assert section.startswith("## Memory Tools (progressive disclosure)\n")
        assert len(section) <= 1_500
        for name in tools.RUN_TOOL_NAMES[profile][: 3 if write else 2]:
            assert f"`{name}`" in section
        other = "together" if profile == "alone" else "alone"
        assert not any(f"`{name}`" in section for name in tools.RUN_TOOL_NAMES[other])
        assert (tools.RUN_TOOL_NAMES[profile][2] in section) == write

    def test_an_unknown_profile_is_refused(self, memory: RunMemory) -> None:
        apart: Any = "apart"

        invalid(lambda: tools.run_prompt(apart), "profile")
        invalid(lambda: tools.run_hint(memory, [], apart), "profile")
        invalid(lambda: tools.run(memory, profile=apart), "profile")

    def test_a_hint_names_what_is_there_in_its_order_and_no_value(self, memory: RunMemory) -> None:
        memory.set("task:research", "secret", title=" Research \n findings ")
        memory.set("step:b", "secret")
        memory.set("step:failed", "secret", failed=True)
        memory.set("step:long", "secret", title="x" * 121)

        hint = tools.run_hint(
            memory, ["step:b", "task:research", "step:no", "step:failed", "step:b", "step:long"]
        )

        assert hint.split("\n") == [
            "# Required upstream memory (call `memory_read` with these keys):",
            "- step:b",
            "- task:research — Research findings",
            f"- step:long — {'x' * 119}…",
        ]
        assert "`run_read`" in tools.run_hint(memory, ["step:b"], "together")

    def test_nothing_to_read_is_no_hint(self, memory: RunMemory) -> None:
        assert tools.run_hint(memory, []) == tools.run_hint(memory, ["step:no"]) == ""


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
