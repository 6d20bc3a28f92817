"""Questions of runs to people: who may answer, and how they are settled.

A question is a row of its run. It is stored in the transaction in which the run comes to rest, and
every change of it locks the row of the run first, so that of two answers one wins.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, Final, Literal, Self, TypeAlias, cast, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, force_setattr, replace

from holdfast.engines.base import Reader, Transaction, scalar
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none, to_microseconds
from holdfast.ground.errors import (
    AlreadyAnswered,
    Conflict,
    InvalidInput,
    LimitExceeded,
    NotPermitted,
)
from holdfast.ground.json_schema import (
    SECONDS,
    BadSchema,
    LateCheck,
    SchemaCheck,
    check_schema,
    time_limit,
)
from holdfast.ground.json_values import JSON
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import LOCAL, Actor, checked_name
from holdfast.ground.validation import check_bytes, check_one_of, is_list, is_number
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.record import MILLISECOND
from holdfast.memories.run.records.run import checked_run_id
from holdfast.memories.state import message
from holdfast.memories.state.frozen import kept
from holdfast.memories.state.message import from_text, to_milliseconds, to_text

QuestionKind = Literal["approval", "question", "external"]
"""What is wanted: approval of a call of a tool, an answer, or the result of work elsewhere."""

QuestionStatus = Literal["open", "answered", "expired", "withdrawn"]
"""Status of a question; `withdrawn`: its run was cancelled or has ended."""

KINDS: Final[tuple[str, ...]] = get_args(QuestionKind)
STATUSES: Final[tuple[str, ...]] = get_args(QuestionStatus)

QuestionStatuses: TypeAlias = QuestionStatus | Iterable[QuestionStatus] | None
"""One status, several, or None for all."""

TEXT_BYTES: Final = 16_384
"""Bytes of a question's text, and of a note."""

SCHEMA_BYTES: Final = 65_536
"""Bytes of a question's schema as JSON, and of its options."""

ANSWER_BYTES: Final = 262_144
"""Bytes of an answer as JSON, of a default, and of the arguments of a call."""

OPTIONS_MOST: Final = 100
WHO_MOST: Final = 100
OPEN_MOST: Final = 100
"""Open questions of one run."""

TIMEOUT_MOST: Final = 315_360_000.0
"""Longest timeout in seconds: ten years."""

BY_TIMEOUT: Final = "timeout"
"""Who answered with the default, in `answered_by`."""

ADMIN: Final = "scope:admin"

_LATE: Final = {"expired": "has expired", "withdrawn": "was withdrawn"}
_APPROVAL: Final = frozenset(("approved", "arguments", "note"))
_KEY_BYTES: Final = 512
QUESTION_ID: Final = re.compile(r"question_[0-9A-Za-z]{1,64}")
_WHO: Final = re.compile(r"(?:user|key):(.+)|scope:admin", re.DOTALL)
_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_json: Final = msgspec.json.Decoder[Any]()


ANSWERS: Final = REGISTRY.counter(
    "run_answers_total",
    "Questions of runs that were settled, and answers that were refused.",
    outcome=("answered", "approved", "denied", "default", "expired", "withdrawn", "refused"),
)


class Question(Struct, frozen=True, kw_only=True):
    """A question of a run to people, and its answer.

    `key` makes it the same question when its part asks it again. `who` may answer it: `user:NAME`,
    `key:NAME`, `scope:admin`; if empty, all that may write. `default` is the answer once it has
    expired; without one (UNSET) its part fails. `schema` is what the answer must fit;
    that of an `approval` is for the arguments of the call.
    """

    id: str
    run_id: str
    kind: QuestionKind
    key: str
    text: str
    schema: dict[str, JSON] | None = None
    options: list[JSON] = message.NO_ITEMS
    part: str | None = None
    agent: str | None = None
    tool: str | None = None
    call_id: str | None = None
    arguments: JSON = None
    asked_at: datetime
    expires_at: datetime | None = None
    who: tuple[str, ...] = ()
    default: "JSON | UnsetType" = UNSET
    status: QuestionStatus = "open"
    answer: JSON = None
    answered_by: str | None = None
    answered_at: datetime | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        """Check every field; `InvalidInput` names the one that is wrong."""
        if not isinstance(cast("object", self.id), str) or not QUESTION_ID.fullmatch(self.id):
            raise InvalidInput("id", "must begin with question_", given=self.id)
        checked_run_id("run_id", self.run_id)
        check_one_of("kind", self.kind, KINDS)
        check_one_of("status", self.status, STATUSES)
        check_bytes("key", self.key, most=_KEY_BYTES)
        check_bytes("text", self.text, most=TEXT_BYTES)
        for name in ("part", "agent", "tool", "call_id", "answered_by"):
            if (text := getattr(self, name)) is not None:
                check_bytes(name, text, most=4_096)
        if self.note is not None:
            check_bytes("note", self.note, most=TEXT_BYTES)
        self._set_values()
        for name in ("asked_at", "expires_at", "answered_at"):
            if (instant := getattr(self, name)) is not None:
                force_setattr(self, name, to_milliseconds(name, instant))

    def _set_values(self) -> None:
        """Copy the JSON values and check their sizes."""
        if self.schema is not None and not isinstance(cast("object", self.schema), dict):
            raise InvalidInput("schema", "must be an object", given=self.schema)
        listed = list(cast("Iterable[JSON]", self.options)) if is_list(self.options) else None
        if listed is None or len(listed) > OPTIONS_MOST:
            raise InvalidInput("options", f"must be a list of at most {OPTIONS_MOST}")
        force_setattr(self, "options", _value("options", listed, SCHEMA_BYTES) or message.NO_ITEMS)
        force_setattr(self, "schema", _value("schema", self.schema, SCHEMA_BYTES))
        for name in ("arguments", "answer"):
            force_setattr(self, name, _value(name, getattr(self, name), ANSWER_BYTES))
        if self.default is not UNSET:
            force_setattr(self, "default", _value("default", self.default, ANSWER_BYTES))
        force_setattr(self, "who", checked_who(self.who))

    @classmethod
    def from_dict(cls, given: object) -> Self:
        """Convert the dict *given*, as of `export`, to a question."""
        with message.whole_is("question"):
            members = dict(message.members(given))
        for name in ("asked_at", "expires_at", "answered_at"):
            if isinstance(members.get(name), str):
                members[name] = from_text(name, members[name])
        for name in members.keys() - set(cls.__struct_fields__):
            raise InvalidInput(name, "is not a field of a question")
        if members.get("options", ()) is None:
            del members["options"]
        return message.made(cls, members, ("id", "run_id", "kind", "key", "text", "asked_at"))

    def export(self) -> dict[str, Any]:
        """Return it as a dict of JSON, without `default` where there is none."""
        wire = asdict(self)
        wire["who"] = list(self.who)
        for name in ("asked_at", "expires_at", "answered_at"):
            wire[name] = None if wire[name] is None else to_text(wire[name])
        if self.default is UNSET:
            del wire["default"]
        return wire

    def due_at(self, now: datetime) -> bool:
        """Return whether it is open, and its time is over at *now*."""
        return self.status == "open" and self.expires_at is not None and self.expires_at <= now

    def settled(self, now: datetime) -> Self:
        """Return it as it is at *now*: one that is due has its default, or has expired."""
        if not self.due_at(now):
            return self
        if self.default is UNSET:
            return replace(self, status="expired", answered_at=now)
        return replace(
            self,
            status="answered",
            answer=self.default,
            answered_by=BY_TIMEOUT,
            answered_at=now,
        )


def question_to_wire(question: Question) -> dict[str, Any]:
    """Return *question* as the JSON object of the wire."""
    return question.export()


def _value(field: str, value: object, most: int) -> Any:
    """Return *value*, JSON of at most *most* bytes, read-only."""
    found = kept(value, field)
    size = len(_encode(found))
    if size > most:
        raise InvalidInput(field, f"must have at most {most:,} bytes, has {size:,}", limit=most)
    return found


def checked_who(given: object) -> tuple[str, ...]:
    """Return who may answer, one or several; InvalidInput for another form."""
    several = tuple(given) if is_list(given) else (given,)
    if len(several) > WHO_MOST:
        raise InvalidInput("who", f"must be at most {WHO_MOST}", limit=WHO_MOST)
    for each in several:
        found = _WHO.fullmatch(each) if isinstance(each, str) else None
        if found is None:
            raise InvalidInput("who", "must be user:NAME, key:NAME or scope:admin", given=each)
        if found[1] is not None:
            checked_name("who", found[1])
    return tuple(dict.fromkeys(cast("tuple[str, ...]", several)))


def checked_question_statuses(given: object) -> tuple[str, ...]:
    """Return the statuses *given*, one or several, in order; InvalidInput for another."""
    if given is None:
        return ()
    statuses: Iterable[object] = given if is_list(given) else (given,)
    reason = f"must be {', '.join(STATUSES)}"
    return tuple(sorted({str(check_one_of("status", each, STATUSES, reason)) for each in statuses}))


def expiry(asked_at: datetime, timeout: float | None) -> datetime | None:
    """Return when a question of *asked_at* expires; None for never.

    *timeout* is in seconds; raise `InvalidInput` unless it is above 0, and ten years at most.
    """
    if timeout is None:
        return None
    if not is_number(timeout) or not 0 < timeout <= TIMEOUT_MOST:
        reason = f"must be above 0 and at most {TIMEOUT_MOST:,.0f} seconds"
        raise InvalidInput("timeout", reason, limit=int(TIMEOUT_MOST), given=timeout)
    return asked_at + timedelta(seconds=timeout)


def identity(text: str, schema: Mapping[str, JSON] | None = None, *, number: int = 0) -> str:
    """Return the key of a question without one of its own.

    It is made of the text and the schema, and of the *number* of the question among those of its
    call that are equal to it; never of its position among all.
    """
    return f"sha256:{_digest([text, schema])}:{number}"


def approval_identity(call_id: str, arguments: object) -> str:
    """Return the key of the approval of one call with *arguments*, and of no other."""
    return f"sha256:{_digest([call_id, arguments])}:0"


def _digest(value: object) -> str:
    return sha256(_encode(value)).hexdigest()


class QuestionFilter(Struct, frozen=True, kw_only=True):
    """Filters of a list of questions; None is no filter, *status* is one or several."""

    status: QuestionStatuses = None
    run: str | None = None
    who: str | None = None

    def __post_init__(self) -> None:
        """Raise `InvalidInput` for a filter that no question can pass."""
        force_setattr(self, "status", checked_question_statuses(self.status))
        if self.run is not None:
            checked_run_id("run", self.run)
        if self.who is not None:
            checked_who(self.who)

    def statuses(self) -> str:
        """Return the statuses as a JSON array; all without a filter."""
        return _encode(self.status or STATUSES).decode()


class QuestionRow(Struct, frozen=True, kw_only=True):
    """A question as it is stored."""

    id: str
    run_id: str
    kind: str
    key: str
    text: str
    schema: str | None
    options: str | None
    part: str | None
    agent: str | None
    tool: str | None
    call_id: str | None
    arguments: str | None
    who: str
    status: str
    default_value: str | None
    answer: str | None
    answered_by: str | None
    note: str | None
    asked_at: int
    expires_at: int | None
    answered_at: int | None

    def record(self) -> Question:
        """Return the public record."""
        facts: dict[str, Any] = asdict(self)
        default = facts.pop("default_value")
        for name in ("schema", "arguments", "answer", "who"):
            facts[name] = _decoded(facts[name])
        for name in ("asked_at", "expires_at", "answered_at"):
            facts[name] = from_microseconds_or_none(facts[name])
        facts["options"] = _decoded(self.options) or message.NO_ITEMS
        facts["default"] = UNSET if default is None else _decoded(default)
        return Question(**facts)


def _decoded(text: str | None) -> Any:
    return None if text is None else _json.decode(text)


def _columns(question: Question) -> dict[str, object]:
    """Return the parameters of the row of *question*."""
    facts: dict[str, Any] = asdict(question)
    default = facts.pop("default")
    facts["default_value"] = None if default is UNSET else _encode(default).decode()
    facts["options"] = list(question.options) or None
    for name in ("schema", "options", "arguments", "answer"):
        facts[name] = None if facts[name] is None else _encode(facts[name]).decode()
    facts["answer"] = _answer_of(question)
    facts["who"] = _encode(question.who).decode()
    for name in ("asked_at", "expires_at", "answered_at"):
        facts[name] = None if facts[name] is None else to_microseconds(facts[name])
    return facts | {"question": facts.pop("id"), "run": facts.pop("run_id")}


def _answer_of(question: Question) -> str | None:
    """Return the column of the answer; an answer may be null itself."""
    return _encode(question.answer).decode() if question.status == "answered" else None


def ask(
    tx: Transaction, sql: SimpleNamespace, run_id: str, questions: Sequence[Question]
) -> tuple[RunEvent, ...]:
    """Store *questions* of a run whose row is locked; return their events.

    The events have no numbers yet: the caller stores them in the same transaction. A question that
    is stored already is left as it is, without an event, unless it was open and is settled now.
    Raise `LimitExceeded` if the run has too many open questions then.
    """
    emitted: list[RunEvent] = []
    for each in questions:
        if each.run_id != run_id:
            raise InvalidInput("run_id", "must be that of the run", given=each.run_id)
        if tx.run(sql.add_question, **_columns(each)):
            emitted.append(event_of(each, "question.asked", each.asked_at))
            if each.status != "open":
                emitted.append(event_of(each, f"question.{each.status}", each.answered_at))
        elif each.status != "open":
            at = to_microseconds(each.answered_at or each.asked_at)
            if tx.run(sql.settle_question, **settlement(each, at)):
                emitted.append(event_of(each, f"question.{each.status}", each.answered_at))
    if emitted and (found := len(open_ids(tx, sql, run_id))) > OPEN_MOST:
        raise LimitExceeded(
            "open questions",
            allowed=OPEN_MOST,
            actual=found,
            what=run_id,
            next="Let the run ask less at once.",
        )
    return tuple(emitted)


def event_of(question: Question, type: str, at: datetime | None) -> RunEvent:
    """Return the event *type* of *question*, without a number."""
    data: dict[str, Any] = {"question": question.id, "kind": question.kind}
    if type == "question.asked":
        data |= {"text": question.text, "who": list(question.who)}
    else:
        data["by"] = question.answered_by
    return RunEvent(
        type=type,
        seq=0,
        at=to_microseconds(at or question.asked_at) // MILLISECOND,
        run_id=question.run_id,
        part=question.part,
        agent=question.agent,
        call_id=question.call_id,
        data=data,
    )


def open_ids(reader: Reader, sql: SimpleNamespace, run_id: str) -> tuple[str, ...]:
    """Return the ids of the open questions of the run, the oldest first."""
    return tuple(reader.all(scalar, sql.open_questions, run=run_id))


def waits(reader: Reader, sql: SimpleNamespace, run_id: str) -> bool:
    """Return whether the run waits for an answer, or for the run of an item."""
    found = open_ids(reader, sql, run_id) or reader.first(scalar, sql.open_item, run=run_id)
    return bool(found)


def questions_of(reader: Reader, sql: SimpleNamespace, run_id: str) -> list[Question]:
    """Return every question of the run with its answer, the oldest first."""
    return [each.record() for each in reader.all(QuestionRow, sql.questions_of_run, run=run_id)]


class Answerer(Struct, frozen=True, kw_only=True):
    """Who answers: `by` is stored, `names` are those that a question may have for it."""

    by: str
    names: frozenset[str]


def answerer_of(actor: Actor, by: str | Answerer | None = None) -> Answerer:
    """Return who answers through a handle of *actor*, which may do what an admin may.

    *by* is the person for whom the caller of the handle answers.
    """
    if isinstance(by, Answerer):
        return by
    if by is None:
        kind = "key" if actor.kind == "api" else actor.kind
        by = "local" if actor == LOCAL else f"{kind}:{actor.id.removeprefix('user_')}"
    return Answerer(by=check_bytes("by", by, most=_KEY_BYTES), names=frozenset((by, ADMIN)))


class Answer(Struct, frozen=True):
    """A checked answer with its note."""

    value: JSON
    note: str | None = None


def checked_value(given: object) -> JSON:
    """Return *given* if it is JSON that an answer may be; else InvalidInput."""
    return _value("value", given, ANSWER_BYTES)


def checked_answer(question: Question, value: object, note: str | None = None) -> Answer:
    """Return *value* as an answer to *question*; raise `InvalidInput` if it is none.

    An approval is True or False, or with other arguments for the call an object that has
    `approved` and `arguments`; its `note` is that of the answer.
    """
    found = checked_value(value)
    if question.kind == "approval":
        return _approval(question, found, note)
    if question.kind == "question":
        if question.schema is not None:
            _demand_fit("value", question.schema, found)
        if question.options:
            _demand_option(question, found)
        elif question.schema is None and not isinstance(found, str):
            raise InvalidInput("value", "must be text", given=found)
    return Answer(found, note)


def _approval(question: Question, value: JSON, note: str | None) -> Answer:
    if isinstance(value, bool):
        return Answer(value, note)
    form = 'must be true, false or {"approved", "arguments"?, "note"?}'
    if not isinstance(value, dict) or not {"approved"} <= value.keys() <= _APPROVAL:
        raise InvalidInput("value", form, given=value)
    approved, said = value["approved"], value.get("note")
    if not isinstance(approved, bool) or not isinstance(said, str | None):
        raise InvalidInput("value", form, given=value)
    arguments = value.get("arguments")
    if arguments is None:
        return Answer(approved, said if note is None else note)
    if not approved or not isinstance(arguments, dict):
        raise InvalidInput("value.arguments", "must be an object, of a call that is approved")
    if question.schema is not None:
        _demand_fit("value.arguments", question.schema, arguments)
    return Answer({"approved": True, "arguments": arguments}, said if note is None else note)


def _demand_fit(field: str, schema: dict[str, JSON], value: JSON) -> None:
    """Raise `InvalidInput` with the places in which *value* does not fit *schema*."""
    try:
        check_schema(schema)
        with time_limit(SECONDS):
            problems = SchemaCheck(schema).problems(value)
    except BadSchema as error:
        raise InvalidInput("schema", str(error)) from error
    except LateCheck:
        problems = [f"its check took more than {SECONDS:g} s: give a smaller value"]
    if problems:
        raise InvalidInput(field, "; ".join(problems), next="Answer with a value that fits.")


def _demand_option(question: Question, value: JSON) -> None:
    if _encode(value) not in map(_encode, question.options):
        options = _encode(question.options).decode()
        reason = f"must be one of {options[:200]}"
        raise InvalidInput("value", reason, given=value, next="Choose one of the options.")


def answered(question: Question, answer: Answer, answerer: Answerer, at: datetime) -> Question:
    """Return *question* with *answer*; unchanged if it has that one by this person.

    Raise `NotPermitted` unless the question is for *answerer*, `AlreadyAnswered` for another
    answer, `Conflict` if it has expired or was withdrawn.
    """
    demand_named(question, answerer)
    if question.status == "answered":
        same = _encode(question.answer) == _encode(answer.value)
        if same and question.answered_by == answerer.by:
            return question
        raise AlreadyAnswered(question.id, by=question.answered_by, at=question.answered_at)
    if question.status != "open":
        raise Conflict(
            f"The question {question.id} {_LATE[question.status]}.",
            reason=question.status,
            next="Read its run: an answer is too late.",
        )
    return replace(
        question,
        status="answered",
        answer=answer.value,
        note=answer.note,
        answered_by=answerer.by,
        answered_at=at,
    )


def demand_named(question: Question, answerer: Answerer) -> None:
    """Raise `NotPermitted` unless *question* is for *answerer*."""
    if question.who and answerer.names.isdisjoint(question.who):
        raise NotPermitted(
            f"The question {question.id} is for others.",
            needed=" or ".join(question.who[:5]),
            next="Let one of them answer.",
        )


def withdraw(tx: Transaction, sql: SimpleNamespace, run_id: str, now: int) -> tuple[RunEvent, ...]:
    """Withdraw the open questions of the run, which is over; return their events.

    The caller has locked the row of the run, and numbers and stores the events. *now* is in
    microseconds since 1970.
    """
    at = from_microseconds(now)
    emitted: list[RunEvent] = []
    for each in questions_of(tx, sql, run_id):
        if each.status == "open":
            tx.run(sql.settle_question, **settlement(replace(each, status="withdrawn"), now))
            emitted.append(event_of(each, "question.withdrawn", at))
            tx.after_commit(lambda: ANSWERS.add("withdrawn"))
    return tuple(emitted)


def settlement(question: Question, now: int) -> dict[str, object]:
    """Return the parameters of the statement that settles *question*."""
    return {
        "question": question.id,
        "status": question.status,
        "answer": _answer_of(question),
        "answered_by": question.answered_by,
        "note": question.note,
        "now": now,
    }
