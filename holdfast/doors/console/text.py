"""Text from outside as safe HTML: hidden characters, Markdown, sizes, times, JSON."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from ipaddress import IPv4Address
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape

from holdfast.doors.console.diffs import diff_rows, split_rows
from holdfast.ground.json_values import JSON
from holdfast.ground.text import INVISIBLE

MARKDOWN_BYTES: Final = 32 * 1024
"""Most bytes of Markdown that are rendered: 10 ms a KiB, twice that at worst."""
CELLS: Final = 20_000
"""Most cells of tables that are rendered: a row of one character is filled up with empty ones."""
NODES: Final = 10_000
"""Most values of a JSON value that are shown folded."""

_NESTING: Final = 20
_LEVELS: Final = 100
_KIB: Final = 1024
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_RECENT: Final = timedelta(days=7)
_SHORT: Final = 6
_NONE: Final = Markup('<span class="muted">—</span>')
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)

_HIDDEN: Final = rf"\x7f-\x9f\u2028\u2029\ud800-\udfff{INVISIBLE}"
_IN_LINE: Final = re.compile(rf"[\x00-\x1f{_HIDDEN}]")
_IN_BLOCK: Final = re.compile(rf"[\x00-\x08\x0b-\x1f{_HIDDEN}]")
_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")


# Single lines and blocks


def safe(html: str) -> Markup:
    """Return *html*, in which every value is escaped, as what templates do not escape."""
    return Markup(html)  # noqa: S704 - the one place, for what this file and the charts escape


def plain(text: str) -> str:
    """Return *text* with each hidden character as `U+202E`, `↵` for a line feed.

    For titles and pictures.
    """
    return _IN_LINE.sub(_code_point, str(text))


def line(text: str | None, most: int = 200) -> Markup:
    """Return *text* as one line in `<bdi>`, its hidden characters marked.

    Beyond *most* characters it is cut, and `title` holds the whole.
    """
    if text is None:
        return _NONE
    text = str(text)
    if len(text) <= most:
        return safe(f"<bdi>{_marked(text, _IN_LINE)}</bdi>")
    shown = _marked(text[:most], _IN_LINE)
    return safe(f'<bdi title="{escape(plain(text))}">{shown}…</bdi>')


def block(text: str | None) -> Markup:
    """Return *text* for `<pre>`: line feeds and tabs stay, the hidden is marked."""
    return _NONE if text is None else safe(_marked(text, _IN_BLOCK))


def source(text: str) -> Markup:
    """Return *text* as a list of lines, which the stylesheet numbers."""
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    items = "\n".join(f"<li>{_marked(each, _IN_BLOCK)}</li>" for each in lines)
    return safe(f'<ol class="source" tabindex="0">\n{items}\n</ol>')


def _marked(text: str, hidden: re.Pattern[str]) -> str:
    text = str(text)  # of Markup too, which `escape` would hand on as it is
    escaped = str(escape(text))
    if text.isascii() and text.isprintable():
        return escaped
    return hidden.sub(_mark, escaped)


def _mark(found: re.Match[str]) -> str:
    default = "LINE FEED" if found[0] == "\n" else "character without a name"
    name = unicodedata.name(found[0], default)
    return f'<span class="escape" title="{name}">{_code_point(found)}</span>'


def _code_point(found: re.Match[str]) -> str:
    return "↵" if found[0] == "\n" else f"U+{ord(found[0]):04X}"


# Markdown: what markdown-it lets through, nh3 lets through. Each alone is enough.

Link = Callable[[str], str | None]
"""Takes a path, relative or absolute, and returns its address on this server, or None."""

_PARSER: Final = MarkdownIt(
    "commonmark", {"html": False, "maxNesting": _NESTING, "xhtmlOut": False}
).enable(["table", "strikethrough"])
_REL: Final = "noopener noreferrer nofollow"
TAGS: Final = frozenset(
    (
        *("a", "blockquote", "br", "code", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p"),
        *("pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
    )
)
ATTRIBUTES: Final = {
    "a": {"href", "title"},
    "ol": {"start"},
    "span": {"title"},
    "td": {"align"},
    "th": {"align"},
}
_CLASSES: Final = {"span": {"escape", "small", "muted"}}
_RULE: Final = " \t|:->*+.)0123456789"
"""Characters of the line below a table's head, and of quotes and lists that it may stand in."""
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HOST: Final = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z][a-z0-9_-]*\.?")
_BELOW: Final = re.compile(r"/(?![/\\])")
_CONTAINERS: Final = frozenset({"blockquote_open", "list_item_open"})


def markdown(text: str, link: Link | None = None) -> Markup:
    """Return *text*, CommonMark with tables and strikethrough, as HTML.

    HTML in it is text, images become links, headings begin at `<h3>`. *link* resolves paths; a link
    that leads nowhere becomes text. With tables of more than `CELLS` the source is returned. Raise
    ValueError beyond `MARKDOWN_BYTES`.
    """
    if len(text) > MARKDOWN_BYTES or len(text.encode(errors="replace")) > MARKDOWN_BYTES:
        raise ValueError(f"Markdown of more than {MARKDOWN_BYTES} bytes is shown as source")
    if _cells(text) > CELLS:
        note = f"Tables of more than {CELLS:,} cells are not rendered: this is the source."
        return safe(f'<p class="muted">{note}</p>{source(text)}')
    addresses: set[str] = set()
    return safe(second_wall(first_wall(text, link, addresses), addresses))


def _cells(text: str) -> int:
    """Return how many cells the tables of *text* have at most, empty ones too."""
    lines = text.splitlines()
    widest = max((each.count("|") for each in lines if not each.strip(_RULE)), default=0)
    return (widest + 1) * len(lines) if widest else 0


def first_wall(text: str, link: Link | None, addresses: set[str]) -> str:
    """Return the first wall's HTML; add to *addresses* what *link* returned."""
    env: EnvType = {}
    tokens = _PARSER.parse(text, env)
    deep = False
    for token in tokens:
        if token.type == "inline" and token.children:
            token.children = list(_linked(token.children, link, addresses))
        elif token.tag in {"h1", "h2", "h3", "h4", "h5", "h6"}:
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
        elif token.tag in {"td", "th"}:
            style = str(token.attrs.pop("style", ""))
            token.attrs = {"align": style.removeprefix("text-align:")} if style else {}
        deep = deep or (token.type in _CONTAINERS and token.level >= _NESTING - 1)
    html = _RENDERER.render(tokens, _PARSER.options, env)
    # The parser leaves out what is nested deeper.
    return f"{html}<p><em>Deeper levels are left out: see the source.</em></p>" if deep else html


def second_wall(html: str, addresses: set[str]) -> str:
    """Return what the second wall lets through of *html*."""
    return nh3.clean(
        html,
        tags=TAGS,
        attributes=ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes={"http", "https", "mailto"},
        url_relative=lambda address: address if address in addresses else None,
        link_rel=_REL,
    )


class _Renderer(RendererHTML):
    """Renders text with its hidden characters marked, and code without its language."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        del options, env
        return _marked(tokens[idx].content, _IN_BLOCK)

    def code_inline(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return f"<code>{self.text(tokens, idx, options, env)}</code>"

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<pre><code>{self.text(tokens, idx, options, env)}</code></pre>\n"

    code_block = fence


_RENDERER: Final = _Renderer()


def _linked(children: Sequence[Token], link: Link | None, addresses: set[str]) -> Iterator[Token]:
    """Give inline tokens with safe links; images are links, after one they stood in."""
    index = 0
    while index < len(children):
        token = children[index]
        index += 1
        if token.type == "image":
            alt = _RENDERER.renderInlineAsText(token.children, _PARSER.options, {})
            yield from _link(token, "src", [_text(alt)], link, addresses)
        elif token.type == "link_open":
            inner: list[Token] = []
            images: list[Token] = []
            while children[index].type != "link_close":
                each = children[index]
                index += 1
                if each.type == "image":
                    alt = _RENDERER.renderInlineAsText(each.children, _PARSER.options, {})
                    inner.append(_text(alt))
                    images.append(each)
                else:
                    inner.append(each)
            index += 1
            yield from _link(token, "href", inner, link, addresses)
            for each in images:
                yield _text(" ")
                yield from _link(each, "src", [_text("image")], link, addresses)
        else:
            yield token


def _link(
    token: Token, attribute: str, inner: list[Token], link: Link | None, addresses: set[str]
) -> Iterator[Token]:
    written = str(token.attrs.get(attribute, ""))
    if not "".join(each.content for each in inner).strip():
        inner = [_text(written)]
    found = _target(written, link, addresses)
    if found is None:
        yield from inner
        return
    address, host = found
    attrs: dict[str, str | int | float] = {"href": address, "rel": _REL}
    if title := token.attrs.get("title"):
        attrs["title"] = plain(str(title))
    yield Token("link_open", "a", 1, attrs=attrs)
    yield from inner
    yield Token("link_close", "a", -1)
    if host:
        shown = f' <span class="small muted">{_marked(host, _IN_LINE)}</span>'
        yield Token("html_inline", "", 0, content=shown)


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _target(written: str, link: Link | None, addresses: set[str]) -> tuple[str, str] | None:
    """Return where a link leads and the host to show, or None for nowhere."""
    scheme = _SCHEME.match(written)
    if scheme is None:
        path = unquote(re.split("[?#]", written, maxsplit=1)[0])
        address = link(path) if link and path and not written.startswith("//") else None
        if address is None or not _BELOW.match(address):
            return None
        addresses.add(address)
        return address, ""
    if scheme[0].lower() == "mailto:":
        return written, unquote(written[len("mailto:") :].partition("?")[0])
    host = _host(written) if scheme[0].lower() in {"http:", "https:"} else None
    return (written, host) if host else None


def _host(address: str) -> str | None:
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
        if host and ":" not in host and not _HOST.fullmatch(host):
            IPv4Address(host)
    except ValueError:
        return None
    if host and "xn--" in host and "href" not in nh3.clean(f'<a href="http://{host}">'):
        return None  # no browser takes it: the rules of encoded names are nh3's parser's
    return host


# Sizes and numbers


def size(n: int | None) -> Markup:
    """Return *n* bytes in the unit that reads best, the exact number in `title`."""
    if n is None:
        return _NONE
    return safe(f'<span class="size" title="{n:,} B">{size_text(n)}</span>')


def size_text(n: int) -> str:
    """Return *n* bytes in the unit that reads best."""
    shown, text = float(n), f"{n:,} B"
    for unit in ("KiB", "MiB", "GiB"):
        if round(shown, 1) < _KIB:
            break
        shown /= _KIB
        text = f"{shown:,.1f} {unit}"
    return text


def count(n: int) -> str:
    """Return *n* with commas between thousands."""
    return f"{n:,}"


def counted(n: int, one: str, more: str) -> str:
    """Return *n* with the noun *one* or *more*."""
    return f"{n:,} {one if n == 1 else more}"


def number(x: float | None, digits: int = 2) -> str:
    """Return *x* with *digits* after the point, a dash for None."""
    return "—" if x is None else f"{x:,.{digits}f}"


# Times


def instant(at: datetime | None, now: datetime) -> Markup:
    """Return *at* as `<time>`: relative to *now* within 7 days, else its date (UTC)."""
    if at is None:
        return _NONE
    at = at.astimezone(UTC)
    digits = "milliseconds" if at.microsecond else "seconds"
    exact = at.isoformat(timespec=digits).removesuffix("+00:00")
    return safe(
        f'<time datetime="{exact}Z" title="{at:%Y-%m-%d %H:%M:%S} UTC">{_relative(at, now)}</time>'
    )


def ms_instant(ms: int | None, now: datetime) -> Markup:
    """Return *ms*, milliseconds since 1970, as `instant` does."""
    return instant(None if ms is None else _EPOCH + timedelta(milliseconds=ms), now)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _relative(at: datetime, now: datetime) -> str:
    past = now - at
    if abs(past) > _RECENT:
        return day(at)
    seconds = int(abs(past).total_seconds())
    if not seconds:
        return "now"
    unit, length = next(each for each in _UNITS if seconds >= each[1])
    shown = f"{seconds // length} {unit}"
    return f"{shown} ago" if past > timedelta(0) else f"in {shown}"


def day(at: date) -> str:
    """Return the date of *at* as `12 Nov 2026`."""
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}"


def span(seconds: float | None) -> str:
    """Return a length of time in its two largest units."""
    if seconds is None:
        return "—"
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    whole = int(seconds)
    at = next(n for n, (_, length) in enumerate(_UNITS) if whole >= length)
    unit, length = _UNITS[at]
    text = f"{whole // length} {unit}"
    if at + 1 == len(_UNITS):
        return text
    smaller, each = _UNITS[at + 1]
    rest = whole % length // each
    return f"{text} {rest} {smaller}" if rest else text


# Ids and JSON


def short(id: str) -> Markup:
    """Return the last 6 characters of *id*, the whole in `title`."""
    id = str(id)
    shown = _marked(id[-_SHORT:], _IN_LINE)
    dots = "…" if len(id) > _SHORT else ""
    return safe(f'<code title="{escape(plain(id))}">{dots}{shown}</code>')


def pretty(value: JSON) -> str:
    """Return *value* as indented JSON; a lone surrogate is written as its escape."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return _SURROGATES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def folded(value: JSON, depth: int = 3) -> Markup:
    """Return *value* as nested `<details>`, closed below *depth*.

    At most `NODES` values are shown; a last line says how many more there are.
    """
    tree = _Tree(depth)
    html = "".join(tree.node(value, "", 0))
    more = _size_of(value) - tree.shown
    rest = f'<p class="muted">{more:,} more values are not shown.</p>' if more else ""
    return safe(f'<div class="json">{html}{rest}</div>')


class _Tree:
    """HTML of a JSON value, and how many values it holds so far."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.shown = 0

    def node(self, value: JSON, label: str, level: int) -> Iterator[str]:
        self.shown += 1
        if not isinstance(value, dict | list) or not value:
            shown = pretty(value)
            yield f"{label}<code>{_marked(shown, _IN_LINE)}</code>"
            return
        what = f'{label}<span class="muted">{_what(value)}</span>'
        opened = " open" if level < self.depth else ""
        yield f"<details{opened}><summary>{what}</summary><ul>"
        for name, each in _children(value):
            if self.shown >= NODES or level >= _LEVELS:
                break
            yield "<li>"
            yield from self.node(each, f"<code>{_marked(name, _IN_LINE)}</code>: ", level + 1)
            yield "</li>"
        yield "</ul></details>"


def _what(value: dict[str, JSON] | list[JSON]) -> str:
    kind = ("object", "field") if isinstance(value, dict) else ("list", "item")
    return f"{kind[0]} of {len(value):,} {kind[1]}{'' if len(value) == 1 else 's'}"


def _children(value: JSON) -> Iterable[tuple[str, JSON]]:
    if isinstance(value, dict):
        return value.items()
    return ((str(n), each) for n, each in enumerate(value)) if isinstance(value, list) else ()


def _size_of(value: JSON) -> int:
    values, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        values += 1
        waiting.extend(child for _, child in _children(each))
    return values


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    each.__name__: each
    for each in (
        line,
        block,
        source,
        markdown,
        size,
        count,
        counted,
        number,
        instant,
        ms_instant,
        day,
        span,
        short,
        pretty,
        folded,
        plain,
        diff_rows,
        split_rows,
    )
}
"""The filters of the templates."""
