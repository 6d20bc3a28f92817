"""Operations of the records of runs: list, read, cancel and steer them."""

import re
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import is_nested_over
from holdfast.ground.validation import check_bytes, check_limit, check_one_of, check_text, listed
from holdfast.library.operations.base import (
    Operation,
    OperationTable,
    Param,
    RawText,
    WireForm,
    field_form,
)
from holdfast.memories.run import keys
from holdfast.memories.run.entry import checked_version
from holdfast.memories.run.history.compare import ComparedValue as ComparedValue
from holdfast.memories.run.history.compare import Comparison, comparison_from_wire
from holdfast.memories.run.history.compare import Difference as Difference
from holdfast.memories.run.history.versions import MOST_LISTED as VERSIONS_LISTED
from holdfast.memories.run.history.versions import (
    KeptState,
    KeptTurn,
    StateKind,
    StateRow,
    VersionSave,
)
from holdfast.memories.run.history.versions import SavedVersion as SavedVersion
from holdfast.memories.run.model_view import checked_path
from holdfast.memories.run.records.event import Ending as Ending
from holdfast.memories.run.records.event import RunEvent as RunEvent
from holdfast.memories.run.records.lease import PRIORITY
from holdfast.memories.run.records.parts import RunPart, part_from_wire
from holdfast.memories.run.records.question import ADMIN as ADMIN
from holdfast.memories.run.records.question import STATUSES as QUESTION_STATUSES
from holdfast.memories.run.records.question import Answerer as Answerer
from holdfast.memories.run.records.question import Question as Question
from holdfast.memories.run.records.question import (
    checked_question_statuses,
    checked_value,
    question_to_wire,
)
from holdfast.memories.run.records.read import LOOKS_EVERY as LOOKS_EVERY
from holdfast.memories.run.records.read import MOST_LISTED, read_in, run_from_wire
from holdfast.memories.run.records.read import FollowOptions as FollowOptions
from holdfast.memories.run.records.read import RunProgress as RunProgress
from holdfast.memories.run.records.read import look as look
from holdfast.memories.run.records.read import run_row as run_row
from holdfast.memories.run.records.record import this_process as this_process
from holdfast.memories.run.records.run import (
    KINDS,
    NO_METADATA,
    PART_MOST,
    RunState,
    RunVersion,
    checked_run_id_or_none,
    checked_statuses,
    run_to_wire,
)
from holdfast.memories.run.records.run import STATUSES as STATUSES
from holdfast.memories.run.records.run import Run as Run
from holdfast.memories.run.records.runs import CANCELLED, Runs
from holdfast.memories.state.message import Message, messages_of

RUNS: Final = "/api/runs"
RUN: Final = f"{RUNS}/{{run}}"

FORK_BYTES: Final = 33_554_432
"""Bytes of the body of a fork: it may set several values of 4 MiB."""
QUESTIONS: Final = "/api/questions"
QUESTION: Final = f"{QUESTIONS}/{{question}}"


class CancelRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a run is cancelled."""

    reason: str = CANCELLED


class RedactKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key of an entry or a value that is removed from a run."""

    key: str


class Steer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to a run, and the step that gets it; null: all running steps."""

    text: str
    step: str | None = None


class AnswerQuestion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to a question of a run."""

    value: Any
    note: str | None = None


class ForkRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a run is forked, and what its fork changes."""

    version: int | None = None
    before: str | None = None
    set: dict[str, Any] | None = None
    delete: tuple[str, ...] = ()
    rerun: str | tuple[str, ...] = "affected"
    run_id: str | None = None
    name: str | None = None
    start: bool = False


class WireRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A changed fact of a run, its JSON as text; null where it was deleted."""

    kind: StateKind
    key: str
    body: str | None


class WireTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message *n* of a part, its JSON as text."""

    part: str
    n: int
    body: str
    agent: str | None = None


class PutVersion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version of a run, with what is stored with it; `at` is in ms since 1970.

    Without a `cause` its rows belong to the next version, and no version is stored.
    """

    fence: int = 0
    at: int
    cause: str | None = None
    part: str | None = None
    agent: str | None = None
    rows: tuple[WireRow, ...] = ()
    turns: tuple[WireTurn, ...] = ()
    questions: tuple[dict[str, Any], ...] = ()
    status: Literal["waiting", "queued"] | None = None
    seq: int = 0
    emitted: bool = True
    facts: bool = False


def save_to_wire(save: VersionSave) -> dict[str, Any]:
    """Return *save* as the body of its request."""
    body: dict[str, Any] = asdict(save)
    for name in ("run_id", "after"):
        del body[name]
    return body | contents_to_wire(save.rows, save.turns, save.questions)


def contents_to_wire(
    rows: Iterable[StateRow], turns: Iterable[KeptTurn], questions: Iterable[Question]
) -> dict[str, Any]:
    """Return facts, messages and questions of a run as members of a JSON object."""
    return {
        "rows": [
            {"kind": row.kind, "key": row.key, "body": row.body and row.body.decode()}
            for row in rows
        ],
        "turns": [asdict(turn) | {"body": turn.body.decode()} for turn in turns],
        "questions": [question_to_wire(each) for each in questions],
    }


def save_in(body: PutVersion, run_id: str, after: int | None) -> VersionSave:
    """Return the save of a request's *body*; raise `InvalidInput`."""
    for name in ("fence", "at", "seq"):
        checked_version(name, getattr(body, name))
    if body.cause is not None and not _CAUSE.fullmatch(body.cause):
        raise InvalidInput("cause", "must be a word of a to z", given=body.cause)
    for name in ("part", "agent"):
        if (given := getattr(body, name)) is not None:
            check_text(name, given, most=PART_MOST)
    questions = tuple(map(Question.from_dict, body.questions))
    for each in questions:
        if each.run_id != run_id:
            raise InvalidInput("run_id", "must be that of the path", given=each.run_id)
    facts: dict[str, Any] = asdict(body) | {"run_id": run_id, "after": after}
    facts["rows"] = tuple(_row_in(index, row) for index, row in enumerate(body.rows))
    facts["turns"] = tuple(_turn_in(index, turn) for index, turn in enumerate(body.turns))
    facts["questions"] = questions
    return VersionSave(**facts)


def _row_in(index: int, row: WireRow) -> StateRow:
    key = check_bytes("key", row.key, most=KEY_BYTES)
    return StateRow(row.kind, key, None if row.body is None else _json_in(index, row.body))


def _turn_in(index: int, turn: WireTurn) -> KeptTurn:
    check_text("part", turn.part, most=PART_MOST)
    checked_version("n", turn.n)
    if turn.agent is not None:
        check_text("agent", turn.agent, most=PART_MOST)
    return KeptTurn(turn.part, turn.n, _json_in(index, turn.body), turn.agent)


def _json_in(index: int, text: str) -> bytes:
    """Return *text*, which must be JSON, as bytes."""
    body = text.encode()
    try:
        if not is_nested_over(body):
            msgspec.json.decode(body)
            return body
    except msgspec.DecodeError:
        pass
    raise InvalidInput("body", "must be JSON, as text", index=index)


def state_to_wire(kept: KeptState) -> dict[str, Any]:
    """Return *kept* as the JSON object of the wire."""
    rows = (StateRow(kind, key, body) for (kind, key), body in kept.state.items())
    contents = contents_to_wire(rows, kept.turns, kept.questions)
    return {"number": kept.number, "at": kept.at, **contents}


def state_in(wire: dict[str, Any]) -> KeptState:
    """Return the newest version of a run of the JSON object *wire*."""
    rows = [msgspec.convert(each, WireRow) for each in wire["rows"]]
    turns = [msgspec.convert(each, WireTurn) for each in wire["turns"]]
    return KeptState(
        number=wire["number"],
        at=wire["at"],
        state={(row.kind, row.key): (row.body or "").encode() for row in rows},
        turns=tuple(
            [KeptTurn(each.part, each.n, each.body.encode(), each.agent) for each in turns]
        ),
        questions=tuple(map(Question.from_dict, wire["questions"])),
    )


_CAUSE: Final = re.compile(r"[a-z_]{1,32}")
KEY_BYTES: Final = 32_768
"""Bytes of the key of a fact of a run."""

VERSION_BYTES: Final = 33_554_432
"""Bytes of the body of a version: it may have several entries of 4 MiB."""


class StartRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to run, by the name of its definition, and how it is queued.

    `wait` is how many seconds to wait for its end.
    """

    definition: str
    input: Any = None
    run_id: str | None = None
    queue: str | None = None
    priority: int = PRIORITY
    not_before: datetime | None = None
    metadata: dict[str, str] = NO_METADATA
    wait: float = 0


def _path(given: Any) -> str | None:
    return None if given is None else checked_path(given)


def _names(given: Any) -> list[str]:
    return list(listed(given))


def _statuses(given: Any) -> list[str] | None:
    return list(checked_statuses(given)) or None


def _question_statuses(given: Any) -> list[str]:
    return list(checked_question_statuses(given) or QUESTION_STATUSES)


def _kind(given: Any) -> str | None:
    return None if given is None else str(check_one_of("kind", given, KINDS))


NEWEST: Final = "newest"
"""What stands for the number of the newest version in a path."""


def _version(given: Any) -> str:
    return NEWEST if given is None else str(checked_version("version", given))


def _number(given: str) -> int | None:
    if given == NEWEST:
        return None
    if not (given.isascii() and given.isdigit()) or len(given) > _DIGITS:
        raise InvalidInput("version", f"must be a whole number from 0, or {NEWEST}", given=given)
    return int(given)


def version_number(given: str) -> int:
    """Return the number of a version to store, from the path; raise `InvalidInput`."""
    number = None if given == NEWEST else _number(given)
    if not number:
        raise InvalidInput("version", "must be a whole number from 1", given=given)
    return number


_DIGITS: Final = 15
_ID: Final = {"id": Param(wire="run")}
FORM: Final = WireForm(run_to_wire, run_from_wire)
PARTS: Final = WireForm[list[RunPart]](
    lambda parts: {"parts": [each.export() for each in parts]},
    lambda wire: [part_from_wire(each) for each in wire["parts"]],
)
QUESTION_FORM: Final = WireForm(question_to_wire, Question.from_dict)
MESSAGES: Final = WireForm[list[Message]](
    lambda messages: {"messages": [each.export() for each in messages]},
    lambda wire: messages_of("messages", wire["messages"]),
)
_DONE: Final = WireForm[Any](lambda fields: fields, lambda _: None)
_get = partial(Operation, method="GET", scope="read", lane="slow")
_post = partial(Operation, method="POST", scope="write", special=_ID, lane="slow")

CANCEL: Final = _post(
    "runs.cancel",
    f"{RUN}/cancel",
    "Cancel a run; the process that has it obeys within 5 s.",
    _DONE,
    params=CancelRun,
    optional=True,
    status=202,
)
DELETE: Final = Operation(
    "runs.delete",
    RUN,
    "Delete the record of a run that has ended.",
    _DONE,
    method="DELETE",
    scope="write",
    special=_ID,
    lane="slow",
)
LIST_QUESTIONS: Final = _get(
    "runs.questions",
    QUESTIONS,
    "List questions of runs, newest first.",
    QUESTION_FORM,
    special={
        "status": Param(type=Iterable[str], encode=_question_statuses),
        "run": Param(encode=partial(checked_run_id_or_none, "run")),
        "limit": Param(encode=partial(check_limit, most=MOST_LISTED)),
    },
    paged=True,
    bound="named",
)
READ_QUESTION: Final = _get(
    "runs.question",
    QUESTION,
    "Retrieve a question of a run with its answer.",
    QUESTION_FORM,
    special={"id": Param(wire="question")},
    bound="named",
)
ANSWER: Final = Operation(
    "runs.answer",
    f"{QUESTION}/answer",
    "Answer a question of a run; the first answer wins.",
    QUESTION_FORM,
    method="POST",
    scope="write",
    params=AnswerQuestion,
    special={
        "run_id": Param(sent=False),
        "by": Param(sent=False),
        "value": Param(encode=checked_value),
    },
    retry="safe",
    lane="slow",
    deep=True,
    bound="named",
)
RECORDS: Final = OperationTable(
    facade=Runs,
    operations=(
        _get(
            "runs.list",
            RUNS,
            "List runs, those that began last first.",
            FORM,
            special={
                "status": Param(type=Iterable[str], encode=_statuses),
                "kind": Param(type=str | None, encode=_kind),
                "thread": Param(encode=partial(checked_run_id_or_none, "thread")),
                "parent": Param(encode=partial(checked_run_id_or_none, "parent")),
                "limit": Param(encode=partial(check_limit, most=MOST_LISTED)),
            },
            paged=True,
        ),
        _get("runs.retrieve", RUN, "Retrieve a run.", FORM, special=_ID),
        _get("runs.parts", f"{RUN}/parts", "List the parts of a run.", PARTS, special=_ID),
        _get(
            "runs.entry",
            f"{RUN}/entries/{{key}}",
            "Retrieve one entry of a run's memory.",
            WireForm(msgspec.to_builtins, read_in),
            special={
                **_ID,
                "key": Param(encode=keys.checked),
                "path": Param(type=RawText, encode=_path),
                "offset": Param(encode=partial(checked_version, "offset")),
            },
        ),
        _get(
            "runs.compare",
            f"{RUN}/compare",
            "Compare a run with another one, key by key.",
            WireForm(Comparison.export, comparison_from_wire),
            special={"a": Param(wire="run"), "b": Param(wire="with")},
        ),
        _post(
            "runs.fork",
            f"{RUN}/fork",
            "Make a new run with the history of a run up to a version.",
            FORM,
            special={**_ID, "delete": Param(encode=_names)},
            params=ForkRun,
            optional=True,
            limit=FORK_BYTES,
            deep=True,
            status=201,
        ),
        CANCEL,
        _post(
            "runs.steer",
            f"{RUN}/steer",
            "Send a message to the steps of a run, before their next request.",
            field_form("steps", list[str]),
            params=Steer,
        ),
        LIST_QUESTIONS,
        READ_QUESTION,
        ANSWER,
        _get(
            "runs.versions",
            f"{RUN}/versions",
            "List the versions of a run, the newest first.",
            WireForm(RunVersion.export, partial(msgspec.convert, type=RunVersion)),
            special={**_ID, "limit": Param(encode=partial(check_limit, most=VERSIONS_LISTED))},
            paged=True,
        ),
        _get(
            "runs.at",
            f"{RUN}/versions/{{version}}",
            "Retrieve what a run knew at a version.",
            WireForm(RunState.export, RunState.from_dict),
            special={**_ID, "version": Param(encode=_version, decode=_number)},
        ),
        Operation(
            "runs.redact",
            f"{RUN}/redact",
            "Remove a key from the entries and all versions of a run.",
            field_form("versions", int),
            method="POST",
            scope="admin",
            special=_ID,
            params=RedactKey,
            lane="slow",
        ),
        _get(
            "runs.messages",
            f"{RUN}/messages",
            "List what a part of a run sent to its model and was answered.",
            MESSAGES,
            special=_ID,
        ),
        DELETE,
    ),
)
