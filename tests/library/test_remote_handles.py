"""What a remote handle begins and must end: narrowed handles with their tokens, subscriptions."""

import json
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from library.scripted import AT, JSON, ME, STORE, Answer, Scripted, refusal

from holdfast.ground import errors
from holdfast.ground.errors import NotFound, Unavailable
from holdfast.ground.events import Event
from holdfast.ground.scope import Actor
from holdfast.library.remote.handle import RemoteHoldfast
from holdfast.library.remote.streams import Frame, event_of, frames
from holdfast.memories.run.records.read import event_from_wire


class TestForSession:
    TOKEN: JSON = {  # noqa: RUF012 - never changed
        "type": "session_token",
        "id": "sestok_1",
        "session_id": "sesn_1",
        "token": "hfs_1",
        "created_at": AT,
        "expires_at": None,
    }

    def test_it_acts_by_a_token_of_its_own_and_revokes_it(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(Answer(self.TOKEN), Answer(STORE), Answer(self.TOKEN))

        with hf.for_session("sesn_1") as narrowed:
            narrowed.memory_stores.retrieve("memstore_1")

        keys = [(each.method, each.headers["x-api-key"]) for each in scripted.asked]
        assert keys == [("POST", "hf_1"), ("GET", "hfs_1"), ("DELETE", "hf_1")]

    def test_closing_the_handle_closes_those_made_of_it(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(Answer(self.TOKEN), Answer(self.TOKEN))
        narrowed = hf.for_session("sesn_1")

        hf.close()

        assert scripted.asked[-1].target == "/api/sessions/sesn_1/tokens/sestok_1"
        with pytest.raises(Unavailable):
            narrowed.memory_stores.retrieve("memstore_1")

    def test_closing_does_not_fail_for_a_session_that_ended(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(Answer(self.TOKEN), refusal(NotFound("session", "sesn_1"), 404))

        hf.for_session("sesn_1").close()

        assert len(scripted.asked) == 2


class TestEvents:
    def test_a_broken_stream_goes_on_after_the_last_event(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        def message(id: str) -> bytes:
            data = {"type": "store.created", "at": AT, "workspace": "w1", "actor": ME["actor"]}
            return f"id: {id}\nevent: store.created\ndata: {json.dumps(data)}\n\n".encode()

        live = {"content-type": "text/event-stream"}
        scripted.says(
            Answer(b": hello\n\n" + message("c1") + b"id: c2\n", 200, live),
            Answer(message("c2"), 200, live),
            Answer({"error": {"type": "authentication_error", "message": "No."}}, 401),
        )
        heard: list[Event] = []
        both = threading.Event()

        def listen(event: Event) -> None:
            heard.append(event)
            if len(heard) == 2:
                both.set()

        hf.events.subscribe(listen, ["store.created"])

        assert both.wait(30)
        assert [each.cursor for each in heard] == ["c1", "c2"]
        assert heard[0].actor == Actor.api("apikey_1")
        assert scripted.asked[0].query == {"types": "store.created"}
        assert scripted.asked[1].headers["last-event-id"] == "c1"

    def test_a_stream_that_is_refused_raises_where_it_was_asked_for(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(refusal(errors.NotAuthenticated(), 401))

        with pytest.raises(errors.NotAuthenticated):
            hf.events.subscribe(lambda _: None)

        assert not hf.events.heard

    def test_being_left_behind_is_told(self) -> None:
        now = datetime(2026, 11, 21, tzinfo=UTC)

        event = event_of(Frame("c9", "feed.reset", "{}"), now)

        assert (event.type, event.cursor, event.at) == ("feed.reset", "c9", now)

    def test_an_event_nested_too_deeply_is_of_another_shape(self) -> None:
        deep = '{"at": ' + "[" * 100_000

        with pytest.raises(errors.EngineFault):
            event_of(Frame("c9", "feed.reset", deep), datetime(2026, 11, 21, tzinfo=UTC))
        with pytest.raises(errors.EngineFault):
            event_from_wire(deep)

    def test_an_answer_nested_too_deeply_is_none_of_a_server(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        deep: Any = 1
        for _ in range(300):
            deep = [deep]
        scripted.says(Answer({"id": deep}))

        with pytest.raises(Unavailable):
            hf.threads.retrieve("thread_1")

    def test_lines_of_data_are_joined_and_a_cut_message_is_left_out(self) -> None:
        lines = ["id: 1", "data: {", "data: }", "", ": comment", "", "id: 2", "data: {}"]

        assert [(each.id, each.data) for each in frames(lines)] == [("1", "{\n}")]
