"""Two pieces of research side by side, and a report on both: what its agent is told, and when.

    python examples/research_plan.py
    python examples/research_plan.py --model openai:gpt-5-mini

The model is scripted unless one is named: any that pydantic-ai knows, its key in the environment.
The trace shows what each agent was told, in its order. The one that writes the report is told that
two results are there; it lists them, which gives their keys, titles and sizes; and only what it
then reads, by key, gives it values.
"""

import argparse
import asyncio
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from holdfast.runtime import Context, ParallelTaskExecutor, Step, Task, TaskPlan
from holdfast.testing.scripted import Asked, ScriptedModel, call

LIBRARY = {
    "tides": "In Port Rill the tide rises 4.2 m; the gate opens two hours before high water.",
    "berths": "Port Rill has 31 berths, nine of them for ships over 20 m.",
}
FOUND = {"type": "object", "required": ["fact"], "properties": {"fact": {"type": "string"}}}


def look_up(topic: str) -> str:
    """Look *topic* up in the library of the harbour: tides or berths.

    Args:
        topic: what to look up
    """
    return LIBRARY.get(topic, "There is nothing on that.")


def research(topic: str) -> Task:
    """Return the task of finding out about *topic*."""
    step = Step(
        id=f"find_{topic}",
        instructions=f"Look up {topic} and finish with the one fact that matters to a skipper.",
        output_schema=FOUND,
        tools=["look_up"],
    )
    return Task(id=topic, title=f"Find out about {topic}", steps=[step])


PLAN = TaskPlan(
    title="A note for skippers",
    tasks=[
        research("tides"),
        research("berths"),
        Task(
            id="report",
            title="Write the note",
            depends_on=["tides", "berths"],
            steps=[
                Step(
                    id="write",
                    instructions="Write a note for skippers from the results of the research.",
                    tools=[],
                )
            ],
        ),
    ],
)


class Shown(WrapperModel):
    """A model that prints what is new in each request, and what it answers."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask the model that is wrapped."""
        who = _first(messages)
        for part in messages[-1].parts:
            if isinstance(part, UserPromptPart):
                print(f"[{who}] is told: {part.content}")
            elif isinstance(part, ToolReturnPart):
                print(f"[{who}] {part.tool_name} gives: {part.model_response_str()}")
        answer = await super().request(messages, model_settings, model_request_parameters)
        for part in answer.parts:
            if isinstance(part, ToolCallPart):
                print(f"[{who}] calls {part.tool_name} with {part.args_as_json_str()}")
        return answer


def _first(messages: list[ModelMessage]) -> str:
    """Return the first words that were said, by which the trace tells agents apart."""
    said = next(part for part in messages[0].parts if isinstance(part, UserPromptPart))
    return " ".join(str(said.content).split()[:3])


def answer(asked: Asked) -> object:
    """Stand in for a model: look up and finish, or list, read and write."""
    given = [
        (part.tool_name, part.content)
        for message in asked.messages
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    if "look_up" in asked.offered:
        topic = "tides" if "Look up tides" in asked.text else "berths"
        return [
            call("look_up", topic=topic),
            call("finish_step", result={"fact": str(given[-1][1]) if given else ""}),
        ][min(len(given), 1)]
    return _reported(given)


def _reported(given: list[tuple[str, Any]]) -> object:
    if not given:
        return call("memory_list")
    if len(given) == 1:
        return call("memory_read", keys=["task:tides", "task:berths"])
    facts = [entry["value"]["fact"] for entry in given[-1][1]["entries"].values()]
    return "For skippers: " + " ".join(facts)


async def carry_out(model: Model | str) -> None:
    """Carry the plan out with *model*; print its trace, its result and its report."""
    context = Context(model=Shown(infer_model(model)), stream=False)
    executor = ParallelTaskExecutor(plan=PLAN, context=context, tools=[look_up])
    result = await executor.run()
    print()
    print(result)
    print()
    print(executor.report())


def main() -> None:
    """Read what is asked for, and do it."""
    parser = argparse.ArgumentParser(description="Two pieces of research, and a report on both.")
    parser.add_argument("--model", help="a model by name, such as anthropic:claude-haiku-4-5")
    given = parser.parse_args()
    asyncio.run(carry_out(given.model or ScriptedModel(answer)))


if __name__ == "__main__":
    main()
