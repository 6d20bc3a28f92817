"""Renders the results as `docs/benchmarks.md` and its plots.

`python bench/render.py FILE` renders results that were kept.
"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec
from measure import Report, Row, exponent

DOCS = Path(__file__).parents[1] / "docs"

_TITLES = {
    "embedded": "As a library",
    "stores": "As stores fill up",
    "longterm": "What users told",
    "state": "What agents pass along",
    "run_memory": "What flows through a run",
    "durable": "What agents keep",
    "growth": "As agents grow in number",
    "postgres": "On PostgreSQL",
    "runtime": "As agents work",
    "runs": "As runs are kept",
    "mount": "As a directory",
    "http": "As a server",
    "console": "In a browser",
    "mcp": "For hosts of the Model Context Protocol",
    "startup": "Starting",
    "adapters": "Behind other frameworks",
    "peers": "Beside other products",
}
_INTRODUCTION = """\
# What was measured

Speed is told as ratios: ours and a baseline ran back to back on one machine, in rounds whose \
order alternates, and the figure is the median of the rounds' ratios. Ratios hold on another \
machine, absolute figures do not. *At least* is a ratio of rates, *at most* a ratio of costs. \
What is closer to 1 than 1.15 is noise and told as "the same".

Measured: all five memories on SQLite, as a library; memory stores and durable memory through the \
server, and memory stores as a directory; the console in a browser; the server for hosts; adapters \
behind other frameworks; durable memory on PostgreSQL; how durable and long-term memory grow; \
how all of it starts; and other products beside ours. **Not measured**: the way of a change to its \
listeners, and latency while a backup runs.
"""
_BASELINES = """\
The raw baseline is the same driver with the same durability (`synchronous=FULL`): one table of \
six columns with one more index, one upsert, one commit, on one thread. A create does more than \
that upsert: it writes the memory, a version with its place in the hash chain, the words for \
searching, the store's counts and a row of the change feed. The bare server is a Starlette app \
on the same uvicorn settings that encodes a memory of the same size, or decodes the same body; \
its cost and ours are processor time of the server's process. The bare server for hosts is the \
SDK's own with one tool that returns its argument. On PostgreSQL it is that server's \
own `pgbench`, with prepared statements on a table of the same rows.

Other products are called by their documented synchronous interface, with the same texts and a \
toy embedder. They do not do the same for an item: SqliteStore and PostgresStore sync each put, \
one row and a vector; mem0, without a model, keeps a history and a local Qdrant file; Chroma \
writes its index to disk in batches; InMemoryStore keeps nothing. Ours syncs each write, and \
keeps versions or a log, words for searching and a row of the change feed. Their search is by \
vectors alone.
"""
_SPENT = """\
## Where the time goes

Why goals are not reached, from the costs of a write below and from profiles:

- **One caller's write.** Most of it is the commit: a set changes ten pages of the log, a create \
nineteen, each with its checksum. A set writes an entry and a row of the log, with seven entries \
of indexes and the counts of its agent. A create writes a memory, a version with its link, words \
for searching, the counts of its store and a row of the feed. The raw put has one row and two \
indexes.
- **64 callers.** They share commits, so one interpreter bounds them: what is left is done for \
each write by its caller (validation, hash, words) and by the writer (rules, rows), one after the \
other. As a share of a raw put it depends on what a sync costs: on this machine hardly anything.
- **`set_many`.** Half is the two rows of an entry with their indexes and triggers, half the rules \
for each entry, in Python. The raw upserts are one row each, bound by a loop in C.
- **Reads of 64 threads.** Each gives up the interpreter at every statement and waits for it again.
- **Requests.** A POST is a create of few callers: the group of a server with 16 connections is \
small. Receiving, routing, checking who may and answering take about a quarter, and a bare POST \
does nothing with the body.
- **Searches** join what they find with its store, filter, and cut passages out of the texts; the \
bare query returns rows of the index. Of other products, those with an index of vectors in a \
compiled language find vectors faster than our exact comparison, and do not weigh words.
- **A save on the mount** passes two processes and is a durable version when `close` returns; the \
native file system syncs fast here.
- **PostgreSQL.** A set is three round trips with rules between them; `pgbench` sends one prepared \
statement, from C.
- **`hydrate` of few large entries** reads the sizes of all to choose, and then the chosen.
- **Histories of networks** keep a turn as rows that can be listed, forked and erased; the insert \
that they are compared with is one row.
"""
_REPEAT = """\
## Repeat it

```console
$ make bench                                # everything; writes this page
$ .venv/bin/python bench/run.py --before ../earlier  # with writes of another checkout beside
$ .venv/bin/python bench/embedded.py --stages
$ .venv/bin/python bench/stores.py --quick
$ .venv/bin/python bench/durable.py
$ .venv/bin/python bench/longterm.py --full  # to 10,000 users: an hour, and 6 GB
$ .venv/bin/python bench/growth.py --full    # to 100,000 agents: hours, and 20 GB
$ .venv/bin/python bench/postgres.py
$ .venv/bin/python bench/runtime.py
$ .venv/bin/python bench/mount.py
$ .venv/bin/python bench/http.py --json http.json
$ .venv/bin/python bench/console.py
$ .venv/bin/python bench/mcp.py
$ .venv/bin/python bench/startup.py
$ .venv/peers/bin/python bench/peers.py
$ make soak                                 # fifteen minutes: does a server stay as it is?
```

Each prints its table with the machine and its load, and ends with 1 when a figure is below half \
its goal, or when a write is faster than a synced one can be.
"""
_FONT = 'font-family="sans-serif" font-size="12"'
_BAR, _LEFT, _WIDTH = 22, 330, 720
_FAR = 100
"""Times the goal; nothing counts as further."""


def write(reports: list[Report]) -> None:
    """Write the page and its plots."""
    plots = DOCS / "plots"
    plots.mkdir(exist_ok=True)
    for report in reports:
        plots.joinpath(f"{report.name}.svg").write_text(bars(report), encoding="utf-8")
        if report.curve:
            plots.joinpath(f"{report.name}-threads.svg").write_text(
                curve(report.curve), encoding="utf-8"
            )
        if report.curves:
            plots.joinpath(f"{report.name}-growth.svg").write_text(
                growth(report.curves), encoding="utf-8"
            )
    DOCS.joinpath("benchmarks.md").write_text("\n".join(page(reports)), encoding="utf-8")


def page(reports: list[Report]) -> Iterator[str]:
    """Give the page, a block at a time."""
    yield _INTRODUCTION
    if any(report.busy for report in reports):
        yield "**Others were at work on this machine** (a load above 1 a core): judge with care.\n"
    yield _BASELINES
    yield from _missed([row for report in reports for row in report.rows if not row.met])
    yield _SPENT
    for report in reports:
        yield from _section(report)
    yield _REPEAT


def _missed(rows: list[Row]) -> Iterator[str]:
    if not rows:
        yield "Every goal was reached.\n"
        return
    yield "Not reached:\n"
    for row in rows:
        yield f"- {row.what}: {row.said()}, where the goal is {_goal(row)}"
    yield ""


def _section(report: Report) -> Iterator[str]:
    before, after = report.load_before.a_core, report.load_after.a_core
    where = report.machine
    yield f"## {_TITLES[report.name]}\n"
    yield f"{report.question}\n"
    yield f"![Reached, as a share of the goal](plots/{report.name}.svg)\n"
    earlier = ["before"] if report.before else []
    head = ["measure", "of", "goal", *earlier, "reached", "spread", ""]
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in report.rows:
        mark = "reached" if row.met else "**not reached**"
        was = [report.before.get(row.title, "")] if report.before else []
        cells = (row.what, row.of, _goal(row), *was, row.said(), row.spread(), mark)
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from _costs(report)
    if report.curve:
        yield "Writes a second against threads, with one thread as 1:\n"
        yield f"![Writes a second against threads](plots/{report.name}-threads.svg)\n"
    yield from _growth(report)
    if report.stages:
        told = ", ".join(f"{stage} {spent:.0f}" for stage, spent in report.stages.items())
        yield f"Where a create on one thread spends its time, in µs: {told}.\n"
    packages = ", ".join(f"{name} {version}" for name, version in where.packages.items())
    yield (
        f"{report.rounds} rounds; load a core {before} before, {after} after. {where.cpu},"
        f" {where.cores} cores, {where.memory_mb} MB, {where.file_system}, Linux {where.kernel},"
        f" {where.python}, SQLite {where.sqlite}, {packages}.\n"
    )


def _costs(report: Report) -> Iterator[str]:
    """Give what a write costs, a row for each way of writing."""
    if not report.costs:
        return
    parts = list(next(iter(report.costs.values())))
    yield "What a write costs; microseconds are of processor time:\n"
    yield f"| | {' | '.join(parts)} |"
    yield f"|---|{'---:|' * len(parts)}"
    for what, costs in report.costs.items():
        yield f"| {what} | {' | '.join(f'{costs[part]:.1f}' for part in parts)} |"
    yield ""


def _growth(report: Report) -> Iterator[str]:
    """Give how each figure grows, a table for the sizes that they share."""
    by_sizes: dict[tuple[str, ...], list[str]] = {}
    for what, points in report.curves.items():
        by_sizes.setdefault(tuple(points), []).append(what)
    if not by_sizes:
        return
    yield f"![Last as a share of the first](plots/{report.name}-growth.svg)\n"
    for sizes, names in by_sizes.items():
        yield f"| | {' | '.join(f'{int(size):,}' for size in sizes)} | exponent |"
        yield f"|---|{'---:|' * len(sizes)}---:|"
        for what in names:
            points = report.curves[what]
            shown = " | ".join(f"{figure:.3g}" for figure in points.values())
            yield f"| {what} | {shown} | {exponent(points):.2f} |"
        yield ""


def _goal(row: Row) -> str:
    return f"{row.sense} {row.goal:g}{f' {row.unit}' if row.unit else ''}"


def bars(report: Report) -> str:
    """Return an SVG with a bar for each row: how far it came, where the goal is the line."""
    height = _BAR * len(report.rows) + 30
    goal = _LEFT + (_WIDTH - _LEFT) / 3
    parts = [f'<line x1="{goal}" y1="18" x2="{goal}" y2="{height}" stroke="#888"/>']
    parts.append(_text(goal, 12, "goal", anchor="middle"))
    for number, row in enumerate(report.rows):
        top = 22 + number * _BAR
        share = _share(row)
        width = min(share, 2.9) * (goal - _LEFT)
        colour = "#3a7d44" if row.met else "#b3402e"
        parts.append(_text(_LEFT - 8, top + 13, _short(row.what), anchor="end"))
        parts.append(
            f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="15" fill="{colour}"/>'
        )
        parts.append(_text(_LEFT + width + 5, top + 13, row.said()))
    return _svg(_WIDTH + 80, height, parts)


def _share(row: Row) -> float:
    if row.sense == "at least":
        return row.reached / row.goal
    # A goal may be that something never happens.
    return _FAR if row.reached <= row.goal / _FAR else row.goal / row.reached


def _short(text: str) -> str:
    return text if len(text) <= 52 else text[:51] + "…"


def curve(points: dict[str, float]) -> str:
    """Return an SVG of the rate at each number of threads, as a multiple of one thread's."""
    rates = [rate / points["1"] for rate in points.values()]
    most, step = max(rates), (_WIDTH - 100) / max(1, len(rates) - 1)
    spots = [(50 + i * step, 220 - rate / most * 180) for i, rate in enumerate(rates)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    parts = [f'<polyline points="{line}" fill="none" stroke="#3a7d44" stroke-width="2"/>']
    for (x, y), rate, threads in zip(spots, rates, points, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#3a7d44"/>')
        parts.append(_text(x, y - 9, f"{rate:.1f}", anchor="middle"))
        parts.append(_text(x, 242, threads, anchor="middle"))
    return _svg(_WIDTH, 255, parts)


def growth(curves: dict[str, dict[str, float]]) -> str:
    """Return an SVG with a bar for each curve: its last figure as a multiple of its first."""
    parts: list[str] = []
    for number, (what, points) in enumerate(curves.items()):
        top, figures = 8 + number * _BAR, list(points.values())
        ratio = figures[-1] / figures[0]
        width = min(ratio, 2.9) * (_WIDTH - _LEFT) / 3
        parts.append(_text(_LEFT - 8, top + 13, _short(what), anchor="end"))
        parts.append(
            f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="15" fill="#3a7d44"/>'
        )
        parts.append(_text(_LEFT + width + 5, top + 13, f"{ratio:.2f}"))
    return _svg(_WIDTH + 80, _BAR * len(curves) + 16, parts)


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(width: int, height: int, parts: Iterable[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_FONT}>',
            '<rect width="100%" height="100%" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    write(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[Report]))
