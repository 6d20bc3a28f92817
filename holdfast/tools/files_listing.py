"""A directory of the tool `memory`: two levels of names and sizes, out of paths alone."""

from collections.abc import Iterable

from msgspec import Struct

LEVELS = 2
UNITS = "BKMG"


class _Entry(Struct):
    size: int = 0
    is_directory: bool = False


def listing(p: str, sizes: Iterable[tuple[str, int]]) -> str | None:
    """Return the lines for the directory *p*, or None when nothing is in it.

    *sizes* are the paths below it, relative, each with its bytes. They are taken one by one, and
    only what is shown is kept. Hidden names are left out, and what is below them, but not out of
    the sizes.
    """
    total, empty = 0, True
    entries: dict[tuple[str, ...], _Entry] = {}
    for relative, size in sizes:
        total, empty = total + size, False
        segments = relative.split("/", LEVELS)
        for level in range(1, min(len(segments), LEVELS) + 1):
            if segments[level - 1].startswith("."):
                break
            entry = entries.setdefault(tuple(segments[:level]), _Entry())
            entry.size += size
            entry.is_directory = level < len(segments)
    return None if empty else _lines(p, total, entries)


def empty_root(p: str) -> str:
    """Return the lines for the root *p* of a store that holds nothing below it."""
    return _lines(p, 0, {})


def _lines(p: str, total: int, entries: dict[tuple[str, ...], _Entry]) -> str:
    header = (
        f"Here're the files and directories up to {LEVELS} levels deep in {p},"
        " excluding hidden items:"
    )
    base = p.rstrip("/")
    # By names, level by level: as tuples, so that a directory's entries follow it at once.
    lines = [
        f"{readable(entries[names].size)}\t{base}/{'/'.join(names)}"
        + ("/" if entries[names].is_directory else "")
        for names in sorted(entries)
    ]
    return "\n".join([header, f"{readable(total)}\t{base}", *lines])


def readable(size: int) -> str:
    """Return *size* bytes as `0B`, `1.5K`, `100K`: in units of 1,024, one decimal if need be."""
    unit = min(max(size.bit_length() - 1, 0) // 10, len(UNITS) - 1)
    scaled = size / 1024**unit
    return f"{int(scaled)}{UNITS[unit]}" if scaled.is_integer() else f"{scaled:.1f}{UNITS[unit]}"
