"""Durable memory seen from beneath: every row of a workspace, and whether they fit together."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, LiteralString, cast

from msgspec import json

from holdfast.engines.base import Engine, Reader
from holdfast.ground.scope import EVERYBODY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.records import DurableLimits

Row = dict[str, Any]
Rows = dict[str, list[Row]]

PUTS = ("create", "replace", "refresh", "restore")
TAKES = ("evict", "expire", "forget", "end", "move")

_TABLES = {
    "sqlite": "select name from sqlite_master where type = 'table' and name like 'durable%'",
    "postgres": "select cast(relname as text) as name from pg_class where relkind = 'r'"
    " and relnamespace = cast('holdfast' as regnamespace) and starts_with(relname, 'durable')",
}


def tables(engine: Engine) -> list[str]:
    """Return the tables of durable memory, as the database itself lists them."""
    rows = engine.scoped(EVERYBODY).all(Row, cast("LiteralString", _TABLES[engine.dialect]))
    return sorted(row["name"] for row in rows)


def everything(hf: Holdfast) -> Rows:
    """Return every row of *hf*'s workspace, of durable memory and of the change feed, in order."""

    def read(reader: Reader) -> Rows:
        listed = reader.all(Row, cast("LiteralString", _TABLES[hf.engine.dialect]))
        found: Rows = {}
        for table in (*sorted(row["name"] for row in listed), "changes"):
            statement = f"select * from {table} where workspace = '{hf.workspace}'"
            rows = reader.all(Row, cast("LiteralString", statement))
            found[table] = sorted(rows, key=str)
        return found

    return hf.engine.scoped(EVERYBODY).read(read)


def how_many(rows: Rows) -> dict[str, int]:
    """Return how many of *rows* each table has."""
    return {table: len(each) for table, each in rows.items()}


def misfits(hf: Holdfast) -> list[str]:
    """Return what does not fit in *hf*'s workspace: counters, log, causes, lanes, caps."""
    return misfits_of(everything(hf))


def misfits_of(rows: Rows) -> list[str]:
    """Return what does not fit in *rows*, all there are of a workspace."""
    return [
        *_of_counters(rows),
        *_of_log(rows),
        *_of_causes(rows),
        *_of_runs(rows),
        *_of_caps(rows),
    ]


def _of_counters(rows: Rows) -> Iterator[str]:
    held = defaultdict[str, list[Row]](list)
    for entry in rows["durable_entries"]:
        if not entry["run_id"]:
            held[entry["agent"]].append(entry)
    for each in rows["durable_agents"]:
        own = held.pop(each["agent"], [])
        counted = each["entries"], each["core_entries"], each["size_bytes"]
        there = (
            len(own),
            *(sum(entry[name] for entry in own) for name in ("pinned", "size_bytes")),
        )
        if counted != there:
            yield f"{each['agent']!r} counts {counted}, and has {there}"
    yield from (f"nobody counts for {agent!r}" for agent in held)


def _of_log(rows: Rows) -> Iterator[str]:
    """Tell of entries whose last change is another, and of changes that left no entry."""
    last: dict[tuple[str, str, str], Row] = {}
    for change in sorted(rows["durable_changes"], key=lambda each: each["seq"]):
        if change["key"] is not None and change["op"] in (*PUTS, *TAKES):
            last[change["agent"], change["run_id"], change["key"]] = change
    there = {
        (entry["agent"], entry["run_id"], entry["key"]): entry["seq"]
        for entry in rows["durable_entries"]
    }
    if len(set(there.values())) != len(there):
        yield "two entries have one number"
    for spot, seq in there.items():
        change = last.get(spot)
        if change is None or change["op"] not in PUTS or change["seq"] != seq:
            yield f"{spot} stands with {seq}, and the log says {change}"
    for spot, change in last.items():
        if change["op"] in PUTS and spot not in there:
            yield f"{spot} is gone, and the log says {change}"


def _of_causes(rows: Rows) -> Iterator[str]:
    """Tell of evictions for a write that is not there; one for a key since forgotten is in order.

    Of many changes of a key the newest are kept, so any later one stands for that write.
    """
    changes = rows["durable_changes"]
    last: dict[tuple[str, str | None], int] = {}
    for change in sorted(changes, key=lambda each: each["seq"]):
        last[change["agent"], change["key"]] = change["seq"]
    for change in changes:
        if change["op"] != "evict" or json.decode(change["cause"]).get("source") == "limits":
            continue
        cause = change["evicted_for"]
        if last.get((change["agent"], cause), 0) <= change["seq"]:
            yield f"{change['key']!r} was evicted for {cause!r}, which was never written"


def _of_runs(rows: Rows) -> Iterator[str]:
    lanes = {(lane["agent"], lane["lane"]): lane["token"] for lane in rows["durable_lanes"]}
    live = [run for run in rows["durable_runs"] if run["ended_at"] is None]
    for run in live:
        if lanes.get((run["agent"], run["lane"])) != run["token"]:
            yield f"run {run['token']} is live, and has not its lane"
    if len({(run["agent"], run["lane"]) for run in live}) != len(live):
        yield "two runs are live in one lane"
    living = {(run["agent"], run["run_id"]) for run in live}
    for entry in rows["durable_entries"]:
        if entry["run_id"] and (entry["agent"], entry["run_id"]) not in living:
            yield f"{entry['key']!r} is of a run that is over"


def _of_caps(rows: Rows) -> Iterator[str]:
    limits = {each["agent"]: each for each in rows["durable_limits"]}
    for each in rows["durable_agents"]:
        name = "cap" if each["agent"] else "workspace_cap"
        own, ours = (limits.get(agent, {}).get(name) for agent in (each["agent"], ""))
        cap = own or ours or getattr(DurableLimits(), name)
        if each["entries"] > cap:
            yield f"{each['agent']!r} has {each['entries']} entries, of at most {cap}"
