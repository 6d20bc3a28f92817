"""Keys that say by their first characters whose they are."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from holdfast.ground.secrets.innocent import is_innocent, is_opaque
from holdfast.ground.secrets.normalise import Shadow, Span

_URL64: Final = r"[A-Za-z0-9_-]"
_HEX: Final = r"[0-9a-fA-F]"
_LEAST_PLAIN: Final = 16
"""Characters without - and _ that are no word."""


def _any(_body: str) -> bool:
    return True


def _random(body: str) -> bool:
    """Tell whether *body* is no name made of words: some keys begin as ordinary names do."""
    return (len(body) >= _LEAST_PLAIN and body.isalnum()) or is_opaque(body)


class _Shape(Struct, frozen=True):
    """How keys look that begin with one of *starts*, and which of those that look so are keys."""

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
    """Give each start with its pattern, which the literal leads so that it is searched for fast.

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
    """Give where keys stand."""
    text = shadow.text
    for start, pattern, is_key in _KEYS:
        if start in text:
            for found in pattern.finditer(text):
                if is_key(found[1]) and not is_innocent(found[1]):
                    yield found.span()
    yield from _bots(text)


def _bots(text: str) -> Iterator[Span]:
    """Give where tokens of Telegram's and Discord's bots stand, which begin with an id."""
    for found in _TELEGRAM.finditer(text):
        start = _run_back(text, found.start(), 10, str.isdigit)
        if is_opaque(found[0]) and not _alphanumeric(text[start - 1 : start]):
            yield start, found.end()
    for found in _DISCORD.finditer(text):
        start = _run_back(text, found.start(), 28, _in_base64)
        if is_opaque(text[start : found.start()]) and is_opaque(found[0]):
            yield start, found.end()


def _run_back(text: str, end: int, most: int, belongs: Callable[[str], bool]) -> int:
    """Return where the run of characters that *belongs* accepts, up to *most*, ending begins."""
    start = end
    while start > max(0, end - most) and belongs(text[start - 1]):
        start -= 1
    return start


def _in_base64(char: str) -> bool:
    return _alphanumeric(char) or char in "_-"


def _alphanumeric(char: str) -> bool:
    return char.isascii() and char.isalnum()
