"""A customer comes back, and the conversation begins with what is known from the last one.

Run it twice: each run is a process of its own, and only the database is the same.

    python examples/support_session.py desk.db first
    python examples/support_session.py desk.db second
    python examples/support_session.py desk.db second --model anthropic:claude-haiku-4-5

The model is scripted unless one is named: any that pydantic-ai knows, its key in the environment.
What the agent learns of the order it stores in its durable memory, what the customer prefers in the
customer's long-term memory. The budget for what an agent sees at the start is small here, so that
one long entry does not fit: that is said, too.
"""

import argparse
import asyncio

import holdfast
from holdfast.runtime import Agent, Session
from holdfast.testing.scripted import Asked, ScriptedModel, call

CUSTOMER = "ada@example.com"
# A durable memory for each customer: what it holds is in every conversation under its name.
AGENT = f"support:{CUSTOMER}"
BUDGET = 2048
INSTRUCTIONS = (
    "You answer customers of a shop. Store what you learn of an order under the key order_<number>,"
    " category core, and what else was agreed under a key of its own. Remember what a customer"
    " prefers."
)
SAID = {
    "first": "Order 1042 has not come. Please answer me by mail, never by phone. And returns?",
    "second": "Hello again! How do I like to be answered, and what about my order?",
}


def answer_first(asked: Asked) -> object:
    """Store, remember, then answer: what a model does with the first words."""
    if len(asked.messages) > 1:
        return "I have asked the carrier about order 1042, and will write to you by mail."
    return [
        call("memory_store", key="order_1042", category="core", content="Late; carrier asked."),
        call("memory_store", key="returns", category="core", content="Returns: " + "rule. " * 400),
        call("ltm_remember", text="Wants to be answered by mail", kind="preference"),
    ]


def answer_second(asked: Asked) -> object:
    """Answer from what it was told of before, or say that nothing was."""
    knows = "carrier asked" in asked.instructions and "answered by mail" in asked.text
    if knows:
        return "By mail. Order 1042 was late: the carrier has been asked."
    return "I do not know you yet."


SCRIPTS = {"first": answer_first, "second": answer_second}


async def talk(database: str, conversation: str, model: str | None) -> None:
    """Take one turn of *conversation*, and print what the memories had to do with it."""
    with holdfast.open(database) as hf:
        hf.durable(AGENT).set_limits(budget=BUDGET)
        agent = Agent("support", instructions=INSTRUCTIONS)
        customer = hf.longterm(CUSTOMER, enabled=True, embedder=False)
        async with Session(
            agent,
            hf=hf,
            agent_id=AGENT,
            longterm=customer,
            model=model or ScriptedModel(SCRIPTS[conversation]),
        ) as session:
            print("customer:", SAID[conversation])
            result = await session.send(SAID[conversation])
            print("agent:   ", result.text)
        for event in session.events:
            print(f"[{event.type}]", *(f"{name}={value}" for name, value in event.data.items()))


def main() -> None:
    """Read what is asked for, and do it."""
    parser = argparse.ArgumentParser(description="A customer comes back.")
    parser.add_argument("database", help="a file, or any other target of holdfast.open")
    parser.add_argument("conversation", choices=sorted(SAID))
    parser.add_argument("--model", help="a model by name, such as openai:gpt-5-mini")
    given = parser.parse_args()
    asyncio.run(talk(given.database, given.conversation, given.model))


if __name__ == "__main__":
    main()
