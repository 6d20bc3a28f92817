"""What is kept for a time, and how long: changes, replays, runs, tombstones.

A write drops it for its own agent once a day; the sweep for everybody.
"""

from typing import Final

from holdfast.memories.durable.times import DAY

TIDY_EVERY: Final = DAY
CHANGES_KEPT: Final = 90 * DAY
EVICTED_KEPT: Final = 30 * DAY
"""How long the content of an evicted entry can be brought back."""
REPLAYS_KEPT: Final = DAY
ENDED_KEPT: Final = 30 * DAY
"""How long an ended run is known, and what was forgotten since it began."""
