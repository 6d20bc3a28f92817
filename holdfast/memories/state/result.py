"""The result of one call of an agent: input, output, tool results, usage."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, force_setattr, replace

from holdfast.ground import json_values
from holdfast.ground.clock import SystemClock, to_microseconds
from holdfast.ground.errors import ChecksumMismatch, HistoryGone, InvalidInput
from holdfast.ground.ids import Ids, base62
from holdfast.ground.json_values import JSON
from holdfast.memories.state import message as checks
from holdfast.memories.state.frozen import ReadOnlyDict, kept
from holdfast.memories.state.message import (
    HERE,
    NO_EXTRAS,
    NO_ITEMS,
    Message,
    TextMessage,
    ToolResultMessage,
    from_text,
    message,
    plain,
    to_milliseconds,
    to_text,
    wire_of,
)
from holdfast.memories.state.references import (
    Find,
    Seen,
    SentMessages,
    base_of,
    digest_of,
    restored,
    seen,
    seen_wire,
)

T = TypeVar("T")

_NO_DETAILS: Final[dict[str, int]] = ReadOnlyDict()
_COUNTS: Final = ("requests", "input_tokens", "output_tokens", "tool_calls")
_MESSAGES: Final = ("output", "tool_calls")
_COPIED: Final = ("prompt", "history")
"""Members of a result of an earlier format, which held copies of what was sent."""

_ids: Final = Ids()
_clock: Final = SystemClock()
_encode: Final = msgspec.json.Encoder().encode
_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class Usage(Struct, frozen=True, kw_only=True, gc=False):
    """Requests, tokens and tool calls of a model; two of them can be added."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    details: dict[str, int] = _NO_DETAILS
    extras: dict[str, JSON] = NO_EXTRAS

    def __post_init__(self) -> None:
        checks.whole("requests", self.requests)
        checks.whole("input_tokens", self.input_tokens)
        checks.whole("output_tokens", self.output_tokens)
        checks.whole("tool_calls", self.tool_calls)
        if self.details is not _NO_DETAILS:
            force_setattr(self, "details", _details(self.details))
        if self.extras is not NO_EXTRAS:
            force_setattr(self, "extras", checks.extra_members(self.extras, _USAGE))

    def __add__(self, other: "Usage") -> "Usage":
        details = dict(self.details)
        for name, each in other.details.items():
            details[name] = details.get(name, 0) + each
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return Usage(**counts, details=details, extras={**self.extras, **other.extras})

    def export(self) -> dict[str, JSON]:
        """Return it as a plain dict, which `from_dict` reads."""
        return plain(_usage_wire(self))

    @classmethod
    def from_dict(cls, given: object) -> "Usage":
        """Convert the plain dict *given*; raise `InvalidInput` if it is wrong."""
        with checks.whole_is("usage"):
            return _usage(given)


_USAGE: Final = frozenset(Usage.__struct_fields__) - {"extras"}
NO_USAGE: Final = Usage()


def _new_id() -> str:
    return _ids.new("res", to_microseconds(_clock.now()))


def result_id(run_id: str, index: int) -> str:
    """Return the id of the result at *index* in the run, the same in every replay."""
    digest = sha256(f"{run_id}\0{index}".encode()).digest()
    return f"res_{base62(int.from_bytes(digest[:18]) % 62**24, 24)}"


class MessageSource(Protocol):
    """The state or thread that a result is in, or the call that it is of."""

    def sent(self, result: "InferenceResult", /) -> SentMessages:
        """Return what the call was sent; raise `HistoryGone` if a part is gone."""
        ...


class InferenceResult(Struct, frozen=True, kw_only=True, dict=True):
    """The result of one call of an agent: input, output, tool results, usage.

    What the call was sent is no part of it: `prompt` and `history` are taken from its state or
    thread, by the references in `seen`.

    >>> from holdfast import InferenceResult, messages
    >>> InferenceResult(agent="writer", output=[messages.assistant("Done.")]).text
    'Done.'
    """

    agent: str
    input: str = ""
    seen: Seen | None = None
    output: list[Message] = NO_ITEMS
    tool_calls: list[ToolResultMessage] = NO_ITEMS
    raw: str = ""
    # Defaults for a caller without a clock and ids; others pass both.
    id: str = field(default_factory=_new_id)
    created_at: datetime = field(default_factory=_clock.now)
    stop_reason: str = "done"
    usage: Usage = NO_USAGE
    run_id: str | None = None
    index: int | None = None
    model: str | None = None
    error: dict[str, JSON] | None = None
    extras: dict[str, JSON] = NO_EXTRAS

    def __post_init__(self) -> None:
        checks.text("agent", self.agent, least=1)
        checks.text("id", self.id, least=1)
        checks.text("input", self.input)
        checks.text("raw", self.raw)
        checks.text("stop_reason", self.stop_reason)
        if self.seen is not None and not isinstance(self.seen, Seen):  # pyright: ignore[reportUnnecessaryIsInstance] - a dict
            force_setattr(self, "seen", checks.read_as("seen", seen, self.seen))
        if self.output is not NO_ITEMS:
            force_setattr(self, "output", checks.items("output", self.output, message))
        if self.tool_calls is not NO_ITEMS:
            force_setattr(
                self, "tool_calls", checks.items("tool_calls", self.tool_calls, _returned)
            )
        force_setattr(self, "created_at", to_milliseconds("created_at", self.created_at))
        if not isinstance(self.usage, Usage):  # pyright: ignore[reportUnnecessaryIsInstance] - a dict
            force_setattr(self, "usage", checks.read_as("usage", _usage, self.usage))
        checks.text_or_none("run_id", self.run_id)
        checks.whole_or_none("index", self.index)
        checks.text_or_none("model", self.model)
        if self.error is not None:
            force_setattr(self, "error", _error(self.error))
        if self.extras is not NO_EXTRAS:
            force_setattr(self, "extras", checks.extra_members(self.extras, _RESULT | {"checksum"}))

    @property
    def prompt(self) -> list[Message]:
        """What the call was sent first: system text, opening, input.

        Raise `HistoryGone` if a part of it was forgotten.
        """
        return self._sent()[0]

    @property
    def history(self) -> list[Message]:
        """The earlier messages that the call was sent.

        Raise `HistoryGone` if a part of them was forgotten.
        """
        return self._sent()[1]

    def _sent(self) -> SentMessages:
        source = source_of(self)
        if source is not None:
            return source.sent(self)
        return sent_by(self, (), None)

    @property
    def text(self) -> str:
        """All texts of the assistant, with a blank line between them."""
        texts = (text_of(each) for each in self.output if each.role == "assistant")
        return "\n\n".join(each for each in texts if each)

    @property
    def key(self) -> str:
        """Its id, which is unique."""
        return self.id

    @property
    def checksum(self) -> str:
        """`sha256:` and the hash of its canonical JSON."""
        return checksum_of(canonical_of(self))

    def replace(self, **changes: Any) -> "InferenceResult":
        """Return a copy with *changes* made to it."""
        return bound(replace(self, **changes), source_of(self))

    def export(self) -> dict[str, JSON]:
        """Return it as a plain dict with its checksum, which `from_dict` reads."""
        return cast("dict[str, JSON]", json_values.decode(encoded_result(self)))

    @classmethod
    def from_dict(cls, given: object, *, verify: bool = True) -> "InferenceResult":
        """Convert *given*, a dict from `export`, to a result.

        With *verify*, raise `ChecksumMismatch` if its checksum is not that of its other members.
        Raise `InvalidInput`, with the place, for a wrong member.
        """
        with checks.whole_is("result"):
            return result_of(given, verify=verify)


_RESULT: Final = frozenset(InferenceResult.__struct_fields__) - {"extras"}


def source_of(result: InferenceResult) -> MessageSource | None:
    """Return where the messages are that *result* refers to, or None."""
    return result.__dict__.get("source")


def bound(result: InferenceResult, source: MessageSource | None) -> InferenceResult:
    """Take *source* for the messages that *result* refers to; return *result*.

    It is no field: two results are equal wherever they are.
    """
    cast("dict[str, Any]", result.__dict__)["source"] = source
    return result


def sent_by(
    result: InferenceResult, others: Iterable[InferenceResult], shown: Sequence[Message] | None
) -> SentMessages:
    """Return what *result*'s call was sent.

    Texts may be in *others*; *shown* are the messages of earlier results, None if these are not at
    hand. Raise `HistoryGone` if a part is gone.
    """
    seen = result.seen
    if seen is None:
        return [], []
    if shown is None and not seen.alone:
        raise HistoryGone(result.id)
    text = finder(result, others)
    sent = restored(seen, base_of(seen, result.input, text, shown or ()), text)
    if digest_of(sent) != seen.digest:
        raise HistoryGone(result.id)
    return sent[: seen.prompt], sent[seen.prompt :]


def memo(result: InferenceResult, name: str, make: Callable[[], T]) -> T:
    """Return what is remembered of *result* as *name*, made if it is not there.

    It is derived from the fields, which never change.
    """
    known = remembered(result)
    return known[name] if name in known else known.setdefault(name, make())


def remembered(result: InferenceResult) -> dict[str, Any]:
    """Return what `memo` remembers of *result*, by name."""
    return cast("dict[str, Any]", result.__dict__).setdefault("memo", {})


def copied(result: InferenceResult) -> InferenceResult:
    """Return a copy of *result*, which shares what is remembered of it."""
    made = copy(result)
    cast("dict[str, Any]", made.__dict__)["memo"] = remembered(result)
    return made


def finder(result: InferenceResult, others: Iterable[InferenceResult]) -> Find:
    """Return a function that finds a text by its hash, in *result* or in *others*."""

    def text(name: str) -> Sequence[Message]:
        for each in (result, *others):
            if each.seen is not None and name in each.seen.texts:
                return each.seen.texts[name]
        raise HistoryGone(result.id)

    return text


def text_of(given: Message) -> str:
    """Return the text of *given*; "" for calls of tools and their results."""
    if not isinstance(given, TextMessage):
        return ""
    if isinstance(given.content, str):
        return given.content
    return "".join(cast("str", part["text"]) for part in given.content)


def result_wire(result: InferenceResult) -> dict[str, Any]:
    """Return the members of *result* as they are written, without its checksum.

    They are not copied: encode them, do not return them to a caller.
    """
    wire = asdict(result)
    extras = wire.pop("extras")
    for name in _MESSAGES:
        if wire[name] is not NO_ITEMS:
            wire[name] = [wire_of(each) for each in wire[name]]
    wire["created_at"] = to_text(result.created_at)
    wire["usage"] = _usage_wire(result.usage)
    if result.seen is not None:
        wire["seen"] = seen_wire(result.seen)
    return wire | extras if extras else wire


def encoded_result(result: InferenceResult) -> bytes:
    """Return the JSON of *result* with its checksum."""
    wire = result_wire(result)
    wire["checksum"] = checksum_of(_canonical(wire))
    return _encode(wire)


def canonical_of(result: InferenceResult) -> bytes:
    """Return the canonical JSON of *result*, without its checksum.

    It is as long as any compact JSON of it.
    """
    return _canonical(result_wire(result))


def size_of(result: InferenceResult) -> int:
    """Return the bytes of *result* as JSON; with its checksum if it was stored."""
    return memo(result, "size", lambda: len(canonical_of(result)))


def checksum_of(canonical: bytes) -> str:
    """Return the checksum of the canonical JSON of a result."""
    return f"sha256:{sha256(canonical).hexdigest()}"


def result_of(given: object, *, verify: bool) -> InferenceResult:
    """Return *given*, a result or its plain dict, as a result.

    `InvalidInput` names the wrong member.
    """
    if isinstance(given, InferenceResult):
        return given
    result, stored = read_result(given)
    if verify and stored is not None:
        check_sum(result, stored, canonical_of(result))
    return result


def read_result(given: object) -> tuple[InferenceResult, str | None]:
    """Return the result of the plain dict *given*, and the checksum in it, if any."""
    if not isinstance(given, dict):
        raise InvalidInput(HERE, "must be a result or an object", given=given)
    found = dict(cast("dict[str, Any]", given))
    stored = checks.text_or_none("checksum", found.pop("checksum", None))
    if found.keys() & _COPIED:
        stored = None if stored == checksum_of(_canonical(found)) else stored
        copied = Seen.copied(*(found.pop(name, ()) for name in _COPIED))
        if found.setdefault("seen", copied) is not copied:
            raise InvalidInput("seen", "must not be given together with prompt or history")
    if isinstance(found.get("created_at"), str):
        found["created_at"] = from_text("created_at", found["created_at"])
    return checks.made(InferenceResult, checks.gathered(found, _RESULT), ("agent",)), stored


def check_sum(result: InferenceResult, stored: str, canonical: bytes) -> None:
    """Raise `ChecksumMismatch` unless *stored* is the checksum of *canonical*.

    *canonical* is the JSON of *result*.
    """
    computed = checksum_of(canonical)
    if stored != computed:
        raise ChecksumMismatch(result.id, stored=stored, computed=computed)


def _usage_wire(usage: Usage) -> dict[str, Any]:
    wire: dict[str, Any] = {
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "tool_calls": usage.tool_calls,
        "details": usage.details,
    }
    return wire if usage.extras is NO_EXTRAS else wire | usage.extras


def _returned(given: object) -> ToolResultMessage:
    returned = message(given)
    if not isinstance(returned, ToolResultMessage):
        raise InvalidInput("type", "must be 'tool_result'", given=returned.type)
    return returned


def _details(given: object) -> dict[str, int]:
    details = checks.members(given)
    for name, each in details.items():
        checks.whole(f"details.{name}", each)
    return ReadOnlyDict(details) if details else _NO_DETAILS


def _usage(given: object) -> Usage:
    if isinstance(given, Usage):
        return given
    return checks.made(Usage, checks.gathered(checks.members(given), _USAGE), ())


def _error(given: object) -> dict[str, JSON]:
    error = kept(given, "error")
    if not isinstance(error, dict):
        raise InvalidInput("error", "must be an object", given=error)
    for name in ("name", "message"):
        checks.text(f"error.{name}", error.get(name))
    return error
