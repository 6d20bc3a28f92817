"""Bound what runs keep: fold old versions, forget agents and people, redact keys."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from types import SimpleNamespace
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.engines.base import Engine, Transaction, scalar
from holdfast.ground.json_values import JSON
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.pages import NEWEST
from holdfast.memories.run.entry import checked_version
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.record import RunRow, RunsContext
from holdfast.memories.run.records.write import ENDED_MOST, PACKAGE, drop, missing, statements
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.thread import ThreadTurn
from holdfast.memories.state.threads import prepared

_text: Final = msgspec.json.Encoder(order="deterministic").encode

KEY_MOST: Final = 512
"""Characters of a key that is redacted."""

REDACTED: Final = {"redacted": True}
"""What stands for the content of a call, or of its result, that was redacted."""

_TOOLS: Final = ("memory_", "value_")
"""The first letters of the names of tools that read and write entries and values."""


_FOLDED: Final = REGISTRY.counter("run_folded_total", "Versions of runs folded into a newer one.")
_COMPLETED: Final = b'{"state":"completed"}'


class RunRoom(Struct, frozen=True, kw_only=True):
    """How much a workspace keeps: versions and bytes of a run, ended runs."""

    versions: int = 1_000
    bytes: int = 67_108_864
    ended: int = ENDED_MOST


class VersionSpan(Struct, frozen=True, kw_only=True):
    """The oldest and the newest version of a run at *at* (ms), and all bytes."""

    run_id: str
    at: int
    oldest: int
    newest: int
    bytes: int


def configure_runs(context: RunsContext, **given: int | None) -> RunRoom:
    """Store limits of the workspace's runs and return all; None leaves one as is."""
    for name, each in given.items():
        if each is not None:
            checked_version(name, each, least=1 if name == "versions" else 0)
    changes = {name: each for name, each in given.items() if each is not None}

    def work(tx: Transaction) -> RunRoom:
        sql = statements(context)
        room = replace(tx.first(RunRoom, sql.get_room) or RunRoom(), **changes)
        tx.run(sql.set_room, **asdict(room))
        return room

    return context.engine.write(work)


def fold(tx: Transaction, sql: SimpleNamespace, kept: VersionSpan) -> tuple[RunEvent, ...]:
    """Fold the oldest versions into one if there are too many; return the event.

    Where it is bytes that are too many, messages of completed parts are deleted first. The newest
    state stays. Bytes are looked at in each twentieth of the versions, since folding reads all.
    """
    room, run = tx.first(RunRoom, sql.get_room) or RunRoom(), kept.run_id
    step, count = max(1, room.versions // 20), kept.newest - kept.oldest + 1
    heavy = kept.bytes > room.bytes and kept.newest % step == 0
    if heavy and tx.run(sql.drop_completed_turns, run=run, completed=_COMPLETED):
        tx.run(sql.drop_unnamed_texts, run=run)
        heavy = tx.one(scalar, sql.recount_versions, run=run) > room.bytes
    if count <= room.versions and not heavy:
        return ()
    most = room.versions - step if count > room.versions else count // 2
    number = kept.newest - max(1, most) + 1
    if number <= kept.oldest:
        return ()
    for statement in (sql.fold_rows, sql.fold_deleted, sql.fold_versions):
        tx.run(statement, run=run, number=number)
    tx.one(scalar, sql.recount_versions, run=run)
    folded = number - kept.oldest
    tx.after_commit(lambda: _FOLDED.add(by=folded))
    data = {"version": number, "count": folded}
    return (RunEvent(type="version.folded", seq=0, at=kept.at, run_id=run, data=data),)


class ForgottenName(Struct, frozen=True, kw_only=True):
    """Who is forgotten in the facts of runs: an agent, or a person.

    `named` is the agent. What contains `text` or `also`, names as JSON strings, is deleted too.
    """

    named: str
    text: str
    also: str


def _forget_facts(tx: Transaction, sql: SimpleNamespace, who: ForgottenName, **scope: str) -> None:
    """Delete what *who* left in versions, messages, questions and effects.

    A version counts its losses as gaps; what it deletes is absent from then on, and no older value
    takes its place.
    """
    marks = {"named": who.named, "text": who.text, "also": who.also, **scope}
    lost = Counter(tx.rows(sql.forget_version_rows, **marks))
    for (run, number), gaps in lost.items():
        tx.run(sql.add_gaps, run=run, number=number, gaps=gaps, **scope)
    tx.run(sql.unname_versions, **marks)
    waiting = {row[0] for row in tx.rows(sql.forget_questions, **marks)}
    tx.run(sql.forget_turns, **marks)
    tx.run(sql.forget_texts, **marks)
    tx.run(sql.forget_effects, **marks)
    for run in {row[0] for row in tx.rows(sql.forget_entries, **marks)}:
        tx.run(sql.recount_entries, run=run, **scope)
    for run in waiting:
        tx.run(sql.free_waiting, run=run, **scope)


def forget_user_runs(
    engine: Engine, tx: Transaction, *, workspace: str, user: str
) -> dict[str, int]:
    """Delete answers and questions of *user* in all runs, and what names them.

    Return the number of questions. The caller must scrub the engine.
    """
    sql, scope = engine.queries(PACKAGE), {"workspace": workspace}
    name, actor = f'"{_within_json(user)}"', f'"user:{_within_json(user)}"'
    found = tx.rows(sql.questions_of_user, actor=f"user:{user}", text=actor, **scope)
    for run, id, part, call_id in found:
        tx.run(sql.delete_question, question=id, **scope)
        if call_id is not None:
            mark = _text(call_id).decode()
            tx.run(sql.forget_call, run=run, part=part, text=mark, **scope)
        tx.run(sql.forget_question_events, run=run, text=_text(id).decode(), **scope)
    for mark in (name, actor):
        tx.run(sql.forget_events, named="", text=mark, **scope)
    _forget_facts(tx, sql, ForgottenName(named="", text=name, also=actor), **scope)
    for run in {row[0] for row in found}:
        tx.run(sql.free_waiting, run=run, **scope)
    return {"run_questions": len(found)}


class _Naming(Struct, frozen=True, kw_only=True):
    id: str
    detail: str | None
    error: str | None
    extras: str | None


def forget_runs(engine: Engine, tx: Transaction, *, workspace: str, agent: str) -> dict[str, int]:
    """Delete the runs of *agent*, live ones too, and its name from the others.

    Return the number of deleted or changed records. What *agent* wrote and asked in runs of others
    is deleted, and so is what names it, with events and messages. The caller must scrub the engine.
    """
    sql, scope = engine.queries(PACKAGE), {"workspace": workspace}
    found = tx.all(scalar, sql.runs_of_agent, named=agent, **scope)
    for id in found:
        drop(tx, sql, id, **scope)
    text = _within_json(agent)
    mark = f'"{text}"'
    tx.run(sql.forget_events, named=agent, text=mark, **scope)
    _forget_facts(tx, sql, ForgottenName(named=agent, text=mark, also=mark), **scope)
    tx.run(sql.forget_parts, named=agent, text=agent, **scope)
    renamed = 0
    for run in tx.all(_Naming, sql.runs_naming, text=text, **scope):
        if (unnamed := _without(run, text)) != run:
            facts: dict[str, object] = asdict(unnamed)
            tx.send(sql.unname_run, run=facts.pop("id"), **facts, **scope)
            renamed += 1
    return {"runs": len(found) + renamed}


def _without(run: _Naming, agent: str) -> _Naming:
    """Return *run* without what names *agent*, as encoded in JSON, as a whole word."""
    word = re.compile(rf"(?<!\w){re.escape(agent)}(?!\w)")

    def named(text: str | None) -> bool:
        return text is not None and word.search(text) is not None

    extras: dict[str, Any] = {} if run.extras is None else msgspec.json.decode(run.extras)
    kept = {name: each for name, each in extras.items() if not named(_text({name: each}).decode())}
    return _Naming(
        id=run.id,
        detail=None if run.detail and named(_text(run.detail).decode()) else run.detail,
        error=None if named(run.error) else run.error,
        extras=run.extras if kept == extras else _text(kept).decode(),
    )


def _within_json(text: str) -> str:
    """Return *text* as encoded within a JSON string."""
    return _text(text).decode()[1:-1]


def redact(context: RunsContext, run_id: str, key: str) -> int:
    """Remove *key* from entries and versions of the run *run_id* and its forks.

    Of a fork what it has copied is removed; a value that it has written since stays. Contents of
    the calls of tools that read or wrote *key* are removed from messages, results, questions,
    effects and events. Return how many versions of the run had it; erase the bytes. Raise
    `NotFound` without the run.
    """

    def work(tx: Transaction) -> int:
        sql = statements(context)
        if tx.first(RunRow, sql.lock_run, run=run_id) is None:
            raise missing(run_id)
        lost = _redact_rows(tx, sql, run_id, key)
        copied = frozenset(lost.values())
        _redact_content(tx, sql, run_id, key)
        for fork, most in _forks(tx, sql, run_id):
            tx.first(RunRow, sql.lock_run, run=fork)
            _redact_rows(tx, sql, fork, key, most=most, copied=copied)
            _redact_content(tx, sql, fork, key)
        return len(lost)

    removed = context.engine.write(work)
    context.engine.scrub()
    return removed


_redacted: Final = _text(REDACTED).decode()


_object: Final = msgspec.json.Decoder(dict[str, Any])


def _forks(tx: Transaction, sql: SimpleNamespace, run_id: str) -> list[tuple[str, int]]:
    """Return the forks of the run, theirs too, and the last version each copied."""
    found: list[tuple[str, int]] = []
    origins: list[tuple[str, int]] = [(run_id, NEWEST)]
    while origins:
        origin, most = origins.pop()
        forks = [(id, min(most, number)) for id, number in tx.rows(sql.forks_of, run=origin)]
        found += forks
        origins += forks
    return found


def _redact_rows(
    tx: Transaction,
    sql: SimpleNamespace,
    run_id: str,
    key: str,
    *,
    most: int = NEWEST,
    copied: Collection[bytes] = (),
) -> dict[tuple[str, int], bytes]:
    """Remove *key* from the versions up to *most*, and where it has a *copied* body.

    Return what was removed by kind and version.
    """
    rows = {
        (kind, number): bytes(body or b"")
        for kind, number, body in tx.rows(sql.rows_of_key, run=run_id, key=key)
    }
    lost = {
        place: body for place, body in rows.items() if place[1] <= most or (body and body in copied)
    }
    for kind, number in lost:
        tx.run(sql.redact_row, run=run_id, kind=kind, key=key, number=number)
        tx.run(sql.add_gaps, run=run_id, number=number, gaps=1)
    left = {number: body for (kind, number), body in rows.items() if (kind, number) not in lost}
    if not left or not left[max(left)]:
        tx.run(sql.redact_entry, run=run_id, key=key)
        tx.run(sql.recount_entries, run=run_id)
    return lost


def _redact_content(tx: Transaction, sql: SimpleNamespace, run_id: str, key: str) -> None:
    """Remove contents of the calls about *key*, and the told result of its part."""
    calls = _redact_turns(tx, sql, run_id, key) | _calls_in_events(tx, sql, run_id, key)
    calls |= _redact_results(tx, sql, run_id, key)
    _redact_calls(tx, sql, run_id, calls)
    if key.startswith(("step:", "task:")):
        tx.run(sql.redact_results, run=run_id, part=key.partition(":")[2], data=_redacted)


def _redact_turns(tx: Transaction, sql: SimpleNamespace, run_id: str, key: str) -> set[str]:
    """Remove contents of calls about *key* from messages; return their ids."""
    turns = [
        (part, n, _object.decode(bytes(body)))
        for part, n, body in tx.rows(sql.turn_bodies, run=run_id)
    ]
    calls = {id for _, _, body in turns for id in _calls_in(_parts(body), key)}
    for part, n, body in turns:
        if _without_contents(_parts(body), calls):
            answer: dict[str, Any] = body.get("answer") or {}
            # What the loop keeps of an answer has its content again, and long texts of it.
            if "content" in answer.get("facts", {}):
                answer["facts"] = answer["facts"] | {"content": {"data": REDACTED}, "extras": {}}
            if "pages" in answer:
                answer["pages"] = {}
            tx.run(sql.change_turn, run=run_id, part=part, n=n, body=_text(body))
    return calls


def _calls_in(parts: Iterable[dict[str, Any]], key: str) -> set[str]:
    """Return the ids of the calls about *key* in *parts* of messages."""
    return {
        str(each.get("tool_call_id"))
        for each in parts
        if each.get("part_kind") == "tool-call"
        and is_about(key, each.get("tool_name"), each.get("args"))
    }


def _without_contents(parts: Iterable[dict[str, Any]], calls: Collection[str]) -> bool:
    """Remove the contents of *calls* from *parts*; return whether any was there."""
    changed = False
    for each in parts:
        if str(each.get("tool_call_id")) in calls:
            name = "args" if each.get("part_kind") == "tool-call" else "content"
            each[name], changed = REDACTED, True
    return changed


def _redact_results(tx: Transaction, sql: SimpleNamespace, run_id: str, key: str) -> set[str]:
    """Remove contents of calls about *key* from results; return the calls' ids."""
    found: set[str] = set()
    for thread, seq, body in tx.rows(sql.results_of_run, run=run_id):
        calls, result = _redacted_result(_object.decode(body), key)
        found |= calls
        if calls:
            row = prepared(ThreadTurn.made(result))
            facts = {"body": row.body, "checksum": row.checksum, "size": row.size_bytes}
            tx.run(sql.change_result, thread=thread, seq=seq, **facts)
    for name, number, body in tx.rows(sql.whole_results, run=run_id):
        fields = _object.decode(bytes(body))
        if "result" in fields:
            calls, result = _redacted_result(fields["result"], key)
            found |= calls
            if calls:
                new = _text(fields | {"result": result.export()})
                size = len(name.encode()) + len(new)
                tx.run(sql.change_row, run=run_id, key=name, number=number, body=new, bytes=size)
    return found


def _redacted_result(wire: dict[str, Any], key: str) -> tuple[set[str], InferenceResult]:
    """Return the calls about *key* in a result, and it without their contents."""
    wire.pop("checksum", None)
    tools: list[dict[str, Any]] = [
        each for said in wire["output"] for each in said.get("tools", ())
    ]
    tools += [each["tool"] for each in wire["tool_calls"]]
    calls = {each["id"] for each in tools if is_about(key, each["name"], each["input"])}
    for each in tools:
        if each["id"] in calls:
            each["input"] = REDACTED
    for each in wire["tool_calls"]:
        if each["tool"]["id"] in calls:
            each["content"] = {"data": REDACTED}
    if calls and wire["raw"]:
        messages = msgspec.json.decode(wire["raw"], type=list[dict[str, Any]])
        for message in messages:
            _without_contents(_parts(message), calls)
        wire["raw"] = _text(messages).decode()
    return calls, InferenceResult.from_dict(wire, verify=False)


def _parts(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a kept message, or of the message of a kept answer."""
    answer: dict[str, Any] = body.get("answer") or {}
    message: dict[str, Any] = answer.get("message") or body
    parts: list[dict[str, Any]] = message.get("parts") or []
    return parts


def is_about(key: str, tool: object, given: JSON) -> bool:
    """Return whether the arguments of a call of *tool* name *key*."""
    if not isinstance(tool, str) or not tool.startswith(_TOOLS):
        return False
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError:
            return key in given
    return _names(given, {key, key.partition(":")[2]} - {""})


def _names(given: JSON, wanted: set[str]) -> bool:
    """Return whether a text in *given* is one of *wanted*."""
    if isinstance(given, dict):
        return any(_names(each, wanted) for each in given.values())
    if isinstance(given, list):
        return any(_names(each, wanted) for each in given)
    return isinstance(given, str) and given in wanted


def _calls_in_events(tx: Transaction, sql: SimpleNamespace, run_id: str, key: str) -> set[str]:
    """Return the ids of the calls about *key* that events tell."""
    calls = [
        (call, msgspec.json.decode(data)) for call, data in tx.rows(sql.tool_calls, run=run_id)
    ]
    return {call for call, data in calls if is_about(key, data.get("name"), data.get("input"))}


def _redact_calls(tx: Transaction, sql: SimpleNamespace, run_id: str, calls: Iterable[str]) -> None:
    for call in calls:
        tx.run(sql.redact_call_events, run=run_id, call_id=call, data=_redacted)
        escaped = re.sub(r"([!%_])", r"!\1", call)
        tx.run(sql.redact_question, run=run_id, call_id=call, data=_redacted)
        tx.run(sql.redact_effect, run=run_id, pattern=f"%:{escaped}/%", data=_redacted)
