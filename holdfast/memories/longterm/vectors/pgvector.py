"""Vectors compared by PostgreSQL itself, with the extension `vector`.

They stand in the same table as those that are compared in process, so that neither needs what the
other made, and a server without the extension loses nothing but speed. The scan is exact, behind
the key that begins with the collection.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Final

from holdfast.engines.base import Engine, Reader
from holdfast.engines.queries import read
from holdfast.memories.longterm.cache_budget import ByteBudget
from holdfast.memories.longterm.vectors.base import Near
from holdfast.memories.longterm.vectors.table import PLACES, QUERIES, Matrices, TableVectors

_ALL: Final = 2**31 - 1


class PgVectors(TableVectors):
    """The table `ltm_vectors`, looked through by the server. *schema* is the extension's."""

    name = "pgvector"

    def __init__(self, engine: Engine, workspace: str, schema: str) -> None:
        super().__init__(engine, workspace, Matrices(ByteBudget(0)))
        self._schema = schema

    def nearest(self, collection: str, vector: Sequence[float], k: int) -> Near:
        """Return the *k* ids whose vectors are nearest to *vector*, by true cosine."""

        def work(reader: Reader) -> Near:
            reader.rows(_statements().use_extension, schema=self._schema)
            found = reader.rows(
                _statements().nearest,
                collection=collection,
                dimension=len(vector),
                vector=[float(number) for number in vector],
                k=max(0, k),
            )
            return [(id, round(max(-1.0, min(1.0, cosine)), PLACES)) for id, cosine in found]

        return self.engine.read(work)

    def cosines(self, collection: str, vector: Sequence[float]) -> Mapping[str, float]:
        """Return the cosine of each vector of the collection to *vector*, by id."""
        return dict(self.nearest(collection, vector, _ALL))


def schema_of_extension(engine: Engine) -> str | None:
    """Return where the extension `vector` is in the engine's database; None where it is not."""
    if engine.dialect != "postgres":
        return None
    return engine.first(_name, _statements().extension)


@cache
def _statements() -> SimpleNamespace:
    text = files(QUERIES).joinpath("pgvector.sql").read_text(encoding="utf-8")
    return SimpleNamespace(**read(text, "postgres", source="pgvector.sql"))


def _name(*, name: str) -> str:
    return name
