# ruff: noqa: INP001, T201 - scripts are run, not imported, and print
"""Write the table of related stems, from the vectors of a model's own words.

    python scripts/make_related.py FOLDER

FOLDER holds all-MiniLM-L6-v2 as sentence-transformers loads it; this needs the extra `local`. No
text of a user takes part. The bytes of the table depend on the model and the analyzer alone.
"""

import gzip
import json
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from holdfast.memories.longterm.recall.analyze import VERSION, analyze
from holdfast.memories.longterm.recall.query import LEAST, MOST, TABLE

MODEL = "all-MiniLM-L6-v2 (Apache-2.0)"
RARE = 30
"""Of two words of one stem the more frequent counts more, by 1 / (place + RARE): Zipf's law."""
AT_ONCE = 1_024
_WORD = re.compile(r"[a-z]{2,}", re.IGNORECASE)


def words_of(folder: Path) -> list[str]:
    """Return the whole words of the model's vocabulary, in its order: frequent ones first."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    ordered = sorted(vocabulary, key=vocabulary.__getitem__)
    return [token for token in ordered if _WORD.fullmatch(token)]


def vectors_of(folder: Path, words: Sequence[str]) -> Any:
    """Return the model's vector of each word alone: `(n, dim)` float32, unit length."""
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return model.encode(list(words), batch_size=128, normalize_embeddings=True)


def stems_of(words: Sequence[str], vectors: Any) -> tuple[list[str], Any]:
    """Return the stems of *words*, sorted, and the unit vector of each without their mean."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        terms = analyze(word)
        if len(terms) == 1:
            places[terms[0]].append(place)
    stems = sorted(places)
    rows = [
        np.sum([vectors[place] / (place + RARE) for place in places[stem]], axis=0)
        for stem in stems
    ]
    every = _unit(np.asarray(rows, dtype=np.float64))
    return stems, _unit(every - every.mean(axis=0))


def lines_of(stems: list[str], vectors: Any) -> list[str]:
    """Return a line for each stem that has related ones, nearest first."""
    lines: list[str] = []
    for start in range(0, len(stems), AT_ONCE):
        every = vectors[start : start + AT_ONCE] @ vectors.T
        for row, (stem, near) in enumerate(zip(stems[start:], every, strict=False), start):
            near[row] = 0
            found = np.flatnonzero(near >= LEAST)
            nearest = found[np.argsort(-near[found], kind="stable")][:MOST]
            if len(nearest):
                related = " ".join(f"{stems[at]}:{round(near[at] * 100)}" for at in nearest)
                lines.append(f"{stem} {related}")
    return lines


def _unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def packed(lines: Sequence[str]) -> bytes:
    """Return *lines* compressed, without a time or a name."""
    whole = BytesIO()
    with gzip.GzipFile("", "wb", 9, whole, mtime=0) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    return whole.getvalue()


def main(folder: Path) -> None:
    """Write the table into the package."""
    words = words_of(folder)
    stems, vectors = stems_of(words, vectors_of(folder, words))
    lines = lines_of(stems, vectors)
    pairs = sum(line.count(":") for line in lines)
    head = f"# analyzer {VERSION}; {MODEL}; least {LEAST:.2f}; most {MOST}".replace(" 0.", " .")
    content = packed([head, *lines])
    Path(str(TABLE)).write_bytes(content)
    print(f"{len(words)} words, {len(stems)} stems, {len(lines)} with others, {pairs} pairs")
    print(f"{len(content):,} bytes: {TABLE}")


if __name__ == "__main__":
    if len(sys.argv) < 2:  # noqa: PLR2004 - its own name and FOLDER
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
