"""A process that backs a database up, and is cut short: `backing_up.py TARGET PLACE LIMIT`.

With LIMIT 0 it says `begun` as soon as its file is there, and waits to be killed; else no file
may grow beyond LIMIT bytes.
"""

import resource
import signal
import sys
from pathlib import Path

import holdfast
from holdfast.ground.errors import HoldfastError
from holdfast.library.upkeep import backup as module


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(target: str, place: str, limit: int) -> int:
    with holdfast.open(target, migrate=False) as hf:
        if limit:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        def told(rows: int) -> None:
            if not limit and rows:
                say("begun")
                sys.stdin.read()

        try:
            module.backup(hf.engine, Path(place), progress=told)
        except HoldfastError as error:
            say(f"{type(error).__name__} {getattr(error, 'reason', '')}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
