"""A task of a team, and the checks of its fields."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import decode
from holdfast.ground.validation import listed

Status = Literal["open", "claimed", "working", "blocked", "done", "failed"]

STATUSES: Final[tuple[Status, ...]] = ("open", "claimed", "working", "blocked", "done", "failed")
SETTLED: Final = frozenset[Status]({"done", "failed"})
HELD: Final = frozenset[Status]({"claimed", "working"})
"""Statuses in which a claimed task can be continued."""

TITLE_LIMIT: Final = 300
"""Characters; the limit of an entry's title in run memory."""
DESCRIPTION_LIMIT: Final = 100_000
"""Characters of a description, and of a reason."""
SKILL_LIMIT: Final = 100
LAST_PRIORITY: Final = 1_000


class BoardTask(Struct, frozen=True, kw_only=True):
    """One task of a board at one moment.

    `result` is a fresh copy at each access; `created_at` and `updated_at` are milliseconds since
    1970, `version` counts its changes. A `blocked` task waits for its subtasks, or for the cause in
    `blocked_reason`.
    """

    id: str
    title: str
    description: str = ""
    status: Status = "open"
    created_by: str
    claimed_by: str | None = None
    depends_on: tuple[str, ...] = ()
    required_skills: tuple[str, ...] = ()
    priority: int = 5
    artifacts: tuple[str, ...] = ()
    parent: str | None = None
    result_json: bytes = b"null"
    failure_reason: str | None = None
    blocked_reason: str | None = None
    created_at: int
    updated_at: int
    version: int = 1

    @property
    def result(self) -> Any:
        """The result; None until it is done."""
        return decode(self.result_json)

    @property
    def settled(self) -> bool:
        """Whether it is done or failed, which is final."""
        return self.status in SETTLED


class Subtask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part into which a task is split.

    `depends_on` names tasks by id, or an earlier subtask of the same call by its title. Without a
    `priority` it has its parent's.
    """

    title: str
    description: str = ""
    depends_on: tuple[str, ...] = ()
    required_skills: tuple[str, ...] = ()
    priority: int | None = None


def checked_subtask(given: object, index: int) -> Subtask:
    """Return *given*, a Subtask or its JSON, checked; raise InvalidInput if invalid."""
    try:
        part = given if isinstance(given, Subtask) else msgspec.convert(given, Subtask)
        return Subtask(
            title=checked_title(part.title),
            description=checked_text("description", part.description),
            depends_on=checked_names("depends_on", part.depends_on),
            required_skills=checked_names("required_skills", part.required_skills),
            priority=None if part.priority is None else checked_priority(part.priority),
        )
    except msgspec.ValidationError as error:
        raise InvalidInput(f"subtasks[{index}]", str(error), index=index) from None
    except InvalidInput as error:
        raise InvalidInput(f"subtasks[{index}].{error.field}", error.reason, index=index) from None


def checked_title(title: object, *, field: str = "title") -> str:
    """Return *title* on one line, without space at its ends, or raise InvalidInput."""
    text = " ".join(_text(field, title, TITLE_LIMIT).split())
    if not text:
        raise InvalidInput(field, "must not be blank")
    return text


def checked_text(field: str, text: object, *, blank: bool = True) -> str:
    """Return *text*; raise InvalidInput if it is too long, or blank where not allowed."""
    given = _text(field, text, DESCRIPTION_LIMIT)
    if not blank and not given.strip():
        raise InvalidInput(field, "must not be blank")
    return given


def checked_priority(priority: object) -> int:
    """Return *priority*, 0 first, or raise InvalidInput."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidInput("priority", "must be a whole number", given=priority)
    if not 0 <= priority <= LAST_PRIORITY:
        reason = f"must be 0 (first) to {LAST_PRIORITY:,}"
        raise InvalidInput("priority", reason, limit=LAST_PRIORITY, given=priority)
    return priority


def checked_names(field: str, names: object, *, limit: int = SKILL_LIMIT) -> tuple[str, ...]:
    """Return *names* without duplicates, in order; one text is that name alone."""
    if not isinstance(names, Sequence):
        raise InvalidInput(field, "must be a list of strings", given=names)
    texts = [_text(field, each, limit).strip() for each in listed(cast("Sequence[object]", names))]
    if not all(texts):
        raise InvalidInput(field, "must hold no blank text")
    return tuple(dict.fromkeys(texts))


def _text(field: str, given: object, limit: int) -> str:
    if not isinstance(given, str):
        raise InvalidInput(field, "must be text", given=given)
    if len(given) > limit:
        reason = f"must have at most {limit:,} characters, and has {len(given):,}"
        raise InvalidInput(field, reason, limit=limit)
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InvalidInput(field, "must be text of whole characters") from None
    return given


def lacking(required: Iterable[str], held: Iterable[str]) -> list[str]:
    """Return the skills of *required* that are not in *held*, ignoring case."""
    known = {each.strip().casefold() for each in held}
    return [each for each in required if each.casefold() not in known]
