"""SQLite engine: one file, one writer with group commit, many readers."""

from holdfast.engines.sqlite.engine import SQLiteEngine as SQLiteEngine
