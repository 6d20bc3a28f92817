"""Instants as a state tells them: UTC, whole milliseconds, `2026-01-02T03:04:05.678Z`."""

from datetime import UTC, datetime, timedelta

from holdfast.ground.errors import InvalidInput


def to_milliseconds(field: str, instant: object) -> datetime:
    """Return *instant* in UTC, without what is less than a millisecond; InvalidInput if naive."""
    if not isinstance(instant, datetime):
        raise InvalidInput(field, "must be a datetime", given=instant)
    if instant.tzinfo is not UTC:
        if instant.utcoffset() is None:
            raise InvalidInput(field, "must be aware of its time zone", given=instant)
        try:
            instant = instant.astimezone(UTC)
        except OverflowError:
            raise InvalidInput(field, "must be in the years 1 to 9999", given=instant) from None
    odd = instant.microsecond % 1000
    return instant - timedelta(microseconds=odd) if odd else instant


def to_text(instant: datetime) -> str:
    """Return *instant*, which is in UTC, with three fraction digits and `Z`."""
    return instant.isoformat(timespec="milliseconds")[:-6] + "Z"


def from_text(field: str, text: object) -> datetime:
    """Return the instant that *text*, RFC 3339, tells; InvalidInput if it tells none."""
    if not isinstance(text, str):
        raise InvalidInput(field, "must be an instant as text", given=text)
    try:
        return to_milliseconds(field, datetime.fromisoformat(text))
    except ValueError:
        raise InvalidInput(field, "must be an instant as text", given=text) from None
