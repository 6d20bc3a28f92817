"""Charts as SVG: parts that add up, boxes that do not overlap, one skeleton."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from holdfast.doors.console.charts import (
    TASKS_MOST,
    PlanTask,
    budget,
    growth,
    plan,
    score,
    timeline,
)

START = datetime(2026, 11, 2, tzinfo=UTC)
ATTACKS = st.sampled_from(
    [
        "<script>alert(1)</script>",
        '"><svg onload=alert(1)>',
        "' onfocus=alert(1) x='",
        "</text></title></svg></a><b>",
        "javascript:alert(1)",
        "//evil.example",
        "]]>&lt;&#60;",
        "a\u202eb\u2066\u200b\x00\x1b\x85\n\ud800",
        "{{ 7 * 7 }}",
    ]
)
ANY = st.one_of(ATTACKS, st.text(st.characters(exclude_characters="\ufffe\uffff"), max_size=40))
SIZES = st.integers(0, 10**9)


def parsed(html: Markup) -> ET.Element:
    """Parse as XML, which takes no loose end; `style` and scripts are nowhere."""
    root = ET.fromstring(str(html))
    for each in root.iter():
        assert each.tag in {"svg", "g", "a", "title", "text", "rect", "path", "circle", "line"}
        assert not {"style", "id"} & set(each.attrib)
        assert not [name for name in each.attrib if name.startswith(("on", "hx-"))]
    assert root.get("role") in {"img", "group"}
    assert root.get("aria-label")
    return root


def skeleton(html: Markup) -> list[tuple[str, list[str]]]:
    return [(each.tag, sorted(each.attrib)) for each in parsed(html).iter()]


def widths(root: ET.Element, *classes: str) -> list[float]:
    rects = [each for each in root.iter("rect") if each.get("class") in classes]
    for before, after in pairwise(rects):
        end = float(before.get("x", "")) + float(before.get("width", ""))
        assert end <= float(after.get("x", "")) + 0.011  # both are rounded
    return [float(each.get("width", "")) for each in rects]


def numbers(text: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?", text)]


# Bars


@given(SIZES, SIZES, SIZES, st.one_of(st.none(), SIZES))
def test_the_parts_of_a_budget_add_up(
    given_budget: int, pinned: int, windowed: int, largest: int | None
) -> None:
    root = parsed(budget(given_budget, pinned, windowed, largest))

    drawn = widths(root, "c1", "c2", "free")
    assert sum(drawn) == pytest.approx(1000 if any((given_budget, pinned, windowed)) else 0, abs=6)
    marks = [each for each in root.iter("path") if each.get("class") == "mark"]
    assert len(marks) == (largest is not None)
    for mark in marks:
        assert 0 <= numbers(mark.get("d", ""))[0] <= 999


def test_a_budget_says_its_numbers() -> None:
    html = budget(4_000, 2_448, 1_352, 16_011)

    assert parsed(html).get("aria-label") == (
        "Budget of 4,000 bytes: 2,448 pinned, 1,352 windowed, 200 free;"
        " the largest entry left out has 16,011"
    )
    assert widths(parsed(html), "c1", "c2", "free") == [610.5, 336.5, 48.5]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_the_parts_of_a_score_add_up(parts: list[float]) -> None:
    root = parsed(score(parts, sum(parts), "Ada"))

    drawn = widths(root, "c1", "c2", "c3")
    whole = 183 * sum(parts) / max(1.0, sum(parts))
    assert sum(drawn) == pytest.approx(whole, abs=1.6 * len(parts))
    text = next(root.iter("text"))
    assert float(text.get("x", "")) == pytest.approx(whole + 6, abs=0.01)
    assert text.text == f"{sum(parts):.2f}"


def test_a_score_says_its_parts() -> None:
    assert parsed(score([0.7, 0.2, 0.09], 0.99, "Tea")).get("aria-label") == (
        "Tea: 0.99 = 0.70 + 0.20 + 0.09"
    )


@given(ANY)
def test_a_score_has_one_skeleton(label: str) -> None:
    assert skeleton(score([0.5], 0.5, label)) == skeleton(score([0.5], 0.5, "a"))


# Lines of time


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=100))
def test_marks_of_a_timeline_are_in_order_and_apart(seconds: list[int]) -> None:
    marks = [(START + timedelta(seconds=each), "modified", str(each)) for each in seconds]

    root = parsed(timeline(marks))

    drawn = [each for each in root if each.tag == "svg"]
    assert [int(each[0].text or "") for each in drawn] == sorted(seconds)
    places = [float(each.get("x", "").removesuffix("%")) for each in drawn]
    assert places[0] >= 2
    assert places[-1] <= 98
    least = min(2.2, 96 / max(len(places) - 1, 1))
    assert all(after - before >= least - 0.011 for before, after in pairwise(places))


def test_marks_stand_where_their_time_is() -> None:
    days = [(0, "created"), (8, "modified"), (24, "deleted"), (32, "redacted")]

    root = parsed(timeline([(START + timedelta(days=day), what, what) for day, what in days]))

    drawn = [(each.get("class"), each.get("x")) for each in root if each.tag == "svg"]
    assert drawn == [("good", "2%"), ("accent", "26%"), ("bad", "74%"), ("muted", "98%")]
    shapes = [ET.tostring(each[1]) for each in root if each.tag == "svg"]
    assert len(set(shapes)) == 4
    assert [each.text for each in root.iter("text")] == ["2 Nov 2026", "4 Dec 2026"]


@given(ANY)
def test_a_timeline_has_one_skeleton(title: str) -> None:
    marks = [(START, "created", title), (START, "modified", title)]

    assert skeleton(timeline(marks)) == skeleton(
        timeline([(at, what, "a") for at, what, _ in marks])
    )


def test_no_versions_are_a_line() -> None:
    assert parsed(timeline([])).get("aria-label") == "No versions"


@given(st.lists(st.tuples(st.dates().map(str), SIZES), min_size=1, max_size=50))
def test_growth_stays_in_its_frame_from_left_to_right(rows: list[tuple[str, int]]) -> None:
    root = parsed(growth(rows, "Database"))

    line = next(each for each in root.iter("path") if each.get("class") == "c1")
    points = numbers(line.get("d", ""))
    xs, ys = points[::2], points[1::2]
    assert len(xs) == len(rows)
    assert xs == sorted(xs)
    assert 0 <= xs[0] <= xs[-1] <= 1000
    assert all(0 <= y <= 112 for y in ys)
    assert min(ys) == 4 or not any(size for _, size in rows)


def test_growth_is_drawn_from_zero_by_date() -> None:
    root = parsed(growth([("2026-11-01", 0), ("2026-11-02", 50), ("2026-11-05", 100)], "Database"))

    line = next(each for each in root.iter("path") if each.get("class") == "c1")
    assert line.get("d") == "M5 112L251.25 58L990 4"
    assert [each.text for each in root.iter("text")] == [
        *("100 B now, 100 B at most", "1 Nov 2026", "5 Nov 2026"),
    ]
    assert root.get("aria-label") == "Database: 0 B on 1 Nov 2026, 100 B on 5 Nov 2026"


@given(ANY, ANY)
def test_growth_has_one_skeleton(name: str, label: str) -> None:
    rows = [(name, 1), ("2026-11-24", 2)]

    assert skeleton(growth(rows, label)) == skeleton(growth([("a", 1), ("b", 2)], "a"))
    assert skeleton(growth([], label)) == skeleton(growth([], "a"))


# Plans


def task(id: str, *depends_on: str, **given: str | int) -> PlanTask:
    fields = {"title": f"Task {id}", "state": "pending", "steps_done": 0, "steps": 0} | given
    return PlanTask(
        id=id,
        depends_on=depends_on,
        title=str(fields["title"]),
        state=str(fields["state"]),
        steps_done=int(fields["steps_done"]),
        steps=int(fields["steps"]),
        detail=str(fields.get("detail", "")),
        href=str(fields.get("href", f"/console/runs/r?key=task%3A{id}")),
    )


@st.composite
def graphs(draw: st.DrawFn) -> list[PlanTask]:
    """Tasks with any dependencies: circles, itself, unknown and repeated ids."""
    names = draw(st.lists(st.sampled_from("abcdefghijklmnop"), max_size=16))
    depends_on = st.lists(st.sampled_from([*names, "unknown"]), max_size=4)
    return [task(name, *draw(depends_on)) for name in names]


@st.composite
def acyclic(draw: st.DrawFn) -> list[PlanTask]:
    names = [f"t{n}" for n in range(draw(st.integers(1, TASKS_MOST)))]
    tasks = [
        task(name, *(draw(st.lists(st.sampled_from(names[:n]), max_size=3)) if n else ()))
        for n, name in enumerate(names)
    ]
    return draw(st.permutations(tasks))


def boxes(root: ET.Element) -> list[tuple[float, float, float, float]]:
    drawn = [each.find("rect") for each in root.iter("a")]
    return [
        (
            float(each.get("x", "")),
            float(each.get("y", "")),
            float(each.get("width", "")),
            float(each.get("height", "")),
        )
        for each in drawn
        if each is not None
    ]


def is_apart(root: ET.Element) -> None:
    found = boxes(root)
    for (x, y, width, height), (x2, y2, width2, height2) in combinations(found, 2):
        assert x + width < x2 or x2 + width2 < x or y + height < y2 or y2 + height2 < y
    for x, y, width, height in found:
        assert x >= 0
        assert y >= 0
        assert x + width <= float(root.get("width", ""))
        assert y + height <= float(root.get("height", ""))


@given(graphs())
def test_boxes_of_any_graph_do_not_overlap(tasks: list[PlanTask]) -> None:
    root = parsed(plan(tasks))

    assert len(boxes(root)) == len(tasks)
    is_apart(root)


@given(acyclic())
def test_each_task_stands_right_of_what_it_depends_on(tasks: list[PlanTask]) -> None:
    root = parsed(plan(tasks))

    is_apart(root)
    left = {each.id: box[0] for each, box in zip(tasks, boxes(root), strict=True)}
    for each in tasks:
        longest = max((left[name] + 232 for name in each.depends_on), default=2)
        assert left[each.id] == longest
    edges = sum(len(set(each.depends_on)) for each in tasks)
    assert len([each for each in root if each.get("class") == "line"]) == edges


def test_a_circle_is_drawn_with_all_its_edges() -> None:
    root = parsed(plan([task("a", "c"), task("b", "a"), task("c", "b")]))

    assert [box[0] for box in boxes(root)] == [2, 234, 466]
    assert len([each for each in root if each.get("class") == "line"]) == 3


def test_an_edge_leads_from_box_to_box() -> None:
    root = parsed(plan([task("a"), task("b", "a")]))

    edge = next(each for each in root if each.get("class") == "line")
    assert numbers(edge.get("d", "")) == [194, 36, 214, 36, 214, 36, 234, 36]


@pytest.mark.parametrize(
    ("state", "classes", "words"),
    [
        ("pending", "muted", "○ pending"),
        ("running", "accent", "● running"),
        ("completed", "good", "✓ completed"),
        ("failed", "bad", "✕ failed"),
        ("blocked", "warn", "◌ blocked"),
        ("cancelled", "muted", "⊘ cancelled"),
        ("lost", "muted", "• lost"),
    ],
)
def test_a_state_has_a_colour_an_icon_and_a_word(state: str, classes: str, words: str) -> None:
    root = parsed(plan([task("a", state=state)]))

    assert [each.get("class") for each in root.iter("rect")] == ["free", classes]
    assert [each.text for each in root.iter("text")][1] == words


def test_a_box_is_a_link_that_says_all_of_its_task() -> None:
    title = "Check the figures of the third quarter"
    given_task = task(
        "a",
        title=title,
        state="failed",
        steps_done=1,
        steps=2,
        detail="model away",
        href="/x?a=1&b=2",
    )

    root = parsed(plan([given_task]))

    link = next(root.iter("a"))
    assert link.get("href") == "/x?a=1&b=2"
    assert link.get("aria-label") == f"{title}: failed, 1 of 2 steps, model away"
    assert [each.text for each in link.iter("text")] == [
        *("Check the figures of t…", "✕ failed · 1 of 2 steps", "model away"),
    ]


def test_wide_characters_take_twice_the_room() -> None:
    root = parsed(plan([task("a", title="日" * 30)]))

    assert next(each.text for each in root.iter("text")) == "日" * 11 + "…"


@pytest.mark.parametrize("href", ["javascript:alert(1)", "//evil.example", "/\\evil.example", ""])
def test_a_box_leads_nowhere_else(href: str) -> None:
    assert next(parsed(plan([task("a", href=href)])).iter("a")).get("href") == "#"


@given(ANY, ANY, ANY, ANY)
def test_a_plan_has_one_skeleton(title: str, state: str, detail: str, href: str) -> None:
    hostile = task("a", title=title, state=f"x{state}", detail=detail, href=href)

    assert skeleton(plan([hostile])) == skeleton(plan([task("a", state="lost")]))


def test_a_plan_of_more_than_60_tasks_is_refused() -> None:
    tasks: Sequence[PlanTask] = [task(str(n)) for n in range(TASKS_MOST + 1)]

    assert len(boxes(parsed(plan(tasks[:-1])))) == TASKS_MOST
    with pytest.raises(ValueError, match="shown as a table"):
        plan(tasks)
