"""The items of a process step, and what each agent is told of its own."""

import pytest

from holdfast.runtime import Step
from holdfast.runtime.plans.work import NotAList, item_step, items_of, told
from holdfast.tools.base import JSON


@pytest.mark.parametrize(
    ("value", "items"),
    [
        ([1, 2], [1, 2]),
        ([], []),
        (None, []),
        ({"sources": ["a"], "note": "x"}, ["a"]),
        ({"sources": []}, []),
    ],
)
def test_items_come_from_a_list_or_the_only_list_of_an_object(
    value: JSON, items: list[JSON]
) -> None:
    assert items_of(value) == items


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("abc", "text"),
        (3, "a number"),
        (True, "a boolean"),
        ({}, "an object with no lists"),
        ({"a": [], "b": []}, "an object with 2 lists (a, b)"),
    ],
)
def test_anything_else_is_no_list_and_named(value: JSON, said: str) -> None:
    with pytest.raises(NotAList) as caught:
        items_of(value)

    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("template", "item", "text"),
    [
        ("Read {url}.", {"url": "h/x", "n": 1}, "Read h/x."),
        ("Read {n} {on} {tags}.", {"n": 1, "on": None, "tags": ["a"]}, 'Read 1 null ["a"].'),
        ("{index}: {item}", {"a": 1}, '4: {"a":1}'),
        ("Say {item}.", "hello", "Say hello."),
        ("{a}", {"a": "{b}", "b": "no"}, "{b}"),
        ("{a} {unknown} {{}} {", {"a": 1}, "1 {unknown} {{}} {"),
        ('Give {"a": {n}}.', {"n": 2}, 'Give {"a": 2}.'),
        ("Summarize.", {"a": 1}, 'Summarize.\n\n{"a":1}'),
        ("Summarize.", "text", 'Summarize.\n\n"text"'),
        ("As {colour}", {"a": 1}, 'As {colour}\n\n{"a":1}'),
    ],
)
def test_a_template_is_filled_in_one_pass(template: str, item: JSON, text: str) -> None:
    assert told(template, item, 4) == text


def test_an_item_step_is_a_plain_step_of_its_own() -> None:
    process = Step(
        id="each",
        instructions="All of it.",
        depends_on=["list"],
        mode="process",
        per_item_instructions="Read {item}.",
        per_item_schema={"type": "string"},
        retries=2,
    )
    process.begin(1)

    one = item_step(process, "x", 7)

    assert (one.id, one.instructions, one.mode) == ("each.7", "Read x.", None)
    assert (one.output_schema, one.retries, one.state) == ({"type": "string"}, 2, "pending")


def test_without_words_of_their_own_items_have_the_steps() -> None:
    process = Step(id="e", instructions="Do {item}.", output_schema="{}", mode="process")

    one = item_step(process, 1, 0)

    assert (one.instructions, one.output_schema) == ("Do 1.", "{}")
