"""Charts as inline SVG: a budget, a score, a timeline, a plan, growth.

Positions stand in attributes, colours come by class as `color`: shapes are drawn in
`currentColor`, so a picture without a stylesheet is readable too.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from math import isfinite
from typing import Final

from markupsafe import Markup, escape
from msgspec import Struct

from holdfast.doors.console.text import day, plain, safe, size_text

TASKS_MOST: Final = 60
"""Most tasks of a plan that are drawn."""

_GAP: Final = 1.5
"""Ground between two parts of a bar."""
_EXACT: Final = 100_000
_CURRENT: Final = 'fill="currentColor"'
_STROKE: Final = 'fill="none" stroke="currentColor"'
_EVEN: Final = 'vector-effect="non-scaling-stroke"'

Rectangle = tuple[float, float, float, float]
"""Left, top, width, height."""


def _svg(kind: str, label: str, size: tuple[float | str, float], inner: str) -> Markup:
    """Return the element; *size* is its width and height."""
    role = "group" if kind == "plan" else "img"  # an image may hold no links
    return safe(
        f'<svg class="chart {kind}" role="{role}" aria-label="{_escaped(label)}"'
        f' width="{size[0]}" height="{_n(size[1])}" fill="currentColor">{inner}</svg>'
    )


def _n(value: float) -> str:
    return f"{round(value, 2):g}" if abs(value) < _EXACT else f"{value:.0f}"


def _stretched(top: float, height: float, inner: str) -> str:
    """Return shapes in 1,000 by *height* units, as wide as the page has room for."""
    return (
        f'<svg y="{_n(top)}" width="100%" height="{_n(height)}" viewBox="0 0 1000 {_n(height)}"'
        f' preserveAspectRatio="none">{inner}</svg>'
    )


def _escaped(text: str) -> str:
    return str(escape(plain(text)))


def _rect(at: Rectangle, classes: str, paint: str = _CURRENT, radius: int = 0) -> str:
    x, y, width, height = map(_n, at)
    rounded = f' rx="{radius}"' if radius else ""
    place = f'x="{x}" y="{y}" width="{width}" height="{height}"{rounded}'
    return f'<rect class="{classes}" {place} {paint}/>'


def _label(x: float | str, y: float, text: str, classes: str = "", anchor: str = "start") -> str:
    at = x if isinstance(x, str) else _n(x)
    place = f'x="{at}" y="{_n(y)}" text-anchor="{anchor}"'
    return f'<text class="{classes}" {place}>{_escaped(text)}</text>'


# Bars


def _bar(parts: Iterable[tuple[str, float]], scale: float, top: float, height: float) -> str:
    """Return parts side by side, each as wide as its value times *scale*, less a gap."""
    x, shapes = 0.0, ""
    for classes, value in parts:
        width = value * scale
        if width > 0:
            shapes += _rect((x, top, max(width - _GAP, width / 2), height), classes)
        x += width
    return shapes


def budget(budget: int, pinned: int, windowed: int, largest_omitted: int | None) -> Markup:
    """Return a bar of *budget* bytes, with a mark at the largest entry left out."""
    free = max(budget - pinned - windowed, 0)
    total = max(budget, pinned + windowed, 1)
    inner = _rect((0, 8, 1000, 22), "line", f"{_STROKE} {_EVEN}")
    inner += _bar((("c1", pinned), ("c2", windowed), ("free", free)), 1000 / total, 8, 22)
    label = f"Budget of {budget:,} bytes: {pinned:,} pinned, {windowed:,} windowed, {free:,} free"
    if largest_omitted is not None:
        x = _n(min(largest_omitted / total * 1000, 999))
        title = f"<title>Largest entry left out: {largest_omitted:,} bytes</title>"
        inner += (
            f'<path class="mark" d="M{x} 2V36" {_STROKE} stroke-width="2" {_EVEN}>{title}</path>'
        )
        label += f"; the largest entry left out has {largest_omitted:,}"
    return _svg("budget", label, ("100%", 44), _stretched(0, 44, inner))


_SCORE: Final = 183.0
"""Width of a score of 1."""


def score(parts: Sequence[float], total: float, label: str) -> Markup:
    """Return a stacked bar of the weighted *parts* of a score, and *total* behind it."""
    drawn = [part if isfinite(part) and part > 0 else 0.0 for part in parts]
    scale = _SCORE / max(1.0, sum(drawn))
    bar = _bar(((f"c{n % 3 + 1}", part) for n, part in enumerate(drawn)), scale, 4, 12)
    text = _label(sum(drawn) * scale + 6, 14, f"{total:.2f}")
    whole = f"{label}: {total:.2f} = {' + '.join(f'{part:.2f}' for part in parts)}"
    return _svg("score", whole, (232, 20), bar + text)


# Lines of time

_EDGE: Final = 2.0
_APART: Final = 2.2
_DIAMOND: Final = '<path d="M0 11l6 6-6 6-6-6z" fill="currentColor"/>'
_CROSS: Final = f'<path d="M-5 12l10 10m0-10l-10 10" {_STROKE} stroke-width="2.5"/>'
_RING: Final = f'<circle cy="17" r="5" {_STROKE} stroke-width="2" stroke-dasharray="3 2"/>'
_OPERATIONS: Final = {
    "created": ("good", f'<circle cy="17" r="6" {_CURRENT}/>'),
    "modified": ("accent", _DIAMOND),
    "deleted": ("bad", _CROSS),
}


def timeline(marks: Sequence[tuple[datetime, str, str]]) -> Markup:
    """Return a mark for each (at, operation, title), placed by time.

    Operations differ in colour and shape. Marks that would overlap are moved apart.
    """
    ordered = sorted(marks, key=lambda mark: mark[0])
    axis = f'<line class="line" x2="100%" y1="17" y2="17" {_STROKE} stroke-width="2"/>'
    if not ordered:
        return _svg("timeline", "No versions", ("100%", 44), axis)
    first, last = ordered[0][0], ordered[-1][0]
    places = _apart([(at - first).total_seconds() for at, _, _ in ordered])
    shapes = ""
    for x, (_, operation, title) in zip(places, ordered, strict=True):
        classes, shape = _OPERATIONS.get(operation, ("muted", _RING))
        shapes += f'<svg class="{classes}" x="{_n(x)}%" overflow="visible">'
        shapes += f"<title>{_escaped(title)}</title>{shape}</svg>"
    days = day(first.astimezone(UTC)), day(last.astimezone(UTC))
    text = _label(0, 40, days[0], "muted")
    if days[0] != days[1]:
        text += _label("100%", 40, days[1], "muted", "end")
    label = f"{len(ordered):,} versions, from {days[0]} to {days[1]}"
    return _svg("timeline", label, ("100%", 44), axis + shapes + text)


def _apart(values: Sequence[float]) -> list[float]:
    """Return places, in percent, of rising *values*: in proportion, but apart."""
    width = 100 - 2 * _EDGE
    longest = values[-1] - values[0]
    places = [_EDGE + ((each - values[0]) / longest * width if longest else 0) for each in values]
    least = min(_APART, width / max(len(values) - 1, 1))
    for n in range(1, len(places)):
        places[n] = max(places[n], places[n - 1] + least)
    limit = _EDGE + width
    for n in reversed(range(len(places))):
        places[n] = min(places[n], limit)
        limit = places[n] - least
    return places


_TALL: Final = 112.0


def growth(rows: Sequence[tuple[str, int]], label: str) -> Markup:
    """Return a line of bytes by day (`2026-11-24`), from 0, with its ends in words."""
    if not rows:
        text = _label(0, 16, "No samples yet: one is taken each day.", "muted")
        return _svg("growth", f"{label}: no samples yet", ("100%", 24), text)
    ordered = sorted(rows)
    most = max(1, *(size for _, size in ordered))
    days = [_day_number(name, n) for n, (name, _) in enumerate(ordered)]
    longest = (days[-1] - days[0]) or 1
    points = [
        (5 + (day - days[0]) / longest * 985, _TALL - size / most * (_TALL - 4))
        for day, (_, size) in zip(days, ordered, strict=True)
    ]
    path = "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
    x, y = points[-1]
    first, last = ((_day_text(name), size) for name, size in (ordered[0], ordered[-1]))
    inner = (
        f'<path class="line" d="M0 {_n(_TALL)}H1000" {_STROKE} stroke-width="2" {_EVEN}/>'
        f'<path class="c1" d="M{path}" {_STROKE} stroke-width="2" {_EVEN}/>'
    )
    outer = (
        f'<circle class="c1" cx="{_n(x / 10)}%" cy="{_n(y + 20)}" r="3.5" {_CURRENT}/>'
        + _label(0, 12, f"{size_text(last[1])} now, {size_text(most)} at most", "muted")
        + _label(0, 152, first[0], "muted")
        + (_label("100%", 152, last[0], "muted", "end") if len(ordered) > 1 else "")
    )
    words = f"{label}: {size_text(first[1])} on {first[0]}, {size_text(last[1])} on {last[0]}"
    return _svg("growth", words, ("100%", 160), _stretched(20, _TALL, inner) + outer)


def _day_text(name: str) -> str:
    try:
        return day(datetime.fromisoformat(name))
    except ValueError:
        return name


def _day_number(name: str, index: int) -> int:
    try:
        return date.fromisoformat(name).toordinal()
    except ValueError:
        return index


# Plans


class PlanTask(Struct, frozen=True, kw_only=True):
    """A task of a plan as a box: *detail* is its last line, *href* opens its entry."""

    id: str
    title: str
    state: str
    steps_done: int
    steps: int
    detail: str
    depends_on: tuple[str, ...]
    href: str


_BOX: Final = (192.0, 68.0)
_BETWEEN: Final = (40.0, 24.0)
"""Three layers stand side by side in a window of 1,280 pixels."""
_COLUMNS: Final = 27
_COLUMNS_STRONG: Final = 22
_STATES: Final = {
    "pending": ("muted", "○"),
    "running": ("accent", "●"),
    "waiting": ("warn", "◔"),
    "completed": ("good", "✓"),
    "failed": ("bad", "✕"),
    "blocked": ("warn", "◌"),
    "cancelled": ("muted", "⊘"),
}
_HERE: Final = re.compile(r"[?#]|/(?![/\\])")
_WAITS: Final = frozenset({"pending", "blocked", "cancelled"})


def plan(tasks: Sequence[PlanTask]) -> Markup:
    """Return tasks as boxes in layers, with edges from what each depends on.

    Layers go from left to right. An edge that closes a circle is drawn, but moves no box. Raise
    ValueError beyond `TASKS_MOST`.
    """
    if len(tasks) > TASKS_MOST:
        raise ValueError(f"a plan of more than {TASKS_MOST} tasks is shown as a table")
    edges = _edges(tasks)
    boxes = _boxes(_layers(len(tasks), edges), edges)
    inner = "".join(_edge(boxes[before], boxes[after]) for before, after in edges)
    inner += "".join(_task(task, box) for task, box in zip(tasks, boxes, strict=True))
    width = max((x + w for x, _, w, _ in boxes), default=0) + 2
    height = max((y + h for _, y, _, h in boxes), default=0) + _BETWEEN[1]
    label = f"{len(tasks)} tasks, each after those that it depends on"
    return _svg("plan", label, (width, height), inner)


def _edges(tasks: Sequence[PlanTask]) -> list[tuple[int, int]]:
    """Return (before, after) by index, once each, without unknown ids and loops."""
    places: dict[str, int] = {}
    for n, task in enumerate(tasks):
        places.setdefault(task.id, n)
    found = {
        (places[name], n): None
        for n, task in enumerate(tasks)
        for name in task.depends_on
        if places.get(name, n) != n
    }
    return list(found)


def _layers(tasks: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return each task's longest path from a first one; circles are cut."""
    after: list[list[int]] = [[] for _ in range(tasks)]
    waits = [0] * tasks
    for before, task in edges:
        after[before].append(task)
        waits[task] += 1
    layers, left = [0] * tasks, dict.fromkeys(range(tasks))
    while left:
        task = next((each for each in left if not waits[each]), None)
        if task is None:
            task = next(iter(left))
        del left[task]
        for each in after[task]:
            waits[each] -= 1
            if each in left:
                layers[each] = max(layers[each], layers[task] + 1)
    return layers


def _boxes(layers: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[Rectangle]:
    """Return places: within a layer, tasks stand near what they depend on."""
    columns = [[n for n, at in enumerate(layers) if at == layer] for layer in sorted(set(layers))]
    tallest = max(map(len, columns), default=0)
    middles: dict[int, float] = {}
    boxes: dict[int, Rectangle] = {}
    for number, column in enumerate(columns):
        wish = {n: _mean([middles[a] for a, b in edges if b == n and a in middles]) for n in column}
        top = (tallest - len(column)) / 2
        for row, n in enumerate(sorted(column, key=lambda n: (wish[n], n))):
            middles[n] = top + row
            boxes[n] = (
                2 + number * (_BOX[0] + _BETWEEN[0]),
                2 + (top + row) * (_BOX[1] + _BETWEEN[1]),
                *_BOX,
            )
    return [boxes[n] for n in range(len(layers))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _edge(before: Rectangle, after: Rectangle) -> str:
    if after[0] <= before[0]:  # closes a circle: below the boxes, from middle to middle
        x, y = before[0] + before[2] / 2, before[1] + before[3]
        to_x, to_y = after[0] + after[2] / 2, after[1] + after[3]
        bends = f"{_n(x)} {_n(y + 24)} {_n(to_x)} {_n(to_y + 24)}"
        return _curve(f"M{_n(x)} {_n(y)}C{bends} {_n(to_x)} {_n(to_y)}")
    x, y = before[0] + before[2], before[1] + before[3] / 2
    to_x, to_y = after[0], after[1] + after[3] / 2
    bend = abs(to_x - x) / 2
    bends = f"{_n(x + bend)} {_n(y)} {_n(to_x - bend)} {_n(to_y)}"
    return _curve(f"M{_n(x)} {_n(y)}C{bends} {_n(to_x)} {_n(to_y)}")


def _curve(path: str) -> str:
    return f'<path class="line" d="{path}" {_STROKE} stroke-width="1.5"/>'


def _task(task: PlanTask, box: Rectangle) -> str:
    x, y, width, height = box
    classes, icon = _STATES.get(task.state, ("muted", "•"))
    steps = f"{task.steps_done} of {task.steps} {'step' if task.steps == 1 else 'steps'}"
    words = f"{task.state} · {steps}" if task.steps else task.state
    dashes = ' stroke-dasharray="4 3"' if task.state in _WAITS else ""
    href = task.href if _HERE.match(task.href) else "#"
    label = ", ".join(filter(None, (f"{task.title}: {task.state}", steps, task.detail)))
    return (
        f'<a href="{_escaped(href)}" aria-label="{_escaped(label)}">'
        f"<title>{_escaped(task.title)}</title>"
        + _rect(box, "free", radius=6)
        + _rect(box, classes, f'{_STROKE} stroke-width="1.5"{dashes}', 6)
        # An inner picture cuts off what is wider than the box.
        + f'<svg x="{_n(x + 4)}" y="{_n(y)}" width="{_n(width - 8)}" height="{_n(height)}">'
        + _label(8, 22, _cut(task.title, _COLUMNS_STRONG), "strong")
        + _label(8, 40, _cut(f"{icon} {words}", _COLUMNS), classes)
        + _label(8, 57, _cut(task.detail, _COLUMNS), "muted")
        + "</svg></a>"
    )


def _cut(text: str, most: int) -> str:
    """Return the start of *text* that fits *most* columns; wide characters take two."""
    return "".join(_fits(plain(text), most))


def _fits(text: str, left: int) -> Iterator[str]:
    for char in text:
        left -= 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
        if left < 0:
            yield "…"
            return
        yield char
