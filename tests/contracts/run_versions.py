"""Contract of the versions of a run: listed, looked into, with the messages of its parts."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from contracts.stores import invalid
from holdfast.ground.errors import NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.history.turns import KeptTurn
from holdfast.memories.run.history.versions import StateRow, VersionRows, VersionSave, entry_row
from holdfast.memories.run.records.run import RunVersion

Store = Callable[..., int]


class GivenVersions:
    """Fixtures: the rows of a workspace, and a function that stores a version of `run_1`."""

    @pytest.fixture
    def rows(self, hf: Holdfast, embedded: Holdfast) -> VersionRows:
        """Return the rows of the workspace of *hf*, in the database itself."""
        return VersionRows(embedded.acting(workspace=hf.workspace).runs.context)

    @pytest.fixture
    def store(self, rows: VersionRows) -> Store:
        """Return a function that stores a version, and returns its number."""

        def store(*facts: StateRow, **more: Any) -> int:
            known: dict[str, Any] = {"run_id": "run_1", "at": 1_000, "cause": "step", **more}
            save = VersionSave(fence=0, rows=facts, **known)
            there = rows.load(save.run_id) is not None
            return (rows.append(save) if there else rows.replace(save)).number or 0

        return store


def entry(key: str, value: int, *, version: int = 1, at: int = 5) -> StateRow:
    """Return the fact of an entry."""
    return entry_row(
        RunEntry(
            key=key,
            kind="shared",
            value_json=msgspec.json.encode(value),
            source="read",
            created_at=at,
            updated_at=at + version,
            version=version,
        )
    )


def fact(kind: Any, key: str, value: object) -> StateRow:
    """Return a fact of a run."""
    return StateRow(kind, key, msgspec.json.encode(value))


class RunVersionsContract(GivenVersions):
    """Each version tells what the run knew then."""

    @pytest.mark.surface("http", "records cross the wire")
    def test_versions_are_listed_the_newest_first(self, hf: Holdfast, store: Store) -> None:
        store(entry("shared:a", 1), part="read", agent="ada")
        store(entry("shared:b", 2), fact("part", "sum", {"state": "waiting"}), cause="question")

        two, one = hf.runs.versions("run_1")

        assert one == RunVersion(
            number=1,
            at=datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            cause="step",
            part="read",
            agent="ada",
            changed=("shared:a",),
            bytes=one.bytes,
            fence=0,
        )
        assert (two.number, two.cause, two.changed) == (2, "question", ("shared:b", "part:sum"))
        assert one.bytes > 0
        assert hf.runs.retrieve("run_1").versions == 2
        assert hf.runs.list().data[0].versions == 2

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_the_list_comes_in_pages(self, hf: Holdfast, store: Store) -> None:
        for number in range(5):
            store(entry("shared:a", number))

        page = hf.runs.versions("run_1", limit=2)

        assert [each.number for each in page] == [5, 4]
        assert [each.number for each in page.all()] == [5, 4, 3, 2, 1]

    @pytest.mark.surface("http", "entries and states cross the wire")
    def test_a_version_has_what_the_run_knew_then(self, hf: Holdfast, store: Store) -> None:
        value = {
            "value": [1],
            "version": 2,
            "created_at": "2026-07-01T00:00:00Z",
            "updated_at": "2026-07-02T00:00:00Z",
            "agent": "ada",
        }
        store(entry("shared:a", 1), entry("shared:b", 2))
        store(
            entry("shared:a", 9, version=2),
            StateRow("entry", "shared:b", None),
            fact("value", "berth", value),
            fact("part", "read", {"state": "completed"}),
            fact("part", "sum", {"state": "waiting"}),
            fact("board", "t1", {"id": "t1", "status": "open"}),
        )

        one, two = hf.runs.at("run_1", 1), hf.runs.at("run_1")

        assert (one.number, one.memory.run_id, one.state) == (1, "run_1", None)
        assert [(each.key, each.value) for each in one.memory.snapshot()] == [
            ("shared:a", 1),
            ("shared:b", 2),
        ]
        (kept,) = two.memory.snapshot()
        assert (kept.version, kept.created_at, kept.updated_at, kept.source) == (2, 5, 7, "read")
        assert two.state is not None
        berth = two.state.get("berth")
        assert berth is not None
        assert (berth.value, berth.version, berth.agent) == ([1], 2, "ada")
        assert two.parts == {"read": {"state": "completed"}, "sum": {"state": "waiting"}}
        assert (two.board, two.pending) == ([{"id": "t1", "status": "open"}], ("sum",))

    def test_a_copy_of_what_a_run_knew_is_detached(self, hf: Holdfast, store: Store) -> None:
        store(entry("shared:a", 1))

        hf.runs.at("run_1").memory.set("shared:a", 2)

        assert hf.runs.at("run_1").memory.get_value("shared:a") == 1

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_the_version_before_or_after_a_part_is_found_by_it(
        self, hf: Holdfast, store: Store
    ) -> None:
        for number, part in enumerate(("read", "sum", "read", "write"), start=1):
            store(entry("shared:a", number), part=part)

        assert hf.runs.at("run_1", part="read").number == 3
        assert hf.runs.at("run_1", part="read", when="before").number == 0
        assert hf.runs.at("run_1", part="write", when="before").number == 3
        assert hf.runs.at("run_1", 2, part="read").number == 1
        with pytest.raises(NotFound, match="part"):
            hf.runs.at("run_1", part="none")

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_version_that_is_not_there_is_not_found(self, hf: Holdfast, store: Store) -> None:
        store(entry("shared:a", 1))

        for ask in (
            lambda: hf.runs.at("run_1", 2),
            lambda: hf.runs.at("run_none"),
            lambda: hf.runs.versions("run_none"),
            lambda: hf.runs.messages("run_none", "read"),
        ):
            with pytest.raises(NotFound):
                ask()
        with invalid("version"):
            hf.runs.at("run_1", -1)
        with invalid("when"):
            hf.runs.at("run_1", part="read", when="during")  # pyright: ignore[reportArgumentType] - what a caller might give

    @pytest.mark.surface("http", "messages cross the wire")
    def test_messages_of_a_part_are_what_it_sent_and_was_answered(
        self, hf: Holdfast, store: Store
    ) -> None:
        asked = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Sum up."}]}
        said = {"kind": "response", "parts": [{"part_kind": "text", "content": "42"}]}
        turns = (
            KeptTurn("sum", 0, msgspec.json.encode(asked), "ada"),
            KeptTurn("sum", 1, msgspec.json.encode(said), "ada"),
            KeptTurn("read", 0, b"{}"),
        )
        store(turns=turns)

        told = hf.runs.messages("run_1", "sum")

        assert [each.export()["content"] for each in told] == ["Sum up.", "42"]
        assert [each.role for each in told] == ["user", "assistant"]
        assert hf.runs.messages("run_1", "write") == []
