"""Prompts of the members of a team."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Final, Literal

import msgspec

from holdfast.memories.run import keys
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.team.bus import Message
from holdfast.runtime.team.task import BoardTask
from holdfast.runtime.team.tools import message_json, task_in_short, task_json
from holdfast.tools.base import JSON
from holdfast.tools.run import Profile, run_prompt

Strategy = Literal["coordinator", "hybrid", "autonomous"]
Occasion = Literal["lay out", "remind", "repair", "last call", "go on"]

MEMORY: Final = "## Shared Memory (progressive disclosure)"
"""The heading of the section on run memory, with the same text as for all agents."""

TITLE: Final = 80
"""Characters of an objective in a title."""

SHOWN: Final = 50
"""Claimable tasks in the prompt of a turn; the others are in the list."""


def member_text(agent: Agent, *, team: Sequence[Agent], plan: "TeamPlan", profile: Profile) -> str:
    """Return the system text of *agent* as one of *team*, after its own instructions."""
    page = files("holdfast.runtime.team").joinpath("prompts", "member.md").read_text("utf-8")
    _, _, words = run_prompt(profile).partition("\n")
    return Template(page.strip()).substitute(
        name=agent.name,
        objective=plan.objective,
        team="\n".join(_introduced(each, agent) for each in team),
        creating=_creating(agent, team[0], plan.strategy),
        rounds=plan.max_iterations,
        memory=f"{MEMORY}\n{words}",
    )


class TeamPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a team's work."""

    objective: str
    strategy: Strategy
    max_turns: int
    max_concurrency: int
    max_iterations: int
    keep_open: bool


def titled(objective: str) -> str:
    """Return *objective* as a title, on one line."""
    title = " ".join(objective.split())
    return title if len(title) <= TITLE else f"{title[: TITLE - 1]}…"


def turn_text(
    messages: Sequence[Message],
    held: Sequence[BoardTask],
    claimable: Sequence[BoardTask],
    occasion: str,
) -> str:
    """Return the prompt of a turn: messages, claimed tasks, claimable tasks.

    Each is a line of JSON, so that its content cannot be read as anything else.
    """
    more = len(claimable) - SHOWN
    return "\n\n".join(
        filter(
            None,
            (
                _part("Your messages", [message_json(each) for each in messages]),
                _part("Your tasks", [_in_hand(each) for each in held]),
                _part("Tasks you could claim", [task_in_short(each) for each in claimable[:SHOWN]]),
                f"{more} more are listed by `list_tasks`." if more > 0 else "",
                occasion,
            ),
        )
    )


def occasion_text(occasion: Occasion, values: Mapping[str, str] | None = None) -> str:
    """Return the text for *occasion*, with *values* substituted."""
    return Template(_occasions()[occasion]).substitute(values or {})


@cache
def _occasions() -> dict[str, str]:
    text = files("holdfast.runtime.team").joinpath("prompts", "turns.md").read_text("utf-8")
    parted = (section.partition("\n") for section in text.split("\n## ")[1:])
    return {name.strip(): words.strip() for name, _, words in parted}


def _introduced(each: Agent, me: Agent) -> str:
    skills = f"skills: {', '.join(each.skills)}" if each.skills else ""
    more = "; ".join(filter(None, ("you" if each.name == me.name else "", each.role, skills)))
    line = f"- {each.name}" + (f" ({more})" if more else "")
    return line + (f": {' '.join(each.description.split())}" if each.description else "")


def _creating(agent: Agent, first: Agent, strategy: Strategy) -> str:
    if strategy != "coordinator":
        return "Every agent may create tasks."
    if agent.name == first.name:
        return "You alone create them."
    return f"{first.name} alone creates them; write to {first.name} if one is missing."


def _part(heading: str, lines: Sequence[JSON]) -> str:
    encoded = "\n".join(msgspec.json.encode(line).decode() for line in lines)
    return f"# {heading}\n{encoded}" if encoded else ""


def _in_hand(task: BoardTask) -> JSON:
    needed: JSON = [keys.task(id) for id in task.depends_on]
    return task_json(task) | ({"read_first": needed} if needed else {})
