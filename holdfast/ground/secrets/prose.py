"""A secret told in a sentence: "my password is …"."""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final

from holdfast.ground.secrets.innocent import (
    is_innocent,
    is_measure,
    is_opaque,
    is_technical,
)
from holdfast.ground.secrets.normalise import Shadow, Span

_NOUNS: Final = (
    *("password", "passphrase", "passcode", "passwd", "pin code", "pin number", "pin", "secret"),
    *("token", "api key", "api-key", "apikey", "access key", "credentials"),
)
_NOUN = "|".join(rf"{noun}(?<![a-z0-9]{noun})" for noun in _NOUNS)
# Between noun and verb something may be said of it: "the PIN of my card is".
_TOLD = re.compile(
    rf"(?P<noun>{_NOUN})(?![a-z0-9])"
    r"(?:\s(?:for|to|of|on|at|in|from|with|that|which|i|we|you|he|she|they)\s[^\n.:;!?]{1,60}?(?=\s(?:is|was|are)\s))?"
    r"(?:\s{0,3}(?P<colon>:)|(?:\s{1,3}|(?='s))(?P<verb>is|was|are|to|will be|should be|'s)"
    r"(?![a-z0-9])"
    r"(?:\s(?:now|just|still|currently|actually|always|really|simply|set to))?\s{0,3}:?"
    r"|(?P<beside>(?=\s[^\s])))"
    r"\s{1,3}(?=\S)"
)
_PROSE_LITERALS: Final = ("pass", "pin", "secret", "token", "key", "credentials")
_OWNERS = frozenset(("my", "the", "your", "our", "his", "her", "their", "its", "this", "that"))
_PROSE_AHEAD = 64
_MOST_WORDS = 5
_WORD = re.compile(r"[^\s]{1,256}")
_QUOTES = {'"': '"', "'": "'", "`": "`"}
_MOST_QUOTED = 200
_DIGITS = re.compile(r"[0-9]{4,12}|[0-9]{2,6}(?:-[0-9]{2,6}){1,3}")
_SYMBOL = re.compile(r"[^A-Za-z0-9\-'._/\s]")
_LONE = re.compile(r"[A-Za-z]{6,40}")
_HYPHENED = re.compile(r"[A-Za-z]{4,16}(?:-[A-Za-z]{4,16}){2,9}")
_ENDS = re.compile(r"[\"')]{0,2}(?:[.!?;]{1,3}(?:[\"')]|\s|\Z)|\s{0,8}\Z|[ \t]{0,8}\n)")
_FORMS = ("ed", "ing", "able", "ible", "less", "ful", "ous", "ive")
_PROSE_TRAILING = ".,;:!?)]}\"'`*"
# They lead to a secret less often than "is" does: "the token's expiry".
_WEAK = ("to", "'s")
_LEAST_MIXED, _LEAST_BESIDE = 4, 5
_BESIDE = frozenset(("password", "passphrase", "passcode", "passwd", "pin", "pin code"))


def prose_spans(shadow: Shadow) -> Iterable[Span]:
    """Give where such secrets stand."""
    lower = shadow.lower
    if not any(literal in lower for literal in _PROSE_LITERALS):
        return
    for told in _TOLD.finditer(lower):
        if told["colon"] and not _is_owned(lower, told.start()):
            continue
        if told["beside"] is not None and told["noun"] not in _BESIDE:
            continue
        if span := _quoted(shadow.text, told) or _bare(shadow.text, told):
            yield span


def _is_owned(lower: str, start: int) -> bool:
    """Tell whether the noun at *start* is somebody's: "my", "the", "Ada's"."""
    words = lower[max(0, start - _PROSE_AHEAD) : start].split()[-_MOST_WORDS:]
    return any(word in _OWNERS or word.endswith("'s") for word in words)


def _quoted(text: str, told: "re.Match[str]") -> Span | None:
    """Return what stands in quotes after *told*."""
    start = told.end()
    closing = _QUOTES.get(text[start])
    end = text.find(closing, start + 1, start + _MOST_QUOTED) if closing else -1
    inside = text[start + 1 : end] if end > 0 else ""
    plain = inside.isalpha() and (inside.lower() in _common() or told["verb"] in _WEAK)
    if len(inside) < _LEAST_MIXED or "\n" in inside or plain or is_innocent(inside):
        return None
    if told["beside"] is not None and any(map(str.isspace, inside)):
        return None
    return start + 1, end


def _bare(text: str, told: "re.Match[str]") -> Span | None:
    """Return the word after *told* if it is no word of a sentence about secrets."""
    start = told.end()
    found = _WORD.match(text, start)
    value = found[0].lstrip("\"'`").rstrip(_PROSE_TRAILING) if found else ""
    if found is None or len(value) < _LEAST_MIXED:
        return None
    start += found[0].index(value)
    span = (start, start + len(value))
    if told["beside"] is not None:
        tells = _tells_beside(value, told["noun"])
    elif value.isalpha() and not is_opaque(value):
        lone = told["verb"] not in _WEAK and _LONE.fullmatch(value) and _ENDS.match(text, span[1])
        return span if lone and not _is_ordinary(value.lower()) else None
    else:
        joined = _DIGITS.fullmatch(value) or _HYPHENED.fullmatch(value)
        tells = joined or is_opaque(value) or _SYMBOL.search(value)
    named = not tells or is_innocent(value) or is_technical(value) or is_measure(text, start)
    return None if named else span


def _tells_beside(value: str, noun: str) -> bool:
    """Tell whether *value* right after *noun* is one: "the pin 4821", "password hunter2"."""
    if _DIGITS.fullmatch(value):
        return noun.startswith("pin")
    return len(value) >= _LEAST_BESIDE and _has_both(value)


def _has_both(value: str) -> bool:
    """Tell whether *value* has digits and letters."""
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _is_ordinary(word: str) -> bool:
    """Tell whether *word* is a common adjective or the form of a verb."""
    return word in _common() or word.endswith(_FORMS)


@cache
def _common() -> frozenset[str]:
    """Return words that end sentences about secrets without being one."""
    text = files("holdfast.ground.secrets").joinpath("ordinary.txt").read_text(encoding="utf-8")
    return frozenset(text.split())
