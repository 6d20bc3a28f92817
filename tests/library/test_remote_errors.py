"""An error that crossed the wire is the error it was."""

from datetime import UTC, datetime

import msgspec
import pytest
from library.scripted import refusal

from holdfast.ground import errors
from holdfast.ground.errors import HoldfastError, InvalidInput, NotFound, PathTaken, Unavailable
from holdfast.library.remote.errors import from_answer, rebuilt

SAMPLES: list[HoldfastError] = [
    InvalidInput("path", "must start with a slash", limit=3, given="x" * 99, index=1, next="Do."),
    errors.Refused("No.", next="Do."),
    errors.StoreArchived("memstore_1"),
    errors.StoreFull("memstore_1", 10_000),
    errors.HeadVersion("memver_1", "mem_1"),
    errors.Unsupported("backup", next="Do."),
    errors.TooLarge(1_048_576),
    errors.ToolRefused("Error: no such file"),
    errors.NotAuthenticated(),
    errors.NotPermitted("Too small.", needed="admin", next="Do."),
    errors.ScopeDenied("Another's.", needed="admin"),
    errors.LongTermOff("request"),
    errors.SecretRefused(("prose", "jwt")),
    NotFound("memory", "mem_1"),
    errors.Conflict("At version 2.", reason="version", next="Do."),
    PathTaken("mem_1", "/é\u2028.md"),
    errors.PreconditionFailed("mem_1", expected=None, current=None),
    errors.ContentGone("memver_1", datetime(2026, 1, 1, 2, 3, 4, 567890, tzinfo=UTC)),
    errors.CursorExpired("page_1"),
    errors.HistoryGone("res_1"),
    errors.RunRequired(),
    errors.ImportRefused("Two were rejected.", next="Mend them."),
    errors.MemoryFull(cap=3, entries=3, core_entries=3, coldest=("a", "é")),
    errors.MemoryFull(cap=3, entries=9, core_entries=3, would_evict=6),
    errors.StaleRun("superseded", token=3, live_token=4),
    errors.StaleRun("ended", token=3, live_token=None),
    errors.RunTaken(
        "run_1",
        holder="a",
        place="host:1",
        until=datetime(2026, 1, 1, 2, 3, 4, 567000, tzinfo=UTC),
    ),
    errors.RunTaken("run_1", ids=["read", "write"]),
    errors.AlreadyAnswered(
        "question_1", by="user:ada", at=datetime(2026, 1, 1, 2, 3, 4, 567000, tzinfo=UTC)
    ),
    errors.Forgotten(datetime(2026, 1, 1, 2, 3, 4, 567000, tzinfo=UTC), "agent:agent_7"),
    errors.IdempotencyMismatch("one"),
    errors.ToolNameTaken("memory", "run.list", "files.view"),
    errors.UnknownFormat("state", format="holdfast.other", version=9, known="version 1"),
    errors.ChecksumMismatch("res_1", stored="sha256:a", computed="sha256:b"),
    errors.InvalidPlan(["no tasks", "task a: no steps"]),
    errors.PlanningFailed("too many failures", problems=["no tasks"], tasks=["a"]),
    errors.CheckpointUnreadable("run_1.json", "no JSON"),
    errors.LimitExceeded("value_bytes", allowed=1, actual=2, what="shared:a"),
    errors.ResultDiffers("res_1", stored="sha256:a", given="sha256:b"),
    errors.CheckpointMismatch(["inputs", "plan.tasks[2]"]),
    errors.ClaimRefused("task_1", "taken", "ada has it"),
    errors.NotOwner("task_1", "ada"),
    errors.NotOwner("task_1", None),
    errors.TaskSettled("task_1", "done"),
    errors.AgentNameTaken("ada"),
    errors.NotRunnable("It cannot run.", network="support"),
    errors.NoModel("No model.", agent="ada", next="Name one."),
    errors.NoRouter("No router.", network="support"),
    errors.NoAgentEnabled("No agent.", network="support"),
    errors.RunFailed("It failed.", stop_reason="model_error"),
    errors.StepFailed("a", "no answer"),
    errors.TaskFailed("a", "b failed", failed=["b"], blocked=["c"]),
    errors.PlanFailed("a failed", failed=["a"], blocked=["b"], report=None),
    errors.RunCancelled("enough", completed=["a"]),
    errors.RunWaiting("run_1", ["question_1"]),
    errors.WaitTimeout("shared:a", 1.5),
    Unavailable("Busy.", reason="busy", written=None, retry_after=0.25),
    errors.Corrupt("/data/h.db", "page 3"),
    errors.TooNew(9, 3),
    errors.EngineFault("A bug.", statement="get_store"),
    errors.MissingExtra("postgres"),
]

CODES = [
    ("HF-MEM-001", errors.NotPermitted),
    ("HF-MEM-002", NotFound),
    ("HF-MEM-003", Unavailable),
    ("HF-MEM-004", InvalidInput),
    ("HF-MEM-005", errors.MemoryFull),
    ("HF-MEM-006", errors.StaleRun),
    ("HF-MEM-007", errors.Forgotten),
    ("HF-MEM-008", errors.RunRequired),
    ("HF-MEM-009", errors.PreconditionFailed),
    ("HF-MEM-010", errors.IdempotencyMismatch),
    ("HF-MEM-011", errors.ImportRefused),
]


class TestErrors:
    @pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
    @pytest.mark.parametrize("joined", [True, False], ids=["compat", "own"])
    def test_an_error_comes_back_as_the_same_class_with_the_same_facts(
        self, error: HoldfastError, *, joined: bool
    ) -> None:
        header = refusal(error, 400).headers["holdfast-error"]

        again = rebuilt(header, str(error) if joined else error.message)

        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)

    def test_every_class_has_a_sample(self) -> None:
        tree = {
            kind
            for kind in vars(errors).values()
            if isinstance(kind, type) and issubclass(kind, HoldfastError)
        }

        assert tree - {type(each) for each in SAMPLES} == {HoldfastError}

    def test_a_class_that_is_not_known_is_told_by_the_body(self) -> None:
        headers = {"holdfast-error": '{"class": "FromTheFuture", "facts": {}}'}
        body = b'{"error": {"type": "conflict_error", "message": "No."}}'

        error = from_answer(409, headers, body, writes=True)

        assert type(error) is errors.Conflict
        assert error.message == "No."

    @pytest.mark.parametrize(("code", "expected"), CODES)
    def test_without_the_header_the_code_of_a_durable_call_tells(
        self, code: str, expected: type[HoldfastError]
    ) -> None:
        told = {"type": "conflict_error", "code": code, "message": "So.", "next": "Do."}

        error = from_answer(409, {}, msgspec.json.encode({"error": told}), writes=True)

        assert (type(error), error.code, str(error)) == (expected, code, "So. Do.")

    @pytest.mark.parametrize(
        ("status", "kind", "expected"),
        [
            (409, "memory_path_conflict_error", PathTaken),
            (409, "memory_precondition_failed_error", errors.PreconditionFailed),
            (404, "not_found_error", NotFound),
            (400, "invalid_request_error", InvalidInput),
            (405, "invalid_request_error", errors.Unsupported),
            (403, "permission_error", errors.NotPermitted),
            (401, "authentication_error", errors.NotAuthenticated),
            (413, "request_too_large", errors.TooLarge),
            (500, "api_error", errors.EngineFault),
            (503, "overloaded_error", Unavailable),
            (418, "", errors.EngineFault),
        ],
    )
    def test_without_the_header_type_and_status_tell(
        self, status: int, kind: str, expected: type[HoldfastError]
    ) -> None:
        body = {"error": {"type": kind, "message": "So.", "conflicting_path": "/a"}}

        error = from_answer(status, {}, msgspec.json.encode(body), writes=True)

        assert type(error) is expected
        assert error.carried().get("conflicting_path") in {None, "/a"}

    def test_a_gateway_without_a_server_behind_is_unavailable(self) -> None:
        error = from_answer(502, {}, b"<html>Bad Gateway</html>", writes=True)

        assert isinstance(error, Unavailable)
        assert (error.reason, error.written) == ("lost", None)

    def test_facts_that_the_class_does_not_know_are_not_taken(self) -> None:
        error = rebuilt('{"class": "StoreArchived", "facts": {"store_id": "s", "args": []}}', "So.")

        assert error is not None
        assert error.carried() == {"store_id": "s"}
        assert error.args == ("So.",)
