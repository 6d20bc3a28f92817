"""What another process may report of a run: within bounds, and JSON where it says so."""

from typing import Final

import msgspec

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import decode
from holdfast.ground.scope import checked_name
from holdfast.ground.text import within
from holdfast.memories.run import keys
from holdfast.memories.run.entry import (
    checked_description,
    checked_source,
    checked_time,
    checked_title,
    checked_version,
)
from holdfast.memories.run.record import checked_ending, checked_metadata, checked_name_of
from holdfast.memories.run.report import (
    EVENT_TYPES,
    EVENTS_MOST,
    PART_BYTES,
    ReportedEntry,
    ReportedEvent,
    RunReport,
    RunStart,
)

KEPT_MOST: Final = 6 * PART_BYTES + 2
"""Bytes of the JSON of a value as it is kept: a part's characters may each take six."""


def checked_opening(opening: RunStart) -> RunStart:
    """Return *opening* if a run may begin so; else InvalidInput."""
    checked_name("run", opening.run_id)
    checked_name("holder", opening.holder)
    checked_name_of("name", opening.name)
    if opening.agent is not None:
        checked_name_of("agent", opening.agent)
    checked_metadata(opening.metadata)
    within("place", opening.place, least=1, most=256)
    checked_time("started_at", opening.started_at)
    return opening


def checked_report(report: RunReport) -> RunReport:
    """Return *report* if a run may be reported so; else InvalidInput."""
    checked_name("holder", report.holder)
    checked_version("number", report.number, least=1)
    checked_version("missed", report.missed)
    if report.ended is not None:
        checked_ending(report.ended)
    if len(report.events) > EVENTS_MOST:
        raise InvalidInput("events", f"must be at most {EVENTS_MOST}", limit=EVENTS_MOST)
    for index, event in enumerate(report.events):
        _check_event(index, event)
    told = [each.key for each in report.entries] + list(report.deleted)
    if len(set(told)) != len(told):
        raise InvalidInput("entries", "must name each key once, and none of those deleted")
    for key in told:
        if keys.checked(key) != key:
            raise InvalidInput("key", "must be in Normalization Form C", given=key)
    for index, entry in enumerate(report.entries):
        _check_entry(index, entry)
    return report


def _check_event(index: int, event: ReportedEvent) -> None:
    if event.type not in EVENT_TYPES:
        raise InvalidInput(
            "type", f"must be one of {', '.join(EVENT_TYPES)}", given=event.type, index=index
        )
    checked_time("at", event.at)


def _check_entry(index: int, entry: ReportedEntry) -> None:
    if entry.kind != keys.kind_of(entry.key):
        raise InvalidInput("kind", "must be that of the key", given=entry.kind, index=index)
    checked_source(entry.source)
    checked_title(entry.title)
    checked_description(entry.description)
    checked_time("created_at", entry.created_at)
    checked_time("updated_at", entry.updated_at)
    checked_version("version", entry.version, least=1)
    checked_version("value_bytes", entry.value_bytes, least=1)
    _check_value(index, entry)


def _check_value(index: int, entry: ReportedEntry) -> None:
    if len(entry.value.encode()) > KEPT_MOST:
        raise InvalidInput("value", f"must be kept in part past {PART_BYTES:,} bytes", index=index)
    try:
        value: object = decode(entry.value.encode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidInput("value", "must be JSON, as text", index=index) from None
    if (entry.part_of is None) != (entry.total is None):
        raise InvalidInput("total", "belongs to a part, and only to a part", index=index)
    if entry.part_of is not None:
        checked_version("total", entry.total)
        if not isinstance(value, str):
            raise InvalidInput("value", "must be text where it is a part", index=index)
