"""The public surface is the one in `surface.json`: nothing is missing, changed or unrecorded."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from fork_server import forked_script

SURFACE = Path(__file__).with_name("surface.py")
JSON: TypeAlias = "str | list[str] | dict[str, JSON]"
COMMAND = "python tests/architecture/surface.py"


def lines(part: JSON, path: str = "") -> Iterator[tuple[str, str]]:
    """Give each fact of a described surface with the path to it."""
    if isinstance(part, dict):
        yield path, "is there"
        for name, below in part.items():
            yield from lines(below, f"{path} / {name}" if path else name)
    elif isinstance(part, list):
        yield from ((f"{path} / {each}", "is there") for each in part)
    else:
        yield path, part


def test_the_public_surface_is_the_recorded_one() -> None:
    recorded = dict(lines(json.loads(SURFACE.with_suffix(".json").read_text("utf-8"))))

    # In a process of its own: what other tests did would count among the metrics.
    ran = subprocess.run(
        forked_script(SURFACE, "--print"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = dict(lines(json.loads(ran.stdout)))

    differences = [
        *(f"missing: {path}" for path in recorded.keys() - found.keys()),
        *(
            f"changed: {path}\n    was {recorded[path]}\n    is  {found[path]}"
            for path in recorded.keys() & found.keys()
            if recorded[path] != found[path]
        ),
        *(f"not recorded: {path}" for path in found.keys() - recorded.keys()),
    ]
    assert not differences, "\n".join(
        [
            *sorted(differences),
            f"Restore what is missing or changed; record what was added with: {COMMAND}",
        ]
    )
