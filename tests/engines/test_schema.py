"""The schema that `verify` expects is what the migrations make."""

import runpy
from pathlib import Path

from holdfast.testing.postgres import PostgresServer

SCRIPT = Path(__file__).parents[2] / "scripts" / "dump_schema.py"


def test_the_expected_schema_for_postgres_is_what_the_migrations_make(
    postgres_server: PostgresServer,
) -> None:
    dump = runpy.run_path(str(SCRIPT))

    assert dump["schema"](postgres_server) == dump["FILE"].read_text(encoding="utf-8")
