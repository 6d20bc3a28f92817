"""What runs of agents did in this process, as Prometheus reads it."""

from collections.abc import Iterator
from typing import Final

from holdfast.ground.errors import MissingExtra

_PREFIX: Final = "holdfast_runtime_"


def runtime_lines() -> Iterator[str]:
    """Give the lines of what was done in this process; none where agents cannot run."""
    try:
        from holdfast.runtime.counts import TOLD, counts
    except MissingExtra:
        return
    told: str | None = None
    for name, labels, number in counts.taken():
        family = next(each for each in TOLD if name.startswith(each))
        if family != told:
            kind, says = TOLD[family]
            yield f"# HELP {_PREFIX}{family} {says}"
            yield f"# TYPE {_PREFIX}{family} {kind}"
            told = family
        shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels)
        braced = f"{{{shown}}}" if shown else ""
        yield (
            f"{_PREFIX}{name}{braced} {number:.6f}"
            if number % 1
            else (f"{_PREFIX}{name}{braced} {int(number)}")
        )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
