import asyncio
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from doors.http.asking import HOST, Asker
from msgspec import UNSET, UnsetType

from holdfast.doors.http.app import App, make_app
from holdfast.doors.http.params import (
    DEPTH,
    LIMITS,
    Body,
    BodyLimits,
    RequestLimits,
    read_body,
    read_json,
)
from holdfast.doors.http.state import IN_FLIGHT_MOST
from holdfast.ground.errors import InvalidInput, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.testing.fakes import FrozenClock

MESSAGE = dict[str, Any]


class Sample(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    count: int | UnsetType = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET


@pytest.mark.parametrize(
    ("raw", "field", "reason"),
    [
        (b"", "body", "is not JSON, it is empty"),
        (b"   ", "body", "is not JSON, it is empty"),
        (b"nope", "body", "is not JSON at line 1, column 1"),
        (b'{"path":\n"a",}', "body", "is not JSON at line 2, column 5"),
        (b"{} {}", "body", "is not JSON at line 1, column 4"),
        (b"[]", "body", "must be a JSON object"),
        (b'"text"', "body", "must be a JSON object"),
        (b"null", "body", "must be a JSON object"),
        (b"7", "body", "must be a JSON object"),
        (b'{"path":"\xff"}', "body", "is not UTF-8"),
        (b"\xef\xbb\xbf{}", "body", "is not JSON at line 1, column 1"),
        (b'{"path":"a","path":"b"}', "path", "is given twice"),
        (b'{"path":"a","p\\u0061th":"b"}', "path", "is given twice"),
        (b'{"path":"a","metadata":{"k":"1","k":"2"}}', "k", "is given twice"),
        (b"{}", "path", "is required"),
        (b'{"path":"a","other":1}', "other", "is not a key here"),
        (b'{"path":1}', "path", "must be a string, is an integer"),
        (b'{"path":null}', "path", "must be a string, is null"),
        (b'{"path":["a"]}', "path", "must be a string, is a list"),
        (b'{"path":"a","count":1.0}', "count", "must be an integer, is a number"),
        (b'{"path":"a","count":true}', "count", "must be an integer, is true or false"),
        (b'{"path":"a","count":"1"}', "count", "must be an integer, is a string"),
        (
            b'{"path":"a","metadata":{"k":1}}',
            "metadata",
            "each value must be a string or null, is an integer",
        ),
        (b'{"path":"a","metadata":[]}', "metadata", "must be an object or null, is a list"),
        (b'{"path":"\\ud800"}', "path", "holds a lone surrogate, which is not text"),
        (b'{"path":"a","\\udfff":1}', "\\udfff", "holds a lone surrogate, which is not text"),
        (b'{"path":NaN}', "body", "holds what JSON does not have"),
        (b'{"path":-Infinity}', "body", "holds what JSON does not have"),
        (b'{"path":1e999}', "body", "holds a number out of range"),
        (b'{"path":' + b"9" * 30 + b"}", "body", "holds an integer of more than 64 bits"),
        (b'{"path":' + b"9" * 9_000 + b"}", "body", "holds an integer of more than 64 bits"),
        (b'{"path":9223372036854775808}', "body", "holds an integer of more than 64 bits"),
    ],
)
def test_what_is_wrong_is_named(raw: bytes, field: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_body(raw, Sample)

    assert (refused.value.field, refused.value.reason) == (field, reason)


@pytest.mark.parametrize("levels", [DEPTH + 1, 500, 100_000])
def test_deep_nesting_is_refused_at_any_depth(levels: int) -> None:
    with pytest.raises(InvalidInput, match="levels deep"):
        read_json(b'{"tools":' + b"[" * levels + b"]" * levels + b"}")


def test_nesting_that_somebody_may_need_is_read() -> None:
    nested = read_json(b'{"tools":' + b"[" * 30 + b"]" * 30 + b"}")

    assert list(nested) == ["tools"]


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert read_body(b'{"path":"\\ud83d\\ude00"}', Sample).path == "\N{GRINNING FACE}"


def test_what_is_left_out_is_unset_and_null_is_none() -> None:
    left_out, null = (
        read_body(b'{"path":"a"}', Sample),
        read_body(b'{"path":"a","metadata":null}', Sample),
    )

    assert (left_out.metadata, null.metadata) == (UNSET, None)


def test_a_body_is_read_whatever_its_content_type_says(ask: Asker) -> None:
    said = ask("POST", "/v1/memory_stores", {"name": "n"}, headers={"content-type": "text/plain"})

    assert said.json()["name"] == "n"


def test_a_call_without_a_body_never_reads_one(ask: Asker, store: str) -> None:
    said = ask("POST", f"/v1/memory_stores/{store}/archive", b"{not json")

    assert said.json()["archived_at"] is not None


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_body_over_its_limit_is_refused_before_it_is_parsed(ask: Asker, chunks: int) -> None:
    huge = b" " * (1_048_576 + 1)

    said = ask("POST", "/v1/memory_stores", huge, chunks=chunks)
    unknown = ask("POST", "/v1/memory_stores", huge, headers={"x-api-key": "hfs_bad"})

    assert unknown.status == 401
    assert (said.status, said.error["type"]) == (413, "request_too_large")
    assert said.facts["facts"] == {"limit": 1_048_576}


def test_a_body_at_its_limit_is_read(ask: Asker) -> None:
    body = b'{"name":"n"}'.ljust(1_048_576)

    assert ask("POST", "/v1/memory_stores", body, chunks=5).status == 200


def test_an_empty_token_body_is_as_good_as_none(ask: Asker) -> None:
    session = ask.post("/v1/sessions", {"agent": "a", "environment_id": "e"}).json()["id"]

    said = ask("POST", f"/api/sessions/{session}/tokens")

    assert said.json()["expires_at"] is None


class Sender:
    """A client of *app* that sends a body by parts, each when the test says so."""

    def __init__(self, app: App, *parts: bytes, **headers: str) -> None:
        self._app, self._headers = app, {"host": HOST, "content-length": "2000", **headers}
        self._parts = asyncio.Queue[bytes]()
        for each in parts:
            self._parts.put_nowait(each)
        self.asked, self.sent = asyncio.Event(), list[MESSAGE]()
        self._left = 2_000

    def send(self, part: bytes) -> None:
        self._parts.put_nowait(part)

    async def __call__(self, target: str = "/v1/memory_stores") -> "Sender":
        scope: MESSAGE = {"type": "http", "method": "POST", "path": target, "query_string": b""}
        scope["raw_path"] = target.encode()
        scope["headers"] = [
            (name.replace("_", "-").encode(), value.encode())
            for name, value in self._headers.items()
        ]
        await self._app(scope, self._receive, self._send)
        return self

    async def _receive(self) -> MESSAGE:
        self.asked.set()
        part = await self._parts.get()
        self._left -= len(part)
        return {"type": "http.request", "body": part, "more_body": self._left > 0}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def headers(self) -> Mapping[str, str]:
        return {k.decode(): v.decode() for k, v in self.sent[0]["headers"]}

    @property
    def error(self) -> MESSAGE:
        return json.loads(self.sent[1]["body"])["error"]


HALF = b'{"name": "half"' + b" " * 985
REST = b" " * 999 + b"}"


@contextmanager
def serving(hf: Holdfast, clock: FrozenClock, **limits: Any) -> Generator[App]:
    app = make_app(hf, clock=clock, limits=RequestLimits(**limits))
    yield app
    app.state.close()


async def stopped(*tasks: asyncio.Task[Sender]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("key", "target", "status"),
    [
        ("hf_made_up", "/v1/memory_stores", 401),
        ("", "/api/longterm/ada/items", 401),
        ("read", "/v1/memory_stores", 403),
        ("write", "/nowhere", 404),
    ],
)
def test_no_byte_of_a_body_is_read_before_the_credential_is_checked(
    ask: Asker, hf: Holdfast, key: str, target: str, status: int
) -> None:
    made = hf.keys.create("k", scope="read" if key == "read" else "write").secret
    secret = str(made) if key in {"read", "write"} else key
    sender = Sender(ask.app, HALF, x_api_key=secret)

    ask.runner.run(sender(target))

    assert (sender.status, sender.asked.is_set()) == (status, False)


def test_a_route_without_a_credential_reads_no_body(app: App, runner: asyncio.Runner) -> None:
    sender = Sender(app)

    runner.run(sender("/healthz"))

    assert (sender.status, sender.asked.is_set()) == (405, False)


def test_requests_whose_credential_is_checked_are_counted_and_others_are_not(
    app: App, hf: Holdfast, ask: Asker
) -> None:
    secret = str(hf.keys.create("k").secret)
    app.state.in_flight = IN_FLIGHT_MOST

    assert ask.get("/v1/memory_stores").status == 401
    assert ask.as_(x_api_key=secret).get("/v1/memory_stores").status == 503
    assert app.state.in_flight == IN_FLIGHT_MOST


@pytest.mark.parametrize(
    ("size", "seconds"), [(0, 5), (8_192, 6), (81_920, 15), (204_800, 30), (10**9, 30)]
)
def test_a_body_has_30_seconds_and_8_kib_in_each_second_after_the_first_5(
    size: int, seconds: float
) -> None:
    assert LIMITS.body_deadline(size) == seconds


@pytest.mark.parametrize(
    "limits",
    [
        {"body_seconds": 0.02},
        {"body_seconds": 1_000.0, "body_grace": 0.02, "body_rate": 1_000_000},
    ],
    ids=["deadline", "rate"],
)
def test_a_body_that_is_late_is_408_and_not_written(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner, limits: dict[str, float]
) -> None:
    with serving(hf, clock, **limits) as app:
        sender = Sender(app, HALF)
        runner.run(sender())

        assert (sender.status, sender.error["type"]) == (408, "timeout_error")
        assert sender.headers["connection"] == "close"
        assert (app.state.in_flight, app.bodies.held) == (0, 0)
    assert hf.memory_stores.list().data == []


def test_a_body_in_time_is_written(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    with serving(hf, clock) as app:
        sender = Sender(app, HALF, REST)
        runner.run(sender())

        assert (sender.status, app.bodies.held, app.state.in_flight) == (200, 0, 0)


def test_bodies_over_the_memory_for_all_of_them_are_503(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    async def talk(app: App) -> tuple[Sender, Sender, Sender]:
        one, two, three = Sender(app, HALF), Sender(app, HALF, REST), Sender(app, HALF, REST)
        first = asyncio.create_task(one())
        await one.asked.wait()
        await two()
        held = app.bodies.held
        one.send(REST)
        await first
        assert (held, app.bodies.held) == (1_000, 0)
        await three()
        return one, two, three

    with serving(hf, clock, bodies_bytes=2_500) as app:
        one, two, three = runner.run(talk(app))

    assert (one.status, two.status, three.status) == (200, 503, 200)
    assert two.headers["retry-after"] == "1"
    assert two.error["type"] == "overloaded_error"


def test_an_open_server_ends_the_half_sent_request_most_behind(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    async def talk(app: App) -> tuple[list[bool], Sender, Sender]:
        senders = [Sender(app, HALF), Sender(app, b"{"), Sender(app, HALF)]
        tasks = [asyncio.create_task(each()) for each in senders]
        await tasks[1]
        whole = await Sender(app, HALF, REST)()
        done = [each.done() for each in tasks]
        await stopped(*tasks)
        return done, senders[1], whole

    with serving(hf, clock, half_sent=2) as app:
        done, ended, whole = runner.run(talk(app))

    assert done == [False, True, False]
    assert (ended.status, ended.headers["retry-after"]) == (503, "1")
    assert whole.status == 200


def test_a_keyed_server_keeps_half_sent_requests(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner
) -> None:
    secret = str(hf.keys.create("k").secret)

    async def talk(app: App) -> list[int]:
        senders = [Sender(app, HALF, x_api_key=secret) for _ in range(4)]
        tasks = [asyncio.create_task(each()) for each in senders]
        for each in senders:
            await each.asked.wait()
        for each in senders:
            each.send(REST)
        return [each.status for each in await asyncio.gather(*tasks)]

    with serving(hf, clock, half_sent=2) as app:
        assert runner.run(talk(app)) == [200] * 4


def test_half_sent_requests_never_hold_more_than_a_quarter_of_an_open_server(
    app: App, runner: asyncio.Runner
) -> None:
    async def talk() -> tuple[int, list[int]]:
        senders = [Sender(app, HALF) for _ in range(IN_FLIGHT_MOST + 100)]
        tasks = [asyncio.create_task(each()) for each in senders]
        for each in senders:
            await each.asked.wait()
        whole = [await Sender(app, HALF, REST)() for _ in range(3)]
        waiting = sum(not each.done() for each in tasks)
        await stopped(*tasks)
        return waiting, [each.status for each in whole]

    waiting, statuses = runner.run(talk())

    assert LIMITS.half_sent * 4 == IN_FLIGHT_MOST
    assert (waiting, statuses) == (LIMITS.half_sent, [200, 200, 200])
    assert (app.state.in_flight, app.bodies.held, app.bodies.half_sent) == (0, 0, set())


def test_a_body_that_is_given_up_leaves_nothing_behind(app: App, runner: asyncio.Runner) -> None:
    async def talk() -> None:
        sender = Sender(app, HALF)
        task = asyncio.create_task(sender())
        await sender.asked.wait()
        await stopped(task)

    runner.run(talk())

    assert (app.state.in_flight, app.bodies.held, app.bodies.half_sent) == (0, 0, set())


class Exhausted(json.JSONDecoder):
    """A parser for which there is no memory."""

    def decode(self, s: str, _w: object = None) -> Any:
        del s
        raise MemoryError


def test_a_body_for_which_there_is_no_memory_is_503(
    app: App, runner: asyncio.Runner, hf: Holdfast
) -> None:
    class Full(Sender):
        async def _receive(self) -> MESSAGE:
            raise MemoryError

    sender = Full(app)
    runner.run(sender())

    assert (sender.status, sender.error["type"]) == (503, "overloaded_error")
    assert json.loads(sender.headers["holdfast-error"])["facts"]["written"] is False
    with pytest.raises(Unavailable):
        read_json(b"{}", BodyLimits(depth=1, parser=Exhausted()))
    assert hf.memory_stores.list().data == []


def test_an_answer_for_which_there_is_no_memory_is_503(app: App, runner: asyncio.Runner) -> None:
    def full(_: object) -> object:
        raise MemoryError

    app.state.executor.quick = app.state.executor.slow = full  # pyright: ignore[reportAttributeAccessIssue] - stands in for a thread without memory
    sender = Sender(app, HALF, REST)
    runner.run(sender())

    assert sender.status == 503
    assert json.loads(sender.headers["holdfast-error"])["facts"]["written"] is None
