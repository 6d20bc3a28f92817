"""Questions of runs over HTTP: who sees and answers them."""

from datetime import timedelta
from typing import Any

import pytest
from contracts.questions import come_to_rest
from doors.http.asking import Asker, Said

from holdfast.doors.http.app import App
from holdfast.ground.scope import EVERYBODY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.question import Question
from holdfast.testing.fakes import FrozenClock

Z = "/api/questions"


@pytest.fixture
def asked(hf: Holdfast) -> dict[str, Question]:
    """Give open questions by who may answer them."""
    who: dict[str, Any] = {
        "all": (),
        "anna": "user:anna",
        "desk": "key:desk",
        "admin": "scope:admin",
        "two": ("user:bob", "key:desk"),
    }
    found = come_to_rest(hf.runs.context, *({"who": each} for each in who.values()))
    return dict(zip(who, found, strict=True))


def keyed(ask: Asker, hf: Holdfast, name: str, **rights: Any) -> Asker:
    return ask.as_(x_api_key=str(hf.keys.create(name, **rights).secret))


def answered(ask: Asker, question: Question, value: object = "7") -> Said:
    return ask.post(f"{Z}/{question.id}/answer", {"value": value})


def names_of(ask: Asker, asked: dict[str, Question], query: str = "") -> set[str]:
    ids = {each["id"] for each in ask.get(Z + query).json()["data"]}
    return {name for name, each in asked.items() if each.id in ids}


def test_a_key_that_may_write_answers_what_is_for_all_and_for_its_name(
    ask: Asker, hf: Holdfast, asked: dict[str, Question]
) -> None:
    desk = keyed(ask, hf, "desk", scope="write")

    said = {name: answered(desk, each) for name, each in asked.items()}

    assert {name: each.status for name, each in said.items()} == {
        "all": 200,
        "anna": 403,
        "desk": 200,
        "admin": 403,
        "two": 200,
    }
    assert said["all"].json()["answered_by"] == "key:desk"
    assert names_of(desk, asked) == {"anna", "admin"}


def test_an_administrator_answers_what_is_for_all_and_for_administrators(
    ask: Asker, hf: Holdfast, asked: dict[str, Question]
) -> None:
    admin = keyed(ask, hf, "root", scope="admin")

    said = {name: answered(admin, each).status for name, each in asked.items()}

    assert said == {"all": 200, "anna": 403, "desk": 403, "admin": 200, "two": 403}


def test_a_key_that_may_only_read_answers_nothing(
    ask: Asker, hf: Holdfast, asked: dict[str, Question]
) -> None:
    reader = keyed(ask, hf, "desk", scope="read")

    assert {answered(reader, each).status for each in asked.values()} == {403}
    assert names_of(reader, asked) == asked.keys()


def test_a_key_of_a_user_reaches_the_questions_that_name_the_user_and_nothing_else_of_runs(
    ask: Asker, hf: Holdfast, asked: dict[str, Question]
) -> None:
    anna = keyed(ask, hf, "phone", scope="write", user="anna")

    assert names_of(anna, asked) == {"anna"}
    assert names_of(anna, asked, "?who=user:anna") == {"anna"}
    assert anna.get(f"{Z}?who=user:bob").status == 403
    assert {name: anna.get(f"{Z}/{each.id}").status for name, each in asked.items()} == {
        "all": 404,
        "anna": 200,
        "desk": 404,
        "admin": 404,
        "two": 404,
    }
    for path in ("", "/run_1", "/run_1/events", "/run_1/entries"):
        assert anna.get(f"/api/runs{path}").status == 403
    assert anna.post("/api/runs/run_1/cancel", {}).status == 403

    said = {name: answered(anna, each) for name, each in asked.items()}

    assert {name for name, each in said.items() if each.status == 200} == {"anna"}
    assert said["anna"].json()["answered_by"] == "user:anna"


def test_a_key_of_a_user_that_may_only_read_does_not_answer(
    ask: Asker, hf: Holdfast, asked: dict[str, Question]
) -> None:
    anna = keyed(ask, hf, "phone", scope="read", user="anna")

    assert anna.get(f"{Z}/{asked['anna'].id}").status == 200
    assert answered(anna, asked["anna"]).status == 403


def test_session_tokens_and_keys_of_agents_reach_no_question(
    ask: Asker, hf: Holdfast, asked: dict[str, Question]
) -> None:
    keyed(ask, hf, "root", scope="admin")
    session = hf.sessions.create(agent="a", environment_id="e", resources=[]).id
    token = ask.as_(x_api_key=str(hf.sessions.create_token(session).token))
    agent = keyed(ask, hf, "bot", scope="write", agent="ada")

    for each in (token, agent):
        assert each.get(Z).status == 403
        assert each.get(f"{Z}/{asked['all'].id}").status == 403
        assert answered(each, asked["all"]).status == 403


def test_another_answer_is_a_conflict_that_says_who_and_when(
    ask: Asker, asked: dict[str, Question]
) -> None:
    first = answered(ask, asked["all"])

    assert answered(ask, asked["all"]).json() == first.json()
    again = answered(ask, asked["all"], "8")
    assert again.status == 409
    assert again.facts["class"] == "AlreadyAnswered"
    assert again.facts["facts"]["by"] == "local"


@pytest.mark.parametrize("body", [{}, {"value": 7}, {"value": "7", "by": "anna"}, ["7"]])
def test_an_answer_is_a_value_that_fits(
    ask: Asker, asked: dict[str, Question], body: object
) -> None:
    assert ask.post(f"{Z}/{asked['all'].id}/answer", body).status == 400


def test_the_server_settles_what_is_due_in_every_workspace(
    app: App, hf: Holdfast, clock: FrozenClock
) -> None:
    due = clock.now() + timedelta(seconds=60)
    for workspace, default in (("lab", {"default": "7"}), ("quay", {})):
        context = hf.acting(workspace=workspace).runs.context
        come_to_rest(context, {"expires_at": due, **default})

    app.state.sweep_questions()
    before = stored(hf)
    clock.tick(60)
    app.state.sweep_questions()

    assert before == [("lab", "open", "waiting"), ("quay", "open", "waiting")]
    assert stored(hf) == [("lab", "answered", "queued"), ("quay", "expired", "queued")]


def test_questions_are_counted_by_status_and_outcome(
    ask: Asker, hf: Holdfast, asked: dict[str, Question], clock: FrozenClock
) -> None:
    before = counted(ask)
    clock.tick(30)
    answered(ask, asked["all"])
    answered(ask, asked["all"], "8")
    (denied,) = come_to_rest(hf.runs.context, {"kind": "approval"}, run="run_2")
    answered(ask, denied, value=False)
    hf.runs.cancel("run_1")

    after = counted(ask)
    # A series is there from its first count on.
    grown = {name: after[name] - before.get(name, 0) for name in after}
    rise = {name: by for name, by in grown.items() if by}
    assert {name: rise[f'run_answers_total{{outcome="{name}"}}'] for name in OUTCOMES} == OUTCOMES
    assert rise["run_wait_seconds_count"] == 2
    assert round(rise["run_wait_seconds_sum"]) == 30
    assert after['run_questions{status="open"}'] == 0
    assert after['run_questions{status="withdrawn"}'] == 4


OUTCOMES = {"answered": 1, "denied": 1, "refused": 1, "withdrawn": 4}


def counted(ask: Asker) -> dict[str, float]:
    lines = ask.get("/metrics").body.decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if line.startswith("holdfast_run_")]
    return {name.removeprefix("holdfast_"): float(number) for name, _, number in pairs}


def stored(hf: Holdfast) -> list[tuple[str, str, str]]:
    sql = """
    select q.workspace, q.status, r.status as run_status from run_questions q
    join runs r on r.workspace = q.workspace and r.id = q.run_id
    order by q.workspace
    """
    return hf.engine.scoped(EVERYBODY).all(_row, sql)


def _row(*, workspace: str, status: str, run_status: str) -> tuple[str, str, str]:
    return workspace, status, run_status
