"""Words of a text for the full-text index.

A word is a run of letters and digits; an ideograph or a kana is a word by itself, as these
scripts set no spaces. In JSON an escape is the character that it stands for, so that the words
around a line break stay apart. Each word carries its store's number (`12_tabs`), so that looking
one up touches the postings of that store alone.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from heapq import merge
from itertools import islice
from typing import Final

import msgspec

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_ASCII_WORD = re.compile("[a-z0-9]+")
_WIDE = re.compile("[^\\x00-\\x7f]+")
_PHRASE = re.compile(r'"([^"]*)"')
_ESCAPES = re.compile(r"(?:\\(?:u[0-9a-fA-F]{4}|[^u]))+")
_decode: Final = msgspec.json.Decoder(str).decode

WORD_MAX = 64
"""Characters of a word that are indexed and compared."""

WORDS_ASKED_MAX = 64
"""Distinct words of a query that are searched, which bounds the cost of one search."""

HITS_WEIGHED_MAX = 200
"""Hits in one memory that are considered for its snippet."""


# Compiled at their first use: their ranges take longer than all else of the module.


@cache
def _joined() -> re.Pattern[str]:
    return re.compile(f"[^\\W_{_ALONE}]")


@cache
def _word() -> re.Pattern[str]:
    return re.compile(f"[{_ALONE}]|[^\\W_{_ALONE}]+")


def folded(text: str) -> str:
    """Return *text* case-folded and without accents; its length may differ."""
    # Most of a text is ASCII, so only the other parts are normalised by character.
    return text.lower() if text.isascii() else _WIDE.sub(_plain, text).casefold()


def _plain(wide: re.Match[str]) -> str:
    bare = "".join(
        c for c in unicodedata.normalize("NFKD", wide[0]) if not unicodedata.combining(c)
    )
    return unicodedata.normalize("NFC", bare.casefold())


def words_of(text: str) -> list[str]:
    """Return the words of *text*, in order, folded."""
    plain = folded(unescaped(text) if "\\" in text else text)
    words: list[str] = (_ASCII_WORD if plain.isascii() else _word()).findall(plain)
    if max(map(len, words), default=0) <= WORD_MAX:
        return words
    return [word[:WORD_MAX] for word in words]


def unescaped(content: str) -> str:
    """Return *content*, if it is JSON, with the characters that its escapes stand for.

    A character that cannot be printed, such as a line break, is a space.
    """
    if "\\" not in content:
        return content
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return content
    return _ESCAPES.sub(_printable, content)


def _printable(escapes: re.Match[str]) -> str:
    plain = _decode(f'"{escapes[0]}"')
    return "".join(each if each.isprintable() else " " for each in plain)


def phrases_of(query: str) -> list[list[str]]:
    """Return the words of each part of *query* within double quotes."""
    return [words for part in _PHRASE.findall(query) if (words := words_of(part))]


def marked(store_number: int, words: list[str]) -> str:
    """Return *words* as one text, each with the prefix of its store."""
    mark = f"{store_number}_"
    return mark + f" {mark}".join(words) if words else ""


def query_words(query: str) -> list[str]:
    """Return the distinct words of *query*, in order, 64 at most."""
    return list(dict.fromkeys(words_of(query)))[:WORDS_ASKED_MAX]


def holds_phrase(words: list[str], phrase: list[str]) -> bool:
    """Return whether *words* contains *phrase* as adjacent words."""
    return f" {' '.join(phrase)} " in f" {' '.join(words)} "


def snippet(content: str, words: list[str], *, width: int = 160) -> str:
    """Return at most *width* code points of *content* around the best of its hits.

    The best hit has the most hits within one width; an ellipsis marks a cut.
    """
    flat = " ".join(content.split())
    if len(flat) <= width:
        return flat
    hits = list(islice(_places(flat, words), HITS_WEIGHED_MAX))
    room = width - 2
    best = max(hits, key=lambda at: (_within(hits, at, at + room), -at), default=0)
    start = max(0, min(best - room // 4, len(flat) - room))
    end = start + room
    return ("…" if start else "") + flat[start:end].strip() + ("…" if end < len(flat) else "")


def _places(flat: str, words: list[str]) -> Iterator[int]:
    """Yield the offsets of any of *words* in *flat*, in order."""
    plain = folded(flat)
    if len(plain) == len(flat):
        # Finding a few words is far cheaper than splitting a long content.
        yield from merge(*(_whole(plain, word) for word in words))
        return
    wanted = set(words)
    for each in _word().finditer(flat):
        if not wanted.isdisjoint(words_of(each[0])):
            yield each.start()


def _whole(plain: str, word: str) -> Iterator[int]:
    """Yield the offsets of *word* in *plain* where it is a whole word."""
    joined = _joined().match
    alone = not joined(word)
    at = plain.find(word)
    while at >= 0:
        end = at + len(word)
        begins = at == 0 or not joined(plain, at - 1)
        ends = len(word) == WORD_MAX or not joined(plain, end)
        if alone or (begins and ends):
            yield at
        at = plain.find(word, end)


def _within(hits: list[int], start: int, end: int) -> int:
    return sum(start <= hit < end for hit in hits)
