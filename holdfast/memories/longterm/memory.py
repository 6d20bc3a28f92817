"""Long-term memory: facts and turns of one user, recalled, exported, imported."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Page
from holdfast.memories.longterm import forget as forgetting
from holdfast.memories.longterm import read
from holdfast.memories.longterm import read as standing
from holdfast.memories.longterm import remember as changing
from holdfast.memories.longterm import turns as conversing
from holdfast.memories.longterm import turns as recording
from holdfast.memories.longterm.background import schedule, wishes
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.intake import ForeignIntake
from holdfast.memories.longterm.recall.recall import recall
from holdfast.memories.longterm.records import (
    DEFAULT_K,
    RECALLED_TIERS,
    Cleared,
    Flushed,
    ForgetResult,
    Imported,
    Item,
    LongTermStatus,
    RecallQuery,
    RecallResult,
    Recorded,
    Remembered,
    Turn,
    Weights,
    What,
)
from holdfast.memories.longterm.remember import remember
from holdfast.memories.longterm.transfer import export, import_
from holdfast.memories.longterm.trust import holds
from holdfast.memories.longterm.trust.rules import SessionTrust
from holdfast.memories.longterm.write import ItemRequest


class LongTermData:
    """List, export and forget a user's data, also while memory is switched off."""

    def __init__(self, context: CollectionContext) -> None:
        self.context = context

    def list(
        self,
        what: str = "items",
        *,
        kinds: Iterable[str] | None = None,
        query: str | None = None,
        include_superseded: bool = False,
        held: bool = False,
        at: datetime | str | None = None,
        valid_at: datetime | str | None = None,
        limit: int | None = read.LISTED,
        page: str | None = None,
    ) -> Page[Any]:
        """Return the `items` or the `turns`, newest first; *limit* is 1 to 1,000.

        Each word of *query* is, by case folding, in the text. Items that were superseded come
        only with *include_superseded*; those that wait for a person alone with *held*.

        With *at* it is what was believed at that time, with *valid_at* what is believed to have
        been true then: both aware datetimes or RFC 3339 texts. What was erased since is counted
        in `erased` of the page.
        """
        if held:
            holds.forget_expired(self.context)
        filters = read.ItemFilter(
            what=what,
            kinds=kinds,
            query=query,
            include_superseded=include_superseded,
            held=held,
            at=at,
            valid_at=valid_at,
        )
        return read.list_rows(self.context, filters, limit=limit, page=page)

    def get(self, id: str, *, at: datetime | str | None = None) -> Item | Turn | None:
        """Return the item or turn called *id*, as it was *at* that time, or None."""
        return read.get(self.context, id, at=at)

    def neighbours(self, id: str) -> tuple[Turn | None, Turn | None]:
        """Return the turns before and after the turn *id* in its session, None for none.

        Raises NotFound if there is no such turn.
        """
        return read.neighbours(self.context, id)

    def export(self) -> Iterator[dict[str, object]]:
        """Yield every turn and then every item, each as a dict with its `type`."""
        return export(self.context)

    def forget(self, id: str) -> ForgetResult:
        """Forget the item or turn *id* for good; return the ids of all deleted rows.

        With an item its turns are deleted; with a turn the items that came from it alone. The
        result is false, without an error, if there was no such row.
        """
        return forgetting.forget(self.context, id)

    def accept(self, id: str) -> Item | Turn:
        """Release the held item or turn *id*, and return it.

        It is recalled from now on, and an item is confirmed. Raises NotFound, and InvalidInput for
        a row that is not held.
        """
        return holds.accept(self.context, id)

    def reject(self, id: str) -> ForgetResult:
        """Forget the held item or turn *id*, and nothing with it.

        Raises NotFound, and InvalidInput for a row that is not held.
        """
        return holds.reject(self.context, id)

    def clear(self) -> Cleared:
        """Forget this whole collection for good, its tombstones included."""
        return forgetting.clear(self.context)

    def status(self) -> LongTermStatus:
        """Return the status of the collection."""
        return standing.status(self.context)

    def configure(
        self, *, extractor: str | Literal[False] | UnsetType | None = UNSET
    ) -> LongTermStatus:
        """Set the collection's own extractor, which later processes use too.

        It is `provider:model`; False or `none` means no mining, None leaves it to the process's
        own setting. Return the status. Turns stored before are mined after `remine`.
        """
        if extractor is not UNSET:
            wishes.configure(self.context, extractor)
        return standing.status(self.context)


class LongTermMemory(LongTermData):
    """Facts and turns of one user across sessions, recalled by words, names and dates.

    With an embedder they are recalled by meaning too.

    >>> import holdfast
    >>> ltm = holdfast.open(":memory:").longterm("ada", enabled=True)
    >>> ltm.remember("Ada prefers tabs over spaces", kind="preference").outcome
    'stored'
    >>> [found.text for found in ltm.recall("tabs or spaces in Ada's code?")]
    ['Ada prefers tabs over spaces']
    """

    def __init__(self, context: CollectionContext) -> None:
        super().__init__(context)
        self._results = context.shared.mined.listen(context.place)

    def by_tool(self, session: SessionTrust | None = None) -> "LongTermMemory":
        """Return a handle that stores items with the origin `tool`.

        *session* is what was said and recalled in the conversation that an agent leads.
        """
        return LongTermMemory(replace(self.context, origin="tool", session=session))

    def recall(
        self,
        query: str,
        k: int = DEFAULT_K,
        *,
        what: What = "all",
        kinds: Iterable[str] | None = None,
        min_relevance: float | None = None,
        weights: Weights | None = None,
        touch: bool = True,
        at: datetime | str | None = None,
        valid_at: datetime | str | None = None,
        noise: bool = False,
        explain: bool = False,
        tiers: Iterable[str] = RECALLED_TIERS,
    ) -> RecallResult:
        """Return at most *k* items and turns that answer *query*, best first.

        *k* is 0 to 100. Nothing is returned when nothing is relevant enough; *min_relevance* 0
        returns the nearest however far. Without *touch* the recall is not recorded.

        With *at*, an aware datetime or RFC 3339 text, it returns what would have been recalled
        then, less what was erased since; with *valid_at* what is believed to have been true then.

        Turns that are no statement, such as questions, and turns that are the query itself are
        left out; *noise* returns them like others. Rows of the tier `outside` are returned only
        if *tiers* names it. Rows that say the same are one result, with
        the other ids in `also`. With *explain* `suppressed` of the list says how many rows were
        left out and why.
        """
        params = RecallQuery(
            query=query,
            k=k,
            what=what,
            kinds=kinds,
            min_relevance=min_relevance,
            weights=weights,
            touch=touch,
            at=at,
            valid_at=valid_at,
            noise=noise,
            explain=explain,
            tiers=tiers,
        )
        return recall(self.context, params)

    def remember(
        self,
        text: str,
        kind: str = "fact",
        importance: float = 0.5,
        *,
        source: str = "",
        turns: Iterable[str] = (),
        valid_from: datetime | str | None = None,
        valid_to: datetime | str | None = None,
    ) -> Remembered:
        """Remember one sentence about the user: a fact, preference, decision or event.

        *turns* are the ids of its sources. It is true from *valid_from*, by default when the
        first of them was said, else now, until *valid_to*: aware datetimes or RFC 3339 texts. It
        is recalled while it is true. A duplicate is refreshed instead. A text that is blank
        or holds a secret is not stored, and `outcome` says so.
        """
        request = ItemRequest(
            text=text,
            kind=kind,
            importance=importance,
            source=source,
            turns=turns,
            origin=self.context.origin,
            valid_from=valid_from,
            valid_to=valid_to,
        )
        return remember(self.context, request)

    def record(self, turns: Iterable[Turn], *, thread_id: str | None = None) -> Recorded:
        """Store *turns* without mining them: all, or none if one breaks a rule."""
        return recording.record(self.context, turns, thread_id=thread_id)

    def remember_conversation(
        self, messages: Iterable[object], thread_id: str | None = None
    ) -> Recorded:
        """Record the new turns of *messages*, and queue them if they are to be mined.

        Each is a Turn, or an object with `role`, `content`, and perhaps `name` and `at`. The
        whole conversation may be given each time, or only what is new. Objects with an `event_id`
        are known by it in their thread, in whatever parts they are given.
        """
        return conversing.remember_conversation(self.context, messages, thread_id)

    def update(
        self,
        id: str,
        *,
        text: str | UnsetType = UNSET,
        kind: str | UnsetType = UNSET,
        importance: float | UnsetType = UNSET,
        valid_from: datetime | str | UnsetType = UNSET,
        valid_to: datetime | str | UnsetType | None = UNSET,
    ) -> Item:
        """Change an item and return it. It is recalled until *valid_to*; None is no end.

        Raises NotFound, InvalidInput for a turn, and SecretRefused for a text that holds one.
        """
        wanted = changing.ItemUpdate(
            text=text, kind=kind, importance=importance, valid_from=valid_from, valid_to=valid_to
        )
        return changing.update(self.context, id, wanted)

    def import_(
        self,
        records: Iterable[object],
        *,
        foreign: bool = False,
        dry_run: bool = False,
        mine: bool = False,
    ) -> Imported:
        """Import *records* as `export` yields them; skip those with a stored id.

        *foreign* ones come from another program: their tier is `imported`, duplicates are left
        out, what was forgotten stays so, and nothing is evicted for them. Only of these a dry run
        says what would be stored, and *mine* queues their turns for mining.
        """
        if not foreign and (dry_run or mine):
            raise InvalidInput("foreign", "is required by a dry run and to mine")
        intake = ForeignIntake(self.context, dry_run=dry_run, mine=mine) if foreign else None
        return import_(self.context, records, intake)

    def flush(self, timeout: float | None = None) -> Flushed:
        """Wait at most *timeout* seconds for background work.

        `results` has the mining results since the last call.
        """
        return schedule.flush(self.context, self._results, timeout)

    def retry(self) -> int:
        """Queue failed jobs again; return how many."""
        return standing.retry(self.context)

    def remine(self, since: datetime | str | None = None, thread_id: str | None = None) -> int:
        """Queue turns that no job has covered to be mined; return how many.

        Only those of *thread_id*, and said at *since* or later, if given. Without an extractor
        none are queued.
        """
        return wishes.remine(self.context, since, thread_id)
