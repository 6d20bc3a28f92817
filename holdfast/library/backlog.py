"""Resume mining and embedding that a crashed or closed process left undone."""

from datetime import datetime

from holdfast.ground.clock import to_microseconds
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.background.schedule import LeftOver, left_over
from holdfast.memories.longterm.records import LongTermOptions


def take_up(hf: Holdfast, now: datetime) -> int:
    """Run work overdue at *now* in the background of *hf*.

    Return the number of collections.

    It runs with the models it was queued for, as far as this process has their keys, and not at
    all where long-term memory is off. Raises Unavailable.
    """
    found = left_over(hf.engine, to_microseconds(now))
    return sum(_resume_work(hf, each) for each in found)


def _resume_work(hf: Holdfast, left: LeftOver) -> bool:
    memory = hf.acting(workspace=left.workspace).longterm(
        left.user_id,
        namespace=left.namespace,
        workspace_id=left.workspace_id or None,
        enabled=True,
        embedder=left.embedder or False,
        extractor=left.miner,
        options=LongTermOptions(vector_provider=left.vector_provider),
    )
    return memory is not None
