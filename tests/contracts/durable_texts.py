"""What may stand in keys, contents, categories, tags and names, to the byte."""

from typing import Any

import pytest

from contracts.durable_writes import WIDTHS, GivenAnAgent, bad, listed, text_of
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory

FIELDS = {"key": 255, "content": 16_384, "category": 64, "tags": 64}
NARROW = ("key", "category", "tags")
CONTROLS = ["a\x01b", "a\tb", "a\nb", "a\x7fb", "a\x85b", "a\x9fb"]
AROUND = [" a", "a ", "\u3000a", "a\u00a0"]


def given(field: str, value: str) -> dict[str, Any]:
    """Return the arguments of a `set` that is sound but for *value* in *field*."""
    whole: dict[str, Any] = {"key": "a", "content": "x", "category": "core", "tags": ()}
    return {**whole, field: (value,) if field == "tags" else value}


class DurableTextsContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize("char", WIDTHS)
    @pytest.mark.parametrize("field", FIELDS)
    def test_the_most_bytes_are_taken_and_one_more_is_refused(
        self, durable: DurableMemory, field: str, char: str
    ) -> None:
        longest = FIELDS[field]

        with bad(field) as refusal:
            durable.set(**given(field, text_of(longest + 1, char)))
        error: Any = refusal.value
        assert str(longest) in str(error.limit).replace(",", "")
        assert error.given is None or len(error.given) <= 60 + len("…")
        stored = durable.set(**given(field, text_of(longest, char)))
        entry = durable.get(stored.key)
        assert entry is not None
        assert (entry.content, entry.category, entry.tags) == (
            stored.content,
            stored.category,
            stored.tags,
        )

    @pytest.mark.parametrize("text", ["", "a\0b", "a\ud800b"], ids=["empty", "NUL", "surrogate"])
    @pytest.mark.parametrize("field", FIELDS)
    def test_what_no_text_may_be_is_refused(
        self, durable: DurableMemory, field: str, text: str
    ) -> None:
        with bad(field):
            durable.set(**given(field, text))

        assert listed(durable) == []

    @pytest.mark.parametrize("text", [*CONTROLS, *AROUND], ids=ascii)
    @pytest.mark.parametrize("field", NARROW)
    def test_controls_and_space_around_are_refused_in_all_but_content(
        self, durable: DurableMemory, field: str, text: str
    ) -> None:
        with bad(field):
            durable.set(**given(field, text))

    @pytest.mark.parametrize("field", NARROW)
    def test_text_that_is_not_in_nfc_is_refused_with_the_form_that_is(
        self, durable: DurableMemory, field: str
    ) -> None:
        with bad(field) as refusal:
            durable.set(**given(field, "e\u0301"))

        assert "é" in f"{refusal.value.message} {refusal.value.next}"

    @pytest.mark.parametrize(
        "content", [*CONTROLS, *AROUND, "\r\na\r\n", "e\u0301", "\ufeffa", "\u200b"], ids=ascii
    )
    def test_content_is_kept_byte_for_byte(self, durable: DurableMemory, content: str) -> None:
        durable.set("a", content, category="core")

        entry = durable.get("a")
        assert entry is not None
        assert entry.content == content

    @pytest.mark.parametrize("content", [" ", "\n\t ", "\u3000\u00a0"], ids=ascii)
    def test_content_of_whitespace_alone_is_refused(
        self, durable: DurableMemory, content: str
    ) -> None:
        with bad("content"):
            durable.set("a", content, category="core")

    @pytest.mark.parametrize("field", FIELDS)
    @pytest.mark.parametrize("value", [None, 7, b"x"])
    def test_what_is_no_text_is_refused(
        self, durable: DurableMemory, field: str, value: Any
    ) -> None:
        with pytest.raises((InvalidInput, TypeError)):
            durable.set(**given(field, value))

        assert listed(durable) == []

    def test_a_refusal_says_what_to_do_next(self, durable: DurableMemory) -> None:
        with bad("key") as refusal:
            durable.set("", "x", category="core")

        assert refusal.value.next

    def test_32_tags_are_taken_and_one_more_is_refused(self, durable: DurableMemory) -> None:
        tags = [f"t{number:02}" for number in range(33)]

        with bad("tags"):
            durable.set("a", "x", category="core", tags=tags)
        stored = durable.set("a", "x", category="core", tags=[*tags[:32], *tags[:32]])

        assert stored.tags == tuple(tags[:32])

    def test_tags_are_sorted_by_code_point(self, durable: DurableMemory) -> None:
        tags = ("é", "b", "B", "🦀", "\uffee", "a")

        assert durable.set("a", "x", category="core", tags=tags).tags == tuple(sorted(tags))

    def test_one_text_is_no_list_of_tags(self, durable: DurableMemory) -> None:
        with bad("tags"):
            durable.set("a", "x", category="core", tags="web")

    @pytest.mark.parametrize("key", ["__run__", "holdfast:seq", "a/b", "..", "%", "'", "Ⅷ", "A"])
    def test_no_key_is_reserved_or_folded(self, durable: DurableMemory, key: str) -> None:
        durable.set("a", "near", category="core")

        durable.set(key, "x", category="core")

        assert listed(durable) == [key, "a"]
        entry = durable.get(key)
        assert entry is not None
        assert entry.content == "x"

    @pytest.mark.parametrize("key", ["A", "a ", "\uff41", "a%", "_"])
    def test_get_finds_no_near_match(self, durable: DurableMemory, key: str) -> None:
        durable.set("a", "x", category="core")

        try:
            found = durable.get(key)
        except InvalidInput:
            found = None

        assert found is None

    @pytest.mark.parametrize("name", ["a", "7", "A" * 128, "a._:@+-"])
    def test_a_name_of_the_rule_is_an_agent(self, hf: Holdfast, name: str) -> None:
        assert hf.durable(name).set("a", "x", category="core").agent == name

    @pytest.mark.parametrize("name", ["", "A" * 129, "-a", "a b", "a/b", "é", "a\n", "*", "a\0"])
    def test_any_other_name_is_refused(self, hf: Holdfast, name: str) -> None:
        with bad("agent"):
            hf.durable(name).get("a")

    @pytest.mark.parametrize("name", ["", "A" * 129, "-a", "a b", "a/b", "é", "a\n", "*"])
    def test_run_ids_and_lanes_follow_the_same_rule(
        self, durable: DurableMemory, name: str
    ) -> None:
        with bad("run_id"):
            durable.run(name)
        with bad("lane"):
            durable.run("r", lane=name)


class DurableCategoriesContract(GivenAnAgent):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize("category", ["CORE", "Daily", "Workspace", "cores", "CONVERSATIONS"])
    def test_nearly_one_of_the_four_is_a_custom_category_with_a_notice(
        self, durable: DurableMemory, category: str
    ) -> None:
        stored = durable.set("a", "x", category=category)

        assert (stored.category, stored.scope, stored.expires_at) == (category, "agent", None)
        assert category in stored.notices[0]

    @pytest.mark.parametrize("category", ["core", "daily", "workspace", "note", "corey", "daily_2"])
    def test_any_other_category_has_no_notice(self, durable: DurableMemory, category: str) -> None:
        assert durable.set("a", "x", category=category).notices == ()

    def test_a_near_core_entry_is_windowed(self, durable: DurableMemory) -> None:
        durable.set("a", "x", category="core")
        durable.set("b", "x", category="CORE")

        assert durable.explain("a").tier == "pinned"
        assert durable.explain("b").tier == "windowed"
