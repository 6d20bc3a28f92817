import re
from importlib.metadata import version

import pytest
from doors.http.asking import Asker

from holdfast import tools
from holdfast.doors.http.app import App, routes
from holdfast.ground.errors import InvalidInput, Unavailable
from holdfast.library.holdfast import Holdfast

STORE_METRICS = {
    'holdfast_store_writes_total{operation="created"}',
    'holdfast_store_writes_total{operation="modified"}',
    'holdfast_store_writes_total{operation="deleted"}',
    "holdfast_store_noops_total",
    'holdfast_store_conflicts_total{kind="path_taken"}',
    'holdfast_store_conflicts_total{kind="precondition_failed"}',
    'holdfast_store_refused_total{reason="store_archived"}',
    'holdfast_store_refused_total{reason="store_full"}',
    'holdfast_store_refused_total{reason="head_version"}',
    "holdfast_store_redactions_total",
    "holdfast_http_auth_failures_total",
    'holdfast_http_requests_total{route="/v1/memory_stores",method="GET",status="200"}',
    'holdfast_http_request_seconds_count{route="unknown"}',
    'holdfast_engine_writes_total{outcome="ok"}',
    'holdfast_engine_cache_bytes{cache="postings"}',
    'holdfast_engine_cache_bytes{cache="vectors"}',
}


def numbers(ask: Asker) -> dict[str, float]:
    lines = ask.get("/metrics").body.decode().splitlines()
    return {
        name: float(number)
        for name, _, number in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def test_every_number_is_there_from_the_start_at_0(ask: Asker) -> None:
    assert {name: numbers(ask).get(name) for name in STORE_METRICS} == dict.fromkeys(
        STORE_METRICS, 0
    )


def test_what_became_of_writes_is_counted(
    ask: Asker, hf: Holdfast, store: str, memory: str, clock: object
) -> None:
    memories = f"/v1/memory_stores/{store}/memories"
    before = numbers(ask)

    clock.tick()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    ask.post(f"{memories}/{memory}", {"content": "tabs"})
    ask.post(f"{memories}/{memory}", {"content": "spaces"})
    ask.post(memories, {"path": "/a.md", "content": ""})
    ask("DELETE", f"{memories}/{memory}?expected_content_sha256={'0' * 64}")
    head = hf.memory_stores.memory_versions.list(store).data[0].id
    ask("POST", f"/v1/memory_stores/{store}/memory_versions/{head}/redact")
    ask("DELETE", f"{memories}/{memory}")
    ask("POST", f"/v1/memory_stores/{store}/memory_versions/{head}/redact")

    after = numbers(ask)
    risen = {name for name in STORE_METRICS if after[name] == before[name] + 1}
    assert risen >= {
        'holdfast_store_writes_total{operation="modified"}',
        'holdfast_store_writes_total{operation="deleted"}',
        "holdfast_store_noops_total",
        'holdfast_store_conflicts_total{kind="path_taken"}',
        'holdfast_store_conflicts_total{kind="precondition_failed"}',
        'holdfast_store_refused_total{reason="head_version"}',
        "holdfast_store_redactions_total",
    }


def test_calls_of_tools_are_counted_for_the_whole_process(
    ask: Asker, hf: Holdfast, store: str
) -> None:
    viewed = 'holdfast_tool_calls_total{tool="memory",command="view",outcome="ok"}'
    before = numbers(ask)[viewed]

    (tool,) = tools.files(hf, store)
    tool.call({"command": "view", "path": "/memories"})

    assert numbers(ask)[viewed] == before + 1


def test_what_long_term_memory_holds_and_did_is_counted(ask: Asker, hf: Holdfast) -> None:
    stored = 'holdfast_ltm_outcomes_total{outcome="stored"}'
    recalled = 'holdfast_ltm_recall_seconds_count{mode="lexical"}'
    before = numbers(ask)

    ltm = hf.acting(workspace="lab").longterm("secret-ada", enabled=True)
    assert ltm is not None
    ltm.remember("Likes tabs")
    ltm.recall("tabs")
    after = numbers(ask)

    assert (before["holdfast_ltm_items"], after["holdfast_ltm_items"]) == (0, 1)
    assert after["holdfast_ltm_turns"] == 0
    for name in (stored, recalled, 'holdfast_ltm_recall_seconds_bucket{mode="lexical",le="+Inf"}'):
        assert after[name] == before[name] + 1
    assert after['holdfast_ltm_jobs{kind="extract",state="failed"}'] == 0
    assert {name.partition("{")[0] for name in after if name.startswith("holdfast_ltm_")} >= {
        f"holdfast_ltm_{name}"
        for name in (
            *("recall_empty_total", "items", "turns", "outcomes_total", "jobs", "evicted_total"),
            *("extraction_seconds_count", "embedding_seconds_count"),
        )
    }
    text = ask.get("/metrics").body
    assert b"secret-ada" not in text
    assert b"# TYPE holdfast_ltm_secrets_total counter" in text


def test_requests_are_counted_by_route_and_never_by_what_they_name(ask: Asker, store: str) -> None:
    ask.get(f"/v1/memory_stores/{store}")
    ask.get("/v1/memory_stores/memstore_hidden")
    ask("BREW", "/coffee-hidden")

    text = ask.get("/metrics").body.decode()

    one = 'holdfast_http_requests_total{route="/v1/memory_stores/{s}",method="GET",status='
    assert f'{one}"200"}} 1' in text
    assert f'{one}"404"}} 1' in text
    assert 'route="unknown",method="unknown",status="404"} 1' in text
    assert store not in text
    assert "hidden" not in text


def test_requests_are_logged_by_route_and_never_by_what_they_name(
    app: App, ask: Asker, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="holdfast.access")

    ask.get(f"/v1/memory_stores/{store}/memories?path_prefix=/hidden/")
    ask.get("/v1/memory_stores/memstore_hidden")
    ask("BREW", "/coffee-hidden?hidden=1")
    app.refusal(InvalidInput("request", "is not HTTP"))

    logged = [each.getMessage() for each in caplog.records if each.name == "holdfast.access"]
    assert [re.sub(r" \d+\.\d ms$", " N ms", each) for each in logged] == [
        "GET /v1/memory_stores/{s}/memories 200 N ms",
        "GET /v1/memory_stores/{s} 404 N ms",
        "unknown unknown 404 N ms",
        "unknown unknown 400 N ms",
    ]


def test_numbers_are_written_as_prometheus_reads_them(ask: Asker) -> None:
    said = ask.get("/metrics")

    sample = re.compile(r'[a-z_]+(?:\{(?:[a-z_]+="[^"\\]*",?)+\})? -?[0-9.e+-]+|# (?:HELP|TYPE) .+')
    assert said.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert [each for each in said.body.decode().splitlines() if not sample.fullmatch(each)] == []


def test_a_lock_out_is_counted(ask: Asker, hf: Holdfast) -> None:
    admin = ask.as_(x_api_key=str(hf.keys.create("k", scope="read").secret))

    ask.get("/v1/memory_stores")

    assert numbers(admin)["holdfast_http_auth_failures_total"] == 1


def test_health_asks_no_database(ask: Asker, hf: Holdfast) -> None:
    hf.close()

    assert ask.get("/healthz").status == 200
    assert ask.get("/readyz").status == 503


def test_a_server_that_stops_is_not_ready(app: App, ask: Asker) -> None:
    ready = ask.get("/readyz").status
    app.state.stopping.set()

    said = ask.get("/readyz")

    assert (ready, said.status) == (200, 503)
    assert said.headers["retry-after"] == "1"


def test_a_database_that_cannot_be_read_is_not_ready(
    ask: Asker, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise Unavailable("Gone.", reason="io")

    monkeypatch.setattr(hf.engine, "status", broken)

    assert ask.get("/readyz").status == 503


def test_the_root_names_the_description_without_a_credential(ask: Asker, hf: Holdfast) -> None:
    hf.keys.create("k")

    said = ask.get("/")

    assert said.status == 200
    assert said.json() == {
        "name": "holdfast",
        "version": version("holdfast"),
        "openapi": "/openapi.json",
    }
    assert ask.get(said.json()["openapi"]).status == 200


def test_the_description_tells_every_route(ask: Asker) -> None:
    told = ask.get("/openapi.json").json()

    operations = {(m.upper(), path) for path, by in told["paths"].items() for m in by}
    assert told["openapi"].startswith("3.1")
    assert operations == {(each.method, each.path) for each in routes(strict=False)}


def test_the_description_names_places_bodies_and_queries(ask: Asker) -> None:
    told = ask.get("/openapi.json").json()

    create = told["paths"]["/v1/memory_stores/{s}/memories"]["post"]
    body = told["components"]["schemas"]["CreateMemory"]
    assert [each["name"] for each in create["parameters"]] == ["s", "view"]
    assert create["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "/CreateMemory"
    )
    assert (set(body["properties"]), body["additionalProperties"]) == ({"path", "content"}, False)


def test_every_operation_has_a_name_of_its_own(ask: Asker) -> None:
    told = ask.get("/openapi.json").json()

    names = [each["operationId"] for by in told["paths"].values() for each in by.values()]
    assert len(names) == len(set(names))


def test_the_app_speaks_of_its_life(app: App, ask: Asker) -> None:
    sent: list[str] = []
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> dict[str, str]:
        return next(messages)

    async def send(message: object) -> None:
        sent.append(message["type"])  # pyright: ignore[reportIndexIssue, reportUnknownArgumentType] - ASGI sends dicts

    ask.runner.run(app({"type": "lifespan"}, receive, send))

    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
