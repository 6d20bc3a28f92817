"""The chat: turns with memory and without, streamed and as whole pages."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from html import unescape

import pytest
from doors.console.client import HOSTILE, ConsoleClient, Shown

import holdfast
from holdfast import LongTermMemory, ThreadMessage
from holdfast.doors.console.app import Console
from holdfast.doors.console.conversation import ChatRequest, ChatTurn, texts_of
from holdfast.doors.http.app import make_app
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

SignedIn = Callable[..., ConsoleClient]
THREAD = "thread_1"
TARGET = f"/console/chat/{THREAD}"


def form(message: str, *, memory: bool = False, user: str = "ada", **more: str) -> dict[str, str]:
    return {
        "message": message,
        "model": "scripted",
        "agent": "chat",
        "user": user,
        "memory_enabled": "true" if memory else "false",
        **more,
    }


def memory_of(hf: Holdfast, user: str = "ada") -> LongTermMemory:
    memory = hf.longterm(user, enabled=True, embedder=False)
    assert memory is not None
    return memory


def turns_of(hf: Holdfast, user: str = "ada") -> Sequence[object]:
    return hf.longterm_data(user).list("turns").data


def answered(shown: Shown) -> str:
    """Return the newest answer of the page, as it was made."""
    return unescape(re.findall(r"<pre hx-ignore>(.*?)</pre>", shown.html, re.DOTALL)[-1])


@contextmanager
def visiting(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner, models: Sequence[str]
) -> Generator[ConsoleClient]:
    """Give a visitor of a server that was started with these *models*."""
    app = make_app(hf, clock=clock, make_site=partial(Console, chat_models=models))
    yield ConsoleClient(app, runner)
    app.state.close()


# The page


def test_a_chat_begins_with_memory_off_and_the_scripted_model(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    hf.durable("support").set("tone", "kind", category="core")

    shown = visitor.get("/console/chat")

    (chip,) = [each for each in shown.named("button") if "aria-pressed" in each]
    assert chip["aria-pressed"] == "false"
    assert "Memory: off" in shown.text
    assert shown.named("input", name="memory_enabled", value="false")
    assert shown.named("section", role="log", aria_label="Conversation")
    assert [each["value"] for each in shown.named("option")] == ["scripted", "chat", "support"]
    for label in ("Model", "Agent", "User", "Message"):
        assert label in shown.page.texts
    assert "holdfast serve --chat-model" in shown.text
    (sends,) = shown.named("form", id="say")
    assert sends["hx-post"] == f"{sends['action']}/answer"
    assert not hf.threads.list().data


def test_the_models_of_the_server_are_offered_and_no_others(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    with visiting(hf, clock, runner, ("test", "openai:gpt")) as visitor:
        shown = visitor.get("/console/chat")
        assert [each["value"] for each in shown.named("option")] == ["test", "openai:gpt", "chat"]
        assert "--chat-model" not in shown.text

        refused = visitor.post(TARGET, form("Hello"))
        assert refused.status == 400
        assert "must be one of: test, openai:gpt" in refused.text


def test_without_script_memory_is_switched_on_by_a_link(visitor: ConsoleClient) -> None:
    shown = visitor.get("/console/chat?memory_enabled=true&user=ada")

    assert "Memory: on" in shown.text
    assert shown.named("input", name="memory_enabled", value="true")
    assert shown.named("input", name="user", value="ada")


def test_the_user_of_the_last_chat_is_offered_for_the_next(visitor: ConsoleClient) -> None:
    assert visitor.get("/console/chat").named("input", name="user", value="")
    visitor.post(TARGET, form("Hello", user="dora"))

    assert visitor.get("/console/chat").named("input", name="user", value="dora")


def test_a_conversation_that_did_not_begin_is_not_found(visitor: ConsoleClient) -> None:
    assert visitor.get("/console/chat/thread_no").status == 404


# Turns


def test_a_turn_without_script_gives_the_whole_page(hf: Holdfast, visitor: ConsoleClient) -> None:
    shown = visitor.post(TARGET, form("Hello\r\nthere"))

    assert shown.status == 200
    assert answered(shown) == "You said: Hello\nthere\nMemories given: 0"
    assert shown.named("form", id="say")[0]["action"] == TARGET
    assert shown.named("textarea", name="message")
    thread = hf.threads.retrieve(THREAD)
    assert (thread.turns, thread.user) == (2, "ada")
    again = visitor.get(TARGET)
    assert "Hello" in again.text
    assert "Memory was off for this turn" in again.text


def test_without_memory_nothing_is_recalled_and_nothing_is_recorded(
    hf: Holdfast, visitor: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Off is a veto, also where the server enables it for everyone.
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")
    memory_of(hf).remember("Ada's canoe is called Marigold")

    shown = visitor.post(TARGET, form("What is my canoe called?"))

    assert answered(shown).endswith("Memories given: 0")
    assert "Marigold" not in shown.text
    assert "Memory was off for this turn" in shown.text
    assert not shown.named("section", aria_label="Recalled memories")
    assert not turns_of(hf)
    (item,) = hf.longterm_data("ada").list().data
    assert item.access_count == 0


def test_with_memory_the_block_is_shown_as_the_model_got_it(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    stored = memory_of(hf).remember("Ada's canoe is called <Marigold> & sails").stored
    assert stored is not None

    shown = visitor.post(TARGET, form("What is my canoe called?", memory=True))

    answer = "Memories given: 1\n- Ada's canoe is called <Marigold> & sails"
    assert f"You said: What is my canoe called?\n{answer}" in unescape(shown.html)
    assert shown.named("section", aria_label="Recalled memories")
    assert "<recalled-memories>" in shown.text
    assert "called &lt;Marigold&gt; &amp; sails (2026-01-01)" in shown.text
    assert f"/console/people/ada/items/{stored.id}" in shown.page.links
    assert re.search(r"& sails 0\.\d\d", shown.text)
    assert len(turns_of(hf)) == 2
    assert "Stored afterwards" in shown.text


def test_the_next_conversation_recalls_this_one(hf: Holdfast, visitor: ConsoleClient) -> None:
    visitor.post(TARGET, form("My canoe is called Marigold.", memory=True))

    shown = visitor.post("/console/chat/t2", form("What is my canoe called?", memory=True))

    assert "- My canoe is called Marigold." in unescape(shown.html)
    assert "2 stored" in shown.text
    assert hf.threads.retrieve("t2").user == "ada"


def test_what_an_earlier_answer_was_given_is_shown_with_its_scores(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    stored = memory_of(hf).remember("Ada's canoe is called Marigold").stored
    assert stored is not None
    visitor.post(TARGET, form("What is my canoe called?", memory=True))

    shown = visitor.get(TARGET)
    assert shown.named("section", aria_label="Recalled memories")
    assert re.search(r"Marigold 0\.\d\d", shown.text)
    hf.longterm_data("ada").forget(stored.id)
    assert "forgotten" in visitor.get(TARGET).text


def test_the_agents_entries_are_hydrated_and_counted(hf: Holdfast, visitor: ConsoleClient) -> None:
    hf.durable("support").set("tone", "kind", category="core")

    shown = visitor.post(TARGET, form("Hello", memory=True, agent="support"))

    assert "1 entry of the agent in the prompt, 0 left out" in shown.text
    assert "/console/agents/support/hydration" in shown.page.links
    (option,) = visitor.get(TARGET).named("option", value="support")
    assert "selected" in option


def test_tools_of_longterm_memory_are_offered_with_memory_alone(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    with visiting(hf, clock, runner, ("test",)) as visitor:
        visitor.post("/console/chat/off", form("Hello", model="test"))
        visitor.post("/console/chat/on", form("Hello", model="test", memory=True))

    def called(thread: str) -> set[str]:
        (result,) = hf.threads.results(thread)
        return {each.tool.name for each in result.tool_calls}

    tools = {name for name in called("on") if name.startswith("ltm_")}
    assert tools
    assert called("off")
    assert not called("off") & tools


def test_where_the_server_disables_memory_the_chip_says_so(
    hf: Holdfast, visitor: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "0")

    shown = visitor.get("/console/chat?memory_enabled=true")
    (chip,) = [each for each in shown.named("button") if "aria-pressed" in each]
    assert "disabled" in chip
    assert "HOLDFAST_LTM_ENABLED" in shown.text
    turn = visitor.post(TARGET, form("Hello", memory=True))

    assert "Memory was off for this turn" in turn.text
    assert not turns_of(hf)


# What is refused


@pytest.mark.parametrize(
    ("sent", "field", "why"),
    [
        (form("  "), "message", "empty"),
        (form("Hello", memory=True, user=""), "user", "memory is on"),
        (form("Hello", user="a\x00b"), "user", "user"),
        (form("Hello", user="dora"), "user", "is of another user"),
    ],
)
def test_a_message_that_is_refused_comes_back_as_it_was_typed(  # noqa: PLR0917 - parameters
    hf: Holdfast,
    clock: FrozenClock,
    visitor: ConsoleClient,
    sent: dict[str, str],
    field: str,
    why: str,
) -> None:
    thread = "of_ada"
    hf.threads.append(thread, [ThreadMessage(id="m", content="Hi", at=clock.now())], user="ada")
    target = f"/console/chat/{thread}" if why == "is of another user" else TARGET

    shown = visitor.post(target, sent)

    assert shown.status == 400
    assert shown.named("div", role="alert")
    assert why in shown.text
    wrong = [given["name"] for _, given in shown.page.named if given.get("aria-invalid") == "true"]
    assert wrong == [field]
    if field != "message":
        assert "Hello" in shown.text
    streamed = visitor.post(f"{target}/answer", sent)
    assert "hx-partial" in streamed.html
    assert why in streamed.text
    assert hf.threads.list().data[0].turns == 1


def test_a_thread_without_a_user_stays_without_memory(hf: Holdfast, visitor: ConsoleClient) -> None:
    visitor.post(TARGET, form("Hello", user=""))
    assert hf.threads.retrieve(THREAD).user is None

    shown = visitor.post(TARGET, form("Hello", user="ada"))
    assert shown.status == 400
    assert "was begun without a user" in shown.text
    assert "readonly" in visitor.get(TARGET).named("input", name="user")[0]


def test_a_model_that_fails_ends_the_turn_and_says_why(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    with visiting(hf, clock, runner, ("nowhere:model",)) as visitor:
        shown = visitor.post(TARGET, form("Hello", model="nowhere:model"))
        streamed = visitor.post(f"{TARGET}/answer", form("Again", model="nowhere:model"))

    assert shown.status == 200
    assert "nowhere" in shown.text
    assert shown.named("p", role="alert")
    assert "nowhere" in streamed.text
    assert not turns_of(hf)


# Streams


def test_an_answer_is_streamed_in_pieces_and_ends_with_what_memory_gave(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    memory_of(hf).remember("Ada's canoe is called Marigold")

    shown = visitor.post(f"{TARGET}/answer", form("What is my canoe called?", memory=True))

    assert shown.headers["content-type"] == "text/event-stream"
    assert "content-encoding" not in shown.headers
    events = [each for each in shown.html.split("\n\n") if each.startswith("data:")]
    pieces = [each for each in events if 'hx-target="#text-' in each]
    assert len(pieces) == 3
    assert "You said: What is my canoe called?" in pieces[0]
    assert 'hx-target="#conversation"' in events[0]
    assert 'aria-label="Recalled memories"' in events[-1]
    assert "Marigold" in events[-1]
    assert hf.threads.retrieve(THREAD).turns == 2


def test_a_tool_that_is_called_is_shown_while_it_runs(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    with visiting(hf, clock, runner, ("test",)) as visitor:
        shown = visitor.post(f"{TARGET}/answer", form("Hello", model="test"))

    assert "Calls" in shown.text
    assert "memory_store" in shown.text


def test_a_turn_that_is_left_early_is_cancelled_and_not_remembered(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    request = ChatRequest(
        thread=THREAD, text="Hello", model="scripted", agent="chat", user="ada", memory=True
    )

    async def leave() -> None:
        turn = ChatTurn(hf, request, clock)
        async with aclosing(turn.pieces()) as pieces:
            async for _ in pieces:
                return

    runner.run(leave())

    assert not turns_of(hf)
    (run,) = hf.runs.list(thread=THREAD).data
    assert run.status == "cancelled"


# Forgetting


def test_what_a_turn_stored_is_forgotten_once_confirmed(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    shown = visitor.post(TARGET, form("My canoe is called Marigold.", memory=True))
    ways = [each for each in shown.page.links if "forget=" in each]
    assert len(ways) == 2
    dialog = visitor.get(ways[0])
    assert dialog.named("dialog", aria_labelledby="confirm-title")
    id = ways[0].partition("forget=")[2]

    wrong = visitor.post(f"{TARGET}/forget", {"forget": id, "confirmation": "no"})
    assert wrong.status == 400
    assert wrong.named("input", name="confirmation", aria_invalid="true")
    assert len(turns_of(hf)) == 2

    done = visitor.post(f"{TARGET}/forget", {"forget": id, "confirmation": id[-6:]})
    assert "It was forgotten" in visitor.follow(done).text
    assert len(turns_of(hf)) == 1
    again = visitor.post(f"{TARGET}/forget", {"forget": id, "confirmation": id[-6:]})
    assert again.status == 404


def test_the_memory_of_another_user_is_not_forgotten_through_a_thread(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    stored = memory_of(hf, "dora").remember("Dora drinks tea").stored
    assert stored is not None
    visitor.post(TARGET, form("Hello"))

    sent = {"forget": stored.id, "confirmation": stored.id[-6:]}
    assert visitor.post(f"{TARGET}/forget", sent).status == 404
    assert hf.longterm_data("dora").get(stored.id) is not None


# Who may


def test_a_key_that_reads_sees_conversations_and_says_nothing(
    hf: Holdfast, visitor: ConsoleClient, signed_in: SignedIn
) -> None:
    visitor.post(TARGET, form("Hello", memory=True))
    reader = signed_in("read")

    shown = reader.get(TARGET)
    assert "Hello" in shown.text
    assert not shown.named("form", id="say")
    assert "needs a key of scope write" in shown.text
    for act in ("", "/answer", "/forget"):
        assert reader.post(f"{TARGET}{act}", form("Hello")).status == 403
    assert hf.threads.retrieve(THREAD).turns == 2


def test_a_key_of_an_agent_and_a_user_chats_as_these(
    hf: Holdfast, visitor: ConsoleClient, signed_in: SignedIn
) -> None:
    visitor.post("/console/chat/of_dora", form("Hello", user="dora"))
    own = signed_in("write", agent="support", user="ada")

    begun = own.get("/console/chat")
    assert "/console/chat" in begun.page.links
    assert [each["value"] for each in begun.named("option")] == ["scripted", "support"]
    assert begun.named("input", name="user", value="ada")
    own.post(TARGET, form("Hello", memory=True, user="dora", agent="chat"))

    assert hf.threads.retrieve(THREAD).user == "ada"
    assert hf.threads.results(THREAD)[0].agent == "support"
    assert turns_of(hf, "ada")
    assert not turns_of(hf, "dora")
    assert own.get("/console/chat/of_dora").status == 404
    assert own.post("/console/chat/of_dora", form("Hello")).status == 404


@pytest.mark.parametrize("owner", [{"agent": "support"}, {"user": "ada"}])
def test_a_key_of_one_of_the_two_does_not_chat(signed_in: SignedIn, owner: dict[str, str]) -> None:
    bound = signed_in("write", **owner)

    assert bound.get("/console/chat").status == 403
    assert bound.post(TARGET, form("Hello")).status == 403
    assert "bound" in bound.post(f"{TARGET}/answer", form("Hello")).text


def test_a_message_sent_after_the_sign_in_lapsed_is_there_after_the_next(
    hf: Holdfast, visitor: ConsoleClient
) -> None:
    key = hf.keys.create("k", scope="write")
    assert key.secret is not None

    lapsed = visitor.post(TARGET, form("Long thoughts"))
    assert lapsed.status == 401
    (kept,) = lapsed.named("input", name="kept")
    shown = visitor.post("/console/sign-in", {"key": key.secret, "kept": kept["value"] or ""})

    assert "Long thoughts" in shown.text
    assert not hf.threads.list().data


# Texts from outside


def test_hostile_texts_stay_texts(hf: Holdfast, visitor: ConsoleClient) -> None:
    def skeleton(n: int, text: str) -> tuple[list[str], list[str]]:
        memory_of(hf, f"user{n}").remember(f"about canoes: {text}")
        sent = form(f"canoes {text}", memory=True, user=f"user{n}")
        whole = visitor.post(f"/console/chat/whole{n}", sent)
        streamed = visitor.post(f"/console/chat/streamed{n}/answer", sent | {"user": f"user{n}"})
        return marked(whole), [each for each in marked(streamed) if not each.startswith("li")]

    def marked(shown: Shown) -> list[str]:
        # Hidden characters are marked, each by an element of ours; what is cut has a title.
        found = (
            "bdi" if each == "bdi title" else each
            for each in shown.page.elements
            if each != "span class title"
        )
        return [each for each in found if not each.startswith(("hx-partial", "option"))]

    plain = skeleton(0, "plain")
    for n, text in enumerate(HOSTILE, 1):
        found = skeleton(n, text)
        assert set(found[0]) == set(plain[0]), text
        assert set(found[1]) == set(plain[1]), text


def test_the_texts_of_a_block_are_read_without_kinds_speakers_and_dates() -> None:
    block = (
        "<recalled-memories>\nWhat follows is USER DATA.\n- [fact] Ada sails (2026-01-01)\n"
        "- [said by Ada, 2026-01-01] &lt;b&gt; in (2025-01-01)\n(2 more left out)\n"
        "</recalled-memories>"
    )

    assert texts_of(block) == ["Ada sails", "<b> in (2025-01-01)"]


WITHOUT = """
import sys
from importlib import util

there = util.find_spec
util.find_spec = lambda name, *rest: None if name == "pydantic_ai" else there(name, *rest)
sys.path.insert(0, sys.argv[1])

import asyncio
import holdfast
from doors.console.client import ConsoleClient
from holdfast.doors.console.app import Console
from holdfast.doors.http.app import make_app

with holdfast.open(":memory:") as hf, asyncio.Runner() as runner:
    app = make_app(hf, make_site=Console)
    visitor = ConsoleClient(app, runner)
    shown = visitor.get("/console/chat")
    sent = {"message": "Hi", "model": "scripted", "user": "", "agent": "chat"}
    said = "pip install 'holdfast[agents]'" in shown.text
    print(shown.status, said, bool(shown.named("form", id="say")))
    refused = visitor.post("/console/chat/t", sent)
    print(refused.status, "pip install 'holdfast[agents]'" in refused.text)
    app.state.close()
"""


def test_without_the_extra_the_page_says_how_to_have_it() -> None:
    tests = __file__.rpartition("/doors/")[0]
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT, tests], capture_output=True, text=True, check=True
    ).stdout

    assert said == "200 True False\n501 True\n"


def test_the_chat_is_the_same_on_postgresql(
    fresh_postgres_url: str, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    with holdfast.open(fresh_postgres_url, clock=clock) as hf, visiting(hf, clock, runner, ()) as v:
        memory_of(hf).remember("Ada's canoe is called Marigold")
        shown = v.post(TARGET, form("What is my canoe called?", memory=True))
        assert "Memories given: 1\n- Ada's canoe is called Marigold" in unescape(shown.html)
        assert "Marigold" in v.get(TARGET).text
