"""Which tasks can be claimed, and which never will be: pure functions of a board's tasks."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from holdfast.runtime.team.task import BoardTask, lacking

Tasks = Mapping[str, BoardTask]
Reason = Literal["taken", "blocked", "skills", "settled"]


class Refusal(NamedTuple):
    """Why a task cannot be claimed, in a word and in a sentence."""

    reason: Reason
    why: str
    next: str


def refusal(task: BoardTask, tasks: Tasks, skills: Iterable[str]) -> Refusal | None:
    """Return why one with *skills* cannot claim *task*, or None."""
    if task.settled:
        return Refusal("settled", f"it is {task.status}", "Claim another task.")
    if task.claimed_by:
        return Refusal("taken", f"{task.claimed_by} has it", "Claim another task.")
    if task.status == "blocked":
        return Refusal("blocked", "it waits for its subtasks", "Claim one of its subtasks.")
    if left := undone(task, tasks):
        told = ", ".join(f"{each.id} ({each.status})" for each in left)
        return Refusal("blocked", f"it waits for {told}", "Claim one of those, or wait.")
    if missing := lacking(task.required_skills, skills):
        told = ", ".join(f'"{each}"' for each in missing)
        return Refusal("skills", f"it needs the skill {told}", "Leave it to one who has it.")
    return None


def undone(task: BoardTask, tasks: Tasks) -> list[BoardTask]:
    """Return what *task* depends on and is not done."""
    return [tasks[id] for id in task.depends_on if tasks[id].status != "done"]


def needs(tasks: Tasks, start: Collection[str]) -> set[str]:
    """Return *start* and all tasks that must be done before those can be."""
    children: defaultdict[str, list[str]] = defaultdict(list)
    for task in tasks.values():
        if task.parent:
            children[task.parent].append(task.id)
    found: set[str] = set()
    ahead = list(start)
    while ahead:
        id = ahead.pop()
        if id not in found:
            found.add(id)
            ahead += tasks[id].depends_on
            ahead += children[id]
    return found


def line_of(task: BoardTask | None, tasks: Tasks) -> list[str]:
    """Return the ids of *task*, its parent, and so on up."""
    line: list[str] = []
    while task:
        line.append(task.id)
        task = tasks[task.parent] if task.parent else None
    return line


def stuck(tasks: Tasks) -> list[str]:
    """Return the unsettled tasks that can never be claimed since something they need failed.

    A parent with a failed child is not one while its other children can still settle: then it
    fails by itself. What depends on it is one already.
    """
    dependents: defaultdict[str, list[BoardTask]] = defaultdict(list)
    for task in tasks.values():
        for id in task.depends_on:
            dependents[id].append(task)
    failing: set[str] = set()
    caught: set[str] = set()
    ahead = [(task, False) for task in tasks.values() if task.status == "failed"]
    while ahead:
        task, never = ahead.pop()
        known = caught if never else failing
        if task.id in known:
            continue
        known.add(task.id)
        ahead += [(each, True) for each in dependents[task.id] if each.status == "open"]
        if task.parent and not (parent := tasks[task.parent]).settled:
            ahead.append((parent, never))
    return [id for id in tasks if id in caught]
