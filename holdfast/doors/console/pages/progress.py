"""One run as a page, live: plan, memory, turns, questions, versions, and acts."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from holdfast.doors.console.charts import PlanTask
from holdfast.doors.console.pages.runs import (
    BADGES,
    POLL,
    SECTION,
    compact,
    crumbs,
    form_of,
    is_crowded,
    sliced,
    store_answer,
)
from holdfast.doors.console.text import pretty
from holdfast.doors.console.views import (
    ROWS_MOST,
    Answer,
    ConsoleRoute,
    Fragment,
    Live,
    Redirect,
    View,
    Visit,
    act,
    address,
    confirmation,
    page,
    pager,
    stream,
)
from holdfast.ground import json_values
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.json_values import JSON
from holdfast.library.operations.runs import (
    LOOKS_EVERY,
    FollowOptions,
    Run,
    RunEvent,
    RunPart,
    RunProgress,
    RunVersion,
    look,
    run_row,
    this_process,
)

DONE: Final = {
    "cancelled": "The run is to be cancelled; the process that has it obeys within 5 s.",
    "steered": "The message was sent: its running steps get it before their next request.",
    "forked": "The fork was made. It waits for a worker, or a process that executes its id.",
}

TASKS_DRAWN: Final = 60
"""Tasks of a plan that are drawn; beyond that there is the table alone."""
EVENTS_READ: Final = 2_000
"""Newest events of a run among which its page looks for turns."""
TEXT_MOST: Final = 25_000
"""Characters of a text that are shown at once."""
VALUE_BYTES: Final = 65_536
"""Bytes of a value beyond which it is shown as text, in parts."""
VERSIONS_SHOWN: Final = 20
EARLIER_SHOWN: Final = 5

REGIONS: Final = (
    *("state", "facts", "questions", "plan", "tasks", "turns", "memory", "board", "messages"),
    "versions",
)
"""The parts of the page that change while it is looked at."""

_CHANGES: Final[Mapping[str, frozenset[str]]] = {
    "plan": frozenset({"plan", "tasks"}),
    "task": frozenset({"plan", "tasks"}),
    "step": frozenset({"plan", "tasks"}),
    "agent": frozenset({"tasks", "turns"}),
    "memory": frozenset({"memory", "facts"}),
    "board": frozenset({"board"}),
    "message": frozenset({"messages"}),
    "question": frozenset({"questions"}),
    "version": frozenset({"versions", "messages"}),
}
"""The regions that an event changes, by what it is about; `turns` by those that are a turn."""

_TURNED: Final = frozenset({"network", "agent", "session", "team", "workflow"})
"""The kinds of runs with a timeline."""
_TURNS: Final = frozenset(
    ("router", "agent", "model", "tool", "value", "team", "history", "mcp", "log", "gap", "run")
)
"""What an event of the timeline is about."""
_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "router": ("agents", "route", "reason"),
    "agent": ("stop_reason", "why", "usage"),
    "model": ("calls", "tokens", "finish_reason"),
    "value": ("key", "version"),
    "gap": ("missed",),
}
"""What of an event's data is in its row, by what it is about; all of others."""
_NOT_TURNS: Final = frozenset({"model.requested", "value.read"})


# Values of the regions


class PanelRow(Struct, frozen=True, kw_only=True):
    """An entry of run memory in the log; *anchor* is the id of its row."""

    anchor: str
    key: str
    kind: str
    title: str | None
    source: str | None
    value_bytes: int
    version: int
    failed: bool
    changed: bool = False


class TimelineRow(Struct, frozen=True, kw_only=True):
    """A row of the timeline: what happened, who did it, and what came in and out."""

    seq: int
    at: int
    type: str
    who: str | None
    text: str | None = None
    input: str | None = None
    outcome: str | None = None
    ok: bool = True


class Timeline:
    """The newest rows of a run's timeline, at most `ROWS_MOST`."""

    def __init__(self) -> None:
        self.rows: deque[TimelineRow] = deque(maxlen=ROWS_MOST)
        self.left_out = 0

    def add(self, events: Iterable[RunEvent]) -> bool:
        """Add the rows of *events*; return whether there are any."""
        found = [each for each in events if _is_turn(each)]
        for event in found:
            if event.type == "tool.returned" and self._finish(event):
                continue
            if len(self.rows) == ROWS_MOST:
                self.left_out += 1
            self.rows.append(_turn_of(event))
        return bool(found)

    def _finish(self, event: RunEvent) -> bool:
        """Put the outcome of a call beside the call; return whether it is there."""
        name = f"{event.call_id}"
        for index in range(len(self.rows) - 1, -1, -1):
            row = self.rows[index]
            if row.type == "tool.called" and event.call_id and row.text == name:
                done = _turn_of(event)
                self.rows[index] = replace(row, outcome=done.outcome, ok=done.ok)
                return True
        return False


def _is_turn(event: RunEvent) -> bool:
    return event.type.partition(".")[0] in _TURNS and event.type not in _NOT_TURNS


def _turn_of(event: RunEvent) -> TimelineRow:
    """Return *event* as a row.

    A call of a tool has its id as text, by which its outcome finds it.
    """
    data, name = event.data, event.type
    row = TimelineRow(seq=event.seq, at=event.at, type=name, who=event.agent or event.part)
    if name == "tool.called":
        called = f"{data.get('name')} {compact(data.get('input'))}"
        return replace(row, text=event.call_id or "", input=called)
    if name == "tool.returned":
        outcome: Any = data.get("content")
        if isinstance(outcome, dict):
            outcome = cast("dict[str, Any]", outcome).get("data", cast("Any", outcome))
        return replace(row, outcome=compact(outcome), ok=data.get("ok") is not False)
    if name == "model.responded" and data.get("text"):
        return replace(row, text=compact(data["text"]))
    if name == "value.changed":
        row = replace(row, who=compact(data.get("agent")) or row.who)
    shown = _SHOWN.get(name.partition(".")[0], tuple(data))
    ok = name not in {"run.failed", "run.lost", "mcp.unavailable"}
    return replace(row, text=_facts(data, shown), ok=ok)


def _facts(data: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return what *data* says under *names*, as one line."""
    said = [(name, data.get(name)) for name in names]
    return " · ".join(
        f"{name.replace('_', ' ')} {compact(each)}"
        for name, each in said
        if each not in (None, "", [], {}, False)
    )


def _timeline(visit: Visit, run: Run, until: int) -> Timeline:
    """Return the timeline of *run* up to the event *until*."""
    found = Timeline()
    options = FollowOptions(after=max(0, until - EVENTS_READ))
    while run.kind in _TURNED and options.after < until:
        seen = look(visit.hf.runs.context, run.id, options)
        found.add(seen.events)
        options = FollowOptions(after=seen.after)
    return found


def _values(
    visit: Visit, run: Run, regions: Iterable[str], timeline: Timeline | None
) -> dict[str, Any]:
    """Return what *regions* of the page of *run* show."""
    wanted = frozenset(regions)
    values: dict[str, Any] = {
        "run": run,
        "regions": [each for each in REGIONS if each in wanted],
        "badges": BADGES,
        "poll": None,
        "trigger": POLL,
        "timed": run.kind in _TURNED,
        "here_run": run.place == this_process(),
        "version": _version(visit),
    }
    if wanted & {"plan", "tasks", "board"}:
        values |= _part_values(visit, run)
    if "memory" in wanted:
        values |= _memory_values(visit, run)
    if "messages" in wanted:
        values["messages"] = _messages(visit, run)
    if "questions" in wanted:
        found = visit.hf.runs.questions(None, run=run.id, limit=VERSIONS_SHOWN)
        values["forms"] = [form_of(visit, q, "runs", run.id, "questions") for q in found.data]
    if "versions" in wanted:
        values |= _version_values(visit, run)
    if "turns" in wanted:
        values["timeline"] = timeline or Timeline()
        values["earlier"] = _earlier(visit, run)
    return values


def _version(visit: Visit) -> int | None:
    """Return the number of the version that the address names."""
    return visit.number("version", 0, least=0, most=2**53) if visit.text("version") else None


def _earlier(visit: Visit, run: Run) -> Sequence[Run]:
    """Return other runs of the thread, the newest first."""
    if run.thread_id is None:
        return ()
    found = visit.hf.runs.list(thread=run.thread_id, limit=EARLIER_SHOWN + 1)
    return [each for each in found.data if each.id != run.id][:EARLIER_SHOWN]


def _part_values(visit: Visit, run: Run) -> dict[str, Any]:
    parts = visit.hf.runs.parts(run.id)
    tasks = [each for each in parts if each.kind != "board_task"]
    begin = visit.number("tasks", 0, least=0, most=10_000_000)
    return {
        "drawn": _drawn(run, tasks),
        "tasks": tasks[begin : begin + ROWS_MOST],
        "tasks_total": len(tasks),
        "tasks_pager": sliced(begin, len(tasks), "runs", run.id, name="tasks"),
        "board": [each for each in parts if each.kind == "board_task"][:ROWS_MOST],
    }


def _drawn(run: Run, parts: Sequence[RunPart]) -> list[PlanTask]:
    """Return the tasks or nodes of *parts* as boxes, none if they are too many."""
    boxes = [each for each in parts if each.kind in {"task", "node"}]
    if len(boxes) > TASKS_DRAWN:
        return []
    steps: dict[str, list[RunPart]] = {}
    for each in parts:
        if each.kind == "step" and each.within is not None:
            steps.setdefault(each.within, []).append(each)
    return [_box(run, each, steps.get(each.id, [])) for each in boxes]


def _box(run: Run, task: RunPart, steps: Sequence[RunPart]) -> PlanTask:
    at_work = next((each for each in steps if each.state in {"running", "waiting"}), None)
    detail = task.cause or task.agent or task.model or ""
    if at_work is not None and not task.cause:
        detail = at_work.title or at_work.id
    key = f"task:{task.id}" if task.kind == "task" else f"step:{task.id}"
    return PlanTask(
        id=task.id,
        title=task.title or task.id,
        state=task.state,
        steps_done=sum(each.state == "completed" for each in steps),
        steps=len(steps),
        detail=detail,
        depends_on=task.depends_on,
        href=f"{address('runs', run.id, key=key)}#value",
    )


def _memory_values(visit: Visit, run: Run) -> dict[str, Any]:
    """Return the entries of the side panel: as they are now, or as of a version."""
    space, version = visit.query.get("ns", ""), _version(visit)
    names = ("", "task", "step", "input", "shared")
    spaces = [
        (name or "all", address("runs", run.id, ns=name, version=version), name == space)
        for name in names
    ]
    prefix = f"{space}:" if space else ""
    if version is not None:
        changed = _changed_keys(visit, run, version)
        held = visit.hf.runs.at(run.id, version).memory.snapshot()
        found = [each for each in held if each.key.startswith(prefix)]
        rows = [_row(each, changed=each.key in changed) for each in found]
        begin = visit.number("entries", 0, least=0, most=10_000_000)
        query = {"ns": space, "version": version}
        links = sliced(begin, len(rows), "runs", run.id, name="entries", **query)
        return {"spaces": spaces, "entries": rows[begin : begin + ROWS_MOST], "links": links}
    listed = visit.hf.runs.entries(
        run.id, key_prefix=prefix or None, limit=ROWS_MOST, page=visit.text("entries")
    )
    first = listed.data[::-1]
    first.sort(key=lambda each: each.created_at)
    links = pager(visit, listed, "runs", run.id, name="entries")
    return {"spaces": spaces, "entries": [_row(each) for each in first], "links": links}


def _row(entry: Any, *, changed: bool = False) -> PanelRow:
    """Return *entry*, listed or of a version, as a row."""
    names = ("key", "kind", "title", "source", "value_bytes", "version", "failed")
    facts = {name: getattr(entry, name) for name in names}
    anchor = f"e-{sha256(entry.key.encode()).hexdigest()[:16]}"
    return PanelRow(anchor=anchor, changed=changed, **facts)


def _changed_keys(visit: Visit, run: Run, version: int) -> frozenset[str]:
    versions = visit.hf.runs.versions(run.id, limit=1_000).all()
    found: RunVersion | None = next((each for each in versions if each.number == version), None)
    return frozenset() if found is None else frozenset(found.changed)


def _messages(visit: Visit, run: Run) -> Sequence[Mapping[str, Any]]:
    """Return the newest messages of a team, oldest first."""
    if run.kind != "team" or not run.versions:
        return ()
    sent = [cast("Mapping[str, Any]", each) for each in visit.hf.runs.at(run.id).messages]
    return sorted(sent, key=lambda each: str(each["id"]))[-ROWS_MOST:]


def _version_values(visit: Visit, run: Run) -> dict[str, Any]:
    found = visit.hf.runs.versions(run.id, limit=VERSIONS_SHOWN, page=visit.text("versions"))
    return {
        "versions": found.data,
        "versions_pager": pager(visit, found, "runs", run.id, name="versions"),
    }


# The page


def show_run(visit: Visit) -> Answer:
    """Show a run: what it does, what it knows, what it asks, and what it was."""
    run = visit.hf.runs.retrieve(visit["run"])
    seq = run_row(visit.hf.runs.context, run.id).seq
    query = {name: each for name, each in visit.query.items() if name not in {"done", "after"}}
    values = {
        **_values(visit, run, REGIONS, _timeline(visit, run, seq)),
        "stream": None if run.ended else address("runs", run.id, "live", **query, after=seq),
        "value": _value(visit, run),
        "key": visit.text("key"),
        "dialog": visit.text("confirm") == "delete" or visit.form.get("confirm") == "delete",
        "token": confirmation(run.name, run.id),
        "forked": visit.text("fork") == "1" or "changes" in visit.form,
    }
    return View(template="run.html", title=run.name, section=SECTION, values=values, up=crumbs())


class ShownValue(Struct, frozen=True, kw_only=True):
    """The value of an entry, or a part of it.

    *problem* says why there is none, *more* is the address of the next part.
    """

    value: Any = None
    part: str | None = None
    more: str | None = None
    problem: str | None = None


def _value(visit: Visit, run: Run) -> ShownValue | None:
    """Return the value of the entry that the address names, in parts if it is long."""
    key, version = visit.text("key"), _version(visit)
    if key is None:
        return None
    value, stored = None, ""
    if version is not None:
        held = visit.hf.runs.at(run.id, version).memory.snapshot()
        entry = next((each for each in held if each.key == key), None)
        if entry is None:
            return ShownValue(problem=f"Version {version} has no entry under this key.")
        value = entry.value if entry.value_bytes <= VALUE_BYTES else _readable(entry.value)
    else:
        try:
            read = visit.hf.runs.entry(run.id, key)
        except (NotFound, InvalidInput) as error:
            return ShownValue(problem=str(error))
        value = read.value
        if read.part is not None:
            stored = f" Of its {read.part.total:,} only the first {read.part.kept:,} are stored."
    if not isinstance(value, str) or len(value) <= TEXT_MOST:
        return ShownValue(value=value, part=stored.strip() or None)
    offset = visit.number("offset", 0, least=0, most=2**53)
    after, more = offset + TEXT_MOST, None
    if after < len(value):
        more = address("runs", run.id, key=key, version=version, offset=after) + "#value"
    part = f"A part of its text: from {offset:,} of {len(value):,} characters.{stored}"
    return ShownValue(value=value[offset:after], part=part, more=more)


def _readable(value: JSON) -> str:
    return value if isinstance(value, str) else pretty(value)


def show_part(visit: Visit) -> Answer:
    """Show what a part of a run sent to its model and was answered."""
    run = visit.hf.runs.retrieve(visit["run"])
    sent = visit.hf.runs.messages(run.id, visit["part"])
    begin = visit.number("from", 0, least=0, most=10_000_000)
    values = {
        "run": run,
        "said": [each.export() for each in sent[begin : begin + ROWS_MOST]],
        "pager": sliced(begin, len(sent), "runs", run.id, "parts", visit["part"]),
    }
    title = f"Messages of {visit['part']}"
    return View(
        template="run_part.html", title=title, section=SECTION, values=values, up=crumbs(run)
    )


# Live


def poll_run(visit: Visit) -> Answer:
    """Return the regions as they are now, for a page that is not live."""
    run = visit.hf.runs.retrieve(visit["run"])
    seq = run_row(visit.hf.runs.context, run.id).seq
    values = _values(visit, run, _followed(visit), _timeline(visit, run, seq))
    values["poll"] = None if run.ended else address("runs", run.id, "poll", **visit.query)
    return Fragment(template="run_live.html", values={**values, "over": run.ended})


async def follow_run(visit: Visit) -> Live | Answer:
    """Send the regions that an event has changed, until the run is over."""
    if is_crowded():
        return await visit.server.run(partial(poll_run, visit))
    follower = await visit.server.run(partial(_Follower, visit))
    return Live(follower.updates())


def _followed(visit: Visit) -> frozenset[str]:
    """Return the regions that are sent, without those of a version or a later page."""
    fixed = {"memory"} if visit.text("version") or visit.text("entries") else set[str]()
    return frozenset(REGIONS) - fixed - ({"versions"} if visit.text("versions") else set[str]())


class _Follower:
    """An open page of a run: the events after the last one, and what they change."""

    def __init__(self, visit: Visit) -> None:
        self._visit, self._id = visit, visit["run"]
        self._context = visit.hf.runs.context
        run = visit.hf.runs.retrieve(self._id)
        given = visit.last_event_id or visit.query.get("after", "")
        seq = run_row(self._context, self._id).seq
        self._after = min(int(given[:18]), seq) if given.isdecimal() else 0
        self._regions = _followed(visit) - ({"turns"} if run.kind not in _TURNED else set[str]())
        self._timeline = _timeline(visit, run, self._after)

    async def updates(self) -> AsyncIterator[tuple[int | None, str, str]]:
        """Yield each update, and the end."""
        run = self._visit.server.run
        yield self._after, "", await run(partial(self._html, (), over=False))
        over = False
        while not over:
            try:
                html, over = await run(self._next)
            except NotFound:
                break
            if html:
                yield self._after, "", html
            if not over:
                await asyncio.sleep(LOOKS_EVERY)
        yield None, "close", ""

    def _next(self) -> tuple[str, bool]:
        """Return what has changed as HTML, and whether the run is over."""
        seen: RunProgress = look(self._context, self._id, FollowOptions(after=self._after))
        self._after = seen.after
        if not seen.events and not seen.over:
            return "", False
        changed = set[str]()
        for event in seen.events:
            about = event.type.partition(".")[0]
            whole = about in {"run", "gap"}
            changed |= set(REGIONS) if whole else _CHANGES.get(about, frozenset())
        if self._timeline.add(seen.events):
            changed.add("turns")
        if seen.over:
            changed = set(REGIONS)
        return self._html(changed, over=seen.over), seen.over

    def _html(self, changed: Iterable[str], *, over: bool) -> str:
        run = self._visit.hf.runs.retrieve(self._id)
        regions = self._regions.intersection(changed)
        values = _values(self._visit, run, regions, self._timeline)
        return self._visit.render("run_live.html", {**values, "over": over})


# Acts


def cancel_run(visit: Visit) -> Answer:
    """Cancel a run, here or in the process that has it."""
    visit.hf.runs.cancel(visit["run"])
    return Redirect(address("runs", visit["run"], done="cancelled"))


def steer_run(visit: Visit) -> Answer:
    """Send a message to the running steps of a run."""
    visit.hf.runs.steer(visit["run"], visit.written("steer"))
    return Redirect(address("runs", visit["run"], done="steered"))


def fork_run(visit: Visit) -> Answer:
    """Fork the run at a version, with changed values."""
    given = visit.form.get("version", "")
    changes = [_change(line) for line in visit.form.get("changes", "").splitlines() if line.strip()]
    fork = visit.hf.runs.fork(
        visit["run"],
        version=int(given[:18]) if given.isdecimal() else None,
        set=dict(changes),
        name=visit.form.get("name", "").strip() or None,
        start=visit.form.get("start") == "1",
    )
    return Redirect(address("runs", fork.id, done="forked"))


def _change(line: str) -> tuple[str, JSON]:
    key, equals, value = line.partition("=")
    if not equals:
        raise InvalidInput("changes", "must have lines such as task:look=3", given=line)
    return key.strip(), json_values.read(value, "changes")


def delete_run(visit: Visit) -> Answer:
    """Delete a run that is over, once its name was confirmed."""
    run = visit.hf.runs.retrieve(visit["run"])
    visit.confirm(confirmation(run.name, run.id))
    visit.hf.runs.delete(run.id)
    return Redirect(address("runs", done="run-deleted"))


def answer_question(visit: Visit) -> Answer:
    """Answer a question of the run."""
    store_answer(visit, visit["question"])
    return Redirect(address("runs", visit["run"], done="answered"))


ROUTES: Final[tuple[ConsoleRoute, ...]] = (
    page("/runs/{run}", show_run),
    stream("/runs/{run}/live", follow_run),
    page("/runs/{run}/poll", poll_run),
    page("/runs/{run}/parts/{part}", show_part),
    act("/runs/{run}/cancel", cancel_run, again=show_run),
    act("/runs/{run}/steer", steer_run, again=show_run),
    act("/runs/{run}/fork", fork_run, again=show_run),
    act("/runs/{run}/delete", delete_run, again=show_run),
    act("/runs/{run}/questions/{question}", answer_question, again=show_run),
)
