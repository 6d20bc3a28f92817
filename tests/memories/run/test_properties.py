"""What holds of run memory whatever it is given."""

import json
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from holdfast import RunLimits, RunMemory, keys, tools
from holdfast.memories.run.keys import KINDS
from holdfast.memories.run.memory import render
from holdfast.testing.fakes import FrozenClock

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NASTY = st.sampled_from(
    ["</run_memory>", "<run_memory>", "&lt;", "\n## task_result: x (y)", "\x00"]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
    NASTY,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=8), st.dictionaries(st.one_of(TEXT, NASTY), inner, max_size=6)
    ),
    max_leaves=20,
)
NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\u2028\u2029"),
    min_size=1,
    max_size=20,
).filter(lambda name: name == name.strip())
NAMED = st.tuples(st.sampled_from(list(KINDS)), NAMES).map(":".join)
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "source": st.one_of(TEXT, NASTY),
        "title": st.one_of(TEXT, NASTY),
        "description": st.one_of(TEXT, NASTY),
        "failed": st.booleans(),
        "created_at": st.integers(0, 10**12),
    },
)
WRITES = st.lists(st.tuples(NAMED, VALUES, FACTS), max_size=12)


def filled(writes: list[tuple[str, object, dict[str, Any]]]) -> RunMemory:
    clock = FrozenClock()
    memory = RunMemory(clock=clock)
    for key, value, facts in writes:
        memory.set(key, value, **facts)
        clock.tick(0.001)
    return memory


@given(WRITES)
def test_json_leads_there_and_back(writes: list[tuple[str, object, dict[str, Any]]]) -> None:
    memory = filled(writes)

    twin = RunMemory.from_json(memory.to_json())

    assert twin.run_id == memory.run_id
    assert twin.snapshot() == memory.snapshot()
    assert twin.to_json() == memory.to_json()


@given(WRITES)
def test_no_stored_text_closes_the_block(
    writes: list[tuple[str, object, dict[str, Any]]],
) -> None:
    memory = filled(writes)

    block = render(memory.snapshot())

    if not writes:
        assert block == ""
        return
    inner = block.removeprefix("<run_memory>").removesuffix("</run_memory>")
    assert len(block) - len(inner) == len("<run_memory></run_memory>")
    assert "<" not in inner
    assert ">" not in inner


def spoil(value: Any) -> None:
    """Change *value*, and all that is in it, beyond recognition."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        for each in list(members.values()):
            spoil(each)
        members["spoilt"] = True
    elif isinstance(value, list):
        many = cast("list[Any]", value)
        for each in many:
            spoil(each)
        many.append("spoilt")


@given(VALUES)
def test_nobody_changes_a_value_from_outside(value: Any) -> None:
    memory = RunMemory()
    entry = memory.set("shared:a", value)
    kept = memory.to_json()

    for reached in (
        value,
        entry.value,
        memory.get_value("shared:a"),
        memory.snapshot()[0].value,
        tools.run(memory)[1].call({"keys": ["a"]}),
    ):
        spoil(reached)

    assert memory.to_json() == kept


@given(VALUES, st.integers(1, 400))
def test_pieces_of_any_size_joined_are_the_value(value: object, budget: int) -> None:
    memory = RunMemory()
    memory.set("shared:a", value)
    read = tools.run(memory, budget=budget)[1]
    pieces: list[Any] = []
    offset: int | None = 0
    of = None
    while offset is not None:
        answer = cast("Any", read.call({"keys": ["a"], "offset": offset}))
        entry = answer["entries"]["a"]
        part = entry.get("part", {"of": None, "next_offset": None})
        pieces.append(entry["value"])
        of = of or part["of"]
        assert part["of"] == of
        assert part["next_offset"] is None or part["next_offset"] > offset
        offset = part["next_offset"]

    assert joined(of, pieces) == memory.get_value("shared:a")


def joined(of: str | None, pieces: list[Any]) -> object:
    """Return the value that *pieces* are parts of."""
    if of == "array":
        return [each for piece in pieces for each in piece]
    if of is None:
        return pieces[0]
    text = "".join(pieces)
    return text if of == "text" else json.loads(text)


@given(WRITES, st.integers(1, 2_000), st.integers(1, 5), st.sampled_from(["newest", "oldest"]))
def test_pages_of_any_size_joined_are_the_whole_list(
    writes: list[tuple[str, object, dict[str, Any]]], budget: int, limit: int, order: str
) -> None:
    memory = filled(writes)
    list_tool = tools.run(memory, budget=budget)[0]
    whole = cast("Any", tools.run(memory)[0].call({"order": order}))
    found: list[Any] = []
    page = None
    while True:
        answer = cast("Any", list_tool.call({"order": order, "limit": limit, "page": page}))
        assert answer["total"] == len(memory)
        assert answer["returned"] == len(answer["entries"])
        found += answer["entries"]
        if (page := answer["next_page"]) is None:
            break

    assert found == whole["entries"]


ANYTHING = st.recursive(
    st.one_of(SCALARS, st.just(float("nan")), st.just("\ud800"), st.just(2**70)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=8,
)
ARGUMENTS = st.one_of(
    ANYTHING,
    st.dictionaries(
        st.sampled_from(
            [
                *("kind", "key_prefix", "sources", "limit", "page", "order"),
                *("keys", "path", "offset", "key", "value", "title", "description"),
                "expected_version",
            ]
        ),
        st.one_of(ANYTHING, NAMED, st.lists(NAMED), st.integers(-1, 3), st.just("/a/0")),
    ),
)


@given(st.integers(0, 2), ARGUMENTS, st.one_of(st.none(), st.integers(1, 200)))
def test_no_call_of_a_model_raises_and_every_answer_is_json(
    tool: int, arguments: object, budget: int | None
) -> None:
    memory = RunMemory(limits=RunLimits(entries=2, tool_value_bytes=50))
    memory.set(keys.shared("a"), {"a": [1, 2]}, title="T")

    answer = tools.run(memory, budget=budget)[tool].call(arguments)

    assert isinstance(answer, dict)
    json.dumps(answer, allow_nan=False).encode()
    if "error" in answer:
        error = cast("dict[str, Any]", answer["error"])
        kinds = ("invalid_input", "limit_exceeded", "precondition_failed")
        assert error["type"] in kinds
        assert error["message"]
        assert error["next"]
        assert len(memory) == 1
