"""What holds between collections, and of switching memory on."""

from itertools import combinations
from typing import Any

import pytest

from contracts.longterm_items import GivenAUser, bad, items, kept, memory_of
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions

ENABLED = "HOLDFAST_LTM_ENABLED"
MAX_ITEMS = "HOLDFAST_LTM_MAX_ITEMS"

LOOK_ALIKES: list[tuple[str, str, str | None]] = [
    ("a", "b_c", None),
    ("a_b", "c", None),
    ("a", "b", "c"),
    ("a/b", "c", None),
    ("a", "b/c", None),
    ("a:b", "c", None),
    ("a.b", "c", None),
    ("A", "b_c", None),
    ("a ", "b_c", None),
    ("\uff41", "b_c", None),
    ("a%", "b_c", None),
    ("a", "b_c", "None"),
    ("a", "b_c", "null"),
]


class LongTermScopesContract(GivenAUser):
    """Subclass it, and give it `hf`, `elsewhere` and `clock` fixtures."""

    def test_names_that_look_alike_never_meet(self, hf: Holdfast) -> None:
        memories = [
            memory_of(hf, user, namespace=namespace, workspace_id=workspace_id)
            for user, namespace, workspace_id in LOOK_ALIKES
        ]
        stored = [kept(memory, f"Likes number {number}") for number, memory in enumerate(memories)]

        assert [items(memory) for memory in memories] == [
            [f"Likes number {number}"] for number in range(len(memories))
        ]
        for (one, _), (_, item) in combinations(zip(memories, stored, strict=True), 2):
            assert one.get(item.id) is None
            assert not one.forget(item.id)

    def test_another_workspace_has_nothing_of_it(
        self, elsewhere: Holdfast, ltm: LongTermMemory
    ) -> None:
        item = kept(ltm, "Likes tabs")
        there = memory_of(elsewhere, "ada")

        assert items(there) == there.recall("tabs") == []
        assert there.get(item.id) is None
        assert not there.forget(item.id)
        elsewhere.forget_user("ada")
        assert items(ltm) == ["Likes tabs"]

    @pytest.mark.parametrize("wrong", ["", "a\n", "a\0b", "a" * 257, "e\u0301", "\ud800", 7])
    @pytest.mark.parametrize("field", ["user_id", "namespace", "workspace_id"])
    def test_a_bad_name_is_refused(self, hf: Holdfast, field: str, wrong: Any) -> None:
        given: dict[str, Any] = {"user_id": "ada", field: wrong}
        user = given.pop("user_id")

        with bad(field):
            hf.longterm(user, enabled=True, **given)
        with bad(field):
            hf.longterm_data(user, **given)

    def test_nobody_is_named_as_everybody(self, hf: Holdfast) -> None:
        with bad("user_id"):
            hf.longterm("*", enabled=True)
        with bad("user_id"):
            hf.forget_user("*")

    def test_a_long_name_and_any_letters_are_fine(self, hf: Holdfast) -> None:
        ltm = memory_of(hf, "名" * 85, namespace="a b/c:d", workspace_id="x" * 256)

        kept(ltm, "Likes tabs")

        assert items(ltm) == ["Likes tabs"]


class LongTermSwitchContract:
    """Subclass it, and give it an `hf` fixture."""

    @pytest.mark.parametrize(
        ("enabled", "variable", "on"),
        [
            (None, None, False),
            (None, "1", True),
            (None, "0", False),
            (True, None, True),
            (True, "1", True),
            (True, "0", False),
            (False, None, False),
            (False, "1", False),
            (False, "0", False),
        ],
    )
    def test_a_veto_anywhere_wins(
        self,
        hf: Holdfast,
        monkeypatch: pytest.MonkeyPatch,
        enabled: Any,
        variable: str | None,
        on: bool,
    ) -> None:
        monkeypatch.delenv(ENABLED, raising=False)
        if variable is not None:
            monkeypatch.setenv(ENABLED, variable)

        assert (hf.longterm("ada", enabled=enabled) is not None) == on

    @pytest.mark.parametrize(
        ("variable", "on"),
        [
            *((word, True) for word in ("1", "true", "yes", "on", " TRUE ", "On")),
            *((word, False) for word in ("0", "false", "no", "off", " OFF", "", " ")),
        ],
    )
    def test_the_variable_has_its_words(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch, variable: str, on: bool
    ) -> None:
        monkeypatch.setenv(ENABLED, variable)

        assert (hf.longterm("ada") is not None) == on

    @pytest.mark.parametrize("variable", ["2", "maybe", "enabled", "y", "t"])
    def test_another_word_is_refused_whoever_asks(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        monkeypatch.setenv(ENABLED, variable)

        for enabled in (None, True, False):
            with bad(ENABLED):
                hf.longterm("ada", enabled=enabled)

    def test_a_persons_data_is_theirs_whatever_it_says(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(ENABLED, raising=False)
        item = kept(memory_of(hf, "ada"), "Likes tabs")
        monkeypatch.setenv(ENABLED, "0")

        data = hf.longterm_data("ada")

        assert [each.text for each in data.list()] == ["Likes tabs"]
        assert data.get(item.id) == item
        assert len(list(data.export())) == 1
        assert data.status().items == 1
        assert data.forget(item.id)
        assert data.clear().items == 0

    def test_the_cap_is_the_options_then_the_variables_then_500(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(MAX_ITEMS, raising=False)
        assert memory_of(hf, "ada").status().max_items == 500
        monkeypatch.setenv(MAX_ITEMS, "7")
        assert memory_of(hf, "ada").status().max_items == 7
        own = memory_of(hf, "ada", options=LongTermOptions(max_items=3))
        assert own.status().max_items == 3

    @pytest.mark.parametrize("variable", ["-1", "many", "2.5", "1e3", "٣"])
    def test_a_cap_that_is_no_number_is_refused(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        monkeypatch.setenv(MAX_ITEMS, variable)

        with bad(MAX_ITEMS):
            hf.longterm("ada", enabled=True)
