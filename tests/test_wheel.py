"""What the wheel contains: the package, the contracts of what a user implements, and no test.

The build takes the folders that `packages` names in pyproject.toml, and nothing else.
"""

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTRACTS = {"engine", "checkpoints", "history", "vectors"}


def packaged() -> list[Path]:
    """Return the files that the wheel contains, by the build's configuration."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    assert list(build) == ["targets"]
    assert list(build["targets"]["wheel"]) == ["packages"]
    folders = [ROOT / name for name in build["targets"]["wheel"]["packages"]]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return [each.relative_to(ROOT) for each in files if each.suffix != ".pyc"]


def test_the_wheel_contains_the_package_alone() -> None:
    assert {file.parts[0] for file in packaged()} == {"holdfast"}


def test_the_wheel_contains_no_contract_but_those_of_what_a_user_implements() -> None:
    stems = {file.stem for file in packaged() if file.parent.name == "contracts"}

    assert stems - {"__init__"} == CONTRACTS


def test_the_wheel_contains_no_test_outside_the_contracts() -> None:
    tests = [
        f"{file}:{node.lineno}"
        for file in packaged()
        if file.suffix == ".py" and file.parent.name != "contracts"
        for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    named = [file for file in packaged() if file.name.startswith(("test_", "conftest"))]

    assert (tests, named) == ([], [])
