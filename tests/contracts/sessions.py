"""What holds for sessions: who works where, and which of them are listed."""

from datetime import timedelta
from typing import Any

import pytest

from contracts.stores import GivenAStore, invalid
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import SessionRecord
from holdfast.testing.fakes import FrozenClock

UNKNOWN = "sesn_" + "0" * 24


def begun(hf: Holdfast, *, agent: Any = "coder", **more: Any) -> SessionRecord:
    """Return a new session of *agent*."""
    return hf.sessions.create(agent=agent, environment_id="laptop", **more)


class SessionsContract:
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_new_session_holds_what_was_given(self, hf: Holdfast, clock: FrozenClock) -> None:
        session = begun(hf, title="Tidy up", metadata={"a": "1"})

        assert (session.type, session.status, session.title) == ("session", "idle", "Tidy up")
        assert (session.environment_id, session.metadata) == ("laptop", {"a": "1"})
        assert session.created_at == session.updated_at == clock.now()
        assert session.archived_at is None
        assert session.id.startswith("sesn_")

    def test_what_is_left_out_is_empty(self, hf: Holdfast) -> None:
        session = begun(hf)

        assert (session.title, session.metadata, session.resources) == (None, {}, ())
        assert (session.vault_ids, session.outcome_evaluations) == ((), ())
        assert session.usage == {"input_tokens": 0, "output_tokens": 0}
        assert session.stats == {"active_seconds": 0, "duration_seconds": 0}
        assert (session.budget, session.deployment_id) == (None, None)

    def test_what_was_created_can_be_retrieved(self, hf: Holdfast) -> None:
        session = begun(hf, title="Tidy up", metadata={"a": "1"})

        assert hf.sessions.retrieve(session.id) == session

    @pytest.mark.parametrize("id", [UNKNOWN, "sesn_short", "", "nonsense", "mem_" + "0" * 24])
    def test_an_id_that_is_unknown_or_malformed_is_not_found(self, hf: Holdfast, id: str) -> None:
        with pytest.raises(NotFound):
            hf.sessions.retrieve(id)
        with pytest.raises(NotFound):
            hf.sessions.archive(id)
        with pytest.raises(NotFound):
            hf.sessions.delete(id)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("title", "x" * 501),
            ("title", "a\x00b"),
            ("title", "a\ud800b"),
            ("metadata", {f"key {n}": "" for n in range(17)}),
            ("metadata", {"k": "v" * 513}),
            ("metadata", {"k": None}),
            ("environment_id", None),
            ("environment_id", 7),
            ("agent", None),
            ("agent", 7),
            ("agent", {}),
            ("agent", {"type": "agent"}),
            ("agent", {"type": "other", "id": "coder"}),
            ("agent", {"type": "agent", "id": "coder", "version": "1"}),
            ("agent", {"type": "agent", "id": "coder", "more": 1}),
        ],
    )
    def test_a_bad_value_is_refused(self, hf: Holdfast, field: str, value: Any) -> None:
        good: dict[str, Any] = {"agent": "coder", "environment_id": "laptop"}

        with invalid(field):
            hf.sessions.create(**(good | {field: value}))

        assert list(hf.sessions.list()) == []

    def test_a_title_has_up_to_500_code_points(self, hf: Holdfast) -> None:
        session = begun(hf, title="\U0001f600" * 500)

        assert hf.sessions.retrieve(session.id).title == "\U0001f600" * 500

    @pytest.mark.parametrize(
        ("agent", "version"),
        [
            ("coder", 1),
            ({"type": "agent", "id": "coder"}, 1),
            ({"type": "agent", "id": "coder", "version": 7}, 7),
        ],
    )
    def test_an_unknown_agent_gets_a_snapshot_that_says_external(
        self, hf: Holdfast, agent: Any, version: int
    ) -> None:
        snapshot = begun(hf, agent=agent).agent

        assert (snapshot["type"], snapshot["id"], snapshot["version"]) == (
            "agent",
            "coder",
            version,
        )
        assert (snapshot["name"], snapshot["model"]["id"]) == ("external", "external")

    def test_a_known_agent_is_kept_as_it_was_when_the_session_began(self, hf: Holdfast) -> None:
        agent = hf.agents.create({"name": "Coder", "model": "claude-x", "system": "Be brief."})

        session = begun(hf, agent=agent["id"])
        hf.agents.update(agent["id"], {"version": 1, "name": "Writer"})

        snapshot = hf.sessions.retrieve(session.id).agent
        assert (snapshot["id"], snapshot["version"]) == (agent["id"], 1)
        assert (snapshot["name"], snapshot["system"]) == ("Coder", "Be brief.")

    def test_an_update_changes_title_and_patches_metadata(
        self, hf: Holdfast, clock: FrozenClock
    ) -> None:
        session = begun(hf, title="Tidy up", metadata={"keep": "1", "go": "1"})
        now = clock.tick()

        changed = hf.sessions.update(session.id, title="Done", metadata={"go": None, "new": "2"})

        assert (changed.title, changed.metadata) == ("Done", {"keep": "1", "new": "2"})
        assert (changed.created_at, changed.updated_at) == (session.created_at, now)
        assert hf.sessions.retrieve(session.id) == changed

    def test_a_bad_update_changes_nothing(self, hf: Holdfast) -> None:
        session = begun(hf)

        with invalid("title"):
            hf.sessions.update(session.id, title="x" * 501)

        assert hf.sessions.retrieve(session.id) == session

    def test_an_archived_session_is_terminated(self, hf: Holdfast, clock: FrozenClock) -> None:
        session = begun(hf)
        now = clock.tick()

        archived = hf.sessions.archive(session.id)

        assert (archived.status, archived.archived_at) == ("terminated", now)
        assert hf.sessions.retrieve(session.id) == archived

    def test_archiving_again_changes_nothing(self, hf: Holdfast, clock: FrozenClock) -> None:
        archived = hf.sessions.archive(begun(hf).id)
        clock.tick()

        assert hf.sessions.archive(archived.id) == archived

    def test_a_deleted_session_is_not_found(self, hf: Holdfast) -> None:
        session = begun(hf)

        deleted = hf.sessions.delete(session.id)

        assert (deleted.id, deleted.type) == (session.id, "session_deleted")
        with pytest.raises(NotFound):
            hf.sessions.retrieve(session.id)
        assert list(hf.sessions.list(include_archived=True)) == []


class SessionListsContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.fixture
    def three(self, hf: Holdfast, clock: FrozenClock) -> list[SessionRecord]:
        """Give three sessions a second apart, the oldest first."""
        sessions: list[SessionRecord] = []
        for n in range(3):
            clock.tick()
            agent = {"type": "agent", "id": f"agent {n}", "version": n + 1}
            sessions.append(begun(hf, agent=agent))
        return sessions

    def test_the_newest_comes_first_unless_told(
        self, hf: Holdfast, three: list[SessionRecord]
    ) -> None:
        assert list(hf.sessions.list()) == three[::-1]
        assert list(hf.sessions.list(order="desc")) == three[::-1]
        assert list(hf.sessions.list(order="asc")) == three

    @pytest.mark.parametrize("order", ["asc", "desc"])
    def test_pages_lead_on_and_back(
        self, hf: Holdfast, three: list[SessionRecord], order: Any
    ) -> None:
        expected = three if order == "asc" else three[::-1]
        first = hf.sessions.list(limit=2, order=order)
        second = hf.sessions.list(limit=2, order=order, page=first.next_page)
        assert second.prev_page is not None
        back = hf.sessions.list(limit=2, order=order, page=second.prev_page)

        assert [*first, *second] == expected
        assert (first.prev_page, second.next_page) == (None, None)
        assert back.data == first.data

    @pytest.mark.usefixtures("three")
    def test_the_order_may_not_change_between_pages(self, hf: Holdfast) -> None:
        page = hf.sessions.list(limit=1)

        with pytest.raises(InvalidInput):
            hf.sessions.list(limit=1, page=page.next_page, order="asc")

    def test_sessions_of_an_agent_and_of_its_version(
        self, hf: Holdfast, three: list[SessionRecord]
    ) -> None:
        assert list(hf.sessions.list(agent_id="agent 1")) == [three[1]]
        assert list(hf.sessions.list(agent_id="agent 1", agent_version=2)) == [three[1]]
        assert list(hf.sessions.list(agent_id="agent 1", agent_version=1)) == []
        assert list(hf.sessions.list(agent_id="nobody")) == []

    def test_bounds_of_created_at(self, hf: Holdfast, three: list[SessionRecord]) -> None:
        middle = three[1].created_at

        assert list(hf.sessions.list(created_at_gt=middle)) == [three[2]]
        assert list(hf.sessions.list(created_at_gte=middle)) == three[:0:-1]
        assert list(hf.sessions.list(created_at_lt=middle)) == [three[0]]
        assert list(hf.sessions.list(created_at_lte=middle)) == three[1::-1]
        assert list(hf.sessions.list(created_at_gt=middle + timedelta(days=1))) == []

    def test_archived_sessions_are_listed_when_asked_for(
        self, hf: Holdfast, three: list[SessionRecord]
    ) -> None:
        archived = hf.sessions.archive(three[0].id)

        assert list(hf.sessions.list()) == three[:0:-1]
        assert list(hf.sessions.list(include_archived=True)) == [three[2], three[1], archived]

    def test_sessions_of_a_status(self, hf: Holdfast, three: list[SessionRecord]) -> None:
        archived = hf.sessions.archive(three[0].id)

        idle = hf.sessions.list(statuses=["idle"], include_archived=True)
        ended = hf.sessions.list(statuses=["terminated"], include_archived=True)
        both = hf.sessions.list(statuses=["idle", "terminated"], include_archived=True)

        assert list(idle) == three[:0:-1]
        assert list(ended) == [archived]
        assert len(both) == 3

    @pytest.mark.usefixtures("three")
    def test_sessions_of_a_store(self, hf: Holdfast) -> None:
        store = hf.memory_stores.create(name="Notes")
        session = begun(hf, resources=[{"type": "memory_store", "memory_store_id": store.id}])

        assert list(hf.sessions.list(memory_store_id=store.id)) == [session]
        assert list(hf.sessions.list(memory_store_id="memstore_" + "0" * 24)) == []

    @pytest.mark.parametrize(
        ("field", "value"),
        [("limit", 0), ("limit", 101), ("order", "random"), ("statuses", ["gone"])],
    )
    def test_a_bad_filter_is_refused(self, hf: Holdfast, field: str, value: Any) -> None:
        with invalid(field):
            hf.sessions.list(**{field: value})
