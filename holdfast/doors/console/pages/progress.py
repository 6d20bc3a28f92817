"""One run as a page, live: plan, memory, turns, questions, versions, and acts."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Any, Final, cast

from msgspec import Struct

from holdfast.doors.console.charts import PlanTask
from holdfast.doors.console.pages.runs import (
    BADGES,
    POLL,
    SECTION,
    crumbs,
    form_of,
    is_crowded,
    sliced,
    store_answer,
)
from holdfast.doors.console.text import pretty
from holdfast.doors.console.timeline import ROWS, Timeline
from holdfast.doors.console.views import (
    ROWS_MOST,
    Answer,
    ConsoleRoute,
    Fragment,
    Live,
    PageView,
    Redirect,
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
BOARD_ROWS: Final = 30
"""Tasks of a board that are shown, so that all tables of the page have 100 rows at most."""
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
"""The regions that an event changes, by what it is about; `turns` by those that have a row."""


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


def _timeline(visit: Visit, run: Run, until: int) -> Timeline:
    """Return the timeline of *run* up to the event *until*."""
    found = Timeline()
    options = FollowOptions(after=max(0, until - EVENTS_READ))
    while options.after < until:
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
        "here_run": run.place == this_process(),
        "version": _version(visit),
    }
    if wanted & {"plan", "tasks", "board"}:
        values |= _part_values(visit, run)
    if "memory" in wanted:
        values |= _memory_values(visit, run)
    if "messages" in wanted:
        values["messages"] = _messages(visit, run)
    if "facts" in wanted:
        values["known"] = _known(visit, run)
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


def _known(visit: Visit, run: Run) -> frozenset[str]:
    """Return which ids that *run* names are still of something with a page."""
    found = set[str]()
    runs = [run.parent_id, run.forked_from and run.forked_from[0]]
    for retrieve, ids in (
        (visit.hf.runs.retrieve, runs),
        (visit.hf.threads.retrieve, [run.thread_id]),
    ):
        for id in filter(None, ids):
            with suppress(NotFound):
                found.add(retrieve(id).id)
    return frozenset(found)


def _earlier(visit: Visit, run: Run) -> Sequence[Run]:
    """Return other runs of the thread, the newest first."""
    if run.thread_id is None:
        return ()
    found = visit.hf.runs.list(thread=run.thread_id, limit=EARLIER_SHOWN + 1)
    return [each for each in found.data if each.id != run.id][:EARLIER_SHOWN]


def _part_values(visit: Visit, run: Run) -> dict[str, Any]:
    parts = visit.hf.runs.parts(run.id)
    tasks = [each for each in parts if each.kind != "board_task"]
    tasks.sort(key=lambda each: each.kind == "step")
    begin = visit.number("tasks", 0, least=0, most=10_000_000)
    return {
        "drawn": _drawn(run, tasks),
        "tasks": tasks[begin : begin + ROWS],
        "tasks_total": len(tasks),
        "tasks_pager": sliced(begin, len(tasks), "runs", run.id, name="tasks", rows=ROWS),
        "board": [each for each in parts if each.kind == "board_task"][:BOARD_ROWS],
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
        detail = at_work.title if at_work.title not in (None, "", task.title) else at_work.id
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
        links = sliced(begin, len(rows), "runs", run.id, name="entries", rows=ROWS, **query)
        return {"spaces": spaces, "entries": rows[begin : begin + ROWS], "links": links}
    listed = visit.hf.runs.entries(
        run.id, key_prefix=prefix or None, limit=ROWS, page=visit.text("entries")
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
    return sorted(sent, key=lambda each: str(each["id"]))[-ROWS:]


def _version_values(visit: Visit, run: Run) -> dict[str, Any]:
    found = visit.hf.runs.versions(run.id, limit=VERSIONS_SHOWN, page=visit.text("versions"))
    return {
        "versions": found.data,
        "versions_pager": pager(visit, found, "runs", run.id, name="versions"),
    }


# The page

_LIVE_QUERY: Final = ("ns", "version", "tasks", "entries", "versions")
"""What of the address of a page its stream needs."""


def show_run(visit: Visit) -> Answer:
    """Show a run: what it does, what it knows, what it asks, and what it was."""
    run = visit.hf.runs.retrieve(visit["run"])
    seq = run_row(visit.hf.runs.context, run.id).seq
    query = {name: visit.text(name) for name in _LIVE_QUERY}
    values = {
        **_values(visit, run, REGIONS, _timeline(visit, run, seq)),
        "stream": None if run.ended else address("runs", run.id, "live", **query, after=seq),
        "value": _value(visit, run),
        "key": visit.text("key"),
        "dialog": visit.text("confirm") == "delete" or visit.form.get("confirm") == "delete",
        "token": confirmation(run.name, run.id),
        "forked": visit.text("fork") == "1" or "changes" in visit.form,
    }
    return PageView(
        template="run.html", title=run.name, section=SECTION, values=values, up=crumbs()
    )


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
    return PageView(
        template="run_part.html", title=title, section=SECTION, values=values, up=crumbs(run)
    )


# Live


def poll_run(visit: Visit) -> Answer:
    """Return the regions as they are now, for a page that is not live."""
    run = visit.hf.runs.retrieve(visit["run"])
    seq = run_row(visit.hf.runs.context, run.id).seq
    values = _values(visit, run, _followed(visit), _timeline(visit, run, seq))
    query = {name: visit.text(name) for name in _LIVE_QUERY}
    values["poll"] = None if run.ended else address("runs", run.id, "poll", **query)
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
        self._regions = _followed(visit)
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
