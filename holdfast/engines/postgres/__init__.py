"""PostgreSQL engine: many machines, a connection pool, row-level security."""

from holdfast.ground.errors import MissingExtra

try:
    import psycopg as _driver  # pyright: ignore[reportUnusedImport] # noqa: F401 - installed?
except ImportError as error:
    raise MissingExtra("postgres") from error

from holdfast.engines.postgres.engine import PostgresEngine as PostgresEngine
