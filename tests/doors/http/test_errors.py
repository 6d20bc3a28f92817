import json
import re

import pytest
from doors.http.asking import Asker

from holdfast.doors.http.app import App
from holdfast.doors.http.response import error_answer, status_and_type
from holdfast.doors.http.state import IN_FLIGHT_MOST
from holdfast.ground import errors
from holdfast.ground.errors import HoldfastError
from holdfast.library.remote.errors import rebuilt

SHA = "a" * 64
EXAMPLES: list[HoldfastError] = [
    errors.InvalidInput("limit", "must be 1 to 100", limit=100, given=0),
    errors.StoreArchived("memstore_1"),
    errors.StoreFull("memstore_1", 10_000),
    errors.HeadVersion("memver_1", "mem_1"),
    errors.Unsupported("This"),
    errors.TooLarge(1_048_576),
    errors.NotAuthenticated(),
    errors.NotPermitted("No.", needed="write"),
    errors.ScopeDenied("No.", needed="workspace"),
    errors.NotFound("memory", "mem_1"),
    errors.Conflict("It lost.", reason="version"),
    errors.PathTaken("mem_1", "/a\x7f\N{SNOWMAN}.md"),
    errors.PreconditionFailed("mem_1", expected=SHA, current=SHA),
    errors.CursorExpired("chg_7"),
    errors.IdempotencyMismatch("edit_1"),
    errors.Unavailable("Busy.", reason="busy", retry_after=0.1),
]


OF_HTTP = error_answer.__module__


def tree(root: type[HoldfastError]) -> list[type[HoldfastError]]:
    below = [leaf for child in root.__subclasses__() for leaf in tree(child)]
    return [each for each in (root, *below) if each.__module__ in {errors.__name__, OF_HTTP}]


@pytest.mark.parametrize("kind", tree(HoldfastError))
def test_every_error_has_an_answer(kind: type[HoldfastError]) -> None:
    status, type = status_and_type(kind)

    assert 400 <= status < 600
    assert type.endswith("_error") or type in {"request_too_large", "longterm_off"}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_the_header_tells_the_whole_error_in_plain_ascii(error: HoldfastError) -> None:
    answer = error_answer(error, request_id="req_1", contract=True)
    header = dict(answer.headers)[b"holdfast-error"].decode("ascii")

    again = rebuilt(header, str(error))

    assert header.isprintable()
    assert (type(again), str(again)) == (type(error), str(error))


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_contract_body_holds_what_the_contract_names(error: HoldfastError) -> None:
    answer = error_answer(error, request_id="req_1", contract=True)

    told = json.loads(answer.body)
    taken = {"conflicting_memory_id", "conflicting_path"}
    more = taken if isinstance(error, errors.PathTaken) else set[str]()
    assert set(told) == {"type", "error", "request_id"}
    assert set(told["error"]) == {"type", "message"} | more
    assert told["error"]["message"] == str(error)


def test_our_body_holds_the_facts_and_what_to_do() -> None:
    answer = error_answer(errors.StoreFull("memstore_1", 9), request_id="req_1", contract=False)

    assert json.loads(answer.body)["error"] == {
        "type": "invalid_request_error",
        "message": "The memory store memstore_1 holds 9 memories, its cap.",
        "next": "Delete or merge memories, or raise the cap, then try again.",
        "store_id": "memstore_1",
        "cap": 9,
    }


@pytest.mark.parametrize("contract", [True, False])
def test_no_content_hash_is_told(contract: bool) -> None:
    failed = errors.PreconditionFailed("mem_1", expected=SHA, current=SHA)

    answer = error_answer(failed, request_id="req_1", contract=contract)

    assert SHA.encode() not in answer.body + b"".join(value for _, value in answer.headers)


def test_a_lone_surrogate_in_a_message_is_spelled_out() -> None:
    answer = error_answer(errors.NotFound("memory", "\ud800"), request_id="req_1", contract=False)

    assert json.loads(answer.body)["error"]["id"] == r"\ud800"


@pytest.mark.parametrize(
    "error", [KeyError("secret words"), errors.EngineFault("secret words", statement="s")]
)
def test_what_is_nobodys_is_told_and_logged_without_its_insides(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    answer = error_answer(error, request_id="req_1", contract=False)

    assert answer.status == 500
    assert b"secret" not in answer.body + dict(answer.headers)[b"holdfast-error"]
    assert "secret" not in caplog.text
    assert type(error).__name__ in caplog.text


def test_a_conflict_says_not_to_try_again_and_names_the_blocker(
    ask: Asker, store: str, memory: str
) -> None:
    said = ask.post(f"/v1/memory_stores/{store}/memories", {"path": "/a.md/b", "content": ""})

    assert (said.status, said.headers["x-should-retry"]) == (409, "false")
    assert said.error["conflicting_memory_id"] == memory
    assert said.error["conflicting_path"] == "/a.md"


def test_every_answer_carries_an_id_and_an_error_repeats_it(ask: Asker) -> None:
    good, bad = ask.get("/healthz"), ask.get("/nowhere")

    assert re.fullmatch(r"req_[0-9A-Za-z]{24}", good.headers["request-id"])
    assert bad.headers["request-id"] == bad.json()["request_id"] > good.headers["request-id"]


def test_a_wrong_method_names_the_right_ones(ask: Asker) -> None:
    said = ask("PUT", "/v1/memory_stores")

    assert (said.status, said.headers["allow"]) == (405, "GET, POST")
    assert said.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "path",
    ["/v1/sessions/sesn_1/events", "/v1/files", "/v1/environments/env_1/work", "/v1/vaults/v"],
)
def test_what_runs_agents_is_not_found_and_says_why(ask: Asker, path: str) -> None:
    said = ask.get(path)

    assert said.status == 404
    assert "attachment records" in said.error["message"]


def test_one_request_too_many_is_told_to_come_back(app: App, ask: Asker) -> None:
    app.state.in_flight = IN_FLIGHT_MOST

    said = ask.get("/v1/memory_stores")

    assert (said.status, said.error["type"]) == (503, "overloaded_error")
    assert said.headers["retry-after"] == "1"
    assert app.state.in_flight == IN_FLIGHT_MOST


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/agents", {"name": "a", "model": "m", "z" * 50_000: 1}),
        ("/v1/environments", {"name": "e", "z" * 50_000: 1}),
        ("/v1/sessions", {"agent": {"type": "agent", "z" * 50_000: 1}, "environment_id": "e"}),
        ("/v1/memory_stores/{s}/memories", {"path": "/" + "é" * 50_000, "content": ""}),
        ("/api/keys", {"name": "k", "scope": "z" * 50_000}),
        ("/v1/sessions/" + "z" * 50_000, {}),
        ("/v1/" + "z" * 50_000, {}),
    ],
    ids=["agent", "environment", "session", "path", "key", "id", "route"],
)
def test_an_error_repeats_little_of_what_was_sent(
    ask: Asker, store: str, path: str, body: object
) -> None:
    said = ask.post(path.replace("{s}", store), body)

    assert 400 <= said.status < 500
    assert len(said.headers["holdfast-error"]) < 1_000
    assert len(said.body) < 1_000


def test_a_long_unknown_key_of_a_precondition_is_cut(ask: Asker, store: str, memory: str) -> None:
    body = {"content": "x", "precondition": {"type": "content_sha256", "z" * 50_000: "x"}}

    said = ask.post(f"/v1/memory_stores/{store}/memories/{memory}", body)

    assert said.status == 400
    assert len(said.headers["holdfast-error"]) < 1_000
