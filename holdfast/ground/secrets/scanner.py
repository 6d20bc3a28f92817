"""Find credentials in a text, and redact them.

Those with a known format first: keys, tokens, URLs, headers, cards.
"""

import re
from binascii import Error, a2b_base64
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.ground.secrets.heuristics import (
    assignment_spans,
    code_spans,
    entropy_spans,
    is_innocent,
    is_opaque,
    phrase_spans,
    prose_spans,
)
from holdfast.ground.secrets.normalise import (
    KINDS,
    Kind,
    Shadow,
    Span,
    mark,
    shadows,
)

_EDGE = re.compile(
    r"-----?[ ]?(BEGIN|END)[ ][A-Za-z0-9 _]{0,40}?PRIVATE KEY(?: BLOCK)?[ ]?-{4,5}", re.IGNORECASE
)
# Headers such as Proc-Type, white space plain or escaped as in JSON, then base64.
_BODY = re.compile(
    r"(?:\s|\\[nrt]|[A-Za-z-]{4,24}: [^\n\\]{1,200}){0,24}[A-Za-z0-9+/=]{16,256}"
    r"[A-Za-z0-9+/=\s\\]{0,32768}"
)
_PUTTY = re.compile(r"PuTTY-User-Key-File-[0-9]:[^\n]{1,100}\n")
_PUTTY_BODY = re.compile(r"[A-Za-z0-9+/=:\s\-,._@]{0,32768}")
_PUTTY_END = re.compile(r"Private-MAC: ?[0-9a-f]{16,128}")


def armour_spans(shadow: Shadow) -> Iterable[Span]:
    """Yield the spans of armoured keys; a truncated key as far as it goes."""
    if "private key" in shadow.lower:
        yield from _armoured(shadow.text)
    if "PuTTY-User-Key-File-" in shadow.text:
        yield from _putty(shadow.text)


def _armoured(text: str) -> Iterator[Span]:
    """Yield each BEGIN line up to its END line, or up to the end of its base64."""
    begun: int | None = None
    body_end = 0
    for edge in _EDGE.finditer(text):
        if edge[1].lower() == "end":
            if begun is not None:
                yield begun, edge.end()
            begun = None
            continue
        if begun is not None and body_end:
            yield begun, body_end
        body = _BODY.match(text, edge.end())
        begun, body_end = edge.start(), body.end() if body else 0
    if begun is not None and body_end:
        yield begun, body_end


def _putty(text: str) -> Iterator[Span]:
    """Yield each key file up to its closing hash, or as far as it parses."""
    last = 0
    for found in _PUTTY.finditer(text):
        if found.start() < last:
            continue
        body = _PUTTY_BODY.match(text, found.end())
        last = body.end() if body else found.end()
        closing = _PUTTY_END.search(text, found.end(), last)
        last = closing.end() if closing else last
        yield found.start(), last


_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_-])([A-Za-z0-9_-]{10,4096})\.[A-Za-z0-9_-]{2,16384}\.[A-Za-z0-9_-]{0,4096}"
)
# Base64 of an opening brace, followed by a quote, white space or the closing brace.
_BRACE = re.compile(r"e[wy3]")
_DOTS = 2
_MOST_TRIES = 16


def jwt_spans(shadow: Shadow) -> Iterable[Span]:
    """Yield the spans of JSON Web Tokens."""
    text = shadow.text
    if not _BRACE.search(text) or text.count(".") < _DOTS:
        return
    for found in _TOKEN.finditer(text):
        for offset in _braces(found[1]):
            if _is_object(found[1][offset:]):
                yield found.start() + offset, found.end()
                break


def _braces(part: str) -> Iterator[int]:
    """Yield offsets where an object may begin in *part*, also after a joined name."""
    for tries, found in enumerate(_BRACE.finditer(part)):
        if tries == _MOST_TRIES:
            return
        yield found.start()


def _is_object(part: str) -> bool:
    padded = part.replace("-", "+").replace("_", "/") + "=" * (-len(part) % 4)
    try:
        return isinstance(msgspec.json.decode(a2b_base64(padded)), dict)
    except (Error, msgspec.DecodeError):
        return False


_URL64: Final = r"[A-Za-z0-9_-]"
_HEX: Final = r"[0-9a-fA-F]"
_LEAST_PLAIN: Final = 16
"""Least length of a body without - and _ that is not taken for a word."""


def _any(_body: str) -> bool:
    return True


def _random(body: str) -> bool:
    """Return whether *body* is random, since some prefixes also begin ordinary names."""
    return (len(body) >= _LEAST_PLAIN and body.isalnum()) or is_opaque(body)


class _Shape(Struct, frozen=True):
    """Format of the keys that begin with one of *starts*.

    *is_key* decides on the body of a match.
    """

    starts: str
    body: str
    is_key: Callable[[str], bool] = _any


_SHAPES: Final = (
    # OpenAI (sk-proj- and others), Anthropic (sk-ant-), OpenRouter (sk-or-) and all who follow.
    _Shape("sk-", rf"{_URL64}{{10,4096}}", _random),
    _Shape("ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9_]{16,512}", _random),
    _Shape("github_pat_", r"[A-Za-z0-9_]{16,255}", _random),
    _Shape("glpat- gldt- glrt- glptt- glcbt- gloas-", r"[A-Za-z0-9_.-]{16,255}", _random),
    _Shape("xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.", r"[A-Za-z0-9.-]{10,255}", _random),
    _Shape("xapp-", r"[A-Za-z0-9-]{10,255}", _random),
    _Shape("hooks.slack.com/", r"(?:services|workflows|triggers)/[A-Za-z0-9/_-]{16,255}"),
    _Shape("discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"[0-9]{5,20}/[\w-]{20,255}"),
    _Shape("sk_live_ sk_test_ pk_live_ pk_test_ rk_live_ rk_test_", r"[A-Za-z0-9]{10,255}"),
    _Shape("whsec_", r"[A-Za-z0-9+/=_-]{16,255}", _random),
    _Shape("AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _Shape("AIza", rf"{_URL64}{{30,255}}"),
    _Shape("ya29.", r"[A-Za-z0-9_.-]{16,4096}"),
    _Shape("GOCSPX-", rf"{_URL64}{{16,255}}"),
    _Shape("1//0", rf"{_URL64}{{30,255}}", is_opaque),
    # Hugging Face; our own keys and session tokens have 43 characters and may hold - and _.
    _Shape("hf_ hfs_", rf"{_URL64}{{16,255}}", _random),
    _Shape("npm_", r"[A-Za-z0-9]{16,255}"),
    _Shape("pypi-", rf"{_URL64}{{16,4096}}", _random),
    _Shape("SG.", rf"{_URL64}{{10,64}}\.{_URL64}{{10,128}}", is_opaque),
    _Shape("SK", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    _Shape("dop_v1_ doo_v1_ dor_v1_", rf"{_HEX}{{32,128}}"),
    _Shape("shpat_ shpca_ shppa_ shpss_", rf"{_HEX}{{20,64}}"),
    _Shape("hvs. hvb. hvr.", rf"{_URL64}{{16,512}}", _random),
    _Shape("dapi", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    _Shape("AGE-SECRET-KEY-1", r"[0-9A-Za-z]{16,128}"),
    _Shape("gsk_ xai- pplx- r8_ tvly- pcsk_ sbp_ figd_ ntn_", r"[A-Za-z0-9_-]{20,255}", _random),
    _Shape("lin_api_ lsv2_pt_ dckr_pat_ sntrys_ glsa_ glc_", r"[A-Za-z0-9_+/=-]{20,512}", _random),
    _Shape("pscale_tkn_ PMAK- ATATT3 NRAK- sq0atp- sq0csp-", r"[A-Za-z0-9_=.-]{20,512}", is_opaque),
)


def _compiled() -> Iterator[tuple[str, "re.Pattern[str]", Callable[[str], bool]]]:
    """Yield each prefix with its pattern, led by the literal for fast search.

    The look-behind comes after the literal for the same reason; the group is the body.
    """
    for shape in _SHAPES:
        for start in shape.starts.split():
            plain = re.escape(start)
            boundary = rf"(?<![A-Za-z0-9]{plain})"
            yield start, re.compile(rf"{plain}{boundary}({shape.body})"), shape.is_key


_KEYS: Final = tuple(_compiled())
_TELEGRAM = re.compile(r":(?<=[0-9]{8}:)[A-Za-z0-9_-]{33,64}(?![A-Za-z0-9_-])")
_DISCORD = re.compile(r"\.(?<=[A-Za-z0-9_-]{23}\.)[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,64}")


def key_spans(shadow: Shadow) -> Iterable[Span]:
    """Yield the spans of vendor keys."""
    text = shadow.text
    for start, pattern, is_key in _KEYS:
        if start in text:
            for found in pattern.finditer(text):
                if is_key(found[1]) and not is_innocent(found[1]):
                    yield found.span()
    yield from _bots(text)


def _bots(text: str) -> Iterator[Span]:
    """Yield the spans of Telegram and Discord bot tokens, including the id."""
    for found in _TELEGRAM.finditer(text):
        start = _run_back(text, found.start(), 10, str.isdigit)
        if is_opaque(found[0]) and not _alphanumeric(text[start - 1 : start]):
            yield start, found.end()
    for found in _DISCORD.finditer(text):
        start = _run_back(text, found.start(), 28, _in_base64)
        if is_opaque(text[start : found.start()]) and is_opaque(found[0]):
            yield start, found.end()


def _run_back(text: str, end: int, most: int, belongs: Callable[[str], bool]) -> int:
    """Return the start of the run of *belongs* characters that ends at *end*.

    The run has at most *most* characters.
    """
    start = end
    while start > max(0, end - most) and belongs(text[start - 1]):
        start -= 1
    return start


def _in_base64(char: str) -> bool:
    return _alphanumeric(char) or char in "_-"


def _alphanumeric(char: str) -> bool:
    return char.isascii() and char.isalnum()


_MOST_IN_URL = 768
_USER = re.compile(r"(?<=[A-Za-z0-9+.\-]://)([^\s/@:\[\]\"'<>?#]{0,256})(:?)")
_PASSWORD = re.compile(r"[^\s@\"'<>]{1,512}(?=@)")
# A password with an @ in it: the text up to the next @, before any path.
_MORE = re.compile(r"@[^\s/?#@\"'<>]{1,256}(?=@)")
_MOST_AT = 4
_PORT = re.compile(r"[0-9]{1,5}(?:[/?#]|\Z)")
_HOST = re.compile(r"[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}|localhost", re.IGNORECASE)
_LEAST_TOKEN, _SURE_TOKEN = 10, 20
_SIGNED = re.compile(
    r"[?&#;](?:x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature|signature|sig"
    r"|access_token|refresh_token|id_token|auth_token|authtoken|api_?key|token|password|secret)"
    r"=([^&\s\"'<>#]{6,4096})"
)


def url_spans(shadow: Shadow) -> Iterable[Span]:
    """Yield the spans of passwords, tokens and signatures in URLs."""
    if "://" in shadow.text:
        yield from _userinfo(shadow.text)
    for found in _SIGNED.finditer(shadow.lower) if "=" in shadow.text else ():
        if not is_innocent(shadow.text[slice(*found.span(1))]):
            yield found.span(1)


def _userinfo(text: str) -> Iterator[Span]:
    """Yield the span of each password before an @, and of each user that is a token."""
    after = 0
    for found in re.finditer("://", text):
        if found.start() < after or text.find("@", found.end(), found.end() + _MOST_IN_URL) < 0:
            continue
        user = _USER.match(text, found.end())
        if user is None:
            continue
        span = _password(text, user) if user[2] else _token(text, user)
        if span is not None:
            after = span[1]
            yield span


def _password(text: str, user: "re.Match[str]") -> Span | None:
    """Return the span of the password after *user*; a port and a path hold none."""
    found = _PASSWORD.match(text, user.end())
    if found is None or is_innocent(found[0]):
        return None
    if _HOST.fullmatch(user[1]) and _PORT.match(found[0]):
        return None
    end = found.end()
    for _ in range(_MOST_AT):
        more = _MORE.match(text, end)
        if more is None:
            break
        end = more.end()
    return user.end(), end


def _token(text: str, user: "re.Match[str]") -> Span | None:
    """Return the span of a token before the host; a name such as `git` is none."""
    name = user[1]
    if text[user.end() : user.end() + 1] != "@" or is_innocent(name):
        return None
    long = len(name) >= _SURE_TOKEN or (len(name) >= _LEAST_TOKEN and is_opaque(name))
    return user.span(1) if long else None


_VALUE = r"[^\s\"'<>{}$`,;]"
_AUTHORIZATION = re.compile(
    r"authorization(?<![a-z0-9]authorization)[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
    rf"(?:([a-z][a-z0-9-]{{1,30}})\s{{1,4}})?({_VALUE}{{6,4096}})"
)
_ANY_SCHEME = (
    "bearer basic token apikey api-key key negotiate ntlm jwt bot splunk sso-key ghost dpop"
    " session sharedaccesssignature sharedkey digest oauth hawk mutual aws4-hmac-sha256 aws"
)
_SCHEMES = frozenset(_ANY_SCHEME.split())
# Schemes with parameters up to the end of the line.
_LONG_SCHEMES = _SCHEMES & {"digest", "oauth", "hawk", "mutual", "aws4-hmac-sha256"}
_SCHEME = re.compile(
    r"(?:bearer(?<![a-z0-9]bearer)|token(?<![a-z0-9]token))[ \t]{1,4}([a-z0-9._~+/=-]{16,4096})"
    r"|basic(?<![a-z0-9]basic)[ \t]{1,4}([a-z0-9+/=_-]{16,4096})"
)
_X_KEY = re.compile(
    r"x-(?<![a-z0-9]x-)[a-z0-9-]{0,40}(?:key|token|secret|auth|signature)[\"']?\s{0,4}[:=]\s{0,4}"
    rf"[\"']?({_VALUE}{{6,4096}})"
)
_COOKIE = re.compile(r"cookie[\"']?\s{0,4}:[^\n]{0,4096}")
_PAIR = re.compile(r"([\w.-]{1,64})=([^;\s\"',<>{}$]{8,4096})")
_SESSION = re.compile(r"sess|sid|auth|token|jwt|csrf|xsrf|remember|login|key")
_REST = re.compile(r"[^\n]{0,4096}")
_LEAST_COOKIE = 16


def header_spans(shadow: Shadow) -> Iterable[Span]:
    """Yield the spans of credentials in HTTP headers."""
    lower = shadow.lower
    if "authorization" in lower:
        yield from _authorizations(shadow)
    if any(scheme in lower for scheme in ("bearer", "token", "basic")):
        for found in _SCHEME.finditer(lower):
            span = found.span(found.lastindex or 0)
            value = shadow.text[slice(*span)]
            if is_opaque(value) and not is_innocent(value):
                yield span
    if "x-" in lower:
        for found in _X_KEY.finditer(lower):
            value = shadow.text[slice(*found.span(1))]
            if not is_innocent(value) and (is_opaque(value) or len(value) >= _LEAST_COOKIE):
                yield found.span(1)
    if "cookie" in lower:
        yield from _cookies(shadow)


def _authorizations(shadow: Shadow) -> Iterator[Span]:
    """Yield the spans of credentials after `Authorization:`.

    With an unknown scheme, only an opaque token counts.
    """
    for found in _AUTHORIZATION.finditer(shadow.lower):
        scheme, (start, end) = found[1], found.span(2)
        value = shadow.text[start:end]
        if is_innocent(value) or not (scheme in _SCHEMES or is_opaque(value)):
            continue
        if scheme in _LONG_SCHEMES:
            rest = _REST.match(shadow.text, start)
            end = rest.end() if rest else end
        yield start, end


def _cookies(shadow: Shadow) -> Iterator[Span]:
    """Yield the spans of cookie values that are of a session, or long and random."""
    for line in _COOKIE.finditer(shadow.lower):
        for pair in _PAIR.finditer(shadow.text, *line.span()):
            value = pair[2]
            of_session = _SESSION.search(pair[1].lower()) or len(value) >= _LEAST_COOKIE
            if of_session and is_opaque(value) and not is_innocent(value):
                yield pair.span(2)


_RUN = re.compile(r"(?<![A-Za-z0-9+])[0-9](?:[0-9]|[ .-]{1,2}(?=[0-9])){12,255}(?![A-Za-z0-9])")
_GROUP = re.compile(r"[0-9]+")
_DECIMAL = re.compile(r"[0-9]{1,15}\.[0-9]+")
_PREFIXES = (
    ("4", (13, 16, 19)),  # Visa
    ("5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720", (16,)),  # Mastercard
    ("3[47]", (15,)),  # American Express
    ("6011|65|64[4-9]", (16, 17, 18, 19)),  # Discover
    ("35(?:2[89]|[3-8])", (16, 17, 18, 19)),  # JCB
    ("30[0-5]|309|36|3[89]", (14, 15, 16, 17, 18, 19)),  # Diners Club
    ("62|81", (16, 17, 18, 19)),  # UnionPay
    ("5018|5020|5038|5893|6304|6759|676[1-3]", (13, 14, 15, 16, 17, 18, 19)),  # Maestro
    ("60|82|508", (16,)),  # RuPay
    ("220[0-4]", (16, 17, 18, 19)),  # Mir
)
_LEAST, _MOST_DIGITS = 13, 19
_LEAST_GROUP = 3
_ISSUED = {
    length: re.compile("|".join(prefix for prefix, lengths in _PREFIXES if length in lengths))
    for length in range(_LEAST, _MOST_DIGITS + 1)
}
_DOUBLED = str.maketrans("0123456789", "0246813579")


def card_spans(shadow: Shadow) -> Iterable[Span]:
    """Yield the spans of card numbers."""
    for run in _RUN.finditer(shadow.text):
        if not _DECIMAL.fullmatch(run[0]):
            yield from _cards(run)


def _cards(run: "re.Match[str]") -> Iterator[Span]:
    """Yield the spans of cards among the digit groups of *run*.

    A group has three digits or more, except the last; or the whole run is one number, digit by
    digit. This bounds the number of combinations.
    """
    groups = [(found.start(), found[0]) for found in _GROUP.finditer(run[0])]
    whole = "".join(digits for _, digits in groups)
    if len(whole) <= _MOST_DIGITS and is_card(whole):
        yield run.span()
        return
    if all(len(digits) < _LEAST_GROUP for _, digits in groups):
        return
    first = 0
    while first < len(groups):
        last = _last_of_card(groups, first)
        if last is None:
            first += 1
            continue
        start, (place, digits) = groups[first][0], groups[last]
        yield run.start() + start, run.start() + place + len(digits)
        first = last + 1


def _last_of_card(groups: list[tuple[int, str]], first: int) -> int | None:
    """Return the index of the last group of the card that begins at *first*, or None."""
    digits = ""
    for last in range(first, len(groups)):
        digits += groups[last][1]
        if len(digits) > _MOST_DIGITS:
            return None
        if len(digits) >= _LEAST and is_card(digits):
            return last
        if len(groups[last][1]) < _LEAST_GROUP:
            return None
    return None


def is_card(digits: str) -> bool:
    """Return whether *digits* are a valid card number of a known issuer."""
    issued = _ISSUED.get(len(digits))
    return issued is not None and issued.match(digits) is not None and _luhn(digits)


def _luhn(digits: str) -> bool:
    """Return whether the last digit is the check digit (ISO/IEC 7812-1, annex B)."""
    doubled = digits[-2::-2].translate(_DOUBLED)
    return (sum(map(int, digits[-1::-2])) + sum(map(int, doubled))) % 10 == 0


SPANS: Final[dict[Kind, Callable[[Shadow], Iterable[Span]]]] = {
    "armour": armour_spans,
    "vendor_key": key_spans,
    "jwt": jwt_spans,
    "url_credentials": url_spans,
    "header": header_spans,
    "card": card_spans,
    "recovery_phrase": phrase_spans,
    "one_time_code": code_spans,
    "assignment": assignment_spans,
    "prose": prose_spans,
    "entropy": entropy_spans,
}
"""The function that finds the spans of each kind."""

_RANK: Final[dict[Kind, int]] = {kind: rank for rank, kind in enumerate(KINDS)}
_MOST_ROUNDS: Final = 8
"""Times that a text is searched again after redaction marks were inserted."""


class SecretHit(Struct, frozen=True, kw_only=True):
    """A suspected secret of *kind* at `text[start:end]`."""

    kind: Kind
    start: int
    end: int


def find(text: str) -> list[SecretHit]:
    """Return the suspected secrets in *text*, in order, without overlaps.

    >>> find("the staging key is AKIAIOSFODNN7EXAMPLE")
    [SecretHit(kind='vendor_key', start=19, end=39)]
    """
    hits: list[SecretHit] = []
    for hit in sorted(_hits(text), key=lambda hit: (hit.start, -hit.end)):
        if hits and hit.start < hits[-1].end:
            last = hits[-1]
            kind = min(last.kind, hit.kind, key=_RANK.__getitem__)
            hits[-1] = SecretHit(kind=kind, start=last.start, end=max(last.end, hit.end))
        else:
            hits.append(hit)
    return hits


def looks_like_secret(text: str) -> bool:
    """Return whether *text* contains a suspected credential or card number.

    >>> looks_like_secret("my password is hunter2")
    True
    >>> looks_like_secret("Ada prefers tabs over spaces")
    False
    """
    return any(True for _ in _hits(text))


def redact(text: str) -> str:
    """Return *text* with each secret replaced by `[redacted <kind>]`.

    `find` returns nothing for the result.

    >>> redact("my password is hunter2, and I like tea")
    'my password is [redacted prose], and I like tea'
    """
    hits = find(text)
    for _ in range(_MOST_ROUNDS):
        if not hits:
            return text
        parts: list[str] = []
        last = 0
        for hit in hits:
            parts += (text[last : hit.start], mark(hit.kind))
            last = hit.end
        text = "".join([*parts, text[last:]])
        hits = find(text)
    return mark(hits[0].kind) if hits else text


def _hits(text: str) -> Iterator[SecretHit]:
    """Yield every hit of every kind, in the folded text and in the original."""
    for shadow in shadows(text):
        for kind, spans in SPANS.items():
            for span in spans(shadow):
                start, end = shadow.origin(span)
                yield SecretHit(kind=kind, start=start, end=end)
