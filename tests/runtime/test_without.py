"""The runtime where its extra is not installed."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
from importlib import util

there = util.find_spec
util.find_spec = lambda name, *rest: None if name == sys.argv[1] else there(name, *rest)

import holdfast
from holdfast.errors import MissingExtra

holdfast.RunMemory().set("shared:one", 1)
try:
    import holdfast.runtime
except MissingExtra as error:
    print(error.extra, error.command)
"""


@pytest.mark.parametrize("missing", ["pydantic_ai", "jsonschema"])
def test_the_error_names_the_extra_and_the_command_and_the_core_goes_on(missing: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing], capture_output=True, text=True, check=True
    ).stdout

    assert said == "agents pip install 'holdfast[agents]'\n"
