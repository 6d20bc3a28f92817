"""Vectors in a backup: of another type on each engine, and the same numbers."""

from pathlib import Path

from contracts.longterm_items import kept, memory_of, texts
from contracts.longterm_vectors import SECONDS

import holdfast
from holdfast.testing.embedders import WordEmbedder


def test_vectors_of_a_server_are_in_its_backup(fresh_postgres_url: str, tmp_path: Path) -> None:
    embedder = WordEmbedder(means={"automobile": "car"})
    with holdfast.open(fresh_postgres_url) as hf:
        ltm = memory_of(hf, "ada", embedder=embedder)
        kept(ltm, "Drives an automobile")
        found = ltm.recall("car", min_relevance=0.1, touch=False)
        hf.backup(tmp_path / "copy.db")
    asked = len(embedder.calls)

    with holdfast.open(tmp_path / "copy.db") as hf:
        copy = memory_of(hf, "ada", embedder=embedder)
        assert copy.flush(SECONDS).done

        again = copy.recall("car", min_relevance=0.1, touch=False)

        assert texts(again) == ["Drives an automobile"]
        assert again[0].why["cosine"] == found[0].why["cosine"]
        assert [len(call) for call in embedder.calls[asked:]] == [1]
