"""Every text that a user, an operator or a model reads is plain English."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "holdfast"
PHRASES = re.compile(
    r"\b(anew|everybody|heard|mend(ed|s)?|nobody|somebody|told|whoever"
    r"|ask (again|another|the|whether|who)|(?<!user )asked (for|it|to|why)|(became|becomes|came) of"
    r"|(be|is|was|were) (gone|over)|goes on already|let(s)? go|look past|none at all"
    r"|nothing (there|waits|(is|was) left(?! out))|said nothing"
    r"|stays so|the like of|what is there)\b",
    re.IGNORECASE,
)
"""What a reader has to puzzle out, with what `told` and its like stand for."""

FOUND_IN_TEXTS = {
    "memories/longterm/recall/query.py": "words of the questions that users ask",
}
"""Files whose patterns match what users write, with the reason."""

IN_PROMPTS = re.compile(r"\b(anew|became of|let go|mend|whoever)\b", re.IGNORECASE)
"""The rest reads well to a model, and the prompts were measured with it."""


def texts(module: Path) -> Iterator[tuple[str, str]]:
    """Give each literal of *module* that is a text, and the help of its commands, with its place.

    Docstrings are for those who read the code, apart from those of commands. Of an f-string the
    fixed parts are given.
    """
    waiting: list[ast.AST] = [ast.parse(module.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef) and any(map(_is_command, node.decorator_list)):
            yield _place(module, node), ast.get_docstring(node) or ""
        if isinstance(node, ast.Constant):
            value: object = node.value
            if isinstance(value, str) and " " in value.strip():
                yield _place(module, node), value
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            waiting.extend(ast.iter_child_nodes(node))


def _is_command(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("command")


def _place(module: Path, node: ast.AST) -> str:
    return f"{module.relative_to(ROOT).as_posix()}:{getattr(node, 'lineno', 0)}"


MODULES = [each for each in sorted(ROOT.rglob("*.py")) if "testing" not in each.parts]


@pytest.fixture(scope="module")
def all_texts() -> list[tuple[str, str]]:
    return [each for module in MODULES for each in texts(module)]


def test_no_text_of_the_package_uses_a_phrase_that_has_to_be_puzzled_out(
    all_texts: list[tuple[str, str]],
) -> None:
    puzzles = {
        place: text
        for place, text in all_texts
        if place.partition(":")[0] not in FOUND_IN_TEXTS and PHRASES.search(text)
    }

    assert puzzles == {}


def test_no_prompt_uses_such_a_phrase() -> None:
    prompts = sorted(ROOT.rglob("*.md"))

    assert len(prompts) > 10
    assert [each.name for each in prompts if IN_PROMPTS.search(each.read_text())] == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("ground/errors.py", "Correct these problems, then run the plan."),
        ("memories/durable/records.py", "Correct the request and retry."),
        ("memories/stores/rows.py", "There are no stores"),
        ("doors/cli/stores.py", "Skip the confirmation."),
        ("doors/cli/output.py", "No results."),
        ("doors/cli/runs.py", "Send a message to the running steps of a run"),
        ("doors/http/own/stores.py", "Retrieve the caller's identity and scope."),
        ("doors/mount/process/lifecycle.py", "the directory was not unmounted in time"),
        ("runtime/steps/executor.py", "The step "),
    ],
)
def test_the_texts_of_errors_commands_routes_and_logs_are_among_those_checked(
    all_texts: list[tuple[str, str]], file: str, text: str
) -> None:
    assert any(place.startswith(f"{file}:") and text in each for place, each in all_texts)


@pytest.mark.parametrize("file", FOUND_IN_TEXTS)
def test_a_file_is_left_out_only_as_long_as_it_needs_to_be(
    all_texts: list[tuple[str, str]], file: str
) -> None:
    assert any(place.startswith(f"{file}:") and PHRASES.search(text) for place, text in all_texts)
