"""The commands there are, with the arguments and options they take: no more, no fewer."""

from typing import Any

import pytest
import typer.main

from holdfast.doors.cli.app import COMMANDS, build

COMMON = "[--db TARGET] [--workspace W] [--api-key K] [--json]"

EXPECTED = {
    "serve": "[--db TARGET] [--host H] [--port N] [--workers N] [--strict]"
    " [--networks MODULE:NAME]… [--runs MODULE:NAME]… [--allow-model NAME]… [--extractor NAME]"
    " [--dream-model NAME] [--no-access-log]"
    " [--public-url URL] [--allow-origin ORIGIN]… [--no-mcp] [--no-console]"
    " [--chat-model NAME]… [--no-migrate]",
    "stores create": "NAME [--description T] [--metadata K=V]…",
    "stores list": "[--all]",
    "stores show": "STORE",
    "stores update": "STORE [--name N] [--description T] [--metadata K=V]…",
    "stores archive": "STORE",
    "stores delete": "STORE [--yes]",
    "stores restore": "STORE --at T [--dry-run] [--yes]",
    "stores configure": "[--memories-cap N]",
    "memories list": "STORE [--prefix P] [--depth 1] [--at T]",
    "memories show": "STORE PATH|ID [--raw] [--at T]",
    "memories put": "STORE PATH [FILE|-] [--if-sha256 H]",
    "memories accept": "STORE PATH|ID",
    "memories rename": "STORE OLD NEW",
    "memories delete": "STORE PATH|ID [--yes]",
    "memories search": "STORE WORDS [--limit N]",
    "versions list": "STORE [--memory PATH|ID]",
    "versions show": "STORE ID",
    "versions diff": "STORE A B",
    "versions restore": "STORE ID",
    "versions redact": "STORE ID…",
    "sessions create": "--agent A --environment E --store STORE[:ro]… [--title T]",
    "sessions list": "",
    "sessions show": "ID",
    "sessions token": "ID [--expires-in S]",
    "sessions archive": "ID",
    "sessions delete": "ID [--yes]",
    "keys create": "NAME [--scope read|write|admin] [--agent A] [--user U]",
    "keys list": "",
    "keys revoke": "ID",
    "mount": "DIR [--store STORE]… [--session ID] [--read-only] [--mode auto|fuse|sync]"
    " [--deadline S] [--grace S] [--spool DIR] [--cache MIB] [--allow-other] [--status] [--note]",
    "unmount": "DIR [--lazy] [--timeout S]",
    "durable list": "AGENT [--category C] [--tag T]… [--since S] [--prefix P] [--query Q]"
    " [--limit N] [--page P] [--all] [--at T]",
    "durable get": "AGENT KEY [--at T]",
    "durable set": "AGENT KEY [CONTENT|-] --category C [--tag T]… [--subject U]",
    "durable accept": "AGENT KEY",
    "durable forget": "AGENT KEY [--scope S]",
    "durable search": "AGENT QUERY [--category C] [--limit N]",
    "durable hydrate": "AGENT [--budget N] [--render]",
    "durable explain": "AGENT KEY [--budget N]",
    "durable export": "AGENT DIR",
    "durable import": "AGENT DIR [--mode upsert|replace] [--dry-run] [--rebind]",
    "durable history": "AGENT [KEY]",
    "durable agents": "",
    "durable limits": "AGENT [--cap N] [--run-cap N] [--content-bytes N] [--budget N]"
    " [--daily-hours N] [--evict]",
    "durable sweep": "[AGENT]",
    "runs list": "[--status S]…",
    "runs show": "RUN",
    "runs parts": "RUN",
    "runs versions": "RUN",
    "runs at": "RUN N",
    "runs messages": "RUN PART",
    "runs fork": "RUN [--before P] [--version N] [--set KEY=JSON]… [--delete KEY]… [--id ID] "
    "[--start]",
    "runs compare": "RUN OTHER",
    "runs entries": "RUN [--kind K]… [--prefix P]",
    "runs read": "RUN KEY",
    "runs watch": "RUN [--wait N] [--after N] [--type T]… [--rest]",
    "runs start": "DEFINITION [--input JSON]",
    "runs cancel": "RUN",
    "runs questions": "[--run R]",
    "runs answer": "RUN [QUESTION] [--approve] [--deny] [--value JSON] [--text T] [--note N]",
    "runs steer": "RUN TEXT",
    "runs delete": "RUN",
    "work": "MODULE:NAME… [--queue Q]… [--concurrency N] [--engine own|dbos]",
    "import": "KIND FILE… [--user U] [--agent A] [--store STORE] [--namespace N]"
    " [--workspace-id W] [--human LABEL]… [--dry-run] [--mine] [--limit N]",
    "ltm status": "USER [--namespace N] [--workspace-id W]",
    "ltm recall": "USER QUERY [--k N] [--what all|items|turns] [--kind K]…"
    " [--min-relevance X] [--at T] [--valid-at T] [--noise] [--namespace N] [--workspace-id W]",
    "ltm remember": "USER TEXT [--kind fact|preference|decision|event] [--importance X]"
    " [--source S] [--namespace N] [--workspace-id W]",
    "ltm list": "USER [--turns] [--kind K]… [--query Q] [--superseded] [--held] [--at T]"
    " [--valid-at T] [--limit N] [--page P] [--all] [--namespace N] [--workspace-id W]",
    "ltm show": "USER ID [--at T] [--namespace N] [--workspace-id W]",
    "ltm update": "USER ID [--text T] [--kind fact|preference|decision|event] [--importance X]"
    " [--namespace N] [--workspace-id W]",
    "ltm forget": "USER ID [--namespace N] [--workspace-id W]",
    "ltm accept": "USER ID [--namespace N] [--workspace-id W]",
    "ltm reject": "USER ID [--namespace N] [--workspace-id W]",
    "ltm clear": "USER [--yes] [--namespace N] [--workspace-id W]",
    "ltm export": "USER [FILE|-] [--namespace N] [--workspace-id W]",
    "ltm import": "USER [FILE|-] [--namespace N] [--workspace-id W]",
    "ltm flush": "USER [--timeout S] [--namespace N] [--workspace-id W]",
    "ltm retry": "USER [--namespace N] [--workspace-id W]",
    "ltm remine": "USER [--since T] [--thread ID] [--namespace N] [--workspace-id W]",
    "ltm configure": "USER [--extractor NAME] [--namespace N] [--workspace-id W]",
    "mcp": "[--user U] [--agent A] [--store STORE] [--profile P] [--read-only]"
    " [--import FILE] [--export FILE]",
    "forget": "[--user U] [--agent A] [--names TEXT]… [--mentions report|redact|ignore]"
    " [--receipt FILE] [--ledger FILE] [--purge-copies] [--yes]",
    "erasures list": "[--limit N]",
    "consolidate start": "[USER] [--store STORE] [--agent A] [--namespace N] [--model M]"
    " [--budget-tokens N] [--into OUTPUT]",
    "consolidate policy": "[USER] [--store STORE] [--agent A] [--auto OP]… [--every-hours N]"
    " [--min-new N] [--model M] [--drop]",
    "consolidate policies": "",
    "consolidate list": "[--user U] [--store STORE] [--agent A] [--limit N]",
    "consolidate show": "ID",
    "consolidate accept": "ID [--only CHANGE]…",
    "consolidate reject": "ID",
    "consolidate undo": "ID",
    "consolidate resume": "ID",
    "consolidate cancel": "ID",
    "backup": "FILE [--force]",
    "restore": "FILE [--replace] [--erasures LEDGER]",
    "verify": "[--quick] [--repair] [--head LINK] [--receipt FILE] [--user U] [--agent A]"
    " [--public-key PEM]",
    "scrub": "[--full]",
    "doctor": "",
    "eval locomo": "FILE [--k N] [--embedder MODEL]",
    "eval poisoning": "",
}

ALONE = {"serve", "unmount"}
"""Commands that take what is listed for them, and not what all others take."""

DEFAULTS = {
    "serve": {"host": "127.0.0.1", "port": 8420, "workers": 1, "strict": False},
    "memories put": {"file": "-"},
    "memories search": {"limit": 10},
    "keys create": {"scope": "write"},
    "mount": {"mode": "auto", "deadline": 5, "grace": 3, "cache": 64, "spool": None},
    "unmount": {"lazy": False, "timeout": 30},
    "durable list": {"limit": 100},
    "durable set": {"content": "-"},
    "durable import": {"mode": "upsert"},
    "ltm recall": {"k": 5, "what": "all", "namespace": "chat", "workspace_id": None},
    "ltm remember": {"kind": "fact", "importance": 0.5},
    "ltm list": {"limit": 100},
    "ltm export": {"file": "-"},
    "ltm import": {"file": "-"},
}

VARIABLES = {
    "db": "HOLDFAST_DB",
    "api_key": "HOLDFAST_API_KEY",
    "strict": "HOLDFAST_STRICT",
    "public_url": "HOLDFAST_PUBLIC_URL",
    "chat_model": "HOLDFAST_CHAT_MODEL",
    "extractor": "HOLDFAST_LTM_EXTRACTOR",
    "dream_model": "HOLDFAST_DREAM_MODEL",
}


def leaves(command: Any, *path: str) -> dict[str, Any]:
    below = getattr(command, "commands", None)
    if not below:
        return {" ".join(path): command}
    found: dict[str, Any] = {}
    for name, each in below.items():
        found |= leaves(each, *path, name)
    return found


def spelled(param: Any) -> str:
    several = "…" if param.multiple or param.nargs == -1 else ""
    if param.param_type_name == "argument":
        text = param.metavar.removesuffix("...")
    else:
        choices = "|".join(param.type_descriptor.choices or ())
        value = "" if param.is_flag else " " + (param.metavar or choices)
        text = param.opts[0] + value
    return (text if param.required else f"[{text}]") + several


BUILT = leaves(typer.main.get_command(build(list(COMMANDS))))


def test_every_listed_command_exists_and_no_other() -> None:
    assert sorted(BUILT) == sorted(EXPECTED)


def test_the_root_takes_what_is_listed_and_nothing_else() -> None:
    root = typer.main.get_command(build(["--help"]))

    assert " ".join(map(spelled, root.params)) == (
        "[--version] [--install-completion] [--show-completion]"
    )
    assert all(getattr(param, "help", "") for param in root.params)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_command_takes_what_is_listed_and_nothing_else(name: str) -> None:
    expected = EXPECTED[name] if name in ALONE else f"{EXPECTED[name]} {COMMON}".strip()

    assert " ".join(map(spelled, BUILT[name].params)) == expected


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_as_listed(name: str) -> None:
    defaults = {param.name: param.default for param in BUILT[name].params}

    assert defaults == defaults | DEFAULTS[name]


@pytest.mark.parametrize("name", EXPECTED)
def test_variables_stand_in_for_the_options_they_are_listed_for(name: str) -> None:
    read = {param.name: param.envvar for param in BUILT[name].params if param.envvar}

    assert read == {param: VARIABLES[param] for param in read}
    assert ("db" in read) == (name != "unmount")


@pytest.mark.parametrize(("value", "strict"), [("1", True), ("0", False), ("", False)])
def test_strict_mode_can_be_switched_on_for_every_server(
    monkeypatch: pytest.MonkeyPatch, value: str, strict: bool
) -> None:
    monkeypatch.setenv("HOLDFAST_STRICT", value)

    assert BUILT["serve"].make_context("serve", []).params["strict"] is strict


@pytest.mark.parametrize("name", EXPECTED)
def test_every_command_and_every_option_says_what_it_is_for(name: str) -> None:
    assert BUILT[name].help
    assert all(param.help for param in BUILT[name].params)
