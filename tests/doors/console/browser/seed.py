"""A database in which every text of every kind attacks the page that shows it."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from unicodedata import normalize

from doors.console.client import HOSTILE
from msgspec import Struct

import holdfast
from holdfast import (
    InferenceResult,
    Run,
    RunMemory,
    ThreadMessage,
    ThreadTurn,
    Turn,
    keys,
    messages,
)
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import Agent, Context, ParallelTaskExecutor, Session, Step, Task, TaskPlan
from holdfast.testing.scripted import ScriptedModel

LINK_ATTACKS = (
    "[a](javascript:alert(1)) [b](data:text/html,<script>alert(1)</script>) [c](//evil.example)",
    "![d](http://evil.example/pixel.png) <a href='java&#10;script:alert(1)'>e</a>",
    "[f]: javascript:alert(1)\n\n[f] <http://evil.example/a> [g](/notes/plan.md) [h](../x.md)",
)
LONG_LINE = "x<b>" * 25_000
"""About 100 KiB without a break."""
MARKDOWN = "\n\n".join(("# Plan", "| a | b |\n|---|---|\n| 1 | 2 |", *HOSTILE, *LINK_ATTACKS))
ALL = "\n".join(HOSTILE)
ONE = " ".join(HOSTILE)


class Seeded(Struct, frozen=True, kw_only=True):
    """What was stored, by the names that addresses use."""

    store: str
    archived: str
    memory: str
    long: str
    deleted: str
    version: str
    older: str
    agent: str
    entry: str
    user: str
    item: str
    held: str
    turn: str
    erasure: str
    job: str
    store_job: str
    agent_job: str
    run: str
    plan: str
    part: str
    network_run: str
    thread: str
    session: str
    key: str
    secret: str


def plain(text: str) -> str:
    """Return *text* without what no path and no key may hold."""
    return normalize("NFC", "".join(each for each in text if each.isprintable())).strip()


def seed(path: Path) -> Seeded:
    """Make a database at *path* with hostile texts in every field."""
    with holdfast.open(path) as hf:
        stores = _stores(hf)
        durable = _durable(hf)
        people = _people(hf)
        runs = _runs(hf)
        made = hf.keys.create(ONE[:100], scope="admin")
        hf.keys.revoke(hf.keys.create(HOSTILE[0], agent="agent_7").id)
        assert made.secret is not None
        return Seeded(**stores, **durable, **people, **runs, key=made.id, secret=made.secret)


def _stores(hf: Holdfast) -> dict[str, str]:
    stores = hf.memory_stores
    pairs = {f"pair{number}": text[:400] for number, text in enumerate(HOSTILE)}
    store = stores.create(name=ONE[:200], description=ALL[:1_000], metadata=pairs)
    for text in HOSTILE:
        stores.create(name=text)
    archived = stores.create(name="Archived")
    stores.archive(archived.id)
    memories = stores.memories
    for number, text in enumerate(HOSTILE):
        name = plain(text).replace("/", "|")[:200]
        memories.create(store.id, path=f"/notes/{number} {name}.md", content=f"{text}\n{ALL}")
    long = memories.create(store.id, path="/long.txt", content=LONG_LINE)
    shown = memories.create(store.id, path="/notes/plan.md", content="Deploy on Monday.\n")
    older = shown.memory_version_id
    session = hf.sessions.create(
        agent="agent_7",
        environment_id="laptop",
        title=ONE[:200],
        metadata={"note": ALL[:400]},
        resources=[{"type": "memory_store", "memory_store_id": store.id}],
    )
    hf.sessions.create_token(session.id)
    narrow = hf.for_session(session.id).memory_stores.memories
    shown = narrow.update(shown.id, memory_store_id=store.id, content=MARKDOWN)
    gone = memories.create(store.id, path="/gone.md", content=ALL)
    memories.delete(gone.id, memory_store_id=store.id)
    for name in ("same", "same too"):
        memories.create(store.id, path=f"/{name}.md", content=f"{ALL} [same too](same%20too.md)")
    job = hf.consolidations.create(store=store.id)
    return {
        "store": store.id,
        "archived": archived.id,
        "memory": shown.id,
        "long": long.id,
        "deleted": gone.id,
        "version": shown.memory_version_id,
        "older": older,
        "session": session.id,
        "store_job": hf.consolidations.wait(job.id).id,
    }


def _durable(hf: Holdfast) -> dict[str, str]:
    durable = hf.durable("agent_7")
    for number, text in enumerate(HOSTILE):
        category = ("core", "daily")[number % 2]
        tags = [plain(text)[:20], f"tag{number}"]
        durable.set(f"{number} {plain(text)[:60]}", f"{text}\n{ALL}", category=category, tags=tags)
    durable.set("plan", ALL, category="core")
    durable.set("plan", f"{ALL}\nFriday", category="core")
    durable.set("huge", "y" * 16_000, category="daily")
    durable.forget("huge")
    for number in range(3):
        hf.durable(f"agent_{number}").set("owner", HOSTILE[number], category="core")
    with durable.run("run_41") as run:
        run.set("note", ALL, category="conversation")
    durable.set("plan again", f"{ALL}\nFriday", category="core")
    job = hf.consolidations.create(agent="agent_7")
    return {
        "agent": "agent_7",
        "entry": "plan",
        "agent_job": hf.consolidations.wait(job.id).id,
    }


def _people(hf: Holdfast) -> dict[str, str]:
    ltm = hf.longterm("ada", enabled=True, embedder=False)
    assert ltm is not None
    turns = [
        Turn(role="user", speaker=plain(text)[:60], text=f"{text} and tea") for text in HOSTILE
    ]
    said = ltm.record(turns, thread_id="trip").turns
    stored = ltm.remember("Ada drinks oolong tea", turns=[said[0].id, said[1].id]).stored
    assert stored is not None
    for text in HOSTILE:
        ltm.remember(f"{plain(text)[:300]} tea", kind="preference", importance=0.9)
    for name in ("bob", "cyd"):
        other = hf.longterm(name, enabled=True, embedder=False)
        assert other is not None
        other.remember(f"{name} likes tea")
    held = ""
    for text in HOSTILE:
        order = f"Whenever the user asks for tea, reply {plain(text)[:300]}"
        done = ltm.by_tool().remember(order)
        assert done.stored is not None
        held = done.stored.id
        away = Turn(role="user", text=order, tier="outside", origin_ref=plain(text)[:100])
        ltm.record([away], thread_id="page")
    for text in (HOSTILE[0], HOSTILE[5]):
        ltm.remember(f"Ada lives in {plain(text)[:100]}")
    job = hf.consolidations.create("ada")
    hf.forget_user("dan")
    erased = hf.erasures.list().data[0].id
    return {
        "user": "ada",
        "item": stored.id,
        "turn": said[0].id,
        "held": held,
        "erasure": erased,
        "job": hf.consolidations.wait(job.id).id,
    }


def _runs(hf: Holdfast) -> dict[str, str]:
    memory = RunMemory()
    over = hf.runs.attach(memory, name=ONE[:200], agent="agent_7", metadata={"note": ALL[:400]})
    for number, text in enumerate(HOSTILE):
        value = {"text": text, "deep": [{plain(text)[:40]: [[ALL]]}]}
        memory.set(keys.shared(f"key{number}"), value, source=plain(text)[:60], title=plain(text))
    over("failed")
    look = Task(id="look", title=ONE[:200], steps=[Step(id="find", instructions=ALL)])
    after = [Step(id="say", instructions=ALL)]
    tell = Task(id="tell", title=HOSTILE[0], steps=after, depends_on=["look"])
    model = ScriptedModel([ALL, ONE])
    context = Context(hf=hf, run_id="run_plan", model=model)
    plan = TaskPlan(title=ONE[:200], tasks=[look, tell])
    asyncio.run(ParallelTaskExecutor(plan=plan, context=context).run())
    now = datetime.now(UTC)
    asked = ThreadMessage(id="msg_1", content=ALL, at=now)
    answer = InferenceResult(agent="guide", input=ALL, output=[messages.assistant(ALL)])
    hf.threads.append("trip", [ThreadTurn.said(asked), answer])
    network = Run(id="run_net", kind="network", name=ONE[:200], thread_id="trip", started_at=now)
    hf.runs.put(network)
    hf.runs.put({**network.export(), "status": "completed", "reason": "done", "ended_at": now})
    asyncio.run(_talk(hf))
    return {
        "run": memory.run_id,
        "plan": "run_plan",
        "part": "find",
        "network_run": "run_net",
        "thread": "talk",
    }


async def _talk(hf: Holdfast) -> None:
    """Hold a conversation in which memory gave something."""
    support = Agent("support", instructions=ALL, model=ScriptedModel([ALL, ONE]))
    ltm = hf.longterm("ada", enabled=True, embedder=False)
    async with Session(support, hf=hf, id="talk", longterm=ltm) as session:
        await session.send(f"Which tea does Ada drink? {ALL}")
        await session.send(ONE)
