"""A process that backs a database up and is killed meanwhile: `backing_up.py TARGET PLACE`.

It says `begun` as soon as its file is there, and waits.
"""

import sys
from pathlib import Path

import holdfast
from holdfast.library.upkeep import backup as module


def say_and_wait(rows: int) -> None:
    """Say that it has begun, once there are *rows* in the file."""
    if rows:
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    with holdfast.open(sys.argv[1], migrate=False) as hf:
        module.backup(hf.engine, Path(sys.argv[2]), progress=say_and_wait)
