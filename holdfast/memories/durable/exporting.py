"""An agent's entries written out as a folder of Markdown files, and an earlier export renewed."""

import os
from typing import Final

import msgspec

from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.markdown.folder import ExportFolder, target
from holdfast.memories.durable.markdown.format import (
    FORMAT,
    MARKER,
    File,
    Marker,
    is_path_of,
    read_file,
    read_marker,
    to_files,
)
from holdfast.memories.durable.records import DurableEntry, ExportReport, coded
from holdfast.memories.durable.rows import SHARED, EntryRow

_ELSEWHERE: Final = "Choose a folder that is absent or empty, or an earlier export of this agent."


def export_markdown(
    caller: AgentContext, directory: str | os.PathLike[str], *, include_workspace: bool = True
) -> ExportReport:
    """Write the agent's entries to *directory*: absent, empty, or an earlier export of them.

    Conversation entries stay out. Files of entries that are gone are removed; nothing else is
    touched.
    """
    return write_export(directory, export_files(caller, include_workspace=include_workspace))


def export_files(caller: AgentContext, *, include_workspace: bool = True) -> tuple[File, ...]:
    """Return the export of one moment: the marker, then a file for each entry, by path."""
    sql = caller.engine.queries("holdfast.memories.durable")
    shared = SHARED if include_workspace else caller.agent

    with coded():
        rows = caller.engine.read(
            lambda reader: reader.all(
                EntryRow, sql.entries_to_export, shared=shared, now=caller.now()
            )
        )
    entries: list[DurableEntry] = [row.record(caller.workspace) for row in rows]
    return to_files(entries, agent=caller.agent, workspace=caller.workspace)


def write_export(directory: str | os.PathLike[str], files: tuple[File, ...]) -> ExportReport:
    """Write *files*, which `export_files` gave, to *directory*."""
    with coded():
        marker = _marker_of(files)
        with target(directory) as place:
            _refuse_other(place, marker)
            place.check(files)
            new = frozenset(path for path, _ in files)
            stale = [path for path, text in place.earlier(new) if _is_of(marker, path, text)]
            # The marker comes first: an export that is broken off can be made again.
            place.write(files)
            place.remove(stale)
    return ExportReport(
        written=tuple(path for path, _ in files if path != MARKER), removed=tuple(stale)
    )


def _marker_of(files: tuple[File, ...]) -> Marker:
    path, text = files[0] if files else ("", "")
    marker = read_marker(text) if path == MARKER else None
    if marker is None:
        raise InvalidInput("files", f"must begin with {MARKER}")
    return marker


def _refuse_other(place: ExportFolder, marker: Marker) -> None:
    """Raise InvalidInput unless *place* is empty, or an earlier export of the same entries."""
    if place.is_empty():
        return
    content = place.marker()
    found = None if content is None else read_marker(content.decode(errors="replace"))
    if found is None or found.format != FORMAT:
        reason = "is neither empty nor an earlier export"
        raise InvalidInput("directory", reason, next=_ELSEWHERE)
    if (found.agent, found.workspace) != (marker.agent, marker.workspace):
        whose = msgspec.json.encode([found.workspace, found.agent]).decode()
        reason = "is an export of another workspace or agent"
        raise InvalidInput("directory", reason, given=whose, next=_ELSEWHERE)


def _is_of(marker: Marker, path: str, text: str | None) -> bool:
    """Tell whether an earlier export wrote the file, as it says itself; not one made by hand."""
    if text is None:
        return True
    try:
        said = read_file(path, text)
    except HoldfastError:
        return False
    asked = said.asked
    ours = said.agent in (None, marker.agent)
    return ours and said.seq is not None and is_path_of(path, asked.category, asked.key)
