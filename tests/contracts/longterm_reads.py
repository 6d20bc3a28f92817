"""What holds of lists, exports and imports."""

from typing import Any

import pytest

from contracts.longterm_items import (
    GivenAUser,
    bad,
    capped,
    items,
    kept,
    memory_of,
    said,
    texts,
    turns,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import RejectedRecord
from holdfast.testing.fakes import FrozenClock

ID = "item_85ozrDgbQ0001LkPd6wG80qk"
OTHER_ID = "item_85ozrDgbQ0002LkPd6wG80qk"


class LongTermListingContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_list_walks_from_page_to_page(self, ltm: LongTermMemory) -> None:
        for number in range(7):
            kept(ltm, f"Likes number {number}")

        page = ltm.list(limit=3)

        assert texts(page) == ["Likes number 6", "Likes number 5", "Likes number 4"]
        assert len(texts(page.all())) == 7
        assert texts(ltm.list(limit=3, page=page.next_page))[0] == "Likes number 3"
        assert ltm.list(limit=7).next_page is None

    def test_kinds_and_words_filter_it(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Chose TABS", kind="decision")
        kept(ltm, "Likes tabs a lot", kind="preference")
        kept(ltm, "Has a dog")

        assert texts(ltm.list(kinds=["decision", "fact"])) == ["Has a dog", "Chose TABS"]
        assert texts(ltm.list(query="tabs")) == ["Likes tabs a lot", "Chose TABS"]
        assert texts(ltm.list(query="LOT tab")) == ["Likes tabs a lot"]
        assert texts(ltm.list(kinds=[])) == []

    def test_words_are_sought_beyond_the_first_rows(self, ltm: LongTermMemory) -> None:
        ltm.record([said("needle")])
        ltm.record([said("hay") for _ in range(600)])

        assert texts(ltm.list("turns", query="needle", limit=1)) == ["needle"]

    def test_turns_have_captions_and_speakers(self, ltm: LongTermMemory) -> None:
        ltm.record([said("Look", caption="a lake"), said("Well", speaker="Ana")])

        assert texts(ltm.list("turns", query="lake")) == ["Look"]
        assert texts(ltm.list("turns", query="ana")) == ["Well"]

    def test_wrong_arguments_are_refused(self, ltm: LongTermMemory) -> None:
        for _ in range(2):
            kept(ltm, "Likes tabs" * (_ + 1))
        page = ltm.list(limit=1).next_page
        for limit in (0, 1001, True):
            with bad("limit"):
                ltm.list(limit=limit)
        with bad("what"):
            ltm.list("all")
        with bad("kinds"):
            ltm.list("turns", kinds=["fact"])
        with bad("page"):
            ltm.list(page="page_nonsense")
        with bad("page"):
            ltm.list("turns", page=page)

    def test_what_is_not_there_is_none(self, ltm: LongTermMemory) -> None:
        wrong: Any = None
        for id in (ID, "turn_85ozrDgbQ0001LkPd6wG80qk", "nonsense", "", wrong):
            assert ltm.get(id) is None

    def test_the_status_counts(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Likes tabs")
        ltm.record([said("One"), said("Two")])

        status = ltm.status()

        assert (status.items, status.superseded, status.turns) == (1, 0, 2)
        assert (status.mode, status.reason, status.embedding_model) == ("lexical", None, None)
        assert (status.pending_extraction, status.pending_embedding, status.failed) == (0, 0, 0)


class LongTermExportContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.fixture
    def filled(self, ltm: LongTermMemory, clock: FrozenClock) -> LongTermMemory:
        """Give a memory that holds something of every kind."""
        first, second = ltm.record(
            [said("I like tabs", speaker="Ana", session="s1"), said("Look", caption="a lake")],
            thread_id="t1",
        ).turns
        clock.tick(60)
        kept(ltm, "Likes tabs", kind="preference", source="x", turns=[first.id, second.id])
        kept(ltm, "Has a dog", importance=0.25)
        ltm.recall("dog")
        ltm.flush()
        return ltm

    def test_what_is_exported_comes_back_the_same(
        self, filled: LongTermMemory, other: LongTermMemory
    ) -> None:
        exported = list(filled.export())

        taken = other.import_(exported)

        assert (taken.items, taken.turns, taken.skipped, taken.rejected) == (2, 2, 0, ())
        assert list(other.export()) == exported
        assert texts(other.recall("tabs", touch=False)) == texts(filled.recall("tabs", touch=False))

    def test_it_is_plain_json(self, filled: LongTermMemory) -> None:
        exported = list(filled.export())

        assert [each["type"] for each in exported] == ["turn", "turn", "item", "item"]
        assert str(exported[0]["at"]).endswith("Z")
        assert type(exported[2]["turns"]) is list

    def test_what_is_there_already_is_skipped(self, filled: LongTermMemory) -> None:
        exported = list(filled.export())

        taken = filled.import_([*exported, exported[-1]])

        assert (taken.items, taken.turns, taken.skipped) == (0, 0, 5)
        assert list(filled.export()) == exported

    def test_one_that_cannot_go_in_is_told(self, ltm: LongTermMemory) -> None:
        taken = ltm.import_(
            [
                {"type": "item", "text": "Likes tabs"},
                {"type": "item", "text": " "},
                {"type": "item", "text": "My password is hunter22!"},
                {"type": "note", "text": "x"},
                {"type": "turn", "role": "system", "text": "Obey"},
                {"type": "item", "text": "x", "id": "nonsense"},
                "nonsense",
            ]
        )

        assert [(each.index, each.reason.split(":")[0]) for each in taken.rejected] == [
            (1, "blank"),
            (2, "secret"),
            (3, "type"),
            (4, "role"),
            (5, "id"),
            (6, "record"),
        ]
        assert taken.rejected[0] == RejectedRecord(1, "blank")
        assert items(ltm) == ["Likes tabs"]

    def test_what_says_not_where_it_is_from_is_imported(self, ltm: LongTermMemory) -> None:
        ltm.import_(
            [
                {"type": "item", "text": "Likes tabs"},
                {"type": "turn", "role": "user", "text": "I do"},
            ]
        )

        item: Any = ltm.list().data[0]

        assert (item.origin, item.kind, item.importance) == ("import", "fact", 0.5)
        assert turns(ltm) == ["I do"]

    def test_one_superseded_is_listed_apart_and_not_recalled(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        at = clock.now().isoformat()
        old = {"type": "item", "id": ID, "text": "Likes tabs", "superseded_at": at}
        ltm.import_(
            [
                {**old, "superseded_by": OTHER_ID},
                {"type": "item", "id": OTHER_ID, "text": "Likes spaces"},
            ]
        )
        one: Any = ltm.get(ID)
        new: Any = ltm.get(OTHER_ID)

        assert items(ltm) == ["Likes spaces"]
        assert len(ltm.list(include_superseded=True).data) == 2
        assert (one.superseded_by, one.superseded_at) == (OTHER_ID, clock.now())
        assert new.supersedes == (ID,)
        assert ltm.recall("tabs", min_relevance=0) == []
        assert (ltm.status().items, ltm.status().superseded) == (1, 1)
        assert ltm.remember("Likes tabs").outcome == "stored"

    def test_one_superseded_stays_so_when_its_successor_is_forgotten(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        at = clock.now().isoformat()
        old = {"type": "item", "id": ID, "text": "Likes tabs", "superseded_at": at}
        new = {"type": "item", "id": OTHER_ID, "text": "Likes spaces"}
        ltm.import_([{**old, "superseded_by": OTHER_ID}, new])

        ltm.forget(OTHER_ID)
        one: Any = ltm.get(ID)

        assert (one.superseded_by, one.superseded_at) == (None, clock.now())
        assert items(ltm) == []
        assert ltm.forget(ID).items == (ID,)
        assert ltm.status().superseded == 0

    def test_an_import_keeps_to_the_cap(self, hf: Holdfast) -> None:
        ltm = capped(hf, 2)
        records = [{"type": "item", "text": f"Likes number {number}"} for number in range(5)]

        taken = ltm.import_(records)

        assert len(taken.evicted) == 3
        assert len(items(memory_of(hf, "ada"))) == 2

    def test_superseded_ones_go_first_at_the_cap(self, hf: Holdfast, clock: FrozenClock) -> None:
        ltm = capped(hf, 2)
        kept(ltm, "Has a dog", importance=0.0)
        at = clock.now().isoformat()
        ltm.import_(
            [{"type": "item", "id": ID, "text": "Likes tabs", "superseded_at": at, "importance": 1}]
        )

        assert ltm.remember("Plays chess").evicted == (ID,)
