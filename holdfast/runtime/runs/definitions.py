"""Definitions: what a worker runs, by name and version.

A definition builds what runs from the stored start of a run: an executor, a network or an agent.
Networks and agents are definitions by themselves.
"""

import importlib
import sys
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from msgspec import Struct

from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.ground.scope import checked_name as check_queue
from holdfast.ground.validation import check_text, listed
from holdfast.memories.run.records.lease import QUEUE, KnownDefinition
from holdfast.memories.run.records.run import RunKind
from holdfast.memories.state.message import checked_name
from holdfast.runtime.agent import UserMessage
from holdfast.runtime.concurrency import awaited
from holdfast.runtime.context import Context
from holdfast.runtime.history import EngineHistory
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.modes import MultiModeAgent
from holdfast.runtime.networks.network import Network
from holdfast.runtime.plans.executor import ParallelTaskExecutor, TaskExecutor
from holdfast.runtime.plans.item_runs import runs_of_items
from holdfast.runtime.workflow import WorkflowRunner

VERSION: Final = "1"
"""The version of a definition that names none, and of networks and agents."""

VERSION_MOST: Final = 64
"""Characters of a version."""


class RunStart(Struct, frozen=True, kw_only=True):
    """The stored start of a run: what a definition builds it from.

    *input* is the value of JSON that it was started with. *context* has the run's id, its database
    and its claim: what is built must run in it. *thread_id* is its thread, once it has one.
    """

    run_id: str
    input: Any
    context: Context
    metadata: dict[str, str]
    thread_id: str | None


Build: TypeAlias = Callable[[RunStart], Any | Awaitable[Any]]
"""Returns what runs: an executor, a network or an agent."""


class Definition(Struct, frozen=True, kw_only=True):
    """What a run is started by: a *name*, a *version*, and a function that builds.

    Its runs are in *queue* unless they name another. It takes up runs of its own version, and of
    those that it *accepts*. *served* is the network or the agent that it is.
    """

    name: str
    build: Build
    version: str = VERSION
    queue: str = QUEUE
    accepts: tuple[str, ...] = ()
    description: str = ""
    served: Network | Agent | None = None

    def __call__(self, start: RunStart) -> Any:
        """Build what runs."""
        return self.build(start)

    @property
    def kind(self) -> RunKind:
        """The kind of its runs, as far as it is known: `task` before one is built."""
        if self.served is None:
            return "task"
        return "network" if isinstance(self.served, Network) else "agent"

    @property
    def known(self) -> KnownDefinition:
        """What a claim of its runs needs."""
        return KnownDefinition(
            name=self.name,
            version=self.version,
            queue=self.queue,
            versions=(self.version, *self.accepts),
        )


def definition(
    name: str,
    *,
    version: str = VERSION,
    queue: str = QUEUE,
    accepts: Iterable[str] = (),
) -> Callable[[Build], Definition]:
    """Define how a run is built; `hf.runs.start(name, input)` queues one.

    A run that was begun by another *version* is taken up only if *accepts* names that.

    >>> @definition("weekly-report", version="2", accepts=("1",))
    ... def report(start):
    ...     "Write the report of a week."
    ...     return StepExecutor(Step("write", "Write it."), context=start.context)
    >>> report.name, report.version, report.queue
    ('weekly-report', '2', 'default')
    """
    checked_name("name", name)
    check_queue("queue", queue)
    versions = [
        check_text("version", each, least=1, most=VERSION_MOST)
        for each in (version, *listed(accepts))
    ]

    def define(build: Build) -> Definition:
        if not callable(build):
            raise InvalidInput("definition", "must be a function of a RunStart", given=build)
        said = (build.__doc__ or "").strip().partition("\n")[0]
        return Definition(
            name=name,
            build=build,
            version=version,
            queue=queue,
            accepts=tuple(versions[1:]),
            description=said,
        )

    return define


Definable: TypeAlias = Definition | Network | Agent
Definitions: TypeAlias = Definable | Iterable[Definable] | Mapping[str, Definable]


def definitions_of(given: Definitions) -> dict[str, Definition]:
    """Return the definitions *given*, one, several or a dict of them, by name.

    Raise InvalidInput for what is none, and for two of one name.
    """
    found: dict[str, Definition] = {}
    for each in _several(given):
        made = _defined(each)
        if made.name in found:
            raise InvalidInput("definitions", f"two are named {made.name}", given=made.name)
        found[made.name] = made
    return found


def _several(given: object) -> Iterable[object]:
    if isinstance(given, Mapping):
        return list(cast("Mapping[str, object]", given).values())
    if isinstance(given, Iterable) and not isinstance(given, Definition | str):
        return list(cast("Iterable[object]", given))
    return [given]


def _defined(given: object) -> Definition:
    if isinstance(given, Definition):
        return given
    if isinstance(given, Network | Agent):
        return Definition(
            name=given.name,
            build=lambda _: given,
            description=given.description,
            served=given,
        )
    raise InvalidInput(
        "definitions", "must be a Network, an Agent or a definition, or several", given=given
    )


def load(names: Iterable[str]) -> dict[str, Definition]:
    """Import definitions, named `package.module:attribute`; return them by name.

    Raise InvalidInput for one that cannot be found or is no definition.
    """
    return definitions_of([each for name in names for each in _loaded(name)])


def _loaded(name: str) -> Iterable[Definition]:
    try:
        return definitions_of(cast("Definitions", _imported(name))).values()
    except InvalidInput as error:
        raise InvalidInput("definitions", error.reason, given=name) from error


def _imported(name: str) -> object:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise InvalidInput("definitions", "must be package.module:attribute", given=name)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except HoldfastError:
        raise
    except ImportError as error:
        raise InvalidInput("definitions", f"cannot be found: {error}", given=name) from error
    except Exception as error:
        # The module is the caller's: it raises anything.
        reason = f"cannot be imported: {type(error).__name__}{_place(error)}: {error}"
        raise InvalidInput("definitions", reason, given=name) from error
    try:
        return getattr(found, attribute)
    except AttributeError as error:
        raise InvalidInput("definitions", f"cannot be found: {error}", given=name) from error


def _place(error: Exception) -> str:
    """Return the line of a module that raised *error*; empty if there is none."""
    frames = reversed(extract_tb(error.__traceback__))
    found = next((each for each in frames if each.name == "<module>"), None)
    return f" at {Path(found.filename).name}:{found.lineno}" if found else ""


@runtime_checkable
class Executable(Protocol):
    """An executor: it runs in the context that it was built with."""

    async def run(self) -> Any:
        """Execute it and return its result."""
        ...


async def execute(made: Definition, start: RunStart) -> None:
    """Build the run of *start* and execute it to its end, or until it waits.

    Raise what the definition raises, InvalidInput if what it built cannot run, and what the run
    ended with.
    """
    built = await awaited(made.build(start))
    items = runs_of_items(start.context)
    if not isinstance(built, TaskExecutor | ParallelTaskExecutor):
        # Only the steps of a plan or of a task can be done apart from the rest.
        start.context.items = None
    if items is not None and items.item is not None:
        if start.context.items is None:
            raise InvalidInput("definition", "builds no plan any more", given=made.name)
        await to_thread(items.seed, start.context)
    if isinstance(built, Network):
        await _network(built, start)
    elif isinstance(built, Agent):
        message, options = _said(start, ("thread_id", "system_prompt"))
        await built.run(message, **options)
    elif isinstance(built, WorkflowRunner):
        await built.run(start.input)
    elif isinstance(built, MultiModeAgent):
        await built.run(start.context)
    elif isinstance(built, Executable):
        await built.run()
    else:
        reason = "must return an executor, a network or an agent"
        raise InvalidInput("definition", reason, given=type(built).__name__)


async def _network(network: Network, start: RunStart) -> None:
    message, options = _said(start, ("thread_id", "system_prompt", "data", "max_turns"))
    hf = start.context.hf
    if network.history is None and hf is not None:
        options["history"] = EngineHistory(hf)
    await network.run(message, **options)


def _said(start: RunStart, names: Iterable[str]) -> tuple[UserMessage, dict[str, Any]]:
    """Return the message in the input of *start*, and the options of the run.

    The input is text, or an object with the text as `input` and options of *names*.
    """
    members = {"input": start.input} if isinstance(start.input, str) else start.input
    if not isinstance(members, dict):
        members = {}
    options = dict(cast("dict[str, Any]", members))
    text = options.pop("input", None)
    if not isinstance(text, str) or options.keys() - names:
        raise InvalidInput("input", f"must be text, or an object of input, {', '.join(names)}")
    message = UserMessage(text, system_prompt=options.pop("system_prompt", None))
    if start.thread_id is not None:
        options["thread_id"] = start.thread_id
    return message, options | {"run_id": start.run_id, "hf": start.context.hf, "raises": False}
