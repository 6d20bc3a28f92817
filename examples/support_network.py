"""A help desk of three agents: triage files what a customer asks, and that decides who answers.

    python examples/support_network.py desk.db "Invoice 77 was charged twice."
    python examples/support_network.py desk.db "Was my refund sent?" --thread thread_…
    python examples/support_network.py desk.db "The app shows error 500." --model openai:gpt-5-mini
    cd examples && holdfast serve --networks support_network:desk

Each run is a process of its own; the thread is in the database, which may be a file, a PostgreSQL
database or a server. The model is scripted unless one is named: any that pydantic-ai knows, its
key in the environment. No model routes: triage writes the topic into the network's state with a
tool, and the router, a function, reads it there.
"""

import argparse
import asyncio
from typing import Literal

import holdfast
from holdfast.runtime import Agent, EngineHistory, Network, RouterContext, ToolContext
from holdfast.testing.scripted import Asked, ScriptedModel, call

Topic = Literal["billing", "engineer"]


def file_case(ctx: ToolContext, topic: Topic, summary: str) -> str:  # noqa: D417 - a model sees no ctx
    """File what the customer asks, so that somebody answers it.

    Args:
        topic: billing for invoices and refunds, engineer for all that does not work
        summary: what it is about, in one line
    """
    ctx.state.kv.set("case", {"topic": topic, "summary": summary})
    return "filed"


def who_is_next(ctx: RouterContext) -> str | None:
    """Ask triage first, then whoever the case is for, then nobody."""
    if ctx.call_count == 0:
        return "triage"
    case = ctx.state.kv.get("case")
    if ctx.call_count == 1 and isinstance(case, dict):
        return str(case["topic"])
    return None


def scripted(asked: Asked) -> object:
    """Say what a model might: as the agent whose instructions these are, to what was said last."""
    if "You file" in asked.instructions:
        return _as_triage(asked)
    if "invoices" in asked.instructions:
        if "sent?" in _newest(asked):
            known = "refund 20 euros" in asked.text
            return "It was sent yesterday: 20 euros." if known else "I know of no refund."
        return "That was our mistake: I refund 20 euros."
    return "Please update to version 2.1, which mends that."


def _as_triage(asked: Asked) -> object:
    if _newest(asked) == "filed":
        return "I have handed it on."
    money = ("invoice", "refund", "charged", "bill")
    billing = any(word in _newest(asked).lower() for word in money)
    return call("file_case", topic="billing" if billing else "engineer", summary=_newest(asked))


def _newest(asked: Asked) -> str:
    """Return what the user, or a tool, said last; what other agents said is in blocks."""
    said = [
        str(getattr(part, "content", ""))
        for message in asked.messages
        for part in message.parts
        if part.part_kind in ("user-prompt", "tool-return")
    ]
    return next(each for each in reversed(said) if not each.startswith("<"))


desk = Network(
    "desk",
    [
        Agent(
            "triage",
            description="Files what a customer asks.",
            instructions="You file what customers ask with file_case, and then say so in one line.",
            tools=[file_case],
        ),
        Agent(
            "billing",
            description="Answers questions about money.",
            instructions="You answer customers about invoices and refunds, in one line.",
        ),
        Agent(
            "engineer",
            description="Answers what does not work.",
            instructions="You answer customers about what does not work, in one line.",
        ),
    ],
    description="A help desk.",
    router=who_is_next,
    default_model=ScriptedModel(scripted),
)


async def ask(database: str, question: str, thread: str | None, model: str | None) -> None:
    """Ask the desk *question*, and print who did what."""
    with holdfast.open(database) as hf:
        history = EngineHistory(hf)
        run = await desk.run(question, thread_id=thread, model=model, history=history)
    for result in run.results:
        for each in result.tool_calls:
            print(f"[{result.agent}] {each.tool.name}{each.tool.input}")
        print(f"{result.agent}: {result.text}")
    case = run.state.get("case")
    print(f"[case] {case.value} from {case.agent}" if case else "[no case]")
    print(f"[{run.stop_reason}] {run.calls} calls, {run.usage.requests} requests")
    print("[thread]", run.thread_id)


def main() -> None:
    """Read what is asked for, and do it."""
    parser = argparse.ArgumentParser(description="A help desk.")
    parser.add_argument("database", help="a file, or any other target of holdfast.open")
    parser.add_argument("question", help="what the customer says")
    parser.add_argument("--thread", help="the thread to go on with; a new one unless given")
    parser.add_argument("--model", help="a model by name, such as openai:gpt-5-mini")
    given = parser.parse_args()
    asyncio.run(ask(given.database, given.question, given.thread, given.model))


if __name__ == "__main__":
    main()
