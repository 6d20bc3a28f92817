# ruff: noqa: INP001 - scripts are run, not imported
"""Write `holdfast/engines/migrations/schema.postgres.json`: the objects of the schema.

`verify` compares a database with it; on SQLite it compares with a new database. Run by hand after
a migration was added; a test fails while the file is stale.
"""

from pathlib import Path

import msgspec

from holdfast.engines.postgres import PostgresEngine
from holdfast.ground.clock import SystemClock
from holdfast.library.upkeep.verify import objects_in
from holdfast.testing.postgres import PostgresServer, running_postgres

FILE = Path(__file__).parents[1] / "holdfast" / "engines" / "migrations" / "schema.postgres.json"


def schema(server: PostgresServer) -> str:
    """Return the objects that the migrations make on *server*, one line for each."""
    engine = PostgresEngine.open(server.url(server.new_database()), clock=SystemClock())
    found = engine.read(
        lambda reader: objects_in(reader, engine.queries("holdfast.library.upkeep"))
    )
    engine.close()
    rows = (msgspec.json.encode([*key, text]).decode() for key, text in sorted(found.items()))
    return "[\n" + ",\n".join(rows) + "\n]\n"


if __name__ == "__main__":
    with running_postgres() as server:
        FILE.write_text(schema(server), encoding="utf-8")
