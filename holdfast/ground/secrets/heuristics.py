"""Credentials without a known format, and values that hold none."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from math import log2
from typing import Final

from msgspec import Struct

from holdfast.ground.secrets.normalise import FILLER, Shadow, Span

LONGEST: Final = 4096
"""Most characters of a value that are examined."""

_TEMPLATE = re.compile(
    r"\$\{[^{}]{0,80}\}|\{\{[^{}]{0,80}\}\}|\$\([^()]{0,80}\)|<%[^%]{0,80}%>|%[A-Z_]{2,60}%"
    r"|\$[A-Z_][A-Z0-9_]{0,60}(?![A-Za-z0-9])|\$(?:password|passwd|pass|secret|token|key)(?!\w)"
    r"|#?\{[A-Za-z_][\w.]{0,60}\}|<[^<>]{1,80}>"
)
_PLACEHOLDER = re.compile(
    r"(?:[x*.#_\-]{3,256}|(?:your|insert|enter|replace|paste|put)[-_][a-z_-]{2,60}"
    r"|(?-i:[A-Z]{2,20}(?:_[A-Z]{2,20}){0,4}_(?:KEY|TOKEN|SECRET|PASSWORD|PASS))"
    r"|[\w-]{0,12}(?:\.{3,8}|…)|[a-z_-]{2,60}[-_]here|\[[a-z][^\[\]]{0,60}\]?)\Z"
    # Code that reads the secret from the environment, settings or input.
    r"|(?:os\.)?(?:environ\b|getenv\s?\()|process\.env\b|import\.meta\.env\b|ENV(?:\[|\.fetch)"
    r"|System\.getenv|Deno\.env|(?:std::)?env::var|getpass\b|(?:raw_)?input\(|prompt\("
    r"|(?:self|this|args|settings|config|cfg|options|opts|params|request|req|env|secrets)"
    r"\.[A-Za-z_.\[\]\"'()]{1,100}\Z",
    re.IGNORECASE,
)
_OPENING = re.compile(rf"[$<{{%{FILLER}]")
_SHOWN: Final = 256
"""Characters of the longest placeholder."""

_WORDY = re.compile(r"[^\W_]")
_NO_VALUE = (
    "true false none null nil undefined nan string str int integer bool boolean bytes number"
    " secretstr optional required empty blank unset missing redacted hidden masked disabled"
    " enabled mandatory unknown invalid incorrect"
)
_NOTHING = frozenset(_NO_VALUE.split())
_MEASURE = (
    r"[0-9]{1,6}+[-\s]{0,2}+(?:characters?|chars?|bytes?|bits?|digits?|words?|letters?|tokens?|days?"
    r"|hours?|hrs?|minutes?|mins?|seconds?|secs?|ms|weeks?|months?|years?|times?|long|or more|and"
    r" up|percent|%|st|nd|rd|th|kb|mb|gb|mm|cm|km|attempts?|people|users?)(?![a-z0-9])"
)
_SIZE = re.compile(_MEASURE, re.IGNORECASE)
_TECHNICAL = re.compile(
    r"(?:base(?:16|32|58|64|85)|sha-?(?:[123]|224|256|384|512)|aes-?(?:128|192|256)|utf-?(?:8|16|32)"
    r"|md[45]|oauth-?[12](?:\.0)?|rsa-?[0-9]{3,4}|(?:ed|x)25519|(?:hs|rs|es|ps)(?:256|384|512)"
    r"|x\.?509|ipv?[46]|https?/[123]|argon2(?:id|i|d)?|pbkdf2|blake[23][bs]?|ripemd160|crc32|k8s"
    r"|i18n|l10n|s3|ec2|[12]password|auth0|b2b|p2p|web[23]|[23]fa|uuidv?[1-8]|python[23]|py[23]"
    r"|gpt-?[0-9][a-z]?|secp256[kr]1|p-?256|rfc-?[0-9]{3,5}|iso-?[0-9]{3,5})"
    r"(?:[-_]?(?:url|hex|bit|encoded|hashed|encrypted|based|signed|encryption|hash|sum)){0,2}"
    # Dates, times and versions.
    r"|(?:19|20)[0-9]{2}[-/.][0-9]{1,2}(?:[-/.][0-9]{1,2}(?:t[0-9:.]{4,16}z?)?)?"
    r"|[0-9]{1,2}[-/.][0-9]{1,2}[-/.](?:19|20)?[0-9]{2}|[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:[ap]m)?"
    r"|v?[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}(?:[-+.]?[a-z]{1,6}[0-9]{0,4})?"
    rf"|{_MEASURE}",
    re.IGNORECASE,
)
_DIGIT, _LETTER = re.compile(r"[0-9]"), re.compile(r"[A-Za-z]")
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")


def is_innocent(value: str) -> bool:
    """Return whether *value* names, hides or fetches a secret and so holds none."""
    if len(value) > _SHOWN:
        return False
    rest = value
    if _OPENING.search(rest):
        rest = _TEMPLATE.sub("", rest).replace(FILLER, "").replace("\\n", "")
    if not _WORDY.search(rest):
        return True
    return rest.lower() in _NOTHING or _PLACEHOLDER.match(rest) is not None


def is_opaque(value: str) -> bool:
    """Return whether *value* has digits among letters, or capitals within words."""
    if _HUMP.search(value):
        return True
    return bool(_DIGIT.search(value) and _LETTER.search(value))


def is_measure(text: str, start: int) -> bool:
    """Return whether a number at *start* of *text* is a quantity with a unit."""
    return _SIZE.match(text, start) is not None


def is_technical(value: str) -> bool:
    """Return whether *value* is the name of a method, a version, a date or a time."""
    return _TECHNICAL.fullmatch(value) is not None


_NAMES = (
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|credentials?|(?<=[_.-])pass|(?<=[_.-])auth"
    r"|(?:api|access|secret|private|auth|signing|encryption|master|account)[_. -]?key"
    r"|conn(?:ection)?[_. -]?string"
)
# After the name: closing quotes, then the assignment. A type may stand between.
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
_LEAST_GIVEN, _LEAST_ASSIGNED = 4, 6
_AHEAD = 80
# Words after a flag in prose about it.
_ABOUT = (
    "flag flags option options argument arguments parameter parameters switch with from when"
    " instead must that should will also which where without before after because unless then"
    " into only does this your value values command commands asks accepts reads takes sets expects"
    " requires means enables allows changes wants needs gives"
)
_ABOUT_FLAGS = frozenset(_ABOUT.split())


class _Value(Struct, frozen=True):
    """Assigned value: its text, its span, and whether it is quoted."""

    text: str
    span: Span
    quoted: bool


def assignment_spans(shadow: Shadow) -> Iterable[Span]:
    """Yield the spans of values assigned to names such as `password`."""
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
    """Return whether the name that ends at *start* is a flag: `--db-password`."""
    ahead = lower[max(0, start - _AHEAD) : start]
    words = ahead.rsplit(None, 1)
    joined = words and not ahead[-1].isspace()
    return bool(joined) and words[-1].lstrip("\"'`[(").startswith("-")


def _value(text: str, start: int) -> _Value | None:
    """Return the value at *start*, within its quotes or up to white space."""
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
    """Return the offset that closes the quote at *start* on its line, or -1."""
    quote, escaped = text[start], text[start - 1 : start] == "\\"
    end = text.find(quote, start + 1, start + LONGEST)
    while end > 0 and not escaped and text[end - 1] == "\\":
        end = text.find(quote, end + 1, start + LONGEST)
    return -1 if text.find("\n", start, max(start, end)) >= 0 else end


def _is_secret(shadow: Shadow, given: "re.Match[str]", value: _Value) -> bool:
    """Return whether *value* is a secret; `=` is stronger evidence than `:`."""
    if is_innocent(value.text):
        return False
    sign = given["typed"] or given["sign"]
    if given["space"] or sign == ">" or (sign and "=" in sign):
        return _given(shadow, given, value)
    if value.quoted:
        spaced = any(map(str.isspace, value.text)) and not given[0].startswith("passphrase")
        return len(value.text) >= _LEAST_ASSIGNED and not spaced
    if "\n" in given[0] and not is_opaque(value.text):
        return False
    return len(value.text) >= _LEAST_ASSIGNED and _classes(value.text) > 1


def _given(shadow: Shadow, given: "re.Match[str]", value: _Value) -> bool:
    """Return whether a value after `=`, a flag or a tag is more than a quantity."""
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
    """Count the classes lower, upper, digit and symbol that *value* mixes.

    `-` does not count as a symbol.
    """
    return sum(each.search(value) is not None for each in _CLASSES)


_NOUNS: Final = (
    *("password", "passphrase", "passcode", "passwd", "pin code", "pin number", "pin", "secret"),
    *("token", "api key", "api-key", "apikey", "access key", "credentials"),
)
_NOUN = "|".join(rf"{noun}(?<![a-z0-9]{noun})" for noun in _NOUNS)
# A clause may stand between noun and verb: "the PIN of my card is".
_LEAD = re.compile(
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
# A secret follows them less often than "is": "the token's expiry".
_WEAK = ("to", "'s")
_LEAST_MIXED, _LEAST_BESIDE = 4, 5
_BESIDE = frozenset(("password", "passphrase", "passcode", "passwd", "pin", "pin code"))


def prose_spans(shadow: Shadow) -> Iterable[Span]:
    """Yield the spans of secrets stated in prose: "my password is hunter2"."""
    lower = shadow.lower
    if not any(literal in lower for literal in _PROSE_LITERALS):
        return
    for lead in _LEAD.finditer(lower):
        if lead["colon"] and not _is_owned(lower, lead.start()):
            continue
        if lead["beside"] is not None and lead["noun"] not in _BESIDE:
            continue
        if span := _quoted(shadow.text, lead) or _bare(shadow.text, lead):
            yield span


def _is_owned(lower: str, start: int) -> bool:
    """Return whether the noun at *start* has an owner: "my", "the", "Ada's"."""
    words = lower[max(0, start - _PROSE_AHEAD) : start].split()[-_MOST_WORDS:]
    return any(word in _OWNERS or word.endswith("'s") for word in words)


def _quoted(text: str, lead: "re.Match[str]") -> Span | None:
    """Return the span of the quoted text after *lead*."""
    start = lead.end()
    closing = _QUOTES.get(text[start])
    end = text.find(closing, start + 1, start + _MOST_QUOTED) if closing else -1
    inside = text[start + 1 : end] if end > 0 else ""
    plain = inside.isalpha() and (inside.lower() in _common() or lead["verb"] in _WEAK)
    if len(inside) < _LEAST_MIXED or "\n" in inside or plain or is_innocent(inside):
        return None
    if lead["beside"] is not None and any(map(str.isspace, inside)):
        return None
    return start + 1, end


def _bare(text: str, lead: "re.Match[str]") -> Span | None:
    """Return the span of the word after *lead* unless it is ordinary prose."""
    start = lead.end()
    found = _WORD.match(text, start)
    value = found[0].lstrip("\"'`").rstrip(_PROSE_TRAILING) if found else ""
    if found is None or len(value) < _LEAST_MIXED:
        return None
    start += found[0].index(value)
    span = (start, start + len(value))
    if lead["beside"] is not None:
        tells = _is_secret_beside(value, lead["noun"])
    elif value.isalpha() and not is_opaque(value):
        lone = lead["verb"] not in _WEAK and _LONE.fullmatch(value) and _ENDS.match(text, span[1])
        return span if lone and not _is_ordinary(value.lower()) else None
    else:
        joined = _DIGITS.fullmatch(value) or _HYPHENED.fullmatch(value)
        tells = joined or is_opaque(value) or _SYMBOL.search(value)
    named = not tells or is_innocent(value) or is_technical(value) or is_measure(text, start)
    return None if named else span


def _is_secret_beside(value: str, noun: str) -> bool:
    """Return whether *value* directly after *noun* is a secret.

    Examples are "the pin 4821" and "password hunter2".
    """
    if _DIGITS.fullmatch(value):
        return noun.startswith("pin")
    return len(value) >= _LEAST_BESIDE and _has_both(value)


def _has_both(value: str) -> bool:
    """Return whether *value* has both digits and letters."""
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


def _is_ordinary(word: str) -> bool:
    """Return whether *word* is a common adjective or the form of a verb."""
    return word in _common() or word.endswith(_FORMS)


@cache
def _common() -> frozenset[str]:
    """Return ordinary words that end sentences about secrets."""
    text = files("holdfast.ground.secrets").joinpath("ordinary.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


LEAST_BITS: Final = 4.2
"""Least Shannon entropy in bits per character of a random token.

Most names of several words stay below it.
"""

_LEAST_PIECE: Final = 4.0
"""Least mean length of the words in a name; a random token changes case sooner."""

_RUN = re.compile(r"(?<![A-Za-z0-9_+/=-])[A-Za-z0-9_+/=-]{32,4096}")
_ENTROPY_CLASSES = (re.compile(r"[a-z]"), re.compile(r"[A-Z]"), re.compile(r"[0-9]"))
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_DIGEST = re.compile(r"[0-9a-fA-F-]+|(?:sha(?:1|224|256|384|512)|md5)[-=].+")
_FILE = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}(?![A-Za-z0-9])")
_CONTEXT = 256


def entropy_spans(shadow: Shadow) -> Iterable[Span]:
    """Yield the spans of random tokens."""
    text = shadow.text
    for found in _RUN.finditer(text):
        if _is_random(found[0]) and not _names_a_place(text, *found.span()):
            yield found.span()


def _is_random(token: str) -> bool:
    """Return whether *token* mixes characters unlike a name, digest or UUID."""
    if not all(each.search(token) for each in _ENTROPY_CLASSES):
        return False
    pieces = _PIECE.findall(token)
    if _DIGEST.fullmatch(token) or len(token) >= _LEAST_PIECE * len(pieces):
        return False
    shares = [count / len(token) for count in Counter(token).values()]
    return -sum(share * log2(share) for share in shares) >= LEAST_BITS


def _names_a_place(text: str, start: int, end: int) -> bool:
    """Return whether the span is part of a URL, path, file name or data URL."""
    before = text[max(0, start - _CONTEXT) : start].rsplit(None, 1)
    ahead = before[-1] if before and not text[start - 1 : start].isspace() else ""
    return (
        "://" in ahead + text[start : start + 1]
        or ahead.endswith((".", "~", "base64,"))
        or text[start] == "/"
        or _FILE.match(text, end) is not None
    )


WITHIN: Final = 24
"""Most characters between the words and the code."""

_NAME = re.compile(
    r"(?:verification|verify|security|one[- ]?time|log-?in|sign-?in|authentication|authorization"
    r"|authorisation|authenticator|auth|2fa|mfa|2-step|two-factor|two-step|otp|totp|recovery|backup"
    r"|confirmation|access|unlock|activation|reset)"
    r"[\s_-]{1,3}(?:code|pin|passcode|password)s?(?![a-z0-9])"
    r"|t?otp(?<![a-z0-9]otp)(?<![a-z0-9]totp)(?![a-z0-9])"
)
_CODE_LITERALS = ("code", "pin", "passw", "otp")
_CODE = re.compile(
    r"(?<![A-Za-z0-9.-])(?:[a-z]-)?(?:"
    r"[0-9]{4,10}(?![A-Za-z0-9-])|(?=[a-z-]{0,40}[0-9])[a-z0-9]{4,8}(?:-[a-z0-9]{4,8}){1,7}"
    r"|[0-9]{3}[ -][0-9]{3}|(?=[a-z]{1,11}[0-9]|[0-9]{1,11}[a-z])[a-z0-9]{6,12}"
    r")(?![A-Za-z0-9]|[-.:/][0-9])",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")
_DATED = re.compile(r"(?:in|since|until|by|of|from) \Z", re.IGNORECASE)
_NUMBERED = re.compile(r"(?:rfc|iso|port|error|status|page|section) \Z", re.IGNORECASE)
_CODE_AHEAD: Final = 8


def code_spans(shadow: Shadow) -> Iterable[Span]:
    """Yield the spans of one-time codes before or after the words that name them.

    Each code of a list is a span of its own.
    """
    lower = shadow.lower
    if not any(literal in lower for literal in _CODE_LITERALS):
        return
    names = [name.span() for name in _NAME.finditer(lower)]
    if not names:
        return
    ahead, last = iter([*names, (len(lower) + WITHIN + 1, 0)]), -WITHIN - 1
    name = next(ahead)
    for code in _CODE.finditer(shadow.text):
        start, end = code.span()
        while name[0] < start:
            last, name = max(last, name[1]), next(ahead)
        close = start - last <= WITHIN or name[0] - end <= WITHIN
        if close and start >= last and end <= name[0] and _counts(shadow.text, code):
            last = end
            yield start, end


def _counts(text: str, found: "re.Match[str]") -> bool:
    """Return whether *found* is a code, not a year, a size or a standard's number."""
    ahead = text[max(0, found.start() - _CODE_AHEAD) : found.start()]
    if _NUMBERED.search(ahead) or (_YEAR.fullmatch(found[0]) and _DATED.search(ahead)):
        return False
    technical = not found[0].isdigit() and is_technical(found[0])
    return not technical and not is_measure(text, found.start())


LEAST: Final = 12
"""Words of the shortest phrase; a longer run contains one."""

_PHRASE_WORD = re.compile(r"[^\W\d_]{1,64}")
_MOST_BETWEEN: Final = 12
"""Characters between two words: white space, commas, numbers."""


def phrase_spans(shadow: Shadow) -> Iterable[Span]:
    """Yield the spans of recovery phrases; one repeated word is none."""
    known = words()
    run: list[re.Match[str]] = []
    for found in _PHRASE_WORD.finditer(shadow.lower):
        if run and (found[0] not in known or found.start() - run[-1].end() > _MOST_BETWEEN):
            if _is_phrase(run):
                yield run[0].start(), run[-1].end()
            run = []
        if found[0] in known:
            run.append(found)
    if _is_phrase(run):
        yield run[0].start(), run[-1].end()


def _is_phrase(run: Sequence["re.Match[str]"]) -> bool:
    return len(run) >= LEAST and any(found[0] != run[0][0] for found in run)


@cache
def words() -> frozenset[str]:
    """Return the 2,048 words of BIP 39.

    Source: https://github.com/bitcoin/bips, bip-0039/english.txt.
    """
    text = files("holdfast.ground.secrets").joinpath("bip39.txt").read_text(encoding="utf-8")
    return frozenset(text.split())
