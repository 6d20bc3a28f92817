"""Pages of threads: what was said, and what memory gave to each answer."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from doors.console.client import HOSTILE, ConsoleClient, Shown

import holdfast
from holdfast import InferenceResult, ThreadMessage, messages
from holdfast.doors.console.app import Console
from holdfast.doors.http.app import make_app
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

SignedIn = Callable[..., ConsoleClient]
THREAD = "thread_of_ada"
TARGET = f"/console/threads/{THREAD}"
MARK = "span class title"


def say(hf: Holdfast, clock: FrozenClock, text: str, *, thread: str = THREAD, n: int = 1) -> None:
    message = ThreadMessage(id=f"msg_{n}", content=text, at=clock.now())
    hf.threads.append(thread, [message], user="ada")


def answer(
    hf: Holdfast,
    text: str,
    *,
    memory: object = None,
    calls: list[Any] | None = None,
    error: dict[str, Any] | None = None,
) -> str:
    result = InferenceResult(
        agent="support",
        output=[messages.assistant(text)],
        tool_calls=calls or [],
        error=error,
        extras={} if memory is None else {"memory": memory},  # pyright: ignore[reportArgumentType] - JSON
    )
    hf.threads.append(THREAD, [result], user="ada")
    return result.id


def called(name: str, sent: object, returned: object) -> dict[str, Any]:
    tool = {"type": "tool", "id": "c1", "name": name, "input": sent}
    return {"type": "tool_result", "role": "tool_result", "tool": tool, "content": returned}


def test_without_threads_the_list_says_how_one_begins(visitor: ConsoleClient) -> None:
    assert "session.send" in visitor.get("/console/threads").text
    assert "This user has no thread." in visitor.get("/console/threads?user=bob").text


def test_the_list_shows_threads_of_all_users_or_of_one(
    hf: Holdfast, clock: FrozenClock, visitor: ConsoleClient
) -> None:
    say(hf, clock, "Hello")
    hf.threads.append("other", [ThreadMessage(id="m", content="Hi", at=clock.now())], user="bob")

    every, one = visitor.get("/console/threads"), visitor.get("/console/threads?user=ada")

    assert every.named("table", aria_label="Threads")
    assert {TARGET, "/console/threads/other"} <= set(every.page.links)
    assert TARGET in one.page.links
    assert "/console/threads/other" not in one.page.links


def test_all_threads_are_reached_by_next_page(
    hf: Holdfast, clock: FrozenClock, visitor: ConsoleClient
) -> None:
    for n in range(120):
        say(hf, clock, "Hello", thread=f"t{n}")

    seen: list[str] = []
    target: str | None = "/console/threads"
    while target:
        shown = visitor.get(target)
        rows = [each for each in shown.page.links if each.startswith("/console/threads/t")]
        assert len(rows) <= 50
        seen += rows
        target = next((a["href"] for a in shown.named("a") if "data-next" in a), None)

    assert len(seen) == len(set(seen)) == 120


def test_a_thread_shows_what_was_said_and_by_whom(
    hf: Holdfast, clock: FrozenClock, visitor: ConsoleClient
) -> None:
    say(hf, clock, "Where is my order?")
    answer(
        hf,
        "It is on its way.",
        calls=[called("find_order", {"number": 1042}, {"data": "shipped"})],
        error={"name": "Slow", "message": "it took long"},
    )

    shown = visitor.get(TARGET)

    assert shown.status == 200
    assert shown.named("ol", aria_label="Turns")
    for text in ("ada", "Where is my order?", "support", "It is on its way.", "find_order"):
        assert text in shown.text
    assert '"number": 1042' in shown.text
    assert "shipped" in shown.text
    assert "Slow: it took long" in shown.text


def test_a_turn_of_another_framework_is_shown_as_json(hf: Holdfast, visitor: ConsoleClient) -> None:
    turn = {"kind": "foreign", "value": {"role": "human"}, "source": "langgraph"}
    hf.threads.append(THREAD, [turn])

    shown = visitor.get(TARGET)

    assert "langgraph" in shown.text
    assert '"role": "human"' in shown.text


def test_a_thread_that_is_not_there_is_not_found(visitor: ConsoleClient) -> None:
    assert visitor.get("/console/threads/thread_no").status == 404
    assert visitor.get("/console/threads/a%20b").status == 400


def test_a_page_has_fifty_turns_and_leads_to_the_rest(
    hf: Holdfast, clock: FrozenClock, visitor: ConsoleClient
) -> None:
    for n in range(60):
        say(hf, clock, f"Message number {n}.", n=n)

    first = visitor.get(TARGET)
    (following,) = [a["href"] for a in first.named("a") if "data-next" in a]
    assert following is not None
    second = visitor.get(following)

    assert first.html.count('class="turn"') == 50
    assert second.html.count('class="turn"') == 10
    assert "Message number 59." in second.text


def test_a_long_text_is_cut_and_shown_whole_behind_a_link(
    hf: Holdfast, clock: FrozenClock, visitor: ConsoleClient
) -> None:
    say(hf, clock, "x" * 20_000 + "THE END")

    shown = visitor.get(TARGET)
    assert "THE END" not in shown.text
    assert "20,007 characters in all." in shown.text
    (whole,) = [each for each in shown.page.links if "whole=" in each]

    assert "THE END" in visitor.get(whole.partition("#")[0]).text


def given(shown: Shown) -> str:
    """Return the text of the page from `What memory gave` on."""
    return shown.text.partition("What memory gave")[2]


def test_a_result_without_a_record_says_so(hf: Holdfast, visitor: ConsoleClient) -> None:
    answer(hf, "Hello.")

    assert "made without a record of what memory gave" in given(visitor.get(TARGET))


def test_what_memory_gave_is_resolved_and_what_is_no_more_is_forgotten(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    hf.durable("support").set("deploy_target", "fly.io", category="core")
    entry = hf.durable("support").get("deploy_target")
    assert entry is not None
    memory = hf.longterm("ada", enabled=True, embedder=False)
    assert memory is not None
    kept, lost = memory.remember("Ada drinks tea").stored, memory.remember("Ada sails").stored
    assert kept is not None
    assert lost is not None
    memory.forget(lost.id)
    answer(
        hf,
        "Tea, then.",
        memory={
            "enabled": True,
            "hydration": {
                "digest": "d",
                "seq": 1,
                "budget": 8192,
                "entries": [entry.id, "entry_gone"],
                "omitted": [{"id": "entry_big", "reason": "too_big"}],
            },
            "recalled": [{"id": kept.id, "score": 0.91}, {"id": lost.id, "score": 0.4}],
            "left_out": 2,
        },
    )

    shown = visitor.get(TARGET)

    found = given(shown)
    assert "2 recalled · 2 of 3 entries hydrated" in found
    assert "Ada drinks tea 0.91" in found
    assert "2 more had no room in the block" in found
    assert "deploy_target" in found
    assert "larger than the whole budget" in found
    assert found.count("forgotten") == 3
    assert "Ada sails" not in shown.text
    assert f"/console/people/ada/items/{kept.id}" in shown.page.links
    assert "/console/agents/support/entries/deploy_target" in shown.page.links


def test_a_turn_without_memory_says_that_it_was_off(hf: Holdfast, visitor: ConsoleClient) -> None:
    answer(hf, "Hello.", memory={"enabled": False})

    assert "Memory was off for this turn." in given(visitor.get(TARGET))


@pytest.mark.parametrize(
    "memory",
    [
        "text",
        7,
        [],
        {"enabled": "yes"},
        {"enabled": True, "recalled": [{"id": 3}]},
        {"recalled": 1},
    ],
)
def test_what_a_client_stored_in_its_place_is_no_record(
    hf: Holdfast, visitor: ConsoleClient, memory: object
) -> None:
    answer(hf, "Hello.", memory=memory)

    shown = visitor.get(TARGET)
    assert shown.status == 200
    assert "without a record" in given(shown)


def test_entries_that_the_answer_before_was_given_too_are_listed_once(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    for entries in (["entry_a"], ["entry_a"], ["entry_b"]):
        answer(hf, "Hello.", memory={"enabled": True, "hydration": {"entries": entries}})

    text = visitor.get(TARGET).text
    assert text.count("the same entries as for the answer before") == 1
    assert text.count("forgotten") == 2


def test_at_most_a_hundred_rows_of_each_kind_are_listed(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    ids = [f"entry_{n}" for n in range(250)]
    answer(hf, "Hello.", memory={"enabled": True, "hydration": {"entries": ids}})

    found = given(visitor.get(TARGET))
    assert found.count("forgotten") == 100
    assert "150 more entries are not listed." in found


def test_a_thread_is_deleted_once_confirmed(
    hf: Holdfast, clock: FrozenClock, visitor: ConsoleClient
) -> None:
    say(hf, clock, "Hello")
    dialog = visitor.get(f"{TARGET}?confirm=delete")
    assert dialog.named("dialog", aria_labelledby="confirm-title")
    assert THREAD[-6:] in dialog.text

    wrong = visitor.post(f"{TARGET}/delete", {"confirmation": "no", "confirm": "delete"})
    assert wrong.status == 400
    assert wrong.named("input", id="f-confirmation", aria_invalid="true")
    assert hf.threads.retrieve(THREAD).turns == 1

    done = visitor.post(f"{TARGET}/delete", {"confirmation": THREAD[-6:]})
    assert "The thread was deleted" in visitor.follow(done).text
    assert visitor.get(TARGET).status == 404
    assert visitor.post(f"{TARGET}/delete", {"confirmation": THREAD[-6:]}).status == 404


def test_a_key_that_reads_sees_threads_and_deletes_none(
    hf: Holdfast, clock: FrozenClock, signed_in: SignedIn
) -> None:
    say(hf, clock, "Hello")
    reader = signed_in("read")

    shown = reader.get(f"{TARGET}?confirm=delete")
    assert shown.status == 200
    assert "Delete" not in shown.text
    assert "<dialog" not in shown.html
    assert "New chat" not in reader.get("/console/threads").text
    assert reader.post(f"{TARGET}/delete", {"confirmation": THREAD[-6:]}).status == 403
    assert hf.threads.retrieve(THREAD).turns == 1


@pytest.mark.parametrize("owner", [{"agent": "support"}, {"user": "ada"}])
def test_a_bound_key_sees_no_threads(
    hf: Holdfast, clock: FrozenClock, signed_in: SignedIn, owner: dict[str, str]
) -> None:
    say(hf, clock, "Hello")
    bound = signed_in("write", **owner)

    assert bound.get("/console/threads").status == 403
    assert bound.get(TARGET).status == 403


def test_hostile_texts_stay_texts(hf: Holdfast, clock: FrozenClock, visitor: ConsoleClient) -> None:
    def skeleton(n: int, text: str) -> list[str]:
        thread = f"hostile{n}"
        hf.threads.append(
            thread, [ThreadMessage(id=f"m{n}", content=text, at=clock.now())], user="ada"
        )
        result = InferenceResult(
            agent="support",
            output=[messages.assistant(text)],
            tool_calls=[called(text, {text: text}, {"error": error(text)})],  # pyright: ignore[reportArgumentType] - read as a message
            error=error(text),
            model=text,
            extras={"memory": {"enabled": True, "recalled": [{"id": text, "score": 1.0}]}},
        )
        hf.threads.append(thread, [result], user="ada")
        return visitor.get(f"/console/threads/{thread}").page.elements

    def error(text: str) -> dict[str, Any]:
        return {"name": text, "message": text, "kind": "raised"}

    def marked(elements: list[str]) -> list[str]:
        # Hidden characters are marked, each by an element of ours; what is cut has a title.
        return ["bdi" if each == "bdi title" else each for each in elements if each != MARK]

    plain = marked(skeleton(0, "plain"))
    for n, text in enumerate(HOSTILE, 1):
        assert marked(skeleton(n, text)) == plain, text


def test_threads_are_the_same_on_postgresql(
    fresh_postgres_url: str, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    with holdfast.open(fresh_postgres_url, clock=clock) as hf:
        app = make_app(hf, clock=clock, make_site=Console)
        visitor = ConsoleClient(app, runner)
        say(hf, clock, "Hello")
        answer(hf, "Hi.", memory={"enabled": True, "hydration": {"entries": ["entry_gone"]}})

        assert TARGET in visitor.get("/console/threads").page.links
        assert "forgotten" in given(visitor.get(TARGET))
        visitor.post(f"{TARGET}/delete", {"confirmation": THREAD[-6:]})
        assert visitor.get(TARGET).status == 404
        app.state.close()
