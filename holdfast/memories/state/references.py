"""References of a result to the messages that its call was sent.

The messages before a call are in its state or thread already. So a result says which of them were
sent, in this order: the system text, the opening, the input, the messages of earlier results. It
holds a text itself only if no earlier result does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.memories.state import message as checks
from holdfast.memories.state.frozen import ReadOnlyDict, kept
from holdfast.memories.state.message import (
    NO_EXTRAS,
    NO_ITEMS,
    Message,
    TextMessage,
    messages_of,
    wire_of,
)

Texts: TypeAlias = Mapping[str, Sequence[Message]]
"""Messages by the hash of their canonical JSON."""

SentMessages: TypeAlias = tuple[list[Message], list[Message]]
"""The prompt and the history of a call."""

_NO_TEXTS: Final[dict[str, list[Message]]] = ReadOnlyDict()
_canonical: Final = msgspec.json.Encoder(order="sorted").encode


class Seen(Struct, frozen=True, kw_only=True):
    """What a call was sent, by reference.

    `system` and `opening` are the hashes of texts that went first: the system text with the agent's
    own opening, and the opening of the state; `tail` is that of the end of the system text, which
    is another in each call. `asked` is whether the input followed. `first` and
    `last` are the ids of the oldest and the newest result of earlier runs, `own` the number of
    earlier results of the same run, `view` the options of the agent's view but its budget.
    `omitted` are the places of messages that were left out of these, each with a count; `added` are
    the places of messages of hooks among those that were sent, each with a hash. The first `prompt`
    of them are the prompt. `digest` is the SHA-256 of all as canonical JSON. `texts` are those that
    no earlier result has.
    """

    system: str | None = None
    tail: str | None = None
    opening: str | None = None
    asked: bool = False
    first: str | None = None
    last: str | None = None
    own: int = 0
    view: dict[str, JSON] = NO_EXTRAS
    omitted: list[tuple[int, int]] = NO_ITEMS
    added: list[tuple[int, str]] = NO_ITEMS
    prompt: int = 0
    digest: str = ""
    texts: dict[str, list[Message]] = _NO_TEXTS
    extras: dict[str, JSON] = NO_EXTRAS

    def __post_init__(self) -> None:
        for name in ("system", "tail", "opening", "first", "last"):
            checks.text_or_none(name, getattr(self, name))
        if type(self.asked) is not bool:
            raise InvalidInput("asked", "must be true or false", given=self.asked)
        checks.whole("own", self.own)
        checks.whole("prompt", self.prompt)
        checks.text("digest", self.digest)
        if self.view is not NO_EXTRAS:
            force_setattr(self, "view", kept(checks.members(self.view), "view"))
        if self.omitted is not NO_ITEMS:
            force_setattr(self, "omitted", checks.items("omitted", self.omitted, _omission))
        if self.added is not NO_ITEMS:
            force_setattr(self, "added", checks.items("added", self.added, _addition))
        if self.texts is not _NO_TEXTS:
            force_setattr(self, "texts", _texts(self.texts))
        if self.extras is not NO_EXTRAS:
            force_setattr(self, "extras", checks.extra_members(self.extras, _SEEN))

    @classmethod
    def copied(cls, prompt: object = (), history: object = ()) -> "Seen | None":
        """Return what holds the messages *prompt* and *history* themselves; None for none.

        >>> from holdfast import InferenceResult, messages
        >>> seen = Seen.copied([messages.user("Where?")])
        >>> InferenceResult(agent="guide", seen=seen).prompt == [messages.user("Where?")]
        True
        """
        first, then = messages_of("prompt", prompt), messages_of("history", history)
        return seen_of((), [*first, *then], prompt=len(first)) if first or then else None

    @property
    def alone(self) -> bool:
        """Whether no earlier result is needed to give the messages, unless for a text."""
        return self.first is None and self.last is None and not self.own


_SEEN: Final = frozenset(Seen.__struct_fields__) - {"extras"}
_ALWAYS: Final = ("prompt", "digest")


def seen(given: object) -> Seen:
    """Return *given*, a `Seen` or its plain dict, as one; else InvalidInput."""
    if isinstance(given, Seen):
        return given
    return checks.made(Seen, checks.gathered(checks.members(given), _SEEN), _ALWAYS)


def seen_wire(given: Seen) -> dict[str, Any]:
    """Return the members of *given* as they are written, without empty ones."""
    wire: dict[str, Any] = {
        name: value for name in _SEEN_IN_ORDER if (value := getattr(given, name)) or name in _ALWAYS
    }
    if given.texts:
        wire["texts"] = {name: [wire_of(m) for m in text] for name, text in given.texts.items()}
    return wire | given.extras if given.extras else wire


_SEEN_IN_ORDER: Final = tuple(name for name in Seen.__struct_fields__ if name != "extras")


def digest_of(messages: Iterable[Message]) -> str:
    """Return `sha256:` and the hash of *messages* as canonical JSON."""
    return f"sha256:{sha256(_canonical([wire_of(each) for each in messages])).hexdigest()}"


def seen_of(
    base: Sequence[Message],
    sent: Sequence[Message],
    *,
    prompt: int,
    texts: Texts = _NO_TEXTS,
    known: Callable[[str], bool] = lambda _: False,
    **facts: Any,
) -> Seen:
    """Return what says that *sent* was sent, of *base* and other messages.

    The first *prompt* of *sent* are the prompt. Of *texts* and the other messages those are held
    that are not *known*. *facts* are further fields.
    """
    omitted, others = _differences(base, sent)
    held, added = dict(texts), list[tuple[int, str]]()
    for place, messages in others:
        name = digest_of(messages)
        held[name] = messages
        added.append((place, name))
    return Seen(
        omitted=omitted,
        added=added,
        prompt=prompt,
        digest=digest_of(sent),
        texts={name: list(text) for name, text in held.items() if not known(name)},
        **facts,
    )


def _differences(
    base: Sequence[Message], sent: Sequence[Message]
) -> tuple[list[tuple[int, int]], list[tuple[int, list[Message]]]]:
    """Return the ranges of *base* that *sent* lacks, and by place what else it has."""
    head, tail = _same_ends(base, sent)
    end = len(base) - tail
    find = _finder(base)
    omitted: list[tuple[int, int]] = []
    others: list[tuple[int, list[Message]]] = []
    at = head
    for place in range(head, len(sent) - tail):
        message = sent[place]
        found = find(message, at)
        if found is None or found >= end:
            if others and others[-1][0] + len(others[-1][1]) == place:
                others[-1][1].append(message)
            else:
                others.append((place, [message]))
            continue
        if found > at:
            omitted.append((at, found - at))
        at = found + 1
    if at < end:
        omitted.append((at, end - at))
    return omitted, others


def _same_ends(base: Sequence[Message], sent: Sequence[Message]) -> tuple[int, int]:
    """Return how many messages both begin with, and how many more both end with."""
    # A window leaves out what is in the middle, however long that is.
    least = min(len(base), len(sent))
    head = next((at for at in range(least) if base[at] is not sent[at]), least)
    rest = range(1, least - head + 1)
    tail = next((at - 1 for at in rest if base[-at] is not sent[-at]), least - head)
    return head, tail


def _finder(base: Sequence[Message]) -> Callable[[Message, int], int | None]:
    """Return a function that finds a message, or an equal one, from a place on."""
    same: dict[int, int] = {}
    equal: dict[bytes, list[int]] = {}

    def find(message: Message, start: int) -> int | None:
        if base[start : start + 1] == [message]:
            return start
        if not same:
            same.update((id(each), place) for place, each in enumerate(base))
        found = same.get(id(message))
        if found is None:
            # Only a hook sends what is no message of the base.
            if not equal:
                for place, each in enumerate(base):
                    equal.setdefault(_canonical(wire_of(each)), []).append(place)
            places = equal.get(_canonical(wire_of(message)), ())
            return next((place for place in places if place >= start), None)
        return found if found >= start else None

    return find


Find: TypeAlias = Callable[[str], Sequence[Message]]
"""Returns the messages of a hash; raises `HistoryGone` if there are none."""


def base_of(given: Seen, input: str, text: Find, shown: Iterable[Message]) -> list[Message]:
    """Return the messages that *given* refers to, before any was left out or added.

    *shown* are those of earlier results.
    """
    base = ended(*(text(name) if name else () for name in (given.system, given.tail)))
    base += text(given.opening) if given.opening else ()
    if given.asked:
        base.append(TextMessage(role="user", content=input))
    return [*base, *shown]


def ended(system: Sequence[Message], tail: Sequence[Message]) -> list[Message]:
    """Return *system* with the text of *tail* at the end of the system text."""
    if not tail:
        return [*system]
    if not system or system[0].role != "system":
        return [*tail, *system]
    head, end = (cast("TextMessage", each[0]).content for each in (system, tail))
    return [TextMessage(role="system", content=f"{head}\n\n{end}"), *system[1:]]


def restored(given: Seen, base: Sequence[Message], text: Find) -> list[Message]:
    """Return the messages that were sent, of *base* and of the texts by hash."""
    sent: list[Message] = []
    at = 0
    for place, count in given.omitted:
        sent += base[at:place]
        at = place + count
    sent += base[at:]
    for place, name in given.added:
        sent[place:place] = text(name)
    return sent


def _omission(given: object) -> tuple[int, int]:
    place, count = _pair(given)
    return checks.whole("place", place), checks.whole("count", count)


def _addition(given: object) -> tuple[int, str]:
    place, name = _pair(given)
    return checks.whole("place", place), checks.text("text", name)


_TWO: Final = 2


def _pair(given: object) -> tuple[object, object]:
    if isinstance(given, list | tuple) and len(cast("Sequence[object]", given)) == _TWO:
        first, second = cast("Sequence[object]", given)
        return first, second
    raise InvalidInput(checks.HERE, "must be two values", given=cast("object", given))


def _texts(given: object) -> dict[str, list[Message]]:
    found = checks.members(given)
    if not found:
        return _NO_TEXTS
    return ReadOnlyDict({name: messages_of(f"texts.{name}", each) for name, each in found.items()})
