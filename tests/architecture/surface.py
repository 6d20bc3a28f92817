"""Describe the public surface of the package as text: names, parameters, routes, commands, errors.

    python tests/architecture/surface.py            write `surface.json`
    python tests/architecture/surface.py --print    print it, for the test that compares the two

Annotations are left out: the names of types may change. What a method returns is described below
the path of the method, so that the name of its class does not count either.
"""

import ast
import asyncio
import builtins
import inspect
import json
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from operator import attrgetter, itemgetter
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any, ForwardRef, Literal, cast, get_args, get_origin

import typer.main
from msgspec import NODEFAULT, Struct
from typing_extensions import is_protocol

ROOT = Path(__file__).parents[2]
# The package beside the tests, whichever is installed, and what tests share.
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from doors.http.asking import Asker

import holdfast
import holdfast.aio
from holdfast.doors.cli.app import COMMANDS, build
from holdfast.doors.http.app import make_app
from holdfast.errors import HoldfastError
from holdfast.runtime import RunEvent, SessionEvent

FILE = Path(__file__).with_name("surface.json")
FACES = ("", ".runtime", ".tools", ".testing", ".aio", ".errors", ".keys", ".messages", ".edits")
INTERNAL = {"engine", "longterm_shared", "opened", "run_attachments"}
"""Attributes of a handle that entry points use: their own members are no promise."""
MADE_BY_THE_PACKAGE = {"AsyncHoldfast", "AsyncPage", "Holdfast", "LongTermMemory", "NetworkRun"}
"""Classes that users do not call: their parameters are no promise."""
PLAIN = (str, int, float, bool, type(None), tuple, frozenset)

Described = dict[str, Any]


def is_ours(each: object) -> bool:
    """Return whether *each* is a class or function of the package."""
    module = getattr(each, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] == "holdfast"


# Names, members and parameters


def signature(of: Callable[..., Any]) -> str:
    """Return names, kinds and defaults of the parameters of *of*."""
    if isinstance(of, type) and issubclass(of, Struct):
        parameters = struct_parameters(of)
    else:
        parameters = inspect.signature(cast("Callable[..., Any]", of)).parameters.values()
    bare = [
        each.replace(annotation=inspect.Parameter.empty, default=default(each.default))
        for each in parameters
    ]
    return str(inspect.Signature(bare))


def struct_parameters(of: type[Struct]) -> list[inspect.Parameter]:
    """Return the parameters of a struct; its own signature needs each annotation's type."""
    names, ends = of.__struct_fields__, of.__struct_defaults__
    starts = [inspect.Parameter.empty] * (len(names) - len(ends))
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD
            if name in of.__match_args__
            else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each is NODEFAULT else each,
        )
        for name, each in zip(names, [*starts, *ends], strict=True)
    ]
    return sorted(parameters, key=attrgetter("kind"))


class Shown(str):
    """A default as it is written."""

    __slots__ = ()

    __repr__ = str.__str__


def default(value: object) -> object:
    """Return *value* as something whose `repr` is the same in each process."""
    if value is inspect.Parameter.empty:
        return value
    name = getattr(value, "__name__", None)
    text = name if callable(value) and isinstance(name, str) else repr(value)
    return Shown(re.sub(r" at 0x[0-9a-f]+", "", text))


def public_names(module: ModuleType) -> list[str]:
    """Return `__all__`, or the names that the module itself exports."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    )


def members(of: type) -> Iterator[tuple[str, object]]:
    """Give the public members of *of* that the package defines, as they are in the class."""
    for name in dir(of):
        if not name.startswith("_"):
            owner = next((each for each in of.__mro__ if name in vars(each)), None)
            if owner is not None and is_ours(owner):
                yield name, vars(owner)[name]


def member(value: object) -> str:
    """Return a line for one member of a class."""
    match value:
        case classmethod() | staticmethod():
            function = cast("classmethod[Any, ..., Any]", value).__func__
            return f"{type(cast('object', value)).__name__} {signature(function)}"
        case _ if isinstance(value, PLAIN):
            return f"= {default(cast('object', value))}"
        case _ if inspect.isfunction(value):
            kind = "async " if inspect.iscoroutinefunction(value) else ""
            return f"{kind}{signature(value)}"
        case _:
            return "attribute"


class Names(dict[str, object]):
    """The names of a module, with those that it imports for annotations alone."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(vars(module))
        self._homes = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(ast.parse(inspect.getsource(module)))
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for alias in node.names
        }

    def __missing__(self, name: str) -> object:
        if name in vars(builtins):
            return vars(builtins)[name]
        home, original = self._homes[name]
        return getattr(import_module(home), original)


@cache
def names_of(module: str) -> Names:
    """Return what annotations of *module* can name."""
    return Names(import_module(module))


def classes(annotation: object, names: Names, seen: frozenset[str] = frozenset()) -> Iterator[type]:
    """Give the classes of the package that *annotation* names; a type may contain itself."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        if annotation in seen:
            return
        seen |= {annotation}
        annotation = eval(annotation, {}, names)
    origin = getattr(annotation, "__origin__", annotation)
    if isinstance(origin, type) and is_ours(origin):
        yield origin
    for each in get_args(annotation):
        if not isinstance(each, str) or get_origin(annotation) is not Literal:
            yield from classes(each, names, seen)


def returned(of: object) -> Iterator[type]:
    """Give the classes of the package in what the member *of* of a class returns."""
    if isinstance(of, classmethod | staticmethod):
        of = cast("classmethod[Any, ..., Any]", of).__func__
    elif isinstance(of, property):
        of = of.fget
    elif isinstance(of, cached_property):
        of = cast("cached_property[Any]", of).func
    if inspect.isfunction(of):
        yield from classes(of.__annotations__.get("return"), names_of(of.__module__))


def attributes(of: object, found: dict[type, dict[str, object]]) -> dict[type, dict[str, object]]:
    """Return the public attributes of *of* and of what it is made of, by class."""
    kind = type(of)
    if is_ours(kind) and kind not in found and hasattr(of, "__dict__"):
        found[kind] = {name: each for name, each in vars(of).items() if not name.startswith("_")}
        for name, each in found[kind].items():
            if name not in INTERNAL:
                attributes(each, found)
    return found


async def async_attributes() -> dict[type, dict[str, object]]:
    """Return the public attributes of an asynchronous handle."""
    async with await holdfast.aio.open(":memory:") as hf:
        return attributes(hf, {})


def api() -> Described:
    """Return each public name, and each class that one of them leads to."""
    found: Described = {}
    exported: dict[type, str] = {}
    leads: deque[tuple[str, type]] = deque()
    for face in FACES:
        module = import_module(f"holdfast{face}")
        for name in public_names(module):
            path, value = f"holdfast{face}.{name}", getattr(module, name)
            if isinstance(value, type):
                first = exported.setdefault(value, path)
                if first != path:
                    found[path] = f"the same as {first}"
            elif inspect.isfunction(value):
                kind = "async " if inspect.iscoroutinefunction(value) else ""
                found[path] = f"{kind}{signature(value)}"
                leads.extend((f"{path}()", each) for each in returned(value))
            else:
                found[path] = "module" if isinstance(value, ModuleType) else "value"
    with holdfast.open(":memory:") as hf:
        live = attributes(hf, asyncio.run(async_attributes()))
    described: set[type] = set()
    queue = deque([*((path, kind) for kind, path in exported.items()), *leads])
    while queue:
        path, kind = queue.popleft()
        if kind not in described and exported.get(kind, path) == path:
            described.add(kind)
            found[path] = described_class(kind, called=kind in exported)
            queue.extend(below(path, kind, live.get(kind, {})))
    return found


def below(path: str, kind: type, live: Mapping[str, object]) -> Iterator[tuple[str, type]]:
    """Give the classes to which the members of *kind* lead, each with the path to it."""
    for name, each in sorted([*members(kind), *live.items()], key=itemgetter(0)):
        if name in INTERNAL:
            continue
        if name in live and is_ours(type(each)):
            yield f"{path}.{name}", type(each)
        call = "" if type(each) in {property, cached_property} else "()"
        for result in returned(each):
            yield f"{path}.{name}{call}", result


def described_class(kind: type, *, called: bool) -> dict[str, str]:
    """Return the members of a class, a line each, and its parameters if users call it."""
    described = {name: member(value) for name, value in members(kind)}
    described |= dict.fromkeys(fields(kind), "attribute")
    if called and kind.__name__ not in MADE_BY_THE_PACKAGE and not is_protocol(kind):
        described["()"] = signature(kind)
    return described


def fields(kind: type) -> Iterator[str]:
    """Give the public attributes that *kind* declares, or assigns when it is made."""
    for owner in filter(is_ours, kind.__mro__):
        names = {
            name
            for name, annotation in vars(owner).get("__annotations__", {}).items()
            if "ClassVar" not in str(annotation)
        }
        made = vars(owner).get("__init__")
        if inspect.isfunction(made) and Path(made.__code__.co_filename).is_file():
            names |= {
                node.attr
                for node in ast.walk(ast.parse(dedent(inspect.getsource(made))))
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            }
        yield from (name for name in names if not name.startswith("_"))


# Interfaces


def routes() -> tuple[Described, Described]:
    """Return each route with who may use it and what it takes; and each metric."""
    with holdfast.open(":memory:") as hf, asyncio.Runner() as runner:
        app = make_app(hf)
        ask = Asker(app, runner)
        description = ask.get("/openapi.json").json()
        text = ask.get("/metrics").body.decode()
        table = app.state.table.routes
        app.state.close()
    found: Described = {}
    for route in table:
        operation = description["paths"][route.path][route.method.lower()]
        parameters = [each["name"] for each in operation.get("parameters", ())]
        found[f"{route.method} {route.path}"] = {
            "scope": route.needs,
            "session token": route.session,
            "bound key": route.bound,
            "parameters": " ".join(parameters),
            "body": body(operation, description["components"]["schemas"]),
        }
    return found, metrics(text)


def body(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return the fields of a request's body, the required ones with a star."""
    content: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    fields: list[str] = []
    for kind, each in content.items():
        schema = each.get("schema", {})
        schema = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
        required = schema.get("required", ())
        names = [f"{name}*" if name in required else name for name in schema.get("properties", ())]
        fields.append(" ".join(sorted(names)) or kind)
    return ", ".join(fields)


def metrics(text: str) -> Described:
    """Return type and labels of each metric; the labels are those of the page of settings."""
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    rows = re.findall(
        r"^\| `(\w+)` \| (`.*`) \|$", page.split("| part | metrics |")[1], re.MULTILINE
    )
    labels = {
        f"holdfast_{part}_{name}": f"{{{braced}}}" if braced else ""
        for part, listed in rows
        for name, braced in re.findall(r"`(\w+)(?:\{(.*?)\})?`", listed)
    }
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    return {name: f"{types.get(name, '?')} {labels.get(name, '?')}" for name in types | labels}


def commands() -> Described:
    """Return each command with its arguments and options."""
    found: Described = {}

    def add(command: Any, path: str) -> None:
        below = getattr(command, "commands", {})
        for name, each in below.items():
            add(each, f"{path} {name}")
        if not below:
            arguments = [each for each in command.params if each.param_type_name == "argument"]
            found[path] = {
                " ".join([*each.opts, *each.secondary_opts]): parameter(each, arguments)
                for each in command.params
            }

    add(typer.main.get_command(build(list(COMMANDS))), "holdfast")
    return found


def parameter(of: Any, arguments: list[Any]) -> str:
    """Return what one argument or option of a command takes, and the place of an argument."""
    values = "|".join(of.type_descriptor.choices or ())
    return " ".join(
        each
        for each in (
            f"argument {arguments.index(of) + 1}" if of in arguments else "option",
            "required" if of.required else "",
            "flag" if getattr(of, "is_flag", False) else of.metavar or "",
            values if values != of.metavar else "",
            "repeatable" if of.multiple or of.nargs == -1 else "",
            f"= {of.default!r}" if of.default is not None else "",
            f"${of.envvar}" if of.envvar else "",
        )
        if each
    )


# Errors and events


def errors() -> Described:
    """Return each public error with the one above it and its facts."""
    found: Described = {}
    for name in public_names(import_module("holdfast.errors")):
        kind = getattr(import_module("holdfast.errors"), name)
        if isinstance(kind, type) and issubclass(kind, HoldfastError):
            found[name] = {"is a": kind.__bases__[0].__name__, "facts": " ".join(kind.facts)}
    return found


EVENTS = {
    "engine": "opened migrated slow_work busy full read_only recovered reconnected failed_over"
    " checkpoint_held scrubbed risky_filesystem closed",
    "feed": "reset trimmed",
    "store": "created updated archived deleted",
    "memory": "created modified deleted",
    "version": "redacted pruned",
    "session": "created archived deleted",
    "key": "created revoked",
    "access": "denied",
    "mount": "started stopped refused failed spooled recovered conflict degraded",
    "durable": "stored evicted expired forgotten refused hydrated run_opened run_superseded"
    " run_ended imported redacted limits_changed",
    "longterm": "stored duplicate refused superseded evicted forgotten cleared recalled extracted"
    " extraction_failed degraded reembedded",
    "run": "entry_written entry_deleted entries_cleared entry_read entry_refused restored"
    " record_evicted progressed",
    "network": "run_started router_decided agent_started agent_finished agent_skipped tool_called"
    " tool_returned value_changed history_omitted mcp_unavailable run_completed run_failed"
    " run_cancelled",
}
"""The types of events of a handle, `<part>.<what>`. New ones are added here."""
FORMATTED = {"durable", "engine", "longterm", "memory", "mount", "network", "store"}
"""Parts whose types the code composes; the types of the others stand in it whole."""


def events() -> Described:
    """Return the types of events: of a handle, of a run of agents and of a session."""
    texts, beginnings = constants()
    found = [
        f"{part}.{what}"
        for part, listed in EVENTS.items()
        for what in listed.split()
        if f"{part}.{what}" in texts
        or (
            part in FORMATTED
            and f"{part}." in beginnings
            and texts & {what, what.replace("_", ".", 1)}
        )
    ]
    return {
        "handle": found,
        "run": list(literal(RunEvent, "type")),
        "session": list(literal(SessionEvent, "type")),
    }


def constants() -> tuple[set[str], set[str]]:
    """Return the texts of the code, test support apart, and those that begin formatted texts."""
    texts: set[str] = set()
    beginnings: set[str] = set()
    files = set((ROOT / "holdfast").rglob("*.py")) - set((ROOT / "holdfast/testing").rglob("*.py"))
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                beginnings.add(str(node.values[0].value))
    return texts, beginnings


def literal(kind: type, field: str) -> tuple[str, ...]:
    """Return the values that *field* of *kind* may have."""
    return get_args(inspect.get_annotations(kind, eval_str=True)[field])


def surface() -> dict[str, Described]:
    """Return the whole surface, each part sorted by name."""
    served, numbers = routes()
    parts: dict[str, Described] = {
        "names": api(),
        "routes": served,
        "commands": commands(),
        "errors": errors(),
        "events": events(),
        "metrics": numbers,
    }
    return json.loads(json.dumps(parts, sort_keys=True))


if __name__ == "__main__":
    described = json.dumps(surface(), indent=1, ensure_ascii=False)
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(described)
    else:
        FILE.write_text(f"{described}\n", "utf-8")
