from holdfast.engines.postgres import PostgresEngine as PostgresEngine
from holdfast.engines.sqlite import SQLiteEngine as SQLiteEngine
from holdfast.engines.sqlite.target import resolve as resolve
