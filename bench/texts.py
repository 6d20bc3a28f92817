"""Generated texts, the same each time, with the lengths and the word frequencies of real ones."""

import random
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

_WORDS = 20_000
_SYLLABLES = (
    "ka",
    "ro",
    "ten",
    "mi",
    "sal",
    "der",
    "in",
    "po",
    "lu",
    "ver",
    "es",
    "ta",
    "no",
    "qui",
)
_WIDE = ("é", "ü", "ß", "語", "🙂")
"""Characters of two to four bytes, as some of every real text's are."""


class Texts:
    """Makes texts of words whose frequencies follow Zipf's law, from one seed."""

    def __init__(self, seed: int = 7, words: Sequence[str] = ()) -> None:
        self._random = random.Random(seed)
        self._vocabulary = words or [self._word(number) for number in range(_WORDS)]
        ranks = range(len(self._vocabulary))
        self._weights = list(accumulate(1 / (rank + 2) for rank in ranks))

    def words(self, count: int) -> str:
        """Return *count* words."""
        return " ".join(self._drawn() for _ in range(count))

    def of_bytes(self, size: int) -> str:
        """Return text of at most *size* bytes of UTF-8, and at least that less one character."""
        parts: list[str] = []
        length = 0
        while length < size:
            parts.append(self._drawn())
            length += len(parts[-1].encode()) + 1
        return " ".join(parts).encode()[:size].decode(errors="ignore")

    def asked(self, text: str, count: int = 2) -> str:
        """Return *count* words of *text*, as somebody who looks for it would ask."""
        return " ".join(self._random.sample(text.split(), count))

    def _drawn(self) -> str:
        at = self._random.random() * self._weights[-1]
        return self._vocabulary[bisect_left(self._weights, at)]

    def _word(self, number: int) -> str:
        word = "".join(self._random.choices(_SYLLABLES, k=self._random.choice((1, 2, 2, 3, 3, 4))))
        return word + (_WIDE[number % len(_WIDE)] if number % 40 == 0 else "")
