"""Sources of the messages that results refer to: earlier results of a state."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final, cast

from msgspec import Struct

from holdfast.ground.errors import HistoryGone, NotFound
from holdfast.ground.json_values import JSON
from holdfast.memories.state.history import View, WindowMessage, formatted
from holdfast.memories.state.message import Message
from holdfast.memories.state.references import (
    Seen,
    SentMessages,
    base_of,
    digest_of,
    ended,
    restored,
    seen_of,
)
from holdfast.memories.state.result import (
    InferenceResult,
    bound,
    copied,
    finder,
    sent_by,
    source_of,
    text_of,
)


def said_to(
    opening: Iterable[Message],
    results: Sequence[InferenceResult],
    *,
    agent: str,
    run_id: str | None,
    view: View,
) -> list[WindowMessage]:
    """Return what *agent* is sent in the run *run_id* of *opening* and *results*.

    The results of the run follow those of others. Its input is in none: it is sent by itself.
    """
    said = formatted(opening, results, agent=agent, view=view)
    own = {each.id: each for each in results if each.run_id == run_id}
    if not own:
        return said
    theirs: list[WindowMessage] = []
    ours: list[WindowMessage] = []
    for each in said:
        result = own.get(each.result_id or "")
        if result is None:
            theirs.append(each)
        elif not _is_input(each.message, result):
            ours.append(each)
    return theirs + ours


def _is_input(message: Message, result: InferenceResult) -> bool:
    # A note of what another agent said is a user's message too, and has its agent's name.
    return message.role == "user" and message.agent is None and text_of(message) == result.input


class Before(Struct, frozen=True, kw_only=True):
    """What a state holds before a call in the run *run_id*, as *view* shows it."""

    said: list[WindowMessage]
    results: Sequence[InferenceResult]
    run_id: str
    view: View

    def seen(
        self,
        prompt: Sequence[Message],
        history: Sequence[Message],
        *,
        system: Sequence[Message],
        tail: Sequence[Message],
        input: Message | None,
    ) -> Seen:
        """Return what says that *prompt* and *history* were sent.

        *system* is what went before the opening, but for the *tail* of the system text; *input* is
        what followed the opening.
        """
        said = self.said
        first = next((n for n, each in enumerate(said) if each.result_id is not None), len(said))
        opening = [each.message for each in said[:first]]
        shown = [each.message for each in said[first:]]
        names = {"system": system, "tail": tail, "opening": opening}
        hashes = {name: digest_of(each) for name, each in names.items() if each}
        others = [each.id for each in self.results if each.run_id != self.run_id]
        return seen_of(
            [*ended(system, tail), *opening, *([input] if input else ()), *shown],
            [*prompt, *history],
            prompt=len(prompt),
            texts={each: names[name] for name, each in hashes.items()},
            known=_known(self.results),
            **hashes,
            asked=input is not None,
            first=others[0] if others else None,
            last=others[-1] if others else None,
            own=len(self.results) - len(others),
            view=_view_wire(self.view),
        )


def _known(results: Sequence[InferenceResult]) -> Callable[[str], bool]:
    """Return a function that says whether one of *results* has the text of a hash."""

    def known(name: str) -> bool:
        return any(each.seen and name in each.seen.texts for each in reversed(results))

    return known


_SHOWING: Final = ("turns", "others", "tools", "include", "exclude")


def _view_wire(view: View) -> dict[str, JSON]:
    """Return the options of *view* that decide what it shows, without the usual ones."""
    wire: dict[str, JSON] = {}
    for name in _SHOWING:
        given: object = getattr(view, name)
        if given != getattr(_USUAL, name):
            wire[name] = cast("JSON", sorted(given) if isinstance(given, frozenset) else given)  # pyright: ignore[reportUnknownArgumentType] - names
    return wire


_USUAL: Final = View()


class Earlier:
    """The results of a state before one of them: the source of what that one was sent.

    Each refers to the one before it, so all results of a state together hold each once.
    """

    __slots__ = ("before", "newest")

    def __init__(self, newest: InferenceResult, before: "Earlier | None") -> None:
        self.newest, self.before = newest, before

    def results(self) -> list[InferenceResult]:
        """Return them, oldest first."""
        found: list[InferenceResult] = []
        at: Earlier | None = self
        while at is not None:
            found.append(at.newest)
            at = at.before
        found.reverse()
        return found

    def sent(self, result: InferenceResult, /) -> SentMessages:
        """Return what the call was sent; raise `HistoryGone` if a part is gone."""
        return sent_after(self.results(), result)


def after(before: Earlier | None, result: InferenceResult) -> tuple[InferenceResult, Earlier]:
    """Return *result* with its source, and the source of the next one.

    A result that is in another state already is copied.
    """
    given = copied(result) if isinstance(source_of(result), Earlier) else result
    return bound(given, before), Earlier(given, before)


def in_order(results: Iterable[InferenceResult]) -> tuple[list[InferenceResult], Earlier | None]:
    """Return *results* with their sources, and the source of the next one."""
    made: list[InferenceResult] = []
    newest: Earlier | None = None
    for each in results:
        given, newest = after(newest, each)
        made.append(given)
    return made, newest


class OfThread:
    """The results of a thread, loaded when needed: the source of what one was sent."""

    __slots__ = ("_load",)

    def __init__(self, load: Callable[[], Sequence[InferenceResult]]) -> None:
        self._load = load

    def sent(self, result: InferenceResult, /) -> SentMessages:
        """Return what the call was sent; raise `HistoryGone` if a part is gone."""
        try:
            found = self._load()
        except NotFound as error:
            raise HistoryGone(result.id) from error
        places = (place for place, each in enumerate(found) if each.id == result.id)
        return sent_after(found[: next(places, len(found))], result)


class OfCall:
    """What one call was sent: the source of its result until that is in a state."""

    __slots__ = ("_history", "_prompt")

    def __init__(self, prompt: Sequence[Message], history: Sequence[Message]) -> None:
        self._prompt, self._history = prompt, history

    def sent(self, result: InferenceResult, /) -> SentMessages:
        """Return the prompt and the history."""
        del result
        return list(self._prompt), list(self._history)


def sent_after(earlier: Sequence[InferenceResult], result: InferenceResult) -> SentMessages:
    """Return what the call of *result* was sent, with *earlier* results before it.

    Raise `HistoryGone` if a part is gone.
    """
    return sent_by(result, earlier, _shown(earlier, result))


def _shown(earlier: Sequence[InferenceResult], result: InferenceResult) -> list[Message]:
    """Return the messages of *earlier* results as the call of *result* was shown them."""
    seen = result.seen
    if seen is None or seen.alone:
        return []
    places = {each.id: place for place, each in enumerate(earlier)}
    if not {seen.first, seen.last} <= {None, *places}:
        raise HistoryGone(result.id)
    most = -1 if seen.last is None else places[seen.last]
    least = 0 if seen.first is None else places[seen.first]
    own = count()
    sent = [
        each
        for place, each in enumerate(earlier)
        if (next(own) < seen.own if each.run_id == result.run_id else least <= place <= most)
    ]
    view = View(**cast("Mapping[str, Any]", seen.view))
    said = said_to((), sent, agent=result.agent, run_id=result.run_id, view=view)
    return [each.message for each in said]


_FIRST: Final = ("system", "tail", "opening")


def restated(
    result: InferenceResult, change: Callable[[Message], Message | None]
) -> InferenceResult:
    """Return *result* as if each message that it was sent had been changed.

    A message that *change* returns None for is removed.
    """
    seen, source = result.seen, source_of(result)
    if seen is None:
        return result
    earlier = source.results() if isinstance(source, Earlier) else []
    text = finder(result, earlier)
    base = base_of(seen, result.input, text, _shown(earlier, result))
    sent = restored(seen, base, text)
    changed = {id(each): change(each) for each in (*base, *sent)}
    if all(changed[id(each)] is each for each in sent):
        return result

    def left(messages: Iterable[Message]) -> list[Message]:
        return [now for m in messages if (now := changed.setdefault(id(m), change(m))) is not None]

    before = {name: given for name in _FIRST if (given := getattr(seen, name))}
    blocks = {name: left(text(given)) for name, given in before.items()}
    hashes = {name: digest_of(each) for name, each in blocks.items() if each}
    if seen.tail:
        # The system text is of two parts, each changed by itself.
        whole = ended(blocks.get("system", []), blocks["tail"])
        changed[id(base[0])] = whole[0] if whole else None
    made = seen_of(
        left(base),
        left(sent),
        prompt=len(left(sent[: seen.prompt])),
        # A text that an earlier result had was changed and kept with that one.
        texts={each: blocks[n] for n, each in hashes.items() if before[n] in seen.texts},
        known=_known(earlier),
        **{name: getattr(seen, name) for name in ("asked", "first", "last", "own", "view")},
        **hashes,
    )
    return result.replace(seen=made)
