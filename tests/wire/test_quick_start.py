"""One program on the oldest and the newest release of the SDK, judged object by object."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wire import shapes
from wire.judging import as_read, hold
from wire.serving import Served, environment

SCRIPT = Path(__file__).with_name("quick_start.py")

SHAPES: dict[str, type[Any]] = {
    "store": shapes.Store,
    "created": shapes.Memory,
    "second": shapes.Memory,
    "listed": shapes.MemoryPage,
    "retrieved": shapes.Memory,
    "updated": shapes.Memory,
    "lost": shapes.ConflictAnswer,
    "taken": shapes.PathConflictAnswer,
    "session": shapes.Session,
    "sessions": shapes.SessionPage,
    "resources": shapes.ResourcePage,
    "resource": shapes.Resource,
    "session archived": shapes.Session,
    "session deleted": shapes.DeletedSession,
    "versions": shapes.VersionPage,
    "redacted": shapes.Version,
    "version": shapes.Version,
    "deleted": shapes.DeletedMemory,
    "tombstone": shapes.VersionPage,
    "archived": shapes.Store,
    "stores": shapes.StorePage,
    "store deleted": shapes.DeletedStore,
    "agent": shapes.Agent,
    "environment": shapes.Environment,
}

REFUSED = {"lost", "taken"}
UNDATED = {"environment"}
"""What the SDK declares without instants."""

Answers = dict[str, dict[str, Any]]


@pytest.fixture(scope="module", params=["oldest", "newest"])
def ran(request: pytest.FixtureRequest, server: Served) -> dict[str, Any]:
    """Run the quick start with one release of the SDK, once for all tests."""
    python = sys.executable if request.param == "newest" else request.getfixturevalue("oldest")
    line = [python, "-W", "error", SCRIPT, server.url, "any"]
    run = subprocess.run(line, env=environment(), check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return {"which": request.param, **json.loads(run.stdout)}


@pytest.fixture(params=["sync", "async"])
def answers(request: pytest.FixtureRequest, ran: dict[str, Any]) -> Answers:
    return ran[request.param]


def test_each_release_is_the_one_it_should_be(ran: dict[str, Any]) -> None:
    assert ran["sdk"].startswith("2." if ran["which"] == "newest" else "0.97.0")


def test_an_answer_has_the_keys_types_and_order_of_its_object(answers: Answers) -> None:
    for name, shape in SHAPES.items():
        hold(answers[name]["json"], shape)


def test_the_sdk_reads_every_field_as_what_it_is(answers: Answers) -> None:
    named = {name: answers[name] for name in SHAPES if name not in REFUSED | UNDATED}

    read = {name: answer["read"] for name, answer in named.items()}

    assert read == {name: as_read(answer["json"]) for name, answer in named.items()}


def test_the_sdk_reads_an_environment_whose_times_it_leaves_as_text(answers: Answers) -> None:
    assert answers["environment"]["read"] == answers["environment"]["json"]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_lost_write_is_a_conflict_that_names_its_request(answers: Answers, name: str) -> None:
    error = answers[name]

    assert (error["status"], error["class"]) == (409, "ConflictError")
    assert error["request_id"] == error["request_id_header"] == error["json"]["request_id"]


def test_a_taken_path_names_the_memory_that_has_it(answers: Answers) -> None:
    error = answers["taken"]["json"]["error"]

    assert error["conflicting_memory_id"] == answers["created"]["json"]["id"]
    assert error["conflicting_path"] == "/style/tabs.md"


def test_a_listing_rolls_directories_up(answers: Answers) -> None:
    prefix = {"type": "memory_prefix", "path": "/style/"}

    first, second = answers["listed"]["json"]["data"]

    assert (first, second) == (answers["second"]["json"], prefix)


def test_content_comes_with_the_view_that_was_asked_for(answers: Answers) -> None:
    asked = ("created", "second", "retrieved", "updated")

    assert [answers[name]["json"]["content"] for name in asked] == ["Tabs.", None, "Tabs.", None]


def test_every_change_is_a_version_by_whoever_made_it(answers: Answers) -> None:
    newest, oldest = answers["versions"]["json"]["data"]

    assert (newest["operation"], newest["content"]) == ("modified", "Spaces.")
    assert (oldest["operation"], oldest["content"]) == ("created", "Tabs.")
    assert newest["id"] == answers["updated"]["json"]["memory_version_id"]
    assert newest["created_by"] == {"type": "api_actor", "api_key_id": "apikey_local"}


def test_a_redacted_version_keeps_only_that_it_was(answers: Answers) -> None:
    before, after = answers["versions"]["json"]["data"][1], answers["redacted"]["json"]
    gone = dict.fromkeys(("path", "content", "content_size_bytes", "content_sha256"))
    when = {name: after[name] for name in ("redacted_at", "redacted_by")}

    assert after == before | gone | when
    assert when["redacted_by"] == before["created_by"]


def test_a_session_says_where_its_store_is_and_how_far_it_goes(answers: Answers) -> None:
    store, session = answers["store"]["json"], answers["session"]["json"]

    assert session["resources"] == [
        {
            "type": "memory_store",
            "memory_store_id": store["id"],
            "access": "read_only",
            "name": "User Preferences",
            "description": "How Ada works.",
            "instructions": "Read this first.",
            "mount_path": "/mnt/memory/user-preferences",
        }
    ]
    assert answers["resources"]["json"]["data"] == session["resources"]
    assert answers["resource"]["json"] == session["resources"][0]
