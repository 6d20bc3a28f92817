"""Pages of runs: the list, two runs compared, questions to people."""

from collections.abc import Callable
from typing import Any

import pytest
from doors.console.client import ConsoleClient
from doors.console.harbour import asked, asking, attached, planned, question_tool
from pydantic_ai import Tool

from holdfast import keys
from holdfast.doors.console.timeline import compact
from holdfast.library.holdfast import Holdfast
from holdfast.testing import call

SignedIn = Callable[..., ConsoleClient]


def test_without_runs_the_list_says_how_one_comes(visitor: ConsoleClient) -> None:
    assert "hf.runs.attach" in visitor.get("/console/runs").text


def test_the_list_shows_runs_and_filters_them(hf: Holdfast, visitor: ConsoleClient) -> None:
    attached(hf, "run_live", "Research", agent="ada").set(keys.shared("a"), 1)
    planned(hf, "run_plan", "Three.", "Told.")

    shown = visitor.get("/console/runs")
    heads = ["Name", "State", "Agent", "Entries", "Size", "Started", "Took"]
    assert [each for each in heads if each not in shown.text] == []
    assert shown.named("table", aria_label="Runs")
    assert {"/console/runs/run_live", "/console/runs/run_plan"} <= set(shown.page.links)
    assert "Research" not in visitor.get("/console/runs?status=completed").text
    assert "Harbour" not in visitor.get("/console/runs?kind=memory").text
    assert "No run fits" in visitor.get("/console/runs?kind=network").text
    assert visitor.get("/console/runs?status=odd").status == 400


def test_all_runs_are_reached_by_next_page(hf: Holdfast, visitor: ConsoleClient) -> None:
    for number in range(60):
        attached(hf, f"run_{number}")

    seen: list[str] = []
    target: str | None = "/console/runs"
    while target:
        shown = visitor.get(target)
        seen += [str(each["value"]) for each in shown.named("input", name="run")]
        target = next((a["href"] for a in shown.named("a") if "data-next" in a), None)

    assert len(seen) == len(set(seen)) == 60


# Two runs compared


def test_two_ticked_runs_are_compared(hf: Holdfast, visitor: ConsoleClient) -> None:
    planned(hf, "run_1", "Three.", "Told.")
    planned(hf, "run_2", "Five.", "Told.")

    for query in ("run=run_1&run=run_2", "a=run_1&b=run_2"):
        shown = visitor.get(f"/console/runs/compare?{query}")
        assert shown.named("table", aria_label="Differences")
        assert "task:look" in shown.text
        assert "Five." in shown.text
        assert "task:tell" not in shown.text
    same = visitor.get("/console/runs/compare?a=run_1&b=run_1")
    assert "know the same" in same.text
    assert visitor.get("/console/runs/compare?run=run_1").status == 400
    assert visitor.get("/console/runs/compare?run=run_1&run=none").status == 404


def test_values_stand_in_one_line() -> None:
    values = [None, "a", ["a", "b"], {"a": [1]}, 2]
    assert [compact(each) for each in values] == ["", "a", "a, b", '{"a":[1]}', "2"]


# Questions

CONTROLS = ("button", "input", "textarea")
SHAPES: list[tuple[dict[str, Any], dict[str, str], object]] = [
    ({}, {"answer": "Seven"}, "Seven"),
    ({"options": ["7", "8"]}, {"option": "1"}, "8"),
    ({"options": [7, {"pier": 8}]}, {"option": "1"}, {"pier": 8}),
    ({"schema": {"enum": ["a", "b"]}}, {"option": "0"}, "a"),
    ({"schema": {"type": "boolean"}}, {"choice": "approve"}, True),
    ({"schema": {"type": "boolean"}}, {"choice": "deny"}, False),
    ({"schema": {"type": "integer"}}, {"answer": "12"}, 12),
    ({"schema": {"type": "number"}}, {"answer": "1.5"}, 1.5),
    ({"schema": {"type": "string"}}, {"answer": "12"}, "12"),
    ({"schema": {"type": "object"}}, {"answer": '{"tons": 3}'}, {"tons": 3}),
]


@pytest.mark.parametrize(("given", "fields", "answer"), SHAPES)
def test_a_question_is_answered_with_a_form_made_of_its_schema(
    hf: Holdfast,
    visitor: ConsoleClient,
    given: dict[str, Any],
    fields: dict[str, str],
    answer: object,
) -> None:
    question = asked(hf, **given)

    action = f"/console/runs/run_ask/questions/{question.id}"
    shown = visitor.get("/console/runs/run_ask")
    assert shown.named("form", action=action)
    assert shown.named("section", aria_label="Questions")
    for name in fields:
        assert [each for tag in CONTROLS for each in shown.named(tag, name=name)]
    done = visitor.follow(visitor.post(action, {**fields, "note": "by the pier"}))

    assert "The answer was stored." in done.text
    found = hf.runs.question(question.id)
    assert (found.answer, found.note, found.answered_by) == (answer, "by the pier", "user:console")
    assert hf.runs.retrieve("run_ask").status == "queued"


def test_an_answer_that_does_not_fit_comes_back_with_what_was_typed(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    question = asked(hf, schema={"type": "integer", "minimum": 3})

    for given in ("1", "two"):
        for page in ("runs/run_ask/questions", "questions"):
            fields = {"answer": given, "note": "mine"}
            shown = visitor.post(f"/console/{page}/{question.id}", fields)
            assert shown.status == 400
            assert shown.named("div", role="alert")
            assert shown.named("input", name="answer", value=given, aria_invalid="true")
            assert shown.named("input", name="note", value="mine")
    assert hf.runs.question(question.id).status == "open"


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"choice": "deny"}, False),
        ({"choice": "approve", "arguments": '{"force": 3}'}, True),
        (
            {"choice": "approve", "arguments": '{"force": 1}'},
            {"approved": True, "arguments": {"force": 1}},
        ),
    ],
)
def test_a_call_is_approved_denied_or_approved_with_other_arguments(
    hf: Holdfast, visitor: ConsoleClient, fields: dict[str, str], answer: object
) -> None:
    def blast(force: int) -> str:
        """Blast."""
        return f"boom {force}"

    tool = Tool(blast, requires_approval=True)
    (question,) = asking(hf, tool, calls=[call("blast", force=3)])

    shown = visitor.get("/console/questions")
    assert {str(each.get("value")) for each in shown.named("button", name="choice")} == {
        "approve",
        "deny",
    }
    assert "Approve" in shown.text
    assert "Deny" in shown.text
    assert visitor.post(f"/console/questions/{question.id}", {}).status == 400
    done = visitor.post(f"/console/questions/{question.id}", fields)
    assert visitor.follow(done).status == 200
    assert hf.runs.question(question.id).answer == answer


def test_questions_are_listed_by_status(hf: Holdfast, visitor: ConsoleClient) -> None:
    assert "ask_human" in visitor.get("/console/questions").text
    question = asked(hf)
    assert question.id in visitor.get("/console/questions").html
    hf.runs.answer("run_ask", "Seven")

    assert question.id not in visitor.get("/console/questions").html
    shown = visitor.get("/console/questions?status=answered")
    assert "Seven" in shown.text
    assert not shown.named("form", action=f"/console/questions/{question.id}")
    assert visitor.get("/console/questions?status=odd").status == 400
    late = visitor.post(f"/console/questions/{question.id}", {"answer": "Eight"})
    assert late.status == 409


def test_the_menu_says_how_many_questions_are_open(hf: Holdfast, signed_in: SignedIn) -> None:
    def counted(visitor: ConsoleClient) -> bool:
        shown = visitor.get("/console/stores")
        linked = "/console/questions" in shown.page.links
        assert linked is ("Questions" in shown.text)
        return "Questions 2" in shown.text

    reader, anna = signed_in("read"), signed_in("read", user="anna")
    assert not counted(reader)
    asking(hf, question_tool("One?"), calls=[call("ask")], id="run_one")
    asking(hf, question_tool("Two?"), calls=[call("ask")], id="run_two")

    assert counted(reader)
    for path in ("/console/runs/none", "/console/none"):
        missing = reader.get(path)
        assert (missing.status, "Questions 2" in missing.text) == (404, True), path
    assert "/console/questions" not in anna.get("/console/people/anna").page.links
    assert "/console/questions" not in anna.get("/console/none").page.links
    hf.runs.answer("run_one", "Seven")
    hf.runs.answer("run_two", "Eight")
    assert not counted(reader)


def test_a_question_for_others_has_no_form_and_takes_no_answer(
    hf: Holdfast, signed_in: SignedIn
) -> None:
    question = asked(hf, who=["key:admin-key"])
    writer = signed_in("write")

    shown = writer.get("/console/runs/run_ask")
    assert "For" in shown.text
    assert not shown.named("textarea", name="answer")
    target = f"/console/runs/run_ask/questions/{question.id}"
    assert writer.post(target, {"answer": "Seven"}).status == 403

    admin = signed_in("admin")
    assert admin.post(target, {"answer": "Seven"}).status == 303
    assert hf.runs.question(question.id).answered_by == "key:admin-key"


def test_a_key_of_a_person_answers_questions_that_name_them_and_sees_no_run(
    hf: Holdfast, signed_in: SignedIn
) -> None:
    question = asked(hf, who=["user:anna"])
    (other,) = asking(hf, question_tool("Other?"), calls=[call("ask")], id="run_other")
    anna = signed_in("write", user="anna")

    shown = anna.get("/console/questions")
    assert question.id in shown.html
    assert "Other?" not in shown.text
    assert not [each for each in shown.page.links if each.startswith("/console/runs")]
    assert anna.get("/console/runs/run_ask").status == 403
    assert anna.get("/console/runs").status == 403
    assert anna.post(f"/console/questions/{other.id}", {"answer": "x"}).status == 404
    assert anna.post(f"/console/questions/{question.id}", {"answer": "Seven"}).status == 303
    assert hf.runs.question(question.id).answered_by == "user:anna"
