"""Rules of consolidation: what to merge, supersede, promote, expire and hold.

Pure: they take items and turns as they were at one moment, and return drafts of changes. Each item
is an input of one draft at most, but for an item that supersedes several.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

from holdfast.ground.trust import RANKS, gives_orders
from holdfast.memories.longterm.recall.analyze import analyze, flags_of
from holdfast.memories.longterm.recall.dedupe import (
    ComparedText,
    negations_of,
    numbers_of,
    said,
    similarity,
)
from holdfast.memories.longterm.recall.form import form_of
from holdfast.memories.longterm.records import HoldReason, Item, Kind, Turn
from holdfast.memories.longterm.trust.rules import may_supersede

ChangeOp = Literal[
    "merge", "supersede", "promote", "expire", "hold", "edit", "create", "move", "conflict"
]

ALIKE: Final = 0.80
"""Share of terms in the same order from which on two items are merged."""
COVERED: Final = 0.6
"""Share of a statement's terms that a turn must have to repeat it."""
SESSIONS: Final = 3
DAYS: Final = 2
"""Sessions and days in which a statement must recur to be promoted."""
EVENT_AGE: Final = timedelta(days=365)
MOST_TURNS: Final = 5_000
"""The newest turns of the user that are compared for promotion."""
_TERMS: Final = range(2, 41)
_MOST_TEXT: Final = 300
_PREFERS: Final = re.compile(
    r"\b(?:like|likes|love|loves|prefer|prefers|always|usually|never|every)\b", re.IGNORECASE
)
_NAME: Final = re.compile(r"\b[A-Z][^\W\d_]+")


class ChangeAfter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a change makes: fields of the item that stays, or of a new one.

    `keep` is the id of the item that stays and supersedes the others; without it a change with a
    `text` makes a new item. `valid_to` and `held` are of the items before.
    """

    keep: str | None = None
    text: str | None = None
    kind: Kind | None = None
    importance: float | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    held: HoldReason | None = None


class ChangeDraft(Struct, frozen=True, kw_only=True):
    """A change to propose: the ids of its items, its turns, and what it makes."""

    op: ChangeOp
    items: tuple[str, ...]
    after: ChangeAfter
    reason: str
    turns: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from other drafts of the same job."""
        return self.op, *sorted(self.items or self.turns)


def drafts_of(
    items: Sequence[Item], turns: Sequence[Turn], unfounded: Iterable[str], now: datetime
) -> list[ChangeDraft]:
    """Return the changes that rules alone propose.

    *items* and *turns* are live, of no outside source; *unfounded* are the ids of mined items that
    the user's turns do not state. *now* is the moment at which they were read.
    """
    unfounded = set(unfounded)
    holds = [*_holds(items, unfounded)]
    taken = {id for draft in holds for id in draft.items}
    left = [each for each in items if each.id not in taken and not _has_ended(each, now)]
    merges = [*_merges(left)]
    kept = {draft.after.keep for draft in merges}
    taken |= {id for draft in merges for id in draft.items if id not in kept}
    left = [each for each in left if each.id not in taken]
    said_at = {turn.id: turn.at for turn in turns if turn.at is not None}
    pairs = [*_contradictions(left, said_at)]
    taken |= {id for draft in pairs for id in draft.items} | kept
    expired = [*_expiries([each for each in left if each.id not in taken], now)]
    return [*holds, *merges, *pairs, *expired, *_promotions(items, turns)]


def _has_ended(item: Item, now: datetime) -> bool:
    return item.valid_to is not None and item.valid_to <= now


def _holds(items: Sequence[Item], unfounded: set[str]) -> Iterator[ChangeDraft]:
    for item in items:
        reason: HoldReason | None = None
        if item.tier not in {"said", "confirmed"} and gives_orders(item.text):
            reason = "instruction"
        elif item.id in unfounded:
            reason = "ungrounded"
        if reason is not None:
            yield ChangeDraft(
                op="hold",
                items=(item.id,),
                turns=item.turns,
                after=ChangeAfter(held=reason),
                reason=f"It would be held today: {reason}.",
            )


# Items that say the same. Each is compared with the best of a cluster alone, so that no chain of
# small differences joins two that differ much.


class _Cluster(Struct):
    best: Item
    text: ComparedText
    others: list[Item]


def preferred(item: Item) -> tuple[int, datetime, str]:
    """Return the sort key by which one of several items is kept: tier, then newest."""
    return RANKS[item.tier], item.created_at, item.id


def _merges(items: Sequence[Item]) -> Iterator[ChangeDraft]:
    clusters: list[_Cluster] = []
    having: defaultdict[str, list[int]] = defaultdict(list)
    for item in sorted(items, key=preferred, reverse=True):
        text = said(item.text)
        counts = Counter(place for term in set(text.terms) for place in having[term])
        near = (clusters[place] for place, shared in counts.most_common() if shared)
        found = next((each for each in near if _same(each, item, text)), None)
        if found is not None:
            found.others.append(item)
            continue
        for term in set(text.terms):
            having[term].append(len(clusters))
        clusters.append(_Cluster(item, text, []))
    for each in clusters:
        if each.others:
            yield merged(each.best, each.others, reason="They say the same.")


def merged(
    best: Item, others: Sequence[Item], *, reason: str, text: str | None = None
) -> ChangeDraft:
    """Return the draft that merges *others* into *best*, or all into a new *text*."""
    every = (best, *others)
    since = [each.valid_from for each in every if each.valid_from is not None]
    after = ChangeAfter(
        keep=best.id if text is None else None,
        text=text,
        kind=best.kind,
        importance=max(each.importance for each in every),
        valid_from=min(since, default=None),
    )
    turns = tuple(dict.fromkeys(sorted(id for each in every for id in each.turns)))
    ids = tuple(each.id for each in every)
    return ChangeDraft(op="merge", items=ids, turns=turns, after=after, reason=reason)


def _same(cluster: _Cluster, item: Item, text: ComparedText) -> bool:
    best, known = cluster.best, cluster.text
    if not text.terms or (best.kind == "event") != (item.kind == "event"):
        return False
    if item.kind == "event" and _day(best.valid_from) != _day(item.valid_from):
        return False
    return (
        known.numbers == text.numbers
        and known.negations == text.negations
        and similarity(known.terms, text.terms) >= ALIKE
        and names_agree(best.text, item.text)
        and not contradict(frame_of(best.text), frame_of(item.text))
    )


def names_agree(one: str, other: str) -> bool:
    """Check whether each name in one text, a word with a capital, is in the other."""
    return not (_names(one) - {*analyze(other)}) and not (_names(other) - {*analyze(one)})


def _names(text: str) -> set[str]:
    return {term for word in _NAME.findall(text) for term in analyze(word)}


def _day(instant: datetime | None) -> object:
    return None if instant is None else instant.date()


# Items that contradict each other.


def _contradictions(items: Sequence[Item], said_at: dict[str, datetime]) -> Iterator[ChangeDraft]:
    frames: defaultdict[tuple[str, str], list[Item]] = defaultdict(list)
    found = {item.id: frame_of(item.text) for item in items}
    for item in items:
        frame = found[item.id]
        if frame is not None:
            frames[frame.key].append(item)
    for (_, attribute), among in sorted(frames.items()):
        ranked = sorted(among, key=lambda each: _evidence(each, said_at), reverse=True)
        newest = ranked[0]
        for older in ranked[1:]:
            if contradict(found[newest.id], found[older.id]):
                yield superseded(newest, older, said_at, about=attribute.split()[0])


def superseded(
    newer: Item, older: Item, said_at: dict[str, datetime], *, about: str
) -> ChangeDraft:
    """Return the draft by which *newer* supersedes *older*, or a conflict."""
    later = _evidence(newer, said_at)
    turns = tuple(dict.fromkeys((*older.turns, *newer.turns)))
    ids = (newer.id, older.id)
    equal = later[0] == _evidence(older, said_at)[0]
    if equal or not may_supersede(newer.tier, older.tier):
        why = "They were said at the same time" if equal else "The later one is less trusted"
        reason = f"Two values of one attribute ({about}). {why}, so a person decides."
        return ChangeDraft(
            op="conflict", items=ids, turns=turns, after=ChangeAfter(), reason=reason
        )
    after = ChangeAfter(keep=newer.id, valid_to=later[0])
    reason = f"A later value of the same attribute ({about})."
    return ChangeDraft(op="supersede", items=ids, turns=turns, after=after, reason=reason)


def _evidence(item: Item, said_at: dict[str, datetime]) -> tuple[datetime, int, str]:
    """Return when the item was last said, with its rank and id to break ties."""
    at = [said_at[id] for id in item.turns if id in said_at]
    first = item.valid_from or item.created_at
    return max(at, default=first), RANKS[item.tier], item.id


def _expiries(items: Sequence[Item], now: datetime) -> Iterator[ChangeDraft]:
    for item in items:
        since = item.valid_from or item.created_at
        if item.kind != "event" or item.valid_to is not None or item.access_count:
            continue
        if item.last_accessed_at is None and now - since > EVENT_AGE:
            yield ChangeDraft(
                op="expire",
                items=(item.id,),
                after=ChangeAfter(valid_to=now),
                reason="An event of over 365 days ago that was never recalled.",
            )


# Statements that recur.


class _Statement(Struct, frozen=True):
    turn: Turn
    at: datetime
    terms: frozenset[str]
    text: ComparedText

    @property
    def sitting(self) -> str:
        return self.turn.session or self.turn.thread_id or self.turn.id


def _promotions(items: Sequence[Item], turns: Sequence[Turn]) -> Iterator[ChangeDraft]:
    made = [each for turn in turns if (each := _statement(turn)) is not None]
    newest = sorted(made, key=lambda each: (each.at, each.turn.id), reverse=True)[:MOST_TURNS]
    having: defaultdict[str, list[int]] = defaultdict(list)
    for place, each in enumerate(newest):
        for term in each.terms:
            having[term].append(place)
    known = [frozenset(analyze(item.text)) for item in items]
    used: set[int] = set()
    for place, each in enumerate(newest):
        if place in used:
            continue
        counts = Counter(other for term in each.terms for other in having[term])
        wanted = COVERED * len(each.terms)
        near = [other for other, shared in sorted(counts.items()) if shared >= wanted]
        group = [newest[other] for other in near if _repeats(each, newest[other])]
        if not _recurs(group) or any(_covers(terms, each.terms) for terms in known):
            continue
        used.update(near)
        known.append(each.terms)
        yield _promotion(each, group)


def _statement(turn: Turn) -> _Statement | None:
    if turn.role != "user" or turn.tier != "said" or turn.held or turn.at is None:
        return None
    if len(turn.text) > _MOST_TEXT or form_of(turn.text, turn.caption) != "statement":
        return None
    text = said(turn.text)
    terms = frozenset(text.terms)
    if len(terms) not in _TERMS or "?" in turn.text or gives_orders(turn.text):
        return None
    return _Statement(turn, turn.at, terms, text)


def _repeats(one: _Statement, other: _Statement) -> bool:
    return (
        _covers(other.terms, one.terms)
        and other.text.numbers == one.text.numbers
        and other.text.negations == one.text.negations
    )


def _covers(terms: frozenset[str], wanted: frozenset[str]) -> bool:
    return len(terms & wanted) >= COVERED * len(wanted)


def _recurs(group: Sequence[_Statement]) -> bool:
    sittings = {each.sitting for each in group}
    days = {each.at.date() for each in group}
    return len(sittings) >= SESSIONS and len(days) >= DAYS


def _promotion(each: _Statement, group: Sequence[_Statement]) -> ChangeDraft:
    text = each.turn.text.strip()
    own = flags_of(text, None).first_person and _PREFERS.search(text)
    oldest = sorted(group, key=lambda one: (one.at, one.turn.id))
    sittings = len({one.sitting for one in group})
    return ChangeDraft(
        op="promote",
        items=(),
        turns=tuple(one.turn.id for one in oldest),
        after=ChangeAfter(
            text=text,
            kind="preference" if own else "fact",
            importance=0.5,
            valid_from=oldest[0].at,
        ),
        reason=f"The user said it in {sittings} sessions.",
    )


def guarded(draft: ChangeDraft, items: Sequence[Item]) -> bool:
    """Check that a merge into a new text keeps numbers and negations of *items*."""
    text = draft.after.text or ""
    return all(
        numbers_of(text) == numbers_of(each.text) and negations_of(text) == negations_of(each.text)
        for each in items
    )


# Frames of facts with one value at a time: where a person lives, works, what they drive. Two items
# contradict each other if they fill the same frame of the same subject with other values. A frame
# that may have several values, such as "likes", is no frame here.

USER: Final = "user"
"""The subject of a sentence about the user."""
_MOST_FRAME: Final = 300
"""Characters of a text that is read; a longer one fills no frame."""

_SUBJECT: Final = (
    r"(?:(?:the |this )?(?P<user>user|i|he|she|they)|(?P<name>[A-Z][\w'-]{1,40}))?(?:'m|'s)?\s*"
)
_OWNER: Final = (
    r"(?:(?P<user>my|his|her|their|(?:the |this )?user's)|(?P<name>[A-Z][\w-]{1,40})'s)?\s*"
)
_ADVERB: Final = r"(?:now |currently |recently |just |has |have |is |am |are )?"
_VALUE: Final = r"(?P<value>[^.;!?\n]{1,120}?)[.!]?\s*$"

_VERBS: Final = (
    ("lives", r"(?:lives?|living) in"),
    ("lives", r"(?:moved|moves|relocated) to"),
    ("works", r"(?:works?|working) (?:at|for)"),
    ("job", r"(?:works?|working) as"),
    ("named", r"(?:called|named)"),
    ("drives", r"drives?"),
    ("married", r"married to"),
)
"""Verbs of the frames; a pattern stands for one frame, and two may stand for the same."""
_FRAMES: Final = (
    *(
        (name, re.compile(rf"^\s*{_SUBJECT}{_ADVERB}(?:{verb})\s+{_VALUE}", re.IGNORECASE))
        for name, verb in _VERBS
    ),
    (
        "birthday",
        re.compile(rf"^\s*{_OWNER}birthday\s+(?:is|was)\s+(?:on\s+)?{_VALUE}", re.IGNORECASE),
    ),
    ("named", re.compile(rf"^\s*{_OWNER}name\s+is\s+{_VALUE}", re.IGNORECASE)),
    (
        "favourite",
        re.compile(
            rf"^\s*{_OWNER}favou?rite\s+(?P<noun>[^\W\d_][\w -]{{0,40}}?)\s+is\s+{_VALUE}",
            re.IGNORECASE,
        ),
    ),
)
_LATER: Final = re.compile(
    r"\b(?:until|since|from|for|because|with|and|but|while|when|after|before|now|these days)\b.*$",
    re.IGNORECASE,
)


class FrameValue(Struct, frozen=True):
    """A text's subject and attribute, and the terms of the value."""

    subject: str
    attribute: str
    value: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Subject and attribute, which have one value at a time."""
        return self.subject, self.attribute


def frame_of(text: str) -> FrameValue | None:
    """Return the frame that *text* fills, or None.

    A text that negates, asks or says more than one thing fills none.
    """
    plain = unicodedata.normalize("NFKC", text).replace("\u2019", "'").strip()
    if not plain or len(plain) > _MOST_FRAME or "?" in plain or negations_of(plain):
        return None
    for name, pattern in _FRAMES:
        found = pattern.match(plain)
        if found is None:
            continue
        value = tuple(analyze(_LATER.sub("", found["value"])))
        subject = _subject(found)
        if not value or subject is None:
            return None
        noun = found.groupdict().get("noun")
        attribute = f"{name} {' '.join(analyze(noun))}" if noun else name
        return FrameValue(subject, attribute, value)
    return None


def contradict(one: FrameValue | None, other: FrameValue | None) -> bool:
    """Check whether both fill one frame with values of which neither has the other."""
    if one is None or other is None or one.key != other.key:
        return False
    first, second = set(one.value), set(other.value)
    return not (first <= second or second <= first)


def _subject(found: re.Match[str]) -> str | None:
    """Return the subject of a match; a name must be written as one."""
    name = found["name"]
    if name is None:
        return USER
    if not name[:1].isupper():
        return None
    plain = name.casefold().removesuffix("'s")
    return USER if plain in {"i", "user", "he", "she", "they", "my"} else plain
