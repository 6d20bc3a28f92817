"""Mount a store as a machine without libfuse does.

    python without_fuse.py TARGET STORE DIR MODE

Prints what a person is told, and the status once it is ready; on failure one line, and exits 1.
"""

import json
import sys
from pathlib import Path

import holdfast
from holdfast.doors.mount.names import MountOptions
from holdfast.doors.mount.process.lifecycle import MountPlan, live
from holdfast.doors.mount.process.setup import mount_request
from holdfast.doors.mount.process.system import Machine
from holdfast.doors.mount.storage.spool import default_root
from holdfast.ground.errors import HoldfastError
from holdfast.memories.stores.records import JSONObject


def load(name: str) -> object:
    raise OSError(name)


def tell(status: JSONObject) -> None:
    sys.stdout.write(f"{json.dumps(status)}\n")
    sys.stdout.flush()


def warn(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main(db: str, store: str, directory: str, mode: str) -> None:
    with holdfast.open(db) as hf:
        wanted = MountPlan(
            directory=Path(directory),
            mode=mode,  # pyright: ignore[reportArgumentType] (a command line's)
            options=MountOptions(spool=default_root()),
        )
        found = mount_request(hf, session=None, stores=[store])
        try:
            live(found, wanted, on_ready=tell, warn=warn, machine=Machine(load=load))
        except HoldfastError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
