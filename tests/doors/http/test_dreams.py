"""Dreams: what is asked for, what is refused, who does them, and what becomes of the result."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from doors.http.asking import Asker
from memories.longterm.model_servers import ModelServer, model_server

from holdfast.doors.http.app import make_app
from holdfast.engines.base import Transaction
from holdfast.ground.scope import Actor
from holdfast.library.holdfast import Holdfast
from holdfast.library.open import resume_work
from holdfast.memories.longterm.consolidation.jobs import (
    ConsolidationWork,
    calls_of,
    job_of,
    statements,
)
from holdfast.memories.stores.consolidation.decisions import StoreMemory
from holdfast.memories.stores.consolidation.dreams import checked_dream, dreaming, put_dream
from holdfast.memories.stores.records import Memory
from holdfast.testing.fakes import FrozenClock

DREAMING, MANAGED = "dreaming-2026-04-21", "managed-agents-2026-04-01"
EDIT = json.dumps({"edit": [{"file": "f1", "text": "Deploys go to fly.io."}]})


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """Give the server of the model that does dreams."""
    with model_server() as model:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{model.url}/v1")
        model.says = EDIT
        yield model


@pytest.fixture
def ask(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner, model: ModelServer
) -> Iterator[Asker]:
    del model
    app = make_app(hf, clock=clock, dream_model="ollama:dream")
    yield Asker(app, runner)
    app.state.close()


@pytest.fixture
def session(hf: Holdfast, store: str) -> str:
    """Give a session that wrote a text, which is another by now."""
    attached: Any = [{"type": "memory_store", "memory_store_id": store}]
    session = hf.sessions.create(agent="a", environment_id="e", resources=attached).id
    memories = hf.acting(actor=Actor.session(session), session_id=session).memory_stores.memories
    memory = memories.create(store, path="/deploy.md", content="Deploys go to Heroku.")
    memories.update(memory.id, memory_store_id=store, content="Deploys go to fly.")
    return session


@pytest.fixture
def order(store: str, session: str) -> dict[str, Any]:
    return {
        "inputs": [
            {"type": "memory_store", "memory_store_id": store},
            {"type": "sessions", "session_ids": [session]},
        ],
        "model": "claude-opus-4-8",
    }


def made(ask: Asker, order: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a dream that was begun."""
    answer = ask.post("/v1/dreams", {**order, **more})
    assert answer.status == 200, answer.body
    return answer.json()


def ended(ask: Asker, hf: Holdfast, dream: dict[str, Any]) -> dict[str, Any]:
    """Return *dream* once it has ended."""
    hf.consolidations.wait(f"cons_{dream['id'].removeprefix('drm_')}")
    return ask.get(f"/v1/dreams/{dream['id']}").json()


def texts(hf: Holdfast, store: str) -> dict[str, str | None]:
    found = hf.memory_stores.memories.list(store, view="full", limit=20).all()
    return {each.path: each.content for each in found if isinstance(each, Memory)}


def updating(store: str) -> dict[str, Any]:
    return {"output_behavior": {"type": "update_existing", "memory_store_id": store}}


def test_a_dream_makes_a_new_store_and_leaves_the_other(
    ask: Asker, hf: Holdfast, model: ModelServer, order: dict[str, Any], store: str
) -> None:
    before = texts(hf, store)
    dream = made(ask, order, instructions="Names of services only.")

    assert list(dream) == [
        "type", "id", "status", "inputs", "outputs", "model", "instructions", "output_behavior",
        "session_id", "created_at", "ended_at", "archived_at", "usage", "error",
    ]  # fmt: skip
    assert (dream["status"], dream["outputs"], dream["ended_at"]) == ("pending", [], None)
    assert dream["inputs"] == order["inputs"]
    done = ended(ask, hf, dream)
    (output,) = done["outputs"]

    assert (done["status"], done["error"]) == ("completed", None)
    assert done["model"] == {"id": "claude-opus-4-8", "speed": "standard"}
    assert (done["usage"]["input_tokens"], done["usage"]["output_tokens"]) == (1, 1)
    assert texts(hf, store) == before == {"/deploy.md": "Deploys go to fly."}
    assert texts(hf, output["memory_store_id"]) == {"/deploy.md": "Deploys go to fly.io."}
    (asked,) = model.asked
    sent = json.dumps(asked.body)
    assert "Deploys go to Heroku." in sent
    assert order["inputs"][1]["session_ids"][0] in sent
    assert "Names of services only." in sent
    head = hf.memory_stores.memory_versions.list(output["memory_store_id"]).data[0]
    assert (head.created_by.kind, head.created_by.id) == ("session", done["session_id"])
    own = hf.sessions.retrieve(done["session_id"])
    assert (own.title, own.resources[0].access) == (done["id"], "read_only")


def test_a_dream_may_update_its_store_and_is_looked_at_and_undone(
    hf: Holdfast, clock: FrozenClock, runner: asyncio.Runner, order: dict[str, Any], store: str
) -> None:
    def answer(_request: object) -> str:
        clock.tick()
        return EDIT

    app = make_app(hf, clock=clock, dream_model=answer)
    ask = Asker(app, runner)
    done = ended(ask, hf, made(ask, order, **updating(store)))

    assert done["outputs"] == [{"type": "memory_store", "memory_store_id": store}]
    assert done["output_behavior"] == updating(store)["output_behavior"]
    assert texts(hf, store) == {"/deploy.md": "Deploys go to fly.io."}
    job = f"cons_{done['id'].removeprefix('drm_')}"
    proposal = ask.get(f"/api/consolidations/{job}").json()["proposal"]
    assert proposal["status"] == "accepted"
    assert "+Deploys go to fly.io." in proposal["changes"][0]["diff"]
    assert ask.post(f"/api/consolidations/{job}/undo", {}).status == 200
    assert texts(hf, store) == {"/deploy.md": "Deploys go to fly."}
    app.state.close()


def test_a_dream_without_a_change_still_makes_the_copy(
    ask: Asker, hf: Holdfast, model: ModelServer, order: dict[str, Any]
) -> None:
    model.says = "{}"
    done = ended(ask, hf, made(ask, order))

    (output,) = done["outputs"]
    assert texts(hf, output["memory_store_id"]) == {"/deploy.md": "Deploys go to fly."}


def test_a_dream_that_fails_writes_nothing_and_says_why(
    ask: Asker, hf: Holdfast, model: ModelServer, order: dict[str, Any], store: str
) -> None:
    stores = len(hf.memory_stores.list().data)
    model.says = "I would rather not."
    unread = ended(ask, hf, made(ask, order))
    model.says, model.status = EDIT, 400
    refused = ended(ask, hf, made(ask, order, **updating(store)))
    dreams = ask.get("/v1/dreams?statuses[]=failed").json()["data"]

    assert (unread["status"], unread["error"]["type"]) == ("failed", "unreadable_answer")
    assert (refused["status"], refused["error"]["type"]) == ("failed", "internal_error")
    assert unread["outputs"] == []
    assert {each["id"] for each in dreams} == {unread["id"], refused["id"]}
    assert len(hf.memory_stores.list().data) == stores
    assert texts(hf, store) == {"/deploy.md": "Deploys go to fly."}


def test_a_store_that_is_archived_meanwhile_is_not_written(
    ask: Asker, hf: Holdfast, order: dict[str, Any], store: str
) -> None:
    id = waiting(hf, order | updating(store))
    hf.memory_stores.archive(store)
    done = ended(ask, hf, {"id": f"drm_{id.removeprefix('cons_')}"})

    assert (done["status"], done["error"]["type"]) == ("failed", "memory_store_archived")
    assert texts(hf, store) == {"/deploy.md": "Deploys go to fly."}


def test_a_dream_that_needs_more_than_it_may_use_fails(
    ask: Asker, hf: Holdfast, monkeypatch: pytest.MonkeyPatch, order: dict[str, Any]
) -> None:
    budget = hf.consolidations.create("ada").budget
    spent = type(budget)(calls=0)
    monkeypatch.setattr("holdfast.memories.stores.consolidation.dreams.BUDGET", spent)
    done = ended(ask, hf, made(ask, order))

    assert (done["status"], done["error"]["type"], done["outputs"]) == ("failed", "timeout", [])
    failed = ask.get("/v1/dreams?statuses[]=failed").json()["data"]
    assert [each["id"] for each in failed] == [done["id"]]
    job = f"cons_{done['id'].removeprefix('drm_')}"
    assert ask.post(f"/api/consolidations/{job}/resume", {}).status == 409


def waiting(hf: Holdfast, order: dict[str, Any]) -> str:
    """Return the job of a dream that no process has begun."""
    given = {"instructions": None, "output_behavior": None} | order
    return put_dream(hf.consolidations.context, checked_dream(**given), model="ollama:dream")


def test_one_of_two_workers_writes_the_result(
    hf: Holdfast, order: dict[str, Any], store: str
) -> None:
    jobs = hf.consolidations
    id = waiting(hf, order)
    engine = jobs.context.engine
    row = job_of(engine, statements(engine), id)
    memory, finish = dreaming(StoreMemory(jobs.context, store), row)

    def answer(_request: object) -> str:
        # Another worker looks at it while this one waits for the model.
        other = ConsolidationWork(memory, id, lambda _: "{}", finish)
        assert (other.tend() or 0) > 0
        return EDIT

    ConsolidationWork(memory, id, answer, finish).tend()
    ConsolidationWork(memory, id, answer, finish).tend()

    copies = [each for each in hf.memory_stores.list().data if each.id != store]
    assert [texts(hf, each.id) for each in copies] == [{"/deploy.md": "Deploys go to fly.io."}]


def test_a_dream_that_is_canceled_while_its_model_answers_makes_no_store(
    hf: Holdfast, order: dict[str, Any], store: str
) -> None:
    id = waiting(hf, order)
    engine = hf.consolidations.context.engine
    row = job_of(engine, statements(engine), id)
    memory, finish = dreaming(StoreMemory(hf.consolidations.context, store), row)

    def end(tx: Transaction) -> Callable[[], None]:
        # The last moment: the transaction that ends it has begun.
        tx.run(statements(engine).cancel_job, id=id, now=memory.now())
        return finish(tx)

    ConsolidationWork(memory, id, lambda _: EDIT, end).tend()

    assert [each.id for each in hf.memory_stores.list().data] == [store]


def test_a_dream_that_a_process_left_is_done_by_the_next_and_goes_with_its_store(
    ask: Asker, hf: Holdfast, clock: FrozenClock, order: dict[str, Any], store: str
) -> None:
    id = waiting(hf, order)
    clock.tick(3_600)

    resume_work(hf, clock.now())

    dream = {"id": f"drm_{id.removeprefix('cons_')}"}
    done = ended(ask, hf, dream)
    (output,) = done["outputs"]
    assert texts(hf, output["memory_store_id"]) == {"/deploy.md": "Deploys go to fly.io."}
    assert hf.verify().findings == ()
    hf.memory_stores.delete(store)
    assert ask.get(f"/v1/dreams/{dream['id']}").status == 404
    assert ask.get("/v1/dreams").json()["data"] == []


def test_only_one_dream_at_a_time_updates_a_store(
    ask: Asker, hf: Holdfast, order: dict[str, Any], store: str
) -> None:
    first = waiting(hf, order | updating(store))
    sessions = len(hf.sessions.list().data)

    answer = ask.post("/v1/dreams", order | updating(store))

    assert (answer.status, answer.error["type"]) == (409, "conflict_error")
    assert len(hf.sessions.list().data) == sessions
    made(ask, order)
    ask.post(f"/v1/dreams/drm_{first.removeprefix('cons_')}/cancel", {})
    made(ask, order, **updating(store))


def test_a_dream_is_canceled_archived_and_listed(
    ask: Asker, hf: Holdfast, order: dict[str, Any]
) -> None:
    ids = [f"drm_{waiting(hf, order).removeprefix('cons_')}" for _ in range(3)]

    assert ask.post(f"/v1/dreams/{ids[0]}/archive", {}).status == 400
    canceled = ask.post(f"/v1/dreams/{ids[0]}/cancel", {}).json()
    assert (canceled["status"], canceled["outputs"]) == ("canceled", [])
    assert canceled["ended_at"] is not None
    assert ask.post(f"/v1/dreams/{ids[0]}/cancel", {}).json() == canceled
    archived = ask.post(f"/v1/dreams/{ids[0]}/archive", {}).json()
    assert archived["archived_at"] is not None
    assert ask.post(f"/v1/dreams/{ids[0]}/archive", {}).json() == archived
    assert ask.get(f"/v1/dreams/{ids[0]}").json() == archived
    hf.consolidations.create("ada")

    def listed(query: str = "") -> list[str]:
        return [each["id"] for each in ask.get(f"/v1/dreams?{query}").json()["data"]]

    assert listed() == [ids[2], ids[1]]
    assert listed("include_archived=true") == ids[::-1]
    assert listed("statuses[]=canceled&include_archived=true") == [ids[0]]
    assert listed("statuses[]=canceled&statuses[]=pending") == [ids[2], ids[1]]
    assert listed("created_at[gt]=2100-01-01T00:00:00Z") == []
    assert listed("created_at[lt]=2000-01-01T00:00:00Z") == []
    first = ask.get("/v1/dreams?limit=1").json()
    assert [each["id"] for each in first["data"]] == [ids[2]]
    assert listed(f"limit=1&page={first['next_page']}") == [ids[1]]
    assert ask.get("/v1/dreams?statuses[]=cancelled").status == 400
    assert ask.get("/v1/dreams?limit=101").status == 400


def test_an_ended_dream_is_not_canceled(ask: Asker, hf: Holdfast, order: dict[str, Any]) -> None:
    done = ended(ask, hf, made(ask, order))

    assert ask.post(f"/v1/dreams/{done['id']}/cancel", {}).status == 400
    assert ask.post(f"/v1/dreams/{done['id']}/archive", {}).json()["status"] == "completed"


Change = Callable[[dict[str, Any]], object]
WRONG: dict[str, Change] = {
    "inputs is required": lambda order: order.pop("inputs"),
    "model is required": lambda order: order.pop("model"),
    "inputs: must be one": lambda order: order["inputs"].pop(),
    "inputs: must": lambda order: order["inputs"].append(order["inputs"][0]),
    "inputs.other": lambda order: order["inputs"][0].update(other=1),
    "inputs.session_ids: must be 1 to 100": lambda order: order["inputs"][1].update(session_ids=[]),
    "none of them twice": lambda order: order["inputs"][1]["session_ids"].append(
        order["inputs"][1]["session_ids"][0]
    ),
    "must be a list of ids": lambda order: order["inputs"][1].update(session_ids=[1]),
    "instructions": lambda order: order.update(instructions=""),
    "at most 4,096": lambda order: order.update(instructions="x" * 4_097),
    "model.speed": lambda order: order.update(model={"id": "m", "speed": "fast"}),
    "model.id": lambda order: order.update(model={"speed": "standard"}),
    "model": lambda order: order.update(model=""),
    "output_behavior": lambda order: order.update(output_behavior={"type": "other"}),
    "must name the memory store": lambda order: order.update(**updating("memstore_1")),
    "other is not": lambda order: order.update(other=1),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_request_names_what_is_wrong(
    ask: Asker, order: dict[str, Any], message: str
) -> None:
    WRONG[message](order)

    answer = ask.post("/v1/dreams", order)

    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert message.partition(":")[0].split(" ")[0] in answer.error["message"]


def test_an_unknown_store_or_session_is_not_found_and_an_archived_store_refused(
    ask: Asker, hf: Holdfast, order: dict[str, Any], store: str
) -> None:
    unknown = json.loads(json.dumps(order))
    unknown["inputs"][1]["session_ids"] = [f"sesn_{'0' * 24}"]
    assert ask.post("/v1/dreams", unknown).status == 404
    unknown["inputs"][0]["memory_store_id"] = f"memstore_{'0' * 24}"
    assert ask.post("/v1/dreams", unknown).status == 404
    assert ask.get(f"/v1/dreams/drm_{'0' * 24}").status == 404
    assert ask.get("/v1/dreams/cons_1").status == 404
    elsewhere = ask.as_(anthropic_workspace_id="other")
    assert elsewhere.post("/v1/dreams", order).status == 404
    job = hf.consolidations.create(store=store)
    assert ask.get(f"/v1/dreams/drm_{job.id.removeprefix('cons_')}").status == 404
    dream = made(ask, order)["id"]
    assert elsewhere.get(f"/v1/dreams/{dream}").status == 404
    hf.memory_stores.archive(store)
    assert ask.post("/v1/dreams", order).status == 400


def test_without_a_model_that_can_be_used_there_is_no_dream(
    hf: Holdfast,
    clock: FrozenClock,
    runner: asyncio.Runner,
    order: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    for name, advice in {None: "--dream-model", "anthropic:claude-x": "ANTHROPIC_API_KEY"}.items():
        app = make_app(hf, clock=clock, dream_model=name)
        answer = Asker(app, runner).post("/v1/dreams", order)
        app.state.close()

        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
        assert advice in answer.error["message"]
    assert hf.consolidations.list().data == []


def test_a_strict_server_demands_the_header_of_dreams(strict: Asker) -> None:
    def status(beta: str) -> int:
        asker = strict.as_(anthropic_version="2023-06-01", anthropic_beta=beta)
        return asker.get("/v1/dreams").status

    assert [status(""), status(MANAGED), status("other")] == [400] * 3
    assert [status(DREAMING), status(f"{MANAGED}, {DREAMING}")] == [200] * 2


def test_a_redacted_text_of_a_session_is_in_no_call(
    ask: Asker, hf: Holdfast, order: dict[str, Any], store: str
) -> None:
    done = ended(ask, hf, made(ask, order))
    job = f"cons_{done['id'].removeprefix('drm_')}"
    engine = hf.consolidations.context.engine
    assert "Heroku" in str(calls_of(engine, job))
    versions = hf.memory_stores.memory_versions
    first = versions.list(store).data[-1]

    versions.redact(first.id, memory_store_id=store)

    assert calls_of(engine, job) == []
