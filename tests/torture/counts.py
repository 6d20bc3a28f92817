"""Count what an attack did, for the page that `make proof` writes."""

import json
import os
from pathlib import Path


def counted(what: str, count: int, **detail: str | float) -> None:
    """Append one JSON line to the file that `HOLDFAST_PROOF` names; do nothing without it.

    The line is `{"what": …, "count": …, "test": …, "detail": {…}}`, with the node id of the test
    that runs. Lines with one *what* are added up.
    """
    if name := os.environ.get("HOLDFAST_PROOF"):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        line = json.dumps({"what": what, "count": count, "test": test, "detail": detail}) + "\n"
        with Path(name).open("a", encoding="utf-8") as file:
            # One write of less than a page: lines of several processes stay whole.
            file.write(line)
