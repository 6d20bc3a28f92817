"""Metrics of long-term memory: work in this process, contents of the database."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from holdfast.doors.http.counters import Counter, flat_lines
from holdfast.engines.base import Engine
from holdfast.memories.longterm.metrics import BUCKETS, COUNTERS, TIMINGS, counts, held, jobs

_LONGTERM_PREFIX: Final = "holdfast_ltm_"
_KINDS: Final = ("extract", "embed", "reembed")
_STATES: Final = ("queued", "running", "failed")


def longterm_numbers(engine: Engine) -> dict[str, float]:
    """Return the numbers of items, turns and jobs within *engine*'s scope."""
    all_held = held(engine)
    waiting = {
        f'jobs{{kind="{kind}",state="{state}"}}': 0.0 for kind in _KINDS for state in _STATES
    }
    present = {
        f'jobs{{kind="{each.kind}",state="{each.state}"}}': each.jobs for each in jobs(engine)
    }
    return {"items": all_held.items, "turns": all_held.turns, **waiting, **present}


def longterm_lines(numbers: dict[str, float]) -> Iterator[str]:
    """Yield the lines of the counters of this process, and of *numbers*."""
    taken: dict[str, dict[tuple[str, ...], int]] = {}
    for name, labels, count in counts.taken():
        taken.setdefault(name, {})[labels] = count
    for name, (says, labels) in COUNTERS.items():
        counter = Counter(f"{_LONGTERM_PREFIX}{name}", says, *labels)
        counter.take(taken.get(name, {}))
        yield from counter.lines()
    yield from flat_lines(_LONGTERM_PREFIX, _timings())
    yield from flat_lines(_LONGTERM_PREFIX, numbers)


def _timings() -> dict[str, float]:
    samples: dict[str, float] = {}
    for name, value, buckets, seconds in counts.timings():
        label = f'{TIMINGS[name][1][0]}="{value}"' if value else ""
        braced = f"{{{label}}}" if label else ""
        so_far = list(accumulate(buckets))
        for bound, count in zip((*BUCKETS, "+Inf"), so_far, strict=True):
            samples[f'{name}_bucket{{{label}{"," if label else ""}le="{bound}"}}'] = count
        samples[f"{name}_sum{braced}"] = round(seconds, 6)
        samples[f"{name}_count{braced}"] = so_far[-1]
    return samples
