"""Baseline of the evaluation: full text search with FTS5 and its porter stemmer."""

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import cast

import apsw

from holdfast.library.evaluation import Conversation, Id
from holdfast.memories.longterm.recall.analyze import WORDS

_WORD = re.compile(r"[^\W_]+")


Execute = Callable[[str, Sequence[object]], Iterable[tuple[int]]]


class FullText:
    """Turns of one conversation, ranked by SQLite's bm25."""

    def __init__(self, execute: Execute, conversation: Conversation) -> None:
        self._execute, self._turns = execute, conversation.turns
        execute("create virtual table said using fts5(body, tokenize = 'porter')", ())
        for number, turn in enumerate(conversation.turns):
            body = f"{turn.text} {turn.caption or ''}"
            execute("insert into said (rowid, body) values (?, ?)", (number, body))

    def recall(self, question: str, k: int) -> list[Id | None]:
        """Return the turns with any of the words of *question*, best first."""
        words = [word for word in _WORD.findall(question.lower()) if word not in WORDS.stop]
        if not words:
            return []
        found = self._execute(
            "select rowid from said where said match ? order by bm25(said), rowid limit ?",
            (" OR ".join(f'"{word}"' for word in dict.fromkeys(words)), k),
        )
        return [self._turns[number].id for (number,) in found]


@contextmanager
def full_text(conversation: Conversation) -> Generator[FullText]:
    """Yield the full text search of *conversation*."""
    database = apsw.Connection(":memory:")
    try:
        execute = cast("Execute", database.execute)  # pyright: ignore[reportUnknownMemberType]
        yield FullText(execute, conversation)
    finally:
        database.close()
