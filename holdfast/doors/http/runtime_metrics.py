"""Metrics of the runs of agents and networks, in this process."""

from collections.abc import Iterable, Iterator, Mapping

from holdfast.ground.errors import MissingExtra


def runtime_lines() -> Iterator[str]:
    """Yield the lines of the counters of agents; none if the extra is missing."""
    try:
        from holdfast.runtime.metrics import TOLD, counts
    except MissingExtra:
        return
    yield from _lines("holdfast_runtime_", TOLD, counts.taken())


def network_run_lines() -> Iterator[str]:
    """Yield the lines of the counters of networks; none if the extra is missing."""
    try:
        from holdfast.runtime.networks.run import TOLD, counts
    except MissingExtra:
        return
    yield from _lines("holdfast_network_", TOLD, counts.taken())


def _lines(
    prefix: str,
    families: Mapping[str, tuple[str, str]],
    samples: Iterable[tuple[str, tuple[tuple[str, str], ...], float]],
) -> Iterator[str]:
    current: str | None = None
    for name, labels, number in samples:
        family = next(each for each in families if name.startswith(each))
        if family != current:
            kind, says = families[family]
            yield f"# HELP {prefix}{family} {says}"
            yield f"# TYPE {prefix}{family} {kind}"
            current = family
        shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels)
        braced = f"{{{shown}}}" if shown else ""
        yield (
            f"{prefix}{name}{braced} {number:.6f}"
            if number % 1
            else (f"{prefix}{name}{braced} {int(number)}")
        )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
