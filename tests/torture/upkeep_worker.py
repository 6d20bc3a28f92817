"""Backs a database up, or restores it, until it ends or is killed.

python -m torture.upkeep_worker backup DATABASE FILE
python -m torture.upkeep_worker restore FILE DATABASE
"""

import sys
from pathlib import Path

import holdfast
from holdfast.library.upkeep.restore import restore


def main() -> None:
    """Do as the command line says, over what is there."""
    what, source, target = sys.argv[1:]
    if what == "restore":
        restore(Path(source), target, replace=True)
        return
    with holdfast.open(source) as hf:
        hf.backup(target, force=True)


if __name__ == "__main__":
    main()
