"""A handle on a server, against a server that says what the test wants it to say."""

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from library.scripted import (
    HANG_UP,
    JSON,
    ME,
    MEMORY,
    STORE,
    VERSION,
    Answer,
    Scripted,
    refusal,
)

from holdfast.ground import errors
from holdfast.ground.errors import (
    InvalidInput,
    NotFound,
    PathTaken,
    PreconditionFailed,
    Unavailable,
)
from holdfast.ground.scope import Actor
from holdfast.library.remote.client import Connections, WireClient
from holdfast.library.remote.handle import RemoteHoldfast


class TestWhatIsSent:
    def test_what_is_left_out_is_not_sent_and_none_is_null(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(Answer(STORE))

        hf.memory_stores.create(name="Notes", description=None)

        assert scripted.asked[0].json == {"name": "Notes", "description": None}

    def test_a_credential_goes_with_every_request(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(Answer(STORE))

        hf.memory_stores.retrieve("memstore_1")

        assert scripted.asked[0].headers["x-api-key"] == "hf_1"
        assert "anthropic-workspace-id" not in scripted.asked[0].headers

    def test_a_workspace_that_is_not_the_default_is_named(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(Answer(STORE))

        hf.acting(workspace="w2").memory_stores.retrieve("memstore_1")

        assert scripted.asked[0].headers["anthropic-workspace-id"] == "w2"

    @pytest.mark.parametrize(
        ("id", "segment"),
        [("a/b", "a%2Fb"), ("a b+c", "a%20b%2Bc"), ("..", "%2E%2E"), ("é", "%C3%A9")],
    )
    def test_an_id_is_one_segment_whatever_is_in_it(
        self, hf: RemoteHoldfast, scripted: Scripted, id: str, segment: str
    ) -> None:
        scripted.says(Answer(STORE))

        hf.memory_stores.retrieve(id)

        assert scripted.asked[0].target == f"/v1/memory_stores/{segment}"

    def test_filters_become_a_query(self, hf: RemoteHoldfast, scripted: Scripted) -> None:
        scripted.says(Answer({"data": [], "next_page": None}))

        hf.memory_stores.list(
            limit=5, include_archived=True, created_at_gte=datetime(2026, 1, 1, tzinfo=UTC)
        )

        assert scripted.asked[0].query == {
            "limit": "5",
            "include_archived": "true",
            "created_at[gte]": "2026-01-01T00:00:00+00:00",
        }

    @pytest.mark.parametrize("content", ["\ud800", b"bytes", 1.0 / 1e-320, {1: "x"}, object()])
    def test_what_json_cannot_carry_is_refused_with_its_field(
        self, hf: RemoteHoldfast, scripted: Scripted, content: Any
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.memory_stores.memories.create("memstore_1", path="/a.md", content=content)

        assert refused.value.field == "content"
        assert scripted.asked == []

    def test_text_that_is_none_is_refused_in_a_query(self, hf: RemoteHoldfast) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.memory_stores.memories.list("memstore_1", path_prefix="/\ud800/")

        assert refused.value.field == "path_prefix"

    def test_no_log_line_holds_what_was_asked_for(
        self, hf: RemoteHoldfast, scripted: Scripted, caplog: pytest.LogCaptureFixture
    ) -> None:
        taken = refusal(PathTaken("mem_1", "/marker.md"), 409)
        scripted.says(Answer({"data": []}), taken)

        with caplog.at_level("DEBUG"):
            hf.memory_stores.memories.list("memstore_1", path_prefix="/marker/")
            with pytest.raises(PathTaken):
                hf.memory_stores.memories.rename("memstore_1", "/a.md", "/marker.md")

        assert "marker" not in caplog.text


class TestWhatComesBack:
    def test_a_record_is_the_one_the_server_sent(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(Answer(VERSION))

        version = hf.memory_stores.memory_versions.retrieve("memver_1", memory_store_id="s")

        assert version.created_by == Actor.api("apikey_1")
        assert version.created_at == datetime(2026, 11, 21, 10, 0, 0, 123456, tzinfo=UTC)

    def test_a_page_walks_on(self, hf: RemoteHoldfast, scripted: Scripted) -> None:
        prefix = {"type": "memory_prefix", "path": "/b/"}
        scripted.says(
            Answer({"data": [MEMORY], "next_page": "page_2"}),
            Answer({"data": [prefix], "next_page": None}),
        )

        page = hf.memory_stores.memories.list("memstore_1", depth=1, limit=1)
        paths = [each.path for each in page.all()]

        assert paths == ["/a.md", "/b/"]
        assert scripted.asked[1].query == {"depth": "1", "limit": "1", "page": "page_2"}

    def test_nothing_at_a_path_is_none(self, hf: RemoteHoldfast, scripted: Scripted) -> None:
        scripted.says(refusal(NotFound("memory", "/a.md"), 404))

        assert hf.memory_stores.memories.at("memstore_1", "/a.md") is None

    def test_a_store_that_is_not_there_is_not_none(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(refusal(NotFound("memory store", "memstore_1"), 404))

        with pytest.raises(NotFound):
            hf.memory_stores.memories.at("memstore_1", "/a.md")

    def test_an_answer_that_is_not_json_is_not_of_a_server(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(Answer(b"<html>sign in here</html>"))

        with pytest.raises(Unavailable) as answered:
            hf.memory_stores.create(name="Notes")

        assert answered.value.reason == "io"
        assert answered.value.written is None

    def test_a_record_of_another_shape_is_a_fault(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(Answer({"type": "memory_store"}))

        with pytest.raises(errors.EngineFault):
            hf.memory_stores.retrieve("memstore_1")

    def test_who_it_is_is_asked_once(self, hf: RemoteHoldfast, scripted: Scripted) -> None:
        scripted.says(Answer(ME))

        assert (hf.workspace, hf.actor) == ("w1", Actor.api("apikey_1"))
        assert len(scripted.asked) == 1


class TestWhenItIsNotThere:
    def test_a_read_is_asked_again_while_the_server_is_busy(
        self, hf: RemoteHoldfast, scripted: Scripted, pauses: list[float]
    ) -> None:
        busy = Unavailable("Busy.", reason="busy", retry_after=0.5)
        scripted.says(refusal(busy, 503), HANG_UP, Answer(STORE))

        store = hf.memory_stores.retrieve("memstore_1")

        assert store.name == "Notes"
        assert pauses == [0.5, 0.2]

    def test_a_write_that_was_not_done_is_asked_again(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        busy = Unavailable("Busy.", reason="busy", written=False)
        scripted.says(refusal(busy, 503), Answer(STORE))

        assert hf.memory_stores.create(name="Notes").id == "memstore_1"

    def test_a_write_that_may_have_been_done_is_not(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(HANG_UP)

        with pytest.raises(Unavailable) as unknown:
            hf.memory_stores.create(name="Notes")

        assert (unknown.value.reason, unknown.value.written) == ("lost", None)
        assert len(scripted.asked) == 1

    def test_a_write_that_twice_is_the_same_as_once_is(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(HANG_UP, Answer(STORE))

        assert hf.memory_stores.archive("memstore_1").id == "memstore_1"

    def test_what_once_was_unknown_stays_so(self, hf: RemoteHoldfast, scripted: Scripted) -> None:
        full = Unavailable("Full.", reason="full", written=False)
        scripted.says(HANG_UP, refusal(full, 503))

        with pytest.raises(Unavailable) as unknown:
            hf.memory_stores.archive("memstore_1")

        assert (unknown.value.reason, unknown.value.written) == ("full", None)

    def test_what_waiting_does_not_heal_is_not_asked_again(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(refusal(Unavailable("Full.", reason="full"), 503))

        with pytest.raises(Unavailable):
            hf.memory_stores.retrieve("memstore_1")

        assert len(scripted.asked) == 1

    def test_no_server_is_unavailable_and_nothing_was_written(self, pauses: list[float]) -> None:
        with Scripted() as gone:
            url = gone.url
        client = WireClient(
            Connections(url), api_key=None, workspace="default", pause=pauses.append
        )
        with (
            RemoteHoldfast(client, on_close=client.close) as hf,
            pytest.raises(Unavailable) as lost,
        ):
            hf.memory_stores.create(name="Notes")

        assert (lost.value.reason, lost.value.written) == ("lost", False)
        assert lost.value.__cause__ is not None
        assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6]

    def test_a_closed_handle_says_so(self, hf: RemoteHoldfast) -> None:
        hf.close()

        with pytest.raises(Unavailable) as closed:
            hf.memory_stores.list()

        assert closed.value.reason == "closed"


class TestSettling:
    def test_a_create_whose_answer_was_lost_is_found_at_its_path(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        taken = refusal(PathTaken("mem_1", "/a.md"), 409)
        scripted.says(HANG_UP, taken, Answer(MEMORY), Answer(VERSION), Answer(ME), Answer(MEMORY))

        memory = hf.memory_stores.memories.create("memstore_1", path="/a.md", content="tabs")

        assert memory.id == "mem_1"

    @pytest.mark.parametrize("other", [{"content": "spaces"}, {"path": "/a.md/b"}])
    def test_another_memory_at_the_path_is_still_in_the_way(
        self, hf: RemoteHoldfast, scripted: Scripted, other: JSON
    ) -> None:
        taken = refusal(PathTaken("mem_1", "/a.md"), 409)
        scripted.says(HANG_UP, taken, Answer(MEMORY | other), Answer(VERSION))

        with pytest.raises(PathTaken):
            hf.memory_stores.memories.create("memstore_1", path="/a.md", content="tabs")

    def test_a_memory_of_another_actor_is_not_ours(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        taken = refusal(PathTaken("mem_1", "/a.md"), 409)
        theirs = VERSION | {"created_by": {"type": "user_actor", "user_id": "user_ada"}}
        scripted.says(HANG_UP, taken, Answer(MEMORY), Answer(theirs), Answer(ME))

        with pytest.raises(PathTaken):
            hf.memory_stores.memories.create("memstore_1", path="/a.md", content="tabs")

    def test_an_update_under_a_precondition_is_asked_again(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(HANG_UP, Answer(MEMORY))

        memory = hf.memory_stores.memories.update(
            "mem_1",
            memory_store_id="memstore_1",
            content="tabs",
            precondition={"type": "content_sha256", "content_sha256": "0" * 64},
        )

        assert memory.content == "tabs"

    def test_an_update_that_another_followed_is_unknown_after_a_lost_answer(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        changed = PreconditionFailed("mem_1", expected="0" * 64, current="1" * 64)
        scripted.says(HANG_UP, refusal(changed, 409))

        with pytest.raises(Unavailable) as unknown:
            hf.memory_stores.memories.update(
                "mem_1",
                memory_store_id="memstore_1",
                content="tabs",
                precondition={"type": "content_sha256", "content_sha256": "0" * 64},
            )

        assert unknown.value.written is None

    def test_an_update_without_one_is_not(self, hf: RemoteHoldfast, scripted: Scripted) -> None:
        scripted.says(HANG_UP)

        with pytest.raises(Unavailable) as unknown:
            hf.memory_stores.memories.update("mem_1", memory_store_id="s", content="tabs")

        assert unknown.value.written is None

    def test_what_is_gone_after_a_lost_answer_was_deleted(
        self, hf: RemoteHoldfast, scripted: Scripted
    ) -> None:
        scripted.says(HANG_UP, refusal(NotFound("memory", "mem_1"), 404))

        deleted = hf.memory_stores.memories.delete("mem_1", memory_store_id="memstore_1")

        assert (deleted.id, deleted.type) == ("mem_1", "memory_deleted")


class TestOpening:
    @pytest.mark.parametrize("url", ["http://", "https:///x", "http://h/?a=b", "http://h:port"])
    def test_an_address_of_no_server_is_refused(self, url: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            Connections(url)

        assert refused.value.field == "target"

    def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(
        self, scripted: Scripted
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            WireClient(Connections(scripted.url), api_key="hf_\nsecret", workspace="default")

        assert "secret" not in str(refused.value)

    def test_without_the_extra_the_error_names_it(self) -> None:
        code = (
            "import sys; sys.modules['httpx'] = None\n"
            "import holdfast\n"
            "try: holdfast.open('http://127.0.0.1:1')\n"
            "except ImportError as error: print(type(error).__name__, error)"
        )

        said = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout

        assert said.startswith("MissingExtra")
        assert "holdfast[remote]" in said

    @pytest.mark.parametrize("feature", ["verify", "scrub", "doctor"])
    def test_what_only_the_database_s_place_can_do_is_unsupported(
        self, hf: RemoteHoldfast, feature: str
    ) -> None:
        with pytest.raises(errors.Unsupported):
            getattr(hf, feature)()

    def test_there_is_no_engine(self, hf: RemoteHoldfast) -> None:
        assert not hasattr(hf, "engine")
