"""What a PostgreSQL URL says: to the server's own library, and to us."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.ground.errors import InvalidInput

MOST_CONNECTIONS = 16
"""Connections a process holds at most, unless the URL says otherwise."""

CONNECT_TIMEOUT = 5

_LARGEST_POOL = 256
_DEFAULTS: Mapping[str, str | int] = {
    "application_name": "holdfast",
    "client_encoding": "utf8",
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}


class PostgresTarget(Struct, frozen=True, kw_only=True):
    """A database on a server, or on one of several that stand in for each other."""

    conninfo: str
    shown: str
    most: int = MOST_CONNECTIONS
    prepare: bool = True
    durability_off: bool = False


def resolve(url: str) -> PostgresTarget:
    """Return what *url*, `postgresql://…`, names.

    `pool=N`, `prepare=0` and `durability=off` after the `?` are ours; the rest is the server
    library's. Raises InvalidInput, without repeating what may hold a password.
    """
    address, _, query = url.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    ours = {name: value for name, value in given if name in ("pool", "prepare", "durability")}
    rest = urlencode([pair for pair in given if pair[0] not in ours], quote_via=quote)
    try:
        known = conninfo_to_dict(f"{address}?{rest}" if rest else address)
    except psycopg.Error:
        raise InvalidInput("target", "is not a PostgreSQL URL") from None
    settings = {name: str(value) for name, value in known.items() if value is not None}
    hosts = settings.get("host", "")
    if "," in hosts:
        settings.setdefault("target_session_attrs", "read-write")
    return PostgresTarget(
        conninfo=make_conninfo("", **{**_DEFAULTS, **settings}),
        shown=_shown(settings),
        most=_number(ours.get("pool")),
        prepare=_choice(ours, "prepare", {"1": True, "0": False}, default=True),
        durability_off=_choice(ours, "durability", {"on": False, "off": True}, default=False),
    )


def _shown(settings: Mapping[str, str]) -> str:
    user = f"{settings['user']}@" if settings.get("user") else ""
    port = f":{settings['port']}" if settings.get("port") else ""
    host = settings.get("host", "")
    return f"postgresql://{user}{host}{port}/{settings.get('dbname', '')}"


def _number(given: str | None) -> int:
    if given is None:
        return MOST_CONNECTIONS
    if given.isascii() and given.isdigit() and 1 <= int(given) <= _LARGEST_POOL:
        return int(given)
    raise InvalidInput(
        "target", f"pool must be 1 to {_LARGEST_POOL}", limit=_LARGEST_POOL, given=given
    )


def _choice(
    given: Mapping[str, str], name: str, choices: Mapping[str, bool], *, default: bool
) -> bool:
    if name not in given:
        return default
    if given[name] not in choices:
        raise InvalidInput("target", f"{name} must be {' or '.join(choices)}", given=given[name])
    return choices[given[name]]
