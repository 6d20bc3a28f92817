"""Extract items from a conversation with a model."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from itertools import islice
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.errors import InvalidInput
from holdfast.ground.secrets import redact
from holdfast.ground.text import to_nfc
from holdfast.memories.longterm.context import Extractor, MiningWish
from holdfast.memories.longterm.records import NONE, Item, Kind, Role, Turn
from holdfast.memories.longterm.vectors.embedder import (
    EXTRA,
    SECONDS,
    Keys,
    ModelThread,
    checked_model,
    installed,
    is_of_agents,
    missing_key,
    provider_of,
)

if TYPE_CHECKING:
    from pydantic_ai.models import Model


MOST_CHARACTERS: Final = 12_000
"""Characters of one rendered conversation; a longer one is split into several requests."""
MOST_ITEMS: Final = 8
MOST_EXISTING: Final = 10
MOST_TEXT: Final = 4_096
"""Bytes of an item's text."""

_KEPT_OF_LONG: Final = 5_900
_MOST_SPEAKER: Final = 100
_MARK: Final = 16
_LONGEST_ESCAPE: Final = 5
_MOST_ANSWER: Final = 1_048_576
_MOST_TRIES: Final = 256
_NEWLINE = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\0": " "})
_BEGINNING = re.compile(r"[\[{]")
_KINDS: Final[dict[str, Kind]] = {kind: kind for kind in get_args(Kind)}

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class UnreadableAnswer(ValueError):
    """The response of a model holds no list of items."""


class ExtractionTurn(Struct, frozen=True, kw_only=True):
    """A turn as sent to an extractor."""

    ref: str
    role: Role
    speaker: str | None
    text: str


class ExistingItem(Struct, frozen=True, kw_only=True):
    """A stored item as sent to an extractor."""

    ref: str
    kind: Kind
    text: str


class ExtractionRequest(Struct, frozen=True, kw_only=True):
    """The request to an extractor.

    `conversation` has the turns as text. No secret is in it.
    """

    instructions: str
    turns: tuple[ExtractionTurn, ...]
    existing: tuple[ExistingItem, ...]
    conversation: str
    max_items: int = MOST_ITEMS


class ConversationChunk(Struct, frozen=True, kw_only=True):
    """Turns of a conversation that fit one request, as stored and as sent."""

    turns: tuple[Turn, ...]
    shown: tuple[ExtractionTurn, ...]
    conversation: str


class ExtractedItem(Struct, frozen=True, kw_only=True):
    """An item as a model returned it.

    `turns` and `supersedes` are positions in the request's lists. `outcome` is set if the response
    alone shows that the item is not to be stored.
    """

    text: str
    kind: Kind
    importance: float
    turns: tuple[int, ...]
    supersedes: tuple[int, ...]
    outcome: Literal["unconfirmed", "over_limit"] | None = None


def parts(turns: Iterable[Turn]) -> Iterator[ConversationChunk]:
    """Split *turns*, oldest first, into chunks that each fit one request.

    No turn is dropped.
    """
    taken: list[tuple[Turn, ExtractionTurn, str]] = []
    size = 0
    for turn in turns:
        # What an agent wrote in the place of a user is no statement of the user.
        role: Role = "assistant" if turn.tier == "assistant" else turn.role
        speaker = redact(turn.speaker) if turn.speaker else None
        text = redact(turn.text)
        rendered = _rendered(role, speaker, text)
        # The reference before a turn: brackets, a letter, digits and a space.
        more = len(f"[t{len(taken) + 1}] ") + len(rendered) + 1
        if taken and size + more > MOST_CHARACTERS + 1:
            yield _part(taken)
            taken, size = [], 0
        ref = f"t{len(taken) + 1}"
        shown = ExtractionTurn(ref=ref, role=role, speaker=speaker, text=text)
        taken.append((turn, shown, f"[{ref}] {rendered}"))
        size += len(taken[-1][2]) + 1
    if taken:
        yield _part(taken)


def request(part: ConversationChunk, existing: Iterable[Item] = ()) -> ExtractionRequest:
    """Return the request for *part*.

    *existing* are the live items nearest to it, of which the first ten are sent.
    """
    return ExtractionRequest(
        instructions=instructions(),
        turns=part.shown,
        existing=tuple(
            ExistingItem(ref=f"e{place}", kind=item.kind, text=redact(item.text))
            for place, item in enumerate(islice(existing, MOST_EXISTING), 1)
        ),
        conversation=part.conversation,
    )


@cache
def instructions() -> str:
    """Return the instructions that every extractor gets."""
    place = files("holdfast.memories.longterm").joinpath("extract.md")
    return place.read_text(encoding="utf-8").strip()


def candidates(answer: str, sent: ExtractionRequest) -> tuple[ExtractedItem, ...]:
    """Parse the items of *answer*, the response to *sent*.

    An entry without text, or without a text that an item can have, is left out. The first 8 are
    used; the others get the outcome `over_limit`. Raise `UnreadableAnswer` if there is no list.
    """
    if len(answer) > _MOST_ANSWER:
        raise UnreadableAnswer(f"more than {_MOST_ANSWER:,} characters")
    given = [each for entry in _entries(answer) if (each := _candidate(entry, sent))]
    over = [replace(each, outcome="over_limit") for each in given[sent.max_items :]]
    return (*given[: sent.max_items], *over)


def _part(taken: Iterable[tuple[Turn, ExtractionTurn, str]]) -> ConversationChunk:
    turns, shown, lines = zip(*taken, strict=True)
    return ConversationChunk(turns=turns, shown=shown, conversation="\n".join(lines))


def _rendered(role: str, speaker: str | None, text: str) -> str:
    """Render a turn on one line.

    Of a text too long for a request, its beginning and its end are rendered.
    """
    said = _escaped(text)
    who = role
    if speaker:
        name = _escaped(speaker)
        who = f"{role} ({name[: _edge(name, _MOST_SPEAKER)]})"
    if len(who) + len(said) + _MARK <= MOST_CHARACTERS:
        return f"{who}: {said}"
    head, tail = _edge(said, _KEPT_OF_LONG), _edge(said, len(said) - _KEPT_OF_LONG, after=True)
    return f"{who}: {said[:head]} […{tail - head} characters left out…] {said[tail:]}"


def _escaped(text: str) -> str:
    return _NEWLINE.sub(r"\\n", text.translate(_ESCAPES))


def _edge(escaped: str, place: int, *, after: bool = False) -> int:
    """Return *place* in *escaped*, moved if needed so that it cuts no escape.

    It moves to the nearest place before, or with *after* to the nearest after it.
    """
    if place >= len(escaped):
        return len(escaped)
    start = escaped.rfind("&", max(0, place - _LONGEST_ESCAPE + 1), place)
    end = escaped.find(";", start) + 1 if start >= 0 else place
    if end <= place:
        return place
    return end if after else start


def _entries(answer: str) -> list[Json]:
    """Return the list in *answer*: the first that decodes, of objects if there is one."""
    decoder, other = json.JSONDecoder(), None
    for tries, found in enumerate(_BEGINNING.finditer(answer)):
        if tries == _MOST_TRIES:
            break
        try:
            value: Json = decoder.raw_decode(answer, found.start())[0]
        except (ValueError, RecursionError):
            continue
        listed = value.get("items") if isinstance(value, dict) else value
        if isinstance(listed, list):
            if not listed or any(isinstance(each, dict) for each in listed):
                return listed
            other = listed if other is None else other
    if other is None:
        raise UnreadableAnswer("no list of items")
    return other


def _candidate(entry: Json, sent: ExtractionRequest) -> ExtractedItem | None:
    """Parse one *entry* of a response.

    Return None if it is not an object, or has no text that an item can have.
    """
    text = _text(entry.get("text")) if isinstance(entry, dict) else None
    if text is None or not isinstance(entry, dict):
        return None
    users = [place for place, turn in enumerate(sent.turns) if turn.role == "user"]
    known = _places(entry.get("turns"), [turn.ref for turn in sent.turns])
    turns = known or users
    return ExtractedItem(
        text=text,
        kind=_kind(entry.get("kind")),
        importance=_importance(entry.get("importance")),
        turns=tuple(turns),
        supersedes=tuple(_places(entry.get("supersedes"), [each.ref for each in sent.existing])),
        outcome=None if set(turns) & set(users) else "unconfirmed",
    )


def _text(given: Json) -> str | None:
    """Return *given* as the text of an item, or None."""
    if not isinstance(given, str):
        return None
    text = to_nfc(given).strip()
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return None
    return text if "\0" not in text and size <= MOST_TEXT else None


def _kind(given: Json) -> Kind:
    return _KINDS.get(given, "fact") if isinstance(given, str) else "fact"


def _importance(given: Json) -> float:
    """Return *given* within 0 to 1, or 0.5 if it is not a number."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return 0.5
    return 0.5 if isinstance(given, float) and isnan(given) else float(min(max(given, 0), 1))


def _places(given: Json, refs: list[str]) -> list[int]:
    """Return the positions in *refs* of those that *given* lists.

    Each is returned once, in the order of *refs*.
    """
    named = set[str]()
    if isinstance(given, list):
        named = {each.strip() for each in given if isinstance(each, str)}
    return [place for place, ref in enumerate(refs) if ref in named]


Make = Callable[[ModelThread], "Model"]


FUNCTION: Final = "function"
"""Name of an extractor that is a caller's own function."""
_CHARACTERS_A_TOKEN: Final = 4


class ModelAnswer(str):
    """The response of a model, with the tokens in all and those of the response."""

    __slots__ = ("output_tokens", "tokens")
    tokens: int
    output_tokens: int

    def __new__(cls, text: str, tokens: int, output_tokens: int = 0) -> Self:
        """Return *text* with its numbers of tokens."""
        answer = super().__new__(cls, text)
        answer.tokens, answer.output_tokens = tokens, output_tokens
        return answer


def tokens_of(sent: ExtractionRequest, answer: str) -> int:
    """Return the tokens of *sent* and *answer*, counted by the model or estimated."""
    counted = answer.tokens if isinstance(answer, ModelAnswer) else 0
    size = len(sent.instructions) + len(prompt(sent)) + len(answer)
    return counted or -(-size // _CHARACTERS_A_TOKEN)


def output_tokens_of(answer: str) -> int:
    """Return the tokens of *answer*, counted by the model or estimated."""
    counted = answer.output_tokens if isinstance(answer, ModelAnswer) else 0
    return counted or -(-len(answer) // _CHARACTERS_A_TOKEN)


class ModelExtractor:
    """Extractor that asks a pydantic-ai model, without tools."""

    def __init__(self, make: Make, thread: ModelThread) -> None:
        self._make, self._thread = make, thread
        self._made: Model | None = None
        self._turn: object = None

    def __call__(self, request: ExtractionRequest) -> str:
        """Return the model's response to *request*."""
        # On the event loop an import would hold up all its requests, and take from their time.
        import_module("pydantic_ai")
        return self._thread.run(lambda: self._answer(request), timeout=SECONDS)

    async def _answer(self, request: ExtractionRequest) -> str:
        from pydantic_ai import Agent

        if self._made is None or self._turn is not self._thread.turn:
            self._turn = self._thread.turn
            self._made = self._make(self._thread)
        agent = Agent(self._made, instructions=request.instructions)
        done = await agent.run(prompt(request))
        return ModelAnswer(done.output, done.usage.total_tokens, done.usage.output_tokens)


def wish_of(given: object, keys: Keys, thread: ModelThread) -> MiningWish:
    """Return the extractor for a caller who gave *given*.

    *given* is a function, `provider:model`, one of pydantic-ai's models, or False or `none`. A
    model that cannot be used is no error. Raises InvalidInput for what is none of these.
    """
    if given is False or given == NONE:
        return MiningWish()
    if isinstance(given, str):
        return _by_name(given, keys, thread)
    if is_of_agents(given, "Model"):
        model = cast("Model", given)
        name = f"{model.system}:{model.model_name}"
        return MiningWish(name=name, extractor=ModelExtractor(lambda _: model, thread))
    if callable(given):
        return MiningWish(name=FUNCTION, extractor=cast("Extractor", given))
    raise InvalidInput(
        "extractor", "must be a function, provider:model, false or null", given=type(given).__name__
    )


def checked_extractor(field: str, given: object) -> str:
    """Return *given* if it is `provider:model` or `none`; else raise InvalidInput."""
    return NONE if given == NONE else checked_model(field, given)


def unusable_extractor(model: str, keys: Keys) -> str | None:
    """Return the reason why *model*, `provider:model`, cannot mine, or None.

    Nothing is imported for it.
    """
    if not installed():
        return f"{model}: {EXTRA}"
    lacking = missing_key(model, keys)
    if lacking is not None:
        return f"{model}: no key {lacking}"
    provider = model.partition(":")[0]
    return None if _is_provider(provider) else f"{model}: no provider {provider}"


_VARIANTS: Final = ("-chat", "-responses", "-decisions")


def _is_provider(name: str) -> bool:
    """Check whether pydantic-ai has a file for the provider *name*."""
    package = find_spec("pydantic_ai")
    if package is None or name.startswith("gateway/"):
        return package is not None
    for variant in _VARIANTS:
        name = name.removesuffix(variant)
    file = f"{name.replace('-', '_')}.py"
    places = package.submodule_search_locations or ()
    return any(Path(place, "providers", file).is_file() for place in places)


def prompt(request: ExtractionRequest) -> str:
    """Render the user prompt of *request*: known items, then the conversation."""
    known = "\n".join(f"[{each.ref}] {each.kind}: {_line(each.text)}" for each in request.existing)
    return (
        f"<known-items>\n{known or 'none'}\n</known-items>\n"
        f"<conversation>\n{request.conversation}\n</conversation>"
    )


_BREAKS: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def _line(text: str) -> str:
    return " ".join(text.split()).translate(_BREAKS)


def _by_name(model: str, keys: Keys, thread: ModelThread) -> MiningWish:
    checked_model("extractor", model)
    if (reason := unusable_extractor(model, keys)) is not None:
        return MiningWish(name=model, model=model, reason=reason)
    provider = model.partition(":")[0]

    def make(thread: ModelThread) -> "Model":
        from pydantic_ai.models import infer_model

        made = provider_of(provider, keys)
        thread.on_close(lambda: made.__aexit__(None, None, None))
        return infer_model(model, provider_factory=lambda _: made)

    return MiningWish(name=model, model=model, extractor=ModelExtractor(make, thread))
