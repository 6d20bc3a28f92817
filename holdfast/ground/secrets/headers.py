"""Headers of HTTP that carry a credential."""

import re
from collections.abc import Iterable, Iterator

from holdfast.ground.secrets.innocent import is_innocent, is_opaque
from holdfast.ground.secrets.normalise import Shadow, Span

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
# Their parameters fill the line.
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
    """Give where the values of such headers stand."""
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
    """Give what stands after `Authorization:`; an unknown scheme needs a token that is opaque."""
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
    """Give the values in cookies that are of a session, or long and random."""
    for line in _COOKIE.finditer(shadow.lower):
        for pair in _PAIR.finditer(shadow.text, *line.span()):
            value = pair[2]
            of_session = _SESSION.search(pair[1].lower()) or len(value) >= _LEAST_COOKIE
            if of_session and is_opaque(value) and not is_innocent(value):
                yield pair.span(2)
