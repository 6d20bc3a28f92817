"""Records of long-term memory: items, turns, options, wire form.

An item is a fact about a user in one sentence; a turn is one literal message.
"""

import hmac
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from math import isfinite
from typing import Any, Final, Literal, TypeVar, cast

import msgspec
from msgspec import Struct

from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import InvalidInput, shortened
from holdfast.ground.trust import Tier
from holdfast.ground.validation import check_whole, is_number

Kind = Literal["fact", "preference", "decision", "event"]
Origin = Literal["api", "tool", "extraction", "import"]
Role = Literal["user", "assistant"]
Outcome = Literal[
    "stored",
    "duplicate",
    "secret",
    "blank",
    "forgotten",
    "unconfirmed",
    "over_limit",
    "ungrounded",
    "held",
]
RECALLED_TIERS: Final[tuple[Tier, ...]] = ("said", "confirmed", "assistant", "imported")
"""The tiers that a recall returns unless others are named."""
TURN_TIERS: Final[tuple[Tier, ...]] = ("said", "assistant", "outside", "imported")
TIER_OF_ROLE: Final[Mapping[str, Tier]] = {"user": "said", "assistant": "assistant"}
TIER_OF_ORIGIN: Final[Mapping[str, Tier]] = {
    "api": "said",
    "tool": "assistant",
    "extraction": "confirmed",
    "import": "imported",
}
HoldReason = Literal["ungrounded", "instruction", "echo", "burst", "canary"]
SkipReason = Literal["role", "blank", "seen", "secret", "forgotten"]
Mode = Literal["lexical", "hybrid", "re-embedding"]
What = Literal["all", "items", "turns"]
ExtractorState = Literal["none", "ready", "waiting", "failing"]
Why = Mapping[str, object]
NONE: Final = "none"
"""Name of no extractor."""


class Item(Struct, frozen=True, kw_only=True):
    """A fact about a user.

    `turns` are the ids of the turns it came from, oldest first; `origin` is the kind of writer,
    which decides how far it is trusted. A superseded one is stored, and not recalled.

    `tier` is who stands behind it; `held` is why it waits for a person and is not recalled, None
    if it does not. `flags` are bits: 1 asks, 2 first person, 4 names a time, 32 gives orders to a
    machine. `origin_ref` names the source of an item from outside. It was true from `valid_from`
    until `valid_to`, None if it still is.
    """

    id: str
    text: str
    kind: Kind
    importance: float
    origin: Origin
    source: str
    turns: tuple[str, ...]
    supersedes: tuple[str, ...]
    superseded_by: str | None
    superseded_at: datetime | None
    created_at: datetime
    updated_at: datetime
    last_accessed_at: datetime | None
    access_count: int
    tier: Tier = "said"
    flags: int = 0
    held: HoldReason | None = None
    origin_ref: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None


class Turn(Struct, frozen=True, kw_only=True):
    """One message of a conversation. To record one, role and text are enough.

    `at` is when it was said, by default now; `session` names one sitting, by default the thread;
    `caption` describes an image, is searched, and is not part of the text. `id`, `created_at` and
    `items`, the ids of the items that came from it, are set by long-term memory.

    `tier` is who stands behind it, by default by the role; `by` is the id of the user who spoke,
    where it may be another one than the collection's; `origin_ref` names the source of a turn of
    tier "outside", such as a tool result or a web page. `held` is why it waits for a person and is
    not recalled, None if it does not.
    """

    role: Role
    text: str
    speaker: str | None = None
    at: datetime | None = None
    session: str | None = None
    thread_id: str | None = None
    caption: str | None = None
    tier: Tier | None = None
    by: str | None = None
    origin_ref: str | None = None
    held: HoldReason | None = None
    id: str = ""
    items: tuple[str, ...] = ()
    created_at: datetime | None = None


class Recalled(Struct, frozen=True, kw_only=True):
    """One result of a recall, and why it matches. Numbers are 0 to 1.

    Either `item` or `turn` is None; `neighbours` are the turns before and after it in its
    session, for a turn. `also` are the ids of rows that say the same and were left out for it, at
    most 20; their number is in `why["also"]`.
    """

    item: Item | None
    turn: Turn | None
    score: float
    similarity: float
    relevance: float
    recency: float
    importance: float
    neighbours: tuple[Turn | None, Turn | None] | None
    why: Why
    also: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show text, score and reason in a line; the attributes have the rest."""
        found = self.item or self.turn
        text = shortened(" ".join(found.text.split())) if found else None
        reason = shortened(self.why.get("text", ""))
        return f"Recalled({text!r}, score={self.score:.2f}, why={reason!r})"

    @property
    def id(self) -> str:
        """The id of the item or turn."""
        return _found(self).id

    @property
    def text(self) -> str:
        """The text of the item or turn."""
        return _found(self).text

    @property
    def tier(self) -> Tier:
        """Who stands behind the item or turn."""
        return _found(self).tier or "said"


SuppressReason = Literal["phatic", "general", "at_hand", "echo", "duplicate", "noise", "tier"]


class Suppressed(Struct, frozen=True):
    """How many rows a recall left out for one reason.

    `phatic`, `at_hand`: the query recalls nothing, 1 for the query; `general`: rows that hold too
    few words of a query about no person; `echo`: turns that are the query itself; `duplicate`:
    rows that say the same as another; `noise`: turns that are no statement; `tier`: rows of a
    source that was not wanted.
    """

    reason: SuppressReason
    count: int


class RecallResult(list[Recalled]):
    """The results of a recall, best first, and what was left out.

    `suppressed` is filled if the recall was made with `explain=True`.
    """

    def __init__(
        self, results: Iterable[Recalled] = (), suppressed: Iterable[Suppressed] = ()
    ) -> None:
        super().__init__(results)
        self.suppressed = tuple(suppressed)


def _found(recalled: Recalled) -> Item | Turn:
    found = recalled.item or recalled.turn
    if found is None:
        raise ValueError("a Recalled holds an item or a turn")
    return found


class Remembered(Struct, frozen=True, kw_only=True):
    """The result of remembering: the stored item, or None and the reason.

    `reasons` are the kinds of secret in the text, for which it was refused or which were redacted;
    `evicted` are the ids of items that were evicted for it.
    """

    stored: Item | None
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()


class Skipped(Struct, frozen=True):
    """A turn of a batch that was not recorded, by its place, and why."""

    index: int
    reason: SkipReason


class Recorded(Struct, frozen=True, kw_only=True):
    """The result of recording: stored and skipped turns, and whether mining is queued.

    `evicted` are the ids of turns that were evicted for them.
    """

    turns: tuple[Turn, ...]
    skipped: tuple[Skipped, ...] = ()
    queued: bool = False
    evicted: tuple[str, ...] = ()


class Flushed(Struct, frozen=True, kw_only=True):
    """The state of background work: whether it is done, and its results."""

    done: bool
    results: tuple[Remembered, ...] = ()
    pending: int = 0
    failed: int = 0


class ForgetResult(Struct, frozen=True, kw_only=True):
    """The ids of forgotten items and turns; false if there were none."""

    items: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.items or self.turns)


class Cleared(Struct, frozen=True, kw_only=True):
    """How many items and turns were cleared."""

    items: int = 0
    turns: int = 0


class Imported(Struct, frozen=True, kw_only=True):
    """The result of an import: the numbers of stored and of skipped records.

    `rejected` lists records that could not be imported, by their place, and why; `evicted` are the
    ids of items and turns that were evicted for them. Of foreign records `duplicates` are known by
    their id or text, `held` of the stored ones wait for a person, and `queued` turns are mined.
    """

    items: int = 0
    turns: int = 0
    skipped: int = 0
    duplicates: int = 0
    held: int = 0
    queued: int = 0
    rejected: tuple["RejectedRecord", ...] = ()
    evicted: tuple[str, ...] = ()


class RejectedRecord(Struct, frozen=True):
    """A record that was not imported, by its place, and why."""

    index: int
    reason: str


class LongTermStatus(Struct, frozen=True, kw_only=True):
    """Status of a collection: mode of recall, sizes, pending jobs, mining.

    `embedding_model` is the chosen one; `mode` and `reason` say whether it works. `extractor` mines
    the turns: it is `ready`, `waiting` for a key, an extra or the next day's budget, or `failing`.
    `unmined` turns were queued by no job; `held` rows wait for a person.
    """

    mode: Mode
    reason: str | None
    embedding_model: str | None
    vector_provider: str | None
    items: int
    superseded: int
    turns: int
    pending_extraction: int
    pending_embedding: int
    failed: int
    max_items: int
    extractor: str | None = None
    extractor_state: ExtractorState = "none"
    extractor_reason: str | None = None
    mined_at: datetime | None = None
    held: int = 0
    unmined: int = 0


class Person(Struct, frozen=True, kw_only=True):
    """A collection of a user: its names, how much it holds, and when it last grew.

    `items` are those that are not superseded, `last_at` is the creation of the newest row.
    """

    user: str
    namespace: str
    workspace_id: str | None
    items: int
    turns: int
    last_at: datetime | None


R = TypeVar("R", bound=Struct)
Wire = dict[str, Any]


def to_wire(record: Struct) -> Wire:
    """Return *record* as the JSON object of the wire."""
    members = {name: _plain(getattr(record, name)) for name in record.__struct_fields__}
    if isinstance(record, Recalled):
        return {"id": record.id, "text": record.text, **members}
    return members


def from_wire(make: type[R], wire: object) -> R:
    """Convert *wire* to *make*; raise `msgspec.ValidationError` if it does not fit."""
    return msgspec.convert(wire, make)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return to_rfc3339(value)
    if isinstance(value, Struct):
        return to_wire(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in cast("tuple[object, ...]", value)]
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in cast("Mapping[str, object]", value).items()}
    return value


SECRET_BYTES: Final = 32
HASH_BYTES: Final = 8
MOST_TERMS: Final = 1_024
"""Terms of one text that are hashed; an item has fewer."""
ALIKE: Final = 0.6
"""The share of common terms (Jaccard) from which on two texts count as the same."""


def new_secret() -> bytes:
    """Return a random key for the hashes of a workspace."""
    return secrets.token_bytes(SECRET_BYTES)


def hashed(secret: bytes, text: str) -> bytes:
    """Return 8 bytes of HMAC-SHA256 of *text* with *secret*."""
    return hmac.digest(secret, text.encode(), "sha256")[:HASH_BYTES]


def terms_hash(secret: bytes, terms: Iterable[str]) -> bytes:
    """Return the hashes of the distinct *terms*, sorted, one after the other."""
    distinct = list(dict.fromkeys(terms))[:MOST_TERMS]
    return b"".join(sorted(hashed(secret, f"term\0{term}") for term in distinct))


def fingerprint(secret: bytes, role: str, speaker: str | None, text: str) -> bytes:
    """Return the hash by which a turn is recognised."""
    return hashed(secret, "\0".join(("turn", role, speaker or "", text)))


def alike(one: bytes, other: bytes) -> bool:
    """Check whether *one* and *other* are hashes of mostly the same terms."""
    ours, theirs = split(one), split(other)
    union = len(ours | theirs)
    return bool(union) and len(ours & theirs) >= ALIKE * union


def split(hashes: bytes) -> frozenset[bytes]:
    """Split *hashes* into distinct hashes."""
    return frozenset(in_order(hashes))


def in_order(hashes: bytes) -> list[bytes]:
    """Split *hashes* into hashes, in order."""
    return [hashes[start : start + HASH_BYTES] for start in range(0, len(hashes), HASH_BYTES)]


class Weights(Struct, frozen=True):
    """Weights of similarity, recency and importance in a score."""

    similarity: float = 0.7
    recency: float = 0.2
    importance: float = 0.1

    def __post_init__(self) -> None:
        """Raise `InvalidInput` for negative weights, or if all are 0."""
        each = (self.similarity, self.recency, self.importance)
        if not all(isfinite(weight) and weight >= 0 for weight in each):
            raise InvalidInput("weights", "must be numbers of at least 0")
        if sum(each) <= 0:
            raise InvalidInput("weights", "must not all be 0")


DEFAULT_K: Final = 5


class RecallQuery(Struct, frozen=True, kw_only=True):
    """The parameters of a recall; of `kinds` no turn is one."""

    query: str
    k: int = DEFAULT_K
    what: str = "all"
    kinds: Iterable[str] | None = None
    min_relevance: float | None = None
    weights: Weights | None = None
    touch: bool = True
    at: datetime | str | None = None
    valid_at: datetime | str | None = None
    noise: bool = False
    explain: bool = False
    tiers: Iterable[str] = RECALLED_TIERS


class Ranked(Struct, frozen=True, kw_only=True):
    """A row that matches, and why; all numbers but those in *why* are 0 to 1."""

    id: str
    score: float
    similarity: float
    relevance: float
    recency: float
    importance: float
    why: Mapping[str, object]
    also: tuple[str, ...] = ()


MAX_ITEMS: Final = 500
"""Default limit of items in a collection; 0 is no limit."""

Credentials = Callable[[str, str], str | None]
Secrets = Literal["refuse", "redact"]


_SHARES: Final = (
    "min_relevance",
    "row_relevance",
    "min_relevance_general",
    "min_evidence",
    "min_cosine",
    "dedupe_similarity",
)


class LongTermOptions(Struct, frozen=True, kw_only=True):
    """Options of a collection. None means that another setting decides.

    `max_items` and `max_turns` are limits, 0 for none. `min_relevance` is the relevance that the
    best result must reach for anything to be recalled, `row_relevance` that of each of the rest,
    `min_cosine` the same by cosine. A query about no person is answered only by rows that reach
    `min_relevance_general` and `min_evidence`, how rare the words are that they hold. `related`
    counts related words, such as dog for pet, where texts are not compared by meaning.
    `dedupe_similarity` 0 keeps duplicates.
    `rate` are the items that one session or writer may store a minute and a day; more are held,
    unless they are the user's own. `credentials(user_id, name)`, when given, is the only source of
    keys.
    """

    max_items: int | None = None
    max_turns: int = 0
    weights: Weights = Weights()
    half_life_days: float = 30
    min_relevance: float = 0.24
    row_relevance: float = 0.06
    min_relevance_general: float = 0.40
    min_evidence: float = 0.40
    min_cosine: float = 0.35
    cosine_weight: float = 0.75
    related: bool = True
    dedupe_similarity: float = 0.92
    secrets: Secrets = "refuse"
    embed_turns: bool = True
    rate: tuple[int, int] = (20, 200)
    mine: bool = True
    vector_provider: str | None = None
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        if self.max_items is not None:
            checked_cap("max_items", self.max_items)
        checked_cap("max_turns", self.max_turns)
        if not isinstance(self.weights, Weights):  # pyright: ignore[reportUnnecessaryIsInstance] - what a caller gave
            raise InvalidInput("weights", "must be Weights", given=self.weights)
        _checked("half_life_days", self.half_life_days, least=0.0, above=True)
        for name in _SHARES:
            checked_share(name, getattr(self, name))
        _checked("cosine_weight", self.cosine_weight, least=0.0)
        for most in self.rate:
            checked_cap("rate", most)
        if self.secrets not in ("refuse", "redact"):
            raise InvalidInput("secrets", 'must be "refuse" or "redact"', given=self.secrets)


def checked_cap(field: str, given: object) -> int:
    """Return *given* if it is a whole number of at least 0; else InvalidInput."""
    return check_whole(field, given)


def checked_share(field: str, given: object) -> float:
    """Return *given* as a number from 0 to 1; else InvalidInput."""
    return _checked(field, given, least=0.0, most=1.0)


def _checked(
    field: str,
    given: object,
    *,
    least: float,
    most: float = math.inf,
    above: bool = False,
) -> float:
    number = given if is_number(given) else math.nan
    if math.isfinite(number) and least <= number <= most and (number or not above):
        return float(number)
    wanted = f"0 to {most:g}" if most < math.inf else "at least 0"
    raise InvalidInput(field, f"must be {'above 0' if above else wanted}", given=given)
