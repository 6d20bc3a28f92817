"""What an entry costs beyond its value: measured as what the interpreter allocates."""

import tracemalloc

from holdfast import RunMemory, keys

ENTRIES = 2_000
MOST = 1_000
"""Bytes beside the JSON of the value."""


def test_an_entry_costs_its_json_and_at_most_a_thousand_bytes() -> None:
    memory = RunMemory()
    memory.set("shared:first", "x")
    tracemalloc.start()
    for number in range(ENTRIES):
        memory.set(keys.step(f"item_{number}"), ["x" * 500], source="step", title=f"No. {number}")
    cost, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert cost / ENTRIES - memory.size_bytes / ENTRIES <= MOST
