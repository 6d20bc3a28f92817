"""The engine for many machines: PostgreSQL, a pool of connections, row-level security."""

from holdfast.ground.errors import MissingExtra

try:
    import psycopg as _driver  # pyright: ignore[reportUnusedImport] # noqa: F401 - is it there?
except ImportError as error:
    raise MissingExtra("postgres") from error

from holdfast.engines.postgres.engine import PostgresEngine as PostgresEngine
