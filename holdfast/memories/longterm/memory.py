"""Long-term memory: facts and turns of one user, recalled in later sessions."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from holdfast.ground.pages import Page
from holdfast.memories.longterm import forget as forgetting
from holdfast.memories.longterm import read, transfer
from holdfast.memories.longterm import read as standing
from holdfast.memories.longterm import remember as changing
from holdfast.memories.longterm import turns as conversing
from holdfast.memories.longterm import turns as recording
from holdfast.memories.longterm.background import schedule
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.recall.recall import recall
from holdfast.memories.longterm.records import (
    DEFAULT_K,
    Cleared,
    Flushed,
    ForgetResult,
    Imported,
    Item,
    LongTermStatus,
    Recalled,
    RecallQuery,
    Recorded,
    Remembered,
    Turn,
    Weights,
    What,
)
from holdfast.memories.longterm.remember import remember
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
        limit: int | None = read.LISTED,
        page: str | None = None,
    ) -> Page[Any]:
        """Return the `items` or the `turns`, newest first; *limit* is 1 to 1,000.

        Each word of *query* is, by case folding, in the text. Items that were superseded come
        only with *include_superseded*.
        """
        filters = read.ItemFilter(
            what=what, kinds=kinds, query=query, include_superseded=include_superseded
        )
        return read.list_rows(self.context, filters, limit=limit, page=page)

    def get(self, id: str) -> Item | Turn | None:
        """Return the item or turn called *id*, or None."""
        return read.get(self.context, id)

    def export(self) -> Iterator[dict[str, object]]:
        """Yield every turn and then every item, each as a dict with its `type`."""
        return transfer.export(self.context)

    def forget(self, id: str) -> ForgetResult:
        """Forget the item or turn *id* for good; return the ids of all deleted rows.

        With an item its turns are deleted; with a turn the items that came from it alone. The
        result is false, without an error, if there was no such row.
        """
        return forgetting.forget(self.context, id)

    def clear(self) -> Cleared:
        """Forget this whole collection for good, its tombstones included."""
        return forgetting.clear(self.context)

    def status(self) -> LongTermStatus:
        """Return the status of the collection."""
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

    def by_tool(self) -> "LongTermMemory":
        """Return a handle that stores items with the origin `tool`."""
        return LongTermMemory(replace(self.context, origin="tool"))

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
    ) -> "list[Recalled]":
        """Return at most *k* items and turns that answer *query*, best first.

        *k* is 0 to 100. Nothing is returned when nothing is relevant enough; *min_relevance* 0
        returns the nearest however far. Without *touch* the recall is not recorded.
        """
        params = RecallQuery(
            query=query,
            k=k,
            what=what,
            kinds=kinds,
            min_relevance=min_relevance,
            weights=weights,
            touch=touch,
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
    ) -> Remembered:
        """Remember one sentence about the user: a fact, preference, decision or event.

        *turns* are the ids of its sources. A duplicate is refreshed instead. A text that is blank
        or holds a secret is not stored, and `outcome` says so.
        """
        request = ItemRequest(
            text=text,
            kind=kind,
            importance=importance,
            source=source,
            turns=turns,
            origin=self.context.origin,
        )
        return remember(self.context, request)

    def record(self, turns: Iterable[Turn], *, thread_id: str | None = None) -> Recorded:
        """Store *turns* without mining them: all, or none if one breaks a rule."""
        return recording.record(self.context, turns, thread_id=thread_id)

    def remember_conversation(
        self, messages: Iterable[object], thread_id: str | None = None
    ) -> Recorded:
        """Record the new turns of *messages*, and queue them if there is an extractor.

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
    ) -> Item:
        """Change an item and return it.

        Raises NotFound, InvalidInput for a turn, and SecretRefused for a text that holds one.
        """
        wanted = changing.ItemUpdate(text=text, kind=kind, importance=importance)
        return changing.update(self.context, id, wanted)

    def import_(self, records: Iterable[object]) -> Imported:
        """Import *records* as `export` yields them; skip those with a stored id."""
        return transfer.import_(self.context, records)

    def flush(self, timeout: float | None = None) -> Flushed:
        """Wait at most *timeout* seconds for background work.

        `results` has the mining results since the last call.
        """
        return schedule.flush(self.context, self._results, timeout)

    def retry(self) -> int:
        """Queue failed jobs again; return how many."""
        return standing.retry(self.context)
