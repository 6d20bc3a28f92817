"""Who gets into the console, for how long, and what other sites cannot do with it."""

import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from doors.console.browser.bakery import api, bakery
from doors.console.browser.conftest import ConsoleSite, NewPage, Watch
from playwright.sync_api import Page, expect

from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.browser
REFUSED = "The key is not known, or no longer valid."
COOKIE = "holdfast_session"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    with bakery(tmp_path_factory.mktemp("sign_in") / "h.db") as site:
        yield site


@pytest.fixture
def hf(site: ConsoleSite) -> Iterator[Holdfast]:
    with api(site) as hf:
        yield hf


@pytest.fixture
def visitor(new_page: NewPage) -> Page:
    """Open a page of a visitor who has not signed in."""
    return new_page(storage_state=None)


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def names(hf: Holdfast) -> list[str]:
    return [each.name for each in hf.memory_stores.list().data]


def test_what_is_no_valid_key_is_refused_with_one_sentence(
    visitor: Page, page: Page, site: ConsoleSite, hf: Holdfast, watch: Watch
) -> None:
    token = hf.sessions.create_token(site.seeded.session).token
    revoked = hf.keys.create("gone", scope="admin")
    hf.keys.revoke(revoked.id)
    assert revoked.secret is not None
    assert token is not None
    visitor.goto(site.at("/console"))

    for wrong in ("hf_wrong", "x", token, revoked.secret):
        with visitor.expect_response("**/sign-in") as answer:
            sign_in(visitor, wrong)
        assert answer.value.status == 401
        expect(visitor.get_by_role("alert")).to_have_text(REFUSED)
        expect(visitor.get_by_label("API key")).to_have_value("")
        assert visitor.context.cookies() == []
    watch.problems.clear()  # the browser writes the status to the console
    page.goto(site.at("/console/activity?types=access.denied"))
    events = page.get_by_role("table", name="Events").locator("tbody tr")
    expect(events).to_have_count(4)
    expect(events.first).not_to_contain_text("hf_")


def test_a_read_key_sees_and_does_not_act(visitor: Page, site: ConsoleSite, hf: Holdfast) -> None:
    seeded = site.seeded
    secret = hf.keys.create("reader", scope="read").secret
    assert secret is not None
    visitor.goto(site.at("/console/stores"))
    sign_in(visitor, secret)
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Stores")
    expect(visitor.get_by_role("link", name="Bakery")).to_be_visible()
    expect(visitor.get_by_role("button", name="New store")).to_have_count(0)
    memory = f"/console/stores/{seeded.store}/memories/{seeded.memory}"
    visitor.goto(site.at(memory))
    expect(visitor.get_by_role("region", name="Content")).to_contain_text("Deploy")
    for act in ("Edit", "Delete", "Restore", "Redact"):
        expect(visitor.get_by_role("button", name=act, exact=True)).to_have_count(0)
    before = hf.memory_stores.memories.retrieve(seeded.memory, memory_store_id=seeded.store)

    headers = {"sec-fetch-site": "same-origin"}
    for address, form in (
        ("/console/stores", {"name": "Mine"}),
        (f"{memory}/delete", {}),
        (f"{memory}/redact", {"redact": seeded.older, "confirmation": seeded.older[-6:]}),
        ("/console/keys", {"name": "mine", "scope": "admin"}),
        ("/console/forget?user=ada", {"confirmation": "ada"}),
        (f"/console/sessions/{seeded.session}/archive", {}),
    ):
        form: dict[str, Any]
        answer = visitor.request.post(site.at(address), form=form, headers=headers)
        assert answer.status == 403, address
    after = hf.memory_stores.memories.retrieve(seeded.memory, memory_store_id=seeded.store)
    assert after == before
    assert names(hf) == ["Bakery"]
    assert [each.user for each in hf.longterm_people().data] == ["ada"]


def test_a_revoked_key_is_out(visitor: Page, site: ConsoleSite, hf: Holdfast) -> None:
    key = hf.keys.create("leaver", scope="write")
    assert key.secret is not None
    visitor.goto(site.at("/console/agents"))
    sign_in(visitor, key.secret)
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Agents")

    hf.keys.revoke(key.id)
    visitor.evaluate(
        "async () => { while (!(await fetch('/console/stores')).url.includes('sign-in')); }"
    )
    visitor.reload()
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_a_sign_out_ends_the_sign_in_itself(visitor: Page, site: ConsoleSite) -> None:
    visitor.goto(site.at("/console"))
    sign_in(visitor, site.seeded.secret)
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Overview")
    kept = [each for each in visitor.context.cookies() if each.get("name") == COOKIE]
    visitor.get_by_role("button", name="Sign out").click()
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Sign in")
    assert [each for each in visitor.context.cookies() if each.get("name") == COOKIE] == []

    visitor.context.add_cookies(
        [{"name": COOKIE, "value": kept[0].get("value", ""), "url": site.at("/console")}]
    )
    visitor.goto(site.at("/console/stores"))
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Sign in")


@pytest.mark.parametrize(
    ("following", "lands"),
    [
        ("/console/stores", "/console/stores"),
        ("//evil.example/console", "/console"),
        ("https://evil.example/console", "/console"),
        ("/\\evil.example", "/console"),
        ("/api/durable", "/console"),
        ("javascript:alert(1)", "/console"),
    ],
)
def test_a_sign_in_leads_below_the_console_only(
    visitor: Page, site: ConsoleSite, following: str, lands: str
) -> None:
    visitor.goto(site.at("/console/sign-in"))
    visitor.goto(site.at(f"/console/sign-in?next={following}"))
    sign_in(visitor, site.seeded.secret)
    visitor.wait_for_url(site.at(lands))


def test_the_cookie_is_of_the_console_alone(visitor: Page, site: ConsoleSite) -> None:
    visitor.goto(site.at("/console"))
    sign_in(visitor, site.seeded.secret)
    expect(visitor.get_by_role("heading", level=1)).to_have_text("Overview")
    (cookie,) = [each for each in visitor.context.cookies() if each.get("name") == COOKIE]

    assert cookie.get("httpOnly") is True
    assert cookie.get("sameSite") == "Lax"
    assert cookie.get("path") == "/console"
    value = cookie.get("value", "")
    assert len(value) >= 43  # 256 bits
    assert site.seeded.secret not in value
    assert COOKIE not in visitor.evaluate("document.cookie")
    for path in ("/api/durable", "/v1/memory_stores"):
        answer = visitor.request.get(site.at(path), headers={"cookie": f"{COOKIE}={value}"})
        assert answer.status == 401


@pytest.fixture(scope="module")
def elsewhere(site: ConsoleSite) -> Iterator[Callable[[str], str]]:
    """Serve a page of another origin that sends a form to the console; return its address."""
    page = (
        f'<form method="post" action="{site.at("/console/stores")}">'
        '<input name="name" value="Evil"><button>Win</button></form>'
    ).encode()

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(page if self.path == "/" else b"")

        def log_message(self, format: str, *args: object) -> None:
            """Keep the output of the tests clean."""

    server = HTTPServer(("127.0.0.1", 0), Evil)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield lambda host: f"http://{host}:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_form_of_another_site_changes_nothing(  # noqa: PLR0917 - fixtures
    page: Page,
    site: ConsoleSite,
    hf: Holdfast,
    watch: Watch,
    elsewhere: Callable[[str], str],
    host: str,
) -> None:
    page.goto(elsewhere(host))
    with page.expect_response(site.at("/console/stores")) as answer:
        page.get_by_role("button", name="Win").click()
    assert answer.value.status == 403
    page.wait_for_load_state()
    watch.problems.clear()  # another site was meant
    assert names(hf) == ["Bakery"]


@pytest.mark.parametrize(
    "origin",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {},
    ],
    ids=str,
)
def test_a_form_that_does_not_say_it_is_of_the_console_changes_nothing(
    page: Page, site: ConsoleSite, hf: Holdfast, origin: dict[str, str]
) -> None:
    cookies = "; ".join(
        f"{each.get('name')}={each.get('value')}" for each in page.context.cookies()
    )
    headers = {"cookie": cookies, "content-type": "application/x-www-form-urlencoded", **origin}
    assert sent(site, "POST", headers, "name=Evil") == 403
    assert names(hf) == ["Bakery"]
    assert sent(site, "POST", headers | {"sec-fetch-site": "same-origin"}, "name=") == 400


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil"])
def test_another_host_is_answered_nothing(
    page: Page, site: ConsoleSite, hf: Holdfast, host: str
) -> None:
    cookies = "; ".join(
        f"{each.get('name')}={each.get('value')}" for each in page.context.cookies()
    )
    headers = {
        "host": host,
        "origin": f"http://{host}",
        "sec-fetch-site": "same-origin",
        "cookie": cookies,
        "content-type": "application/x-www-form-urlencoded",
    }
    assert sent(site, "GET", headers) == 421
    assert sent(site, "POST", headers, "name=Evil") == 421
    assert names(hf) == ["Bakery"]


def sent(site: ConsoleSite, method: str, headers: dict[str, str], body: str = "") -> int:
    """Return the status of a request to the list of stores."""
    connection = HTTPConnection(urlsplit(site.url).netloc)
    try:
        connection.request(method, "/console/stores", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()
