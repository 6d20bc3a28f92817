"""Ids: their form and order, and that threads and forks never make one twice."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from holdfast.ground.ids import ALPHABET, COUNT, RANDOM, TIME, Ids, base62

NOW = 1_790_000_000_000_000
FORM = re.compile("mem_[0-9A-Za-z]{24}")

FORKED = """
import os
from holdfast.ground.ids import Ids
ids = Ids()
ids.new("mem", 1)
inlet, outlet = os.pipe()
child = os.fork()
made = [ids.new("mem", 2) for _ in range(50)]
if child == 0:
    os.write(outlet, "\\n".join(made).encode())
    os._exit(0)
os.waitpid(child, 0)
print(len(set(made) & set(os.read(inlet, 65536).decode().splitlines())))
tails = {each[-11:] for each in made}
print(len(tails))
"""


def plainly(number: int, width: int) -> str:
    """Return *number* in *width* characters, one by one."""
    digits = [ALPHABET[number // 62**place % 62] for place in range(width)]
    return "".join(reversed(digits))


@given(st.integers(0, 2**66), st.integers(0, 12))
def test_a_number_is_spelt_as_it_is_character_by_character(number: int, width: int) -> None:
    assert base62(number, width) == plainly(number, width)


@given(st.lists(st.integers(0, 62**TIME - 2), max_size=40))
def test_ids_rise_in_one_form_whatever_the_clock_says(instants: list[int]) -> None:
    ids = Ids()
    made = [ids.new("mem", at) for at in instants]

    assert all(FORM.fullmatch(each) for each in made)
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_an_id_names_its_instant_and_its_place_within_it() -> None:
    ids = Ids()
    first, second = ids.new("mem", NOW), ids.new("mem", NOW)

    assert first[4 : 4 + TIME + COUNT] == base62(NOW, TIME) + base62(0, COUNT)
    assert second[4 : 4 + TIME + COUNT] == base62(NOW, TIME) + base62(1, COUNT)


def test_the_random_parts_of_many_ids_differ() -> None:
    ids = Ids()
    tails = {ids.new("mem", NOW)[-RANDOM:] for _ in range(5_000)}

    assert len(tails) == 5_000


def test_threads_never_make_an_id_twice() -> None:
    ids = Ids()

    def some(count: int) -> list[str]:
        return [ids.new("mem", NOW) for _ in range(count)]

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(some, [500] * 8))

    flat = [each for part in made for each in part]
    assert len({each[-RANDOM:] for each in flat}) == len(flat)
    assert len(set(flat)) == len(flat)


def test_a_fork_does_not_repeat_what_its_parent_draws() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["0", "50"]
