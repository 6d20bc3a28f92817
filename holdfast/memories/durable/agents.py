"""Which agents of a workspace have durable memory."""

from msgspec import Struct

from holdfast.ground.clock import from_microseconds_or_none
from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Key, Page, checked_limit, digest, read_cursor, write_cursor
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.read import LISTED, MOST_LISTED
from holdfast.memories.durable.records import AgentSummary

LIST = "durable_agents"


class _Row(Struct, frozen=True, kw_only=True):
    agent: str
    entries: int
    size_bytes: int
    last_write: int | None

    def record(self) -> AgentSummary:
        return AgentSummary(
            agent=self.agent,
            entries=self.entries,
            size_bytes=self.size_bytes,
            last_write=from_microseconds_or_none(self.last_write),
        )


def list_agents(
    caller: AgentContext, *, limit: int | None = LISTED, page: str | None = None
) -> Page[AgentSummary]:
    """Return the agents of *caller*'s workspace by name; *caller* is of no agent."""
    rows = checked_limit(limit, most=MOST_LISTED, default=LISTED)
    stamp = digest(caller.workspace)
    after = "" if page is None else _name_in(read_cursor(LIST, stamp, page)[0])
    sql = caller.engine.queries("holdfast.memories.durable")
    found = caller.engine.all(_Row, sql.list_agents, after=after, rows=rows + 1)
    shown = found[:rows]
    more = write_cursor(LIST, stamp, [shown[-1].agent]) if len(found) > rows else None
    return Page(
        [row.record() for row in shown],
        more,
        more=lambda page: list_agents(caller, limit=limit, page=page),
    )


def _name_in(key: Key) -> str:
    match key:
        case [str(name)] if "\0" not in name:
            return name
        case _:
            raise InvalidInput(
                "page", "is not a cursor of this list", next="Start again without page."
            )
