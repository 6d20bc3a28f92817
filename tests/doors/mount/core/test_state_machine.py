"""A mount against the one drawn on paper: random operations, trouble and ends of the mount."""

from pathlib import Path

import pytest
from doors.mount.core.driven import Driven, Stores
from doors.mount.core.elsewhere_played import MountMachine
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

import holdfast
from holdfast.doors.mount.names import MIB
from holdfast.testing.fakes import FrozenClock

pytestmark = pytest.mark.hypothesis

FULL = settings.get_current_profile_name() == "full"

GAMES, STEPS = (50 if FULL else 2), 100
SEEDS = range(20 if FULL else 2)


@pytest.mark.parametrize("number", SEEDS)
@pytest.mark.parametrize("cache", [0, 1_000, 64 * MIB], ids=["no cache", "small", "large"])
def test_a_mount_does_what_is_drawn(tmp_path: Path, cache: int, number: int) -> None:
    clock = FrozenClock()
    with holdfast.open(":memory:", clock=clock) as hf:

        @seed(number)
        class Game(MountMachine):
            def __init__(self) -> None:
                store = hf.memory_stores.create(name="Notes")
                stores: Stores = {"notes": (store, "read_write")}
                options = {"cache_bytes": cache}
                super().__init__(
                    lambda: Driven(hf, clock, tmp_path / "spool", stores, options).start()
                )

        run_state_machine_as_test(
            Game,
            settings=settings(
                max_examples=GAMES,
                stateful_step_count=STEPS,
                suppress_health_check=[HealthCheck.too_slow],
                database=None,
            ),
        )
