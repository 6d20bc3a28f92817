"""What stands where a secret would and is none: placeholders, code, words, sizes, dates."""

import re
from typing import Final

from holdfast.ground.secrets.marks import FILLER

LONGEST: Final = 4096
"""Characters of a value that are looked at."""

_TEMPLATE = re.compile(
    r"\$\{[^{}]{0,80}\}|\{\{[^{}]{0,80}\}\}|\$\([^()]{0,80}\)|<%[^%]{0,80}%>|%[A-Z_]{2,60}%"
    r"|\$[A-Z_][A-Z0-9_]{0,60}(?![A-Za-z0-9])|\$(?:password|passwd|pass|secret|token|key)(?!\w)"
    r"|#?\{[A-Za-z_][\w.]{0,60}\}|<[^<>]{1,80}>"
)
_PLACEHOLDER = re.compile(
    r"(?:[x*.#_\-]{3,256}|(?:your|insert|enter|replace|paste|put)[-_][a-z_-]{2,60}"
    r"|(?-i:[A-Z]{2,20}(?:_[A-Z]{2,20}){0,4}_(?:KEY|TOKEN|SECRET|PASSWORD|PASS))"
    r"|[\w-]{0,12}(?:\.{3,8}|…)|[a-z_-]{2,60}[-_]here|\[[a-z][^\[\]]{0,60}\]?)\Z"
    # Code that fetches the secret from where it is kept.
    r"|(?:os\.)?(?:environ\b|getenv\s?\()|process\.env\b|import\.meta\.env\b|ENV(?:\[|\.fetch)"
    r"|System\.getenv|Deno\.env|(?:std::)?env::var|getpass\b|(?:raw_)?input\(|prompt\("
    r"|(?:self|this|args|settings|config|cfg|options|opts|params|request|req|env|secrets)"
    r"\.[A-Za-z_.\[\]\"'()]{1,100}\Z",
    re.IGNORECASE,
)
_OPENING = re.compile(rf"[$<{{%{FILLER}]")
_SHOWN: Final = 256
"""Characters of the longest stand-in."""

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
    """Tell whether *value* names, hides or fetches a secret and so holds none."""
    if len(value) > _SHOWN:
        return False
    rest = value
    if _OPENING.search(rest):
        rest = _TEMPLATE.sub("", rest).replace(FILLER, "").replace("\\n", "")
    if not _WORDY.search(rest):
        return True
    return rest.lower() in _NOTHING or _PLACEHOLDER.match(rest) is not None


def is_opaque(value: str) -> bool:
    """Tell whether *value* has digits among letters, or capitals within words."""
    if _HUMP.search(value):
        return True
    return bool(_DIGIT.search(value) and _LETTER.search(value))


def is_measure(text: str, start: int) -> bool:
    """Tell whether a number at *start* of *text* says how much of something, not which."""
    return _SIZE.match(text, start) is not None


def is_technical(value: str) -> bool:
    """Tell whether *value* is the name of a method, a version, a date or a time."""
    return _TECHNICAL.fullmatch(value) is not None
