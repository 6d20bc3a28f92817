# ruff: noqa: INP001, T201 - scripts are run, not imported, and print
"""List the licence of every package of `requirements.lock`; fail for one that is not known.

What is listed is what the tests run with, the product's own dependencies and extras among it.
"""

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"
KNOWN = re.compile(
    r"\b(MIT|ISC|BSD|0BSD|Apache|PSF|Python Software Foundation|CNRI|Unlicense|Zlib|CC0|MPL|Mozilla"
    r"|LGPL|DFSG|any-OSI)"
)
# Their metadata says nothing; read in the package.
READ = {"axe-playwright-python": "MIT"}


def licences() -> Iterator[tuple[str, str, str]]:
    """Yield name, version and licence of each package of the lock file; no licence is empty."""
    for name, version in re.findall(
        r"^([\w.-]+)==([^\s;]+)", LOCK.read_text("utf-8"), re.MULTILINE
    ):
        yield name, version, licence(name)


def licence(name: str) -> str:
    """Return the licence that the installed package states, empty if it states none."""
    found = metadata.metadata(name)
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in found.get_all("Classifier") or []
        if each.startswith("License ::")
    ]
    free = stated(found, "License").strip().partition("\n")[0]
    return (
        stated(found, "License-Expression") or ", ".join(classifiers) or free or READ.get(name, "")
    )


def stated(found: metadata.PackageMetadata, field: str) -> str:
    """Return the field of the metadata, empty if it is not there."""
    return (found.get_all(field) or [""])[0]


if __name__ == "__main__":
    listed = list(licences())
    for row in listed:
        print(*row, sep="\t")
    unknown = [name for name, _, terms in listed if not KNOWN.search(terms)]
    if unknown:
        sys.exit(f"No known licence: {', '.join(unknown)}.")
