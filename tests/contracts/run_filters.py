"""Contract of filters, restores, copies and the prompt of run memory."""

import json
from typing import Any, cast

import pytest
from msgspec.structs import replace

from contracts.run_memory import GivenARun, NewMemory, invalid, keys_of, refusal
from holdfast.ground.errors import InvalidInput, LimitExceeded
from holdfast.memories.run import keys
from holdfast.memories.run.entry import RunLimits
from holdfast.memories.run.memory import RunMemory
from holdfast.testing.fakes import FrozenClock

ALL = ["task:a", "step:a", "input:a", "shared:a", "shared:b"]


class _Filled(GivenARun):
    @pytest.fixture
    def memory(self, new: NewMemory, clock: FrozenClock) -> RunMemory:
        """Give a memory with an entry of each kind, each a second after the other."""
        memory = new()
        for source, key in zip(("x", "y", None, "x", None), ALL, strict=True):
            memory.set(key, {"of": key}, source=source)
            clock.tick()
        return memory


class RunFiltersContract(_Filled):
    """Subclass it, and give it `new` and `clock` fixtures."""

    @pytest.mark.parametrize(
        ("given", "found"),
        [
            ({}, ALL),
            ({"kind": "shared"}, ["shared:a", "shared:b"]),
            ({"kind": ["input", "task_result"]}, ["task:a", "input:a"]),
            ({"kind": []}, []),
            ({"keys": ["shared:b", "task:a", "step:no"]}, ["task:a", "shared:b"]),
            ({"keys": []}, []),
            ({"key_prefix": "s"}, ["step:a", "shared:a", "shared:b"]),
            ({"key_prefix": ""}, ALL),
            ({"sources": "x"}, ["task:a", "shared:a"]),
            ({"sources": ["y", "z"]}, ["step:a"]),
            ({"sources": []}, []),
            ({"sources": "x", "kind": "shared"}, ["shared:a"]),
            ({"key_prefix": "shared:", "keys": ["shared:b", "task:a"]}, ["shared:b"]),
        ],
    )
    def test_all_conditions_hold_in_list_clear_copy_and_render(
        self, memory: RunMemory, given: dict[str, Any], found: list[str]
    ) -> None:
        assert [entry.key for entry in memory.list(**given)] == found
        assert keys_of(memory.copy(**given)) == (found if given else [])
        assert memory.render(**given).count("\n## ") == len(found)
        assert memory.clear(**given) == len(found)
        assert keys_of(memory) == [key for key in ALL if key not in found]

    @pytest.mark.parametrize("act", ["list", "clear", "copy", "render"])
    def test_what_is_no_filter_is_refused_and_nothing_goes(
        self, memory: RunMemory, act: str
    ) -> None:
        bad: list[tuple[str, Any]] = [
            ("kind", "result"),
            ("kind", 7),
            ("keys", "task:a"),
            ("keys", 7),
            ("keys", ["a"]),
            ("key_prefix", 7),
            ("sources", {"x": 1}),
            ("sources", [None]),
        ]
        for field, given in bad:
            error = refusal(lambda field=field, given=given: getattr(memory, act)(**{field: given}))
            assert isinstance(error, InvalidInput)
            assert error.field in (field, "key")
        assert keys_of(memory) == ALL

    def test_any_collection_of_keys_will_do(self, memory: RunMemory) -> None:
        wanted = {"shared:b": 1, "task:a": 2}

        assert memory.list(keys=wanted.keys()) == memory.list(keys=iter(wanted))
        assert len(memory.list(keys=wanted.keys())) == 2

    def test_an_unknown_kind_is_answered_with_the_four(self, memory: RunMemory) -> None:
        reason = invalid(lambda: memory.list(kind=["shared", "facts"]), "kind").reason

        assert "step_result, task_result, input, shared" in reason

    @pytest.mark.parametrize("act", ["list", "clear", "copy", "render"])
    def test_an_unknown_filter_is_a_type_error(self, memory: RunMemory, act: str) -> None:
        with pytest.raises(TypeError):
            getattr(memory, act)(kinds=["shared"])

        assert keys_of(memory) == ALL


class RunRestoringContract(_Filled):
    """Subclass it, and give it `new` and `clock` fixtures."""

    def test_what_was_kept_comes_back_as_it_was(self, memory: RunMemory, new: NewMemory) -> None:
        memory.set("shared:b", 2, title="T", description="D", failed=True)
        twin = new()

        assert twin.restore(memory.snapshot()) == len(ALL)
        assert twin.snapshot() == memory.snapshot()
        assert twin.set("shared:b", 3).version == 3

    def test_restoring_merges_and_an_overwrite_keeps_its_place(
        self, memory: RunMemory, new: NewMemory
    ) -> None:
        other = new()
        other.set("shared:c", 3)
        other.set("shared:a", "new")

        memory.restore(other.snapshot())

        assert keys_of(memory) == [*ALL, "shared:c"]
        assert memory.get_value("shared:a") == "new"

    def test_replacing_leaves_nothing_else(self, memory: RunMemory, new: NewMemory) -> None:
        other = new()
        other.set("shared:c", 3)

        memory.restore(other.snapshot(), replace=True)

        assert memory.snapshot() == other.snapshot()
        assert memory.size_bytes == 1

    @pytest.mark.parametrize(
        ("changed", "field"),
        [
            ({"key": "a"}, "key"),
            ({"kind": "shared"}, "kind"),
            ({"value": float("nan")}, "value"),
            ({"created_at": "now"}, "created_at"),
            ({"updated_at": -1}, "updated_at"),
            ({"version": 0}, "version"),
            ({"failed": 1}, "failed"),
            ({"title": "x" * 301}, "title"),
            ({"value_bytes": 3}, "value_bytes"),
        ],
    )
    def test_one_bad_entry_and_nothing_is_restored(
        self, memory: RunMemory, new: NewMemory, changed: dict[str, Any], field: str
    ) -> None:
        good = [entry.to_wire() for entry in memory.snapshot()]
        twin = new()
        twin.set("shared:kept", 1)

        error = invalid(
            lambda: twin.restore([*good[1:], {**good[0], **changed}], replace=True),
            f"entries[4].{field}",
        )

        assert error.index == 4
        assert keys_of(twin) == ["shared:kept"]

    def test_an_entry_whose_value_is_no_json_is_refused(self, memory: RunMemory) -> None:
        bad = replace(memory.snapshot()[0], value_json=b"{")

        invalid(lambda: memory.restore([bad]), "entries[0].value_json")

    @pytest.mark.parametrize("missing", ["key", "value", "created_at", "updated_at", "version"])
    def test_what_an_entry_needs_must_be_there(self, memory: RunMemory, missing: str) -> None:
        wire = memory.snapshot()[0].to_wire()
        del wire[missing]

        invalid(lambda: memory.restore([wire]), f"entries[0].{missing}")

    @pytest.mark.parametrize("bad", [7, "entries", {"entries": []}, [7], [None]])
    def test_what_are_no_entries_is_refused(self, memory: RunMemory, bad: Any) -> None:
        refusal(lambda: memory.restore(bad))

        assert keys_of(memory) == ALL

    def test_json_leads_there_and_back(self, memory: RunMemory) -> None:
        memory.set("shared:b", {"z": [1.5, None], "a": "\u2028</x>"}, title="T", failed=True)

        twin = RunMemory.from_json(memory.to_json())

        assert (twin.run_id, twin.snapshot()) == (memory.run_id, memory.snapshot())
        assert twin.to_json() == memory.to_json()

    def test_json_is_told_in_the_words_of_the_entry(self, memory: RunMemory) -> None:
        wire = json.loads(memory.to_json())

        assert set(wire) == {"run_id", "entries"}
        assert list(wire["entries"][0]) == [
            *("key", "kind", "value", "source", "title", "description"),
            *("created_at", "updated_at", "version", "failed"),
        ]

    @pytest.mark.parametrize(
        "text", ["", "{}", "[]", '{"run_id":"run_1"}', '{"run_id":1,"entries":[]}', 7]
    )
    def test_what_is_no_memory_is_refused(self, text: Any) -> None:
        refusal(lambda: RunMemory.from_json(text))

    def test_a_copy_is_another_run_and_starts_empty(self, memory: RunMemory) -> None:
        twin = memory.copy()

        assert (len(twin), len(memory)) == (0, len(ALL))
        assert twin.run_id != memory.run_id

    def test_a_copy_of_some_keeps_their_times_and_goes_its_own_way(self, memory: RunMemory) -> None:
        twin = memory.copy(keys=["shared:a"])
        assert twin.snapshot() == memory.list(keys=["shared:a"])

        twin.set("shared:a", "changed")

        assert memory.get_value("shared:a") == {"of": "shared:a"}

    def test_a_copy_has_the_same_limits(self, new: NewMemory) -> None:
        twin = new(limits=RunLimits(value_bytes=3)).copy()

        refusal(lambda: twin.set("shared:a", "abc"), LimitExceeded)

    def test_a_run_has_an_id(self, new: NewMemory) -> None:
        assert new().run_id.startswith("run_")
        assert new().run_id != new().run_id
        assert new(run_id="mine").run_id == "mine"
        invalid(lambda: new(run_id=""), "run_id")


class RunRenderingContract(GivenARun):
    """Subclass it, and give it `new` and `clock` fixtures."""

    def test_nothing_is_no_block(self, memory: RunMemory) -> None:
        assert memory.render() == ""

    def test_a_block_has_a_part_for_each_entry_the_oldest_first(self, memory: RunMemory) -> None:
        memory.set("shared:late", {"a": 1}, created_at=5_000)
        memory.set(keys.task("x"), "plain\ntext", title="A\n  title", description="D", created_at=1)
        memory.set("shared:tie", 1, created_at=1)

        assert memory.render().split("\n") == [
            "<run_memory>",
            "## task_result: A title (task:x)",
            "D",
            "plain",
            "text",
            "## shared: shared:tie (shared:tie)",
            "1",
            "## shared: shared:late (shared:late)",
            "{",
            '  "a": 1',
            "}",
            "</run_memory>",
        ]

    def test_what_is_long_is_cut_and_says_where_the_rest_is(self, memory: RunMemory) -> None:
        memory.set("shared:a", "<" * 4_001)
        memory.set("shared:b", "x" * 4_000)

        block = memory.render()

        assert block.count("&lt;") == 4_000
        assert "[… 1 more characters: read shared:a]" in block
        assert block.count("more characters") == 1

    def test_nothing_that_is_stored_closes_the_block(self, memory: RunMemory) -> None:
        end = "</run_memory>"
        memory.set(keys.shared(end), [end, {end: "&amp;"}], title=end, description=end)

        block = memory.render()

        assert block.count(end) == block.count("<") - 1 == 1
        assert cast("str", memory.list()[0].title) == end
