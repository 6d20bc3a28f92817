"""`POST /api/import/{kind}`: an export as the body, for the user of a key."""

import asyncio
from pathlib import Path

import pytest
from doors.http.asking import Asker

from holdfast.doors.http.app import make_app
from holdfast.library.holdfast import Holdfast

MEM0 = (Path(__file__).parents[2] / "library" / "imports" / "files" / "mem0.json").read_bytes()
ON = "enabled=true"


def key(hf: Holdfast, ask: Asker, scope: str, **bound: str) -> Asker:
    secret = hf.keys.create("k", scope, **bound).secret  # pyright: ignore[reportArgumentType] - one of them
    assert secret is not None
    return ask.as_(x_api_key=secret)


def test_a_file_is_imported_for_a_user(hf: Holdfast, ask: Asker) -> None:
    rehearsed = ask.post(f"/api/import/mem0?user=ada&{ON}&dry_run=true", MEM0)
    assert hf.longterm_data("ada").list().data == []
    done = ask.post(f"/api/import/mem0?user=ada&{ON}", MEM0)

    assert (rehearsed.status, done.status) == (200, 200)
    assert rehearsed.json() | {"dry_run": False} == done.json()
    assert (done.json()["stored"], len(done.json()["skipped"])) == (2, 2)
    assert len(hf.longterm_data("ada").list().data) == 2


def test_options_are_parameters(hf: Holdfast, ask: Asker) -> None:
    query = f"user=*&{ON}&namespace=work&limit=1"
    done = ask.post(f"/api/import/mem0?{query}", MEM0)

    assert done.json()["read"] == 1
    assert len(hf.longterm_data("ada", namespace="work").list().data) == 1
    assert ask.post(f"/api/import/mem0?{query}&color=red", MEM0).status == 400


def test_a_file_of_another_kind_is_refused_with_what_is_known(ask: Asker) -> None:
    said = ask.post(f"/api/import/chatgpt?user=ada&{ON}", MEM0)

    assert (said.status, said.error["type"]) == (400, "invalid_request_error")
    assert "an export of ChatGPT" in said.error["message"]
    assert "UnknownFormat" in said.headers["holdfast-error"]
    assert ask.post(f"/api/import/zep?user=ada&{ON}", MEM0).error["field"] == "kind"


def test_memory_must_be_on(ask: Asker) -> None:
    for query, by in (("user=ada", "server"), ("user=ada&enabled=false", "request")):
        said = ask.post(f"/api/import/mem0?{query}", MEM0)
        assert (said.status, said.error["type"], said.error["by"]) == (403, "longterm_off", by)


def test_a_bound_key_imports_for_its_own_user_alone(hf: Holdfast, ask: Asker) -> None:
    own = key(hf, ask, "write", user="ada")

    assert own.post(f"/api/import/mem0?{ON}", MEM0).json()["stored"] == 2
    assert own.post(f"/api/import/mem0?user=ada&{ON}", MEM0).json()["duplicates"] == 2
    for query in ("user=bob", "user=*", "store=Notes"):
        assert own.post(f"/api/import/mem0?{query}&{ON}", MEM0).status == 403
    assert hf.longterm_data("bob").list().data == []


@pytest.mark.parametrize(
    ("scope", "bound", "status"),
    [
        ("admin", {}, 200),
        ("write", {}, 403),
        ("read", {}, 403),
        ("read", {"user": "ada"}, 403),
        ("admin", {"agent": "helper"}, 403),
    ],
)
def test_other_keys_need_the_scope_admin(
    hf: Holdfast, ask: Asker, scope: str, bound: dict[str, str], status: int
) -> None:
    asker = key(hf, ask, scope, **bound)

    assert asker.post(f"/api/import/mem0?user=ada&{ON}", MEM0).status == status


def test_a_switched_off_server_imports_nothing(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, runner: asyncio.Runner
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "0")
    app = make_app(hf)
    said = Asker(app, runner).post(f"/api/import/mem0?user=ada&{ON}", MEM0)
    app.state.close()

    assert said.error["by"] == "server"
