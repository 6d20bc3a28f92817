"""A name that ends as names of secrets do, and the value it is given."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from holdfast.ground.secrets.innocent import LONGEST, is_innocent, is_opaque, is_technical
from holdfast.ground.secrets.normalise import Shadow, Span

_NAMES = (
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|credentials?|(?<=[_.-])pass|(?<=[_.-])auth"
    r"|(?:api|access|secret|private|auth|signing|encryption|master|account)[_. -]?key"
    r"|conn(?:ection)?[_. -]?string"
)
# After the name: what closes its quotes, then what gives the value. A type may stand between.
_GIVEN = re.compile(
    rf"(?:{_NAMES})[0-9]{{0,2}}[\"'`\])*_\\?]{{0,4}}"
    r"(?:\s{0,4}:\s{0,4}[a-z][a-z0-9_.\[\]|]{0,40}\s{1,4}(?P<typed>=)\s{1,4}"
    r"|\s{0,8}(?P<sign>=>|:=|={1,3}|:|\||>)\s{0,8}|\s{1,4}-{1,2}\s{1,4}|(?P<space>\s{1,8}))"
    r"(?:[*_]{1,3}\s{1,8})?\\{0,2}(?:[bfru]{1,2}(?=[\"']))?(?=\S)"
)
_LITERALS: Final = ("pass", "pwd", "secret", "token", "credential", "key", "auth", "string")
_LIMIT = re.compile(
    r"(?:max|min|num|limit|count|size|length|len|ttl|timeout|budget)[a-z]{0,8}[_.-]"
)
_NUMBER = re.compile(r"[0-9][0-9_,.]{0,20}")
_CALL = re.compile(r"[A-Za-z_]\w{0,40}(?:\.\w{1,40}){0,6}\([^()]{0,80}\)?\Z")
_BARE = re.compile(rf"[^\s]{{1,{LONGEST}}}")
_TRAILING = ".,;:!?)]}\"'`*\\>"
_CLASSES = (
    re.compile(r"[a-z]"),
    re.compile(r"[A-Z]"),
    re.compile(r"[0-9]"),
    re.compile(r"[^A-Za-z0-9\s-]"),
)
_LEAST_GIVEN, _LEAST_TOLD = 4, 6
_AHEAD = 80
# What a flag is followed by where it is written about, not used.
_ABOUT = (
    "flag flags option options argument arguments parameter parameters switch with from when"
    " instead must that should will also which where without before after because unless then"
    " into only does this your value values command commands asks accepts reads takes sets expects"
    " requires means enables allows changes wants needs gives"
)
_ABOUT_FLAGS = frozenset(_ABOUT.split())


class _Value(Struct, frozen=True):
    """What is given: its text and place, and whether quotes stand around it."""

    text: str
    span: Span
    quoted: bool


def assignment_spans(shadow: Shadow) -> Iterable[Span]:
    """Give where such values stand."""
    lower = shadow.lower
    if not any(literal in lower for literal in _LITERALS):
        return
    after = 0
    for given in _GIVEN.finditer(lower):
        if given.start() < after or (given["space"] and not _is_flag(lower, given.start())):
            continue
        value = _value(shadow.text, given.end())
        if value is not None and _is_secret(shadow, given, value):
            after = value.span[1]
            yield value.span


def _is_flag(lower: str, start: int) -> bool:
    """Tell whether the name whose ending is at *start* is a flag, such as `--db-password`."""
    ahead = lower[max(0, start - _AHEAD) : start]
    words = ahead.rsplit(None, 1)
    joined = words and not ahead[-1].isspace()
    return bool(joined) and words[-1].lstrip("\"'`[(").startswith("-")


def _value(text: str, start: int) -> _Value | None:
    """Return the value that begins at *start*, within its quotes or up to white space."""
    quote = text[start]
    if quote in "\"'`":
        end = _closing(text, start)
        if end > start:
            return _Value(text[start + 1 : end], (start + 1, end), quoted=True)
        start += 1
    found = _BARE.match(text, start)
    bare = found[0].rstrip(_TRAILING) if found else ""
    if found is None or not bare or bare[0] in ",;)&]}":
        return None
    if bare != found[0] and is_innocent(found[0]):
        return None
    return _Value(bare, (start, start + len(bare)), quoted=False)


def _closing(text: str, start: int) -> int:
    """Return where the quote at *start* is closed on its line; -1 where it is not."""
    quote, escaped = text[start], text[start - 1 : start] == "\\"
    end = text.find(quote, start + 1, start + LONGEST)
    while end > 0 and not escaped and text[end - 1] == "\\":
        end = text.find(quote, end + 1, start + LONGEST)
    return -1 if text.find("\n", start, max(start, end)) >= 0 else end


def _is_secret(shadow: Shadow, given: "re.Match[str]", value: _Value) -> bool:
    """Tell whether *value* is a secret by what gives it: `=` says so more surely than `:`."""
    if is_innocent(value.text):
        return False
    sign = given["typed"] or given["sign"]
    if given["space"] or sign == ">" or (sign and "=" in sign):
        return _given(shadow, given, value)
    if value.quoted:
        spaced = any(map(str.isspace, value.text)) and not given[0].startswith("passphrase")
        return len(value.text) >= _LEAST_TOLD and not spaced
    if "\n" in given[0] and not is_opaque(value.text):
        return False
    return len(value.text) >= _LEAST_TOLD and _classes(value.text) > 1


def _given(shadow: Shadow, given: "re.Match[str]", value: _Value) -> bool:
    """Tell whether a value after `=`, a flag or a tag is more than a number of tokens."""
    if given["space"] and (value.text.startswith("-") or value.text.lower() in _ABOUT_FLAGS):
        return False
    if given["sign"] == ">":
        opened = "<" in shadow.lower[max(0, given.start() - _AHEAD) : given.start()]
        return opened and len(value.text.split("<")[0]) >= _LEAST_GIVEN
    if not value.quoted and _CALL.match(value.text):
        return False
    if given["sign"] == "==" and is_technical(value.text):
        return False
    ahead = shadow.lower[max(0, given.start() - _AHEAD) : given.start()]
    if _NUMBER.fullmatch(value.text) and _LIMIT.search(ahead.split()[-1] if ahead.split() else ""):
        return False
    return len(value.text) >= _LEAST_GIVEN


def _classes(value: str) -> int:
    """Return how many of lower, upper, digit and symbol *value* mixes; `-` alone is no symbol."""
    return sum(each.search(value) is not None for each in _CLASSES)
