"""Contract of lists, exports, scopes and events of long-term memory."""

from collections.abc import Iterator
from itertools import combinations
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
from holdfast.ground.errors import NotFound
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, RejectedRecord, Turn
from holdfast.testing.fakes import FrozenClock

ENABLED = "HOLDFAST_LTM_ENABLED"
MAX_ITEMS = "HOLDFAST_LTM_MAX_ITEMS"

LOOK_ALIKES: list[tuple[str, str, str | None]] = [
    ("a", "b_c", None),
    ("a_b", "c", None),
    ("a", "b", "c"),
    ("a/b", "c", None),
    ("a", "b/c", None),
    ("a:b", "c", None),
    ("a.b", "c", None),
    ("A", "b_c", None),
    ("a ", "b_c", None),
    ("\uff41", "b_c", None),
    ("a%", "b_c", None),
    ("a", "b_c", "None"),
    ("a", "b_c", "null"),
]


@pytest.mark.surface("http", "error fields cross the wire")
class LongTermScopesContract(GivenAUser):
    """Subclass it, and give it `hf`, `elsewhere` and `clock` fixtures."""

    def test_names_that_look_alike_never_meet(self, hf: Holdfast) -> None:
        memories = [
            memory_of(hf, user, namespace=namespace, workspace_id=workspace_id)
            for user, namespace, workspace_id in LOOK_ALIKES
        ]
        stored = [kept(memory, f"Likes number {number}") for number, memory in enumerate(memories)]

        assert [items(memory) for memory in memories] == [
            [f"Likes number {number}"] for number in range(len(memories))
        ]
        for (one, _), (_, item) in combinations(zip(memories, stored, strict=True), 2):
            assert one.get(item.id) is None
            assert not one.forget(item.id)

    def test_another_workspace_has_nothing_of_it(
        self, elsewhere: Holdfast, ltm: LongTermMemory
    ) -> None:
        item = kept(ltm, "Likes tabs")
        there = memory_of(elsewhere, "ada")

        assert items(there) == there.recall("tabs") == []
        assert there.get(item.id) is None
        assert not there.forget(item.id)
        elsewhere.forget_user("ada")
        assert items(ltm) == ["Likes tabs"]

    @pytest.mark.parametrize("wrong", ["", "a\n", "a\0b", "a" * 257, "e\u0301", "\ud800", 7])
    @pytest.mark.parametrize("field", ["user_id", "namespace", "workspace_id"])
    def test_a_bad_name_is_refused(self, hf: Holdfast, field: str, wrong: Any) -> None:
        given: dict[str, Any] = {"user_id": "ada", field: wrong}
        user = given.pop("user_id")

        with bad(field):
            hf.longterm(user, enabled=True, **given)
        with bad(field):
            hf.longterm_data(user, **given)

    def test_nobody_is_named_as_everybody(self, hf: Holdfast) -> None:
        with bad("user_id"):
            hf.longterm("*", enabled=True)
        with bad("user_id"):
            hf.forget_user("*")

    def test_a_long_name_and_any_letters_are_fine(self, hf: Holdfast) -> None:
        ltm = memory_of(hf, "名" * 85, namespace="a b/c:d", workspace_id="x" * 256)

        kept(ltm, "Likes tabs")

        assert items(ltm) == ["Likes tabs"]


class LongTermSwitchContract:
    """Subclass it, and give it an `hf` fixture."""

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize(
        ("enabled", "variable", "on"),
        [
            (None, None, False),
            (None, "1", True),
            (None, "0", False),
            (True, None, True),
            (True, "1", True),
            (True, "0", False),
            (False, None, False),
            (False, "1", False),
            (False, "0", False),
        ],
    )
    def test_a_veto_anywhere_wins(
        self,
        hf: Holdfast,
        monkeypatch: pytest.MonkeyPatch,
        enabled: Any,
        variable: str | None,
        on: bool,
    ) -> None:
        monkeypatch.delenv(ENABLED, raising=False)
        if variable is not None:
            monkeypatch.setenv(ENABLED, variable)

        assert (hf.longterm("ada", enabled=enabled) is not None) == on

    @pytest.mark.parametrize(
        ("variable", "on"),
        [
            *((word, True) for word in ("1", "true", "yes", "on", " TRUE ", "On")),
            *((word, False) for word in ("0", "false", "no", "off", " OFF", "", " ")),
        ],
    )
    def test_the_variable_has_its_words(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch, variable: str, on: bool
    ) -> None:
        monkeypatch.setenv(ENABLED, variable)

        assert (hf.longterm("ada") is not None) == on

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize("variable", ["2", "maybe", "enabled", "y", "t"])
    def test_another_word_is_refused_whoever_asks(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        monkeypatch.setenv(ENABLED, variable)

        for enabled in (None, True, False):
            with bad(ENABLED):
                hf.longterm("ada", enabled=enabled)

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_persons_data_is_theirs_whatever_it_says(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(ENABLED, raising=False)
        item = kept(memory_of(hf, "ada"), "Likes tabs")
        monkeypatch.setenv(ENABLED, "0")

        data = hf.longterm_data("ada")

        assert [each.text for each in data.list()] == ["Likes tabs"]
        assert data.get(item.id) == item
        assert len(list(data.export())) == 1
        assert data.status().items == 1
        assert data.forget(item.id)
        assert data.clear().items == 0

    def test_the_cap_is_the_options_then_the_variables_then_500(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(MAX_ITEMS, raising=False)
        assert memory_of(hf, "ada").status().max_items == 500
        monkeypatch.setenv(MAX_ITEMS, "7")
        assert memory_of(hf, "ada").status().max_items == 7
        own = memory_of(hf, "ada", options=LongTermOptions(max_items=3))
        assert own.status().max_items == 3

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("variable", ["-1", "many", "2.5", "1e3", "٣"])
    def test_a_cap_that_is_no_number_is_refused(
        self, hf: Holdfast, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        monkeypatch.setenv(MAX_ITEMS, variable)

        with bad(MAX_ITEMS):
            hf.longterm("ada", enabled=True)


@pytest.mark.embedded("events are emitted where the handle is")
class LongTermEventsContract(GivenAUser):
    """Events of changes of long-term memory."""

    @pytest.fixture
    def events(self, hf: Holdfast) -> Iterator[list[Event]]:
        """Give the events of this workspace, as they come."""
        received: list[Event] = []

        def listen(event: Event) -> None:
            if event.workspace == hf.workspace and event.type.startswith("longterm."):
                received.append(event)

        off = hf.events.subscribe(listen)
        yield received
        off()

    def test_each_act_is_told(self, ltm: LongTermMemory, events: list[Event]) -> None:
        item = kept(ltm, "Likes tabs")
        ltm.remember("likes tabs")
        ltm.remember(" ")
        turn = ltm.record([said("I do")]).turns[0]
        ltm.recall("tabs")
        ltm.forget(item.id)
        ltm.clear()

        assert [event.type.removeprefix("longterm.") for event in events] == [
            "stored",
            "duplicate",
            "refused",
            "stored",
            "recalled",
            "forgotten",
            "cleared",
        ]
        assert events[0].ids["item_id"] == events[5].ids["item_id"] == item.id
        assert events[3].ids["turn_id"] == turn.id
        assert {event.owner for event in events} == {"ada"}

    def test_what_made_room_is_told(self, hf: Holdfast, events: list[Event]) -> None:
        ltm = capped(hf, 1)
        first = kept(ltm, "Likes tabs")
        kept(ltm, "Has a dog")

        evicted = [event for event in events if event.type == "longterm.evicted"]

        assert [event.ids["item_id"] for event in evicted] == [first.id]

    def test_no_event_holds_a_text(self, ltm: LongTermMemory, events: list[Event]) -> None:
        marked = "Zw3xMarked"
        item = kept(ltm, f"{marked} likes tabs", source=marked)
        ltm.record([said(marked, speaker=marked)], thread_id=marked)
        ltm.remember(f"My password is {marked}22!")
        ltm.recall(marked)
        ltm.update(item.id, text=f"{marked} again")
        ltm.forget(item.id)

        assert len(events) >= 6
        assert marked not in str(events)

    def test_nothing_is_told_of_what_changed_nothing(
        self, ltm: LongTermMemory, events: list[Event]
    ) -> None:
        ltm.forget("item_000000000000000000000000")
        ltm.record([])
        nobody: Any = ltm.get("item_000000000000000000000000")

        assert (nobody, events) == (None, [])


ID = "item_85ozrDgbQ0001LkPd6wG80qk"
OTHER_ID = "item_85ozrDgbQ0002LkPd6wG80qk"


class LongTermListingContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_list_walks_from_page_to_page(self, ltm: LongTermMemory) -> None:
        for number in range(7):
            kept(ltm, f"Likes number {number}")

        page = ltm.list(limit=3)

        assert texts(page) == ["Likes number 6", "Likes number 5", "Likes number 4"]
        assert len(texts(page.all())) == 7
        assert texts(ltm.list(limit=3, page=page.next_page))[0] == "Likes number 3"
        assert ltm.list(limit=7).next_page is None

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_turns_have_captions_and_speakers(self, ltm: LongTermMemory) -> None:
        ltm.record([said("Look", caption="a lake"), said("Well", speaker="Ana")])

        assert texts(ltm.list("turns", query="lake")) == ["Look"]
        assert texts(ltm.list("turns", query="ana")) == ["Well"]

    @pytest.mark.surface("http", "error fields cross the wire")
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

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_what_is_not_there_is_none(self, ltm: LongTermMemory) -> None:
        wrong: Any = None
        for id in (ID, "turn_85ozrDgbQ0001LkPd6wG80qk", "nonsense", "", wrong):
            assert ltm.get(id) is None

    def test_a_turn_has_neighbours_in_its_session(self, ltm: LongTermMemory) -> None:
        one = [Turn(role="user", text=text) for text in ("tea", "cake", "jam")]
        other = [Turn(role="user", text="of another session")]
        first, second, third = ltm.record(one, thread_id="t1").turns
        (alone,) = ltm.record(other, thread_id="t2").turns

        assert ltm.neighbours(second.id) == (ltm.get(first.id), ltm.get(third.id))
        assert ltm.neighbours(first.id) == (None, ltm.get(second.id))
        assert ltm.neighbours(third.id) == (ltm.get(second.id), None)
        assert ltm.neighbours(alone.id) == (None, None)

    def test_what_is_no_turn_has_no_neighbours(self, ltm: LongTermMemory) -> None:
        item = ltm.remember("Ada likes tea").stored
        assert item is not None

        for wrong in (item.id, "turn_" + "0" * 24, "x"):
            with pytest.raises(NotFound):
                ltm.neighbours(wrong)

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

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_what_is_exported_comes_back_the_same(
        self, filled: LongTermMemory, other: LongTermMemory
    ) -> None:
        exported = list(filled.export())

        taken = other.import_(exported)

        assert (taken.items, taken.turns, taken.skipped, taken.rejected) == (2, 2, 0, ())
        assert list(other.export()) == exported
        assert texts(other.recall("tabs", touch=False)) == texts(filled.recall("tabs", touch=False))

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "the server has a branch for it")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_superseded_ones_go_first_at_the_cap(self, hf: Holdfast, clock: FrozenClock) -> None:
        ltm = capped(hf, 2)
        kept(ltm, "Has a dog", importance=0.0)
        at = clock.now().isoformat()
        ltm.import_(
            [{"type": "item", "id": ID, "text": "Likes tabs", "superseded_at": at, "importance": 1}]
        )

        assert ltm.remember("Plays chess").evicted == (ID,)
