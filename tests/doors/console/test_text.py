"""Text from outside as HTML: one skeleton whatever it holds, two walls, exact figures."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from holdfast.doors.console import text
from holdfast.ground.json_values import JSON
from holdfast.ground.text import whole

NOW = datetime(2026, 11, 24, 9, 15, 3, tzinfo=UTC)

ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' autofocus onfocus=alert(1) x='",
    "</title></style></textarea></pre></code></bdi><b>",
    "<!-- --!><p>",
    "<![CDATA[<b>]]>",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<form action=//evil.example><button formaction=javascript:alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<style>*{display:none}</style>",
    "<a href=javascript:alert(1) id=main class=btn name=x style=position:fixed hx-get=/x>x</a>",
    "<div hx-on:click=alert(1) hx-get=/console/sign-out>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "{{ 7 * 7 }} {% raw %} ${7*7} #{7*7}",
    "&lt;script&gt; &#x3c;b&#x3e; &NotEqualTilde; &#0; &#x202e;",
    "[x](javascript:alert(1)) [x](JaVaScRiPt:alert(1)) [x](&#106;avascript:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>) [x](vbscript:x) [x](file:///etc/passwd)",
    "[x](//evil.example/) [x](\\\\evil.example) [x](/\\evil.example) [x](http:evil.example)",
    "[x](https:///evil.example) [x](https://good.example\\@evil.example) [x](ftp://a/)",
    "[x](https://good.example@evil.example/) [x](http://[::1) [x](http://a:99999999/)",
    "![x](https://evil.example/pixel.png) [![x](javascript:a)](https://evil.example)",
    "<javascript:alert(1)> <https://evil.example/%E2%80%AE> <mailto:a@b.example>",
    '[x](https://a.example "title" onclick=alert(1)) [x](<https://a.example/" onclick="a>)',
    "[a]: javascript:alert(1)\n\n[a] ![a]",
    '```html" onclick="alert(1)\n<b>\n```',
    "|a|\n|:-:|\n|<b>|",
    "a\u202egnp.exe \u2066x\u2069 \u200b\ufeff \U000e0041 \u2028 \x00\x1b[31m\x7f\x85",
    "\ud800 \udfff lone",
    "\u0301\u0300 \U0001f600\ufe0f",
]
CHARACTERS = st.characters()  # of every category, lone surrogates too
ANY = st.one_of(
    st.sampled_from(ATTACKS),
    st.text(CHARACTERS, max_size=40),
    st.lists(st.one_of(st.sampled_from(ATTACKS), st.text(CHARACTERS, max_size=9))).map("".join),
)
PIECES = st.sampled_from(
    [
        *("# ", "> ", "- ", "1. ", "**", "_", "~~", "`", "```\n", "[", "](", "](/a)", "![", ")"),
        *("<", ">", "|", "\n", "\n\n", "|-|\n", "    ", "\\", "&amp;", "mailto:", "http://", ":"),
        *(
            "https://a.example/?x=1&y=2#z",
            "/",
            "//",
            "..",
            "xn--",
            "a b",
            '"t"',
            "\u202e",
            "&#x202e;",
        ),
        *("%E2%80%AE", "é", "\x00"),
    ]
)
MARKDOWN = st.one_of(ANY, st.lists(st.one_of(PIECES, st.text(CHARACTERS, max_size=4))).map("".join))
VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), ANY),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ANY, inner, max_size=4)),
)

Element = tuple[str, tuple[str, ...]]


class Skeleton(HTMLParser):
    """Elements and names of attributes, the text, and the attributes of each element."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Element] = []
        self.text = ""
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.escapes = 0
        self.open: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        escape = tag == "span" and ("class", "escape") in attrs
        if tag not in {"br", "hr"}:
            self.open.append(escape)
        self.escapes += escape
        self.attributes.append((tag, dict(attrs)))
        if not escape:
            self.found.append((tag, tuple(sorted(name for name, _ in attrs))))

    def handle_endtag(self, tag: str) -> None:
        if not self.open.pop():
            self.found.append((f"/{tag}", ()))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl!r}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data!r}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a section: {data!r}")


def parsed(html: str) -> Skeleton:
    html.encode()
    skeleton = Skeleton()
    skeleton.feed(str(html))
    skeleton.close()
    assert not skeleton.open
    return skeleton


def skeleton(html: str) -> list[Element]:
    return parsed(html).found


# One skeleton


@pytest.mark.parametrize(
    "render", [text.line, text.block, text.short], ids=lambda each: each.__name__
)
@given(given_text=ANY)
def test_any_text_has_one_skeleton(render: Callable[[str], Markup], given_text: str) -> None:
    html = render(given_text[:200])

    assert skeleton(html) == skeleton(render("a"))


@given(ANY, st.integers(1, 20))
def test_a_cut_line_has_one_skeleton_and_the_whole_in_its_title(given_text: str, most: int) -> None:
    whole = given_text + "a" * most + "z"

    found = parsed(text.line(whole, most))

    assert found.found == [("bdi", ("title",)), ("/bdi", ())]
    assert found.attributes[0][1]["title"] == text.plain(whole)


@given(ANY)
def test_lines_of_source_are_items_of_a_list(given_text: str) -> None:
    html = text.source(given_text)

    lines = max(len(given_text.removesuffix("\n").split("\n")), 1)
    items = [("li", ()), ("/li", ())] * lines
    assert skeleton(html) == [("ol", ("class", "tabindex")), *items, ("/ol", ())]


@given(VALUES)
def test_folded_json_has_elements_of_its_own_only(value: JSON) -> None:
    found = parsed(text.folded(value))

    names = {name.removeprefix("/") for name, _ in found.found}
    assert names <= {"div", "details", "summary", "span", "ul", "li", "code"}
    attributes = {name for _, each in found.found for name in each}
    assert attributes <= {"class", "open"}


@given(ANY)
def test_no_hidden_character_is_left(given_text: str) -> None:
    for html in (text.line(given_text), text.short(given_text), text.folded(given_text)):
        assert text.plain(html.replace("\n", "")) == html.replace("\n", "")
    for html in (text.block(given_text), text.source(given_text)):
        kept = html.replace("\n", "").replace("\t", "")
        assert text.plain(kept) == kept


@given(ANY)
def test_text_reads_as_it_was_but_for_its_hidden_characters(given_text: str) -> None:
    assert parsed(text.line(given_text, 10_000)).text == text.plain(given_text)


def test_hidden_characters_are_marked_by_number_and_name() -> None:
    assert text.line("a\u202eb\n") == (
        '<bdi>a<span class="escape" title="RIGHT-TO-LEFT OVERRIDE">U+202E</span>b'
        '<span class="escape" title="LINE FEED">↵</span></bdi>'
    )
    assert text.block("a\n\tb\r\ud800").count('class="escape"') == 2


def test_markup_is_text_like_any_other() -> None:
    assert text.line(Markup("<b>")) == "<bdi>&lt;b&gt;</bdi>"
    assert text.block(Markup("<b>")) == "&lt;b&gt;"


def test_none_is_a_dash() -> None:
    dash = '<span class="muted">—</span>'
    assert (text.line(None), text.block(None), text.size(None)) == (dash, dash, dash)
    assert text.instant(None, NOW) == text.ms_instant(None, NOW) == dash


# Markdown


def resolve(path: str) -> str | None:
    return None if "missing" in path else "/console/stores/s?path=x"


def is_safe(html: str) -> None:
    found = parsed(html)
    for tag, attributes in found.attributes:
        assert tag in text.TAGS
        names = {"class"} if tag == "span" else set[str]()
        rel = {"rel"} if tag == "a" else set[str]()
        assert set(attributes) <= text.ATTRIBUTES.get(tag, set()) | names | rel
        assert attributes.get("class") in {None, "escape", "small muted"}
        if tag == "a":
            href = attributes["href"] or ""
            schemes = ("http://", "https://", "mailto:", "/console/")
            assert href.lower().startswith(schemes)
            assert attributes["rel"] == "noopener noreferrer nofollow"


@given(MARKDOWN)
def test_any_markdown_is_safe(given_text: str) -> None:
    html = text.markdown(given_text, resolve)

    is_safe(html)
    kept = html.replace("\n", "").replace("\t", "")
    assert text.plain(kept) == kept


@given(MARKDOWN)
def test_the_second_wall_removes_nothing_that_the_first_let_through(given_text: str) -> None:
    addresses: set[str] = set()
    first = text.first_wall(given_text, resolve, addresses)
    is_safe(first)

    second = text.second_wall(first, addresses)

    assert parsed(second).found == parsed(first).found
    assert parsed(second).text == parsed(first).text
    assert parsed(second).attributes == parsed(first).attributes


@given(st.one_of(ANY, st.lists(st.sampled_from(ATTACKS)).map("".join)))
def test_the_second_wall_alone_is_enough(given_text: str) -> None:
    html = text.second_wall(whole(given_text), set())

    for tag, attributes in parsed_loosely(html).attributes:
        assert tag in text.TAGS
        assert not {"id", "style", "name", "onclick", "onerror", "hx-get"} & set(attributes)
        href = attributes.get("href")
        assert href is None or href.lower().startswith(("http:", "https:", "mailto:"))


def parsed_loosely(html: str) -> Skeleton:
    found = Skeleton()
    found.feed(str(html))
    return found


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_known_attack_is_text(attack: str) -> None:
    html = text.markdown(attack, resolve)

    is_safe(html)
    hosts = [attrs["href"] for tag, attrs in parsed(html).attributes if tag == "a"]
    assert not [href for href in hosts if href and "script" in href]


def test_what_markdown_is_for_is_rendered() -> None:
    html = text.markdown("# Plan\n\nOn **Friday**, ~~not~~ `x`.\n\n3. a\n\n|a|b|\n|-|:-|\n|1|2|\n")

    assert html == (
        "<h3>Plan</h3>\n<p>On <strong>Friday</strong>, <s>not</s> <code>x</code>.</p>\n"
        '<ol start="3">\n<li>a</li>\n</ol>\n<table>\n<thead>\n<tr>\n<th>a</th>\n'
        '<th align="left">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n'
        '<td align="left">2</td>\n</tr>\n</tbody>\n</table>\n'
    )


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[a](https://u:p@Example.org:8/x)", "a example.org"),
        ("[a](mailto:ada@example.org?subject=x)", "a ada@example.org"),
        ("![photo](https://example.org/p.png)", "photo example.org"),
        ("![](https://example.org/p.png)", "https://example.org/p.png example.org"),
        ("[](https://example.org)", "https://example.org example.org"),
        ("[a](https://xn--e1awd7f.com)", "a xn--e1awd7f.com"),
        ("[a](https://\u0435\u0440\u0456\u0441.com)", "a xn--e1awd7f.com"),
        ("[a](http://127.0.0.1/)", "a 127.0.0.1"),
        ("[![b](https://b.example/)](https://a.example/)", "b a.example image b.example"),
    ],
)
def test_the_host_of_an_outside_link_stands_after_it(written: str, shown: str) -> None:
    assert parsed(text.markdown(written)).text == f"{shown}\n"


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("[a](b.md)", "b.md"),
        ("[a](../b%20c.md#part)", "../b c.md"),
        ("[a](/notes/b.md?x=1)", "/notes/b.md"),
        ("![a](b.png)", "b.png"),
    ],
)
def test_a_path_is_resolved(written: str, path: str) -> None:
    paths: list[str] = []

    def link(given_path: str) -> str:
        paths.append(given_path)
        return "/console/found"

    html = text.markdown(written, link)

    assert paths == [path]
    assert '<a href="/console/found" rel="noopener noreferrer nofollow">a</a>' in html


@pytest.mark.parametrize(
    "written",
    [
        "[a](missing.md)",
        "[a](#part)",
        "[a](?x=1)",
        "[a](//evil.example/x)",
        "[a](ftp://example.org)",
        "[a](http:evil.example)",
        "[a](https:///evil.example)",
        "[a](http://a:99999/)",
        "[a](http://1.2.3/)",
        "[a](http://xn--a/)",
        "[a](http://xn--0000/)",
        "[a](http://xn--ab-5da.com/)",
    ],
)
def test_a_link_that_leads_nowhere_is_text(written: str) -> None:
    assert text.markdown(written, resolve) == "<p>a</p>\n"


@pytest.mark.parametrize("address", ["//evil.example", "https://evil.example", "x", "/\\evil"])
def test_an_address_elsewhere_is_not_taken_from_the_page(address: str) -> None:
    assert text.markdown("[a](b.md)", lambda _: address) == "<p>a</p>\n"


def test_what_is_nested_too_deep_is_said_to_be_left_out() -> None:
    assert "left out" not in text.markdown("> " * 19 + "x")
    assert "left out" in text.markdown("> " * 20 + "x")
    assert "left out" in text.markdown("- " * 10 + "x")


def test_markdown_over_its_limits_is_for_the_source_view() -> None:
    text.markdown("x" * text.MARKDOWN_BYTES)
    with pytest.raises(ValueError, match="shown as source"):
        text.markdown("é" * (text.MARKDOWN_BYTES // 2 + 1))


def test_tables_of_too_many_cells_are_shown_as_source() -> None:
    table = "|a" * 50 + "|\n" + "|-" * 50 + "|\n" + "|\n"

    assert "<table>" in text.markdown(table * 3)
    assert text.markdown(table + "|\n" * 1000).endswith(text.source(table + "|\n" * 1000))


# JSON


def test_json_is_folded_below_its_depth() -> None:
    html = text.folded({"a": {"b": {"c": {"d": [1]}}}})

    assert html.count("<details open>") == 3
    assert html.count("<details>") == 2


def test_json_says_how_much_is_not_shown() -> None:
    html = text.folded([list(range(5_000)) for _ in range(3)])

    assert html.count("<li>") == text.NODES - 1
    assert "5,004 more values are not shown." in html


def test_deep_json_is_shown_to_a_bound() -> None:
    value: JSON = 1
    for _ in range(200):
        value = [value]

    assert "100 more values are not shown." in text.folded(value)


@given(VALUES)
def test_pretty_json_is_the_value_and_can_be_encoded(value: JSON) -> None:
    shown = text.pretty(value)

    shown.encode()
    assert json.loads(shown) == json.loads(json.dumps(value))


# Figures


@pytest.mark.parametrize(
    ("n", "shown"),
    [
        (0, "0 B"),
        (84, "84 B"),
        (1_023, "1,023 B"),
        (1_024, "1.0 KiB"),
        (1_234, "1.2 KiB"),
        (1_048_524, "1,023.9 KiB"),
        (1_048_575, "1.0 MiB"),
        (5 * 2**30, "5.0 GiB"),
        (2**41, "2,048.0 GiB"),
    ],
)
def test_sizes(n: int, shown: str) -> None:
    assert text.size(n) == f'<span class="size" title="{n:,} B">{shown}</span>'


def test_numbers() -> None:
    assert text.count(1_234_567) == "1,234,567"
    assert text.counted(1, "entry", "entries") == "1 entry"
    assert text.counted(1_200, "entry", "entries") == "1,200 entries"
    assert text.number(0.985) == "0.98"
    assert text.number(1_234.5, 1) == "1,234.5"
    assert text.number(None) == "—"


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        (timedelta(0), "now"),
        (timedelta(seconds=42), "42 s ago"),
        (timedelta(minutes=3, seconds=59), "3 min ago"),
        (timedelta(hours=23), "23 h ago"),
        (timedelta(days=7), "7 d ago"),
        (timedelta(days=7, seconds=1), "17 Nov 2026"),
        (timedelta(days=12), "12 Nov 2026"),
        (timedelta(hours=-5), "in 5 h"),
        (timedelta(days=-40), "3 Jan 2027"),
    ],
)
def test_times_are_relative_within_a_week(before: timedelta, shown: str) -> None:
    assert parsed(text.instant(NOW - before, NOW)).text == shown


def test_a_time_has_its_instant() -> None:
    expected = (
        '<time datetime="2026-11-24T09:12:03Z" title="2026-11-24 09:12:03 UTC">3 min ago</time>'
    )
    at = datetime(2026, 11, 24, 9, 12, 3, tzinfo=UTC)
    assert text.instant(at, NOW) == expected
    assert text.ms_instant(int(at.timestamp() * 1000), NOW) == expected
    assert 'datetime="2026-11-24T09:12:03.500Z"' in text.instant(
        at.replace(microsecond=500_000), NOW
    )


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "—"),
        (0.25, "250 ms"),
        (42, "42 s"),
        (63, "1 min 3 s"),
        (3_600, "1 h"),
        (7_500, "2 h 5 min"),
        (90_061, "1 d 1 h"),
    ],
)
def test_lengths_of_time(seconds: float | None, shown: str) -> None:
    assert text.span(seconds) == shown


def test_an_id_is_its_last_six_characters() -> None:
    assert text.short("memver_018fKx2a") == '<code title="memver_018fKx2a">…8fKx2a</code>'
    assert text.short("ada") == '<code title="ada">ada</code>'


def test_filters_have_the_names_of_their_functions() -> None:
    assert {name: getattr(text, name) for name in text.FILTERS} == text.FILTERS
